//! What the receiver has seen of the path, for its answers.

use super::super::data::Report;
use crate::time::Instant;

/// ECN codepoint Congestion Experienced.
const CE: u8 = 0b11;

/// Counts of data packets, duplicates and those of no use included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    packets: u32,
    bytes: u64,
    ce: u32,
}

impl Arrivals {
    /// A packet of `bytes`, header included, arrived.
    pub fn count(&mut self, ecn: u8, bytes: u64) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes += bytes;
        self.ce = self.ce.wrapping_add(u32::from(ecn & CE == CE));
    }

    /// The options of an answer; what is not about the path is left at 0.
    pub fn report(&self, now: Instant) -> Report {
        Report {
            packets: self.packets,
            bytes: self.bytes,
            ce: self.ce,
            clock: now.as_nanos(),
            ..Report::default()
        }
    }
}
