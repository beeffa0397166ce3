//! What is lost while all send little, beside what the rounds before lost: what ends then was of their making.

use super::loss::{Stretch, tolerance};
use super::tuning::drain::*;
use super::tuning::loss::CERTAIN;
use crate::time::Instant;
use std::collections::VecDeque;
use std::ops::AddAssign;

/// What the last rounds without a drain lost.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Drains of others may last until then.
    from: Option<Instant>,
    last: VecDeque<RoundLoss>,
}

/// Packets that a round sent, and the share of them that was lost.
#[derive(Clone, Copy, Debug)]
struct RoundLoss {
    packets: f64,
    share: f64,
}

impl Rounds {
    /// A round is over that had no drain in it.
    pub(super) fn add(&mut self, now: Instant, round: &Stretch) {
        let from = *self.from.get_or_insert(now + AFTER_DRAIN);
        if now < from || round.packets < LEAST_PACKETS {
            return;
        }
        self.last.push_back(RoundLoss {
            packets: round.packets,
            share: round.loss(),
        });
        if self.last.len() > ROUNDS {
            self.last.pop_front();
        }
    }

    /// A drain is over that changed nothing: others may drain for longer.
    pub(super) fn leave_out_drains(&mut self) {
        self.from = None;
    }

    /// Whether they are enough to compare a rest with.
    pub(super) fn are_enough(&self) -> bool {
        self.last.len() >= LEAST_ROUNDS
    }

    /// Share lost.
    fn mean(&self) -> f64 {
        let packets: f64 = self.last.iter().map(|round| round.packets).sum();
        let lost: f64 = self.last.iter().map(|r| r.packets * r.share).sum();
        lost / packets.max(1.0)
    }

    /// A stretch in which all sent little.
    pub(super) fn rest(&self, stretch: &Stretch) -> Rest {
        Rest {
            packets: stretch.packets,
            lost: stretch.loss() * stretch.packets,
            before: self.mean() * stretch.packets,
        }
    }

    /// Whether so much less is lost at `rest` that chance does not explain it: less than in all rounds but one of
    /// [`LEAST_ROUNDS`], and less than what independent losses come to. Losses in bursts leave many rounds without any, and
    /// no rest loses less than those.
    pub(super) fn heal_at_rest(&self, rest: &Rest) -> bool {
        let loss = rest.loss();
        let as_little = self.last.iter().filter(|round| round.share <= loss).count();
        let is_rare = (as_little + 1) * (LEAST_ROUNDS + 1) <= self.last.len() + 1;
        rest.packets >= LEAST_PACKETS && is_rare && rest.loses_less()
    }
}

/// Packets that were sent while all send little, those of them that were lost, and as many as the rounds before would have
/// lost of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    pub(super) packets: f64,
    lost: f64,
    before: f64,
}

impl Rest {
    /// Share lost, by Laplace's rule of succession.
    pub(super) fn loss(&self) -> f64 {
        (self.lost + 1.0) / (self.packets + 2.0)
    }

    /// Whether what was lost in it, but for chance, is what was lost before.
    pub(super) fn explains(&self) -> bool {
        let loss = self.loss();
        self.before / self.packets < loss + tolerance(loss) + self.chance(loss)
    }

    /// Whether independent losses do not explain that so much less was lost than before.
    pub(super) fn loses_less(&self) -> bool {
        let (before, loss) = (self.before / self.packets, self.loss());
        before > loss + tolerance(loss) + self.chance(before)
    }

    /// What independent losses of such a share may differ by in so many packets.
    fn chance(&self, share: f64) -> f64 {
        CERTAIN * (share * (1.0 - share) / self.packets).sqrt()
    }
}

#[cfg(test)]
impl Rest {
    /// So many packets, of which this share is lost (by Laplace's rule), and was before.
    pub(super) fn of(packets: f64, share: f64, before: f64) -> Self {
        Self {
            packets,
            lost: share * (packets + 2.0) - 1.0,
            before: before * packets,
        }
    }
}

impl AddAssign for Rest {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.before += other.before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    /// Rounds of a tenth of a second with a hundred packets each, of which so many are lost.
    fn rounds(lost: impl Fn(u32) -> f64) -> Rounds {
        let mut between = Rounds::default();
        for number in 0..50 {
            let round = Stretch {
                sent: 100.0,
                delivered: 100.0 - lost(number),
                packets: 100.0,
                seconds: 0.1,
            };
            let now = Instant::ZERO + Duration::from_millis(100 * u64::from(number));
            between.add(now, &round);
        }
        between
    }

    /// Whether they heal at a rest that loses such a share of so many packets.
    fn heals(rounds: &Rounds, share: f64, packets: f64) -> bool {
        rounds.heal_at_rest(&Rest::of(packets, share, rounds.mean()))
    }

    #[test]
    fn loss_that_ends_while_all_send_little_is_of_their_making() {
        let flood = rounds(|number| f64::from(20 + number % 40));
        assert!(heals(&flood, 0.02, 64.0));
        assert!(!heals(&flood, 0.25, 64.0), "as much as in some rounds");
        let few = rounds(|number| f64::from(u8::from(number < 40) * 50));
        assert!(!heals(&few, 0.02, 64.0), "rounds without loss");
        // After the last one healed it began with rounds that lost nothing.
        let again = rounds(|number| f64::from(u8::from(number > 17) * 50));
        assert!(heals(&again, 0.02, 64.0));
    }

    #[test]
    fn a_flood_is_compared_with_what_it_loses_now() {
        let mut grown = rounds(|_| 0.0);
        let round = Stretch {
            sent: 100.0,
            delivered: 60.0,
            packets: 100.0,
            seconds: 0.1,
        };
        for _ in 0..ROUNDS {
            grown.add(Instant::ZERO + Duration::from_secs(6), &round);
        }
        assert!(heals(&grown, 0.02, 64.0));
    }

    #[test]
    fn the_paths_own_loss_is_not_healed_by_chance() {
        let path = rounds(|number| f64::from(15 + number % 10));
        // Three standard errors of 64 packets are 0.15.
        assert!(!heals(&path, 0.08, 64.0));
        // A burst of fifty in every second round.
        let bursts = rounds(|number| f64::from(number % 2 * 50));
        assert!(!heals(&bursts, 0.01, 200.0));
    }

    #[test]
    fn rounds_in_which_others_still_drain_do_not_count() {
        // What the first rounds lost is little, as others drain for longer.
        let between = rounds(|number| if number < 14 { 0.0 } else { 40.0 });
        assert!(heals(&between, 0.02, 64.0));
    }

    #[test]
    fn a_drain_that_changes_nothing_leaves_what_rounds_lost_before() {
        let mut before = rounds(|_| 40.0);
        before.leave_out_drains();
        let round = Stretch {
            sent: 100.0,
            delivered: 100.0,
            packets: 100.0,
            seconds: 0.1,
        };
        // Others still drain.
        for tenths in 50..64 {
            before.add(Instant::ZERO + Duration::from_millis(100 * tenths), &round);
        }
        assert!(before.are_enough() && before.mean() > 0.39);
        assert!(heals(&before, 0.02, 64.0));
    }
}
