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
//! model sets its estimate to S and holds a small queue of T, its target, by the linear rule
//! rate = S · (1 + (T − q) ÷ 3 RTT): an integrator with gain ½ per feedback delay, stable. While the
//! queue is empty the estimate only rises, first gently, then faster, at most by a quarter per round
//! trip. Congestion marks and loss of our own making ([`loss`]) shrink the target.
//!
//! Who sends more aims at less: T falls with the root of S. All that share a queue see the same q,
//! so those with less than others push and those with more give way, until they have the same,
//! whatever their round trips.
//!
//! Beside senders that fill the queue until it overflows, the model does as they do ([`compete`]);
//! a path with next to no queue has a ceiling ([`full`]).
//!
//! The times of arrival are the receiver's word. What it says is bounded by what our own clock saw
//! delivered: the estimate stays below twice that ([`Delivered`]), so neither a liar nor a broken
//! clock makes a flood.

mod compete;
mod full;
mod loss;
mod points;
mod startup;

use super::path_history::{BaseDelay, Delivered};
use super::{AckPoint, Codepoint, Feedback, RateController};
use crate::time::{Duration, Instant, Rate};
use compete::{Compete, Flow, Lost, Watch, Whose, Wobble};
use full::{Ceiling, Depth};
use loss::{Check, PathLoss, Sample, Verdict};
use points::Points;
use startup::Search;

/// First flight, packets; the dispersion of this train is the first look at the bottleneck.
const INITIAL_WINDOW: u64 = 32;
/// Never send slower than this many packets in a round trip or this many seconds, whichever is
/// longer: on a short path even one packet a round trip may be a flood.
const MIN_WINDOW: f64 = 2.0;
const MIN_WINDOW_TIME: f64 = 0.25;
/// The standing queue that we aim at, seconds: the least, and the most.
const MIN_TARGET: f64 = 0.002;
const MAX_TARGET: f64 = 0.025;
/// Rate at which the target is twice the least, bytes per second.
const FAIR_RATE: f64 = 12.5e6;
/// A queue shorter than this is none, seconds.
const MIN_BUSY: f64 = 0.001;
/// Highest pacing gain after start-up, and the lowest.
const MAX_GAIN: f64 = 1.2;
const MIN_GAIN: f64 = 0.7;
/// Below this gain we give way, and look whether others take it.
const GIVING_WAY: f64 = 0.995;
/// Pacing of a competing window, as TCP paces in congestion avoidance.
const COMPETE_GAIN: f64 = 1.2;
/// Packets in flight beyond what rate and delay ask for.
const SPARE_WINDOW: f64 = 4.0;
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

/// See the module's text.
#[derive(Debug)]
pub struct PathModel {
    phase: Phase,
    /// Time of the last feedback.
    now: Instant,
    /// Estimated bottleneck rate, bytes per second as sent.
    estimate: f64,
    gain: f64,
    packet: f64,
    /// Least round trip lately, and the smoothed one, seconds.
    rtt: f64,
    smoothed_rtt: f64,
    round_trip: BaseDelay,
    points: Points,
    loss: PathLoss,
    check: Option<Check>,
    /// Multiplies the queue target after marks or excess loss; recovers slowly.
    caution: f64,
    depth: Depth,
    ceiling: Option<Ceiling>,
    /// Push while the queue is empty; doubles every round trip.
    push: f64,
    /// `push` stays put until then, after the path said no.
    hold: Option<Instant>,
    /// Whether the bottleneck showed itself yet: by a queue, or by spreading what was sent.
    met: bool,
    round: Round,
    wobble: Wobble,
    watch: Option<Watch>,
    /// Others keep the queue full.
    compete: Option<Compete>,
    drain_until: Option<Instant>,
    delivered: Delivered,
    /// Value of `delivered.intervals` when start-up ended.
    steady_since: u32,
    /// Bytes lost so far.
    lost: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Startup(Search),
    Steady,
}

/// What was seen since the last round ended.
#[derive(Debug, Default)]
struct Round {
    /// The newest point when it began; bytes delivered when it ends.
    start: Option<AckPoint>,
    ends: u64,
    acked: u64,
    lost: u64,
    marked: u64,
    /// Longest time without an arrival, and longest queue, seconds.
    gap: f64,
    queue: f64,
}

impl Default for PathModel {
    fn default() -> Self {
        Self {
            phase: Phase::Startup(Search::default()),
            now: Instant::ZERO,
            estimate: 0.0,
            gain: 1.0,
            packet: 1472.0,
            rtt: 0.1,
            smoothed_rtt: 0.1,
            round_trip: BaseDelay::default(),
            points: Points::default(),
            loss: PathLoss::default(),
            check: None,
            caution: 1.0,
            depth: Depth::default(),
            ceiling: None,
            push: 1.0,
            hold: None,
            met: false,
            round: Round::default(),
            wobble: Wobble::default(),
            watch: None,
            compete: None,
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

    /// Seconds that `packets` packets take at the estimated rate.
    fn packet_time(&self, packets: f64) -> f64 {
        packets * self.packet / self.estimate.max(1.0)
    }

    /// The standing queue we aim at, seconds: of one that overflows, half.
    fn target(&self) -> f64 {
        let share = (FAIR_RATE / self.estimate.max(1.0)).sqrt();
        let fair = (MIN_TARGET * (1.0 + share)).min(MAX_TARGET);
        let nominal = fair.min(self.depth.seconds / 2.0) * self.caution;
        // A queue of a packet and a half is the least that can be told from none.
        nominal.max(self.packet_time(1.5))
    }

    /// A standing queue from which on the bottleneck is busy.
    fn busy_from(&self) -> f64 {
        (self.target() / 2.0).max(MIN_BUSY)
    }

    /// How far back measurements look, seconds.
    fn span(&self) -> f64 {
        self.rtt.clamp(0.010, 0.100)
    }

    /// Seconds until what we do shows in what we measure, with a queue of `queue` seconds.
    fn settled(&self, queue: f64) -> f64 {
        self.rtt + queue + 2.0 * self.span()
    }

    /// Service rate between two points, bytes per second.
    fn service_rate(&self, from: &AckPoint, to: &AckPoint) -> Option<f64> {
        let time = to.received_at.checked_sub(from.received_at)?.as_secs_f64();
        if time <= 0.0 {
            return None;
        }
        Some(self.loss.offered(&Sample::between(from, to, self.packet)) / time)
    }

    /// What was offered between two points, and `served`.
    fn flow(from: &AckPoint, to: &AckPoint, served: f64) -> Option<Flow> {
        let time = to.sent_at.saturating_since(from.sent_at).as_secs_f64();
        let sent = to.sent_total.saturating_sub(from.sent_total) as f64;
        (time > 0.0).then(|| Flow {
            offered: sent / time,
            served,
        })
    }

    fn on_point(&mut self, now: Instant, ack: AckPoint, idle_total: u64) {
        if let Some(previous) = self.points.last() {
            let gap = ack.received_at.saturating_sub(previous.received_at);
            self.round.gap = self.round.gap.max(gap.as_secs_f64());
        }
        let queue = self.points.push(now, ack, self.span());
        self.round.queue = self.round.queue.max(queue);
        match self.phase {
            Phase::Startup(search) => self.startup(search, ack),
            Phase::Steady => self.steady(now, ack, idle_total),
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

    fn steady(&mut self, now: Instant, last: AckPoint, idle_total: u64) {
        let queue = self.points.standing_queue(self.span());
        let busy = queue > self.busy_from();
        // A gap of our own making inside the sample says nothing about the path.
        let from = self.points.before(self.span());
        let app_limited = from.is_none_or(|f| idle_total >= f.sent_total);
        let rate = from.and_then(|f| self.service_rate(&f, &last));
        if let Some(rate) = rate {
            if busy && !app_limited {
                self.met = true;
                self.estimate = rate;
            } else {
                self.estimate = self.estimate.max(rate.min(self.estimate * 1.25));
            }
        }
        let flow = from.zip(rate).filter(|_| !app_limited);
        let flow = flow.and_then(|(f, rate)| Self::flow(&f, &last, rate));
        if let Some(flow) = flow.filter(|_| busy) {
            self.wobble.update(now, flow, self.settled(queue));
        }
        if self.compete.is_some() {
            return self.compete(now, flow, queue, busy, app_limited);
        }
        if busy || app_limited {
            self.push = 1.0;
        }
        let want = (self.target() - queue) / (3.0 * self.rtt.max(0.015));
        self.gain = 1.0 + if want > 0.0 { want * self.push } else { want };
        self.gain = self.gain.clamp(MIN_GAIN, MAX_GAIN);
        self.drain(now, queue);
        self.watch(now, flow, queue);
        self.estimate = self
            .estimate
            .max(MIN_WINDOW * self.packet / self.rtt.max(MIN_WINDOW_TIME));
    }

    /// Empties the queue for a moment when the base delay has not been seen for long, so that
    /// our own queue never passes for the path's delay.
    fn drain(&mut self, now: Instant, queue: f64) {
        if self.drain_until.is_none() && self.points.base_is_due(now) && queue > MIN_BUSY {
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

    /// While we give way: a queue that others keep full is theirs, and we compete.
    fn watch(&mut self, now: Instant, flow: Option<Flow>, queue: f64) {
        let gives_way = self.gain < GIVING_WAY && self.drain_until.is_none();
        let Some(flow) = flow.filter(|_| gives_way) else {
            self.watch = None;
            return;
        };
        let loop_time = self.settled(0.0);
        let new = || Watch::new(now, flow, queue, &self.wobble);
        let mut watch = self.watch.unwrap_or_else(new);
        watch.follow_growth(now, flow, queue, loop_time);
        let settled = self.settled(watch.queue);
        let whose = watch.judge(now, flow, settled, &self.wobble);
        self.watch = whose.is_none().then_some(watch);
        if whose == Some(Whose::Others) {
            let window = watch.served * (self.rtt + watch.queue);
            self.compete = Some(Compete::new(now, window, queue, 2.0 * settled));
        }
    }

    /// Others fill the queue and so do we, until it is gone or ours alone.
    fn compete(
        &mut self,
        now: Instant,
        flow: Option<Flow>,
        queue: f64,
        busy: bool,
        app_limited: bool,
    ) {
        let (settled, rtt) = (self.settled(queue), self.smoothed_rtt.max(self.rtt));
        let Some(compete) = &mut self.compete else {
            return;
        };
        compete.grow(now, rtt, self.packet, queue, !app_limited);
        let whose = flow.and_then(|f| compete.watch(now, f, queue, settled, &self.wobble));
        if whose == Some(Whose::Path) {
            self.estimate = compete.window() / rtt;
            self.points.rise(queue);
            self.round_trip.rise(queue);
        }
        let is_over = matches!(whose, Some(Whose::Own | Whose::Path)) || !busy && !app_limited;
        if is_over {
            self.compete = None;
            (self.gain, self.push) = (1.0, 1.0);
            self.hold_push(now);
        }
    }

    /// No faster push for a while.
    fn hold_push(&mut self, now: Instant) {
        self.hold = Some(now + Duration::from_secs_f64((8.0 * self.rtt).max(MIN_HOLD)));
    }

    /// Tells a competing window of losses and marks.
    fn compete_on_lost(&mut self, feedback: &Feedback<'_>, last: AckPoint) {
        if self.compete.is_none() {
            return;
        }
        let lost = Lost {
            packets: feedback.lost_packets,
            marked: feedback.ce_packets > 0,
            acked_total: last.sent_total,
            sent_total: last.sent_total + feedback.bytes_in_flight,
            base: self.loss.base,
            packet: self.packet,
            rtt: self.smoothed_rtt.max(self.rtt),
            settled: self.settled(self.points.standing_queue(0.0)),
        };
        if let Some(compete) = &mut self.compete {
            compete.on_lost(feedback.now, &lost);
        }
    }

    /// Once per round trip: the loss of the round, marks, and the push.
    fn end_round(&mut self, now: Instant, last: AckPoint, feedback: &Feedback<'_>) {
        let next = Round {
            start: Some(last),
            ends: self.round.ends,
            ..Round::default()
        };
        let round = std::mem::replace(&mut self.round, next);
        let app_limited = round
            .start
            .is_none_or(|s| feedback.idle_total >= s.sent_total);
        self.caution = (self.caution * 1.05).min(1.0);
        if self.hold.is_none_or(|until| until <= now) {
            self.push = (self.push * 2.0).min(64.0);
        }
        self.startup_round(app_limited);
        if round.marked > 0 {
            let marked = round.marked as f64 / round.acked.max(1) as f64;
            self.estimate *= 1.0 - marked.clamp(0.1, 0.5);
            self.back_off(now);
        }
        let Some(start) = round.start else { return };
        let sample = Sample::between(&start, &last, self.packet);
        if self.had_outage(round.gap, sample.seconds) {
            return;
        }
        if matches!(self.phase, Phase::Steady) {
            let visible = self.packet_time(2.0).max(0.000_5);
            let (lost, acked) = (round.lost, round.acked);
            self.depth
                .end_round(lost, acked, self.loss.base, round.queue, visible);
        }
        if let Some(compete) = &mut self.compete {
            compete.end_round();
        }
        let pushing = self.gain > 1.01 || self.compete.is_some();
        if self.loss.end_round(&sample, pushing) && self.check.is_none() && !app_limited {
            self.begin_check(now, &sample, last.sent_total + feedback.bytes_in_flight);
        }
    }

    /// Looks whose the loss of a round is; what is sent from `from` on counts.
    fn begin_check(&mut self, now: Instant, sample: &Sample, from: u64) {
        let carried = match self.phase {
            Phase::Startup(search) => search.best,
            Phase::Steady => 0.0,
        };
        self.enter_steady();
        let wait = 4.0 * self.rtt + 6.0 * self.points.standing_queue(0.0);
        let mut check = Check::new(now, sample, from, carried, wait);
        check.queue_seen = self.points.standing_queue(self.span()) >= self.busy_from();
        self.check = Some(check);
    }

    /// A full queue loses some of what comes; only an outage loses everything for a while. What it
    /// swallowed says nothing of the path that came back.
    fn had_outage(&self, gap: f64, seconds: f64) -> bool {
        gap > 0.25 * seconds && gap > 0.010 + self.packet_time(4.0)
    }

    /// Follows a running check to its verdict.
    fn watch_check(&mut self, now: Instant, last: AckPoint) {
        if self.check.is_none() {
            return;
        }
        let queue = self.points.standing_queue(self.span());
        // Others' queue does not drain because we wait.
        let full = (2.0 * MIN_TARGET).max(self.packet_time(2.5));
        let still_full = self.compete.is_none() && queue > full;
        let Some(check) = &mut self.check else {
            return;
        };
        match check.verdict(now, last, self.packet, still_full) {
            None => {}
            Some(Verdict::Own(loss)) => {
                self.loss.verify(loss);
                self.estimate = check.offered;
                self.check = None;
                self.depth.forget();
                self.resume_startup();
            }
            Some(Verdict::Congestion(seen)) => {
                self.estimate = check.delivered;
                if let Some(seen) = seen {
                    self.loss.refute(&seen);
                    let rate = check.delivered / (1.0 - seen.loss);
                    if !check.queue_seen {
                        self.ceiling = Some(Ceiling::new(now, rate, self.rtt, self.ceiling));
                    }
                }
                self.back_off(now);
            }
        }
    }

    /// Disbelieves a receiver that claims far more than was delivered.
    fn bound_by_delivery(&mut self) {
        if matches!(self.phase, Phase::Startup(_)) {
            if self.delivered.intervals > MAX_STARTUP {
                self.enter_steady();
            }
            return;
        }
        if let Some(rate) = self.delivered.rate {
            let recent = self.delivered.intervals - self.steady_since < 3;
            let claim = if recent { EARLY_CLAIM } else { MAX_CLAIM };
            let most = claim * rate / (1.0 - self.loss.base.min(MAX_EXCUSE));
            let most = most.max(16.0 * self.packet / self.rtt.max(0.001));
            self.estimate = self.estimate.min(most);
            if let Some(compete) = &mut self.compete {
                compete.limit(most * self.smoothed_rtt.max(self.rtt));
            }
        }
    }

    /// The network said no: aim at a smaller queue and do not push for a while.
    fn back_off(&mut self, now: Instant) {
        self.enter_steady();
        self.check = None;
        self.caution = (self.caution / 2.0).max(0.1);
        self.push = 1.0;
        self.hold_push(now);
    }
}

impl RateController for PathModel {
    fn on_established(&mut self, _now: Instant, rtt: Duration, packet_size: u64) {
        self.rtt = rtt.as_secs_f64().max(0.000_05);
        self.packet = packet_size as f64;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.now = feedback.now;
        self.round.marked += feedback.ce_packets;
        self.round.acked += feedback.acked_packets;
        self.round.lost += feedback.lost_packets;
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
        self.compete_on_lost(feedback, newest);
        if newest.delivered_total >= self.round.ends {
            // On a short path a round trip is too few packets to judge loss by.
            let least = (ROUND_PACKETS * self.packet).min(ROUND_TIME * self.estimate) as u64;
            self.round.ends = newest.delivered_total + feedback.bytes_in_flight.max(least);
            self.end_round(feedback.now, newest, feedback);
        }
    }

    fn ecn(&self) -> Codepoint {
        Codepoint::Ect0
    }

    fn pacing_rate(&self) -> Rate {
        let mut rate = self.estimate * self.gain;
        if let Phase::Startup(Search {
            dispersed: false, ..
        }) = self.phase
        {
            // Nothing is known of the bottleneck: no faster than two windows per round trip.
            rate = rate.clamp(
                INITIAL_WINDOW as f64 * self.packet / self.rtt,
                2.0 * self.window() as f64 / self.rtt,
            );
        }
        if let Some(compete) = &self.compete {
            let paced = COMPETE_GAIN * compete.window() / self.smoothed_rtt.max(self.rtt);
            rate = compete.trial_rate().unwrap_or(paced);
        }
        if let Some(ceiling) = &self.ceiling {
            rate = rate.min(ceiling.rate(self.now));
        }
        if let Some(check) = &self.check {
            rate = rate.min(check.rate());
        }
        Rate::from_bps((rate * 8.0) as u64)
    }

    fn window(&self) -> u64 {
        let window = match (self.phase, &self.compete) {
            (Phase::Startup(_), _) => self.startup_window(),
            (Phase::Steady, Some(compete)) => compete.window(),
            (Phase::Steady, None) => {
                // The round trip as it is: a window too small for a path that got longer would make
                // gaps, and gaps pass for a slow bottleneck. Feedback comes a few milliseconds late
                // and loss is noticed an eighth late.
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
