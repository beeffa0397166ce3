//! What the receiver reports, and when: feedback policies.

mod block_acks;
mod timed;

pub use block_acks::BlockAcks;
pub use timed::Timed;

use crate::time::{Duration, Instant};
use std::fmt::Debug;

/// Decides when feedback leaves. What it says is always the receiver's whole current state, so
/// that losing any one report costs nothing but time.
pub trait FeedbackPolicy: Debug + Send {
    /// A packet that elicits feedback arrived.
    fn on_packet(&mut self, now: Instant);

    /// A packet arrived that asks to be answered at once.
    fn on_echo(&mut self, now: Instant) {
        self.on_packet(now);
    }

    /// A block needs no more symbols.
    fn on_block(&mut self, _now: Instant) {}

    /// Something happened that the sender waits for: a channel is complete, credit was freed.
    fn on_urgent(&mut self, now: Instant);

    /// When feedback should leave; `None` while there is nothing to say.
    fn due(&self) -> Option<Instant>;

    /// Feedback left.
    fn on_sent(&mut self, now: Instant);

    /// Longest time a packet waits for its feedback.
    fn max_delay(&self) -> Duration;
}
