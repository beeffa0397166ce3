//! DFCP's policy (DFCP-J §4.5): a block is acknowledged as soon as there is enough of it, and again
//! when packets go on arriving.

use super::{Arrival, FeedbackPolicy};
use crate::time::{Duration, Instant};

/// Feedback for each block.
#[derive(Clone, Debug, Default)]
pub struct BlockAcks {
    due: Option<Instant>,
}

/// Packets that go on arriving are answered this much later: their block's ACK may be lost.
const REPEAT: Duration = Duration::from_millis(20);

impl FeedbackPolicy for BlockAcks {
    fn number(&self) -> u64 {
        1
    }

    fn max_delay(&self, _rtt: Duration, _gap: Duration) -> Duration {
        REPEAT
    }

    fn on_packet(&mut self, now: Instant, _arrival: &Arrival) {
        self.due.get_or_insert(now + REPEAT);
    }

    fn on_block(&mut self, now: Instant) {
        self.due = Some(now);
    }

    fn on_urgent(&mut self, now: Instant) {
        self.due = Some(now);
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn on_sent(&mut self, _now: Instant, _size: u64) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_acknowledged_at_once_and_further_packets_ask_again() {
        let (mut policy, start) = (BlockAcks::default(), Instant::ZERO);
        let packet = Arrival::new(0, 1200);
        policy.on_packet(start, &packet);
        assert_eq!(policy.due(), Some(start + REPEAT));
        policy.on_packet(start + REPEAT / 2, &packet);
        assert_eq!(policy.due(), Some(start + REPEAT), "not put off");
        let complete = start + REPEAT / 2;
        policy.on_block(complete);
        assert_eq!(policy.due(), Some(complete));
        policy.on_sent(complete, 80);
        assert_eq!(policy.due(), None);
        policy.on_packet(complete, &packet);
        assert_eq!(policy.due(), Some(complete + REPEAT));
    }
}
