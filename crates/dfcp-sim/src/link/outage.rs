//! Outages and fades: times in which a link loses packets, stands still, or is slower.

use dfcp_proto::{Duration, Instant};

use super::windows::{Calendar, Windows, WindowsError};
use crate::random::{Random, Seed};

/// What happens to a link in recurring windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// When.
    pub windows: Windows,
    /// Probability that a packet is lost then, beside what else loses.
    pub loss: f64,
    /// By what the rate is multiplied then, from 0 to 1. At zero the link stands still, packets
    /// wait and leave in order after it, as while a radio scans other channels or hands over.
    pub rate_factor: f64,
}

impl Outage {
    /// What would be transmitted in the windows is lost.
    pub fn lost(windows: Windows) -> Self {
        Self {
            windows,
            loss: 1.0,
            rate_factor: 1.0,
        }
    }

    /// The link stands still in the windows.
    pub fn held(windows: Windows) -> Self {
        Self {
            windows,
            loss: 0.0,
            rate_factor: 0.0,
        }
    }

    /// Checks the parameters. A [`Link`](super::Link) takes any: windows that make no sense never
    /// come, a factor out of range counts as the nearest one in range.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), OutageError> {
        self.windows.validate()?;
        let shares = [("loss", self.loss), ("rate_factor", self.rate_factor)];
        match shares.into_iter().find(|(_, p)| !(0.0..=1.0).contains(p)) {
            Some((name, value)) => Err(OutageError::Share { name, value }),
            None => Ok(()),
        }
    }

    /// The windows that lie at least in part between two times, of the `index`-th outage of a
    /// link with this seed: as the link itself sees them, also where chance decides.
    pub fn between(
        &self,
        (index, seed): (usize, u64),
        from: Instant,
        to: Instant,
    ) -> Vec<(Instant, Instant)> {
        self.calendar(index, Seed(seed)).between(from, to)
    }

    fn calendar(&self, index: usize, seed: Seed) -> Calendar {
        // Who asks whether a packet is lost and who asks how fast the link is see the same windows.
        let random = seed.stream(&format!("link.outage.{index}"));
        Calendar::new(self.windows, random)
    }
}

/// Why an [`Outage`] makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OutageError {
    /// Its windows make no sense.
    #[error(transparent)]
    Windows(#[from] WindowsError),
    /// A parameter is not from 0 to 1.
    #[error("{name} is {value}, not from 0 to 1")]
    Share {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}

/// The outages that lose packets, at work.
#[derive(Clone, Debug)]
pub(super) struct OutageLoss {
    outages: Vec<(Calendar, f64)>,
    random: Random,
}

impl OutageLoss {
    /// `None` where no outage loses anything.
    pub fn new(outages: &[Outage], seed: Seed) -> Option<Box<Self>> {
        let all = outages.iter().enumerate();
        let losing = all.filter(|(_, outage)| outage.loss > 0.0);
        let outages: Vec<_> = losing
            .map(|(index, outage)| (outage.calendar(index, seed), outage.loss))
            .collect();
        let random = seed.stream("link.outage.loss");
        (!outages.is_empty()).then(|| Box::new(Self { outages, random }))
    }

    /// Whether a packet at `at` is lost in an outage. Times must not go back.
    pub fn lose(&mut self, at: Instant) -> bool {
        let mut lost = false;
        for (calendar, loss) in &mut self.outages {
            calendar.seek(at);
            lost |= calendar.contains(at) && self.random.chance(*loss);
        }
        lost
    }
}

/// The outages that slow the transmitter, at work.
#[derive(Clone, Debug)]
pub(super) struct Slowdown(Vec<(Calendar, f64)>);

impl Slowdown {
    /// `None` where no outage slows anything.
    pub fn new(outages: &[Outage], seed: Seed) -> Option<Self> {
        let factor = |outage: &Outage| match outage.rate_factor {
            factor if factor.is_nan() => 1.0,
            factor => factor.clamp(0.0, 1.0),
        };
        let all = outages.iter().enumerate();
        let slowing = all.filter(|(_, outage)| factor(outage) < 1.0);
        let outages: Vec<_> = slowing
            .map(|(index, outage)| (outage.calendar(index, seed), factor(outage)))
            .collect();
        (!outages.is_empty()).then_some(Self(outages))
    }

    /// Forgets what ended before `at`. Nothing is asked of earlier times any more.
    pub fn seek(&mut self, at: Instant) {
        for (calendar, _) in &mut self.0 {
            calendar.seek(at);
        }
    }

    /// The factor at `at`, which was sought, and until when it holds.
    fn look(&self, at: Instant) -> (f64, Instant) {
        let mut factor = 1.0;
        let mut until = Instant::from_nanos(u64::MAX);
        for (calendar, slower) in &self.0 {
            if calendar.contains(at) {
                factor *= slower;
            }
            until = until.min(calendar.next_change(at));
        }
        (factor, until)
    }

    /// When what takes `work` at the full rate is done, begun at `start`, which was sought.
    pub fn finish(&self, start: Instant, work: Duration) -> Instant {
        let (factor, until) = self.look(start);
        if factor == 1.0 && start + work <= until {
            return start + work;
        }
        let mut walk = Walk::new(self, start);
        let mut left = work.as_nanos() as u64;
        loop {
            let (factor, span) = walk.span();
            let possible = (span as f64 * factor) as u64;
            if factor > 0.0 && left <= possible {
                let takes = (left as f64 / factor).ceil() as u64;
                return walk.at + Duration::from_nanos(takes.min(span));
            }
            if !walk.on() {
                return walk.at;
            }
            left -= possible;
        }
    }

    /// What of the time from `start`, which was sought, to `end` counts at the full rate.
    pub fn work(&self, start: Instant, end: Instant) -> Duration {
        let mut walk = Walk::new(self, start);
        let mut done = 0.0;
        while walk.at < end {
            let (factor, span) = walk.span();
            let rest = end.saturating_since(walk.at).as_nanos() as u64;
            done += span.min(rest) as f64 * factor;
            if !walk.on() {
                break;
            }
        }
        Duration::from_nanos(done as u64)
    }

    /// The factor at `at`, not before the time last sought, and until when it holds.
    pub fn factor(&self, at: Instant) -> (f64, Instant) {
        let mut look = self.clone();
        look.seek(at);
        look.look(at)
    }
}

/// A look ahead over spans of one factor each.
struct Walk {
    outages: Slowdown,
    at: Instant,
    until: Instant,
}

impl Walk {
    fn new(outages: &Slowdown, at: Instant) -> Self {
        let outages = outages.clone();
        let (_, until) = outages.look(at);
        Self { outages, at, until }
    }

    /// The factor now, and for how many nanoseconds it holds.
    fn span(&self) -> (f64, u64) {
        let (factor, _) = self.outages.look(self.at);
        let span = self.until.saturating_since(self.at).as_nanos() as u64;
        (factor, span)
    }

    /// Goes on to the next span; `false` at the end of time.
    fn on(&mut self) -> bool {
        self.at = self.until;
        self.outages.seek(self.at);
        (_, self.until) = self.outages.look(self.at);
        self.until > self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    #[test]
    fn work_waits_for_the_end_of_a_hold() {
        let hold = Outage::held(Windows::regular(ms(100), ms(20)));
        let slow = Outage {
            rate_factor: 0.5,
            ..Outage::lost(Windows {
                start: ms(50),
                ..Windows::regular(ms(100), ms(10))
            })
        };
        let slowdown = Slowdown::new(&[hold, slow], Seed(1)).expect("both slow");
        for (start, work, finish) in [
            (0, 0, 20),
            (0, 5, 25),
            (20, 30, 50),
            (45, 10, 60), // 5 ms as ever, 10 ms for the other 5
            (45, 11, 61),
            (90, 11, 121),
            (20, 145, 195), // two fades and a hold
            (100, 75, 200),
            (100, 76, 221),
        ] {
            let mut slowdown = slowdown.clone();
            slowdown.seek(at(start));
            assert_eq!(
                slowdown.finish(at(start), ms(work)),
                at(finish),
                "from {start}"
            );
            assert_eq!(
                slowdown.work(at(start), at(finish)),
                ms(work),
                "from {start}"
            );
        }
        assert_eq!(slowdown.factor(at(110)), (0.0, at(120)));
        assert_eq!(slowdown.factor(at(155)), (0.5, at(160)));
        assert_eq!(slowdown.factor(at(160)), (1.0, at(200)));
    }

    #[test]
    fn nonsense_is_named_and_survived() {
        let outage = Outage {
            rate_factor: f64::NAN,
            loss: 7.0,
            ..Outage::held(Windows::regular(ms(10), ms(20)))
        };
        assert!(outage.validate().is_err());
        assert!(Slowdown::new(&[outage], Seed(1)).is_none());
        let stuck = Outage::held(Windows::regular(Duration::MAX, Duration::MAX));
        let slowdown = Slowdown::new(&[stuck], Seed(1)).expect("it slows");
        // It stands still for ever.
        let never = Instant::from_nanos(u64::MAX);
        assert_eq!(slowdown.finish(at(5), ms(1)), never);
        let mut loss = OutageLoss::new(&[outage], Seed(1)).expect("it loses");
        assert!(!loss.lose(at(5)));
    }
}
