//! Loss of the path, and the test that tells it from loss of our own making.
//!
//! Loss by itself says nothing of congestion. What says something is whether it *depends on our
//! rate*: loss that sending less heals is congestion, loss that stays is the path's own (erasures).
//! So when rounds lose more than the path is known to, [`LossTest`] alternates short stretches at the
//! rate in question with stretches at a rate that the path has just carried, and compares the loss
//! of neighbours. Neighbouring stretches share fades and bursts, so that these cancel, and the
//! scatter of the pairs themselves, not a model, says how far the mean can be trusted (a paired
//! t-test, decided sequentially). A burst of any length can therefore spoil a pair but not the
//! verdict. Without a verdict nothing changes: rates do not fall for loss that a lower rate does not
//! heal.

use crate::rate::AckPoint;
use crate::time::{Duration, Instant};

/// Weight of a round in the path's mean loss and its variance.
const ROUND_WEIGHT: f64 = 1.0 / 16.0;
/// Loss beyond the known that is worth a test: a hundredth, and an eighth of what is known. Less costs
/// less than the test, and could hardly be told from chance.
fn tolerance(known: f64) -> f64 {
    0.01 + known / 8.0
}

/// Rounds over which loss is averaged before it raises an alarm.
const ALARM_ROUNDS: f64 = 4.0;
/// Standard errors that make a difference significant: one chance in forty, two-sided 5 %.
const SIGNIFICANT: f64 = 2.0;
/// Standard deviations beyond which chance explains nothing.
const CERTAIN: f64 = 3.0;
/// Most loss that is ever explained: rates stay within ten times of what arrives.
const MOST_EXPLAINED: f64 = 0.9;
/// Least pairs of stretches: a scatter of fewer is none.
const MIN_PAIRS: u32 = 3;
/// A test without a verdict ends after this many pairs or seconds, whichever comes last.
const MAX_PAIRS: u32 = 12;
const MAX_TIME: f64 = 1.0;
/// Rate of the slow stretches as a share of what arrives: well below it, so that a standing queue
/// drains, and near enough to cost little.
const SLOW: f64 = 0.8;
/// Loss that is held to be the path's own is doubted again after this time where it is more than
/// this: a wrong verdict floods others for no longer. Hysteria's Brutal, the boldest of the
/// controllers in use, makes up for as much and no more.
const DOUBTED: f64 = 0.2;
const DOUBTED_AFTER: Duration = Duration::from_secs(30);
/// Packets of a stretch, at least: with a twentieth lost, three are.
pub(super) const STRETCH_PACKETS: f64 = 64.0;

/// Packets of the shortest round that says anything: one lost is a sixteenth.
pub(super) const LEAST_ROUND: f64 = 16.0;

/// What was sent and what arrived of it over some time of arrivals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) sent: f64,
    pub(super) delivered: f64,
    pub(super) packets: f64,
    pub(super) seconds: f64,
}

impl Stretch {
    /// The stretch between two acknowledged packets; bytes.
    pub(super) fn between(from: &AckPoint, to: &AckPoint, packet: f64) -> Self {
        let sent = to.sent_total.saturating_sub(from.sent_total) as f64;
        let delivered = to.delivered_total.saturating_sub(from.delivered_total) as f64;
        let time = to.received_at.saturating_sub(from.received_at);
        Self {
            sent,
            delivered,
            packets: (sent / packet).max(1.0),
            seconds: time.as_secs_f64().max(1e-6),
        }
    }

    /// Share lost.
    pub(super) fn loss(&self) -> f64 {
        (1.0 - self.delivered / self.sent.max(1.0)).clamp(0.0, 0.99)
    }
}

/// What the path loses by itself: its mean, and how much rounds scatter around it.
#[derive(Debug, Default)]
pub(super) struct PathLoss {
    /// Probability that the path loses a packet while it is not overloaded.
    pub(super) mean: f64,
    /// What of it a test has shown. No more than the tolerance is believed beyond: loss of our own
    /// making that grows slowly would pass for the path's.
    verified: f64,
    verified_at: Instant,
    /// Variance of the loss of rounds of `round_packets`.
    variance: f64,
    round_packets: f64,
    last: Option<f64>,
    /// Mean loss of the last rounds, whoever's.
    recent: f64,
    rounds: f64,
    /// Tests that ended without a verdict, and until when there is none again.
    quiet_until: Option<Instant>,
    unknown: u32,
}

impl PathLoss {
    /// Standard deviation of the loss among `packets` where `loss` is lost: the scatter that was
    /// seen, which knows of bursts, and at least that of independent losses.
    fn scatter(&self, loss: f64, packets: f64) -> f64 {
        let packets = packets.max(1.0);
        let loss = loss.max(1.0 / packets).min(0.5);
        let independent = loss * (1.0 - loss) / packets;
        let seen = self.variance * self.round_packets / packets;
        independent.max(seen).sqrt()
    }

    /// The same where the path's own share is lost.
    pub(super) fn deviation(&self, packets: f64) -> f64 {
        self.scatter(self.mean, packets)
    }

    /// Share of what was sent that a bottleneck can have carried: all of it, unless so much was lost
    /// over the last rounds that neither the path's own loss nor chance explains it.
    pub(super) fn carried_share(&self) -> f64 {
        let chance = CERTAIN * self.deviation(self.round_packets * self.rounds);
        let explained = self.mean + tolerance(self.mean) + chance;
        let explained = explained.min(MOST_EXPLAINED);
        ((1.0 - self.recent) / (1.0 - explained)).min(1.0)
    }

    /// Learns from a round. While `probing`, small losses may be of our own making and teach
    /// nothing.
    pub(super) fn end_round(&mut self, round: &Stretch, probing: bool) {
        if round.packets < LEAST_ROUND {
            return;
        }
        let loss = round.loss();
        if let Some(last) = self.last.replace(loss) {
            // Half of the mean square of neighbours' differences: a mean that moves adds nothing.
            let half_square = (loss - last) * (loss - last) / 2.0;
            self.variance += (half_square - self.variance) * ROUND_WEIGHT;
        }
        self.rounds = (self.rounds + 1.0).min(ALARM_ROUNDS);
        self.recent += (loss - self.recent) / self.rounds;
        self.round_packets = if self.round_packets == 0.0 {
            round.packets
        } else {
            self.round_packets + (round.packets - self.round_packets) * ROUND_WEIGHT
        };
        if loss < self.mean || !probing {
            self.mean += (loss - self.mean) * ROUND_WEIGHT;
            self.mean = self.mean.min(self.verified + tolerance(self.verified));
        }
        self.verified += (self.mean - self.verified).min(0.0) / 64.0;
    }

    fn explained_by_path(&self) -> f64 {
        let known = self.verified.max(self.mean);
        known + tolerance(known)
    }

    /// Whether the last rounds lost more than the path is known to and chance explains.
    pub(super) fn is_excessive(&self) -> bool {
        let packets = self.round_packets * self.rounds;
        let chance = CERTAIN * self.deviation(packets);
        self.is_judged() && self.recent > self.explained_by_path() + chance
    }

    /// Whether there were enough rounds to say so.
    pub(super) fn is_judged(&self) -> bool {
        self.rounds >= 2.0
    }

    /// Whether no test failed lately.
    pub(super) fn may_test(&self, now: Instant) -> bool {
        self.quiet_until.is_none_or(|until| now >= until)
    }

    /// Looks at the next rounds afresh.
    pub(super) fn begin_again(&mut self) {
        self.rounds = 0.0;
    }

    /// Whether so much is held to be the path's own for so long that it is worth another test.
    pub(super) fn is_doubtful(&self, now: Instant) -> bool {
        self.verified > DOUBTED && now.saturating_since(self.verified_at) > DOUBTED_AFTER
    }

    /// What a test starts from: what is doubtful counts as not known.
    pub(super) fn alarm(&self, now: Instant) -> Alarm {
        let known = if self.is_doubtful(now) {
            0.0
        } else {
            self.mean
        };
        Alarm {
            known,
            seen: self.recent,
            deviation: self.scatter(self.recent, STRETCH_PACKETS),
        }
    }

    /// A test showed that the path loses this by itself.
    pub(super) fn verify(&mut self, now: Instant, loss: f64) {
        (self.mean, self.verified, self.verified_at) = (loss, loss, now);
        (self.rounds, self.unknown, self.quiet_until) = (0.0, 0, None);
        self.recent = loss;
    }

    /// Excess loss was of our making: the rounds that showed it do not count.
    pub(super) fn forget_recent(&mut self) {
        (self.recent, self.rounds, self.unknown) = (self.mean, 0.0, 0);
    }

    /// A test had no verdict: none for a while, longer each time.
    pub(super) fn postpone(&mut self, now: Instant, loop_time: f64) {
        self.unknown = (self.unknown + 1).min(6);
        let wait = 8.0 * loop_time * f64::from(1u32 << self.unknown);
        self.quiet_until = Some(now + Duration::from_secs_f64(wait.min(30.0)));
        self.rounds = 0.0;
    }
}

/// Why packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossCause {
    /// The path loses this share at any rate.
    Path(f64),
    /// The rate in question is beyond what the path carries: bytes per second that it delivered of
    /// it, and the share that it lost at a lower rate.
    Congestion { delivered: f64, remaining: f64 },
    /// Too little was sent to tell, or the path changed too much.
    Unknown,
}

/// Loss that asks for a test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    /// What the path is known to lose, and what was lost lately.
    pub(super) known: f64,
    pub(super) seen: f64,
    /// Standard deviation of the loss of [`STRETCH_PACKETS`].
    pub(super) deviation: f64,
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

/// Alternates between two rates and compares what is lost.
#[derive(Debug)]
pub(super) struct LossTest {
    since: Instant,
    pace: Pace,
    /// Rates of the stretches as sent, bytes per second.
    fast: f64,
    slow: f64,
    alarm: Alarm,
    /// Bytes sent at which the stretch that is being sent began, and those not judged yet.
    begins: u64,
    pending: std::collections::VecDeque<(Pace, u64, u64)>,
    /// First acknowledged packet of the stretch that is being judged.
    first: Option<AckPoint>,
    /// Loss and delivery rate of the fast stretch before.
    neighbour: Option<f64>,
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
        Self {
            since: now,
            pace: Pace::Slow,
            fast: rate,
            slow: SLOW * carried,
            alarm,
            begins: sent_total,
            pending: std::collections::VecDeque::new(),
            first: None,
            neighbour: Some(alarm.seen),
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
        self.fast
    }

    /// The rate to send at, bytes per second.
    pub(super) fn rate(&self) -> f64 {
        match self.pace {
            Pace::Fast => self.fast,
            Pace::Slow => self.slow,
        }
    }

    /// Bytes were sent, `sent_total` in all: changes the pace after a stretch of `length` seconds.
    pub(super) fn on_sent(&mut self, sent_total: u64, length: f64, packet: f64) {
        let bytes = (self.rate() * length).max(STRETCH_PACKETS * packet) as u64;
        if sent_total < self.begins + bytes {
            return;
        }
        self.pending.push_back((self.pace, self.begins, sent_total));
        self.begins = sent_total;
        self.pace = match self.pace {
            Pace::Fast => Pace::Slow,
            Pace::Slow => Pace::Fast,
        };
    }

    /// A packet was acknowledged: the cause, once it is known.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        last: AckPoint,
        packet: f64,
    ) -> Option<LossCause> {
        while let Some(&(pace, from, to)) = self.pending.front() {
            if last.sent_total < from {
                break;
            }
            let first = *self.first.get_or_insert(last);
            if last.sent_total < to {
                break;
            }
            self.pending.pop_front();
            self.first = Some(last);
            let stretch = Stretch::between(&first, &last, packet);
            if stretch.packets < STRETCH_PACKETS / 2.0 {
                continue;
            }
            self.judge(pace, &stretch);
        }
        self.verdict(now)
    }

    fn judge(&mut self, pace: Pace, stretch: &Stretch) {
        let loss = stretch.loss();
        match pace {
            Pace::Fast => {
                self.fast_loss.push(loss);
                let delivery = stretch.delivered / stretch.seconds;
                self.fast_delivery +=
                    (delivery - self.fast_delivery) / f64::from(self.fast_loss.count);
                self.neighbour = Some(loss);
                self.follow_delivery();
            }
            Pace::Slow => {
                self.packets += stretch.packets;
                self.slow_loss.push(loss);
                if let Some(fast) = self.neighbour.take() {
                    self.differences.push(fast - loss);
                }
            }
        }
    }

    /// Slow stretches say something only if the path carries them. What it carried before the test
    /// may have been the bucket of a policer, which is empty now: then the pairs so far do not count.
    fn follow_delivery(&mut self) {
        let carried = self.fast_delivery / (1.0 - self.alarm.known);
        // By less, a burst of loss makes it look so.
        if SLOW * self.slow > carried {
            self.slow = SLOW * carried;
            (self.differences, self.slow_loss) = (Moments::default(), Moments::default());
            self.packets = 0.0;
        }
    }

    fn verdict(&self, now: Instant) -> Option<LossCause> {
        let pairs = self.differences.count;
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        // If the excess were ours, a rate below what arrives would heal it.
        let excess = self.alarm.seen.max(self.fast_loss.mean) - self.alarm.known;
        let excess = excess.max(tolerance(self.alarm.known));
        let difference = self.differences.mean;
        // Few pairs have no scatter of their own: then that of earlier rounds counts.
        let few = 1.0 + 2.0 / f64::from(pairs.max(2) - 1);
        let error = if pairs < MIN_PAIRS {
            let stretches = self.packets / STRETCH_PACKETS;
            CERTAIN * self.alarm.deviation * (2.0 / stretches.max(1.0)).sqrt()
        } else {
            SIGNIFICANT * few * self.differences.error()
        };
        if pairs > 0 && difference > excess / 2.0 && difference - error > excess / 4.0 {
            return Some(LossCause::Congestion {
                // What slow stretches saved in a policer's bucket comes on top in fast ones.
                delivered: self.fast_delivery.min(self.delivered),
                remaining: self.slow_loss.mean,
            });
        }
        if pairs > 0 && self.fast_loss.count > 0 && difference + error < excess / 2.0 {
            let loss = (self.fast_loss.mean * f64::from(self.fast_loss.count)
                + self.slow_loss.mean * f64::from(self.slow_loss.count))
                / f64::from(self.fast_loss.count + self.slow_loss.count);
            return Some(LossCause::Path(loss));
        }
        let over = pairs >= MAX_PAIRS && elapsed > MAX_TIME;
        (over || elapsed > 10.0 * MAX_TIME).then_some(LossCause::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Rounds of a round trip at [`RATE`] until there is an alarm, then a test: its verdict.
    fn verdict(path: &mut Path) -> Option<LossCause> {
        let (mut loss, mut time) = (PathLoss::default(), 0.0);
        let mut start = path.packet(time, RATE);
        let mut test: Option<LossTest> = None;
        for count in 0..400_000u64 {
            let rate = test.as_ref().map_or(RATE, LossTest::rate);
            time += PACKET / rate;
            let now = Instant::ZERO + Duration::from_secs_f64(time);
            let ack = path.packet(time, rate);
            if let Some(test) = &mut test {
                test.on_sent(path.sent, 0.05, PACKET);
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
                        RATE,
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
    fn probing_teaches_no_loss() {
        let mut loss = PathLoss::default();
        let round = Stretch {
            sent: 1000.0 * PACKET,
            delivered: 992.0 * PACKET,
            packets: 1000.0,
            seconds: 0.06,
        };
        for _ in 0..1000 {
            loss.end_round(&round, true);
        }
        assert_eq!(loss.mean, 0.0, "losses of our own making must not add up");
        for _ in 0..1000 {
            loss.end_round(&round, false);
        }
        assert!((loss.mean - 0.008).abs() < 0.001);
    }
}
