//! SYMBOL frames: one symbol, with the whole description of its block.
//!
//! Almost all packets of a transfer are one such frame, so the usual block, of up to 256 symbols,
//! has a short form: the number of symbols and the padding in a byte each, and two bytes of ESI.
//! A sender of such blocks starts again at ESI 0 when it has used them all: by then that is as
//! good as a new one.

use super::codec::{Reader, WireError, varint_len, write_varint};
use dfcp_fec::{MAX_ESI, SchemeId};

/// First types of the two forms; the low three bits are the scheme.
pub(super) const SYMBOL: u8 = 0x08;
pub(super) const SYMBOL_LAST: u8 = SYMBOL | 7;
pub(super) const SHORT_SYMBOL: u8 = 0x18;
pub(super) const SHORT_SYMBOL_LAST: u8 = SHORT_SYMBOL | 7;

/// Most symbols of a block in the short form.
const SHORT_K: u64 = 256;
/// Type, K, padding and ESI of the short form.
const SHORT_FIXED_LEN: usize = 1 + 1 + 1 + 2;
/// Type and ESI of the long form.
const LONG_FIXED_LEN: usize = 1 + 3;

/// How many source bytes a block has, as its symbols say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockLen {
    /// In bytes.
    Bytes(u64),
    /// `k` symbols, of which the last ends in `padding` bytes that are not the block's.
    Symbols {
        /// Source symbols, 1 to 256.
        k: u16,
        /// Bytes.
        padding: u8,
    },
}

impl BlockLen {
    /// The shortest way to say `block_len` bytes in symbols of `symbol_len`.
    pub fn new(block_len: u64, symbol_len: usize) -> Self {
        let symbol = symbol_len.max(1) as u64;
        let k = block_len.div_ceil(symbol);
        match (u16::try_from(k), u8::try_from(k * symbol - block_len)) {
            (Ok(k @ 1..=256), Ok(padding)) => Self::Symbols { k, padding },
            _ => Self::Bytes(block_len),
        }
    }

    /// Source bytes of a block with symbols of `symbol_len`; `None` if there is no such block.
    pub fn bytes(self, symbol_len: usize) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Symbols { k, padding } => {
                let symbol = symbol_len as u64;
                let padding = Some(u64::from(padding)).filter(|padding| *padding < symbol)?;
                Some(u64::from(k) * symbol - padding)
            }
        }
    }
}

/// A symbol frame without its symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolHeader {
    /// Code of the block.
    pub scheme: SchemeId,
    /// Channel of the block.
    pub channel: u64,
    /// Where the block starts in its channel; names the block.
    pub offset: u64,
    /// How long the block is.
    pub block: BlockLen,
    /// Encoding symbol ID, below [`esi_space`].
    pub esi: u32,
}

impl SymbolHeader {
    /// Reads what follows the type `kind`.
    pub(super) fn parse(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        let scheme = SchemeId::try_from(kind & 7).map_err(|_| WireError::UnknownType(kind))?;
        let (channel, offset) = (r.varint()?, r.varint()?);
        let (block, esi) = if kind < SHORT_SYMBOL {
            (BlockLen::Bytes(r.varint()?), r.u24()?)
        } else {
            let (k, padding) = (u16::from(r.u8()?) + 1, r.u8()?);
            (BlockLen::Symbols { k, padding }, u32::from(r.u16()?))
        };
        Ok(Self {
            scheme,
            channel,
            offset,
            block,
            esi,
        })
    }

    /// Appends it; the symbol itself follows.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = match self.block {
            BlockLen::Bytes(_) => SYMBOL,
            BlockLen::Symbols { .. } => SHORT_SYMBOL,
        };
        out.push(start | self.scheme as u8);
        write_varint(out, self.channel);
        write_varint(out, self.offset);
        let esi = self.esi.to_be_bytes();
        match self.block {
            BlockLen::Bytes(bytes) => {
                write_varint(out, bytes);
                out.extend_from_slice(&esi[1..]);
            }
            BlockLen::Symbols { k, padding } => {
                out.extend_from_slice(&[k.wrapping_sub(1) as u8, padding]);
                out.extend_from_slice(&esi[2..]);
            }
        }
    }
}

/// Bytes of a symbol frame before its symbol, for a block of `k` symbols with less than a byte of
/// padding a symbol.
pub fn symbol_overhead(channel: u64, offset: u64, k: u32, block_len: u64) -> usize {
    let numbers = varint_len(channel) + varint_len(offset);
    if u64::from(k) <= SHORT_K {
        SHORT_FIXED_LEN + numbers
    } else {
        LONG_FIXED_LEN + numbers + varint_len(block_len)
    }
}

/// How many ESIs there are for a block of `k` symbols.
pub fn esi_space(k: u32) -> u32 {
    if u64::from(k) <= SHORT_K {
        1 << 16
    } else {
        MAX_ESI + 1
    }
}

/// Bytes that stand for a symbol of `len` bytes with virtual payload.
pub fn virtual_symbol_size(len: usize) -> usize {
    len.min(2)
}

/// Appends what stands for a symbol of `len` bytes with virtual payload: its length in two bytes,
/// or one zero byte for a symbol of one byte.
pub fn emit_virtual_symbol(out: &mut Vec<u8>, len: usize) {
    let length = (len as u16).to_be_bytes();
    out.extend_from_slice(&length[..virtual_symbol_size(len)]);
}

/// Bytes of the symbol that `data` stands for.
pub fn virtual_symbol_len(data: &[u8]) -> Option<usize> {
    match *data {
        [_] => Some(1),
        [high, low] => Some(usize::from(u16::from_be_bytes([high, low]))).filter(|&len| len >= 2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, FrameIter};
    use super::*;

    #[test]
    fn block_lengths_survive_the_wire_in_the_shortest_form() {
        for (len, symbol, short) in [
            (1, 1, true),
            (183_040, 1430, true),
            (183_039, 1430, true),
            (256 * 1430, 1430, true),
            (256 * 1430 + 1, 1430, false),
            (1430 * 127 + 1, 1430, false), // more padding than a byte tells
            (0, 1, false),
        ] {
            let block = BlockLen::new(len, symbol);
            assert_eq!(matches!(block, BlockLen::Symbols { .. }), short, "{len}");
            assert_eq!(block.bytes(symbol), Some(len));
            let header = SymbolHeader {
                scheme: SchemeId::Dense,
                channel: 70,
                offset: 1 << 29,
                block,
                esi: 0xfffe,
            };
            let (mut out, data) = (Vec::new(), vec![7; symbol]);
            header.emit(&mut out);
            out.extend_from_slice(&data);
            let frame = FrameIter::new(&out).next();
            assert_eq!(
                frame,
                Some(Ok(Frame::Symbol {
                    header,
                    data: &data
                }))
            );
        }
    }

    #[test]
    fn symbols_of_every_code_survive_the_wire_in_both_forms() {
        use SchemeId::{Arq, Dense, Raptor, RaptorQ, Rlnc};
        for scheme in [Arq, Dense, Raptor, RaptorQ, Rlnc] {
            for (block, esi) in [
                (BlockLen::Symbols { k: 1, padding: 0 }, 0xffff),
                (BlockLen::Bytes(1 << 20), 0xff_ffff),
            ] {
                let header = SymbolHeader {
                    scheme,
                    channel: 1,
                    offset: 2,
                    block,
                    esi,
                };
                let mut out = Vec::new();
                header.emit(&mut out);
                out.push(9);
                let frame = FrameIter::new(&out).next();
                let data = &[9][..];
                assert_eq!(frame, Some(Ok(Frame::Symbol { header, data })));
            }
        }
    }

    /// Wire specification: two bytes of ESI in the short form, three in the long one.
    #[test]
    fn a_block_has_as_many_symbols_as_its_form_numbers() {
        let spaces = [1, 255, 256, 257, 8192].map(esi_space);
        assert_eq!(spaces, [1 << 16, 1 << 16, 1 << 16, 1 << 24, 1 << 24]);
    }

    #[test]
    fn padding_of_a_whole_symbol_is_no_block() {
        let block = BlockLen::Symbols { k: 2, padding: 100 };
        assert_eq!(block.bytes(100), None);
        assert_eq!(block.bytes(101), Some(102));
    }

    #[test]
    fn overhead_is_what_is_written() {
        for (channel, offset, len, symbol) in [
            (0, 0, 1, 1),
            (70, 20_000, 100_000, 1000),
            (1 << 20, 1 << 40, 1 << 20, 1000),
        ] {
            let mut out = Vec::new();
            let header = SymbolHeader {
                scheme: SchemeId::Dense,
                channel,
                offset,
                block: BlockLen::new(len, symbol),
                esi: 9,
            };
            header.emit(&mut out);
            let k = len.div_ceil(symbol as u64) as u32;
            assert_eq!(out.len(), symbol_overhead(channel, offset, k, len));
        }
    }

    #[test]
    fn virtual_symbols_keep_their_length() {
        for len in [1, 2, 3, 1430, usize::from(u16::MAX)] {
            let mut out = Vec::new();
            emit_virtual_symbol(&mut out, len);
            assert_eq!(virtual_symbol_len(&out), Some(len));
            assert_eq!(out.len(), virtual_symbol_size(len));
        }
        for wrong in [&[][..], &[0, 1], &[0, 0], &[1, 2, 3]] {
            assert_eq!(virtual_symbol_len(wrong), None);
        }
    }
}
