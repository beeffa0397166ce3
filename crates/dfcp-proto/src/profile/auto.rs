//! The flagship, as a composition.

use super::{Part, Profile};
use crate::feedback::Timed;
use crate::packet::LossRules;
use crate::rate::{MarkResponse, PathModel};
use crate::scheduler::Deficit;
use crate::time::Duration;
use dfcp_fec::SchemeId;

/// Long enough that coding rounds cost below 1 %, short enough that solving a block is microseconds.
const BLOCK_SYMBOLS: u32 = 128;
/// What a receiver has of a file is whole blocks: who is killed after ten seconds keeps 95 % so.
const BLOCK_TIME: Duration = Duration::from_millis(500);

impl Profile {
    /// The flagship: dense GF(256) blocks, a loss-tolerant model of the path, the deficit
    /// scheduler, feedback on a clock.
    pub fn auto() -> Self {
        Self {
            name: "auto",
            scheme: SchemeId::Dense,
            block_symbols: BLOCK_SYMBOLS,
            block_time: Some(BLOCK_TIME),
            max_symbol: usize::from(u16::MAX),
            rate: Part::rate(PathModel::new),
            scheduler: Part::scheduler(Deficit::default),
            feedback: Part::feedback(Timed::default),
            loss_rules: LossRules::default(),
        }
    }

    /// The same for networks with low-latency queues (L4S, RFC 9330): packets say ECT(1), and marks
    /// are answered in proportion to how many there are.
    pub fn auto_l4s() -> Self {
        let auto = Self::auto();
        Self {
            name: "auto-l4s",
            ..auto.with_rate(|| Box::new(PathModel::new().with_marks(MarkResponse::Scalable)))
        }
    }

    /// The same for what can wait, with the controller of `auto`: it takes what others leave of the path
    /// (a scavenger, RFC 6297).
    pub fn yielding(self) -> Self {
        self.with_rate(|| Box::new(PathModel::new().yielding()))
    }
}
