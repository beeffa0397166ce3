//! Jitter: how much longer than its delay a link takes for each packet.

use dfcp_proto::{Duration, Instant};

use super::nanos;
use super::windows::{Calendar, Windows, WindowsError};
use crate::random::{Random, Seed};

/// Delays that are drawn for each packet and add up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jitter(Vec<JitterModel>);

/// One of the delays that are drawn for each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JitterModel {
    /// Uniform below this.
    Uniform(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
    /// Gamma-distributed: most packets near the mean, some far above it.
    Gamma {
        /// The mean.
        mean: Duration,
        /// The shape: one is exponential, and the greater it is the less delays differ.
        shape: f64,
    },
    /// A part of the packets is late by the same time, as on a path with retransmissions or with
    /// two routes.
    Late {
        /// By how much.
        delay: Duration,
        /// Which part of the packets.
        share: f64,
    },
    /// Wi-Fi's: a Poisson number of milliseconds (mean 1) and, for some packets, a Poisson number
    /// (mean 12) of 7.5 ms, so many that the whole has this mean, from 1 to 91 ms. Fitted to
    /// recorded calls: C. Huitema, "Wi-Fi Jitter", papers of the congestion control C4.
    WiFi(Duration),
    /// In recurring windows only, uniform below a bound: spikes.
    Spike {
        /// The bound.
        below: Duration,
        /// When.
        windows: Windows,
    },
}

/// Unit of Wi-Fi's short delays, and their mean.
const WIFI_SHORT: Duration = Duration::from_millis(1);
/// Unit of Wi-Fi's long delays, and how many of it they are on average.
const WIFI_LONG: (Duration, f64) = (Duration::from_micros(7500), 12.0);

impl JitterModel {
    /// Checks the parameters. A link takes any: see [`Self::mean`].
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), JitterError> {
        match *self {
            Self::Gamma { shape, .. } if !SHAPES.contains(&shape) => {
                Err(JitterError::Shape { shape })
            }
            Self::Late { share, .. } if !(0.0..=1.0).contains(&share) => {
                Err(JitterError::Share { share })
            }
            Self::WiFi(mean) if !(0.0..=1.0).contains(&wifi_long_share(mean)) => {
                Err(JitterError::WiFi { mean })
            }
            Self::Spike { windows, .. } => Ok(windows.validate()?),
            _ => Ok(()),
        }
    }

    /// The mean delay; parameters out of range count as the nearest in range.
    pub fn mean(&self) -> Duration {
        match *self {
            Self::Uniform(below) => below / 2,
            Self::Exponential(mean) | Self::Gamma { mean, .. } => mean,
            Self::Late { delay, share } => times(delay, share.clamp(0.0, 1.0)),
            Self::WiFi(mean) => {
                let (unit, count) = WIFI_LONG;
                let share = wifi_long_share(mean).clamp(0.0, 1.0);
                WIFI_SHORT + times(unit, count * share)
            }
            Self::Spike { below, windows } => times(below / 2, windows.share()),
        }
    }

    /// The delay that half of the packets do not exceed, about.
    pub fn median(&self) -> Duration {
        let of_most = |share: f64, delay| match share > 0.5 {
            true => delay,
            false => Duration::ZERO,
        };
        match *self {
            Self::Uniform(below) => below / 2,
            Self::Exponential(mean) => times(mean, std::f64::consts::LN_2),
            // Banneheka and Ekanayake, "A new point estimator for the median of gamma
            // distribution", Viyodaya J. Science 14, 2009.
            Self::Gamma { mean, shape } => {
                times(mean, ((3.0 * shape - 0.8) / (3.0 * shape + 0.2)).max(0.0))
            }
            Self::Late { delay, share } => of_most(share, delay),
            Self::WiFi(mean) => WIFI_SHORT + of_most(wifi_long_share(mean), mean),
            Self::Spike { below, windows } => of_most(windows.share(), below / 2),
        }
    }

    /// A delay in nanoseconds.
    fn draw(&self, random: &mut Random) -> u64 {
        match *self {
            Self::Uniform(below) | Self::Spike { below, .. } => random.below(nanos(below)),
            Self::Exponential(mean) => random.exponential(nanos(mean)),
            Self::Gamma { mean, shape } => {
                let shape = shape.max(*SHAPES.start());
                (random.gamma(shape) / shape * nanos(mean) as f64) as u64
            }
            Self::Late { delay, share } => match random.chance(share) {
                true => nanos(delay),
                false => 0,
            },
            Self::WiFi(mean) => {
                let short = u64::from(random.poisson(1.0)) * nanos(WIFI_SHORT);
                let (unit, count) = WIFI_LONG;
                match random.chance(wifi_long_share(mean)) {
                    true => short + u64::from(random.poisson(count)) * nanos(unit),
                    false => short,
                }
            }
        }
    }
}

/// Shapes of gamma distributions: below, one packet in a thousand carries most of the mean; above,
/// delays differ by a thirtieth.
const SHAPES: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// The part of the packets that have Wi-Fi's long delay.
fn wifi_long_share(mean: Duration) -> f64 {
    let (unit, count) = WIFI_LONG;
    (mean.as_secs_f64() - WIFI_SHORT.as_secs_f64()) / (unit.as_secs_f64() * count)
}

fn times(duration: Duration, factor: f64) -> Duration {
    Duration::from_nanos((nanos(duration) as f64 * factor) as u64)
}

impl Jitter {
    /// Whether no packet is delayed.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The delays that add up.
    pub fn models(&self) -> &[JitterModel] {
        &self.0
    }

    /// The mean delay.
    pub fn mean(&self) -> Duration {
        self.0.iter().map(JitterModel::mean).sum()
    }

    /// The delay that half of the packets do not exceed, about: the sum of the models' medians.
    pub fn median(&self) -> Duration {
        self.0.iter().map(JitterModel::median).sum()
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), JitterError> {
        self.0.iter().try_for_each(JitterModel::validate)
    }
}

impl From<Duration> for Jitter {
    /// Uniform below this.
    fn from(below: Duration) -> Self {
        match below.is_zero() {
            true => Self::default(),
            false => JitterModel::Uniform(below).into(),
        }
    }
}

impl From<JitterModel> for Jitter {
    fn from(model: JitterModel) -> Self {
        Self(vec![model])
    }
}

impl From<Vec<JitterModel>> for Jitter {
    fn from(models: Vec<JitterModel>) -> Self {
        Self(models)
    }
}

/// Why a [`JitterModel`] makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JitterError {
    /// A gamma distribution of this shape is of no use.
    #[error("shape is {shape}, not within {} to {}", SHAPES.start(), SHAPES.end())]
    Shape {
        /// The shape.
        shape: f64,
    },
    /// The part of the packets is none.
    #[error("share is {share}, not a probability from 0 to 1")]
    Share {
        /// The part.
        share: f64,
    },
    /// Wi-Fi's jitter has no such mean.
    #[error("the mean of Wi-Fi's jitter is {mean:?}, not within 1ms to 91ms")]
    WiFi {
        /// The mean.
        mean: Duration,
    },
    /// The windows of spikes make no sense.
    #[error(transparent)]
    Windows(#[from] WindowsError),
}

/// [`Jitter`] at work.
#[derive(Clone, Debug)]
pub(super) struct JitterProcess(Vec<Part>);

#[derive(Clone, Debug)]
struct Part {
    model: JitterModel,
    random: Random,
    windows: Option<Calendar>,
}

impl JitterProcess {
    pub fn new(jitter: &Jitter, seed: Seed) -> Self {
        let models = jitter.0.iter().enumerate();
        let parts = models.map(|(index, model)| {
            // A single model draws from the stream that jitter has always had.
            let random = match index {
                0 => seed.stream("link.jitter"),
                _ => seed.stream(&format!("link.jitter.{index}")),
            };
            Part::new(*model, random, index, seed)
        });
        Self(parts.collect())
    }

    /// Goes on with other models; each goes on with the random numbers of the one in its place.
    pub fn set(&mut self, jitter: &Jitter, seed: Seed) {
        let mut new = Self::new(jitter, seed);
        for (index, (new, old)) in new.0.iter_mut().zip(&self.0).enumerate() {
            *new = match new.model == old.model {
                true => old.clone(),
                false => Part::new(new.model, old.random.clone(), index, seed),
            };
        }
        *self = new;
    }

    #[inline]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The delay of a packet that leaves the transmitter at `at`. Times must not go back.
    pub fn draw(&mut self, at: Instant) -> Duration {
        let draw = |part: &mut Part| part.draw(at);
        let delays = self.0.iter_mut().map(draw);
        Duration::from_nanos(delays.fold(0, u64::saturating_add))
    }
}

impl Part {
    fn new(model: JitterModel, random: Random, index: usize, seed: Seed) -> Self {
        let windows = match model {
            JitterModel::Spike { windows, .. } => {
                let random = seed.stream(&format!("link.jitter.{index}.windows"));
                Some(Calendar::new(windows, random))
            }
            _ => None,
        };
        Self {
            model,
            random,
            windows,
        }
    }

    fn draw(&mut self, at: Instant) -> u64 {
        if let Some(windows) = &mut self.windows {
            windows.seek(at);
            if !windows.contains(at) {
                return 0;
            }
        }
        self.model.draw(&mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Delays in ms of packets a millisecond apart.
    fn delays(models: Vec<JitterModel>) -> Vec<f64> {
        let mut process = JitterProcess::new(&models.into(), Seed(2));
        let times = (0..200_000).map(|n| Instant::ZERO + ms(n));
        times
            .map(|at| process.draw(at).as_secs_f64() * 1e3)
            .collect()
    }

    #[test]
    fn delays_have_their_means_and_deviations() {
        let spike = JitterModel::Spike {
            below: ms(150),
            windows: Windows::regular(Duration::from_secs(20), ms(1000)),
        };
        let late = JitterModel::Late {
            delay: ms(30),
            share: 0.2,
        };
        let gamma = |shape| JitterModel::Gamma { mean: ms(8), shape };
        let long = 11.5 / 90.0_f64; // of Wi-Fi's packets at 12.5 ms
        // Of the long ones: variance 12 · 7.5², and that of whether there is one.
        let wifi = 1.0 + long * 12.0 * 56.25 + long * (1.0 - long) * 8100.0;
        for (models, mean, variance) in [
            (vec![JitterModel::Uniform(ms(30))], 15.0, 75.0),
            (vec![JitterModel::Exponential(ms(5))], 5.0, 25.0),
            (vec![gamma(2.0)], 8.0, 32.0),
            (vec![gamma(0.5)], 8.0, 128.0),
            (vec![gamma(50.0)], 8.0, 1.28),
            (vec![late], 6.0, 144.0),
            (vec![JitterModel::WiFi(ms(1))], 1.0, 1.0),
            (
                vec![JitterModel::WiFi(Duration::from_micros(12_500))],
                12.5,
                wifi,
            ),
            (vec![JitterModel::WiFi(ms(91))], 91.0, 1.0 + 12.0 * 56.25),
            (vec![spike], 3.75, 0.05 * 7500.0 - 3.75 * 3.75),
            (vec![late, gamma(2.0)], 14.0, 176.0),
        ] {
            let jitter = Jitter::from(models.clone());
            assert_eq!(jitter.validate(), Ok(()));
            assert!((jitter.mean().as_secs_f64() * 1e3 - mean).abs() < 1e-6);
            let mut delays = delays(models.clone());
            let n = delays.len() as f64;
            let found = delays.iter().sum::<f64>() / n;
            // Windows have 2000 packets in a row, 10 times: more than five standard errors.
            let error = 6.0 * (variance / n).sqrt();
            assert!((found - mean).abs() < error, "{models:?}: mean {found}");
            let squares = delays
                .iter()
                .map(|d| (d - found) * (d - found))
                .sum::<f64>();
            let ratio = squares / n / variance;
            assert!((ratio - 1.0).abs() < 0.05, "{models:?}: variance × {ratio}");
            delays.sort_by(f64::total_cmp);
            let median = jitter.median().as_secs_f64() * 1e3;
            let below = delays.iter().filter(|d| **d <= median + 0.05).count() as f64 / n;
            assert!(
                (0.38..0.96).contains(&below),
                "{models:?}: {below} below {median}"
            );
        }
    }

    #[test]
    fn nonsense_is_named_and_survived() {
        for (model, words) in [
            (JitterModel::WiFi(ms(92)), "not within 1ms to 91ms"),
            (JitterModel::WiFi(Duration::ZERO), "not within 1ms to 91ms"),
            (
                JitterModel::Gamma {
                    mean: ms(1),
                    shape: f64::NAN,
                },
                "shape is NaN",
            ),
            (
                JitterModel::Late {
                    delay: Duration::MAX,
                    share: 1.5,
                },
                "share is 1.5",
            ),
            (
                JitterModel::Spike {
                    below: ms(1),
                    windows: Windows::regular(ms(1), ms(2)),
                },
                "do not fit",
            ),
        ] {
            let error = model.validate().expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
            let mut process = JitterProcess::new(&vec![model, model].into(), Seed(1));
            process.draw(Instant::from_nanos(u64::MAX));
        }
    }
}
