//! Round-trip time and retransmission timeout (RFC 6298).

use super::TcpSenderConfig;
use dfcp_proto::Duration;

/// The estimator of RFC 6298 §2, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct RttEstimator {
    smoothed: u64,
    variation: u64,
    min: u64,
    rto: u64,
    bounds: (u64, u64),
    granularity: u64,
}

impl RttEstimator {
    pub fn new(config: &TcpSenderConfig) -> Self {
        let min = nanos(config.rto_min);
        let max = nanos(config.rto_max).max(min);
        Self {
            smoothed: 0,
            variation: 0,
            min: u64::MAX,
            rto: nanos(config.rto_initial).clamp(min, max),
            bounds: (min, max),
            granularity: nanos(config.rto_granularity),
        }
    }

    /// A valid sample: not one that might belong to either of two transmissions (Karn).
    #[inline]
    pub fn update(&mut self, sample: Duration) {
        // Zero stands for "no sample yet".
        let sample = nanos(sample).max(1);
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            let error = self.smoothed.abs_diff(sample);
            self.variation = self.variation - self.variation / 4 + error / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        }
        self.min = self.min.min(sample);
        let (min, max) = self.bounds;
        self.rto = (self.smoothed + (4 * self.variation).max(self.granularity)).clamp(min, max);
    }

    /// The timeout after `backoff` doublings.
    #[inline]
    pub fn rto(&self, backoff: u32) -> Duration {
        let doubled = self.rto.saturating_mul(1 << backoff.min(16));
        Duration::from_nanos(doubled.min(self.bounds.1))
    }

    /// The smoothed round-trip time.
    #[inline]
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed > 0).then(|| Duration::from_nanos(self.smoothed))
    }

    /// The least sample.
    #[inline]
    pub fn min(&self) -> Option<Duration> {
        (self.min < u64::MAX).then(|| Duration::from_nanos(self.min))
    }
}

/// A duration as whole nanoseconds; centuries do not matter here.
#[inline]
pub(super) fn nanos(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}
