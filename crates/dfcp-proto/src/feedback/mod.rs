//! What the receiver reports, and when: feedback policies.
//!
//! The sending side knows which feedback its rate controller and scheduler need, so its profile has a
//! policy for the peer, whose number the handshake names. The receiving side follows, if it knows a
//! policy with that number: those of the profiles here and what its configuration adds
//! ([`TransportConfig::answer_with`](crate::TransportConfig::answer_with)).

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

/// Decides when feedback leaves, and what is in it beyond acknowledgements. Object safe, and open: any
/// type will do, as long as both sides know its [`number`](Self::number).
///
/// What feedback says is always the receiver's whole current state, so that losing any one report
/// costs nothing but time.
pub trait FeedbackPolicy: Debug + Send {
    /// Its number in the handshake. Those below [`FIRST_PRIVATE`] are assigned by `docs/spec/wire.md`;
    /// a receiver that does not know one gives [`Timed`].
    fn number(&self) -> u64;

    /// Longest time that a packet waits for its feedback on a path of `rtt` while packets arrive
    /// `gap` apart: the sender's probe timeout counts on it.
    fn max_delay(&self, rtt: Duration, gap: Duration) -> Duration;

    /// Longest time that packets may wait for each other at either end
    /// ([`Connection::coalescing_delay`](crate::Connection::coalescing_delay)), where this policy or who
    /// goes by its feedback cannot bear as much as the path would let them.
    fn patience(&self) -> Duration {
        Duration::MAX
    }

    /// Packets that the receive window of a channel holds, if reports say what is free of it
    /// ([`report`](Self::report)); the budget of bytes holds all the same.
    fn receive_window(&self) -> Option<u8> {
        None
    }

    /// A packet that elicits feedback arrived.
    fn on_packet(&mut self, now: Instant, arrival: &Arrival);

    /// A packet arrived that asks to be acknowledged at once.
    fn on_immediate(&mut self, now: Instant, arrival: &Arrival) {
        self.on_packet(now, arrival);
    }

    /// A block needs no more symbols.
    fn on_block(&mut self, _now: Instant) {}

    /// Something happened that the sender waits for: a channel is complete, credit was freed.
    fn on_urgent(&mut self, now: Instant);

    /// The application took something: there is more room.
    fn on_room(&mut self, _now: Instant) {}

    /// What feedback that leaves now says of the path, with what the receiver has room for; `None`
    /// if this policy does not report them. Asked only of one with a
    /// [receive window](Self::receive_window).
    fn report(&mut self, _now: Instant) -> Option<PathReport> {
        None
    }

    /// When feedback should leave; `None` while there is nothing to say.
    fn due(&self) -> Option<Instant>;

    /// The sender says that its way back carries this much feedback, UDP and IPv4 headers included;
    /// `None`: as much as comes.
    fn on_limit(&mut self, _bytes_per_second: Option<u64>) {}

    /// Most bytes of UDP payload that a report should take, where the sender said that its way back
    /// carries less than this policy would send: longer ones would be too rare.
    fn most_in_report(&self) -> Option<u64> {
        None
    }

    /// Feedback left in a packet, of which it took `size` bytes with what every packet has.
    fn on_sent(&mut self, now: Instant, size: u64);
}

/// First of the numbers that applications give to policies of their own.
pub const FIRST_PRIVATE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Box<dyn FeedbackPolicy>; 4] {
        [
            Box::new(Timed::default()),
            Box::new(BlockAcks::default()),
            Box::new(EachPacket::default()),
            Box::new(EachRoundTrip::new(64)),
        ]
    }

    #[test]
    fn the_numbers_are_those_of_the_specification() {
        assert_eq!(all().map(|policy| policy.number()), [0, 1, 2, 3]);
    }

    #[test]
    fn every_policy_answers_a_packet_within_its_stated_delay() {
        for mut policy in all() {
            let now = Instant::ZERO;
            let mut packet = Arrival::new(0, 1200);
            packet.rtt = Duration::from_millis(30);
            policy.on_packet(now, &packet);
            policy.on_sent(now, 80);
            policy.on_packet(now, &packet);
            let due = policy.due().expect("a packet is to be answered");
            let late = now + policy.max_delay(packet.rtt, Duration::ZERO);
            assert!(due <= late, "{policy:?}: {due:?}");
        }
    }
}
