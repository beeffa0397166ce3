//! A set of segment numbers, kept as ranges.
//!
//! Invariant: ranges are sorted, not empty, and neither overlap nor touch.

use std::collections::VecDeque;

/// Ranges `[start, end)`. Changes near either end are cheap, which is where TCP makes them.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeSet {
    ranges: VecDeque<(u32, u32)>,
}

impl RangeSet {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The lowest range.
    pub fn first(&self) -> Option<(u32, u32)> {
        self.ranges.front().copied()
    }

    /// The ranges from the highest down.
    pub fn iter_down(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().rev().copied()
    }

    /// The number after the highest in the set.
    pub fn end(&self) -> Option<u32> {
        self.ranges.back().map(|range| range.1)
    }

    /// Adds `[start, end)`, not empty. Calls `fresh` with each part that was not in the set
    /// before; gives the range that now holds it.
    pub fn insert(&mut self, start: u32, end: u32, mut fresh: impl FnMut(u32, u32)) -> (u32, u32) {
        debug_assert!(start < end);
        match self.ranges.back_mut() {
            Some(last) if last.0 <= start && start <= last.1 => {
                if end > last.1 {
                    fresh(last.1, end);
                    last.1 = end;
                }
                return *last;
            }
            Some(last) if start < last.0 => {}
            _ => {
                fresh(start, end);
                self.ranges.push_back((start, end));
                return (start, end);
            }
        }
        self.insert_within(start, end, fresh)
    }

    fn insert_within(
        &mut self,
        start: u32,
        end: u32,
        mut fresh: impl FnMut(u32, u32),
    ) -> (u32, u32) {
        // Ranges low..high touch the new one.
        let low = self.ranges.partition_point(|range| range.1 < start);
        let mut high = low;
        let mut merged = (start, end);
        let mut next = start;
        while let Some(&(from, to)) = self.ranges.get(high).filter(|range| range.0 <= end) {
            if next < from {
                fresh(next, from);
            }
            next = next.max(to);
            merged = (merged.0.min(from), merged.1.max(to));
            high += 1;
        }
        if next < end {
            fresh(next, end);
        }
        if low == high {
            self.ranges.insert(low, merged);
        } else {
            self.ranges[low] = merged;
            if high - low > 1 {
                self.ranges.drain(low + 1..high);
            }
        }
        merged
    }

    /// Removes every number below `bound`.
    #[inline]
    pub fn remove_below(&mut self, bound: u32) {
        while let Some(first) = self.ranges.front_mut() {
            if first.1 > bound {
                first.0 = first.0.max(bound);
                return;
            }
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(inserts in prop::collection::vec((0u32..60, 1u32..12, 0u32..30), 1..40)) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (start, len, bound) in inserts {
                let mut fresh = BTreeSet::new();
                let merged = set.insert(start, start + len, |from, to| {
                    assert!(from < to);
                    for seq in from..to {
                        assert!(fresh.insert(seq), "told twice");
                    }
                });
                let new: BTreeSet<u32> = (start..start + len).filter(|n| !model.contains(n)).collect();
                prop_assert_eq!(&fresh, &new);
                model.extend(new);
                prop_assert!((merged.0..merged.1).all(|seq| model.contains(&seq)));
                prop_assert!(merged.0 <= start && start + len <= merged.1);
                if bound < start {
                    set.remove_below(bound);
                    model = model.split_off(&bound);
                }
                let listed: Vec<(u32, u32)> = set.ranges.iter().copied().collect();
                prop_assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0));
                let all: BTreeSet<u32> = listed.iter().flat_map(|r| r.0..r.1).collect();
                prop_assert_eq!(&all, &model);
            }
        }
    }
}
