//! What crosses between the header's emit and parse, and the two halves of the data transfer.
//!
//! Virtual payload (simulation) is [`VIRTUAL_BYTES`] long whatever it stands for: u16 symbols,
//! u32 useful bytes of the block, both big endian.

use super::code::{Code, Coder, FREE_PACKETS, PacketName};
use super::config::{Acknowledge, Codec, Completion, LastPacket, Moment, Redundancy};
pub(super) use super::header::Report;
use crate::config::Payload;
use crate::time::Duration;
use dfcp_fec::raptor::State;

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
    pub code: Code,
    /// The code itself; virtual payload needs it for [`Completion::Structure`] only.
    pub coder: Option<Coder>,
    /// Where this direction's generator states start.
    pub initial: State,
    /// Most unacknowledged blocks, W, at least 1: what the receiver keeps.
    pub window: u32,
    /// Most blocks that are sent at once, at least 1.
    pub at_once: u32,
    /// What is sent, if its length is known beforehand.
    pub message: Option<Message>,
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
    /// Bytes of a full block, k · T.
    pub fn block_bytes(&self) -> u32 {
        self.code.k() * u32::from(self.code.symbol_size())
    }

    /// Most packets of a block that are noted. A sender that fills its packets needs fewer, though they be a
    /// quarter as long as ours or as a kilobyte; with less in each, what is noted of them would cost more
    /// than the block.
    pub fn most_packets(&self) -> u64 {
        let symbol = u64::from(self.code.symbol_size());
        let least = (self.payload_bytes() as u64).min(1024) / 4;
        let bytes = self.code.most_symbols() * symbol;
        FREE_PACKETS + bytes.div_ceil(least.max(symbol))
    }

    /// How a block that is not full is filled up.
    pub fn padding(&self) -> Padding {
        match (&self.code, self.message) {
            (Code::RaptorQ { symbol_size, .. }, _) => Padding::Symbol(*symbol_size),
            (_, Some(_)) => Padding::Block,
            (_, None) => Padding::Length,
        }
    }

    /// Symbols that are enough for a block with `useful` bytes, ⌈(1 + ε) k⌉.
    pub fn symbols_needed(&self, useful: u32) -> u32 {
        with_redundancy(self.code.symbols_of(useful), self.redundancy.epsilon)
    }

    /// Packets that carry them, P.
    pub fn packets_needed(&self, useful: u32) -> u32 {
        self.packets(self.symbols_needed(useful))
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
        usize::from(self.symbols_per_packet) * usize::from(self.code.symbol_size())
    }

    /// Symbols in packet `index` of a block with `useful` bytes.
    pub fn symbols_in(&self, index: u32, useful: u32) -> u16 {
        let full = self.symbols_per_packet;
        if self.last_packet == LastPacket::Whole {
            return full;
        }
        let before = u64::from(index) * u64::from(full);
        let left = u64::from(self.symbols_needed(useful)).saturating_sub(before);
        match u16::try_from(left) {
            Ok(left @ 1..) => left.min(full),
            _ => full,
        }
    }

    /// The state of packet `index` of block `block` with `useful` bytes.
    pub fn state(&self, block: u32, index: u32, useful: u32) -> State {
        let name = PacketName {
            block,
            index,
            symbols: self.symbols_per_packet,
            useful,
        };
        self.code.words(self.initial, name)
    }
}

/// How a block that is not full is filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// To a full one that ends with its length (SHORT).
    Length,
    /// To a full one: the message's length tells how much is useful.
    Block,
    /// To whole symbols of this many bytes; packets say how much is useful.
    Symbol(u16),
}

/// A transfer whose length both sides know from the handshake (RC-UDP §IV-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its bytes, S_m.
    pub bytes: u64,
    /// Its blocks, N.
    pub blocks: u32,
    /// Bytes of a block, B.
    pub block: u32,
}

impl Message {
    /// The message of `bytes` in blocks of `code`; `None` if it has too many.
    pub fn new(bytes: u64, code: &Code) -> Option<Self> {
        let block = u32::try_from(code.block_bytes()).ok().filter(|&b| b > 0)?;
        let blocks = u32::try_from(bytes.div_ceil(block.into())).ok()?;
        (blocks < u32::MAX - 1).then_some(Self {
            bytes,
            blocks,
            block,
        })
    }

    /// Whether N blocks of K symbols of L bytes are what S_m bytes fill.
    pub fn agrees_with(&self, code: &Code) -> bool {
        Self::new(self.bytes, code) == Some(*self)
    }

    /// Useful bytes of a block; `None` beyond the last.
    pub fn useful(&self, block: u32) -> Option<u32> {
        let before = u64::from(block) * u64::from(self.block);
        let left = self.bytes.checked_sub(before).filter(|&left| left > 0)?;
        Some(u32::try_from(left).map_or(self.block, |left| left.min(self.block)))
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
