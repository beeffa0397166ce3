//! A bound on another controller's rate: what a user allows of the path.

use super::{BlockSent, Codepoint, Departure, Feedback, RateController, leave_to_inner};
use crate::time::{Duration, Instant, Rate};

/// Groups of packets last no longer than this at the bound, so that what the user keeps for others is
/// free at any moment that they would notice.
const MAX_GROUP: Duration = Duration::from_millis(10);

/// A controller that never sends faster than a bound. While the bound holds it back it is told that
/// there was nothing to send, so that it takes nothing of what it sees for the path's limit.
#[derive(Debug)]
pub struct Capped {
    inner: Box<dyn RateController>,
    cap: Rate,
    packet: u64,
}

impl Capped {
    /// Sends as `inner` does, at most at `cap`, in UDP payload bits.
    pub fn new(inner: Box<dyn RateController>, cap: Rate) -> Self {
        Self {
            inner,
            cap,
            packet: 1500,
        }
    }

    fn is_held_back(&self) -> bool {
        self.inner.pacing_rate() > self.cap
    }

    /// Bytes that leave together at the bound, a packet at least.
    fn group(&self) -> u64 {
        self.cap.bytes_in(MAX_GROUP).max(self.packet)
    }
}

impl RateController for Capped {
    leave_to_inner!(
        on_pair,
        on_sent,
        on_block_acked,
        departure,
        is_probing,
        ecn,
        on_timeout,
        round_trip,
        refused_reports,
        on_order,
        window,
        bandwidth,
    );

    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.packet = packet_size;
        self.inner.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let mut told = *feedback;
        if self.is_held_back()
            && let Some(newest) = &feedback.newest
        {
            told.idle_total = told.idle_total.max(newest.sent_total);
        }
        self.inner.on_feedback(&told);
    }

    fn pacing_rate(&self) -> Rate {
        self.inner.pacing_rate().min(self.cap)
    }

    fn is_bounded(&self) -> bool {
        self.is_held_back() || self.inner.is_bounded()
    }

    fn max_burst(&self) -> u64 {
        self.inner.max_burst().min(self.group())
    }

    fn initial_burst(&self) -> u64 {
        self.inner.initial_burst().min(self.group())
    }
}
