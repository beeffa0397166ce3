//! The test that tells the path's own loss from loss of our making.
//!
//! [`LossTest`] alternates short stretches at the rate in question with stretches at a rate that the
//! path has just carried, and compares the loss of neighbours. Neighbouring stretches share fades and
//! bursts, so that these cancel, and the scatter of the pairs themselves, not a model, says how far
//! the mean can be trusted (a paired t-test, decided sequentially). A burst of any length can
//! therefore spoil a pair but not the verdict.
//!
//! It asks whether the loss is this sender's or that of two. One of several who overload a short queue heals little by
//! sending a little less: for those there are drains and [common looks](super::look).

use super::loss::{Alarm, Gaps, Stretch, tolerance};
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
    /// The rate in question is beyond what the path carries.
    Congestion(Blame),
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

/// Which stretch comes next: a slow one follows each fast one, and from the second on, with an even chance, another slow
/// one. Another sender's test that changes its pace as often would else answer each change of this one, for or
/// against it; two fast ones in a row would overload a path for longer.
#[derive(Debug)]
struct Order {
    random: u64,
    pairs: u32,
    again: bool,
}

impl Order {
    /// The odd constant (2⁶⁴ ÷ the golden ratio, Knuth's multiplicative hash) spreads seeds that differ in a few bits.
    fn new(seed: u64) -> Self {
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            pairs: 0,
            again: false,
        }
    }

    /// The one after a stretch of `pace`.
    fn after(&mut self, pace: Pace) -> Pace {
        if pace == Pace::Slow {
            let again = std::mem::take(&mut self.again);
            return if again { Pace::Slow } else { Pace::Fast };
        }
        self.pairs += 1;
        // Xorshift (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.again = self.pairs > 1 && self.random >> 63 == 0;
        Pace::Slow
    }
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
    asked.min(FAST * delivered / (1.0 - alarm.known))
}

/// Bytes per second that the path delivered of a stretch. One packet arrived at least: its acknowledgement ended it.
fn delivery_rate(stretch: &Stretch) -> f64 {
    stretch.delivered.max(stretch.sent / stretch.packets) / stretch.seconds
}

/// Share of an excess of lost packets that a slow stretch must heal for it to be congestion: half of what
/// it would heal as one of two of the same rate of which the other goes on. Two that offer 1 ÷ (1 − `excess`) of
/// what the path carries get half of it each; then one of them offers [`SLOW`] of what it got. Alone it would heal all.
fn telling_share(excess: f64) -> f64 {
    let excess = excess.clamp(0.01, 0.99);
    let offered = 0.5 * SLOW + 0.5 / (1.0 - excess);
    let left = (1.0 - 1.0 / offered).max(0.0);
    HEALED * (excess - left) / excess
}

/// A rate beyond what the path carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blame {
    /// Bytes per second that the path delivered of it.
    pub(super) delivered: f64,
    /// Share that it lost at a lower rate, and as much as that may be, but for chance.
    pub(super) remaining: f64,
    pub(super) at_most: f64,
}

/// Alternates between two rates and compares what is lost.
#[derive(Debug)]
pub(super) struct LossTest {
    since: Instant,
    order: Order,
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
    /// Long gaps since then.
    gaps: Gaps,
    /// Loss and delivery rate of the fast stretch before.
    neighbour: Option<f64>,
    last_fast: Option<Stretch>,
    differences: Moments,
    slow_packets: f64,
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
        let seed = now.saturating_since(Instant::ZERO).as_nanos() as u64 ^ sent_total;
        Self {
            since: now,
            order: Order::new(seed),
            asked: rate,
            fast: fast_rate(rate, delivered, &alarm),
            slow,
            alarm,
            sending: Planned::new(Pace::Slow, slow, sent_total),
            pending: VecDeque::new(),
            first: None,
            gaps: Gaps::default(),
            neighbour: Some(alarm.seen),
            last_fast: None,
            differences: Moments::default(),
            slow_packets: 0.0,
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

    /// What was delivered of it when loss asked for the test, beside what the path is known to lose, bytes per second.
    pub(super) fn carried_at_alarm(&self) -> f64 {
        self.asked * (1.0 - self.alarm.seen) / (1.0 - self.alarm.known)
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
        self.sending.pace = self.order.after(self.sending.pace);
        self.sending = Planned::new(self.sending.pace, self.rate(), sent_total);
    }

    /// Less is sent for a while, as for a drain: stretches that it meets do not count.
    pub(super) fn pause(&mut self) {
        self.pending.clear();
        (self.first, self.neighbour) = (None, None);
        self.sending.judged_from = u64::MAX;
    }

    /// Goes on with a slow stretch when `sent_total` bytes were sent.
    pub(super) fn resume(&mut self, sent_total: u64) {
        self.sending = Planned::new(Pace::Slow, self.slow, sent_total);
    }

    /// The path was gone, it seems. What an outage loses is lost at any rate, but only in the stretch that it meets:
    /// neighbours do not share it.
    pub(super) fn on_gap(&mut self, gap: Gaps) {
        if self.first.is_some() {
            self.gaps += gap;
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
            let gaps = std::mem::take(&mut self.gaps);
            let all = Stretch::between(&first, &last, packet);
            let sending = last.sent_at.saturating_since(first.sent_at).as_secs_f64();
            // How long the path took for it: pauses of the sender, as after timeouts, are none of the path's.
            let drawn_apart = (all.seconds - sending).max(0.0);
            let stretch = all.without(gaps, packet);
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
                self.slow_packets += stretch.packets;
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
        let known = self.alarm.known;
        let carried = self.fast_delivery / (1.0 - known);
        // By less, a burst of loss makes it look so.
        if SLOW * self.slow > carried {
            self.slow = SLOW * delivery / (1.0 - known);
            (self.differences, self.slow_loss) = (Moments::default(), Moments::default());
            (self.fast_delivery, self.fast_loss) = (delivery, Moments::default());
            self.fast_loss.push(loss);
            self.slow_packets = 0.0;
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

    /// Mean loss of both paces.
    fn mean_loss(&self) -> f64 {
        let (fast, slow) = (
            f64::from(self.fast_loss.count),
            f64::from(self.slow_loss.count),
        );
        (self.fast_loss.mean * fast + self.slow_loss.mean * slow) / (fast + slow)
    }

    /// What the mean difference may err by.
    fn error(&self) -> f64 {
        let pairs = self.differences.count;
        if pairs < MIN_PAIRS {
            // Few pairs have no scatter of their own: then that of earlier rounds counts.
            let stretches = self.slow_packets / STRETCH_PACKETS;
            return CERTAIN * self.alarm.deviation * (2.0 / stretches.max(1.0)).sqrt();
        }
        let few = 1.0 + STUDENT / f64::from(pairs - 1);
        SIGNIFICANT * few * self.differences.error()
    }

    /// Share of the excess that a slow stretch of this test must heal.
    fn telling_share(&self, excess: f64) -> f64 {
        telling_share(excess / (1.0 - self.alarm.known))
    }

    fn verdict(&self, now: Instant) -> Option<LossCause> {
        let pairs = self.differences.count;
        let elapsed = now.saturating_since(self.since).as_secs_f64();
        // If the excess were ours, a rate below what arrives would heal it.
        let excess = self.alarm.seen.max(self.fast_loss.mean) - self.alarm.known;
        let excess = excess.max(tolerance(self.alarm.known));
        let healed = excess.min(self.healed_by_slow());
        let (difference, error) = (self.differences.mean, self.error());
        let share = self.telling_share(excess);
        let surely = SURELY_HEALED * share;
        if pairs > 0 && difference > share * healed && difference - error > surely * healed {
            let remaining = self.slow_loss.mean;
            let chance = (remaining * (1.0 - remaining) / self.slow_packets.max(1.0)).sqrt();
            return Some(LossCause::Congestion(Blame {
                // What slow stretches saved in a policer's bucket comes on top in fast ones.
                delivered: self.fast_delivery.min(self.delivered),
                remaining,
                at_most: remaining + SIGNIFICANT * chance,
            }));
        }
        // Where slow stretches lose more it is others who change what they send.
        let alike = difference > -error && difference + error < share * excess;
        let may_be_path = pairs >= MIN_PAIRS && self.fast_loss.count > 0;
        if may_be_path && alike {
            return Some(LossCause::Path(self.mean_loss()));
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
mod tests;
