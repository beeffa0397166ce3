//! Cruise: a small standing queue around the measured service rate.
//!
//! While the bottleneck is busy, its service rate is what arrives, and the law holds the queue at its
//! target. While the queue is empty, the estimate only grows. Where delay varies so much by itself
//! that a queue of that size cannot be told from it, the delay decides nothing: a rate that followed
//! such a delay would fall for ever, because what arrives is then just what is sent. There the
//! estimate is what periodic probes are served ([`BandwidthProbe`]), as in BBR.

use super::elasticity::{ElasticityTest, Flow, QueueOwner};
use super::{CubicWindow, MIN_BUSY, Mode, PathModel};
use crate::rate::AckPoint;
use crate::time::{Duration, Instant};

/// Highest pacing gain, and the lowest.
const MAX_GAIN: f64 = 1.2;
const MIN_GAIN: f64 = 0.7;
/// Below this gain we give way, and look whether others take it.
const GIVING_WAY: f64 = 0.995;
/// Most that the estimate grows in a round trip while the queue is empty.
const MAX_GROWTH: f64 = 1.25;
/// Round trips and rate spans from one probe to the next, as BBR probes once in eight round trips.
const PROBE_LOOPS: f64 = 8.0;
/// Gain of such a probe, and of one that follows a probe that found more.
const FIRST_PROBE: f64 = 1.125;
const NEXT_PROBE: f64 = 1.25;
/// A probe that is served this much more than the estimate found more: half of what it asked for.
const FOUND_MORE: f64 = 1.0625;

/// Probes for bandwidth where delay varies so much by itself that a queue of the size that we aim at
/// cannot be told from it: as BBR's ProbeBW, the estimate is what a probe is served.
#[derive(Clone, Copy, Debug)]
struct BandwidthProbe {
    since: Instant,
    gain: f64,
    /// Mean rate that the probe carried, bytes per second, and of how many samples.
    carried: f64,
    samples: f64,
}

/// Times of a probe, seconds: when its service shows, how long it is sent, and from one to the next.
#[derive(Clone, Copy, Debug)]
struct ProbeTimes {
    shows_after: f64,
    length: f64,
    cycle: f64,
}

impl BandwidthProbe {
    fn new(now: Instant, gain: f64) -> Self {
        Self {
            since: now,
            gain,
            carried: 0.0,
            samples: 0.0,
        }
    }

    /// Takes a rate that was carried; returns what the probe carried once it is over.
    fn update(
        &mut self,
        now: Instant,
        carried: f64,
        estimate: f64,
        times: ProbeTimes,
    ) -> Option<f64> {
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        let over = times.shows_after + times.length / 4.0;
        if elapsed < times.shows_after {
            return None;
        }
        if elapsed < over {
            self.samples += 1.0;
            self.carried += (carried - self.carried) / self.samples;
            return None;
        }
        let found = (self.samples > 0.0).then_some(self.carried);
        self.samples = 0.0;
        if found.is_some_and(|found| found > FOUND_MORE * estimate) {
            *self = Self::new(now, NEXT_PROBE);
        } else if elapsed > times.cycle {
            *self = Self::new(now, FIRST_PROBE);
        }
        found
    }

    /// The pacing gain of now, while the probe is sent.
    fn pacing_gain(&self, now: Instant, times: ProbeTimes) -> Option<f64> {
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        (elapsed < times.length).then_some(self.gain)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Cruise {
    probe: Option<BandwidthProbe>,
    owner_test: Option<ElasticityTest>,
    drain_until: Option<Instant>,
    last: Option<Instant>,
}

impl Cruise {
    pub(super) fn new() -> Self {
        Self {
            probe: None,
            owner_test: None,
            drain_until: None,
            last: None,
        }
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
        let flow = self.flow(&last, idle_total);
        if let Some(flow) = flow {
            self.measure(now, flow, queue);
            if busy {
                self.variation.update(now, flow, self.settled(queue));
            }
        }
        if busy || flow.is_none() {
            self.probe_gain = 1.0;
        }
        let want = (self.target() - queue) / (3.0 * self.rtt.max(0.015));
        self.gain = 1.0
            + if want > 0.0 {
                want * self.probe_gain
            } else {
                want
            };
        self.gain = self.gain.clamp(MIN_GAIN, MAX_GAIN);
        self.drain(now, queue);
        self.probe_bandwidth(now);
        self.look_at_owner(now, flow, queue);
    }

    /// Takes what the path served into the estimate.
    fn measure(&mut self, now: Instant, flow: Flow, queue: f64) {
        let busy = queue > self.busy_from();
        // What arrives together after it was held back came no faster than it was sent.
        let carried = flow.served.min(flow.offered);
        let is_noisy = self.delay.resolution(self.target()) > 0.0 && !self.is_long(queue);
        let (times, estimate) = (self.probe_times(), self.estimate);
        let Mode::Cruise(cruise) = &mut self.mode else {
            return;
        };
        if !is_noisy {
            cruise.probe = None;
        } else if busy {
            let probe = cruise
                .probe
                .get_or_insert_with(|| BandwidthProbe::new(now, FIRST_PROBE));
            let outcome = probe.update(now, carried, estimate, times);
            self.estimate = outcome.unwrap_or(estimate);
            return;
        }
        if busy {
            self.met = true;
            self.estimate = flow.served;
        } else {
            self.estimate = self.estimate.max(carried.min(self.estimate * MAX_GROWTH));
        }
    }

    fn probe_times(&self) -> ProbeTimes {
        ProbeTimes {
            shows_after: self.rtt + self.rate_span(),
            length: 1.25 * self.rate_span(),
            cycle: PROBE_LOOPS * (self.rtt + self.rate_span()),
        }
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        let times = self.probe_times();
        if let Mode::Cruise(cruise) = &self.mode
            && let Some(gain) = cruise.probe.and_then(|p| p.pacing_gain(now, times))
        {
            self.gain = gain;
        }
    }

    /// Empties the queue for a moment when the base delay has not been seen for long, so that
    /// our own queue never passes for the path's delay.
    fn drain(&mut self, now: Instant, queue: f64) {
        let (due, rtt) = (self.delay.base_is_due(now), self.rtt);
        let Mode::Cruise(cruise) = &mut self.mode else {
            return;
        };
        if cruise.drain_until.is_none() && due && queue > MIN_BUSY {
            let long = rtt + 5.0 * queue;
            cruise.drain_until = Some(now + Duration::from_secs_f64(long.min(1.0)));
        }
        if let Some(until) = cruise.drain_until {
            if now >= until || queue < 0.000_5 {
                cruise.drain_until = None;
            } else {
                self.gain = self.gain.min(0.8);
            }
        }
    }

    /// While we give way: a queue that does not answer is not ours.
    fn look_at_owner(&mut self, now: Instant, flow: Option<Flow>, queue: f64) {
        let (loop_time, gain) = (self.settled(0.0), self.gain);
        let Mode::Cruise(cruise) = &mut self.mode else {
            return;
        };
        let gives_way = gain < GIVING_WAY && cruise.drain_until.is_none();
        let Some(flow) = flow.filter(|_| gives_way) else {
            cruise.owner_test = None;
            return;
        };
        let new = || ElasticityTest::new(now, flow, queue, &self.variation);
        let mut test = cruise.owner_test.take().unwrap_or_else(new);
        test.follow_growth(now, flow, queue, loop_time);
        let settled = self.settled(test.queue);
        let owner = test.verdict(now, flow, queue, settled, &self.variation);
        if owner == Some(QueueOwner::CrossTraffic) {
            return self.begin_competing(now, test.served, test.queue);
        }
        if let Mode::Cruise(cruise) = &mut self.mode {
            cruise.owner_test = owner.is_none().then_some(test);
        }
    }

    /// Goes on with a window that carries `rate` through a queue that others keep.
    fn begin_competing(&mut self, now: Instant, rate: f64, queue: f64) {
        let settled = self.settled(queue);
        let window = rate * (self.rtt + queue).max(self.smoothed_rtt);
        self.estimate = rate;
        self.mode = Mode::Competitive(CubicWindow::new(now, window, queue, 2.0 * settled));
    }
}
