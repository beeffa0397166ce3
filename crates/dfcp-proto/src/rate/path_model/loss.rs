//! Loss of the path, and the test that tells it from loss of our own making.
//!
//! Loss by itself says nothing of congestion. What says something is whether it *depends on our
//! rate*: loss that sending less heals is congestion, loss that stays is the path's own (erasures).
//! So when rounds lose more than the path is known to, a test ([`loss_cause`](super::loss_cause))
//! compares two rates. Without a verdict nothing changes: rates do not fall for loss that a lower rate
//! does not heal.

use super::PathModel;
use super::tuning::loss::*;
use super::tuning::loss_test::STRETCH_PACKETS;
use crate::rate::AckPoint;
use crate::time::{Duration, Instant};
use std::ops::AddAssign;

/// Loss beyond the known that is worth a test: a hundredth, and an eighth of what is known. Less costs
/// less than the test, and could hardly be told from chance.
pub(super) fn tolerance(known: f64) -> f64 {
    TOLERANCE + TOLERANCE_SHARE * known
}

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

    /// The same without its gaps, if these are outages and so long that a round with them would teach nothing. Gaps that
    /// lost no more than the rest and chance explain are none: reports were lost.
    pub(super) fn without(self, gaps: Gaps, packet: f64) -> Self {
        if !PathModel::had_outage(gaps.seconds, self.seconds) {
            return self;
        }
        let sent = (self.sent - gaps.sent).max(0.0);
        let rest = Self {
            sent,
            delivered: (self.delivered - gaps.delivered).max(0.0),
            packets: (sent / packet).max(1.0),
            seconds: (self.seconds - gaps.seconds).max(1e-6),
        };
        let (loss, packets) = (rest.loss(), (gaps.sent / packet).max(1.0));
        let chance = CERTAIN * (loss * (1.0 - loss) / packets).sqrt();
        let is_outage = 1.0 - gaps.delivered / gaps.sent.max(1.0) > loss + chance;
        if is_outage { rest } else { self }
    }

    /// Share lost.
    pub(super) fn loss(&self) -> f64 {
        (1.0 - self.delivered / self.sent.max(1.0)).clamp(0.0, 0.99)
    }
}

/// Long gaps between packets that were acknowledged one after the other: outages, or reports were lost. What was sent in
/// them and what arrived of it, bytes, and for how many seconds it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps {
    sent: f64,
    delivered: f64,
    seconds: f64,
}

impl Gaps {
    /// The gap between two of them.
    pub(super) fn between(from: &AckPoint, to: &AckPoint) -> Self {
        let delivered = to.delivered_total.saturating_sub(from.delivered_total);
        Self {
            sent: to.sent_total.saturating_sub(from.sent_total) as f64,
            delivered: delivered as f64,
            seconds: to.sent_at.saturating_since(from.sent_at).as_secs_f64(),
        }
    }
}

impl AddAssign for Gaps {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.seconds += other.seconds;
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
    tested: bool,
    /// What the last deep drain lost.
    at_rest: Option<f64>,
    /// What a test that blamed our rate saw lost at a rate that the path carried.
    remaining: f64,
    /// Variance of the loss of rounds of `round_packets`, now and when they last lost no more than the known.
    variance: f64,
    calm_variance: f64,
    round_packets: f64,
    last: Option<f64>,
    /// The less of the last two rounds' losses.
    sustained: f64,
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
            self.sustained = loss.min(last);
        }
        self.rounds = (self.rounds + 1.0).min(ALARM_ROUNDS);
        self.recent += (loss - self.recent) / self.rounds;
        if self.recent <= self.explained_by_path() {
            self.calm_variance = self.variance;
        }
        self.round_packets = if self.round_packets == 0.0 {
            round.packets
        } else {
            self.round_packets + (round.packets - self.round_packets) * ROUND_WEIGHT
        };
        if loss < self.mean || !probing {
            self.mean += (loss - self.mean) * ROUND_WEIGHT;
            self.mean = self.mean.min(self.verified + tolerance(self.verified));
        }
        self.verified += (self.mean - self.verified).min(0.0) * VERIFIED_WEIGHT;
        self.remaining = self.remaining.min(self.recent);
    }

    /// The least that is lost at any rate, as far as that was seen.
    pub(super) fn unavoidable(&self) -> f64 {
        self.mean.max(self.remaining)
    }

    /// Bytes of a stretch that a bottleneck carried which refused what was lost beyond the unavoidable.
    pub(super) fn carried_of(&self, stretch: &Stretch) -> f64 {
        (stretch.delivered / (1.0 - self.unavoidable())).min(stretch.sent)
    }

    /// Whether so much is lost at any rate, also while everybody sends little, that no sender that answers loss keeps a
    /// queue there.
    pub(super) fn leaves_no_window(&self) -> bool {
        self.unavoidable() > NO_WINDOW && self.at_rest.is_some_and(|rest| rest > NO_WINDOW)
    }

    /// Whether that is not known, as no deep drain has said anything of it.
    pub(super) fn may_leave_no_window(&self) -> bool {
        self.unavoidable() > NO_WINDOW && self.at_rest.is_none()
    }

    fn explained_by_path(&self) -> f64 {
        let known = self.verified.max(self.mean);
        known + tolerance(known)
    }

    /// Whether the path's own loss and chance explain that so much of `packets` was lost.
    pub(super) fn explains(&self, lost: f64, packets: f64) -> bool {
        lost <= self.explained_by_path() + CERTAIN * self.deviation(packets)
    }

    /// Whether the last rounds lost more than the path is known to and chance explains.
    pub(super) fn is_excessive(&self) -> bool {
        let packets = self.round_packets * self.rounds;
        let chance = CERTAIN * self.deviation(packets);
        let explained = self.explained_by_path();
        self.is_judged()
            && (self.recent > explained + chance || self.sustained > explained.max(MOST_OF_ROUND))
    }

    /// Whether so much more than known that no sender should make up for it.
    pub(super) fn is_flood(&self) -> bool {
        self.is_excessive() && self.recent > self.mean + FLOOD
    }

    /// Whether less than half as much arrived in the last round as in the one before: a burst of loss, perhaps,
    /// of which a test would take what it left for what the path carries.
    pub(super) fn is_sudden(&self) -> bool {
        self.last
            .is_some_and(|last| 1.0 - last < (1.0 - self.sustained) / 2.0)
    }

    /// Whether most was lost two rounds in a row.
    pub(super) fn is_most(&self) -> bool {
        self.sustained > MOST_OF_ROUND
    }

    /// Whether no test has said anything of the path yet.
    pub(super) fn is_untested(&self) -> bool {
        !self.tested
    }

    /// Whether there were enough rounds to say so.
    pub(super) fn is_judged(&self) -> bool {
        self.rounds >= 2.0
    }

    /// Whether no test failed lately.
    pub(super) fn may_test(&self, now: Instant) -> bool {
        self.quiet_until.is_none_or(|until| now >= until)
    }

    /// Mean loss of the last rounds.
    pub(super) fn recent(&self) -> f64 {
        self.recent
    }

    /// Whether as many rounds as an alarm looks at were seen since it was looked at afresh.
    pub(super) fn is_certain(&self) -> bool {
        self.rounds >= ALARM_ROUNDS
    }

    /// Looks at the next rounds afresh.
    pub(super) fn begin_again(&mut self) {
        self.rounds = 0.0;
    }

    /// What a test starts from.
    pub(super) fn alarm(&self) -> Alarm {
        Alarm {
            known: self.mean,
            seen: self.recent,
            deviation: self.scatter(self.recent, STRETCH_PACKETS),
        }
    }

    /// A deep drain lost so much.
    pub(super) fn rest(&mut self, loss: f64) {
        self.at_rest = Some(loss);
    }

    /// A test showed that the path loses this by itself.
    pub(super) fn verify(&mut self, loss: f64) {
        (self.mean, self.verified) = (loss, loss);
        (self.tested, self.remaining) = (true, 0.0);
        (self.rounds, self.unknown, self.quiet_until) = (0.0, 0, None);
        self.recent = loss;
    }

    /// Excess loss was of our making: the rounds that showed it do not count, and neither what they scattered nor that it
    /// ends is scatter. At a rate that the path carried this much was lost all the same, by the path or by others.
    pub(super) fn blame_rate(&mut self, remaining: f64) {
        self.remaining = remaining;
        (self.recent, self.rounds, self.unknown) = (self.mean, 0.0, 0);
        (self.last, self.sustained) = (None, 0.0);
        self.variance = self.variance.min(self.calm_variance);
        self.tested = true;
    }

    /// A queue that overflows explains the loss of late and its scatter: the path itself loses no more
    /// than `short`, what was lost while the queue was short.
    pub(super) fn explain_by_queue(&mut self, short: f64) {
        self.mean = self.mean.min(short);
        self.verified = self.verified.min(short);
        self.variance = 0.0;
        (self.recent, self.rounds) = (self.mean, 0.0);
        (self.last, self.sustained) = (None, 0.0);
    }

    /// A test had no verdict: none for a while, longer each time.
    pub(super) fn postpone(&mut self, now: Instant, loop_time: f64) {
        self.unknown = (self.unknown + 1).min(RETRY_DOUBLINGS);
        let wait = RETRY_LOOPS * loop_time * f64::from(1u32 << self.unknown);
        self.quiet_until = Some(now + Duration::from_secs_f64(wait.min(RETRY_AT_MOST)));
        self.rounds = 0.0;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: f64 = 1500.0;

    /// A thousand packets, of which `lost` are.
    fn round(lost: f64) -> Stretch {
        Stretch {
            sent: 1000.0 * PACKET,
            delivered: (1000.0 - lost) * PACKET,
            packets: 1000.0,
            seconds: 0.06,
        }
    }

    #[test]
    fn what_remains_after_the_rate_was_blamed_leaves_others_no_window() {
        let mut loss = PathLoss::default();
        loss.blame_rate(0.15);
        loss.end_round(&round(150.0), true);
        assert!(!loss.leaves_no_window(), "several may lose as much");
        loss.rest(0.15);
        assert!(loss.leaves_no_window());
        // What the slow rate of the test lost as well was of its own making, too.
        for _ in 0..10 {
            loss.end_round(&round(0.0), true);
        }
        assert!(!loss.leaves_no_window());
    }

    #[test]
    fn what_a_flood_scattered_hides_no_loss_after_it() {
        let mut loss = PathLoss::default();
        for lost in [0.0, 10.0, 700.0, 300.0, 900.0] {
            loss.end_round(&round(lost), false);
        }
        assert!(loss.deviation(1000.0) > 0.1);
        loss.blame_rate(0.15);
        assert!(loss.deviation(1000.0) < 0.02, "{}", loss.deviation(1000.0));
    }

    #[test]
    fn a_gap_of_lost_reports_is_no_outage() {
        let gap = |delivered: f64| Gaps {
            sent: 400.0 * PACKET,
            delivered: delivered * PACKET,
            seconds: 0.024,
        };
        // Of 600 packets beside the gap 240 are lost, as of those in it.
        assert_eq!(round(400.0).without(gap(240.0), PACKET).packets, 1000.0);
        let rest = round(630.0).without(gap(10.0), PACKET);
        assert_eq!((rest.packets, rest.loss()), (600.0, 0.4));
    }

    #[test]
    fn probing_teaches_no_loss() {
        let mut loss = PathLoss::default();
        let round = round(8.0);
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
