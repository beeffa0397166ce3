//! The flagship's controller: a model of the path that tolerates loss without being deaf to it.
//!
//! The receiver says when packets arrived, so the sender sees the path's forward direction alone:
//!
//! * *Service rate* S: bytes sent between two acknowledged packets ÷ the time between their
//!   arrivals. Packets lost at random after the bottleneck occupied it too, so they count; loss
//!   beyond what the path loses when it is not full does not.
//! * *Standing queue* q: the least one-way delay of the last stretch, above the least of the last
//!   seconds. Least, because jitter only adds.
//!
//! While the bottleneck is busy (q above a threshold) S **is** its rate, whatever we send. So the
//! model sets its estimate to S and holds a small queue of `target` by the linear rule
//! rate = S · (1 + (target − q) ÷ 3 RTT): an integrator with gain ½ per feedback delay, stable.
//! While the queue is empty the estimate only rises, first gently, then faster, at most by a
//! quarter per round trip. Congestion marks and loss of our own making ([`super::path_loss`])
//! shrink the target.
//!
//! The times of arrival are the receiver's word. What it says is bounded by what our own clock saw
//! delivered: the estimate stays below twice that ([`Delivered`]), so neither a liar nor a broken
//! clock makes a flood.

use super::path_history::{BaseDelay, Delivered};
use super::path_loss::{Check, PathLoss, Sample, Verdict};
use super::{AckPoint, Feedback, RateController};
use crate::time::{Duration, Instant, Rate};
use std::collections::VecDeque;

/// First flight, packets; the dispersion of this train is the first look at the bottleneck.
const INITIAL_WINDOW: u64 = 32;
/// Never send slower than this many packets in a round trip or this many seconds, whichever is
/// longer: on a short path even one packet a round trip may be a flood.
const MIN_WINDOW: f64 = 2.0;
const MIN_WINDOW_TIME: f64 = 0.25;
/// Bounds of the standing queue that we aim at.
const MIN_TARGET: f64 = 0.004;
const MAX_TARGET: f64 = 0.010;
/// Highest pacing gain after start-up, and the lowest.
const MAX_GAIN: f64 = 1.2;
const MIN_GAIN: f64 = 0.7;
/// Packets in flight beyond what rate and delay ask for.
const SPARE_WINDOW: f64 = 4.0;
/// Measurements kept however old: ten packets of a slow path.
const MIN_POINTS: usize = 12;
/// A round has at least this many packets, or takes this many seconds.
const ROUND_PACKETS: f64 = 64.0;
const ROUND_TIME: f64 = 0.1;
/// Least time without a push after the path said no, seconds.
const MIN_HOLD: f64 = 0.5;
/// An estimate above this multiple of what was delivered is not believed.
const MAX_CLAIM: f64 = 2.0;
/// The same for three round trips after start-up, which multiplied the rate while it was measured.
const EARLY_CLAIM: f64 = 8.0;
/// Loss up to which the path's own loss excuses missing deliveries: with the above, paths that lose
/// up to 80 % keep their rate, and no claim makes more than five times what is delivered.
const MAX_EXCUSE: f64 = 0.6;
/// Round trips after which start-up is over, whatever the receiver says.
const MAX_STARTUP: u32 = 20;
/// Gain of start-up once the bottleneck was seen: looks whether there is more, gently.
const SEARCH_GAIN: f64 = 1.1;

/// See the module's text.
#[derive(Debug)]
pub struct PathModel {
    phase: Phase,
    /// Estimated bottleneck rate, bytes per second as sent.
    estimate: f64,
    gain: f64,
    packet: f64,
    /// Least round trip lately, and the smoothed one, seconds.
    rtt: f64,
    smoothed_rtt: f64,
    base: BaseDelay,
    round_trip: BaseDelay,
    points: VecDeque<Point>,
    loss: PathLoss,
    /// Multiplies the queue target after marks or excess loss; recovers slowly.
    caution: f64,
    /// Push while the queue is empty; doubles every round trip.
    push: f64,
    /// `push` stays put until then, after the path said no.
    hold: Option<Instant>,
    check: Option<Check>,
    /// Whether the bottleneck showed itself yet: by a queue, or by spreading what was sent.
    met: bool,
    round_ends: u64,
    round_start: Option<AckPoint>,
    round_ce: u64,
    round_packets: u64,
    /// Longest time without an arrival in the round, seconds.
    round_gap: f64,
    resist: Option<Resist>,
    drain_until: Option<Instant>,
    delivered: Delivered,
    /// Value of `delivered.intervals` when start-up ended.
    steady_since: u32,
    /// Bytes lost so far.
    lost: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Startup {
        best: f64,
        dispersed: bool,
        stale_rounds: u32,
        best_at_round: f64,
    },
    Steady,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    ack: AckPoint,
    /// Seconds above the base delay.
    queue: f64,
}

/// A queue that does not shrink although we slowed down.
#[derive(Clone, Copy, Debug)]
struct Resist {
    since: Instant,
    updated: Instant,
    queue: f64,
    estimate: f64,
    /// By how much the queue should have shrunk since, seconds.
    expected: f64,
}

impl Default for PathModel {
    fn default() -> Self {
        Self {
            phase: Phase::Startup {
                best: 0.0,
                dispersed: false,
                stale_rounds: 0,
                best_at_round: 0.0,
            },
            estimate: 0.0,
            gain: 1.0,
            packet: 1472.0,
            rtt: 0.1,
            smoothed_rtt: 0.1,
            base: BaseDelay::default(),
            round_trip: BaseDelay::default(),
            points: VecDeque::new(),
            loss: PathLoss::default(),
            caution: 1.0,
            push: 1.0,
            hold: None,
            check: None,
            met: false,
            round_ends: 0,
            round_start: None,
            round_ce: 0,
            round_packets: 0,
            round_gap: 0.0,
            resist: None,
            drain_until: None,
            delivered: Delivered::default(),
            steady_since: 0,
            lost: 0.0,
        }
    }
}

impl PathModel {
    /// A controller that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The standing queue we aim at, seconds.
    fn target(&self) -> f64 {
        let nominal = (self.rtt / 20.0).clamp(MIN_TARGET, MAX_TARGET) * self.caution;
        // A queue of a packet and a half is the least that can be told from none.
        nominal.max(1.5 * self.packet / self.estimate.max(1.0))
    }

    /// How far back measurements look, seconds.
    fn span(&self) -> f64 {
        self.rtt.clamp(0.010, 0.100)
    }

    /// Least queue over the last `span` seconds of arrivals.
    fn standing_queue(&self, span: f64) -> f64 {
        let Some(last) = self.points.back() else {
            return 0.0;
        };
        let from = last
            .ack
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        self.points
            .iter()
            .rev()
            .take_while(|p| p.ack.received_at >= from)
            .fold(f64::INFINITY, |least, p| least.min(p.queue))
    }

    /// The newest point at least `span` seconds of arrivals before the last one.
    fn point_before(&self, span: f64) -> Option<&Point> {
        let last = self.points.back()?;
        let until = last
            .ack
            .received_at
            .checked_sub(Duration::from_secs_f64(span))?;
        self.points
            .iter()
            .rev()
            .find(|p| p.ack.received_at <= until)
    }

    /// Service rate between two points, bytes per second.
    fn service_rate(&self, from: &AckPoint, to: &AckPoint) -> Option<f64> {
        let time = to.received_at.checked_sub(from.received_at)?.as_secs_f64();
        if time <= 0.0 {
            return None;
        }
        Some(self.loss.offered(&Sample::between(from, to, self.packet)) / time)
    }

    fn on_point(&mut self, now: Instant, ack: AckPoint, idle_total: u64) {
        let delay = ack.received_at.as_secs_f64() - ack.sent_at.as_nanos() as f64 / 1e9;
        let queue = self.base.update(now, delay);
        if let Some(previous) = self.points.back() {
            let gap = ack.received_at.saturating_sub(previous.ack.received_at);
            self.round_gap = self.round_gap.max(gap.as_secs_f64());
        }
        self.points.push_back(Point { ack, queue });
        let keep = Duration::from_secs_f64(2.0 * self.span() + 0.05);
        while self.points.len() > MIN_POINTS
            && self
                .points
                .front()
                .is_some_and(|p| p.ack.received_at + keep < ack.received_at)
        {
            self.points.pop_front();
        }
        match self.phase {
            Phase::Startup { .. } => self.startup(ack),
            Phase::Steady => self.steady(now, ack, idle_total),
        }
    }

    /// Looks for the bottleneck: by the dispersion of what was sent close together, else by
    /// doubling. Ends when a queue forms or the rate stops growing.
    fn startup(&mut self, last: AckPoint) {
        let Phase::Startup {
            mut best,
            mut dispersed,
            stale_rounds,
            best_at_round,
        } = self.phase
        else {
            return;
        };
        let span = (self.rtt / 8.0).clamp(0.002, 0.020);
        // Long enough for a rate: in time, and in packets on slow paths.
        let train = last.sent_total.saturating_sub((10.0 * self.packet) as u64);
        let until = last
            .received_at
            .saturating_sub(Duration::from_secs_f64(span));
        let begins = |p: &&Point| p.ack.sent_total <= train && p.ack.received_at <= until;
        let from = self
            .points
            .iter()
            .rev()
            .find(begins)
            .or(self.points.front())
            .map(|p| p.ack);
        if let Some(from) = from
            && from.sent_total <= train
            && let Some(rate) = self.service_rate(&from, &last)
        {
            best = best.max(rate);
            let spread = (last.received_at - from.received_at).as_secs_f64();
            let sent_over = last.sent_at.saturating_since(from.sent_at).as_secs_f64();
            dispersed |= spread > 1.3 * sent_over + 0.000_3;
        }
        self.phase = Phase::Startup {
            best,
            dispersed,
            stale_rounds,
            best_at_round,
        };
        self.met |= dispersed;
        self.estimate = best;
        self.gain = if dispersed { SEARCH_GAIN } else { 2.0 };
        if dispersed && self.standing_queue(span) > self.target() {
            self.enter_steady();
        }
    }

    fn enter_steady(&mut self) {
        if matches!(self.phase, Phase::Steady) {
            return;
        }
        self.phase = Phase::Steady;
        self.steady_since = self.delivered.intervals;
        self.gain = 1.0;
    }

    /// Goes on looking for the bottleneck if only loss had stopped the search and that turned out to
    /// be the path's own.
    fn resume_startup(&mut self) {
        if self.met || self.delivered.intervals > MAX_STARTUP {
            return;
        }
        self.phase = Phase::Startup {
            best: self.estimate,
            dispersed: false,
            stale_rounds: 0,
            best_at_round: 0.0,
        };
        (self.caution, self.hold) = (1.0, None);
    }

    fn steady(&mut self, now: Instant, last: AckPoint, idle_total: u64) {
        let (target, span) = (self.target(), self.span());
        let queue = self.standing_queue(span);
        let busy = queue > (target / 2.0).max(0.001);
        let from = self.point_before(span).map(|p| p.ack);
        // A gap of our own making inside the sample says nothing about the path.
        let app_limited = from.is_none_or(|f| idle_total >= f.sent_total);
        if let Some(rate) = from.and_then(|f| self.service_rate(&f, &last)) {
            if busy && !app_limited {
                self.met = true;
                self.estimate = rate;
            } else {
                self.estimate = self.estimate.max(rate.min(self.estimate * 1.25));
            }
        }
        if busy || app_limited {
            self.push = 1.0;
        }
        let response = 3.0 * self.rtt.max(0.015);
        let want = (target - queue) / response;
        self.gain = if want > 0.0 {
            1.0 + want * self.push
        } else {
            1.0 + want
        };
        self.gain = self.gain.clamp(MIN_GAIN, MAX_GAIN);
        self.drain(now, queue);
        self.watch_resistance(now, queue);
        self.estimate = self
            .estimate
            .max(MIN_WINDOW * self.packet / self.rtt.max(MIN_WINDOW_TIME));
    }

    /// Empties the queue for a moment when the base delay has not been seen for long, so that
    /// our own queue never passes for the path's delay.
    fn drain(&mut self, now: Instant, queue: f64) {
        if self.drain_until.is_none() && self.base.is_due(now) && queue > 0.001 {
            let long = self.rtt + 5.0 * queue;
            self.drain_until = Some(now + Duration::from_secs_f64(long.min(1.0)));
        }
        if let Some(until) = self.drain_until {
            if now >= until || queue < 0.000_5 {
                self.drain_until = None;
            } else {
                self.gain = self.gain.min(0.8);
            }
        }
    }

    /// A queue that stays although we slowed down is not ours (the path got longer, or others
    /// fill it): take it as the new base and go back to the rate from before.
    fn watch_resistance(&mut self, now: Instant, queue: f64) {
        if self.gain > 0.97 || self.drain_until.is_some() {
            self.resist = None;
            return;
        }
        let start = self.resist.get_or_insert(Resist {
            since: now,
            updated: now,
            queue,
            estimate: self.estimate,
            expected: 0.0,
        });
        if queue > 1.1 * start.queue + 0.001 {
            // What was sent before still adds to it: only from its peak can it shrink.
            (start.since, start.queue, start.expected) = (now, queue, 0.0);
        }
        let elapsed = now.saturating_since(start.updated).as_secs_f64();
        start.expected += (1.0 - self.gain) * elapsed;
        start.updated = now;
        let start = *start;
        // What we did shows only after the queue that was there already.
        let wait = 4.0 * self.rtt + 0.1 + 2.0 * start.queue;
        if now.saturating_since(start.since).as_secs_f64() < wait {
            return;
        }
        if start.queue - queue < 0.25 * start.expected && queue > 0.75 * start.queue {
            self.base.rise(queue);
            self.round_trip.rise(queue);
            self.points
                .iter_mut()
                .for_each(|p| p.queue = (p.queue - queue).max(0.0));
            self.estimate = self.estimate.max(start.estimate);
        }
        self.resist = None;
    }

    /// Once per round trip: the loss of the round, marks, and the push.
    fn end_round(&mut self, now: Instant, last: AckPoint, feedback: &Feedback<'_>) {
        let start = self.round_start.replace(last);
        let app_limited = start.is_none_or(|s| feedback.idle_total >= s.sent_total);
        let (ce, packets) = (self.round_ce, self.round_packets.max(1));
        let gap = std::mem::take(&mut self.round_gap);
        (self.round_ce, self.round_packets) = (0, 0);
        self.caution = (self.caution * 1.05).min(1.0);
        if self.hold.is_none_or(|until| until <= now) {
            self.push = (self.push * 2.0).min(64.0);
        }
        self.startup_round(app_limited);
        if ce > 0 {
            let marked = ce as f64 / packets as f64;
            self.estimate *= 1.0 - marked.clamp(0.1, 0.5);
            self.back_off(now);
        }
        let Some(start) = start else { return };
        let sample = Sample::between(&start, &last, self.packet);
        if self.had_outage(gap, sample.seconds) {
            return;
        }
        let pushing = self.gain > 1.01;
        if self.loss.end_round(&sample, pushing) && self.check.is_none() && !app_limited {
            let carried = match self.phase {
                Phase::Startup { best, .. } => best,
                Phase::Steady => 0.0,
            };
            self.enter_steady();
            let from = last.sent_total + feedback.bytes_in_flight;
            let wait = 4.0 * self.rtt + 6.0 * self.standing_queue(0.0);
            self.check = Some(Check::new(now, &sample, from, carried, wait));
        }
    }

    /// A full queue loses some of what comes; only an outage loses everything for a while. What it
    /// swallowed says nothing of the path that came back.
    fn had_outage(&self, gap: f64, seconds: f64) -> bool {
        gap > 0.25 * seconds && gap > 0.010 + 4.0 * self.packet / self.estimate.max(1.0)
    }

    fn startup_round(&mut self, app_limited: bool) {
        let Phase::Startup {
            best,
            stale_rounds,
            best_at_round,
            ..
        } = &mut self.phase
        else {
            return;
        };
        if *best <= 0.0 {
            return;
        }
        if *best > 1.1 * *best_at_round {
            (*stale_rounds, *best_at_round) = (0, *best);
        } else if !app_limited {
            *stale_rounds += 1;
        }
        if *stale_rounds >= 3 {
            self.enter_steady();
        }
    }

    /// Follows a running check to its verdict.
    fn watch_check(&mut self, now: Instant, last: AckPoint) {
        let queue = self.standing_queue(self.span());
        let still_full = queue > MIN_TARGET.max(2.5 * self.packet / self.estimate.max(1.0));
        let Some(check) = &mut self.check else {
            return;
        };
        match check.verdict(now, last, self.packet, still_full) {
            None => {}
            Some(Verdict::Own(loss)) => {
                self.loss.base = loss;
                self.estimate = check.offered;
                self.check = None;
                self.resume_startup();
            }
            Some(Verdict::Congestion) => {
                self.estimate = check.delivered;
                self.back_off(now);
            }
        }
    }

    /// Disbelieves a receiver that claims far more than was delivered.
    fn bound_by_delivery(&mut self) {
        if matches!(self.phase, Phase::Startup { .. }) {
            if self.delivered.intervals > MAX_STARTUP {
                self.enter_steady();
            }
            return;
        }
        if let Some(rate) = self.delivered.rate {
            let recent = self.delivered.intervals - self.steady_since < 3;
            let claim = if recent { EARLY_CLAIM } else { MAX_CLAIM };
            let most = claim * rate / (1.0 - self.loss.base.min(MAX_EXCUSE));
            self.estimate = self
                .estimate
                .min(most.max(16.0 * self.packet / self.rtt.max(0.001)));
        }
    }

    /// The network said no: aim at a smaller queue and do not push for a while.
    fn back_off(&mut self, now: Instant) {
        self.enter_steady();
        self.check = None;
        self.caution = (self.caution / 2.0).max(0.1);
        self.push = 1.0;
        self.hold = Some(now + Duration::from_secs_f64((8.0 * self.rtt).max(MIN_HOLD)));
    }
}

impl RateController for PathModel {
    fn on_established(&mut self, _now: Instant, rtt: Duration, packet_size: u64) {
        self.rtt = rtt.as_secs_f64().max(0.000_05);
        self.packet = packet_size as f64;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.round_ce += feedback.ce_packets;
        self.round_packets += feedback.acked_packets;
        self.lost += feedback.lost_packets as f64 * self.packet;
        let Some(newest) = feedback.newest else {
            return;
        };
        // Aged like the base delay: a path that gets longer needs a larger window.
        let round_trip = feedback.rtt.latest().as_secs_f64();
        self.smoothed_rtt = feedback.rtt.smoothed().as_secs_f64();
        self.round_trip.update(feedback.now, round_trip);
        self.rtt = self.round_trip.least().max(0.000_05);
        self.on_point(feedback.now, newest, feedback.idle_total);
        self.delivered
            .update(feedback.now, newest, feedback.idle_total, self.rtt);
        self.watch_check(feedback.now, newest);
        self.bound_by_delivery();
        if newest.delivered_total >= self.round_ends {
            // On a short path a round trip is too few packets to judge loss by.
            let least = (ROUND_PACKETS * self.packet).min(ROUND_TIME * self.estimate) as u64;
            self.round_ends = newest.delivered_total + feedback.bytes_in_flight.max(least);
            self.end_round(feedback.now, newest, feedback);
        }
    }

    fn reads_marks(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Rate {
        let mut rate = self.estimate * self.gain;
        if let Phase::Startup {
            dispersed: false, ..
        } = self.phase
        {
            // Nothing is known of the bottleneck: no faster than two windows per round trip.
            rate = rate.clamp(
                INITIAL_WINDOW as f64 * self.packet / self.rtt,
                2.0 * self.window() as f64 / self.rtt,
            );
        }
        if let Some(check) = &self.check {
            rate = rate.min(check.rate());
        }
        Rate::from_bps((rate * 8.0) as u64)
    }

    fn window(&self) -> u64 {
        let window = match self.phase {
            Phase::Startup { .. } => {
                let delivered = self.points.back().map_or(0, |p| p.ack.delivered_total);
                // What was lost leaves the flight, but not this count.
                INITIAL_WINDOW as f64 * self.packet + (3.0 * delivered as f64 - self.lost).max(0.0)
            }
            Phase::Steady => {
                // The round trip as it is: a window too small for a path that got longer would make
                // gaps, and gaps pass for a slow bottleneck. Feedback comes a few milliseconds late and loss is noticed an eighth late.
                let time = 1.5 * (self.smoothed_rtt.max(self.rtt) + self.target()) + 0.010;
                self.estimate * time + SPARE_WINDOW * self.packet
            }
        };
        window as u64
    }

    fn initial_burst(&self) -> u64 {
        INITIAL_WINDOW * self.packet as u64
    }

    fn bandwidth(&self) -> Rate {
        Rate::from_bps((self.estimate * 8.0) as u64)
    }
}
