//! Queue disciplines: which packet a link sends next, and which it drops.
//!
//! Each discipline is in its own module, with the paper or RFC it follows. FIFO, RED and CoDel
//! keep one line of packets. DRR and WFQ keep one for each class ([`Shares`]), SFQ and FQ-CoDel
//! one for each hash bucket; theirs share one buffer, and when it is full the longest line gives
//! way, so that a flooder cannot push out the others.
//!
//! Invariants:
//! - a queue never reads a clock; `now` never goes back;
//! - every packet that goes in comes out exactly once: from [`Queue::dequeue`], or through
//!   `dropped`;
//! - after a call the queue is within its limit;
//! - a queue with packets always yields one, except that RED and CoDel may drop what they hold.

use dfcp_proto::{Instant, Rate};

use crate::packet::{DropCause, FlowId, Packet, Queued};
use crate::random::Random;

mod backlog;
mod config;
mod fifo;
mod round_robin;
mod shares;
mod tournament;

pub use config::{
    CoDelConfig, Discipline, DropFrom, DrrConfig, FqCoDelConfig, Limit, QueueConfig,
    QueueConfigError, RedConfig, SfqConfig, WfqConfig,
};
pub use shares::Shares;

use fifo::Fifo;
use round_robin::RoundRobin;
use shares::Classes;

/// The packets that wait for a transmitter.
#[derive(Clone, Debug)]
pub struct Queue<P> {
    discipline: State<P>,
    limit: Limit,
    marked: u64,
}

#[derive(Clone, Debug)]
enum State<P> {
    Fifo(Fifo<P>),
    Drr {
        classes: Classes,
        quantum: u32,
        robin: RoundRobin<P>,
    },
}

impl<P: Packet> Queue<P> {
    /// An empty queue. `shares` matters to DRR and WFQ, `random` to SFQ, RED and FQ-CoDel.
    pub fn new(config: &QueueConfig, shares: Shares, random: Random) -> Self {
        let _ = random;
        let discipline = match &config.discipline {
            Discipline::Drr(drr) => State::Drr {
                classes: Classes::new(shares),
                quantum: drr.quantum,
                robin: RoundRobin::new(drr.drop_from),
            },
            _ => State::Fifo(Fifo::new()),
        };
        Self {
            discipline,
            limit: config.limit,
            marked: 0,
        }
    }

    /// Changes the limit; packets already queued stay beyond it, at least until the next arrival.
    pub fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Puts a packet into the queue; it or others may be dropped.
    pub fn enqueue(
        &mut self,
        now: Instant,
        item: Queued<P>,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        self.admit(now, item, self.limit, dropped);
    }

    /// Takes the next packet, for a transmitter of this rate.
    pub fn dequeue(
        &mut self,
        now: Instant,
        rate: Option<Rate>,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<Queued<P>> {
        let _ = (now, rate, dropped);
        match &mut self.discipline {
            State::Fifo(fifo) => fifo.pop(),
            State::Drr {
                classes,
                quantum,
                robin,
            } => robin.dequeue(|class| u64::from(*quantum) * u64::from(classes.weight(class))),
        }
    }

    /// Leads a packet that finds the transmitter idle, and the queue therefore empty, past the
    /// discipline and straight on: it needs no room in the buffer, which can have none.
    ///
    /// Disciplines that keep history (WFQ, RED) learn of the packet; RED may still drop it.
    pub fn pass(
        &mut self,
        now: Instant,
        rate: Option<Rate>,
        item: Queued<P>,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<Queued<P>> {
        self.admit(now, item, Limit::Unlimited, dropped);
        self.dequeue(now, rate, dropped)
    }

    fn admit(
        &mut self,
        now: Instant,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        let _ = now;
        match &mut self.discipline {
            State::Fifo(fifo) => fifo.enqueue(limit, item, dropped),
            State::Drr { classes, robin, .. } => {
                let class = classes.of(item.packet.flow());
                robin.enqueue(class, item, limit, dropped);
            }
        }
    }

    /// Packets in the queue.
    pub fn packets(&self) -> usize {
        match &self.discipline {
            State::Fifo(fifo) => fifo.packets(),
            State::Drr { robin, .. } => robin.backlog().packets(),
        }
    }

    /// Bytes in the queue, framing included.
    pub fn bytes(&self) -> u64 {
        match &self.discipline {
            State::Fifo(fifo) => fifo.bytes(),
            State::Drr { robin, .. } => robin.backlog().bytes(),
        }
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0
    }

    /// Packets of a flow in the queue; counted by looking at each, so for statistics only.
    pub fn packets_of(&self, flow: FlowId) -> usize {
        let of_flow = |item: &&Queued<P>| item.packet.flow() == flow;
        match &self.discipline {
            State::Fifo(fifo) => fifo.iter().filter(of_flow).count(),
            State::Drr { classes, robin, .. } => classes.find(flow).map_or(0, |class| {
                robin.backlog().iter(class).filter(of_flow).count()
            }),
        }
    }

    /// Packets marked CE so far instead of dropped.
    pub fn marked(&self) -> u64 {
        self.marked
    }
}
