//! Controllers that follow an order instead of the path. Opt-in: they do not back off.

use super::{Feedback, RateController};
use crate::time::{Duration, Instant, Rate};

/// Sends at the rate that an operator or a network controller set.
#[derive(Clone, Debug)]
pub struct FixedRate {
    rate: Rate,
    rtt: Duration,
    packet: u64,
}

impl FixedRate {
    /// `rate` counts UDP payload bits.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            rtt: Duration::from_millis(100),
            packet: 1500,
        }
    }
}

impl RateController for FixedRate {
    fn on_established(&mut self, _now: Instant, rtt: Duration, packet_size: u64) {
        (self.rtt, self.packet) = (rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.rtt = feedback.rtt.smoothed();
    }

    fn pacing_rate(&self) -> Rate {
        self.rate
    }

    fn is_bounded(&self) -> bool {
        true
    }

    /// Four round trips' worth: a path that answers no more is not flooded for long.
    fn window(&self) -> u64 {
        let flight = self.rate.bytes_in(self.rtt.saturating_mul(4));
        flight.saturating_add(64 * self.packet)
    }

    fn initial_burst(&self) -> u64 {
        2 * self.packet
    }
}

/// Sends at the rate that a network controller ordered last (DFCP-J §7.6), whatever the path does:
/// how well and how fast the controller knows the available bandwidth is its own affair.
#[derive(Clone, Debug)]
pub struct Ordered(FixedRate);

impl Ordered {
    /// At `initial` until the first order.
    pub fn new(initial: Rate) -> Self {
        Self(FixedRate::new(initial))
    }
}

impl RateController for Ordered {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.0.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.0.on_feedback(feedback);
    }

    fn on_order(&mut self, _now: Instant, rate: Rate) {
        self.0.rate = rate;
    }

    fn pacing_rate(&self) -> Rate {
        self.0.pacing_rate()
    }

    fn window(&self) -> u64 {
        self.0.window()
    }

    fn initial_burst(&self) -> u64 {
        self.0.initial_burst()
    }
}

/// Sends as fast as the host can (DFCP §3.2, "maximum rate"): for networks that share fairly
/// by themselves.
#[derive(Clone, Debug, Default)]
pub struct MaxRate;

impl RateController for MaxRate {
    fn on_established(&mut self, _now: Instant, _rtt: Duration, _packet_size: u64) {}

    fn on_feedback(&mut self, _feedback: &Feedback<'_>) {}

    fn pacing_rate(&self) -> Rate {
        Rate::MAX
    }

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn initial_burst(&self) -> u64 {
        u64::MAX / 2
    }
}
