//! A packet of real bytes: what tests, the pair harness and the emulator send.

use crate::packet::{Ecn, FlowId, Packet};

/// A datagram or IP packet with its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    /// The bytes carried.
    pub data: Vec<u8>,
    /// Bytes that it stands for beyond `data`: those of virtual payload.
    pub elided: u32,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// What fair queues keep apart.
    pub flow: FlowId,
    /// Opaque to the link: whatever the caller wants to recognise the packet by.
    pub tag: u64,
}

impl Datagram {
    /// A datagram that carries `data`, not ECN-capable.
    pub fn new(data: Vec<u8>) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }
}

impl Packet for Datagram {
    fn size(&self) -> u32 {
        u32::try_from(self.data.len())
            .unwrap_or(u32::MAX)
            .saturating_add(self.elided)
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
        if !self.data.is_empty() {
            let at = (bit / 8) as usize % self.data.len();
            self.data[at] ^= 1 << (bit % 8);
        }
    }
}
