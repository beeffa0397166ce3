//! Beside senders that fill the queue: a CUBIC window, until the queue is gone or ours alone.

use super::cubic::{CubicWindow, Lost, WindowPath};
use super::elasticity::QueueOwner;
use super::tuning::cubic::{DECREASE, TRIAL_LOOPS};
use super::tuning::queue::{HELD_SHARE, RANGE};
use super::{Mode, PathModel};
use crate::rate::{AckPoint, Feedback};
use crate::time::Instant;

impl PathModel {
    /// Goes on with a window that carries `rate` through a queue that others keep.
    pub(super) fn begin_competing(&mut self, now: Instant, rate: f64, queue: f64) {
        let settled = self.settled(queue);
        let window = rate * (self.rtt + queue).max(self.smoothed_rtt);
        self.estimate = rate;
        self.mode = Mode::Competitive(CubicWindow::new(now, window, queue, TRIAL_LOOPS * settled));
    }

    /// Answers an overflow of a short queue as CUBIC does: without that, each of them would leave a CUBIC
    /// flow with less, and this sender with what it gave up.
    pub(super) fn answer_overflow(&mut self, now: Instant, sent_total: u64) {
        let queue = self.queue();
        let settled = self.settled(queue);
        let window = self.estimate * (self.rtt + queue).max(self.smoothed_rtt);
        let window = CubicWindow::new(now, window, queue, TRIAL_LOOPS * settled);
        self.mode = Mode::Competitive(window.after_overflow(now, self.packet, sent_total));
    }

    /// Others fill the queue and so do we, until it is gone or ours alone.
    pub(super) fn compete(&mut self, feedback: &Feedback<'_>, last: AckPoint) {
        let now = feedback.now;
        let queue = self.queue();
        let flow = self.flow(&last, feedback.idle_total, queue);
        let flow = flow.filter(|_| !self.was_silent());
        let path = WindowPath {
            rtt: self.smoothed_rtt.max(self.rtt),
            packet: self.packet,
            queue,
            resolution: (RANGE * self.noise(now)).min(self.rtt / 2.0),
            settled: self.settled(queue),
        };
        let (busy, target) = (queue > self.busy_from(), self.target());
        if let Some(flow) = flow.filter(|_| busy) {
            self.variation.update(now, flow, path.settled);
            self.estimate = flow.served;
        }
        let is_overflow = self.round.queue.longest > HELD_SHARE * self.buffer.seconds;
        let Mode::Competitive(window) = &mut self.mode else {
            return;
        };
        // A queue that is known to overflow, and is not half full, does not.
        let packets = match window.answers_overflow() && !is_overflow {
            true => 0,
            false => feedback.lost_packets,
        };
        let lost = Lost {
            packets,
            acked: feedback.acked_packets,
            marked: feedback.ce_packets > 0,
            acked_total: last.sent_total,
            sent_total: last.sent_total + feedback.bytes_in_flight,
            own: self.loss.mean,
            deviation: self.loss.deviation(window.window() / self.packet),
            packet: self.packet,
            rtt: path.rtt,
            settled: path.settled,
        };
        window.grow(now, &path, flow.is_some());
        let owner = flow.and_then(|f| window.look(now, f, &path, &self.variation));
        window.on_lost(now, &lost);
        if owner == Some(QueueOwner::Path) {
            self.estimate = window.window() / path.rtt;
            let height = window.standing_delay().unwrap_or(queue);
            self.delay.set_floor(self.delay.floor() + height);
        }
        let ended = match window.answers_overflow() {
            // A short queue is empty after each cut, whoever filled it. What stands is held in cruise.
            true => window.has_recovered() || queue > target,
            false => !busy && flow.is_some(),
        };
        if ended || matches!(owner, Some(QueueOwner::Own | QueueOwner::Path)) {
            // What was just served follows every gap in what we send.
            let least = DECREASE * window.window() / path.rtt;
            self.estimate = self.estimate.max(least);
            self.begin_cruise();
            self.probe_gain = 1.0;
            if owner != Some(QueueOwner::Path) {
                self.hold_probes(now);
            }
        }
    }
}
