//! What the application reads, in order, and the end of the data.

use super::super::config::Acknowledge;
use super::super::data::DataHeader;
use super::Receiver;
use super::block::{Block, Phase};
use crate::time::{Duration, Instant};

/// With ACKs off the end is believed when no data came for this long: FIN overtakes data.
const QUIET: Duration = Duration::from_millis(500);

impl Receiver {
    /// Whether a read would give something.
    pub fn is_readable(&self) -> bool {
        self.ring.front().is_some_and(Block::is_over)
    }

    /// Copies in-order bytes; returns how many. Blocks that were not decoded read as zeros.
    pub fn read(&mut self, now: Instant, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(block) = self.ring.front() {
            let useful = match &block.phase {
                Phase::Complete(bytes) if done < out.len() => {
                    let left = (block.useful - self.read) as usize;
                    let len = left.min(out.len() - done);
                    let to = &mut out[done..done + len];
                    match bytes.get(self.read as usize..self.read as usize + len) {
                        Some(from) => to.copy_from_slice(from),
                        None => to.fill(0),
                    }
                    done += len;
                    self.read += len as u32;
                    block.useful
                }
                Phase::Skipped => 0,
                _ => break,
            };
            if self.read < useful {
                break;
            }
            self.drop_front();
        }
        self.announce_room(now);
        done
    }

    /// Takes all in-order virtual bytes; returns how many.
    pub fn read_virtual(&mut self, now: Instant) -> u64 {
        let mut done = 0;
        while let Some(block) = self.ring.front()
            && block.is_over()
        {
            if block.is_complete() {
                done += u64::from(block.useful - self.read);
            }
            self.drop_front();
        }
        self.announce_room(now);
        done
    }

    fn drop_front(&mut self) {
        if let Some(block) = self.ring.pop_front()
            && let Phase::Complete(bytes) = block.phase
            && bytes.capacity() > 0
            && self.spare.len() < 4
        {
            self.spare.push(bytes);
        }
        self.base += 1;
        self.read = 0;
    }

    /// A sender that was stopped by a full receiver learns that there is room again.
    fn announce_room(&mut self, now: Instant) {
        let stopped = self.base + self.ring.len() as u32 >= self.limit;
        let more = self.room().saturating_sub(self.limit) >= self.settled.window.div_ceil(2);
        if stopped && more && self.answers.is_empty() && self.base > 0 {
            let header = DataHeader {
                block: self.base - 1,
                state: self.newest,
                echo: false,
                short: false,
            };
            self.answer_complete(now, &header);
        }
    }

    /// The peer has sent `blocks` blocks in all.
    pub fn finish_at(&mut self, blocks: u32) {
        self.total = Some(blocks);
    }

    /// Whether all blocks of the peer are decoded, or given up.
    pub fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| self.decoded >= total)
    }

    /// Whether everything was read.
    pub fn is_finished(&self) -> bool {
        self.total.is_some_and(|total| self.base >= total)
    }

    /// As if all blocks below had been read.
    #[cfg(test)]
    pub fn start_at(&mut self, block: u32) {
        (self.base, self.decoded, self.announced) = (block, block, block);
        self.limit = self.room();
    }

    /// Packets that are noted of the blocks kept.
    #[cfg(test)]
    pub fn packets_noted(&self) -> u32 {
        self.ring.iter().map(|block| block.seen.len()).sum()
    }

    /// Bytes of memory that blocks hold now.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.ring.iter().map(Block::memory).sum()
    }

    #[cfg(test)]
    pub fn blocks_kept(&self) -> usize {
        self.ring.len()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.settled.acknowledge == Acknowledge::Off
            && self.total.is_some_and(|total| self.decoded < total);
        open.then(|| self.last_arrival + QUIET)
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now)
            && let Some(total) = self.total
        {
            self.last_arrival = now;
            self.skip_to(total);
        }
    }

    /// Gives up what is incomplete of the blocks below `id` (ACKs off). A block that is being decoded
    /// has all it needs, however long that takes.
    pub(super) fn skip_to(&mut self, id: u32) {
        let end = self.base.saturating_add(self.settled.window);
        for at in self.decoded..id.min(end) {
            let index = (at - self.base) as usize;
            if index >= self.ring.len() {
                self.ring.push_back(Block::new());
            }
            let block = &mut self.ring[index];
            if matches!(block.phase, Phase::Collecting(_)) {
                block.phase = Phase::Skipped;
                block.seen.clear();
                self.stats.skipped += 1;
            }
        }
        self.advance();
    }
}
