//! What is carried, and what is left alone.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use dfcp_proxy::{Host, Rule, is_here};

/// Addresses of direct names that are remembered: those of the last so many, of which a browser has seen
/// some hundreds in a day.
const REMEMBERED: usize = 4096;

/// Destinations: addresses, or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A network, and which of its ports.
    Addresses(Rule),
    /// A name, in lower case.
    Name(String),
    /// All names that end with a dot and this.
    Below(String),
}

impl Route {
    fn has_name(&self, name: &str) -> bool {
        match self {
            Self::Addresses(_) => false,
            Self::Name(own) => name == own,
            Self::Below(zone) => {
                let host = name.strip_suffix(zone.as_str());
                host.is_some_and(|host| host.ends_with('.'))
            }
        }
    }

    fn has_address(&self, at: SocketAddr) -> bool {
        matches!(self, Self::Addresses(rule) if rule.matches(at))
    }

    /// The same if it names addresses, and not kinds of them.
    fn names_address(&self, at: SocketAddr) -> bool {
        matches!(self, Self::Addresses(rule) if rule.is_prefix() && rule.matches(at))
    }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = match text.parse() {
            Ok(rule) => return Ok(Self::Addresses(rule)),
            Err(wrong) => wrong,
        };
        let zone = text.strip_prefix("*.");
        let bare = zone.unwrap_or(text);
        let is_name = bare.contains(|c: char| c.is_ascii_alphabetic()) && !bare.contains('*');
        match Host::parse(bare) {
            Ok(Host::Name(name)) if is_name && !name.contains('/') => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                Ok(match zone {
                    Some(_) => Self::Below(name),
                    None => Self::Name(name),
                })
            }
            _ => Err(format!("{wrong}, or a name: example.org, *.example.org")),
        }
    }
}

/// What is carried and what is not. What is direct is direct; else what is carried is carried, and nothing
/// beyond.
#[derive(Debug, Default)]
pub struct Routes {
    carried: Vec<Route>,
    direct: Vec<Route>,
    /// Addresses of names that are direct.
    known: Mutex<(HashSet<IpAddr>, VecDeque<IpAddr>)>,
}

impl Routes {
    /// Without anything that is carried: everything is, but for this machine.
    pub fn new(carried: Vec<Route>, direct: Vec<Route>) -> Self {
        let known = Mutex::default();
        Self {
            carried,
            direct,
            known,
        }
    }

    /// Whether connections to `at` are carried. Those to this machine, to its links and to groups are only
    /// if their addresses are named: there they would mean something else.
    pub(crate) fn carries(&self, at: SocketAddr) -> bool {
        let ip = at.ip();
        if self.direct.iter().any(|route| route.has_address(at)) || self.is_known(ip) {
            return false;
        }
        if self.carried.iter().any(|route| route.names_address(at)) {
            return true;
        }
        let all = self.carried.is_empty();
        let wanted = all || self.carried.iter().any(|route| route.has_address(at));
        wanted && !is_near(ip) && !is_here(at).unwrap_or(false)
    }

    /// Whether `name`, in lower case and without a dot at its end, is resolved at the far end, and
    /// connections to it carried.
    pub(crate) fn carries_name(&self, name: &str) -> bool {
        let has = |routes: &[Route]| routes.iter().any(|route| route.has_name(name));
        let is_local = name == "localhost" || name.ends_with(".localhost");
        match (has(&self.direct), has(&self.carried)) {
            (true, _) => false,
            (false, true) => true,
            (false, false) => self.carried.is_empty() && !is_local,
        }
    }

    /// Whether questions for names have to be looked at.
    pub(crate) fn has_names(&self) -> bool {
        let is_name = |route: &Route| !matches!(route, Route::Addresses(_));
        self.carried.is_empty()
            || self.carried.iter().any(is_name)
            || self.direct.iter().any(is_name)
    }

    /// Takes note of the addresses of `name`, which was resolved here.
    pub(crate) fn resolved(&self, name: &str, addresses: &[IpAddr]) {
        if !self.direct.iter().any(|route| route.has_name(name)) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (set, order) = &mut *known;
        for ip in addresses {
            if set.insert(*ip) {
                order.push_back(*ip);
            }
            if order.len() > REMEMBERED
                && let Some(oldest) = order.pop_front()
            {
                set.remove(&oldest);
            }
        }
    }

    fn is_known(&self, ip: IpAddr) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.0.contains(&ip)
    }
}

/// Whether `ip` means something else on every machine: loopback, links, groups, none.
fn is_near(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let none = ip.octets()[0] == 0 || ip.is_broadcast();
            none || ip.is_loopback() || ip.is_link_local() || ip.is_multicast()
        }
        IpAddr::V6(ip) => {
            let none = ip.is_unspecified();
            none || ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(carried: &[&str], direct: &[&str]) -> Routes {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Routes::new(read(carried), read(direct))
    }

    #[track_caller]
    fn check(routes: &Routes, carried: &[&str], direct: &[&str]) {
        for (texts, expected) in [(carried, true), (direct, false)] {
            for text in texts {
                let carries = match text.parse::<SocketAddr>() {
                    Ok(at) => routes.carries(at),
                    Err(_) => routes.carries_name(text),
                };
                assert_eq!(carries, expected, "{text}");
            }
        }
    }

    #[test]
    fn everything_is_carried_but_what_means_this_machine() {
        check(
            &routes(&[], &[]),
            &["192.0.2.1:80", "[2001:db8::1]:1", "example.org", "db"],
            &[
                "127.0.0.1:80",
                "[::1]:80",
                "0.0.0.0:80",
                "169.254.1.1:80",
                "[fe80::1]:80",
                "224.0.0.1:80",
                "localhost",
                "a.localhost",
            ],
        );
    }

    #[test]
    fn what_is_named_counts_and_what_is_direct_counts_more() {
        let routes = routes(
            &["10.0.0.0/8:22,5432", "127.0.0.1:8080", "*.example.org"],
            &["10.1.0.0/16", "www.example.org"],
        );
        check(
            &routes,
            &[
                "10.2.3.4:22",
                "127.0.0.1:8080",
                "db.example.org",
                "a.b.example.org",
            ],
            &[
                "10.2.3.4:80",
                "10.1.0.1:22",
                "127.0.0.1:80",
                "192.0.2.1:22",
                "example.org",
                "wwwexample.org",
                "www.example.org",
                "db",
            ],
        );
        assert!(routes.has_names());
    }

    #[test]
    fn addresses_of_direct_names_are_direct() {
        let routes = routes(&[], &["*.corp"]);
        let ip = "192.0.2.7".parse().unwrap();
        routes.resolved("www.example.org", &[ip]);
        check(&routes, &["192.0.2.7:443"], &[]);
        routes.resolved("www.corp", &[ip]);
        check(&routes, &["192.0.2.8:443"], &["192.0.2.7:443", "www.corp"]);
        // The oldest are forgotten.
        for n in 0..REMEMBERED as u32 {
            routes.resolved("x.corp", &[IpAddr::V4((0x0a00_0000 + n).into())]);
        }
        check(&routes, &["192.0.2.7:443"], &["10.0.15.255:443"]);
    }

    #[test]
    fn destinations_are_networks_or_names() {
        let rule = "10.0.0.0/8:22".parse().unwrap();
        for (text, route) in [
            ("10.0.0.0/8:22", Route::Addresses(rule)),
            ("Example.Org.", Route::Name("example.org".into())),
            ("*.example.org", Route::Below("example.org".into())),
        ] {
            assert_eq!(text.parse(), Ok(route));
        }
        for bad in [
            "",
            "*",
            "10.0.0.1/8",
            "10.0.0",
            "a*.b",
            "a/b",
            "example.org:80",
            "1.2.3.4.5",
        ] {
            assert!(bad.parse::<Route>().is_err(), "{bad:?}");
        }
        assert!(!self::routes(&["10.0.0.0/8"], &[]).has_names());
    }
}
