//! The blocks of the window and in which order they get packets.
//!
//! Two lists run through the blocks, so that picking one, and taking one out when its ACK comes,
//! cost the same however large the window is: `repair`, blocks that need packets now, and
//! `waiting`, blocks whose answer is awaited, least recently sent first.

use super::input::Cut;
use crate::time::Instant;
use dfcp_fec::raptor::Encoder;
use std::collections::VecDeque;

/// No block.
const NONE: u32 = u32::MAX;

/// Where a block is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In its first pass.
    Pass,
    /// In the list of those that need packets now.
    Repair,
    /// In the list of those whose answer is awaited.
    Waiting,
    /// The receiver has enough, but has not acknowledged it.
    Known,
    /// Acknowledged; kept until it is known to be decoded.
    Acked,
}

/// A block's data.
#[derive(Debug)]
pub(super) enum Source {
    /// As written.
    Bytes(Vec<u8>),
    /// Pre-coded, from the first packet on.
    Encoder(Encoder),
}

/// A block of the window. Small: there may be 10000 of them, on each of 100 connections.
#[derive(Debug)]
pub(super) struct Block {
    /// When its latest packet left.
    pub last: Instant,
    /// None with virtual payload, and with encoding off.
    pub source: Option<Box<Source>>,
    /// Bytes of the application in it.
    pub useful: u32,
    /// Packets sent: index of the next.
    pub sent: u32,
    /// It gets packets until `sent` reaches this.
    pub goal: u32,
    /// Packets that had arrived when packet `have_at - 1` was answered.
    pub have: u32,
    /// See `have`.
    pub have_at: u32,
    previous: u32,
    next: u32,
    /// Times in a row that no answer came.
    pub silences: u8,
    /// Where it is on its way.
    pub phase: Phase,
    /// Whether it is padded.
    pub short: bool,
}

/// Which list.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NONE,
    tail: NONE,
};

/// The blocks from the lowest that must be kept to the newest.
#[derive(Debug)]
pub(super) struct Blocks {
    base: u32,
    ring: VecDeque<Block>,
    /// Lowest block not acknowledged.
    lowest: u32,
    repair: List,
    waiting: List,
}

impl Blocks {
    pub fn new() -> Self {
        Self {
            base: 0,
            ring: VecDeque::new(),
            lowest: 0,
            repair: EMPTY,
            waiting: EMPTY,
        }
    }

    /// Lowest block kept.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Lowest block not acknowledged.
    pub fn lowest(&self) -> u32 {
        self.lowest
    }

    /// The block to come.
    pub fn next(&self) -> u32 {
        self.base + self.ring.len() as u32
    }

    pub fn get(&self, id: u32) -> Option<&Block> {
        self.ring.get(id.checked_sub(self.base)? as usize)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Block> {
        self.ring.get_mut(id.checked_sub(self.base)? as usize)
    }

    /// Takes a new block into the window, for a pass of `goal` packets.
    pub fn open(&mut self, now: Instant, cut: Cut, goal: u32) -> u32 {
        let id = self.next();
        let source = (!cut.bytes.is_empty()).then(|| Box::new(Source::Bytes(cut.bytes)));
        self.ring.push_back(Block {
            last: now,
            source,
            useful: cut.useful,
            sent: 0,
            goal,
            have: 0,
            have_at: 0,
            previous: NONE,
            next: NONE,
            silences: 0,
            phase: Phase::Pass,
            short: cut.short,
        });
        id
    }

    /// The block that needs packets most.
    pub fn repair(&self) -> Option<u32> {
        (self.repair.head != NONE).then_some(self.repair.head)
    }

    /// The block whose answer is awaited longest.
    pub fn waiting(&self) -> Option<u32> {
        (self.waiting.head != NONE).then_some(self.waiting.head)
    }

    /// Moves a block to the end of its new phase's list.
    pub fn set_phase(&mut self, id: u32, phase: Phase) {
        let Some(block) = self.get(id) else { return };
        let (before, previous, next) = (block.phase, block.previous, block.next);
        match before {
            Phase::Repair => {
                Self::unlink(&mut self.ring, self.base, &mut self.repair, previous, next)
            }
            Phase::Waiting => {
                Self::unlink(&mut self.ring, self.base, &mut self.waiting, previous, next)
            }
            _ => {}
        }
        match phase {
            Phase::Repair => Self::append(&mut self.ring, self.base, &mut self.repair, id),
            Phase::Waiting => Self::append(&mut self.ring, self.base, &mut self.waiting, id),
            _ => {}
        }
        if let Some(block) = self.get_mut(id) {
            block.phase = phase;
        }
        if phase == Phase::Acked && id == self.lowest {
            while self
                .get(self.lowest)
                .is_some_and(|b| b.phase == Phase::Acked)
            {
                self.lowest += 1;
            }
        } else if before == Phase::Acked {
            self.lowest = self.lowest.min(id);
        }
    }

    fn unlink(ring: &mut VecDeque<Block>, base: u32, list: &mut List, previous: u32, next: u32) {
        match previous {
            NONE => list.head = next,
            id => ring[(id - base) as usize].next = next,
        }
        match next {
            NONE => list.tail = previous,
            id => ring[(id - base) as usize].previous = previous,
        }
    }

    fn append(ring: &mut VecDeque<Block>, base: u32, list: &mut List, id: u32) {
        let tail = std::mem::replace(&mut list.tail, id);
        match tail {
            NONE => list.head = id,
            tail => ring[(tail - base) as usize].next = id,
        }
        let block = &mut ring[(id - base) as usize];
        (block.previous, block.next) = (tail, NONE);
    }

    /// Drops the lowest block, which must be acknowledged.
    pub fn release(&mut self) -> Option<Block> {
        if self.base >= self.lowest {
            return None;
        }
        self.base += 1;
        self.ring.pop_front()
    }
}
