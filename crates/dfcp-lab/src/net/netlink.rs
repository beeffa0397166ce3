//! Cables and addresses, through the kernel's own interface (rtnetlink(7)): the lab needs no
//! program to be installed.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use dfcp_netlink::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use dfcp_netlink::{NLM_F_CREATE, NLM_F_EXCL, RouteNetlinkMessage};

/// A connection to the kernel about one network namespace: the one of the thread that opened it.
pub(crate) struct Netlink(dfcp_netlink::Netlink);

/// An end of a cable.
#[derive(Clone, Debug)]
pub(crate) struct CableEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The namespace where it is, if not this one.
    pub namespace: Option<BorrowedFd<'a>>,
}

/// What both ends of a cable have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CableSettings {
    /// Largest IP packet.
    pub mtu: u32,
    /// Whether the kernel hands over segments to be cut later, as to a network card that cuts them.
    pub segmentation: Segmentation,
}

/// Who cuts what a program sends at once into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segmentation {
    /// Whoever is at the end of the cable.
    Card,
    /// The kernel, before the cable.
    Kernel,
}

impl Netlink {
    /// Opens it for this thread's namespace.
    pub fn open() -> io::Result<Self> {
        dfcp_netlink::Netlink::open().map(Self)
    }

    /// Makes a cable.
    pub fn add_cable(
        &self,
        near: &CableEnd<'_>,
        far: &CableEnd<'_>,
        settings: CableSettings,
    ) -> io::Result<()> {
        let mut message = end_message(near, settings);
        let peer = InfoVeth::Peer(end_message(far, settings));
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(peer)),
        ]));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.0
            .change(RouteNetlinkMessage::NewLink(message), flags)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this kernel has no virtual cables (veth)",
                ),
                _ => error,
            })
    }

    /// Switches a device on.
    pub fn up(&self, name: &str) -> io::Result<()> {
        self.set_up(name, LinkFlags::Up)
    }

    /// Switches a device on that neither asks for nor answers questions about hardware addresses.
    pub fn up_without_arp(&self, name: &str) -> io::Result<()> {
        self.set_up(name, LinkFlags::Up | LinkFlags::Noarp)
    }

    fn set_up(&self, name: &str, flags: LinkFlags) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.flags = flags;
        message.header.change_mask = flags;
        message.attributes.push(LinkAttribute::IfName(name.into()));
        self.0.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives a device an address whose network is `prefix_len` bits.
    pub fn add_address(&self, name: &str, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        let device = nix::net::if_::if_nametoindex(name)?;
        self.0.add_address(device, address, prefix_len)
    }
}

fn end_message(end: &CableEnd<'_>, settings: CableSettings) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(end.name.into()),
        LinkAttribute::Address(end.mac.to_vec()),
        LinkAttribute::Mtu(settings.mtu),
    ];
    if settings.segmentation == Segmentation::Kernel {
        message.attributes.push(LinkAttribute::GsoMaxSegs(1));
    }
    if let Some(namespace) = end.namespace {
        let fd = namespace.as_raw_fd();
        message.attributes.push(LinkAttribute::NetNsFd(fd));
    }
    message
}
