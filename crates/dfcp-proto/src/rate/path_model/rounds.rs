//! Once per round trip: what loss and marks of the round say, and when a loss test begins and ends.

use super::loss::{Stretch, tolerance};
use super::loss_cause::{Blame, LossCause, LossTest};
use super::shallow::{BufferEstimate, LossByQueue, Overflow, RateCap};
use super::startup::Search;
use super::tuning::cruise::{MAX_PROBE_GAIN, PROBING};
use super::tuning::loss::{HEALING_LOOPS, MOST_OF_ROUND};
use super::tuning::queue::{
    GROUP_HELD, GROUP_TARGETS, MIN_TARGET, MIN_VISIBLE, OVERSHOOT, RECOVERY, VISIBLE_PACKETS,
};
use super::tuning::spans::{GAP_SHARE, GAPS, SILENT_SHARE, SPARSE};
use super::tuning::{bounds, loss_test, startup};
use super::{Mode, PathModel};
use crate::rate::{AckPoint, Feedback};
use crate::time::{Duration, Instant};
use std::f64::consts::SQRT_2;

/// What was seen since the last round ended.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The newest sample when it began; bytes sent with whose acknowledgement it ends.
    pub(super) start: Option<AckPoint>,
    pub(super) ends: u64,
    pub(super) began: Instant,
    pub(super) acked: u64,
    pub(super) marked: u64,
    /// Time without arrivals, in gaps longer than usual, seconds.
    pub(super) silence: f64,
    pub(super) queue: LossByQueue,
}

/// Loss in a long queue, which is congestion until the rate has followed what was delivered for
/// [`HEALING_LOOPS`] and it is still there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unhealed {
    pub(super) since: Instant,
    /// The estimate then.
    pub(super) rate: f64,
}

/// The estimate before loss that no test has judged yet took it down, bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) enum BeforeLoss {
    /// It was only believed.
    Believed(f64),
    /// As much was delivered beside what is lost at any rate.
    Delivered(f64),
}

impl BeforeLoss {
    /// What of it comes back where the path carries `carried` of what is sent now.
    fn at_most(self, carried: f64) -> f64 {
        match self {
            Self::Believed(rate) => rate.min(carried),
            Self::Delivered(rate) => rate,
        }
    }
}

/// Loss of a sender that its rate does not limit, since it came within what it sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within {
    since: Instant,
    /// The estimate before.
    rate: f64,
    /// What was sent and lost then.
    sent: f64,
    loss: f64,
    /// Less did not heal it.
    in_vain: bool,
}

impl PathModel {
    /// Once per round trip: the loss of the round, marks, and the probes.
    pub(super) fn end_round(&mut self, now: Instant, last: AckPoint, feedback: &Feedback<'_>) {
        self.round.queue.end_round();
        let next = Round {
            start: Some(last),
            ends: self.round.ends,
            began: now,
            queue: self.round.queue.next(),
            ..Round::default()
        };
        let round = std::mem::replace(&mut self.round, next);
        let app_limited = round
            .start
            .is_none_or(|s| feedback.idle_total >= s.sent_total);
        self.target_scale = (self.target_scale * RECOVERY).min(1.0);
        if self.probe_held_until.is_none_or(|until| until <= now) {
            self.probe_gain = (self.probe_gain * 2.0).min(MAX_PROBE_GAIN);
        }
        let Some(start) = round.start else {
            return self.startup_round(app_limited, None);
        };
        let stretch = Stretch::between(&start, &last, self.packet);
        let had_outage = Self::had_outage(round.silence, stretch.seconds);
        if !matches!(self.mode, Mode::Startup(_)) {
            self.drains.end_round(now, &stretch);
        }
        self.resume_search();
        let unused = app_limited && !self.fills_path(feedback);
        self.startup_round(unused || had_outage, Some(&stretch));
        if round.marked > 0 && !self.marks.govern() {
            self.answer_marks(now, &round);
        }
        // Where most is lost all the time, every gap is long, and the path is not gone; where hardly
        // anything came, it is.
        let present = (stretch.seconds - round.silence).max(self.packet_time(1.0));
        let arriving = stretch.delivered / present;
        let some = stretch.delivered >= SPARSE * self.packet;
        let is_sparse = some && SPARSE * arriving < self.estimate * (1.0 - self.loss.mean);
        if had_outage && !is_sparse {
            return self.end_flood(&stretch);
        }
        if self.sent_by_test(&start) {
            return self.learn_depth(&round);
        }
        self.learn_loss(now, &round, &stretch, feedback, app_limited);
    }

    /// Whether a packet was sent before the verdict of a loss test that blamed the rate: what the test sent
    /// beyond that says nothing of what was sent since.
    pub(super) fn sent_by_test(&self, ack: &AckPoint) -> bool {
        ack.sent_total < self.blamed_until
    }

    /// A link that holds packets back in every round has outages all the time: a search that loses more
    /// than is known in a long queue, while no more arrives than before, is over all the same.
    fn end_flood(&mut self, round: &Stretch) {
        if round.loss() > MOST_OF_ROUND && self.search_again(round) {
            return;
        }
        let growing = matches!(&self.mode, Mode::Startup(search) if search.is_growing());
        let is_known = self.loss.explains(round.loss(), round.packets);
        if matches!(self.mode, Mode::Startup(_))
            && !growing
            && !is_known
            && self.is_long(self.queue())
        {
            self.begin_cruise();
        }
    }

    /// A full queue loses some of what comes; only an outage loses everything for a while, or holds
    /// it back. What it swallowed says nothing of the path that came back.
    pub(super) fn had_outage(silence: f64, seconds: f64) -> bool {
        silence > SILENT_SHARE * seconds
    }

    /// A time without arrivals that is longer than usual and tells within `seconds`, seconds.
    pub(super) fn long_gap(&self, seconds: f64) -> f64 {
        let usual = bounds::LATE_FEEDBACK + self.packet_time(SPARSE) + GAPS * self.usual_gap;
        usual.max(GAP_SHARE * seconds)
    }

    fn learn_loss(
        &mut self,
        now: Instant,
        round: &Round,
        stretch: &Stretch,
        feedback: &Feedback<'_>,
        app_limited: bool,
    ) {
        match &mut self.mode {
            // What others cause teaches nothing of the path.
            Mode::LossTest(..) | Mode::Yield(_) => return,
            // Its losses are answered by the window; what others cause teaches nothing of the path, but
            // what the queue holds.
            Mode::Competitive(window) => {
                window.end_round();
                let in_long_queue = !window.answers_overflow();
                self.learn_depth(round);
                let does_not_heal = in_long_queue && self.window_does_not_heal(now, stretch);
                if does_not_heal && self.loss.may_test(now) && !app_limited {
                    self.begin_cruise();
                    self.test_unhealed(now, stretch, feedback);
                }
                return;
            }
            Mode::Cruise(_) => {
                // None that answer loss lose most of what they send.
                let may_be_shared = stretch.loss() <= MOST_OF_ROUND;
                let is_shared = may_be_shared && self.is_shared(now, round);
                self.learn_depth(round);
                self.learn_group(now, round);
                if is_shared {
                    if let Some(short) = round.queue.short_loss() {
                        self.loss.explain_by_queue(short);
                    }
                    if self.yields {
                        return self.begin_to_yield(now);
                    }
                    let sent_total = self.samples.last().map_or(0, |s| s.sent_total);
                    return self.answer_overflow(now, sent_total + feedback.bytes_in_flight);
                }
            }
            Mode::Startup(_) => {}
        }
        self.loss.end_round(stretch, self.gain > PROBING);
        let growing = match &self.mode {
            Mode::Startup(search) => search.is_growing() && !self.loss.is_most(),
            _ => false,
        };
        let queue = self.queue();
        let may_test = self.loss.may_test(now) && !app_limited && !self.loss.is_sudden();
        if app_limited {
            self.come_within_use(now, stretch);
        }
        if !self.loss.is_excessive() {
            self.unhealed.take_if(|_| self.loss.is_judged());
            self.before_loss.take_if(|_| self.loss.is_certain());
        } else if self.is_long(queue) && matches!(self.mode, Mode::Cruise(_)) {
            self.begin_unhealed(now);
            if (self.does_not_heal(now, queue) || self.loss.is_untested()) && may_test {
                self.test_unhealed(now, stretch, feedback);
            }
        } else if may_test && !growing && !self.is_long(queue) {
            if !self.search_again(stretch) && !self.leaves_before_test(now) {
                self.begin_test(now, stretch, feedback);
            }
        } else if matches!(self.mode, Mode::Startup(_)) && !growing && self.is_long(queue) {
            // Nothing more arrives, and what is lost is lost in a queue.
            self.begin_cruise();
        }
    }

    /// Whether others overflowed the queue in the round: it is longer than what this sender makes of it,
    /// which can be told where half of it can be held. Such a queue is too short for cross traffic to be
    /// told by elasticity before it is empty again; in a long one that test and the law answer loss. Where so much
    /// is lost at any rate that nobody else can keep a queue, it is not.
    fn is_shared(&self, now: Instant, round: &Round) -> bool {
        if self.loss.leaves_no_window() {
            return false;
        }
        let longest = round.queue.longest;
        let own = OVERSHOOT * self.target() + self.packet_time(1.0);
        let holds = longest > MIN_TARGET && !self.is_long(longest) && !self.is_noisy(now);
        holds && longest > own && round.queue.is_overflow() && self.queue() > self.busy_from()
    }

    /// Shorter groups, if more of them is lost than of what leaves first. Where it is known what the queue holds,
    /// they are short enough for it, and others may fill it.
    fn learn_group(&mut self, now: Instant, round: &Round) {
        let elapsed = now.saturating_since(round.began).as_secs_f64();
        let group = match GROUP_HELD * self.buffer.seconds < GROUP_TARGETS * self.fair_target() {
            true => None,
            false => Some(self.group()),
        };
        let deviation = |packets| self.loss.deviation(packets);
        self.groups.end_round(group, elapsed, deviation);
    }

    /// What the queue holds, if it overflowed in the round.
    fn learn_depth(&mut self, round: &Round) {
        // No queue overflows that is too short to be seen.
        let visible = self.packet_time(VISIBLE_PACKETS).max(MIN_VISIBLE);
        let deviation = |packets| self.loss.deviation(packets);
        let follows = round.queue.follows_delay() && !self.is_noisy(self.now);
        let seen = follows || round.queue.overflows(self.loss.mean, deviation);
        let longest = round.queue.overflowed_at();
        let overflow = if seen && longest > visible {
            self.round.queue.forget();
            Overflow::Seen
        } else {
            Overflow::None
        };
        let elapsed = self.now.saturating_since(round.began).as_secs_f64();
        self.buffer.end_round(longest, self.rtt, overflow, elapsed);
    }

    /// A test needs a sender that its rate limits, and one that floods a path may be limited by its
    /// buffer or the receiver's credit instead. Where a fifth and more is lost, the estimate comes below
    /// what was sent until it is the limit again; for less, a live stream is not slowed down. Who
    /// overloads a path sends more than half of the estimate, as none is believed that is more than twice
    /// of what was delivered; who sends less learns nothing of it. Where less does not heal it, the path loses
    /// it by itself: who sends in bursts is idle in every round, and no test would end what takes its rate down.
    fn come_within_use(&mut self, now: Instant, round: &Stretch) {
        if !self.loss.is_excessive() {
            self.within.take_if(|_| self.loss.is_certain());
            return;
        }
        let (sent, loss) = (round.sent / round.seconds, self.loss.recent());
        let floods = self.loss.is_flood() && sent > self.estimate / bounds::MAX_CLAIM;
        if !floods || !matches!(self.mode, Mode::Cruise(_)) {
            return;
        }
        // A step that chance made look like one that heals is undone with the next that does not.
        let before = self
            .within
            .map_or(self.estimate, |within| within.rate.max(self.estimate));
        let begins = Within {
            since: now,
            rate: before,
            sent,
            loss,
            in_vain: false,
        };
        let within = self.within.unwrap_or(begins);
        if within.in_vain {
            return;
        }
        let heals = HEALING_LOOPS * self.settled(self.queue());
        let is_over = now.saturating_since(within.since).as_secs_f64() > heals;
        let is_less = sent < (1.0 + loss_test::SLOW) / 2.0 * within.sent;
        if is_over && is_less && self.loss.is_certain() {
            // What the same bottleneck would lose of what is sent now.
            let healed = 1.0 - (1.0 - within.loss) * within.sent / sent;
            if loss > (within.loss + healed) / 2.0 {
                self.estimate = self.estimate.max(within.rate);
                self.within = Some(Within {
                    in_vain: true,
                    ..within
                });
                return;
            }
            self.within = None;
        }
        if self.within.is_none() {
            self.within = Some(begins);
            self.loss.begin_again();
        }
        let sent = self.within.map_or(sent, |within| within.sent);
        let most = loss_test::SLOW * sent / self.gain.max(1.0);
        self.estimate = self.estimate.min(most);
    }

    /// Whether what a long queue loses is lost at lower rates as well.
    pub(super) fn does_not_heal(&self, now: Instant, queue: f64) -> bool {
        let heals = HEALING_LOOPS * self.settled(queue);
        let since = |u: Unhealed| now.saturating_since(u.since).as_secs_f64();
        self.unhealed
            .is_some_and(|unhealed| since(unhealed) > heals)
    }

    /// Loss beyond the known goes on from here, if it does not already.
    fn begin_unhealed(&mut self, now: Instant) {
        let (since, rate) = (now, self.estimate);
        self.unhealed.get_or_insert(Unhealed { since, rate });
    }

    /// Whether a window that others' losses should have cut meets as much loss in every round, for longer
    /// than loss of its own making or theirs takes to heal.
    fn window_does_not_heal(&mut self, now: Instant, round: &Stretch) -> bool {
        if self.loss.explains(round.loss(), round.packets) {
            self.unhealed = None;
            return false;
        }
        self.begin_unhealed(now);
        self.does_not_heal(now, self.queue())
    }

    /// Tests the rate at which the loss that does not heal began.
    fn test_unhealed(&mut self, now: Instant, stretch: &Stretch, feedback: &Feedback<'_>) {
        let rate = self.unhealed.map_or(0.0, |unhealed| unhealed.rate);
        self.estimate = self.estimate.max(rate);
        self.begin_test(now, stretch, feedback);
    }

    /// Finds out what causes the loss of late.
    fn begin_test(&mut self, now: Instant, stretch: &Stretch, feedback: &Feedback<'_>) {
        let acked = self.samples.last().map_or(0, |s| s.sent_total);
        let before = acked.saturating_sub(stretch.sent as u64);
        let delivered = self.drains.undrained(before, stretch);
        let rate = self.estimate.max(stretch.sent / stretch.seconds);
        let settled = self.settled(self.queue());
        self.cap = self.cap.filter(|cap| !cap.is_below(now, settled));
        let rate = self.cap.map_or(rate, |cap| rate.min(cap.rate(now)));
        let sent_total = acked + feedback.bytes_in_flight;
        let test = LossTest::new(now, rate, delivered, self.loss.alarm(), sent_total);
        let before = std::mem::replace(&mut self.mode, Mode::Startup(Search::default()));
        self.mode = Mode::LossTest(test, Box::new(before));
    }

    /// Follows a running test to its verdict.
    pub(super) fn follow_test(&mut self, now: Instant, last: AckPoint) {
        let packet = self.counted_packet();
        let queue = self.queue();
        let settled = self.settled(queue);
        let is_long = self.is_long(queue);
        let Mode::LossTest(test, _) = &mut self.mode else {
            return;
        };
        let cause = test.on_ack(now, last, packet);
        // A long queue says more than loss does, at first.
        let ends_early = is_long && self.unhealed.is_none();
        if cause.is_none() && !ends_early {
            return;
        }
        let Some(test) = self.drop_test() else {
            return;
        };
        if let Mode::Cruise(cruise) = &mut self.mode {
            cruise.ignore_until(now + Duration::from_secs_f64(settled));
            cruise.repeat_probe();
        }
        let Some(cause) = cause.filter(|_| !ends_early) else {
            let (since, rate) = (now, test.tested());
            self.unhealed = Some(Unhealed { since, rate });
            if matches!(self.mode, Mode::Startup(_)) {
                self.interrupted_until = now + Duration::from_secs_f64(settled);
            }
            return self.loss.begin_again();
        };
        if let Mode::Cruise(cruise) = &mut self.mode {
            cruise.forget_owner();
        }
        self.unhealed = None;
        let before_loss = self.before_loss.take();
        match cause {
            LossCause::Path(loss) if self.drains.contradict(now, loss) => {
                self.loss.postpone(now, settled);
            }
            // Loss that ends when less is sent for a while than was refused before: a policer's bucket is not empty then.
            LossCause::Path(loss) if self.is_refusal(now, &test, loss) => self.keep_to_cap(now),
            LossCause::Path(loss) => {
                self.loss.verify(loss);
                // As long as nobody knew, what was delivered passed for all that the path carries.
                let carried = test.tested() / (1.0 - loss);
                let before = before_loss.map_or(0.0, |before| before.at_most(carried));
                self.estimate = test.tested().max(before);
                self.buffer = BufferEstimate::default();
                let early = self.delivered.intervals <= startup::MAX_ROUND_TRIPS;
                let searching = !self.met && early && matches!(self.mode, Mode::Cruise(_));
                let flat = matches!(&self.mode, Mode::Startup(search) if !search.is_growing());
                if flat {
                    self.begin_cruise();
                } else if searching || matches!(self.mode, Mode::Startup(_)) {
                    // Only loss had stopped the search, and it is the path's own.
                    self.mode = Mode::Startup(Search::from(self.estimate));
                }
            }
            LossCause::Congestion(blame) => self.blame_rate(now, blame, test.sent_until()),
            LossCause::Both { carried, remaining } => {
                self.estimate = test.tested().min(carried);
                self.loss.blame_rate(remaining);
                self.blamed_until = test.sent_until();
                if matches!(self.mode, Mode::Startup(_)) {
                    self.begin_cruise();
                }
                self.hold_probes(now);
            }
            LossCause::Unknown => self.loss.postpone(now, settled),
        }
    }

    /// Whether `test` began at more than the path refused of late and lost no more than the path does by itself, `loss`:
    /// then it refused that again.
    fn is_refusal(&self, now: Instant, test: &LossTest, loss: f64) -> bool {
        let (rate, carried) = (test.tested(), test.carried_at_alarm());
        let known = self.loss.mean;
        loss <= known + tolerance(known)
            && self
                .cap
                .is_some_and(|cap| cap.was_exceeded(now, rate, carried))
    }

    /// The rate that the cap is at was refused once more.
    fn keep_to_cap(&mut self, now: Instant) {
        self.cap = self.cap.map(|cap| cap.refused_again(now));
        let most = self.cap.map_or(f64::INFINITY, |cap| cap.rate(now));
        self.estimate = self.estimate.min(most);
        self.loss.begin_again();
        self.hold_probes(now);
    }

    /// Goes on as before a loss test, if there is one.
    pub(super) fn drop_test(&mut self) -> Option<LossTest> {
        match std::mem::replace(&mut self.mode, Mode::Startup(Search::default())) {
            Mode::LossTest(test, before) => {
                self.mode = *before;
                Some(test)
            }
            mode => {
                self.mode = mode;
                None
            }
        }
    }

    /// What was lost beyond what remained was congestion; what was sent until `sent_until` bytes shows more of it.
    pub(super) fn blame_rate(&mut self, now: Instant, blame: Blame, sent_until: u64) {
        let (delivered, remaining) = (blame.delivered, blame.remaining);
        if blame.at_most < self.loss.mean {
            self.loss.verify(blame.at_most);
        }
        self.estimate = delivered / (1.0 - self.loss.mean);
        // What the path carried, if a test shows that what remained is its own.
        self.before_loss = Some(BeforeLoss::Delivered(delivered / (1.0 - remaining)));
        self.loss.blame_rate(remaining);
        self.blamed_until = sent_until;
        self.delay.set_floor(0.0);
        if !matches!(self.mode, Mode::Competitive(_)) {
            let carried = delivered / (1.0 - remaining);
            let packets = f64::from(loss_test::MIN_PAIRS) * loss_test::STRETCH_PACKETS;
            let error = loss_test::SIGNIFICANT * self.loss.deviation(packets) * SQRT_2;
            self.cap = Some(RateCap::new(now, carried, error, self.rtt, self.cap));
            self.begin_cruise();
        }
        self.back_off(now);
    }
}
