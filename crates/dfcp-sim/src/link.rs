//! A one-way link, sans-IO: queue → transmitter (rate) → loss → propagation (delay, jitter).
//!
//! Each packet waits in a FIFO queue, is serialised at the link's rate, and only then may be lost:
//! a lost packet has cost its share of the link, as on a radio hop behind the bottleneck.
//!
//! Invariants:
//! - the link never reads a clock, and every time it keeps is computed, never observed: whoever
//!   polls, however often, sees the same packets with the same times in the same order;
//! - serialisation is exact: rounding to nanoseconds does not accumulate while the link is busy;
//! - deliveries come in time order, ties by sequence number;
//! - nothing panics: an out-of-range probability counts as the nearest one in range.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use dfcp_proto::{Duration, Instant, Rate};

use crate::random::{Random, Seed};

mod config;
mod stats;
#[cfg(test)]
mod tests;

pub use config::{LinkConfig, LinkConfigError, Queue};
pub use stats::LinkStats;

/// A datagram or IP packet on its way over a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The bytes carried.
    pub data: Vec<u8>,
    /// The ECN codepoint of RFC 3168: the low two bits.
    pub ecn: u8,
    /// Opaque to the link: whatever the caller wants to recognise the packet by.
    pub tag: u64,
}

impl Packet {
    /// The ECN codepoint "congestion experienced".
    pub const CE: u8 = 0b11;

    /// A packet that carries `data`, not ECN-capable.
    pub fn new(data: Vec<u8>) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }
}

/// A one-way link. See the [module](self) for the model.
///
/// A `now` earlier than one already seen counts as the latest seen: time does not go back.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    draws: Draws,
    now: Instant,
    queue: VecDeque<Queued>,
    queue_bytes: u64,
    transmitting: Option<Transmission>,
    propagating: BinaryHeap<Propagating>,
    next_sequence: u64,
    stats: LinkStats,
}

/// One random stream for each impairment.
#[derive(Clone, Debug)]
struct Draws {
    loss: Random,
    jitter: Random,
    reorder: Random,
    duplicate: Random,
    corrupt: Random,
}

#[derive(Clone, Debug)]
struct Queued {
    packet: Packet,
    size: u64,
    arrived: Instant,
}

/// The packet that the transmitter is serialising.
#[derive(Clone, Debug)]
struct Transmission {
    packet: Packet,
    size: u64,
    /// When `work` was counted: the start, or the last change of rate.
    since: Instant,
    /// What is left to serialise, in bits × 10⁹, so that `work / rate` is in nanoseconds.
    work: u128,
    finish: Instant,
}

#[derive(Clone, Debug)]
struct Propagating {
    at: Instant,
    sequence: u64,
    size: u64,
    packet: Packet,
}

impl Link {
    /// An empty link; the same seed and the same calls give the same deliveries.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let seed = Seed(seed);
        Self {
            config,
            draws: Draws {
                loss: seed.stream("link.loss"),
                jitter: seed.stream("link.jitter"),
                reorder: seed.stream("link.reorder"),
                duplicate: seed.stream("link.duplicate"),
                corrupt: seed.stream("link.corrupt"),
            },
            now: Instant::ZERO,
            queue: VecDeque::new(),
            queue_bytes: 0,
            transmitting: None,
            propagating: BinaryHeap::new(),
            next_sequence: 0,
            stats: LinkStats::default(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the link from `now` on: the packet in the transmitter goes on at the new rate,
    /// packets already past it keep their times, and queued ones stay even beyond a new limit.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        self.advance(now);
        let old = std::mem::replace(&mut self.config, config).rate;
        if let Some(tx) = &mut self.transmitting {
            let elapsed = self.now.saturating_since(tx.since).as_nanos();
            let done = old.map_or(0, |rate| elapsed.saturating_mul(u128::from(rate.as_bps())));
            tx.work = tx.work.saturating_sub(done);
            tx.since = self.now;
            tx.finish = finish(tx.since, tx.work, self.config.rate);
        }
        self.advance(now);
    }

    /// Hands a packet to the link at `now`; a full queue drops it.
    pub fn send(&mut self, now: Instant, packet: Packet) {
        self.advance(now);
        let size = packet.data.len() as u64 + u64::from(self.config.framing);
        self.stats.packets_in += 1;
        self.stats.bytes_in += size;
        let queued = Queued {
            packet,
            size,
            arrived: self.now,
        };
        if self.transmitting.is_none() {
            self.transmit(queued, self.now, 0);
            self.advance(now); // a link without a rate takes no time
        } else if self
            .config
            .queue
            .has_room(self.queue.len(), self.queue_bytes, size)
        {
            self.queue.push_back(queued);
            self.queue_bytes += size;
            self.stats.queue_peak_bytes = self.stats.queue_peak_bytes.max(self.queue_bytes);
            self.stats.queue_peak_packets =
                self.stats.queue_peak_packets.max(self.queue.len() as u64);
        } else {
            self.stats.dropped_queue += 1;
        }
    }

    /// When to poll next: no packet is delivered before. `None` when the link is empty.
    ///
    /// It can be early, when the packet in the transmitter turns out to be lost or held back.
    pub fn poll_at(&self) -> Option<Instant> {
        let propagated = self.propagating.peek().map(|p| p.at);
        let transmitted = self
            .transmitting
            .as_ref()
            .map(|tx| tx.finish + self.config.delay);
        propagated.into_iter().chain(transmitted).min()
    }

    /// The next packet due at or before `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Packet> {
        self.poll_timed(now).map(|(_, packet)| packet)
    }

    /// As [`Self::poll`], with the exact time at which the packet left the link.
    pub fn poll_timed(&mut self, now: Instant) -> Option<(Instant, Packet)> {
        self.advance(now);
        if self.propagating.peek()?.at > self.now {
            return None;
        }
        let delivered = self.propagating.pop()?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += delivered.size;
        Some((delivered.at, delivered.packet))
    }

    /// The standing queue: how long a packet that arrives at `now` waits for the transmitter.
    pub fn queue_delay(&self, now: Instant) -> Duration {
        let Some(tx) = &self.transmitting else {
            return Duration::ZERO;
        };
        let work = u128::from(self.queue_bytes) * WORK_PER_BYTE;
        finish(tx.finish, work, self.config.rate).saturating_since(now.max(self.now))
    }

    /// What has happened so far.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Runs the transmitter up to `now`.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(tx) = self.transmitting.take_if(|tx| tx.finish <= self.now) {
            // What rounding `finish` down left undone goes to the next packet.
            let owed = self.config.rate.map_or(0, |rate| {
                let elapsed = tx.finish.saturating_since(tx.since).as_nanos();
                tx.work
                    .saturating_sub(elapsed.saturating_mul(u128::from(rate.as_bps())))
            });
            if let Some(next) = self.queue.pop_front() {
                self.queue_bytes -= next.size;
                self.transmit(next, tx.finish, owed);
            }
            self.propagate(tx.packet, tx.size, tx.finish);
        }
    }

    /// Starts to serialise a packet at `start`, the end of its wait.
    fn transmit(&mut self, queued: Queued, start: Instant, owed: u128) {
        let Queued {
            mut packet,
            size,
            arrived,
        } = queued;
        let sojourn = start.saturating_since(arrived);
        self.stats.transmitted += 1;
        self.stats.sojourn_total += sojourn;
        self.stats.sojourn_max = self.stats.sojourn_max.max(sojourn);
        let congested = self.config.ecn_threshold.is_some_and(|t| sojourn > t);
        if congested && packet.ecn & Packet::CE != 0 {
            packet.ecn |= Packet::CE;
            self.stats.marked += 1;
        }
        let work = u128::from(size) * WORK_PER_BYTE + owed;
        self.transmitting = Some(Transmission {
            packet,
            size,
            since: start,
            work,
            finish: finish(start, work, self.config.rate),
        });
    }

    /// Lets a packet that left the transmitter at `departed` be lost, or go on.
    fn propagate(&mut self, packet: Packet, size: u64, departed: Instant) {
        if self.draws.loss.chance(self.config.loss) {
            self.stats.lost += 1;
            return;
        }
        if self.draws.duplicate.chance(self.config.duplicate) {
            self.stats.duplicated += 1;
            self.deliver(packet.clone(), size, departed);
        }
        self.deliver(packet, size, departed);
    }

    fn deliver(&mut self, mut packet: Packet, size: u64, departed: Instant) {
        let bits = packet.data.len() as u64 * 8;
        if self.draws.corrupt.chance(self.config.corrupt) && bits > 0 {
            let bit = self.draws.corrupt.below(bits);
            packet.data[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.stats.corrupted += 1;
        }
        let jitter = u64::try_from(self.config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(self.draws.jitter.below(jitter));
        let mut at = departed + self.config.delay + jitter;
        if self.draws.reorder.chance(self.config.reorder) {
            at += self.config.reorder_delay;
            self.stats.held_back += 1;
        }
        self.propagating.push(Propagating {
            at,
            sequence: self.next_sequence,
            size,
            packet,
        });
        self.next_sequence += 1;
    }
}

/// Bits × 10⁹ in a byte: see [`Transmission::work`].
const WORK_PER_BYTE: u128 = 8_000_000_000;

/// When `work` that starts at `start` is done, rounded down to the nanosecond.
fn finish(start: Instant, work: u128, rate: Option<Rate>) -> Instant {
    let nanos = match rate {
        None => 0,
        Some(rate) => work
            .checked_div(u128::from(rate.as_bps()))
            .map_or(u64::MAX, |ns| u64::try_from(ns).unwrap_or(u64::MAX)),
    };
    start + Duration::from_nanos(nanos)
}

// `BinaryHeap` pops its greatest: the earliest, then the first sent.
impl Ord for Propagating {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Propagating {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Propagating {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Propagating {}
