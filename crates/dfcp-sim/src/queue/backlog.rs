//! A buffer shared by many lines of packets, one for each class of a fair queue.
//!
//! Invariants: the totals are the sums over the lines; the longest line, in bytes, is always
//! known, ties going to the lowest class. Lines keep their memory when they empty.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::config::{DropFrom, Limit};
use super::tournament::Tournament;
use crate::packet::{DropCause, Queued};

/// The lines, by class; a discipline may pin a tag to each packet.
#[derive(Clone, Debug)]
pub(super) struct Backlog<P, T = ()> {
    lines: Vec<VecDeque<(Queued<P>, T)>>,
    /// Bytes of each line.
    lengths: Tournament<Reverse<u64>>,
    packets: usize,
    bytes: u64,
}

impl<P, T> Backlog<P, T> {
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::new(),
            lengths: Tournament::new(Reverse(0)),
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, class: usize, item: Queued<P>, tag: T) {
        if self.lines.len() <= class {
            self.lines.resize_with(class + 1, VecDeque::new);
        }
        let size = u64::from(item.size);
        self.packets += 1;
        self.bytes += size;
        self.lines[class].push_back((item, tag));
        self.lengths.set(class, Reverse(self.length(class) + size));
    }

    /// Takes the oldest packet of a class.
    pub(super) fn pop(&mut self, class: usize) -> Option<Queued<P>> {
        self.take(class, DropFrom::Head)
    }

    /// Takes a packet from either end of a class.
    pub(super) fn take(&mut self, class: usize, end: DropFrom) -> Option<Queued<P>> {
        let line = self.lines.get_mut(class)?;
        let (item, _) = match end {
            DropFrom::Head => line.pop_front()?,
            DropFrom::Tail => line.pop_back()?,
        };
        let size = u64::from(item.size);
        self.packets -= 1;
        self.bytes -= size;
        self.lengths.set(class, Reverse(self.length(class) - size));
        Some(item)
    }

    /// Drops a packet of the longest line, if the buffer holds more than the limit; returns the
    /// class and the size.
    pub(super) fn shed(
        &mut self,
        limit: Limit,
        end: DropFrom,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<(usize, u32)> {
        if limit.holds(self.packets, self.bytes) {
            return None;
        }
        let class = self.lengths.winner()?;
        let item = self.take(class, end)?;
        dropped(item.packet, DropCause::Full);
        Some((class, item.size))
    }

    /// The oldest packet of a class.
    pub(super) fn front(&self, class: usize) -> Option<&(Queued<P>, T)> {
        self.lines.get(class)?.front()
    }

    /// Bytes of a class.
    pub(super) fn length(&self, class: usize) -> u64 {
        self.lengths.key(class).0
    }

    pub(super) fn is_empty(&self, class: usize) -> bool {
        self.lines.get(class).is_none_or(VecDeque::is_empty)
    }

    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn iter(&self, class: usize) -> impl Iterator<Item = &Queued<P>> {
        let line = self.lines.get(class);
        line.into_iter().flatten().map(|(item, _)| item)
    }
}
