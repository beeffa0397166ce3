//! Weighted fair queueing, also known as packetised generalised processor sharing (PGPS): Demers,
//! Keshav and Shenker, "Analysis and Simulation of a Fair Queueing Algorithm", SIGCOMM 1989;
//! Parekh and Gallager, "A Generalized Processor Sharing Approach to Flow Control in Integrated
//! Services Networks: The Single-Node Case", IEEE/ACM Transactions on Networking 1(3), 1993.
//!
//! Beside the packets runs the fluid system that serves all busy classes at once, by weight. Its
//! virtual time grows by the bytes served for a weight of one. The packet goes first that would
//! be the first to end in the fluid system if nothing else came. So each packet leaves at most one
//! largest packet's time after it would have left the fluid.
//!
//! - Tags are virtual bytes with 48 binary places; an hour's rounding of the virtual time is less
//!   than a packet at 1 Mbit/s and a thousand weights, and shrinks as the rate grows.
//! - The fluid runs at the rate that was last heard of. A link without one is self-clocked: the
//!   virtual time is the tag of the packet sent last (Golestani, INFOCOM 1994).
//! - What the buffer drops leaves the fluid too, and the packets behind it move up: a flooder pays
//!   for what is sent, not for what it tried to send.

use dfcp_proto::{Instant, Rate};

use super::backlog::Backlog;
use super::config::{DropFrom, Limit};
use super::shares::{Classes, Shares};
use super::tournament::Tournament;
use crate::packet::{DropCause, Packet, Queued};

/// Bytes for each unit of weight, in units of 2⁻⁴⁸.
type Virtual = u128;

const FRACTION_BITS: u32 = 48;

/// Bits × 10⁹ in a byte: work is counted in bit/s × ns.
const WORK_PER_BYTE: u128 = 8_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Wfq<P> {
    classes: Classes,
    /// Packets with the virtual time at which they came.
    backlog: Backlog<P, Virtual>,
    /// The finish tag of each class's first packet.
    heads: Tournament<Virtual>,
    /// The finish tag of each class's packet sent last.
    sent: Vec<Virtual>,
    fluid: Fluid,
    drop_from: DropFrom,
}

impl<P: Packet> Wfq<P> {
    pub(super) fn new(shares: Shares, drop_from: DropFrom) -> Self {
        Self {
            classes: Classes::new(shares),
            backlog: Backlog::new(),
            heads: Tournament::new(Virtual::MAX),
            sent: Vec::new(),
            fluid: Fluid::new(),
            drop_from,
        }
    }

    /// The transmitter runs at this rate from now on.
    pub(super) fn set_rate(&mut self, now: Instant, rate: Option<Rate>) {
        self.fluid.advance(now, &self.classes);
        self.fluid.set_rate(rate);
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        if !limit.has_room(0, 0, item.size) {
            return dropped(item.packet, DropCause::Full);
        }
        self.fluid.advance(now, &self.classes);
        let class = self.classes.of(item.packet.flow());
        if self.sent.len() <= class {
            self.sent.resize(class + 1, 0);
        }
        self.fluid
            .arrive(class, item.size, self.classes.weight(class));
        let first = self.backlog.is_empty(class);
        self.backlog.push(class, item, self.fluid.virtual_time);
        if first {
            self.tag_head(class);
        }
        while let Some((victim, size)) = self.backlog.shed(limit, self.drop_from, dropped) {
            self.fluid
                .withdraw(victim, size, self.classes.weight(victim));
            self.tag_head(victim);
        }
    }

    pub(super) fn dequeue(&mut self) -> Option<Queued<P>> {
        let (class, tag) = self.heads.winner()?;
        let item = self.backlog.pop(class);
        self.sent[class] = tag;
        self.tag_head(class);
        self.fluid.sent(tag, &self.classes);
        item
    }

    /// Computes the finish tag of the first packet of a class: it starts when it came or when the
    /// one before it ends, whichever is later.
    fn tag_head(&mut self, class: usize) {
        let tag = match self.backlog.front(class) {
            None => Virtual::MAX,
            Some((item, arrived)) => {
                let start = self.sent[class].max(*arrived);
                start + span(item.size, self.classes.weight(class))
            }
        };
        self.heads.set(class, tag);
    }

    pub(super) fn backlog(&self) -> &Backlog<P, Virtual> {
        &self.backlog
    }
}

/// The virtual time that a packet takes.
fn span(size: u32, weight: u32) -> Virtual {
    // 32 places are enough for one packet, and keep the division to 64 bits.
    Virtual::from((u64::from(size) << 32) / u64::from(weight)) << (FRACTION_BITS - 32)
}

/// The fluid system: generalised processor sharing.
#[derive(Clone, Debug)]
struct Fluid {
    virtual_time: Virtual,
    updated: Instant,
    rate: Option<Rate>,
    /// When each busy class will have been served all that came.
    ends: Vec<Virtual>,
    /// The first of them; what arrivals put off is looked up when its old time comes.
    first_end: Tournament<Virtual>,
    /// Sum of the weights of the busy classes.
    weight: u64,
    /// Virtual time for a nanosecond, when known.
    slope: Option<Virtual>,
}

impl Fluid {
    fn new() -> Self {
        Self {
            virtual_time: 0,
            updated: Instant::ZERO,
            rate: None,
            ends: Vec::new(),
            first_end: Tournament::new(Virtual::MAX),
            weight: 0,
            slope: None,
        }
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        if self.rate != rate {
            self.rate = rate;
            self.slope = None;
        }
    }

    /// Serves the busy classes up to `now`.
    fn advance(&mut self, now: Instant, classes: &Classes) {
        let elapsed = now.saturating_since(self.updated).as_nanos();
        self.updated = self.updated.max(now);
        let (Some(rate), Some((_, first_end)), 1..) = (self.rate, self.first_end.winner(), elapsed)
        else {
            return;
        };
        let rate = u128::from(rate.as_bps());
        let per_virtual = self.work_per_virtual_byte();
        let slope = *self
            .slope
            .get_or_insert_with(|| (rate << FRACTION_BITS) / per_virtual);
        let reached = self
            .virtual_time
            .saturating_add(slope.saturating_mul(elapsed));
        if reached < first_end {
            self.virtual_time = reached;
        } else {
            self.serve(rate.saturating_mul(elapsed), classes);
        }
    }

    /// Serves work, of which classes come to an end.
    fn serve(&mut self, mut work: u128, classes: &Classes) {
        while let Some((class, end)) = self.next_end() {
            let per_virtual = self.work_per_virtual_byte();
            let left = end.saturating_sub(self.virtual_time);
            // All busy classes hold at least this much: the product is their backlog's work.
            let needed = left
                .saturating_mul(per_virtual)
                .div_ceil(1 << FRACTION_BITS);
            if needed > work {
                self.virtual_time += work.saturating_mul(1 << FRACTION_BITS) / per_virtual;
                return;
            }
            work -= needed;
            self.virtual_time = self.virtual_time.max(end);
            self.remove(class, classes.weight(class));
        }
    }

    /// The class that ends first, and when.
    fn next_end(&mut self) -> Option<(usize, Virtual)> {
        loop {
            let (class, known) = self.first_end.winner()?;
            let end = self.ends[class];
            if end == known {
                return Some((class, end));
            }
            self.first_end.set(class, end);
        }
    }

    /// A packet with this tag was sent: what a link without a rate goes by.
    fn sent(&mut self, tag: Virtual, classes: &Classes) {
        if self.rate.is_some() {
            return;
        }
        self.virtual_time = self.virtual_time.max(tag);
        while let Some((class, end)) = self.next_end()
            && end <= self.virtual_time
        {
            self.remove(class, classes.weight(class));
        }
    }

    /// The work that takes the virtual time on by a byte.
    fn work_per_virtual_byte(&self) -> u128 {
        u128::from(self.weight.max(1)) * WORK_PER_BYTE
    }

    fn is_busy(&self, class: usize) -> bool {
        self.first_end.key(class) != Virtual::MAX
    }

    fn arrive(&mut self, class: usize, size: u32, weight: u32) {
        if self.is_busy(class) {
            self.ends[class] += span(size, weight);
            return;
        }
        if self.ends.len() <= class {
            self.ends.resize(class + 1, 0);
        }
        self.weight += u64::from(weight);
        self.slope = None;
        let end = self.virtual_time + span(size, weight);
        self.ends[class] = end;
        self.first_end.set(class, end);
    }

    /// Takes back what came last.
    fn withdraw(&mut self, class: usize, size: u32, weight: u32) {
        if !self.is_busy(class) {
            return;
        }
        let end = self.ends[class].saturating_sub(span(size, weight));
        self.ends[class] = end;
        if end <= self.virtual_time {
            self.remove(class, weight);
        } else if end < self.first_end.key(class) {
            self.first_end.set(class, end);
        }
    }

    /// A class is idle from now on.
    fn remove(&mut self, class: usize, weight: u32) {
        self.first_end.set(class, Virtual::MAX);
        self.weight -= u64::from(weight);
        self.slope = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::FlowId;
    use crate::random::Seed;
    use dfcp_proto::Duration;

    /// However the work is divided, the fluid is done when the last byte could have been sent: in
    /// a busy period of ten minutes, its rounding adds up to less than ten bytes.
    #[test]
    fn fluid_ends_with_the_work() {
        for seed in 0..4 {
            let mut random = Seed(seed).stream("fluid");
            let shares = (0..50).fold(Shares::equal(), |shares, flow| {
                shares.weight(FlowId(flow), 1 + random.below(40) as u32)
            });
            let classes = Classes::new(shares);
            let mut fluid = Fluid::new();
            // A byte takes a microsecond.
            fluid.set_rate(Some(Rate::from_bps(8_000_000)));
            let (mut now, mut end) = (Instant::ZERO, Instant::ZERO);
            while end < Instant::ZERO + Duration::from_secs(600) {
                let class = random.below(50) as usize;
                let size = 40 + random.below(1461) as u32;
                fluid.advance(now, &classes);
                fluid.arrive(class, size, classes.weight(class));
                end += Duration::from_micros(u64::from(size));
                // Mostly a backlog of some packets, and never none.
                let backlog = end.saturating_since(now).as_nanos() as u64;
                let step = random.below(1_540_000).min(backlog - 1);
                now += Duration::from_nanos(step);
            }
            let rounding = Duration::from_micros(10);
            fluid.advance(end - rounding, &classes);
            assert!(fluid.weight > 0, "seed {seed}: too early");
            fluid.advance(end + rounding, &classes);
            assert_eq!(fluid.weight, 0, "seed {seed}: too late");
        }
    }
}
