//! What the receiver reports, and when: feedback policies.
//!
//! The sending side knows which feedback its rate controller and scheduler need, so it names a
//! [`FeedbackKind`] in the handshake, and the receiving side follows.

mod block_acks;
mod each_packet;
mod timed;

pub use block_acks::BlockAcks;
pub use each_packet::EachPacket;
pub use timed::Timed;

use crate::time::{Duration, Instant};
use std::fmt::Debug;

/// A packet that arrived and elicits feedback.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Arrival {
    /// Its packet number.
    pub number: u64,
    /// UDP payload bytes.
    pub size: u64,
    /// It arrived marked Congestion Experienced.
    pub marked: bool,
}

impl Arrival {
    /// An unmarked packet.
    pub fn new(number: u64, size: u64) -> Self {
        Self {
            number,
            size,
            marked: false,
        }
    }
}

/// Decides when feedback leaves. What it says is always the receiver's whole current state, so
/// that losing any one report costs nothing but time.
pub trait FeedbackPolicy: Debug + Send {
    /// A packet that elicits feedback arrived.
    fn on_packet(&mut self, now: Instant, arrival: &Arrival);

    /// A packet arrived that asks to be answered at once.
    fn on_echo(&mut self, now: Instant, arrival: &Arrival) {
        self.on_packet(now, arrival);
    }

    /// A block needs no more symbols.
    fn on_block(&mut self, _now: Instant) {}

    /// Something happened that the sender waits for: a channel is complete, credit was freed.
    fn on_urgent(&mut self, now: Instant);

    /// When feedback should leave; `None` while there is nothing to say.
    fn due(&self) -> Option<Instant>;

    /// Feedback left.
    fn on_sent(&mut self, now: Instant);
}

/// The feedback that a sender asks of its peer. The numbers are those of the handshake
/// (`docs/spec/wire.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedbackKind {
    /// [`Timed`].
    #[default]
    Timed = 0,
    /// [`BlockAcks`].
    BlockAcks = 1,
    /// [`EachPacket`].
    EachPacket = 2,
}

impl FeedbackKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Timed, Self::BlockAcks, Self::EachPacket];

    /// The kind with this number; one from a later version counts as [`FeedbackKind::Timed`].
    pub fn from_id(id: u64) -> Self {
        let known = Self::ALL.into_iter().find(|kind| *kind as u64 == id);
        known.unwrap_or_default()
    }

    /// Its policy.
    pub fn policy(self) -> Box<dyn FeedbackPolicy> {
        match self {
            Self::Timed => Box::new(Timed::default()),
            Self::BlockAcks => Box::new(BlockAcks::default()),
            Self::EachPacket => Box::new(EachPacket::default()),
        }
    }

    /// Longest time that a packet waits for its feedback.
    pub fn max_delay(self) -> Duration {
        match self {
            // A peer that does not know the kind asked for is timed.
            Self::Timed | Self::EachPacket => timed::MAX_DELAY,
            Self::BlockAcks => block_acks::REPEAT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_numbers_of_their_own_and_strange_ones_are_timed() {
        for kind in FeedbackKind::ALL {
            assert_eq!(FeedbackKind::from_id(kind as u64), kind);
        }
        assert_eq!(FeedbackKind::from_id(1 << 40), FeedbackKind::Timed);
    }

    #[test]
    fn every_policy_answers_a_packet_within_its_stated_delay() {
        for kind in FeedbackKind::ALL {
            let (mut policy, now) = (kind.policy(), Instant::ZERO);
            policy.on_packet(now, &Arrival::new(0, 1200));
            let due = policy.due().expect("a packet is to be answered");
            assert!(due <= now + kind.max_delay(), "{kind:?}: {due:?}");
        }
    }
}
