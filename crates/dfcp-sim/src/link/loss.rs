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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn run(model: LossModel, seed: u64, packets: usize) -> Vec<bool> {
        let mut process = LossProcess::new(model, Seed(seed).stream("loss"));
        (0..packets).map(|_| process.lose(Instant::ZERO)).collect()
    }

    fn share(losses: &[bool]) -> f64 {
        losses.iter().filter(|&&lost| lost).count() as f64 / losses.len() as f64
    }

    /// Lengths of the runs of losses between packets that arrive.
    fn bursts(losses: &[bool]) -> Vec<usize> {
        losses
            .split(|lost| !lost)
            .map(<[bool]>::len)
            .filter(|&length| length > 0)
            .collect()
    }

    /// Runs of losses are geometric: each goes on with probability `stay`.
    fn assert_geometric(bursts: &[usize], stay: f64) {
        for longer_than in 1..6 {
            let at_least = |n: usize| bursts.iter().filter(|&&b| b >= n).count() as f64;
            let tried = at_least(longer_than);
            let measured = at_least(longer_than + 1) / tried;
            let error = (stay * (1.0 - stay) / tried).sqrt();
            assert!(
                (measured - stay).abs() < 4.0 * error,
                "after {longer_than}: {measured} ± {error} go on, expected {stay}"
            );
        }
    }

    #[test]
    fn bernoulli_losses_are_independent() {
        for p in [0.01, 0.3, 0.7] {
            let losses = run(LossModel::Bernoulli(p), 1, 400_000);
            let error = (p * (1.0 - p) / 400_000.0).sqrt();
            assert!((share(&losses) - p).abs() < 4.0 * error);
            assert_eq!(LossModel::Bernoulli(p).mean_loss(), p);
            if p > 0.1 {
                assert_geometric(&bursts(&losses), p);
            }
        }
    }

    #[test]
    fn gilbert_bursts_are_geometric() {
        let channel = GilbertElliott {
            good_to_bad: 0.02,
            bad_to_good: 0.25,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let model = LossModel::GilbertElliott(channel);
        let mean = 0.02 / 0.27;
        assert!((model.mean_loss() - mean).abs() < 1e-12);
        let losses = run(model, 1, 1_000_000);
        // Runs raise the variance by (1 + c)/(1 - c), c = 1 - 0.02 - 0.25 the correlation of
        // neighbours.
        let error = (mean * (1.0 - mean) / 1e6 * 1.73 / 0.27).sqrt();
        assert!((share(&losses) - mean).abs() < 4.0 * error);
        assert_geometric(&bursts(&losses), 0.75);
    }

    #[test]
    fn elliott_states_mix_by_their_stationary_probabilities() {
        let channel = GilbertElliott {
            good_to_bad: 0.1,
            bad_to_good: 0.3,
            loss_good: 0.05,
            loss_bad: 0.6,
        };
        assert!((channel.bad_share() - 0.25).abs() < 1e-12);
        let model = LossModel::GilbertElliott(channel);
        let mean = 0.75 * 0.05 + 0.25 * 0.6;
        assert!((model.mean_loss() - mean).abs() < 1e-12);
        let losses = run(model.clone(), 2, 1_000_000);
        assert!((share(&losses) - mean).abs() < 0.003);
        // The first packet already: 20,000 processes, standard error 0.0028.
        let first: Vec<bool> = (0..20_000).map(|s| run(model.clone(), s, 1)[0]).collect();
        assert!((share(&first) - mean).abs() < 0.011);
        // Two in a row: P(bad, bad) and so on, by one step of the chain.
        let pairs: Vec<bool> = losses.windows(2).map(|w| w[0] && w[1]).collect();
        let after_bad = 0.7 * 0.6 + 0.3 * 0.05;
        let after_good = 0.9 * 0.05 + 0.1 * 0.6;
        let both = 0.25 * 0.6 * after_bad + 0.75 * 0.05 * after_good;
        assert!((share(&pairs) - both).abs() < 0.003);
    }

    #[test]
    fn bursts_by_packets_have_the_share_and_the_length() {
        for (share, burst) in [(0.02, 12.0), (0.09, 50.0), (0.2, 5.0)] {
            let channel = GilbertElliott::in_bursts(share, burst).expect("it exists");
            let losses = run(LossModel::GilbertElliott(channel), 3, 2_000_000);
            let bursts = bursts(&losses);
            let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
            // Four standard errors; a geometric length deviates by about its mean.
            let tolerance = 4.0 / (bursts.len() as f64).sqrt();
            assert!((mean / burst - 1.0).abs() < tolerance, "bursts of {mean}");
            let lost = self::share(&losses);
            assert!((lost / share - 1.0).abs() < 2.0 * tolerance, "{lost} lost");
        }
        assert!(GilbertElliott::in_bursts(0.9, 2.0).is_err());
        assert!(GilbertElliott::in_bursts(0.1, 0.5).is_err());
    }

    /// When the states of a channel by the clock change, as packets every `gap` see it.
    fn bad_times(channel: TimedGilbertElliott, gap: Duration, packets: u64) -> Vec<u64> {
        let model = LossModel::TimedGilbertElliott(channel);
        let mut process = LossProcess::new(model, Seed(4).stream("loss"));
        let times = (0..packets).map(|n| Instant::ZERO + gap * n as u32);
        times
            .filter(|at| process.lose(*at))
            .map(Instant::as_nanos)
            .collect()
    }

    #[test]
    fn bursts_by_time_have_the_share_and_the_length() {
        let (share, burst) = (0.026, Duration::from_millis(17));
        let channel = TimedGilbertElliott::in_bursts(share, burst);
        assert!((channel.bad_share() - share).abs() < 1e-9);
        let gap = Duration::from_micros(100);
        let lost = bad_times(channel, gap, 20_000_000);
        // 2000 s: 3059 bursts are expected.
        let begins = lost.windows(2).filter(|w| w[1] - w[0] > 100_000).count() + 1;
        let each = lost.len() as f64 * 1e-4 / begins as f64;
        assert!((each / 0.017 - 1.0).abs() < 4.0 / (begins as f64).sqrt());
        let measured = lost.len() as f64 / 20e6;
        assert!((measured / share - 1.0).abs() < 0.1, "{measured} lost");
        // Exponentially distributed: the standard deviation is the mean.
        let mut lengths = Vec::new();
        for pair in lost.windows(2) {
            match lengths.last_mut() {
                Some(length) if pair[1] - pair[0] == 100_000 => *length += 1.0,
                _ => lengths.push(1.0),
            }
        }
        let spread = crate::metrics::stability(&[lengths]);
        assert!(
            spread.is_some_and(|cv| (cv - 1.0).abs() < 0.1),
            "{spread:?}"
        );
    }

    #[test]
    fn when_a_channel_changes_does_not_depend_on_the_packets() {
        let ms = Duration::from_millis;
        let channel = TimedGilbertElliott {
            mean_good: ms(30),
            mean_bad: ms(10),
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        let often = bad_times(channel, ms(1), 10_000);
        let seldom = bad_times(channel, ms(5), 2_000);
        let fifth = |at: &&u64| *at % 5_000_000 == 0;
        assert_eq!(
            often.iter().filter(fifth).copied().collect::<Vec<_>>(),
            seldom
        );
        // An idle millennium costs no more than a second.
        let mut process = LossProcess::new(
            LossModel::TimedGilbertElliott(channel),
            Seed(4).stream("loss"),
        );
        process.lose(Instant::from_nanos(u64::MAX / 2));
        process.lose(Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn a_packet_is_lost_if_any_of_several_models_loses_it() {
        let marks: Arc<[bool]> = Arc::new([true, false, false, false]);
        let model = LossModel::Any(vec![
            LossModel::Trace(marks.clone()),
            LossModel::Bernoulli(0.2),
            LossModel::Bernoulli(0.2),
        ]);
        let expected = 1.0 - 0.75 * 0.8 * 0.8;
        assert!((model.mean_loss() - expected).abs() < 1e-12);
        let losses = run(model, 5, 400_000);
        assert!(losses.iter().step_by(4).all(|&lost| lost));
        assert!((share(&losses) - expected).abs() < 0.004);
        let wrong = LossModel::Any(vec![LossModel::Trace(marks), LossModel::Bernoulli(2.0)]);
        assert!(wrong.validate().is_err());
    }

    #[test]
    fn traces_are_exact() {
        let trace: Arc<[bool]> = Arc::new([true, false, false, true]);
        let twice = [true, false, false, true, true, false, false, true];
        let once = [true, false, false, true, false, false, false, false];
        assert_eq!(run(LossModel::Trace(trace.clone()), 1, 8), twice);
        assert_eq!(run(LossModel::Mask(trace.clone()), 1, 8), once);
        assert_eq!(LossModel::Trace(trace).mean_loss(), 0.5);
        let empty = LossModel::Trace(Arc::new([]));
        assert_eq!(run(empty.clone(), 1, 3), [false; 3]);
        assert_eq!(empty.mean_loss(), 0.0);
    }

    #[test]
    fn parameters_out_of_range_are_named_and_harmless() {
        let channel = GilbertElliott {
            good_to_bad: 2.0,
            bad_to_good: f64::NAN,
            loss_good: -1.0,
            loss_bad: 3.0,
        };
        let model = LossModel::GilbertElliott(channel);
        let error = model.validate().expect_err("2 is no probability");
        assert_eq!(
            error.to_string(),
            "good_to_bad is 2, not a probability from 0 to 1"
        );
        assert_eq!(model.mean_loss(), 1.0);
        assert_eq!(run(model, 1, 10), [true; 10]);
        assert!(LossModel::Bernoulli(f64::NAN).validate().is_err());
        assert_eq!(LossModel::Bernoulli(0.5).validate(), Ok(()));
    }
}
