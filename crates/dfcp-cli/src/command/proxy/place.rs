//! Places of forwards as people of ssh write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use dfcp_command::Failure;
use dfcp_proxy::Target;

/// Where to listen: `PORT` or `ADDRESS:PORT`; this machine alone without an address, all addresses
/// with an empty one or `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub SocketAddr);

/// A [`Place`] for connections, or with `/udp` at its end for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // other systems lead nothing here
pub struct Intercept {
    /// Where to listen.
    pub place: SocketAddr,
    /// Whether it is datagrams that come.
    pub udp: bool,
}

impl FromStr for Intercept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, udp) = kind(text);
        let place = text.parse::<Place>()?.0;
        Ok(Self { place, udp })
    }
}

/// What stands before `/udp` or `/tcp`, and whether it is the former.
fn kind(text: &str) -> (&str, bool) {
    match text.rsplit_once('/') {
        Some((text, "udp")) => (text, true),
        Some((text, "tcp")) => (text, false),
        _ => (text, false),
    }
}

/// The parts of `text` between colons that stand in no brackets.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ':' && depth == 0
    })
    .collect()
}

fn place(address: Option<&str>, port: &str) -> Result<Place, String> {
    let ip: IpAddr = match address {
        None | Some("localhost") => Ipv4Addr::LOCALHOST.into(),
        Some("" | "*") => Ipv6Addr::UNSPECIFIED.into(),
        Some(text) => {
            let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
            let ip = bare.unwrap_or(text).parse();
            ip.map_err(|_| format!("not an address to listen at: {text:?}"))?
        }
    };
    let port = port.parse().map_err(|_| format!("not a port: {port:?}"))?;
    Ok(Place(SocketAddr::new(ip, port)))
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parts(text)[..] {
            [port] => place(None, port),
            [address, port] => place(Some(address), port),
            _ => Err(format!(
                "not [ADDRESS:]PORT: {text:?}; IPv6 addresses stand in brackets"
            )),
        }
    }
}

/// A forward: `[ADDRESS:]PORT:HOST:PORT`, of UDP with `/udp` at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where to listen.
    pub place: SocketAddr,
    /// Where what comes goes to.
    pub target: Target,
    /// Whether it is datagrams that come.
    pub udp: bool,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, udp) = kind(text);
        if let Some((_, rest)) = text.split_once("://") {
            let rest = rest.split('/').next().unwrap_or_default();
            return Err(format!(
                "not PORT:HOST:PORT: {text:?} has a URL in it; write {rest}"
            ));
        }
        let (address, port, host, target_port) = match parts(text)[..] {
            [port, host, target_port] => (None, port, host, target_port),
            [address, port, host, target_port] => (Some(address), port, host, target_port),
            _ => {
                let why = "not [ADDRESS:]PORT:HOST:PORT";
                return Err(format!("{why}: {text:?}; IPv6 addresses stand in brackets"));
            }
        };
        Ok(Self {
            place: place(address, port)?.0,
            target: format!("{host}:{target_port}").parse()?,
            udp,
        })
    }
}

/// Two of these that are the same port, of datagrams (`true`) or of connections: all addresses have that of
/// each of their family, and those of IPv6 that of IPv4, too. What is chosen by the system (0) is another one each time.
fn same_port(places: &[(SocketAddr, bool)]) -> Option<(SocketAddr, SocketAddr)> {
    let covers = |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    let overlap = |a, b| a == b || covers(a, b) || covers(b, a);
    places.iter().enumerate().find_map(|(i, &(one, udp))| {
        let before = places[..i].iter().find(|&&(other, udp_too)| {
            let same = one.port() == other.port() && udp == udp_too && one.port() != 0;
            same && overlap(one.ip(), other.ip())
        });
        before.map(|&(other, _)| (other, one))
    })
}

/// Refuses two that are the same port, `here` or `there`.
pub fn each_its_own(places: &[(SocketAddr, bool)], whose: &str) -> Result<(), Failure> {
    let Some((one, other)) = same_port(places) else {
        return Ok(());
    };
    let both = match one == other {
        true => format!("{one} is named twice"),
        false => format!("{one} and {other} are one port"),
    };
    let why = format!("{both}: a port {whose} leads to one place; name another port");
    Err(Failure::usage(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_named_twice_are_found() {
        let same = |places: &[(&str, bool)]| {
            let places = places.iter().map(|&(at, udp)| (at.parse().unwrap(), udp));
            let found = same_port(&places.collect::<Vec<_>>());
            found.map(|(one, other)| format!("{one} {other}"))
        };
        let fine = [
            ("127.0.0.1:1", false),
            ("127.0.0.1:1", true),
            ("127.0.0.2:1", false),
            ("[::1]:1", false),
            ("0.0.0.0:2", false),
            ("[::1]:2", false),
            ("127.0.0.1:0", false),
            ("127.0.0.1:0", false),
        ];
        assert_eq!(same(&fine), None);
        for (at, udp) in [("127.0.0.1:1", false), ("127.0.0.1:1", true)] {
            let twice = [&fine[..], &[(at, udp)]].concat();
            let found = same(&twice);
            assert_eq!(found.as_deref(), Some("127.0.0.1:1 127.0.0.1:1"));
        }
        let all = [("[::]:5", false), ("127.0.0.1:5", false)];
        assert_eq!(same(&all).as_deref(), Some("[::]:5 127.0.0.1:5"));
    }

    #[test]
    fn forwards_are_read_as_ssh_reads_them() {
        for (text, place, target) in [
            ("8080:example.org:80", "127.0.0.1:8080", "example.org:80"),
            ("localhost:1:[::1]:2", "127.0.0.1:1", "[::1]:2"),
            ("*:1:a:2", "[::]:1", "a:2"),
            (":1:a:2", "[::]:1", "a:2"),
            ("[fd00::1]:1:a:2", "[fd00::1]:1", "a:2"),
            ("10.0.0.1:0:a:2", "10.0.0.1:0", "a:2"),
            (
                "53:[2001:db8::1]:53/udp",
                "127.0.0.1:53",
                "[2001:db8::1]:53",
            ),
            ("80:a:80/tcp", "127.0.0.1:80", "a:80"),
        ] {
            let forward: Forward = text.parse().unwrap();
            assert_eq!(forward.place.to_string(), place, "{text}");
            assert_eq!(forward.target.to_string(), target, "{text}");
            assert_eq!(forward.udp, text.ends_with("/udp"), "{text}");
        }
        for bad in [
            "",
            "1",
            "1:2",
            "1:a",
            "x:a:2",
            "1:a:x",
            "1::2",
            "::1:1:a:2",
            "[::1:1:a:2",
            "a:1:b:2",
            "1:a:2/sctp",
            "/udp",
            "1:a:0/udp",
            "1:http://a:80",
        ] {
            assert!(bad.parse::<Forward>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn places_are_on_this_machine_unless_said_otherwise() {
        for (text, place) in [
            ("1080", "127.0.0.1:1080"),
            ("*:1080", "[::]:1080"),
            ("[::1]:1080", "[::1]:1080"),
            ("0.0.0.0:1080", "0.0.0.0:1080"),
        ] {
            assert_eq!(text.parse::<Place>().unwrap().0.to_string(), place);
            let intercept: Intercept = format!("{text}/udp").parse().unwrap();
            assert!(intercept.udp && intercept.place.to_string() == place);
            assert!(!text.parse::<Intercept>().unwrap().udp);
        }
        for bad in ["", "x", "1:2:3", "::1:1080", "host:1", "1080:"] {
            assert!(bad.parse::<Place>().is_err(), "{bad:?}");
        }
    }
}
