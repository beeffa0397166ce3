//! The sealed wire: packets that cross the network and the frames inside them.
//!
//! Specified in `docs/spec/wire.md`. Parsing is total: any byte string gives a value or a
//! [`WireError`], never a panic, and borrows from the datagram instead of copying it.

mod codec;
mod frame;
mod header;
mod params;

pub use codec::{Reader, WireError, varint_len, write_varint};
pub use frame::{AckRanges, BlockReport, Frame, FrameIter, SYMBOL_FIXED_LEN, symbol_overhead};
pub use header::{
    Ack, CID_LEN, COOKIE_LEN, ConnectionId, Packet, RESET_TOKEN_LEN, SEALED_HEADER_LEN, Sealed,
    Syn, SynAck, TAG_LEN, VERSION, emit_reset, emit_sealed_header, emit_version,
};
pub use params::TransportParams;
