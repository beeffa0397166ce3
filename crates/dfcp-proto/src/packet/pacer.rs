//! Spreads packets over time: a token bucket filled at the rate controller's rate.

use crate::time::{Duration, Instant, Rate};

/// Packets leave in groups of about this length, so that one wake-up and one system call serve
/// several (drivers' timers are no finer than a millisecond).
const QUANTUM: Duration = Duration::from_micros(1000);
/// A driver that wakes up late may catch up on this much.
const CATCH_UP: Duration = Duration::from_millis(4);

/// Token bucket; tokens are bytes.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    tokens: f64,
    updated: Instant,
    packet: u64,
}

impl Pacer {
    /// Starts with `burst` bytes that may go at once.
    pub fn new(now: Instant, burst: u64, packet: u64) -> Self {
        Self {
            rate: Rate::ZERO,
            tokens: burst as f64,
            updated: now,
            packet,
        }
    }

    /// The rate followed.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Follows the controller: `rate` from now on, for packets of about `packet` bytes.
    pub fn set(&mut self, now: Instant, rate: Rate, packet: u64) {
        self.refill(now);
        self.rate = rate;
        self.packet = packet;
    }

    fn capacity(&self) -> f64 {
        (self.rate.bytes_in(CATCH_UP)).max(2 * self.packet) as f64
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.updated);
        self.updated = self.updated.max(now);
        let filled = self.tokens + self.rate.as_bps() as f64 / 8.0 * elapsed.as_secs_f64();
        // A starting burst may be above capacity; it is spent, never refilled.
        self.tokens = filled.min(self.capacity().max(self.tokens));
    }

    /// Bytes that may leave now.
    pub fn available(&mut self, now: Instant) -> u64 {
        self.refill(now);
        self.tokens.max(0.0) as u64
    }

    /// Counts `bytes` as sent.
    pub fn consume(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    /// When a worthwhile group may leave, seen from the last refill; `None` while the rate is
    /// zero.
    pub fn next_departure(&self) -> Option<Instant> {
        let quantum = self
            .rate
            .bytes_in(QUANTUM)
            .clamp(self.packet, 64 * self.packet) as f64;
        let missing = (quantum - self.tokens).max(0.0).ceil() as u64;
        // A fast path moves a byte in less than the clock can tell: time must pass all the same.
        let least = Duration::from_nanos(u64::from(missing > 0));
        (self.rate > Rate::ZERO).then(|| self.updated + self.rate.time_for(missing).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as a driver would for `time` and returns the bytes sent.
    fn drive(pacer: &mut Pacer, mut now: Instant, time: Duration) -> u64 {
        let (end, mut sent) = (now + time, 0);
        while now < end {
            while pacer.available(now) >= 1500 {
                pacer.consume(1500);
                sent += 1500;
            }
            now = pacer
                .next_departure()
                .expect("rate is set")
                .max(now + Duration::from_nanos(1));
        }
        sent
    }

    #[test]
    fn long_run_rate_is_the_set_rate() {
        for bps in [200_000, 10_000_000, 10_000_000_000] {
            let now = Instant::from_nanos(5);
            let mut pacer = Pacer::new(now, 0, 1500);
            pacer.set(now, Rate::from_bps(bps), 1500);
            let sent = drive(&mut pacer, now, Duration::from_secs(2)) as f64;
            let expected = bps as f64 / 4.0;
            assert!(
                (sent / expected - 1.0).abs() < 0.02 + 3000.0 / expected,
                "{bps}: {sent}"
            );
        }
    }

    #[test]
    fn a_late_driver_never_gets_more_than_the_catch_up_burst() {
        let mut pacer = Pacer::new(Instant::ZERO, 0, 1500);
        pacer.set(Instant::ZERO, Rate::from_bps(100_000_000), 1500);
        let late = Instant::ZERO + Duration::from_secs(10);
        assert!(pacer.available(late) <= 100_000_000 / 8 * 4 / 1000);
    }
}
