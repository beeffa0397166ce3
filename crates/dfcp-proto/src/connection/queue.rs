//! Channels that may have symbols to send, by priority, and in turn among those of one.

use crate::block::ChannelId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A priority; the highest is the first.
pub(super) type Level = Reverse<i32>;

/// Priorities whose turns are remembered; with more, turns begin anew now and then.
const MAX_CURSORS: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub(super) struct SendQueue {
    waiting: BTreeSet<(Level, ChannelId)>,
    /// Those that are not 0, of channels that are not over.
    priorities: BTreeMap<ChannelId, i32>,
    /// Where the next turn of each priority begins.
    cursors: BTreeMap<Level, ChannelId>,
    /// Nothing can be sent until something changes: no data, or no credit for it.
    blocked: bool,
}

impl SendQueue {
    pub fn new() -> Self {
        Self {
            waiting: BTreeSet::new(),
            priorities: BTreeMap::new(),
            cursors: BTreeMap::new(),
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

    /// The channel was served; the next turn of its priority begins after it.
    pub fn on_served(&mut self, id: ChannelId) {
        if self.cursors.len() >= MAX_CURSORS {
            self.cursors.clear();
        }
        let (level, _) = self.key(id);
        self.cursors.insert(level, ChannelId(id.0 + 1));
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
        let start = self.cursors.get(&level).copied();
        let start = start.unwrap_or(ChannelId(0));
        Turn {
            level,
            start,
            at: start,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_take_turns_beside_a_higher_priority() {
        let mut queue = SendQueue::new();
        let (first, high, second) = (ChannelId(0), ChannelId(8), ChannelId(16));
        queue.set_priority(high, 1);
        queue.insert(first);
        queue.insert(second);
        let mut served = [0, 0];
        let serve = |queue: &mut SendQueue| {
            let level = queue.highest().expect("some wait");
            let id = queue.turn(level).next(queue).expect("one of it");
            queue.on_served(id);
            id
        };
        for _ in 0..100 {
            // It has a packet now and then.
            queue.insert(high);
            assert_eq!(serve(&mut queue), high);
            queue.remove(high);
            served[usize::from(serve(&mut queue) == second)] += 1;
        }
        assert_eq!(served, [50, 50]);
    }
}
