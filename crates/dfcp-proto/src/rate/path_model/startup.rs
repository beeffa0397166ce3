//! Looking for the bottleneck: by the dispersion of what was sent close together, else by doubling.

use super::loss::Stretch;
use super::tuning::queue::LONG_JITTERS;
use super::tuning::startup::*;
use super::{Mode, PathModel};
use crate::rate::AckPoint;
use crate::time::Duration;

/// What leaves before the first feedback.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstFlight {
    pub(super) packets: f64,
    /// Bytes per second of what follows the burst; `None`: all in a round trip.
    rate: Option<f64>,
}

impl FirstFlight {
    /// Packets that leave unpaced: a train whose dispersion shows the bottleneck, if the path is known
    /// to be fast enough for it.
    pub(super) fn burst(&self) -> f64 {
        match self.rate {
            Some(_) => INITIAL_WINDOW,
            None => INITIAL_BURST,
        }
    }
}

impl Default for FirstFlight {
    fn default() -> Self {
        Self {
            packets: INITIAL_WINDOW,
            rate: None,
        }
    }
}

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
        if self.best > BEST_GROWTH * self.best_at_round {
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
        let span = (TRAIN_SHARE * self.rtt).clamp(SHORTEST_TRAIN, LONGEST_TRAIN);
        // Long enough for a rate: in time, and in packets on slow paths.
        let train = last
            .sent_total
            .saturating_sub((TRAIN_PACKETS * self.packet) as u64);
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
            let varies = TIMER_ERROR + LONG_JITTERS * self.delay.jitter();
            search.dispersed |= spread > DISPERSED * sent_over + varies;
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
        let queue = queue + LONG_JITTERS * self.delay.jitter();
        if self.yields && search.best > 0.0 {
            // No doubling: what it overshoots by would be lost to others.
            return self.begin_cruise();
        }
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

    /// Takes what the handshake's packet pair showed, bytes per second. Jitter and other traffic draw
    /// pairs apart: one that looks slow says nothing.
    pub(super) fn plan_first_flight(&mut self, rate: f64) {
        let packets = FLIGHT_SHARE * self.rtt * rate / self.packet;
        if packets >= INITIAL_WINDOW && !self.yields {
            self.first = FirstFlight {
                packets: packets.min(MAX_FIRST_FLIGHT),
                rate: Some(rate),
            };
        }
    }

    /// Bytes per second while nothing is known of the bottleneck: as the first flight leaves, then twice
    /// what was found, no faster than two windows per round trip.
    pub(super) fn search_rate(&self) -> f64 {
        let first = self.first.packets * self.packet / self.rtt;
        if self.estimate <= 0.0 {
            return self.first.rate.unwrap_or(first);
        }
        let most = 2.0 * self.startup_window() / self.rtt;
        (self.estimate * self.gain).clamp(first, most)
    }

    /// Bytes in flight before the bottleneck is known.
    pub(super) fn startup_window(&self) -> f64 {
        let delivered = self.samples.last().map_or(0, |ack| ack.delivered_total);
        // What was lost leaves the flight, but not this count.
        self.first.packets * self.packet + (3.0 * delivered as f64 - self.lost).max(0.0)
    }
}
