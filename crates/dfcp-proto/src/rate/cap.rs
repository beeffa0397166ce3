//! A bound on another controller's rate: what a user allows of the path.

use super::path_model::{MAX_HELD, WINDOW_ROUND_TRIPS};
use super::{BlockSent, Codepoint, Departure, Feedback, RateController, leave_to_inner};
use crate::time::{Duration, Instant, Rate};

/// Groups of packets last no longer than this at the bound, so that what the user keeps for others is
/// free at any moment that they would notice.
const MAX_GROUP: Duration = Duration::from_millis(10);

/// Packets that may be in flight in any case: an initial window (RFC 6928). With fewer a loss would wait for
/// three later packets to show it.
const FEW: u64 = 10;

/// A controller that never sends faster than a bound. While the bound holds it back it is told that
/// there was nothing to send, so that it takes nothing of what it sees for the path's limit.
#[derive(Debug)]
pub struct Capped {
    inner: Box<dyn RateController>,
    cap: Rate,
    packet: u64,
    /// Smoothed.
    rtt: Duration,
}

impl Capped {
    /// Sends as `inner` does, at most at `cap`, in UDP payload bits.
    pub fn new(inner: Box<dyn RateController>, cap: Rate) -> Self {
        Self {
            inner,
            cap,
            packet: 1500,
            rtt: Duration::ZERO,
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
        bandwidth,
    );

    /// What the bound lets go until an answer is late, as in the window of [`PathModel`](super::PathModel). Without
    /// this the window would be that of the whole path, or in a start-up that the bound never lets end three times
    /// what was delivered: when nothing is answered any more packets would go on leaving for as long as they last.
    fn window(&self) -> u64 {
        let late = self.rtt.mul_f64(WINDOW_ROUND_TRIPS) + Duration::from_secs_f64(MAX_HELD);
        let bound = self.cap.bytes_in(late) + self.group() + FEW * self.packet;
        self.inner.window().min(bound)
    }

    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.packet = packet_size;
        self.rtt = rtt;
        self.inner.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.rtt = feedback.rtt.smoothed();
        let mut told = *feedback;
        if self.is_held_back()
            && let Some(newest) = &feedback.newest
        {
            let sent = newest.sent_total;
            told.idle_total = told.idle_total.max(sent);
            told.app_limited_total = told.app_limited_total.max(sent);
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
