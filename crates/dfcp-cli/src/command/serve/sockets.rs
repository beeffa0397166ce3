//! Sockets that the service manager has made (sd_listen_fds(3)): so the port is there while the service
//! starts again, and may be one that the service's user could not have.

use std::net::UdpSocket;

use dfcp_command::{Failure, Kind};
use listenfd::ListenFd;
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
                passed.socket = Some(socket);
            } else if passed.metrics.is_none()
                && let Ok(Some(listener)) = all.take_tcp_listener(number)
            {
                listener.set_nonblocking(true)?;
                passed.metrics = Some(TcpListener::from_std(listener)?);
            } else {
                let why = "the service manager has made sockets beside one of UDP, and one of TCP for \
                           metrics: the socket unit may have one ListenDatagram= and one ListenStream=";
                return Err(Failure::new(Kind::Usage, why));
            }
        }
        Ok(passed)
    }
}
