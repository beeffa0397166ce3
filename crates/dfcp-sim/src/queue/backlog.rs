//! A buffer shared by many lines of packets, one for each class of a fair queue.
//!
//! Invariants: the totals are the sums over the lines; who is longest is found in the lengths of
//! now, ties going to the lowest class. Lines keep their memory when they empty.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::config::{DropFrom, Limit};
use super::tournament::Tournament;
use crate::packet::{DropCause, Queued};

/// The lines, by class; a discipline may pin a tag to each packet.
#[derive(Clone, Debug)]
pub(super) struct Backlog<P, T = ()> {
    lines: Vec<Line<P, T>>,
    /// Who is longest, but for the lines that changed since that was last asked.
    longest: Tournament<Reverse<u64>>,
    changed: Vec<u32>,
    packets: usize,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Line<P, T> {
    items: VecDeque<(Queued<P>, T)>,
    bytes: u64,
    /// Whether it is among `changed`.
    listed: bool,
}

impl<P, T> Backlog<P, T> {
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::new(),
            longest: Tournament::new(Reverse(0)),
            changed: Vec::new(),
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, class: usize, item: Queued<P>, tag: T) {
        if self.lines.len() <= class {
            self.lines.resize_with(class + 1, || Line {
                items: VecDeque::new(),
                bytes: 0,
                listed: false,
            });
        }
        let size = u64::from(item.size);
        let line = &mut self.lines[class];
        line.items.push_back((item, tag));
        line.bytes += size;
        self.packets += 1;
        self.bytes += size;
        self.note_change(class);
    }

    /// Takes the oldest packet of a class.
    pub(super) fn pop(&mut self, class: usize) -> Option<Queued<P>> {
        self.take(class, DropFrom::Head)
    }

    /// Takes a packet from either end of a class.
    pub(super) fn take(&mut self, class: usize, end: DropFrom) -> Option<Queued<P>> {
        let line = self.lines.get_mut(class)?;
        let (item, _) = match end {
            DropFrom::Head => line.items.pop_front()?,
            DropFrom::Tail => line.items.pop_back()?,
        };
        let size = u64::from(item.size);
        line.bytes -= size;
        self.packets -= 1;
        self.bytes -= size;
        self.note_change(class);
        Some(item)
    }

    fn note_change(&mut self, class: usize) {
        let line = &mut self.lines[class];
        if !line.listed {
            line.listed = true;
            self.changed.push(class as u32);
        }
    }

    fn longest(&mut self) -> Option<usize> {
        for class in self.changed.drain(..) {
            let class = class as usize;
            let line = &mut self.lines[class];
            line.listed = false;
            // Packets without bytes must be found too.
            let length = if line.items.is_empty() {
                0
            } else {
                line.bytes.max(1)
            };
            self.longest.set(class, Reverse(length));
        }
        self.longest.winner().map(|(class, _)| class)
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
        let class = self.longest()?;
        let item = self.take(class, end)?;
        dropped(item.packet, DropCause::Full);
        Some((class, item.size))
    }

    /// The oldest packet of a class.
    pub(super) fn front(&self, class: usize) -> Option<&(Queued<P>, T)> {
        self.lines.get(class)?.items.front()
    }

    /// Bytes of a class.
    pub(super) fn length(&self, class: usize) -> u64 {
        self.lines.get(class).map_or(0, |line| line.bytes)
    }

    pub(super) fn is_empty(&self, class: usize) -> bool {
        self.front(class).is_none()
    }

    /// Packets and bytes.
    pub(super) fn total(&self) -> (usize, u64) {
        (self.packets, self.bytes)
    }

    /// All packets, class by class.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued<P>> {
        let items = self.lines.iter().flat_map(|line| &line.items);
        items.map(|(item, _)| item)
    }
}
