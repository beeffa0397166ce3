//! The socket of a meeting, which becomes the endpoint's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::net::Family;

/// A UDP socket of one or both families.
#[derive(Debug)]
pub struct Port {
    socket: tokio::net::UdpSocket,
    is_ipv6: bool,
}

impl Port {
    /// Any free port.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn bind(family: Family) -> io::Result<Self> {
        let v4 = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let v6 = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
        let socket = match family {
            Family::V4 => v4()?,
            Family::V6 => v6()?,
            // A system may have no IPv6 at all.
            Family::Any => v6().or_else(|_| v4())?,
        };
        socket.set_nonblocking(true)?;
        Ok(Self {
            is_ipv6: socket.local_addr()?.is_ipv6(),
            socket: tokio::net::UdpSocket::from_std(socket)?,
        })
    }

    /// Its port number.
    pub fn number(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Sends, or not: the machines repeat what is not answered.
    pub async fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let _ = self
            .socket
            .send_to(datagram, called(to, self.is_ipv6))
            .await;
    }

    /// The next datagram, and where it is from.
    ///
    /// # Errors
    /// Those of the socket that do not pass.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(buffer).await {
                Ok((len, from)) => {
                    let canonical = match from.ip().to_canonical() {
                        ip @ IpAddr::V4(_) => SocketAddr::new(ip, from.port()),
                        IpAddr::V6(_) => from,
                    };
                    return Ok((len, canonical));
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// This machine's own addresses with the port of the socket, those of IPv4 first.
    pub fn own_addresses(&self) -> Vec<SocketAddr> {
        let Ok(port) = self.number() else {
            return Vec::new();
        };
        let mut addresses: Vec<SocketAddr> = crate::net::interface_addresses()
            .into_iter()
            .filter(|ip| self.is_ipv6 || ip.is_ipv4())
            .map(|ip| SocketAddr::new(ip, port))
            .collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }

    /// The socket itself.
    ///
    /// # Errors
    /// Those of the system.
    pub fn into_std(self) -> io::Result<UdpSocket> {
        self.socket.into_std()
    }
}

/// What the system calls an address on a socket.
pub fn reached_by(socket: &UdpSocket, to: SocketAddr) -> SocketAddr {
    called(to, socket.local_addr().is_ok_and(|own| own.is_ipv6()))
}

fn called(address: SocketAddr, is_ipv6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if is_ipv6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        other => other,
    }
}

/// Whether an error of receiving only reports that what was sent before could not be delivered.
pub fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::Interrupted
    )
}
