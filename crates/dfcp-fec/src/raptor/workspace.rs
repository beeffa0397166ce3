//! Working memory of coding, kept between blocks: a block of 64 kB is worked on in several times
//! its size, and fresh pages would cost more than the work.

use std::sync::{Mutex, PoisonError};

use super::draws::Draws;
use super::graph::{Block, Graph};
use super::inactivate::Inactivation;
use super::peel::Peel;

/// Workspaces kept; more exist while more threads work at once.
const KEPT: usize = 2;

/// Working memory of one thread.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) draws: Draws,
    pub(super) ids: Vec<u16>,
    /// Symbols of a packet by degree.
    pub(super) classes: Vec<u32>,
    /// Of the last block, for the next may have the same.
    pub(super) graph: Graph,
    pub(super) block: Block,
    /// One of these is used, as the code's degrees allow.
    pub(super) compact: Peel<u32>,
    pub(super) wide: Peel<u64>,
    pub(super) inactivation: Inactivation,
}

impl Workspace {
    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.draws.memory()
            + self.ids.capacity() * size_of::<u16>()
            + self.classes.capacity() * size_of::<u32>()
            + self.graph.memory()
            + self.block.memory()
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
