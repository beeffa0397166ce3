//! A host: a network namespace with an address of each kind, on one cable.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::namespace::Namespace;
use super::netlink::Netlink;
use super::process::HostCommand;

/// Networks for benchmarks: 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180).
const IPV4_BITS: u8 = 15;
const IPV6_BITS: u8 = 48;
const IPV4: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const IPV6: u128 = 0x2001_0002_u128 << 96;

/// Most hosts of a lab.
pub(crate) const MAX_HOSTS: usize = 1 << 16;

/// The name of a host's device.
pub(crate) const DEVICE: &str = "eth0";

/// A host of a lab.
pub struct Host {
    name: String,
    number: usize,
    namespace: Arc<Namespace>,
}

impl Host {
    /// A host without a cable.
    pub(crate) fn create(name: &str, number: usize) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            number,
            namespace: Arc::new(Namespace::create()?),
        })
    }

    /// Its name: that of the scenario's node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its IPv4 address.
    pub fn ipv4(&self) -> Ipv4Addr {
        Ipv4Addr::from(IPV4 + 1 + self.number as u32)
    }

    /// Its IPv6 address.
    pub fn ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from(IPV6 + 1 + self.number as u128)
    }

    /// A command that will run in this host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> HostCommand {
        HostCommand::new(Arc::clone(&self.namespace), program.as_ref())
    }

    /// Does something in the host, in its thread: sockets made there stay there.
    ///
    /// # Errors
    /// What `job` says.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.namespace.run(job)
    }

    /// A descriptor of its namespace.
    pub(crate) fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.fd()
    }

    /// The hardware address of its device.
    pub(crate) fn mac(&self) -> [u8; 6] {
        mac(0, self.number)
    }

    /// The hardware address of the other end of its cable.
    pub(crate) fn far_mac(&self) -> [u8; 6] {
        mac(1, self.number)
    }

    /// Switches its cable on. Everybody else is directly behind it, and nobody asks for hardware
    /// addresses: the path carries what programs send and nothing else.
    pub(crate) fn connect(&self) -> io::Result<()> {
        let addresses = [
            (IpAddr::from(self.ipv4()), IPV4_BITS),
            (IpAddr::from(self.ipv6()), IPV6_BITS),
        ];
        self.namespace.run(move || {
            tune();
            let netlink = Netlink::open()?;
            netlink.up_without_arp(DEVICE)?;
            addresses
                .iter()
                .try_for_each(|(address, bits)| netlink.add_address(DEVICE, *address, *bits))
        })
    }
}

fn mac(side: u8, number: usize) -> [u8; 6] {
    let [.., a, b, c] = (number as u32).to_be_bytes();
    [0x02, 0xdf, side, a, b, c]
}

/// The number of the host with an address.
pub(crate) fn host_number(address: IpAddr) -> Option<usize> {
    let number = match address {
        IpAddr::V4(address) => u32::from(address).checked_sub(IPV4 + 1)?,
        IpAddr::V6(address) => u128::from(address).checked_sub(IPV6 + 1)?.try_into().ok()?,
    };
    let number = number as usize;
    (number < MAX_HOSTS).then_some(number)
}

/// Settings of a host's kernel; what cannot be set stays as it is.
fn tune() {
    let settings = [
        // Windows may grow to what long, fast paths need; the kernel's defaults may not.
        ("ipv4/tcp_rmem", "4096 131072 67108864"),
        ("ipv4/tcp_wmem", "4096 131072 67108864"),
        // Every connection starts anew, whatever earlier ones learnt.
        ("ipv4/tcp_no_metrics_save", "1"),
        // Below the ports that say which flow a packet belongs to.
        ("ipv4/ip_local_port_range", "1024 19999"),
        // Programs may make echo requests without privileges.
        ("ipv4/ping_group_range", "0 0"),
        ("ipv4/ping_group_range", "0 2147483647"), // not all groups exist in a user namespace
        // Nothing that nobody asked for.
        ("ipv6/conf/eth0/addr_gen_mode", "1"),
        ("ipv6/conf/eth0/accept_ra", "0"),
        ("ipv6/conf/eth0/router_solicitations", "0"),
    ];
    for (name, value) in settings {
        // Some containers make these read-only; then the defaults serve.
        let _ = fs::write(format!("/proc/sys/net/{name}"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_hosts() {
        for number in [0, 1, 255, 70, MAX_HOSTS - 1] {
            let v4 = Ipv4Addr::from(IPV4 + 1 + number as u32);
            let v6 = Ipv6Addr::from(IPV6 + 1 + number as u128);
            assert_eq!(host_number(v4.into()), Some(number));
            assert_eq!(host_number(v6.into()), Some(number));
        }
        for stranger in [
            "10.0.0.1",
            "198.18.0.0",
            "255.255.255.255",
            "::1",
            "2001:2::",
        ] {
            assert_eq!(host_number(stranger.parse().unwrap()), None, "{stranger}");
        }
        assert!("198.18.0.1".parse() == Ok(Ipv4Addr::from(IPV4 + 1)));
        assert!("2001:2::1".parse() == Ok(Ipv6Addr::from(IPV6 + 1)));
    }
}
