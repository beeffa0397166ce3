//! Connections that the system's firewall leads here (Linux): whoever made them knows of no proxy.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Client;
use crate::door::Door;
use crate::event::Event;
use crate::here::is_elsewhere;

/// How connections were led here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// By a translation of their destination (REDIRECT), which the system remembers.
    Redirect,
    /// As they are (TPROXY), to a port that [takes them](listen_transparent).
    Tproxy,
}

/// Connections that wait to be accepted, as the standard library has it for other ports.
const BACKLOG: i32 = 1024;

/// Binds a port to `at` to which also connections may be led that are for other hosts.
///
/// # Errors
/// When the port is not to be had, or this user may not: it takes CAP_NET_ADMIN.
pub fn listen_transparent(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = transparent(at, Type::STREAM, Protocol::TCP)?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A socket at an address that need not be this machine's, and that others may have, too.
pub(crate) fn transparent(at: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
    match at.is_ipv6() {
        true => {
            socket.set_only_v6(false)?;
            socket.set_ip_transparent_v6(true)?;
        }
        false => socket.set_ip_transparent_v4(true)?,
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// The address that programs mean where a socket of IPv6 stands for IPv4, too.
pub(crate) fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

impl Client {
    /// Carries connections that the firewall leads to `listener` to where they were going. Does not end.
    pub async fn serve_intercepted(&self, listener: TcpListener, how: Interception) {
        let mut door = Door::new(listener, self.reporter());
        loop {
            let (tcp, from) = door.next().await;
            match destination(&tcp, how) {
                Ok(to) => drop(tokio::spawn(self.clone().forward_one(tcp, to.into()))),
                Err(why) => {
                    let _ = tcp.set_zero_linger();
                    self.report(Event::Misled(format!("{from}: {why}")));
                }
            }
        }
    }
}

/// Where a connection was going. One to this machine is not carried: if it came to the port by itself, it
/// would be led back to it without end; and else the far side's idea of that address is another.
fn destination(tcp: &TcpStream, how: Interception) -> Result<SocketAddr, String> {
    let at = tcp.local_addr().map(canonical);
    let at = at.map_err(|error| format!("it left: {error}"))?;
    let to = match how {
        Interception::Redirect => {
            let socket = SockRef::from(tcp);
            let found = match at.is_ipv4() {
                true => socket.original_dst_v4(),
                false => socket.original_dst_v6(),
            };
            let to = found.map_err(|error| format!("nobody redirected it: {error}"))?;
            canonical(to.as_socket().ok_or("it was going to no address")?)
        }
        Interception::Tproxy => at,
    };
    match is_elsewhere(to) {
        Ok(true) => Ok(to),
        Ok(false) => Err(format!("it was going to {to}, which is here")),
        Err(error) => Err(format!("whether {to} is here cannot be found out: {error}")),
    }
}
