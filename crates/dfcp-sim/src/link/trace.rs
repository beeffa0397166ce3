//! Links whose rate varies as recorded, in the format of mahimahi (Netravali et al., "Mahimahi:
//! Accurate Record-and-Replay for HTTP", USENIX ATC 2015): each line is the time, in milliseconds,
//! of one opportunity to deliver 1500 bytes; several may share a time. After the last line the
//! trace starts again, with that time as the new zero.
//!
//! Invariants: there is an opportunity, the last one is later than zero, and times never fall.

use std::num::{IntErrorKind, ParseIntError};
use std::sync::Arc;

use dfcp_proto::{Duration, Instant, Rate};

/// A trace of delivery opportunities, repeated for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    /// Nanoseconds from the start of the trace; the last one is its length.
    times: Arc<[u64]>,
}

/// Why a trace cannot be read; lines count from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateTraceError {
    /// There is no line.
    #[error("the trace is empty")]
    Empty,
    /// A line is not a whole number of milliseconds.
    #[error("line {line}: {text:?} is not a time in whole milliseconds")]
    NotATime {
        /// Where.
        line: usize,
        /// What is there instead.
        text: String,
    },
    /// A time is too large to count in nanoseconds.
    #[error("line {line}: the time is too large")]
    TooLarge {
        /// Where.
        line: usize,
    },
    /// A time is earlier than the one before.
    #[error("line {line}: the time is earlier than the one before")]
    Decreasing {
        /// Where.
        line: usize,
    },
    /// Every time is zero: the trace would repeat without end at once.
    #[error("line {line}: the last time is zero")]
    ZeroLength {
        /// The last one.
        line: usize,
    },
}

impl RateTrace {
    /// What one opportunity delivers, in bytes.
    pub const OPPORTUNITY: u32 = 1500;

    /// Reads a trace.
    ///
    /// # Errors
    /// Names the first line that makes no sense.
    pub fn parse(text: &str) -> Result<Self, RateTraceError> {
        let mut times = Vec::new();
        let mut latest = 0;
        for (line, text) in (1..).zip(text.lines()) {
            let nanos = parse_time(line, text.trim())?;
            if nanos < latest {
                return Err(RateTraceError::Decreasing { line });
            }
            latest = nanos;
            times.push(nanos);
        }
        match times.last() {
            None => Err(RateTraceError::Empty),
            Some(0) => Err(RateTraceError::ZeroLength { line: times.len() }),
            Some(_) => Ok(Self {
                times: times.into(),
            }),
        }
    }

    /// When the n-th opportunity is, counted from zero; `None` beyond what a clock can show.
    pub fn opportunity(&self, n: u64) -> Option<Instant> {
        let round = n / self.count();
        let place = (n % self.count()) as usize;
        let start = round.checked_mul(self.period())?;
        start
            .checked_add(self.times[place])
            .map(Instant::from_nanos)
    }

    /// Which opportunity is the first at or after a time; those after it follow in order.
    pub fn first_at(&self, time: Instant) -> u64 {
        let nanos = time.as_nanos();
        // The last opportunity of a round is at the end of it, where the next begins.
        let round = nanos.div_ceil(self.period()).saturating_sub(1);
        let within = nanos - round * self.period();
        let place = self.times.partition_point(|&t| t < within);
        round
            .saturating_mul(self.count())
            .saturating_add(place as u64)
    }

    /// The time after which the trace repeats.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.period())
    }

    /// The rate in the long run.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.count() * u64::from(Self::OPPORTUNITY);
        Rate::from_transfer(bytes, self.length())
    }

    fn count(&self) -> u64 {
        self.times.len() as u64
    }

    fn period(&self) -> u64 {
        *self.times.last().expect("a trace is never empty")
    }
}

fn parse_time(line: usize, text: &str) -> Result<u64, RateTraceError> {
    let millis: u64 = text
        .parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => RateTraceError::TooLarge { line },
            _ => RateTraceError::NotATime {
                line,
                text: text.chars().take(40).collect(),
            },
        })?;
    millis
        .checked_mul(1_000_000)
        .ok_or(RateTraceError::TooLarge { line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn opportunities_repeat_after_the_last() {
        let trace = RateTrace::parse("0\n5\n5\n10\n").expect("it is well formed");
        let times: Vec<Instant> = (0..9).map_while(|n| trace.opportunity(n)).collect();
        assert_eq!(times, [0, 5, 5, 10, 10, 15, 15, 20, 20].map(ms));
        // Four of 1500 bytes in 10 ms.
        assert_eq!(trace.mean_rate(), Rate::from_bps(4_800_000));
        let firsts = [0, 1, 5, 6, 10, 11, 20].map(|n| trace.first_at(ms(n)));
        assert_eq!(firsts, [0, 1, 1, 3, 3, 5, 7]);
        assert_eq!(trace.first_at(Instant::from_nanos(1)), 1);
        assert_eq!(trace.opportunity(u64::MAX), None);
    }

    #[test]
    fn first_opportunity_is_the_earliest_not_before() {
        for seed in 0..100 {
            let mut random = Seed(seed).stream("trace");
            let mut now = 0;
            let text: String = (0..=random.below(20))
                .map(|_| {
                    now += random.below(4);
                    format!("{now}\n")
                })
                .chain(["90\n".to_owned()])
                .collect();
            let trace = RateTrace::parse(&text).expect("times rise");
            for _ in 0..100 {
                let time = Instant::from_nanos(random.below(500_000_000));
                let n = trace.first_at(time);
                let at = |n| trace.opportunity(n).expect("within an hour");
                assert!(at(n) >= time, "seed {seed}");
                assert!(n == 0 || at(n - 1) < time, "seed {seed}");
            }
        }
    }

    #[test]
    fn malformed_traces_are_named_by_line() {
        let parse = |text| RateTrace::parse(text).expect_err("it is malformed");
        assert_eq!(parse(""), RateTraceError::Empty);
        assert_eq!(parse("0\n0\n"), RateTraceError::ZeroLength { line: 2 });
        assert_eq!(parse("3\n4\n2\n"), RateTraceError::Decreasing { line: 3 });
        for text in ["1\n-2\n", "1\n1.5\n", "1\n\n", "1\nx"] {
            assert!(matches!(
                parse(text),
                RateTraceError::NotATime { line: 2, .. }
            ));
        }
        for text in ["18446744073709551615", "99999999999999999999999"] {
            assert_eq!(parse(text), RateTraceError::TooLarge { line: 1 });
        }
        assert!(RateTrace::parse("1\r\n2\r\n").is_ok());
    }
}
