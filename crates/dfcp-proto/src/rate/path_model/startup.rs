//! Looking for the bottleneck: by the dispersion of what was sent close together, else by doubling.

use super::loss::Stretch;
use super::{INITIAL_WINDOW, Mode, PathModel};
use crate::rate::AckPoint;
use crate::time::Duration;

/// Gain until the bottleneck was seen, and then: looks whether there is more, gently.
const SEARCH_GAIN: f64 = 2.0;
const SEEN_GAIN: f64 = 1.1;
/// Rounds without growth that end the search.
const STALE_ROUNDS: u32 = 3;
/// Growth of what is delivered in a round that shows that the path carries more: a quarter where
/// twice as much was sent.
const GROWTH: f64 = 1.25;
/// Rounds without it that end the growth: one may be a burst of loss.
const FLAT_ROUNDS: u32 = 2;
/// A queue that ends it, as a share of the round trip and at most, seconds: on a long path a short
/// one may be chance.
const QUEUE_SHARE: f64 = 0.05;
const MAX_QUEUE: f64 = 0.010;

/// What start-up knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Highest service rate seen, bytes per second.
    pub(super) best: f64,
    /// What was sent close together arrived further apart.
    pub(super) dispersed: bool,
    stale_rounds: u32,
    best_at_round: f64,
    /// Highest delivery rate of a round, bytes per second, and rounds since one raised it.
    delivery: f64,
    flat_rounds: u32,
}

impl Search {
    /// Goes on from a rate that is known.
    pub(super) fn from(best: f64) -> Self {
        Self {
            best,
            ..Self::default()
        }
    }

    /// Whether one of the last rounds delivered more than any before: then loss is no sign of
    /// congestion.
    pub(super) fn is_growing(&self) -> bool {
        self.flat_rounds < FLAT_ROUNDS
    }

    /// Takes what a round delivered, bytes per second.
    fn deliver(&mut self, rate: f64) {
        if rate > GROWTH * self.delivery {
            (self.delivery, self.flat_rounds) = (rate, 0);
        } else {
            self.flat_rounds += 1;
        }
    }

    /// A round is over; true if the search is.
    fn end_round(&mut self, app_limited: bool) -> bool {
        if self.best <= 0.0 {
            return false;
        }
        if self.best > 1.1 * self.best_at_round {
            (self.stale_rounds, self.best_at_round) = (0, self.best);
        } else if !app_limited {
            self.stale_rounds += 1;
        }
        self.stale_rounds >= STALE_ROUNDS
    }
}

impl PathModel {
    /// Ends when a queue forms or the rate stops growing.
    pub(super) fn startup(&mut self, mut search: Search, last: AckPoint) {
        let span = (self.rtt / 8.0).clamp(0.002, 0.020);
        // Long enough for a rate: in time, and in packets on slow paths.
        let train = last.sent_total.saturating_sub((10.0 * self.packet) as u64);
        let until = last
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        let begins = |ack: &AckPoint| ack.sent_total <= train && ack.received_at <= until;
        let from = self.samples.newest(begins).or(self.samples.first());
        if let Some(from) = from
            && from.sent_total <= train
            && last.received_at > from.received_at
        {
            let train = Stretch::between(&from, &last, self.packet);
            let arrived = train.delivered / (1.0 - self.loss.mean);
            let rate = train.sent.min(SEARCH_GAIN * arrived) / train.seconds;
            search.best = search.best.max(rate);
            let spread = (last.received_at - from.received_at).as_secs_f64();
            let sent_over = last.sent_at.saturating_since(from.sent_at).as_secs_f64();
            let varies = 0.000_3 + 2.0 * self.delay.jitter();
            search.dispersed |= spread > 1.3 * sent_over + varies;
        }
        self.mode = Mode::Startup(search);
        self.met |= search.dispersed;
        self.estimate = search.best;
        self.gain = if search.dispersed {
            SEEN_GAIN
        } else {
            SEARCH_GAIN
        };
        let queue = self.target().max((QUEUE_SHARE * self.rtt).min(MAX_QUEUE));
        let queue = queue + 2.0 * self.delay.jitter();
        if search.dispersed && self.delay.standing(&self.samples, span, self.target()) > queue {
            self.begin_cruise();
        }
    }

    pub(super) fn startup_round(&mut self, app_limited: bool, round: Option<&Stretch>) {
        if let Mode::Startup(search) = &mut self.mode {
            if let Some(round) = round {
                search.deliver(round.delivered / round.seconds);
            }
            if search.end_round(app_limited) {
                self.begin_cruise();
            }
        }
    }

    /// Bytes in flight before the bottleneck is known.
    pub(super) fn startup_window(&self) -> f64 {
        let delivered = self.samples.last().map_or(0, |ack| ack.delivered_total);
        // What was lost leaves the flight, but not this count.
        INITIAL_WINDOW as f64 * self.packet + (3.0 * delivered as f64 - self.lost).max(0.0)
    }
}
