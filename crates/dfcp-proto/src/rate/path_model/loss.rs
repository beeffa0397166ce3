//! Whose loss is it: the path's own, or ours for sending too fast?
//!
//! Loss by itself does not tell. So when a round trip loses more than the path is known to lose by
//! itself, the sender checks: it slows down to a share of the rate at which packets *arrived*, a
//! rate the path has just carried, and looks again. Loss that stays is the path's own and is
//! tolerated from then on; loss that goes was congestion.

use crate::rate::AckPoint;
use crate::time::{Duration, Instant};

/// Rate of a check, as a share of the rate at which packets arrived.
const CHECK_SHARE: f64 = 0.8;
/// Packets of a check that may still meet the queue from before.
const SETTLE: f64 = 24.0;
/// A check lasts until it should have seen this many losses.
const EXPECTED_LOSSES: f64 = 8.0;
/// Bounds of its length, packets.
const MIN_PACKETS: f64 = 48.0;
const MAX_PACKETS: f64 = 800.0;
/// Less than this share of the loss left means that it was ours: with eight losses expected, chance
/// alone gets here one time in 25.
const OWN_SHARE: f64 = 0.5;
/// Loss above the known by less than this is not worth a check.
const TOLERANCE: f64 = 0.01;

/// Rounds in a row that must lose too much: where packets overtake each other one may look bad.
const EXCESSIVE: u32 = 2;

/// What was sent and what arrived of it, in bytes, over some time of arrivals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    sent: f64,
    delivered: f64,
    packets: f64,
    pub(super) seconds: f64,
}

impl Sample {
    /// The stretch between two acknowledged packets.
    pub(super) fn between(from: &AckPoint, to: &AckPoint, packet: f64) -> Self {
        let sent = to.sent_total.saturating_sub(from.sent_total) as f64;
        let delivered = to.delivered_total.saturating_sub(from.delivered_total) as f64;
        let time = to.received_at.saturating_sub(from.received_at);
        let packets = (sent / packet).max(1.0);
        Self {
            sent,
            delivered,
            packets,
            seconds: time.as_secs_f64().max(1e-6),
        }
    }

    fn loss(&self) -> f64 {
        (1.0 - self.delivered / self.sent.max(1.0)).clamp(0.0, 0.99)
    }
}

/// What the path loses by itself.
#[derive(Debug, Default)]
pub(super) struct PathLoss {
    /// Loss probability of the path while it is not full.
    pub(super) base: f64,
    /// What of it a check has shown. No more than the tolerance is believed beyond: loss of our
    /// own making that grows slowly would pass for the path's.
    verified: f64,
    /// Rounds in a row that lost more.
    excessive: u32,
    /// The first such round says at once that the path is a lossy one.
    suspected: bool,
}

impl PathLoss {
    /// The most that chance may make of the known loss.
    fn allowed(&self, packets: f64) -> f64 {
        let variance = self.base.max(1.0 / packets) * (1.0 - self.base) / packets;
        self.base + TOLERANCE + 3.0 * variance.sqrt()
    }

    /// Bytes that went through the bottleneck.
    pub(super) fn offered(&self, sample: &Sample) -> f64 {
        if sample.loss() <= self.allowed(sample.packets) {
            sample.sent
        } else {
            (sample.delivered / (1.0 - self.base)).min(sample.sent)
        }
    }

    /// Learns from a round; true if it and the one before lost more than the
    /// path is known to. While `pushing`, small
    /// losses may be of our own making and teach nothing.
    pub(super) fn end_round(&mut self, round: &Sample, pushing: bool) -> bool {
        if round.packets < 16.0 {
            return false;
        }
        let loss = round.loss();
        if loss > self.allowed(round.packets) {
            self.excessive += 1;
            let first = !std::mem::replace(&mut self.suspected, true);
            return first || self.excessive >= EXCESSIVE;
        }
        self.excessive = 0;
        if loss < self.base {
            self.base += 0.125 * (loss - self.base);
            self.verified += (loss - self.verified).min(0.0) / 64.0;
        } else if !pushing {
            let learnt = self.base + 0.0625 * (loss - self.base);
            self.base = learnt.min(self.verified + TOLERANCE);
        }
        false
    }

    /// A check saw this. If it is less than what is known, and chance does not explain it, what
    /// was known comes of sending too fast.
    pub(super) fn refute(&mut self, seen: &Seen) {
        if self.base * seen.packets > EXPECTED_LOSSES && seen.loss < self.base {
            self.verify(seen.loss);
        }
    }

    /// A check showed that the path loses this.
    pub(super) fn verify(&mut self, loss: f64) {
        (self.base, self.verified) = (loss, loss);
    }
}

/// What a check lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) loss: f64,
    pub(super) packets: f64,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The path loses this by itself.
    Own(f64),
    /// We sent too fast, and more slowly this was lost. `None` if the queue would not drain or too
    /// little was sent to tell: a mistake this way only costs time.
    Congestion(Option<Seen>),
}

/// A look at the loss from below the rate that is known to arrive.
#[derive(Debug)]
pub(super) struct Check {
    since: Instant,
    /// Packets from here on were sent during the check.
    from_total: u64,
    first: Option<AckPoint>,
    loss_before: f64,
    packets_before: f64,
    /// Longest time until packets of the check come back from an empty queue, seconds.
    wait: f64,
    /// Rates before the check, bytes per second: what arrived, and what was sent.
    pub(super) delivered: f64,
    pub(super) offered: f64,
    /// Whether there was a queue to be seen when it began.
    pub(super) queue_seen: bool,
}

impl Check {
    /// A check for the loss of `round`; what was sent before `from_total` does not count.
    /// `carried` is a rate that the path is known to have carried, in case the round had gaps;
    /// `wait` seconds is how long the queue may take to drain.
    pub(super) fn new(
        now: Instant,
        round: &Sample,
        from_total: u64,
        carried: f64,
        wait: f64,
    ) -> Self {
        let delivered = (round.delivered / round.seconds).max(carried);
        Self {
            since: now,
            from_total,
            first: None,
            loss_before: round.loss(),
            packets_before: round.packets,
            wait,
            delivered,
            offered: delivered / (1.0 - round.loss()),
            queue_seen: false,
        }
    }

    /// The rate to keep to, bytes per second.
    pub(super) fn rate(&self) -> f64 {
        CHECK_SHARE * self.delivered
    }

    /// The verdict, once there is one. Packets that still meet a full queue do not count.
    pub(super) fn verdict(
        &mut self,
        now: Instant,
        last: AckPoint,
        packet: f64,
        still_full: bool,
    ) -> Option<Verdict> {
        let want = (EXPECTED_LOSSES / self.loss_before).clamp(MIN_PACKETS, MAX_PACKETS);
        let settled = self.from_total + (SETTLE * packet) as u64;
        if last.sent_total >= settled && (self.first.is_some() || !still_full) {
            let first = self.first.get_or_insert(last);
            let sample = Sample::between(first, &last, packet);
            if sample.packets >= want {
                let loss = sample.loss();
                let own = loss >= OWN_SHARE * self.loss_before;
                return Some(if own {
                    // Nothing changed it, so what was seen before is as good.
                    let lost = loss * sample.packets + self.loss_before * self.packets_before;
                    Verdict::Own(lost / (sample.packets + self.packets_before))
                } else {
                    Verdict::Congestion(Some(Seen {
                        loss,
                        packets: sample.packets,
                    }))
                });
            }
        }
        let patience = self.wait + 2.0 * (want + SETTLE) * packet / self.rate().max(1.0);
        let late = now.saturating_since(self.since) > Duration::from_secs_f64(patience.min(60.0));
        late.then_some(Verdict::Congestion(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: f64 = 1500.0;

    fn point(packets: u64, arrived: u64, millis: u64) -> AckPoint {
        let time = Duration::from_millis(millis);
        let sent_at = Instant::ZERO + time;
        AckPoint::new(time, sent_at, packets * 1500, arrived * 1500)
    }

    /// A round with 20 % lost, then a check in which `share` of the packets is lost.
    fn check(share: f64) -> Option<Verdict> {
        let (start, end) = (point(0, 0, 0), point(500, 400, 60));
        let round = Sample::between(&start, &end, PACKET);
        let mut check = Check::new(Instant::ZERO, &round, 500 * 1500, 0.0, 1.0);
        assert!(check.rate() < 400.0 * PACKET / 0.060, "below what arrived");
        (500..700u64).find_map(|sent| {
            let arrived = 400.0 + (sent - 500) as f64 * (1.0 - share);
            let now = Instant::ZERO + Duration::from_millis(sent / 10);
            check.verdict(now, point(sent, arrived as u64, sent), PACKET, false)
        })
    }

    #[test]
    fn loss_that_stays_below_the_carried_rate_is_the_paths_own() {
        assert!(matches!(check(0.2), Some(Verdict::Own(loss)) if (loss - 0.2).abs() < 0.03));
    }

    #[test]
    fn loss_that_goes_was_congestion() {
        assert!(matches!(check(0.0), Some(Verdict::Congestion(Some(s))) if s.loss == 0.0));
        assert!(matches!(check(0.05), Some(Verdict::Congestion(Some(_)))));
    }

    #[test]
    fn a_check_without_traffic_ends() {
        let round = Sample::between(&point(0, 0, 0), &point(500, 400, 60), PACKET);
        let mut check = Check::new(Instant::ZERO, &round, 500 * 1500, 0.0, 1.0);
        let late = Instant::ZERO + Duration::from_secs(61);
        let verdict = check.verdict(late, point(500, 400, 60), PACKET, false);
        assert_eq!(verdict, Some(Verdict::Congestion(None)));
    }

    #[test]
    fn pushing_teaches_no_loss() {
        let mut loss = PathLoss::default();
        let round =
            |lost: u64| Sample::between(&point(0, 0, 0), &point(1000, 1000 - lost, 60), PACKET);
        for _ in 0..1000 {
            loss.end_round(&round(8), true);
        }
        assert_eq!(
            loss.base, 0.0,
            "small losses of our own making must not add up"
        );
        for _ in 0..1000 {
            loss.end_round(&round(8), false);
        }
        assert!((loss.base - 0.008).abs() < 0.001);
    }
}
