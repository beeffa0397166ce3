//! Feedback on a clock, as far as it can be afforded: a report a millisecond, but no more than 2 % of
//! the bytes that arrive, nor more than the sender says its way back carries.

use super::{Arrival, FeedbackPolicy};
use crate::packet::longest_report_interval;
use crate::time::{Duration, Instant};

/// The flagship's policy. Every report repeats the whole state, so the reverse path may lose most
/// of them.
#[derive(Clone, Debug)]
pub struct Timed {
    due: Option<Instant>,
    last: Option<Instant>,
    packets: u64,
    waiting: u32,
    /// The first packet of those that wait has waited long enough.
    patience_ends: Instant,
    repeats: u8,
    /// Bytes of reports that the bytes received have earned.
    earned: f64,
    /// UDP payload bytes of the last report.
    size: u64,
    /// Mean time between arrivals, and the last one.
    gap: Duration,
    arrived: Option<Instant>,
    /// Bytes of reports a second, headers included, that the sender wants at most.
    limit: Option<u64>,
    /// The round-trip time as of the last arrival.
    rtt: Duration,
}

/// Least time between reports, once the connection is past its start.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// A packet waits this long for another that may be close behind it.
const SHORT_WAIT: Duration = Duration::from_millis(2);
/// Part of a round trip that a packet waits at most where packets come closer than that: beyond it
/// the sender's decisions were late. Paths of less than a dozen packets a round trip take more than
/// their 2 % for it.
const PATIENCE: u32 = 4;
/// Feedback for what arrives, both as UDP payload.
const SHARE: f64 = 0.02;
/// Reports that may be owed, or saved up.
const CREDIT: f64 = 2.0;
/// The first flight is reported packet by packet: its spacing shows the bottleneck.
const EAGER_PACKETS: u64 = 96;
/// What the sender waits for is said this many times more, so that one loss does not delay it.
const URGENT_REPEATS: u8 = 2;
/// Between the repeats.
const REPEAT_INTERVAL: Duration = Duration::from_millis(4);
/// IPv4 and UDP, which the sender's limit includes.
const HEADERS: u64 = 28;
/// A report with header, tag and credit (38 bytes) that gives half of what is not the tag to the ACK and has
/// room for a BLOCKS frame (40) beside it.
const LEAST_REPORT: u64 = 140;
/// A sender that wants less feedback than one report in this time does not get its will.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Weight of an arrival in the mean gap: a sixteenth, so that groups of packets count as a whole.
const GAP_WEIGHT: u32 = 16;

/// Longest that a packet waits for others on a path of `rtt` on which they come `gap` apart.
fn longest_wait(rtt: Duration, gap: Duration) -> Duration {
    let patience = rtt / PATIENCE;
    let next = SHORT_WAIT + 2 * gap;
    if 2 * gap > patience {
        SHORT_WAIT // nothing is close behind it
    } else {
        next.min(patience).max(SHORT_WAIT)
    }
}

impl Default for Timed {
    fn default() -> Self {
        Self {
            due: None,
            last: None,
            packets: 0,
            waiting: 0,
            patience_ends: Instant::ZERO,
            repeats: 0,
            earned: 0.0,
            size: 80,
            gap: Duration::ZERO,
            arrived: None,
            limit: None,
            rtt: Duration::ZERO,
        }
    }
}

impl Timed {
    fn measure(&mut self, now: Instant, arrival: &Arrival) {
        let most = CREDIT * self.size as f64;
        self.earned = (self.earned + SHARE * arrival.size as f64).min(most);
        if let Some(before) = self.arrived.replace(now) {
            // A pause is no gap between packets.
            let gap = now
                .saturating_since(before)
                .min(arrival.rtt.max(SHORT_WAIT));
            self.gap = (self.gap * (GAP_WEIGHT - 1) + gap) / GAP_WEIGHT;
        }
    }

    /// The earliest that the sender's limit lets another report leave.
    fn allowed(&self) -> Option<Instant> {
        let (last, limit) = (self.last?, self.limit?);
        let interval = (self.size + HEADERS) as f64 / limit.max(1) as f64;
        Some(last + Duration::from_secs_f64(interval).min(LONGEST_INTERVAL))
    }
}

impl FeedbackPolicy for Timed {
    fn number(&self) -> u64 {
        0
    }

    fn max_delay(&self, rtt: Duration, gap: Duration) -> Duration {
        longest_wait(rtt, gap)
    }

    fn on_packet(&mut self, now: Instant, arrival: &Arrival) {
        self.measure(now, arrival);
        self.rtt = arrival.rtt;
        self.packets += 1;
        self.waiting += 1;
        if self.waiting == 1 {
            self.patience_ends = now + (arrival.rtt / PATIENCE).max(SHORT_WAIT);
        }
        let eager = self.packets <= EAGER_PACKETS;
        let affordable = self.earned >= self.size as f64;
        let ready = match self.waiting {
            2.. if eager => now,
            2.. if affordable => self.last.map_or(now, |last| last + MIN_INTERVAL).max(now),
            _ => (now + longest_wait(arrival.rtt, self.gap)).min(self.patience_ends),
        };
        // A later packet may put a report off that cannot be afforded yet, never an urgent one.
        self.due = match self.due {
            Some(due) if self.repeats > 0 || due <= now => Some(due.min(ready)),
            _ => Some(ready),
        };
    }

    fn on_immediate(&mut self, now: Instant, arrival: &Arrival) {
        self.on_packet(now, arrival);
        self.due = Some(now);
    }

    fn on_urgent(&mut self, now: Instant) {
        self.due = Some(now);
        self.repeats = URGENT_REPEATS;
    }

    fn on_limit(&mut self, bytes_per_second: Option<u64>) {
        self.limit = bytes_per_second;
    }

    fn most_in_report(&self) -> Option<u64> {
        let interval = longest_report_interval(self.rtt).as_secs_f64();
        let most = (self.limit? as f64 * interval) as u64;
        Some(most.saturating_sub(HEADERS).max(LEAST_REPORT))
    }

    fn due(&self) -> Option<Instant> {
        let urgent = self.repeats > 0;
        let allowed = self.allowed().filter(|_| !urgent);
        self.due
            .map(|due| allowed.map_or(due, |allowed| due.max(allowed)))
    }

    fn on_sent(&mut self, now: Instant, size: u64) {
        self.last = Some(now);
        self.waiting = 0;
        self.due = None;
        self.size = size;
        self.earned = (self.earned - size as f64).max(-CREDIT * size as f64);
        if self.repeats > 0 {
            self.repeats -= 1;
            self.due = Some(now + REPEAT_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: u64 = 80;

    fn packet(rtt_ms: u64) -> Arrival {
        let mut packet = Arrival::new(0, 1452);
        packet.rtt = Duration::from_millis(rtt_ms);
        packet
    }

    /// Packets `gap` apart over `seconds`: reports, and how long a packet waited at most.
    fn run(policy: &mut Timed, rtt_ms: u64, gap: Duration, seconds: f64) -> (f64, Duration) {
        let (packets, packet) = (seconds / gap.as_secs_f64(), packet(rtt_ms));
        let mut oldest: Option<Instant> = None;
        let (mut reports, mut longest) = (0.0, Duration::ZERO);
        for number in 0..packets as u32 {
            let now = Instant::ZERO + gap * number;
            while let Some(due) = policy.due().filter(|&due| due <= now) {
                let since = oldest.take().unwrap_or(due);
                longest = longest.max(due.saturating_since(since));
                policy.on_sent(due, REPORT);
                reports += 1.0;
            }
            oldest.get_or_insert(now);
            policy.on_packet(now, &packet);
        }
        (reports, longest)
    }

    #[test]
    fn fast_paths_are_reported_each_millisecond() {
        let (reports, longest) = run(&mut Timed::default(), 50, Duration::from_micros(120), 1.2);
        assert!((1000.0..1300.0).contains(&reports), "{reports}");
        assert!(longest <= SHORT_WAIT, "a packet waited {longest:?}");
    }

    #[test]
    fn feedback_takes_two_percent_of_what_arrives() {
        // 10 and 3 Mbit/s at 50 ms; 1 Mbit/s at 600 ms.
        for (rtt, gap_us) in [(50, 1200), (50, 4000), (600, 12_000)] {
            let gap = Duration::from_micros(gap_us);
            let (reports, longest) = run(&mut Timed::default(), rtt, gap, 60.0);
            let share = reports * REPORT as f64 / (60.0 / gap.as_secs_f64() * 1452.0);
            assert!((0.01..0.0205).contains(&share), "{gap:?}: {share}");
            let most = Duration::from_millis(rtt) / PATIENCE;
            assert!(longest <= most, "{gap:?}: a packet waited {longest:?}");
        }
    }

    #[test]
    fn a_packet_without_others_close_behind_it_does_not_wait_for_them() {
        let gap = Duration::from_millis(40);
        let (reports, longest) = run(&mut Timed::default(), 50, gap, 20.0);
        assert!(reports >= 499.0, "{reports}");
        // The first gaps are not known.
        assert!(longest <= Duration::from_millis(13), "{longest:?}");
    }

    #[test]
    fn the_senders_limit_holds_but_for_what_is_urgent() {
        let mut policy = Timed::default();
        policy.on_limit(Some(6250));
        let (reports, _) = run(&mut policy, 50, Duration::from_micros(120), 2.0);
        let bytes = reports * (REPORT + HEADERS) as f64;
        assert!((11_000.0..12_700.0).contains(&bytes), "{bytes}");
        let now = Instant::ZERO + Duration::from_secs(2);
        policy.on_urgent(now);
        assert_eq!(policy.due(), Some(now));
    }

    #[test]
    fn reports_of_a_limited_receiver_are_short_rather_than_rare() {
        let mut policy = Timed::default();
        assert_eq!(policy.most_in_report(), None);
        policy.on_limit(Some(2000));
        policy.on_packet(Instant::ZERO, &packet(50));
        assert_eq!(policy.most_in_report(), Some(200 - HEADERS));
        policy.on_packet(Instant::ZERO, &packet(600));
        assert_eq!(policy.most_in_report(), Some(600 - HEADERS));
        // One that says something, however few bytes may leave.
        policy.on_limit(Some(100));
        assert_eq!(policy.most_in_report(), Some(LEAST_REPORT));
    }

    #[test]
    fn a_probe_is_answered_at_once_and_only_once() {
        let mut policy = Timed::default();
        policy.on_packet(Instant::ZERO, &packet(50));
        let probe = Instant::ZERO + Duration::from_micros(120);
        policy.on_immediate(probe, &packet(50));
        assert_eq!(policy.due(), Some(probe));
        policy.on_sent(probe, REPORT);
        assert_eq!(policy.due(), None);
    }

    #[test]
    fn urgent_news_goes_at_once_and_is_repeated() {
        let mut policy = Timed::default();
        policy.on_urgent(Instant::ZERO);
        let mut said = 0;
        while let Some(due) = policy.due() {
            policy.on_sent(due, REPORT);
            said += 1;
        }
        assert_eq!(said, 3);
    }
}
