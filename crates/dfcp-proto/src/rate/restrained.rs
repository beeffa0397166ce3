//! A bound on controllers that follow an order instead of the path: a wrong order must not become a
//! flood (RFC 8085 §3.1: applications must not cause congestion collapse).

use super::{BlockSent, Codepoint, Departure, Feedback, RateController, leave_to_inner};
use crate::time::{Duration, Instant, Rate};

/// Loss is looked at over this, or a round trip if that is longer.
const SPAN: Duration = Duration::from_millis(200);
/// How long it may be bad before the rate is cut: outages of a radio path are shorter, and a network
/// that is flooded for longer is somebody else's trouble.
const PATIENCE: Duration = Duration::from_secs(2);
/// Loss that is bad: of what is sent, more is wasted than is of use.
const BAD: f64 = 0.5;
/// Loss at which a path that was cut carries more again, perhaps.
const GOOD: f64 = 0.05;
/// How much more is tried then. It loses a fifth where the path carries no more.
const RAISE: f64 = 1.25;

/// A controller that does not back off, until more than half of what it sends is lost for two seconds:
/// then it is held to what was delivered. If that does not help, the loss is not of its making, and it
/// is cut no further. Where next to nothing is lost for two seconds, a quarter more is tried, up to
/// the order.
#[derive(Debug)]
pub struct Restrained {
    inner: Box<dyn RateController>,
    cap: Option<Rate>,
    rtt: Duration,
    packet: u64,
    span: Span,
    /// Since when too much is lost, or next to nothing.
    bad_since: Option<Instant>,
    good_since: Option<Instant>,
    /// It was cut, and too much is lost still.
    in_vain: bool,
}

/// What was learnt since.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// Unknown before the first feedback.
    start: Option<Instant>,
    acked: u64,
    lost: u64,
    /// Bytes delivered at its start, and now.
    before: u64,
    delivered: u64,
}

impl Restrained {
    /// Does as `inner` does while that serves somebody.
    pub fn new(inner: Box<dyn RateController>) -> Self {
        Self {
            inner,
            cap: None,
            rtt: Duration::from_millis(100),
            packet: 1500,
            span: Span::default(),
            bad_since: None,
            good_since: None,
            in_vain: false,
        }
    }

    fn learn(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        let span = &mut self.span;
        span.acked += feedback.acked_packets;
        span.lost += feedback.lost_packets;
        span.lost = span.lost.saturating_sub(feedback.spurious_packets);
        if let Some(newest) = &feedback.newest {
            span.delivered = span.delivered.max(newest.delivered_total);
        }
        let start = *span.start.get_or_insert(now);
        let time = now.saturating_since(start);
        let packets = span.acked + span.lost;
        if time < SPAN.max(self.rtt) || packets == 0 {
            return;
        }
        let loss = span.lost as f64 / packets as f64;
        let delivered = Rate::from_transfer(span.delivered - span.before, time);
        *span = Span {
            start: Some(now),
            before: span.delivered,
            delivered: span.delivered,
            ..Span::default()
        };
        self.judge(now, start, loss, delivered);
    }

    fn judge(&mut self, now: Instant, start: Instant, loss: f64, delivered: Rate) {
        let lasts = |since: Instant| now.saturating_since(since) >= PATIENCE;
        if loss > BAD {
            self.good_since = None;
            let since = *self.bad_since.get_or_insert(start);
            if lasts(since) && !self.in_vain {
                // A packet a round trip at least, or nothing would be learnt any more.
                let least = Rate::from_transfer(self.packet, self.rtt.max(SPAN));
                self.cap = Some(delivered.max(least).min(self.inner.pacing_rate()));
                self.in_vain = true;
            }
            return;
        }
        (self.bad_since, self.in_vain) = (None, false);
        let Some(cap) = self.cap.filter(|_| loss < GOOD) else {
            self.good_since = None;
            return;
        };
        if lasts(*self.good_since.get_or_insert(start)) {
            self.good_since = None;
            let raised = cap.mul_f64(RAISE);
            self.cap = Some(raised).filter(|raised| *raised < self.inner.pacing_rate());
        }
    }
}

impl RateController for Restrained {
    leave_to_inner!(
        on_pair,
        on_sent,
        on_block_acked,
        departure,
        is_probing,
        ecn,
        on_timeout,
        round_trip,
        refused_reports,
        on_order,
        is_bounded,
        initial_burst,
    );

    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        (self.rtt, self.packet) = (rtt, packet_size);
        self.inner.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.rtt = feedback.rtt.smoothed();
        self.inner.on_feedback(feedback);
        self.learn(feedback);
    }

    fn pacing_rate(&self) -> Rate {
        let rate = self.inner.pacing_rate();
        self.cap.map_or(rate, |cap| rate.min(cap))
    }

    /// Of a rate that was cut four round trips' worth, as of a fixed one.
    fn window(&self) -> u64 {
        let window = self.inner.window();
        self.cap.map_or(window, |cap| {
            let flight = cap.bytes_in(self.rtt.saturating_mul(4));
            window.min(flight.saturating_add(64 * self.packet))
        })
    }

    fn max_burst(&self) -> u64 {
        let burst = self.inner.max_burst();
        self.cap.map_or(burst, |cap| {
            let millisecond = cap.bytes_in(Duration::from_millis(1));
            burst.min(millisecond.max(self.packet))
        })
    }

    fn bandwidth(&self) -> Rate {
        self.cap.unwrap_or_else(|| self.inner.bandwidth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::RttEstimator;
    use crate::rate::{AckPoint, FixedRate, MaxRate};

    const PACKET: u64 = 1000;

    /// Feedback each 50 ms from a path that loses `own` of all packets and carries `carried` at most of
    /// the rest; the rates at which it was sent to, one a second.
    fn rates(
        inner: Box<dyn RateController>,
        seconds: usize,
        path: impl Fn(usize) -> (f64, u64),
    ) -> Vec<u64> {
        let mut control = Restrained::new(inner);
        let (rtt, begin) = (RttEstimator::default(), Instant::from_nanos(0));
        control.on_established(begin, Duration::from_millis(50), PACKET);
        let (mut delivered, mut rates) = (0, Vec::new());
        for step in 1..=seconds * 20 {
            let (own, carried) = path(step / 20);
            let now = begin + Duration::from_millis(50 * step as u64);
            let rate = control.pacing_rate().as_bps().min(1_000_000_000) as f64;
            let arrive = (rate * (1.0 - own)).min(carried as f64);
            let packets = |bps: f64| (bps / 20.0 / 8.0 / PACKET as f64).round() as u64;
            delivered += packets(arrive) * PACKET;
            let mut feedback = Feedback::new(now, &rtt);
            feedback.acked_packets = packets(arrive);
            feedback.lost_packets = packets(rate) - packets(arrive);
            feedback.newest = Some(AckPoint::new(Duration::ZERO, now, delivered, delivered));
            control.on_feedback(&feedback);
            if step % 20 == 0 {
                rates.push(control.pacing_rate().as_bps());
            }
        }
        rates
    }

    fn fixed(mbit: u64) -> Box<dyn RateController> {
        Box::new(FixedRate::new(Rate::from_bps(mbit * 1_000_000)))
    }

    #[test]
    fn a_flood_ends_after_two_seconds() {
        for inner in [fixed(800), Box::new(MaxRate)] {
            let rates = rates(inner, 30, |_| (0.0, 10_000_000));
            assert!(
                rates[0] >= 800_000_000 && rates[1] >= 800_000_000,
                "{rates:?}"
            );
            // What is tried again stays near what is delivered.
            assert!(
                rates[3..].iter().all(|rate| *rate <= 16_000_000),
                "{rates:?}"
            );
            assert!(
                rates[3..].iter().all(|rate| *rate >= 9_000_000),
                "{rates:?}"
            );
        }
    }

    #[test]
    fn loss_of_the_path_itself_is_no_reason_to_slow_down_for_ever() {
        let half = rates(fixed(10), 30, |_| (0.45, u64::MAX));
        assert!(half.iter().all(|rate| *rate == 10_000_000), "{half:?}");
        // Cutting helps nothing here, and happens once.
        let most = rates(fixed(10), 30, |_| (0.6, u64::MAX));
        assert!(most.iter().all(|rate| *rate >= 3_500_000), "{most:?}");
    }

    #[test]
    fn an_outage_is_forgotten() {
        let rates = rates(fixed(10), 60, |second| match second {
            5..9 => (0.9, u64::MAX),
            _ => (0.0, u64::MAX),
        });
        assert!(rates[8] < 5_000_000, "{rates:?}");
        assert_eq!(rates[59], 10_000_000, "{rates:?}");
    }
}
