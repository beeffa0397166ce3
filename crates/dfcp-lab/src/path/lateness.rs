//! How late packets left a path: the measure of how true it was to its model.

use dfcp_proto::Duration;

/// Microseconds that are told apart; what is later counts as the last.
const RANGE: usize = 20_000;

/// Delivery times beyond what the model said, to the microsecond up to 20 ms.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// Deliveries by whole microseconds of lateness.
    counts: Vec<u64>,
    max: Duration,
    total: u64,
    sum: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: vec![0; RANGE],
            max: Duration::ZERO,
            total: 0,
            sum: Duration::ZERO,
        }
    }
}

impl Lateness {
    pub(super) fn record(&mut self, late: Duration) {
        let micros = usize::try_from(late.as_micros()).unwrap_or(usize::MAX);
        self.counts[micros.min(RANGE - 1)] += 1;
        self.max = self.max.max(late);
        self.total += 1;
        self.sum += late;
    }

    /// The lateness that this share of the deliveries did not exceed, up to 20 ms.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.total as f64 * share) as u64;
        let mut below = 0;
        let micros = self.counts.iter().position(|count| {
            below += count;
            below > rank
        });
        micros.map_or(self.max, |micros| Duration::from_micros(micros as u64))
    }

    /// The latest delivery.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean over all deliveries.
    pub fn mean(&self) -> Duration {
        self.sum.div_f64(self.total.max(1) as f64)
    }

    /// Deliveries.
    pub fn count(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_times() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.5), Duration::ZERO);
        for micros in 1..=100 {
            lateness.record(Duration::from_micros(micros));
        }
        lateness.record(Duration::from_secs(1));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(51));
        assert_eq!(lateness.quantile(0.0), Duration::from_micros(1));
        assert_eq!(lateness.quantile(1.0), Duration::from_secs(1));
        assert_eq!(lateness.max(), Duration::from_secs(1));
        assert_eq!(lateness.count(), 101);
    }
}
