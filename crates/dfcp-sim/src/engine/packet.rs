//! What travels through the simulated network.
//!
//! Links move packets about a dozen times each, so what they move is small: what they must know,
//! and a [`Cargo`] slot that holds what the packet carries until it arrives or is dropped.

use super::{Direction, HopId};
use crate::coded::CodedPacket;
use crate::packet::{Ecn, FlowId, Packet, Priority};
use crate::tcp::Segment;

/// An IP packet of some flow, on its way along a route.
#[derive(Clone, Debug)]
pub struct NetPacket {
    /// Bytes of the IP packet.
    pub size: u32,
    /// Its flow.
    pub flow: FlowId,
    /// Where it goes next.
    pub(crate) hop: HopId,
    /// Where its body is.
    pub(crate) slot: Slot,
    /// The bit of its body that was flipped on the way; the last one counts.
    flipped: Option<u16>,
    /// Which way it goes.
    pub direction: Direction,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// Whether it may overtake data.
    pub priority: Priority,
    /// What a host outside wants to be told again.
    pub(crate) tag: u8,
}

impl NetPacket {
    pub(crate) fn new(size: u32, ecn: Ecn, flow: FlowId, direction: Direction) -> Self {
        Self {
            priority: Priority::Data,
            tag: 0,
            size,
            flow,
            hop: 0,
            slot: Slot(0),
            flipped: None,
            direction,
            ecn,
        }
    }
}

/// What an IP packet carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// A TCP segment: numbers, no bytes.
    Tcp(Segment),
    /// A datagram of cross traffic: its number in its flow.
    Udp(u64),
    /// A packet of a coded flow: coefficients, no bytes.
    Coded(Box<CodedPacket>),
    /// A datagram of a `dfcp` endpoint. With virtual payload it is shorter than the IP packet says.
    Datagram(Vec<u8>),
}

impl Body {
    fn flip(&mut self, bit: u16) {
        // TCP's checksum would find it, which is a loss that links do not see: not modelled.
        if let Self::Datagram(bytes) = self
            && !bytes.is_empty()
        {
            let at = usize::from(bit / 8) % bytes.len();
            bytes[at] ^= 1 << (bit % 8);
        }
    }
}

impl Packet for NetPacket {
    #[inline]
    fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    fn flow(&self) -> FlowId {
        self.flow
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }

    #[inline]
    fn priority(&self) -> Priority {
        self.priority
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn corrupt(&mut self, bit: u64) {
        self.flipped = Some(bit as u16);
    }
}

/// Index into [`Cargo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// The bodies of all packets on their way.
#[derive(Debug, Default)]
pub(crate) struct Cargo {
    bodies: Vec<(Body, u32)>,
    free: Vec<Slot>,
}

impl Cargo {
    /// Keeps a body for one packet.
    #[inline]
    pub fn put(&mut self, body: Body) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.bodies[slot.0 as usize] = (body, 1);
            return slot;
        }
        self.bodies.push((body, 1));
        Slot(self.bodies.len() as u32 - 1)
    }

    /// One more packet has this body.
    pub fn share(&mut self, slot: Slot) {
        self.bodies[slot.0 as usize].1 += 1;
    }

    pub fn get(&self, slot: Slot) -> &Body {
        &self.bodies[slot.0 as usize].0
    }

    /// The body of a packet that came to its end.
    #[inline]
    pub fn take(&mut self, packet: &NetPacket) -> Body {
        let (body, users) = &mut self.bodies[packet.slot.0 as usize];
        *users -= 1;
        let mut body = if *users > 0 {
            body.clone()
        } else {
            self.free.push(packet.slot);
            std::mem::replace(body, Body::Udp(0))
        };
        if let Some(bit) = packet.flipped {
            body.flip(bit);
        }
        body
    }
}
