//! H-TCP (draft-leith-tcp-htcp-06): growth by the time since the last congestion, reduction by how
//! much of the round trip is queue.

use super::{Ack, Window};
use dfcp_proto::{Duration, Instant};

/// How long after congestion growth stays Reno's.
const LOW_SPEED: Duration = Duration::from_secs(1);
const BETA_MIN: f64 = 0.5;
const BETA_MAX: f64 = 0.8;

#[derive(Clone, Debug)]
pub(in crate::tcp) struct HTcp {
    beta: f64,
    congestion_at: Option<Instant>,
    min_rtt: Duration,
    max_rtt: Duration,
    /// Segments delivered since the last congestion, and the rate before that one.
    delivered: u64,
    last_throughput: f64,
}

impl HTcp {
    pub fn new() -> Self {
        Self {
            beta: BETA_MIN,
            congestion_at: None,
            min_rtt: Duration::MAX,
            max_rtt: Duration::ZERO,
            delivered: 0,
            last_throughput: 0.0,
        }
    }

    #[inline]
    pub fn observe(&mut self, ack: &Ack) {
        self.congestion_at.get_or_insert(ack.now);
        self.delivered += u64::from(ack.delivered);
        if let Some(rtt) = ack.rtt {
            self.min_rtt = self.min_rtt.min(rtt);
            self.max_rtt = self.max_rtt.max(ack.smoothed_rtt);
        }
    }

    #[inline]
    pub fn avoid(&mut self, window: &mut Window, ack: &Ack, delivered: f64) {
        let since = self
            .congestion_at
            .map_or(Duration::ZERO, |at| ack.now.saturating_since(at));
        window.cwnd += increase(since, self.beta) * delivered / window.cwnd;
    }

    /// The share of the window that stays.
    pub fn on_congestion(&mut self, now: Instant) -> f64 {
        let since = self
            .congestion_at
            .map_or(0.0, |at| now.saturating_since(at).as_secs_f64());
        let throughput = if since > 0.0 {
            self.delivered as f64 / since
        } else {
            0.0
        };
        // A path whose throughput just changed by a fifth is shared anew: make room.
        let steady = (throughput - self.last_throughput).abs() <= 0.2 * self.last_throughput;
        self.beta = if steady && !self.max_rtt.is_zero() {
            let ratio = self.min_rtt.as_secs_f64() / self.max_rtt.as_secs_f64();
            ratio.clamp(BETA_MIN, BETA_MAX)
        } else {
            BETA_MIN
        };
        self.last_throughput = throughput;
        self.delivered = 0;
        self.congestion_at = Some(now);
        // The maximum fades, so that a queue of long ago is forgotten.
        if self.max_rtt > self.min_rtt {
            self.max_rtt = self.min_rtt + (self.max_rtt - self.min_rtt).mul_f64(0.95);
        }
        self.beta
    }
}

/// Segments a round trip, `since` the last congestion.
fn increase(since: Duration, beta: f64) -> f64 {
    let alpha = match since.checked_sub(LOW_SPEED) {
        None => 1.0,
        Some(beyond) => {
            let delta = beyond.as_secs_f64();
            1.0 + 10.0 * delta + delta * delta / 4.0
        }
    };
    2.0 * (1.0 - beta) * alpha
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_the_time_since_congestion() {
        let at = |ms| increase(Duration::from_millis(ms), 0.5);
        assert_eq!(at(500), 1.0);
        assert_eq!(at(1000), 1.0);
        assert_eq!(at(2000), 11.25);
        assert_eq!(at(5000), 45.0);
        assert!((increase(Duration::from_secs(2), 0.8) - 0.4 * 11.25).abs() < 1e-12);
    }

    #[test]
    fn shrinks_by_the_share_of_the_queue() {
        let mut htcp = HTcp::new();
        let mut now = Instant::ZERO;
        let mut period = |htcp: &mut HTcp, segments: u32, rtts: [u64; 2]| {
            for rtt in rtts {
                now += Duration::from_millis(500);
                htcp.observe(&Ack {
                    delivered: segments / 2,
                    rtt: Some(Duration::from_millis(rtt)),
                    smoothed_rtt: Duration::from_millis(rtt),
                    ..Ack::at(now)
                });
            }
            htcp.on_congestion(now)
        };
        assert_eq!(period(&mut htcp, 1000, [60, 100]), 0.5, "the first time");
        period(&mut htcp, 1000, [60, 100]);
        let beta = period(&mut htcp, 1000, [60, 100]);
        assert!((beta - 0.6).abs() < 1e-9, "{beta}");
        assert_eq!(period(&mut htcp, 500, [60, 100]), 0.5, "throughput fell");
    }
}
