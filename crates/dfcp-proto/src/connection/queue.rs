//! Channels that may have symbols to send, by priority, and in turn among those of one.

use crate::block::ChannelId;
use crate::time::Instant;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A priority; the highest is the first.
pub(super) type Level = Reverse<i32>;

/// Priorities whose turns are remembered; with more, turns begin anew now and then.
const MAX_CURSORS: usize = 64;

/// What a channel may have to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Symbols for blocks that lack some.
    Repair,
    /// New blocks.
    New,
}

/// See the module's text. A channel is asked again only after something changed for it, so that many whose
/// readers have stopped cost a packet of another one nothing.
#[derive(Debug)]
pub(super) struct SendQueue {
    repairs: BTreeSet<(Level, ChannelId)>,
    new: BTreeSet<(Level, ChannelId)>,
    /// Those whose repairs all wait, by when the first may leave. What has changed meanwhile shows then.
    held: BTreeSet<(Instant, ChannelId)>,
    /// Those with new blocks that are beyond the channel's limit.
    at_limit: BTreeSet<ChannelId>,
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
            repairs: BTreeSet::new(),
            new: BTreeSet::new(),
            held: BTreeSet::new(),
            at_limit: BTreeSet::new(),
            priorities: BTreeMap::new(),
            cursors: BTreeMap::new(),
            blocked: false,
        }
    }

    fn key(&self, id: ChannelId) -> (Level, ChannelId) {
        let priority = self.priorities.get(&id).copied();
        (Reverse(priority.unwrap_or_default()), id)
    }

    fn waiting(&self, work: Work) -> &BTreeSet<(Level, ChannelId)> {
        match work {
            Work::Repair => &self.repairs,
            Work::New => &self.new,
        }
    }

    /// The channel may have something to send.
    pub fn insert(&mut self, id: ChannelId) {
        let key = self.key(id);
        self.repairs.insert(key);
        self.new.insert(key);
        self.at_limit.remove(&id);
        self.blocked = false;
    }

    /// The channel has nothing of this.
    pub fn remove(&mut self, id: ChannelId, work: Work) {
        let key = self.key(id);
        match work {
            Work::Repair => self.repairs.remove(&key),
            Work::New => self.new.remove(&key),
        };
    }

    /// The channel has new blocks, but only beyond its limit: it is asked when it is inserted again.
    pub fn set_aside(&mut self, id: ChannelId) {
        self.remove(id, Work::New);
        self.at_limit.insert(id);
    }

    /// The channel has repairs, but only for later.
    pub fn hold(&mut self, id: ChannelId, due: Instant) {
        self.remove(id, Work::Repair);
        self.held.insert((due, id));
    }

    /// Channels are asked again whose repairs have waited long enough.
    pub fn release(&mut self, now: Instant) {
        while self.held_until().is_some_and(|due| due <= now)
            && let Some((_, id)) = self.held.pop_first()
        {
            self.repairs.insert(self.key(id));
            self.blocked = false;
        }
    }

    /// When the next one is.
    pub fn held_until(&self) -> Option<Instant> {
        self.held.first().map(|&(due, _)| due)
    }

    /// The channel sends nothing any more.
    pub fn forget(&mut self, id: ChannelId) {
        self.remove(id, Work::Repair);
        self.remove(id, Work::New);
        self.at_limit.remove(&id);
        self.priorities.remove(&id);
    }

    pub fn set_priority(&mut self, id: ChannelId, priority: i32) {
        let before = self.key(id);
        let waits = (self.repairs.remove(&before), self.new.remove(&before));
        match priority {
            0 => self.priorities.remove(&id),
            _ => self.priorities.insert(id, priority),
        };
        let key = self.key(id);
        if waits.0 {
            self.repairs.insert(key);
        }
        if waits.1 {
            self.new.insert(key);
        }
    }

    /// Whether no channel has anything to send, now or later.
    pub fn is_empty(&self) -> bool {
        self.repairs.is_empty() && self.new.is_empty() && self.at_limit.is_empty()
    }

    /// Whether a channel has new blocks, though it may lack credit for them.
    pub fn has_new(&self) -> bool {
        !(self.new.is_empty() && self.at_limit.is_empty())
    }

    /// Whether it is worth asking the channels.
    pub fn is_ready(&self) -> bool {
        !(self.blocked || self.repairs.is_empty() && self.new.is_empty())
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
        let first = [self.repairs.first(), self.new.first()];
        first.into_iter().flatten().map(|&(level, _)| level).min()
    }

    /// The next one after it.
    pub fn below(&self, level: Level) -> Option<Level> {
        let lower = (
            Bound::Excluded((level, ChannelId(u64::MAX))),
            Bound::Unbounded,
        );
        let next = |of: &BTreeSet<_>| of.range(lower).next().map(|&(level, _)| level);
        [next(&self.repairs), next(&self.new)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Begins to walk once around those of a priority that have this; channels may leave on the way.
    pub fn turn(&self, level: Level, work: Work) -> Turn {
        let start = self.cursors.get(&level).copied();
        let start = start.unwrap_or(ChannelId(0));
        Turn {
            level,
            work,
            start,
            at: start,
            wrapped: false,
        }
    }
}

/// A walk once around those of a priority.
pub(super) struct Turn {
    level: Level,
    work: Work,
    start: ChannelId,
    at: ChannelId,
    wrapped: bool,
}

impl Turn {
    pub fn next(&mut self, queue: &SendQueue) -> Option<ChannelId> {
        let from = |at| {
            let last = ChannelId(u64::MAX);
            let mut range = queue
                .waiting(self.work)
                .range((self.level, at)..=(self.level, last));
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
            let id = queue.turn(level, Work::New).next(queue).expect("one of it");
            queue.on_served(id);
            id
        };
        for _ in 0..100 {
            // It has a packet now and then.
            queue.insert(high);
            assert_eq!(serve(&mut queue), high);
            queue.remove(high, Work::Repair);
            queue.remove(high, Work::New);
            served[usize::from(serve(&mut queue) == second)] += 1;
        }
        assert_eq!(served, [50, 50]);
    }

    #[test]
    fn channels_at_their_limit_are_not_asked_until_something_changed() {
        let mut queue = SendQueue::new();
        let ids: Vec<ChannelId> = (0..1000).map(|i| ChannelId(8 * i)).collect();
        ids.iter().for_each(|&id| queue.insert(id));
        for &id in &ids[1..] {
            queue.remove(id, Work::Repair);
            queue.set_aside(id);
        }
        let asked = |queue: &SendQueue, work| {
            let mut turn = queue.turn(queue.highest().expect("some wait"), work);
            std::iter::from_fn(move || turn.next(queue)).count()
        };
        for work in [Work::Repair, Work::New] {
            assert_eq!(asked(&queue, work), 1);
        }
        queue.insert(ids[500]);
        assert_eq!(asked(&queue, Work::New), 2);
        // Who is held back has something to send all the same: it probes.
        ids.iter().for_each(|&id| queue.remove(id, Work::New));
        ids.iter().for_each(|&id| queue.remove(id, Work::Repair));
        assert!(!queue.is_ready() && !queue.is_empty());
        ids.iter().for_each(|&id| queue.forget(id));
        assert!(queue.is_empty());
    }

    /// Thousands may wait for the next copy of a message: a packet of another one does not ask them.
    #[test]
    fn channels_whose_repairs_wait_are_not_asked_before_they_are_due() {
        let mut queue = SendQueue::new();
        let at = Instant::from_nanos;
        let ids: Vec<ChannelId> = (0..1000).map(|i| ChannelId(8 * i)).collect();
        for (&id, due) in ids.iter().zip(10..) {
            queue.insert(id);
            queue.remove(id, Work::New);
            queue.hold(id, at(due));
        }
        assert!(!queue.is_ready());
        queue.release(at(9));
        assert!(!queue.is_ready());
        assert_eq!(queue.held_until(), Some(at(10)));
        queue.block();
        queue.release(at(11));
        assert!(queue.is_ready());
        let mut turn = queue.turn(queue.highest().expect("some wait"), Work::Repair);
        let asked: Vec<_> = std::iter::from_fn(|| turn.next(&queue)).collect();
        assert_eq!(asked, ids[..2]);
        assert_eq!(queue.held_until(), Some(at(12)));
        // Its priority is the one that it has when it is due.
        queue.set_priority(ids[2], 1);
        queue.release(at(12));
        assert_eq!(queue.highest(), Some(Reverse(1)));
    }
}
