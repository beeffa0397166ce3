//! Recurring windows of time, at regular or random intervals, alone or in bursts: when a link
//! stands still, loses, or delays more than otherwise.

use dfcp_proto::{Duration, Instant};

use super::nanos;
use crate::random::Random;

/// When windows are and how long they last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Windows {
    /// From the beginning of one burst of windows to that of the next, on average.
    pub every: Duration,
    /// How long a window lasts, on average.
    pub length: Duration,
    /// Where the first burst begins, or with [`Spread::Exponential`] the pause before it.
    pub start: Duration,
    /// How much lengths and pauses vary.
    pub spread: Spread,
    /// Windows of a burst.
    pub count: u32,
    /// From the beginning of one window of a burst to that of the next.
    pub spacing: Duration,
}

/// How much the lengths of windows vary, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Not at all.
    Fixed,
    /// Both are exponentially distributed: a channel without memory.
    Exponential,
    /// Lengths lie anywhere between these two; bursts begin at regular intervals.
    Uniform(Duration, Duration),
}

impl Windows {
    /// The shortest window and the shortest pause: what happens a million times a second is no
    /// event of a path, and costs time also where no packet is.
    pub const SHORTEST: Duration = Duration::from_micros(1);

    /// One window of this length at regular intervals, the first at time zero.
    pub fn regular(every: Duration, length: Duration) -> Self {
        Self {
            every,
            length,
            start: Duration::ZERO,
            spread: Spread::Fixed,
            count: 1,
            spacing: Duration::ZERO,
        }
    }

    /// Checks that windows fit into their intervals.
    ///
    /// # Errors
    /// Says what does not.
    pub fn validate(&self) -> Result<(), WindowsError> {
        let longest = match self.spread {
            Spread::Uniform(least, most) if least > most => {
                return Err(WindowsError::Reversed { least, most });
            }
            Spread::Uniform(least, most) => {
                at_least(least, "the shortest length")?;
                most
            }
            _ => self.length,
        };
        at_least(longest, "the length")?;
        if self.count == 0 {
            return Err(WindowsError::NoWindow);
        }
        if self.count > 1 {
            fits(longest, self.spacing, "`spacing`")?;
        }
        fits(self.burst_length(longest), self.every, "`every`")
    }

    /// From the beginning of a burst to its end.
    fn burst_length(&self, window: Duration) -> Duration {
        let before = self.spacing.saturating_mul(self.count.saturating_sub(1));
        before.saturating_add(window)
    }

    /// The part of the time that lies in windows.
    pub fn share(&self) -> f64 {
        if self.validate().is_err() {
            return 0.0;
        }
        let length = match self.spread {
            Spread::Uniform(least, most) => (least + most) / 2,
            _ => self.length,
        };
        f64::from(self.count) * length.as_secs_f64() / self.every.as_secs_f64()
    }
}

fn at_least(length: Duration, name: &'static str) -> Result<(), WindowsError> {
    match length >= Windows::SHORTEST {
        true => Ok(()),
        false => Err(WindowsError::Short { name, length }),
    }
}

fn fits(length: Duration, within: Duration, name: &'static str) -> Result<(), WindowsError> {
    match length.saturating_add(Windows::SHORTEST) <= within {
        true => Ok(()),
        false => Err(WindowsError::Overlap {
            length,
            within,
            name,
        }),
    }
}

/// Why [`Windows`] make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowsError {
    /// A window or a pause is too short.
    #[error("{name} is {length:?}, below {:?}", Windows::SHORTEST)]
    Short {
        /// What is too short.
        name: &'static str,
        /// Its length.
        length: Duration,
    },
    /// Windows do not fit into their interval.
    #[error("{length:?} do not fit into {name} of {within:?} with a pause behind them")]
    Overlap {
        /// The longest window, or all of a burst.
        length: Duration,
        /// The interval.
        within: Duration,
        /// The name of the interval.
        name: &'static str,
    },
    /// Bounds are the wrong way round.
    #[error("the bounds {least:?} and {most:?} are the wrong way round")]
    Reversed {
        /// The first.
        least: Duration,
        /// The second.
        most: Duration,
    },
    /// A burst has no windows.
    #[error("`count` is zero")]
    NoWindow,
}

/// The windows one after the other. Windows that make no sense never come.
///
/// Invariants: windows do not overlap and come in order; which they are depends on the seed alone,
/// not on when somebody looks.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    windows: Windows,
    random: Random,
    /// When the burst began.
    burst: u64,
    /// Which window of the burst it is.
    number: u32,
    begin: u64,
    end: u64,
}

/// Bursts that are drawn one by one; beyond, they are passed over as if regular.
const MOST_BURSTS: u64 = 1 << 20;

impl Calendar {
    /// At the first window.
    pub fn new(windows: Windows, random: Random) -> Self {
        let valid = windows.validate().is_ok();
        let begin = if valid {
            nanos(windows.start)
        } else {
            u64::MAX
        };
        let mut calendar = Self {
            windows,
            random,
            burst: begin,
            number: 0,
            begin,
            end: begin,
        };
        if valid {
            if windows.spread == Spread::Exponential {
                calendar.burst = begin.saturating_add(calendar.pause());
            }
            calendar.open(calendar.burst);
        }
        calendar
    }

    /// The windows that lie at least in part between two times.
    pub fn between(mut self, from: Instant, to: Instant) -> Vec<(Instant, Instant)> {
        let mut found = Vec::new();
        self.seek(from);
        while self.begin < to.as_nanos() && self.end > from.as_nanos() {
            let end = Instant::from_nanos(self.end);
            found.push((Instant::from_nanos(self.begin), end));
            self.seek(end);
        }
        found
    }

    /// Goes on to the first window that ends after `at`. Times must not go back.
    #[inline]
    pub fn seek(&mut self, at: Instant) {
        if self.end <= at.as_nanos() {
            self.seek_from(at.as_nanos());
        }
    }

    /// Whether `at`, which was sought, is in the window.
    #[inline]
    pub fn contains(&self, at: Instant) -> bool {
        self.begin <= at.as_nanos()
    }

    /// When that changes.
    #[inline]
    pub fn next_change(&self, at: Instant) -> Instant {
        Instant::from_nanos(match self.contains(at) {
            true => self.end,
            false => self.begin,
        })
    }

    fn seek_from(&mut self, at: u64) {
        let every = nanos(self.windows.every).max(1);
        let passed = at.saturating_sub(self.burst) / every;
        if passed > MOST_BURSTS {
            self.burst = self.burst.saturating_add((passed - 2) * every);
            self.end = self.burst;
            self.number = self.windows.count;
        }
        while self.end <= at && self.end < u64::MAX {
            self.step();
        }
    }

    fn step(&mut self) {
        if self.number + 1 < self.windows.count {
            self.number += 1;
            let spacing = nanos(self.windows.spacing);
            let offset = spacing.saturating_mul(u64::from(self.number));
            return self.open(self.burst.saturating_add(offset));
        }
        self.number = 0;
        self.burst = match self.windows.spread {
            Spread::Exponential => self.end.saturating_add(self.pause()),
            _ => self.burst.saturating_add(nanos(self.windows.every)),
        };
        self.open(self.burst);
    }

    fn open(&mut self, begin: u64) {
        let length = match self.windows.spread {
            Spread::Fixed => nanos(self.windows.length),
            Spread::Exponential => self.random.exponential(nanos(self.windows.length)),
            Spread::Uniform(least, most) => {
                nanos(least) + self.random.below(nanos(most - least).saturating_add(1))
            }
        };
        // Random lengths can reach into the next window of the burst.
        self.begin = begin.max(self.end);
        self.end = self.begin.saturating_add(length.max(1));
    }

    /// A random pause between bursts.
    fn pause(&mut self) -> u64 {
        let windows = &self.windows;
        let busy = windows.burst_length(windows.length);
        let mean = nanos(windows.every.saturating_sub(busy));
        self.random.exponential(mean).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    const MS: u64 = 1_000_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// The windows that begin before `until` ms.
    fn list(windows: Windows, until: u64) -> Vec<(u64, u64)> {
        let mut calendar = Calendar::new(windows, Seed(3).stream("windows"));
        let mut all = Vec::new();
        while calendar.begin < until * MS {
            all.push((calendar.begin, calendar.end));
            calendar.seek(Instant::from_nanos(calendar.end));
        }
        all
    }

    #[test]
    fn regular_windows_come_alone_and_in_bursts() {
        let single = Windows {
            start: ms(100),
            ..Windows::regular(ms(500), ms(50))
        };
        let in_ms = |list: Vec<(u64, u64)>| -> Vec<_> {
            list.iter().map(|(a, b)| (a / MS, b / MS)).collect()
        };
        assert_eq!(
            in_ms(list(single, 1500)),
            [(100, 150), (600, 650), (1100, 1150)]
        );
        assert!((single.share() - 0.1).abs() < 1e-12);
        // Eleven channels of 30 ms in 2 s, each minute.
        let scan = Windows {
            count: 11,
            spacing: ms(200),
            ..Windows::regular(Duration::from_secs(60), ms(30))
        };
        let windows = in_ms(list(scan, 120_000));
        assert_eq!(windows.len(), 22);
        assert_eq!(windows[10..12], [(2000, 2030), (60_000, 60_030)]);
    }

    #[test]
    fn random_windows_have_their_means() {
        let random = Windows {
            spread: Spread::Exponential,
            ..Windows::regular(ms(500), ms(50))
        };
        let windows = list(random, 5_000_000);
        let n = windows.len() as f64;
        // 10,000 are expected; pauses deviate by their mean: five standard errors are 5 %.
        assert!((n / 10_000.0 - 1.0).abs() < 0.05, "{n}");
        let length = windows.iter().map(|(a, b)| b - a).sum::<u64>() as f64 / n;
        assert!((length / 50e6 - 1.0).abs() < 0.05, "{length}");
        let long = windows.iter().filter(|(a, b)| b - a > 50 * MS).count() as f64 / n;
        assert!((long - (-1.0_f64).exp()).abs() < 0.03, "{long}");

        let uniform = Windows {
            spread: Spread::Uniform(ms(1000), ms(5000)),
            ..Windows::regular(Duration::from_secs(60), ms(0))
        };
        let windows = list(uniform, 60_000_000);
        assert!(windows.iter().all(|(begin, _)| begin % (60_000 * MS) == 0));
        let lengths: Vec<u64> = windows.iter().map(|(a, b)| b - a).collect();
        assert!(lengths.iter().all(|l| (1000 * MS..=5000 * MS).contains(l)));
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert!((mean / 3e9 - 1.0).abs() < 0.1, "{mean}");
        assert!((uniform.share() - 0.05).abs() < 1e-12);
    }

    #[test]
    fn who_looks_seldom_sees_the_same_windows() {
        let windows = Windows {
            spread: Spread::Exponential,
            count: 3,
            spacing: ms(20),
            ..Windows::regular(ms(100), ms(10))
        };
        let calendar = Calendar::new(windows, Seed(5).stream("windows"));
        let look = |step: u64| {
            let mut calendar = calendar.clone();
            let times = (0..100_000 / step).map(|n| Instant::from_nanos(n * step * MS));
            times
                .filter(|at| {
                    calendar.seek(*at);
                    calendar.contains(*at)
                })
                .filter(|at| at.as_nanos() % (10 * MS) == 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(look(1), look(10));
        assert!(!look(10).is_empty());
        let mut late = calendar;
        late.seek(Instant::from_nanos(u64::MAX / 2));
        late.seek(Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn windows_that_do_not_fit_are_named_and_never_come() {
        let regular = Windows::regular(ms(100), ms(10));
        for (windows, words) in [
            (Windows::regular(ms(50), ms(50)), "do not fit into `every`"),
            (
                Windows {
                    length: Duration::ZERO,
                    ..regular
                },
                "the length is 0ns",
            ),
            (
                Windows {
                    count: 0,
                    ..regular
                },
                "`count` is zero",
            ),
            (
                Windows {
                    count: 2,
                    ..regular
                },
                "`spacing`",
            ),
            (
                Windows {
                    count: 10,
                    spacing: ms(20),
                    ..regular
                },
                "do not fit into `every`",
            ),
            (
                Windows {
                    spread: Spread::Uniform(ms(9), ms(8)),
                    ..regular
                },
                "wrong way round",
            ),
        ] {
            let error = windows.validate().expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(list(windows, 1000), []);
            assert_eq!(windows.share(), 0.0);
        }
        assert_eq!(regular.validate(), Ok(()));
    }
}
