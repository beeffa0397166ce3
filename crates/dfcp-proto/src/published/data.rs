//! What crosses between the header's emit and parse, and the two halves of the data transfer.
//!
//! Virtual payload (simulation) is [`VIRTUAL_BYTES`] long whatever it stands for: u16 symbols,
//! u32 useful bytes of the block, both big endian.

use super::config::{Acknowledge, Codec, Completion, LastPacket, Moment, Redundancy};
pub(super) use super::header::Report;
use crate::config::Payload;
use crate::time::Duration;
use dfcp_fec::raptor::{RaptorCode, RaptorParameters, State};

/// Bytes of a data packet's header.
pub(super) const DATA_HEADER: usize = 24;
/// Bytes of the length at the end of a SHORT block.
pub(super) const SHORT_LENGTH: usize = 4;
/// Bytes of a virtual payload.
pub(super) const VIRTUAL_BYTES: usize = 6;

/// What both ends settled on for one direction.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// The code's numbers.
    pub code: RaptorParameters,
    /// The code itself; virtual payload needs it for [`Completion::Structure`] only.
    pub raptor: Option<RaptorCode>,
    /// Where this direction's generator states start.
    pub initial: State,
    /// Most unacknowledged blocks, W, at least 1.
    pub window: u32,
    /// ε and how the sender keeps to it.
    pub redundancy: Redundancy,
    /// Which blocks are acknowledged.
    pub acknowledge: Acknowledge,
    /// When.
    pub moment: Moment,
    /// Whether blocks are encoded.
    pub encoding: Codec,
    /// Whether blocks are decoded.
    pub decoding: Codec,
    /// What makes a block complete that is not decoded.
    pub completion: Completion,
    /// How long a block's last packet is.
    pub last_packet: LastPacket,
    /// Bytes or sizes.
    pub payload: Payload,
    /// Whole symbols in a full packet, at least 1.
    pub symbols_per_packet: u16,
    /// Round trip of the handshake.
    pub rtt: Option<Duration>,
    /// Most bytes written and not acknowledged.
    pub send_buffer: u64,
}

impl Settled {
    /// Bytes of a block, k · T.
    pub fn block_bytes(&self) -> u32 {
        self.code.k * u32::from(self.code.symbol_size)
    }

    /// Bytes of a block's intermediate symbols, n · T.
    pub fn coded_bytes(&self) -> usize {
        self.code.n as usize * usize::from(self.code.symbol_size)
    }

    /// Symbols that are enough for a block, ⌈(1 + ε) k⌉.
    pub fn symbols_needed(&self) -> u32 {
        with_redundancy(self.code.k, self.redundancy.epsilon)
    }

    /// Packets that carry them, P.
    pub fn packets_needed(&self) -> u32 {
        self.packets(self.symbols_needed())
    }

    /// Packets that carry `symbols`.
    pub fn packets(&self, symbols: u32) -> u32 {
        symbols.div_ceil(u32::from(self.symbols_per_packet))
    }

    /// Whether blocks become bytes again: otherwise only what could be decoded is found out.
    pub fn rebuilds(&self) -> bool {
        self.payload == Payload::Real && self.decoding == Codec::On
    }

    /// Bytes of a full packet's symbols.
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.symbols_per_packet) * usize::from(self.code.symbol_size)
    }

    /// Symbols in packet `index` of a block.
    pub fn symbols_in(&self, index: u32) -> u16 {
        let full = self.symbols_per_packet;
        if self.last_packet == LastPacket::Whole {
            return full;
        }
        let before = u64::from(index) * u64::from(full);
        let left = u64::from(self.symbols_needed()).saturating_sub(before);
        match u16::try_from(left) {
            Ok(left @ 1..) => left.min(full),
            _ => full,
        }
    }
}

/// ⌈(1 + `extra`) k⌉ with `extra` taken in millionths, as the handshake carries it: no rounding
/// noise adds a symbol.
pub(super) fn with_redundancy(k: u32, extra: f64) -> u32 {
    let millionths = (extra.max(0.0) * 1e6).round() as u64;
    let more = (u64::from(k) * millionths).div_ceil(1_000_000);
    u32::try_from(u64::from(k) + more).unwrap_or(u32::MAX)
}

/// A data packet to be sent: the header's fields; the payload is in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Block and state.
    pub header: DataHeader,
    /// Bytes appended to the buffer.
    pub size: usize,
    /// Bytes that the packet stands for beyond these.
    pub elided: usize,
}

/// The fields of a data packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataHeader {
    /// Block.
    pub block: u32,
    /// Generator state at the first symbol.
    pub state: State,
    /// ECHO: answer at once.
    pub echo: bool,
    /// SHORT: the block ends with its useful length.
    pub short: bool,
}

/// What an answer to data says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckKind {
    /// BLOCK | ACK: the block is there (with [`Acknowledge::EachWindow`]: it and all before).
    Block,
    /// BLOCK | ACK | SHORT: acknowledged too early, more symbols are needed.
    More,
    /// ACK | ECHO: the packet is there.
    Echo,
}

/// An answer to a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// What it says.
    pub kind: AckKind,
    /// About which block.
    pub block: u32,
    /// State of the packet that caused it.
    pub state: State,
    /// Options; a peer may send none.
    pub report: Option<Report>,
}
