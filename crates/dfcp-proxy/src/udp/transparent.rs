//! Datagrams that the system's firewall leads here (Linux's TPROXY), and their answers, which leave with
//! the addresses of the hosts that they are from.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket as StdSocket};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, setsockopt,
    sockopt,
};
use socket2::{Protocol, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{Packet, RECEIVED, UdpPort};
use crate::here::is_elsewhere;
use crate::transparent::{canonical, transparent};

/// Hosts whose answers have a socket here; beyond that they begin anew.
const ANSWERING: usize = 256;
/// Addresses of which it is remembered whether they are this machine's; beyond that they begin anew.
const KNOWN: usize = 4096;

/// A port to which datagrams for other hosts are led.
pub struct InterceptedUdp {
    socket: UdpSocket,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    elsewhere: HashMap<IpAddr, bool>,
    answering: HashMap<SocketAddr, StdSocket>,
}

impl InterceptedUdp {
    /// Binds to `at`; call within a tokio runtime.
    ///
    /// # Errors
    /// When the port is not to be had, or this user may not: it takes CAP_NET_ADMIN.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = bind(at)?;
        // One of IPv6 may take IPv4, too.
        setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?;
        if at.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?;
        }
        let socket = UdpSocket::from_std(socket)?;
        let memory = Mutex::default();
        Ok(Self { socket, memory })
    }

    /// Where it is.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `to` is another machine. A datagram that came to the port by itself would be led back to it
    /// without end.
    fn is_elsewhere(&self, to: SocketAddr) -> bool {
        let mut memory = self.memory();
        if memory.elsewhere.len() >= KNOWN {
            memory.elsewhere.clear();
        }
        if let Some(is_elsewhere) = memory.elsewhere.get(&to.ip()) {
            return *is_elsewhere;
        }
        // What cannot be found out now may be with the next one.
        let Ok(is_elsewhere) = is_elsewhere(to) else {
            return false;
        };
        memory.elsewhere.insert(to.ip(), is_elsewhere);
        is_elsewhere
    }

    /// The next datagram with whom it is for, and whom it is from; `None` where that is not known.
    async fn next(&self) -> io::Result<Option<(Bytes, SocketAddr, SocketAddr)>> {
        let receive = || {
            RECEIVED.with_borrow_mut(|buffer| {
                let mut place = nix::cmsg_space!(nix::libc::sockaddr_in, nix::libc::sockaddr_in6);
                let (len, to, from) = {
                    let mut parts = [IoSliceMut::new(buffer)];
                    let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
                    let came =
                        recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut place), flags)?;
                    let to = came.cmsgs()?.find_map(destination);
                    (came.bytes, to, came.address.as_ref().and_then(address))
                };
                let payload = Bytes::copy_from_slice(&buffer[..len]);
                Ok(to.zip(from).map(|(to, from)| (payload, to, from)))
            })
        };
        self.socket.async_io(Interest::READABLE, receive).await
    }
}

impl UdpPort for InterceptedUdp {
    type Source = SocketAddr;

    async fn receive(&self) -> io::Result<(Packet, SocketAddr)> {
        loop {
            if let Some((payload, to, from)) = self.next().await?
                && self.is_elsewhere(to)
            {
                let host = to.into();
                return Ok((Packet { host, payload }, from));
            }
        }
    }

    fn answer(&self, packet: &Packet, to: &SocketAddr) {
        let Some(from) = packet.host.address() else {
            return;
        };
        let mut memory = self.memory();
        if !memory.answering.contains_key(&from) {
            if memory.answering.len() >= ANSWERING {
                memory.answering.clear();
            }
            // Without one the answer is lost, as datagrams may be.
            let Ok(socket) = bind(from) else {
                return;
            };
            memory.answering.insert(from, socket);
        }
        let _ = memory.answering[&from].send_to(&packet.payload, *to);
    }
}

/// Programs may have the port, too, and answers share theirs.
fn bind(at: SocketAddr) -> io::Result<StdSocket> {
    transparent(at, Type::DGRAM, Protocol::UDP).map(StdSocket::from)
}

fn destination(message: ControlMessageOwned) -> Option<SocketAddr> {
    match message {
        ControlMessageOwned::Ipv4OrigDstAddr(to) => {
            Some(SocketAddrV4::from(SockaddrIn::from(to)).into())
        }
        ControlMessageOwned::Ipv6OrigDstAddr(to) => {
            Some(canonical(SocketAddrV6::from(SockaddrIn6::from(to)).into()))
        }
        _ => None,
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = || {
        storage
            .as_sockaddr_in()
            .map(|v4| SocketAddrV4::from(*v4).into())
    };
    let v6 = || {
        storage
            .as_sockaddr_in6()
            .map(|v6| canonical(SocketAddrV6::from(*v6).into()))
    };
    v4().or_else(v6)
}
