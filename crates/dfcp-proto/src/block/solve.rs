//! Rebuilding a block apart from receiving it.

use super::ChannelId;
use dfcp_fec::{BlockDecoder, SchemeId};

/// Rebuilding one block; may run on any thread.
#[derive(Debug)]
pub struct SolveJob {
    /// Channel of the block.
    pub channel: ChannelId,
    /// The block.
    pub offset: u64,
    pub(super) len: u64,
    pub(super) scheme: SchemeId,
    pub(super) decoder: Box<dyn BlockDecoder>,
    pub(super) solved: bool,
}

impl SolveJob {
    /// Does the work.
    pub fn run(&mut self) {
        // An error means the symbols do not fit the code: the block stays unsolved.
        self.solved = self.decoder.solve().unwrap_or(false);
    }

    /// What [`SolveJob::run`] costs, in multiply-accumulates of whole symbols, for hosts that
    /// simulate time; a repair symbol costs its sender K of them.
    pub fn symbol_operations(&self) -> u64 {
        self.decoder.solve_operations()
    }

    /// Bytes of a symbol.
    pub fn symbol_size(&self) -> usize {
        self.decoder.spec().symbol_size()
    }
}
