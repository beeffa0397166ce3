//! How many packets the path loses, as seen by the sender.

use super::rules::LossEstimate;

/// How likely a packet is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// Best estimate.
    pub mean: f64,
    /// What it may well be, given how little was seen (a rule of succession).
    pub cautious: f64,
}

impl Loss {
    /// A path known to lose this share.
    pub fn known(probability: f64) -> Self {
        Self {
            mean: probability,
            cautious: probability,
        }
    }
}

/// Exponentially forgetting estimate of the packet loss probability.
#[derive(Clone, Debug)]
pub struct LossEstimator(State);

#[derive(Clone, Debug)]
enum State {
    /// Packets, weighted by their age.
    Counted { delivered: f64, lost: f64 },
    /// The estimate, and the weight µ of a packet; both from 0 to 1.
    Smoothed { p: f64, weight: f64 },
}

/// The estimate remembers about this many packets: enough for a standard error of 0.7 % at 5 %
/// loss, few enough to follow a changing radio link within a second at 10 Mbit/s.
const MEMORY: f64 = 1000.0;

/// Before anything is seen a path may well lose 3 %: one packet in this many.
const PRIOR: f64 = 32.0;

/// No path that loses more is worth sending on.
const MOST: f64 = 0.98;

impl LossEstimator {
    /// An estimator that has seen nothing.
    pub fn new(estimate: LossEstimate) -> Self {
        Self(match estimate {
            // One success seen stands for the handshake that had to work before.
            LossEstimate::Counted => State::Counted {
                delivered: 1.0,
                lost: 0.0,
            },
            LossEstimate::Smoothed(weight) => State::Smoothed {
                p: 0.0,
                weight: if weight > 0.0 { weight.min(1.0) } else { 0.0 },
            },
        })
    }

    /// Counts packets that arrived and packets that were lost.
    pub fn update(&mut self, arrived: u64, missing: u64) {
        match &mut self.0 {
            State::Counted { delivered, lost } => {
                let n = arrived.saturating_add(missing) as f64;
                let keep = (1.0 - n / MEMORY).max(0.0);
                *delivered = *delivered * keep + arrived as f64;
                *lost = *lost * keep + missing as f64;
            }
            State::Smoothed { p, weight } => {
                // Arrivals first, then losses, each one packet: CTCP's (1) and (2) at once.
                let keep = |packets: u64| (1.0 - *weight).powf(packets as f64);
                let lost = keep(missing);
                *p = *p * keep(arrived) * lost + 1.0 - lost;
            }
        }
    }

    /// A loss turned out to be a late arrival.
    pub fn undo_loss(&mut self) {
        match &mut self.0 {
            State::Counted { delivered, lost } => {
                *lost = (*lost - 1.0).max(0.0);
                *delivered += 1.0;
            }
            State::Smoothed { p, weight } => *p = (*p - *weight).max(0.0),
        }
    }

    /// The estimate with its uncertainty.
    pub fn estimate(&self) -> Loss {
        let mean = self.probability();
        match &self.0 {
            State::Counted { delivered, lost } => {
                let cautious = (lost + 1.0) / (lost + delivered + PRIOR);
                Loss {
                    mean,
                    cautious: cautious.max(mean),
                }
            }
            State::Smoothed { .. } => Loss::known(mean),
        }
    }

    /// Loss probability, below 1.
    pub fn probability(&self) -> f64 {
        let p = match &self.0 {
            State::Counted { delivered, lost } => lost / (lost + delivered).max(1.0),
            State::Smoothed { p, .. } => *p,
        };
        p.clamp(0.0, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
