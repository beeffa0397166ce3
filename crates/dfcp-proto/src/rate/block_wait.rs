//! RC-UDP's block-by-block flow control (RC-UDP §IV-B): when a block is acknowledged, the next one
//! waits T = ΔP · δt, ΔP being the packets sent of the block beyond those that it needed.
//!
//! What happens between the pauses is another controller's choice. "If no pre-encoded blocks exist
//! then the encoder waits until the next block is encoded and sends it with no delay."

use super::{BlockSent, Codepoint, Departure, Feedback, RateController, leave_to_inner};
use crate::time::{Duration, Instant, Rate};

/// A controller with pauses between blocks.
#[derive(Debug)]
pub struct BlockWait {
    inner: Box<dyn RateController>,
    per_packet: Duration,
    /// End of the pause.
    until: Option<Instant>,
}

impl BlockWait {
    /// Sends as `inner` does, and waits `per_packet` (δt) for each packet dropped.
    pub fn new(inner: Box<dyn RateController>, per_packet: Duration) -> Self {
        Self {
            inner,
            per_packet,
            until: None,
        }
    }
}

impl RateController for BlockWait {
    leave_to_inner!(
        on_pair,
        is_probing,
        ecn,
        on_timeout,
        round_trip,
        refused_reports,
        on_order,
        is_bounded,
        window,
        max_burst,
        initial_burst,
        bandwidth,
    );

    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.inner.on_established(now, rtt, packet_size);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.inner.on_feedback(feedback);
    }

    fn on_sent(&mut self, now: Instant, sent_total: u64) {
        self.until = None;
        self.inner.on_sent(now, sent_total);
    }

    fn on_block_acked(&mut self, now: Instant, block: &BlockSent) {
        self.inner.on_block_acked(now, block);
        let dropped = block.sent.saturating_sub(block.needed);
        let dropped = u32::try_from(dropped).unwrap_or(u32::MAX);
        if block.next_is_ready && dropped > 0 {
            let until = now + self.per_packet.saturating_mul(dropped);
            self.until = self.until.max(Some(until));
        }
    }

    fn departure(&self) -> Departure {
        let inner = self.inner.departure();
        Departure {
            at: self.until.max(inner.at),
            ..inner
        }
    }

    fn pacing_rate(&self) -> Rate {
        self.inner.pacing_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::{FixedRate, MaxRate};

    const DELTA: Duration = Duration::from_micros(300);
    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn the_pause_is_the_papers_and_ends_with_the_packet_that_waited() {
        let mut wait = BlockWait::new(Box::new(MaxRate), DELTA);
        assert_eq!(wait.departure(), Departure::default());
        wait.on_block_acked(NOW, &BlockSent::new(1087, 987));
        let until = NOW + Duration::from_millis(30);
        assert_eq!(wait.departure().at, Some(until));
        wait.on_sent(until, 1);
        assert_eq!(wait.departure().at, None);
    }

    #[test]
    fn nothing_dropped_or_nothing_ready_is_no_pause() {
        let waited_for = BlockSent {
            next_is_ready: false,
            ..BlockSent::new(2000, 987)
        };
        for block in [BlockSent::new(987, 987), BlockSent::new(3, 987), waited_for] {
            let rate = FixedRate::new(Rate::from_bps(1_000_000));
            let mut wait = BlockWait::new(Box::new(rate), DELTA);
            wait.on_block_acked(NOW, &block);
            assert_eq!(wait.departure().at, None, "{block:?}");
            assert_eq!(wait.pacing_rate(), Rate::from_bps(1_000_000));
        }
    }

    #[test]
    fn what_the_inner_controller_needs_of_receivers_and_pacer_goes_through() {
        let mut inner = crate::rate::Tfrc::new(Default::default(), Default::default());
        inner.on_established(Instant::ZERO, Duration::from_millis(50), 1472);
        let (round_trip, burst) = (inner.round_trip(), inner.max_burst());
        let wait = BlockWait::new(Box::new(inner), DELTA);
        assert!(
            round_trip.is_some(),
            "its receivers judge loss events by it"
        );
        assert_eq!((wait.round_trip(), wait.max_burst()), (round_trip, burst));
    }

    #[test]
    fn numbers_without_sense_do_not_overflow() {
        let mut wait = BlockWait::new(Box::new(MaxRate), Duration::from_secs(1 << 40));
        wait.on_block_acked(NOW, &BlockSent::new(u64::MAX, 0));
        assert!(wait.departure().at > Some(NOW));
    }
}
