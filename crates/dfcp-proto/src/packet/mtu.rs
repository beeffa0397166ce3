//! Which datagrams the path carries: a search by padded probes, and the discovery that it carries
//! less than before (RFC 8899).

use crate::time::{Duration, Instant};

/// Probes of one size before the path is taken not to carry it: one in 32 is wrong at 50 % loss.
const TRIES: u8 = 5;
/// A gain smaller than this is not worth a probe.
const STEP: usize = 32;
/// How long until the largest size is tried again (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
const RAISE: Duration = Duration::from_secs(600);

/// Bisects between the size in use and the largest that both sides take.
#[derive(Clone, Copy, Debug)]
pub struct MtuSearch {
    largest: usize,
    /// Next size to probe.
    target: usize,
    tries: u8,
    in_flight: bool,
    resume: Instant,
}

impl MtuSearch {
    /// Begins with `largest`.
    pub fn new(largest: usize) -> Self {
        Self {
            largest,
            target: largest,
            tries: 0,
            in_flight: false,
            resume: Instant::ZERO,
        }
    }

    /// The size to probe now, if any, while `current` is in use.
    pub fn probe(&mut self, now: Instant, current: usize) -> Option<u16> {
        if self.in_flight || current >= self.largest {
            return None;
        }
        if self.target < current + STEP && self.target < self.largest {
            if now < self.resume {
                return None;
            }
            (self.target, self.tries) = (self.largest, 0);
        }
        self.in_flight = true;
        u16::try_from(self.target).ok()
    }

    /// The probe did not leave.
    pub fn withdraw(&mut self) {
        self.in_flight = false;
    }

    /// A probe arrived: `current` is in use now.
    pub fn on_acked(&mut self, current: usize) {
        (self.in_flight, self.tries) = (false, 0);
        // What was refused above is not tried again before the timer.
        self.target = self.target.max(current);
    }

    /// The path does not carry `failed` bytes any more, but `current`.
    pub fn on_black_hole(&mut self, now: Instant, current: usize, failed: usize) {
        self.target = current + failed.saturating_sub(current) / 2;
        (self.tries, self.in_flight, self.resume) = (0, false, now + RAISE);
    }

    /// A probe was lost.
    pub fn on_lost(&mut self, now: Instant, current: usize) {
        (self.in_flight, self.tries) = (false, self.tries + 1);
        if self.tries >= TRIES {
            self.tries = 0;
            self.target = current + self.target.saturating_sub(current) / 2;
            self.resume = now + RAISE;
        }
    }
}

/// Detection of a path that carries small packets and no large ones any more (RFC 8899 §4.3).
///
/// In a round large packets are lost and a small one that left after them arrives. As many rounds in
/// a row as RFC 8899 has probes (MAX_PROBES, §5.1.2), and no large packet arriving meanwhile, are a
/// black hole. A path that loses half of its packets by chance shows that now and then to a sender
/// that has little to send, which costs it a round trip of smaller packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlackHole {
    rounds: u8,
    /// Newest small packet that arrived, and that of the last round.
    small: u64,
    round: u64,
}

const ROUNDS: u8 = 3;

impl BlackHole {
    /// A packet, small enough for any path, arrived.
    pub fn on_small_acked(&mut self, number: u64) {
        self.small = self.small.max(number);
    }

    /// A packet larger than every path carries arrived.
    pub fn on_large_acked(&mut self) {
        (self.rounds, self.round) = (0, self.small);
    }

    /// A packet larger than every path carries was lost; true if they all are.
    pub fn on_large_lost(&mut self, number: u64) -> bool {
        if (self.round..self.small).contains(&number) {
            self.round = self.small;
            self.rounds += 1;
        }
        let found = self.rounds >= ROUNDS;
        if found {
            self.on_large_acked();
        }
        found
    }

    /// Whether the next probe should have a small packet with it.
    pub fn is_suspected(&self) -> bool {
        self.rounds > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a path that carries `limit` bytes makes of it, and how many probes that took.
    fn search(
        search: &mut MtuSearch,
        now: Instant,
        mut current: usize,
        limit: usize,
    ) -> (usize, u32) {
        let mut probes = 0;
        while let Some(size) = search.probe(now, current) {
            probes += 1;
            if usize::from(size) <= limit {
                current = current.max(usize::from(size));
                search.on_acked(current);
            } else {
                search.on_lost(now, current);
            }
        }
        (current, probes)
    }

    #[test]
    fn finds_nearly_the_largest_size_and_tries_again_later() {
        let now = Instant::from_nanos(7);
        for limit in [1200, 1230, 1300, 1400, 1471, 1472] {
            let mut state = MtuSearch::new(1472);
            let (found, probes) = search(&mut state, now, 1200, limit);
            assert!(
                found <= limit && (found >= 1472 || found + 170 > limit),
                "{limit}: {found}"
            );
            assert!(probes <= 25, "{limit}: {probes} probes");
            let later = now + RAISE + RAISE;
            assert_eq!(search(&mut state, later, found, 1472).0, 1472);
        }
    }

    #[test]
    fn a_probe_that_did_not_leave_is_made_again() {
        let (mut state, now) = (MtuSearch::new(1472), Instant::from_nanos(7));
        assert_eq!(state.probe(now, 1200), Some(1472));
        assert_eq!(state.probe(now, 1200), None, "one at a time");
        state.withdraw();
        assert_eq!(state.probe(now, 1200), Some(1472));
    }

    #[test]
    fn a_path_that_became_small_is_searched_below_what_failed() {
        let (mut state, now) = (MtuSearch::new(1472), Instant::from_nanos(7));
        assert_eq!(search(&mut state, now, 1200, 1472).0, 1472);
        state.on_black_hole(now, 1200, 1472);
        assert_eq!(state.probe(now, 1200), Some(1336));
        state.on_lost(now, 1200);
        // And half the way down from there.
        assert_eq!(search(&mut state, now, 1200, 1300).0, 1268);
    }

    #[test]
    fn what_a_path_carries_no_more_is_tried_again_after_ten_minutes() {
        let (mut state, now) = (MtuSearch::new(1472), Instant::from_nanos(7));
        state.on_black_hole(now, 1200, 1472);
        assert_eq!(state.probe(now, 1200), Some(1336));
        state.on_acked(1336);
        let before = now + RAISE - Duration::from_nanos(1);
        assert_eq!(state.probe(before, 1336), None);
        assert_eq!(state.probe(now + RAISE, 1336), Some(1472));
    }

    #[test]
    fn three_rounds_of_large_packets_lost_and_small_ones_arriving_are_a_black_hole() {
        let mut path = BlackHole::default();
        let mut found = Vec::new();
        for round in 0..3 {
            path.on_small_acked(10 * round + 9);
            found.extend((0..9).map(|i| path.on_large_lost(10 * round + i)));
        }
        assert_eq!(found.iter().position(|&found| found), Some(18));
        assert!(!path.is_suspected(), "judged anew");
    }

    #[test]
    fn losses_without_order_are_none() {
        let mut path = BlackHole::default();
        for number in 0..1000 {
            // Nothing small arrives after them.
            assert!(!path.on_large_lost(number));
        }
        for number in (1000..2000).step_by(4) {
            path.on_small_acked(number + 3);
            assert!(!path.on_large_lost(number));
            if number % 8 == 0 {
                path.on_large_acked();
            }
        }
    }
}
