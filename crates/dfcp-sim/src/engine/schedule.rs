//! The event schedule: each component has at most one wake-up time.
//!
//! A tree of winners over the components (Knuth, The Art of Computer Programming, vol. 3, §5.4.1)
//! instead of a queue of events: a busy link is one entry however many packets it carries, waking
//! it earlier or later replays one path to the root, and no stale events pile up. Order is (time,
//! sequence), where the sequence counts how often anything was scheduled, so ties go to whoever
//! asked first.

use dfcp_proto::Instant;

/// From the high bits: 64 of time, 42 of sequence, 22 of the component. One number, so that a
/// match of the tournament is a minimum.
type Key = u128;

const COMPONENT_BITS: u32 = 22;
const ABSENT: Key = Key::MAX;

/// Most components that a schedule can hold.
pub(crate) const MAX_COMPONENTS: usize = (1 << COMPONENT_BITS) - 1;

/// Who wakes when. See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// Node `n`, from one, is the lesser of nodes `2n` and `2n + 1`; the components are the second
    /// half.
    nodes: Vec<Key>,
    next_sequence: u64,
}

impl Schedule {
    /// For components numbered from zero up to `components`, at most [`MAX_COMPONENTS`].
    pub fn new(components: usize) -> Self {
        let leaves = (components + 1).next_power_of_two().max(2);
        Self {
            nodes: vec![ABSENT; 2 * leaves],
            next_sequence: 0,
        }
    }

    /// The earliest wake-up: when, and whose.
    #[inline]
    pub fn peek(&self) -> Option<(Instant, u32)> {
        let key = self.nodes[1];
        let component = key as u32 & ((1 << COMPONENT_BITS) - 1);
        (key != ABSENT).then(|| (time(key), component))
    }

    /// Sets when `component` wakes; `None` for not at all. Setting the same time again changes
    /// nothing, not even the order of ties.
    #[inline]
    pub fn set(&mut self, component: u32, at: Option<Instant>) {
        let leaf = self.nodes.len() / 2 + component as usize;
        let old = self.nodes[leaf];
        let key = match at {
            None => ABSENT,
            Some(at) if old != ABSENT && time(old) == at => old,
            Some(at) => {
                self.next_sequence += 1;
                let tie = self.next_sequence << COMPONENT_BITS | u64::from(component);
                Key::from(at.as_nanos()) << 64 | Key::from(tie)
            }
        };
        if key != old {
            self.replay(leaf, key);
        }
    }

    /// A component's key changed: plays its matches up to the first whose outcome stays.
    fn replay(&mut self, leaf: usize, key: Key) {
        let nodes = &mut self.nodes[..];
        nodes[leaf] = key;
        let (mut node, mut best) = (leaf, key);
        while node > 1 {
            best = best.min(nodes[node ^ 1]);
            node /= 2;
            if nodes[node] == best {
                return;
            }
            nodes[node] = best;
        }
    }
}

fn time(key: Key) -> Instant {
    Instant::from_nanos((key >> 64) as u64)
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
