//! Flow queue CoDel: RFC 8290. Flows are hashed into queues, each with a CoDel of its own, served
//! by deficit round robin in which queues that just became busy go first.
//!
//! Invariants: a queue is on the new list, on the old one, or idle and empty. The longest queue
//! gives way, one packet at a time, when the buffer they share is full (§4.1; Linux drops up to
//! 64 at once to save time).

use std::collections::VecDeque;

use dfcp_proto::Instant;

use super::backlog::Backlog;
use super::codel::{CoDel, Line, Moment};
use super::config::{DropFrom, FqCoDelConfig, Limit};
use super::hash::Buckets;
use crate::packet::{DropCause, FlowId, Packet, Queued};
use crate::random::Random;

#[derive(Clone, Debug)]
pub(super) struct FqCoDel<P> {
    config: FqCoDelConfig,
    buckets: Buckets,
    backlog: Backlog<P>,
    flows: Vec<FlowQueue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowQueue {
    codel: CoDel,
    /// Bytes it may still send in its turn.
    credits: i64,
    listed: bool,
}

/// One queue of the backlog.
struct One<'a, P> {
    backlog: &'a mut Backlog<P>,
    bucket: usize,
}

impl<P> Line<P> for One<'_, P> {
    fn pop(&mut self) -> Option<Queued<P>> {
        self.backlog.pop(self.bucket)
    }

    fn bytes(&self) -> u64 {
        self.backlog.length(self.bucket)
    }
}

impl<P: Packet> FqCoDel<P> {
    pub(super) fn new(config: FqCoDelConfig, random: Random) -> Self {
        Self {
            config,
            buckets: Buckets::new(config.buckets, None, random),
            backlog: Backlog::new(),
            flows: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    fn quantum(&self) -> i64 {
        i64::from(self.config.quantum.max(1))
    }

    pub(super) fn enqueue(
        &mut self,
        item: Queued<P>,
        limit: Limit,
        dropped: &mut impl FnMut(P, DropCause),
    ) {
        if !limit.has_room(0, 0, item.size) {
            return dropped(item.packet, DropCause::Full);
        }
        let bucket = self.bucket_of(item.packet.flow());
        self.backlog.push(bucket, item, ());
        if self.flows.len() <= bucket {
            self.flows.resize(bucket + 1, FlowQueue::default());
        }
        let quantum = self.quantum();
        let flow = &mut self.flows[bucket];
        if !flow.listed {
            flow.listed = true;
            flow.credits = quantum;
            self.new.push_back(bucket as u32);
        }
        while self.backlog.shed(limit, DropFrom::Head, dropped).is_some() {}
    }

    pub(super) fn dequeue(
        &mut self,
        now: Instant,
        marked: &mut u64,
        dropped: &mut impl FnMut(P, DropCause),
    ) -> Option<Queued<P>> {
        let quantum = self.quantum();
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let bucket = *list.front()?;
            let flow = &mut self.flows[bucket as usize];
            if flow.credits <= 0 {
                flow.credits += quantum;
                list.pop_front();
                self.old.push_back(bucket);
                continue;
            }
            let mut line = One {
                backlog: &mut self.backlog,
                bucket: bucket as usize,
            };
            let mut moment = Moment {
                config: &self.config.codel,
                now,
                marked,
            };
            if let Some(item) = flow.codel.dequeue(&mut moment, &mut line, dropped) {
                flow.credits -= i64::from(item.size);
                return Some(item);
            }
            list.pop_front();
            // A new queue waits for the old ones before it may be new again (§4.2).
            if from_new {
                self.old.push_back(bucket);
            } else {
                flow.listed = false;
            }
        }
    }

    pub(super) fn bucket_of(&self, flow: FlowId) -> usize {
        self.buckets.of(flow)
    }

    pub(super) fn backlog(&self) -> &Backlog<P> {
        &self.backlog
    }
}
