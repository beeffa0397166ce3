//! TUN devices of Linux.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;

use tokio::io::unix::AsyncFd;

use super::netlink::Netlink;
use super::{BATCH, DeviceConfig, DeviceError, sys};
use crate::nets::Net;

/// A device. It goes, with its addresses and routes, when this does, however the process ends.
#[derive(Debug)]
pub struct Device {
    file: AsyncFd<File>,
    name: String,
    index: u32,
}

/// Given to a device without a name; the kernel counts.
const DEFAULT_NAME: &str = "dfcp%d";

impl Device {
    /// Makes the device; call within a tokio runtime.
    ///
    /// # Errors
    /// Why it is not there as it should be.
    pub fn open(config: &DeviceConfig) -> Result<Self, DeviceError> {
        for net in &config.addresses {
            if let Some(device) = who_has(net.ip)? {
                let ip = net.ip;
                return Err(DeviceError::AddressInUse { ip, device });
            }
        }
        let mut options = File::options();
        let options = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        let file = options
            .open("/dev/net/tun")
            .map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => DeviceError::NotPermitted,
                _ => DeviceError::NoDriver(error),
            })?;
        let wanted = config.name.as_deref().unwrap_or(DEFAULT_NAME);
        let refused = |error: io::Error| {
            let name = wanted.to_owned();
            match error.raw_os_error() {
                Some(libc::EPERM) => DeviceError::NotPermitted,
                Some(libc::EBUSY | libc::EEXIST) => DeviceError::Taken(name),
                _ if error.kind() == io::ErrorKind::InvalidInput => DeviceError::Name(name),
                _ => DeviceError::Io(error),
            }
        };
        // The kernel would count through names with a %.
        if config
            .name
            .as_ref()
            .is_some_and(|name| name.is_empty() || name.contains('%'))
        {
            return Err(refused(io::ErrorKind::InvalidInput.into()));
        }
        let name = sys::attach(&file, wanted).map_err(refused)?;
        let index = nix::net::if_::if_nametoindex(name.as_str()).map_err(io::Error::from)?;
        let netlink = Netlink::open(index)?;
        netlink.set_mtu(config.mtu)?;
        for &net in &config.addresses {
            let done = netlink.add_address(net);
            done.map_err(|error| DeviceError::Address { net, error })?;
        }
        netlink.up()?;
        for &net in &config.routes {
            add_route(&netlink, net, &config.addresses)?;
        }
        let file = sys::watch(file)?;
        Ok(Self { file, name, index })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the longest packet that the kernel sends through the device; to senders of longer ones it
    /// answers itself (RFC 1191, RFC 8201).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        Netlink::open(self.index)?.set_mtu(mtu)
    }

    /// Waits for packets of the kernel, and gives some of them to `take`; `buffer` is for the longest.
    /// May be cancelled.
    ///
    /// # Errors
    /// The device is gone.
    pub async fn read(&self, buffer: &mut [u8], mut take: impl FnMut(&mut [u8])) -> io::Result<()> {
        // A device that somebody deletes is not readable, but has failed.
        let mut ready = self.file.ready(sys::WATCHED).await?;
        for _ in 0..BATCH {
            match ready.try_io(|file| file.get_ref().read(buffer)) {
                // Nothing more waits.
                Err(_) => return Ok(()),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(len) => take(&mut buffer[..len?]),
            }
        }
        Ok(())
    }

    /// Gives the kernel a packet, as one that came from the link.
    ///
    /// # Errors
    /// It does not take it.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        self.file.get_ref().write_all(packet)
    }
}

/// A route that the addresses do not bring anyway.
fn add_route(netlink: &Netlink, net: Net, addresses: &[Net]) -> Result<(), DeviceError> {
    if addresses.iter().any(|own| own.network() == net.network()) {
        return Ok(());
    }
    let done = netlink.add_route(net);
    done.map_err(|error| DeviceError::Route { net, error })
}

/// The device of this machine that has an address.
fn who_has(ip: IpAddr) -> io::Result<Option<String>> {
    let mut all = nix::ifaddrs::getifaddrs()?;
    let found = all.find(|interface| {
        let address = interface.address.as_ref();
        let v4 = address
            .and_then(|a| a.as_sockaddr_in())
            .map(|a| IpAddr::V4(a.ip()));
        let v6 = address
            .and_then(|a| a.as_sockaddr_in6())
            .map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(ip)
    });
    Ok(found.map(|interface| interface.interface_name))
}
