//! Which packets a link loses: independently, in bursts, or as recorded.
//!
//! Bursts are those of Gilbert, "Capacity of a Burst-Noise Channel", Bell System Technical Journal
//! 39(5), 1960, and Elliott, "Estimates of Error Rates for Codes on Burst-Noise Channels", BSTJ
//! 42(5), 1963: a Markov chain of two states, each with its own probability of loss, that moves
//! once per packet.
//!
//! Invariant: the fate of the n-th packet depends on the model and the random stream alone, not
//! on time or sizes.

use std::sync::Arc;

use crate::random::Random;

/// A model of random or recorded loss, packet by packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, on its own.
    Bernoulli(f64),
    /// The channel has a good and a bad state.
    GilbertElliott(GilbertElliott),
    /// The n-th packet is lost if the n-th entry says so; after the last one from the first again.
    Trace(Arc<[bool]>),
    /// As [`Self::Trace`], but nothing is lost after the last entry.
    Mask(Arc<[bool]>),
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

impl From<f64> for LossModel {
    /// Each packet on its own with this probability.
    fn from(probability: f64) -> Self {
        Self::Bernoulli(probability)
    }
}

impl LossModel {
    /// The part of the packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        match self {
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
        };
        match probabilities
            .into_iter()
            .find(|(_, p)| !(0.0..=1.0).contains(p))
        {
            Some((name, value)) => Err(LossModelError { name, value }),
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

/// A parameter of a [`LossModel`] is not a probability.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, not a probability from 0 to 1")]
pub struct LossModelError {
    /// The parameter.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// A [`LossModel`] at work.
#[derive(Clone, Debug)]
pub struct LossProcess {
    model: LossModel,
    random: Random,
    channel: Channel,
    /// The place of the next packet in a trace or mask.
    position: usize,
}

#[derive(Clone, Copy, Debug)]
enum Channel {
    Good,
    Bad,
}

impl LossProcess {
    /// Starts the model; a Gilbert–Elliott channel starts as likely bad as it is in the long run.
    pub fn new(model: LossModel, mut random: Random) -> Self {
        let channel = match &model {
            LossModel::GilbertElliott(channel) if random.chance(channel.bad_share()) => {
                Channel::Bad
            }
            _ => Channel::Good,
        };
        Self {
            model,
            random,
            channel,
            position: 0,
        }
    }

    /// Goes on with another model; the same one goes on where it was.
    pub fn set_model(&mut self, model: LossModel) {
        if model != self.model {
            *self = Self::new(model, self.random.clone());
        }
    }

    /// The model at work.
    pub fn model(&self) -> &LossModel {
        &self.model
    }

    /// Whether the next packet is lost.
    pub fn lose(&mut self) -> bool {
        match &self.model {
            LossModel::None => false,
            LossModel::Bernoulli(p) => self.random.chance(*p),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn run(model: LossModel, seed: u64, packets: usize) -> Vec<bool> {
        let mut process = LossProcess::new(model, Seed(seed).stream("loss"));
        (0..packets).map(|_| process.lose()).collect()
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
