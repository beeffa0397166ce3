//! Profiles: a transport is a choice of code, rate controller, block scheduler and feedback.
//!
//! Nothing outside this module knows profiles by name; any combination runs.

mod chameleon;
mod ctcp;

pub use chameleon::ChameleonParameters;
pub use ctcp::CtcpParameters;

use crate::feedback::FeedbackKind;
use crate::packet::LossRules;
use crate::published::rc_udp;
use crate::rate::{
    BlockWait, Capped, FixedRate, MarkResponse, MaxRate, PathModel, RateController, Restrained,
};
use crate::scheduler::{BlockScheduler, Deficit, Window};
use crate::time::Rate;
use dfcp_fec::SchemeId;
use std::fmt;
use std::sync::Arc;

type Make<T> = Arc<dyn Fn() -> Box<T> + Send + Sync>;

/// A composition of the four parts.
#[derive(Clone)]
pub struct Profile {
    /// Its name, for people.
    pub name: &'static str,
    /// Code of the blocks sent.
    pub scheme: SchemeId,
    /// Source symbols of a full block (the code may allow fewer).
    pub block_symbols: u32,
    /// Most bytes of a symbol; a datagram may leave room for fewer.
    pub max_symbol: usize,
    /// Feedback asked of the receiver.
    pub feedback: FeedbackKind,
    /// When packets count as lost.
    pub loss_rules: LossRules,
    rate: Make<dyn RateController>,
    scheduler: Make<dyn BlockScheduler>,
}

/// Blocks of `auto`: long enough that coding rounds cost below 1 %, short enough that solving
/// one is microseconds.
const AUTO_BLOCK_SYMBOLS: u32 = 128;

/// A block of about a megabyte: the code's overhead falls with its length.
const DFCP_BLOCK_SYMBOLS: u32 = 1000;
/// Blocks unacknowledged at once.
const DFCP_WINDOW: usize = 64;
/// Enough for the code at this length (DFCP-J §6.2: practical codes need less than 5 %).
const DFCP_EPSILON: f64 = 0.05;

impl Profile {
    /// The flagship: dense GF(256) blocks, a loss-tolerant model of the path, the deficit
    /// scheduler, feedback on a clock.
    pub fn auto() -> Self {
        Self {
            name: "auto",
            scheme: SchemeId::Dense,
            block_symbols: AUTO_BLOCK_SYMBOLS,
            max_symbol: usize::from(u16::MAX),
            rate: Arc::new(|| Box::new(PathModel::new())),
            scheduler: Arc::new(|| Box::new(Deficit::default())),
            feedback: FeedbackKind::Timed,
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

    /// DFCP's choices (DFCP-J §4) as parts of the encrypted transport: Raptor-coded blocks, a
    /// window of them with redundancy ε until they are acknowledged, maximum rate. For networks
    /// that share fairly by themselves; [`crate::published`] is the protocol of the papers.
    pub fn dfcp() -> Self {
        Self {
            name: "dfcp",
            scheme: SchemeId::Raptor,
            block_symbols: DFCP_BLOCK_SYMBOLS,
            max_symbol: usize::from(u16::MAX),
            rate: Arc::new(|| Box::new(MaxRate)),
            scheduler: Arc::new(|| Box::new(Window::new(DFCP_WINDOW, DFCP_EPSILON))),
            feedback: FeedbackKind::BlockAcks,
            loss_rules: LossRules::default(),
        }
    }

    /// RC-UDP's choices (RC-UDP §IV) as parts of the encrypted transport: one RaptorQ block of about
    /// 1 MB at a time with redundancy ε until it is acknowledged, maximum rate, a pause after each
    /// for what it took too much. For networks that share fairly by themselves;
    /// [`crate::published::Config::rc_udp`] is the protocol of the paper.
    pub fn rc_udp() -> Self {
        Self {
            name: "rc-udp",
            scheme: SchemeId::RaptorQ,
            block_symbols: rc_udp::BLOCK_SYMBOLS,
            max_symbol: usize::from(rc_udp::SYMBOL_SIZE),
            rate: Arc::new(|| Box::new(BlockWait::new(Box::new(MaxRate), rc_udp::DELTA_T))),
            scheduler: Arc::new(|| Box::new(Window::new(1, rc_udp::EPSILON))),
            feedback: FeedbackKind::BlockAcks,
            loss_rules: LossRules::default(),
        }
    }

    /// The same with another code; `block_symbols` of 0 keeps the block size.
    pub fn with_scheme(self, scheme: SchemeId, block_symbols: u32) -> Self {
        let block_symbols = if block_symbols == 0 {
            self.block_symbols
        } else {
            block_symbols
        };
        Self {
            scheme,
            block_symbols,
            ..self
        }
    }

    /// The same with a controller of the caller's.
    pub fn with_rate(
        self,
        make: impl Fn() -> Box<dyn RateController> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rate: Arc::new(make),
            ..self
        }
    }

    /// The same at `cap` at most, in UDP payload bits; where the path carries less, as without.
    pub fn with_rate_cap(self, cap: Rate) -> Self {
        let inner = self.rate.clone();
        self.with_rate(move || Box::new(Capped::new(inner(), cap)))
    }

    /// The same for what can wait, with the controller of `auto`: it takes what others leave of the path
    /// (a scavenger, RFC 6297).
    pub fn yielding(self) -> Self {
        self.with_rate(|| Box::new(PathModel::new().yielding()))
    }

    /// The same at a rate that someone ordered. It does not back off before more than half is lost for
    /// two seconds ([`Restrained`]).
    pub fn with_fixed_rate(self, rate: Rate) -> Self {
        self.with_rate(move || Box::new(Restrained::new(Box::new(FixedRate::new(rate)))))
    }

    /// The same as fast as the host can, with the same restraint.
    pub fn with_max_rate(self) -> Self {
        self.with_rate(|| Box::new(Restrained::new(Box::new(MaxRate))))
    }

    /// The same with a scheduler of the caller's.
    pub fn with_scheduler(
        self,
        make: impl Fn() -> Box<dyn BlockScheduler> + Send + Sync + 'static,
    ) -> Self {
        Self {
            scheduler: Arc::new(make),
            ..self
        }
    }

    /// The same with other feedback.
    pub fn with_feedback(self, feedback: FeedbackKind) -> Self {
        Self { feedback, ..self }
    }

    /// The same with other rules of loss detection.
    pub fn with_loss_rules(self, loss_rules: LossRules) -> Self {
        Self { loss_rules, ..self }
    }

    pub(crate) fn make_rate(&self) -> Box<dyn RateController> {
        (self.rate)()
    }

    pub(crate) fn make_scheduler(&self) -> Box<dyn BlockScheduler> {
        (self.scheduler)()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Profile({}, {:?} × {})",
            self.name, self.scheme, self.block_symbols
        )
    }
}
