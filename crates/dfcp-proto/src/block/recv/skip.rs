//! What the peer gave up, at the receiver: memory and credit are freed, and the application is told
//! where bytes are missing.

use super::{Block, Credit, MAX_OFFSET, RecvChannel};
use crate::block::{ChannelKind, Skip};
use crate::connection::CloseCode;
use std::ops::Range;

impl RecvChannel {
    /// The peer gave bytes up; false if they are settled already. What a block of them had is
    /// dropped, unless it is complete. An error is the peer's fault and closes the connection.
    pub fn on_skip(&mut self, skip: &Skip, credit: &mut Credit) -> Result<bool, CloseCode> {
        let end = skip.offset.saturating_add(skip.len);
        let beyond = self.final_size.is_some_and(|size| end > size) || end > MAX_OFFSET;
        if !skip.is_consistent() || beyond {
            return Err(CloseCode::PROTOCOL);
        }
        if self.ended.is_some() {
            return Ok(false);
        }
        if let Some(settled) = self.done.end_at(skip.offset) {
            return if end <= settled {
                Ok(false)
            } else {
                Err(CloseCode::PROTOCOL)
            };
        }
        let open = self.blocks.range(..end).next_back();
        let open = open.filter(|(o, block)| *o + block.len() > skip.offset);
        let same = open.map(|(o, block)| (*o, block.len()) == (skip.offset, skip.len));
        if self.done.begins_within(skip.offset, end)
            || same.is_some_and(|same| !same || skip.charged == 0)
        {
            return Err(CloseCode::PROTOCOL);
        }
        if same.is_none() {
            // Of this block nothing arrived, but the peer's credit is used.
            if credit.used.saturating_add(skip.charged) > credit.granted {
                return Err(CloseCode::FLOW_CONTROL);
            }
            credit.used += skip.charged;
            self.charged += skip.charged;
        } else if let Some(block) = self.blocks.remove(&skip.offset) {
            credit.let_go(block.beside());
            if let Block::Receiving { decoder, .. } = block {
                credit.recycle(decoder.into_buffer());
            }
        }
        credit.freed += skip.charged;
        self.freed += skip.charged;
        self.done.insert(skip.offset, end);
        self.complete_bytes += skip.len;
        // The start of a block may have been read before the rest was given up.
        self.gaps.insert(skip.offset.max(self.read_offset), end);
        self.count_ranges(credit);
        Ok(true)
    }

    /// Passes over the gap that comes next in a stream; returns its bytes.
    pub fn read_gap(&mut self, credit: &mut Credit) -> Option<u64> {
        self.gaps.at(self.read_offset)?;
        let gap = self.gaps.take()?;
        self.read_offset = gap.end;
        self.count_ranges(credit);
        self.drop_read(credit);
        Some(gap.end - gap.start)
    }

    /// The lowest gap of an object that was not told yet.
    pub fn take_gap(&mut self, credit: &mut Credit) -> Option<Range<u64>> {
        let gap = match self.id.kind() {
            ChannelKind::Object => self.gaps.take(),
            ChannelKind::Stream | ChannelKind::Uni => None,
        };
        self.count_ranges(credit);
        gap
    }

    /// Bytes that the peer gave up.
    pub fn missing(&self) -> u64 {
        self.gaps.bytes()
    }
}
