//! The deficit rule (CTCP, Algorithm 3): a block gets another symbol while (1 − p) · in-flight
//! is below what the receiver needs.

use super::{BlockScheduler, BlockView};
use crate::packet::Loss;

/// Expected arrivals against need, with a margin in standard deviations.
///
/// In the middle of a transfer the margin is negative: overshooting wastes symbols, while
/// undershooting costs nothing but one more round trip of an open block. The last blocks get a
/// positive margin, because someone waits for them; none below 1 % loss.
#[derive(Clone, Copy, Debug)]
pub struct Deficit {
    bulk_margin: f64,
    last_margin: f64,
}

/// One and a half standard deviations short: one block in fifteen overshoots, by a symbol or two.
/// Further short wastes still less, but blocks then complete noticeably later.
const BULK_MARGIN: f64 = -1.5;
/// Two: the last block is complete after its first flight 97 times in 100, if the loss is known.
const LAST_MARGIN: f64 = 2.0;
/// Below this loss, redundancy ahead of feedback is off.
const MIN_LOSS: f64 = 0.003;
/// A margin short by less than this is left: single packets are not doubled below 1.4 % loss.
const SLACK: f64 = 0.25;

impl Default for Deficit {
    fn default() -> Self {
        Self {
            bulk_margin: BULK_MARGIN,
            last_margin: LAST_MARGIN,
        }
    }
}

/// What a block lacks as a function of the symbols in flight.
struct Shortfall {
    needed: f64,
    /// Probability that a symbol arrives.
    arrive: f64,
    /// Margin, in symbols, for one symbol in flight: it grows with the square root.
    margin: f64,
}

impl Shortfall {
    fn at(&self, in_flight: f64) -> f64 {
        self.needed + self.margin * in_flight.sqrt() - in_flight * self.arrive
    }
}

impl Deficit {
    fn shortfall(&self, block: &BlockView, loss: Loss) -> Shortfall {
        let (margin, loss) = match block.last {
            false => (self.bulk_margin, loss.mean),
            true if loss.cautious >= MIN_LOSS => (self.last_margin, loss.cautious),
            // What is in flight is expected to arrive.
            true => (0.0, 0.0),
        };
        let arrive = 1.0 - loss;
        Shortfall {
            needed: f64::from(block.needed),
            arrive,
            margin: margin * (loss * arrive).sqrt(),
        }
    }
}

impl BlockScheduler for Deficit {
    fn deficit(&self, block: &BlockView, loss: Loss) -> u32 {
        if !self.wants_symbol(block, loss) {
            return 0;
        }
        let shortfall = self.shortfall(block, loss);
        let (arrive, in_flight) = (shortfall.arrive, f64::from(block.in_flight));
        let first_guess = (shortfall.at(in_flight) / arrive).ceil().max(1.0);
        let extra = shortfall.at(in_flight + first_guess).max(0.0) / arrive;
        (first_guess + extra.ceil()).min(f64::from(u32::MAX)) as u32
    }

    fn wants_symbol(&self, block: &BlockView, loss: Loss) -> bool {
        let slack = if block.last && block.in_flight >= block.needed {
            SLACK
        } else {
            1e-9
        };
        let in_flight = f64::from(block.in_flight);
        block.needed > 0 && self.shortfall(block, loss).at(in_flight) > slack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deficit(needed: u32, in_flight: u32, last: bool, loss: f64) -> u32 {
        Deficit::default().deficit(
            &BlockView::new(needed, needed, in_flight, last),
            Loss::known(loss),
        )
    }

    #[test]
    fn without_loss_exactly_what_is_needed_is_sent() {
        for last in [false, true] {
            assert_eq!(deficit(100, 0, last, 0.0), 100);
            assert_eq!(deficit(100, 100, last, 0.0), 0);
            assert_eq!(deficit(3, 2, last, 0.0), 1);
        }
    }

    #[test]
    fn in_bulk_the_flight_is_expected_to_fall_just_short() {
        for loss in [0.05, 0.2, 0.5] {
            let sent = (0..)
                .find(|&n| deficit(128, n, false, loss) == 0)
                .expect("ends");
            let expected = f64::from(sent) * (1.0 - loss);
            assert!(expected < 128.0 && expected > 110.0, "{loss}: {sent}");
        }
        assert_eq!(
            deficit(1, 1, false, 0.5),
            0,
            "one needed, one in flight: wait"
        );
    }

    #[test]
    fn the_last_block_gets_a_margin_only_where_there_is_loss() {
        assert!(deficit(105, 105, true, 0.1) >= 12);
        assert_eq!(deficit(105, 105, true, 0.002), 0);
        assert_eq!(deficit(1, 1, true, 0.01), 0, "a lone packet is not doubled");
        assert_eq!(deficit(0, 0, true, 0.5), 0);
    }
}
