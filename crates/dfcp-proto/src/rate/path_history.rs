//! What a path did lately: the delivery rate by our own clock, the least delay.

use super::{AckPoint, Feedback};
use crate::time::{Duration, Instant};

/// How long a least delay counts: two halves of this.
const BASE_HALF: Duration = Duration::from_secs(5);

/// Stretches that are remembered.
const STRETCHES: usize = 8;

/// Delivery rate by our own clock, over stretches of at least a round trip.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    start: Option<(Instant, AckPoint)>,
    last: Instant,
    /// Of the last full stretches, the newest first, bytes per second; `None` where the application had no
    /// more to send.
    rates: [Option<f64>; STRETCHES],
    pub(super) intervals: u32,
    /// Those of them in which the sender was not idle.
    pub(super) used: u32,
    /// Whether the sender had nothing to send in the newest, as it waited for the receiver.
    pub(super) waited: bool,
}

impl Delivered {
    pub(super) fn update(&mut self, feedback: &Feedback<'_>, ack: AckPoint, rtt: f64) {
        let now = feedback.now;
        let least = Duration::from_secs_f64(rtt.max(0.050));
        // After a silence (a blackout) the count begins anew.
        let silent = now.saturating_since(std::mem::replace(&mut self.last, now)) > least;
        let (since, start) = match self.start {
            Some(start) if !silent => start,
            _ => return self.start = Some((now, ack)),
        };
        let time = now.saturating_since(since);
        if time < least {
            return;
        }
        self.intervals += 1;
        self.start = Some((now, ack));
        self.rates.rotate_right(1);
        let used = feedback.idle_total < start.sent_total;
        let had_more = feedback.app_limited_total < start.sent_total;
        self.used += u32::from(used);
        self.waited = had_more && !used;
        self.rates[0] = had_more.then(|| {
            let bytes = ack.delivered_total.saturating_sub(start.delivered_total);
            bytes as f64 / time.as_secs_f64()
        });
    }

    /// The highest of the last stretches, unless the application had no more in the newest: a burst of loss
    /// may empty any one of them.
    pub(super) fn best(&self) -> Option<f64> {
        self.rates[0]?;
        self.rates.iter().flatten().copied().reduce(f64::max)
    }
}

/// Least one-way delay (offset by the clocks' difference) of the last five to ten seconds.
#[derive(Debug)]
pub(super) struct BaseDelay {
    previous: f64,
    current: f64,
    rotated: Option<Instant>,
}

impl Default for BaseDelay {
    fn default() -> Self {
        Self {
            previous: f64::INFINITY,
            current: f64::INFINITY,
            rotated: None,
        }
    }
}

impl BaseDelay {
    /// Takes a delay and returns how far it lies above the base.
    pub(super) fn update(&mut self, now: Instant, delay: f64) -> f64 {
        let rotated = *self.rotated.get_or_insert(now);
        if now.saturating_since(rotated) >= BASE_HALF {
            self.previous = self.current;
            self.current = f64::INFINITY;
            self.rotated = Some(now);
        }
        self.current = self.current.min(delay);
        delay - self.current.min(self.previous)
    }

    /// The least of what counts; infinite before the first.
    pub(super) fn least(&self) -> f64 {
        self.current.min(self.previous)
    }

    /// The base is about to be forgotten and nothing as small was seen since.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.rotated
            .is_some_and(|r| now.saturating_since(r) > BASE_HALF * 4 / 5)
            && self.current > self.previous + 0.001
    }

    /// Moves the base up by `by` seconds.
    pub(super) fn rise(&mut self, by: f64) {
        self.current = self.current.min(self.previous) + by;
        self.previous = self.current;
    }
}
