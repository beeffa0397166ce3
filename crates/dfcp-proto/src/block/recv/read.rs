//! What the application takes of a channel, and the credit that this frees.

use super::{Block, Ready, RecvChannel};
use crate::block::{Credit, charge, free_node};
use std::ops::Range;

impl RecvChannel {
    /// The block that holds the next stream byte, and its part not read yet, as far as it is known
    /// without a gap; never empty.
    pub(super) fn in_order(&self) -> Option<(&[u8], Range<usize>)> {
        let read = self.read_offset;
        let (start, source, known) =
            if let Some((&start, ready)) = self.ready.range(..=read).next_back() {
                (start, &ready.bytes[..], ready.len)
            } else if let Some((&start, Block::Receiving { decoder, len, .. })) =
                self.blocks.range(..=read).next_back()
            {
                (start, decoder.source(), (*len).min(decoder.prefix() as u64))
            } else {
                return None;
            };
        let part = (read - start) as usize..known as usize;
        (!part.is_empty()).then_some((source, part))
    }

    /// Reads stream bytes in order into `out`; returns how many.
    pub fn read(&mut self, out: &mut [u8], credit: &mut Credit) -> usize {
        let mut filled = 0;
        while filled < out.len()
            && let Some((source, part)) = self.in_order()
        {
            let Some(bytes) = source.get(part) else {
                break; // virtual payload
            };
            let n = bytes.len().min(out.len() - filled);
            out[filled..filled + n].copy_from_slice(&bytes[..n]);
            filled += n;
            self.advance(n, credit);
        }
        filled
    }

    /// At most `most` bytes in order with their buffer, and where in it they are. The rest of a complete
    /// block comes in its own buffer if it is half of that: who keeps a few bytes keeps no more memory. All
    /// else is a copy.
    pub fn read_chunk(
        &mut self,
        most: usize,
        credit: &mut Credit,
    ) -> Option<(Vec<u8>, Range<usize>)> {
        let (_, part) = self.in_order()?;
        if part.len() <= most
            && let Some(entry) = self.ready.first_entry()
            && *entry.key() <= self.read_offset
            && entry.get().bytes.capacity() / 2 <= part.len()
        {
            let ready = entry.remove();
            self.read_offset += part.len() as u64;
            self.free(&ready, credit);
            return Some((ready.bytes, part));
        }
        let (source, part) = self.in_order()?;
        let part = part.start..part.end.min(part.start.saturating_add(most));
        let copy = source.get(part)?.to_vec();
        self.advance(copy.len(), credit);
        let all = 0..copy.len();
        Some((copy, all))
    }

    /// Passes over up to `most` stream bytes; returns how many there were.
    pub fn skip(&mut self, most: usize, credit: &mut Credit) -> usize {
        let mut skipped = 0;
        while skipped < most
            && let Some((_, part)) = self.in_order()
        {
            let n = part.len().min(most - skipped);
            skipped += n;
            self.advance(n, credit);
        }
        skipped
    }

    fn advance(&mut self, n: usize, credit: &mut Credit) {
        self.read_offset += n as u64;
        self.drop_read(credit);
    }

    /// Frees complete blocks that were read to their end.
    pub(super) fn drop_read(&mut self, credit: &mut Credit) {
        while let Some((&start, ready)) = self.ready.first_key_value() {
            if start + ready.len > self.read_offset {
                break;
            }
            if let Some((_, ready)) = self.ready.pop_first() {
                self.free(&ready, credit);
                credit.recycle(ready.bytes);
            }
        }
    }

    /// A block of a stream was read to its end.
    fn free(&mut self, ready: &Ready, credit: &mut Credit) {
        free_node(&mut self.ready);
        free_node(&mut self.blocks);
        credit.let_go(ready.beside());
        self.freed += charge(ready.len);
        credit.freed += charge(ready.len);
    }

    /// Takes one complete block of an object, lowest first: offset, length, and its bytes, which
    /// virtual payload has none of. Its credit is freed when the application is done with it.
    pub fn take_block(&mut self, credit: &mut Credit) -> Option<(u64, u64, Vec<u8>)> {
        let (offset, ready) = self.ready.pop_first()?;
        credit.let_go(ready.beside());
        self.freed += charge(ready.len);
        Some((offset, ready.len, ready.bytes))
    }
}
