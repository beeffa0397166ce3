//! The sender's record of packets in flight, and loss detection by packet and time threshold
//! (RFC 9002 §6.1), or by the reordering window where packets overtake others (RFC 8985), by
//! [`LossRules`].

use super::loss::LostPacket;
use super::pacer::Place;
use super::reordering::ReorderingWindow;
use super::rules::{LossRules, Reordering, Unanswered};
use crate::time::{Duration, Instant};
use crate::wire::AckRanges;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

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
    /// Whether it could be marked.
    pub ect: bool,
    /// Where it was in its group.
    pub place: Place,
    /// The symbol inside, if any.
    pub symbol: Option<SymbolRef>,
    /// Control frames to send again if it is lost.
    pub control: Vec<C>,
    /// Its block counts on it no more: it was declared lost before it was acknowledged, or too old.
    written_off: bool,
    /// Reports and control frames, which no window holds back.
    is_beside: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// Its record is among the lost ones.
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
    /// When that left.
    newest_sent_at: Instant,
    bytes_in_flight: u64,
    /// Of the records, those of packets that no window holds back.
    beside: usize,
    rules: LossRules,
    reordering: ReorderingWindow,
    /// Packets declared lost, kept for a while to notice that they were only late.
    lost: BTreeMap<u64, SentPacket<C>>,
    /// No packet from here on is written off but by acknowledgements.
    first_counted: u64,
    /// Runs of numbers that acknowledgements named, first and last: reports repeat them, and while a packet
    /// before them is in flight there may be as many as leave in two round trips.
    named: BTreeMap<u64, u64>,
    /// An empty list for the next outcome.
    spare: Vec<(u64, SentPacket<C>)>,
    /// Records that acknowledgements had looked at.
    #[cfg(test)]
    looked_at: usize,
}

/// A lost packet is remembered for this long at least, and for [`REMEMBERED_ROUNDS`]: longer than
/// real paths were seen to hold packets back without an outage.
const REMEMBERED: Duration = Duration::from_secs(1);
/// The reordering window is at most one round trip, so nothing that it could learn is forgotten.
const REMEMBERED_ROUNDS: u32 = 3;
/// Lost packets remembered at most: a second at 7 Gbit/s and 10 % loss.
const MAX_REMEMBERED: usize = 1 << 16;
/// Records of packets that no window holds back. A receiver that reports each packet has as many in a round
/// trip of 0.75 s at 1 Gbit/s; on a clock, a thousand a second, in a minute.
const MAX_BESIDE: usize = 1 << 16;

impl<C> SentPackets<C> {
    /// No packets yet.
    pub fn new(rules: LossRules) -> Self {
        Self {
            packets: VecDeque::new(),
            base: 0,
            first_in_flight: 0,
            largest_acked: None,
            newest_sent_at: Instant::ZERO,
            bytes_in_flight: 0,
            beside: 0,
            rules,
            reordering: ReorderingWindow::new(),
            lost: BTreeMap::new(),
            first_counted: 0,
            named: BTreeMap::new(),
            spare: Vec::new(),
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Gives the list of an outcome back for the next ones.
    pub fn recycle(&mut self, mut packets: Vec<(u64, SentPacket<C>)>) {
        packets.clear();
        self.spare = packets;
    }

    /// The largest number that the peer acknowledged.
    pub fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
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

    /// Whether so many reports and control frames left since the first packet whose fate is not known that
    /// the peer seems to acknowledge nothing on purpose.
    pub fn is_excessive(&self) -> bool {
        self.beside > MAX_BESIDE
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
        let is_beside = !packet.ack_eliciting || !packet.control.is_empty();
        self.beside += usize::from(is_beside);
        self.packets.push_back(SentPacket {
            time: packet.time,
            size: packet.size,
            sent_total: packet.sent_total,
            ect: packet.ect,
            place: packet.place,
            symbol: packet.symbol,
            control: packet.control,
            written_off: false,
            is_beside,
            state,
        });
    }

    /// Leaves a packet number out: a peer that acknowledges it is guessing (RFC 9000 §21.4).
    pub fn skip_number(&mut self, now: Instant) {
        self.packets.push_back(SentPacket {
            time: now,
            size: 0,
            sent_total: 0,
            ect: false,
            place: Place::Alone,
            symbol: None,
            control: Vec::new(),
            written_off: false,
            is_beside: false,
            state: State::Skipped,
        });
    }

    fn get(&self, pn: u64) -> Option<&SentPacket<C>> {
        self.packets
            .get(usize::try_from(pn.checked_sub(self.base)?).ok()?)
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
            self.find_late(range.clone(), &mut outcome);
            let mut next = (*range.start()).max(self.base);
            while next <= *range.end() {
                let fresh = self.next_fresh(next..=*range.end());
                next = fresh.end() + 1;
                self.acknowledge(fresh, &mut outcome)?;
            }
            self.note_named((*range.start()).max(self.base), *range.end());
        }
        if self.rules.reordering == Reordering::Adaptive {
            self.learn_order(&outcome);
        }
        if self.largest_acked.is_none_or(|l| largest > l) {
            self.newest_sent_at = self.get(largest).map_or(now, |packet| packet.time);
            self.largest_acked = Some(largest);
            outcome.largest_advanced = true;
        }
        Some(outcome)
    }

    /// The first run of numbers within `range` that no acknowledgement has named; one of none behind it.
    fn next_fresh(&self, range: RangeInclusive<u64>) -> RangeInclusive<u64> {
        let (mut first, last) = range.into_inner();
        if let Some((_, &end)) = self.named.range(..=first).next_back() {
            first = first.max(end + 1);
        }
        let behind = self.named.range(first..).next();
        let end = behind.map_or(last, |(&start, _)| last.min(start - 1));
        first..=end
    }

    /// Applies a run of acknowledged numbers; `None` if one of them was never sent.
    fn acknowledge(&mut self, run: RangeInclusive<u64>, outcome: &mut AckOutcome<C>) -> Option<()> {
        for pn in run {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let packet = &mut self.packets[(pn - self.base) as usize];
            match packet.state {
                State::Skipped => return None,
                State::Acked | State::Unacknowledged | State::Lost => continue,
                State::InFlight => self.bytes_in_flight -= u64::from(packet.size),
            }
            packet.state = State::Acked;
            outcome.acked.push((pn, packet.settle()));
        }
        Some(())
    }

    /// Joins a run to those that were named.
    fn note_named(&mut self, mut first: u64, mut last: u64) {
        if first > last {
            return; // forgotten
        }
        while let Some((&start, &end)) = self.named.range(..=last + 1).next_back()
            && end + 1 >= first
        {
            self.named.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.named.insert(first, last);
    }

    /// Packets within `range` that had been declared lost.
    fn find_late(&mut self, range: RangeInclusive<u64>, outcome: &mut AckOutcome<C>) {
        while let Some((&pn, _)) = self.lost.range(range.clone()).next()
            && let Some(packet) = self.lost.remove(&pn)
        {
            outcome.spurious += 1;
            outcome.acked.push((pn, packet));
        }
    }

    /// How far behind the newest packet acknowledged before were those acknowledged now?
    fn learn_order(&mut self, outcome: &AckOutcome<C>) {
        let mut in_order = 0;
        for (pn, packet) in &outcome.acked {
            if self.is_overtaken(*pn) {
                let extent = self.newest_sent_at.saturating_since(packet.time);
                self.reordering.on_late(extent);
            } else {
                in_order += 1;
            }
        }
        self.reordering.on_in_order(in_order);
    }

    /// Whether the packet threshold makes `pn` lost, if packets come in order.
    fn is_overtaken(&self, pn: u64) -> bool {
        let threshold = self.rules.packet_threshold.max(1);
        self.largest_acked
            .is_some_and(|largest| pn + threshold <= largest)
    }

    /// Packets now considered lost, given the RTT to wait by.
    pub fn detect_lost(&mut self, now: Instant, rtt: Duration) -> Vec<(u64, SentPacket<C>)> {
        let Some(largest) = self.largest_acked else {
            return Vec::new();
        };
        self.forget(now, rtt);
        self.reordering.update(now, rtt);
        let wait = self.time_threshold(rtt);
        let window = self.reordering.get(rtt);
        let mut lost = std::mem::take(&mut self.spare);
        let mut pn = self.first_in_flight.max(self.base);
        while pn <= largest {
            let packet = &self.packets[(pn - self.base) as usize];
            if packet.state == State::InFlight {
                let behind = self.newest_sent_at.saturating_since(packet.time);
                let overtaken = self.is_overtaken(pn) && window.is_none_or(|most| behind > most);
                // Those after it are younger, and less far behind.
                if !overtaken && now.saturating_since(packet.time) < wait {
                    break;
                }
                lost.push((pn, self.lose(pn)));
            }
            pn += 1;
        }
        self.first_in_flight = pn.max(self.first_in_flight);
        lost
    }

    /// How much later than packets that were sent after them others arrive; zero where they keep their order.
    pub fn lateness(&self) -> Duration {
        self.reordering.get(Duration::MAX).unwrap_or_default()
    }

    /// The packet `pn`, which [`Self::detect_lost`] has just found, with the one after it: no sooner
    /// after it than `at_least`, as packets that leave in a group pass the path one after the other.
    pub fn with_next(&self, pn: u64, at_least: Duration) -> LostPacket {
        let asks = |packet: &SentPacket<C>| {
            !matches!(packet.state, State::Unacknowledged | State::Skipped)
        };
        let mut after = (pn + 1..self.next_number()).filter_map(|n| Some((n, self.get(n)?)));
        let next = after.find(|(_, packet)| asks(packet));
        let sent = self.get(pn).map(|packet| packet.time);
        let gap = next
            .zip(sent)
            .map(|((_, next), sent)| next.time.saturating_since(sent));
        LostPacket {
            number: pn,
            next: next.map_or(pn + 1, |(number, _)| number),
            gap: gap.unwrap_or_default().max(at_least),
        }
    }

    /// Declares packet `pn`, which is in flight, lost, and remembers it.
    fn lose(&mut self, pn: u64) -> SentPacket<C> {
        let packet = &mut self.packets[(pn - self.base) as usize];
        packet.state = State::Lost;
        self.bytes_in_flight -= u64::from(packet.size);
        let record = packet.settle();
        let remembered = SentPacket {
            control: Vec::new(),
            written_off: true,
            ..record
        };
        self.lost.insert(pn, remembered);
        record
    }

    /// Declares everything in flight that was sent before `time` lost.
    pub fn give_up_before(&mut self, time: Instant) -> Vec<(u64, SentPacket<C>)> {
        let numbers = self.base..self.next_number();
        let given_up: Vec<u64> = numbers
            .filter(|&pn| {
                self.get(pn)
                    .is_some_and(|p| p.state == State::InFlight && p.time < time)
            })
            .collect();
        given_up.into_iter().map(|pn| (pn, self.lose(pn))).collect()
    }

    /// Drops settled packets from the front, and lost ones for which no late ACK will come.
    fn forget(&mut self, now: Instant, rtt: Duration) {
        while let Some(front) = self.packets.front() {
            if front.state == State::InFlight || self.base >= self.first_in_flight {
                break;
            }
            self.beside -= usize::from(front.is_beside);
            self.packets.pop_front();
            self.base += 1;
        }
        while let Some(run) = self.named.first_entry()
            && *run.get() < self.base
        {
            run.remove();
        }
        let keep = REMEMBERED.max(REMEMBERED_ROUNDS * rtt);
        while let Some(oldest) = self.lost.first_entry() {
            let recent = now.saturating_since(oldest.get().time) <= keep;
            if recent && self.lost.len() <= MAX_REMEMBERED {
                break;
            }
            self.lost.pop_first();
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
            self.first_counted = first + 1;
            if !std::mem::replace(&mut packet.written_off, true) {
                symbols.extend(packet.symbol);
            }
        }
        symbols
    }

    /// Symbols in flight of which `counts` says that their blocks count on them no more, as nothing
    /// was answered for a probe timeout. Their packets stay in flight.
    pub fn write_off_unanswered(&mut self, counts: impl Fn(&SymbolRef) -> bool) -> Vec<SymbolRef> {
        let in_flight = self.packets.iter_mut();
        let in_flight = in_flight.filter(|p| p.state == State::InFlight && !p.written_off);
        let mut symbols = Vec::new();
        for packet in in_flight {
            if let Some(symbol) = packet.symbol.filter(&counts) {
                packet.written_off = true;
                symbols.push(symbol);
            }
        }
        symbols
    }

    /// Control frames in packets in flight.
    pub fn control_in_flight(&self) -> impl Iterator<Item = &C> {
        let in_flight = self.packets.iter().filter(|p| p.state == State::InFlight);
        in_flight.flat_map(|packet| &packet.control)
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

    /// kTimeThreshold and the reordering window.
    fn time_threshold(&self, rtt: Duration) -> Duration {
        let wait = rtt.saturating_mul(self.rules.time_threshold_eighths) / 8;
        wait.max(super::rtt::GRANULARITY) + self.reordering.get(rtt).unwrap_or_default()
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
    /// Whether its IP header says that it can be marked.
    pub ect: bool,
    /// Where it is in its group.
    pub place: Place,
    /// The symbol inside.
    pub symbol: Option<SymbolRef>,
    /// Control frames inside.
    pub control: Vec<C>,
    /// Whether the peer owes feedback for it.
    pub ack_eliciting: bool,
}

#[cfg(test)]
mod tests;
