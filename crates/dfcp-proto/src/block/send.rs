//! The sending half of a channel: bytes in, symbols out, blocks kept until acknowledged.

mod block;
mod cut;
mod give_up;
mod turns;

pub use block::{RemovedBlock, SymbolOut};
pub use cut::{BlockSizes, Cut, Cutter, Source};

use super::reliability::Abandoned;
use super::{Buffers, ChannelId, ChannelKind, Reliability, charge, free_node};
use crate::config::Payload;
use crate::scheduler::Policy;
use crate::time::Instant;
use block::SendBlock;
use dfcp_fec::FecError;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Least that is cut off a block for which there is not room enough, bytes: of a packet's length, as the
/// least first window has three.
const LEAST_PIECE: u64 = 1 << 10;
/// More than the padding of any block: below one byte a symbol.
const MAX_PADDING: usize = 512;

/// See the module's text.
#[derive(Debug)]
pub struct SendChannel {
    id: ChannelId,
    blocks: BTreeMap<u64, SendBlock>,
    /// Open blocks that the scheduler would give a symbol.
    hungry: BTreeSet<u64>,
    /// Short messages that it would give one although enough of them is in flight unless it is lost, by when
    /// the next copy is due.
    spare: BTreeSet<(Instant, u64)>,
    /// Blocks cut but not begun.
    unsent: BTreeSet<u64>,
    /// Bytes after the last cut; stays empty with virtual payload.
    pending: Vec<u8>,
    /// How many there are.
    pending_len: usize,
    /// When the first of them was written.
    pending_since: Instant,
    pending_offset: u64,
    unsent_bytes: u64,
    finished: bool,
    /// Offset that the peer lets us reach.
    limit: u64,
    /// Bytes before it that the peer asks to leave alone.
    withheld: u64,
    charged: u64,
    /// Blocks begun, and how many more may be.
    begun: u64,
    allowance: u64,
    /// Whether another one followed the newest block when it began.
    has_followers: bool,
    /// Blocks retired since they were [taken](Self::take_acked).
    acked: Vec<RemovedBlock>,
    /// The FIN was acknowledged.
    pub fin_acked: bool,
    abandoned: bool,
    reliability: Reliability,
    /// Blocks that may get no further symbol and do not wait for those in flight.
    spent: BTreeSet<u64>,
    /// Blocks that start below were too old when last looked at.
    expired_below: u64,
    given_up: Abandoned,
}

impl SendChannel {
    /// An empty channel that may send up to offset `limit`.
    pub fn new(id: ChannelId, limit: u64, reliability: Reliability) -> Self {
        Self {
            id,
            blocks: BTreeMap::new(),
            hungry: BTreeSet::new(),
            spare: BTreeSet::new(),
            unsent: BTreeSet::new(),
            pending: Vec::new(),
            pending_len: 0,
            pending_since: Instant::ZERO,
            pending_offset: 0,
            unsent_bytes: 0,
            finished: false,
            limit: if id.kind() == ChannelKind::Object {
                u64::MAX
            } else {
                limit
            },
            withheld: 0,
            charged: 0,
            begun: 0,
            allowance: u64::MAX,
            has_followers: false,
            acked: Vec::new(),
            fin_acked: false,
            abandoned: false,
            reliability,
            spent: BTreeSet::new(),
            expired_below: 0,
            given_up: Abandoned::default(),
        }
    }

    /// Takes as much of `source` as fits below `room`, cutting blocks as they fill.
    pub fn write(
        &mut self,
        now: Instant,
        source: Source<'_>,
        room: u64,
        cutter: &mut Cutter<'_>,
    ) -> Result<u64, FecError> {
        let (total, mut taken) = (source.len().min(room), 0);
        while taken < total {
            // Anew for each block: the header grows with the offset.
            let size = self.block_size(cutter.cut);
            let space = size.saturating_sub(self.pending_len) as u64;
            let part = space.min(total - taken) as usize;
            if let Source::Bytes(data) = source {
                self.append(&data[taken as usize..][..part], size, cutter.buffers);
            }
            if self.pending_len == 0 {
                self.pending_since = now;
            }
            self.pending_len += part;
            taken += part as u64;
            self.unsent_bytes += part as u64;
            if self.pending_len >= size {
                self.cut(cutter)?;
            }
        }
        Ok(taken)
    }

    /// Adds to the pending bytes, which become a block of `size`.
    fn append(&mut self, part: &[u8], size: usize, buffers: &mut Buffers) {
        let len = self.pending.len() + part.len();
        if self.pending.capacity() < len && 4 * len >= size {
            // Moved once, to where the whole block has room.
            let mut whole = buffers.take();
            whole.reserve_exact(size + MAX_PADDING);
            whole.extend_from_slice(&self.pending);
            self.pending = whole;
        }
        if self.pending.capacity() < len {
            // Twice what was there, and no more than the block with its padding, so that cutting a full one never
            // moves it.
            let room = (2 * self.pending.len()).min(size + MAX_PADDING).max(len);
            self.pending.reserve_exact(room - self.pending.len());
        }
        self.pending.extend_from_slice(part);
    }

    /// What waits to be a block takes as much memory as it has bytes: it may wait for long.
    pub fn fit(&mut self, buffers: &mut Buffers) {
        self.pending = buffers.fit(std::mem::take(&mut self.pending));
    }

    /// Takes a whole block as it is and leaves a buffer of an earlier one in its place; false if it
    /// is not a full block, or does not begin where the last one ended.
    pub fn write_block(
        &mut self,
        now: Instant,
        block: &mut Vec<u8>,
        cutter: &mut Cutter<'_>,
    ) -> Result<bool, FecError> {
        let size = self.block_size(cutter.cut);
        let is_virtual = cutter.cut.payload == Payload::Virtual;
        if self.pending_len > 0 || block.len() != size || is_virtual {
            return Ok(false);
        }
        self.pending = std::mem::replace(block, cutter.buffers.take());
        (self.pending_len, self.pending_since) = (size, now);
        self.unsent_bytes += size as u64;
        self.cut(cutter)?;
        Ok(true)
    }

    /// Source bytes of a full block at the current offset.
    fn block_size(&self, cut: &Cut) -> usize {
        cut.block_size(self.id, self.pending_offset)
    }

    /// Turns the pending bytes into a block.
    fn cut(&mut self, cutter: &mut Cutter<'_>) -> Result<(), FecError> {
        if self.pending_len == 0 {
            return Ok(());
        }
        let source = cutter.buffers.fit(std::mem::take(&mut self.pending));
        let len = std::mem::take(&mut self.pending_len);
        let offset = self.pending_offset;
        self.add_block(cutter.cut, offset, (len, source), self.pending_since)?;
        self.pending_offset += len as u64;
        Ok(())
    }

    fn add_block(
        &mut self,
        cut: &Cut,
        offset: u64,
        (len, source): (usize, Vec<u8>),
        written: Instant,
    ) -> Result<(), FecError> {
        let encoder = cut.encoder(self.id, offset, (len, source))?;
        let most = self.reliability.max_symbols(encoder.spec().k());
        let block = SendBlock::new(encoder, cut.scheme, len as u64, (written, most));
        self.blocks.insert(offset, block);
        self.unsent.insert(offset);
        Ok(())
    }

    /// Makes two of a block that was not begun: there is room for `at` bytes of it.
    fn split(&mut self, cutter: &mut Cutter<'_>, offset: u64, at: u64) -> Result<(), FecError> {
        let Some(block) = self.blocks.remove(&offset) else {
            return Ok(());
        };
        let (len, written) = (block.len(), block.written());
        let mut rest = block.remove().buffer;
        rest.truncate(len as usize);
        let piece: Vec<u8> = rest.drain(..rest.len().min(at as usize)).collect();
        let rest = ((len - at) as usize, cutter.buffers.fit(rest));
        self.add_block(cutter.cut, offset, (at as usize, piece), written)?;
        self.add_block(cutter.cut, offset + at, rest, written)
    }

    /// No more bytes follow.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether `finish` was called.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Bytes written so far; the final size once finished.
    pub fn size(&self) -> u64 {
        self.pending_offset + self.pending_len as u64
    }

    /// Finished, and everything is known to have arrived or is known at the peer to be given up.
    pub fn is_acknowledged(&self) -> bool {
        let all_gone = self.blocks.is_empty() && self.pending_len == 0 && self.given_up.is_known();
        self.finished && !self.abandoned && all_gone && self.fin_acked
    }

    /// Bytes not begun to be sent.
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Bytes that may follow where so many may wait for the peer to raise the limit.
    pub fn room(&self, waiting: u64) -> u64 {
        let most = self.reach().saturating_add(waiting);
        most.saturating_sub(self.size())
    }

    /// Credit used by the blocks begun so far.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Raises the offset that may be reached.
    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Leaves so many bytes before the limit alone.
    pub fn withhold(&mut self, bytes: u64) {
        self.withheld = bytes;
    }

    /// Offset that may be reached now.
    fn reach(&self) -> u64 {
        match self.id.kind() {
            ChannelKind::Object => u64::MAX,
            _ => self.limit.saturating_sub(self.withheld),
        }
    }

    /// Whether there is something that only a higher limit lets go, or a report.
    pub fn is_at_limit(&self) -> bool {
        let Some(&offset) = self.unsent.first() else {
            return false;
        };
        let len = self.blocks.get(&offset).map_or(0, SendBlock::len);
        let least = match self.withheld {
            0 => len,
            _ => len.min(LEAST_PIECE),
        };
        self.allowance == 0 || offset + least > self.reach()
    }

    /// Whether there are blocks to begin.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || (self.pending_len > 0 && self.may_cut_short())
    }

    /// Whether open blocks may lack symbols.
    pub fn has_hungry(&self) -> bool {
        !(self.hungry.is_empty() && self.spare.is_empty())
    }

    /// Lets this many more blocks begin.
    pub fn allow(&mut self, blocks: u64) {
        self.allowance = blocks;
    }

    /// Blocks begun from the first unacknowledged one at or above `offset` on; `None` if nothing was
    /// begun as far as that.
    pub fn begun_since(&self, offset: u64) -> Option<u64> {
        let unsent = self.unsent.first().copied().unwrap_or(self.pending_offset);
        if offset > unsent {
            return None;
        }
        let first = self.blocks.range(offset..unsent).next();
        Some(first.map_or(0, |(_, block)| self.begun - block.number()))
    }

    /// Whether there may be something to send.
    pub fn is_active(&self) -> bool {
        self.has_hungry() || self.has_unsent()
    }

    /// A stream sends what it has; an object waits for full blocks until its end.
    fn may_cut_short(&self) -> bool {
        self.finished || self.id.kind() != ChannelKind::Object
    }

    /// The first symbol of a new block, if `credit` allows one.
    pub fn next_new(
        &mut self,
        cutter: &mut Cutter<'_>,
        credit: u64,
    ) -> Result<Option<SymbolOut>, FecError> {
        if self.unsent.is_empty() && self.may_cut_short() {
            self.cut(cutter)?;
        }
        let Some(&offset) = self.unsent.first() else {
            return Ok(None);
        };
        let Some(block) = self.blocks.get(&offset) else {
            return Ok(None);
        };
        let (mut len, reach) = (block.len(), self.reach());
        // It may have been cut while the path was taken for a faster one.
        let full = cutter.cut.block_size(self.id, offset) as u64;
        if len >= 2 * full {
            self.split(cutter, offset, full)?;
            len = full;
        }
        if self.withheld > 0 && self.id.kind() != ChannelKind::Object {
            let room = reach
                .saturating_sub(offset)
                .min(credit.saturating_sub(charge(0)));
            if (LEAST_PIECE..len).contains(&room) {
                self.split(cutter, offset, room)?;
                len = room;
            }
        }
        let charge = charge(len);
        if self.allowance == 0 || charge > credit || offset + len > reach {
            return Ok(None);
        }
        Ok(self.symbol(offset, charge))
    }

    fn symbol(&self, offset: u64, charge: u64) -> Option<SymbolOut> {
        let block = self.blocks.get(&offset);
        block.map(|block| block.next_symbol(offset, charge))
    }

    /// Some symbol for a probe, whether or not one is due: of the first open block.
    pub fn probe(&self) -> Option<SymbolOut> {
        let mut open = self.blocks.iter();
        let (&offset, _) = open.find(|(o, b)| !self.unsent.contains(o) && b.may_send())?;
        self.symbol(offset, 0)
    }

    /// Appends the symbol to `out`, nothing with virtual payload, and counts it as in flight.
    pub fn write_symbol(
        &mut self,
        now: Instant,
        symbol: &SymbolOut,
        out: &mut Vec<u8>,
        policy: Policy<'_>,
    ) -> Result<(), FecError> {
        let offset = symbol.offset;
        if let Some(block) = self.blocks.get_mut(&offset) {
            block.write_symbol(now, symbol.esi, out)?;
            if self.unsent.remove(&offset) {
                self.unsent_bytes = self.unsent_bytes.saturating_sub(block.len());
                self.charged += symbol.charge;
                block.begin(now, self.begun);
                let is_coded = !block.any_symbol_is_enough();
                self.begun += 1;
                self.allowance = self.allowance.saturating_sub(1);
                // Those before it are waited for, too, once nothing follows. A margin for blocks of one
                // symbol would send all that is in flight twice.
                let had_followers = self.has_followers;
                self.has_followers = !self.is_awaited();
                if had_followers && !self.has_followers && is_coded {
                    self.refresh_all(policy);
                }
            }
            self.refresh(offset, policy);
        }
        Ok(())
    }

    /// A symbol of the block at `offset` left the air: it arrived or was lost; the block counts on
    /// it no more, unless it was written off already.
    pub fn on_settled(
        &mut self,
        offset: u64,
        arrived: bool,
        was_written_off: bool,
        policy: Policy<'_>,
    ) {
        if let Some(block) = self.blocks.get_mut(&offset) {
            block.on_settled(arrived, was_written_off);
            self.refresh(offset, policy);
        }
    }

    /// Whether the receiver of the block at `offset` may need as few symbols as `needed`: it cannot
    /// have more than were sent.
    pub fn is_plausible(&self, offset: u64, needed: u32) -> bool {
        let block = self.blocks.get(&offset);
        block.is_none_or(|block| block.is_plausible(needed))
    }

    /// The receiver says how many symbols it needs; zero retires the block. Returns freed bytes.
    pub fn on_report(&mut self, offset: u64, needed: u32, policy: Policy<'_>) -> u64 {
        if needed == 0 {
            return self.retire(offset);
        }
        if let Some(block) = self.blocks.get_mut(&offset) {
            block.on_report(needed);
            self.refresh(offset, policy);
        }
        0
    }

    /// Every block that starts below `offset` is complete. Returns freed bytes.
    pub fn on_done_below(&mut self, offset: u64) -> u64 {
        let mut freed = 0;
        while let Some((&first, _)) = self.blocks.first_key_value() {
            if first >= offset || self.unsent.contains(&first) {
                break;
            }
            freed += self.retire(first);
        }
        freed
    }

    /// The blocks that start within `range` are complete. Returns freed bytes.
    pub fn on_done_within(&mut self, range: Range<u64>) -> u64 {
        let done: Vec<u64> = self
            .blocks
            .range(range)
            .map(|(&offset, _)| offset)
            .collect();
        done.into_iter().map(|offset| self.retire(offset)).sum()
    }

    fn retire(&mut self, offset: u64) -> u64 {
        if self.unsent.contains(&offset) {
            return 0; // nothing of it was sent: the peer cannot have it
        }
        let Some(block) = self.remove(offset) else {
            return 0;
        };
        let len = block.len;
        self.acked.push(block);
        len
    }

    /// Forgets a block.
    fn remove(&mut self, offset: u64) -> Option<RemovedBlock> {
        self.hungry.remove(&offset);
        self.spent.remove(&offset);
        let block = self.blocks.remove(&offset)?;
        self.spare.remove(&(block.copy_due(), offset));
        if self.blocks.is_empty() {
            free_node(&mut self.blocks);
            // They name blocks.
            for named in [&mut self.hungry, &mut self.unsent, &mut self.spent] {
                *named = BTreeSet::new();
            }
            self.spare = BTreeSet::new();
        }
        Some(block.remove())
    }

    /// The blocks that were retired since the last call.
    pub fn take_acked(&mut self) -> Vec<RemovedBlock> {
        std::mem::take(&mut self.acked)
    }

    /// Gives everything up; returns the bytes freed.
    pub fn abandon(&mut self) -> u64 {
        let freed = self.blocks.values().map(SendBlock::len).sum::<u64>() + self.pending_len as u64;
        self.blocks.clear();
        self.hungry.clear();
        self.spare.clear();
        self.spent.clear();
        self.unsent.clear();
        self.pending = Vec::new();
        self.pending_len = 0;
        self.unsent_bytes = 0;
        self.given_up = Abandoned::default();
        self.finished = true;
        self.abandoned = true;
        freed
    }

    /// Whether it was given up.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Open blocks: begun and not acknowledged.
    pub fn open_blocks(&self) -> usize {
        self.blocks.len() - self.unsent.len()
    }

    /// Whether the application waits for the open blocks: nothing follows them, as far as is known.
    pub fn is_awaited(&self) -> bool {
        let all_begun = self.unsent.is_empty() && self.pending_len == 0;
        // A stream that has nothing more to say at the moment is read as it arrives.
        all_begun && (self.finished || self.id.kind() != ChannelKind::Object)
    }

    fn wants_symbol(&self, offset: u64, policy: Policy<'_>) -> bool {
        self.blocks.get(&offset).is_some_and(|block| {
            // Who says something more still waits for the answer to what he said before.
            let is_message = self.id.is_message(block.len());
            let view = block.view(is_message || policy.awaits_all || self.is_awaited());
            block.may_send() && policy.wants_symbol(&view)
        })
    }

    fn refresh(&mut self, offset: u64, policy: Policy<'_>) {
        let wants = self.wants_symbol(offset, policy);
        let Some(block) = self.blocks.get_mut(&offset) else {
            return;
        };
        let is_spare = block.is_covered() && self.id.is_message(block.len());
        match wants && !is_spare {
            true => self.hungry.insert(offset),
            false => self.hungry.remove(&offset),
        };
        self.spare.remove(&(block.copy_due(), offset));
        if wants && is_spare {
            let gap = policy.copy_gap(&block.view(true));
            self.spare.insert((block.copy_after(gap), offset));
        }
        if block.is_spent() {
            self.spent.insert(offset);
        }
    }

    /// Looks at every open block again: the end came, or the path's loss changed.
    pub fn refresh_all(&mut self, policy: Policy<'_>) {
        let open: Vec<u64> = self
            .blocks
            .keys()
            .copied()
            .filter(|o| !self.unsent.contains(o))
            .collect();
        open.into_iter()
            .for_each(|offset| self.refresh(offset, policy));
    }
}
