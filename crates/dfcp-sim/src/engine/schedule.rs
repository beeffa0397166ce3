//! The event schedule: each component has at most one wake-up time.
//!
//! A binary heap over components instead of events: a busy link is one entry however many packets
//! it carries, waking it earlier or later moves that entry, and no stale events pile up. Order is
//! (time, sequence), where the sequence counts how often anything was scheduled, so ties go to
//! whoever asked first.
//!
//! Invariant: `place[c]` is where component `c` is in `heap`, or [`ABSENT`].

use dfcp_proto::Instant;

/// Not in the heap.
const ABSENT: u32 = u32::MAX;
/// Children of a node: shallower than two, and the four lie in one or two cache lines.
const ARITY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    sequence: u64,
    component: u32,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.at, self.sequence) < (other.at, other.sequence)
    }
}

/// Who wakes when. See the module's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    heap: Vec<Entry>,
    place: Vec<u32>,
    next_sequence: u64,
}

impl Schedule {
    /// For components numbered from zero to `components`.
    pub fn new(components: usize) -> Self {
        Self {
            heap: Vec::with_capacity(components),
            place: vec![ABSENT; components],
            next_sequence: 0,
        }
    }

    /// The earliest wake-up: when, and whose.
    pub fn peek(&self) -> Option<(Instant, u32)> {
        self.heap.first().map(|e| (e.at, e.component))
    }

    /// Sets when `component` wakes; `None` for not at all. Setting the same time again changes
    /// nothing, not even the order of ties.
    pub fn set(&mut self, component: u32, at: Option<Instant>) {
        let place = self.place[component as usize];
        match at {
            None if place == ABSENT => {}
            None => self.remove(place as usize),
            Some(at) if place == ABSENT => {
                let entry = self.entry(component, at);
                self.heap.push(entry);
                self.rise(self.heap.len() - 1, entry);
            }
            Some(at) => {
                let place = place as usize;
                let old = self.heap[place].at;
                if at == old {
                    return;
                }
                let entry = self.entry(component, at);
                if at < old {
                    self.rise(place, entry);
                } else {
                    self.sink(place, entry);
                }
            }
        }
    }

    fn entry(&mut self, component: u32, at: Instant) -> Entry {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Entry {
            at,
            sequence,
            component,
        }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.place[gone.component as usize] = ABSENT;
        if let Some(&moved) = self.heap.get(place) {
            if moved.before(&gone) {
                self.rise(place, moved);
            } else {
                self.sink(place, moved);
            }
        }
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.place[entry.component as usize] = place as u32;
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.reduce(|a, b| {
                if self.heap[b].before(&self.heap[a]) {
                    b
                } else {
                    a
                }
            }) else {
                break;
            };
            if !self.heap[least].before(&entry) {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;
    use std::collections::BTreeSet;

    #[test]
    fn wakes_in_order_of_time_then_of_asking() {
        let seed = 11;
        let mut random = Seed(seed).stream("schedule");
        let mut schedule = Schedule::new(50);
        // The same, kept the obvious way.
        let mut model: BTreeSet<(u64, u64, u32)> = BTreeSet::new();
        for step in 0..20_000 {
            let component = random.below(50) as u32;
            let old = model.iter().find(|e| e.2 == component).copied();
            let at = (!random.chance(0.2)).then(|| random.below(40));
            schedule.set(component, at.map(Instant::from_nanos));
            if let Some(old) = old.filter(|old| at != Some(old.0)) {
                model.remove(&old);
            }
            if let Some(at) = at.filter(|&at| old.is_none_or(|old| old.0 != at)) {
                model.insert((at, step, component));
            }
            let first = model.first().map(|e| (Instant::from_nanos(e.0), e.2));
            assert_eq!(schedule.peek(), first, "seed {seed}, step {step}");
            if random.chance(0.3)
                && let Some((_, component)) = schedule.peek()
            {
                schedule.set(component, None);
                model.pop_first();
            }
        }
    }
}
