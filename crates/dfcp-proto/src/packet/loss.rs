//! How many packets the path loses, as seen by the sender.

use super::rules::LossEstimate;
use crate::time::Duration;

/// How likely a packet is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// Best estimate.
    pub mean: f64,
    /// What it may well be, given how little was seen (a rule of succession).
    pub cautious: f64,
    /// On how many packets that rests, those included that are taken for seen; infinite where the loss
    /// is known.
    pub evidence: f64,
    /// Variance of the number of packets lost in a long flight ÷ its variance if each were lost on
    /// its own; at least 1. About 2L − 1 where few are lost in bursts of L on average.
    pub burstiness: f64,
    /// How long a burst goes on after a packet that was lost, on average; zero where losses are
    /// independent.
    pub burst_time: Duration,
}

impl Loss {
    /// A path known to lose this share, each packet on its own.
    pub fn known(probability: f64) -> Self {
        Self {
            mean: probability,
            cautious: probability,
            evidence: f64::INFINITY,
            burstiness: 1.0,
            burst_time: Duration::ZERO,
        }
    }

    /// How much more than [`cautious`](Self::cautious) it is once in 44 times, as what lies two standard
    /// deviations above the mean of a normal distribution: zero where it is known.
    pub fn doubt(&self) -> f64 {
        if self.evidence.is_infinite() || self.cautious <= 0.0 {
            return 0.0;
        }
        let (a, b) = (self.cautious, 1.0 - self.cautious);
        let most = hardly_exceeded(a * self.evidence, b * self.evidence);
        (most.min(MOST) - self.cautious).max(0.0)
    }

    /// A path known to lose this share in bursts of so many packets on average.
    pub fn in_bursts(probability: f64, mean_burst: f64) -> Self {
        Self {
            burstiness: burstiness(probability, mean_burst),
            ..Self::known(probability)
        }
    }
}

/// Exponentially forgetting estimate of the packet loss probability.
#[derive(Clone, Debug)]
pub struct LossEstimator {
    state: State,
    /// What comes of it: every packet asks for it, only news change it.
    latest: Loss,
}

#[derive(Clone, Debug)]
enum State {
    /// Packets, weighted by their age.
    Counted {
        delivered: f64,
        lost: f64,
        /// Losses whose predecessor was not lost: each begins a burst.
        bursts: f64,
        last_lost: Option<LostPacket>,
        after_loss: AfterLoss,
    },
    /// The estimate, and the weight µ of a packet; both from 0 to 1.
    Smoothed { p: f64, weight: f64 },
}

/// A packet that was lost, and the one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPacket {
    /// Its number.
    pub number: u64,
    /// The number of the next packet that asked for an acknowledgement.
    pub next: u64,
    /// How long after it that one passed the path.
    pub gap: Duration,
}

/// What became of the packets that followed lost ones closely, weighted by their age: how long a burst
/// goes on shows where somebody looks while it may.
#[derive(Clone, Copy, Debug, Default)]
struct AfterLoss {
    lost: f64,
    arrived: f64,
    /// Seconds from the lost packets to them.
    gaps: f64,
}

impl AfterLoss {
    fn add(&mut self, gap: Duration, is_lost: bool) {
        match is_lost {
            true => self.lost += 1.0,
            false => self.arrived += 1.0,
        }
        self.gaps += gap.as_secs_f64();
    }

    fn forget(&mut self, keep: f64) {
        (self.lost, self.arrived) = (self.lost * keep, self.arrived * keep);
        self.gaps *= keep;
    }

    /// Mean time for which a burst goes on: fates of packets g apart correlate by ρ = exp(−g/T) where
    /// bursts end by chance at any time. One independent packet is taken for seen.
    fn burst_time(&self, probability: f64) -> Duration {
        let seen = self.lost + self.arrived;
        let goes_on = (self.lost + probability) / (seen + 1.0);
        let correlation = (goes_on - probability) / (1.0 - probability);
        if correlation <= 0.0 || seen <= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(self.gaps / seen / -correlation.ln())
    }
}

/// The estimate remembers about this many packets: enough for a standard error of 0.7 % at 5 %
/// loss, few enough to follow a changing radio link within a second at 10 Mbit/s.
const MEMORY: f64 = 1000.0;

/// Where losses come in bursts as many packets say less; the memory is so many times longer at
/// most, so that a change is still followed within a second at 100 Mbit/s.
const MAX_MEMORY_FACTOR: f64 = 8.0;

/// Bursts of independent losses that are taken for seen, so that the first few losses of a
/// connection do not pass for a burst.
const PRIOR_BURSTS: f64 = 4.0;

/// Longest mean burst that is told from an outage.
const MAX_BURST: f64 = 1000.0;

/// Before anything is seen a path may well lose 3 %: one packet in this many.
const PRIOR: f64 = 32.0;

/// No path that loses more is worth sending on.
const MOST: f64 = 0.98;

/// Standard deviations for which [`Loss::doubt`] stands: as many as a scheduler's margin has where
/// somebody waits for the last block.
const DOUBTED: f64 = 2.0;

/// What a probability hardly ever exceeds of which a beta distribution B(a, b), a ≥ 1, is known:
/// the quantile [`DOUBTED`] standard deviations above the mean of a normal distribution. It is
/// 1 − exp(−g ÷ (b + (a − 1) ÷ 2)) of g, that quantile of a gamma distribution (Wilson and Hilferty,
/// 1931): within a hundredth of the true one up to 40 %, within a fiftieth at a half.
fn hardly_exceeded(a: f64, b: f64) -> f64 {
    let root = 1.0 - 1.0 / (9.0 * a) + DOUBTED / (3.0 * a.sqrt());
    let gamma = a * root.powi(3);
    1.0 - (-gamma / (b + (a - 1.0) / 2.0)).exp()
}

/// Variance of the losses in a long flight ÷ that of independent ones. Losses are taken for those of
/// a two-state Markov chain (Gilbert, 1960), whose states of subsequent packets correlate by
/// ρ = P(lost | lost) − P(lost | arrived); the sum of n such has the variance n·p(1 − p)(1 + ρ)/(1 − ρ).
fn burstiness(probability: f64, mean_burst: f64) -> f64 {
    let p = probability.clamp(0.0, MOST);
    let burst = mean_burst.clamp(1.0, MAX_BURST);
    let correlation = 1.0 - 1.0 / burst - p / ((1.0 - p) * burst);
    ((1.0 + correlation) / (1.0 - correlation)).max(1.0)
}

impl LossEstimator {
    /// An estimator that has seen nothing.
    pub fn new(estimate: LossEstimate) -> Self {
        let state = match estimate {
            // One success seen stands for the handshake that had to work before.
            LossEstimate::Counted => State::Counted {
                delivered: 1.0,
                lost: 0.0,
                bursts: 0.0,
                last_lost: None,
                after_loss: AfterLoss::default(),
            },
            LossEstimate::Smoothed(weight) => State::Smoothed {
                p: 0.0,
                weight: if weight > 0.0 { weight.min(1.0) } else { 0.0 },
            },
        };
        let latest = state.estimate();
        Self { state, latest }
    }

    /// Notes which packets were lost, in ascending order, before [`Self::update`] counts them. A packet
    /// that came more than `closely` after a lost one says nothing of how long bursts last.
    pub fn note_lost(&mut self, packets: impl Iterator<Item = LostPacket>, closely: Duration) {
        if let State::Counted {
            bursts,
            last_lost,
            after_loss,
            ..
        } = &mut self.state
        {
            for packet in packets {
                let goes_on = last_lost.is_some_and(|last| last.next == packet.number);
                *bursts += f64::from(u8::from(!goes_on));
                if let Some(last) = last_lost.filter(|last| last.gap <= closely) {
                    after_loss.add(last.gap, goes_on);
                }
                *last_lost = Some(packet);
            }
        }
        self.latest = self.state.estimate();
    }

    /// Counts packets that arrived and packets that were lost.
    pub fn update(&mut self, arrived: u64, missing: u64) {
        let memory = MEMORY * self.latest.burstiness.min(MAX_MEMORY_FACTOR);
        match &mut self.state {
            State::Counted {
                delivered,
                lost,
                bursts,
                after_loss,
                ..
            } => {
                let n = arrived.saturating_add(missing) as f64;
                let keep = (1.0 - n / memory).max(0.0);
                *delivered = *delivered * keep + arrived as f64;
                *lost = *lost * keep + missing as f64;
                *bursts *= keep;
                after_loss.forget(keep);
            }
            State::Smoothed { p, weight } => {
                // Arrivals first, then losses, each one packet: CTCP's (1) and (2) at once.
                let keep = |packets: u64| (1.0 - *weight).powf(packets as f64);
                let lost = keep(missing);
                *p = *p * keep(arrived) * lost + 1.0 - lost;
            }
        }
        self.latest = self.state.estimate();
    }

    /// A loss turned out to be a late arrival.
    pub fn undo_loss(&mut self) {
        match &mut self.state {
            State::Counted {
                delivered,
                lost,
                bursts,
                ..
            } => {
                *lost = (*lost - 1.0).max(0.0);
                *delivered += 1.0;
                *bursts = bursts.min(*lost);
            }
            State::Smoothed { p, weight } => *p = (*p - *weight).max(0.0),
        }
        self.latest = self.state.estimate();
    }

    /// The estimate with its uncertainty.
    pub fn estimate(&self) -> Loss {
        self.latest
    }

    /// Loss probability, below 1.
    pub fn probability(&self) -> f64 {
        self.latest.mean
    }
}

impl State {
    /// See [`LossEstimator::estimate`].
    fn estimate(&self) -> Loss {
        let mean = self.probability();
        match self {
            State::Counted {
                delivered,
                lost,
                after_loss,
                ..
            } => {
                // Of independent losses: one of PRIOR before anything was seen.
                let evidence = lost + delivered + PRIOR;
                Loss {
                    mean,
                    cautious: ((lost + 1.0) / evidence).max(mean),
                    evidence,
                    burstiness: self.burstiness(),
                    burst_time: after_loss.burst_time(mean),
                }
            }
            State::Smoothed { .. } => Loss::known(mean),
        }
    }

    /// See [`Loss::burstiness`].
    fn burstiness(&self) -> f64 {
        match self {
            // Nobody said which packets were lost.
            State::Counted {
                last_lost: None, ..
            } => 1.0,
            State::Counted { lost, bursts, .. } => {
                let p = self.probability();
                // Independent losses come in bursts of 1/(1 − p).
                let mean_burst = (lost + PRIOR_BURSTS / (1.0 - p)) / (bursts + PRIOR_BURSTS);
                burstiness(p, mean_burst)
            }
            State::Smoothed { .. } => 1.0,
        }
    }

    fn probability(&self) -> f64 {
        let p = match self {
            State::Counted {
                delivered, lost, ..
            } => lost / (lost + delivered).max(1.0),
            State::Smoothed { p, .. } => *p,
        };
        p.clamp(0.0, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_only_late_counts_as_arrived() {
        let estimator = |arrived, missing| {
            let mut estimator = LossEstimator::new(LossEstimate::Counted);
            estimator.update(arrived, missing);
            estimator
        };
        let mut late = estimator(300, 40);
        (0..30).for_each(|_| late.undo_loss());
        assert_eq!(late.estimate(), estimator(330, 10).estimate());
    }

    /// How likely B(a, b) exceeds `most`: its density, added up.
    fn exceeds(a: f64, b: f64, most: f64) -> f64 {
        const STEPS: u32 = 200_000;
        let (mut above, mut all) = (0.0, 0.0);
        for step in 0..STEPS {
            let p = (f64::from(step) + 0.5) / f64::from(STEPS);
            let density = ((a - 1.0) * p.ln() + (b - 1.0) * (-p).ln_1p()).exp();
            all += density;
            above += density * f64::from(u8::from(p > most));
        }
        above / all
    }

    #[test]
    fn a_loss_of_which_little_was_seen_is_hardly_ever_more_than_is_feared() {
        // Nothing; a flight without loss, with some, with much; and a thousand packets.
        for (delivered, lost) in [(1, 0), (100, 0), (97, 3), (60, 40), (950, 50)] {
            let mut estimator = LossEstimator::new(LossEstimate::Counted);
            estimator.update(delivered - 1, lost);
            let loss = estimator.estimate();
            let (a, b) = (lost as f64 + 1.0, delivered as f64 + PRIOR - 1.0);
            let exceeded = exceeds(a, b, loss.cautious + loss.doubt());
            assert!(exceeded < 0.025, "{loss:?}: {exceeded}");
            // Where more was lost than was feared before, the mean counts.
            let is_tight = loss.mean > loss.cautious - 1e-9 || exceeded > 0.02;
            assert!(is_tight, "{loss:?}: {exceeded}");
        }
        let nothing = LossEstimator::new(LossEstimate::Counted).estimate();
        let feared = nothing.cautious + nothing.doubt();
        assert!((0.10..0.12).contains(&feared), "{nothing:?}");
        assert_eq!(Loss::known(0.1).doubt(), 0.0);
    }

    #[test]
    fn follows_a_change_within_its_memory() {
        let mut loss = LossEstimator::new(LossEstimate::Counted);
        for _ in 0..500 {
            loss.update(90, 10);
        }
        assert!((loss.probability() - 0.1).abs() < 0.005);
        for _ in 0..50 {
            loss.update(50, 50);
        }
        assert!((loss.probability() - 0.5).abs() < 0.02);
    }

    const MS: Duration = Duration::from_millis(1);

    /// Feeds packets, a millisecond apart, of which `lost` says which are lost, in reports of ten.
    fn after(packets: u64, lost: impl Fn(u64) -> bool) -> Loss {
        let mut estimator = LossEstimator::new(LossEstimate::Counted);
        for report in 0..packets / 10 {
            let numbers = 10 * report..10 * (report + 1);
            let missing = numbers.clone().filter(|&n| lost(n)).count() as u64;
            let packets = numbers.filter(|&n| lost(n)).map(|number| LostPacket {
                number,
                next: number + 1,
                gap: MS,
            });
            estimator.note_lost(packets, MS);
            estimator.update(10 - missing, missing);
        }
        estimator.estimate()
    }

    #[test]
    fn bursts_are_told_from_single_losses() {
        let single = after(5000, |n| n % 20 == 7);
        assert!(single.burstiness < 1.1, "{single:?}");
        // 2L − 1 = 23 less what the prior takes: about 12 bursts are remembered.
        let bursts = after(20_000, |n| n % 600 < 12);
        assert!((bursts.mean - 0.02).abs() < 0.005, "{bursts:?}");
        assert!((14.0..24.0).contains(&bursts.burstiness), "{bursts:?}");
        let known = Loss::in_bursts(0.02, 12.0);
        assert!((known.burstiness - 22.5).abs() < 0.5, "{known:?}");
        let half = Loss::in_bursts(0.5, 2.0);
        assert!(
            (half.burstiness - 1.0).abs() < 1e-9,
            "independent: {half:?}"
        );
    }

    #[test]
    fn the_time_of_bursts_is_learnt_and_independent_losses_have_none() {
        // Bursts of 12 packets, 1 ms apart: one in twelve ends one.
        let bursts = after(20_000, |n| n % 600 < 12).burst_time;
        assert!((8 * MS..16 * MS).contains(&bursts), "{bursts:?}");
        let mut state = 1u64;
        let mut drawn = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33 & 15 == 0
        };
        let losses: Vec<bool> = (0..20_000).map(&mut drawn).collect();
        let single = after(20_000, |n| losses[n as usize]).burst_time;
        assert!(single < MS, "{single:?}");
        assert_eq!(after(20_000, |_| false).burst_time, Duration::ZERO);
    }

    #[test]
    fn packets_far_behind_a_lost_one_say_nothing_of_how_long_bursts_last() {
        let mut estimator = LossEstimator::new(LossEstimate::Counted);
        let lost = (0..100).map(|number| LostPacket {
            number,
            next: number + 1,
            gap: 2 * MS,
        });
        estimator.note_lost(lost, MS);
        estimator.update(900, 100);
        assert_eq!(estimator.estimate().burst_time, Duration::ZERO);
    }

    /// CTCP §4.1: an ACK that tells of several losses is as many steps of smoothing at once.
    #[test]
    fn several_packets_smooth_as_one_by_one() {
        const WEIGHT: f64 = 1.0 / 128.0;
        let estimator = || LossEstimator::new(LossEstimate::Smoothed(WEIGHT));
        let (mut at_once, mut single) = (estimator(), estimator());
        for (arrived, lost) in [(1, 3), (1, 0), (5, 1), (0, 2)] {
            at_once.update(arrived, lost);
            (0..arrived).for_each(|_| single.update(1, 0));
            (0..lost).for_each(|_| single.update(0, 1));
        }
        let difference = at_once.probability() - single.probability();
        assert!(difference.abs() < 1e-12, "{difference}");
        // p ← p(1 − µ)² + µ of one loss and the packet that told of it.
        let before = single.probability();
        single.update(1, 1);
        let expected = before * (1.0 - WEIGHT).powi(2) + WEIGHT;
        assert!((single.probability() - expected).abs() < 1e-12);
    }
}
