//! Where a path is full: what its queue holds, and the rate that it refuses to exceed where it has
//! next to no queue.

use crate::time::{Duration, Instant};

/// Loss in a round beyond what chance explains that overflow is taken for.
const OVERFLOW: f64 = 0.001;
/// By how much a known depth grows in a round without overflow.
const DEEPER: f64 = 1.02;

/// What the queue holds.
#[derive(Debug)]
pub(super) struct Depth {
    /// Seconds; grows slowly, as it may have been somebody else's queue that overflowed.
    pub(super) seconds: f64,
}

impl Default for Depth {
    fn default() -> Self {
        Self { seconds: 1.0 }
    }
}

impl Depth {
    /// A round: `lost` of `packets` where chance explains `base` of each, and the longest queue. No
    /// queue overflows that is shorter than what is `visible`.
    pub(super) fn end_round(
        &mut self,
        lost: u64,
        packets: u64,
        base: f64,
        queue: f64,
        visible: f64,
    ) {
        self.seconds = (self.seconds * DEEPER).min(1.0);
        let expected = base * packets as f64;
        let explained = expected + 3.0 * expected.sqrt() + OVERFLOW * packets as f64;
        if queue > visible && lost as f64 > explained {
            self.seconds = queue;
        }
    }

    /// The losses were the path's own.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Two refusals at rates this close, and not further apart than this, show a ceiling; one alone may
/// be a burst of the path's own losses.
const CLOSE: f64 = 0.015;
const RECENT: Duration = Duration::from_secs(10);
/// How far below the ceiling we go, as a share of it.
const DIP: f64 = 0.05;
/// Round trips until it is reached again, and bounds of that time in seconds.
const RETURN: f64 = 20.0;
const MIN_RETURN: f64 = 1.0;
const MAX_RETURN: f64 = 2.0;

/// The rate that a path without a visible queue carried when it refused more: a little below it,
/// then at it for a while, then ever faster above, as CUBIC does with windows (RFC 9438 §4.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    rate: f64,
    since: Instant,
    back_after: f64,
    /// It was refused before.
    holds: bool,
}

impl Ceiling {
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

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_ceiling_holds_once_it_is_confirmed_and_not_for_long() {
        let start = Instant::ZERO;
        let first = Ceiling::new(start, 100.0, 0.05, None);
        assert_eq!(
            first.rate(start),
            f64::INFINITY,
            "one refusal may be a burst"
        );
        let other = Ceiling::new(start + SECOND, 90.0, 0.05, Some(first));
        assert_eq!(other.rate(start + SECOND), f64::INFINITY, "another rate");
        let again = Ceiling::new(start + SECOND, 101.0, 0.05, Some(first));
        let rate = |after: u32| again.rate(start + SECOND * (1 + after));
        assert!(rate(0) < 0.96 * 101.0);
        assert!((rate(1) - 101.0).abs() < 0.01);
        assert!(rate(5) > 3.0 * 101.0);
        let late = Ceiling::new(start + SECOND * 11, 100.0, 0.05, Some(first));
        assert_eq!(late.rate(start + SECOND * 11), f64::INFINITY);
    }

    #[test]
    fn a_queue_that_overflows_shows_its_depth_and_chance_does_not() {
        let mut depth = Depth::default();
        depth.end_round(10, 1000, 0.01, 0.003, 0.0005);
        assert_eq!(depth.seconds, 1.0, "what the path loses anyway");
        depth.end_round(100, 1000, 0.01, 0.0001, 0.0005);
        assert_eq!(depth.seconds, 1.0, "an empty queue does not overflow");
        depth.end_round(40, 1000, 0.01, 0.003, 0.0005);
        assert_eq!(depth.seconds, 0.003);
        for _ in 0..100 {
            depth.end_round(0, 1000, 0.0, 0.0, 0.0005);
        }
        assert!(depth.seconds > 0.02, "not for ever");
    }
}
