//! Proportional integral controller enhanced: RFC 8033. Arrivals are dropped with a probability
//! that a controller moves, every update interval, by how far the queueing delay is from its target
//! and by how it changed.
//!
//! The delay is told by time stamps, which RFC 8033 §5.2 prefers to the departure rate: it is the
//! time that the packet at the head has waited. DOCSIS-PIE (RFC 8034) is this with a target of
//! 10 ms, an interval of 16 ms and bursts of 142 ms. The optional deactivation (§4.2) is left out.

use dfcp_proto::{Duration, Instant};

use super::config::PieConfig;
use super::red::Verdict;
use crate::packet::{Packet, Queued};
use crate::random::Random;

/// Gains of the controller, per second of delay at each update (RFC 8033 §4.2: 1/8 and 5/4 Hz).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// A queue of two packets of this size is never dropped from (RFC 8033 §4.1, Ethernet's MTU).
const MEAN_PACKET: u64 = 1500;
/// Above this probability a packet is dropped even if it could be marked (RFC 8033 §5.1).
const MARK_UP_TO: f64 = 0.1;
/// Sums of the probability since the last drop within which chance decides (RFC 8033 §5.4): below
/// the first nothing is dropped, from the second on always.
const CHANCE: [f64; 2] = [0.85, 8.5];

/// Below these probabilities the controller's steps are divided by so much (RFC 8033 §4.2).
const AUTO_TUNE: [(f64, f64); 6] = [
    (0.000_001, 2048.0),
    (0.000_01, 512.0),
    (0.000_1, 128.0),
    (0.001, 32.0),
    (0.01, 8.0),
    (0.1, 2.0),
];

#[derive(Clone, Debug)]
pub(super) struct Pie {
    config: PieConfig,
    probability: f64,
    /// Queueing delay at the last update, seconds.
    delay: f64,
    /// Time for which a burst is still let through.
    burst_left: Duration,
    /// Sum of the probabilities since the last drop.
    accumulated: f64,
    next_update: Instant,
    random: Random,
}

impl Pie {
    pub(super) fn new(config: PieConfig, random: Random) -> Self {
        Self {
            config,
            probability: 0.0,
            delay: 0.0,
            burst_left: config.max_burst,
            accumulated: 0.0,
            next_update: Instant::ZERO + config.interval(),
            random,
        }
    }

    /// Judges a packet that finds `bytes` in the queue.
    pub(super) fn judge<P: Packet>(&mut self, bytes: u64, item: &Queued<P>) -> Verdict {
        if !self.burst_left.is_zero() || !self.draw(bytes) {
            return Verdict::Accept;
        }
        self.accumulated = 0.0;
        let marks = self.config.ecn && self.probability < MARK_UP_TO;
        if marks && item.packet.ecn().is_capable() {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// `drop_early` of RFC 8033 §5.1 with the spread of §5.4.
    fn draw(&mut self, bytes: u64) -> bool {
        let target = self.config.target.as_secs_f64();
        let calm = self.delay < target / 2.0 && self.probability < 0.2;
        if calm || bytes <= 2 * MEAN_PACKET {
            return false;
        }
        self.accumulated += self.probability;
        let [never, always] = CHANCE;
        self.accumulated >= never
            && (self.accumulated >= always || self.random.chance(self.probability))
    }

    /// Makes the updates due until `now`; nothing came or left since the last call, and the packet
    /// at the head came at `head`.
    pub(super) fn update_until(&mut self, now: Instant, head: Option<Instant>) {
        while self.next_update <= now {
            let at = self.next_update;
            let delay = head.map_or(0.0, |head| at.saturating_since(head).as_secs_f64());
            self.update(delay);
            let resting = head.is_none() && self.probability == 0.0 && self.delay == 0.0;
            let rested = resting && self.burst_left >= self.config.max_burst;
            self.next_update = if rested { now.max(at) } else { at } + self.config.interval();
        }
    }

    /// `calculate_drop_prob` of RFC 8033 §4.2, with `delay` in seconds.
    fn update(&mut self, delay: f64) {
        let target = self.config.target.as_secs_f64();
        let mut step = ALPHA * (delay - target) + BETA * (delay - self.delay);
        let tuned = AUTO_TUNE
            .iter()
            .find(|(below, _)| self.probability < *below);
        step /= tuned.map_or(1.0, |(_, by)| *by);
        // No leaps (§5.5).
        if self.probability >= 0.1 {
            step = step.min(0.02);
        }
        self.probability += step;
        if delay == 0.0 && self.delay == 0.0 {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        let calm = delay < target / 2.0 && self.delay < target / 2.0;
        self.burst_left = if self.probability == 0.0 && calm {
            self.config.max_burst
        } else {
            self.burst_left.saturating_sub(self.config.interval())
        };
        self.delay = delay;
    }
}
