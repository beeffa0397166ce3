//! How many packets bring as many arrivals as are needed.
//!
//! Arrivals scatter. Sending the number expected to be enough would be too much for half of the
//! blocks, and what arrives beyond need is wasted; falling short costs a round trip, in which
//! other blocks are sent. So as long as the window has room a plan stays below what is expected to be
//! enough, and the answer to its last packet says what is missing.

/// Arrivals that the estimate of the loss remembers: its standard error stays well below the
/// scatter of a block's arrivals.
const MEMORY: f64 = 512.0;
/// One report moves the estimate by at most this factor for each arrival it tells of: a blackout
/// is no loss rate.
const CLIP: f64 = 8.0;
/// Reports of the first so many arrivals are taken as they are.
const START: f64 = 32.0;
/// Standard deviations of the arrivals that a plan stays below the need.
pub(super) const CAUTION: f64 = 1.5;

/// Packets sent for each that arrives, 1 / (1 − p).
#[derive(Clone, Copy, Debug)]
pub(super) struct PerArrival {
    mean: f64,
    seen: f64,
}

impl PerArrival {
    pub fn new() -> Self {
        Self {
            mean: 1.0,
            seen: 0.0,
        }
    }

    /// Of `sent` packets in a row `arrived` have arrived.
    pub fn update(&mut self, sent: u64, arrived: u64) {
        if arrived == 0 {
            return;
        }
        let arrived = arrived as f64;
        let mut sample = (sent as f64 / arrived).max(1.0);
        if self.seen > START {
            sample = sample.min(CLIP * self.mean);
        }
        self.seen = (self.seen + arrived).min(MEMORY);
        self.mean += (arrived / self.seen).min(1.0) * (sample - self.mean);
    }

    pub fn get(&self) -> f64 {
        self.mean
    }

    /// Loss rate p.
    pub fn loss(&self) -> f64 {
        1.0 - 1.0 / self.mean
    }

    /// How many of `sent` packets arrive: `caution` standard deviations more than the mean.
    pub fn arriving(&self, sent: f64, caution: f64) -> f64 {
        let q = 1.0 / self.mean;
        let scatter = (sent * q * (1.0 - q)).sqrt();
        (sent * q + caution.max(0.0) * scatter).min(sent)
    }

    /// Packets to send for `needed` arrivals, with the mean `caution` standard deviations below
    /// (if negative: above) the need. Never fewer than `needed` round up to: those cannot be
    /// too many.
    pub fn plan(&self, needed: f64, caution: f64) -> u32 {
        let q = 1.0 / self.mean;
        let half = caution * (q * (1.0 - q)).sqrt() / 2.0;
        // n q + caution √(n q (1 − q)) = needed, solved for √n.
        let root = ((half * half + q * needed).sqrt() - half) / q;
        let n = root * root;
        let n = if caution > 0.0 { n.floor() } else { n.ceil() };
        n.max(needed.ceil()).clamp(1.0, 1e9) as u32
    }
}
