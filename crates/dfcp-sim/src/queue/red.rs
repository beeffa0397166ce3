//! Random early detection: Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993; the gentle slope above the upper
//! threshold is Floyd's of 2000. The average counts packets, not bytes.
//!
//! Only additions, multiplications and divisions touch the average, so it is the same on every
//! machine.

use dfcp_proto::{Instant, Rate};

use super::config::RedConfig;
use crate::packet::{Packet, Queued};
use crate::random::Random;

#[derive(Clone, Debug)]
pub(super) struct Red {
    config: RedConfig,
    /// The average queue, packets.
    average: f64,
    /// Packets since the last one dropped or marked early; none while the average is low.
    count: Option<u32>,
    idle_since: Option<Instant>,
    random: Random,
}

/// What becomes of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Mark,
    Drop,
}

impl Red {
    pub(super) fn new(config: RedConfig, random: Random) -> Self {
        Self {
            config,
            average: 0.0,
            count: None,
            idle_since: Some(Instant::ZERO),
            random,
        }
    }

    /// Judges a packet that finds `queued` packets in the queue of a transmitter of this rate.
    pub(super) fn judge<P: Packet>(
        &mut self,
        now: Instant,
        queued: usize,
        rate: Option<Rate>,
        item: &Queued<P>,
    ) -> Verdict {
        self.update_average(now, queued, rate);
        let probability = self.initial_probability();
        if probability <= 0.0 {
            self.count = None;
            return Verdict::Accept;
        }
        if probability >= 1.0 {
            self.count = Some(0);
            return Verdict::Drop;
        }
        if !self.draw(probability) {
            return Verdict::Accept;
        }
        if self.config.ecn && item.packet.ecn().is_capable() {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// The queue has emptied.
    pub(super) fn idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    #[cfg(test)]
    pub(super) fn average(&self) -> f64 {
        self.average
    }

    /// Moves the average towards the queue; an idle time counts as the small packets that could
    /// have been sent in it.
    fn update_average(&mut self, now: Instant, queued: usize, rate: Option<Rate>) {
        let weight = self.config.weight;
        match self.idle_since.take() {
            Some(since) => {
                let idle = now.saturating_since(since);
                let packets = rate.map_or(u64::MAX, |rate| {
                    rate.bytes_in(idle) / u64::from(self.config.mean_packet.max(1))
                });
                self.average *= power(1.0 - weight, packets);
            }
            None => self.average += weight * (queued as f64 - self.average),
        }
    }

    /// The probability by the average alone (`p_b`).
    fn initial_probability(&self) -> f64 {
        let RedConfig {
            min_threshold: min,
            max_threshold: max,
            max_probability,
            gentle,
            ..
        } = self.config;
        let average = self.average;
        if average < min {
            0.0
        } else if average < max {
            max_probability * (average - min) / (max - min)
        } else if gentle && average < 2.0 * max {
            max_probability + (1.0 - max_probability) * (average - max) / max
        } else {
            1.0
        }
    }

    /// Whether this packet is the one: the count spreads them evenly (`p_a`), over 1 to `1 / p_b`
    /// packets.
    fn draw(&mut self, probability: f64) -> bool {
        let count = self.count.map_or(0, |count| count.saturating_add(1));
        let left = 1.0 - f64::from(count) * probability;
        let chosen = left <= 0.0 || self.random.chance(probability / left);
        self.count = Some(if chosen { 0 } else { count });
        chosen
    }
}

/// `base` to the power of `exponent`, by squaring.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}
