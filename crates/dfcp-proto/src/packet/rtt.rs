//! Round-trip time (RFC 9002 §5).

use crate::time::Duration;

/// Smoothed RTT, its variation and its minimum.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    latest: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    min: Duration,
    /// What holds before any sample, and whether the peer told it.
    assumed: Duration,
    told: bool,
}

/// Timer granularity of ordinary hosts (RFC 9002 §6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);
/// Before any sample, where the client says nothing. RFC 9002 §6.2.2 says 333 ms, but here a spare
/// probe costs less than a lost one.
const INITIAL: Duration = Duration::from_millis(100);

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            latest: INITIAL,
            smoothed: None,
            variation: INITIAL / 2,
            min: Duration::MAX,
            assumed: INITIAL,
            told: false,
        }
    }
}

/// Bounds of a round-trip time that is only a client's word.
const ASSUMED: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

impl RttEstimator {
    /// Takes a peer's word for the time before the first sample: a server's first packets would
    /// else be repeated after 300 ms, however short the path. A lie costs the
    /// liar: probes come too early or too late for it.
    pub fn assume(&mut self, told: Option<Duration>) {
        if let (Some(told), None) = (told, self.smoothed) {
            self.assumed = told.clamp(ASSUMED[0], ASSUMED[1]);
            self.latest = self.assumed;
            self.variation = self.assumed / 2;
            self.told = true;
        }
    }

    /// Takes a sample, of which the peer says it held the feedback for `ack_delay`.
    pub fn update(&mut self, sample: Duration, ack_delay: Duration) {
        self.min = self.min.min(sample);
        // The whole delay counts: after a blackout the first report may be half a minute old.
        let adjusted = sample.saturating_sub(ack_delay).max(self.min);
        self.latest = adjusted;
        match self.smoothed {
            None => {
                self.smoothed = Some(adjusted);
                self.variation = adjusted / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(adjusted)) / 4;
                self.smoothed = Some((smoothed * 7 + adjusted) / 8);
            }
        }
    }

    /// Smoothed RTT.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(self.assumed)
    }

    /// Latest sample.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Smallest sample so far; what is assumed before any.
    pub fn min(&self) -> Duration {
        if self.smoothed.is_some() {
            self.min
        } else {
            self.assumed
        }
    }

    /// Whether a sample was taken or the peer told one.
    pub fn is_known(&self) -> bool {
        self.told || self.is_measured()
    }

    /// Whether a sample was taken.
    pub fn is_measured(&self) -> bool {
        self.smoothed.is_some()
    }

    /// Probe timeout for a peer that holds feedback back for up to `max_ack_delay`
    /// (RFC 9002 §6.2.1).
    pub fn pto(&self, max_ack_delay: Duration) -> Duration {
        self.smoothed() + (4 * self.variation).max(GRANULARITY) + max_ack_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// RFC 9002 §5.3 and §6.2.1.
    #[test]
    fn probes_wait_for_a_round_trip_its_variation_and_what_the_peer_may_wait() {
        let mut rtt = RttEstimator::default();
        rtt.update(ms(100), Duration::ZERO);
        assert_eq!(rtt.smoothed(), ms(100));
        assert_eq!(rtt.pto(ms(25)), ms(100 + 4 * 50 + 25));
        // Of a peer that held its feedback back for half of it.
        rtt.update(ms(360), ms(180));
        assert_eq!(rtt.smoothed(), ms(110));
        assert_eq!(
            rtt.pto(ms(25)),
            ms(110) + 4 * (3 * ms(50) + ms(80)) / 4 + ms(25)
        );
    }
}
