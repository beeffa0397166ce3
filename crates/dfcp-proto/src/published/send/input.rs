//! Written bytes, cut into blocks.
//!
//! Invariant: `written - released` never exceeds the send buffer, whatever is flushed; nothing is
//! written beyond the end of a message.

use super::super::data::{Padding, SHORT_LENGTH, Settled};
use crate::config::Payload;
use std::collections::VecDeque;

/// Most flushes that wait at once: a block each, however few bytes it has.
const MAX_CUTS: usize = 4096;

/// A block's worth of data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its bytes, padded; none with virtual payload.
    pub bytes: Vec<u8>,
    /// How many of them were written by the application.
    pub useful: u32,
    /// Whether it ends with its length.
    pub short: bool,
}

/// What was written and is not yet in a block.
#[derive(Debug)]
pub(super) struct Input {
    payload: Payload,
    padding: Padding,
    block: u64,
    /// Room for a pre-coded block.
    capacity: usize,
    buffer: u64,
    /// Bytes in all, if that is settled.
    total: u64,
    written: u64,
    cut: u64,
    released: u64,
    bytes: VecDeque<u8>,
    /// Ends of what was flushed.
    flushes: VecDeque<u64>,
}

impl Input {
    pub fn new(settled: &Settled) -> Self {
        Self {
            payload: settled.payload,
            padding: settled.padding(),
            block: settled.block_bytes().into(),
            capacity: settled.code.coded_bytes() as usize,
            buffer: settled.send_buffer,
            total: settled.message.map_or(u64::MAX, |m| m.bytes),
            written: 0,
            cut: 0,
            released: 0,
            bytes: VecDeque::new(),
            flushes: VecDeque::new(),
        }
    }

    /// Bytes that may be written. A block is always possible, or nothing would ever leave.
    pub fn room(&self) -> u64 {
        if self.flushes.len() >= MAX_CUTS {
            return 0;
        }
        let buffer = self.buffer.max(self.block);
        let room = buffer.saturating_sub(self.written - self.released);
        room.min(self.left())
    }

    /// Bytes until the end of the message, if there is one.
    pub fn left(&self) -> u64 {
        self.total - self.written
    }

    pub fn write(&mut self, data: &[u8]) -> usize {
        let taken = usize::try_from(self.room())
            .unwrap_or(usize::MAX)
            .min(data.len());
        self.bytes.extend(&data[..taken]);
        self.written += taken as u64;
        self.flush_end();
        taken
    }

    pub fn write_virtual(&mut self, len: u64) -> u64 {
        let taken = self.room().min(len);
        self.written += taken;
        self.flush_end();
        taken
    }

    /// The last block of a message need not be full.
    fn flush_end(&mut self) {
        if self.left() == 0 && self.total > 0 {
            self.flushes.push_back(self.total);
        }
    }

    /// What is written so far goes out though it fills no block; a message's blocks stay whole.
    pub fn flush(&mut self) {
        if self.total < u64::MAX {
            return;
        }
        if self.flushes.back().copied().unwrap_or(self.cut) < self.written {
            self.flushes.push_back(self.written);
        }
    }

    /// Whether [`next`](Self::next) would give a block.
    pub fn is_ready(&self) -> bool {
        self.written - self.cut >= self.block || !self.flushes.is_empty()
    }

    /// The next block, if there is enough for one.
    pub fn next(&mut self) -> Option<Cut> {
        if !self.is_ready() {
            return None;
        }
        let end = self.flushes.front().copied().unwrap_or(self.written);
        let whole = end - self.cut >= self.block;
        let short = !whole && self.padding == Padding::Length;
        let most = self.block - if short { SHORT_LENGTH as u64 } else { 0 };
        let useful = (end - self.cut).min(most);
        self.cut += useful;
        if self.flushes.front() == Some(&self.cut) {
            self.flushes.pop_front();
        }
        let useful = useful as u32;
        Some(Cut {
            bytes: self.take(useful, short),
            useful,
            short,
        })
    }

    fn take(&mut self, useful: u32, short: bool) -> Vec<u8> {
        if self.payload == Payload::Virtual {
            return Vec::new();
        }
        let length = match self.padding {
            Padding::Symbol(size) => (useful as usize).next_multiple_of(usize::from(size)),
            Padding::Length | Padding::Block => self.block as usize,
        };
        let mut bytes = Vec::with_capacity(self.capacity.max(length));
        bytes.extend(self.bytes.drain(..useful as usize));
        if short {
            bytes.resize(length - SHORT_LENGTH, 0);
            bytes.extend(useful.to_be_bytes());
        }
        bytes.resize(length, 0);
        bytes
    }

    /// `bytes` need not be kept any more.
    pub fn release(&mut self, bytes: u32) {
        self.released += u64::from(bytes);
    }

    /// Whether all that was written is in blocks.
    pub fn is_empty(&self) -> bool {
        self.written == self.cut
    }
}
