//! The stochastic part of SFQ and FQ-CoDel: flows hashed into buckets, with a secret seed.

use dfcp_proto::{Duration, Instant};

use super::config::clamp_buckets;
use crate::packet::FlowId;
use crate::random::{Random, split_mix};

/// A hash of flows that may change in time.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    count: u32,
    seed: u64,
    perturb: Option<Duration>,
    perturb_at: Instant,
    random: Random,
}

impl Buckets {
    pub(super) fn new(count: u32, perturb: Option<Duration>, mut random: Random) -> Self {
        Self {
            count: clamp_buckets(count),
            seed: random.next_u64(),
            perturb,
            perturb_at: perturb.map_or(Instant::ZERO, |interval| Instant::ZERO + interval),
            random,
        }
    }

    /// Draws a new seed if an interval has ended.
    pub(super) fn advance(&mut self, now: Instant) {
        let Some(interval) = self.perturb.filter(|interval| !interval.is_zero()) else {
            return;
        };
        if now < self.perturb_at {
            return;
        }
        self.seed = self.random.next_u64();
        let late = now.saturating_since(self.perturb_at).as_nanos();
        let skipped = (late / interval.as_nanos()) as u64;
        let skipped = Duration::from_nanos(skipped.saturating_mul(interval.as_nanos() as u64));
        self.perturb_at = self.perturb_at + skipped + interval;
    }

    /// The bucket of a flow.
    pub(super) fn of(&self, flow: FlowId) -> usize {
        let hash = split_mix(&mut (self.seed ^ u64::from(flow.0)));
        ((u128::from(hash) * u128::from(self.count)) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn hash_changes_with_the_interval_only() {
        let interval = Duration::from_secs(10);
        let mut buckets = Buckets::new(1024, Some(interval), Seed(1).stream("sfq"));
        let places = |buckets: &Buckets| -> Vec<usize> {
            (0..64).map(|flow| buckets.of(FlowId(flow))).collect()
        };
        let mut before = places(&buckets);
        for second in 1..100_u64 {
            buckets.advance(Instant::from_nanos(second * 1_000_000_000));
            let after = places(&buckets);
            assert_eq!(before != after, second % 10 == 0, "second {second}");
            before = after;
        }
    }

    #[test]
    fn hash_spreads_flows_evenly() {
        let buckets = Buckets::new(16, None, Seed(1).stream("sfq"));
        let mut load = [0_u32; 16];
        for flow in 0..16_000 {
            load[buckets.of(FlowId(flow))] += 1;
        }
        // Binomial with mean 1000 and standard deviation 30.6.
        assert!(load.iter().all(|n| (850..1150).contains(n)), "{load:?}");
    }
}
