//! Where a path is full: what its queue holds, and the rate that it refuses to exceed where it has
//! next to no queue.

use super::tuning::loss::CERTAIN;
use super::tuning::shallow::*;
use crate::time::Instant;

/// Packets and losses of a round, apart for long queues and short ones. A queue that overflows loses
/// when it is long; a path that loses by itself does so at any length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossByQueue {
    /// Where long begins, seconds.
    long_from: f64,
    /// Longest queue, seconds.
    pub(super) longest: f64,
    long: Fate,
    short: Fate,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    acked: f64,
    lost: f64,
}

impl Fate {
    fn packets(self) -> f64 {
        self.acked + self.lost
    }
}

impl LossByQueue {
    /// For the next round: a queue is long if it is longer than half of the longest now.
    pub(super) fn next(&self) -> Self {
        Self {
            long_from: self.longest / 2.0,
            ..Self::default()
        }
    }

    /// Packets acknowledged and lost while the newest saw a queue of `queue` seconds.
    pub(super) fn add(&mut self, queue: f64, acked: f64, lost: f64) {
        self.longest = self.longest.max(queue);
        let fate = if queue > self.long_from {
            &mut self.long
        } else {
            &mut self.short
        };
        fate.acked += acked;
        fate.lost += lost;
    }

    /// Whether long queues lost more than short ones, beyond chance. `path` is what the path itself
    /// loses, for rounds without a short queue, and the standard deviation of that among so many.
    pub(super) fn overflows(&self, path: f64, deviation: impl Fn(f64) -> f64) -> bool {
        let (long, short) = (self.long, self.short);
        let elsewhere = if short.packets() > SHORT_PACKETS {
            (short.lost / short.packets()).max(path)
        } else {
            path
        };
        let chance = if path > 0.0 || short.lost > 0.0 {
            CERTAIN * deviation(long.packets())
        } else {
            0.0
        };
        long.lost > (elsewhere + OVERFLOW + chance) * long.packets() + 1.0
    }
}

/// Whether a queue overflowed in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    Seen,
    None,
}

/// What the queue holds.
#[derive(Debug)]
pub(super) struct BufferEstimate {
    /// Seconds; grows slowly, as it may have been somebody else's queue that overflowed.
    pub(super) seconds: f64,
}

impl Default for BufferEstimate {
    fn default() -> Self {
        Self { seconds: DEEPEST }
    }
}

impl BufferEstimate {
    /// A round is over, in which the queue was `longest` seconds long, and whether it overflowed.
    pub(super) fn end_round(&mut self, longest: f64, overflowed: Overflow) {
        self.seconds = (self.seconds * DEEPER).min(DEEPEST);
        if overflowed == Overflow::Seen {
            self.seconds = longest;
        }
    }
}

/// The rate that a path without a visible queue carried when it refused more: a little below it,
/// then at it for a while, then ever faster above, as CUBIC does with windows (RFC 9438 §4.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct RateCap {
    rate: f64,
    since: Instant,
    back_after: f64,
    /// It was refused before.
    holds: bool,
}

impl RateCap {
    /// The path refused more than `rate`.
    pub(super) fn new(now: Instant, rate: f64, rtt: f64, before: Option<Self>) -> Self {
        let confirms =
            |c: Self| now.saturating_since(c.since) < RECENT && (rate / c.rate - 1.0).abs() < CLOSE;
        Self {
            rate,
            since: now,
            back_after: (RETURN * rtt).clamp(MIN_RETURN, MAX_RETURN),
            holds: before.is_some_and(confirms),
        }
    }

    /// The rate to keep to, bytes per second.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        if !self.holds {
            return f64::INFINITY;
        }
        let time = now.saturating_since(self.since).as_secs_f64() / self.back_after;
        self.rate * (1.0 + DIP * (time - 1.0).powi(3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_cap_holds_once_it_is_confirmed_and_not_for_long() {
        let start = Instant::ZERO;
        let first = RateCap::new(start, 100.0, 0.05, None);
        assert_eq!(first.rate(start), f64::INFINITY, "one may be a burst");
        let other = RateCap::new(start + SECOND, 90.0, 0.05, Some(first));
        assert_eq!(other.rate(start + SECOND), f64::INFINITY, "another rate");
        let again = RateCap::new(start + SECOND, 101.0, 0.05, Some(first));
        let rate = |after: u32| again.rate(start + SECOND * (1 + after));
        assert!(rate(0) < 0.96 * 101.0);
        assert!((rate(1) - 101.0).abs() < 0.01);
        assert!(rate(5) > 3.0 * 101.0);
        let late = RateCap::new(start + SECOND * 11, 100.0, 0.05, Some(first));
        assert_eq!(late.rate(start + SECOND * 11), f64::INFINITY);
    }

    /// A round after one whose queue was 4 ms: 500 packets each with a long and a short queue.
    fn round(lost_long: f64, lost_short: f64) -> LossByQueue {
        let mut before = LossByQueue::default();
        before.add(0.004, 1.0, 0.0);
        let mut round = before.next();
        round.add(0.003, 500.0 - lost_long, lost_long);
        round.add(0.001, 500.0 - lost_short, lost_short);
        round
    }

    #[test]
    fn only_losses_at_long_queues_show_an_overflow() {
        let deviation = |packets: f64| (0.01 * 0.99 / packets).sqrt();
        assert!(round(40.0, 0.0).overflows(0.0, deviation));
        assert!(round(40.0, 5.0).overflows(0.01, deviation));
        assert!(
            !round(5.0, 5.0).overflows(0.01, deviation),
            "the path's own"
        );
        assert!(
            !round(40.0, 40.0).overflows(0.01, deviation),
            "at any length"
        );
        assert!(!round(0.0, 40.0).overflows(0.0, deviation));
    }

    #[test]
    fn what_a_queue_holds_is_not_believed_for_ever() {
        let mut buffer = BufferEstimate::default();
        buffer.end_round(0.003, Overflow::Seen);
        assert_eq!(buffer.seconds, 0.003);
        for _ in 0..100 {
            buffer.end_round(0.0, Overflow::None);
        }
        assert!(buffer.seconds > 0.02);
    }
}
