//! The receiver's record of packet numbers: duplicates refused, news reported.
//!
//! Two questions, two structures. Whether a packet came before is asked of a bitmap of the last
//! 65,536 numbers, as anti-replay windows are built (RFC 4303 §3.4.3). What to tell the sender is
//! asked of ranges, which are kept only while they are news: each is in a dozen reports, so losing
//! some of these costs nothing, and however much a path reorders or loses, what has to be said is
//! no more than what came since.

use std::collections::BTreeMap;

/// Numbers of which it is known whether they came; what is older counts as a replay. At 1 Gbit/s
/// this is three quarters of a second, at 100 Gbit/s and full-size packets 8 ms.
const WINDOW: u64 = 1 << 16;
/// A range is repeated in this many reports: with half of them lost, one in 4,000 goes unreported.
const REPORTS: u8 = 12;
/// Ranges waiting to be reported: more than come between two reports at 1 Gbit/s with every packet
/// out of order. Beyond it the oldest go unreported.
const MAX_RANGES: usize = 2048;

/// Largest packet number (RFC 9000 §12.3). Who leaves out as many as a header can say, 2³¹, gets here with as
/// many packets, in some hours.
const MAX_PACKET_NUMBER: u64 = (1 << 62) - 1;

/// Packet numbers received.
#[derive(Clone, Debug, Default)]
pub struct ReceivedPackets {
    seen: Seen,
    /// By first number: what is news, and the newest range of all.
    ranges: BTreeMap<u64, News>,
}

/// A range that the sender may not know of yet.
#[derive(Clone, Copy, Debug)]
struct News {
    /// Last number.
    end: u64,
    /// Reports that it is still to be in.
    due: u8,
}

impl ReceivedPackets {
    /// Records `pn`; false if it was received before or is too old to know (a replay).
    pub fn insert(&mut self, pn: u64) -> bool {
        if pn > MAX_PACKET_NUMBER || !self.seen.insert(pn) {
            return false;
        }
        // Nearly always the packet after the last one.
        if let Some(mut last) = self.ranges.last_entry()
            && last.get().end.checked_add(1) == Some(pn)
        {
            *last.get_mut() = News::until(pn);
            return true;
        }
        let joins_right = pn.checked_add(1).and_then(|n| self.ranges.remove(&n));
        let news = News::until(joins_right.map_or(pn, |range| range.end));
        match self.ranges.range_mut(..pn).next_back() {
            Some((_, left)) if left.end + 1 == pn => *left = news,
            _ => {
                self.ranges.insert(pn, news);
            }
        }
        if self.ranges.len() > MAX_RANGES {
            self.ranges.pop_first();
        }
        true
    }

    /// Largest packet number received.
    pub fn largest(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, range)| range.end)
    }

    /// Ranges that no report has named yet.
    pub fn unreported(&self) -> usize {
        let each = self.ranges.values();
        each.filter(|range| range.due == REPORTS).count()
    }

    /// Ranges (low, high) for a report, newest first: that of the largest number, and at most
    /// `most` in all of those that were reported least; of equals the newest.
    pub fn news(&self, most: usize) -> Vec<(u64, u64)> {
        let mut waiting = [0; REPORTS as usize + 1];
        let each = self.ranges.values();
        each.for_each(|range| waiting[usize::from(range.due)] += 1);
        // There is room for all that are still to be in more reports than `least`, and for so many of these.
        let (mut least, mut room) = (usize::from(REPORTS), most);
        while least > 0 && waiting[least] <= room {
            room -= waiting[least];
            least -= 1;
        }
        let newest = self.largest();
        let descending = self.ranges.iter().rev();
        let chosen = descending.filter(|(_, range)| {
            let due = usize::from(range.due);
            let fits = due == least && due > 0 && room > 0;
            room -= usize::from(fits);
            due > least || fits || Some(range.end) == newest
        });
        chosen
            .map(|(&low, range)| (low, range.end))
            .take(most.max(1))
            .collect()
    }

    /// A report with these ranges left.
    pub fn on_reported(&mut self, reported: &[(u64, u64)]) {
        let largest = self.largest();
        for (low, _) in reported {
            if let Some(range) = self.ranges.get_mut(low) {
                range.due = range.due.saturating_sub(1);
                if range.due == 0 && Some(range.end) != largest {
                    self.ranges.remove(low);
                }
            }
        }
        // The newest range stays when it is no news; it may not be the newest any more.
        self.ranges
            .retain(|_, range| range.due > 0 || Some(range.end) == largest);
    }
}

impl News {
    fn until(end: u64) -> Self {
        Self { end, due: REPORTS }
    }
}

/// Anti-replay window: one bit for each of the last numbers.
#[derive(Clone, Debug, Default)]
struct Seen {
    largest: Option<u64>,
    /// A ring; empty until the first packet.
    words: Vec<u64>,
}

const WORDS: u64 = WINDOW / 64;

impl Seen {
    /// Marks `pn`; false if it was marked, or is below the window.
    fn insert(&mut self, pn: u64) -> bool {
        let word = pn / 64;
        match self.largest {
            None => self.words = vec![0; WORDS as usize],
            Some(largest) if pn > largest => {
                let passed = (largest / 64 + 1..=word).rev().take(WORDS as usize);
                passed.for_each(|w| self.words[(w % WORDS) as usize] = 0);
            }
            Some(largest) if word + WORDS <= largest / 64 => return false,
            Some(_) => {}
        }
        self.largest = self.largest.max(Some(pn));
        let bits = &mut self.words[(word % WORDS) as usize];
        let bit = 1 << (pn % 64);
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }
}

/// The full packet number whose low 32 bits are `truncated`, nearest to the one expected next
/// (RFC 9000 Appendix A.3).
pub fn decode_packet_number(largest: Option<u64>, truncated: u32) -> u64 {
    let expected = largest.map_or(0, |l| l.min(MAX_PACKET_NUMBER) + 1);
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
        assert_eq!(received.news(10), [(7, 9), (1, 3)]);
        assert_eq!(received.largest(), Some(9));
    }

    #[test]
    fn what_is_older_than_the_window_counts_as_a_replay() {
        let mut received = ReceivedPackets::default();
        for pn in (0..3 * WINDOW).step_by(2) {
            assert!(received.insert(pn));
        }
        assert!(received.ranges.len() <= MAX_RANGES);
        assert!(!received.insert(1));
        let oldest = 2 * WINDOW + 1;
        assert!(received.insert(oldest));
        assert!(!received.insert(oldest));
        // A leap over more than the window forgets all of it.
        assert!(received.insert(100 * WINDOW));
        assert!(received.insert(100 * WINDOW - 2));
        assert!(!received.insert(oldest));
    }

    #[test]
    fn a_late_packet_is_reported_as_often_as_any() {
        let mut received = ReceivedPackets::default();
        let mut said = 0;
        for pn in 0..5000 {
            // Every tenth packet is lost; number 100 comes 3000 packets late.
            if pn % 10 > 0 && pn != 101 {
                received.insert(pn);
            }
            if pn == 3101 {
                received.insert(101);
            }
            if pn % 10 == 0 && pn > 0 {
                let report = received.news(200);
                said += u32::from(
                    report
                        .iter()
                        .any(|&(low, high)| (low..=high).contains(&101)),
                );
                received.on_reported(&report);
            }
        }
        assert_eq!(said, u32::from(REPORTS));
        assert!(received.ranges.len() < 20, "{}", received.ranges.len());
    }

    #[test]
    fn ranges_that_wait_keep_no_newer_ones_from_being_repeated() {
        let mut received = ReceivedPackets::default();
        let mut said = 0;
        // Once more than fits into a report, then five ranges for each.
        let mut next = 0;
        for report in 0..200 {
            let until = next + if report == 0 { 400 } else { 5 };
            (next..until).for_each(|range| {
                received.insert(2 * range);
            });
            next = until;
            let news = received.news(300);
            assert!(news.len() <= 300);
            // The first of the hundredth report.
            let range = 2 * (400 + 5 * 99);
            said += u32::from(news.contains(&(range, range)));
            received.on_reported(&news);
        }
        assert!(said >= 6, "said {said} times");
    }

    #[test]
    fn what_did_not_fit_comes_first_in_the_next_report() {
        let mut received = ReceivedPackets::default();
        (0..100).for_each(|i| {
            received.insert(3 * i);
        });
        let first = received.news(60);
        assert_eq!(first.first(), Some(&(297, 297)));
        received.on_reported(&first);
        let second = received.news(60);
        let all: std::collections::BTreeSet<_> = first.iter().chain(&second).collect();
        assert_eq!(all.len(), 100);
    }

    /// Numbers that leap as far as they can reach the end; nobody may end an endpoint by that.
    #[test]
    fn the_newest_packet_is_named_also_when_it_is_no_news() {
        let mut received = ReceivedPackets::default();
        assert!([0, 1, 5, 6].into_iter().all(|pn| received.insert(pn)));
        for _ in 0..=REPORTS {
            let news = received.news(10);
            received.on_reported(&news);
        }
        assert_eq!(received.largest(), Some(6));
        assert_eq!(received.news(10), [(5, 6)]);
    }

    #[test]
    fn packet_numbers_end_where_they_have_to() {
        let mut received = ReceivedPackets::default();
        assert!(received.insert(MAX_PACKET_NUMBER));
        for beyond in [MAX_PACKET_NUMBER + 1, u64::MAX - (1 << 31), u64::MAX] {
            assert!(!received.insert(beyond), "{beyond}");
            for truncated in [0, 1 << 31, u32::MAX] {
                decode_packet_number(Some(beyond), truncated);
            }
        }
        assert_eq!(received.largest(), Some(MAX_PACKET_NUMBER));
    }

    #[test]
    fn packet_numbers_decode_across_a_wrap() {
        let wrap = 1u64 << 32;
        assert_eq!(decode_packet_number(Some(wrap - 2), 3), wrap + 3);
        assert_eq!(decode_packet_number(Some(wrap + 3), u32::MAX), wrap - 1);
        assert_eq!(decode_packet_number(None, 0), 0);
    }
}
