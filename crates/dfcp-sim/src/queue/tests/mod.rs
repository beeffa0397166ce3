//! The disciplines against theory: each bound or formula is cited where it is asserted.

use std::collections::VecDeque;

use dfcp_proto::{Duration, Instant, Rate};

use super::*;
use crate::packet::{Ecn, FlowId};
use crate::random::Seed;

mod codel;
mod fair;
mod fifo;
mod fluid;
mod invariants;
mod pi;
mod priority;
mod red;

impl<P: Packet> Queue<P> {
    /// Packets of a flow in the queue.
    fn packets_of(&self, flow: FlowId) -> usize {
        let of_flow = |item: &&Queued<P>| item.packet.flow() == flow;
        let control = self.control.iter().flat_map(|control| control.iter());
        let data = match &self.state {
            State::Fifo(fifo)
            | State::Red(fifo, _)
            | State::CoDel(fifo, ..)
            | State::Pie(fifo, _) => fifo.iter().filter(of_flow).count(),
            State::Drr(drr) => drr.backlog().iter().filter(of_flow).count(),
            State::Wfq(wfq) => wfq.backlog().iter().filter(of_flow).count(),
            State::Sfq(sfq) => sfq.backlog().iter().filter(of_flow).count(),
            State::FqCoDel(fq) => fq.backlog().iter().filter(of_flow).count(),
            State::DualPi2(dual) => dual.iter().filter(of_flow).count(),
        };
        control.filter(of_flow).count() + data
    }

    /// The average queue that RED keeps, packets; `None` for other disciplines.
    fn red_average(&self) -> Option<f64> {
        match &self.state {
            State::Red(_, red) => Some(red.average()),
            _ => None,
        }
    }
}

/// A packet that is its name only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parcel {
    id: u64,
    flow: u32,
    size: u32,
    ecn: Ecn,
    priority: Priority,
}

impl Packet for Parcel {
    fn size(&self) -> u32 {
        self.size
    }
    fn flow(&self) -> FlowId {
        FlowId(self.flow)
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn priority(&self) -> Priority {
        self.priority
    }
    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    fn corrupt(&mut self, _bit: u64) {}
}

fn parcel(id: u64, flow: u32, size: u32) -> Parcel {
    Parcel {
        id,
        flow,
        size,
        ecn: Ecn::NotEct,
        priority: Priority::Data,
    }
}

fn queued(now: Instant, packet: Parcel) -> Queued<Parcel> {
    Queued {
        size: packet.size,
        packet,
        arrived: now,
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn queue(discipline: Discipline, limit: Limit, seed: u64) -> Queue<Parcel> {
    let config = QueueConfig {
        discipline,
        limit,
        ..QueueConfig::default()
    };
    config.validate().expect("a test's parameters make sense");
    Queue::new(&config, Shares::equal(), Seed(seed).stream("queue"))
}

/// Every discipline with its defaults.
fn all_disciplines() -> [Discipline; 9] {
    [
        Discipline::Fifo,
        Discipline::Drr(DrrConfig::default()),
        Discipline::Wfq(WfqConfig::default()),
        Discipline::Sfq(SfqConfig::default()),
        Discipline::Red(RedConfig::default()),
        Discipline::CoDel(CoDelConfig::default()),
        Discipline::FqCoDel(FqCoDelConfig::default()),
        Discipline::Pie(PieConfig::default()),
        Discipline::DualPi2(DualPi2Config::default()),
    ]
}

/// A queue with a transmitter behind it.
struct Server {
    queue: Queue<Parcel>,
    rate: Rate,
    transmitting: Option<(Instant, Queued<Parcel>)>,
    departed: Vec<(Instant, Parcel)>,
    dropped: Vec<(Instant, Parcel, DropCause)>,
}

impl Server {
    fn new(queue: Queue<Parcel>, rate: Rate) -> Self {
        Self {
            queue,
            rate,
            transmitting: None,
            departed: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Serves up to `now`, then takes a packet.
    fn arrive(&mut self, now: Instant, packet: Parcel) {
        self.run(now);
        let item = queued(now, packet);
        let dropped = &mut self.dropped;
        let mut record = |p: Parcel, cause| dropped.push((now, p, cause));
        if self.transmitting.is_some() {
            self.queue.enqueue(now, item, &mut record);
        } else {
            let next = self.queue.pass(now, Some(self.rate), item, &mut record);
            self.transmit(now, next);
        }
    }

    fn run(&mut self, until: Instant) {
        while let Some((now, item)) = self.transmitting.take_if(|(finish, _)| *finish <= until) {
            self.departed.push((now, item.packet));
            let dropped = &mut self.dropped;
            let mut record = |p: Parcel, cause| dropped.push((now, p, cause));
            let next = self.queue.dequeue(now, Some(self.rate), &mut record);
            self.transmit(now, next);
        }
    }

    fn transmit(&mut self, now: Instant, item: Option<Queued<Parcel>>) {
        self.transmitting = item.map(|item| {
            let time = self.rate.time_for(u64::from(item.size));
            (now + time, item)
        });
    }

    /// Packets in the queue and in the transmitter.
    fn packets(&self) -> usize {
        self.queue.packets() + usize::from(self.transmitting.is_some())
    }

    /// Bytes of a flow that have left.
    fn served(&self, flow: u32) -> u64 {
        let of_flow = self.departed.iter().filter(|(_, p)| p.flow == flow);
        of_flow.map(|(_, p)| u64::from(p.size)).sum()
    }
}

/// Packets of a flow at a constant rate, ordered by time with those of other flows.
#[derive(Clone, Copy)]
struct Constant {
    flow: u32,
    size: u32,
    every: Duration,
}

/// Feeds a server from constant sources until `end`.
fn feed(server: &mut Server, sources: &[Constant], end: Instant) {
    let mut next: Vec<Instant> = vec![Instant::ZERO; sources.len()];
    for id in 0.. {
        let first = (0..sources.len()).min_by_key(|&i| next[i]);
        let i = first.expect("a source at least");
        if next[i] >= end {
            break;
        }
        let source = sources[i];
        server.arrive(next[i], parcel(id, source.flow, source.size));
        next[i] += source.every;
    }
    server.run(end);
}
