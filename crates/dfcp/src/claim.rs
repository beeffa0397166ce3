//! Which endpoint listens at a DFCP port over IP. The system knows no such ports and gives every
//! packet to every raw socket of its address, so endpoints must tell each other.

use std::io;
use std::net::IpAddr;

/// A port of an address, in this network namespace; nobody else can claim it until this is dropped.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct PortClaim {
    /// Nothing is sent to it: its name, which no file has, is what counts.
    _name: std::os::unix::net::UnixDatagram,
}

#[cfg(target_os = "linux")]
impl PortClaim {
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another endpoint has it.
    pub(crate) fn new(address: IpAddr, port: u16) -> io::Result<Self> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let name = format!("dfcp over ip, {} {port}", address.to_canonical());
        let name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        Ok(Self { _name: name })
    }
}

/// Elsewhere whoever starts two endpoints must see to it.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct PortClaim;

#[cfg(not(target_os = "linux"))]
impl PortClaim {
    pub(crate) fn new(_: IpAddr, _: u16) -> io::Result<Self> {
        Ok(Self)
    }
}
