//! The interface every code offers: a scheme makes encoders and decoders of single blocks.

use std::fmt::Debug;

use crate::error::FecError;
use crate::spec::{BlockSpec, SchemeId};

/// An erasure code.
pub trait FecScheme: Send + Sync + Debug {
    /// Which code this is.
    fn id(&self) -> SchemeId;

    /// Most source symbols of a block.
    fn max_k(&self) -> u32;

    /// Starts encoding a block. `source.len()` must equal `spec.source_len()`: the caller pads the
    /// block's end with zeros.
    ///
    /// # Errors
    /// [`FecError::SymbolCount`] above [`max_k`](Self::max_k), [`FecError::SourceLength`].
    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError>;

    /// Starts decoding a block. `buffer` is a recycled allocation of any length and capacity,
    /// reused if it is large enough.
    ///
    /// # Errors
    /// [`FecError::SymbolCount`] above [`max_k`](Self::max_k).
    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError>;
}

/// One block on the sending side.
pub trait BlockEncoder: Send + Debug {
    /// The block's geometry.
    fn spec(&self) -> BlockSpec;

    /// The source block, K · T bytes.
    fn source(&self) -> &[u8];

    /// Writes symbol `esi`, T bytes, to `out`: in systematic codes a copy below K, a repair symbol
    /// from K on.
    ///
    /// # Errors
    /// [`FecError::Esi`] above 24 bits, [`FecError::SymbolLength`] unless `out` has T bytes.
    fn write_symbol(&mut self, esi: u32, out: &mut [u8]) -> Result<(), FecError>;

    /// Symbol `esi` as it lies in the source block, if it does.
    fn source_symbol(&self, _esi: u32) -> Option<&[u8]> {
        None
    }

    /// Appends symbol `esi`, T bytes, to `out`. On an error `out` is as it was.
    ///
    /// # Errors
    /// As [`write_symbol`](Self::write_symbol).
    fn append_symbol(&mut self, esi: u32, out: &mut Vec<u8>) -> Result<(), FecError> {
        if let Some(symbol) = self.source_symbol(esi) {
            out.extend_from_slice(symbol);
            return Ok(());
        }
        let start = out.len();
        out.resize(start + self.spec().symbol_size(), 0);
        let written = self.write_symbol(esi, &mut out[start..]);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    /// Gives the source allocation back for reuse.
    fn into_buffer(self: Box<Self>) -> Vec<u8>;
}

/// What a received symbol was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Push {
    /// It brought the block nearer to completion.
    Innovative,
    /// It changed nothing: a duplicate, a combination of symbols already held, or the block was
    /// already solvable or solved.
    Redundant,
}

/// One block on the receiving side.
pub trait BlockDecoder: Send + Debug {
    /// The block's geometry.
    fn spec(&self) -> BlockSpec;

    /// Takes one received symbol. Cheap and bounded, and allocates nothing per symbol.
    ///
    /// # Errors
    /// [`FecError::Esi`] above 24 bits, [`FecError::SymbolLength`] unless `symbol` has T bytes.
    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError>;

    /// Further symbols needed before [`solve`](Self::solve) can succeed; 0 means solvable.
    fn needed(&self) -> u32;

    /// What [`solve`](Self::solve) would cost now, in multiply-accumulates of whole symbols: for
    /// hosts that charge for time instead of spending it.
    fn solve_operations(&self) -> u64;

    /// Rebuilds what is missing. `Ok(true)`: the block is complete. `Ok(false)`: it needs more,
    /// and [`needed`](Self::needed) says how many.
    ///
    /// # Errors
    /// [`FecError::Unsolvable`] once more attempts failed than chance explains,
    /// [`FecError::Internal`] if a code built upon fails against its contract. The block is of no use
    /// then.
    fn solve(&mut self) -> Result<bool, FecError>;

    /// Whether every source symbol is present. No solve is needed if all of them were received.
    fn is_complete(&self) -> bool;

    /// Source symbols present without a gap from the block's start.
    fn prefix_symbols(&self) -> usize;

    /// Bytes of these, for delivery in order before the block is complete.
    fn prefix(&self) -> usize {
        self.prefix_symbols() * self.spec().symbol_size()
    }

    /// The source block, K · T bytes. Before completion only the bytes of present symbols mean
    /// anything.
    fn source(&self) -> &[u8];

    /// Gives the allocation back: the source block, K · T bytes.
    fn into_buffer(self: Box<Self>) -> Vec<u8>;

    /// Bytes of memory held now.
    fn memory(&self) -> usize;

    /// Bytes that [`solve`](Self::solve) takes besides while it runs, rather more than less; 0 if they are
    /// few beside the block.
    fn solve_memory(&self) -> usize {
        0
    }
}
