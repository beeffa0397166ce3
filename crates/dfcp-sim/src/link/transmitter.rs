//! The transmitter of a link: serialises one packet at a time, exactly.

use super::bucket::Bucket;
use super::config::{LinkConfig, LinkRate};
use super::grants::{Granting, Load};
use super::outage::{Outage, Slowdown};
use super::trace::RateTrace;
use crate::packet::Queued;
use crate::random::Seed;
use dfcp_proto::{Duration, Instant, Rate};
use std::sync::Arc;

/// Bits × 10⁹ in a byte: work in this unit divided by a rate in bit/s is nanoseconds. A packet of
/// 2 GB still fits 64 bits.
pub(super) const WORK_PER_BYTE: u64 = 8_000_000_000;

const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct Transmitter<P> {
    rate: LinkRate,
    speed: Speed,
    /// What else decides when a packet is out; most links have none of it.
    limits: Option<Box<Limits>>,
    sending: Option<Sending<P>>,
    seed: Seed,
}

/// What slows a transmitter besides its rate.
#[derive(Clone, Debug)]
struct Limits {
    outages: Vec<Outage>,
    slowdown: Option<Slowdown>,
    shaper: Option<Bucket>,
    grants: Option<Granting>,
}

#[derive(Clone, Debug)]
enum Speed {
    Unlimited,
    Constant(Constant),
    Trace(Opportunities),
}

/// A packet being serialised.
#[derive(Clone, Debug)]
struct Sending<P> {
    item: Queued<P>,
    /// When `work` was counted: the start, or the last change of rate.
    since: Instant,
    /// What was left to serialise then.
    work: u64,
    finish: Instant,
}

impl<P> Transmitter<P> {
    /// Idle at time zero. Everything random hangs on `seed`.
    pub fn new(config: &LinkConfig, seed: Seed) -> Self {
        Self {
            rate: config.rate.clone(),
            speed: Speed::new(config.rate.clone()),
            limits: Limits::new(config, seed),
            sending: None,
            seed,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    /// The rate in the long run, outages aside.
    pub fn rate(&self) -> Option<Rate> {
        let line = match &self.speed {
            Speed::Unlimited => None,
            Speed::Constant(constant) => Some(constant.rate),
            Speed::Trace(trace) => Some(trace.trace.mean_rate()),
        };
        let limits = self.limits.as_ref();
        let shaper = limits.and_then(|limits| limits.shaper.as_ref());
        let shaped = shaper.map(|shaper| shaper.config().rate);
        line.into_iter().chain(shaped).min()
    }

    /// When the packet in the transmitter is out.
    #[inline]
    pub fn finish(&self) -> Option<Instant> {
        self.sending.as_ref().map(|s| s.finish)
    }

    /// When it and `bytes` more are out.
    pub fn clears_at(&self, bytes: u64) -> Option<Instant> {
        let finish = self.finish()?;
        let work = self.rate().map_or(Duration::ZERO, |r| r.time_for(bytes));
        match self.slowdown() {
            Some(slowdown) if bytes > 0 => {
                let mut slowdown = slowdown.clone();
                slowdown.seek(finish);
                Some(slowdown.finish(finish, work))
            }
            _ => Some(finish + work),
        }
    }

    fn slowdown(&self) -> Option<&Slowdown> {
        self.limits.as_ref()?.slowdown.as_ref()
    }

    /// Begins to serialise at `start`, when it was idle.
    #[inline]
    pub fn start(&mut self, item: Queued<P>, start: Instant) {
        if self.limits.is_some() {
            return self.start_limited(item, start);
        }
        let size = item.size;
        let (work, finish) = match &mut self.speed {
            Speed::Unlimited => (0, start),
            Speed::Constant(constant) => constant.start(size, start),
            Speed::Trace(trace) => (0, trace.start(size, start, None)),
        };
        self.sending = Some(Sending {
            item,
            since: start,
            work,
            finish,
        });
    }

    fn start_limited(&mut self, item: Queued<P>, start: Instant) {
        let Some(limits) = &mut self.limits else {
            return;
        };
        let size = item.size;
        let start = match &mut limits.shaper {
            Some(shaper) => shaper.wait(size, start),
            None => start,
        };
        if let Some(slowdown) = &mut limits.slowdown {
            slowdown.seek(start);
        }
        let slowdown = limits.slowdown.as_ref();
        let slowed = |work| slowdown.map_or(start + work, |s| s.finish(start, work));
        let rate = match &self.speed {
            Speed::Constant(constant) => Some(constant.rate),
            _ => None,
        };
        let (work, finish) = match (&mut self.speed, &mut limits.grants) {
            (Speed::Trace(trace), _) => (0, trace.start(size, start, slowdown)),
            (_, Some(grants)) => {
                let load = Load {
                    size,
                    from: start,
                    rate,
                    slowdown,
                };
                (0, grants.send(&load))
            }
            (Speed::Unlimited, None) => (0, slowed(Duration::ZERO)),
            (Speed::Constant(constant), None) => {
                let (work, finish) = constant.start(size, start);
                constant.last_finish = slowed(finish.saturating_since(start));
                (work, constant.last_finish)
            }
        };
        self.sending = Some(Sending {
            item,
            since: start,
            work,
            finish,
        });
    }

    /// The packet that is out by `now`, and when it was.
    #[inline]
    pub fn take(&mut self, now: Instant) -> Option<(Queued<P>, Instant)> {
        if self.sending.as_ref()?.finish > now {
            return None;
        }
        self.sending.take().map(|s| (s.item, s.finish))
    }

    /// Goes on as `config` says from `now` on. A packet that waits for an opportunity of a trace or
    /// for a grant keeps its time.
    pub fn set_config(&mut self, now: Instant, config: &LinkConfig) {
        let done = self.done(now);
        let limits = self.limits.take();
        let timed = matches!(self.speed, Speed::Trace(_))
            || limits
                .as_ref()
                .is_some_and(|limits| limits.grants.is_some());
        self.limits = Limits::after(limits, now, config, self.seed);
        if config.rate != self.rate {
            self.rate = config.rate.clone();
            self.speed = Speed::new(config.rate.clone());
        }
        let Some(sending) = self.sending.as_mut().filter(|_| !timed) else {
            return;
        };
        // What waits for a shaper's tokens has not begun.
        let from = now.max(sending.since);
        let mut slowdown = self.limits.as_mut().and_then(|l| l.slowdown.as_mut());
        if let Some(slowdown) = &mut slowdown {
            slowdown.seek(from);
        }
        let slowdown = slowdown.as_deref();
        let slowed = |work| slowdown.map_or(from + work, |s| s.finish(from, work));
        sending.work = sending.work.saturating_sub(done);
        sending.since = from;
        sending.finish = match &mut self.speed {
            Speed::Unlimited => slowed(Duration::ZERO),
            Speed::Constant(constant) => {
                let finish = constant.run(sending.work, from);
                constant.last_finish = slowed(finish.saturating_since(from));
                constant.last_finish
            }
            Speed::Trace(trace) => {
                let size = sending.work.div_ceil(WORK_PER_BYTE);
                trace.start(size as u32, from, slowdown)
            }
        };
    }

    /// Work done by `now` on the packet in the transmitter.
    fn done(&self, now: Instant) -> u64 {
        let (Some(sending), Speed::Constant(constant)) = (&self.sending, &self.speed) else {
            return 0;
        };
        let elapsed = match self.slowdown() {
            Some(slowdown) => slowdown.work(sending.since, now),
            None => now.saturating_since(sending.since),
        };
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        elapsed.saturating_mul(constant.rate.as_bps())
    }
}

impl Limits {
    /// `None` where the rate alone decides.
    fn new(config: &LinkConfig, seed: Seed) -> Option<Box<Self>> {
        Self::after(None, Instant::ZERO, config, seed)
    }

    /// What limits from `now` on; parts that stay the same go on where they were.
    fn after(
        old: Option<Box<Self>>,
        now: Instant,
        config: &LinkConfig,
        seed: Seed,
    ) -> Option<Box<Self>> {
        let (mut slowdown, mut shaper, mut grants) = (None, None, None);
        if let Some(old) = old {
            let old = *old;
            slowdown = old.slowdown.filter(|_| old.outages == config.outages);
            shaper = old.shaper;
            grants = old.grants;
        }
        let grants = config.grants.map(|config| match grants {
            Some(grants) if grants.config() == config => grants,
            _ => Granting::new(config),
        });
        let shaper = config.shaper.map(|config| match shaper {
            Some(mut shaper) => {
                shaper.set_config(now, config);
                shaper
            }
            None => Bucket::new(config),
        });
        let slowdown = slowdown.or_else(|| Slowdown::new(&config.outages, seed));
        let any = slowdown.is_some() || shaper.is_some() || grants.is_some();
        any.then(|| {
            Box::new(Self {
                outages: config.outages.clone(),
                slowdown,
                shaper,
                grants,
            })
        })
    }
}

impl Speed {
    fn new(rate: LinkRate) -> Self {
        match rate {
            LinkRate::Unlimited => Self::Unlimited,
            LinkRate::Constant(rate) => Self::Constant(Constant::new(rate)),
            LinkRate::Trace(trace) => Self::Trace(Opportunities::new(trace)),
        }
    }
}

/// A constant rate. What rounding a finish down to nanoseconds left undone goes to the next packet.
#[derive(Clone, Debug)]
struct Constant {
    rate: Rate,
    /// Work left over from the last packet, below one nanosecond's.
    owed: u64,
    /// When the last packet was out: idle time in between cancels what is owed.
    last_finish: Instant,
    /// Size, quotient and remainder of the last division: most packets are of one size, and a
    /// division is a good part of what a packet costs.
    size: u32,
    whole: u64,
    rest: u64,
}

impl Constant {
    fn new(rate: Rate) -> Self {
        Self {
            rate,
            owed: 0,
            last_finish: Instant::ZERO,
            size: 0,
            whole: 0,
            rest: 0,
        }
    }

    #[inline]
    fn start(&mut self, size: u32, start: Instant) -> (u64, Instant) {
        let bps = self.rate.as_bps();
        if size != self.size {
            self.size = size;
            let work = u64::from(size).saturating_mul(WORK_PER_BYTE);
            self.whole = work.checked_div(bps).unwrap_or(u64::MAX);
            self.rest = work.checked_rem(bps).unwrap_or(0);
        }
        let owed = if start == self.last_finish {
            self.owed
        } else {
            0
        };
        let work = u64::from(size).saturating_mul(WORK_PER_BYTE) + owed;
        let mut nanos = self.whole;
        let mut rest = self.rest + owed;
        if rest >= bps && bps > 0 {
            rest -= bps;
            nanos = nanos.saturating_add(1);
        }
        self.owed = rest;
        self.last_finish = start + Duration::from_nanos(nanos);
        (work, self.last_finish)
    }

    /// Does `work` from `now` on.
    fn run(&mut self, work: u64, now: Instant) -> Instant {
        let bps = self.rate.as_bps();
        let nanos = work.checked_div(bps).unwrap_or(u64::MAX);
        self.owed = work.checked_rem(bps).unwrap_or(0);
        self.last_finish = now + Duration::from_nanos(nanos);
        self.last_finish
    }
}

/// A trace of opportunities to deliver: a packet is out at the opportunity that takes its last
/// byte, the rest of that opportunity goes to the packet behind it, and what nobody used is gone.
#[derive(Clone, Debug)]
struct Opportunities {
    trace: Arc<RateTrace>,
    /// Number of the next opportunity not yet touched.
    next: u64,
    last: Instant,
    left: u32,
}

impl Opportunities {
    fn new(trace: Arc<RateTrace>) -> Self {
        Self {
            trace,
            next: 0,
            last: Instant::ZERO,
            left: 0,
        }
    }

    /// Opportunities in outages are smaller, or gone.
    fn start(&mut self, size: u32, start: Instant, slowdown: Option<&Slowdown>) -> Instant {
        if start > self.last {
            self.left = 0;
            self.next = self.next.max(self.trace.first_at(start));
        }
        let mut size = size;
        while size > self.left && self.last < NEVER {
            size -= self.left;
            self.left = RateTrace::OPPORTUNITY;
            // Beyond what a clock can show the link stands still.
            self.last = self.trace.opportunity(self.next).unwrap_or(NEVER);
            self.next += 1;
            if let Some(slowdown) = slowdown {
                let (factor, until) = slowdown.factor(self.last);
                self.left = (f64::from(self.left) * factor) as u32;
                if factor == 0.0 {
                    self.next = self.next.max(self.trace.first_at(until));
                }
            }
        }
        self.left = self.left.saturating_sub(size);
        self.last.max(start)
    }
}
