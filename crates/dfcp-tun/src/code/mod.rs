//! A sliding-window random linear code over GF(256) across packets, in the manner of RFC 8681: packets
//! leave as they are, and repair symbols, random combinations of those of the last moments, leave
//! between them. No I/O and no clock: time is an argument, the time since any moment.
//!
//! What a datagram holds is specified in `docs/spec/tun.md`.

mod decoder;
mod encoder;
mod protection;
#[cfg(test)]
mod tests;

pub use decoder::{Counts, Decoder};
pub use encoder::{Encoder, Path};

use dfcp_fec::repair_coefficients;

/// Source symbols that a repair symbol combines, at most. More would lower the overhead little (at 5 % of
/// loss 9.4 % instead of 11.3 % for twice as many), and cost time in proportion.
pub const WINDOW: usize = 256;

/// Bytes of a row: a symbol with its head, and zeros. A datagram has less on paths of Ethernet's 1500.
const ROW: usize = 1536;
/// Of a symbol before its bytes: their number (16 bits), what they are ([`Kind`]).
const SYMBOL_HEAD: usize = 3;
/// Of a datagram before a source symbol's bytes: what they are, the symbol's number.
const SOURCE_HEAD: usize = 5;
/// Of a datagram before a combination: what it is, first number, how many less one, key.
const REPAIR_HEAD: usize = 8;
/// First byte of a repair symbol's datagram.
const REPAIR: u8 = 3;

/// Bytes of the largest piece of a packet that a datagram of so many bytes can carry, itself and combined.
pub fn max_piece(datagram: usize) -> usize {
    let room = datagram.saturating_sub(REPAIR_HEAD + SYMBOL_HEAD);
    room.min(ROW - SYMBOL_HEAD)
}

/// What a source symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A packet.
    Whole = 0,
    /// The first part of a packet; the rest is the next symbol.
    Head = 1,
    /// The rest.
    Tail = 2,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Whole),
            1 => Some(Self::Head),
            2 => Some(Self::Tail),
            _ => None,
        }
    }
}

/// Numbers of `0..ROWS`, to pick rows by.
const ROWS: [u16; 512] = {
    let mut rows = [0; 512];
    let mut i = 0;
    while i < rows.len() {
        rows[i] = i as u16;
        i += 1;
    }
    rows
};

/// Coefficients of the symbols that the repair symbol combines which begins at `first` and has this key.
fn coefficients(first: u32, key: u16, out: &mut [u8]) {
    repair_coefficients(u64::from(first), u32::from(key), out);
}

/// `row ← row ⊕ bytes`.
fn add(row: &mut [u8], bytes: &[u8]) {
    for (a, b) in row.iter_mut().zip(bytes) {
        *a ^= b;
    }
}
