//! What TCP puts on the wire, without its bytes.

use dfcp_proto::Instant;

/// What a segment is for. A connection has no FIN: the sender knows when all is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The sender asks for a connection.
    Syn,
    /// The receiver grants it.
    SynAck,
    /// One segment of data.
    #[default]
    Data,
    /// An acknowledgement.
    Ack,
}

/// The ECN flags of a TCP header (RFC 3168 §6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// ECN echo: the receiver saw a mark.
    pub ece: bool,
    /// Congestion window reduced: the sender saw the echo.
    pub cwr: bool,
}

/// Up to three ranges of segments that arrived beyond a gap (RFC 2018), most recent first.
///
/// Three is what fits beside a timestamp. A block is `[start, end)`; an empty one ends the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks(pub(super) [(u32, u32); 3]);

impl SackBlocks {
    /// No blocks.
    pub const NONE: Self = Self([(0, 0); 3]);

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        let (start, end) = self.0[0];
        start >= end
    }

    /// The blocks, most recent first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0
            .iter()
            .copied()
            .take_while(|(start, end)| start < end)
    }

    /// Puts `block` first, in place of those it covers; the oldest is forgotten.
    pub(super) fn push(&mut self, block: (u32, u32)) {
        let mut kept = [block, (0, 0), (0, 0)];
        let mut len = 1;
        for old in self.iter() {
            let covered = block.0 <= old.0 && old.1 <= block.1;
            if !covered && len < kept.len() {
                kept[len] = old;
                len += 1;
            }
        }
        self.0 = kept;
    }

    /// Forgets blocks that are acknowledged up to `next`.
    pub(super) fn remove_below(&mut self, next: u32) {
        let mut kept = Self::NONE;
        let mut len = 0;
        for old in self.iter() {
            if old.1 > next {
                kept.0[len] = old;
                len += 1;
            }
        }
        *self = kept;
    }
}

/// One TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Data: its time of sending (TSval). ACK: that time echoed (TSecr), by the rule of
    /// RFC 7323 §4.3. Always filled in; ends that do not use timestamps do not look at it.
    pub timestamp: Instant,
    /// Data: which segment, from zero. ACK: the next segment expected.
    pub seq: u32,
    /// Bytes of data.
    pub payload: u32,
    /// ACK: how many segments from `seq` on the receiver has room for.
    pub window: u32,
    /// ACK: what arrived beyond a gap.
    pub sack: SackBlocks,
    /// What it is for.
    pub kind: Kind,
    /// ECN flags.
    pub flags: Flags,
    /// Bytes of IP and TCP headers.
    pub header: u8,
}

impl Segment {
    /// Bytes of the IP packet.
    pub fn ip_size(&self) -> u32 {
        self.payload + u32::from(self.header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_a_cache_line() {
        assert!(size_of::<Segment>() <= 48);
    }

    #[test]
    fn newest_block_replaces_those_it_covers() {
        let mut blocks = SackBlocks::NONE;
        for block in [(2, 3), (5, 6), (8, 9), (11, 12)] {
            blocks.push(block);
        }
        assert!(blocks.iter().eq([(11, 12), (8, 9), (5, 6)]));
        blocks.push((5, 9));
        assert!(blocks.iter().eq([(5, 9), (11, 12)]));
        blocks.remove_below(9);
        assert!(blocks.iter().eq([(11, 12)]));
    }
}
