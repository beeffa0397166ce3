//! What congestion marks ask for: a cut once in a loop of control (RFC 3168, RFC 8511), or, from a
//! low-latency queue that marks often, one in proportion to their share (RFC 9331, as TCP Prague).

use super::rounds::Round;
use super::shallow::Overflow;
use super::tuning::cruise::MAX_PROBE_GAIN;
use super::tuning::marks::*;
use super::tuning::queue::MIN_VISIBLE;
use super::{Mode, PathModel};
use crate::rate::{AckPoint, Codepoint, Feedback};
use crate::time::{Duration, Instant};

/// How a sender answers marks, and what its packets say of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkResponse {
    /// ECT(0): as loss, or nearly (RFC 3168, RFC 8511).
    #[default]
    Classic,
    /// ECT(1): in proportion to how many there are, which a low-latency queue expects (L4S, RFC 9331).
    Scalable,
}

/// What was learned of marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    response: MarkResponse,
    /// Until a cut shows, marks are of the rate before it.
    cut_until: Option<Instant>,
    /// Set by the first mark of a low-latency queue: from then on marks decide the rate.
    scale: Option<Scale>,
}

/// The state of TCP Prague's law.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Packets since the round trip began, and how many of them were marked.
    began: Instant,
    acked: u64,
    marked: u64,
    /// Mean share of packets that are marked: at first all, so that the first mark halves (RFC 8257
    /// §3.3).
    share: f64,
    /// Mean standing queue where there are marks, seconds.
    queue: f64,
    /// The last cut shows when what was sent after these bytes is acknowledged.
    cut_ends: u64,
    /// Packets that the rate grows by in a round trip, and when this begins to double.
    growth: f64,
    held_until: Instant,
}

impl Scale {
    fn new(now: Instant) -> Self {
        Self {
            began: now,
            acked: 0,
            marked: 0,
            share: 1.0,
            queue: 0.0,
            cut_ends: 0,
            growth: 1.0,
            held_until: now,
        }
    }

    /// Whether the queue that marks is one for packets that say ECT(0).
    fn is_classic(&self) -> bool {
        self.queue > CLASSIC_QUEUE
    }
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            response: MarkResponse::Classic,
            cut_until: None,
            scale: None,
        }
    }
}

impl Marks {
    pub(super) fn set_response(&mut self, response: MarkResponse) {
        self.response = response;
    }

    pub(super) fn codepoint(&self) -> Codepoint {
        match self.response {
            MarkResponse::Classic => Codepoint::Ect0,
            MarkResponse::Scalable => Codepoint::Ect1,
        }
    }

    /// Longest group of packets that a queue which marks has room for, seconds.
    pub(super) fn longest_group(&self) -> f64 {
        match self.response {
            MarkResponse::Classic => f64::INFINITY,
            MarkResponse::Scalable => MAX_GROUP,
        }
    }

    /// Whether a cut does not show yet.
    pub(super) fn was_cut(&self, now: Instant) -> bool {
        self.cut_until.is_some_and(|until| now < until)
    }

    /// Whether marks alone decide the rate.
    pub(super) fn govern(&self) -> bool {
        self.scale.is_some_and(|scale| !scale.is_classic())
    }
}

impl PathModel {
    /// Follows the marks of a low-latency queue as TCP Prague: a cut by half of their mean share, at
    /// once and once in a round trip, and a packet more in each.
    pub(super) fn follow_marks(&mut self, feedback: &Feedback<'_>, newest: AckPoint) {
        let is_new = self.marks.scale.is_none();
        if self.marks.response == MarkResponse::Classic || is_new && feedback.ce_packets == 0 {
            return;
        }
        let (now, queue) = (feedback.now, self.queue());
        let mut scale = self.marks.scale.unwrap_or(Scale::new(now));
        scale.acked += feedback.acked_packets;
        scale.marked += feedback.ce_packets;
        if feedback.ce_packets > 0 {
            // A window that takes each mark for a loss has no share of a low-latency queue.
            let windowed = matches!(self.mode, Mode::Competitive(_)) && !scale.is_classic();
            if windowed || matches!(self.mode, Mode::Startup(_)) {
                self.begin_cruise();
            }
            scale.growth = 1.0;
            scale.held_until = now + Duration::from_secs_f64(HELD_ROUNDS * self.rtt);
            scale.queue += (queue - scale.queue) * MEAN_WEIGHT;
            if newest.sent_total >= scale.cut_ends && !scale.is_classic() {
                scale.cut_ends = newest.sent_total + feedback.bytes_in_flight;
                // A window is cut with what waits; a rate must first come down to what is served.
                if let Some(flow) = self.flow(&newest, feedback.idle_total, queue) {
                    let half = self.estimate / 2.0;
                    self.estimate = self.estimate.min(flow.served.max(half));
                }
                self.estimate *= 1.0 - scale.share / 2.0;
            }
        }
        let idle = feedback.idle_total >= newest.sent_total;
        let elapsed = now.saturating_since(scale.began).as_secs_f64();
        if elapsed >= self.rtt && scale.acked > 0 {
            // The receiver may claim more marks than packets.
            let share = (scale.marked as f64 / scale.acked as f64).min(1.0);
            scale.share += (share - scale.share) * MEAN_WEIGHT;
            if !scale.is_classic() && !idle {
                let short = (self.rtt / SHORT_ROUND_TRIP).min(1.0).powi(2);
                let grown = short * scale.growth * (1.0 - share) * self.packet / self.rtt;
                self.estimate += grown.min(MEAN_WEIGHT * self.estimate);
            }
            if now >= scale.held_until {
                scale.growth = (2.0 * scale.growth).min(MAX_PROBE_GAIN);
            }
            (scale.began, scale.acked, scale.marked) = (now, 0, 0);
        }
        self.marks.scale = Some(scale);
    }

    /// A round is over, in which a classic queue marked packets.
    pub(super) fn answer_marks(&mut self, now: Instant, round: &Round) {
        if matches!(self.mode, Mode::Startup(_)) {
            self.begin_cruise();
        }
        if !self.marks.was_cut(now) {
            let share = round.marked as f64 / round.acked.max(1) as f64;
            self.estimate *= 1.0 - share.clamp(LEAST_CUT, MOST_CUT);
            let settled = self.settled(round.queue.longest);
            self.marks.cut_until = Some(now + Duration::from_secs_f64(settled));
        }
        // A queue that marks is as long as the network lets it be.
        let longest = round.queue.longest.max(MIN_VISIBLE);
        self.buffer
            .end_round(longest, self.rtt, Overflow::Seen, 0.0);
        self.back_off(now);
    }
}
