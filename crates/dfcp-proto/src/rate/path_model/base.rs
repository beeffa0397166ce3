//! The least delay of late, remembered until the path had a chance to show it again.

use super::tuning::base::*;
use crate::time::{Duration, Instant};

/// Least delay, seconds, that is remembered for `memory` after it was last seen. Then a drain is due; what it
/// does not show in its time is gone, and the least delay since the drain was due takes its place.
///
/// Senders that share a queue saw it empty at the same time. So their memories end at the same time, too, and
/// they drain it together, as those of BBR do in ProbeRTT.
#[derive(Debug)]
pub(super) struct Base {
    memory: Duration,
    /// Least delays of this half of the memory and of the one before: a base that creeps up by less than what
    /// is near to it counts as seen all the time.
    current: f64,
    previous: f64,
    half_from: Option<Instant>,
    seen: Instant,
    /// The least since a drain was due.
    since_due: f64,
}

impl Base {
    pub(super) fn new(memory: Duration) -> Self {
        Self {
            memory,
            current: f64::INFINITY,
            previous: f64::INFINITY,
            half_from: None,
            seen: Instant::ZERO,
            since_due: f64::INFINITY,
        }
    }

    /// Takes a delay and returns how far it lies above the base. A drain that is due takes `wait` to show it.
    pub(super) fn update(&mut self, now: Instant, delay: f64, wait: Duration) -> f64 {
        let half_from = *self.half_from.get_or_insert(now);
        if delay < self.least() + NEAR {
            self.seen = now;
        }
        self.current = self.current.min(delay);
        let unseen = now.saturating_since(self.seen);
        self.since_due = match unseen > self.memory {
            true => self.since_due.min(delay),
            false => f64::INFINITY,
        };
        let is_half_over = now.saturating_since(half_from) > self.memory / 2;
        if unseen > self.memory + wait {
            (self.current, self.previous) = (self.since_due, self.since_due);
            (self.seen, self.half_from) = (now, Some(now));
        } else if is_half_over && self.current < self.previous + NEAR {
            (self.current, self.previous) = (f64::INFINITY, self.current);
            self.half_from = Some(now);
        }
        delay - self.least()
    }

    /// Counts as seen now.
    pub(super) fn keep(&mut self, now: Instant) {
        self.seen = now;
    }

    /// Moves up by `height` seconds.
    pub(super) fn rise(&mut self, height: f64) {
        self.current = self.least() + height;
        self.previous = self.current;
    }

    /// Infinite before the first delay.
    pub(super) fn least(&self) -> f64 {
        self.current.min(self.previous)
    }

    /// Whether it was not seen for so long that it would soon be forgotten.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.half_from.is_some() && now.saturating_since(self.seen) > self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Delays every 10 ms from `from` to `to`, the same all the time.
    fn see(base: &mut Base, (from, to): (u64, u64), delay: f64) -> f64 {
        let mut above = 0.0;
        for ms in (from..to).step_by(10) {
            above = base.update(at(ms), delay, DRAIN_TIME);
        }
        above
    }

    #[test]
    fn memories_of_those_who_saw_the_queue_empty_together_end_together() {
        let (mut first, mut second) = (Base::new(MEMORY), Base::new(MEMORY));
        see(&mut first, (0, 3000), 0.020);
        see(&mut first, (3000, 7990), 0.030);
        // It came to a queue, and sees the base when the first one drains it.
        see(&mut second, (4500, 7990), 0.030);
        for base in [&mut first, &mut second] {
            see(base, (8000, 8050), 0.020);
            see(base, (8050, 13_040), 0.030);
            assert!(!base.is_due(at(13_030)) && base.is_due(at(13_050)));
        }
    }

    #[test]
    fn a_base_that_no_drain_shows_again_is_forgotten() {
        let mut base = Base::new(MEMORY);
        see(&mut base, (0, 1000), 0.020);
        let above = see(&mut base, (1000, 6980), 0.050);
        assert!((above - 0.030).abs() < 1e-9, "{above}");
        let above = see(&mut base, (6980, 7020), 0.050);
        assert!(above.abs() < 1e-9, "{above}");
    }

    #[test]
    fn a_drain_that_takes_longer_is_waited_for() {
        let mut base = Base::new(MEMORY);
        see(&mut base, (0, 1000), 0.020);
        let longer = 2 * DRAIN_TIME;
        let mut above = |ms| base.update(at(ms), 0.050, longer);
        let last = (1000..7990).step_by(10).map(&mut above).last();
        assert!(
            last.is_some_and(|above| (above - 0.030).abs() < 1e-9),
            "{last:?}"
        );
        assert!(above(8010).abs() < 1e-9);
    }

    #[test]
    fn a_base_that_creeps_up_is_followed() {
        let mut base = Base::new(MEMORY);
        for ms in (0..60_000).step_by(10) {
            base.update(at(ms), 0.020 + ms as f64 / 6e6, DRAIN_TIME);
        }
        assert!(base.least() > 0.029, "{}", base.least());
    }
}
