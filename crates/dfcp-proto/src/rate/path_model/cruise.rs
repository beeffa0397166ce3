//! Cruise: a small standing queue around the measured service rate.
//!
//! While the bottleneck is busy, its service rate is what arrives, and the law holds the queue at its
//! target. While the queue is empty, the estimate only grows. Where delay varies so much by itself
//! that a queue of that size cannot be told from it, the delay decides nothing: a rate that followed
//! such a delay would fall for ever, because what arrives is then just what is sent. There the
//! estimate is what periodic probes are served ([`BandwidthProbe`]), as in BBR.

use super::elasticity::{ElasticityTest, Flow, QueueOwner};
use super::rounds::BeforeLoss;
use super::startup::Search;
use super::tuning::cruise::*;
use super::{Mode, PathModel};
use crate::rate::AckPoint;
use crate::time::{Duration, Instant};

/// Probes for bandwidth where delay varies so much by itself that a queue of the size that we aim at
/// cannot be told from it: as BBR's ProbeBW, the estimate is what a probe is served.
#[derive(Clone, Copy, Debug)]
struct BandwidthProbe {
    since: Instant,
    /// The estimate then, bytes per second.
    estimate: f64,
    /// How long it is sent, and from its beginning to the next one's, seconds.
    length: f64,
    cycle: f64,
    /// What it asks for beyond the estimate, as a share of that.
    excess: f64,
    measured: bool,
}

impl BandwidthProbe {
    fn ends(&self) -> Instant {
        self.since + Duration::from_secs_f64(self.length)
    }

    /// The pacing gain of now, while the probe is sent.
    fn pacing_gain(&self, now: Instant) -> Option<f64> {
        (now < self.ends()).then_some(1.0 + self.excess)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Cruise {
    probe: Option<BandwidthProbe>,
    owner_test: Option<ElasticityTest>,
    /// Until when what we measure is what a drain or a loss test made of it.
    echoes_until: Instant,
    /// Since when a long queue loses more than is known, and the least that was delivered in the first round
    /// trip of that, bytes per second.
    losing: Option<(Instant, f64)>,
    last: Option<Instant>,
    /// The highest estimate of the last [`PROBE_LOOPS`], which sinks to the present one within as
    /// many, bytes per second.
    high: f64,
    /// What the first probe asks for beyond the estimate, as a share of that.
    first_probe: f64,
    /// The search that a delay of so many seconds ended while deliveries grew.
    pub(super) ended: Option<(Search, f64)>,
}

impl Cruise {
    /// If deliveries were still `growing` when start-up ended, and the delay that ended it turns out to
    /// vary by itself, the first probe asks for as much as start-up would have.
    pub(super) fn new(growing: bool) -> Self {
        Self {
            probe: None,
            owner_test: None,
            echoes_until: Instant::ZERO,
            losing: None,
            last: None,
            high: 0.0,
            first_probe: if growing { MAX_PROBE } else { FIRST_PROBE },
            ended: None,
        }
    }

    /// Until then what is measured is what a test sent.
    pub(super) fn ignore_until(&mut self, until: Instant) {
        self.echoes_until = self.echoes_until.max(until);
    }

    /// The pacing gain of a probe that is sent now.
    pub(super) fn probe_gain(&self, now: Instant) -> Option<f64> {
        self.probe.and_then(|probe| probe.pacing_gain(now))
    }

    /// Whose queue it was before a loss test says nothing of the one after it.
    pub(super) fn forget_owner(&mut self) {
        self.owner_test = None;
    }

    /// A probe that was interrupted shows nothing, and is to be sent again.
    pub(super) fn repeat_probe(&mut self) {
        if let Some(probe) = self.probe.take_if(|probe| !probe.measured) {
            self.first_probe = probe.excess;
        }
    }

    /// What was estimated before is more than the network wants.
    pub(super) fn forget_high(&mut self) {
        self.high = 0.0;
    }
}

impl PathModel {
    /// One sample in this mode.
    pub(super) fn cruise(&mut self, now: Instant, last: AckPoint, idle_total: u64) {
        let Mode::Cruise(cruise) = &mut self.mode else {
            return;
        };
        let elapsed = cruise
            .last
            .replace(now)
            .map_or(0.0, |l| now.saturating_since(l).as_secs_f64());
        let delay = self.samples.least_delay(self.span());
        let settled = self.settled(delay);
        self.delay.follow(now, delay, elapsed, settled);
        let queue = self.queue();
        let busy = queue > self.busy_from();
        let least = self.flow(&last, idle_total, queue);
        let flow = least.filter(|_| !self.was_silent());
        // The least that was served may still be more than expected.
        if let Some(flow) = flow.or(least.filter(|_| !busy)) {
            let before = self.estimate;
            self.measure(now, flow, queue, elapsed);
            // A bottleneck that is busy shows its rate all the same.
            if !busy && self.marks.was_cut(now) {
                self.estimate = self.estimate.min(before);
            }
            if self.marks.govern() && !self.is_long(queue) {
                self.estimate = before;
            }
        }
        if let Some(flow) = flow.filter(|_| busy) {
            self.variation.update(now, flow, self.settled(queue));
        }
        // A link that holds packets back in every round trip says nothing against more, either, and a queue
        // that a drain or a loss test has emptied none for it.
        let says_nothing = least.is_none() || self.echoes_test(now);
        if busy || says_nothing || self.nears_others(now) {
            self.probe_gain = 1.0;
        }
        let want = (self.target() - queue) / (LAW * self.rtt.max(LEAST_LOOP));
        let want = if want > 0.0 {
            want * self.probe_gain
        } else {
            want
        };
        // The whole delay counts here, as what is taken for noise or for the path's own may be a
        // queue all the same; and so does loss.
        let is_clear = delay < self.target() && !self.loss.is_excessive();
        let is_empty = is_clear && !busy && flow.is_some();
        let least = self.least_gain(now, queue, is_empty, elapsed);
        self.gain = (1.0 + want).min(MAX_GAIN).max(least);
        if self.marks.govern() && !self.is_long(queue) {
            self.gain = 1.0;
        }
        self.probe_bandwidth(now);
        self.look_at_owner(now, flow, queue);
    }

    /// Whether what is measured now is what a drain or a loss test made of it.
    fn echoes_test(&self, now: Instant) -> bool {
        matches!(&self.mode, Mode::Cruise(cruise) if now < cruise.echoes_until)
    }

    /// Least pacing gain, `elapsed` seconds after the last call. While the queue is empty beyond
    /// doubt, it leads back to the highest estimate of late, as BBR's maximum filter does: a service
    /// that varies by itself cuts the estimate at once and would else give it back slowly.
    fn least_gain(&mut self, now: Instant, queue: f64, is_empty: bool, elapsed: f64) -> f64 {
        let (settled, estimate) = (self.settled(queue), self.estimate.max(1.0));
        let is_held = self.probe_held_until.is_some_and(|until| now < until);
        let Mode::Cruise(cruise) = &mut self.mode else {
            return MIN_GAIN;
        };
        let loops = elapsed / settled;
        cruise.high -= (cruise.high - estimate) * (loops / PROBE_LOOPS).min(1.0);
        cruise.high = cruise.high.max(estimate);
        if is_empty && !is_held {
            (cruise.high / estimate).min(1.0 + MAX_PROBE)
        } else {
            MIN_GAIN
        }
    }

    /// Takes what the path served into the estimate.
    fn measure(&mut self, now: Instant, flow: Flow, queue: f64, elapsed: f64) {
        let busy = queue > self.busy_from();
        let varies = self.delay.resolution(self.target());
        let varies = varies.max(self.delay.jitter()) + self.packet_time(1.0);
        let error = varies / self.rate_span();
        // A queue that grows or shrinks shows what the path carries.
        let change = flow.served / flow.offered - 1.0;
        // What arrives together after it was held back came no faster than it was sent.
        let carried = flow.served.min(flow.offered);
        let undecided = self.loss.is_excessive() && !self.loss.may_test(now);
        // What a test sent beyond the path's capacity, to find out, is no capacity.
        let shows_test = self.samples.before(self.rate_span());
        let shows_test = shows_test.is_some_and(|from| self.sent_by_test(&from));
        let growth = if undecided || shows_test {
            1.0
        } else {
            MAX_GROWTH
        };
        let most = self.estimate.max(carried.min(self.estimate * growth));
        if !busy {
            self.estimate = most;
        } else if self.is_noisy(now) {
            let is_long = self.is_long(queue);
            self.estimate = if is_long && change.abs() > error {
                flow.served
            } else {
                most
            };
            self.probe(now, !is_long);
            return;
        } else {
            self.met = true;
            self.estimate = if self.echoes_test(now) {
                most.max(flow.served)
            } else if change < -error || !self.is_long(queue) {
                self.bear_loss(now, flow, queue)
            } else {
                flow.served.max(self.least_estimate(queue, elapsed))
            };
        }
        if !self.is_noisy(now)
            && let Mode::Cruise(cruise) = &mut self.mode
        {
            cruise.probe = None;
        }
    }

    /// What was served, but loss in a long queue takes the estimate only to what is delivered in the round
    /// trip after it began, which the path carries and which was sent before anything answered the loss,
    /// until it is known whether less heals it.
    fn bear_loss(&mut self, now: Instant, flow: Flow, queue: f64) -> f64 {
        let is_loss = self.is_long(queue) && !self.loss.explains(flow.lost, flow.packets);
        let (answered, estimate) = (self.rtt + queue, self.estimate);
        if is_loss && self.loss.is_untested() {
            self.before_loss
                .get_or_insert(BeforeLoss::Believed(estimate));
        }
        let Mode::Cruise(cruise) = &mut self.mode else {
            return flow.served;
        };
        if !is_loss {
            cruise.losing = None;
            return flow.served;
        }
        let losing = cruise.losing.get_or_insert((now, estimate));
        if now.saturating_since(losing.0).as_secs_f64() < answered {
            losing.1 = losing.1.min(flow.served);
        }
        flow.served.max(losing.1.min(estimate))
    }

    /// What arrives is what was sent where the path refused none: then the estimate follows no faster
    /// than the gain lets it in `elapsed` seconds.
    fn least_estimate(&self, queue: f64, elapsed: f64) -> f64 {
        self.gain.min(1.0).powf(elapsed / self.settled(queue)) * self.estimate
    }

    /// Seconds from one probe to the next.
    pub(super) fn probe_cycle(&self) -> f64 {
        PROBE_LOOPS * (self.rtt + self.rate_span())
    }

    /// Sends probes, one in [`PROBE_LOOPS`], and takes what they were served.
    fn probe(&mut self, now: Instant, may_begin: bool) {
        let (span, cycle, estimate) = (self.rate_span(), self.probe_cycle(), self.estimate);
        let begin = |excess| BandwidthProbe {
            since: now,
            estimate,
            length: PROBE_SPANS * span,
            cycle,
            excess,
            measured: false,
        };
        let Mode::Cruise(cruise) = &mut self.mode else {
            return;
        };
        let Some(probe) = &mut cruise.probe else {
            if may_begin {
                cruise.probe = Some(begin(cruise.first_probe));
                cruise.first_probe = FIRST_PROBE;
            }
            return;
        };
        let elapsed = now.saturating_since(probe.since).as_secs_f64();
        if probe.measured {
            if may_begin && elapsed > probe.cycle {
                *probe = begin(FIRST_PROBE);
            }
            return;
        }
        let Some(last) = self.samples.last() else {
            return;
        };
        if last.sent_at < probe.ends() {
            return;
        }
        probe.measured = true;
        let sent = self
            .samples
            .sent_between(probe.since, probe.ends(), self.packet);
        let Some(stretch) = sent else {
            return;
        };
        let mut found = self.loss.carried_share() * stretch.sent / stretch.seconds;
        if !self.loss.explains(stretch.loss(), stretch.packets) {
            // What the path refused of the probe, but one burst of loss takes nothing of what was carried before.
            let kept = found.min(probe.estimate);
            found = found
                .min(self.loss.carried_of(&stretch) / stretch.seconds)
                .max(kept);
        }
        // The estimate may have followed what arrived already.
        if found > (1.0 + probe.excess / 2.0) * probe.estimate {
            // Another one, as soon as it may begin.
            cruise.first_probe = (2.0 * probe.excess).min(MAX_PROBE);
            cruise.probe = None;
        }
        self.estimate = found;
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        if !self.is_long(self.queue())
            && let Mode::Cruise(cruise) = &self.mode
            && let Some(gain) = cruise.probe_gain(now)
        {
            self.gain = gain;
        }
    }

    /// While we give way: a queue that does not answer is not ours.
    fn look_at_owner(&mut self, now: Instant, flow: Option<Flow>, queue: f64) {
        let drains = self.drains.is_measured();
        let (loop_time, gain, is_long) = (self.settled(0.0), self.gain, self.is_long(queue));
        let Mode::Cruise(cruise) = &mut self.mode else {
            return;
        };
        // What a loss test sent says nothing of whose a long queue is. One that its rates can fill and
        // empty is looked at all the same.
        let is_echo = drains || is_long && now < cruise.echoes_until;
        let gives_way = gain < GIVING_WAY && !is_echo;
        let Some(flow) = flow.filter(|_| gives_way) else {
            cruise.owner_test = None;
            return;
        };
        let mut test = match cruise.owner_test.take() {
            Some(test) => test,
            // A gap in what we sent is nothing to compare with.
            None if flow.offered < MIN_GAIN * self.estimate => return,
            None => ElasticityTest::new(now, flow, queue, &self.variation),
        };
        test.follow_growth(now, flow, queue, loop_time);
        let settled = self.settled(test.queue);
        let owner = test.verdict(now, flow, queue, settled, &self.variation);
        if owner == Some(QueueOwner::CrossTraffic) {
            if self.yields {
                return self.begin_to_yield(now);
            }
            if self.loss.may_leave_no_window() && self.drains.ask() {
                self.estimate = self.estimate.max(test.served);
                return;
            }
            if !self.loss.leaves_no_window() {
                return self.begin_competing(now, test.served, test.queue);
            }
            // Nobody there can fill a queue: the delay is the path's.
            self.delay.set_floor(self.delay.floor() + queue);
            self.estimate = self.estimate.max(test.served);
            return;
        }
        if let Mode::Cruise(cruise) = &mut self.mode {
            cruise.owner_test = owner.is_none().then_some(test);
        }
    }
}
