//! DFCP (DFCP-J §4), as a composition.

use super::{Part, Profile};
use crate::feedback::BlockAcks;
use crate::packet::LossRules;
use crate::rate::{MaxRate, Restrained};
use crate::scheduler::Window;
use dfcp_fec::SchemeId;

/// A block of about a megabyte: the code's overhead falls with its length.
const BLOCK_SYMBOLS: u32 = 1000;
/// Blocks unacknowledged at once.
const WINDOW: usize = 64;
/// Enough for the code at this length (DFCP-J §6.2: practical codes need less than 5 %).
const EPSILON: f64 = 0.05;

impl Profile {
    /// DFCP's choices as parts of the encrypted transport: Raptor-coded blocks, a window of them with
    /// redundancy ε until they are acknowledged, maximum rate until that floods ([`Restrained`]). For
    /// networks that are one's own, or share fairly by themselves; [`crate::published`] is the
    /// protocol of the papers.
    pub fn dfcp() -> Self {
        Self {
            name: "dfcp-sealed",
            scheme: SchemeId::Raptor,
            block_symbols: BLOCK_SYMBOLS,
            block_time: None,
            max_symbol: usize::from(u16::MAX),
            rate: Part::rate(|| Restrained::new(Box::new(MaxRate))),
            scheduler: Part::scheduler(|| Window::new(WINDOW, EPSILON)),
            feedback: Part::feedback(BlockAcks::default),
            loss_rules: LossRules::default(),
        }
    }
}
