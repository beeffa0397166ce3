//! One line of packets: the FIFO discipline with DropTail, and the store of RED and CoDel.

use std::collections::VecDeque;

use super::config::Limit;
use crate::packet::{DropCause, Packet, Queued};

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

    /// Puts a packet in the place of the newest one of its flow that has at most `largest` bytes,
    /// and gives that one back; or gives `item` back where none waits. It has waited as long.
    pub(super) fn replace_newest(&mut self, item: Queued<P>, largest: u32) -> Result<P, Queued<P>>
    where
        P: Packet,
    {
        let flow = item.packet.flow();
        let alike =
            |old: &&mut Queued<P>| old.packet.flow() == flow && old.packet.size() <= largest;
        let Some(place) = self.line.iter_mut().rev().find(alike) else {
            return Err(item);
        };
        self.bytes = self.bytes - u64::from(place.size) + u64::from(item.size);
        place.size = item.size;
        Ok(std::mem::replace(&mut place.packet, item.packet))
    }

    pub(super) fn pop(&mut self) -> Option<Queued<P>> {
        let item = self.line.pop_front()?;
        self.bytes -= u64::from(item.size);
        Some(item)
    }

    /// The packet that is next.
    pub(super) fn front(&self) -> Option<&Queued<P>> {
        self.line.front()
    }

    pub(super) fn packets(&self) -> usize {
        self.line.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued<P>> {
        self.line.iter()
    }
}
