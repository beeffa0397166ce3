//! How many handshakes an endpoint computes. One takes 200 to 300 µs of public-key arithmetic, and
//! anybody can ask for it: above a rate only those who proved their address get it, and of these
//! nobody gets much.
//!
//! Times are whole seconds on the endpoint's clock: what is counted ends with each.

use crate::host::{NETWORKS_OF_SITE, network, site};
use crate::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Computed a second for whoever asks: 3 % of a core.
const FREE: u32 = 100;
/// And for all who proved their address: 30 % of a core.
const MOST: u32 = 1000;
/// Of these, for one network, and for one site.
const MOST_OF_NETWORK: u32 = 100;
const MOST_OF_SITE: u32 = NETWORKS_OF_SITE as u32 * MOST_OF_NETWORK;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Load {
    second: u64,
    /// Computed in this second, and whether the one before was one of high load.
    computed: u32,
    was_high: bool,
    /// By network, at most as many as were computed.
    networks: BTreeMap<u64, u32>,
    sites: BTreeMap<u64, u32>,
}

impl Load {
    fn advance(&mut self, now: Instant) {
        let second = now.as_nanos() / Duration::from_secs(1).as_nanos() as u64;
        if second != self.second {
            self.was_high = second == self.second + 1 && self.computed >= FREE;
            self.second = second;
            self.computed = 0;
            self.networks.clear();
            self.sites.clear();
        }
    }

    /// Whether handshakes are for those only who proved their address.
    pub fn is_high(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.was_high || self.computed >= FREE
    }

    /// Whether a handshake may be computed for `remote`, which proved its address or need not; it
    /// is counted then.
    pub fn admit(&mut self, now: Instant, remote: SocketAddr) -> bool {
        let high = self.is_high(now);
        let network = network(remote);
        let used = self.networks.get(&network).copied().unwrap_or_default();
        let site = site(remote);
        let of_site = site.and_then(|site| self.sites.get(&site)).copied();
        let of_site = of_site.unwrap_or_default();
        if self.computed >= MOST || high && (used >= MOST_OF_NETWORK || of_site >= MOST_OF_SITE) {
            return false;
        }
        self.networks.insert(network, used + 1);
        if let Some(site) = site {
            self.sites.insert(site, of_site + 1);
        }
        self.computed += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(a: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, a], port))
    }

    #[test]
    fn a_network_gets_its_share_and_the_next_second_is_another() {
        let (mut load, start) = (Load::default(), Instant::from_nanos(5_000_000_000));
        let admitted = |load: &mut Load, now, a| {
            (0..2000)
                .filter(|&port| load.admit(now, address(a, port)))
                .count()
        };
        assert_eq!(
            admitted(&mut load, start, 1),
            100,
            "one network, from many ports"
        );
        assert!(load.is_high(start));
        let rest: usize = (2..60).map(|a| admitted(&mut load, start, a)).sum();
        assert_eq!(rest, 900, "all others together");
        let next = start + Duration::from_secs(1);
        assert!(load.is_high(next), "it does not end at once");
        assert!(load.admit(next, address(1, 1)));
        assert!(!load.is_high(start + Duration::from_secs(3)));
    }

    #[test]
    fn a_site_of_ipv6_has_no_more_than_two_networks() {
        let (mut load, now) = (Load::default(), Instant::from_nanos(1));
        let admitted = |load: &mut Load, site: u16| {
            let asks = (0..5000).map(|i| {
                let ip = [0x2001, 0xdb8, site, i % 50, 0, 0, 0, i];
                load.admit(now, SocketAddr::from((ip, 1)))
            });
            asks.filter(|&admitted| admitted).count()
        };
        assert_eq!(admitted(&mut load, 1), 200);
        assert_eq!(admitted(&mut load, 2), 200, "others have theirs");
    }

    #[test]
    fn a_refused_network_takes_no_memory_beyond_its_own() {
        let (mut load, now) = (Load::default(), Instant::from_nanos(1));
        for a in 0..u16::MAX {
            let ip = [10, 0, a.to_be_bytes()[0], a.to_be_bytes()[1]];
            load.admit(now, SocketAddr::from((ip, 1)));
        }
        assert!(load.networks.len() <= 1000, "{}", load.networks.len());
    }
}
