//! The sender's record of packets in flight, and loss detection by packet and time threshold
//! (RFC 9002 §6.1) with a reordering threshold that adapts (RFC 8985 §6.2).

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
    /// It was declared lost before it was acknowledged.
    late: bool,
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
    packet_threshold: u64,
    /// Reordering in time seen so far, added to the time threshold.
    reorder_window: Duration,
}

/// kPacketThreshold, RFC 9002 §6.1.1.
const PACKET_THRESHOLD: u64 = 3;
/// A path that reorders further than this makes us wait by time alone.
const MAX_PACKET_THRESHOLD: u64 = 1024;

impl<C> Default for SentPackets<C> {
    fn default() -> Self {
        Self {
            packets: VecDeque::new(),
            base: 0,
            first_in_flight: 0,
            largest_acked: None,
            bytes_in_flight: 0,
            packet_threshold: PACKET_THRESHOLD,
            reorder_window: Duration::ZERO,
        }
    }
}

impl<C> SentPackets<C> {
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
            late: false,
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
            late: false,
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
            acked: Vec::new(),
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
                        packet.late = true;
                        let distance = self.largest_acked.unwrap_or(pn).saturating_sub(pn);
                        self.packet_threshold = self
                            .packet_threshold
                            .max(distance + 1)
                            .min(MAX_PACKET_THRESHOLD);
                        let late = now.saturating_since(packet.time) / 4;
                        self.reorder_window = self.reorder_window.max(late / 4);
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
        let mut lost = Vec::new();
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

    /// kTimeThreshold 9/8 (RFC 9002 §6.1.2) plus what reordering was seen to need.
    fn time_threshold(&self, rtt: Duration) -> Duration {
        (rtt + rtt / 8).max(super::rtt::GRANULARITY) + self.reorder_window
    }

    /// When the oldest packet below the largest acknowledged one becomes lost by time.
    pub fn loss_time(&self, rtt: Duration) -> Option<Instant> {
        let largest = self.largest_acked?;
        let first = self.first_in_flight.max(self.base);
        (first..=largest)
            .filter_map(|pn| self.get(pn))
            .find(|p| p.state == State::InFlight)
            .map(|p| p.time + self.time_threshold(rtt))
    }
}

impl<C> SentPacket<C> {
    /// Whether it had been declared lost before it was acknowledged.
    pub fn was_lost(&self) -> bool {
        self.late
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
