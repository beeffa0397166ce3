//! Sockets that the service manager has made (sd_listen_fds(3)): so the port is there while the service
//! starts again, and may be one that the service's user could not have.

use std::net::UdpSocket;

use dfcp_command::{Failure, Kind};
use listenfd::ListenFd;
use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use tokio::net::TcpListener;

/// What was passed.
#[derive(Default)]
pub struct Passed {
    /// The port of all sections: ListenDatagram= of a socket unit.
    pub socket: Option<UdpSocket>,
    /// Where metrics are asked for: its ListenStream=.
    pub metrics: Option<TcpListener>,
}

impl Passed {
    /// Takes them, once in a process; call within a tokio runtime.
    ///
    /// # Errors
    /// A socket that there is no use for.
    pub fn take() -> Result<Self, Failure> {
        let mut all = ListenFd::from_env();
        let mut passed = Self::default();
        for number in 0..all.len() {
            if passed.socket.is_none()
                && let Ok(Some(socket)) = all.take_udp_socket(number)
            {
                check(socket.local_addr()?.port() > 0, "that of UDP has no port")?;
                passed.socket = Some(socket);
            } else if passed.metrics.is_none()
                && let Ok(Some(listener)) = all.take_tcp_listener(number)
            {
                let listens = getsockopt(&listener, AcceptConn).map_err(std::io::Error::from)?;
                check(listens, "that of TCP does not listen")?;
                listener.set_nonblocking(true)?;
                passed.metrics = Some(TcpListener::from_std(listener)?);
            } else {
                let why = "one is neither of UDP, nor of TCP for metrics, or a second one: the socket unit \
                           may have one ListenDatagram= and one ListenStream=";
                check(false, why)?;
            }
        }
        Ok(passed)
    }
}

/// Whether a socket can be used.
///
/// # Errors
/// That it cannot: nobody could ever come to it.
fn check(is_good: bool, why: &str) -> Result<(), Failure> {
    match is_good {
        true => Ok(()),
        false => {
            let why = format!("of the sockets that the service manager has made {why}");
            Err(Failure::new(Kind::Usage, why))
        }
    }
}
