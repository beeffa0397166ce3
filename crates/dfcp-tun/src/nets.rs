//! Networks, and whose they are.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address with the length of its network: `10.9.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Net {
    /// The address; of a network, its first.
    pub ip: IpAddr,
    /// Bits that all of the network share.
    pub len: u8,
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl Net {
    /// Whether `ip` is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let mask = u128::MAX
            .checked_shl(128 - u32::from(self.len))
            .unwrap_or(0);
        self.ip.is_ipv4() == ip.is_ipv4() && (bits(self.ip) ^ bits(ip)) & mask == 0
    }

    /// Whether all of `other` is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && self.contains(other.ip)
    }

    /// The network of an address: its other bits are zero.
    pub fn network(&self) -> Self {
        let mask = u128::MAX
            .checked_shl(128 - u32::from(self.len))
            .unwrap_or(0);
        let first = bits(self.ip) & mask;
        let ip = match self.ip {
            IpAddr::V4(_) => IpAddr::V4(((first >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(first.into()),
        };
        Self { ip, len: self.len }
    }

    /// This address alone.
    pub fn host(ip: IpAddr) -> Self {
        let len = if ip.is_ipv4() { 32 } else { 128 };
        Self { ip, len }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.len)
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("not an address or a network: {text:?}; write 10.9.0.1/24 or fd00::1/64");
        let (ip, len) = match text.split_once('/') {
            Some((ip, len)) => (ip, Some(len)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let Some(len) = len else {
            return Ok(Self::host(ip));
        };
        // A sign is no number here.
        let digits = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        let len: u8 = len.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        match len <= Self::host(ip).len {
            true => Ok(Self { ip, len }),
            false => Err(wrong()),
        }
    }
}

/// Which networks belong to whom: the longest that has an address counts.
#[derive(Clone, Debug)]
pub struct Table<T> {
    /// The longest first.
    nets: Vec<(Net, T)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { nets: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Table<T> {
    /// A table of these.
    ///
    /// # Errors
    /// A network that is named twice.
    pub fn new(nets: impl IntoIterator<Item = (Net, T)>) -> Result<Self, Net> {
        let each = nets.into_iter().map(|(net, owner)| (net.network(), owner));
        let mut nets: Vec<_> = each.collect();
        nets.sort_by_key(|(net, _)| (std::cmp::Reverse(net.len), net.ip));
        let twice = nets
            .windows(2)
            .find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1);
        match twice {
            Some(pair) => Err(pair[0].0),
            None => Ok(Self { nets }),
        }
    }

    /// Whose `ip` is.
    pub fn owner(&self, ip: IpAddr) -> Option<T> {
        let found = self.nets.iter().find(|(net, _)| net.contains(ip));
        found.map(|&(_, owner)| owner)
    }

    /// The networks of an owner.
    pub fn of(&self, owner: T) -> impl Iterator<Item = Net> {
        let own = self.nets.iter().filter(move |(_, of)| *of == owner);
        own.map(|(net, _)| *net)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_people_write_them() {
        for (text, shown) in [
            ("10.9.0.1/24", "10.9.0.1/24"),
            ("10.9.0.1", "10.9.0.1/32"),
            ("fd00::1", "fd00::1/128"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Net>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "10.0.0.1/33",
            "::/129",
            "a/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
        ] {
            assert!(bad.parse::<Net>().is_err(), "{bad}");
        }
        let net: Net = "10.9.3.1/22".parse().unwrap();
        assert_eq!(net.network().to_string(), "10.9.0.0/22");
    }

    #[test]
    fn the_longest_network_counts() {
        let net = |text: &str| text.parse::<Net>().unwrap();
        let nets = [
            (net("10.0.0.0/8"), 1),
            (net("10.1.0.0/16"), 2),
            (net("10.1.0.7"), 3),
            (net("::/0"), 4),
        ];
        let table = Table::new(nets).unwrap();
        for (ip, owner) in [
            ("10.2.0.1", Some(1)),
            ("10.1.0.1", Some(2)),
            ("10.1.0.7", Some(3)),
            ("11.0.0.1", None),
            ("2001:db8::1", Some(4)),
        ] {
            assert_eq!(table.owner(ip.parse().unwrap()), owner, "{ip}");
        }
        let twice = Table::new([(net("10.1.2.3/16"), 1), (net("10.1.0.0/16"), 2)]);
        assert_eq!(twice.unwrap_err(), net("10.1.0.0/16"));
    }
}
