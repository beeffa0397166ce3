//! Addresses, routes and MTU, through the kernel's own interface (rtnetlink(7)): no program has to be
//! installed.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::nets::Net;

/// A connection to the kernel about one device, in the namespace of the thread that opens it.
pub struct Netlink {
    socket: Socket,
    device: u32,
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

impl Netlink {
    /// Opens it for the device with this index.
    pub fn open(device: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, device })
    }

    /// Sets the device's MTU.
    pub fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.device;
        message.attributes.push(LinkAttribute::Mtu(mtu as u32));
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Switches the device on.
    pub fn up(&self) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.device;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives the device an address; its network is routed to it.
    pub fn add_address(&self, net: Net) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(net.ip);
        message.header.prefix_len = net.len;
        // There is nobody on the link to ask whether they have it.
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = self.device;
        message.attributes = vec![
            AddressAttribute::Local(net.ip),
            AddressAttribute::Address(net.ip),
        ];
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewAddress(message), flags)
    }

    /// Routes a network to the device.
    pub fn add_route(&self, net: Net) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(net.ip);
        message.header.destination_prefix_length = net.len;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Oif(self.device)];
        if net.len > 0 {
            let first = net.network().ip;
            message
                .attributes
                .push(RouteAttribute::Destination(first.into()));
        }
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewRoute(message), flags)
    }

    /// Sends a request and waits for the kernel's answer.
    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::other(error.to_string()))?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            other => Err(io::Error::other(format!(
                "the kernel answers with message {}",
                other.message_type()
            ))),
        }
    }
}
