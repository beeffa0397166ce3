//! Whom a connection is for: a host, by name or by address, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest name, bytes (RFC 1035 §2.3.4; also what SOCKS5 can say).
const MAX_NAME: usize = 255;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// By its address.
    Ip(IpAddr),
    /// By its name, which the far end resolves.
    Name(String),
}

impl Host {
    /// Reads a name, or an address without brackets.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        // Names that are not ASCII come to resolvers as IDNA; they are left to them.
        let wrong = |c: char| c.is_control() || c.is_whitespace() || "/:[]".contains(c);
        match text.is_empty() || text.len() > MAX_NAME || text.contains(wrong) {
            true => Err(format!("not a host: {text:?}")),
            false => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// A host and a port of TCP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl Target {
    /// Reads `host:port` or `[address]:port`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or_default();
            return Err(format!(
                "not a host and a port but a URL: {text:?}; write {host}"
            ));
        }
        let (host, port) = split_port(text)?;
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(address) => {
                let address: Result<Ipv6Addr, _> = address.parse();
                Host::Ip(
                    address
                        .map_err(|_| format!("not an IPv6 address: {host}"))?
                        .into(),
                )
            }
            None if host.contains(':') => {
                return Err(format!("write IPv6 addresses in brackets: [{host}]:{port}"));
            }
            None => Host::parse(host)?,
        };
        match number(port) {
            // Nobody is there: 0 asks for any port to listen at.
            None | Some(0) => Err(format!("not a port: {port:?}")),
            Some(port) => Ok(Self { host, port }),
        }
    }
}

impl Target {
    /// Its address, if its host is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }
}

/// A number of digits alone: the standard library takes a sign, too.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The parts of `host:port`, where brackets may hold colons.
fn split_port(text: &str) -> Result<(&str, &str), String> {
    let split = text
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'));
    split.ok_or_else(|| format!("a port is missing: write {text}:PORT"))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        let (host, port) = (Host::Ip(address.ip()), address.port());
        Self { host, port }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// How a host is told apart on the wire, as in SOCKS5 (RFC 1928 §5).
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Why bytes are no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadTarget {
    /// There is no such kind of address.
    Kind,
    /// The name is none.
    Name,
}

impl Target {
    /// Writes it as SOCKS5 does: kind, address, port.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(IPV4);
                out.extend(ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(IPV6);
                out.extend(ip.octets());
            }
            Host::Name(name) => {
                // No longer than MAX_NAME, by construction.
                out.extend([NAME, name.len() as u8]);
                out.extend(name.as_bytes());
            }
        }
        out.extend(self.port.to_be_bytes());
    }

    /// Bytes of one that begins like this; `None` if there is no such kind.
    pub(crate) fn encoded_len(kind: u8, next: u8) -> Option<usize> {
        match kind {
            IPV4 => Some(1 + 4 + 2),
            IPV6 => Some(1 + 16 + 2),
            NAME => Some(2 + usize::from(next) + 2),
            _ => None,
        }
    }

    /// Reads what [`Target::encode`] wrote, and how many bytes that were; `Ok(None)` if some are missing.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadTarget> {
        let (kind, next) = match bytes {
            [] => return Ok(None),
            [kind] => (*kind, 0),
            [kind, next, ..] => (*kind, *next),
        };
        let len = Self::encoded_len(kind, next).ok_or(BadTarget::Kind)?;
        if bytes.len() < len.max(2) {
            return Ok(None);
        }
        let (host, port) = bytes[..len].split_at(len - 2);
        let host = &host[if kind == NAME { 2 } else { 1 }..];
        let host = match (kind, <[u8; 4]>::try_from(host), <[u8; 16]>::try_from(host)) {
            (IPV4, Ok(octets), _) => Host::Ip(Ipv4Addr::from(octets).into()),
            (IPV6, _, Ok(octets)) => Host::Ip(Ipv6Addr::from(octets).into()),
            _ => {
                let name = std::str::from_utf8(host).map_err(|_| BadTarget::Name)?;
                Host::parse(name).map_err(|_| BadTarget::Name)?
            }
        };
        let port = u16::from_be_bytes([port[0], port[1]]);
        Ok(Some((Self { host, port }, len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_people_write_them() {
        for (text, shown) in [
            ("example.org:80", "example.org:80"),
            ("192.0.2.1:443", "192.0.2.1:443"),
            ("[2001:DB8::1]:22", "[2001:db8::1]:22"),
        ] {
            assert_eq!(Target::parse(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            ":",
            ":80",
            "a",
            "a:",
            "a:x",
            "a:99999",
            "a:+1",
            "a:-1",
            "[::1]",
            "[x]:1",
            "::1:80",
            "a b:1",
            "a/b:1",
            "a:0",
            "http://a:80",
            "://",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_parts_of_it_are_waited_for() {
        for text in ["example.org:80", "192.0.2.1:443", "[2001:db8::1]:22"] {
            let target = Target::parse(text).unwrap();
            let mut bytes = Vec::new();
            target.encode(&mut bytes);
            for part in 0..bytes.len() {
                assert_eq!(Target::decode(&bytes[..part]), Ok(None));
            }
            bytes.extend(b"what follows");
            let len = bytes.len() - 12;
            assert_eq!(Target::decode(&bytes), Ok(Some((target, len))));
        }
        assert_eq!(Target::decode(&[2]), Err(BadTarget::Kind));
        assert_eq!(Target::decode(&[3, 0, 0, 80]), Err(BadTarget::Name));
        assert_eq!(Target::decode(&[3, 1, 0xff, 0, 80]), Err(BadTarget::Name));
        assert_eq!(Target::decode(&[3, 1, b'\n', 0, 80]), Err(BadTarget::Name));
        // A name that is an address is one, so that rules see it as such.
        let named = Target::decode(b"\x03\x09127.0.0.1\x00\x50")
            .unwrap()
            .unwrap()
            .0;
        assert_eq!(named.host, Host::Ip(Ipv4Addr::LOCALHOST.into()));
    }
}
