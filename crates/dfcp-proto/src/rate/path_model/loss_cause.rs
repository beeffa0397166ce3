//! The test that tells the path's own loss from loss of our making.
//!
//! [`LossTest`] alternates short stretches at the rate in question with stretches at a rate that the
//! path has just carried, and compares the loss of neighbours. Neighbouring stretches share fades and
//! bursts, so that these cancel, and the scatter of the pairs themselves, not a model, says how far
//! the mean can be trusted (a paired t-test, decided sequentially). A burst of any length can
//! therefore spoil a pair but not the verdict.

use super::loss::{Alarm, Outage, Stretch, tolerance};
use super::tuning::loss::CERTAIN;
use super::tuning::loss_test::*;
use crate::rate::AckPoint;
use crate::time::Instant;
use std::collections::VecDeque;

/// Why packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossCause {
    /// The path loses this share at any rate.
    Path(f64),
    /// The rate in question is beyond what the path carries: bytes per second that it delivered of
    /// it, and the share that it lost at a lower rate.
    Congestion { delivered: f64, remaining: f64 },
    /// Less of it at a lower rate, but not so much less that the rate is all that causes it: what the path
    /// carried, bytes per second as sent, if all that the lower rate lost is its own.
    Both { carried: f64, remaining: f64 },
    /// Too little was sent to tell, or the path changed too much.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    Fast,
    Slow,
}

/// Mean and variance of a series (Welford).
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: u32,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn push(&mut self, value: f64) {
        self.count += 1;
        let deviation = value - self.mean;
        self.mean += deviation / f64::from(self.count);
        self.squares += deviation * (value - self.mean);
    }

    /// Standard error of the mean.
    fn error(&self) -> f64 {
        if self.count < 2 {
            return f64::INFINITY;
        }
        let count = f64::from(self.count);
        (self.squares / (count - 1.0) / count).sqrt()
    }
}

/// A stretch of the test as it leaves.
#[derive(Clone, Copy, Debug)]
struct Planned {
    pace: Pace,
    /// Rate at which it began to leave, bytes per second.
    rate: f64,
    /// Bytes sent, in all, before and with it.
    from: u64,
    to: u64,
    /// The same before the part that is judged.
    judged_from: u64,
}

impl Planned {
    fn new(pace: Pace, rate: f64, sent_total: u64) -> Self {
        Self {
            pace,
            rate,
            from: sent_total,
            to: sent_total,
            judged_from: sent_total,
        }
    }
}

/// Rate of the fast stretches for a test of `asked`, of which `delivered` arrives.
fn fast_rate(asked: f64, delivered: f64, alarm: &Alarm) -> f64 {
    asked.min(FAST * delivered / (1.0 - alarm.held))
}

/// Bytes per second that the path delivered of a stretch. One packet arrived at least: its acknowledgement ended it.
fn delivery_rate(stretch: &Stretch) -> f64 {
    stretch.delivered.max(stretch.sent / stretch.packets) / stretch.seconds
}

/// Share of an excess of lost packets that a slow stretch must heal for it to be congestion: half of what
/// it would heal beside another sender that has the same rate and goes on. Two that offer
/// 1 ÷ (1 − `excess`) of what the path carries get half of it each; then one of them offers [`SLOW`] of
/// what it got. Alone it would heal all.
fn telling_share(excess: f64) -> f64 {
    let excess = excess.clamp(0.01, 0.99);
    let offered = 0.5 * SLOW + 0.5 / (1.0 - excess);
    let left = (1.0 - 1.0 / offered).max(0.0);
    HEALED * (excess - left) / excess
}

/// Alternates between two rates and compares what is lost.
#[derive(Debug)]
pub(super) struct LossTest {
    since: Instant,
    /// The rate in question, bytes per second.
    asked: f64,
    /// Rates of the stretches as sent, bytes per second.
    fast: f64,
    slow: f64,
    alarm: Alarm,
    /// The stretch that is being sent, and those not judged yet.
    sending: Planned,
    pending: VecDeque<Planned>,
    /// First acknowledged packet of the part that is being judged.
    first: Option<AckPoint>,
    /// What outages took since then.
    away: Outage,
    /// Loss and delivery rate of the fast stretch before.
    neighbour: Option<f64>,
    last_fast: Option<Stretch>,
    differences: Moments,
    packets: f64,
    /// Delivery rate before the test, and the mean of the fast stretches, bytes per second.
    delivered: f64,
    fast_delivery: f64,
    fast_loss: Moments,
    slow_loss: Moments,
}

impl LossTest {
    /// Tests `rate`, of which `delivered` arrives, when `sent_total` bytes were sent.
    pub(super) fn new(
        now: Instant,
        rate: f64,
        delivered: f64,
        alarm: Alarm,
        sent_total: u64,
    ) -> Self {
        let carried = (delivered / (1.0 - alarm.known)).min(rate);
        let slow = SLOW * carried;
        Self {
            since: now,
            asked: rate,
            fast: fast_rate(rate, delivered, &alarm),
            slow,
            alarm,
            sending: Planned::new(Pace::Slow, slow, sent_total),
            pending: VecDeque::new(),
            first: None,
            away: Outage::default(),
            neighbour: Some(alarm.seen),
            last_fast: None,
            differences: Moments::default(),
            packets: 0.0,
            delivered,
            fast_delivery: delivered,
            fast_loss: Moments::default(),
            slow_loss: Moments::default(),
        }
    }

    /// The rate that is tested, bytes per second.
    pub(super) fn tested(&self) -> f64 {
        self.asked
    }

    /// The rate of fast stretches, bytes per second.
    pub(super) fn fastest(&self) -> f64 {
        self.fast
    }

    /// Bytes sent, in all, when the test last sent.
    pub(super) fn sent_until(&self) -> u64 {
        self.sending.to
    }

    /// The rate to send at, bytes per second.
    pub(super) fn rate(&self) -> f64 {
        match self.sending.pace {
            Pace::Fast => self.fast,
            Pace::Slow => self.slow,
        }
    }

    /// Bytes were sent, `sent_total` in all: changes the pace after a stretch of `length` seconds, and as many more as
    /// packets may be late.
    pub(super) fn on_sent(&mut self, sent_total: u64, length: f64, late: f64, packet: f64) {
        let bytes = (self.rate() * length).max(STRETCH_PACKETS * packet) as u64;
        // What is late counts as lost where a stretch ends and as delivered in the next one, more of it of a fast
        // stretch: by then as much is late as at the end.
        self.sending.judged_from = self.sending.from + (self.rate() * late) as u64;
        self.sending.to = sent_total;
        if sent_total < self.sending.judged_from + bytes {
            return;
        }
        self.pending.push_back(self.sending);
        let (pace, rate) = match self.sending.pace {
            Pace::Fast => (Pace::Slow, self.slow),
            Pace::Slow => (Pace::Fast, self.fast),
        };
        self.sending = Planned::new(pace, rate, sent_total);
    }

    /// The path was gone. What an outage loses is lost at any rate, but only in the stretch that it meets:
    /// neighbours do not share it.
    pub(super) fn on_outage(&mut self, outage: Outage) {
        if self.first.is_some() {
            self.away += outage;
        }
    }

    /// A packet was acknowledged: the cause, once it is known.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        last: AckPoint,
        packet: f64,
    ) -> Option<LossCause> {
        loop {
            let planned = *self.pending.front().unwrap_or(&self.sending);
            if last.sent_total < planned.judged_from {
                break;
            }
            let first = *self.first.get_or_insert(last);
            if last.sent_total < planned.to || self.pending.pop_front().is_none() {
                break;
            }
            self.first = None;
            let away = std::mem::take(&mut self.away);
            let all = Stretch::between(&first, &last, packet);
            let sending = last.sent_at.saturating_since(first.sent_at).as_secs_f64();
            // How long the path took for it: pauses of the sender, as after timeouts, are none of the path's.
            let drawn_apart = (all.seconds - sending).max(0.0);
            let stretch = all.without(away, packet);
            let stretch = Stretch {
                seconds: stretch.sent / planned.rate + drawn_apart,
                ..stretch
            };
            if stretch.packets < STRETCH_PACKETS / 2.0 {
                continue;
            }
            self.judge(planned, &stretch);
        }
        self.verdict(now)
    }

    fn judge(&mut self, planned: Planned, stretch: &Stretch) {
        let loss = stretch.loss();
        match planned.pace {
            // Left before the rate was lowered.
            Pace::Slow if planned.rate > self.slow => self.neighbour = None,
            Pace::Fast => {
                self.fast_loss.push(loss);
                let delivery = delivery_rate(stretch);
                let before = self.last_fast.replace(*stretch);
                let before = before.map_or(self.delivered, |before| delivery_rate(&before));
                self.fast_delivery +=
                    (delivery - self.fast_delivery) / f64::from(self.fast_loss.count);
                self.neighbour = Some(loss);
                self.follow_delivery(loss, delivery.max(before));
            }
            Pace::Slow => {
                self.packets += stretch.packets;
                self.slow_loss.push(loss);
                if let Some(fast) = self.neighbour.take() {
                    self.differences.push(fast - loss);
                    self.follow_pair(stretch);
                }
            }
        }
    }

    /// Slow stretches say something only if the path carries them, and fast ones only if they are not
    /// so fast that a flood comes of them. What was carried before the test may have been the bucket
    /// of a policer, which is empty now: then the pairs so far do not count. `delivery` is the better of two
    /// stretches: one may have met an outage.
    fn follow_delivery(&mut self, loss: f64, delivery: f64) {
        let carried = self.fast_delivery / (1.0 - self.alarm.known);
        // By less, a burst of loss makes it look so.
        if SLOW * self.slow > carried {
            self.slow = SLOW * delivery / (1.0 - self.alarm.known);
            (self.differences, self.slow_loss) = (Moments::default(), Moments::default());
            (self.fast_delivery, self.fast_loss) = (delivery, Moments::default());
            self.fast_loss.push(loss);
            self.packets = 0.0;
        }
        self.fast = fast_rate(self.asked, self.fast_delivery, &self.alarm);
    }

    /// Slow stretches take long where a burst of loss left little of what was sent before the test. What arrives
    /// of a pair the path carries for longer than a policer's bucket lasts.
    fn follow_pair(&mut self, slow: &Stretch) {
        let Some(fast) = self.last_fast else {
            return;
        };
        let arrived = (fast.delivered + slow.delivered) / (fast.seconds + slow.seconds);
        let carried = (arrived / (1.0 - self.alarm.known)).min(self.asked);
        self.slow = self.slow.max(SLOW * carried);
    }

    /// How much less slow stretches would lose if fast ones lost what is beyond the path's capacity:
    /// not all of it where the slow rate is beyond it, too.
    fn healed_by_slow(&self) -> f64 {
        if self.fast_loss.count == 0 {
            return 1.0;
        }
        let least = (1.0 - self.fast_delivery / self.slow).max(self.alarm.known);
        (self.fast_loss.mean - least).max(tolerance(self.alarm.known))
    }

    fn verdict(&self, now: Instant) -> Option<LossCause> {
        let pairs = self.differences.count;
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        // If the excess were ours, a rate below what arrives would heal it.
        let excess = self.alarm.seen.max(self.fast_loss.mean) - self.alarm.known;
        let excess = excess.max(tolerance(self.alarm.known));
        let healed = excess.min(self.healed_by_slow());
        let difference = self.differences.mean;
        // Few pairs have no scatter of their own: then that of earlier rounds counts.
        let few = 1.0 + STUDENT / f64::from(pairs.max(2) - 1);
        let error = if pairs < MIN_PAIRS {
            let stretches = self.packets / STRETCH_PACKETS;
            CERTAIN * self.alarm.deviation * (2.0 / stretches.max(1.0)).sqrt()
        } else {
            SIGNIFICANT * few * self.differences.error()
        };
        let share = telling_share(excess / (1.0 - self.alarm.known));
        let surely = SURELY_HEALED * share;
        if pairs > 0 && difference > share * healed && difference - error > surely * healed {
            return Some(LossCause::Congestion {
                // What slow stretches saved in a policer's bucket comes on top in fast ones.
                delivered: self.fast_delivery.min(self.delivered),
                remaining: self.slow_loss.mean,
            });
        }
        if pairs > 0 && self.fast_loss.count > 0 && difference + error < share * excess {
            let loss = (self.fast_loss.mean * f64::from(self.fast_loss.count)
                + self.slow_loss.mean * f64::from(self.slow_loss.count))
                / f64::from(self.fast_loss.count + self.slow_loss.count);
            return Some(LossCause::Path(loss));
        }
        let most = if pairs < MIN_PAIRS {
            LAST_OF_FEW
        } else {
            LAST_TIME
        };
        let over = pairs >= MAX_PAIRS && elapsed > MAX_TIME || elapsed > most;
        over.then(|| self.without_verdict(error))
    }

    /// What is held after as many pairs as a test has, of which neither cause is certain, where the
    /// difference is known but for `error`.
    fn without_verdict(&self, error: f64) -> LossCause {
        let remaining = self.slow_loss.mean;
        if self.differences.count < MIN_PAIRS {
            LossCause::Unknown
        } else if self.differences.mean > error {
            LossCause::Both {
                carried: self.fast_delivery.min(self.delivered) / (1.0 - remaining),
                remaining,
            }
        } else {
            let surely = remaining - SIGNIFICANT * self.slow_loss.error();
            LossCause::Path(surely.max(self.alarm.known))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::path_model::loss::PathLoss;
    use crate::time::Duration;

    const PACKET: f64 = 1500.0;
    /// Bytes per second.
    const RATE: f64 = 12.5e6;

    /// A path of 50 ms that loses by itself in bursts and carries no more than `capacity`.
    struct Path {
        capacity: f64,
        loss: f64,
        burst: f64,
        state: u64,
        is_bad: bool,
        sent: u64,
        delivered: f64,
    }

    impl Path {
        fn new(capacity: f64, loss: f64, burst: f64, seed: u64) -> Self {
            Self {
                capacity,
                loss,
                burst,
                state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                is_bad: false,
                sent: 0,
                delivered: 0.0,
            }
        }

        /// Xorshift (Marsaglia 2003), 0 to 1.
        fn random(&mut self) -> f64 {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            (self.state >> 11) as f64 / (1u64 << 53) as f64
        }

        /// One packet at `rate`: the sample that its acknowledgement would give.
        fn packet(&mut self, time: f64, rate: f64) -> AckPoint {
            let leave = 1.0 / self.burst;
            let enter = leave * self.loss / (1.0 - self.loss);
            let change = if self.is_bad { leave } else { enter };
            if self.random() < change {
                self.is_bad = !self.is_bad;
            }
            let refused = self.random() > self.capacity / rate;
            self.sent += PACKET as u64;
            if !self.is_bad && !refused {
                self.delivered += PACKET;
            }
            let at = Duration::from_secs_f64(time);
            let sent_at = Instant::ZERO + at;
            AckPoint::new(at, sent_at, self.sent, self.delivered as u64)
        }
    }

    /// Rounds at [`RATE`] until there is an alarm, then a test: its verdict.
    fn verdict(path: &mut Path) -> Option<LossCause> {
        verdict_at(path, RATE)
    }

    fn verdict_at(path: &mut Path, asked: f64) -> Option<LossCause> {
        let (mut loss, mut time) = (PathLoss::default(), 0.0);
        let mut start = path.packet(time, asked);
        let mut test: Option<LossTest> = None;
        for count in 0..400_000u64 {
            let rate = test.as_ref().map_or(asked, LossTest::rate);
            time += PACKET / rate;
            let now = Instant::ZERO + Duration::from_secs_f64(time);
            let ack = path.packet(time, rate);
            if let Some(test) = &mut test {
                test.on_sent(path.sent, 0.05, 0.0, PACKET);
                if let Some(cause) = test.on_ack(now, ack, PACKET) {
                    return Some(cause);
                }
            } else if count % 416 == 415 {
                let round = Stretch::between(&start, &ack, PACKET);
                start = ack;
                loss.end_round(&round, false);
                if loss.is_excessive() && loss.may_test(now) {
                    let delivered = round.delivered / round.seconds;
                    test = Some(LossTest::new(
                        now,
                        asked,
                        delivered,
                        loss.alarm(now),
                        path.sent,
                    ));
                }
            }
        }
        None
    }

    #[test]
    fn loss_of_the_path_is_told_from_congestion_whatever_its_bursts() {
        let (mut wrong, mut all) = (0, 0);
        for (loss, burst) in [
            (0.05, 1.0),
            (0.2, 1.0),
            (0.09, 12.0),
            (0.2, 12.0),
            (0.09, 50.0),
        ] {
            for seed in 1..=20 {
                let cause = verdict(&mut Path::new(f64::INFINITY, loss, burst, seed));
                all += 1;
                wrong += u32::from(matches!(cause, Some(LossCause::Congestion { .. })));
            }
        }
        // Few pairs and their own scatter: one test in fifteen errs. Eight losses, less than a burst,
        // erred in half.
        assert!(wrong * 10 <= all, "{wrong} of {all} blamed the sender");
    }

    #[test]
    fn congestion_is_found_beside_the_paths_own_loss() {
        for (loss, burst) in [(0.001, 1.0), (0.1, 1.0), (0.05, 5.0)] {
            for seed in 1..=20 {
                let cause = verdict(&mut Path::new(0.6 * RATE, loss, burst, seed));
                let Some(LossCause::Congestion { delivered, .. }) = cause else {
                    panic!("{loss} in bursts of {burst}, seed {seed}: {cause:?}");
                };
                let capacity = delivered / (1.0 - loss);
                assert!((capacity / RATE - 0.6).abs() < 0.12, "{capacity}");
            }
        }
    }

    /// A policer below the rate on a path that loses two fifths by itself, at a rate of which a stretch
    /// has few packets: neither cause is certain, but what slow stretches lost is known.
    #[test]
    fn a_test_of_two_causes_keeps_what_slow_stretches_lost() {
        let asked = RATE / 10.0;
        let mut both = 0;
        for seed in 1..=60 {
            let cause = verdict_at(&mut Path::new(0.76 * asked, 0.4, 1.0, seed), asked);
            match cause {
                Some(LossCause::Both { carried, remaining }) => {
                    both += 1;
                    assert!(
                        (carried / asked - 0.76).abs() < 0.1,
                        "seed {seed}: {cause:?}"
                    );
                    assert!((remaining - 0.4).abs() < 0.06, "seed {seed}: {cause:?}");
                }
                Some(LossCause::Path(loss)) => {
                    assert!(loss > 0.3, "seed {seed}: {cause:?}");
                }
                Some(LossCause::Congestion { remaining, .. }) => {
                    assert!((remaining - 0.4).abs() < 0.15, "seed {seed}: {cause:?}");
                }
                Some(LossCause::Unknown) | None => panic!("seed {seed}: {cause:?}"),
            }
        }
        assert!(both > 0, "none of 60 was of both causes");
    }

    /// 500 kbit/s: three pairs of stretches take longer than ten seconds, and tell all the same.
    #[test]
    fn a_slow_path_is_given_the_time_that_a_test_needs() {
        for seed in 1..=20 {
            let asked = 500e3 / 8.0;
            let cause = verdict_at(&mut Path::new(f64::INFINITY, 0.4, 1.0, seed), asked);
            let known = matches!(cause, Some(LossCause::Path(loss)) if loss > 0.2);
            let blamed = matches!(
                cause,
                Some(LossCause::Congestion { .. } | LossCause::Both { .. })
            );
            assert!(known || blamed, "seed {seed}: {cause:?}");
        }
    }

    /// Seconds that a test takes which begins with a round of which a burst left a fiftieth.
    fn seconds_after_a_burst(seed: u64) -> f64 {
        let mut path = Path::new(f64::INFINITY, 0.26, 72.0, seed);
        let alarm = Alarm {
            known: 0.0,
            held: 0.0,
            seen: 0.85,
            deviation: 0.3,
        };
        let mut test = LossTest::new(Instant::ZERO, RATE, RATE / 50.0, alarm, 0);
        let mut time = 0.0;
        loop {
            time += PACKET / test.rate();
            let ack = path.packet(time, test.rate());
            test.on_sent(path.sent, 0.01, 0.0, PACKET);
            let now = Instant::ZERO + Duration::from_secs_f64(time);
            if test.on_ack(now, ack, PACKET).is_some() {
                return time;
            }
        }
    }

    /// A dozen pairs whose slow stretches are of a fiftieth of the rate take 6.8 s.
    #[test]
    fn a_test_that_begins_in_a_burst_goes_on_at_what_the_path_carries() {
        let seconds = (1..=20).map(seconds_after_a_burst).sum::<f64>() / 20.0;
        assert!(seconds < 5.5, "{seconds}");
    }

    #[test]
    fn a_test_without_traffic_ends() {
        let alarm = PathLoss::default().alarm(Instant::ZERO);
        let mut test = LossTest::new(Instant::ZERO, RATE, RATE, alarm, 0);
        let silent = AckPoint::new(Duration::ZERO, Instant::ZERO, 0, 0);
        let late = Instant::ZERO + Duration::from_secs(41);
        let cause = test.on_ack(late, silent, PACKET);
        assert_eq!(cause, Some(LossCause::Unknown));
    }

    #[test]
    fn beside_another_sender_a_smaller_share_tells() {
        // Alone, or with little to heal: half.
        assert!((telling_share(0.05) - HEALED).abs() < 0.01);
        // 1.5 times what the path carries, from two: from 0.33 to 0.13.
        assert!((telling_share(1.0 / 3.0) - 0.5 * 0.61).abs() < 0.01);
        // Twice: from 0.5 to 0.29.
        assert!((telling_share(0.5) - 0.5 * 0.43).abs() < 0.01);
        assert!(telling_share(0.99) > 0.0 && telling_share(0.0) <= HEALED);
    }
}
