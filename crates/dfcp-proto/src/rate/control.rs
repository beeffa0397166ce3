//! What a sender knows of its path, and when it may send, whatever its wire: round trips, totals, the
//! rate controller and the pacer that follows it.
//!
//! A wire counts what it sends and says what its acknowledgements teach; here that becomes one
//! [`Feedback`] for the controller.

use super::{AckPoint, BlockSent, Feedback, RateController};
use crate::observe::PathMetrics;
use crate::packet::{Pacer, Place, RttEstimator};
use crate::time::{Duration, Instant, Rate};

/// Bounds of [`PathControl::coalescing_delay`]. Below the first one, wake-ups cost more than all that
/// is done with packets; at the second, 100 wake-ups a second of some 100 µs each take a hundredth of
/// a processor, so longer waits would save next to nothing.
pub(crate) const MIN_COALESCING: Duration = Duration::from_millis(1);
pub(crate) const MAX_COALESCING: Duration = Duration::from_millis(10);
/// As long packets wait at most during a [`Conversation`], where each message would wait at both ends for those
/// of others: as long as feedback waits for a second packet. Beside a download over 80 ms that is five times
/// as many wake-ups.
const CONVERSING_COALESCING: Duration = Duration::from_millis(2);
/// After short messages in both directions further ones are expected for as long: the initial RTO of TCP (RFC
/// 6298 §2.1), after which its window begins anew, too. Who types says something more often.
const CONVERSATION: Duration = Duration::from_secs(1);

/// Whether short messages come and go: somebody says something and waits for an answer. One direction alone is
/// none, such as that in which the progress of a transfer is told.
#[derive(Debug, Default)]
struct Conversation {
    said: Option<Instant>,
    heard: Option<Instant>,
}

impl Conversation {
    fn on_time(&mut self, now: Instant) {
        for last in [&mut self.said, &mut self.heard] {
            last.take_if(|at| *at + CONVERSATION <= now);
        }
    }

    fn goes_on(&self) -> bool {
        self.said.is_some() && self.heard.is_some()
    }
}

/// How packets leave together once paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// As the path lets them wait ([`PathControl::coalescing_delay`]), this long at most, and the
    /// controller.
    Coalesced(Duration),
    /// As the pacer has it.
    Fixed,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct PathControl {
    rate: Box<dyn RateController>,
    pacer: Pacer,
    grouping: Grouping,
    pub rtt: RttEstimator,
    /// Bytes of a full data packet.
    packet: u64,
    /// Bytes sent, and known to have arrived.
    sent_total: u64,
    delivered_total: u64,
    /// `sent_total` when there was last nothing to send, though a packet might have gone.
    idle_total: u64,
    /// The same, unless there was more that waited for the receiver.
    app_limited_total: u64,
    conversation: Conversation,
}

impl PathControl {
    pub fn new(now: Instant, rate: Box<dyn RateController>, grouping: Grouping) -> Self {
        Self {
            rate,
            pacer: Pacer::new(now, 0, 1500),
            grouping,
            rtt: RttEstimator::default(),
            packet: 1500,
            sent_total: 0,
            delivered_total: 0,
            idle_total: 0,
            app_limited_total: 0,
            conversation: Conversation::default(),
        }
    }

    /// The handshake is done; full data packets have `packet` bytes.
    pub fn on_established(&mut self, now: Instant, packet: u64) {
        self.packet = packet;
        self.rate.on_established(now, self.rtt.smoothed(), packet);
        self.restart(now);
    }

    /// Two packets that left together in the handshake arrived as a path of `rate` draws them apart.
    pub fn on_pair(&mut self, now: Instant, rate: Rate) {
        let before = self.rate.initial_burst();
        self.rate.on_pair(now, rate);
        let more = self.rate.initial_burst().saturating_sub(before);
        self.pacer.grant(more);
        self.follow_rate(now);
    }

    /// The first packets begin again, unpaced.
    pub fn restart(&mut self, now: Instant) {
        self.pacer = Pacer::new(now, self.rate.initial_burst(), self.packet);
    }

    /// Bytes of a full data packet.
    pub fn packet(&self) -> u64 {
        self.packet
    }

    /// Full data packets have another size from now on.
    pub fn set_packet(&mut self, packet: u64) {
        self.packet = packet;
    }

    /// The controller, to be asked.
    pub fn rate(&self) -> &dyn RateController {
        &*self.rate
    }

    /// The rate that packets are paced at.
    pub fn pacing(&self) -> Rate {
        self.pacer.rate()
    }

    /// What is known of the path with so many bytes in flight, for observers.
    pub fn metrics(&self, bytes_in_flight: u64) -> PathMetrics {
        PathMetrics {
            smoothed_rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            latest_rtt: self.rtt.latest(),
            bytes_in_flight,
            window: self.rate.window(),
            pacing_rate: self.rate.pacing_rate(),
        }
    }

    /// Bytes sent so far.
    pub fn sent_total(&self) -> u64 {
        self.sent_total
    }

    /// A short message leaves.
    pub fn on_message_sent(&mut self, now: Instant) {
        self.conversation.said = Some(now);
    }

    /// A short message came.
    pub fn on_message_received(&mut self, now: Instant) {
        self.conversation.heard = Some(now);
    }

    /// Time passes: a conversation may be over.
    pub fn on_time(&mut self, now: Instant) {
        self.conversation.on_time(now);
    }

    /// Longest time that packets may wait for each other, in and out, while there are many: an eighth
    /// of a round trip, as long as loss detection waits anyway (RFC 9002 §6.1.2). It is less on
    /// long paths while short messages come and go.
    pub fn coalescing_delay(&self) -> Duration {
        let most = match self.grouping {
            Grouping::Coalesced(most) if self.conversation.goes_on() => {
                most.min(CONVERSING_COALESCING)
            }
            Grouping::Coalesced(most) => most,
            Grouping::Fixed => MAX_COALESCING,
        };
        match self.rtt.is_known() {
            true => (self.rtt.min() / 8).clamp(MIN_COALESCING, most),
            false => MIN_COALESCING,
        }
    }

    /// Bytes that the window lets go beyond those in flight; no window is smaller than a packet.
    pub fn window_room(&self, in_flight: u64) -> u64 {
        let room = self.rate.window().saturating_sub(in_flight);
        match in_flight {
            0 => room.max(self.packet),
            _ => room,
        }
    }

    /// Whether a full packet may leave now, as far as time is concerned.
    pub fn may_depart(&mut self, now: Instant) -> bool {
        match self.rate.departure().at {
            Some(at) => at <= now,
            None => !self.is_paced() || self.pacer.available(now) >= self.packet,
        }
    }

    /// Where a packet that leaves now is in its group.
    pub fn place(&self) -> Place {
        self.pacer.place()
    }

    /// When the next packets may leave; `None` while the rate is zero.
    pub fn next_departure(&self) -> Option<Instant> {
        let own = self.rate.departure().at;
        own.or_else(|| self.pacer.next_departure())
    }

    fn is_paced(&self) -> bool {
        self.pacer.rate() != Rate::MAX
    }

    /// There was nothing to send, though a packet might have gone; or what there was `waits` for the receiver.
    pub fn on_idle(&mut self, waits: bool) {
        self.idle_total = self.sent_total;
        if !waits {
            self.app_limited_total = self.sent_total;
        }
    }

    /// A packet of `bytes` leaves.
    pub fn count_sent(&mut self, bytes: u64) {
        self.sent_total += bytes;
    }

    /// The packet counted last had data.
    pub fn on_data_sent(&mut self, now: Instant, bytes: u64) {
        if self.is_paced() {
            self.pacer.consume(bytes);
        }
        self.rate.on_sent(now, self.sent_total);
        // Feedback sets the rate; few controllers change it as they send.
        if self.rate.pacing_rate() != self.pacer.rate() {
            self.follow_rate(now);
        }
    }

    /// So many bytes are known to have arrived, in all.
    pub fn set_delivered(&mut self, total: u64) {
        self.delivered_total = total;
    }

    /// So many more are.
    pub fn on_delivered(&mut self, bytes: u64) {
        self.delivered_total += bytes;
    }

    /// An acknowledged packet on the clocks of both sides: it arrived at `received_at`, and left at
    /// `sent_at` as the last of `sent_total` bytes.
    pub fn ack_point(&self, received_at: Duration, sent_at: Instant, sent_total: u64) -> AckPoint {
        AckPoint::new(received_at, sent_at, sent_total, self.delivered_total)
    }

    /// Tells the controller what this moment taught: `fill` adds what the wire knows of it.
    pub fn on_feedback(&mut self, now: Instant, fill: impl FnOnce(&mut Feedback<'_>)) {
        let mut feedback = Feedback::new(now, &self.rtt);
        feedback.idle_total = self.idle_total;
        feedback.app_limited_total = self.app_limited_total;
        fill(&mut feedback);
        self.rate.on_feedback(&feedback);
        self.follow_rate(now);
    }

    /// A network controller allows this rate (DFCP-J §7.6); controllers that obey one follow.
    pub fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.rate.on_order(now, rate);
        self.follow_rate(now);
    }

    /// A probe timeout passed, the `count`th in a row.
    pub fn on_timeout(&mut self, now: Instant, count: u32) {
        self.rate.on_timeout(now, count);
        self.follow_rate(now);
        self.pacer.forgive();
    }

    /// A block was acknowledged.
    pub fn on_block_acked(&mut self, now: Instant, block: &BlockSent) {
        self.rate.on_block_acked(now, block);
    }

    /// Takes the controller's rate into use.
    pub fn follow_rate(&mut self, now: Instant) {
        let rate = self.rate.pacing_rate();
        match self.grouping {
            Grouping::Coalesced(_) => {
                self.pacer.set(now, rate, self.packet);
                let burst = self.rate.max_burst();
                self.pacer.set_group(self.coalescing_delay(), burst);
            }
            Grouping::Fixed if rate != self.pacer.rate() => self.pacer.set(now, rate, self.packet),
            Grouping::Fixed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::FixedRate;

    #[test]
    fn packets_wait_for_each_other_less_while_both_sides_say_something() {
        let ms = Duration::from_millis;
        let rate = FixedRate::new(Rate::from_bps(50_000_000));
        let (start, grouping) = (Instant::ZERO, Grouping::Coalesced(MAX_COALESCING));
        let mut path = PathControl::new(start, Box::new(rate), grouping);
        path.rtt.update(ms(80), Duration::ZERO);
        let wait = |path: &mut PathControl, at: Duration| {
            path.on_time(start + at);
            path.coalescing_delay()
        };
        // A receiver tells how far a transfer is, five times a second.
        for i in 0..10 {
            path.on_message_received(start + ms(200) * i);
            assert_eq!(wait(&mut path, ms(200) * i), ms(10));
        }
        // Somebody types, and sees it.
        path.on_message_sent(start + ms(2000));
        assert_eq!(wait(&mut path, ms(2000)), ms(2));
        path.on_message_received(start + ms(2080));
        assert_eq!(wait(&mut path, ms(2990)), ms(2));
        assert_eq!(wait(&mut path, ms(3080)), ms(10));
        // A short path lets them wait less anyway.
        path.rtt.update(ms(4), Duration::ZERO);
        path.on_message_sent(start + ms(4000));
        path.on_message_received(start + ms(4000));
        assert_eq!(wait(&mut path, ms(4000)), ms(1));
    }
}
