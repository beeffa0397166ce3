//! The flagship's rate controller: a model of the path that tolerates loss without being deaf to it.
//!
//! The receiver says when packets arrived, so the sender sees the path's forward direction alone:
//!
//! * *Service rate*: bytes sent between two acknowledged packets ÷ the time between their arrivals.
//!   Packets lost behind the bottleneck occupied it too, so they count.
//! * *Standing queue* q: the least one-way delay of a short span, above the base delay ([`delay`]).
//!
//! One state machine ([`Mode`]):
//!
//! * [`Mode::Startup`] doubles the rate each round trip until the bottleneck shows itself.
//! * [`Mode::Cruise`] holds a small standing queue T around the measured service rate S, as TCP Vegas
//!   and FAST do: rate = S · (1 + (T − q) ÷ 3 RTT), an integrator with gain ½ per feedback delay.
//!   T falls with the root of the rate, so flows that share a queue come to equal rates.
//! * [`Mode::LossTest`] finds out whether loss depends on our rate ([`loss_cause`]).
//! * [`Mode::Competitive`] does as CUBIC does beside senders that fill the queue ([`cubic`]).
//! * [`Mode::Yield`] leaves the path to others, if that is wanted, instead ([`yielding`]).
//!
//! `docs/spec/auto.md` derives the steady state and its stability, [`tuning`] has every number with its
//! derivation or source.

mod base;
mod competitive;
mod cruise;
mod cubic;
mod delay;
mod drain;
mod elasticity;
mod look;
mod loss;
mod loss_cause;
mod marks;
mod rest;
mod rounds;
mod samples;
mod shallow;
mod startup;
mod target;
mod tuning;
mod window;
mod yielding;

use super::path_history::Delivered;
use super::{AckPoint, Codepoint, Feedback, RateController};
use crate::time::{Duration, Instant, Rate};
use cruise::Cruise;
use cubic::CubicWindow;
use delay::{DelayEstimator, HighRoundTrip, Service};
use drain::Drains;
use elasticity::{Flow, ServiceVariation};
use loss::{Gaps, PathLoss, Stretch};
use loss_cause::LossTest;
pub use marks::MarkResponse;
use marks::Marks;
use rounds::{BeforeLoss, Round, Unhealed, Within};
use samples::Samples;
use shallow::{BufferEstimate, GroupRoom, RateCap};
use startup::{FirstFlight, Search};
pub(super) use tuning::bounds::{MAX_HELD, WINDOW_ROUND_TRIPS};
use tuning::{bounds, queue, spans};
use yielding::{Yield, Yielded};

/// See the module's text.
#[derive(Debug)]
pub struct PathModel {
    mode: Mode,
    first: FirstFlight,
    /// Time of the last feedback.
    now: Instant,
    /// Estimated bottleneck rate, bytes per second as sent, and the pacing gain.
    estimate: f64,
    gain: f64,
    packet: f64,
    /// Mean size of the packets acknowledged of late, bytes.
    mean_size: f64,
    /// Least round trip lately, the smoothed and the highest one, outages included, seconds.
    rtt: f64,
    smoothed_rtt: f64,
    high_rtt: HighRoundTrip,
    delay: DelayEstimator,
    /// Until when the delay counts as noisy.
    noisy_until: Option<Instant>,
    samples: Samples,
    delivered: Delivered,
    loss: PathLoss,
    round: Round,
    variation: ServiceVariation,
    /// Multiplies the queue target after marks or excess loss; recovers slowly.
    target_scale: f64,
    buffer: BufferEstimate,
    groups: GroupRoom,
    cap: Option<RateCap>,
    /// Gain of probes while the queue is empty: doubles every round trip, but not before the time
    /// after it, when the path said no.
    probe_gain: f64,
    probe_held_until: Option<Instant>,
    marks: Marks,
    /// Whether the bottleneck showed itself yet: by a queue, or by spreading what was sent.
    met: bool,
    /// A round trip of start-up lost most of what was sent: a burst may have passed what refuses others.
    refuses_bursts: bool,
    /// The estimate when the sender did not wait for the receiver last, bytes per second.
    trusted: f64,
    /// Value of `delivered.intervals` when start-up ended.
    steady_since: u32,
    /// Mean time between arrivals that were reported, seconds.
    usual_gap: f64,
    /// How much later than packets that were sent after them others arrive, seconds.
    lateness: f64,
    /// Since when a long queue loses more than the path does by itself.
    unhealed: Option<Unhealed>,
    before_loss: Option<BeforeLoss>,
    /// Loss of a sender that its rate does not limit.
    within: Option<Within>,
    /// Until when what is measured is what a loss test sent that a long queue ended in start-up.
    interrupted_until: Instant,
    /// Bytes sent, in all, before the last verdict of a loss test that blamed the rate.
    blamed_until: u64,
    /// Bytes lost so far.
    lost: f64,
    /// Bytes sent, in all, and those of them in flight.
    sent_total: u64,
    in_flight: f64,
    /// Bytes that may be in flight beyond the window while nothing is acknowledged.
    blind: f64,
    drains: Drains,
    /// Whether it gives way to everybody else; when it last did, and what it was served then.
    yields: bool,
    yielded: Option<Yielded>,
}

/// What the controller is doing.
#[derive(Debug)]
enum Mode {
    /// Looks for the bottleneck.
    Startup(Search),
    /// Holds a small standing queue.
    Cruise(Cruise),
    /// Finds out what causes loss; then goes on as before.
    LossTest(LossTest, Box<Mode>),
    /// Shares a queue that others fill.
    Competitive(CubicWindow),
    /// Leaves the path to others.
    Yield(Yield),
}

impl Default for PathModel {
    fn default() -> Self {
        Self {
            mode: Mode::Startup(Search::default()),
            first: FirstFlight::default(),
            now: Instant::ZERO,
            estimate: 0.0,
            gain: 1.0,
            packet: 1472.0,
            mean_size: 1472.0,
            rtt: 0.1,
            smoothed_rtt: 0.1,
            high_rtt: HighRoundTrip::default(),
            delay: DelayEstimator::default(),
            noisy_until: None,
            samples: Samples::default(),
            delivered: Delivered::default(),
            trusted: 0.0,
            loss: PathLoss::default(),
            round: Round::default(),
            variation: ServiceVariation::default(),
            target_scale: 1.0,
            buffer: BufferEstimate::default(),
            groups: GroupRoom::default(),
            cap: None,
            probe_gain: 1.0,
            probe_held_until: None,
            marks: Marks::default(),
            met: false,
            refuses_bursts: false,
            steady_since: 0,
            usual_gap: 0.0,
            lateness: 0.0,
            unhealed: None,
            before_loss: None,
            within: None,
            interrupted_until: Instant::ZERO,
            blamed_until: 0,
            lost: 0.0,
            sent_total: 0,
            in_flight: 0.0,
            blind: 0.0,
            drains: Drains::default(),
            yields: false,
            yielded: None,
        }
    }
}

impl PathModel {
    /// A controller that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, answering congestion marks otherwise.
    pub fn with_marks(mut self, response: MarkResponse) -> Self {
        self.marks.set_response(response);
        self
    }

    /// The same for what can wait: it takes what others leave.
    pub fn yielding(mut self) -> Self {
        self.yields = true;
        self
    }

    /// Seconds that `packets` packets take at the estimated rate.
    fn packet_time(&self, packets: f64) -> f64 {
        packets * self.packet / self.estimate.max(1.0)
    }

    /// Seconds that `packets` packets take at the bottleneck, also while others have it.
    fn path_packet_time(&self, packets: f64) -> f64 {
        packets * self.packet / self.path_rate().max(1.0)
    }

    /// Bytes of a packet where packets are counted, not bytes: no more than a full one.
    fn counted_packet(&self) -> f64 {
        self.mean_size.min(self.packet)
    }

    /// A round trip within the bounds of what is measured by, seconds.
    fn round_trip_span(&self) -> f64 {
        self.rtt.clamp(spans::SHORTEST, spans::LONGEST)
    }

    /// How far back the standing queue looks, seconds: a round trip, and as many samples as jitter
    /// asks for.
    fn span(&self) -> f64 {
        let span = self.round_trip_span();
        // The least of n delays with a jitter of J is some 3 J/n above their floor.
        let samples = spans::DELAY_SAMPLES * self.delay.jitter() / self.target();
        if samples < spans::FEW_SAMPLES {
            return span;
        }
        span.max(
            self.samples
                .time_of(samples.min(spans::MANY_SAMPLES) as usize),
        )
        .min(spans::MOST)
    }

    /// Time in which jitter makes no large error of a rate, seconds.
    fn jitter_span(&self) -> f64 {
        (spans::RATE_JITTERS * self.delay.jitter()).min(spans::MOST)
    }

    /// How far back rates look, seconds.
    fn rate_span(&self) -> f64 {
        let packets = self.packet_time(spans::RATE_PACKETS);
        let span = self.round_trip_span();
        span.max(self.jitter_span()).max(packets).min(spans::MOST)
    }

    /// Whether the delay varies so much by itself, now or in the last cycle of probes, that it does
    /// not show a queue as short as we want it.
    fn is_noisy(&self, now: Instant) -> bool {
        self.delay.resolution(self.target()) > 0.0
            || self.noisy_until.is_some_and(|until| now < until)
    }

    /// What the least delays of spans vary by themselves, seconds.
    fn noise(&self, now: Instant) -> f64 {
        if self.is_noisy(now) {
            self.delay.wander()
        } else {
            0.0
        }
    }

    /// Seconds until what we do shows in what we measure, with a queue of `queue` seconds.
    fn settled(&self, queue: f64) -> f64 {
        self.rtt + queue + self.span() + self.rate_span()
    }

    /// The standing queue that may be ours, seconds.
    fn queue(&self) -> f64 {
        self.delay
            .standing(&self.samples, self.span(), self.target())
    }

    /// What was offered and served over the last span, with a queue of `queue` seconds; `None` where
    /// the sender was idle in it. After a silence it is the least that was served.
    fn flow(&self, last: &AckPoint, idle_total: u64, queue: f64) -> Option<Flow> {
        let from = self.samples.before(self.rate_span())?;
        let received = last
            .received_at
            .checked_sub(from.received_at)?
            .as_secs_f64();
        let sent = last.sent_at.saturating_since(from.sent_at).as_secs_f64();
        let stretch = Stretch::between(&from, last, self.packet);
        let idle = idle_total >= from.sent_total;
        // What a long queue loses, it refused, unless it loses as much at any rate;
        // and where a test came to no verdict, rates do not fall for loss.
        let undecided = !self.loss.may_test(self.now);
        let carried = if undecided || self.does_not_heal(self.now, queue) {
            stretch.sent
        } else if self.is_long(queue) {
            self.loss.carried_of(&stretch)
        } else {
            self.loss.carried_share() * stretch.sent
        };
        (!idle && received > 0.0 && sent > 0.0).then(|| Flow {
            offered: stretch.sent / sent,
            served: carried / received,
            lost: stretch.loss(),
            packets: stretch.packets,
        })
    }

    /// Whether the path was gone for a part of the last span that tells.
    fn was_silent(&self) -> bool {
        let span = self.rate_span();
        Self::had_outage(self.samples.silence(span, self.long_gap(span)), span)
    }

    fn on_sample(&mut self, feedback: &Feedback<'_>, ack: AckPoint) {
        let (mut between, mut away) = (None, 0.0);
        if let Some(previous) = self.samples.last() {
            let stretch = Stretch::between(&previous, &ack, self.packet);
            between = Some(stretch);
            let gap = ack.received_at.saturating_sub(previous.received_at);
            let gap = gap.as_secs_f64();
            if gap > self.long_gap(self.rtt) {
                self.round.silence += gap;
                if let Mode::LossTest(test, _) = &mut self.mode {
                    test.on_gap(Gaps::between(&previous, &ack));
                }
            }
            // Where only a small probe passes, it is large packets that the path does not carry any more.
            let passes = stretch.delivered > self.packet / 2.0;
            if passes && feedback.idle_total < previous.sent_total {
                away = gap;
            }
            self.usual_gap += (gap - self.usual_gap) * spans::GAP_WEIGHT;
        }
        if ack.size > 0 {
            self.mean_size += (ack.size as f64 - self.mean_size) * spans::SIZE_WEIGHT;
        }
        let now = feedback.now;
        let latest = feedback.rtt.latest();
        let rate = self.path_rate();
        let service = Service {
            packet: self.packet,
            rate,
            most: rate / self.loss.carried_share(),
        };
        let trips = (latest.as_secs_f64(), feedback.rtt.min().as_secs_f64());
        // A queue that others keep shows it to nobody.
        let beside_others = match &self.mode {
            Mode::Yield(_) => true,
            Mode::Competitive(window) => !window.answers_overflow(),
            _ => false,
        };
        if beside_others {
            self.delay.keep_base(now);
        }
        let delay = self.delay.update(now, &ack, trips, service);
        self.smoothed_rtt = feedback.rtt.smoothed().as_secs_f64();
        self.rtt = self.delay.round_trip().max(bounds::LEAST_ROUND_TRIP);
        // What an outage loses has no round trip, but is in flight for as long.
        let away = Duration::from_secs_f64(self.rtt + away);
        self.high_rtt.update(now, latest.max(away));
        let keep = 2.0 * self.rate_span().max(self.span()) + 0.05;
        self.samples.push(ack, delay, keep);
        let span = self.span();
        let least = self.samples.least_delay(span);
        self.delay.end_span(now, least, span);
        let level = self.delay.floor() + self.delay.resolution(self.target());
        if self.delay.resolution(self.target()) > queue::MIN_BUSY {
            self.noisy_until = Some(now + Duration::from_secs_f64(self.probe_cycle()));
        }
        // What was lost between two packets that arrived met the queue that these met.
        if let Some(between) = between {
            let acked = between.delivered / self.packet;
            let lost = (between.sent - between.delivered) / self.packet;
            self.round.queue.add(delay - level, acked, lost.max(0.0));
        }
        self.look_for_others(now);
        match &mut self.mode {
            Mode::Startup(search) => {
                let search = *search;
                self.startup(search, ack, feedback);
            }
            Mode::Cruise(_) => self.cruise(now, ack, feedback.idle_total),
            Mode::Competitive(_) => self.compete(feedback, ack),
            Mode::LossTest(..) => self.follow_test(now, ack),
            Mode::Yield(_) => self.give_way(now),
        }
        self.follow_drain(now, ack, delay);
        if !matches!(self.mode, Mode::Yield(_)) {
            self.estimate = self.estimate.max(self.least_rate());
        }
    }

    /// What is sent however little the path seems to carry, bytes per second.
    fn least_rate(&self) -> f64 {
        let time = self
            .smoothed_rtt
            .clamp(bounds::MIN_WINDOW_TIME, bounds::SLOWEST_WINDOW_TIME);
        bounds::MIN_WINDOW * self.packet / self.rtt.max(time)
    }

    /// Start-up is over.
    fn begin_cruise(&mut self) {
        if let Mode::Startup(search) = &self.mode {
            self.steady_since = self.delivered.intervals;
            if search.best <= 0.0 {
                // Ended before it saw a rate: what was sent in the first round trip.
                self.estimate = self.first.packets * self.packet / self.rtt;
            }
            if self.loss.is_untested() && self.loss.carried_share() < 1.0 {
                self.before_loss
                    .get_or_insert(BeforeLoss::Believed(self.estimate));
            }
        }
        let growing = matches!(&self.mode, Mode::Startup(search) if search.is_growing());
        let mut cruise = Cruise::new(growing);
        cruise.ignore_until(self.interrupted_until);
        self.mode = Mode::Cruise(cruise);
        self.gain = 1.0;
    }

    /// No faster probes for a while.
    fn hold_probes(&mut self, now: Instant) {
        self.probe_held_until = Some(
            now + Duration::from_secs_f64(
                (tuning::cruise::HOLD_ROUND_TRIPS * self.rtt).max(tuning::cruise::MIN_HOLD),
            ),
        );
    }

    /// The network said no: aim at a smaller queue and do not probe for a while.
    fn back_off(&mut self, now: Instant) {
        if let Mode::Cruise(cruise) = &mut self.mode {
            cruise.forget_high();
        }
        self.target_scale = (self.target_scale / 2.0).max(queue::LEAST_SCALE);
        self.probe_gain = 1.0;
        self.hold_probes(now);
    }
}

impl RateController for PathModel {
    fn on_established(&mut self, _now: Instant, rtt: Duration, packet_size: u64) {
        self.rtt = rtt.as_secs_f64().max(bounds::LEAST_ROUND_TRIP);
        self.packet = packet_size as f64;
        self.mean_size = self.packet;
    }

    fn on_pair(&mut self, _now: Instant, rate: Rate) {
        if self.samples.last().is_none() {
            self.plan_first_flight(rate.as_bps() as f64 / 8.0);
        }
    }

    fn max_burst(&self) -> u64 {
        (self.group() * self.estimate).max(self.packet) as u64
    }

    fn on_timeout(&mut self, _now: Instant, count: u32) {
        let window = self.informed_window();
        let initial = tuning::startup::INITIAL_WINDOW * self.packet;
        let busy = window.min(self.estimate * self.rtt);
        if self.in_flight + initial < bounds::PAUSED_SHARE * busy {
            // The last packets before a pause were lost, which says nothing of the path, and there is room.
            return;
        }
        self.blind += if count <= bounds::BLIND_TIMEOUTS {
            bounds::BLIND_SHARE * window.max(initial)
        } else {
            (bounds::PERSISTENT_SHARE * window).max(bounds::MIN_WINDOW * self.packet)
        };
    }

    fn on_sent(&mut self, now: Instant, sent_total: u64) {
        self.in_flight += sent_total.saturating_sub(self.sent_total) as f64;
        self.sent_total = sent_total;
        self.drain_on_sent(now, sent_total);
        if !matches!(self.mode, Mode::LossTest(..)) || self.drains.most_rate(now).is_some() {
            return;
        }
        // What a link holds back for longer arrives with the next stretch, and a stretch shorter than the time
        // between reports is in none of them alone.
        let gaps = (spans::GAPS * self.usual_gap).min(spans::MOST);
        let (round_trip, least) = (self.round_trip_span(), self.jitter_span().max(gaps));
        let packet = self.counted_packet();
        if let Mode::LossTest(test, _) = &mut self.mode {
            let length = least.max(round_trip);
            test.on_sent(sent_total, length, self.lateness, packet);
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.now = feedback.now;
        self.lateness = feedback.lateness.as_secs_f64().min(spans::MOST);
        self.round.marked += feedback.ce_packets;
        self.round.acked += feedback.acked_packets;
        self.lost += feedback.lost_packets as f64 * self.packet;
        self.in_flight = feedback.bytes_in_flight as f64;
        if matches!(self.mode, Mode::Cruise(_)) {
            self.groups.add(feedback.groups);
        }
        let Some(newest) = feedback.newest else {
            return;
        };
        self.blind = 0.0;
        self.on_sample(feedback, newest);
        self.follow_marks(feedback, newest);
        self.delivered.update(feedback, newest, self.rtt);
        self.bound_by_delivery();
        let since = feedback.now.saturating_since(self.round.began);
        if newest.sent_total >= self.round.ends && since.as_secs_f64() >= self.rtt {
            // On a short path a round trip is too few packets to judge loss by.
            let least = (spans::ROUND_TIME * self.estimate / self.packet)
                .clamp(tuning::loss::LEAST_ROUND, spans::ROUND_PACKETS);
            let least = (least * self.packet) as u64;
            self.round.ends = newest.sent_total + feedback.bytes_in_flight.max(least);
            self.end_round(feedback.now, newest, feedback);
        }
    }

    fn ecn(&self) -> Codepoint {
        self.marks.codepoint()
    }

    fn pacing_rate(&self) -> Rate {
        let mut rate = match &self.mode {
            Mode::Startup(search) => self.startup_rate(search),
            Mode::Cruise(_) | Mode::Yield(_) => self.estimate * self.gain,
            Mode::LossTest(test, _) => test.rate(),
            Mode::Competitive(window) => {
                let paced =
                    tuning::cubic::PACING * window.window() / self.smoothed_rtt.max(self.rtt);
                window.trial_rate().unwrap_or(paced)
            }
        };
        if let Some(cap) = &self.cap {
            rate = rate.min(cap.rate(self.now));
        }
        if let Some(most) = self.drains.most_rate(self.now) {
            rate = rate.min(most);
        }
        if self.blind > 0.0 {
            rate *= bounds::BLIND_SHARE;
        }
        Rate::from_bps((rate * 8.0) as u64)
    }

    fn window(&self) -> u64 {
        (self.informed_window() + self.blind) as u64
    }

    /// While others have the path, what is sent is the most that they are to notice.
    fn is_bounded(&self) -> bool {
        matches!(self.mode, Mode::Yield(_))
    }

    fn initial_burst(&self) -> u64 {
        (self.first.burst() * self.packet) as u64
    }

    fn bandwidth(&self) -> Rate {
        Rate::from_bps((self.estimate * 8.0) as u64)
    }
}
