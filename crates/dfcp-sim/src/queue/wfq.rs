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
use crate::packet::{DropCause, Packet, Queued};
use crate::tournament::Tournament;

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

    pub(super) fn classes(&self) -> &Classes {
        &self.classes
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
    ends: Tournament<Virtual>,
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
            ends: Tournament::new(Virtual::MAX),
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
        let (Some(rate), Some((_, first_end)), 1..) = (self.rate, self.ends.winner(), elapsed)
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
        while let Some((class, end)) = self.ends.winner() {
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

    /// A packet with this tag was sent: what a link without a rate goes by.
    fn sent(&mut self, tag: Virtual, classes: &Classes) {
        if self.rate.is_some() {
            return;
        }
        self.virtual_time = self.virtual_time.max(tag);
        while let Some((class, end)) = self.ends.winner()
            && end <= self.virtual_time
        {
            self.remove(class, classes.weight(class));
        }
    }

    /// The work that takes the virtual time on by a byte.
    fn work_per_virtual_byte(&self) -> u128 {
        u128::from(self.weight.max(1)) * WORK_PER_BYTE
    }

    fn arrive(&mut self, class: usize, size: u32, weight: u32) {
        let end = match self.ends.key(class) {
            Virtual::MAX => {
                self.weight += u64::from(weight);
                self.slope = None;
                self.virtual_time
            }
            end => end,
        };
        self.ends.set(class, end + span(size, weight));
    }

    /// Takes back what came last.
    fn withdraw(&mut self, class: usize, size: u32, weight: u32) {
        let end = self.ends.key(class);
        if end == Virtual::MAX {
            return;
        }
        let end = end.saturating_sub(span(size, weight));
        if end > self.virtual_time {
            self.ends.set(class, end);
        } else {
            self.remove(class, weight);
        }
    }

    /// A class is idle from now on.
    fn remove(&mut self, class: usize, weight: u32) {
        self.ends.set(class, Virtual::MAX);
        self.weight -= u64::from(weight);
        self.slope = None;
    }
}
