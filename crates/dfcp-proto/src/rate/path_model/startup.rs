//! Looking for the bottleneck: by the dispersion of what was sent close together, else by doubling.

use super::{INITIAL_WINDOW, MAX_STARTUP, PathModel, Phase};
use crate::rate::AckPoint;
use crate::time::Duration;

/// Gain until the bottleneck was seen, and then: looks whether there is more, gently.
const SEARCH_GAIN: f64 = 2.0;
const SEEN_GAIN: f64 = 1.1;
/// Rounds without growth that end the search.
const STALE_ROUNDS: u32 = 3;
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
}

impl Search {
    /// Goes on from a rate that is known.
    pub(super) fn from(best: f64) -> Self {
        Self {
            best,
            ..Self::default()
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
        let from = self.points.newest(begins).or(self.points.first());
        if let Some(from) = from
            && from.sent_total <= train
            && let Some(rate) = self.service_rate(&from, &last)
        {
            search.best = search.best.max(rate);
            let spread = (last.received_at - from.received_at).as_secs_f64();
            let sent_over = last.sent_at.saturating_since(from.sent_at).as_secs_f64();
            search.dispersed |= spread > 1.3 * sent_over + 0.000_3;
        }
        self.phase = Phase::Startup(search);
        self.met |= search.dispersed;
        self.estimate = search.best;
        self.gain = if search.dispersed {
            SEEN_GAIN
        } else {
            SEARCH_GAIN
        };
        let queue = self.target().max((QUEUE_SHARE * self.rtt).min(MAX_QUEUE));
        if search.dispersed && self.points.standing_queue(span) > queue {
            self.enter_steady();
        }
    }

    pub(super) fn startup_round(&mut self, app_limited: bool) {
        if let Phase::Startup(search) = &mut self.phase
            && search.end_round(app_limited)
        {
            self.enter_steady();
        }
    }

    /// Goes on looking for the bottleneck if only loss had stopped the search and that turned out to
    /// be the path's own.
    pub(super) fn resume_startup(&mut self) {
        if self.met || self.delivered.intervals > MAX_STARTUP {
            return;
        }
        self.phase = Phase::Startup(Search::from(self.estimate));
        (self.caution, self.hold) = (1.0, None);
    }

    /// Bytes in flight before the bottleneck is known.
    pub(super) fn startup_window(&self) -> f64 {
        let delivered = self.points.last().map_or(0, |ack| ack.delivered_total);
        // What was lost leaves the flight, but not this count.
        INITIAL_WINDOW as f64 * self.packet + (3.0 * delivered as f64 - self.lost).max(0.0)
    }
}
