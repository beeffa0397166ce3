//! Channels that may have symbols to send, served in turn.

use crate::block::ChannelId;
use std::collections::BTreeSet;

/// See the module's text.
#[derive(Debug)]
pub(super) struct SendQueue {
    waiting: BTreeSet<ChannelId>,
    /// Where the next turn begins.
    cursor: ChannelId,
    /// Nothing can be sent until something changes: no data, or no credit for it.
    blocked: bool,
}

impl SendQueue {
    pub fn new() -> Self {
        Self {
            waiting: BTreeSet::new(),
            cursor: ChannelId(0),
            blocked: false,
        }
    }

    /// The channel may have something to send.
    pub fn insert(&mut self, id: ChannelId) {
        self.waiting.insert(id);
        self.blocked = false;
    }

    pub fn remove(&mut self, id: ChannelId) {
        self.waiting.remove(&id);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether it is worth asking the channels.
    pub fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && !self.blocked
    }

    /// No channel had anything that may be sent.
    pub fn block(&mut self) {
        self.blocked = true;
    }

    /// There is credit, or what was sent begins again.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// The channel was served; the next turn begins after it.
    pub fn on_served(&mut self, id: ChannelId) {
        self.cursor = ChannelId(id.0 + 1);
    }

    /// Begins to walk once around; channels may leave on the way.
    pub fn turn(&self) -> Turn {
        Turn {
            start: self.cursor,
            at: self.cursor,
            wrapped: false,
        }
    }
}

/// A walk once around the queue.
pub(super) struct Turn {
    start: ChannelId,
    at: ChannelId,
    wrapped: bool,
}

impl Turn {
    pub fn next(&mut self, queue: &SendQueue) -> Option<ChannelId> {
        let mut next = queue.waiting.range(self.at..).next().copied();
        if next.is_none() && !self.wrapped {
            self.wrapped = true;
            next = queue.waiting.first().copied();
        }
        let id = next.filter(|&id| !self.wrapped || id < self.start)?;
        self.at = ChannelId(id.0 + 1);
        Some(id)
    }
}
