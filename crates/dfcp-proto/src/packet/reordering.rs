//! The reordering window: how far a path lets packets fall behind those sent after them (RACK,
//! RFC 8985 §6.2 step 4; NCR, RFC 4653, waits about a window for the same reason).
//!
//! The extent of a packet's reordering is the time between its own departure and that of the newest
//! packet acknowledged before it: a distance in time, so what was learnt at one rate holds at
//! another. RACK steps its window up by a quarter of a round trip for each DSACK round; here every
//! acknowledgement shows the extent itself, so the window is a quantile of what was seen: as wide as
//! 99 % of packets needed, and nothing while 99 % came in order. So a path that seldom reorders
//! finds its losses as fast as one that never does.

use crate::time::{Duration, Instant};

/// One packet in this many may come later than the window: each is a spurious loss. Half of the
/// 2 % of needless repairs that we allow ourselves; the rest is for learning.
const TOLERATED: u64 = 100;
/// Buckets per doubling: the window is at most 2^(1/4), a fifth, wider than it need be.
const PER_OCTAVE: u32 = 4;
/// Upper bound of the first bucket: packets that left together have less between them.
const FINEST_US: u64 = 16;
/// 16 µs to 2²² times that, a minute.
const BUCKETS: usize = 22 * PER_OCTAVE as usize;
/// What was seen counts half after this many round trips: RACK keeps its window for 16 recoveries
/// (RFC 8985 §6.2), which on a lossy path are 16 round trips.
const HALF_LIFE_ROUNDS: u32 = 16;
/// And not before this many packets: on slow paths a quantile needs them.
const HALF_LIFE_PACKETS: u64 = 1024;

/// Decaying histogram of the extents of reordering.
#[derive(Clone, Debug)]
pub(super) struct ReorderingWindow {
    /// Packets counted, those in order included.
    packets: u64,
    late: [u32; BUCKETS],
    /// Sum of `late`.
    late_total: u64,
    halved: Instant,
    /// The present quantile.
    window: Option<Duration>,
}

impl ReorderingWindow {
    pub fn new() -> Self {
        Self {
            packets: 0,
            late: [0; BUCKETS],
            late_total: 0,
            halved: Instant::ZERO,
            window: None,
        }
    }

    /// `in_order` packets arrived as they were sent, or nearly.
    pub fn on_in_order(&mut self, in_order: u64) {
        self.packets += in_order;
    }

    /// A packet arrived after one that was sent `extent` later.
    pub fn on_late(&mut self, extent: Duration) {
        self.packets += 1;
        self.late_total += 1;
        self.late[bucket(extent)] += 1;
    }

    /// Forgets a part of what was seen long ago, and settles the window.
    pub fn update(&mut self, now: Instant, rtt: Duration) {
        if self.late_total == 0 && self.packets < HALF_LIFE_PACKETS {
            return;
        }
        let old = now.saturating_since(self.halved) >= HALF_LIFE_ROUNDS * rtt;
        if old && self.packets >= HALF_LIFE_PACKETS {
            self.halved = now;
            self.packets /= 2;
            self.late.iter_mut().for_each(|count| *count /= 2);
            self.late_total = self.late.iter().map(|&count| u64::from(count)).sum();
        }
        self.window = self.quantile();
    }

    /// The least bound that all but the tolerated share of packets kept.
    fn quantile(&self) -> Option<Duration> {
        let mut beyond = self.packets / TOLERATED;
        if self.late_total <= beyond {
            return None;
        }
        for (index, &count) in self.late.iter().enumerate().rev() {
            if u64::from(count) > beyond {
                return Some(upper(index));
            }
            beyond -= u64::from(count);
        }
        None
    }

    /// How long after a packet another must have left whose acknowledgement makes the first one
    /// lost; `None` while packets come in order. At most a round trip of `rtt` (RFC 8985 §6.2).
    pub fn get(&self, rtt: Duration) -> Option<Duration> {
        self.window.map(|window| window.min(rtt))
    }
}

fn bucket(extent: Duration) -> usize {
    let fraction = (extent.as_micros() as f64 / FINEST_US as f64).max(1.0);
    let index = (fraction.log2() * f64::from(PER_OCTAVE)).ceil() as usize;
    index.min(BUCKETS - 1)
}

/// Most that belongs to a bucket.
fn upper(index: usize) -> Duration {
    let octaves = index as f64 / f64::from(PER_OCTAVE);
    Duration::from_secs_f64(FINEST_US as f64 * 1e-6 * octaves.exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    fn at(round: u64) -> Instant {
        Instant::ZERO + RTT * round as u32
    }

    #[test]
    fn the_window_is_what_all_but_a_hundredth_of_packets_need() {
        let mut window = ReorderingWindow::new();
        // Of 1000 packets, 50 are up to 5 ms late, and 5 are 30 ms late.
        window.on_in_order(945);
        (1..=50).for_each(|i| window.on_late(Duration::from_micros(100 * i)));
        (0..5).for_each(|_| window.on_late(Duration::from_millis(30)));
        window.update(at(1), RTT);
        let found = window.get(RTT).expect("reordering").as_secs_f64();
        assert!((0.0045..0.006).contains(&found), "{found}");
    }

    #[test]
    fn one_late_packet_widens_it_until_a_hundred_came_in_order() {
        let mut window = ReorderingWindow::new();
        window.on_in_order(50);
        window.update(at(1), RTT);
        assert_eq!(window.get(RTT), None);
        window.on_late(Duration::from_millis(3));
        window.update(at(1), RTT);
        assert!(window.get(RTT) >= Some(Duration::from_millis(3)));
        window.on_in_order(50);
        window.update(at(2), RTT);
        assert_eq!(window.get(RTT), None);
    }

    #[test]
    fn it_never_passes_a_round_trip_and_is_forgotten() {
        let mut window = ReorderingWindow::new();
        (0..2000).for_each(|_| window.on_late(Duration::from_secs(3)));
        window.update(at(1), RTT);
        assert_eq!(window.get(RTT), Some(RTT));
        let mut rounds = 1;
        while window.get(RTT).is_some() {
            rounds += 1;
            window.on_in_order(400);
            window.update(at(rounds), RTT);
            assert!(rounds < 200, "still {:?}", window.get(RTT));
        }
        assert!(rounds > u64::from(HALF_LIFE_ROUNDS), "{rounds} round trips");
    }
}
