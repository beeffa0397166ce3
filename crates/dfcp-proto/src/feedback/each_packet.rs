//! CTCP's rule (CTCP §3): every packet is acknowledged at once.
//!
//! Nor do packets wait for each other at the hosts. A window opened by acknowledgements that come in bundles
//! sends bundles, whose packets queue behind each other; of a back-off by the round trip that is a queue.

use super::{Arrival, FeedbackPolicy, Timed};
use crate::time::{Duration, Instant};

/// Feedback for each packet.
#[derive(Clone, Debug, Default)]
pub struct EachPacket {
    due: Option<Instant>,
}

impl FeedbackPolicy for EachPacket {
    fn number(&self) -> u64 {
        2
    }

    /// As [`Timed`]: a peer that does not know this policy uses that one.
    fn max_delay(&self, rtt: Duration, gap: Duration) -> Duration {
        Timed::default().max_delay(rtt, gap)
    }

    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn on_packet(&mut self, now: Instant, _arrival: &Arrival) {
        self.due.get_or_insert(now);
    }

    fn on_urgent(&mut self, now: Instant) {
        self.due.get_or_insert(now);
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn on_sent(&mut self, _now: Instant, _size: u64) {
        self.due = None;
    }
}
