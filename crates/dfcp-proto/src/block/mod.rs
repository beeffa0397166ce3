//! Channels and their blocks: application bytes on one side, symbols on the other.
//!
//! A channel is a stream (both directions, in order) or an object (one direction, blocks complete
//! in any order). Its bytes are cut into blocks; a block is named by the offset where it starts,
//! and carries its geometry in every symbol frame.

mod buffers;
mod channel;
mod credit;
mod done;
mod gaps;
#[cfg(test)]
mod pair;
mod parts;
mod recv;
mod reliability;
mod send;
mod solve;

pub use buffers::Buffers;
pub use channel::{ChannelId, ChannelKind, Role, SHORT_MESSAGE};
pub(crate) use credit::square;
pub use credit::{Ahead, Beside, Credit, Lease, MemoryBudget};
pub use parts::{Part, Parts};
pub use recv::{Received, RecvChannel, SymbolIn};
pub use reliability::{GivenUp, Reliability, Skip};
pub use send::{BlockSizes, Cut, Cutter, SendChannel, Source, SymbolOut};
pub use solve::{SolveBudget, SolveJob};

use dfcp_fec::{BlockSpec, FecError, SchemeId};
use std::collections::BTreeMap;

/// Credit that a block uses beside its bytes: what a receiver spends on keeping track of it.
pub const BLOCK_OVERHEAD: u64 = 256;

/// Credit that a block of `len` source bytes uses.
pub const fn charge(len: u64) -> u64 {
    len + BLOCK_OVERHEAD
}

/// Frees what an empty map keeps: a node of up to a kilobyte, which is most of a stream on which nothing goes on.
pub(crate) fn free_node<K, V>(map: &mut BTreeMap<K, V>) {
    if map.is_empty() {
        *map = BTreeMap::new();
    }
}

/// Splits `len` bytes into K symbols of at most `max_symbol` bytes, as equal as can be, so that
/// padding stays below one byte a symbol.
pub fn geometry(len: usize, max_symbol: usize) -> (u32, u16) {
    let k = len.div_ceil(max_symbol).max(1);
    (k as u32, len.div_ceil(k).max(1) as u16)
}

/// The code's view of a block, as both sides derive it from any symbol frame.
pub fn block_spec(
    scheme: SchemeId,
    channel: u64,
    offset: u64,
    block_len: u64,
    symbol_len: usize,
) -> Result<BlockSpec, FecError> {
    let k = block_len.div_ceil(symbol_len.max(1) as u64);
    let max_k = u64::from(dfcp_fec::scheme(scheme).max_k());
    // Out-of-range numbers become K = 0 or T = 0, which the code refuses.
    let k = if k <= max_k { k as u32 } else { 0 };
    BlockSpec::new(
        k,
        u16::try_from(symbol_len).unwrap_or(0),
        block_seed(channel, offset),
    )
}

/// Mixes channel and offset into the seed of a block's coefficients (docs/spec/wire.md).
fn block_seed(channel: u64, offset: u64) -> u64 {
    channel.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_round_trips_through_the_symbol_length() {
        for max in [1usize, 7, 1200, 1430] {
            for len in [1usize, 2, 6, 7, 8, 1199, 1200, 1201, 150_000, 183_040] {
                let (k, t) = geometry(len, max);
                assert!(
                    usize::from(t) <= max && len.div_ceil(usize::from(t)) as u32 == k,
                    "{len} {max}"
                );
                assert!(k as usize * usize::from(t) < len + k as usize);
            }
        }
    }
}
