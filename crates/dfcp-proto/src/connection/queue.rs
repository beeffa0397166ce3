//! Channels that may have symbols to send, by priority, and in turn among those of one.

use crate::block::ChannelId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A priority; the highest is the first.
pub(super) type Level = Reverse<i32>;

/// See the module's text.
#[derive(Debug)]
pub(super) struct SendQueue {
    waiting: BTreeSet<(Level, ChannelId)>,
    /// Those that are not 0, of channels that are not over.
    priorities: BTreeMap<ChannelId, i32>,
    /// Where the next turn begins.
    cursor: ChannelId,
    /// Nothing can be sent until something changes: no data, or no credit for it.
    blocked: bool,
}

impl SendQueue {
    pub fn new() -> Self {
        Self {
            waiting: BTreeSet::new(),
            priorities: BTreeMap::new(),
            cursor: ChannelId(0),
            blocked: false,
        }
    }

    fn key(&self, id: ChannelId) -> (Level, ChannelId) {
        let priority = self.priorities.get(&id).copied();
        (Reverse(priority.unwrap_or_default()), id)
    }

    /// The channel may have something to send.
    pub fn insert(&mut self, id: ChannelId) {
        self.waiting.insert(self.key(id));
        self.blocked = false;
    }

    pub fn remove(&mut self, id: ChannelId) {
        self.waiting.remove(&self.key(id));
    }

    /// The channel sends nothing any more.
    pub fn forget(&mut self, id: ChannelId) {
        self.remove(id);
        self.priorities.remove(&id);
    }

    pub fn set_priority(&mut self, id: ChannelId, priority: i32) {
        let waits = self.waiting.remove(&self.key(id));
        match priority {
            0 => self.priorities.remove(&id),
            _ => self.priorities.insert(id, priority),
        };
        if waits {
            self.waiting.insert(self.key(id));
        }
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

    /// The highest priority of those that wait.
    pub fn highest(&self) -> Option<Level> {
        self.waiting.first().map(|&(level, _)| level)
    }

    /// The next one after it.
    pub fn below(&self, level: Level) -> Option<Level> {
        let lower = (
            Bound::Excluded((level, ChannelId(u64::MAX))),
            Bound::Unbounded,
        );
        self.waiting.range(lower).next().map(|&(level, _)| level)
    }

    /// Begins to walk once around those of a priority; channels may leave on the way.
    pub fn turn(&self, level: Level) -> Turn {
        Turn {
            level,
            start: self.cursor,
            at: self.cursor,
            wrapped: false,
        }
    }
}

/// A walk once around those of a priority.
pub(super) struct Turn {
    level: Level,
    start: ChannelId,
    at: ChannelId,
    wrapped: bool,
}

impl Turn {
    pub fn next(&mut self, queue: &SendQueue) -> Option<ChannelId> {
        let from = |at| {
            let last = ChannelId(u64::MAX);
            let mut range = queue.waiting.range((self.level, at)..=(self.level, last));
            range.next().map(|&(_, id)| id)
        };
        let mut next = from(self.at);
        if next.is_none() && !self.wrapped {
            next = from(ChannelId(0));
            self.wrapped = true;
        }
        let id = next.filter(|&id| !self.wrapped || id < self.start)?;
        self.at = ChannelId(id.0 + 1);
        Some(id)
    }
}
