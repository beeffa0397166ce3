//! Profiles: a transport is a choice of code, rate controller, block scheduler and feedback.
//!
//! Nothing outside this module knows profiles by name; any combination runs. It knows nothing of
//! [`crate::published`], which takes RC-UDP's numbers from here.

mod auto;
mod chameleon;
mod ctcp;
mod dfcp;
mod name;
pub mod rc_udp;

pub use chameleon::ChameleonParameters;
pub use ctcp::CtcpParameters;
pub use name::ProfileName;

use crate::feedback::FeedbackPolicy;
use crate::packet::LossRules;
use crate::rate::{Capped, FixedRate, MaxRate, RateController, Restrained};
use crate::scheduler::BlockScheduler;
use crate::time::{Duration, Rate};
use dfcp_fec::SchemeId;
use std::fmt;
use std::sync::Arc;

/// Of fewer symbols than these repair symbols would save little: each stands for one of a handful.
const LEAST_SYMBOLS: u64 = 8;

/// A part that has a state of its own in each connection: what makes it.
pub struct Part<T: ?Sized>(Arc<dyn Fn() -> Box<T> + Send + Sync>);

impl<T: ?Sized> Part<T> {
    /// The part that `make` makes.
    pub fn new(make: impl Fn() -> Box<T> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// A new one, for a connection.
    pub fn make(&self) -> Box<T> {
        (self.0)()
    }
}

impl Part<dyn RateController> {
    /// A rate controller.
    pub fn rate<R: RateController + 'static>(make: impl Fn() -> R + Send + Sync + 'static) -> Self {
        Self::new(move || Box::new(make()))
    }
}

impl Part<dyn BlockScheduler> {
    /// A block scheduler.
    pub fn scheduler<S: BlockScheduler + 'static>(
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        Self::new(move || Box::new(make()))
    }
}

impl Part<dyn FeedbackPolicy> {
    /// A feedback policy.
    pub fn feedback<F: FeedbackPolicy + 'static>(
        make: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(move || Box::new(make()))
    }
}

impl<T: ?Sized> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.make().fmt(f)
    }
}

/// A composition: the parts that a sender is made of, and the feedback that it wants. Each can be
/// exchanged for any other of its kind, by its field or by `with_…`.
#[derive(Clone)]
pub struct Profile {
    /// Its name, for people.
    pub name: &'static str,
    /// Code of the blocks sent.
    pub scheme: SchemeId,
    /// Source symbols of a full block (the code may allow fewer).
    pub block_symbols: u32,
    /// How long a block takes to leave at most, where that allows eight symbols; `None`: as long as it takes.
    pub block_time: Option<Duration>,
    /// Most bytes of a symbol; a datagram may leave room for fewer.
    pub max_symbol: usize,
    /// When the next packet may leave.
    pub rate: Part<dyn RateController>,
    /// From which block its symbol comes.
    pub scheduler: Part<dyn BlockScheduler>,
    /// What the receiver reports, and when.
    pub feedback: Part<dyn FeedbackPolicy>,
    /// When packets count as lost.
    pub loss_rules: LossRules,
}

/// The feedback that the profiles here ask for: every receiver can give it.
pub(crate) fn feedback_of_all() -> impl Iterator<Item = Part<dyn FeedbackPolicy>> {
    let profiles = [
        Profile::auto(),
        Profile::dfcp(),
        Profile::ctcp(),
        Profile::chameleon(),
    ];
    profiles.into_iter().map(|profile| profile.feedback)
}

impl Profile {
    /// The same with another code; `block_symbols` of 0 keeps the block size, any other is that of slow
    /// paths, too.
    pub fn with_scheme(self, scheme: SchemeId, block_symbols: u32) -> Self {
        let (block_symbols, block_time) = match block_symbols {
            0 => (self.block_symbols, self.block_time),
            chosen => (chosen, None),
        };
        Self {
            scheme,
            block_symbols,
            block_time,
            ..self
        }
    }

    /// Source symbols of a full block while `bandwidth`, if that is known, is what the path carries of packets of
    /// so many bytes. A power of two: a small change of the bandwidth changes nothing.
    pub(crate) fn symbols_at(&self, bandwidth: Rate, packet: u64) -> u32 {
        let Some(time) = self.block_time.filter(|_| bandwidth > Rate::ZERO) else {
            return self.block_symbols;
        };
        let bytes = bandwidth.bytes_in(time);
        // The usual answer, with each packet.
        if bytes >= packet.saturating_mul(self.block_symbols.into()) {
            return self.block_symbols;
        }
        let in_time = (bytes / packet.max(1)).max(LEAST_SYMBOLS);
        self.block_symbols.min(1 << in_time.ilog2())
    }

    /// The same with a controller of the caller's.
    pub fn with_rate(
        self,
        make: impl Fn() -> Box<dyn RateController> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rate: Part::new(make),
            ..self
        }
    }

    /// The same at `cap` at most, in UDP payload bits; where the path carries less, as without.
    pub fn with_rate_cap(self, cap: Rate) -> Self {
        let inner = self.rate.clone();
        self.with_rate(move || Box::new(Capped::new(inner.make(), cap)))
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
            scheduler: Part::new(make),
            ..self
        }
    }

    /// The same with other feedback, which the peer must know, too: what the profiles here ask for, or
    /// what it was told of ([`TransportConfig::answer_with`](crate::TransportConfig::answer_with)).
    pub fn with_feedback(
        self,
        make: impl Fn() -> Box<dyn FeedbackPolicy> + Send + Sync + 'static,
    ) -> Self {
        Self {
            feedback: Part::new(make),
            ..self
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_half_a_second_at_most_or_has_eight_symbols() {
        let symbols = |profile: &Profile, bps| profile.symbols_at(Rate::from_bps(bps), 1472);
        let auto = Profile::auto();
        for (bps, k) in [
            (0, 128), // nothing is known
            (1, 8),
            (64_000, 8),
            (450_000, 16),
            (1_000_000, 32),
            (3_000_000, 64),
            (3_100_000, 128),
            (u64::MAX, 128),
        ] {
            assert_eq!(symbols(&auto, bps), k, "{bps} bit/s");
        }
        let chosen = auto.with_scheme(SchemeId::RaptorQ, 1000);
        let kept = Profile::auto().with_scheme(SchemeId::RaptorQ, 0);
        assert_eq!(symbols(&chosen, 64_000), 1000);
        assert_eq!(symbols(&kept, 64_000), 8);
        assert_eq!(symbols(&Profile::ctcp(), 64_000), 32);
    }
}
