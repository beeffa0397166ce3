//! Common looks: moments at which all who lose much send less at once.
//!
//! One of many who share a queue heals nothing by sending less, and drains fall together only of those who saw the queue
//! empty together ([`base`](super::base)). Who came later, or all whose first flights met, never did: for them the full
//! queue's delay is the base, and what it loses is the path's. But senders have a moment in common without a word
//! between them: that of their clocks. At multiples of five seconds each who loses much sends less for a moment, as for
//! a deep drain. What is lost then, though nobody sends more than the path carries, is lost at any rate.
//!
//! Until the next look no test of a single sender is believed that finds that the path loses it all the same: one
//! after the other would take what the others make for the path's, and each send more for it.
//!
//! Whose clock is off looks alone, and sees no less lost. So a look that finds nothing proves nothing and changes
//! nothing, but that the next one comes later.

use super::loss::tolerance;
use super::tuning::look::{BELIEVED, EVERY, SELDOM};
use super::tuning::loss::{CERTAIN, NO_WINDOW};
use crate::time::Instant;

/// When to look, and what was found.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Number of the last moment that passed.
    last: Option<u64>,
    /// What the last look lost, if that explains what was lost before.
    shown: Option<f64>,
    /// What was lost when all sent less, where that was far less than before, and when that was known.
    healed: Option<(Instant, f64)>,
}

impl Looks {
    /// Whether a moment has passed since it was asked last.
    pub(super) fn pass(&mut self, now: Instant) -> bool {
        let number = now.as_nanos() / EVERY.as_nanos() as u64;
        let last = self.last.replace(number);
        last.is_some_and(|last| last != number)
    }

    /// Whether to look at the moment that has just passed, where this share of packets is lost: what a look has shown is
    /// looked at seldom.
    pub(super) fn is_due(&self, lost: f64) -> bool {
        let is_shown = self
            .shown
            .is_some_and(|rest| lost <= rest + tolerance(rest) + NO_WINDOW);
        self.last
            .is_some_and(|number| !is_shown || number % SELDOM == 0)
    }

    /// When all sent less, this was lost, far less than before.
    pub(super) fn heal(&mut self, now: Instant, lost: f64) {
        self.healed = Some((now, lost));
    }

    /// Whether a look has shown, since the last moment, that the path loses less than this by itself. A test of one of
    /// many may find otherwise, as its rate heals nothing.
    pub(super) fn contradict(&self, now: Instant, lost: f64) -> bool {
        self.healed.is_some_and(|(at, rest)| {
            now.saturating_since(at) < BELIEVED && lost > rest + tolerance(rest) + NO_WINDOW
        })
    }

    /// A look lost this share of so many packets, where the rounds before lost `before`.
    pub(super) fn found(&mut self, lost: f64, packets: f64, before: f64) {
        let chance = CERTAIN * (lost * (1.0 - lost) / packets).sqrt();
        let explains = before < lost + tolerance(lost) + chance;
        self.shown = explains.then_some(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    /// Seconds at which one looks who came at `from` and loses `lost`, of which each look shows as much.
    fn looks(from: u64, lost: impl Fn(u64) -> f64) -> Vec<u64> {
        let (mut looks, mut at) = (Looks::default(), Vec::new());
        for second in from..100 {
            let now = Instant::ZERO + Duration::from_secs(second);
            if looks.pass(now) && looks.is_due(lost(second)) {
                at.push(second);
                looks.found(lost(second), 500.0, lost(second));
            }
        }
        at
    }

    #[test]
    fn what_a_look_has_shown_is_looked_at_seldom() {
        assert_eq!(looks(0, |_| 0.3), [5, 20, 40, 60, 80]);
    }

    #[test]
    fn who_comes_later_looks_together_with_those_who_look_seldom() {
        let (early, late) = (looks(0, |_| 0.3), looks(23, |_| 0.3));
        assert_eq!(late, [25, 40, 60, 80]);
        assert!(late[1..].iter().all(|at| early.contains(at)));
    }

    #[test]
    fn what_a_look_has_healed_is_no_loss_of_the_path_until_the_next_one() {
        let mut looks = Looks::default();
        let after = |millis| Instant::ZERO + Duration::from_millis(millis);
        assert!(!looks.contradict(after(5200), 0.4), "nothing was seen");
        looks.heal(after(5200), 0.01);
        assert!(looks.contradict(after(10_400), 0.4));
        assert!(!looks.contradict(after(10_400), 0.08), "leaves a window");
        assert!(!looks.contradict(after(11_300), 0.4), "long ago");
    }

    #[test]
    fn what_no_look_has_shown_is_looked_at_at_the_next_moment() {
        let at = looks(0, |second| if second < 42 { 0.1 } else { 0.6 });
        assert_eq!(at, [5, 20, 40, 45, 60, 80]);
    }

    #[test]
    fn a_look_that_loses_less_than_before_is_repeated() {
        let mut looks = Looks::default();
        for second in [4, 5, 10, 15] {
            let passes = looks.pass(Instant::ZERO + Duration::from_secs(second));
            assert_eq!(passes, second > 4);
            assert!(!passes || looks.is_due(0.8), "at {second}");
            looks.found(0.02, 500.0, 0.8);
        }
    }
}
