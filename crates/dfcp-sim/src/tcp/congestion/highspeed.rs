//! HighSpeed TCP (RFC 3649): the larger the window, the faster it grows and the less it shrinks.
//!
//! With W the window: p(W) is the response function's loss rate, a straight line on logarithmic
//! axes; b(W) goes from one half to [`HIGH_DECREASE`]; a(W) follows from both (§5).

use super::Window;

const LOW_WINDOW: f64 = 38.0;
const HIGH_WINDOW: f64 = 83_000.0;
const LOW_P: f64 = 1e-3;
const HIGH_P: f64 = 1e-7;
const HIGH_DECREASE: f64 = 0.1;

#[derive(Clone, Debug)]
pub(in crate::tcp) struct HighSpeed {
    /// The whole window that `increase` is for: logarithms are not for every acknowledgement.
    at: f64,
    increase: f64,
}

impl HighSpeed {
    pub fn new() -> Self {
        Self {
            at: 0.0,
            increase: 1.0,
        }
    }

    #[inline]
    pub fn avoid(&mut self, window: &mut Window, delivered: f64) {
        let whole = window.cwnd.floor();
        if whole != self.at {
            self.at = whole;
            self.increase = increase(whole);
        }
        window.cwnd += self.increase * delivered / window.cwnd;
    }

    /// What is left of a window of `cwnd` segments.
    pub fn beta(&self, cwnd: f64) -> f64 {
        1.0 - decrease(cwnd)
    }
}

/// Where `window` lies between the two ends, on a logarithmic axis.
fn position(window: f64) -> f64 {
    ((window / LOW_WINDOW).ln() / (HIGH_WINDOW / LOW_WINDOW).ln()).clamp(0.0, 1.0)
}

/// b(W).
fn decrease(window: f64) -> f64 {
    0.5 + (HIGH_DECREASE - 0.5) * position(window)
}

/// a(W).
fn increase(window: f64) -> f64 {
    if window <= LOW_WINDOW {
        return 1.0;
    }
    let window = window.min(HIGH_WINDOW);
    let p = (LOW_P.ln() + (HIGH_P / LOW_P).ln() * position(window)).exp();
    let b = decrease(window);
    (window * window * p * 2.0 * b / (2.0 - b)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_rfc() {
        // RFC 3649, §5 and appendix B: w, a(w), b(w).
        for (w, a, b) in [
            (38.0, 1.0, 0.50),
            (118.0, 2.0, 0.44),
            (1058.0, 8.0, 0.33),
            (9082.0, 28.0, 0.22),
            (83_000.0, 72.0, 0.10),
        ] {
            // The table gives the first window at which the rounded increase is reached.
            assert!((increase(w) - a).abs() <= 1.0, "a({w}) = {}", increase(w));
            assert!((decrease(w) - b).abs() <= 0.01, "b({w}) = {}", decrease(w));
        }
    }
}
