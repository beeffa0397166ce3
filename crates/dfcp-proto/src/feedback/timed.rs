//! Feedback on a clock: at most every millisecond, at most two milliseconds late.

use super::{Arrival, FeedbackPolicy};
use crate::time::{Duration, Instant};

/// The flagship's policy. Feedback is cheap beside data (about one packet in eight at
/// 100 Mbit/s, fewer above) and every report repeats the whole state, so the reverse path may
/// lose most of it.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    due: Option<Instant>,
    last: Option<Instant>,
    packets: u64,
    waiting: u32,
    repeats: u8,
}

/// Least time between reports, once the connection is past its start.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Most time a packet waits.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(2);
/// The first flight is reported packet by packet: its spacing shows the bottleneck.
const EAGER_PACKETS: u64 = 96;
/// What the sender waits for is said this many times more, so that one loss does not delay it.
const URGENT_REPEATS: u8 = 2;
/// Between the repeats.
const REPEAT_INTERVAL: Duration = Duration::from_millis(4);

impl FeedbackPolicy for Timed {
    fn on_packet(&mut self, now: Instant, _arrival: &Arrival) {
        self.packets += 1;
        self.waiting += 1;
        let ready = match self.waiting {
            1 => now + MAX_DELAY,
            _ if self.packets <= EAGER_PACKETS => now,
            _ => self.last.map_or(now, |last| last + MIN_INTERVAL),
        };
        self.due = Some(self.due.map_or(ready, |due| due.min(ready)));
    }

    fn on_echo(&mut self, now: Instant, arrival: &Arrival) {
        self.on_packet(now, arrival);
        self.due = Some(now);
    }

    fn on_urgent(&mut self, now: Instant) {
        self.due = Some(now);
        self.repeats = URGENT_REPEATS;
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn on_sent(&mut self, now: Instant) {
        self.last = Some(now);
        self.waiting = 0;
        self.due = None;
        if self.repeats > 0 {
            self.repeats -= 1;
            self.due = Some(now + REPEAT_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Arrival = Arrival::new(0, 1200);
    const PACKET_GAP: Duration = Duration::from_micros(120);

    #[test]
    fn reports_are_rate_limited_and_never_late() {
        let mut policy = Timed::default();
        let (mut now, mut reports, mut oldest) = (Instant::ZERO, 0u32, None);
        for _ in 0..10_000 {
            now += PACKET_GAP;
            if policy.due().is_some_and(|due| due <= now) {
                policy.on_sent(now);
                (reports, oldest) = (reports + 1, None);
            }
            policy.on_packet(now, &PACKET);
            let waits = now.saturating_since(*oldest.get_or_insert(now));
            assert!(waits <= MAX_DELAY, "a packet waited {waits:?}");
        }
        assert!(
            (1000..1300).contains(&reports),
            "{reports} reports in 1.2 s"
        );
    }

    #[test]
    fn a_probe_is_answered_at_once_and_only_once() {
        let mut policy = Timed::default();
        policy.on_packet(Instant::ZERO, &PACKET);
        let probe = Instant::ZERO + PACKET_GAP;
        policy.on_echo(probe, &PACKET);
        assert_eq!(policy.due(), Some(probe));
        policy.on_sent(probe);
        assert_eq!(policy.due(), None);
    }

    #[test]
    fn urgent_news_goes_at_once_and_is_repeated() {
        let mut policy = Timed::default();
        policy.on_urgent(Instant::ZERO);
        let mut said = 0;
        while let Some(due) = policy.due() {
            policy.on_sent(due);
            said += 1;
        }
        assert_eq!(said, 3);
    }
}
