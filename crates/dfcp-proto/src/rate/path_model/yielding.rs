//! Giving way to everybody else, as a scavenger does (less-than-best-effort transport, RFC 6297): a
//! queue longer than what this sender holds by itself means that somebody else wants the path, and
//! it leaves until that queue is gone. It never competes by a window.

use super::loss::Stretch;
use super::tuning::queue::RANGE;
use super::tuning::yielding::*;
use super::{Mode, PathModel};
use crate::time::{Duration, Instant};

/// Out of the others' way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yield {
    /// What was served when it began, bytes per second, as long as the queue may be its own, and until when.
    own: Option<(f64, Instant)>,
    watch: Watch,
    /// Since when delays have stayed within a range, and the range, seconds.
    steady: (Instant, f64, f64),
}

/// Packets seen since a moment, and those of them at which a queue stood.
#[derive(Clone, Copy, Debug)]
struct Watch {
    since: Instant,
    packets: f64,
    late: f64,
}

impl Watch {
    fn new(since: Instant) -> Self {
        Self {
            since,
            packets: 0.0,
            late: 0.0,
        }
    }
}

/// That this sender gave way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yielded {
    /// When it came back, or left if it is still away.
    at: Instant,
    /// What was served when it left, bytes per second, and the most that was of late.
    served: f64,
    most: f64,
    /// For how long there must be no queue before it comes back, seconds: longer each time that others
    /// are still there when it does.
    clear: f64,
    /// A queue since it last came back was its own, or is looked at.
    tested: bool,
    /// It came back as nobody was there, and no loss was put to the test since.
    alone: bool,
    /// The jitter that was seen while it was away, seconds: of packets that leave close together the first to arrive
    /// are seen, which shows less.
    jitter: f64,
}

impl PathModel {
    /// Leaves if somebody else wants the path.
    pub(super) fn look_for_others(&mut self, now: Instant) {
        let may_hold = matches!(
            self.mode,
            Mode::Cruise(_) | Mode::Startup(_) | Mode::LossTest(..)
        );
        if self.yields && may_hold && self.queue() > LONG * self.target() + self.jitter_known(now) {
            self.begin_to_yield(now);
        }
    }

    fn jitter_known(&self, now: Instant) -> f64 {
        let last = self.yielded.filter(|last| self.is_recent(last, now));
        last.map_or(0.0, |last| last.jitter)
            .max(self.delay.jitter())
    }

    /// Whether the rate nears what was served when it last gave way, and so must grow gently.
    pub(super) fn nears_others(&self, now: Instant) -> bool {
        self.yielded
            .is_some_and(|last| self.is_recent(&last, now) && self.estimate > NEAR * last.served)
    }

    /// What the path carries as far as is known, bytes per second: more than this sender asks of it while others
    /// have it.
    pub(super) fn path_rate(&self) -> f64 {
        let is_away = matches!(self.mode, Mode::Yield(_));
        let last = self
            .yielded
            .filter(|last| is_away || self.is_recent(last, self.now));
        last.map_or(self.estimate, |last| last.most.max(self.estimate))
    }

    fn is_recent(&self, last: &Yielded, now: Instant) -> bool {
        now.saturating_since(last.at).as_secs_f64() < MEMORY
    }

    /// Whether it leaves, or waits, before loss is put to the test: beside others no rate of its own heals what
    /// they lose to a queue that is too short to be seen, which would pass for the path's own loss.
    pub(super) fn leaves_before_test(&mut self, now: Instant) -> bool {
        let last = self.yielded.filter(|last| self.is_recent(last, now));
        match last.filter(|last| last.alone) {
            _ if !self.yields => return false,
            Some(last) if self.estimate < NEAR * last.served => {}
            Some(last) => {
                let alone = false;
                self.yielded = Some(Yielded { alone, ..last });
                return false;
            }
            None => self.give_way_from(now, true),
        }
        true
    }

    /// Slows down, and leaves unless that queue may be its own.
    pub(super) fn begin_to_yield(&mut self, now: Instant) {
        let last = self.yielded.filter(|last| self.is_recent(last, now));
        self.give_way_from(now, last.is_some_and(|last| last.tested));
    }

    fn give_way_from(&mut self, now: Instant, is_tested: bool) {
        let last = self.yielded.filter(|last| self.is_recent(last, now));
        let served = self.served();
        self.yielded = Some(Yielded {
            at: now,
            served,
            most: last.map_or(served, |last| served.max(last.most / 2.0)),
            clear: last.map_or(FIRST_CLEAR / 2.0, |last| last.clear),
            tested: true,
            alone: false,
            jitter: last.map_or(0.0, |last| last.jitter),
        });
        let settled = Duration::from_secs_f64(self.settled(self.queue()));
        let delay = self.samples.last_delay().unwrap_or(0.0);
        self.mode = Mode::Yield(Yield {
            own: (!is_tested).then_some((served, now + settled)),
            watch: Watch::new(now),
            steady: (now, delay, delay),
        });
        self.gain = 1.0;
        self.estimate = FIRST_CUT * served;
        if is_tested {
            self.leave();
        }
    }

    /// Others want the path: sends no more than what shows when they are gone.
    fn leave(&mut self) {
        if let Some(last) = &mut self.yielded {
            last.clear = (2.0 * last.clear).min(MOST_CLEAR);
        }
        self.estimate = self.rate_away();
    }

    /// What arrived of late, bytes per second, and no more than the estimate, which has doubled before it is measured
    /// where a first flight meets a queue.
    fn served(&self) -> f64 {
        let from = self
            .samples
            .before(self.rate_span())
            .or(self.samples.first());
        let (Some(from), Some(last)) = (from, self.samples.last()) else {
            return self.estimate;
        };
        let stretch = Stretch::between(&from, &last, self.packet);
        self.estimate
            .min(self.loss.carried_of(&stretch) / stretch.seconds)
    }

    /// Bytes per second while others have the path.
    fn rate_away(&self) -> f64 {
        let most = self.yielded.map_or(0.0, |last| last.most);
        (AWAY * most).max(self.packet / LONGEST_AWAY)
    }

    /// One sample in this mode.
    pub(super) fn give_way(&mut self, now: Instant) {
        let busy = self.busy_from();
        let delay = self.samples.last_delay().unwrap_or(0.0) - self.delay.floor();
        let noise = RANGE * self.delay.jitter();
        let Mode::Yield(state) = &mut self.mode else {
            return;
        };
        let (since, low, high) = &mut state.steady;
        (*low, *high) = (low.min(delay), high.max(delay));
        if *high - *low > busy + noise {
            state.steady = (now, delay, delay);
        } else if now.saturating_since(*since) > STEADY {
            self.delay.rise(*low);
            *since = now;
        }
        match state.own {
            Some((served, until)) if now >= until => {
                state.own = None;
                state.watch = Watch::new(now);
                match self.queue() < busy + self.jitter_known(now) {
                    true => self.come_back(now, OWN_SHARE * served, true),
                    false => self.leave(),
                }
            }
            Some(_) => {}
            None => self.look_whether_alone(now, busy),
        }
    }

    /// Comes back after a stretch in which hardly ever a queue stood.
    fn look_whether_alone(&mut self, now: Instant, busy: f64) {
        let (queue, most) = (self.queue(), self.path_rate());
        let interval = self.rtt.max(self.packet / self.rate_away());
        let least = self.yielded.map_or(FIRST_CLEAR, |last| last.clear);
        let length = least.max(CLEAR_ROUND_TRIPS * interval);
        let Mode::Yield(Yield { watch, .. }) = &mut self.mode else {
            return;
        };
        watch.packets += 1.0;
        watch.late += f64::from(u8::from(queue >= busy));
        let is_over = now.saturating_since(watch.since).as_secs_f64() >= length;
        if watch.late > LATE_SHARE * watch.packets.max(length / interval) {
            *watch = Watch::new(now);
        } else if is_over && watch.packets >= CLEAR_ROUND_TRIPS {
            self.come_back(now, RETURN * most, false);
        }
    }

    fn come_back(&mut self, now: Instant, rate: f64, is_own: bool) {
        self.estimate = rate;
        let jitter = self.delay.jitter();
        if let Some(last) = &mut self.yielded {
            last.at = now;
            last.jitter = last.jitter.max(jitter);
            last.tested = is_own;
            last.alone = !is_own;
        }
        self.begin_cruise();
        self.hold_probes(now);
        let settled = Duration::from_secs_f64(self.settled(0.0));
        if let Mode::Cruise(cruise) = &mut self.mode {
            // What is measured until then is what it sent while it was away.
            cruise.ignore_until(now + settled);
        }
    }
}
