//! One path of a sender: packet numbers, round trip, loss, tokens.

use super::{CodedConfig, IP_UDP};
use dfcp_proto::packet::{LossEstimate, LossEstimator, Pacer, RttEstimator};
use dfcp_proto::rate::{AckPoint, Feedback, RateController};
use dfcp_proto::{Duration, Instant, Rate};
use std::collections::VecDeque;

/// A packet that nothing is known of.
#[derive(Debug)]
struct Sent {
    at: Instant,
    block: u64,
    /// Bytes sent on this path up to and with it.
    total: u64,
    /// Its block counts on it no more.
    written_off: bool,
}

/// Round trips, and least time, after which silence means that everything is lost.
pub(super) const GIVE_UP: (u32, Duration) = (3, Duration::from_millis(100));

/// See the module's text.
#[derive(Debug)]
pub(super) struct Path {
    rate: Box<dyn RateController>,
    pacer: Pacer,
    rtt: RttEstimator,
    loss: LossEstimator,
    /// Eighths of a round trip after which a block counts on a packet no more.
    expiry_eighths: u32,
    /// UDP payload of a packet.
    packet: u64,
    /// Packets in flight, in order; the first has number `base`.
    flight: VecDeque<Sent>,
    base: u64,
    /// How many of the first were written off.
    written_off: usize,
    last_heard: Instant,
    sent_total: u64,
    delivered_total: u64,
    idle_total: u64,
}

impl Path {
    pub fn new(config: &CodedConfig, now: Instant) -> Self {
        let mut rate = config.controller();
        let rtt = RttEstimator::default();
        let packet = u64::from(config.packet - IP_UDP);
        rate.on_established(now, rtt.smoothed(), packet);
        let mut pacer = Pacer::new(now, rate.initial_burst(), packet);
        pacer.set(now, rate.pacing_rate(), packet);
        Self {
            rate,
            pacer,
            rtt,
            loss: LossEstimator::new(LossEstimate::Smoothed(config.ctcp.loss_weight)),
            expiry_eighths: config.ctcp.expiry_eighths.max(8),
            packet,
            flight: VecDeque::new(),
            base: 0,
            written_off: 0,
            last_heard: now,
            sent_total: 0,
            delivered_total: 0,
            idle_total: 0,
        }
    }

    /// Probability that a packet arrives.
    pub fn arrive(&self) -> f64 {
        1.0 - self.loss.probability()
    }

    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.is_measured().then(|| self.rtt.smoothed())
    }

    /// How long a packet takes there, queues included.
    pub fn delay(&self) -> Duration {
        self.rtt.smoothed() / 2
    }

    pub fn bandwidth(&self) -> Rate {
        self.rate.bandwidth()
    }

    pub fn window(&self) -> u64 {
        self.rate.window()
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * self.packet
    }

    /// Whether a token is there.
    pub fn has_window(&self) -> bool {
        self.in_flight() + self.packet <= self.rate.window().max(self.packet)
    }

    /// Whether the pacer lets a packet go.
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.pacer.available(now) >= self.packet
    }

    /// When the pacer lets the next one go.
    pub fn due_at(&self) -> Option<Instant> {
        self.pacer.next_departure()
    }

    /// A token is there and nothing to send.
    pub fn idles(&mut self) {
        self.idle_total = self.sent_total;
    }

    /// A packet with a symbol of `block` leaves; its number.
    pub fn send(&mut self, now: Instant, block: u64) -> u64 {
        if self.flight.is_empty() {
            // It was not silence that passed until now.
            self.last_heard = now;
        }
        self.sent_total += self.packet;
        self.flight.push_back(Sent {
            at: now,
            block,
            total: self.sent_total,
            written_off: false,
        });
        self.rate.on_sent(now, self.sent_total);
        self.pacer.consume(self.packet);
        self.pacer.set(now, self.rate.pacing_rate(), self.packet);
        self.base + self.flight.len() as u64 - 1
    }

    /// The receiver answers packet `number`, which arrived at `received`: packets before it are
    /// lost. Returns the blocks of packets that count no more as in flight.
    pub fn answered(&mut self, now: Instant, number: u64, received: Instant) -> Vec<u64> {
        let Some(lost) = number.checked_sub(self.base) else {
            return Vec::new();
        };
        if lost >= self.flight.len() as u64 {
            return Vec::new();
        }
        let mut blocks = self.settle(lost as usize);
        let Some(packet) = self.flight.front() else {
            return blocks;
        };
        let (at, total) = (packet.at, packet.total);
        self.rtt.update(now.saturating_since(at), Duration::ZERO);
        self.delivered_total += self.packet;
        let received = received.saturating_since(Instant::ZERO);
        let newest = AckPoint::new(received, at, total, self.delivered_total);
        blocks.extend(self.settle(1));
        self.last_heard = now;
        self.learn(now, Some(newest), lost);
        blocks
    }

    /// Takes the first `n` packets off the flight; blocks of those that still counted.
    fn settle(&mut self, n: usize) -> Vec<u64> {
        self.base += n as u64;
        self.written_off = self.written_off.saturating_sub(n);
        let settled = self.flight.drain(..n).filter(|packet| !packet.written_off);
        settled.map(|packet| packet.block).collect()
    }

    fn learn(&mut self, now: Instant, newest: Option<AckPoint>, lost: u64) {
        let acked = u64::from(newest.is_some());
        self.loss.update(acked, lost);
        let mut feedback = Feedback::new(now, &self.rtt);
        feedback.newest = newest;
        feedback.acked_packets = acked;
        feedback.lost_packets = lost;
        feedback.bytes_in_flight = self.in_flight();
        feedback.idle_total = self.idle_total;
        feedback.app_limited_total = self.idle_total;
        self.rate.on_feedback(&feedback);
        self.pacer.set(now, self.rate.pacing_rate(), self.packet);
    }

    fn expiry(&self) -> Duration {
        self.rtt.smoothed() * self.expiry_eighths / 8
    }

    /// When all that is in flight counts as lost unless an answer comes.
    fn gives_up_at(&self) -> Option<Instant> {
        let newest = self.flight.back()?.at.max(self.last_heard);
        Some(newest + (self.rtt.smoothed() * GIVE_UP.0).max(GIVE_UP.1))
    }

    /// Time passed: blocks of packets that became too old to count on (Algorithm 3).
    pub fn write_off(&mut self, now: Instant) -> Vec<u64> {
        let expiry = self.expiry();
        let mut blocks = Vec::new();
        while let Some(packet) = self.flight.get_mut(self.written_off) {
            if packet.at + expiry > now {
                break;
            }
            packet.written_off = true;
            blocks.push(packet.block);
            self.written_off += 1;
        }
        if self.gives_up_at().is_some_and(|at| at <= now) {
            let lost = self.flight.len();
            blocks.extend(self.settle(lost));
            self.learn(now, None, lost as u64);
        }
        blocks
    }

    /// When [`Self::write_off`] has something to do.
    pub fn expires_at(&self) -> Option<Instant> {
        let oldest = self.flight.get(self.written_off);
        let oldest = oldest.map(|packet| packet.at + self.expiry());
        oldest.into_iter().chain(self.gives_up_at()).min()
    }
}
