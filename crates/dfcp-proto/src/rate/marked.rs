//! Explicit feedback (DFCP-J §3.2, ECN): the rate follows the share of packets that the network
//! marks, as in DCTCP (RFC 8257).
//!
//! A volume V is to be under way at a time, so the rate is V ÷ RTT with the round trip as it is now:
//! a queue that grows slows the sender before any mark is back. Once per round trip, of which the
//! share F of packets was marked,
//!
//! * α ← α + (F − α)/16;
//! * with marks, V ← V · (1 − α/2);
//! * without, V grows by a packet: additive, as fairness needs it; and faster and faster once several
//!   rounds in a row saw no mark, as bandwidth may have become free.
//!
//! Before the first mark V doubles every round trip. Packets lost above a share that a path may lose
//! by itself count as marked: where nothing marks, queues overflow.

use super::delivery::Delivery;
use super::{Codepoint, Feedback, RateController};
use crate::time::{Duration, Instant, Rate};

/// Weight of a new round in α, RFC 8257's g.
const GAIN: f64 = 1.0 / 16.0;
/// Loss that passes for the path's own.
const OWN_LOSS: f64 = 0.02;
/// Rounds without a mark after which each step is larger than the one before, and by how many
/// packets: as DCQCN hastens (Zhu et al., SIGCOMM 2015).
const PATIENT_ROUNDS: u32 = 8;
const HASTE: f64 = 0.5;
/// Most that the rate grows by in a round after the start, as a share of it.
const MAX_STEP: f64 = 0.125;
/// Shortest round, so that it has packets to judge by.
const MIN_ROUND: Duration = Duration::from_millis(1);
const ROUND_PACKETS: u64 = 4;

/// See the module's text.
#[derive(Debug)]
pub struct Marked {
    /// V, bytes.
    volume: f64,
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
            volume: 15_000.0,
            alpha: 1.0,
            is_starting: true,
            clear_rounds: 0,
            round: Round::default(),
            delivery: Delivery::default(),
        }
    }

    fn end_round(&mut self, round: &Round) {
        let packets = round.acked.saturating_add(round.lost) as f64;
        let loss = round.lost as f64 / packets;
        let congestion = (loss - OWN_LOSS).max(0.0) / (1.0 - OWN_LOSS);
        let marked = round.marked as f64 / packets + congestion;
        let share = marked.clamp(0.0, 1.0);
        self.alpha += GAIN * (share - self.alpha);
        if share > 0.0 {
            (self.is_starting, self.clear_rounds) = (false, 0);
            self.volume *= 1.0 - self.alpha / 2.0;
        } else if !round.idle {
            self.grow();
        }
        let most = self
            .delivery
            .bound(self.rate())
            .bytes_in(self.delivery.rtt());
        self.volume = self
            .volume
            .min(most as f64)
            .max(self.delivery.packet() as f64);
    }

    fn rate(&self) -> Rate {
        Rate::from_transfer(self.volume as u64, self.delivery.rtt())
    }

    fn grow(&mut self) {
        self.clear_rounds = self.clear_rounds.saturating_add(1);
        let step = if self.is_starting {
            self.volume
        } else {
            let haste = self.clear_rounds.saturating_sub(PATIENT_ROUNDS);
            let step = self.delivery.packet() as f64 * (1.0 + HASTE * f64::from(haste));
            step.min(MAX_STEP * self.volume)
        };
        self.volume += step;
    }
}

impl RateController for Marked {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.delivery.on_established(now, rtt, packet_size);
        self.volume = self.delivery.initial().bytes_in(rtt) as f64;
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

    fn ecn(&self) -> Codepoint {
        Codepoint::Ect0
    }

    fn pacing_rate(&self) -> Rate {
        self.delivery.bound(self.rate())
    }

    fn window(&self) -> u64 {
        self.delivery.window(self.pacing_rate())
    }

    fn initial_burst(&self) -> u64 {
        2 * self.delivery.packet()
    }
}
