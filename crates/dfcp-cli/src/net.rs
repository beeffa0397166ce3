//! From a host's name to a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use dfcp::{Endpoint, Error, PublicKey};
use dfcp_command::{DEFAULT_PORT, Failure, Kind};

/// A receiver as the user names it: `host`, `host:port`, `[address]` or `[address]:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: u16,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, DEFAULT_PORT)
    }
}

impl Host {
    /// A host that is at `default` unless it says another port.
    pub fn parse(text: &str, default: u16) -> Result<Self, String> {
        // As addresses of web servers, and as ssh has it.
        for mark in ["://", "@"] {
            if text.contains(mark) {
                let why = format!("write HOST or HOST:PORT, without {mark} and what is before it");
                return Err(why);
            }
        }
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or("a ] is missing")?;
                scoped(address)?.ok_or_else(|| format!("not an IPv6 address: {address}"))?;
                match rest {
                    "" => (address, None),
                    _ => (
                        address,
                        Some(rest.strip_prefix(':').ok_or("a : is missing after ]")?),
                    ),
                }
            }
            None => match text.split_once(':') {
                None => (text, None),
                Some((_, rest)) if rest.contains(':') => {
                    return Err(format!("write IPv6 addresses in brackets: [{text}]"));
                }
                Some((name, port)) => (name, Some(port)),
            },
        };
        if name.is_empty() || name.contains(['/', ' ']) {
            return Err(format!("not a host: {text:?}"));
        }
        let port = match port {
            None => default,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(format!("not a port: {port:?}")),
                Ok(port) => port,
            },
        };
        let name = match name.split_once('%') {
            // Names of interfaces differ by case.
            Some((address, interface)) => format!("{}%{interface}", address.to_ascii_lowercase()),
            None => name.to_ascii_lowercase(),
        };
        Ok(Self { name, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// Which addresses to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Those that the name has.
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// How long finding and reaching a host may take.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

impl Host {
    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host's addresses, in the resolver's order.
    pub async fn resolve(&self, family: Family) -> Result<Vec<SocketAddr>, Failure> {
        let unreachable = |message| Failure::new(Kind::Unreachable, message);
        let lookup = tokio::net::lookup_host((self.name.as_str(), self.port));
        let found = tokio::time::timeout(RESOLVE_LIMIT, lookup)
            .await
            .map_err(|_| {
                unreachable(format!(
                    "{}: the name server does not answer: is there a network, and is the server in \
                     /etc/resolv.conf right?",
                    self.name
                ))
            })?
            .map_err(|error| {
                unreachable(format!(
                    "no address of {} is known ({error}): is the name right, and is there a network?",
                    self.name
                ))
            })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            let wanted = match family {
                Family::Any => true,
                Family::V4 => address.is_ipv4(),
                Family::V6 => address.is_ipv6(),
            };
            if wanted && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.truncate(MAX_ADDRESSES);
        match addresses.is_empty() {
            true => Err(unreachable(format!(
                "{} has no address of that family",
                self.name
            ))),
            false => Ok(addresses),
        }
    }
}

/// Where to listen: an address, a port, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// All addresses without one.
    ip: Option<IpAddr>,
    port: u16,
    /// Of a link-local IPv6 address: its interface.
    scope: u32,
}

impl Listen {
    /// Whether a socket at `other` would be in the way.
    pub fn overlaps(&self, other: SocketAddr) -> bool {
        let covers = |one: IpAddr, other: IpAddr| match one {
            IpAddr::V6(ip) if ip.is_unspecified() => true,
            IpAddr::V4(ip) if ip.is_unspecified() => other.is_ipv4(),
            _ => one == other,
        };
        let (own, others) = (self.ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), other.ip());
        let same_port = self.port == other.port() && self.port != 0;
        same_port && (covers(own, others) || covers(others, own))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "5000, :5000, 10.0.0.2, 10.0.0.2:5000, [::1], [::1]:5000, fe80::1%eth0";
        let wrong = || format!("not an address to listen on: {text:?}; write it like {FORMS}");
        let port = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let all = |port| Self {
            ip: None,
            port,
            scope: 0,
        };
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or_else(wrong)?;
            let port = match rest.strip_prefix(':') {
                Some(rest) => port(rest)?,
                None if rest.is_empty() => DEFAULT_PORT,
                None => return Err(wrong()),
            };
            let (ip, scope) = scoped(address)?.ok_or_else(wrong)?;
            return Ok(Self {
                ip: Some(ip.into()),
                port,
                scope,
            });
        }
        if let Some((ip, scope)) = scoped(text)? {
            let (ip, port) = (Some(ip.into()), DEFAULT_PORT);
            return Ok(Self { ip, port, scope });
        }
        match text.split_once(':') {
            None if text.bytes().all(|b| b.is_ascii_digit()) => Ok(all(port(text)?)),
            Some(("", rest)) => Ok(all(port(rest)?)),
            parts => {
                let (ip, rest) = parts.map_or((text, None), |(ip, rest)| (ip, Some(rest)));
                Ok(Self {
                    ip: Some(ip.parse::<Ipv4Addr>().map_err(|_| wrong())?.into()),
                    port: rest.map_or(Ok(DEFAULT_PORT), port)?,
                    scope: 0,
                })
            }
        }
    }
}

/// An IPv6 address with the interface that its `%` names, by name or number.
fn scoped(text: &str) -> Result<Option<(Ipv6Addr, u32)>, String> {
    let (ip, interface) = match text.split_once('%') {
        Some((ip, interface)) => (ip, Some(interface)),
        None => (text, None),
    };
    let Ok(ip) = ip.parse::<Ipv6Addr>() else {
        return Ok(None);
    };
    let scope = match interface {
        None => 0,
        Some(interface) => match interface.parse() {
            Ok(number) => number,
            Err(_) => nix::net::if_::if_nametoindex(interface)
                .map_err(|_| format!("there is no interface {interface:?}"))?,
        },
    };
    Ok(Some((ip, scope)))
}

impl Listen {
    /// The address, of all addresses the IPv6 one, and what to try where there is no IPv6.
    pub fn addresses(self) -> (SocketAddr, Option<SocketAddr>) {
        match self.ip {
            Some(IpAddr::V6(ip)) => {
                let address = std::net::SocketAddrV6::new(ip, self.port, 0, self.scope);
                (address.into(), None)
            }
            Some(ip) => ((ip, self.port).into(), None),
            None => (
                (Ipv6Addr::UNSPECIFIED, self.port).into(),
                Some((Ipv4Addr::UNSPECIFIED, self.port).into()),
            ),
        }
    }
}

impl Listen {
    /// The endpoint that `at` binds, at all addresses of IPv4 where there is no IPv6.
    ///
    /// # Errors
    /// When there is no such address, or its port is taken.
    pub fn bind(
        self,
        at: impl Fn(SocketAddr) -> Result<Endpoint, Error>,
    ) -> Result<Endpoint, Failure> {
        let (address, bound) = match self.addresses() {
            (address, None) => (address, at(address)),
            (address, Some(without_v6)) => match at(address) {
                Err(Error::Io(error)) if error.kind() != io::ErrorKind::AddrInUse => {
                    (without_v6, at(without_v6))
                }
                bound => (address, bound),
            },
        };
        bound.map_err(|error| match error {
            Error::Io(error) => cannot_listen(address, &error),
            error => {
                let failure = Failure::from(error);
                let message = format!("cannot listen on {address}: {failure}");
                Failure::new(failure.kind, message)
            }
        })
    }
}

/// Why nobody can come to `address`, and what to do.
pub fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => ": another program has that port; end it, or name another port",
        io::ErrorKind::AddrNotAvailable => {
            ": this machine has no such address; name one that it has"
        }
        io::ErrorKind::PermissionDenied => ": this user may not; name a port from 1024 on",
        _ => "",
    };
    let message = format!("cannot listen on {address}: {error}{advice}");
    Failure::new(Kind::LocalIo, message)
}

/// Says where an endpoint listens, with which key, what is to be done with both (the host, as others most
/// likely name it, and the key go in), and what the system's buffers are too small for.
pub fn announce(
    endpoint: &Endpoint,
    say: impl Fn(&dyn fmt::Display),
    lines: impl FnOnce(&str, &PublicKey) -> Vec<String>,
) {
    let (local, key) = (endpoint.local_addr(), endpoint.public_key());
    say(&format_args!("listening on {local}"));
    say(&format_args!("public key {key}"));
    for line in lines(&reached_at(local), &key) {
        say(&line);
    }
    if let Some(shortfall) = endpoint.socket_buffers().shortfall() {
        say(&shortfall);
    }
}

/// How others most likely name what listens at `local`.
pub fn reached_at(local: SocketAddr) -> String {
    let host = match local.ip().is_unspecified() {
        false => Some(local.ip()),
        true => own_address(),
    };
    host.map_or(format!("HOST:{}", local.port()), |ip| {
        SocketAddr::new(ip, local.port()).to_string()
    })
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            ip: None,
            port: DEFAULT_PORT,
            scope: 0,
        }
    }
}

/// Any port of all addresses of the family that `remote` is of.
pub fn any_port(remote: IpAddr) -> SocketAddr {
    match remote {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// The address that other machines most likely reach this one at; sends nothing.
pub fn own_address() -> Option<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849): any that the default route leads to would do.
    let anywhere = [
        Ipv4Addr::new(192, 0, 2, 1).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    ];
    anywhere.into_iter().find_map(own_address_towards)
}

/// The address that this machine would use towards `remote`; sends nothing.
pub fn own_address_towards(remote: IpAddr) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind(any_port(remote)).ok()?;
    socket.connect((remote, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Addresses of interfaces that are up. Not those that mean something on this machine only, or only
/// together with the name of an interface.
pub fn interface_addresses() -> Vec<IpAddr> {
    use nix::net::if_::InterfaceFlags;
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let up = interfaces.filter(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    up.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| v6.ip());
        let v6 = v6.filter(|ip| !ip.is_unicast_link_local() && !ip.is_loopback());
        v4.or(v6.map(IpAddr::V6))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on_are_read_as_people_write_them() {
        let address = |text: &str| text.parse::<Listen>().map(|listen| listen.addresses().0);
        for (text, read) in [
            ("5000", "[::]:5000"),
            (":5000", "[::]:5000"),
            ("10.0.0.2", "10.0.0.2:4433"),
            ("10.0.0.2:0", "10.0.0.2:0"),
            ("[::1]", "[::1]:4433"),
            ("[::1]:7", "[::1]:7"),
            ("::1", "[::1]:4433"),
            ("fe80::1%3", "[fe80::1%3]:4433"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), read, "{text}");
        }
        if nix::net::if_::if_nametoindex("lo").is_ok() {
            assert!(address("fe80::1%lo").is_ok());
        }
        let missing = address("fe80::1%none7").unwrap_err();
        assert!(missing.contains("no interface \"none7\""), "{missing}");
        for bad in [
            "",
            ":",
            "x",
            "99999",
            ":x",
            "1.2.3",
            "1.2.3.4:x",
            "[::1",
            "[::1]7",
            "host",
        ] {
            assert!(address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_are_read_and_shown_alike() {
        for (text, shown) in [
            ("Example.org", "example.org:4433"),
            ("192.0.2.1:5", "192.0.2.1:5"),
            ("[2001:DB8::1]", "[2001:db8::1]:4433"),
            ("[::1]:7", "[::1]:7"),
            ("[FE80::1%3]:7", "[fe80::1%3]:7"),
        ] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), shown);
        }
        for bad in [
            "",
            ":1",
            "::1",
            "[::1",
            "[::1]7",
            "[x]",
            "a:0",
            "a:x",
            "a:99999",
            "a/b",
            "[fe80::1%none7]",
            "[x%3]",
        ] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
        for habit in [
            "https://example.org:443",
            "https://example.org",
            "me@example.org",
        ] {
            let why = habit.parse::<Host>().unwrap_err();
            assert!(why.starts_with("write HOST or HOST:PORT"), "{why}");
        }
    }
}
