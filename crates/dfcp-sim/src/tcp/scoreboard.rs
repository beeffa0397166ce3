//! What the sender knows of each segment in flight (RFC 6675 §4), with running counts.
//!
//! Invariants: `in_flight` is RFC 6675's pipe at any time; each segment is visited a bounded
//! number of times for each transmission, so every step is amortised constant time. A segment is
//! lost when [`DUP_THRESH`] segments above it are SACKed, hence all unSACKed ones below the mark
//! `lost_below` are, and the mark only rises.

use super::ranges::RangeSet;
use super::ring::Ring;
use super::segment::SackBlocks;
use dfcp_proto::Instant;
use std::collections::VecDeque;

/// How many segments must overtake one before it counts as lost (RFC 6675 §2).
pub(super) const DUP_THRESH: u32 = 3;

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// A retransmission is in flight.
const RESENT: u8 = 4;
/// It was retransmitted at some time: of no use for round-trip times (Karn).
const AMBIGUOUS: u8 = 8;

/// What a cumulative acknowledgement covered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Covered {
    /// Segments not SACKed before.
    pub fresh: u32,
    /// When the first was sent, if all were sent once and the first was not SACKed before.
    pub sent: Option<Instant>,
}

/// The scoreboard.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    una: u32,
    next: u32,
    state: Ring<u8>,
    sent: Ring<Instant>,
    sacked: RangeSet,
    /// The SACK blocks of the last acknowledgement: most are repeated.
    seen: SackBlocks,
    sacked_out: u32,
    lost_out: u32,
    /// Lost and not sent again yet.
    pending: u32,
    resent_out: u32,
    /// Every unSACKed segment below is lost.
    lost_below: u32,
    /// No segment below is lost and unsent, except those in `again`.
    hint: u32,
    /// Lost once more after being sent again.
    again: VecDeque<u32>,
    /// Retransmissions in the order of sending; kept only where their loss is looked for.
    resent: VecDeque<(u32, Instant)>,
    /// The time of sending of the newest segment known to have arrived.
    newest_arrived: Instant,
    track_resent: bool,
}

impl Scoreboard {
    pub fn new(track_resent: bool) -> Self {
        Self {
            una: 0,
            next: 0,
            state: Ring::new(),
            sent: Ring::new(),
            sacked: RangeSet::default(),
            seen: SackBlocks::NONE,
            sacked_out: 0,
            lost_out: 0,
            pending: 0,
            resent_out: 0,
            lost_below: 0,
            hint: 0,
            again: VecDeque::new(),
            resent: VecDeque::new(),
            newest_arrived: Instant::ZERO,
            track_resent,
        }
    }

    /// Whether lost retransmissions are found without a timeout.
    pub fn finds_lost_retransmissions(&self) -> bool {
        self.track_resent
    }

    /// The first segment not acknowledged.
    #[inline]
    pub fn una(&self) -> u32 {
        self.una
    }

    /// The first segment never sent.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Segments believed to be in the network: RFC 6675's pipe.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        // Without SACK, duplicates may count for more than there is.
        (self.outstanding() + self.resent_out).saturating_sub(self.sacked_out + self.lost_out)
    }

    /// Segments sent and not acknowledged.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    /// Segments known to be lost and not known to have arrived since.
    #[inline]
    pub fn lost(&self) -> u32 {
        self.lost_out
    }

    /// Segment [`Scoreboard::next`] is sent.
    #[inline]
    pub fn send_new(&mut self, now: Instant) -> u32 {
        let seq = self.next;
        self.state.reserve(self.una, seq);
        self.sent.reserve(self.una, seq);
        *self.state.at(seq) = 0;
        *self.sent.at(seq) = now;
        self.next += 1;
        seq
    }

    /// Segment `seq` is sent again.
    pub fn send_again(&mut self, now: Instant, seq: u32) {
        let state = self.state.at(seq);
        if *state & RESENT == 0 {
            self.resent_out += 1;
            if *state & LOST != 0 {
                self.pending -= 1;
            }
        }
        *state |= RESENT | AMBIGUOUS;
        *self.sent.at(seq) = now;
        if self.track_resent {
            self.resent.push_back((seq, now));
        }
    }

    /// The lowest segment that is lost and was not sent again.
    #[inline]
    pub fn next_lost(&mut self) -> Option<u32> {
        if self.pending == 0 {
            return None;
        }
        self.find_lost()
    }

    fn find_lost(&mut self) -> Option<u32> {
        while let Some(&seq) = self.again.front() {
            if seq >= self.una && self.is_pending(seq) {
                return Some(seq);
            }
            self.again.pop_front();
        }
        while self.hint < self.next {
            if self.is_pending(self.hint) {
                return Some(self.hint);
            }
            self.hint += 1;
        }
        None
    }

    fn is_pending(&self, seq: u32) -> bool {
        self.state.get(seq) & (SACKED | LOST | RESENT) == LOST
    }

    /// The lowest segment below the highest SACKed one that was neither SACKed nor sent again:
    /// rule 3 of RFC 6675's NextSeg.
    pub fn next_doubtful(&self) -> Option<u32> {
        let end = self.sacked.end()?;
        (self.lost_below.max(self.una)..end)
            .find(|&seq| self.state.get(seq) & (SACKED | RESENT) == 0)
    }

    /// The highest segment sent, if it is unSACKed and was not sent again: rule 4.
    pub fn last_unsacked(&self) -> Option<u32> {
        let last = self.next.checked_sub(1).filter(|&last| last >= self.una)?;
        (self.state.get(last) & (SACKED | RESENT) == 0).then_some(last)
    }

    /// All below `ack` arrived; `una < ack <= next`. `delivered` hears of those that are news.
    #[inline]
    pub fn advance(&mut self, ack: u32, mut delivered: impl FnMut(u32)) -> Covered {
        debug_assert!(self.una < ack && ack <= self.next);
        let first = self.una;
        let mut union = 0;
        let mut covered = Covered {
            fresh: ack - first,
            sent: Some(self.sent.get(first)),
        };
        let first_state = self.state.get(first);
        for seq in first..ack {
            let state = self.state.get(seq);
            union |= state;
            if state & SACKED == 0 {
                delivered(seq);
            }
            if state & (SACKED | LOST | RESENT) != 0 {
                self.forget(seq, state);
                covered.fresh -= u32::from(state & SACKED != 0);
            }
        }
        if first_state & SACKED != 0 || union & AMBIGUOUS != 0 {
            covered.sent = None;
        }
        if self.track_resent && first_state & SACKED == 0 {
            self.newest_arrived = self.newest_arrived.max(self.sent.get(ack - 1));
        }
        self.una = ack;
        if !self.sacked.is_empty() {
            self.sacked.remove_below(ack);
        }
        self.lost_below = self.lost_below.max(ack);
        self.hint = self.hint.max(ack);
        covered
    }

    /// Takes a segment out of the counts.
    fn forget(&mut self, seq: u32, state: u8) {
        self.sacked_out -= u32::from(state & SACKED != 0);
        self.resent_out -= u32::from(state & RESENT != 0);
        if state & LOST != 0 {
            self.lost_out -= 1;
            self.pending -= u32::from(state & RESENT == 0);
        }
        *self.state.at(seq) = state & AMBIGUOUS;
    }

    /// Takes in SACK blocks; gives how many segments they newly cover.
    pub fn sack(&mut self, blocks: &SackBlocks, mut delivered: impl FnMut(u32)) -> u32 {
        let mut sacked = std::mem::take(&mut self.sacked);
        let mut count = 0;
        for block in blocks.iter() {
            if self.seen.iter().any(|old| old == block) {
                continue;
            }
            // What is acknowledged or was never sent is not ours to mark.
            let (start, end) = (block.0.max(self.una), block.1.min(self.next));
            if start >= end {
                continue;
            }
            sacked.insert(start, end, |from, to| {
                count += to - from;
                for seq in from..to {
                    let state = self.state.get(seq);
                    self.forget(seq, state);
                    *self.state.at(seq) = SACKED | (state & AMBIGUOUS);
                    self.sacked_out += 1;
                    if self.track_resent {
                        self.newest_arrived = self.newest_arrived.max(self.sent.get(seq));
                    }
                    delivered(seq);
                }
            });
        }
        self.seen = *blocks;
        self.sacked = sacked;
        count
    }

    /// Marks what enough SACKed segments have overtaken; gives how many are newly lost.
    pub fn mark_overtaken(&mut self) -> u32 {
        let mut above = 0;
        let mut bound = self.lost_below;
        for (start, end) in self.sacked.iter_down() {
            above += end - start;
            if above >= DUP_THRESH {
                bound = end - (DUP_THRESH - (above - (end - start)));
                break;
            }
            if end <= self.lost_below {
                break;
            }
        }
        let mut count = 0;
        for seq in self.lost_below.max(self.una)..bound {
            count += self.mark_lost(seq);
        }
        self.lost_below = self.lost_below.max(bound);
        count
    }

    /// Marks retransmissions that later transmissions have overtaken by more than `slack`: the
    /// part of RACK (RFC 8985 §6.2) that the count of RFC 6675 cannot see.
    pub fn mark_lost_again(&mut self, slack: dfcp_proto::Duration) -> u32 {
        let mut count = 0;
        while let Some(&(seq, sent)) = self.resent.front() {
            let current =
                seq >= self.una && self.state.get(seq) & RESENT != 0 && self.sent.get(seq) == sent;
            if current {
                if sent + slack >= self.newest_arrived {
                    break;
                }
                let state = self.state.at(seq);
                *state &= !RESENT;
                self.resent_out -= 1;
                if *state & LOST == 0 {
                    *state |= LOST;
                    self.lost_out += 1;
                }
                self.pending += 1;
                self.again.push_back(seq);
                count += 1;
            }
            self.resent.pop_front();
        }
        count
    }

    /// Marks the first segment not acknowledged as lost, and its retransmission too.
    pub fn mark_first_lost(&mut self) {
        let state = self.state.at(self.una);
        if *state & RESENT != 0 {
            *state &= !RESENT;
            self.resent_out -= 1;
            self.pending += u32::from(*state & LOST != 0);
        }
        self.mark_lost(self.una);
        self.hint = self.una;
    }

    fn mark_lost(&mut self, seq: u32) -> u32 {
        let state = self.state.at(seq);
        if *state & (SACKED | LOST) != 0 {
            return 0;
        }
        *state |= LOST;
        self.lost_out += 1;
        self.pending += u32::from(*state & RESENT == 0);
        1
    }

    /// A retransmission timeout: all that is not SACKed is lost (RFC 6675 §5.1).
    pub fn mark_all_lost(&mut self) {
        for seq in self.una..self.next {
            let state = self.state.at(seq);
            *state &= !RESENT;
            if *state & SACKED == 0 {
                *state |= LOST;
            }
        }
        if self.sacked.is_empty() {
            self.sacked_out = 0;
        }
        self.lost_out = self.outstanding() - self.sacked_out;
        self.pending = self.lost_out;
        self.resent_out = 0;
        self.lost_below = self.next;
        self.hint = self.una;
        self.again.clear();
        self.resent.clear();
    }

    /// Without SACK, a duplicate acknowledgement says that some segment arrived.
    pub fn add_duplicate(&mut self) {
        let holes = self.lost_out.max(1);
        if self.sacked_out + holes < self.outstanding() {
            self.sacked_out += 1;
        }
    }

    /// Without SACK, an acknowledgement covered `acked` segments: all but the one that filled the
    /// gap had given their duplicate. Gives how many had not been counted before.
    pub fn remove_duplicates(&mut self, acked: u32) -> u32 {
        let counted = self.sacked_out;
        let room = self.outstanding().saturating_sub(self.lost_out);
        self.sacked_out = counted.saturating_sub(acked - 1).min(room);
        acked.saturating_sub(counted).max(1)
    }

    /// Without SACK, forgets the duplicates counted.
    pub fn clear_duplicates(&mut self) {
        self.sacked_out = 0;
    }

    /// Segments SACKed, or duplicates counted without SACK.
    pub fn sacked(&self) -> u32 {
        self.sacked_out
    }
}
