//! How many repair symbols the packets of a window need.

/// Share of the packets that may stay lost: at 1.6e-5 CUBIC still has 100 Mbit/s over 50 ms (RFC 9438
/// §5.2).
const RESIDUAL: f64 = 2e-5;

/// Packets after the last loss for which the path may well lose still: with none lost of n the loss is
/// below 3/n (at 95 %), here 1e-4.
const MEMORY: u64 = 30_000;

/// A path of which nothing is known, or that has just lost a packet, may well lose 3 %: the first of many
/// losses must not be the one that a new connection of TCP takes for its limit. So many packets without a
/// loss halve that, and for all [`MEMORY`] it costs 0.6 % of them.
pub(super) const PRIOR: f64 = 32.0;

/// Above this the path is no longer one for real-time packets; the window would be all repairs.
const MAX_LOSS: f64 = 0.5;

/// More than this is an outage, which no window spans.
const MAX_BURSTINESS: f64 = 32.0;

/// Steps of an estimate for each factor of two, so that what follows from it is computed seldom. It is
/// rounded up, by 9 % at most.
const STEPS: f64 = 8.0;

/// What the path loses, as the transport sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    /// Probability; 0 where nothing was lost for long enough.
    mean: f64,
    /// Packets by which losses come together, on average.
    burst: f64,
}

impl Loss {
    pub const NONE: Self = Self {
        mean: 0.0,
        burst: 1.0,
    };

    /// What to expect `since` packets after the last loss, or the begin; the mean and its burstiness
    /// (variance of the losses in a flight ÷ that of independent ones) are the transport's.
    pub fn expected(mean: f64, burstiness: f64, since: u64) -> Self {
        if since >= MEMORY {
            return Self::NONE;
        }
        let floor = 1.0 / (since as f64 + PRIOR);
        let mean = mean.max(floor).min(MAX_LOSS);
        Self {
            mean: ((STEPS * mean.log2()).ceil() / STEPS).exp2(),
            // Down: what differs less from independent losses than it varies by itself is taken for them.
            burst: (4.0 * burstiness.clamp(1.0, MAX_BURSTINESS)).floor() / 4.0,
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
        let enough = |m: usize| {
            let others = ((n + m - 1) as f64 / self.burst).round() as u64;
            let lost = (m as f64 / self.burst).floor() as u64;
            self.mean * tail(others, self.mean, lost) <= RESIDUAL
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

    #[test]
    fn longer_windows_and_better_paths_need_less() {
        let share = |p, n| Loss::expected(p, 1.0, 1000).repairs(n) as f64 / n as f64;
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
        let bursts = Loss::expected(0.01, 8.0, 1000).repairs(256) as f64 / 256.0;
        assert!(bursts > 2.0 * share(0.01, 256), "{bursts}");
    }

    #[test]
    fn nothing_is_repaired_where_nothing_is_lost() {
        let repairs = |since| Loss::expected(0.0, 1.0, since).repairs(256);
        assert!((15..30).contains(&repairs(0)), "{}", repairs(0));
        assert_eq!((repairs(MEMORY - 1), repairs(MEMORY)), (1, 0));
        assert_eq!(Loss::expected(1e-5, 1.0, MEMORY).repairs(256), 0);
    }
}
