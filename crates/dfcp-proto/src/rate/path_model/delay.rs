//! Queueing delay: what of the one-way delay is a standing queue that our own rate can change.
//!
//! The raw signal is the one-way delay, offset by the difference of the two clocks, of the newest
//! packet of each acknowledgement. Its minimum over some seconds is the base delay; the minimum over
//! a short span, above the base, is the standing queue (jitter only adds, so a minimum removes most
//! of it; Jiang and Dovrolis, Copa §2.2). Three things can still pass for a queue:
//!
//! * a receiver's clock that runs fast or is set forward: the round trip does not see that clock, so
//!   the queue is at most what the round trip has above its own minimum;
//! * jitter: few samples of a noisy delay have a high minimum, so the span holds as many samples as
//!   the interarrival jitter (RFC 3550 §6.4.1) asks for, less what our own groups of packets explain;
//! * delay that a test has shown not to answer to our rate (a longer route, a link layer that holds
//!   packets back): it becomes the [`floor`](DelayEstimator::set_floor), which sinks slowly.

use super::base::Base;
use super::samples::Samples;
use super::tuning::base::*;
use super::tuning::delay::*;
use crate::rate::AckPoint;
use crate::rate::path_history::BaseDelay;
use crate::time::{Duration, Instant};

/// What the path serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Bytes of a full packet.
    pub packet: f64,
    /// Bytes per second.
    pub rate: f64,
    /// As much as it may serve, if what is lost beyond the known is lost behind the bottleneck.
    pub most: f64,
}

impl Service {
    /// Seconds in which it serves so many bytes.
    fn time_of(self, bytes: f64) -> f64 {
        bytes / self.rate.max(1.0)
    }

    /// Least seconds in which it may serve them.
    fn least_time_of(self, bytes: f64) -> f64 {
        bytes / self.most.max(1.0)
    }

    /// What the delay of a packet differs by from that of the one before, seconds, which nothing explains: packets
    /// arrive as far apart as they were sent from an empty queue, give or take one that was being served, and as far
    /// as what lies between them takes from a busy bottleneck. (Those of a group leave together and wait for each other.)
    /// And a pause that is long enough empties a queue, seen above the delay `base`.
    fn unexplained(self, last: &AckPoint, ack: &AckPoint, base: f64) -> f64 {
        let (before, after) = (last.one_way_delay() - base, ack.one_way_delay() - base);
        let change = after - before;
        let sent = ack.sent_at.saturating_since(last.sent_at).as_secs_f64();
        let between = ack.sent_total.saturating_sub(last.sent_total) as f64;
        let empty = (change.abs() - self.time_of(self.packet)).max(0.0);
        let (least, most) = (self.least_time_of(between), self.time_of(between));
        let busy = (least - sent - change).max(change - (most - sent)).max(0.0);
        if after < NEAR && before + most < sent {
            return after.max(0.0).min(empty).min(busy);
        }
        empty.min(busy)
    }
}

/// See the module's text. Times are seconds.
#[derive(Debug)]
pub(super) struct DelayEstimator {
    base: Base,
    round_trip: Base,
    /// How far the least round trip of late is above the least of the connection, seconds: a queue that stood there
    /// before the first delay was seen, perhaps.
    unseen: f64,
    /// When there was none, or a deep drain last looked for it, and how long after that one may look again.
    certain_at: Option<Instant>,
    doubt_after: Duration,
    /// Interarrival jitter.
    jitter: f64,
    /// Differences seen, as many as count.
    count: u32,
    last: Option<AckPoint>,
    /// Mean difference between the least delays of neighbouring spans, the last one and its time.
    wander: f64,
    last_span: Option<(Instant, f64)>,
    /// Height of the floor above the base delay.
    floor: f64,
    /// Since when the queue has been below half of the floor.
    below_floor: Option<Instant>,
}

impl Default for DelayEstimator {
    fn default() -> Self {
        Self {
            base: Base::new(MEMORY),
            round_trip: Base::new(ROUND_TRIP_MEMORY),
            unseen: 0.0,
            certain_at: None,
            doubt_after: MEMORY,
            jitter: 0.0,
            count: 0,
            last: None,
            wander: 0.0,
            last_span: None,
            floor: 0.0,
            below_floor: None,
        }
    }
}

impl DelayEstimator {
    /// Takes the newest acknowledged packet, the latest round trip and the least of the connection, of which the
    /// handshake's is one, seconds. Returns the queueing delay that this packet saw, floor included.
    pub(super) fn update(
        &mut self,
        now: Instant,
        ack: &AckPoint,
        (round_trip, least_trip): (f64, f64),
        service: Service,
    ) -> f64 {
        let before = self.base.least();
        let wait = longest_drain(ack.one_way_delay() - before, least_trip);
        let one_way = self.base.update(now, ack.one_way_delay(), wait);
        if let Some(last) = self.last.replace(*ack) {
            let difference = service.unexplained(&last, ack, self.base.least());
            self.count = self.count.saturating_add(1);
            let weight = JITTER_WEIGHT.max(1.0 / f64::from(self.count));
            self.jitter += (difference - self.jitter) * weight;
        }
        // A base that rises takes what it rises by from the floor.
        let rise = self.base.least() - before;
        if rise.is_finite() && rise > 0.0 {
            self.floor = (self.floor - rise).max(0.0);
        }
        let there_and_back = self.round_trip.update(now, round_trip, wait);
        // The handshake's packets are smaller.
        self.unseen =
            (self.round_trip.least() - least_trip - service.time_of(service.packet)).max(0.0);
        let certain_at = self.certain_at.get_or_insert(now);
        if one_way < NEAR && self.unseen < NEAR {
            (*certain_at, self.doubt_after) = (now, MEMORY);
        }
        one_way.min(there_and_back)
    }

    /// Mean difference between the least delays of neighbouring spans.
    pub(super) fn wander(&self) -> f64 {
        self.wander
    }

    /// Interarrival jitter.
    pub(super) fn jitter(&self) -> f64 {
        self.jitter
    }

    /// Least round trip of the last seconds.
    pub(super) fn round_trip(&self) -> f64 {
        self.round_trip.least()
    }

    /// A span of `span` seconds may be over: its least delay.
    pub(super) fn end_span(&mut self, now: Instant, least: f64, span: f64) {
        match self.last_span {
            Some((since, _)) if now.saturating_since(since).as_secs_f64() < span => return,
            Some((_, last)) => self.wander += ((least - last).abs() - self.wander) * WANDER_WEIGHT,
            None => {}
        }
        self.last_span = Some((now, least));
    }

    /// What of a standing queue may be delay that varies by itself, for a queue of `target` seconds
    /// to be held: three times the wander of the least delays, as far as the delays of single
    /// packets vary as much. A queue moves too, but not from packet to packet.
    pub(super) fn resolution(&self, target: f64) -> f64 {
        WANDERS * (self.wander.min(self.jitter) - BORNE * target).max(0.0)
    }

    /// The standing queue over the last `span` that may be ours.
    pub(super) fn standing(&self, samples: &Samples, span: f64, target: f64) -> f64 {
        (samples.least_delay(span) - self.floor - self.resolution(target)).max(0.0)
    }

    /// Lets the floor sink towards the delay that is measured, `delay` above the base; a loop of
    /// control takes `settled`.
    pub(super) fn follow(&mut self, now: Instant, delay: f64, elapsed: f64, settled: f64) {
        if self.floor <= 0.0 {
            return;
        }
        if delay < self.floor {
            self.floor -= (self.floor - delay) * (elapsed / FLOOR_TIME).min(1.0);
        }
        if delay > FLOOR_SHARE * self.floor {
            self.below_floor = None;
        } else {
            let since = *self.below_floor.get_or_insert(now);
            if now.saturating_since(since).as_secs_f64() > FLOOR_LOOPS * settled {
                self.floor = delay;
            }
        }
    }

    /// A delay of `height` above the base is not ours.
    pub(super) fn set_floor(&mut self, height: f64) {
        self.floor = height.max(0.0);
        self.below_floor = None;
    }

    /// A queue of `height` was seen: no floor is higher.
    pub(super) fn lower_floor(&mut self, height: f64) {
        if height < self.floor {
            self.set_floor(height);
        }
    }

    /// The floor's height above the base.
    pub(super) fn floor(&self) -> f64 {
        self.floor
    }

    /// The base delays count as seen: whoever leaves the path to others cannot drain their queue.
    pub(super) fn keep_base(&mut self, now: Instant) {
        self.base.keep(now);
        self.round_trip.keep(now);
    }

    /// The base delays are `height` higher from now on.
    pub(super) fn rise(&mut self, height: f64) {
        self.base.rise(height);
        self.round_trip.rise(height);
        self.floor = (self.floor - height).max(0.0);
    }

    /// The base delay is about to be forgotten and nothing as small was seen since.
    pub(super) fn base_is_due(&self, now: Instant) -> bool {
        self.base.is_due(now)
    }

    /// Whether what passes for the base delay may have been seen above a queue that never was empty: the round trip
    /// was shorter once. (Or the way back was, or the route: so one looks less often each time.)
    pub(super) fn base_is_doubtful(&self, now: Instant) -> bool {
        self.certain_at
            .is_some_and(|at| now.saturating_since(at) > self.doubt_after)
    }

    /// The queue that the base delay may hide, seconds.
    pub(super) fn unseen(&self) -> f64 {
        self.unseen
    }

    /// A drain looks for it.
    pub(super) fn is_looked_for(&mut self, now: Instant) {
        self.certain_at = Some(now);
        self.doubt_after = (2 * self.doubt_after).min(DOUBT_AT_MOST);
    }
}

/// How long a drain may take that empties a queue of `queue` seconds, which begins to be heard of, and is over, a round
/// trip later.
fn longest_drain(queue: f64, round_trip: f64) -> Duration {
    let seconds = 2.0 * round_trip + EMPTIED * queue;
    let most = DOUBT_AT_MOST.as_secs_f64();
    Duration::from_secs_f64(seconds.clamp(DRAIN_TIME.as_secs_f64(), most))
}

/// The highest round trip of the last five to ten seconds.
#[derive(Debug, Default)]
pub(super) struct HighRoundTrip {
    /// Kept as the least of the negated values.
    negated: BaseDelay,
}

impl HighRoundTrip {
    pub(super) fn update(&mut self, now: Instant, round_trip: Duration) {
        self.negated.update(now, -round_trip.as_secs_f64());
    }

    /// Seconds; zero before the first.
    pub(super) fn get(&self) -> f64 {
        let high = -self.negated.least();
        if high.is_finite() { high } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service {
        packet: 1500.0,
        rate: 15e6,
        most: 15e6,
    };

    /// Samples every millisecond for `millis`; `delay` gives forward delay and the receiver's clock
    /// error in seconds. Returns the standing queue over 50 ms at the end.
    fn standing(millis: u64, delay: impl Fn(u64) -> (f64, f64)) -> f64 {
        let (mut estimator, mut samples) = (DelayEstimator::default(), Samples::default());
        for ms in 0..millis {
            let sent_at = Instant::ZERO + Duration::from_millis(ms);
            let (forward, error) = delay(ms);
            let received = Duration::from_secs_f64(100.0 + ms as f64 / 1e3 + forward + error);
            let ack = AckPoint::new(received, sent_at, 1500 * (ms + 1), 1500 * (ms + 1));
            let now = sent_at + Duration::from_secs_f64(forward + 0.025);
            let queue = estimator.update(now, &ack, (forward + 0.025, 0.050), SERVICE);
            samples.push(ack, queue, 1.0);
            let least = samples.least_delay(0.05);
            estimator.end_span(now, least, 0.05);
        }
        estimator.standing(&samples, 0.05, 0.004)
    }

    #[test]
    fn a_queue_is_what_the_delay_has_above_its_least() {
        let queue = standing(2000, |ms| {
            (0.025 + if ms < 1000 { 0.0 } else { 0.010 }, 0.0)
        });
        assert!((queue - 0.010).abs() < 0.001, "{queue}");
    }

    #[test]
    fn a_clock_that_runs_fast_or_is_set_forward_makes_no_queue() {
        // 8.3 %, as fast as chrony slews.
        let fast = standing(2000, |ms| (0.025, 0.083 * ms as f64 / 1e3));
        assert!(fast < 0.001, "{fast}");
        let step = standing(2000, |ms| (0.025, if ms < 1000 { 0.0 } else { 0.128 }));
        assert!(step < 0.001, "{step}");
    }

    #[test]
    fn a_base_that_was_seen_above_a_queue_alone_is_doubted() {
        // The handshake took 50 ms, and each packet since met a queue of 4 ms: who came with others.
        let doubted = |least: f64| {
            let mut estimator = DelayEstimator::default();
            let mut at = Vec::new();
            for ms in 0..60_000 {
                let now = Instant::ZERO + Duration::from_millis(ms);
                let received = Duration::from_millis(100_000 + ms);
                let ack = AckPoint::new(received, now, 1500 * (ms + 1), 1500 * (ms + 1));
                estimator.update(now, &ack, (0.054, least), SERVICE);
                if estimator.base_is_doubtful(now) {
                    at.push(ms / 1000);
                    estimator.is_looked_for(now);
                }
            }
            (at, estimator.unseen())
        };
        let (at, unseen) = doubted(0.050);
        // Less often each time, as it may be the way back.
        assert_eq!(at, [5, 15, 35]);
        assert!((unseen - 0.0039).abs() < 1e-6, "{unseen}");
        assert!(doubted(0.0535).0.is_empty(), "as short as the handshake's");
    }

    #[test]
    fn packets_that_leave_in_groups_are_no_jitter() {
        // Ten leave together every 10 ms, each takes 1 ms at the bottleneck, of every third nothing is heard.
        let service = Service {
            packet: 1500.0,
            rate: 1.5e6,
            most: 1.5e6,
        };
        let jitter = |extra: f64| {
            let mut estimator = DelayEstimator::default();
            for n in (0..3000_u64).filter(|n| n % 3 > 0) {
                let sent_at = Instant::ZERO + Duration::from_millis(n / 10 * 10);
                let odd = extra * (n / 2 % 2) as f64;
                let received = Duration::from_secs_f64(100.0 + n as f64 / 1e3 + odd);
                let ack = AckPoint::new(received, sent_at, 1500 * (n + 1), 1500 * (n + 1));
                estimator.update(sent_at, &ack, (0.060, 0.050), service);
            }
            estimator.jitter()
        };
        assert!(jitter(0.0) < 0.0001, "{}", jitter(0.0));
        assert!(jitter(0.004) > 0.001, "{}", jitter(0.004));
    }

    /// Jitter after ten flights of 40 packets, one each 0.1 ms, of which each tenth is reported, with a pause of `pause`
    /// ms between flights, in which the queue ends that grows by 0.3 ms for each packet. The bottleneck is believed to
    /// serve `rate` to `most` bytes a second; it serves 3.75 million.
    fn jitter_of_flights(pause: u64, rate: f64, most: f64) -> f64 {
        let service = Service {
            packet: 1500.0,
            rate,
            most,
        };
        let mut estimator = DelayEstimator::default();
        for n in (0..=400_u64).step_by(10) {
            let micros = n / 40 * (4000 + pause * 1000) + n % 40 * 100;
            let sent_at = Instant::ZERO + Duration::from_micros(micros);
            let queue = 0.000_3 * (n % 40) as f64;
            let received = Duration::from_secs_f64(100.0 + micros as f64 / 1e6 + queue);
            let ack = AckPoint::new(received, sent_at, 1500 * (n + 1), 1500 * (n + 1));
            estimator.update(sent_at, &ack, (0.060, 0.050), service);
        }
        estimator.jitter()
    }

    #[test]
    fn a_queue_that_ends_in_a_pause_is_no_jitter() {
        let jitter = |pause| jitter_of_flights(pause, 3.75e6, 3.75e6);
        assert!(jitter(20) < 0.000_01, "{}", jitter(20));
        // Nobody can have served what waited in so short a pause.
        assert!(jitter(2) > 0.000_3, "{}", jitter(2));
    }

    #[test]
    fn a_service_that_may_be_faster_explains_as_much() {
        // As long as losses may be congestion, what is delivered passes for all that the path carries.
        let jitter = |most| jitter_of_flights(20, 2.5e6, most);
        assert!(jitter(2.5e6) > 0.000_3, "{}", jitter(2.5e6));
        assert!(jitter(4e6) < 0.000_01, "{}", jitter(4e6));
        assert!(jitter(3e6) > 0.000_1, "slower than it is");
    }

    #[test]
    fn jitter_is_no_queue() {
        // 0 to 30 ms, a new value each packet.
        let jitter = |ms: u64| (ms.wrapping_mul(2_654_435_761) >> 7) % 30_000;
        let queue = standing(5000, |ms| (0.025 + jitter(ms) as f64 / 1e6, 0.0));
        assert!(queue < 0.003, "{queue}");
    }
}
