//! Giving way to everybody else, as a scavenger does (less-than-best-effort transport, RFC 6297): a
//! queue longer than what this sender holds by itself means that somebody else wants the path, and
//! it leaves until that queue is gone. It never competes by a window.

use super::tuning::yielding::*;
use super::{Mode, PathModel};
use crate::time::{Duration, Instant};

/// Out of the others' way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yield {
    /// What was served when it began, bytes per second, as long as the queue may be its own.
    own: Option<f64>,
    /// When the next cut is due.
    next_cut: Instant,
    /// Since when there is no queue.
    clear_since: Option<Instant>,
}

/// That this sender gave way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yielded {
    /// When it came back, or left if it is still away.
    at: Instant,
    /// What was served when it left, bytes per second.
    served: f64,
    /// For how long there must be no queue before it comes back, seconds: longer each time that others
    /// are still there when it does.
    clear: f64,
}

impl PathModel {
    /// Leaves if somebody else wants the path.
    pub(super) fn look_for_others(&mut self, now: Instant) {
        let may_hold = matches!(
            self.mode,
            Mode::Cruise(_) | Mode::Startup(_) | Mode::LossTest(..)
        );
        if self.yields && may_hold && self.queue() > LONG * self.target() + self.delay.jitter() {
            self.begin_to_yield(now);
        }
    }

    /// Whether the rate nears what was served when it last gave way, and so must grow gently.
    pub(super) fn nears_others(&self, now: Instant) -> bool {
        self.yielded.is_some_and(|last| {
            let recent = now.saturating_since(last.at).as_secs_f64() < MEMORY;
            recent && self.estimate > NEAR * last.served
        })
    }

    /// Slows down, and again in each loop of control that ends with a queue.
    pub(super) fn begin_to_yield(&mut self, now: Instant) {
        let recent = |last: &Yielded| now.saturating_since(last.at).as_secs_f64() < MEMORY;
        let last = self.yielded.filter(recent);
        let again = last.is_some();
        self.yielded = Some(Yielded {
            at: now,
            served: self.estimate,
            clear: last.map_or(FIRST_CLEAR, |last| (2.0 * last.clear).min(MOST_CLEAR)),
        });
        let settled = self.settled(self.queue());
        self.mode = Mode::Yield(Yield {
            own: (!again).then_some(self.estimate),
            next_cut: now + Duration::from_secs_f64(settled),
            clear_since: None,
        });
        self.gain = 1.0;
        self.estimate *= if again { CUT } else { FIRST_CUT };
    }

    /// One sample in this mode.
    pub(super) fn give_way(&mut self, now: Instant) {
        let (queue, rtt) = (self.queue(), self.rtt);
        let least = self.yielded.map_or(FIRST_CLEAR, |last| last.clear);
        let settled = self.settled(queue);
        let is_clear = queue < self.busy_from();
        let Mode::Yield(state) = &mut self.mode else {
            return;
        };
        if is_clear {
            let since = *state.clear_since.get_or_insert(now);
            let clear = match state.own {
                Some(_) => rtt,
                None => (CLEAR_ROUND_TRIPS * rtt).max(least),
            };
            if now.saturating_since(since).as_secs_f64() >= clear {
                if let Some(served) = state.own {
                    self.estimate = OWN_SHARE * served;
                }
                if let Some(last) = &mut self.yielded {
                    last.at = now;
                }
                self.begin_cruise();
                self.hold_probes(now);
            }
            return;
        }
        state.clear_since = None;
        if now >= state.next_cut {
            state.next_cut = now + Duration::from_secs_f64(settled);
            state.own = None;
            self.estimate *= CUT;
        }
    }
}
