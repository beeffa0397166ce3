//! What was acknowledged lately: times, bytes, queues.

use std::collections::VecDeque;

use crate::rate::AckPoint;
use crate::rate::path_history::BaseDelay;
use crate::time::{Duration, Instant};

/// Measurements kept however old: ten packets of a slow path.
const MIN_POINTS: usize = 12;

#[derive(Clone, Copy, Debug)]
struct Point {
    ack: AckPoint,
    /// Seconds above the base delay.
    queue: f64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Points {
    list: VecDeque<Point>,
    base: BaseDelay,
}

impl Points {
    /// Takes a point and forgets those more than twice `span` seconds older; returns its queue.
    pub(super) fn push(&mut self, now: Instant, ack: AckPoint, span: f64) -> f64 {
        let delay = ack.received_at.as_secs_f64() - ack.sent_at.as_nanos() as f64 / 1e9;
        let queue = self.base.update(now, delay);
        self.list.push_back(Point { ack, queue });
        let keep = Duration::from_secs_f64(2.0 * span + 0.05);
        let is_old = |p: &Point| p.ack.received_at + keep < ack.received_at;
        while self.list.len() > MIN_POINTS && self.list.front().is_some_and(is_old) {
            self.list.pop_front();
        }
        queue
    }

    pub(super) fn last(&self) -> Option<AckPoint> {
        self.list.back().map(|p| p.ack)
    }

    pub(super) fn first(&self) -> Option<AckPoint> {
        self.list.front().map(|p| p.ack)
    }

    /// The newest point that `is` one.
    pub(super) fn newest(&self, is: impl Fn(&AckPoint) -> bool) -> Option<AckPoint> {
        self.list.iter().rev().map(|p| p.ack).find(is)
    }

    /// The newest point at least `span` seconds of arrivals before the last one.
    pub(super) fn before(&self, span: f64) -> Option<AckPoint> {
        let until = self
            .last()?
            .received_at
            .checked_sub(Duration::from_secs_f64(span))?;
        self.newest(|ack| ack.received_at <= until)
    }

    /// Least queue over the last `span` seconds of arrivals.
    pub(super) fn standing_queue(&self, span: f64) -> f64 {
        let Some(last) = self.last() else {
            return 0.0;
        };
        let from = last
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        self.list
            .iter()
            .rev()
            .take_while(|p| p.ack.received_at >= from)
            .fold(f64::INFINITY, |least, p| least.min(p.queue))
    }

    /// The base delay is about to be forgotten and nothing as small was seen since.
    pub(super) fn base_is_due(&self, now: Instant) -> bool {
        self.base.is_due(now)
    }

    /// Moves the base delay up by `by` seconds.
    pub(super) fn rise(&mut self, by: f64) {
        self.base.rise(by);
        for point in &mut self.list {
            point.queue = (point.queue - by).max(0.0);
        }
    }
}
