//! Addresses, routes and MTU, through the kernel's own interface (rtnetlink(7)): no program has to be
//! installed.

use std::io;

use dfcp_netlink::link::{LinkAttribute, LinkFlags, LinkMessage};
use dfcp_netlink::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use dfcp_netlink::{NLM_F_CREATE, NLM_F_EXCL, RouteNetlinkMessage, family};

use crate::nets::Net;

/// A connection to the kernel about one device, in the namespace of the thread that opens it.
pub struct Netlink {
    kernel: dfcp_netlink::Netlink,
    device: u32,
}

impl Netlink {
    /// Opens it for the device with this index.
    pub fn open(device: u32) -> io::Result<Self> {
        let kernel = dfcp_netlink::Netlink::open()?;
        Ok(Self { kernel, device })
    }

    /// Sets the device's MTU.
    pub fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.device;
        message.attributes.push(LinkAttribute::Mtu(mtu as u32));
        self.kernel.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Switches the device on.
    pub fn up(&self) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.device;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.kernel.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives the device an address; its network is routed to it.
    pub fn add_address(&self, net: Net) -> io::Result<()> {
        self.kernel.add_address(self.device, net.ip, net.len)
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
        self.kernel
            .change(RouteNetlinkMessage::NewRoute(message), flags)
    }
}
