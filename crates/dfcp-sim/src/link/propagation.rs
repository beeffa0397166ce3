//! Packets on the wire, in order of delivery.
//!
//! Without jitter packets arrive in the order they left, so a ring holds them; only those that
//! are overtaken go to a heap.

use dfcp_proto::Instant;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Debug)]
pub(super) struct Propagating<P> {
    pub at: Instant,
    pub size: u32,
    pub packet: P,
    sequence: u64,
}

/// See the module's text. Deliveries come in time order, ties by the order of `push`.
#[derive(Clone, Debug)]
pub(super) struct Propagation<P> {
    in_order: VecDeque<Propagating<P>>,
    overtaking: BinaryHeap<Propagating<P>>,
    next_sequence: u64,
}

impl<P> Default for Propagation<P> {
    fn default() -> Self {
        Self {
            in_order: VecDeque::new(),
            overtaking: BinaryHeap::new(),
            next_sequence: 0,
        }
    }
}

impl<P> Propagation<P> {
    #[inline]
    pub fn push(&mut self, at: Instant, size: u32, packet: P) {
        let entry = Propagating {
            at,
            size,
            packet,
            sequence: self.next_sequence,
        };
        self.next_sequence += 1;
        if self.in_order.back().is_some_and(|last| last.at > at) {
            self.overtaking.push(entry);
        } else {
            self.in_order.push_back(entry);
        }
    }

    /// When the next packet is due.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        let first = self.in_order.front().map(|p| p.at);
        match self.overtaking.peek() {
            None => first,
            Some(overtaking) => Some(first.map_or(overtaking.at, |f| f.min(overtaking.at))),
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Propagating<P>> {
        if let Some(overtaking) = self.overtaking.peek() {
            let key = (overtaking.at, overtaking.sequence);
            if self
                .in_order
                .front()
                .is_none_or(|first| key < (first.at, first.sequence))
            {
                return self.overtaking.pop();
            }
        }
        self.in_order.pop_front()
    }
}

// `BinaryHeap` pops its greatest: the earliest, then the first sent.
impl<P> Ord for Propagating<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<P> PartialOrd for Propagating<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Propagating<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P> Eq for Propagating<P> {}
