//! RC-UDP ("On Raptor Coding Over UDP"), as a composition, and its numbers (§IV, §V-A).

use super::{Part, Profile};
use crate::feedback::BlockAcks;
use crate::packet::LossRules;
use crate::rate::{BlockWait, MaxRate, Restrained};
use crate::scheduler::Window;
use crate::time::Duration;
use dfcp_fec::SchemeId;

/// Source symbols of a block, K = ⌈B / L⌉ with B = 1 MB.
pub const BLOCK_SYMBOLS: u32 = 977;
/// Bytes of a symbol, L.
pub const SYMBOL_SIZE: u16 = 1024;
/// Redundancy at which a block is acknowledged, ε.
pub const EPSILON: f64 = 0.01;
/// Waiting time for each packet dropped, δt.
pub const DELTA_T: Duration = Duration::from_micros(300);
/// Blocks that the receiver keeps: those that are decoded and read while the next one comes.
pub const WINDOW: u32 = 4;
/// Check nodes of the LDPC code for each source symbol. The paper leaves them open. With these
/// (1 + ε) K symbols are too few one time in a thousand, as it says (§V-A); with the share of
/// check nodes that DFCP has, in so short a block, one time in eight.
pub const CHECK_NODES: (u32, u32) = (300, 977);

impl Profile {
    /// RC-UDP's choices (§IV) as parts of the encrypted transport: one RaptorQ block of about 1 MB at
    /// a time with redundancy ε until it is acknowledged, maximum rate, a pause after each for what it
    /// took too much. For networks that are one's own, as [`Profile::dfcp`];
    /// [`crate::published::Config::rc_udp`] is the protocol of the paper.
    pub fn rc_udp() -> Self {
        Self {
            name: "rc-udp-sealed",
            scheme: SchemeId::RaptorQ,
            block_symbols: BLOCK_SYMBOLS,
            block_time: None,
            max_symbol: usize::from(SYMBOL_SIZE),
            rate: Part::rate(|| {
                let paused = BlockWait::new(Box::new(MaxRate), DELTA_T);
                Restrained::new(Box::new(paused))
            }),
            scheduler: Part::scheduler(|| Window::new(1, EPSILON)),
            feedback: Part::feedback(BlockAcks::default),
            loss_rules: LossRules::default(),
        }
    }
}
