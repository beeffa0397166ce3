//! From which block comes the next symbol: block schedulers.
//!
//! The connection keeps blocks in order and asks the scheduler how many more symbols each should
//! get now; the lowest block with a deficit is served first, then a new block is opened.

mod deficit;
mod selective_repeat;
mod window;

pub(crate) use deficit::MAX_COPY_GAP;
pub use deficit::{Deficit, Rounding};
pub use selective_repeat::{FlowControl, SelectiveRepeat};
pub use window::Window;

use crate::packet::Loss;
use crate::time::Duration;
use std::fmt::Debug;

/// What a scheduler may know of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockView {
    /// Source symbols.
    pub k: u32,
    /// Symbols the receiver still needs, as far as its feedback says.
    pub needed: u32,
    /// Symbols sent that are neither acknowledged nor lost.
    pub in_flight: u32,
    /// Nothing follows this block: the receiver's application waits for it.
    pub last: bool,
    /// Source bytes; as many as there can be unless told.
    pub bytes: u64,
}

impl BlockView {
    /// Puts a view together.
    pub fn new(k: u32, needed: u32, in_flight: u32, last: bool) -> Self {
        Self {
            k,
            needed,
            in_flight,
            last,
            bytes: u64::MAX,
        }
    }

    /// The same, of a block of so many source bytes.
    pub fn of_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }
}

/// What a receiver has room for on a channel, as its last report says; before the first, its whole
/// window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Packets beyond those received.
    pub avail_win: u64,
    /// Blocks begun at or above the report's Offset: where the report before ended.
    pub sent_since: u64,
}

/// What decides which block gets the next symbol: a scheduler, and the loss that it reckons with.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// Decides.
    pub scheduler: &'a dyn BlockScheduler,
    /// How the path loses packets.
    pub loss: Loss,
    /// Nothing can follow until open blocks are complete: all of them are waited for.
    pub awaits_all: bool,
}

impl Policy<'_> {
    /// Whether `block` should get a further symbol now.
    pub fn wants_symbol(&self, block: &BlockView) -> bool {
        self.scheduler.wants_symbol(block, self.loss)
    }

    /// How long repair symbols wait ([`BlockScheduler::hold`]).
    pub fn hold(&self, rtt: Duration) -> Duration {
        self.scheduler.hold(self.loss, rtt)
    }

    /// How long the next copy of a short message waits ([`BlockScheduler::copy_gap`]).
    pub fn copy_gap(&self, block: &BlockView) -> Duration {
        self.scheduler.copy_gap(block, self.loss)
    }
}

/// Decides how many symbols a block deserves. Object safe.
pub trait BlockScheduler: Debug + Send {
    /// Further symbols that should be sent for `block` now, on a path that loses packets like
    /// `loss`.
    fn deficit(&self, block: &BlockView, loss: Loss) -> u32;

    /// Whether there is a deficit: asked for every packet, so a scheduler may know a shorter way.
    fn wants_symbol(&self, block: &BlockView, loss: Loss) -> bool {
        self.deficit(block, loss) > 0
    }

    /// How long after the first symbol of a block that is waited for those wait that would only make
    /// up for losses: until a burst that hit the first ones has probably ended. For a round trip of
    /// `rtt`.
    fn hold(&self, _loss: Loss, _rtt: Duration) -> Duration {
        Duration::ZERO
    }

    /// How long after the latest copy of a short message the next one leaves, so that one burst does not take
    /// both.
    fn copy_gap(&self, _block: &BlockView, _loss: Loss) -> Duration {
        Duration::ZERO
    }

    /// How many of the last blocks, of what is there to send, take turns in their first symbols.
    fn blocks_in_turn(&self, _loss: Loss) -> usize {
        1
    }

    /// How many blocks may be open (begun and not acknowledged) at once.
    fn max_open_blocks(&self) -> usize {
        usize::MAX
    }

    /// New blocks that a channel may begin until its receiver's next report.
    fn allowance(&self, _room: &Room) -> u64 {
        u64::MAX
    }
}
