//! Token buckets: the policer before a link's queue and the shaper behind it.

use dfcp_proto::{Instant, Rate};

use super::transmitter::WORK_PER_BYTE;

/// A bucket that fills at a rate up to a size; each byte of a packet takes a token of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// How fast it fills: the rate in the long run.
    pub rate: Rate,
    /// Bytes that it holds: what may pass at once after a pause. It is full at first.
    pub burst: u64,
}

impl TokenBucket {
    /// Checks that packets can pass. A [`Link`](super::Link) takes any: a policer without a rate
    /// drops what exceeds the first burst, and a shaper lets a packet larger than its burst pass
    /// when the bucket is full.
    ///
    /// # Errors
    /// Says which number is zero.
    pub fn validate(&self) -> Result<(), TokenBucketError> {
        match (self.rate, self.burst) {
            (Rate::ZERO, _) => Err(TokenBucketError::ZeroRate),
            (_, 0) => Err(TokenBucketError::ZeroBurst),
            _ => Ok(()),
        }
    }
}

/// Why a [`TokenBucket`] makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenBucketError {
    /// It never fills.
    #[error("its rate is zero")]
    ZeroRate,
    /// It holds nothing.
    #[error("its burst is zero")]
    ZeroBurst,
}

/// A [`TokenBucket`] at work.
///
/// It keeps the time at which the bucket would be full, as the "theoretical arrival time" of the
/// generic cell rate algorithm (ITU-T I.371) does, in units in which one nanosecond is the rate:
/// so nothing is ever rounded.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    config: TokenBucket,
    full: u128,
}

impl Bucket {
    pub fn new(config: TokenBucket) -> Self {
        Self { config, full: 0 }
    }

    pub fn config(&self) -> TokenBucket {
        self.config
    }

    /// Another rate or size from `now` on; what is missing from a full bucket stays missing.
    pub fn set_config(&mut self, now: Instant, config: TokenBucket) {
        let missing = self.full.saturating_sub(self.time(now));
        self.config = config;
        self.full = self.time(now).saturating_add(missing);
    }

    fn time(&self, at: Instant) -> u128 {
        u128::from(at.as_nanos()) * u128::from(self.config.rate.as_bps())
    }

    /// Takes the tokens of a packet at `at`, if they are there.
    pub fn take(&mut self, size: u32, at: Instant) -> bool {
        let full = self.full.max(self.time(at)).saturating_add(work(size));
        let conforms = full - self.time(at) <= bytes(self.config.burst);
        if conforms {
            self.full = full;
        }
        conforms
    }

    /// Takes the tokens of a packet as soon as they are there, from `at` on: when that is.
    pub fn wait(&mut self, size: u32, at: Instant) -> Instant {
        let full = self.full.max(self.time(at)).saturating_add(work(size));
        let burst = bytes(self.config.burst).max(work(size));
        let rate = u128::from(self.config.rate.as_bps()).max(1);
        let begin = full.saturating_sub(burst).div_ceil(rate);
        self.full = full;
        at.max(Instant::from_nanos(
            u64::try_from(begin).unwrap_or(u64::MAX),
        ))
    }
}

fn work(size: u32) -> u128 {
    bytes(u64::from(size))
}

fn bytes(count: u64) -> u128 {
    u128::from(count) * u128::from(WORK_PER_BYTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1500 bytes take 1 ms.
    const RATE: Rate = Rate::from_bps(12_000_000);

    fn bucket(burst: u64) -> Bucket {
        Bucket::new(TokenBucket { rate: RATE, burst })
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut policer = bucket(10 * 1500);
        let passed = |policer: &mut Bucket, at| (0..50).filter(|_| policer.take(1500, at)).count();
        assert_eq!(passed(&mut policer, at(0)), 10);
        assert_eq!(passed(&mut policer, at(2500)), 2);
        assert_eq!(passed(&mut policer, at(3000)), 1);
        assert_eq!(passed(&mut policer, at(100_000)), 10);
        let mut shaper = bucket(2 * 1500);
        let times: Vec<_> = (0..5).map(|_| shaper.wait(1500, at(0))).collect();
        assert_eq!(times, [0, 0, 1000, 2000, 3000].map(at));
        assert_eq!(shaper.wait(1500, at(10_000)), at(10_000));
        assert_eq!(shaper.wait(6000, at(10_000)), at(11_000));
    }

    #[test]
    fn nothing_is_rounded() {
        // 7 Gbit/s: 1500 bytes take 1714 2/7 ns.
        let rate = Rate::from_bps(7_000_000_000);
        let mut shaper = Bucket::new(TokenBucket { rate, burst: 1500 });
        let last = (0..=70_000).map(|_| shaper.wait(1500, at(0))).last();
        assert_eq!(last, Some(at(120_000)));
    }

    #[test]
    fn a_change_keeps_what_is_missing() {
        let mut bucket = bucket(3000);
        assert!(bucket.take(3000, at(0)));
        let faster = TokenBucket {
            rate: Rate::from_bps(24_000_000),
            burst: 3000,
        };
        bucket.set_config(at(1000), faster); // half full
        assert!(!bucket.take(3000, at(1400)));
        assert!(bucket.take(3000, at(1500)));
        let nonsense = TokenBucket {
            rate: Rate::ZERO,
            burst: 0,
        };
        assert!(nonsense.validate().is_err());
        bucket.set_config(at(2000), nonsense);
        assert!(!bucket.take(1, at(u64::MAX / 1000)));
        bucket.wait(u32::MAX, at(u64::MAX / 1000));
    }
}
