//! The event schedule: each component has at most one wake-up time.
//!
//! A tournament of components instead of a queue of events: a busy link is one entry however many
//! packets it carries, waking it earlier or later changes that entry, and no stale events pile up.
//! Order is (time, sequence), where the sequence counts how often anything was scheduled, so ties
//! go to whoever asked first.

use crate::tournament::Tournament;
use dfcp_proto::Instant;

/// When to wake, and the number of the call that asked for it: time above, sequence below.
type Key = u128;

const ABSENT: Key = Key::MAX;

/// Who wakes when. See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    wakes: Tournament<Key>,
    next_sequence: u64,
}

impl Schedule {
    /// For components numbered from zero to `components`.
    pub fn new(components: usize) -> Self {
        let mut wakes = Tournament::new(ABSENT);
        wakes.set(components, ABSENT);
        Self {
            wakes,
            next_sequence: 0,
        }
    }

    /// The earliest wake-up: when, and whose.
    #[inline]
    pub fn peek(&self) -> Option<(Instant, u32)> {
        let (component, key) = self.wakes.winner()?;
        Some((time(key), component as u32))
    }

    /// Sets when `component` wakes; `None` for not at all. Setting the same time again changes
    /// nothing, not even the order of ties.
    #[inline]
    pub fn set(&mut self, component: u32, at: Option<Instant>) {
        let old = self.wakes.key(component as usize);
        let key = match at {
            None if old == ABSENT => return,
            None => ABSENT,
            Some(at) if old != ABSENT && time(old) == at => return,
            Some(at) => {
                self.next_sequence += 1;
                Key::from(at.as_nanos()) << 64 | Key::from(self.next_sequence)
            }
        };
        self.wakes.set(component as usize, key);
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
