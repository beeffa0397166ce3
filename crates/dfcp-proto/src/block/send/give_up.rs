//! What a sender gives up: blocks that are too old, or of which enough was sent.

use super::SendChannel;
use crate::block::{GivenUp, Skip, charge};
use crate::time::{Duration, Instant};

impl SendChannel {
    /// Gives up what may not be sent any more.
    pub fn give_up(&mut self, now: Instant) -> GivenUp {
        let mut total = GivenUp::default();
        if let Some(age) = self.reliability.deadline() {
            self.expire(age, now, &mut total);
        }
        for offset in std::mem::take(&mut self.spent) {
            let Some(block) = self.blocks.get(&offset) else {
                continue;
            };
            if !block.is_spent() || block.is_undecided() {
                self.spent.extend(block.is_spent().then_some(offset));
            } else {
                self.drop_block(offset, &mut total);
            }
        }
        total
    }

    /// Ends what is too old. A block that may be complete once all that is in flight has arrived
    /// waits for that, and gets nothing more.
    fn expire(&mut self, age: Duration, now: Instant, total: &mut GivenUp) {
        // Blocks are in the order in which they were written.
        while let Some((&offset, block)) = self.blocks.range_mut(self.expired_below..).next()
            && block.expires(age) <= now
        {
            self.expired_below = offset + 1;
            block.stop();
            self.hungry.remove(&offset);
            self.spare.remove(&(block.copy_due(), offset));
            if self.unsent.contains(&offset) || block.is_spent() {
                self.drop_block(offset, total);
            }
        }
        if self.pending_len > 0 && self.pending_since + age <= now {
            self.drop_pending(total);
        }
    }

    /// The report of blocks of which all symbols are accounted for does not come.
    pub fn give_up_undecided(&mut self) -> GivenUp {
        let mut total = GivenUp::default();
        for offset in std::mem::take(&mut self.spent) {
            self.drop_block(offset, &mut total);
        }
        total
    }

    fn drop_block(&mut self, offset: u64, total: &mut GivenUp) {
        let begun = !self.unsent.remove(&offset);
        let Some(block) = self.remove(offset) else {
            return;
        };
        total.freed += block.len;
        if block.has_arrived {
            return;
        }
        if !begun {
            self.unsent_bytes = self.unsent_bytes.saturating_sub(block.len);
        }
        self.abandon_bytes(offset, block.len, begun, total);
    }

    fn drop_pending(&mut self, total: &mut GivenUp) {
        let len = std::mem::take(&mut self.pending_len) as u64;
        let offset = self.pending_offset;
        self.pending.clear();
        self.pending_offset += len;
        self.unsent_bytes = self.unsent_bytes.saturating_sub(len);
        total.freed += len;
        self.abandon_bytes(offset, len, false, total);
    }

    fn abandon_bytes(&mut self, offset: u64, len: u64, begun: bool, total: &mut GivenUp) {
        total.blocks += 1;
        total.unsent += u64::from(!begun);
        total.bytes += len;
        self.given_up.add(Skip {
            offset,
            len,
            charged: if begun { charge(len) } else { 0 },
        });
    }

    /// When the next block will be too old.
    pub fn next_expiry(&self) -> Option<Instant> {
        let age = self.reliability.deadline()?;
        let pending = (self.pending_len > 0).then_some(self.pending_since);
        let first = self.blocks.range(self.expired_below..).next();
        let first = first.map(|(_, block)| block.expires(age));
        first.or(pending.map(|written| written + age))
    }

    /// Gaps to tell the peer of now.
    pub fn tell_skips(&mut self) -> Vec<Skip> {
        self.given_up.tell()
    }

    /// Whether the peer has to be told of gaps.
    pub fn has_untold_skips(&self) -> bool {
        self.given_up.is_untold()
    }

    /// The peer has one more of the gaps.
    pub fn on_skip_acked(&mut self) {
        self.given_up.on_acked();
    }

    /// Bytes given up so far, which are not known to have arrived.
    pub fn given_up(&self) -> u64 {
        self.given_up.bytes()
    }
}
