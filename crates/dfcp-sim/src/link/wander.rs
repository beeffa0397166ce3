//! Delay that wanders: the slow changes of long paths, whose queues and routes are others'.

use dfcp_proto::{Duration, Instant};

use super::nanos;
use crate::random::Random;

/// A bounded random walk of the delay, in straight lines from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wander {
    /// Most that it adds to the delay; half of it on average.
    pub range: Duration,
    /// How long a step takes, in which the delay changes by anything up to a quarter of the range.
    pub step: Duration,
}

impl Wander {
    /// The shortest step: what changes faster is jitter.
    pub const SHORTEST: Duration = Duration::from_micros(10);

    /// Checks the parameters. A [`Link`](super::Link) takes any: a shorter step counts as
    /// [`Self::SHORTEST`].
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), WanderError> {
        match self.step < Self::SHORTEST {
            true => Err(WanderError { step: self.step }),
            false => Ok(()),
        }
    }
}

/// The step of a [`Wander`] is too short.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`step` is {step:?}, below {:?}", Wander::SHORTEST)]
pub struct WanderError {
    /// The step.
    pub step: Duration,
}

/// A [`Wander`] at work.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    range: u64,
    step: u64,
    random: Random,
    /// The step under way, the delay at its beginning and at its end.
    number: u64,
    from: u64,
    to: u64,
}

/// Steps that are drawn one by one; beyond, the delay is drawn anew: the walk has forgotten it.
const MOST_STEPS: u64 = 1 << 20;

impl Walk {
    /// Begins anywhere: every delay in the range is equally likely, then and later.
    pub fn new(wander: Wander, now: Instant, random: Random) -> Self {
        let step = nanos(wander.step.max(Wander::SHORTEST));
        let mut walk = Self {
            range: nanos(wander.range),
            step,
            random,
            number: now.as_nanos() / step,
            from: 0,
            to: 0,
        };
        walk.begin();
        walk
    }

    fn begin(&mut self) {
        self.to = self.random.below(self.range.saturating_add(1));
        self.go();
    }

    /// The next step.
    fn go(&mut self) {
        self.from = self.to;
        let most = self.range / 4;
        let up = self.random.below((2 * most).saturating_add(1));
        // Reflected at both ends.
        let target = i128::from(self.from) + i128::from(up) - i128::from(most);
        let range = i128::from(self.range);
        let inside = range - (range - target.abs()).abs();
        self.to = u64::try_from(inside).unwrap_or(0);
    }

    /// What it adds at `at`. Times must not go back.
    pub fn delay(&mut self, at: Instant) -> Duration {
        let number = at.as_nanos() / self.step;
        if number.saturating_sub(self.number) > MOST_STEPS {
            self.number = number;
            self.begin();
        }
        while self.number < number {
            self.number += 1;
            self.go();
        }
        let part = (at.as_nanos() % self.step) as f64 / self.step as f64;
        let change = (self.to as f64 - self.from as f64) * part;
        Duration::from_nanos((self.from as f64 + change) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn delays(step: Duration, spacing: Duration, count: u32) -> Vec<f64> {
        let wander = Wander {
            range: Duration::from_millis(200),
            step,
        };
        let mut walk = Walk::new(wander, Instant::ZERO, Seed(1).stream("wander"));
        let times = (0..count).map(|n| Instant::ZERO + spacing * n);
        times.map(|at| walk.delay(at).as_secs_f64() * 1e3).collect()
    }

    #[test]
    fn the_delay_stays_in_range_and_is_anywhere_in_it() {
        let second = Duration::from_secs(1);
        let all = delays(second, second, 200_000);
        assert!(all.iter().all(|d| (0.0..=200.0).contains(d)));
        for quarter in [0.0, 50.0, 100.0, 150.0] {
            let inside = |d: &&f64| (quarter..quarter + 50.0).contains(*d);
            let share = all.iter().filter(inside).count() as f64 / 2e5;
            assert!((share - 0.25).abs() < 0.02, "{share} from {quarter}");
        }
        assert!(all.windows(2).all(|w| (w[1] - w[0]).abs() <= 50.001));
    }

    #[test]
    fn it_changes_gradually_whoever_looks() {
        let ms = Duration::from_millis;
        let fine = delays(ms(1000), ms(1), 100_000);
        assert!(fine.windows(2).all(|w| (w[1] - w[0]).abs() <= 0.051));
        let coarse = delays(ms(1000), ms(10), 10_000);
        assert!(fine.iter().step_by(10).zip(&coarse).all(|(a, b)| a == b));
        let wander = Wander {
            range: Duration::MAX,
            step: Duration::ZERO,
        };
        assert!(wander.validate().is_err());
        let mut walk = Walk::new(wander, Instant::ZERO, Seed(1).stream("wander"));
        walk.delay(Instant::from_nanos(u64::MAX));
    }
}
