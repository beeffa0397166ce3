//! Drains: a moment of less, so that the queue is empty and the base delay shows.
//!
//! Those who share a queue drain it together ([`base`](super::base)). Where much is lost, a drain shows more than
//! the base delay: what is lost while everybody sends half of what the path delivers to him is lost at any rate.
//! No test of one sender's rate can tell that of many, whose loss one of them does not heal. So a **deep drain**
//! is long enough to count what is lost in it, and compares that with the rounds without a drain. So does a
//! [common look](super::look), which all begin by the clock, whatever they saw of the queue.

use super::look::Looks;
use super::loss::Stretch;
use super::loss_cause::Blame;
use super::rest::Rounds;
use super::tuning::drain::*;
use super::tuning::look;
use super::tuning::loss::MOST_OF_ROUND;
use super::tuning::queue::{MIN_BUSY, OVERSHOOT};
use super::tuning::spans;
use super::{Mode, PathModel};
use crate::rate::AckPoint;
use crate::time::{Duration, Instant};

/// A drain, until what it showed is known.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// Most rate, bytes per second, and until when.
    rate: f64,
    until: Instant,
    kind: Kind,
    /// From when on what is sent finds an empty queue; bytes sent, in all, by then and within the drain.
    empty_from: Instant,
    from: Option<u64>,
    to: u64,
    is_over: bool,
    /// The first and the last packet acknowledged of those in between. What leaves afterwards is much more.
    between: Option<(AckPoint, AckPoint)>,
    /// The least queueing delay seen, seconds.
    least: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Shows the base delay.
    Shallow,
    /// And what is lost while all send little.
    Deep,
    /// The same at a moment that all have in common.
    Look,
}

/// The drain under way and what is known for the next one.
#[derive(Debug, Default)]
pub(super) struct Drains {
    drain: Option<Drain>,
    /// No other before.
    again_from: Instant,
    /// Bytes sent, in all, by the end of the last one, and bytes per second that were delivered before it.
    ended: u64,
    delivered: f64,
    looks: Looks,
    rounds: Rounds,
    asked: Asked,
}

/// Whether a deep drain was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    No,
    Due,
    /// It has begun, or too little is sent for one.
    Done,
}

impl Drains {
    /// Asks for a deep drain, once; true as long as it is due.
    pub(super) fn ask(&mut self) -> bool {
        if self.asked == Asked::No {
            self.asked = Asked::Due;
        }
        self.asked == Asked::Due
    }

    /// Most rate, while there is a drain, bytes per second.
    pub(super) fn most_rate(&self, now: Instant) -> Option<f64> {
        let drain = self.drain.filter(|drain| now < drain.until)?;
        Some(drain.rate)
    }

    /// Whether what is measured now may have been sent in a drain.
    pub(super) fn is_measured(&self) -> bool {
        self.drain.is_some()
    }

    /// Bytes per second that were delivered of `stretch`, before which `sent` bytes were sent, or before the drain that it
    /// met: of that arrives what was sent.
    pub(super) fn undrained(&self, sent: u64, stretch: &Stretch) -> f64 {
        if self.is_measured() || sent < self.ended {
            return self.delivered;
        }
        stretch.delivered / stretch.seconds
    }

    /// Whether all have seen since the last moment to look that the path loses less than this by itself.
    pub(super) fn contradict(&self, now: Instant, lost: f64) -> bool {
        self.looks.contradict(now, lost)
    }

    /// A round is over that had no drain in it.
    pub(super) fn end_round(&mut self, now: Instant, round: &Stretch) {
        if self.drain.is_none() {
            self.rounds.add(now, round);
        }
    }
}

impl PathModel {
    /// `sent_total` bytes were sent so far.
    pub(super) fn drain_on_sent(&mut self, now: Instant, sent_total: u64) {
        // A moment to look does not wait for acknowledgements, which are rare where most is lost.
        if self.drains.drain.is_none()
            && let Some(delay) = self.samples.last_delay()
        {
            self.begin_drain(now, delay);
        }
        let Some(drain) = &mut self.drains.drain else {
            return;
        };
        if now >= drain.empty_from {
            drain.from.get_or_insert(sent_total);
        }
        if now < drain.until {
            (drain.to, self.drains.ended) = (sent_total, sent_total);
        } else if !std::mem::replace(&mut drain.is_over, true)
            && let Mode::LossTest(test, _) = &mut self.mode
        {
            test.resume(sent_total);
        }
    }

    /// A packet was acknowledged that met a queue of `delay` seconds above the base.
    pub(super) fn follow_drain(&mut self, now: Instant, ack: AckPoint, delay: f64) {
        let Some(drain) = &mut self.drains.drain else {
            return self.begin_drain(now, delay);
        };
        if drain.kind == Kind::Shallow && delay < DRAINED {
            drain.until = drain.until.min(now);
        }
        if drain.from.is_none_or(|from| ack.sent_total < from) {
            return;
        }
        if ack.sent_total <= drain.to {
            drain.least = drain.least.min(delay);
            let first = drain.between.map_or(ack, |(first, _)| first);
            drain.between = Some((first, ack));
        }
        if !drain.is_over || ack.sent_total < drain.to {
            return;
        }
        let drain = *drain;
        self.drains.drain = None;
        if drain.kind != Kind::Shallow
            && let Some((first, last)) = drain.between
        {
            let rest = Stretch::between(&first, &last, self.packet);
            self.judge_rest(now, &drain, &rest);
        }
    }

    /// Whether this sender looks at the moment that has just passed, with rounds to compare it with.
    fn looks_now(&self, now: Instant) -> bool {
        let lost = self.loss.recent().max(self.loss.mean);
        let can_compare = self.drains.rounds.are_enough();
        // Who loses most looks for the sake of others, too: they would see less without him.
        let is_telling = can_compare || lost > MOST_OF_ROUND;
        is_telling && self.drains.looks.is_due(lost) && !self.is_noisy(now)
    }

    /// Drains are due when the base delay was not seen for long, deep ones also where it may never have been or where
    /// one was asked for, and looks when it is time. Deep ones and looks need a sender that sends enough meanwhile to
    /// count; shallow ones are cruise's. Who gives way leaves the path to others anyway.
    fn begin_drain(&mut self, now: Instant, delay: f64) {
        let passes = self.drains.looks.pass(now);
        let is_look = passes && self.looks_now(now);
        let may_again = now > self.drains.again_from;
        let is_due = may_again && self.delay.base_is_due(now) && delay > MIN_BUSY;
        let is_doubtful = may_again && self.delay.base_is_doubtful(now) && !self.is_noisy(now);
        // Of several who lose much one alone would see what the others make him lose.
        let is_asked = passes && may_again && self.drains.asked == Asked::Due;
        let is_elsewhere = matches!(self.mode, Mode::Startup(_) | Mode::Yield(_));
        if !(is_look || is_due || is_doubtful || is_asked) || is_elsewhere || self.was_silent() {
            return;
        }
        if is_asked {
            self.drains.asked = Asked::Done;
        }
        let span = self.rate_span().max(self.round_trip_span());
        let (Some(from), Some(last)) = (self.samples.before(span), self.samples.last()) else {
            return;
        };
        let before = Stretch::between(&from, &last, self.packet);
        let delivered = self.drains.undrained(from.sent_total, &before);
        let lost = self.loss.recent().max(self.loss.mean).max(before.loss());
        let (kind, share, queues, least) = match is_look && !is_asked {
            true => (Kind::Look, look::SHARE, look::QUEUES, look::TIME),
            false => (Kind::Deep, SHARE, 1.0, 0.0),
        };
        let (rate, queue) = (share * delivered, delay.max(self.delay.unseen()));
        let emptied = self.rtt + queues * queue;
        let mut longest = spans::MOST;
        let counts = rate * (longest - emptied) > LEAST_PACKETS * self.packet;
        let (kind, rate, empty, length) = if lost > DEEP_FROM && counts {
            let counted = (PACKETS * self.packet / rate).max(self.round_trip_span());
            (kind, rate, emptied, emptied + counted.max(least))
        } else if is_due && matches!(self.mode, Mode::Cruise(_)) && !self.is_long(self.queue()) {
            // No longer than anything is measured, unless it takes longer to empty this sender's own queue, as where a few
            // packets take a second.
            let packet = self.path_packet_time(1.0);
            let own = delay.min(OVERSHOOT * self.target()) + packet;
            let gain = (1.0 - own / spans::MOST).clamp(SHARE, DRAIN_GAIN);
            longest = longest.max(own / (1.0 - gain));
            let length = self.rtt + (delay + packet) / (1.0 - gain);
            (Kind::Shallow, gain * self.estimate, 0.0, length)
        } else {
            return;
        };
        let length = length.min(longest);
        let after = |seconds: f64| now + Duration::from_secs_f64(seconds);
        let settled = self.settled(delay);
        match &mut self.mode {
            Mode::LossTest(test, _) => test.pause(),
            Mode::Cruise(cruise) => cruise.ignore_until(after(length + settled)),
            _ => {}
        }
        // Others may look at no moment, or at another one: their drains are not to be missed for it.
        if kind != Kind::Look {
            self.drains.again_from = after(length) + super::tuning::base::MEMORY / 2;
        }
        if kind == Kind::Deep {
            self.delay.is_looked_for(now);
        }
        self.drains.delivered = delivered;
        self.drains.drain = Some(Drain {
            rate,
            until: after(length),
            kind,
            empty_from: after(empty),
            from: None,
            to: 0,
            is_over: false,
            between: None,
            least: f64::INFINITY,
        });
    }

    /// Compares what was lost while everybody sent little, in `drain`, with what was lost before.
    fn judge_rest(&mut self, now: Instant, drain: &Drain, stretch: &Stretch) {
        let rounds = &mut self.drains.rounds;
        let rest = rounds.rest(stretch);
        let judged = match drain.kind {
            Kind::Look => self.drains.looks.with_last(rest),
            _ => rest,
        };
        let heals = rounds.heal_at_rest(&judged);
        if heals || (drain.kind == Kind::Deep && rest.explains()) {
            *rounds = Rounds::default();
        } else if drain.kind == Kind::Deep {
            // A look may tell what so few packets do not.
            rounds.leave_out_drains();
        }
        if drain.kind == Kind::Deep || heals {
            self.delay.lower_floor(drain.least.max(0.0));
        }
        match drain.kind {
            _ if heals => {
                let lost = judged.loss();
                self.drop_test();
                self.unhealed = None;
                self.before_loss = None;
                self.drains.looks.heal(now, lost);
                let sent_until = self.sent_total;
                let blame = Blame {
                    delivered: self.drains.delivered,
                    remaining: lost,
                    at_most: lost,
                };
                self.blame_rate(now, blame, sent_until);
            }
            _ if rest.packets < LEAST_PACKETS => {}
            Kind::Look => self.drains.looks.found(rest),
            _ => self.loss.rest(rest.loss()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_of_a_drain_is_not_what_the_path_delivers() {
        let stretch = Stretch {
            sent: 100.0,
            delivered: 60.0,
            packets: 100.0,
            seconds: 0.1,
        };
        let drains = Drains {
            ended: 5000,
            delivered: 1200.0,
            ..Drains::default()
        };
        assert_eq!(drains.undrained(4999, &stretch), 1200.0);
        assert_eq!(drains.undrained(5000, &stretch), 600.0);
    }
}
