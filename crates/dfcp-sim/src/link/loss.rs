//! Which packets a link loses: independently, in bursts of packets or of time, or as recorded.
//!
//! Bursts are those of Gilbert, "Capacity of a Burst-Noise Channel", Bell System Technical Journal
//! 39(5), 1960, and Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", BSTJ
//! 42(5), 1963: a Markov chain of two states, each with its own probability of loss. It moves once
//! per packet ([`GilbertElliott`]), or by the clock, as interference does ([`TimedGilbertElliott`]):
//! then a slower sender loses as long as a faster one, and fewer packets.
//!
//! Invariants: the fate of the n-th packet depends on the model and the random stream alone, except
//! where the channel moves by the clock; when it moves does not depend on the packets.

use std::sync::Arc;

use dfcp_proto::{Duration, Instant};

use crate::random::Random;

/// A model of random or recorded loss, packet by packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, on its own.
    Bernoulli(f64),
    /// The channel has a good and a bad state, and may change it with each packet.
    GilbertElliott(GilbertElliott),
    /// The channel has a good and a bad state, which last random times.
    TimedGilbertElliott(TimedGilbertElliott),
    /// The n-th packet is lost if the n-th entry says so; after the last one from the first again.
    Trace(Arc<[bool]>),
    /// As [`Self::Trace`], but nothing is lost after the last entry.
    Mask(Arc<[bool]>),
    /// A packet is lost if any of these loses it; each has a random stream of its own.
    Any(Vec<LossModel>),
}

/// The probabilities of a Gilbert–Elliott channel, for each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From the good state to the bad one.
    pub good_to_bad: f64,
    /// From the bad state to the good one: bad states last the inverse of this on average.
    pub bad_to_good: f64,
    /// Loss in the good state.
    pub loss_good: f64,
    /// Loss in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Gilbert's channel that loses this share of the packets in bursts of this mean length.
    ///
    /// # Errors
    /// No channel does: bursts are shorter than a packet, or so short that good states would have
    /// to be shorter than a packet.
    pub fn in_bursts(share: f64, burst: f64) -> Result<Self, LossModelError> {
        let channel = Self {
            good_to_bad: share / (1.0 - share) / burst,
            bad_to_good: 1.0 / burst,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        LossModel::GilbertElliott(channel).validate()?;
        Ok(channel)
    }

    /// The part of the packets that find the bad state; zero if the state never changes.
    pub fn bad_share(&self) -> f64 {
        let to_bad = clamp(self.good_to_bad);
        let to_good = clamp(self.bad_to_good);
        if to_bad > 0.0 {
            to_bad / (to_bad + to_good)
        } else {
            0.0
        }
    }
}

/// A Gilbert–Elliott channel by the clock: how long states last is exponentially distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedGilbertElliott {
    /// Mean time in the good state; counts as [`Self::SHORTEST`] where it is shorter.
    pub mean_good: Duration,
    /// Mean time in the bad state; the same holds.
    pub mean_bad: Duration,
    /// Loss in the good state.
    pub loss_good: f64,
    /// Loss in the bad state.
    pub loss_bad: f64,
}

impl TimedGilbertElliott {
    /// The shortest mean time of a state. A packet of 1500 bytes takes longer up to 12 Gbit/s, and
    /// changes of state, which cost time also where no packet is, stay a million a second.
    pub const SHORTEST: Duration = Duration::from_micros(1);

    /// Gilbert's channel that is bad for this share of the time, for this long on average.
    pub fn in_bursts(share: f64, burst: Duration) -> Self {
        // Saturates at about 580 years, for a share of zero.
        let good = burst.as_nanos() as f64 * (1.0 - share) / share;
        Self {
            mean_good: Duration::from_nanos(good as u64),
            mean_bad: burst,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// The part of the time that the channel is bad.
    pub fn bad_share(&self) -> f64 {
        let [good, bad] = [self.mean_good, self.mean_bad].map(mean_nanos);
        bad as f64 / (good as f64 + bad as f64)
    }
}

/// A mean time that a channel can have, in nanoseconds.
fn mean_nanos(mean: Duration) -> u64 {
    let mean = mean.max(TimedGilbertElliott::SHORTEST);
    u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX)
}

impl From<f64> for LossModel {
    /// Each packet on its own with this probability.
    fn from(probability: f64) -> Self {
        Self::Bernoulli(probability)
    }
}

impl LossModel {
    /// The part of the packets lost in the long run, of packets at regular times.
    pub fn mean_loss(&self) -> f64 {
        match self {
            Self::TimedGilbertElliott(channel) => {
                let bad = channel.bad_share();
                (1.0 - bad) * clamp(channel.loss_good) + bad * clamp(channel.loss_bad)
            }
            Self::Any(models) => {
                let kept = models.iter().map(|model| 1.0 - model.mean_loss());
                1.0 - kept.product::<f64>()
            }
            Self::None | Self::Mask(_) => 0.0,
            Self::Bernoulli(p) => clamp(*p),
            Self::GilbertElliott(channel) => {
                let bad = channel.bad_share();
                (1.0 - bad) * clamp(channel.loss_good) + bad * clamp(channel.loss_bad)
            }
            Self::Trace(trace) if trace.is_empty() => 0.0,
            Self::Trace(trace) => {
                let lost = trace.iter().filter(|&&lost| lost).count();
                lost as f64 / trace.len() as f64
            }
        }
    }

    /// Checks that the parameters are probabilities. A [`LossProcess`] takes any: one out of range
    /// counts as the nearest in range, one that is no number as zero.
    ///
    /// # Errors
    /// Names the first parameter that is out of range.
    pub fn validate(&self) -> Result<(), LossModelError> {
        let probabilities = match self {
            Self::None | Self::Trace(_) | Self::Mask(_) => vec![],
            Self::Bernoulli(p) => vec![("loss", *p)],
            Self::GilbertElliott(channel) => vec![
                ("good_to_bad", channel.good_to_bad),
                ("bad_to_good", channel.bad_to_good),
                ("loss_good", channel.loss_good),
                ("loss_bad", channel.loss_bad),
            ],
            Self::TimedGilbertElliott(channel) => {
                let means = [
                    ("mean_good", channel.mean_good),
                    ("mean_bad", channel.mean_bad),
                ];
                let short = |(_, mean): &(_, Duration)| *mean < TimedGilbertElliott::SHORTEST;
                if let Some((name, mean)) = means.into_iter().find(short) {
                    return Err(LossModelError::Short { name, mean });
                }
                vec![
                    ("loss_good", channel.loss_good),
                    ("loss_bad", channel.loss_bad),
                ]
            }
            Self::Any(models) => return models.iter().try_for_each(Self::validate),
        };
        match probabilities
            .into_iter()
            .find(|(_, p)| !(0.0..=1.0).contains(p))
        {
            Some((name, value)) => Err(LossModelError::Probability { name, value }),
            None => Ok(()),
        }
    }
}

/// The nearest probability; zero for what is no number.
fn clamp(probability: f64) -> f64 {
    if probability.is_nan() {
        return 0.0;
    }
    probability.clamp(0.0, 1.0)
}

/// Why a [`LossModel`] makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LossModelError {
    /// A parameter is not a probability.
    #[error("{name} is {value}, not a probability from 0 to 1")]
    Probability {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// A state of a channel lasts too short a time.
    #[error("{name} is {mean:?}, below {:?}", TimedGilbertElliott::SHORTEST)]
    Short {
        /// The parameter.
        name: &'static str,
        /// Its value.
        mean: Duration,
    },
}

/// A [`LossModel`] at work.
#[derive(Clone, Debug)]
pub struct LossProcess {
    model: LossModel,
    random: Random,
    channel: Channel,
    /// The place of the next packet in a trace or mask.
    position: usize,
    /// When a channel that goes by the clock changes.
    clock: Option<Box<Clock>>,
    /// One for each of several models.
    parts: Vec<LossProcess>,
}

#[derive(Clone, Copy, Debug)]
enum Channel {
    Good,
    Bad,
}

/// When a channel's state ends.
#[derive(Clone, Debug)]
struct Clock {
    ends: u64,
    random: Random,
}

impl LossProcess {
    /// Starts the model at time zero; a Gilbert–Elliott channel starts as likely bad as it is in
    /// the long run.
    pub fn new(model: LossModel, random: Random) -> Self {
        Self::starting(model, random, Instant::ZERO)
    }

    fn starting(model: LossModel, mut random: Random, now: Instant) -> Self {
        let mut clock = None;
        let bad_share = match &model {
            LossModel::GilbertElliott(channel) => Some(channel.bad_share()),
            LossModel::TimedGilbertElliott(channel) => {
                // States have no memory: the one at `now` has as long to go as a new one.
                clock = Some(Box::new(Clock {
                    ends: now.as_nanos(),
                    random: random.split(),
                }));
                Some(channel.bad_share())
            }
            _ => None,
        };
        let parts = match &model {
            LossModel::Any(models) => models
                .iter()
                .map(|model| Self::starting(model.clone(), random.split(), now))
                .collect(),
            _ => Vec::new(),
        };
        let mut process = Self {
            channel: match bad_share {
                Some(share) if random.chance(share) => Channel::Bad,
                _ => Channel::Good,
            },
            model,
            random,
            position: 0,
            clock,
            parts,
        };
        if let (LossModel::TimedGilbertElliott(channel), Some(clock)) =
            (&process.model, &mut process.clock)
        {
            clock.lengthen(channel, process.channel);
        }
        process
    }

    /// Goes on with another model from `now` on; the same one goes on where it was.
    pub fn set_model(&mut self, now: Instant, model: LossModel) {
        if model != self.model {
            *self = Self::starting(model, self.random.clone(), now);
        }
    }

    /// The model at work.
    pub fn model(&self) -> &LossModel {
        &self.model
    }

    /// Whether the next packet, at `at`, is lost. Times must not go back.
    #[inline]
    pub fn lose(&mut self, at: Instant) -> bool {
        match &self.model {
            LossModel::None => false,
            LossModel::Bernoulli(p) => self.random.chance(*p),
            _ => self.lose_with_memory(at),
        }
    }

    fn lose_with_memory(&mut self, at: Instant) -> bool {
        match &self.model {
            LossModel::None | LossModel::Bernoulli(_) => false,
            LossModel::GilbertElliott(parameters) => {
                let (loss, leave, other) = match self.channel {
                    Channel::Good => (parameters.loss_good, parameters.good_to_bad, Channel::Bad),
                    Channel::Bad => (parameters.loss_bad, parameters.bad_to_good, Channel::Good),
                };
                let lost = self.random.chance(loss);
                if self.random.chance(leave) {
                    self.channel = other;
                }
                lost
            }
            LossModel::TimedGilbertElliott(parameters) => {
                if let Some(clock) = &mut self.clock {
                    clock.advance(parameters, &mut self.channel, at.as_nanos());
                }
                self.random.chance(match self.channel {
                    Channel::Good => parameters.loss_good,
                    Channel::Bad => parameters.loss_bad,
                })
            }
            LossModel::Trace(trace) => {
                let lost = trace.get(self.position).copied().unwrap_or(false);
                self.position += 1;
                if self.position >= trace.len() {
                    self.position = 0;
                }
                lost
            }
            LossModel::Mask(mask) => {
                let lost = mask.get(self.position).copied().unwrap_or(false);
                self.position = self.position.saturating_add(1);
                lost
            }
            // All of them see every packet.
            LossModel::Any(_) => {
                let parts = self.parts.iter_mut();
                parts.fold(false, |lost, part| part.lose(at) | lost)
            }
        }
    }
}

impl Clock {
    /// Changes of state that are drawn one by one; beyond, the state is drawn as it is in the long
    /// run, which after so many is the same.
    const MOST_CHANGES: u64 = 1 << 20;

    /// Draws how long the state lasts that begins now.
    fn lengthen(&mut self, parameters: &TimedGilbertElliott, channel: Channel) {
        let mean = mean_nanos(match channel {
            Channel::Good => parameters.mean_good,
            Channel::Bad => parameters.mean_bad,
        });
        let lasts = self.random.exponential(mean).max(1);
        self.ends = self.ends.saturating_add(lasts);
    }

    fn advance(&mut self, parameters: &TimedGilbertElliott, channel: &mut Channel, at: u64) {
        let [good, bad] = [parameters.mean_good, parameters.mean_bad].map(mean_nanos);
        let cycle = good.saturating_add(bad);
        if at.saturating_sub(self.ends) / cycle > Self::MOST_CHANGES {
            *channel = match self.random.chance(parameters.bad_share()) {
                true => Channel::Bad,
                false => Channel::Good,
            };
            self.ends = at;
            self.lengthen(parameters, *channel);
        }
        while self.ends <= at && self.ends < u64::MAX {
            *channel = match channel {
                Channel::Good => Channel::Bad,
                Channel::Bad => Channel::Good,
            };
            self.lengthen(parameters, *channel);
        }
    }
}
