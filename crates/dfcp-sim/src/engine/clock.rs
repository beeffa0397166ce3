//! Clocks of end hosts that differ from true time: offset, frequency error and steps.
//!
//! A host is told the reading of its clock as `now`, and the times at which it wants to wake are
//! turned back into true ones; the network, the samples and the report keep true time. One-way
//! delays and arrival times that a host reports are therefore off by what its clock is off.
//!
//! Real clocks run 1 to 100 ppm fast or slow; NTP slews one by up to 500 ppm and steps it where it
//! is more than 128 ms off (RFC 5905 §10 and §11.3, STEPT), and a clock slewed by `adjtime` can run
//! 8.3 % fast or slow for a while (a tick changed by a twelfth; Linux allows a tenth).
//!
//! Invariant: a reading never goes back. After a step backwards it stands still until the clock has
//! caught up, which is what a program sees that guards against it; no timer fires meanwhile.

use super::agent::{Agent, Arrival, Buffers, Outgoing, Pace, Progress};
use dfcp_proto::{Duration, Instant, Rate};

/// The clock of an end host; the default shows true time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostClock {
    /// What it shows at true time zero.
    pub offset: Duration,
    /// By how many parts per million it is fast, from when on; in order of time. It is exact before
    /// the first.
    pub skew_ppm: Vec<(Instant, f64)>,
    /// By how many nanoseconds it is set forward, or back, and when; in order of time.
    pub steps: Vec<(Instant, i64)>,
}

/// Parts per million by which a clock may be off: Linux lets a tick be changed by a tenth.
pub const MAX_SKEW_PPM: f64 = 100_000.0;

const BILLION: i128 = 1_000_000_000;

impl HostClock {
    /// Whether it shows true time.
    pub fn is_exact(&self) -> bool {
        *self == Self::default()
    }

    /// What it shows at each time.
    pub fn readings(&self) -> Readings {
        let skews = self.skew_ppm.iter().map(|&(at, ppm)| {
            let ppm = ppm.clamp(-MAX_SKEW_PPM, MAX_SKEW_PPM);
            (
                at.as_nanos(),
                Change::Frequency((ppm * 1000.0).round() as i128),
            )
        });
        let steps = (self.steps.iter()).map(|&(at, by)| (at.as_nanos(), Change::Step(by.into())));
        let mut changes: Vec<_> = skews.chain(steps).collect();
        changes.sort_by_key(|(at, _)| *at);
        let mut segments = vec![Segment {
            from: 0,
            shows: self.offset.as_nanos().min(u64::MAX.into()) as i128,
            least: 0,
            frequency: BILLION,
        }];
        for (at, change) in changes {
            let last = segments[segments.len() - 1];
            let mut next = Segment {
                from: at,
                shows: last.unguarded(at),
                least: last.reading(at),
                ..last
            };
            match change {
                Change::Frequency(ppb) => next.frequency = BILLION + ppb,
                Change::Step(by) => next.shows += by,
            }
            segments.push(next);
        }
        Readings { segments }
    }
}

enum Change {
    /// Parts per billion.
    Frequency(i128),
    /// Nanoseconds.
    Step(i128),
}

/// What a [`HostClock`] shows at each time, and when it shows what.
#[derive(Clone, Debug)]
pub struct Readings {
    /// In order of time; the first begins at zero.
    segments: Vec<Segment>,
}

/// A time in which the clock runs evenly.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: u64,
    /// At `from`, if it were allowed to go back.
    shows: i128,
    /// What it had shown before.
    least: u64,
    /// Nanoseconds shown in a billion of true time.
    frequency: i128,
}

impl Segment {
    fn unguarded(&self, at: u64) -> i128 {
        self.shows + i128::from(at.saturating_sub(self.from)) * self.frequency / BILLION
    }

    fn reading(&self, at: u64) -> u64 {
        let shown = self.unguarded(at).clamp(0, i128::from(u64::MAX)) as u64;
        shown.max(self.least)
    }

    /// When it first shows `reading`, which it does not at `from`.
    fn when(&self, reading: u64) -> u64 {
        let ahead = i128::from(reading) - self.shows;
        let after = (ahead * BILLION).div_euclid(self.frequency);
        let exact = (ahead * BILLION).rem_euclid(self.frequency) == 0;
        let at = i128::from(self.from) + after + i128::from(!exact);
        at.clamp(self.from.into(), u64::MAX.into()) as u64
    }
}

impl Readings {
    /// What the clock shows at true time `at`.
    pub fn at(&self, at: Instant) -> Instant {
        let at = at.as_nanos();
        let next = self.segments.partition_point(|segment| segment.from <= at);
        let segment = &self.segments[next.saturating_sub(1)];
        Instant::from_nanos(segment.reading(at))
    }

    /// The first true time at which the clock shows `reading` or more.
    pub fn when(&self, reading: Instant) -> Instant {
        let reading = reading.as_nanos();
        let shown = |segment: &Segment| segment.reading(segment.from) < reading;
        // A later segment never shows less than an earlier one.
        match self.segments.partition_point(shown) {
            0 => Instant::ZERO,
            next => {
                let begin = self.segments.get(next).map_or(u64::MAX, |s| s.from);
                let within = self.segments[next - 1].when(reading);
                Instant::from_nanos(within.min(begin))
            }
        }
    }
}

/// A host with its clock.
pub(super) fn host(agent: impl Agent + 'static, clock: &HostClock) -> Box<dyn Agent> {
    if clock.is_exact() {
        return Box::new(agent);
    }
    let readings = clock.readings();
    Box::new(Clocked { agent, readings })
}

/// An agent that is told the readings of its clock for the time.
#[derive(Debug)]
struct Clocked<A> {
    agent: A,
    readings: Readings,
}

impl<A: Agent> Agent for Clocked<A> {
    fn receive(&mut self, now: Instant, packet: Arrival, buffers: &mut Buffers) {
        self.agent.receive(self.readings.at(now), packet, buffers);
    }

    fn timeout(&mut self, now: Instant) {
        self.agent.timeout(self.readings.at(now));
    }

    fn poll_transmit(&mut self, now: Instant, buffers: &mut Buffers) -> Option<Outgoing> {
        self.agent.poll_transmit(self.readings.at(now), buffers)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let at = self.agent.poll_timeout()?;
        Some(self.readings.when(at))
    }

    fn progress(&self) -> Progress {
        let progress = self.agent.progress();
        Progress {
            finished: progress.finished.map(|at| self.readings.when(at)),
            ..progress
        }
    }

    fn pace(&self) -> Pace {
        self.agent.pace()
    }

    fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.agent.order_rate(self.readings.at(now), rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_exact_clock_shows_true_time() {
        let readings = HostClock::default().readings();
        for time in [0, 1, 999, 1 << 40, u64::MAX].map(Instant::from_nanos) {
            assert_eq!(readings.at(time), time);
            assert_eq!(readings.when(time), time);
        }
    }

    #[test]
    fn offset_skew_and_steps_add_up() {
        let clock = HostClock {
            offset: Duration::from_secs(1),
            skew_ppm: vec![(at(0), 500.0), (at(10_000), 83_000.0), (at(13_000), 0.0)],
            steps: vec![(at(20_000), 128_000_000)],
        };
        let readings = clock.readings();
        assert_eq!(readings.at(at(0)), at(1000));
        // 500 ppm of 10 s are 5 ms, 8.3 % of 3 s are 249 ms.
        assert_eq!(readings.at(at(10_000)), at(11_005));
        assert_eq!(readings.at(at(13_000)), at(14_254));
        assert_eq!(readings.at(at(20_000)), at(21_254 + 128));
        assert_eq!(readings.when(at(14_254)), at(13_000));
        // The step passes over this reading: it is reached when the clock is set.
        assert_eq!(readings.when(at(21_300)), at(20_000));
    }

    #[test]
    fn a_clock_set_back_stands_still_until_it_has_caught_up() {
        let clock = HostClock {
            steps: vec![(at(1000), -100_000_000)],
            ..HostClock::default()
        };
        let readings = clock.readings();
        for time in [1000, 1050, 1100] {
            assert_eq!(readings.at(at(time)), at(1000));
        }
        assert_eq!(readings.at(at(1150)), at(1050));
        assert_eq!(readings.when(at(1000)), at(1000));
        assert_eq!(readings.when(at(1001)), at(1101));
    }

    #[test]
    fn readings_and_times_fit_each_other_for_any_clock() {
        let mut random = Seed(14).stream("clocks");
        for round in 0..200 {
            let mut times: Vec<u64> = (0..6).map(|_| random.below(10_000)).collect();
            times.sort_unstable();
            let ppm = |random: &mut crate::random::Random| random.below(200_001) as f64 - 1e5;
            let step = |random: &mut crate::random::Random| {
                random.below(4_000_000_000) as i64 - 2_000_000_000
            };
            let clock = HostClock {
                offset: Duration::from_nanos(random.below(1_000_000_000)),
                skew_ppm: (times[..3].iter())
                    .map(|&t| (at(t), ppm(&mut random)))
                    .collect(),
                steps: (times[3..].iter())
                    .map(|&t| (at(t), step(&mut random)))
                    .collect(),
            };
            let readings = clock.readings();
            let mut before = Instant::ZERO;
            let mut time = Instant::ZERO;
            while time < at(12_000) {
                let reading = readings.at(time);
                assert!(
                    reading >= before,
                    "seed 14, round {round}: {clock:?} goes back"
                );
                let first = readings.when(reading);
                assert!(
                    first <= time,
                    "seed 14, round {round}: {clock:?} at {time:?}"
                );
                assert_eq!(
                    readings.at(first),
                    reading,
                    "seed 14, round {round}: {clock:?}"
                );
                let timer = reading + Duration::from_nanos(random.below(50_000_000));
                assert!(
                    readings.at(readings.when(timer)) >= timer,
                    "seed 14, round {round}"
                );
                before = reading;
                time += Duration::from_nanos(1 + random.below(40_000_000));
            }
        }
    }
}
