//! The receiver's record of packet numbers: duplicates refused, ranges reported.

use std::collections::BTreeMap;

/// Ranges kept for reporting: at 50 % loss this covers about 1,000 packets, more than any
/// feedback interval leaves unreported.
const MAX_RANGES: usize = 256;

/// Packet numbers received, as disjoint ranges.
#[derive(Clone, Debug, Default)]
pub struct ReceivedPackets {
    /// start → end, inclusive.
    ranges: BTreeMap<u64, u64>,
    /// Everything below is treated as received: too old to tell.
    floor: u64,
}

impl ReceivedPackets {
    /// Records `pn`; false if it was received before or is too old to know (a replay).
    pub fn insert(&mut self, pn: u64) -> bool {
        if pn < self.floor {
            return false;
        }
        // Nearly always the packet after the last one.
        if let Some(mut last) = self.ranges.last_entry()
            && last.get().checked_add(1) == Some(pn)
        {
            *last.get_mut() = pn;
            return true;
        }
        let before = self.ranges.range(..=pn).next_back().map(|(&s, &e)| (s, e));
        if before.is_some_and(|(_, end)| end >= pn) {
            return false;
        }
        let joins_left = before.filter(|&(_, end)| end + 1 == pn);
        let joins_right = pn.checked_add(1).and_then(|n| self.ranges.remove(&n));
        let end = joins_right.unwrap_or(pn);
        match joins_left {
            Some((start, _)) => self.ranges.insert(start, end),
            None => self.ranges.insert(pn, end),
        };
        if self.ranges.len() > MAX_RANGES
            && let Some((_, end)) = self.ranges.pop_first()
        {
            self.floor = end + 1;
        }
        true
    }

    /// Largest packet number received.
    pub fn largest(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, &end)| end)
    }

    /// (low, high) ranges, newest first.
    pub fn iter_descending(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().rev().map(|(&s, &e)| (s, e))
    }
}

/// The full packet number whose low 32 bits are `truncated`, nearest to the one expected next
/// (RFC 9000 Appendix A.3).
pub fn decode_packet_number(largest: Option<u64>, truncated: u32) -> u64 {
    let expected = largest.map_or(0, |l| l + 1);
    let (window, half) = (1u64 << 32, 1u64 << 31);
    let candidate = (expected & !(window - 1)) | u64::from(truncated);
    if candidate + half <= expected {
        candidate + window
    } else if candidate > expected + half && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_refused_and_ranges_merge() {
        let mut received = ReceivedPackets::default();
        assert!([3, 1, 2, 9, 7].into_iter().all(|pn| received.insert(pn)));
        assert!([3, 1, 2, 9, 7].into_iter().all(|pn| !received.insert(pn)));
        assert!(received.insert(8));
        assert_eq!(
            received.iter_descending().collect::<Vec<_>>(),
            [(7, 9), (1, 3)]
        );
        assert_eq!(received.largest(), Some(9));
    }

    #[test]
    fn state_is_bounded_and_what_is_forgotten_counts_as_a_replay() {
        let mut received = ReceivedPackets::default();
        (0..10_000).for_each(|i| {
            received.insert(2 * i);
        });
        assert!(received.iter_descending().count() <= MAX_RANGES);
        assert!(!received.insert(1));
        assert!(received.insert(20_001));
    }

    #[test]
    fn packet_numbers_decode_across_a_wrap() {
        let wrap = 1u64 << 32;
        assert_eq!(decode_packet_number(Some(wrap - 2), 3), wrap + 3);
        assert_eq!(decode_packet_number(Some(wrap + 3), u32::MAX), wrap - 1);
        assert_eq!(decode_packet_number(None, 0), 0);
    }
}
