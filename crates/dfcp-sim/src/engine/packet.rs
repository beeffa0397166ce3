//! What travels through the simulated network.

use super::{Direction, HopId};
use crate::packet::{Ecn, FlowId, Packet};
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
    /// Which way it goes.
    pub direction: Direction,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// What it carries.
    pub body: Body,
}

/// What an IP packet carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// A TCP segment: numbers, no bytes.
    Tcp(Segment),
    /// A datagram of cross traffic: its number in its flow.
    Udp(u64),
    /// A datagram of a `dfcp` endpoint. With virtual payload it is shorter than the IP packet says.
    Datagram(Vec<u8>),
}

impl Packet for NetPacket {
    fn size(&self) -> u32 {
        self.size
    }

    fn flow(&self) -> FlowId {
        self.flow
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn corrupt(&mut self, bit: u64) {
        // TCP's checksum finds it, which is a loss that links do not see: not modelled.
        if let Body::Datagram(bytes) = &mut self.body
            && !bytes.is_empty()
        {
            let at = (bit / 8) as usize % bytes.len();
            bytes[at] ^= 1 << (bit % 8);
        }
    }
}
