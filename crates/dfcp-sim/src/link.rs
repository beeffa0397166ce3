//! A one-way link, sans-IO: queue → transmitter (rate) → loss → propagation (delay, jitter).
//!
//! Each packet waits in a queue, is serialised at the link's rate, and only then may be lost:
//! a lost packet has cost its share of the link, as on a radio hop behind the bottleneck. Or it is
//! lost before the queue ([`LossAt`]).
//!
//! The transmitter is run lazily: whenever a packet comes or is asked for, everything that it
//! would have done until then is done, at the times at which it would have been done. So a packet
//! costs one event, its delivery, whatever the queue discipline.
//!
//! Invariants:
//! - the link never reads a clock, and every time it keeps is computed, never observed: whoever
//!   polls, however often, sees the same packets with the same times in the same order;
//! - serialisation is exact: rounding to nanoseconds does not accumulate while the link is busy;
//! - deliveries come in time order, ties by sequence number;
//! - nothing panics: an out-of-range probability counts as the nearest one in range.

use dfcp_proto::{Duration, Instant, Rate};

use crate::packet::{DropCause, Fate, Packet, Queued};
use crate::queue::{Queue, Shares};
use crate::random::{Random, Seed};

mod acks;
mod bucket;
mod config;
mod datagram;
mod grants;
mod jitter;
mod loss;
mod outage;
mod propagation;
mod stats;
#[cfg(test)]
mod tests;
mod trace;
mod transmitter;
mod wander;
mod windows;

pub use acks::AckThinning;
pub use bucket::{TokenBucket, TokenBucketError};
pub use config::{LinkConfig, LinkConfigError, LinkRate, LossAt, PacketOrder};
pub use datagram::Datagram;
pub use grants::{Grants, GrantsError};
pub use jitter::{Jitter, JitterError, JitterModel};
pub use loss::{GilbertElliott, LossModel, LossModelError, LossProcess, TimedGilbertElliott};
pub use outage::{Outage, OutageError};
pub use stats::{Histogram, LinkStats, Occupancy};
pub use trace::{RateTrace, RateTraceError};
pub use wander::{Wander, WanderError};
pub use windows::{Spread, Windows, WindowsError};

use acks::{AckThinner, Thinned};
use bucket::Bucket;
use jitter::JitterProcess;
use outage::OutageLoss;
use propagation::Propagation;
use transmitter::Transmitter;
use wander::Walk;

/// A one-way link. See the [module](self) for the model.
///
/// A `now` earlier than one already seen counts as the latest seen: time does not go back.
#[derive(Clone, Debug)]
pub struct Link<P> {
    config: LinkConfig,
    /// Nanoseconds of propagation delay: arithmetic on `Duration` is a good part of a traversal.
    delay: u64,
    /// Whether packets may be duplicated, corrupted, delayed further.
    impaired: bool,
    draws: Draws,
    jitter: JitterProcess,
    loss: LossProcess,
    outages: Option<Box<OutageLoss>>,
    policer: Option<Box<Bucket>>,
    wander: Option<Box<Walk>>,
    now: Instant,
    queue: Queue<P>,
    acks: AckThinner,
    transmitter: Transmitter<P>,
    propagation: Propagation<P>,
    stats: LinkStats,
    /// Marks of the queue that are in `stats` already.
    marked: u64,
    /// Latest delivery with jitter, which the next ones keep behind if their order is kept.
    latest: Instant,
    /// Latest delivery without jitter, which the next ones keep behind if delays keep the order.
    latest_propagated: Instant,
    seed: Seed,
}

/// One random stream for each of these impairments.
#[derive(Clone, Debug)]
struct Draws {
    reorder: Random,
    duplicate: Random,
    corrupt: Random,
}

impl<P: Packet + Clone> Link<P> {
    /// An empty link that gives every flow the same share; the same seed and the same calls give
    /// the same deliveries.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self::with_shares(config, Shares::default(), seed)
    }

    /// An empty link whose queue, if it is a fair one, divides the rate by `shares`.
    pub fn with_shares(config: LinkConfig, shares: Shares, seed: u64) -> Self {
        let seed = Seed(seed);
        Self {
            draws: Draws {
                reorder: seed.stream("link.reorder"),
                duplicate: seed.stream("link.duplicate"),
                corrupt: seed.stream("link.corrupt"),
            },
            jitter: JitterProcess::new(&config.jitter, seed),
            loss: LossProcess::new(config.loss.clone(), seed.stream("link.loss")),
            outages: OutageLoss::new(&config.outages, seed),
            now: Instant::ZERO,
            queue: Queue::new(&config.queue, shares, seed.stream("link.queue")),
            acks: AckThinner::default(),
            transmitter: Transmitter::new(&config, seed),
            propagation: Propagation::default(),
            stats: LinkStats::default(),
            marked: 0,
            policer: config.policer.map(|config| Box::new(Bucket::new(config))),
            wander: new_walk(&config, Instant::ZERO, seed),
            latest: Instant::ZERO,
            latest_propagated: Instant::ZERO,
            delay: nanos(config.delay),
            impaired: config.is_impaired(),
            config,
            seed,
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the link from `now` on: the packet in the transmitter goes on at the new rate,
    /// packets already past it keep their times, and queued ones stay even beyond a new limit.
    /// The queue discipline does not change.
    pub fn set_config(&mut self, now: Instant, config: LinkConfig) {
        self.set_config_with(now, config, &mut ());
    }

    /// As [`Self::set_config`], and `fate` hears of what does not just pass.
    pub fn set_config_with(&mut self, now: Instant, config: LinkConfig, fate: &mut impl Fate<P>) {
        self.advance(now, fate);
        self.transmitter.set_config(self.now, &config);
        self.loss.set_model(self.now, config.loss.clone());
        if config.jitter != self.config.jitter {
            self.jitter.set(&config.jitter, self.seed);
        }
        if config.outages != self.config.outages {
            self.outages = OutageLoss::new(&config.outages, self.seed);
        }
        if config.wander != self.config.wander {
            self.wander = new_walk(&config, self.now, self.seed);
        }
        self.set_policer(config.policer);
        self.queue.set_limit(config.queue.limit);
        self.delay = nanos(config.delay);
        self.impaired = config.is_impaired();
        self.config = config;
        self.advance(now, fate);
    }

    fn set_policer(&mut self, config: Option<TokenBucket>) {
        match (&mut self.policer, config) {
            (Some(policer), Some(config)) => policer.set_config(self.now, config),
            (policer, config) => *policer = config.map(|config| Box::new(Bucket::new(config))),
        }
    }

    /// Hands a packet to the link at `now`; a full queue drops it.
    pub fn send(&mut self, now: Instant, packet: P) {
        self.send_with(now, packet, &mut ());
    }

    /// As [`Self::send`], and `fate` hears of what does not just pass.
    pub fn send_with(&mut self, now: Instant, packet: P, fate: &mut impl Fate<P>) {
        self.advance(now, fate);
        let bytes = packet.size();
        let size = bytes.saturating_add(self.config.framing);
        self.stats.packets_in += 1;
        self.stats.bytes_in += u64::from(size);
        if self.config.mtu.is_some_and(|mtu| bytes > mtu) {
            self.stats.drops.count(DropCause::Mtu);
            return fate.dropped(packet, DropCause::Mtu);
        }
        if let Some(policer) = &mut self.policer
            && !policer.take(size, self.now)
        {
            self.stats.drops.count(DropCause::Policed);
            return fate.dropped(packet, DropCause::Policed);
        }
        if self.config.loss_at == LossAt::Entry && self.loses(self.now) {
            self.stats.drops.count(DropCause::Loss);
            return fate.dropped(packet, DropCause::Loss);
        }
        let item = Queued {
            packet,
            size,
            arrived: self.now,
        };
        if self.transmitter.is_idle() {
            let (stats, rate) = (&mut self.stats, self.transmitter.rate());
            let next = self.queue.pass(self.now, rate, item, &mut |packet, cause| {
                stats.drops.count(cause);
                fate.dropped(packet, cause);
            });
            if let Some(next) = next {
                self.transmit(next, self.now);
            }
            // A link without a rate takes no time.
            self.advance(now, fate);
        } else {
            let thinning = self.config.ack_thinning;
            let stats = &mut self.stats;
            let item = match self.acks.thin(thinning, &mut self.queue, item) {
                Thinned::Kept(item) => item,
                Thinned::Replaced(old) => {
                    stats.drops.count(DropCause::Early);
                    fate.dropped(old, DropCause::Early);
                    return self.queue_changed(self.now);
                }
            };
            self.queue.enqueue(self.now, item, &mut |packet, cause| {
                stats.drops.count(cause);
                fate.dropped(packet, cause);
            });
            self.queue_changed(self.now);
        }
    }

    /// When to poll next: no packet is delivered before. `None` when the link is empty.
    ///
    /// It can be early, when the packet in the transmitter turns out to be lost or held back.
    #[inline]
    pub fn poll_at(&self) -> Option<Instant> {
        let propagated = self.propagation.next();
        let transmitted = self.transmitter.finish().map(|t| self.after_delay(t));
        match (propagated, transmitted) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    #[inline]
    fn after_delay(&self, departed: Instant) -> Instant {
        Instant::from_nanos(departed.as_nanos().saturating_add(self.delay))
    }

    /// The next packet due at or before `now`.
    pub fn poll(&mut self, now: Instant) -> Option<P> {
        self.poll_timed(now).map(|(_, packet)| packet)
    }

    /// As [`Self::poll`], with the exact time at which the packet left the link.
    pub fn poll_timed(&mut self, now: Instant) -> Option<(Instant, P)> {
        self.poll_with(now, &mut ())
    }

    /// As [`Self::poll_timed`], and `fate` hears of what does not just pass.
    #[inline]
    pub fn poll_with(&mut self, now: Instant, fate: &mut impl Fate<P>) -> Option<(Instant, P)> {
        self.advance(now, fate);
        if self.propagation.next()? > self.now {
            return None;
        }
        let delivered = self.propagation.pop()?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += u64::from(delivered.size);
        Some((delivered.at, delivered.packet))
    }

    /// Does what is due at or before `now` short of delivering.
    #[inline]
    pub fn run(&mut self, now: Instant, fate: &mut impl Fate<P>) {
        self.advance(now, fate);
    }

    /// When the packet in the transmitter will have left it.
    #[inline]
    pub fn next_departure(&self) -> Option<Instant> {
        self.transmitter.finish()
    }

    /// The standing queue: how long a packet that arrives at `now` waits for the transmitter, if
    /// all that is queued goes first.
    pub fn queue_delay(&self, now: Instant) -> Duration {
        let clear = self.transmitter.clears_at(self.queue.bytes());
        clear.map_or(Duration::ZERO, |t| t.saturating_since(now.max(self.now)))
    }

    /// Packets that wait, beside the one in the transmitter.
    pub fn queued_packets(&self) -> usize {
        self.queue.packets()
    }

    /// What has happened so far.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Forgets the counts and begins anew at `now`.
    pub fn reset_stats(&mut self, now: Instant) {
        self.advance(now, &mut ());
        self.stats = LinkStats {
            since: self.now,
            occupancy: Occupancy::starting(self.now, self.queue.packets(), self.queue.bytes()),
            ..LinkStats::default()
        };
    }

    /// Runs the transmitter up to `now`.
    #[inline]
    fn advance(&mut self, now: Instant, fate: &mut impl Fate<P>) {
        self.now = self.now.max(now);
        while let Some((sent, departed)) = self.transmitter.take(self.now) {
            self.start_next(departed, fate);
            self.propagate(sent, departed, fate);
        }
    }

    /// The transmitter is free at `start`: the queue says what comes next.
    #[inline]
    fn start_next(&mut self, start: Instant, fate: &mut impl Fate<P>) {
        if self.queue.is_empty() {
            return;
        }
        let stats = &mut self.stats;
        let next = self
            .queue
            .dequeue(start, self.transmitter.rate(), &mut |packet, cause| {
                stats.drops.count(cause);
                fate.dropped(packet, cause);
            });
        self.queue_changed(start);
        if let Some(next) = next {
            self.transmit(next, start);
        }
    }

    fn queue_changed(&mut self, now: Instant) {
        let (packets, bytes) = (self.queue.packets(), self.queue.bytes());
        self.stats.occupancy.change(now, packets, bytes);
        self.stats.queue_peak_bytes = self.stats.queue_peak_bytes.max(bytes);
        self.stats.queue_peak_packets = self.stats.queue_peak_packets.max(packets as u64);
        self.stats.marked += self.queue.marked() - self.marked;
        self.marked = self.queue.marked();
    }

    /// Starts to serialise a packet at `start`, the end of its wait.
    #[inline]
    fn transmit(&mut self, mut item: Queued<P>, start: Instant) {
        let waited = start.as_nanos().saturating_sub(item.arrived.as_nanos());
        self.stats.count_transmission(item.size, waited);
        if let Some(threshold) = self.config.ecn_threshold
            && item.sojourn(start) > threshold
            && item.packet.ecn().is_capable()
        {
            item.packet.mark_ce();
            self.stats.marked += 1;
        }
        self.transmitter.start(item, start);
    }

    /// Whether a packet at `at` is lost: every model sees every packet.
    #[inline]
    fn loses(&mut self, at: Instant) -> bool {
        let in_outage = match &mut self.outages {
            Some(outages) => outages.lose(at),
            None => false,
        };
        self.loss.lose(at) | in_outage
    }

    /// Lets a packet that left the transmitter at `departed` be lost, or go on.
    #[inline]
    fn propagate(&mut self, sent: Queued<P>, departed: Instant, fate: &mut impl Fate<P>) {
        fate.departed(&sent.packet);
        if self.config.loss_at == LossAt::Exit && self.loses(departed) {
            self.stats.drops.count(DropCause::Loss);
            return fate.dropped(sent.packet, DropCause::Loss);
        }
        if self.impaired && self.draws.duplicate.chance(self.config.duplicate) {
            self.stats.duplicated += 1;
            fate.duplicated(&sent.packet);
            self.deliver(sent.packet.clone(), sent.size, departed);
        }
        self.deliver(sent.packet, sent.size, departed);
    }

    #[inline]
    fn deliver(&mut self, mut packet: P, size: u32, departed: Instant) {
        let config = &self.config;
        let mut at = self.after_delay(departed);
        if !self.impaired {
            return self.propagation.push(at, size, packet);
        }
        if let Some(walk) = &mut self.wander {
            at += walk.delay(departed);
        }
        if self.wander.is_some() || config.delay_order == PacketOrder::Kept {
            at = at.max(self.latest_propagated);
            self.latest_propagated = at;
        }
        if self.draws.corrupt.chance(config.corrupt) && packet.size() > 0 {
            packet.corrupt(self.draws.corrupt.below(u64::from(packet.size()) * 8));
            self.stats.corrupted += 1;
        }
        if !self.jitter.is_none() {
            at += self.jitter.draw(departed);
            if config.jitter_order == PacketOrder::Kept {
                at = at.max(self.latest);
                self.latest = at;
            }
        }
        if self.draws.reorder.chance(config.reorder) {
            at += config.reorder_delay;
            self.stats.held_back += 1;
        }
        self.propagation.push(at, size, packet);
    }
}

fn new_walk(config: &LinkConfig, now: Instant, seed: Seed) -> Option<Box<Walk>> {
    let wander = config.wander?;
    Some(Box::new(Walk::new(wander, now, seed.stream("link.wander"))))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<P> Link<P> {
    /// The rate at `now`, or a trace's mean; `None` for no limit.
    pub fn rate(&self) -> Option<Rate> {
        self.transmitter.rate()
    }
}
