//! Available bandwidth by the probe gap model: packet pairs as Spruce sends them (Strauss, Katabi,
//! Kaashoek: "A measurement study of available bandwidth estimation tools", IMC 2003).
//!
//! Two packets of L bytes enter the tight link as far apart as one of them takes there, L ÷ C, so
//! that the link does not run empty between them. Whatever else came in meanwhile leaves between
//! them and drives them apart:
//!
//! cross traffic X = C · (Δout − L/C) ÷ Δin, available bandwidth A = C − ⟨X⟩
//!
//! where Δin = L/C makes Spruce's own formula. Spruce is told C; here it may also be found by pairs
//! that leave at once, Δin = 0: nothing gets between them, and Δout = L/C (the lower quartile of
//! the last such pairs, as packets of others may still delay the second or, behind the tight link,
//! the first).
//!
//! The pairs are packets that would have been sent anyway, so A is what is available to this flow,
//! whatever it sends now. Where the others fill the link alone (A near zero), the model is at its
//! end: only a fair scheduler can be the reason that anything of ours still gets through, so what
//! arrives is what is available.
//!
//! Limits: delays that vary by more than a packet's time for other reasons (radio, a host whose
//! clock or timer is coarser than that) hide what the pairs show; a second packet that leaves late
//! is not counted, and without estimates the initial rate stays.

use super::delivery::{Delivery, factor};
use super::{AckPoint, Departure, Feedback, RateController};
use crate::time::{Duration, Instant, Rate};
use std::collections::VecDeque;

/// Pairs averaged over, Spruce's K.
const PAIRS: f64 = 100.0;
/// Pairs of either kind before there is an estimate.
const FIRST_PAIRS: usize = 12;
/// One pair in so many asks for the capacity, once it is known.
const CAPACITY_TURN: u32 = 8;
/// Dispersions that the capacity is taken from.
const DISPERSIONS: usize = 32;
/// Most packets between two pairs; a random number, as others may send periodically.
const MAX_BETWEEN: u32 = 6;
/// Pairs in flight that are remembered.
const MAX_OPEN: usize = 1024;
/// Share of the capacity below which the model is at its end.
const FULL: f64 = 1.0 / 16.0;

/// See the module's text.
#[derive(Debug)]
pub struct ProbeGap {
    factor: f64,
    /// What the caller knows.
    known: Option<Rate>,
    /// L/C, nanoseconds per byte, of the last pairs that left at once.
    dispersions: VecDeque<f64>,
    capacity: Option<Rate>,
    /// Mean cross traffic, bits per second, and of how many pairs.
    cross: f64,
    pairs: f64,
    /// The first packet of a pair, when it left, and how far behind the second follows.
    half: Option<(u64, Instant, Duration)>,
    open: VecDeque<Pair>,
    until_pair: u32,
    turn: u32,
    random: u32,
    delivery: Delivery,
}

/// A pair on its way.
#[derive(Clone, Copy, Debug)]
struct Pair {
    first: u64,
    second: u64,
    gap: Duration,
    /// When the first arrived.
    arrived: Option<Duration>,
}

impl ProbeGap {
    /// Sends at the estimate times 1 + `overestimate`; finds the capacity by itself.
    pub fn new(overestimate: f64) -> Self {
        Self {
            factor: factor(overestimate),
            known: None,
            dispersions: VecDeque::new(),
            capacity: None,
            cross: 0.0,
            pairs: 0.0,
            half: None,
            open: VecDeque::new(),
            until_pair: 0,
            turn: 0,
            random: 0x2545_f491,
            delivery: Delivery::default(),
        }
    }

    /// The same where the tight link's `capacity` is known, UDP payload bits.
    pub fn with_capacity(overestimate: f64, capacity: Rate) -> Self {
        Self {
            known: Some(capacity),
            capacity: Some(capacity),
            ..Self::new(overestimate)
        }
    }

    /// The available bandwidth, once there is an estimate.
    pub fn estimate(&self) -> Option<Rate> {
        let capacity = self.capacity?;
        if self.pairs < FIRST_PAIRS as f64 {
            return None;
        }
        let available = (capacity.as_bps() as f64 - self.cross).max(0.0);
        if available < FULL * capacity.as_bps() as f64 {
            return Some(self.delivery.arriving().unwrap_or(Rate::ZERO));
        }
        Some(Rate::from_bps(available as u64))
    }

    /// How far apart the next pair leaves.
    fn next_gap(&mut self) -> Duration {
        self.turn = self.turn.wrapping_add(1);
        let asks = self.known.is_none() && self.turn.is_multiple_of(CAPACITY_TURN);
        match self.capacity {
            Some(capacity) if !asks => self.time_alone(capacity, self.delivery.packet()),
            _ => Duration::ZERO,
        }
    }

    /// Time that `bytes` take at the tight link; a capacity claimed to be next to nothing does not
    /// stop the flow.
    fn time_alone(&self, capacity: Rate, bytes: u64) -> Duration {
        capacity.max(self.delivery.least()).time_for(bytes)
    }

    /// Uniform in 1..=`MAX_BETWEEN`: Marsaglia's xorshift, "Xorshift RNGs", 2003.
    fn next_distance(&mut self) -> u32 {
        if self.capacity.is_none() {
            return 0;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        1 + self.random % MAX_BETWEEN
    }

    /// Takes the arrival of a packet that may be one of a pair.
    fn on_arrival(&mut self, ack: &AckPoint) {
        while self.open.front().is_some_and(|p| p.second < ack.sent_total) {
            self.open.pop_front();
        }
        let Some(pair) = self.open.front_mut() else {
            return;
        };
        if pair.first == ack.sent_total {
            pair.arrived = Some(ack.received_at);
        } else if pair.second == ack.sent_total
            && let Some(pair) = self.open.pop_front()
            && let Some(arrived) = pair.arrived
            && let Some(out) = ack.received_at.checked_sub(arrived)
        {
            self.on_pair(&pair, out);
        }
    }

    fn on_pair(&mut self, pair: &Pair, out: Duration) {
        let bytes = pair.second - pair.first;
        // Something else of ours was between them, or the second is no full packet.
        if out.is_zero() || bytes.abs_diff(self.delivery.packet()) > self.delivery.packet() / 8 {
            return;
        }
        let alone = self
            .capacity
            .map(|capacity| self.time_alone(capacity, bytes));
        match alone {
            Some(alone) if pair.gap > alone / 4 => {
                // With more than this between them the link may have run empty.
                if pair.gap <= alone * 5 / 4 {
                    self.on_cross(alone, pair.gap, out);
                }
            }
            _ => self.on_dispersion(out.as_nanos() as f64 / bytes as f64),
        }
    }

    fn on_cross(&mut self, alone: Duration, gap: Duration, out: Duration) {
        let Some(capacity) = self.capacity else {
            return;
        };
        let more = out.as_secs_f64() - alone.as_secs_f64();
        // One pair may say anything; none says more than that four links' worth came in.
        let share = (more / gap.as_secs_f64().max(1e-9)).clamp(-1.0, 4.0);
        let cross = share * capacity.as_bps() as f64;
        self.pairs = (self.pairs + 1.0).min(PAIRS);
        self.cross += (cross - self.cross) / self.pairs;
    }

    fn on_dispersion(&mut self, nanos_per_byte: f64) {
        if self.known.is_some() {
            return;
        }
        if self.dispersions.len() == DISPERSIONS {
            self.dispersions.pop_front();
        }
        self.dispersions.push_back(nanos_per_byte);
        if self.dispersions.len() < FIRST_PAIRS {
            return;
        }
        let mut sorted: Vec<f64> = self.dispersions.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let quartile = sorted[sorted.len() / 4].max(1e-3);
        self.capacity = Some(Rate::from_bps((8e9 / quartile) as u64));
    }
}

impl RateController for ProbeGap {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.delivery.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.delivery.on_feedback(feedback);
        if let Some(ack) = feedback.newest {
            self.on_arrival(&ack);
        }
        if let (Some(arriving), Some(capacity)) = (self.delivery.full(), self.capacity) {
            self.cross = capacity.as_bps() as f64 - arriving.as_bps() as f64;
        }
    }

    fn on_sent(&mut self, now: Instant, sent_total: u64) {
        self.delivery.on_sent(now);
        if let Some((first, left, _)) = self.half.take() {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back(Pair {
                first,
                second: sent_total.max(first),
                gap: now.saturating_since(left),
                arrived: None,
            });
            self.until_pair = self.next_distance();
        } else if self.until_pair == 0 {
            self.half = Some((sent_total, now, self.next_gap()));
        } else {
            self.until_pair -= 1;
        }
    }

    fn departure(&self) -> Departure {
        Departure {
            at: self.half.map(|(_, left, gap)| left + gap),
            immediate_ack: self.half.is_some() || self.until_pair == 0,
        }
    }

    fn is_probing(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Rate {
        let estimate = self.estimate().unwrap_or(self.delivery.initial());
        self.delivery.bound(estimate.mul_f64(self.factor))
    }

    fn window(&self) -> u64 {
        self.delivery.window(self.pacing_rate())
    }

    fn initial_burst(&self) -> u64 {
        2 * self.delivery.packet()
    }

    fn bandwidth(&self) -> Rate {
        self.estimate().unwrap_or(self.delivery.initial())
    }
}
