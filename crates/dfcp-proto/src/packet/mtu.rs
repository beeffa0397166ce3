//! Which datagrams the path carries: a search by padded probes (RFC 8899).

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

    /// A probe arrived: `current` is in use now.
    pub fn on_acked(&mut self, current: usize) {
        (self.in_flight, self.tries) = (false, 0);
        // What was refused above is not tried again before the timer.
        self.target = self.target.max(current);
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
}
