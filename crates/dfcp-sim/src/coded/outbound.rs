//! The sending half of a node: which block, over which path, when.

use super::path::Path;
use super::{CodedConfig, Report};
use dfcp_proto::scheduler::Rounding;
use dfcp_proto::{Duration, Instant};
use std::collections::VecDeque;

/// What the next node has of a block, and what is on its way there.
#[derive(Clone, Debug, Default)]
struct Block {
    degrees: u32,
    /// Symbols in flight, by path.
    flight: Vec<u32>,
    /// Symbols sent.
    sent: u32,
}

/// A packet that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub path: u8,
    pub number: u64,
    pub block: u64,
    /// How many symbols of this block were sent before.
    pub index: u32,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Outbound {
    paths: Vec<Path>,
    rounding: Rounding,
    numblks: u64,
    /// Bytes of packets with K symbols.
    block_bytes: u64,
    /// The first block that the next node needs more of.
    first: u64,
    /// It takes no block from here on yet.
    limit: u64,
    /// From `first` on.
    blocks: VecDeque<Block>,
    /// The path asked first: they take turns.
    turn: usize,
    /// A block waits for this time of the pacer.
    paced_until: Option<Instant>,
    /// Symbols sent beyond K of their block.
    repairs: u64,
}

/// A rounding error is no symbol.
const EPSILON: f64 = 1e-9;

impl Outbound {
    pub fn new(config: &CodedConfig, paths: usize, now: Instant) -> Self {
        Self {
            paths: (0..paths).map(|_| Path::new(config, now)).collect(),
            rounding: config.ctcp.rounding,
            numblks: config.numblks(),
            block_bytes: u64::from(config.ctcp.block_symbols) * u64::from(config.packet),
            first: 0,
            limit: config.numblks(),
            blocks: VecDeque::new(),
            turn: 0,
            paced_until: None,
            repairs: 0,
        }
    }

    /// The first block that the next node needs more of.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Symbols sent beyond K of their block.
    pub fn repairs(&self) -> u64 {
        self.repairs
    }

    /// Smoothed round trip of the first path.
    pub fn srtt(&self) -> Option<Duration> {
        self.paths.first().and_then(Path::srtt)
    }

    /// Bytes that may be in flight over all paths.
    pub fn window(&self) -> u64 {
        let windows = self.paths.iter().map(Path::window);
        windows.fold(0, u64::saturating_add)
    }

    /// A report of the next node came over `path`.
    pub fn on_report(&mut self, now: Instant, path: u8, report: &Report) {
        let Some(at) = self.paths.get_mut(usize::from(path)) else {
            return;
        };
        if let Some((number, received)) = report.answers {
            let settled = at.answered(now, number, received);
            self.land(path.into(), &settled);
        }
        while self.first < report.current {
            self.blocks.pop_front();
            self.first += 1;
        }
        self.limit = self.limit.max(report.limit);
        for (block, &degrees) in (report.current..).zip(&report.degrees) {
            if let Some(block) = self.block(block) {
                block.degrees = block.degrees.max(degrees.into());
            }
        }
    }

    /// Time passed.
    pub fn on_timeout(&mut self, now: Instant) {
        for path in 0..self.paths.len() {
            let expired = self.paths[path].write_off(now);
            self.land(path, &expired);
        }
    }

    /// Symbols of these blocks are in flight on `path` no more.
    fn land(&mut self, path: usize, blocks: &[u64]) {
        for &block in blocks {
            if let Some(block) = self.block(block) {
                block.flight[path] = block.flight[path].saturating_sub(1);
            }
        }
    }

    /// An open block, begun if need be.
    fn block(&mut self, block: u64) -> Option<&mut Block> {
        let at = block.checked_sub(self.first)?;
        if at >= self.numblks {
            return None;
        }
        let at = at as usize;
        while self.blocks.len() <= at {
            self.blocks.push_back(Block {
                flight: vec![0; self.paths.len()],
                ..Block::default()
            });
        }
        self.blocks.get_mut(at)
    }

    /// The next packet to send now, if any. This node has `degrees(block)` of a block, zero of
    /// those that it does not know.
    pub fn poll(&mut self, now: Instant, degrees: impl Fn(u64) -> u32) -> Option<Slot> {
        self.paced_until = None;
        for turn in 0..self.paths.len() {
            let path = (self.turn + turn) % self.paths.len();
            if !self.paths[path].has_window() {
                continue;
            }
            let Some(block) = self.wanting(path, &degrees) else {
                self.paths[path].idles();
                continue;
            };
            if !self.paths[path].is_due(now) {
                let due = self.paths[path].due_at();
                self.paced_until = self.paced_until.into_iter().chain(due).min();
                continue;
            }
            self.turn = path + 1;
            return self.send(now, path, block, degrees(block));
        }
        None
    }

    /// The block that gets one more symbol, were it to go over `path`: the first that lacks one and
    /// is not complete before that arrives.
    fn wanting(&mut self, path: usize, degrees: impl Fn(u64) -> u32) -> Option<u64> {
        let arrive: Vec<f64> = self.paths.iter().map(Path::arrive).collect();
        let slack = match self.rounding {
            Rounding::Down => arrive[path] - EPSILON,
            Rounding::Up => EPSILON,
        };
        // Algorithm 3, with the arrivals expected over each path by its own loss.
        let lacks = |block: &Block, have: u32| {
            let flight = block.flight.iter().zip(&arrive);
            let expected: f64 = flight.map(|(&n, arrive)| f64::from(n) * arrive).sum();
            f64::from(have) - f64::from(block.degrees) - expected > slack
        };
        let end = self.limit.min(self.first + self.numblks);
        let start = (self.first + self.lead(path)).min(end);
        (start..end).chain(self.first..start).find(|&number| {
            let have = degrees(number);
            have > 0 && self.block(number).is_some_and(|block| lacks(block, have))
        })
    }

    /// Blocks that faster paths deliver before a packet over `path` arrives: it would come too late
    /// for them, and they would wait for it.
    fn lead(&self, path: usize) -> u64 {
        let delay = self.paths[path].delay();
        let earlier = |other: &Path| {
            other
                .bandwidth()
                .bytes_in(delay.saturating_sub(other.delay()))
        };
        let bytes = self.paths.iter().map(earlier).fold(0, u64::saturating_add);
        bytes / self.block_bytes
    }

    fn send(&mut self, now: Instant, path: usize, block: u64, k: u32) -> Option<Slot> {
        let number = self.paths[path].send(now, block);
        let state = self.block(block)?;
        let index = state.sent;
        state.sent += 1;
        state.flight[path] += 1;
        self.repairs += u64::from(index >= k);
        Some(Slot {
            path: path as u8,
            number,
            block,
            index,
        })
    }

    /// Whether nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.paths.iter().all(|path| path.expires_at().is_none())
    }

    /// Sends a symbol that is not needed, for the answer to it.
    pub fn probe(&mut self, now: Instant) -> Option<Slot> {
        let block = self.first.min(self.limit.saturating_sub(1));
        let number = self.paths.first_mut()?.send(now, block);
        let index = self.block(block).map_or(0, |state| {
            state.flight[0] += 1;
            state.sent += 1;
            state.sent - 1
        });
        self.repairs += 1;
        Some(Slot {
            path: 0,
            number,
            block,
            index,
        })
    }

    /// When [`Self::on_timeout`] or [`Self::poll`] has something to do.
    pub fn wakes_at(&self) -> Option<Instant> {
        let expiries = self.paths.iter().filter_map(Path::expires_at);
        expiries.chain(self.paced_until).min()
    }
}
