//! Which open block gets the next symbol, and when: where losses come in bursts the last blocks take
//! turns, and repair symbols that only make up for losses wait until a burst has probably ended.

use super::{Cut, SendBlock, SendChannel, SymbolOut};
use crate::block::ChannelKind;
use crate::scheduler::Policy;
use crate::time::{Duration, Instant};
use std::ops::Bound;

impl SendChannel {
    /// A symbol for an open block that lacks some, lowest block first, or else a further copy of a short
    /// message. The newest block waits for symbols that only make up for losses until it is `hold` old.
    pub fn next_repair(
        &mut self,
        policy: Policy<'_>,
        now: Instant,
        hold: Duration,
    ) -> Option<SymbolOut> {
        let mut from = 0;
        while let Some(&offset) = self.hungry.range(from..).next() {
            from = offset + 1;
            if !self.wants_symbol(offset, policy) {
                self.hungry.remove(&offset);
            } else if self
                .waits_since(offset)
                .is_none_or(|began| began + hold <= now)
            {
                return self.symbol(self.in_turn(offset, policy), 0);
            }
        }
        self.next_copy(policy, now)
    }

    /// Of the copies that are due the one that was last: where few packets may leave, messages sent before are
    /// known to have arrived soonest.
    fn next_copy(&mut self, policy: Policy<'_>, now: Instant) -> Option<SymbolOut> {
        while let Some(&copy) = self.spare.range(..=(now, u64::MAX)).next_back() {
            if self.wants_symbol(copy.1, policy) {
                return self.symbol(copy.1, 0);
            }
            self.spare.remove(&copy);
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

    /// When the block at `offset` began, if enough of it is in flight unless some is lost, and no other
    /// one has begun since.
    fn waits_since(&self, offset: u64) -> Option<Instant> {
        let block = self.blocks.get(&offset)?;
        let is_newest = block.number() + 1 == self.begun;
        let is_covered = block.is_covered() && self.is_awaited();
        (is_newest && is_covered).then_some(block.began())
    }

    /// When the first symbol may leave that [`Self::next_repair`] lets wait.
    pub fn waits_until(&self, now: Instant, hold: Duration) -> Option<Instant> {
        let newest = self.hungry.last();
        let newest = newest.and_then(|&offset| self.waits_since(offset));
        let newest = newest.map(|began| began + hold);
        let after = (Bound::Excluded((now, u64::MAX)), Bound::Unbounded);
        let copy = self.spare.range(after).next().map(|&(due, _)| due);
        let due = newest.into_iter().chain(copy);
        due.filter(|due| *due > now).min()
    }
}
