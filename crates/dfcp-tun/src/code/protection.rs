//! How many repair symbols the packets of a window need.

use std::collections::VecDeque;

/// Share of the packets that may stay lost: at 1.6e-5 CUBIC still has 100 Mbit/s over 50 ms (RFC 9438
/// §5.2).
const RESIDUAL: f64 = 2e-5;

/// Packets after the last loss for which the path may well lose still: with none lost of n the loss is
/// below 3/n (at 95 %), here 1e-4.
const MEMORY: u64 = 30_000;

/// A path of which nothing is known, or that has just lost a packet, may well lose 3 %: the first of many
/// losses must not be the one that a new connection of TCP takes for its limit. So many packets without a
/// loss halve that, and for all [`MEMORY`] it costs 0.6 % of them.
const PRIOR: f64 = 32.0;

/// Above this the path is no longer one for real-time packets; the window would be all repairs.
const MAX_LOSS: f64 = 0.5;

/// More than this is an outage, which no window spans.
const MAX_BURSTINESS: f64 = 32.0;

/// Steps of an estimate for each factor of two, so that what follows from it is computed seldom. It is
/// rounded up, by 9 % at most.
const STEPS: f64 = 8.0;

/// Windows of fewer packets are those of thin flows, or of a burst that has just begun. The transport's
/// estimate remembers a thousand packets, which at 32 in a round trip of 50 ms are 1.6 s, and 20 s of a
/// call: there the [last losses](History::recent) count, and what they make sent in vain is little. In longer
/// windows the estimate follows soon enough, and each packet too much is dear.
const THIN: usize = 32;

/// Losses that are remembered: a standard deviation of as many is less than a fifth of them.
const RECENT: usize = 32;

/// When packets were lost.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Packets whose fate is known, and how many of them were lost.
    settled: u64,
    lost: u64,
    /// When the last one became known, or the begin, counted in these packets.
    last: u64,
    /// Of the last losses, how many packets were known before each became known; the newest first.
    before: VecDeque<u64>,
}

impl History {
    /// So many packets are known of by now, and so many of them were lost.
    pub fn note(&mut self, settled: u64, lost: u64) {
        let new = lost.saturating_sub(self.lost);
        if new > 0 {
            for _ in 0..new.min(RECENT as u64) {
                self.before.push_front(self.settled);
            }
            self.before.truncate(RECENT);
            self.last = settled;
        }
        (self.settled, self.lost) = (settled, lost.max(self.lost));
    }

    /// Packets since the last loss, or the begin.
    fn since(&self) -> u64 {
        self.settled.saturating_sub(self.last)
    }

    /// The share that is lost since one of the last losses, whichever says most: of j losses in N packets
    /// (j − √(bj))/N, the share less one standard deviation where the variance is b times that of
    /// independent losses. So of a path that begins to lose much a few losses tell, and one tells nothing.
    fn recent(&self, burstiness: f64) -> f64 {
        let share = |(j, &before): (usize, &u64)| {
            let (lost, packets) = ((j + 1) as f64, self.settled.saturating_sub(before).max(1));
            (lost - (burstiness * lost).sqrt()) / packets as f64
        };
        self.before
            .iter()
            .enumerate()
            .map(share)
            .fold(0.0, f64::max)
    }
}

/// What the path loses, as the transport sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    /// Probability; 0 where nothing was lost for long enough.
    mean: f64,
    /// The same for short windows ([`THIN`]).
    recent: f64,
    /// Packets by which losses come together, on average.
    burst: f64,
}

impl Loss {
    pub const NONE: Self = Self {
        mean: 0.0,
        recent: 0.0,
        burst: 1.0,
    };

    /// What to expect after that history; the mean and its burstiness (variance of the losses in a flight ÷
    /// that of independent ones) are the transport's.
    pub fn expected(mean: f64, burstiness: f64, history: &History) -> Self {
        let since = history.since();
        if since >= MEMORY {
            return Self::NONE;
        }
        let burstiness = burstiness.clamp(1.0, MAX_BURSTINESS);
        let mean = mean.max(1.0 / (since as f64 + PRIOR));
        let step = |p: f64| ((STEPS * p.min(MAX_LOSS).log2()).ceil() / STEPS).exp2();
        Self {
            mean: step(mean),
            recent: step(mean.max(history.recent(burstiness))),
            // Down: what differs less from independent losses than it varies by itself is taken for them.
            burst: (4.0 * burstiness).floor() / 4.0,
        }
    }

    pub fn is_none(&self) -> bool {
        self.mean == 0.0
    }

    /// Repair symbols for `n` source symbols, so that at most [`RESIDUAL`] of these stay lost. If all that
    /// is lost stays lost whenever more than `m` of the `N = n + m` packets are, a packet stays lost with
    /// the probability `p · P(B ≥ m)`, where B is how many of the others are lost, binomial if losses are
    /// independent. Losses in bursts are counted as bursts.
    pub fn repairs(&self, n: usize) -> usize {
        if self.is_none() || n == 0 {
            return 0;
        }
        let p = if n < THIN { self.recent } else { self.mean };
        let enough = |m: usize| {
            let others = ((n + m - 1) as f64 / self.burst).round() as u64;
            let lost = (m as f64 / self.burst).floor() as u64;
            p * tail(others, p, lost) <= RESIDUAL
        };
        // The smallest that is enough, if it is not more than each symbol twice and some.
        let (mut low, mut high) = (0, 2 * n + 4);
        while low < high {
            let middle = (low + high) / 2;
            match enough(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }
}

/// P(B ≥ m) for B binomial with `n` trials of probability `p`, which is above 0 and below 1.
fn tail(n: u64, p: f64, m: u64) -> f64 {
    if m == 0 {
        return 1.0;
    }
    if m > n {
        return 0.0;
    }
    let odds = p / (1.0 - p);
    let mut term = (1.0 - p).powf(n as f64);
    let mut below = 0.0;
    for k in 0..m {
        below += term;
        term *= (n - k) as f64 / (k + 1) as f64 * odds;
    }
    // Near 1 the difference has no digits left: then go on upwards instead.
    if below < 0.999 {
        return 1.0 - below;
    }
    let mut above = 0.0;
    for k in m..=n {
        above += term;
        let next = term * (n - k) as f64 / (k + 1) as f64 * odds;
        if next < above * 1e-9 {
            break;
        }
        term = next;
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_binomial_distribution() {
        for (n, p, m, known) in [
            (1, 0.05, 1, 0.05),
            (2, 0.05, 2, 0.0025),
            (10, 0.1, 3, 0.070_190_8),
            (284, 0.05, 29, 2.484_5e-4),
        ] {
            let found = tail(n, p, m);
            assert!((found - known).abs() < known * 0.05, "{n} {p} {m}: {found}");
        }
    }

    /// After a loss that became known so many packets ago.
    fn after(since: u64) -> History {
        let mut history = History::default();
        history.note(1, 1);
        history.note(1 + since, 1);
        history
    }

    #[test]
    fn longer_windows_and_better_paths_need_less() {
        let share = |p, n| Loss::expected(p, 1.0, &after(1000)).repairs(n) as f64 / n as f64;
        assert!(
            (0.09..0.13).contains(&share(0.05, 256)),
            "{}",
            share(0.05, 256)
        );
        assert!(
            (0.02..0.05).contains(&share(0.01, 256)),
            "{}",
            share(0.01, 256)
        );
        assert!(share(0.05, 16) > share(0.05, 64));
        let bursts = Loss::expected(0.01, 8.0, &after(1000)).repairs(256) as f64 / 256.0;
        assert!(bursts > 2.0 * share(0.01, 256), "{bursts}");
    }

    #[test]
    fn nothing_is_repaired_where_nothing_is_lost() {
        let repairs = |since| Loss::expected(0.0, 1.0, &after(since)).repairs(256);
        assert!((15..30).contains(&repairs(0)), "{}", repairs(0));
        assert_eq!((repairs(MEMORY - 1), repairs(MEMORY)), (1, 0));
        assert_eq!(Loss::expected(1e-5, 1.0, &after(MEMORY)).repairs(256), 0);
    }

    #[test]
    fn a_few_losses_tell_of_a_path_that_begins_to_lose_and_one_does_not() {
        let mut history = History::default();
        history.note(100_000, 0);
        history.note(100_002, 1);
        assert_eq!(history.recent(1.0), 0.0);
        // Every fifth is lost.
        for i in 1..=40 {
            history.note(100_000 + 5 * i, i);
        }
        let found = history.recent(1.0);
        assert!((0.15..0.2).contains(&found), "{found}");
        // As much as that in bursts of a dozen is a burst or two.
        assert!(history.recent(23.0) < 0.05);
        let expected = Loss::expected(0.01, 1.0, &history);
        assert!(expected.repairs(2) >= 5 && expected.repairs(256) < 60);
        // And when it has ended that is soon seen.
        history.note(101_000, 40);
        assert!(history.recent(1.0) < 0.03);
    }
}
