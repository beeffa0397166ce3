//! Common looks: moments at which all who lose much send less at once.
//!
//! One of many who share a queue heals nothing by sending less, and drains fall together only of those who saw the queue
//! empty together ([`base`](super::base)). Who came later, or all whose first flights met, never did: for them the full
//! queue's delay is the base, and what it loses is the path's. But senders have a moment in common without a word
//! between them: that of their clocks. At multiples of five seconds each who loses much sends less for a moment, as for
//! a deep drain. What is lost then, though nobody sends more than the path carries, is lost at any rate.
//!
//! Until a look shows otherwise no test of a single sender is believed that finds that the path loses it all the same:
//! one after the other would take what the others make for the path's, and each send more for it.
//!
//! Whose clock is off looks alone, and sees no less lost. So a look that finds nothing proves nothing: what an earlier
//! one healed is believed no longer, and the next one comes later.

use super::loss::tolerance;
use super::rest::Rest;
use super::tuning::look::{BELIEVED, EVERY, SELDOM, TOGETHER};
use super::tuning::loss::NO_WINDOW;
use crate::time::Instant;
use std::collections::VecDeque;

/// When to look, and what was found.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Number of the last moment that passed.
    last: Option<u64>,
    /// What the last look lost, if that explains what was lost before.
    shown: Option<f64>,
    /// What was lost when all sent less, where that was far less than before, and when that was known.
    healed: Option<(Instant, f64)>,
    /// The last looks that did not heal: of a few packets each says little.
    rests: VecDeque<Rest>,
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

    /// A look and the ones before it.
    pub(super) fn with_last(&self, rest: Rest) -> Rest {
        let mut all = rest;
        self.rests.iter().for_each(|before| all += *before);
        all
    }

    /// When all sent less, this was lost, far less than before.
    pub(super) fn heal(&mut self, now: Instant, lost: f64) {
        self.healed = Some((now, lost));
        self.rests.clear();
    }

    /// Whether a look has shown of late that the path loses less than this by itself, and none has shown otherwise since. A
    /// test of one of many may find otherwise, as its rate heals nothing.
    pub(super) fn contradict(&self, now: Instant, lost: f64) -> bool {
        self.healed.is_some_and(|(at, rest)| {
            now.saturating_since(at) < BELIEVED && lost > rest + tolerance(rest) + NO_WINDOW
        })
    }

    /// A look that did not heal.
    pub(super) fn found(&mut self, rest: Rest) {
        let explains = rest.explains();
        self.shown = explains.then_some(rest.loss());
        if explains {
            self.healed = None;
        }
        self.rests.push_back(rest);
        if self.rests.len() >= TOGETHER {
            self.rests.pop_front();
        }
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
                looks.found(Rest::of(500.0, lost(second), lost(second)));
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
    fn what_a_look_has_healed_is_no_loss_of_the_path_until_one_shows_that_it_is() {
        let mut looks = Looks::default();
        let after = |millis| Instant::ZERO + Duration::from_millis(millis);
        assert!(!looks.contradict(after(5200), 0.4), "nothing was seen");
        looks.heal(after(5200), 0.01);
        assert!(looks.contradict(after(10_400), 0.4));
        assert!(!looks.contradict(after(10_400), 0.08), "leaves a window");
        looks.found(Rest::of(62.0, 0.1, 0.4));
        assert!(
            looks.contradict(after(40_000), 0.4),
            "less was lost than before"
        );
        assert!(!looks.contradict(after(65_300), 0.4), "long ago");
        looks.found(Rest::of(500.0, 0.39, 0.4));
        assert!(!looks.contradict(after(40_000), 0.4), "it is the path's");
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
            looks.found(Rest::of(500.0, 0.02, 0.8));
        }
    }

    #[test]
    fn looks_of_few_packets_tell_together() {
        // None of 62 lost, where a sixth was lost before: by chance once in 50,000 times.
        let rest = Rest::of(62.0, 1.0 / 64.0, 0.16);
        let mut looks = Looks::default();
        let heals = |rest: &Rest| rest.loses_less();
        assert!(!heals(&looks.with_last(rest)));
        looks.found(rest);
        assert!(heals(&looks.with_last(rest)));
        // What the path loses it loses in all of them.
        let mut path = Looks::default();
        for share in [0.1, 0.2, 0.16, 0.14, 0.18] {
            let rest = Rest::of(62.0, share, 0.16);
            assert!(!heals(&path.with_last(rest)));
            path.found(rest);
        }
        // Once they healed the next ones begin again.
        looks.heal(Instant::ZERO, 0.01);
        assert_eq!(looks.with_last(rest).packets, 62.0);
    }
}
