//! Where sockets of programs connect to, and how that ends.
//!
//! A *gate* is an address of this machine at which a socket listens that takes nobody: its queue has room for
//! one connection, which is there already. A SYN that is sent to it is not answered, and who sent it goes on to
//! connect, for as long as TCP tries. It is let in by a socket that connects from the gate's address to it: the
//! SYNs cross, which connects both (RFC 9293 §3.5, figure 8). It is refused by connecting it anew to a port
//! where nobody listens. Nobody else can do either: that takes a socket of this process's user at the gate's
//! address.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::address::canonical;
use crate::sys;

/// How long SYNs may take to cross on this machine: one that is lost, as where memory is short, is sent again
/// after a second, and that twice.
const CROSSING: Duration = Duration::from_secs(4);

/// After which a socket is looked at again that its program has in hand: calls on it take less.
const MOMENT: Duration = Duration::from_millis(1);

/// One address, and one that refuses.
struct Side {
    at: SocketAddr,
    refuses: SocketAddr,
    sockets: [Socket; 3],
}

impl Side {
    fn open(any: SocketAddr) -> io::Result<Self> {
        let gate = at_port(any)?;
        gate.listen(0)?;
        let at = gate.local_addr()?;
        let only = Socket::new(Domain::for_address(any), Type::STREAM, Some(Protocol::TCP))?;
        only.connect(&at)?;
        sys::wait_for_input(gate.as_fd())?;
        let closed = at_port(any)?;
        Ok(Self {
            at: address(Ok(at))?,
            refuses: address(closed.local_addr())?,
            sockets: [gate, only, closed],
        })
    }
}

/// A socket of TCP at `at`, beside others of this process there.
fn at_port(at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

fn address(found: io::Result<socket2::SockAddr>) -> io::Result<SocketAddr> {
    let other = || io::Error::other("not an address of IP");
    found?.as_socket().ok_or_else(other)
}

/// See the module's text.
pub(crate) struct Gate {
    v4: Side,
    /// Unless this machine has no IPv6.
    v6: Option<Side>,
}

impl Gate {
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            v4: Side::open((Ipv4Addr::LOCALHOST, 0).into())?,
            v6: Side::open((Ipv6Addr::LOCALHOST, 0).into()).ok(),
        })
    }

    /// Of what network this machine's addresses are, if the system says.
    pub fn network(&self) -> Option<u64> {
        sys::network_of(self.v4.sockets[0].as_fd())
    }

    /// The side for a socket that wants to connect to `to`.
    fn side(&self, to: SocketAddr) -> &Side {
        let v6 = self.v6.as_ref();
        v6.filter(|_| canonical(to).is_ipv6()).unwrap_or(&self.v4)
    }

    /// Has `socket`, of a program that wants to connect to `to`, begin to connect, or go on: what its own
    /// call would say.
    pub fn knock(&self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        connect_now(socket, self.side(to).at)
    }

    /// Ends the attempt of `socket`, which was let in, for the system, too: what its own call would have done
    /// in the end. It does not wait, so the socket need not be told not to: a program's thread that reads at
    /// this moment would hear that there is nothing yet.
    pub fn conclude(&self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        socket.peer_addr()?;
        socket.connect(&reached_by(socket, self.side(to).at)?.into())
    }

    /// Lets `socket` in, which is connecting, and returns the other end of its connection.
    pub async fn let_in(&self, socket: &Socket, to: SocketAddr) -> io::Result<TcpStream> {
        let from = canonical(address(socket.local_addr())?);
        let gate = at_port(self.side(to).at)?;
        // Else a short message could wait for an acknowledgement of the one before.
        gate.set_tcp_nodelay(true)?;
        match gate.connect(&from.into()) {
            Err(error) if !is_under_way(&error) => return Err(error),
            _ => {}
        }
        let stream = TcpStream::from_std(gate.into())?;
        let crossed = async {
            stream.writable().await?;
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            // It is connected, too, unless its program has it in hand just now.
            while socket.peer_addr().is_err() {
                sleep(MOMENT).await;
            }
            Ok(())
        };
        timeout(CROSSING, crossed).await??;
        Ok(stream)
    }

    /// Refuses `socket`, which is connecting.
    pub fn refuse(&self, socket: &Socket, to: SocketAddr) {
        // Whoever waits is told one of both errors, by the system as of a refusal.
        let _ = rustix::net::connect_unspec(socket);
        let _ = connect_now(socket, self.side(to).refuses);
    }

    /// Whether `peer` is one that sockets of programs are connected to.
    pub fn is(&self, peer: SocketAddr) -> bool {
        let v6 = self.v6.as_ref();
        peer == self.v4.at || v6.is_some_and(|side| peer == side.at)
    }
}

/// `at` for `socket`, which may be one of IPv6.
pub(crate) fn reached_by(socket: &Socket, at: SocketAddr) -> io::Result<SocketAddr> {
    Ok(match at {
        SocketAddr::V4(at) if socket.domain()? == Domain::IPV6 => {
            (at.ip().to_ipv6_mapped(), at.port()).into()
        }
        at => at,
    })
}

/// Takes `socket` off the device that its program bound it to: from there nothing leads to this machine's own
/// addresses. Whether that could be done: it takes CAP_NET_RAW.
pub(crate) fn leaves_device(socket: &Socket) -> bool {
    match socket.device() {
        Ok(Some(_)) => socket.bind_device(None).is_ok(),
        _ => true,
    }
}

/// Connects without waiting, also a socket that waits.
fn connect_now(socket: &Socket, at: SocketAddr) -> io::Result<()> {
    let waits = !socket.nonblocking()?;
    if waits {
        socket.set_nonblocking(true)?;
    }
    let connected = socket.connect(&reached_by(socket, at)?.into());
    if waits {
        socket.set_nonblocking(false)?;
    }
    connected
}

/// Whether connecting has begun and goes on.
pub(crate) fn is_under_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn socket(domain: Domain) -> Socket {
        let socket = Socket::new(domain, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// A destination, and a socket for it.
    fn cases() -> Vec<(SocketAddr, Socket)> {
        let mut cases = vec![
            ("192.0.2.1:80", Domain::IPV4),
            ("[::ffff:192.0.2.1]:80", Domain::IPV6),
            ("[2001:db8::1]:80", Domain::IPV6),
        ];
        cases.retain(|case| Socket::new(case.1, Type::STREAM, None).is_ok());
        let make = |(to, domain): (&str, _)| (to.parse().unwrap(), socket(domain));
        cases.into_iter().map(make).collect()
    }

    #[tokio::test]
    async fn a_socket_connects_until_it_is_let_in() {
        let gate = Gate::open().unwrap();
        for (to, socket) in cases() {
            let begun = gate.knock(&socket, to).unwrap_err();
            assert!(is_under_way(&begun), "{to}: {begun}");
            let again = gate.knock(&socket, to).unwrap_err();
            assert_eq!(again.raw_os_error(), Some(libc::EALREADY), "{to}");
            assert!(socket.peer_addr().is_err());
            let stream = gate.let_in(&socket, to).await.unwrap();
            assert!(gate.is(canonical(address(socket.peer_addr()).unwrap())));
            gate.conclude(&socket, to).unwrap();
            socket.set_nonblocking(false).unwrap();
            (&socket).write_all(b"there").unwrap();
            stream.readable().await.unwrap();
            let mut heard = [0; 8];
            assert_eq!(stream.try_read(&mut heard).unwrap(), 5);
            drop(stream);
            assert_eq!((&socket).read(&mut heard).unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn a_socket_that_waits_does_so_for_every_thread() {
        let gate = Gate::open().unwrap();
        let (to, socket) = cases().remove(0);
        assert!(gate.conclude(&socket, to).is_err());
        assert!(gate.knock(&socket, to).is_err());
        let _there = gate.let_in(&socket, to).await.unwrap();
        socket.set_nonblocking(false).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    if socket.nonblocking().unwrap() {
                        return true;
                    }
                }
                false
            };
            let thread = scope.spawn(looks);
            for _ in 0..20_000 {
                let _ = gate.conclude(&socket, to);
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(!thread.join().unwrap());
        });
    }

    #[tokio::test]
    async fn a_socket_that_is_refused_may_connect_again() {
        let gate = Gate::open().unwrap();
        for (to, socket) in cases() {
            assert!(gate.knock(&socket, to).is_err());
            gate.refuse(&socket, to);
            let refused = gate.knock(&socket, to).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED), "{to}");
            assert!(is_under_way(&gate.knock(&socket, to).unwrap_err()), "{to}");
            gate.let_in(&socket, to).await.unwrap();
        }
    }

    #[tokio::test]
    async fn nobody_else_gets_an_answer() {
        let gate = Gate::open().unwrap();
        let stranger = socket(Domain::IPV4);
        assert!(is_under_way(
            &stranger.connect(&gate.v4.at.into()).unwrap_err()
        ));
        assert!(stranger.peer_addr().is_err());
        let refuses = std::net::TcpStream::connect(gate.v4.refuses).unwrap_err();
        assert_eq!(refuses.kind(), io::ErrorKind::ConnectionRefused);
    }
}
