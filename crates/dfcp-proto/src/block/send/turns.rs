//! Which open block gets the next symbol, and when: where losses come in bursts the last blocks take
//! turns, and repair symbols that only make up for losses wait until a burst has probably ended.

use super::{Cut, SendBlock, SendChannel, SymbolOut};
use crate::block::ChannelKind;
use crate::scheduler::Policy;
use crate::time::Instant;

impl SendChannel {
    /// A symbol for an open block that lacks some, lowest block first, or else a further copy of a short
    /// message. The newest block waits for those that only make up for losses if it began after `settled`, and
    /// so do messages.
    pub fn next_repair(&mut self, policy: Policy<'_>, settled: Instant) -> Option<SymbolOut> {
        let mut from = 0;
        while let Some(&offset) = self.hungry.range(from..).next() {
            from = offset + 1;
            if !self.wants_symbol(offset, policy) {
                self.hungry.remove(&offset);
            } else if self
                .waits_since(offset)
                .is_none_or(|began| began <= settled)
            {
                return self.symbol(self.in_turn(offset, policy), 0);
            }
        }
        self.next_copy(policy, settled)
    }

    /// Newest message first: where few packets may leave, the oldest ones are known to have arrived soonest.
    fn next_copy(&mut self, policy: Policy<'_>, settled: Instant) -> Option<SymbolOut> {
        let mut end = u64::MAX;
        while let Some(&offset) = self.spare.range(..end).next_back() {
            end = offset;
            if !self.wants_symbol(offset, policy) {
                self.spare.remove(&offset);
            } else if self.began(offset).is_some_and(|began| began <= settled) {
                return self.symbol(offset, 0);
            }
        }
        None
    }

    /// Which block's turn it is from that at `offset` on.
    fn in_turn(&self, offset: u64, policy: Policy<'_>) -> u64 {
        let most = policy.scheduler.blocks_in_turn(policy.loss);
        let sent = |o: &u64| self.blocks.get(o).map(SendBlock::sent);
        match most > 1 && self.is_in_first_pass(offset) {
            true => {
                let open = self.hungry.range(offset..).take(most).copied();
                let first = open.filter(|&o| self.is_in_first_pass(o)).min_by_key(sent);
                first.unwrap_or(offset)
            }
            false => offset,
        }
    }

    fn is_in_first_pass(&self, offset: u64) -> bool {
        let block = self.blocks.get(&offset);
        block.is_some_and(SendBlock::is_in_first_pass)
    }

    /// Whether the next block begins although others lack source symbols, so that they take turns: only
    /// the last few of what there is to send, and not behind small ones, which messages that wait fill. Or
    /// although further copies of messages are due: it may be one.
    pub fn begins_early(&self, policy: Policy<'_>, cut: &Cut) -> bool {
        if self.hungry.is_empty() && !self.spare.is_empty() {
            return true;
        }
        let most = policy.scheduler.blocks_in_turn(policy.loss);
        if most <= 1 || (self.id.kind() == ChannelKind::Object && !self.finished) {
            return false;
        }
        let rest = self.unsent.len() + usize::from(self.pending_len > 0);
        let half = self.block_size(cut) as u64 / 2;
        let is_large = |o: &u64| self.blocks.get(o).is_some_and(|block| block.len() >= half);
        let open = self.hungry.iter().rev().take(most);
        let open = open.filter(|&o| self.is_in_first_pass(*o) && is_large(o));
        (1..most).contains(&rest) && (1..most).contains(&open.count())
    }

    fn began(&self, offset: u64) -> Option<Instant> {
        self.blocks.get(&offset).map(SendBlock::began)
    }

    /// When the block at `offset` began, if enough of it is in flight unless some is lost, and no other
    /// one has begun since.
    fn waits_since(&self, offset: u64) -> Option<Instant> {
        let block = self.blocks.get(&offset)?;
        let is_newest = block.number() + 1 == self.begun;
        let is_covered = block.is_covered() && self.is_awaited();
        (is_newest && is_covered).then_some(block.began())
    }

    /// When the first block began that [`Self::next_repair`] lets wait.
    pub fn waiting_since(&self, settled: Instant) -> Option<Instant> {
        let newest = self.hungry.last();
        let newest = newest.and_then(|&offset| self.waits_since(offset));
        // Messages begin in order, and only the last ones wait.
        let messages = self.spare.iter().rev();
        let messages = messages.filter_map(|&offset| self.began(offset));
        let message = messages.take_while(|began| *began > settled).last();
        let first = newest.into_iter().chain(message).min();
        first.filter(|began| *began > settled)
    }
}
