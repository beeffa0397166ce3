//! CUBIC (RFC 9438): after a loss at W_max the window is C(t−K)³ + W_max, t since the reduction,
//! or what Reno with the same reduction would have, if that is more.

use super::hystart::HyStart;
use super::{Ack, Window};
use crate::tcp::config::TcpConfigError;
use dfcp_proto::{Duration, Instant};

/// Segments per second cubed.
const C: f64 = 0.4;

/// How long Linux 2.6.26 keeps what it computed of growth while the window stays: HZ/32.
const KEPT: Duration = Duration::from_micros(31_250);

/// Which CUBIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CubicVariant {
    /// RFC 9438.
    #[default]
    Rfc9438,
    /// CUBIC 2.2 of Linux 2.6.26: looks ahead by the least round-trip time, its estimate of Reno
    /// never speeds up, and above target it grows by one segment in a hundred windows. Without
    /// [`CubicConfig::keeps_growth`] it is faster than Linux on paths of a millisecond with much
    /// loss.
    Linux2626,
}

/// The parameters of CUBIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicConfig {
    /// What stays of the window: 0.7; Linux 2.6.26 has 717/1024, ns-2.35 819/1024.
    pub beta: f64,
    /// Whether flows below their last maximum give up more, so that newcomers gain (§4.7).
    pub fast_convergence: bool,
    /// Whether slow start ends when delay rises (HyStart++, RFC 9406).
    pub hystart: bool,
    /// Which CUBIC.
    pub variant: CubicVariant,
    /// Whether growth is computed anew only when the window has another whole number of segments,
    /// or 1/32 s later, as Linux does, whose window is a whole number; of the Linux variant.
    pub keeps_growth: bool,
}

impl Default for CubicConfig {
    fn default() -> Self {
        Self {
            beta: 0.7,
            fast_convergence: true,
            hystart: false,
            variant: CubicVariant::Rfc9438,
            keeps_growth: false,
        }
    }
}

impl CubicConfig {
    /// CUBIC as in Linux 2.6.26: the papers' baseline.
    pub fn linux_2_6_26() -> Self {
        Self {
            beta: 717.0 / 1024.0,
            variant: CubicVariant::Linux2626,
            ..Self::default()
        }
    }

    pub(in crate::tcp) fn validate(&self) -> Result<(), TcpConfigError> {
        let (low, high) = (0.1, 0.99);
        if !(low..=high).contains(&self.beta) {
            return Err(TcpConfigError::Factor {
                name: "beta",
                value: self.beta,
                low,
                high,
            });
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(in crate::tcp) struct Cubic {
    config: CubicConfig,
    hystart: Option<HyStart>,
    /// The window at the last congestion, lowered by fast convergence; zero for none.
    last_max: f64,
    /// The window just before the last reduction (cwnd_prior).
    prior: f64,
    epoch: Option<Epoch>,
    /// What was computed of growth last.
    kept: Option<Kept>,
    /// Reno's segments a round trip for the same β.
    alpha: f64,
}

/// Growth as computed once.
#[derive(Clone, Copy, Debug)]
struct Kept {
    at: Instant,
    /// Whole segments of the window.
    segments: f64,
    /// Segments of growth for each delivered.
    share: f64,
}

/// One congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// The window at the plateau, W_max.
    origin: f64,
    /// Seconds to get there.
    k: f64,
    /// What Reno would have, W_est.
    reno: f64,
}

impl Cubic {
    pub fn new(config: CubicConfig) -> Self {
        Self {
            hystart: config.hystart.then(HyStart::new),
            last_max: 0.0,
            prior: f64::INFINITY,
            epoch: None,
            kept: None,
            alpha: 3.0 * (1.0 - config.beta) / (1.0 + config.beta),
            config,
        }
    }

    #[inline]
    pub fn observe(&mut self, window: &mut Window, ack: &Ack) {
        if let Some(hystart) = &mut self.hystart
            && window.in_slow_start()
        {
            hystart.observe(window, ack);
        }
    }

    #[inline]
    pub fn slow_start(&self, window: &mut Window, delivered: f64) -> f64 {
        match &self.hystart {
            Some(hystart) => {
                let divisor = hystart.divisor();
                window.slow_start(delivered / divisor) * divisor
            }
            None => window.slow_start(delivered),
        }
    }

    #[inline]
    pub fn avoid(&mut self, window: &mut Window, ack: &Ack, delivered: f64) {
        let cwnd = window.cwnd;
        let epoch = match &mut self.epoch {
            Some(epoch) => epoch,
            none => none.insert(Epoch::new(ack.now, cwnd, self.last_max)),
        };
        match self.config.variant {
            CubicVariant::Rfc9438 => {
                let target = epoch.target(ack.now + ack.smoothed_rtt);
                let alpha = if epoch.reno >= self.prior {
                    1.0
                } else {
                    self.alpha
                };
                epoch.reno += alpha * delivered / cwnd;
                window.cwnd = if target < epoch.reno {
                    epoch.reno.max(cwnd)
                } else {
                    cwnd + (target.clamp(cwnd, 1.5 * cwnd) - cwnd) / cwnd * delivered
                };
            }
            CubicVariant::Linux2626 => {
                // Linux counts acknowledgements for Reno's share: one that ends a recovery is one,
                // whatever it acknowledges, and growth is kept of it.
                let counted = match self.config.keeps_growth {
                    true => delivered.min(1.0),
                    false => delivered,
                };
                epoch.reno += self.alpha * counted / cwnd;
                let segments = cwnd.floor();
                let still = |kept: &Kept| {
                    kept.segments == segments && ack.now.saturating_since(kept.at) <= KEPT
                };
                let kept = match self.kept.filter(still) {
                    Some(kept) if self.config.keeps_growth => kept,
                    _ => Kept {
                        at: ack.now,
                        segments,
                        share: epoch.linux_share(ack.now + ack.min_rtt, cwnd),
                    },
                };
                self.kept = Some(kept);
                window.cwnd += kept.share * delivered;
            }
        }
    }

    /// The share of `cwnd` that stays.
    pub fn on_congestion(&mut self, cwnd: f64) -> f64 {
        let beta = self.config.beta;
        self.prior = cwnd;
        // A part of a segment below is no flow that yields: in Linux both are the same.
        let (now, before) = match self.config.keeps_growth {
            true => (cwnd.floor(), self.last_max.floor()),
            false => (cwnd, self.last_max),
        };
        self.last_max = if self.config.fast_convergence && now < before {
            cwnd * (1.0 + beta) / 2.0
        } else {
            cwnd
        };
        self.epoch = None;
        self.hystart = None;
        beta
    }

    /// After a timeout the next stage starts from its own plateau (§4.8).
    pub fn on_timeout(&mut self) {
        self.last_max = 0.0;
        self.epoch = None;
    }
}

impl Epoch {
    fn new(start: Instant, cwnd: f64, last_max: f64) -> Self {
        Self {
            start,
            origin: last_max.max(cwnd),
            k: ((last_max - cwnd).max(0.0) / C).cbrt(),
            reno: cwnd,
        }
    }

    /// Segments of growth for each delivered, as Linux 2.6.26 has them.
    fn linux_share(&self, time: Instant, cwnd: f64) -> f64 {
        let target = self.target(time);
        let growth = if target > cwnd {
            target.min(1.5 * cwnd) - cwnd
        } else {
            0.01
        };
        // At most one segment for each delivered: slow start's speed.
        (growth.max(self.reno - cwnd) / cwnd).min(1.0)
    }

    /// W_cubic at `time`.
    #[inline]
    fn target(&self, time: Instant) -> f64 {
        let t = time.saturating_since(self.start).as_secs_f64() - self.k;
        C * t * t * t + self.origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_proto::Duration;

    const RTT: Duration = Duration::from_millis(100);

    /// The window every RTT for `rounds` round trips after a reduction from `from`.
    fn course(config: CubicConfig, from: f64, rounds: u32) -> Vec<f64> {
        let mut cubic = Cubic::new(config);
        let mut window = Window {
            cwnd: from,
            ssthresh: from,
        };
        window.ssthresh = from * cubic.on_congestion(from);
        window.cwnd = window.ssthresh;
        let mut now = Instant::ZERO;
        (0..rounds)
            .map(|_| {
                let segments = window.cwnd as u32;
                for _ in 0..segments {
                    cubic.avoid(&mut window, &Ack::at(now), 1.0);
                    now += RTT / segments;
                }
                window.cwnd
            })
            .collect()
    }

    #[test]
    fn follows_the_cubic() {
        for config in [CubicConfig::default(), CubicConfig::linux_2_6_26()] {
            let w_max = 1000.0;
            let k = (w_max * (1.0 - config.beta) / C).cbrt();
            for (round, cwnd) in course(config, w_max, 150).into_iter().enumerate() {
                let t = (round + 1) as f64 * 0.1;
                let expected = C * (t - k).powi(3) + w_max;
                // The window trails its target by less than a round trip's growth.
                let slack = 3.0 * C * (t - k).powi(2) * 0.1 + 2.0;
                assert!(
                    (cwnd - expected).abs() < slack,
                    "{:?} at {t} s: {cwnd}, not {expected}",
                    config.variant
                );
            }
        }
    }

    #[test]
    fn small_windows_grow_as_reno_with_the_same_share() {
        // W = 20: the plateau is 2.5 s away, Reno's share gives 6 segments in 11 round trips.
        let course = course(CubicConfig::default(), 20.0, 10);
        let alpha = 3.0 * 0.3 / 1.7;
        assert!(
            (course[9] - (14.0 + 10.0 * alpha)).abs() < 0.5,
            "{course:?}"
        );
    }

    #[test]
    fn kept_growth_waits_a_32nd_of_a_second_after_a_reduction() {
        // 32 segments in a round trip of 1 ms: Reno's share grows each round trip, what is kept of
        // the first acknowledgement after the reduction does not for 31 of them.
        let window_after = |keeps_growth: bool, rounds: u64| {
            let config = CubicConfig {
                keeps_growth,
                ..CubicConfig::linux_2_6_26()
            };
            let mut cubic = Cubic::new(config);
            let mut window = Window {
                cwnd: 32.0,
                ssthresh: 32.0,
            };
            for millisecond in 0..rounds {
                for _ in 0..window.cwnd as u64 {
                    let now = Instant::from_nanos(millisecond * 1_000_000);
                    cubic.avoid(&mut window, &Ack::at(now), 1.0);
                }
            }
            window.cwnd
        };
        assert!(window_after(false, 31) > 40.0);
        assert!(window_after(true, 31) < 33.0);
        assert!(window_after(true, 40) > 40.0);
    }

    #[test]
    fn a_part_of_a_segment_is_no_fast_convergence_in_linux() {
        for (keeps_growth, plateau) in
            [(false, 933.4 * (1.0 + 717.0 / 1024.0) / 2.0), (true, 933.4)]
        {
            let mut cubic = Cubic::new(CubicConfig {
                keeps_growth,
                ..CubicConfig::linux_2_6_26()
            });
            cubic.on_congestion(933.7);
            cubic.on_congestion(933.4);
            assert_eq!(cubic.last_max, plateau);
        }
    }

    #[test]
    fn fast_convergence_lowers_the_plateau() {
        let mut cubic = Cubic::new(CubicConfig::default());
        assert_eq!(cubic.on_congestion(100.0), 0.7);
        assert_eq!(cubic.last_max, 100.0);
        cubic.on_congestion(80.0);
        assert_eq!(cubic.last_max, 80.0 * 0.85);
        cubic.on_timeout();
        assert_eq!(cubic.last_max, 0.0);
    }
}
