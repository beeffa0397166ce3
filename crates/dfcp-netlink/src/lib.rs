//! Devices, addresses and routes, through the kernel's own interface (rtnetlink(7)): no program has
//! to be installed. Messages are those of `netlink-packet-route`; here is the exchange of them, and what
//! more than one user asks for.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
pub use netlink_packet_route::{AddressFamily, RouteNetlinkMessage, link, route};

/// A connection to the kernel about one network namespace: the one of the thread that opened it.
pub struct Netlink(Socket);

/// The address family of an address.
pub fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

impl Netlink {
    /// Opens it.
    ///
    /// # Errors
    /// When there are no such sockets, as in some sandboxes.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Gives the device with this index an address whose network is `prefix_len` bits. It is of use at once:
    /// nobody on the link is asked whether they have it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_address(&self, device: u32, ip: IpAddr, prefix_len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.prefix_len = prefix_len;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = device;
        message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewAddress(message), flags)
    }

    /// Asks for a change and waits until it is made.
    ///
    /// # Errors
    /// The kernel's.
    pub fn change(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        match self.exchange(message, NLM_F_ACK | flags)? {
            NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Asks for something that has one answer.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ask(&self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        match self.exchange(message, 0)? {
            NetlinkPayload::InnerMessage(answer) => Ok(answer),
            other => Err(unexpected(other)),
        }
    }

    fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<NetlinkPayload<RouteNetlinkMessage>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        // The kernel answers within the call.
        let (answer, _) = self.0.recv_from_full()?;
        NetlinkMessage::deserialize(&answer)
            .map(|answer| answer.payload)
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

fn unexpected(answer: NetlinkPayload<RouteNetlinkMessage>) -> io::Error {
    match answer {
        NetlinkPayload::Error(error) if error.code.is_some() => error.to_io(),
        other => {
            let kind = other.message_type();
            io::Error::other(format!("the kernel answers with message {kind}"))
        }
    }
}
