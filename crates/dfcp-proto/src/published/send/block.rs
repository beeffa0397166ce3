//! The blocks of the window and in which order they get packets.
//!
//! `repair` are those that need packets now: the lowest first, for in-order delivery and the window
//! wait for it. `waiting` are those whose answer is awaited, least recently sent first; the list
//! runs through the blocks, so that a packet costs the same however large the window is.

use super::super::code::Encoder;
use super::input::Cut;
use crate::time::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// No block.
const NONE: u32 = u32::MAX;

/// Where a block is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In its first pass.
    Pass,
    /// Needs packets now.
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
    /// Pre-coded, from the first packet on at the latest.
    Encoder(Encoder),
}

/// A block that is not in the window yet.
#[derive(Debug)]
pub(super) struct Next {
    /// What it is of; its bytes have moved to `source`.
    pub cut: Cut,
    /// See [`Block::source`].
    pub source: Option<Box<Source>>,
}

impl Next {
    pub fn new(mut cut: Cut) -> Self {
        let bytes = std::mem::take(&mut cut.bytes);
        let source = (!bytes.is_empty()).then(|| Box::new(Source::Bytes(bytes)));
        Self { cut, source }
    }
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
    /// Packets in a row whose answer did not come.
    pub silences: u8,
    /// Where it is on its way.
    pub phase: Phase,
    /// Whether it ends with its length.
    pub short: bool,
    /// Whether it is in the heap of blocks to be repaired.
    queued: bool,
}

/// The ends of a list through the blocks.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// The blocks from the lowest that must be kept to the newest.
#[derive(Debug)]
pub(super) struct Blocks {
    base: u32,
    ring: VecDeque<Block>,
    /// Lowest block not acknowledged.
    lowest: u32,
    /// May hold blocks that need no packets any more.
    repair: BinaryHeap<Reverse<u32>>,
    waiting: List,
}

impl Blocks {
    pub fn new() -> Self {
        Self {
            base: 0,
            ring: VecDeque::new(),
            lowest: 0,
            repair: BinaryHeap::new(),
            waiting: List {
                head: NONE,
                tail: NONE,
            },
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
    pub fn open(&mut self, now: Instant, next: Next, goal: u32) -> u32 {
        let id = self.next();
        let Next { cut, source } = next;
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
            queued: false,
        });
        id
    }

    /// The lowest block that needs packets.
    pub fn repair(&self) -> Option<u32> {
        self.repair.peek().map(|&Reverse(id)| id)
    }

    /// Keeps what [`repair`](Self::repair) says true.
    fn clean_repair(&mut self) {
        while let Some(&Reverse(id)) = self.repair.peek() {
            match self.get_mut(id) {
                Some(block) if block.phase == Phase::Repair => return,
                Some(block) => block.queued = false,
                None => {}
            }
            self.repair.pop();
        }
    }

    /// The block whose answer is awaited longest.
    pub fn waiting(&self) -> Option<u32> {
        (self.waiting.head != NONE).then_some(self.waiting.head)
    }

    /// Moves a block to the end of its new phase's list.
    pub fn set_phase(&mut self, id: u32, phase: Phase) {
        let Some(block) = self.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut block.phase, phase);
        if phase == Phase::Repair && !std::mem::replace(&mut block.queued, true) {
            self.repair.push(Reverse(id));
        }
        if before == Phase::Waiting {
            self.unlink(id);
        }
        if phase == Phase::Waiting {
            self.append(id);
        }
        if before == Phase::Repair {
            self.clean_repair();
        }
        if before == Phase::Acked {
            self.lowest = self.lowest.min(id);
        }
        let acked = |b: &Block| b.phase == Phase::Acked;
        while self.get(self.lowest).is_some_and(acked) {
            self.lowest += 1;
        }
    }

    /// The place of a block that is kept.
    fn at(&mut self, id: u32) -> &mut Block {
        &mut self.ring[(id - self.base) as usize]
    }

    fn unlink(&mut self, id: u32) {
        let Block { previous, next, .. } = *self.at(id);
        match previous {
            NONE => self.waiting.head = next,
            previous => self.at(previous).next = next,
        }
        match next {
            NONE => self.waiting.tail = previous,
            next => self.at(next).previous = previous,
        }
    }

    fn append(&mut self, id: u32) {
        let tail = std::mem::replace(&mut self.waiting.tail, id);
        match tail {
            NONE => self.waiting.head = id,
            tail => self.at(tail).next = id,
        }
        let block = self.at(id);
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
