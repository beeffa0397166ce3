//! The simulation engine: nodes' routes, links, hosts and virtual time.
//!
//! One loop: the schedule says whose turn it is; a link delivers a packet to the next link of its
//! route or to the agent at its end; an agent takes it, and whatever it wants to send enters the
//! first link of its route. A link traversal is one event ([`crate::link`] says how), an agent's
//! timer another, and everything that changes by the clock (link settings, samples, the end of
//! the warm-up, a controller's orders) a third kind, the script. A sender without a pace of its own
//! is asked for a packet whenever its first link has room ([`Pace`]).
//!
//! Invariants:
//! - time is in integer nanoseconds and events are ordered by (time, sequence): the same
//!   configuration and seed give the same run, event by event;
//! - every component draws from a random stream named after it;
//! - memory holds what is in flight and the samples asked for, nothing that grows with time.

use crate::link::Link;
use crate::packet::{DropCause, Drops, Fate, FlowId};
use dfcp_proto::{Duration, Instant};
use std::ops::Sub;

mod agent;
mod clock;
mod controller;
mod dfcp;
mod external;
mod host;
mod network;
mod packet;
mod published;
mod reader;
mod schedule;
mod script;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

pub use agent::{Agent, Arrival, BlockProgress, Buffers, Outgoing, Pace, Progress};
pub use clock::{HostClock, MAX_SKEW_PPM, Readings};
pub use controller::{Claim, ControllerConfig, max_min};
pub use dfcp::{Delivery, DfcpConfig, DfcpPayload};
pub use external::ExternalPacket;
pub(crate) use network::Chain;
pub use network::{FlowConfig, FlowInfo, LinkId, Network, NetworkError, Traffic};
pub use packet::{Body, NetPacket};
pub use published::PublishedConfig;
pub use reader::{Reader, ReadingRates};
pub use tcp::TcpConfig;
pub use udp::{Lengths, UdpConfig, UdpPattern, UdpSource};

use controller::Controller;
use packet::Cargo;
use schedule::Schedule;
use script::Act;

/// Index into [`Simulation::hops`]: the next stop of a packet.
pub(crate) type HopId = u32;

/// A stop of a route; routes lie behind each other, each ends at an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hop {
    Link(u32),
    Agent(u32),
}

/// Which way a packet of a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the source to the sink: data.
    Forward,
    /// Back: acknowledgements.
    Backward,
}

/// What the packets of one flow did; IP bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowCounters {
    /// Packets that the source sent.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets that reached the sink.
    pub packets_arrived: u64,
    /// Their bytes.
    pub bytes_arrived: u64,
    /// Packets of the source dropped or lost on the way, by cause.
    pub drops: Drops,
    /// Packets that the sink sent back.
    pub packets_returned: u64,
    /// Their bytes.
    pub bytes_returned: u64,
    /// Bytes of use to the application that the sink got.
    pub delivered: u64,
}

impl Sub for FlowCounters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            packets_sent: self.packets_sent - earlier.packets_sent,
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            packets_arrived: self.packets_arrived - earlier.packets_arrived,
            bytes_arrived: self.bytes_arrived - earlier.bytes_arrived,
            drops: self.drops - earlier.drops,
            packets_returned: self.packets_returned - earlier.packets_returned,
            bytes_returned: self.bytes_returned - earlier.bytes_returned,
            delivered: self.delivered - earlier.delivered,
        }
    }
}

#[derive(Debug)]
struct Seat {
    agent: Box<dyn Agent>,
    flow: FlowId,
    /// At least one.
    routes: Vec<Route>,
    pace: Pace,
    /// Packets that it has at its first link, where that paces it.
    first_link: u32,
    /// Whether its host is outside the simulation.
    outside: bool,
}

/// A way that packets of an agent take.
#[derive(Clone, Copy, Debug)]
struct Route {
    start: HopId,
    direction: Direction,
}

/// No seat, in [`Ends::paced`].
const NO_SEAT: u32 = u32::MAX;

/// Packets that a sender paced by its first link has there: one in the transmitter and one behind
/// it, so that the link never idles and no queue forms.
const AT_FIRST_LINK: u32 = 2;

/// Goodput over time: bytes of use to the application, cumulative, one number per interval.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Between two numbers; zero for none at all.
    pub interval: Duration,
    /// For each flow, what it had delivered at the end of each interval.
    pub delivered: Vec<Vec<u64>>,
    /// For each flow, the bytes that had arrived by then, headers and repetitions among them.
    pub arrived: Vec<Vec<u64>>,
    /// For each watched link, what happened in each interval.
    pub links: Vec<(LinkId, Vec<LinkSample>)>,
}

/// What happened on a link in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSample {
    /// Packets handed to it.
    pub packets_in: u64,
    /// Packets dropped by it, for any cause.
    pub dropped: u64,
    /// Packets that wait at its end.
    pub queued: u64,
}

/// Watches every packet that a source or sink sends or receives.
pub type Observer = Box<dyn FnMut(PacketEvent<'_>) + Send>;

/// A packet at one end of its route.
#[derive(Debug)]
pub struct PacketEvent<'a> {
    /// When.
    pub at: Instant,
    /// Which end.
    pub end: End,
    /// The host there: after it sent the packet, before it takes it in.
    pub host: &'a dyn Agent,
    /// The packet.
    pub packet: &'a NetPacket,
    /// What it carries.
    pub body: &'a Body,
}

/// Where on its route a packet is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It leaves its sender.
    Sent,
    /// It reached its receiver.
    Received,
}

/// Where packets begin and end, so also what becomes of those that links do not just pass on.
struct Ends {
    /// Source and sink of each flow in turn, then relays.
    seats: Vec<Seat>,
    /// By the hop behind a first link that paces a seat: which.
    paced: Vec<u32>,
    counters: Vec<FlowCounters>,
    cargo: Cargo,
    buffers: Buffers,
}

impl Fate<NetPacket> for Ends {
    fn departed(&mut self, packet: &NetPacket) {
        let seat = self.paced[packet.hop as usize];
        if seat != NO_SEAT {
            self.seats[seat as usize].first_link -= 1;
        }
    }

    fn dropped(&mut self, packet: NetPacket, cause: DropCause) {
        // What a queue drops will not depart; what is lost has.
        if cause != DropCause::Loss {
            self.departed(&packet);
        }
        if packet.direction == Direction::Forward {
            self.counters[packet.flow.0 as usize].drops.count(cause);
        }
        if let Body::Datagram(bytes) = self.cargo.take(&packet) {
            self.buffers.give(bytes);
        }
    }

    fn duplicated(&mut self, packet: &NetPacket) {
        self.cargo.share(packet.slot);
    }
}

/// A network with its hosts, at some moment. Made by [`Network::build`].
pub struct Simulation {
    now: Instant,
    schedule: Schedule,
    links: Vec<Link<NetPacket>>,
    ends: Ends,
    hops: Vec<Hop>,
    /// Latest last.
    script: Vec<(Instant, Act)>,
    next_sample: Option<Instant>,
    samples: Samples,
    /// Packets in and dropped at each watched link when it was last sampled.
    sampled: Vec<(u64, u64)>,
    flows: Vec<FlowInfo>,
    /// When the warm-up ended, and the counters then.
    warm: (Instant, Vec<FlowCounters>),
    controller: Option<Controller>,
    events: u64,
    observer: Option<Observer>,
    /// Packets for hosts outside.
    departed: external::Departed,
    /// Whether the hosts were asked what they send at time zero: an observer is to see it.
    started: bool,
}

impl Simulation {
    /// The time reached.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The flows, in order of their identifiers.
    pub fn flows(&self) -> &[FlowInfo] {
        &self.flows
    }

    /// What a flow did since the start of the run.
    pub fn counters(&self, flow: FlowId) -> FlowCounters {
        FlowCounters {
            delivered: self.sink(flow).progress().delivered,
            ..self.ends.counters[flow.0 as usize]
        }
    }

    /// What a flow did since the warm-up ended.
    pub fn counters_since_warm_up(&self, flow: FlowId) -> FlowCounters {
        self.counters(flow) - self.warm.1[flow.0 as usize]
    }

    /// When the warm-up ended.
    pub fn warm_since(&self) -> Instant {
        self.warm.0
    }

    /// A flow's sending end.
    pub fn source(&self, flow: FlowId) -> &dyn Agent {
        &*self.ends.seats[2 * flow.0 as usize].agent
    }

    /// A flow's receiving end.
    pub fn sink(&self, flow: FlowId) -> &dyn Agent {
        &*self.ends.seats[2 * flow.0 as usize + 1].agent
    }

    /// A link.
    pub fn link(&self, link: LinkId) -> &Link<NetPacket> {
        &self.links[link.0 as usize]
    }

    /// All links, in order of their identifiers.
    pub fn links(&self) -> &[Link<NetPacket>] {
        &self.links
    }

    /// The samples so far.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Shows every packet that a host sends or receives to `observer`.
    pub fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Whether every flow that has an end has reached it.
    pub fn all_finished(&self) -> bool {
        self.flows
            .iter()
            .filter(|flow| flow.size.is_some())
            .all(|flow| self.sink(flow.id).progress().finished.is_some())
    }

    /// Runs until `end`, what happens at `end` included.
    pub fn run_until(&mut self, end: Instant) {
        if !self.started {
            self.started = true;
            (0..self.ends.seats.len()).for_each(|seat| self.pump(seat));
        }
        while let Some((at, component)) = self.schedule.peek() {
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            self.events += 1;
            let component = component as usize;
            if component < self.links.len() {
                self.deliver(component);
            } else if component < self.links.len() + self.ends.seats.len() {
                self.wake(component - self.links.len());
            } else {
                self.act();
            }
        }
        self.now = self.now.max(end);
    }

    /// A link has a packet at its end, or had until it was lost.
    fn deliver(&mut self, link: usize) {
        let delivered = self.links[link].poll_with(self.now, &mut self.ends);
        self.schedule.set(link as u32, self.links[link].poll_at());
        if let Some((_, packet)) = delivered {
            self.forward(packet);
        }
    }

    /// Takes a packet to its next stop.
    fn forward(&mut self, mut packet: NetPacket) {
        match self.hops[packet.hop as usize] {
            Hop::Link(link) => {
                packet.hop += 1;
                let next = &mut self.links[link as usize];
                next.send_with(self.now, packet, &mut self.ends);
                self.schedule.set(link, next.poll_at());
            }
            Hop::Agent(seat) => self.arrive(seat as usize, &packet),
        }
    }

    fn arrive(&mut self, seat: usize, packet: &NetPacket) {
        // The agent that sends backwards is the sink: it receives what goes forward.
        let at_end = self.is_end(seat);
        if at_end && packet.direction == Direction::Forward {
            let counters = &mut self.ends.counters[packet.flow.0 as usize];
            counters.packets_arrived += 1;
            counters.bytes_arrived += u64::from(packet.size);
        }
        self.show(seat, packet, End::Received);
        if self.ends.seats[seat].outside {
            return self.leave(packet);
        }
        let arrival = Arrival {
            size: packet.size,
            ecn: packet.ecn,
            body: self.ends.cargo.take(packet),
        };
        let agent = &mut self.ends.seats[seat].agent;
        agent.receive(self.now, arrival, &mut self.ends.buffers);
        self.pump(seat);
        if self.controller.is_some() && at_end && packet.direction == Direction::Forward {
            self.watch(packet.flow);
        }
    }

    /// Whether a seat is a flow's source or sink, not a relay.
    fn is_end(&self, seat: usize) -> bool {
        seat < 2 * self.flows.len()
    }

    fn show(&mut self, seat: usize, packet: &NetPacket, end: End) {
        if !self.is_end(seat) {
            return;
        }
        if let Some(observer) = &mut self.observer {
            observer(PacketEvent {
                at: self.now,
                end,
                host: &*self.ends.seats[seat].agent,
                packet,
                body: self.ends.cargo.get(packet.slot),
            });
        }
    }

    fn wake(&mut self, seat: usize) {
        self.ends.seats[seat].agent.timeout(self.now);
        self.pump(seat);
    }

    /// Sends what an agent wants to send, and notes when it wants to wake.
    fn pump(&mut self, seat: usize) {
        let held = loop {
            if let Some(free) = self.held_until(seat) {
                break Some(free);
            }
            let agent = &mut self.ends.seats[seat].agent;
            match agent.poll_transmit(self.now, &mut self.ends.buffers) {
                Some(outgoing) => self.inject(seat, outgoing),
                None => break None,
            }
        };
        let component = (self.links.len() + seat) as u32;
        let wake = self.ends.seats[seat].agent.poll_timeout();
        // While it is held back, what it would send now waits.
        let wake = wake.filter(|&at| held.is_none() || at > self.now);
        let wake = wake.into_iter().chain(held).min();
        // An agent that asks for the past is woken now: time does not go back.
        self.schedule.set(component, wake.map(|t| t.max(self.now)));
    }

    /// When the first link may take another packet of this sender; `None` for now.
    #[inline]
    fn held_until(&mut self, seat: usize) -> Option<Instant> {
        if self.ends.seats[seat].first_link < AT_FIRST_LINK {
            return None;
        }
        let Hop::Link(link) = self.hops[self.ends.seats[seat].routes[0].start as usize] else {
            return None;
        };
        let link = &mut self.links[link as usize];
        link.run(self.now, &mut self.ends);
        let next = link.next_departure();
        next.filter(|_| self.ends.seats[seat].first_link >= AT_FIRST_LINK)
    }

    fn inject(&mut self, seat: usize, outgoing: Outgoing) {
        self.inject_tagged(seat, outgoing, 0);
    }

    fn inject_tagged(&mut self, seat: usize, outgoing: Outgoing, tag: u8) {
        let Outgoing {
            size,
            ecn,
            priority,
            route,
            body,
        } = outgoing;
        let at_end = self.is_end(seat);
        let Seat {
            flow,
            ref routes,
            ref mut first_link,
            pace,
            ..
        } = self.ends.seats[seat];
        *first_link += u32::from(pace == Pace::FirstLink && route == 0);
        let Route { start, direction } = routes[usize::from(route)];
        let counters = &mut self.ends.counters[flow.0 as usize];
        match direction {
            _ if !at_end => {}
            Direction::Forward => {
                counters.packets_sent += 1;
                counters.bytes_sent += u64::from(size);
            }
            Direction::Backward => {
                counters.packets_returned += 1;
                counters.bytes_returned += u64::from(size);
            }
        }
        let mut packet = NetPacket::new(size, ecn, flow, direction);
        packet.hop = start;
        packet.priority = priority;
        packet.tag = tag;
        packet.slot = self.ends.cargo.put(body);
        self.show(seat, &packet, End::Sent);
        self.forward(packet);
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("now", &self.now)
            .field("events", &self.events)
            .field("flows", &self.flows.len())
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}
