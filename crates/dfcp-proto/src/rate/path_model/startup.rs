//! Looking for the bottleneck: by the dispersion of what was sent close together, else by doubling.

use super::loss::{Stretch, tolerance};
use super::tuning::bounds::MAX_CLAIM;
use super::tuning::loss::{LEAST_ROUND, MOST_OF_ROUND};
use super::tuning::queue::LONG_JITTERS;
use super::tuning::startup::*;
use super::{Mode, PathModel};
use crate::rate::{AckPoint, Feedback};
use crate::time::Duration;

/// What leaves before the first feedback.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstFlight {
    pub(super) packets: f64,
    /// Bytes per second of what follows the burst; `None`: all in a round trip.
    rate: Option<f64>,
}

impl FirstFlight {
    /// Packets that leave unpaced: a train whose dispersion shows the bottleneck, if the path is known
    /// to be fast enough for it.
    pub(super) fn burst(&self) -> f64 {
        match self.rate {
            Some(_) => INITIAL_WINDOW,
            None => INITIAL_BURST,
        }
    }
}

impl Default for FirstFlight {
    fn default() -> Self {
        Self {
            packets: INITIAL_WINDOW,
            rate: None,
        }
    }
}

/// A time in which the path delivered next to nothing, with what was sent meanwhile at its end: a link
/// that holds packets back and then passes them on together, as Wi-Fi does.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Its end by the receiver's clock, seconds.
    released_at: f64,
    /// One-way delay just before it, and how long it took, seconds.
    delay: f64,
    seconds: f64,
}

impl Hold {
    /// The hold of a train, if the longest gap between its arrivals is one: a bottleneck serves evenly,
    /// each part of the bytes in as large a part of the time. A gap of the sender's is none.
    fn of(train: &Stretch, gap: &(AckPoint, AckPoint), packet: f64) -> Option<Self> {
        let (before, after) = gap;
        let carried = Stretch::between(before, after, packet);
        let seconds = beyond_sending(before, after);
        let (time, bytes) = (seconds / train.seconds, carried.sent / train.sent);
        (time > HELD + bytes).then(|| Self {
            released_at: after.received_at.as_secs_f64(),
            delay: before.one_way_delay(),
            seconds,
        })
    }

    /// Whether a packet would have arrived before the end, had it not been held back.
    fn delayed(&self, ack: &AckPoint) -> bool {
        ack.received_at.as_secs_f64() - ack.one_way_delay() + self.delay < self.released_at
    }
}

/// Where a stretch of arrivals begins that a hold precedes: before the hold, if that is earlier.
fn before_hold(from: AckPoint, held: Option<(AckPoint, Hold)>) -> AckPoint {
    match held {
        Some((before, _)) if before.received_at < from.received_at => before,
        _ => from,
    }
}

/// Time between two arrivals beyond that between their sending, seconds.
fn beyond_sending(before: &AckPoint, after: &AckPoint) -> f64 {
    let gap = after.received_at.saturating_sub(before.received_at);
    gap.saturating_sub(after.sent_at.saturating_since(before.sent_at))
        .as_secs_f64()
}

/// What start-up knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Highest service rate seen, bytes per second.
    pub(super) best: f64,
    /// What was sent close together arrived further apart.
    dispersed: bool,
    /// Highest rate that was seen when that showed, bytes per second, until the path carries more.
    pub(super) bottleneck: Option<f64>,
    stale_rounds: u32,
    best_at_round: f64,
    /// Highest delivery rate of a round, bytes per second, and rounds since one raised it.
    delivery: f64,
    flat_rounds: u32,
    /// The last time that packets were held back.
    hold: Option<Hold>,
    /// Least share that was lost of all that was sent so far.
    least_loss: Option<f64>,
}

impl Search {
    /// Goes on from a rate that is known.
    pub(super) fn from(best: f64) -> Self {
        Self {
            best,
            ..Self::default()
        }
    }

    /// Whether one of the last rounds delivered more than any before: then loss is no sign of
    /// congestion.
    pub(super) fn is_growing(&self) -> bool {
        self.flat_rounds < FLAT_ROUNDS
    }

    /// Takes what a round delivered, bytes per second. What draws packets apart and then carries more for a
    /// round trip is no bottleneck, but a path of varying delay.
    fn deliver(&mut self, rate: f64) {
        self.bottleneck
            .take_if(|bottleneck| rate > BEST_GROWTH * *bottleneck);
        if rate > GROWTH * self.delivery {
            (self.delivery, self.flat_rounds) = (rate, 0);
        } else {
            self.flat_rounds += 1;
        }
    }

    /// How many times what arrives of a train the path may have carried, if packets up to `from` were sent
    /// before it: what was lost all the time the path loses by itself, what is lost beyond that it may
    /// refuse. Of the first packets half may be lost.
    fn most_carried(&mut self, from: &AckPoint, packet: f64) -> f64 {
        let (sent, delivered) = (from.sent_total as f64, from.delivered_total as f64);
        if sent >= LEAST_ROUND * packet {
            let least = self.least_loss.unwrap_or(1.0);
            self.least_loss = Some(least.min(1.0 - delivered / sent).max(0.0));
        }
        self.least_loss.map_or(SEARCH_GAIN, |loss| {
            let most = loss + tolerance(loss);
            SEARCH_GAIN.min(1.0 / (1.0 - most).max(f64::EPSILON))
        })
    }

    /// Whether a delay of this packet may be a queue that we made.
    fn shows_queue(&self, ack: &AckPoint) -> bool {
        !self.hold.is_some_and(|hold| hold.delayed(ack))
    }

    /// A round is over; true if the search is.
    fn end_round(&mut self, unused: bool) -> bool {
        if self.best <= 0.0 {
            return false;
        }
        if self.best > BEST_GROWTH * self.best_at_round {
            (self.stale_rounds, self.best_at_round) = (0, self.best);
        } else if !unused {
            self.stale_rounds += 1;
        }
        self.stale_rounds >= STALE_ROUNDS
    }
}

impl PathModel {
    /// Ends when a queue forms or the rate stops growing, while there is something to send: else the
    /// rates are the application's, and it will want more.
    pub(super) fn startup(&mut self, mut search: Search, last: AckPoint, feedback: &Feedback<'_>) {
        let span = (TRAIN_SHARE * self.rtt).clamp(SHORTEST_TRAIN, LONGEST_TRAIN);
        self.look_at_train(&mut search, &last, span);
        self.mode = Mode::Startup(search);
        self.met |= search.dispersed;
        self.estimate = search.best;
        self.gain = if search.bottleneck.is_some() {
            SEEN_GAIN
        } else {
            SEARCH_GAIN
        };
        if self.yields && search.best > 0.0 {
            // No doubling: what it overshoots by would be lost to others.
            return self.begin_cruise();
        }
        let span = span.max(self.longest_hold());
        let standing = self.delay.standing(&self.samples, span, self.target());
        let idle_total = feedback.idle_total;
        let is_busy = self.round.start.is_none_or(|s| idle_total < s.sent_total);
        let used = is_busy || self.fills_path(feedback);
        let shows_queue = search.dispersed && search.shows_queue(&last);
        if used && shows_queue && standing > self.ending_queue() {
            self.begin_cruise();
            if let Mode::Cruise(cruise) = &mut self.mode {
                cruise.ended = search.is_growing().then_some((search, standing));
            }
        }
    }

    /// Whether a round trip of what the search found is in flight: then the path is in use even if not
    /// the rate but the receiver's credit limits the sender.
    pub(super) fn fills_path(&self, feedback: &Feedback<'_>) -> bool {
        self.estimate > 0.0 && feedback.bytes_in_flight as f64 > self.estimate * self.rtt
    }

    /// A standing queue that ends the search, seconds.
    fn ending_queue(&self) -> f64 {
        let queue = self.target().max((QUEUE_SHARE * self.rtt).min(MAX_QUEUE));
        queue + LONG_JITTERS * self.delay.jitter()
    }

    /// The longest time between two arrivals in the last round trip of them, beyond that between their
    /// sending, seconds: what arrives just after it may have been held back, all of it, and shows no
    /// standing queue.
    fn longest_hold(&self) -> f64 {
        self.longest_gap()
            .map_or(0.0, |(before, after)| beyond_sending(&before, &after))
    }

    /// The neighbours with the longest time between their arrivals in the last round trip of them.
    fn longest_gap(&self) -> Option<(AckPoint, AckPoint)> {
        let from = self.samples.before(self.rtt).or(self.samples.first())?;
        self.samples.longest_gap(&from)
    }

    /// The last packet before the path held others back, if it did in the last round trip and has taken no
    /// longer since to pass them on.
    fn hold_before(&self, last: &AckPoint) -> Option<(AckPoint, Hold)> {
        let gap = self.longest_gap()?;
        let train = Stretch::between(&gap.0, last, self.packet);
        Hold::of(&train, &gap, self.packet).map(|hold| (gap.0, hold))
    }

    /// A search goes on if the delay that ended it would not end it with the jitter that is known now,
    /// the queue is not long, and the path delivers so much more than the search had found that half
    /// as much would not be believed the other way round.
    pub(super) fn resume_search(&mut self) {
        let long = self.is_long(self.queue());
        let Some((from, last)) = self
            .samples
            .before(self.rate_span())
            .zip(self.samples.last())
        else {
            return;
        };
        // What the path held back explains a delay as long as that, and came faster than it is carried.
        let held = self.hold_before(&last);
        let limit = self.ending_queue() + held.map_or(0.0, |(_, hold)| hold.seconds);
        let from = before_hold(from, held);
        // By the receiver's clock: feedback may come in bunches, too.
        let arrived = Stretch::between(&from, &last, self.packet);
        let more = arrived.delivered / arrived.seconds > MAX_CLAIM * self.estimate;
        if let Mode::Cruise(cruise) = &self.mode
            && let Some((search, standing)) = cruise.ended
            && (standing < limit && more && !long)
            && self.delivered.used <= MAX_ROUND_TRIPS
        {
            self.mode = Mode::Startup(Search {
                best: search.best.max(self.estimate),
                dispersed: false,
                bottleneck: None,
                stale_rounds: 0,
                flat_rounds: 0,
                ..search
            });
        }
    }

    /// A search that found more than doubling can have come to, of which so much was lost, took a train
    /// that passed a policer's full bucket for the bottleneck: it goes on from what is delivered. True if so.
    pub(super) fn search_again(&mut self, round: &Stretch) -> bool {
        let Mode::Startup(search) = &self.mode else {
            return false;
        };
        let arrives = 1.0 - search.least_loss.unwrap_or(0.0);
        let delivered = round.delivered / round.seconds;
        let misled = self.estimate * arrives > MISLED * delivered;
        if misled {
            self.mode = Mode::Startup(Search::from(delivered));
            self.loss.begin_again();
        }
        misled
    }

    /// Takes what the train of packets shows that arrived in the last `span` seconds.
    fn look_at_train(&self, search: &mut Search, last: &AckPoint, span: f64) {
        // Long enough for a rate: in time, and in packets on slow paths.
        let train = last
            .sent_total
            .saturating_sub((TRAIN_PACKETS * self.packet) as u64);
        let until = last
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        let begins = |ack: &AckPoint| ack.sent_total <= train && ack.received_at <= until;
        let from = self.samples.newest(begins).or(self.samples.first());
        if let Some(from) = from
            && from.sent_total <= train
            && last.received_at > from.received_at
        {
            let spread = (last.received_at - from.received_at).as_secs_f64();
            let sent_over = last.sent_at.saturating_since(from.sent_at).as_secs_f64();
            // What was held back arrives together, faster than the path carried it: then the rate is
            // that from before the hold on.
            let held = self.hold_before(last);
            search.hold = held.map(|(_, hold)| hold).or(search.hold);
            let from = before_hold(from, held);
            let train = Stretch::between(&from, last, self.packet);
            let arrived = train.delivered / (1.0 - self.loss.mean);
            let most = search.most_carried(&from, self.packet) * arrived;
            let rate = train.sent.min(most) / train.seconds;
            search.best = search.best.max(rate);
            let varies = TIMER_ERROR + LONG_JITTERS * self.delay.jitter();
            let drawn_apart = spread > DISPERSED * sent_over + varies;
            if drawn_apart && search.shows_queue(last) {
                search.dispersed = true;
                search.bottleneck.get_or_insert(search.best);
            }
        }
        if search.hold.is_some_and(|hold| hold.seconds > self.rtt)
            && let Some(delivered) = self.delivered.best()
        {
            // A train of a part of a round trip shows nothing then: what was held back arrives together,
            // faster than it was sent. What our own clock says was delivered is a round trip old, in
            // which the rate doubled.
            let most = SEARCH_GAIN * delivered / (1.0 - self.loss.mean);
            search.best = search.best.min(most);
        }
    }

    /// A round is over; `unused` if the sender was idle in it or the path held packets back.
    pub(super) fn startup_round(&mut self, unused: bool, round: Option<&Stretch>) {
        if let Mode::Startup(search) = &mut self.mode {
            if let Some(round) = round {
                search.deliver(round.delivered / round.seconds);
            }
            if search.end_round(unused) {
                self.begin_cruise();
            }
        }
        if let Some(round) = round
            && round.packets >= LEAST_ROUND
            && round.loss() > MOST_OF_ROUND
            && matches!(self.mode, Mode::Startup(_))
        {
            self.refuses_bursts = true;
            self.search_again(round);
        }
    }

    /// Takes what the handshake's packets showed, bytes per second; more of them show more. Jitter and other
    /// traffic draw them apart: a path that looks slow gets no less than any new connection may send.
    pub(super) fn plan_first_flight(&mut self, rate: f64) {
        let carried = self.rtt * rate / self.packet;
        let packets = FLIGHT_SHARE * carried;
        let is_fast = packets >= INITIAL_WINDOW && !self.yields;
        self.first = match is_fast {
            true => FirstFlight {
                packets: packets.min(MAX_FIRST_FLIGHT),
                rate: Some(rate),
            },
            false => FirstFlight {
                packets: (SLOW_FLIGHT * carried).clamp(INITIAL_BURST, INITIAL_WINDOW),
                rate: None,
            },
        };
    }

    /// Bytes per second while nothing is known of the bottleneck: as the first flight leaves, then twice
    /// what was found, no faster than two windows per round trip.
    pub(super) fn search_rate(&self) -> f64 {
        let first = self.first.packets * self.packet / self.rtt;
        if self.estimate <= 0.0 {
            return self.first.rate.unwrap_or(first);
        }
        let most = 2.0 * self.startup_window() / self.rtt;
        (self.estimate * self.gain).clamp(first, most)
    }

    /// Bytes per second while the bottleneck is looked for. What lets a burst through that its bucket holds
    /// may refuse the rest of a flight: once most of one was lost, they leave over a round trip each.
    pub(super) fn startup_rate(&self, search: &Search) -> f64 {
        let rate = match search.bottleneck {
            None => self.search_rate(),
            Some(_) => self.estimate * self.gain,
        };
        match self.refuses_bursts {
            true => rate.min(self.startup_window() / self.rtt),
            false => rate,
        }
    }

    /// Bytes in flight before the bottleneck is known.
    pub(super) fn startup_window(&self) -> f64 {
        self.delivered_window(3.0)
    }

    /// The first flight, and so many times what was delivered.
    pub(super) fn delivered_window(&self, times: f64) -> f64 {
        let delivered = self.samples.last().map_or(0, |ack| ack.delivered_total);
        // What was lost leaves the flight, but not this count.
        self.first.packets * self.packet + (times * delivered as f64 - self.lost).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::path_model::samples::Samples;
    use crate::time::Instant;

    const PACKET: f64 = 1500.0;

    /// Packet `n` of those sent together at the start, when it arrives.
    fn arrives(n: u64, millis: f64) -> AckPoint {
        let at = Duration::from_secs_f64(1.0 + millis / 1e3);
        AckPoint::new(at, Instant::ZERO, 1500 * n, 1500 * n)
    }

    /// A packet that takes 20 ms and arrives at that time, the next each tenth of a millisecond.
    fn sent_at(millis: f64) -> AckPoint {
        let number = (millis * 10.0).round() as u64 + 1;
        let mut ack = arrives(number, millis);
        ack.sent_at = Instant::ZERO + Duration::from_secs_f64(1.0 + (millis - 20.0) / 1e3);
        ack
    }

    /// The hold that a train shows which arrives at these times, milliseconds.
    fn hold(arrivals: &[f64]) -> Option<Hold> {
        let mut samples = Samples::default();
        for (n, &millis) in (1..).zip(arrivals) {
            samples.push(arrives(n, millis), 0.0, 1.0);
        }
        let (from, last) = (samples.first()?, samples.last()?);
        let train = Stretch::between(&from, &last, PACKET);
        let gap = samples.longest_gap(&from)?;
        Hold::of(&train, &gap, PACKET)
    }

    #[test]
    fn a_rate_that_a_round_trip_exceeds_was_no_bottleneck() {
        let mut search = Search {
            bottleneck: Some(1e6),
            ..Search::default()
        };
        search.deliver(1.05e6);
        assert!(search.bottleneck.is_some(), "as much as a bottleneck gives");
        search.deliver(1.2e6);
        assert!(search.bottleneck.is_none(), "a fifth more came through");
    }

    #[test]
    fn packets_that_were_held_back_are_told_from_a_slow_bottleneck() {
        let evenly: Vec<f64> = (0..12).map(|n| f64::from(n) * 4.0).collect();
        assert!(hold(&evenly).is_none(), "a slow bottleneck");
        let sparsely = [0.0, 20.0, 44.0];
        assert!(
            hold(&sparsely).is_none(),
            "of three packets each takes half"
        );
        let mut held = vec![0.0, 0.1, 0.2];
        held.extend((0..10).map(|n| 50.0 + f64::from(n) * 0.1));
        let flights: Vec<_> = held.iter().map(|&millis| sent_at(millis)).collect();
        let train = Stretch::between(&flights[0], &flights[12], PACKET);
        let gap = (flights[2], flights[3]);
        let paused = Hold::of(&train, &gap, PACKET);
        assert!(
            paused.is_none(),
            "the sender waited as long between two flights"
        );
        let hold = hold(&held).expect("50 ms without a packet, and ten at once");
        assert!(hold.delayed(&arrives(14, 50.3)));
        let mut later = arrives(15, 60.0);
        later.sent_at = Instant::ZERO + Duration::from_millis(55);
        assert!(
            !hold.delayed(&later),
            "sent when the path passed packets on again"
        );
    }
}
