//! What an address prefix may ask: a token bucket for each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use dfcp_proto::{Duration, Instant};

/// Tokens of a full bucket: a meeting takes some twenty, so a few begin at once behind one address.
const FULL: u32 = 120;
/// A token comes back after this: two a second, which is 24 questions for a number in a minute.
const REFILL: Duration = Duration::from_millis(500);
/// Prefixes that are remembered, some 5 MB. When all of them have asked within the minute, others
/// are turned away.
const MAX_PREFIXES: usize = 65_536;

/// Networks that one customer typically has: /24 of IPv4, /48 of IPv6 (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix(u64);

impl Prefix {
    pub(super) fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            // The 48 bits of IPv6 leave the upper sixteen zero.
            IpAddr::V4(ip) => Self(0xffff_0000_0000_0000 | u64::from(u32::from(ip) >> 8)),
            IpAddr::V6(ip) => Self((u128::from(ip) >> 80) as u64),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u32,
    since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Limits {
    buckets: BTreeMap<Prefix, Bucket>,
    /// When those that are full again were last forgotten.
    swept: Option<Instant>,
}

impl Limits {
    /// Takes `cost` tokens of the prefix of `ip`; whether it had them.
    pub fn take(&mut self, now: Instant, ip: IpAddr, cost: u32) -> bool {
        let prefix = Prefix::of(ip);
        if !self.buckets.contains_key(&prefix) && self.buckets.len() >= MAX_PREFIXES {
            self.sweep(now);
            if self.buckets.len() >= MAX_PREFIXES {
                return false;
            }
        }
        let bucket = self.buckets.entry(prefix).or_insert(Bucket {
            tokens: FULL,
            since: now,
        });
        let come = now.saturating_since(bucket.since).as_millis() / REFILL.as_millis();
        let come = u32::try_from(come).unwrap_or(u32::MAX);
        if come > 0 {
            bucket.tokens = bucket.tokens.saturating_add(come).min(FULL);
            bucket.since = match bucket.tokens {
                FULL => now,
                _ => bucket.since + REFILL * come,
            };
        }
        let has = bucket.tokens >= cost;
        if has {
            bucket.tokens -= cost;
        }
        has
    }

    /// Forgets those that are full again. It looks at all of them, and packets of forged prefixes come at any
    /// rate: no more often than a token comes back.
    fn sweep(&mut self, now: Instant) {
        if self
            .swept
            .is_some_and(|at| now.saturating_since(at) < REFILL)
        {
            return;
        }
        self.swept = Some(now);
        let refilled = REFILL * FULL;
        self.buckets
            .retain(|_, bucket| now.saturating_since(bucket.since) < refilled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_its_share_and_no_more() {
        let mut limits = Limits::default();
        let start = Instant::ZERO + Duration::from_secs(5);
        let taken = |limits: &mut Limits, now, ip: &str| {
            let ip = ip.parse().unwrap();
            (0..1000).filter(|_| limits.take(now, ip, 1)).count()
        };
        assert_eq!(taken(&mut limits, start, "192.0.2.1"), 120);
        assert_eq!(taken(&mut limits, start, "192.0.2.77"), 0);
        assert_eq!(taken(&mut limits, start, "::ffff:192.0.2.78"), 0);
        assert_eq!(taken(&mut limits, start, "192.0.3.1"), 120);
        assert_eq!(taken(&mut limits, start, "2001:db8:1::1"), 120);
        assert_eq!(taken(&mut limits, start, "2001:db8:1:ffff::1"), 0);
        assert_eq!(taken(&mut limits, start, "2001:db8:2::1"), 120);
        let later = start + Duration::from_secs(10);
        assert_eq!(taken(&mut limits, later, "192.0.2.1"), 20);
        let much_later = start + Duration::from_secs(100_000);
        assert_eq!(taken(&mut limits, much_later, "192.0.2.1"), 120);
    }

    #[test]
    fn memory_stays_bounded_and_others_come_in_later() {
        let mut limits = Limits::default();
        let ip = |i: u32| IpAddr::from(std::net::Ipv4Addr::from(i << 8));
        for i in 0..MAX_PREFIXES as u32 + 1000 {
            let had = limits.take(Instant::ZERO, ip(i), 1);
            assert_eq!(had, (i as usize) < MAX_PREFIXES, "{i}");
        }
        assert_eq!(limits.buckets.len(), MAX_PREFIXES);
        let later = Instant::ZERO + Duration::from_secs(61);
        assert!(limits.take(later, ip(70_000), 1));
    }

    /// A full table is searched now and then, not for each packet of a forged prefix.
    #[test]
    fn others_come_in_when_the_table_is_searched_again() {
        let mut limits = Limits::default();
        let ip = |i: u32| IpAddr::from(std::net::Ipv4Addr::from(i << 8));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        for i in 0..MAX_PREFIXES as u32 {
            assert!(limits.take(at(if i < 10 { 0 } else { 1000 }), ip(i), 1));
        }
        let new = ip(70_000);
        assert!(!limits.take(at(59_900), new, 1), "all have asked of late");
        assert!(!limits.take(at(60_100), new, 1), "searched just before");
        assert!(limits.take(at(60_400), new, 1), "ten are full again");
        assert!(limits.take(at(60_401), ip(70_001), 1), "there is room");
    }
}
