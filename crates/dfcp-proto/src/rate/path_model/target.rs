//! The standing queue that is aimed at, and what follows from it.

use super::tuning::{self, queue};
use super::{Mode, PathModel};

impl PathModel {
    /// The standing queue for which flows of any rate come to equal ones, seconds.
    pub(super) fn fair_target(&self) -> f64 {
        let share = (queue::FAIR_RATE / self.estimate.max(1.0)).sqrt();
        let nominal = match self.yields {
            true => queue::MIN_TARGET,
            false => (queue::MIN_TARGET * (1.0 + share)).min(queue::MAX_TARGET),
        };
        nominal.max(self.path_packet_time(queue::LEAST_PACKETS))
    }

    /// The standing queue we aim at, seconds: of one that overflows, half, and less after marks, but none
    /// that cannot be told from no queue.
    pub(super) fn target(&self) -> f64 {
        let nominal = self
            .fair_target()
            .min(queue::HELD_SHARE * self.buffer.seconds)
            * self.target_scale;
        nominal.max(self.path_packet_time(queue::VISIBLE_PACKETS))
    }

    /// What may leave together, seconds. Each group is a wake-up.
    pub(super) fn group(&self) -> f64 {
        let longest = match self.mode {
            // Groups that a short queue has no room for lose at any rate: no test would see it.
            Mode::LossTest(..) => 0.0,
            _ if self.drains.most_rate(self.now).is_some() => 0.0,
            // What the queue holds is not known yet, and twice what the path carries is sent.
            Mode::Startup(_) => tuning::startup::GROUP,
            // Half of the queue that we aim at, and an eighth of what a queue that overflowed holds:
            // groups of several flows find room, and are no disturbance to it.
            _ => {
                (queue::GROUP_TARGETS * self.target()).min(queue::GROUP_HELD * self.buffer.seconds)
            }
        };
        longest
            .min(self.groups.room())
            .min(self.marks.longest_group())
    }

    /// A standing queue from which on the bottleneck is busy.
    pub(super) fn busy_from(&self) -> f64 {
        (queue::BUSY_SHARE * self.target()).max(queue::MIN_BUSY)
    }

    /// Whether a queue is longer than what the model holds: its loss is congestion.
    pub(super) fn is_long(&self, queue: f64) -> bool {
        let jitter = queue::LONG_JITTERS * self.delay.jitter();
        queue > queue::LONG_TARGETS * self.fair_target() + jitter
    }
}
