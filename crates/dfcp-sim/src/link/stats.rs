//! What a link counted.

use crate::packet::Drops;
use dfcp_proto::{Duration, Instant};

/// Counters of a [`Link`](super::Link) since it was made or [reset](super::Link::reset_stats).
/// Bytes include framing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// When counting began.
    pub since: Instant,
    /// Packets handed to the link.
    pub packets_in: u64,
    /// Bytes handed to the link.
    pub bytes_in: u64,
    /// Packets that ended here: in the queue, or lost after they were transmitted.
    pub drops: Drops,
    /// Packets that reached the transmitter.
    pub transmitted: u64,
    /// Their bytes.
    pub transmitted_bytes: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets held back to be reordered.
    pub held_back: u64,
    /// Packets marked CE.
    pub marked: u64,
    /// Packets delivered, duplicates included.
    pub delivered: u64,
    /// Bytes delivered, duplicates included.
    pub delivered_bytes: u64,
    /// Most bytes that waited at once.
    pub queue_peak_bytes: u64,
    /// Most packets that waited at once.
    pub queue_peak_packets: u64,
    /// Sum over `transmitted` of the time from arrival to the transmitter, nanoseconds.
    pub(super) sojourn_total: u64,
    /// Longest time from arrival to the transmitter, nanoseconds.
    pub(super) sojourn_max: u64,
    /// How long how many packets waited.
    pub occupancy: Occupancy,
    /// Waiting times, of packets that waited at all.
    pub sojourns: Histogram,
}

impl LinkStats {
    /// Mean time that packets waited for the transmitter.
    pub fn sojourn_mean(&self) -> Duration {
        let mean = self.sojourn_total.checked_div(self.transmitted);
        Duration::from_nanos(mean.unwrap_or(0))
    }

    /// Longest time that a packet waited for the transmitter.
    pub fn sojourn_max(&self) -> Duration {
        Duration::from_nanos(self.sojourn_max)
    }

    /// Counts a packet that reached the transmitter after so many nanoseconds.
    #[inline]
    pub(super) fn count_transmission(&mut self, size: u32, waited: u64) {
        self.transmitted += 1;
        self.transmitted_bytes += u64::from(size);
        if waited > 0 {
            self.sojourn_total = self.sojourn_total.saturating_add(waited);
            self.sojourn_max = self.sojourn_max.max(waited);
            self.sojourns.add(waited, 1);
        }
    }

    /// The waiting time that the share `q` of the transmitted packets did not exceed, rounded up
    /// to the histogram's resolution.
    pub fn sojourn_quantile(&self, q: f64) -> Duration {
        let waited = self.sojourns.total();
        let zero = self.transmitted.saturating_sub(waited);
        Duration::from_nanos(self.sojourns.quantile(q, zero))
    }
}

/// The queue's length over time: its mean and its distribution, each length weighted by how long
/// it lasted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    since: Instant,
    changed: Instant,
    packets: u64,
    bytes: u64,
    packet_time: u128,
    byte_time: u128,
    lengths: Histogram,
}

impl Occupancy {
    pub(super) fn starting(now: Instant, packets: usize, bytes: u64) -> Self {
        Self {
            since: now,
            changed: now,
            packets: packets as u64,
            bytes,
            ..Self::default()
        }
    }

    /// The queue holds this much from `now` on.
    pub(super) fn change(&mut self, now: Instant, packets: usize, bytes: u64) {
        let lasted = now.saturating_since(self.changed).as_nanos() as u64;
        if lasted > 0 && self.packets > 0 {
            self.packet_time += u128::from(self.packets) * u128::from(lasted);
            self.byte_time += u128::from(self.bytes) * u128::from(lasted);
            self.lengths.add(self.packets, lasted);
        }
        self.changed = now.max(self.changed);
        self.packets = packets as u64;
        self.bytes = bytes;
    }

    /// The record as it stands at `now`.
    pub fn until(&self, now: Instant) -> Self {
        let mut record = self.clone();
        record.change(now, self.packets as usize, self.bytes);
        record
    }

    fn elapsed(&self) -> u64 {
        self.changed.saturating_since(self.since).as_nanos() as u64
    }

    /// Mean number of packets that waited.
    pub fn mean_packets(&self) -> f64 {
        self.packet_time as f64 / (self.elapsed() as f64).max(1.0)
    }

    /// Mean number of bytes that waited.
    pub fn mean_bytes(&self) -> f64 {
        self.byte_time as f64 / (self.elapsed() as f64).max(1.0)
    }

    /// The number of packets not exceeded for the share `q` of the time, rounded up to the
    /// histogram's resolution.
    pub fn quantile_packets(&self, q: f64) -> u64 {
        let empty = self.elapsed().saturating_sub(self.lengths.total());
        self.lengths.quantile(q, empty)
    }
}

/// Buckets to each doubling: a value is known to 1/16.
const STEPS: u64 = 16;

/// A histogram of positive numbers with buckets that grow with the value: exact up to 32, then
/// within 6 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    weights: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64, weight: u64) {
        let bucket = Self::bucket(value);
        if bucket >= self.weights.len() {
            self.weights.resize(bucket + 1, 0);
        }
        self.weights[bucket] += weight;
        self.total += weight;
    }

    fn bucket(value: u64) -> usize {
        if value < 2 * STEPS {
            return value as usize;
        }
        let shift = u64::from(value.ilog2() - STEPS.ilog2());
        (shift * STEPS + (value >> shift)) as usize
    }

    /// Largest value of a bucket.
    fn upper(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < 2 * STEPS {
            return bucket;
        }
        let shift = bucket / STEPS - 1;
        let low = (bucket - shift * STEPS) << shift;
        low + ((1 << shift) - 1)
    }

    /// Sum of all weights.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The least value that covers the share `q`, with `zeros` more weight at zero.
    pub fn quantile(&self, q: f64, zeros: u64) -> u64 {
        let target = (self.total + zeros) as f64 * q.clamp(0.0, 1.0);
        let mut covered = zeros as f64;
        if covered >= target {
            return 0;
        }
        for (bucket, &weight) in self.weights.iter().enumerate() {
            covered += weight as f64;
            if weight > 0 && covered >= target {
                return Self::upper(bucket);
            }
        }
        self.weights.len().checked_sub(1).map_or(0, Self::upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_once_and_stay_close() {
        for value in (0..5000).chain([1 << 20, (1 << 20) + 77, u64::MAX >> 1, u64::MAX]) {
            let bucket = Histogram::bucket(value);
            let upper = Histogram::upper(bucket);
            assert!(upper >= value && upper - value <= value / 16, "{value}");
            assert_eq!(Histogram::bucket(upper), bucket);
            assert!(upper == u64::MAX || Histogram::bucket(upper + 1) == bucket + 1);
        }
    }

    #[test]
    fn quantiles_of_known_weights() {
        let mut histogram = Histogram::default();
        for value in 1..=10 {
            histogram.add(value, 9);
        }
        // A tenth of the weight is at zero.
        assert_eq!(histogram.quantile(0.05, 10), 0);
        assert_eq!(histogram.quantile(0.5, 10), 5);
        assert_eq!(histogram.quantile(1.0, 10), 10);
        assert_eq!(Histogram::default().quantile(0.5, 0), 0);
    }

    #[test]
    fn occupancy_weighs_by_time() {
        let at = Instant::from_nanos;
        let mut occupancy = Occupancy::starting(at(100), 0, 0);
        occupancy.change(at(110), 2, 3000);
        occupancy.change(at(140), 5, 7500);
        occupancy.change(at(150), 0, 0);
        // 10 ns empty, 30 ns with 2, 10 ns with 5, 50 ns empty.
        let record = occupancy.until(at(200));
        assert_eq!(record.mean_packets(), 1.1);
        assert_eq!(record.mean_bytes(), 1650.0);
        assert_eq!(record.quantile_packets(0.6), 0);
        assert_eq!(record.quantile_packets(0.9), 2);
        assert_eq!(record.quantile_packets(0.95), 5);
    }
}
