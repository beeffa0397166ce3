//! The sender's record of packets in flight, and loss detection by packet and time threshold
//! (RFC 9002 §6.1), by [`LossRules`].

use super::rules::{LossRules, Reordering, Unanswered};
use crate::time::{Duration, Instant};
use crate::wire::AckRanges;
use std::collections::VecDeque;

/// The symbol that a packet carried: which block must be told when it arrives or is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolRef {
    /// Channel of the block.
    pub channel: u64,
    /// Start of the block.
    pub offset: u64,
}

/// What is remembered of a sent packet.
#[derive(Clone, Debug)]
pub struct SentPacket<C> {
    /// When it left.
    pub time: Instant,
    /// UDP payload bytes.
    pub size: u16,
    /// Bytes sent on the connection up to and with this packet.
    pub sent_total: u64,
    /// The symbol inside, if any.
    pub symbol: Option<SymbolRef>,
    /// Control frames to send again if it is lost.
    pub control: Vec<C>,
    /// Its block counts on it no more: it was declared lost before it was acknowledged, or too old.
    written_off: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// Kept for a while to notice that it was only late.
    Lost,
    Acked,
    /// Sent, but the peer owes no acknowledgement.
    Unacknowledged,
    /// A number left out on purpose.
    Skipped,
}

/// What an ACK changed.
#[derive(Debug)]
pub struct AckOutcome<C> {
    /// Packets acknowledged for the first time.
    pub acked: Vec<(u64, SentPacket<C>)>,
    /// Of these, how many had been declared lost.
    pub spurious: u64,
    /// Whether the largest acknowledged packet advanced.
    pub largest_advanced: bool,
}

/// Packets from the oldest unresolved to the newest, indexed by packet number.
#[derive(Debug)]
pub struct SentPackets<C> {
    packets: VecDeque<SentPacket<C>>,
    base: u64,
    /// First packet that may still be in flight; loss detection starts here.
    first_in_flight: u64,
    largest_acked: Option<u64>,
    bytes_in_flight: u64,
    rules: LossRules,
    /// The rules' and more, as reordering was seen.
    packet_threshold: u64,
    /// Reordering in time seen so far, added to the time threshold.
    reorder_window: Duration,
    /// No packet from here on is written off but by acknowledgements.
    first_counted: u64,
    /// An empty list for the next outcome.
    spare: Vec<(u64, SentPacket<C>)>,
}

/// A path that reorders further than this makes us wait by time alone.
const MAX_PACKET_THRESHOLD: u64 = 1024;

impl<C> SentPackets<C> {
    /// No packets yet.
    pub fn new(rules: LossRules) -> Self {
        Self {
            packets: VecDeque::new(),
            base: 0,
            first_in_flight: 0,
            largest_acked: None,
            bytes_in_flight: 0,
            packet_threshold: rules.packet_threshold.max(1),
            rules,
            reorder_window: Duration::ZERO,
            first_counted: 0,
            spare: Vec::new(),
        }
    }

    /// Gives the list of an outcome back for the next ones.
    pub fn recycle(&mut self, mut packets: Vec<(u64, SentPacket<C>)>) {
        packets.clear();
        self.spare = packets;
    }

    /// The number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// UDP payload bytes of packets neither acknowledged nor lost.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Whether any packet waits for an acknowledgement.
    pub fn any_in_flight(&self) -> bool {
        self.bytes_in_flight > 0
    }

    /// Records the next packet. Only packets that elicit an acknowledgement are in flight.
    pub fn push(&mut self, packet: NewPacket<C>) {
        let state = if packet.ack_eliciting {
            State::InFlight
        } else {
            State::Unacknowledged
        };
        if packet.ack_eliciting {
            self.bytes_in_flight += u64::from(packet.size);
        }
        self.packets.push_back(SentPacket {
            time: packet.time,
            size: packet.size,
            sent_total: packet.sent_total,
            symbol: packet.symbol,
            control: packet.control,
            written_off: false,
            state,
        });
    }

    /// Leaves a packet number out: a peer that acknowledges it is guessing (RFC 9000 §21.4).
    pub fn skip_number(&mut self, now: Instant) {
        self.packets.push_back(SentPacket {
            time: now,
            size: 0,
            sent_total: 0,
            symbol: None,
            control: Vec::new(),
            written_off: false,
            state: State::Skipped,
        });
    }

    fn get(&self, pn: u64) -> Option<&SentPacket<C>> {
        self.packets
            .get(usize::try_from(pn.checked_sub(self.base)?).ok()?)
    }

    /// Send time and running byte total of packet `pn`, if still known.
    pub fn sent_info(&self, pn: u64) -> Option<(Instant, u64)> {
        self.get(pn).map(|p| (p.time, p.sent_total))
    }

    /// Applies acknowledged ranges; `None` if they name a packet that was never sent.
    pub fn on_ack(
        &mut self,
        now: Instant,
        largest: u64,
        ranges: &AckRanges<'_>,
    ) -> Option<AckOutcome<C>> {
        if largest >= self.next_number() {
            return None;
        }
        let mut outcome = AckOutcome {
            acked: std::mem::take(&mut self.spare),
            spurious: 0,
            largest_advanced: false,
        };
        for range in ranges.iter() {
            let low = (*range.start()).max(self.base);
            for pn in low..=*range.end() {
                let packet = &mut self.packets[(pn - self.base) as usize];
                match packet.state {
                    State::Skipped => return None,
                    State::Acked | State::Unacknowledged => continue,
                    State::InFlight => self.bytes_in_flight -= u64::from(packet.size),
                    State::Lost => {
                        outcome.spurious += 1;
                        packet.written_off = true;
                        if self.rules.reordering == Reordering::Adaptive {
                            let distance = self.largest_acked.unwrap_or(pn).saturating_sub(pn);
                            self.packet_threshold = self
                                .packet_threshold
                                .max(distance + 1)
                                .min(MAX_PACKET_THRESHOLD);
                            let late = now.saturating_since(packet.time) / 4;
                            self.reorder_window = self.reorder_window.max(late / 4);
                        }
                    }
                }
                packet.state = State::Acked;
                outcome.acked.push((pn, packet.settle()));
            }
        }
        if self.largest_acked.is_none_or(|l| largest > l) {
            self.largest_acked = Some(largest);
            outcome.largest_advanced = true;
        }
        Some(outcome)
    }

    /// Packets now considered lost, given the RTT to wait by.
    pub fn detect_lost(&mut self, now: Instant, rtt: Duration) -> Vec<(u64, SentPacket<C>)> {
        let Some(largest) = self.largest_acked else {
            return Vec::new();
        };
        let wait = self.time_threshold(rtt);
        let mut lost = std::mem::take(&mut self.spare);
        let mut still_in_flight = None;
        let first = self.first_in_flight.max(self.base);
        for pn in first..=largest {
            let packet = &mut self.packets[(pn - self.base) as usize];
            if packet.state != State::InFlight {
                continue;
            }
            let overtaken = largest - pn >= self.packet_threshold;
            if overtaken || now.saturating_since(packet.time) >= wait {
                packet.state = State::Lost;
                self.bytes_in_flight -= u64::from(packet.size);
                lost.push((pn, packet.settle()));
            } else {
                still_in_flight.get_or_insert(pn);
            }
        }
        self.first_in_flight = still_in_flight.unwrap_or(largest + 1);
        self.forget(now, rtt);
        lost
    }

    /// Declares everything in flight that was sent before `time` lost.
    pub fn give_up_before(&mut self, time: Instant) -> Vec<(u64, SentPacket<C>)> {
        let mut lost = Vec::new();
        for (pn, packet) in (self.base..).zip(&mut self.packets) {
            if packet.state == State::InFlight && packet.time < time {
                packet.state = State::Lost;
                self.bytes_in_flight -= u64::from(packet.size);
                lost.push((pn, packet.settle()));
            }
        }
        lost
    }

    /// Drops settled packets from the front; lost ones stay two round trips to spot late ACKs.
    fn forget(&mut self, now: Instant, rtt: Duration) {
        let keep = 2 * rtt + Duration::from_millis(50);
        while let Some(front) = self.packets.front() {
            let settled = match front.state {
                State::Acked | State::Unacknowledged | State::Skipped => true,
                State::Lost => now.saturating_since(front.time) > keep,
                State::InFlight => false,
            };
            if !settled || self.base >= self.first_in_flight {
                break;
            }
            self.packets.pop_front();
            self.base += 1;
        }
    }

    /// Symbols in packets above the largest acknowledged one that are now too old for their blocks
    /// to count on. The packets stay in flight.
    pub fn write_off(&mut self, now: Instant, rtt: Duration) -> Vec<SymbolRef> {
        let mut symbols = Vec::new();
        let wait = self.time_threshold(rtt);
        while let Some(first) = self.first_unanswered() {
            let packet = &mut self.packets[(first - self.base) as usize];
            if packet.time + wait > now {
                break;
            }
            packet.written_off = true;
            self.first_counted = first + 1;
            symbols.extend(packet.symbol);
        }
        symbols
    }

    /// The first packet that [`Self::write_off`] may come to.
    fn first_unanswered(&self) -> Option<u64> {
        if self.rules.unanswered == Unanswered::Awaited {
            return None;
        }
        let above = self.largest_acked.map_or(0, |largest| largest + 1);
        let first = self.first_counted.max(self.base).max(above);
        (first..self.next_number())
            .find(|&pn| self.get(pn).is_some_and(|p| p.state == State::InFlight))
    }

    /// kTimeThreshold plus what reordering was seen to need.
    fn time_threshold(&self, rtt: Duration) -> Duration {
        let wait = rtt.saturating_mul(self.rules.time_threshold_eighths) / 8;
        wait.max(super::rtt::GRANULARITY) + self.reorder_window
    }

    /// When the next packet becomes lost, or is written off, by time.
    pub fn loss_time(&self, rtt: Duration) -> Option<Instant> {
        let first = self.first_in_flight.max(self.base);
        let overtaken = self.largest_acked.and_then(|largest| {
            let mut packets = (first..=largest).filter_map(|pn| self.get(pn));
            packets.find(|p| p.state == State::InFlight)
        });
        let unanswered = || self.first_unanswered().and_then(|pn| self.get(pn));
        let next = overtaken.or_else(unanswered)?;
        Some(next.time + self.time_threshold(rtt))
    }
}

impl<C> SentPacket<C> {
    /// Whether its block counted on it no more already.
    pub fn was_written_off(&self) -> bool {
        self.written_off
    }

    /// The record as handed out once its fate is known; control frames move along.
    fn settle(&mut self) -> Self {
        Self {
            control: std::mem::take(&mut self.control),
            ..*self
        }
    }
}

/// A packet about to be recorded.
#[derive(Debug)]
pub struct NewPacket<C> {
    /// When it leaves.
    pub time: Instant,
    /// UDP payload bytes.
    pub size: u16,
    /// Bytes sent up to and with this packet.
    pub sent_total: u64,
    /// The symbol inside.
    pub symbol: Option<SymbolRef>,
    /// Control frames inside.
    pub control: Vec<C>,
    /// Whether the peer owes feedback for it.
    pub ack_eliciting: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, FrameIter};

    const RTT: Duration = Duration::from_millis(20);

    /// Packets 0 to 9, one a millisecond, each with a symbol.
    fn ten(rules: LossRules) -> SentPackets<()> {
        let mut sent = SentPackets::new(rules);
        for ms in 0..10 {
            sent.push(NewPacket {
                time: at(ms),
                size: 1000,
                sent_total: 1000 * (ms + 1),
                symbol: Some(SymbolRef {
                    channel: 2,
                    offset: ms,
                }),
                control: Vec::new(),
                ack_eliciting: true,
            });
        }
        sent
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// An ACK of one packet alone.
    fn acknowledge(sent: &mut SentPackets<()>, now: Instant, pn: u64) -> AckOutcome<()> {
        let mut frame = Vec::new();
        Frame::emit_ack(&mut frame, [pn, 0, 0, 0], [(pn, pn)].into_iter(), 100);
        match FrameIter::new(&frame).next() {
            Some(Ok(Frame::Ack { ranges, .. })) => sent.on_ack(now, pn, &ranges).expect("sent"),
            other => panic!("{other:?}"),
        }
    }

    fn numbers(packets: Vec<(u64, SentPacket<()>)>) -> Vec<u64> {
        packets.into_iter().map(|(pn, _)| pn).collect()
    }

    #[test]
    fn how_far_a_packet_may_be_overtaken_is_for_the_rules_to_say() {
        for (packet_threshold, lost) in [(3, vec![0]), (1, vec![0, 1, 2])] {
            let rules = LossRules {
                packet_threshold,
                ..LossRules::default()
            };
            let mut sent = ten(rules);
            acknowledge(&mut sent, at(20), 3);
            assert_eq!(numbers(sent.detect_lost(at(20), RTT)), lost);
        }
    }

    #[test]
    fn reordering_that_is_ignored_leaves_the_threshold() {
        for (reordering, lost) in [
            (Reordering::Adaptive, vec![]),
            (Reordering::Ignored, vec![4, 5]),
        ] {
            let mut sent = ten(LossRules {
                packet_threshold: 1,
                reordering,
                ..LossRules::default()
            });
            acknowledge(&mut sent, at(20), 3);
            assert_eq!(numbers(sent.detect_lost(at(20), RTT)), [0, 1, 2]);
            let outcome = acknowledge(&mut sent, at(21), 0);
            assert_eq!(outcome.spurious, 1);
            acknowledge(&mut sent, at(22), 6);
            assert_eq!(
                numbers(sent.detect_lost(at(22), RTT)),
                lost,
                "{reordering:?}"
            );
        }
    }

    #[test]
    fn a_packet_that_nothing_overtook_is_written_off_once_and_stays_in_flight() {
        let rules = LossRules {
            time_threshold_eighths: 12,
            unanswered: Unanswered::WrittenOff,
            ..LossRules::default()
        };
        let mut sent = ten(rules);
        assert_eq!(sent.loss_time(RTT), Some(at(30)), "1.5 round trips");
        assert!(sent.write_off(at(29), RTT).is_empty());
        let offsets =
            |symbols: Vec<SymbolRef>| symbols.iter().map(|s| s.offset).collect::<Vec<_>>();
        assert_eq!(offsets(sent.write_off(at(31), RTT)), [0, 1]);
        assert!(sent.write_off(at(31), RTT).is_empty(), "once");
        assert_eq!(
            (sent.bytes_in_flight(), sent.loss_time(RTT)),
            (10_000, Some(at(32)))
        );
        // One of them arrives, and so does a packet that is not too old.
        let outcome = acknowledge(&mut sent, at(31), 1);
        assert!(outcome.acked[0].1.was_written_off());
        assert_eq!(outcome.spurious, 0, "it was not declared lost");
        assert!(
            !acknowledge(&mut sent, at(31), 2).acked[0]
                .1
                .was_written_off()
        );
        assert_eq!(sent.bytes_in_flight(), 8000);
        let mut patient = ten(LossRules::default());
        assert!(patient.write_off(at(1000), RTT).is_empty());
        assert_eq!(patient.loss_time(RTT), None);
    }
}
