//! What the receiver reports, and when: feedback policies.
//!
//! The sending side knows which feedback its rate controller and scheduler need, so it names a
//! [`FeedbackKind`] in the handshake, and the receiving side follows.

mod block_acks;
mod each_packet;
mod each_round_trip;
mod holes;
mod timed;

pub use block_acks::BlockAcks;
pub use each_packet::EachPacket;
pub use each_round_trip::EachRoundTrip;
pub use timed::Timed;

use crate::rate::PathReport;
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
    /// Its place among the sender's data packets, where the sender says it. Only these show loss:
    /// packet numbers are also left out on purpose.
    pub data_number: Option<u32>,
    /// The round-trip time as the sender says it, else as this side knows it.
    pub rtt: Duration,
}

impl Arrival {
    /// An unmarked packet.
    pub const fn new(number: u64, size: u64) -> Self {
        Self {
            number,
            size,
            marked: false,
            data_number: None,
            rtt: Duration::ZERO,
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

    /// The application took something: there is more room.
    fn on_room(&mut self, _now: Instant) {}

    /// What feedback that leaves now says of the path, with what the receiver has room for; `None`
    /// if this policy does not report them.
    fn report(&mut self, _now: Instant) -> Option<PathReport> {
        None
    }

    /// When feedback should leave; `None` while there is nothing to say.
    fn due(&self) -> Option<Instant>;

    /// The sender says that its way back carries this much feedback, UDP and IPv4 headers included;
    /// `None`: as much as comes.
    fn on_limit(&mut self, _bytes_per_second: Option<u64>) {}

    /// Feedback left in a packet, of which it took `size` bytes with what every packet has.
    fn on_sent(&mut self, now: Instant, size: u64);
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
    /// [`EachRoundTrip`].
    EachRoundTrip = 3,
}

impl FeedbackKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [
        Self::Timed,
        Self::BlockAcks,
        Self::EachPacket,
        Self::EachRoundTrip,
    ];

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
            Self::EachRoundTrip => Box::new(EachRoundTrip::default()),
        }
    }

    /// Whether its reports say how many packets the receiver has room for.
    pub fn reports_room(self) -> bool {
        self == Self::EachRoundTrip
    }

    /// Longest time that a packet waits for its feedback on a path of `rtt` while packets arrive
    /// `gap` apart.
    pub fn max_delay(self, rtt: Duration, gap: Duration) -> Duration {
        match self {
            // A peer that does not know the kind asked for is timed.
            Self::Timed | Self::EachPacket => timed::longest_wait(rtt, gap),
            Self::BlockAcks => block_acks::REPEAT,
            Self::EachRoundTrip => rtt.max(each_round_trip::MIN_INTERVAL),
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
            let mut packet = Arrival::new(0, 1200);
            packet.rtt = Duration::from_millis(30);
            policy.on_packet(now, &packet);
            policy.on_sent(now, 80);
            policy.on_packet(now, &packet);
            let due = policy.due().expect("a packet is to be answered");
            let late = now + kind.max_delay(packet.rtt, Duration::ZERO);
            assert!(due <= late, "{kind:?}: {due:?}");
        }
    }
}
