//! What keeps a controller honest that goes by a receiver's word: the sender's own clock.
//!
//! Invariants: a claim multiplies the rate at which packets are known to arrive by no more than
//! [`MAX_CLAIM`]; without feedback the rate halves again and again, so that what is sent into
//! silence is bounded; the rate never falls below [`MIN_PACKETS`] per [`MIN_TIME`].
//!
//! It also knows when the path is *full*: a queue that did not vanish for a whole stretch, seen as
//! one-way delay above the least of the last seconds. Then what arrives is all that is to be had,
//! and probes, which meet drops at a full queue, are not to be believed. So that the least delay
//! stays known, a queue that stands for seconds is let drain for a moment.

use super::path_history::BaseDelay;
use super::{AckPoint, Feedback};
use crate::time::{Duration, Instant, Rate};

/// Most that the rate may be above the rate of arrivals: four, so that a path which loses three
/// packets in four still gets its rate.
const MAX_CLAIM: f64 = 4.0;
/// Shortest stretch over which arrivals are counted.
const STRETCH: Duration = Duration::from_millis(50);
/// Least packets in a stretch, unless it lasts [`LONG_STRETCH`].
const STRETCH_PACKETS: u64 = 8;
const LONG_STRETCH: Duration = Duration::from_secs(1);
/// Silence that halves the rate: this, or four round trips.
const SILENCE: Duration = Duration::from_millis(500);
/// Least rate: so many packets in this time or a round trip, whichever is longer.
const MIN_PACKETS: u64 = 2;
const MIN_TIME: Duration = Duration::from_millis(250);
const MIN_RATE: Rate = Rate::from_bps(1000);
/// First rate: so many packets in a round trip (RFC 6928).
const INITIAL_PACKETS: u64 = 10;
/// A standing queue: this long, and this many packets.
const STANDING: Duration = Duration::from_millis(1);
const STANDING_PACKETS: u64 = 3;
/// Rate of a drain, as a share, and its longest time.
const DRAIN_SHARE: f64 = 0.5;
const DRAIN_TIME: f64 = 2.0;
/// Bounds of a round trip that a rate can be built on, and the largest datagram.
const MIN_RTT: Duration = Duration::from_micros(50);
const MAX_RTT: Duration = Duration::from_secs(60);
const MAX_PACKET: u64 = 65_535;

/// The record of arrivals and of silence.
#[derive(Debug)]
pub(super) struct Delivery {
    rtt: Duration,
    packet: u64,
    initial: Rate,
    start: Option<(Instant, AckPoint)>,
    /// Rate of arrivals over the last stretch in which the sender was busy.
    rate: Option<Rate>,
    heard: Option<Instant>,
    halvings: u32,
    base: BaseDelay,
    /// Queueing delays in seconds: the last, and the least of this stretch.
    queue: f64,
    least_queue: f64,
    is_full: bool,
    drain_until: Option<Instant>,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            rtt: Duration::from_millis(100),
            packet: 1500,
            initial: Rate::from_bps(1_000_000),
            start: None,
            rate: None,
            heard: None,
            halvings: 0,
            base: BaseDelay::default(),
            queue: 0.0,
            least_queue: f64::INFINITY,
            is_full: false,
            drain_until: None,
        }
    }
}

impl Delivery {
    pub(super) fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.rtt = rtt.clamp(MIN_RTT, MAX_RTT);
        self.packet = packet_size.clamp(1, MAX_PACKET);
        self.initial = Rate::from_transfer(INITIAL_PACKETS * self.packet, self.rtt);
        self.heard = Some(now);
    }

    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if feedback.newest.is_none() && feedback.acked_packets == 0 {
            return; // a timer's
        }
        let now = feedback.now;
        let silent = self
            .heard
            .is_some_and(|heard| now > heard + self.patience());
        (self.heard, self.halvings) = (Some(now), 0);
        self.rtt = feedback.rtt.smoothed().clamp(MIN_RTT, MAX_RTT);
        let Some(ack) = feedback.newest else { return };
        self.watch_queue(now, &ack);
        let (since, start) = match self.start {
            Some(start) if !silent => start,
            _ => return self.start = Some((now, ack)),
        };
        let time = now.saturating_since(since);
        let delivered = ack.delivered_total.saturating_sub(start.delivered_total);
        // Where the receiver counts, it may count more than was sent.
        let bytes = delivered.min(ack.sent_total.saturating_sub(start.sent_total));
        let enough = bytes >= STRETCH_PACKETS * self.packet || time >= LONG_STRETCH;
        if time < self.rtt.max(STRETCH) || !enough {
            return;
        }
        self.start = Some((now, ack));
        let least = std::mem::replace(&mut self.least_queue, f64::INFINITY);
        let busy = feedback.idle_total < start.sent_total;
        if busy {
            self.rate = Some(Rate::from_transfer(bytes, time));
        }
        self.is_full = busy && least > self.standing();
    }

    /// Seconds of queue above which it counts as one.
    fn standing(&self) -> f64 {
        let arriving = self.rate.unwrap_or(self.initial).max(self.least());
        let few = arriving.time_for(STANDING_PACKETS * self.packet);
        few.max(STANDING).as_secs_f64()
    }

    fn watch_queue(&mut self, now: Instant, ack: &AckPoint) {
        let delay = ack.received_at.as_secs_f64() - ack.sent_at.as_nanos() as f64 / 1e9;
        self.queue = self.base.update(now, delay);
        self.least_queue = self.least_queue.min(self.queue);
        let standing = self.queue > self.standing();
        match self.drain_until {
            None if standing && self.base.is_due(now) => {
                let long = self.rtt.as_secs_f64() + 10.0 * self.queue;
                self.drain_until = Some(now + Duration::from_secs_f64(long.min(DRAIN_TIME)));
            }
            Some(_) if !standing => self.drain_until = None,
            Some(until) if now >= until => {
                // Not our queue: the path got longer, or others fill it.
                self.base.rise(self.least_queue.min(self.queue));
                self.drain_until = None;
            }
            _ => {}
        }
    }

    /// The rate of arrivals, if the path is full.
    pub(super) fn full(&self) -> Option<Rate> {
        self.rate.filter(|_| self.is_full)
    }

    /// Time passes while packets leave.
    pub(super) fn on_sent(&mut self, now: Instant) {
        let Some(heard) = self.heard else { return };
        if now > heard + self.patience() * (self.halvings + 1) {
            self.halvings = (self.halvings + 1).min(32);
        }
    }

    fn patience(&self) -> Duration {
        SILENCE.max(4 * self.rtt)
    }

    /// `wanted`, within what arrivals and silence allow.
    pub(super) fn bound(&self, wanted: Rate) -> Rate {
        let arriving = self.rate.unwrap_or(self.initial).max(self.least());
        let mut believed = wanted.min(arriving.mul_f64(MAX_CLAIM));
        if self.drain_until.is_some() {
            believed = believed.mul_f64(DRAIN_SHARE);
        }
        Rate::from_bps(believed.as_bps() >> self.halvings.min(63)).max(self.least())
    }

    /// The rate before anything is known.
    pub(super) fn initial(&self) -> Rate {
        self.initial
    }

    /// The least useful rate.
    pub(super) fn least(&self) -> Rate {
        Rate::from_transfer(MIN_PACKETS * self.packet, self.rtt.max(MIN_TIME)).max(MIN_RATE)
    }

    /// Rate of arrivals while the sender was busy, once known.
    pub(super) fn arriving(&self) -> Option<Rate> {
        self.rate
    }

    /// Bytes in flight at `rate`: two round trips' worth, feedback that comes late, and some.
    pub(super) fn window(&self, rate: Rate) -> u64 {
        let time = 2 * self.rtt + Duration::from_millis(50);
        rate.bytes_in(time).saturating_add(64 * self.packet)
    }

    /// Smoothed round-trip time.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Bytes of a full packet.
    pub(super) fn packet(&self) -> u64 {
        self.packet
    }
}

/// How far above an estimate to send, as a factor: 1 + `overestimate`, which is a fraction, none
/// below zero and none above ten. DFCP-J §3.2: overestimation is preferred.
pub(super) fn factor(overestimate: f64) -> f64 {
    if overestimate.is_finite() {
        1.0 + overestimate.clamp(0.0, 10.0)
    } else {
        1.0
    }
}
