//! Explicit feedback (DFCP-J §3.2, ECN): the rate follows the share of packets that the network
//! marks. Marks are read as RFC 8257 (DCTCP) reads them, the rate moves as DCQCN's does (Zhu et
//! al.: "Congestion control for large-scale RDMA deployments", SIGCOMM 2015).
//!
//! Once per round trip, of which the share F of packets was marked,
//!
//! * α ← α + (F − α)/16;
//! * with marks, rate ← rate · (1 − α/2);
//! * without, rate grows by a packet per round trip: additive, as fairness needs it; and faster and
//!   faster once several rounds in a row saw no mark, as bandwidth may have become free.
//!
//! Before the first mark the rate doubles every round trip. Packets lost above a share that a path
//! may lose by itself count as marked: where nothing marks, queues overflow.

use super::delivery::Delivery;
use super::{Feedback, RateController};
use crate::time::{Duration, Instant, Rate};

/// Weight of a new round in α, RFC 8257's g.
const GAIN: f64 = 1.0 / 16.0;
/// Loss that passes for the path's own.
const OWN_LOSS: f64 = 0.02;
/// Rounds without a mark after which each step is half as large again as the one before.
const PATIENT_ROUNDS: u32 = 8;
const HASTE: f64 = 1.5;
/// Most that the rate grows by in a round after the start, as a share of it.
const MAX_STEP: f64 = 0.125;
/// Shortest round, so that it has packets to judge by.
const MIN_ROUND: Duration = Duration::from_millis(1);
const ROUND_PACKETS: u64 = 4;

/// See the module's text.
#[derive(Debug)]
pub struct Marked {
    rate: Rate,
    alpha: f64,
    is_starting: bool,
    /// Rounds in a row without a mark.
    clear_rounds: u32,
    round: Round,
    delivery: Delivery,
}

/// What is counted in a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    since: Instant,
    acked: u64,
    marked: u64,
    lost: u64,
    /// The sender had nothing to send.
    idle: bool,
}

impl Default for Marked {
    fn default() -> Self {
        Self::new()
    }
}

impl Marked {
    /// A controller that knows nothing yet.
    pub fn new() -> Self {
        Self {
            rate: Rate::from_bps(1_000_000),
            alpha: 1.0,
            is_starting: true,
            clear_rounds: 0,
            round: Round::default(),
            delivery: Delivery::default(),
        }
    }

    fn end_round(&mut self, round: &Round) {
        let packets = (round.acked + round.lost) as f64;
        let loss = round.lost as f64 / packets;
        let congestion = (loss - OWN_LOSS).max(0.0) / (1.0 - OWN_LOSS);
        let marked = round.marked as f64 / packets + congestion;
        let share = marked.clamp(0.0, 1.0);
        self.alpha += GAIN * (share - self.alpha);
        if share > 0.0 {
            (self.is_starting, self.clear_rounds) = (false, 0);
            self.rate = self.rate.mul_f64(1.0 - self.alpha / 2.0);
        } else if !round.idle {
            self.grow();
        }
        self.rate = self.delivery.bound(self.rate);
    }

    fn grow(&mut self) {
        self.clear_rounds = self.clear_rounds.saturating_add(1);
        let now = self.rate.as_bps() as f64;
        let step = if self.is_starting {
            now
        } else {
            let packet = Rate::from_transfer(self.delivery.packet(), self.delivery.rtt());
            let haste = self.clear_rounds.saturating_sub(PATIENT_ROUNDS).min(64);
            let step = packet.as_bps() as f64 * HASTE.powi(haste as i32);
            step.min(MAX_STEP * now)
        };
        self.rate = Rate::from_bps((now + step) as u64);
    }
}

impl RateController for Marked {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.delivery.on_established(now, rtt, packet_size);
        self.rate = self.delivery.initial();
        self.round.since = now;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.delivery.on_feedback(feedback);
        let round = &mut self.round;
        round.acked = round.acked.saturating_add(feedback.acked_packets);
        round.lost = round.lost.saturating_add(feedback.lost_packets);
        round.marked = round.marked.saturating_add(feedback.ce_packets);
        round.idle |= feedback
            .newest
            .is_some_and(|newest| feedback.idle_total >= newest.sent_total);
        let least = self.delivery.rtt().max(MIN_ROUND);
        let enough = round.acked.saturating_add(round.lost) >= ROUND_PACKETS;
        if enough && feedback.now.saturating_since(round.since) >= least {
            let since = feedback.now;
            let next = Round {
                since,
                ..Round::default()
            };
            let round = std::mem::replace(&mut self.round, next);
            self.end_round(&round);
        }
    }

    fn on_sent(&mut self, now: Instant, _sent_total: u64) {
        self.delivery.on_sent(now);
    }

    fn pacing_rate(&self) -> Rate {
        self.delivery.bound(self.rate)
    }

    fn window(&self) -> u64 {
        self.delivery.window(self.pacing_rate())
    }

    fn initial_burst(&self) -> u64 {
        2 * self.delivery.packet()
    }
}
