//! Which bytes of a channel are settled at the receiver: complete, or skipped by the sender.

use super::free_node;
use std::collections::BTreeMap;

/// Settled ranges; they never overlap.
#[derive(Clone, Debug, Default)]
pub struct Done {
    below: u64,
    /// Settled above: start → end.
    above: BTreeMap<u64, u64>,
}

impl Done {
    /// Everything below this offset is settled.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// Settles `start..end`, of which nothing was.
    pub fn insert(&mut self, start: u64, end: u64) {
        match start == self.below {
            true => self.below = end,
            false => drop(self.above.insert(start, end)),
        }
        while let Some(end) = self.above.remove(&self.below) {
            self.below = end;
        }
        free_node(&mut self.above);
    }

    /// The end of the settled range that holds `offset`.
    pub fn end_at(&self, offset: u64) -> Option<u64> {
        if offset < self.below {
            return Some(self.below);
        }
        let (_, &end) = self.above.range(..=offset).next_back()?;
        (offset < end).then_some(end)
    }

    /// Whether a settled range begins within `start..end`.
    pub fn begins_within(&self, start: u64, end: u64) -> bool {
        self.above.range(start..end).next().is_some()
    }

    /// End of the highest settled range.
    pub fn reached(&self) -> u64 {
        self.above.last_key_value().map_or(self.below, |(_, &e)| e)
    }

    /// Settled ranges above [`Done::below`], in order: start and end.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.above.iter().map(|(&start, &end)| (start, end))
    }

    /// Forgets them: nothing more settles.
    pub fn clear_above(&mut self) {
        self.above.clear();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.above.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_ranges_are_those_inserted_in_any_order() {
        let mut done = Done::default();
        done.insert(10, 20);
        done.insert(40, 50);
        assert_eq!((done.below(), done.reached(), done.count()), (0, 50, 2));
        assert_eq!(done.ranges().collect::<Vec<_>>(), [(10, 20), (40, 50)]);
        let ends = [9, 10, 19, 20, 40, 50].map(|at| done.end_at(at));
        assert_eq!(ends, [None, Some(20), Some(20), None, Some(50), None]);
        let within = [(0, 10), (0, 11), (11, 40), (11, 41)];
        let within = within.map(|(start, end)| done.begins_within(start, end));
        assert_eq!(within, [false, true, false, true]);
        done.insert(20, 40);
        done.insert(0, 10);
        assert_eq!((done.below(), done.reached(), done.count()), (50, 50, 0));
        assert_eq!([done.end_at(0), done.end_at(50)], [Some(50), None]);
    }
}
