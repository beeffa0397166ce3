//! The device: where the kernel's packets come out and in.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(target_os = "linux")]
mod sys;

use std::io;
use std::net::IpAddr;

use crate::nets::Net;

#[cfg(target_os = "linux")]
pub use linux::Device;
#[cfg(not(target_os = "linux"))]
pub use other::Device;

/// Longest packet that is read of a device: longer ones no kernel sends through a device whose MTU is
/// [`MAX_MTU`](crate::MAX_MTU).
pub const MAX_PACKET: usize = 4096;

/// Packets that are read of a device before others have their turn.
#[cfg(target_os = "linux")]
const BATCH: usize = 64;

/// What a device is to be.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its name; `dfcp0`, or the next number that is free, without one.
    pub name: Option<String>,
    /// Its addresses, with their networks.
    pub addresses: Vec<Net>,
    /// Networks that are routed to it.
    pub routes: Vec<Net>,
    /// Longest packet.
    pub mtu: usize,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system's own interface is not known here.
    #[error("dfcp tun needs Linux: it has no code for the network devices of this system")]
    Unsupported,
    /// The kernel has no such devices.
    #[error(
        "this kernel has no TUN devices ({0}): is the module `tun` loaded, /dev/net/tun there?"
    )]
    NoDriver(io::Error),
    /// This user may not.
    #[error("this user may not make network devices: run it as root, or give it CAP_NET_ADMIN")]
    NotPermitted,
    /// Another device has the name.
    #[error("there is a device {0} already: end whoever has it, or give another --name")]
    Taken(String),
    /// No device can have the name.
    #[error("a device cannot be called {0:?}: 1 to 15 letters, digits, - . _")]
    Name(String),
    /// Another device of this machine has the address.
    #[error("{device} of this machine has the address {ip} already")]
    AddressInUse {
        /// The address.
        ip: IpAddr,
        /// The other device.
        device: String,
    },
    /// The address could not be set.
    #[error("{net} cannot be the device's address: {error}")]
    Address {
        /// The address.
        net: Net,
        /// Why.
        error: io::Error,
    },
    /// The route could not be set.
    #[error("{net} cannot be routed to the device: {error}")]
    Route {
        /// The network.
        net: Net,
        /// Why.
        error: io::Error,
    },
    /// Anything else.
    #[error("the device cannot be made: {0}")]
    Io(#[from] io::Error),
}
