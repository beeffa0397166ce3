//! Working memory of coding, kept between blocks: a block of 64 kB is worked on in several times
//! its size, and fresh pages would cost more than the work.

use std::sync::{Mutex, PoisonError};

use super::RaptorCode;
use super::drawn::Kept;
use super::draws::Draws;
use super::graph::{Block, Graph};
use super::inactivate::Inactivation;
use super::peel::Peel;
use super::plan::Set;
use super::rows::Packet;

/// Workspaces kept; more exist while more threads work at once.
const KEPT: usize = 2;

/// Working memory of one thread.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) draws: Draws,
    pub(super) ids: Vec<u16>,
    /// What an encoder drew lately.
    pub(super) drawn: Kept,
    /// Of the last blocks, for the next may have one of them; the last block's comes first.
    pub(super) graphs: [Graph; 2],
    pub(super) block: Block,
    /// Packets of the block at hand.
    pub(super) set: Set,
    /// Symbols of one byte, as many as 16 bits name.
    pub(super) table: Vec<u8>,
    /// One of these is used, as the code's degrees allow.
    pub(super) compact: Peel<u32>,
    pub(super) wide: Peel<u64>,
    pub(super) inactivation: Inactivation,
}

impl Workspace {
    /// Makes the first graph one that has all `packets`; see [`Graph::cover`].
    pub(super) fn cover(&mut self, code: &RaptorCode, packets: &[Packet], limit: u32) -> bool {
        let [first, second] = &self.graphs;
        // Where blocks of two graphs come in turn, none has to be made again.
        let (known, half) = (first.known(packets), packets.len() / 2);
        if known < packets.len() && (known <= half || second.known(packets) > known) {
            self.graphs.swap(0, 1);
        }
        self.graphs[0].cover(code, &mut self.draws, packets, limit)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.draws.memory()
            + self.ids.capacity() * size_of::<u16>()
            + self.drawn.memory()
            + self.graphs.iter().map(Graph::memory).sum::<usize>()
            + self.block.memory()
            + self.set.capacity() * size_of::<u64>()
            + self.table.capacity()
            + self.compact.memory()
            + self.wide.memory()
            + self.inactivation.memory()
    }
}

/// Workspaces at rest.
#[allow(clippy::vec_box, reason = "they go in and out with every packet")]
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Box<Workspace>>>);

impl Pool {
    /// Runs `work` with a workspace that nothing else uses meanwhile.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Workspace) -> R) -> R {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut workspace = kept.unwrap_or_default();
        let result = work(&mut workspace);
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < KEPT {
            pool.push(workspace);
        }
        result
    }

    pub(super) fn memory(&self) -> usize {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pool.iter().map(|workspace| workspace.memory()).sum()
    }
}
