//! Where a server connects to for its clients.
//!
//! Rules are asked about the address that is really connected to, after names were resolved: a name
//! whose address changes between two questions (DNS rebinding) leads nowhere else.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::target::number;

/// Addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Every address.
    All,
    /// Those that are reachable from everywhere: no private, loopback, link-local, multicast or
    /// otherwise special ones (RFC 6890 and its registries).
    Internet,
    /// Those that begin with the first so many bits of this one.
    Prefix(IpAddr, u8),
}

impl Network {
    /// Whether it has `ip`, which is canonical: no IPv4 address in the shape of an IPv6 one.
    fn contains(&self, ip: IpAddr) -> bool {
        match (*self, ip) {
            (Self::All, _) => true,
            (Self::Internet, ip) => is_global(ip),
            (Self::Prefix(net, len), ip) => {
                net.is_ipv4() == ip.is_ipv4() && first_of(ip, len) == first_of(net, len)
            }
        }
    }
}

/// Whether everybody can reach `ip`, by the registries of special-purpose addresses (RFC 6890; IANA,
/// "Globally Reachable").
fn is_global(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_global_v4(ip),
        IpAddr::V6(ip) => is_global_v6(ip),
    }
}

fn is_global_v4(ip: Ipv4Addr) -> bool {
    let special = match ip.octets() {
        [0 | 10 | 127, ..] => true,
        [100, 64..=127, ..] => true, // shared with providers, RFC 6598
        [169, 254, ..] => true,      // link-local
        [172, 16..=31, ..] => true,  // private
        [192, 0, 0 | 2, _] => true,  // protocols, documentation
        [192, 88, 99, _] => true,    // relays of 6to4, no more
        [192, 168, ..] => true,      // private
        [198, 18 | 19, ..] => true,  // benchmarks
        [198, 51, 100, _] => true,   // documentation
        [203, 0, 113, _] => true,    // documentation
        [224..=255, ..] => true,     // multicast, reserved, broadcast
        _ => false,
    };
    !special
}

/// The IPv4 address that a network with NAT64 makes of this one on the way (RFC 6052).
fn translated(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let bits = u32::from(high) << 16 | u32::from(low);
            Some(Ipv4Addr::from_bits(bits))
        }
        _ => None,
    }
}

/// The IPv4 address that this one may lead to where a network is set up so: besides the former, a translator's
/// local prefix (RFC 8215), those of stateless translators (RFC 2765 §2.1, `::ffff:0:0:0/96`), 6to4 (RFC 3056 §2)
/// and compatible addresses (RFC 4291 §2.5.5.1).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match ip.segments() {
        [0x64, 0xff9b, 1, .., high, low] | [0, 0, 0, 0, 0xffff | 0, 0, high, low] => (high, low),
        [0x2002, high, low, ..] => (high, low),
        _ => return translated(ip),
    };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

fn is_global_v6(ip: Ipv6Addr) -> bool {
    if let Some(ip) = translated(ip) {
        return is_global_v4(ip);
    }
    match ip.segments() {
        [0x2001, second, ..] if second < 0x200 => false, // protocols, among them Teredo
        [0x2001, 0xdb8, ..] => false,                    // documentation
        [0x2002, ..] => false,                           // 6to4: IPv4 addresses, also private ones
        [0x3fff, second, ..] if second < 0x1000 => false, // documentation
        // All unicast addresses that were ever assigned (RFC 4291 §2.4, IANA).
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Whether `ip`, which is canonical, stands for no host: 0.0.0.0/8 and `::`.
fn is_unspecified(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unspecified(),
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::All),
            "internet" => return Ok(Self::Internet),
            _ => {}
        }
        let wrong =
            || format!("not a network: {text:?}; write 10.0.0.0/8, [fd00::]/8, internet or all");
        let (ip, len) = match text.split_once('/') {
            Some((ip, len)) => (ip, Some(len)),
            None => (text, None),
        };
        let bare = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let ip: IpAddr = bare.unwrap_or(ip).parse().map_err(|_| wrong())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Some(most), number).ok_or_else(wrong)?;
        if len > most {
            return Err(wrong());
        }
        let network = Self::Prefix(first_of(ip, len), len);
        match network == Self::Prefix(ip, len) {
            true => Ok(network),
            false => Err(format!(
                "{text} has bits beyond the first {len}: write {network} for the network that it is in, \
                 or the address alone"
            )),
        }
    }
}

/// The first address of those that share `len` bits with `ip`.
fn first_of(ip: IpAddr, len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// Ports; none are all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    fn contains(&self, port: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(&port))
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| number::<u16>(text).ok_or_else(|| format!("not a port: {text:?}"));
        let range = |text: &str| match text.split_once('-') {
            Some((first, last)) => Ok(port(first)?..=port(last)?),
            None => port(text).map(|port| port..=port),
        };
        let ranges: Result<Vec<_>, String> = text.split(',').map(range).collect();
        match ranges? {
            ranges if ranges.iter().any(RangeInclusive::is_empty) => {
                Err(format!("a range of ports is empty: {text:?}"))
            }
            ranges => Ok(Self(ranges)),
        }
    }
}

/// A network, and which of its ports: `NET` or `NET:PORTS`, such as `internet:80,443`,
/// `10.0.0.0/8:22`, `[fd00::]/8:8000-8999`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    network: Network,
    ports: Ports,
}

impl Rule {
    /// All ports of `network`.
    pub fn of(network: Network) -> Self {
        let ports = Ports::default();
        Self { network, ports }
    }

    /// Whether it names addresses, and not kinds of them.
    pub fn is_prefix(&self) -> bool {
        matches!(self.network, Network::Prefix(..))
    }

    /// Whether it has `address`, which is canonical: no IPv4 address in the shape of an IPv6 one.
    pub fn matches(&self, address: SocketAddr) -> bool {
        self.network.contains(address.ip()) && self.ports.contains(address.port())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Where brackets end, or else there may be an IPv6 address without them.
        let after = text.find(']').unwrap_or(0);
        let colon = text[after..].find(':').map(|at| after + at);
        match colon.filter(|_| after > 0 || text.matches(':').count() == 1) {
            Some(at) => Ok(Self {
                network: text[..at].parse()?,
                ports: text[at + 1..].parse()?,
            }),
            None => Ok(Self::of(text.parse()?)),
        }
    }
}

/// Where a server connects to. What is refused is refused; else what is permitted is permitted, and
/// nothing beyond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    permitted: Vec<Rule>,
    refused: Vec<Rule>,
}

impl Rules {
    /// Without any permission: the internet, all ports.
    pub fn new(permitted: Vec<Rule>, refused: Vec<Rule>) -> Self {
        let permitted = match permitted.is_empty() {
            true => vec![Rule::of(Network::Internet)],
            false => permitted,
        };
        Self { permitted, refused }
    }

    /// Whether clients may reach `address`, provided that it is [not this machine's](Self::allow_here).
    /// Nobody reaches an unspecified one (RFC 1122 §3.2.1.3, RFC 4291 §2.5.2): it names no host, and some
    /// systems take it for loopback.
    pub fn allow(&self, address: SocketAddr) -> bool {
        !is_unspecified(address.ip().to_canonical()) && self.permit(address, |_| true)
    }

    /// Whether clients may reach `address` also where this machine has it. The internet is other
    /// machines: a service here may be behind a firewall that connections from here go around.
    pub fn allow_here(&self, address: SocketAddr) -> bool {
        let named = |rule: &Rule| rule.network != Network::Internet;
        !is_unspecified(address.ip().to_canonical()) && self.permit(address, named)
    }

    /// Whether clients may have this machine listen at `address`; an unspecified one is all it has.
    pub(crate) fn allow_listen(&self, address: SocketAddr) -> bool {
        self.permit(address, |_| true)
    }

    /// Whether nothing refuses `address` and one of the permissions that `count` is for it.
    fn permit(&self, address: SocketAddr, count: impl Fn(&Rule) -> bool) -> bool {
        let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
        // What is refused is refused in every shape.
        let behind = match canonical.ip() {
            IpAddr::V6(ip) => embedded(ip),
            IpAddr::V4(_) => None,
        };
        let behind = behind.map(|ip| SocketAddr::new(ip.into(), canonical.port()));
        let refuses =
            |rule: &Rule| rule.matches(canonical) || behind.is_some_and(|to| rule.matches(to));
        let refused = self.refused.iter().any(refuses);
        let permits = |rule: &Rule| count(rule) && rule.matches(canonical);
        !refused && self.permitted.iter().any(permits)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Internet => f.write_str("internet"),
            Self::Prefix(ip @ IpAddr::V4(_), len) => write!(f, "{ip}/{len}"),
            Self::Prefix(ip, len) => write!(f, "[{ip}]/{len}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(permitted: &[&str], refused: &[&str]) -> Rules {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Rules::new(read(permitted), read(refused))
    }

    fn allows(rules: &Rules, address: &str) -> bool {
        rules.allow(address.parse().unwrap())
    }

    #[test]
    fn only_the_internet_is_reached_unless_more_is_permitted() {
        let rules = Rules::default();
        for address in [
            "8.8.8.8:53",
            "93.184.216.34:80",
            "[2606:4700::1]:443",
            "[64:ff9b::808:808]:1",
        ] {
            assert!(allows(&rules, address), "{address}");
        }
        for address in [
            "0.0.0.0:80",
            "10.1.2.3:80",
            "100.64.0.1:80",
            "127.0.0.1:80",
            "127.8.8.8:80",
            "169.254.169.254:80",
            "172.31.255.255:80",
            "192.0.2.1:80",
            "192.168.1.1:80",
            "198.18.0.1:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[::]:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:10.0.0.1]:80",
            "[::127.0.0.1]:80",
            "[64:ff9b::7f00:1]:80",
            "[64:ff9b:1::1]:80",
            "[2001::1]:80",
            "[2001:db8::1]:80",
            "[2002:7f00:1::1]:80",
            "[3fff::1]:80",
            "[fc00::1]:80",
            "[fd12::1]:80",
            "[fe80::1]:80",
            "[fec0::1]:80",
            "[ff02::1]:80",
        ] {
            assert!(!allows(&rules, address), "{address}");
        }
    }

    #[test]
    fn what_is_named_counts_and_refusals_count_more() {
        let rules = rules(
            &[
                "internet:80,443",
                "10.0.0.0/8:22",
                "fd00::/8",
                "[::1]:8000-8010",
            ],
            &["10.9.0.0/16", "internet:443"],
        );
        for (address, allowed) in [
            ("8.8.8.8:80", true),
            ("8.8.8.8:443", false),
            ("8.8.8.8:22", false),
            ("10.1.1.1:22", true),
            ("[::ffff:10.1.1.1]:22", true),
            ("10.1.1.1:80", false),
            ("10.9.1.1:22", false),
            ("[fd00::1]:1", true),
            ("[::1]:8010", true),
            ("[::1]:8011", false),
            ("127.0.0.1:8000", false),
        ] {
            assert_eq!(allows(&rules, address), allowed, "{address}");
        }
    }

    /// A network that translates them (NAT64) leads to the same hosts.
    #[test]
    fn refused_ipv4_addresses_are_refused_in_every_shape() {
        let rules = rules(&["all"], &["10.0.0.0/8", "8.8.8.8:53"]);
        for (address, allowed) in [
            ("10.1.2.3:80", false),
            ("[::ffff:10.1.2.3]:80", false),
            ("[64:ff9b::10.1.2.3]:80", false),
            ("[64:ff9b::8.8.8.8]:53", false),
            ("[64:ff9b::8.8.8.8]:80", true),
            ("[64:ff9b::11.1.2.3]:80", true),
            ("[2001:db8::10.1.2.3]:80", true),
            ("[64:ff9b:1::10.1.2.3]:80", false),
            ("[2002:a01:203::1]:80", false),
            ("[2002:b01:203::1]:80", true),
            ("[::10.1.2.3]:80", false),
            ("[::ffff:0:10.1.2.3]:80", false),
            ("[::ffff:0:11.1.2.3]:80", true),
            ("[::1]:80", true),
        ] {
            assert_eq!(allows(&rules, address), allowed, "{address}");
        }
    }

    #[test]
    fn unspecified_addresses_are_refused_whatever_is_permitted() {
        let rules = rules(&["all", "0.0.0.0/8", "::/0"], &[]);
        for address in [
            "0.0.0.0:80",
            "0.1.2.3:80",
            "[::]:80",
            "[::ffff:0.0.0.0]:80",
            "[::ffff:0.1.2.3]:80",
        ] {
            assert!(!allows(&rules, address), "{address}");
            assert!(!rules.allow_here(address.parse().unwrap()), "{address}");
            // A listener there is one at all addresses.
            assert!(rules.allow_listen(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_no_internet() {
        for (permitted, refused, allowed) in [
            (&[][..], &[][..], false),
            (&["internet:80"], &[], false),
            (&["internet", "8.8.8.0/24:80"], &[], true),
            (&["internet", "8.8.8.0/24:81"], &[], false),
            (&["all"], &[], true),
            (&["all"], &["8.8.8.8"], false),
        ] {
            let rules = rules(permitted, refused);
            let here = rules.allow_here("8.8.8.8:80".parse().unwrap());
            assert_eq!(here, allowed, "{permitted:?} {refused:?}");
        }
    }

    #[test]
    fn what_is_no_rule_is_told() {
        for bad in [
            "",
            "x",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "[::1]/129",
            "10.0.0.0/8:",
            "10.0.0.0/8:x",
            "internet:9-1",
            "internet:70000",
            "all:80:81",
            "[::1",
            "300.1.1.1",
            "10.0.0.0/+8",
            "10.0.0.0/8:+80",
        ] {
            assert!(bad.parse::<Rule>().is_err(), "{bad:?}");
        }
        // Bits beyond the network's own: the wrong length, or an address.
        for (bad, meant) in [
            ("10.1.2.3/8", "10.0.0.0/8 "),
            ("192.0.2.1/31:80", "192.0.2.0/31 "),
            ("[2001:db8::1]/64", "[2001:db8::]/64 "),
            ("1.2.3.4/0", "0.0.0.0/0 "),
        ] {
            let why = bad.parse::<Rule>().unwrap_err();
            assert!(why.contains(meant), "{bad}: {why}");
        }
        assert!(allows(&rules(&["0.0.0.0/0"], &[]), "127.0.0.1:1"));
        assert!(!allows(&rules(&["0.0.0.0/0"], &[]), "[::1]:1"));
    }
}
