//! One line of packets: the FIFO discipline with DropTail, and the store of RED and CoDel.

use std::collections::VecDeque;

use super::config::Limit;
use crate::packet::{DropCause, Queued};

#[derive(Clone, Debug)]
pub(super) struct Fifo<P> {
    line: VecDeque<Queued<P>>,
    bytes: u64,
}

impl<P> Fifo<P> {
    pub(super) fn new() -> Self {
        Self {
            line: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn enqueue(
        &mut self,
        limit: Limit,
        item: Queued<P>,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        if limit.has_room(self.line.len(), self.bytes, item.size) {
            self.bytes += u64::from(item.size);
            self.line.push_back(item);
        } else {
            dropped(item.packet, DropCause::Full);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Queued<P>> {
        let item = self.line.pop_front()?;
        self.bytes -= u64::from(item.size);
        Some(item)
    }

    pub(super) fn packets(&self) -> usize {
        self.line.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued<P>> {
        self.line.iter()
    }
}
