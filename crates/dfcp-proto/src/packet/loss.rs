//! How many packets the path loses, as seen by the sender.

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
pub struct LossEstimator {
    delivered: f64,
    lost: f64,
}

/// The estimate remembers about this many packets: enough for a standard error of 0.7 % at 5 %
/// loss, few enough to follow a changing radio link within a second at 10 Mbit/s.
const MEMORY: f64 = 1000.0;

/// Before anything is seen a path may well lose 3 %: one packet in this many.
const PRIOR: f64 = 32.0;

impl Default for LossEstimator {
    fn default() -> Self {
        // One success seen stands for the handshake that had to work before.
        Self {
            delivered: 1.0,
            lost: 0.0,
        }
    }
}

impl LossEstimator {
    /// Counts packets that arrived and packets that were lost.
    pub fn update(&mut self, delivered: u64, lost: u64) {
        let n = (delivered + lost) as f64;
        let keep = (1.0 - n / MEMORY).max(0.0);
        self.delivered = self.delivered * keep + delivered as f64;
        self.lost = self.lost * keep + lost as f64;
    }

    /// A loss turned out to be a late arrival.
    pub fn undo_loss(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
        self.delivered += 1.0;
    }

    /// The estimate with its uncertainty.
    pub fn estimate(&self) -> Loss {
        let cautious = (self.lost + 1.0) / (self.lost + self.delivered + PRIOR);
        let mean = self.probability();
        Loss {
            mean,
            cautious: cautious.max(mean),
        }
    }

    /// Loss probability, below 1.
    pub fn probability(&self) -> f64 {
        (self.lost / (self.lost + self.delivered).max(1.0)).clamp(0.0, 0.98)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_change_within_its_memory() {
        let mut loss = LossEstimator::default();
        for _ in 0..500 {
            loss.update(90, 10);
        }
        assert!((loss.probability() - 0.1).abs() < 0.005);
        for _ in 0..50 {
            loss.update(50, 50);
        }
        assert!((loss.probability() - 0.5).abs() < 0.02);
    }
}
