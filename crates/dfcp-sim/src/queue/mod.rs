//! Queue disciplines: which packet a link sends next, and which it drops.
//!
//! Each discipline is in its own module, with the paper or RFC it follows. FIFO, RED, CoDel and PIE
//! keep one line of packets, DualPI2 one for each kind of ECN. DRR and WFQ keep one for each class ([`Shares`]), SFQ and FQ-CoDel
//! one for each hash bucket; theirs share one buffer, and when it is full the longest line gives
//! way, so that a flooder cannot push out the others.
//!
//! Before any of them there can be a line for signalling, with strict priority.
//!
//! Invariants:
//! - a queue never reads a clock; `now` never goes back;
//! - every packet that goes in comes out exactly once: from [`Queue::dequeue`], or through
//!   `dropped`;
//! - after a call the queue is within its limit, and the line for signalling within as much;
//! - a queue with packets always yields one, except that those of active queue
//!   management may drop what they hold.

use dfcp_proto::{Instant, Rate};

use crate::packet::{DropCause, Packet, Priority, Queued};
use crate::random::Random;

mod backlog;
mod codel;
mod config;
mod drr;
mod dual_pi2;
mod fifo;
mod fq_codel;
mod hash;
mod pie;
mod red;
mod sfq;
mod shares;
#[cfg(test)]
mod tests;
mod tournament;
mod wfq;

pub use config::{
    CoDelConfig, Discipline, DropFrom, DrrConfig, DualPi2Config, FqCoDelConfig, Limit, PieConfig,
    PriorityMode, QueueConfig, QueueConfigError, RedConfig, SfqConfig, WfqConfig,
};
pub use shares::Shares;

use codel::{CoDel, Moment};
use drr::Drr;
use dual_pi2::DualPi2;
use fifo::Fifo;
use fq_codel::FqCoDel;
use pie::Pie;
use red::{Red, Verdict};
use sfq::Sfq;
use wfq::Wfq;

/// The packets that wait for a transmitter.
#[derive(Clone, Debug)]
pub struct Queue<P> {
    state: State<P>,
    /// Signalling, where it overtakes data.
    control: Option<Box<Fifo<P>>>,
    limit: Limit,
    /// Of the transmitter, as last heard.
    rate: Option<Rate>,
    marked: u64,
}

#[derive(Clone, Debug)]
enum State<P> {
    Fifo(Fifo<P>),
    Drr(Box<Drr<P>>),
    Wfq(Box<Wfq<P>>),
    Sfq(Box<Sfq<P>>),
    Red(Fifo<P>, Box<Red>),
    CoDel(Fifo<P>, CoDel, CoDelConfig),
    FqCoDel(Box<FqCoDel<P>>),
    Pie(Fifo<P>, Box<Pie>),
    DualPi2(Box<DualPi2<P>>),
}

impl<P: Packet> Queue<P> {
    /// An empty queue. `shares` matters to DRR and WFQ, `random` to SFQ, RED and FQ-CoDel.
    pub fn new(config: &QueueConfig, shares: Shares, random: Random) -> Self {
        let state = match config.discipline {
            Discipline::Fifo => State::Fifo(Fifo::new()),
            Discipline::Drr(drr) => State::Drr(Box::new(Drr::new(drr, shares))),
            Discipline::Wfq(wfq) => State::Wfq(Box::new(Wfq::new(shares, wfq.drop_from))),
            Discipline::Sfq(sfq) => State::Sfq(Box::new(Sfq::new(sfq, random))),
            Discipline::Red(red) => State::Red(Fifo::new(), Box::new(Red::new(red, random))),
            Discipline::CoDel(codel) => State::CoDel(Fifo::new(), CoDel::default(), codel),
            Discipline::FqCoDel(fq) => State::FqCoDel(Box::new(FqCoDel::new(fq, random))),
            Discipline::Pie(pie) => State::Pie(Fifo::new(), Box::new(Pie::new(pie, random))),
            Discipline::DualPi2(dual) => State::DualPi2(Box::new(DualPi2::new(dual))),
        };
        let control = match config.priority {
            PriorityMode::None => None,
            PriorityMode::ControlFirst => Some(Box::new(Fifo::new())),
        };
        Self {
            state,
            control,
            limit: config.limit,
            rate: None,
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
        match &mut self.control {
            Some(control) if item.packet.priority() == Priority::Control => {
                control.enqueue(self.limit, item, dropped);
            }
            _ => self.admit(now, item, self.limit, dropped),
        }
    }

    /// Puts a packet in the place of the newest one of its flow that waits and has at most `largest`
    /// bytes, and gives that one back; or gives `item` back where none waits, or where the
    /// discipline keeps more than a line.
    pub fn replace_newest(&mut self, item: Queued<P>, largest: u32) -> Result<P, Queued<P>> {
        match &mut self.state {
            State::Fifo(fifo)
            | State::Red(fifo, _)
            | State::CoDel(fifo, ..)
            | State::Pie(fifo, _) => fifo.replace_newest(item, largest),
            State::DualPi2(dual) => dual.replace_newest(item, largest),
            State::Drr(_) | State::Wfq(_) | State::Sfq(_) | State::FqCoDel(_) => Err(item),
        }
    }

    /// Takes the next packet, for a transmitter of this rate; `None` for one without limit.
    pub fn dequeue(
        &mut self,
        now: Instant,
        rate: Option<Rate>,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<Queued<P>> {
        self.set_rate(now, rate);
        if let Some(item) = self.control.as_mut().and_then(|control| control.pop()) {
            return Some(item);
        }
        match &mut self.state {
            State::Fifo(fifo) => fifo.pop(),
            State::Drr(drr) => drr.dequeue(),
            State::Wfq(wfq) => wfq.dequeue(),
            State::Sfq(sfq) => sfq.dequeue(),
            State::Red(fifo, red) => {
                let item = fifo.pop()?;
                if fifo.packets() == 0 {
                    red.idle(now);
                }
                Some(item)
            }
            State::CoDel(fifo, codel, config) => {
                let mut moment = Moment {
                    config,
                    now,
                    marked: &mut self.marked,
                };
                codel.dequeue(&mut moment, fifo, dropped)
            }
            State::FqCoDel(fq) => fq.dequeue(now, &mut self.marked, dropped),
            State::Pie(fifo, pie) => {
                pie.update_until(now, fifo.front().map(|item| item.arrived));
                fifo.pop()
            }
            State::DualPi2(dual) => dual.dequeue(now, &mut self.marked, dropped),
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
        // An empty queue of these has no history.
        if let State::Fifo(_) | State::Drr { .. } = self.state {
            return Some(item);
        }
        if self.control.is_some() && item.packet.priority() == Priority::Control {
            return Some(item);
        }
        self.set_rate(now, rate);
        self.admit(now, item, Limit::Unlimited, dropped);
        self.dequeue(now, rate, dropped)
    }

    fn set_rate(&mut self, now: Instant, rate: Option<Rate>) {
        self.rate = rate;
        if let State::Wfq(wfq) = &mut self.state {
            wfq.set_rate(now, rate);
        }
    }

    fn admit(
        &mut self,
        now: Instant,
        mut item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        match &mut self.state {
            State::Fifo(fifo) | State::CoDel(fifo, ..) => fifo.enqueue(limit, item, dropped),
            State::Drr(drr) => drr.enqueue(item, limit, dropped),
            State::Wfq(wfq) => wfq.enqueue(now, item, limit, dropped),
            State::Sfq(sfq) => sfq.enqueue(now, item, limit, dropped),
            State::Red(fifo, red) => {
                match red.judge(now, fifo.packets(), self.rate, &item) {
                    Verdict::Drop => return dropped(item.packet, DropCause::Early),
                    Verdict::Mark if limit.has_room(fifo.packets(), fifo.bytes(), item.size) => {
                        item.packet.mark_ce();
                        self.marked += 1;
                    }
                    Verdict::Mark | Verdict::Accept => {}
                }
                fifo.enqueue(limit, item, dropped);
            }
            State::FqCoDel(fq) => fq.enqueue(item, limit, dropped),
            State::Pie(fifo, pie) => {
                pie.update_until(now, fifo.front().map(|item| item.arrived));
                let verdict = pie.judge(fifo.bytes(), &item);
                if verdict == Verdict::Drop {
                    return dropped(item.packet, DropCause::Early);
                }
                let room = limit.has_room(fifo.packets(), fifo.bytes(), item.size);
                if verdict == Verdict::Mark && room {
                    item.packet.mark_ce();
                    self.marked += 1;
                }
                fifo.enqueue(limit, item, dropped);
            }
            State::DualPi2(dual) => dual.enqueue(now, item, limit, dropped),
        }
    }

    /// Packets in the queue.
    pub fn packets(&self) -> usize {
        self.length().0
    }

    /// Bytes in the queue, framing included.
    pub fn bytes(&self) -> u64 {
        self.length().1
    }

    #[inline]
    fn length(&self) -> (usize, u64) {
        let data = match &self.state {
            State::Fifo(fifo)
            | State::Red(fifo, _)
            | State::CoDel(fifo, ..)
            | State::Pie(fifo, _) => (fifo.packets(), fifo.bytes()),
            State::Drr(drr) => drr.backlog().total(),
            State::Wfq(wfq) => wfq.backlog().total(),
            State::Sfq(sfq) => sfq.backlog().total(),
            State::FqCoDel(fq) => fq.backlog().total(),
            State::DualPi2(dual) => (dual.packets(), dual.bytes()),
        };
        match &self.control {
            Some(control) => (data.0 + control.packets(), data.1 + control.bytes()),
            None => data,
        }
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0
    }

    /// Packets marked CE so far instead of dropped.
    pub fn marked(&self) -> u64 {
        self.marked
    }
}
