//! Gaps in what a receiver gives its application: bytes that the sender gave up.

use std::collections::BTreeMap;
use std::ops::Range;

/// Gaps that the application has not been told of, and the sum of all.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Start → end; neighbours are joined.
    untold: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Gaps {
    /// Adds `start..end`, which overlaps none known.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        self.bytes += end - start;
        if let Some(far) = self.untold.remove(&end) {
            end = far;
        }
        if let Some((&before, &near)) = self.untold.range(..start).next_back()
            && near == start
        {
            start = before;
        }
        self.untold.insert(start, end);
    }

    /// End of the gap that begins at `offset`.
    pub fn at(&self, offset: u64) -> Option<u64> {
        self.untold.get(&offset).copied()
    }

    /// Takes the lowest gap.
    pub fn take(&mut self) -> Option<Range<u64>> {
        self.untold.pop_first().map(|(start, end)| start..end)
    }

    /// How many the application has not been told of.
    pub fn count(&self) -> usize {
        self.untold.len()
    }

    /// Bytes in all gaps so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets what the application was not told.
    pub fn clear(&mut self) {
        self.untold.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_gap_whatever_their_order() {
        for order in [[0, 1, 2], [2, 0, 1], [0, 2, 1], [2, 1, 0]] {
            let mut gaps = Gaps::default();
            for i in order {
                gaps.insert(10 * i, 10 * i + 10);
            }
            gaps.insert(50, 50);
            gaps.insert(60, 61);
            assert_eq!(gaps.at(0), Some(30), "{order:?}");
            assert_eq!((gaps.take(), gaps.take()), (Some(0..30), Some(60..61)));
            assert_eq!((gaps.take(), gaps.bytes()), (None, 31));
        }
    }
}
