//! Blocks as large as suits what is sent (DFCP-J §4.5: "the block size can also be flexibly set").
//!
//! A short object goes into one block that it fills; a long transfer into larger blocks, of which
//! fewer symbols are sent in vain: what is sent until an ACK comes does not grow with the block.

use super::config::BlockSize;
use super::data::SHORT_LENGTH;
use dfcp_fec::raptor::RaptorParameters;

/// A block of a long transfer, in blocks of one byte a symbol.
const LARGE: u64 = 16;
/// The code needs a little more redundancy for fewer symbols than these.
const MIN_SYMBOLS: u64 = 4096;

impl BlockSize {
    /// The code for it: `code`, or one with as many symbols at most, the same share of check
    /// nodes, and other k and T.
    pub(super) fn apply(self, code: &RaptorParameters) -> RaptorParameters {
        let Self::Flexible { bytes } = self else {
            return code.clone();
        };
        let most = u64::from(code.k).max(1);
        let bytes = bytes.saturating_add(SHORT_LENGTH as u64);
        let blocks = bytes.div_ceil(LARGE * most);
        let block = bytes.div_ceil(blocks);
        let symbol_size = block.div_ceil(most);
        let k = block.div_ceil(symbol_size).max(MIN_SYMBOLS.min(most));
        let checks = (u64::from(code.n.saturating_sub(code.k)) * k).div_ceil(most);
        // Both fit: k is at most the code's, T at most LARGE.
        RaptorParameters {
            k: k as u32,
            n: (k + checks) as u32,
            symbol_size: symbol_size as u16,
            ..code.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_fec::raptor::State;

    #[test]
    fn objects_fill_their_blocks_and_long_transfers_get_larger_ones() {
        let published = RaptorParameters::published(State::from_seed(1));
        for bytes in [
            0,
            1,
            5000,
            63_532,
            63_533,
            150_000,
            1 << 20,
            5 << 30,
            u64::MAX,
        ] {
            let code = BlockSize::Flexible { bytes }.apply(&published);
            code.check().expect("a code");
            let block = u64::from(code.k) * u64::from(code.symbol_size);
            let blocks = bytes.saturating_add(4).div_ceil(block);
            let padding = blocks.saturating_mul(block).saturating_sub(bytes);
            let allowed = 4 + blocks.saturating_mul(u64::from(code.symbol_size) + 1);
            assert!(padding <= allowed.max(4096), "{bytes}: {padding}");
            assert!(bytes > 1_000_000 || blocks == 1, "{bytes}: {blocks}");
            assert!(bytes < 1 << 30 || block > 1_000_000, "{bytes}: {block}");
        }
        assert_eq!(BlockSize::Fixed.apply(&published), published);
    }
}
