//! Hosts outside the simulation: real programs whose packets a driver carries in and out.
//!
//! The driver hands in each packet with the time at which it came ([`Simulation::inject_external`])
//! and takes out those that reached the end of their route ([`Simulation::take_external`]), each
//! with the time at which the network delivered it. So a simulated network on the real clock is the
//! simulated network: every link and queue is the same code, and the driver alone knows a clock.

use std::collections::VecDeque;

use super::agent::{Agent, Arrival, Buffers, Outgoing};
use super::packet::{Body, NetPacket};
use super::{Direction, Simulation};
use crate::packet::{Ecn, FlowId, Priority};
use dfcp_proto::Instant;

/// A packet of a host outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPacket {
    /// The flow whose route it takes.
    pub flow: FlowId,
    /// Which way.
    pub direction: Direction,
    /// Bytes that links count, before their framing: those of the IP packet.
    pub size: u32,
    /// The ECN codepoint; queues may have changed it on the way.
    pub ecn: Ecn,
    /// Opaque to the network.
    pub tag: u8,
    /// What the driver handed in; with one bit flipped where a link corrupted it.
    pub bytes: Vec<u8>,
}

/// Packets that left the network, in order of time.
pub(super) type Departed = VecDeque<(Instant, ExternalPacket)>;

/// The seat of a host outside.
#[derive(Debug)]
pub(super) struct External;

impl Agent for External {
    fn receive(&mut self, _: Instant, packet: Arrival, buffers: &mut Buffers) {
        // Unreachable: the engine takes packets of such seats out.
        if let Body::Datagram(bytes) = packet.body {
            buffers.give(bytes);
        }
    }
}

impl Simulation {
    /// A packet of a flow's host outside enters its route at `at`, or now where that has passed.
    /// Packets are to come in order of time.
    pub fn inject_external(&mut self, at: Instant, packet: ExternalPacket) {
        self.run_until(at);
        let seat = match packet.direction {
            Direction::Forward => 2 * packet.flow.0 as usize,
            Direction::Backward => 2 * packet.flow.0 as usize + 1,
        };
        if seat >= 2 * self.flows.len() {
            return;
        }
        let outgoing = Outgoing {
            size: packet.size,
            ecn: packet.ecn,
            priority: Priority::Data,
            route: 0,
            body: Body::Datagram(packet.bytes),
        };
        self.inject_tagged(seat, outgoing, packet.tag);
    }

    /// The next packet that reached the end of its route, and when it did.
    pub fn take_external(&mut self) -> Option<(Instant, ExternalPacket)> {
        self.departed.pop_front()
    }

    /// When something happens next: nothing comes out before.
    pub fn next_event(&self) -> Option<Instant> {
        self.schedule.peek().map(|(at, _)| at)
    }

    /// An empty buffer for a packet; those of packets that were dropped come back here.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.ends.buffers.take()
    }

    /// Takes back the buffer of a packet that left.
    pub fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.ends.buffers.give(buffer);
    }

    /// A packet reached the host outside.
    pub(super) fn leave(&mut self, packet: &NetPacket) {
        if let Body::Datagram(bytes) = self.ends.cargo.take(packet) {
            let packet = ExternalPacket {
                flow: packet.flow,
                direction: packet.direction,
                size: packet.size,
                ecn: packet.ecn,
                tag: packet.tag,
                bytes,
            };
            self.departed.push_back((self.now, packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{FlowConfig, Network, Traffic};
    use crate::link::LinkConfig;
    use crate::queue::Limit;
    use dfcp_proto::{Duration, Rate};

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    fn packet(direction: Direction, byte: u8) -> ExternalPacket {
        ExternalPacket {
            flow: FlowId(0),
            direction,
            size: 1500,
            ecn: Ecn::Ect0,
            tag: byte,
            bytes: vec![byte; 1500],
        }
    }

    /// 12 Mbit/s: a packet a millisecond; 10 ms one way; two may wait.
    fn simulation() -> Simulation {
        let mut network = Network::new(1);
        let config = LinkConfig {
            rate: Rate::from_bps(12_000_000).into(),
            delay: Duration::from_millis(10),
            queue: Limit::Packets(2).into(),
            framing: 0,
            ..LinkConfig::default()
        };
        let there = network.add_link("there", config.clone());
        let back = network.add_link("back", config);
        network.add_flow(FlowConfig {
            name: "flow".into(),
            class: 0,
            forward: vec![there],
            backward: vec![back],
            start: Instant::ZERO,
            stop: None,
            size: None,
            traffic: Traffic::External,
        });
        network.build().expect("a valid network")
    }

    #[test]
    fn packets_leave_when_the_links_deliver_them() {
        let mut simulation = simulation();
        for byte in 0..4 {
            simulation.inject_external(at(100), packet(Direction::Forward, byte));
        }
        simulation.inject_external(at(150), packet(Direction::Backward, 9));
        assert_eq!(simulation.next_event(), Some(at(11_100)));
        simulation.run_until(at(20_000));
        let left: Vec<_> = std::iter::from_fn(|| simulation.take_external()).collect();
        let seen: Vec<_> = left.iter().map(|(at, p)| (*at, p.tag)).collect();
        // The fourth found the queue full.
        let due = [(11_100, 0), (11_150, 9), (12_100, 1), (13_100, 2)];
        assert_eq!(seen, due.map(|(micros, tag)| (at(micros), tag)));
        assert_eq!(left[0].1, packet(Direction::Forward, 0));
        let counters = simulation.counters(FlowId(0));
        assert_eq!((counters.packets_sent, counters.packets_arrived), (4, 3));
        assert_eq!((counters.drops.full, counters.packets_returned), (1, 1));
        assert_eq!(simulation.next_event(), None);
    }

    #[test]
    fn a_packet_of_the_past_or_of_no_flow_does_no_harm() {
        let mut simulation = simulation();
        simulation.run_until(at(5_000));
        simulation.inject_external(at(1_000), packet(Direction::Forward, 1));
        let stranger = ExternalPacket {
            flow: FlowId(7),
            ..packet(Direction::Forward, 2)
        };
        simulation.inject_external(at(5_000), stranger);
        simulation.run_until(at(50_000));
        let (left_at, left) = simulation.take_external().expect("one packet");
        assert_eq!((left_at, left.tag), (at(16_000), 1));
        assert_eq!(simulation.take_external(), None);
    }
}
