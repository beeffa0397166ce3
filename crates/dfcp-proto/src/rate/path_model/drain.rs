//! Drains: a moment of less, so that the queue is empty and the base delay shows.
//!
//! Those who share a queue drain it together ([`base`](super::base)). Where much is lost, a drain shows more than
//! the base delay: what is lost while everybody sends half of what the path delivers to him is lost at any rate.
//! No test of one sender's rate can tell that of many, whose loss one of them does not heal. So a **deep drain**
//! is long enough to count what is lost in it, and compares that with the rounds without a drain. So does a
//! [common look](super::look), which all begin by the clock, whatever they saw of the queue.

use super::look::Looks;
use super::loss::{Stretch, tolerance};
use super::loss_cause::Blame;
use super::tuning::drain::*;
use super::tuning::look;
use super::tuning::loss::{CERTAIN, MOST_OF_ROUND};
use super::tuning::queue::{MIN_BUSY, OVERSHOOT};
use super::tuning::spans;
use super::{Mode, PathModel};
use crate::rate::AckPoint;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

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

/// What the last rounds without a drain lost.
#[derive(Debug, Default)]
struct Rounds {
    /// Drains of others may last until then.
    from: Option<Instant>,
    last: VecDeque<RoundLoss>,
}

/// Packets that a round sent, and the share of them that was lost.
#[derive(Clone, Copy, Debug)]
struct RoundLoss {
    packets: f64,
    share: f64,
}

impl Rounds {
    fn add(&mut self, now: Instant, round: &Stretch) {
        let from = *self.from.get_or_insert(now + AFTER_DRAIN);
        if now < from || round.packets < LEAST_PACKETS {
            return;
        }
        self.last.push_back(RoundLoss {
            packets: round.packets,
            share: round.loss(),
        });
        if self.last.len() > ROUNDS {
            self.last.pop_front();
        }
    }

    /// Whether they are enough to compare a rest with.
    fn are_enough(&self) -> bool {
        self.last.len() >= LEAST_ROUNDS
    }

    /// Share lost.
    fn mean(&self) -> f64 {
        let packets: f64 = self.last.iter().map(|round| round.packets).sum();
        let lost: f64 = self.last.iter().map(|r| r.packets * r.share).sum();
        lost / packets.max(1.0)
    }

    /// Whether so much less is lost at `rest`, a share `loss` of so many packets, that chance does not explain it:
    /// less than in all rounds but one of [`LEAST_ROUNDS`], and less than what independent losses come to. Losses in
    /// bursts leave many rounds without any, and no rest loses less than those.
    fn heal_at_rest(&self, loss: f64, packets: f64) -> bool {
        let as_little = self.last.iter().filter(|round| round.share <= loss).count();
        let is_rare = (as_little + 1) * (LEAST_ROUNDS + 1) <= self.last.len() + 1;
        let mean = self.mean();
        let chance = CERTAIN * (mean * (1.0 - mean) / packets).sqrt();
        is_rare && mean > loss + tolerance(loss) + chance
    }
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

    /// Whether a moment has passed at which this sender looks, with rounds to compare it with.
    fn is_time_to_look(&mut self, now: Instant) -> bool {
        if !self.drains.looks.pass(now) {
            return false;
        }
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
        let is_look = self.is_time_to_look(now);
        let may_again = now > self.drains.again_from;
        let is_due = may_again && self.delay.base_is_due(now) && delay > MIN_BUSY;
        let is_doubtful = may_again && self.delay.base_is_doubtful(now) && !self.is_noisy(now);
        let is_asked = may_again && self.drains.asked == Asked::Due;
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
        let (kind, share, queues, least) = match is_look {
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
    fn judge_rest(&mut self, now: Instant, drain: &Drain, rest: &Stretch) {
        let is_known = rest.packets >= LEAST_PACKETS;
        // Laplace's rule of succession.
        let lost = (rest.loss() * rest.packets + 1.0) / (rest.packets + 2.0);
        let before = self.drains.rounds.mean();
        let heals = is_known && self.drains.rounds.heal_at_rest(lost, rest.packets);
        if drain.kind == Kind::Deep || heals {
            self.drains.rounds = Rounds::default();
            self.delay.lower_floor(drain.least.max(0.0));
        }
        match drain.kind {
            _ if !is_known => {}
            _ if heals => {
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
            Kind::Look => self.drains.looks.found(lost, rest.packets, before),
            _ => self.loss.rest(lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a tenth of a second with a hundred packets each, of which so many are lost.
    fn rounds(lost: impl Fn(u32) -> f64) -> Rounds {
        let mut between = Rounds::default();
        for number in 0..50 {
            let round = Stretch {
                sent: 100.0,
                delivered: 100.0 - lost(number),
                packets: 100.0,
                seconds: 0.1,
            };
            let now = Instant::ZERO + Duration::from_millis(100 * u64::from(number));
            between.add(now, &round);
        }
        between
    }

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

    #[test]
    fn loss_that_ends_while_all_send_little_is_of_their_making() {
        let flood = rounds(|number| f64::from(20 + number % 40));
        assert!(flood.heal_at_rest(0.02, 64.0));
        assert!(!flood.heal_at_rest(0.25, 64.0), "as much as in some rounds");
        let few = rounds(|number| f64::from(u8::from(number < 40) * 50));
        assert!(!few.heal_at_rest(0.02, 64.0), "rounds without loss");
        // After the last one healed it began with rounds that lost nothing.
        let again = rounds(|number| f64::from(u8::from(number > 17) * 50));
        assert!(again.heal_at_rest(0.02, 64.0));
    }

    #[test]
    fn a_flood_is_compared_with_what_it_loses_now() {
        let mut grown = rounds(|_| 0.0);
        let round = Stretch {
            sent: 100.0,
            delivered: 60.0,
            packets: 100.0,
            seconds: 0.1,
        };
        for _ in 0..ROUNDS {
            grown.add(Instant::ZERO + Duration::from_secs(6), &round);
        }
        assert!(grown.heal_at_rest(0.02, 64.0));
    }

    #[test]
    fn the_paths_own_loss_is_not_healed_by_chance() {
        let path = rounds(|number| f64::from(15 + number % 10));
        // Three standard errors of 64 packets are 0.15.
        assert!(!path.heal_at_rest(0.08, 64.0));
        // A burst of fifty in every second round.
        let bursts = rounds(|number| f64::from(number % 2 * 50));
        assert!(!bursts.heal_at_rest(0.01, 200.0));
    }

    #[test]
    fn rounds_in_which_others_still_drain_do_not_count() {
        // What the first rounds lost is little, as others drain for longer.
        let between = rounds(|number| if number < 14 { 0.0 } else { 40.0 });
        assert!(between.heal_at_rest(0.02, 64.0));
    }
}
