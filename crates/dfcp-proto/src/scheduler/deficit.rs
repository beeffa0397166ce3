//! The deficit rule (CTCP, Algorithm 3): a block gets another symbol while (1 − p) · in-flight
//! is below what the receiver needs.

use super::{BlockScheduler, BlockView};
use crate::block::SHORT_MESSAGE;
use crate::packet::Loss;
use crate::time::Duration;

/// Expected arrivals against need, with a margin in standard deviations or without one.
///
/// By default the margin is negative in the middle of a transfer: overshooting wastes symbols, while
/// undershooting costs nothing but one more round trip of an open block. The last blocks get a
/// positive margin, because someone waits for them; none below 1 % loss.
///
/// Where losses come in bursts the standard deviation is larger ([`Loss::burstiness`]): in bulk no
/// block is then given repairs for a burst that hits another one, while the last blocks get more.
#[derive(Clone, Copy, Debug)]
pub struct Deficit {
    rule: Rule,
    open_blocks: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Standard deviations in bulk and for the last blocks.
    Margins { bulk: f64, last: f64 },
    /// None.
    Expected(Rounding),
}

/// Whether the symbol that is expected to arrive as the last one needed, but for a fraction, is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// No: ⌊N/(1 − p)⌋ packets for N symbols, as the efficiency of CTCP, eq. (7), has it.
    #[default]
    Down,
    /// Yes: one symbol more than needed with the slightest loss, as Algorithm 3 is printed.
    Up,
}

/// One and a half standard deviations short: one block in fifteen overshoots, by a symbol or two.
/// Further short wastes still less, but blocks then complete noticeably later.
const BULK_MARGIN: f64 = -1.5;
/// Two: the last block is complete after its first flight 97 times in 100. If the loss is not known
/// yet, what it may be counts as well ([`Loss::doubt`]): a new connection sends 119 symbols for 105,
/// before it has heard how many arrive; with what it may lose on average alone it would be 112. What
/// that saves is the round trip in which somebody would wait for those that lack.
const LAST_MARGIN: f64 = 2.0;
/// Below this loss, redundancy ahead of feedback is off.
const MIN_LOSS: f64 = 0.003;
/// The most that the last blocks get for bursts beyond what independent losses call for: this share
/// of what they need. One burst may take a whole block; no margin helps then, the next round does.
const MAX_BURST_MARGIN: f64 = 0.25;
/// Bursts that end by chance at any time: 95 in 100 last no longer than so many mean times, ln 20.
const LONG_BURST: f64 = 3.0;
/// Repair symbols wait for an end of a burst no longer than this part of a round trip. Where they would
/// have arrived anyway waiting costs that much; where not it saves a round trip.
const MAX_HOLD: u32 = 4;
/// Blocks in turn lose a part of a burst each, which their margins cover; more of them wait longer for
/// each other.
const IN_TURN: usize = 4;
/// They take turns from bursts of one and a half packets on: with independent losses it helps nothing.
const TURN_BURSTINESS: f64 = 2.0;
/// A margin short by less than this is left: single packets are not doubled below 1.4 % loss.
const SLACK: f64 = 0.25;
/// But short ones are, from [`MIN_LOSS`] on: of a keystroke or a request somebody waits for the answer. All
/// symbols of one are lost once in so many times at most. Such a loss delays all messages that follow within
/// the round trip of its repair, eleven of a program that says something 50 times a second over 200 ms, on the
/// way there or back: with one in 4400 that is one answer in two hundred, so that 99 of a hundred are in time
/// also where chance has it twice as bad.
const MESSAGE_LOST: f64 = 1.0 / 4400.0;

/// The second copy of a message leaves when half of the bursts that took the first have ended and more, a mean
/// burst after it: 0.37 of these go on, which tells how long bursts last as well as any gap does (the error of
/// their time is least where e^−x · x is largest). Those after it each leave when a long burst has ended
/// ([`LONG_BURST`]). No gap is longer than this: an answer is felt to be at once within 30 ms beside the path's
/// own time, into which three copies after the first then fall.
pub(crate) const MAX_COPY_GAP: Duration = Duration::from_millis(8);
/// Nor is any shorter: of independent losses chance makes bursts of some microseconds, whose copies would count
/// as likely to be lost with the one before; and of a millisecond more nothing is felt.
const MIN_COPY_GAP: Duration = Duration::from_millis(1);
/// Where the longest gap is short for a burst each copy says less. So many leave at most: all together, of 64 bytes
/// with their headers, are about as long as a full packet. Eight were too few where bursts are counted in packets
/// and few are sent: the last left 56 ms after the first, and one in fifty echoes over 200 ms waited for a repair.
const MOST_COPIES: u32 = 12;

impl Default for Deficit {
    fn default() -> Self {
        Self {
            rule: Rule::Margins {
                bulk: BULK_MARGIN,
                last: LAST_MARGIN,
            },
            open_blocks: usize::MAX,
        }
    }
}

/// A rounding error is no symbol.
const EPSILON: f64 = 1e-9;

/// What a block lacks as a function of the symbols in flight.
struct Shortfall {
    needed: f64,
    /// Probability that a symbol arrives.
    arrive: f64,
    /// Margin, in symbols, for one symbol in flight: it grows with the square root.
    margin: f64,
    /// The same for what is not known of the loss, of which all symbols have the same: it grows with
    /// their number. Both are independent of each other, so their squares add.
    doubt: f64,
    /// What bursts add to it, and the most that they add.
    burst_margin: f64,
    max_burst_margin: f64,
}

impl Shortfall {
    fn at(&self, in_flight: f64) -> f64 {
        let root = in_flight.sqrt();
        let bursts = (self.burst_margin * root).min(self.max_burst_margin);
        let margin = if self.doubt > 0.0 {
            (self.margin * root).hypot(self.doubt * in_flight)
        } else {
            self.margin * root
        };
        self.needed + margin + bursts - in_flight * self.arrive
    }
}

impl Deficit {
    /// CTCP's: no margin, and at most `open_blocks` blocks (at least one) begun and unacknowledged.
    pub fn without_margin(open_blocks: usize, rounding: Rounding) -> Self {
        Self {
            rule: Rule::Expected(rounding),
            open_blocks: open_blocks.max(1),
        }
    }

    fn shortfall(&self, block: &BlockView, loss: Loss) -> Shortfall {
        let (margin, loss_rate, doubt) = match self.rule {
            Rule::Expected(_) => (0.0, loss.mean, 0.0),
            Rule::Margins { bulk, .. } if !block.last => (bulk, loss.mean, 0.0),
            Rule::Margins { last, .. } if loss.cautious >= MIN_LOSS => {
                (last, loss.cautious, loss.doubt())
            }
            // What is in flight is expected to arrive.
            Rule::Margins { .. } => (0.0, 0.0, 0.0),
        };
        let arrive = 1.0 - loss_rate;
        let needed = f64::from(block.needed);
        let margin = margin * (loss_rate * arrive).sqrt();
        Shortfall {
            needed,
            arrive,
            margin,
            doubt,
            burst_margin: margin * (loss.burstiness.max(1.0).sqrt() - 1.0),
            max_burst_margin: MAX_BURST_MARGIN * needed,
        }
    }

    /// Whether another copy of a short message is due: what is in flight of it may well all be lost.
    fn wants_copy(&self, block: &BlockView, loss: Loss) -> bool {
        let is_message = block.last && block.bytes <= SHORT_MESSAGE && block.needed == 1;
        let by_margins = matches!(self.rule, Rule::Margins { .. });
        is_message
            && by_margins
            && loss.cautious >= MIN_LOSS
            && Self::all_lost(loss, block.in_flight) > MESSAGE_LOST
            && (block.in_flight < MOST_COPIES || copy_gap(loss, block.in_flight) < MAX_COPY_GAP)
    }

    /// How likely so many copies, at least one, are all lost: a burst that took one goes on to the next with
    /// exp(−gap ÷ its mean time).
    fn all_lost(loss: Loss, copies: u32) -> f64 {
        let p = loss.cautious;
        let again = |copies| match loss.burst_time.as_secs_f64() {
            0.0 => p,
            mean => p + (1.0 - p) * (-copy_gap(loss, copies).as_secs_f64() / mean).exp(),
        };
        match copies {
            0 | 1 => p,
            _ => p * again(1) * again(2).powf(f64::from(copies - 2)),
        }
    }
}

/// See [`MAX_COPY_GAP`].
fn copy_gap(loss: Loss, copies: u32) -> Duration {
    let gap = match copies {
        _ if loss.burst_time.is_zero() => return Duration::ZERO,
        0 | 1 => loss.burst_time,
        _ => loss.burst_time.mul_f64(LONG_BURST),
    };
    gap.clamp(MIN_COPY_GAP, MAX_COPY_GAP)
}

/// Whether fewer symbols are in flight than are needed: a block lacks some then by any rule. The
/// usual answer, without a root.
fn is_short(block: &BlockView) -> bool {
    block.needed > block.in_flight
}

impl BlockScheduler for Deficit {
    fn deficit(&self, block: &BlockView, loss: Loss) -> u32 {
        let wants = |more: u32| {
            let in_flight = block.in_flight.saturating_add(more);
            self.wants_symbol(
                &BlockView {
                    in_flight,
                    ..*block
                },
                loss,
            )
        };
        // What is lacking falls as more is in flight: doubled until it is enough, then bisected.
        let mut enough = 1;
        while wants(enough) && enough < u32::MAX / 2 {
            enough *= 2;
        }
        let (mut low, mut high) = (0, enough);
        while low < high {
            let middle = low + (high - low) / 2;
            match wants(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    fn wants_symbol(&self, block: &BlockView, loss: Loss) -> bool {
        if is_short(block) || self.wants_copy(block, loss) {
            return true;
        }
        let shortfall = self.shortfall(block, loss);
        let slack = match self.rule {
            Rule::Margins { .. } if block.last && block.in_flight >= block.needed => SLACK,
            Rule::Expected(Rounding::Down) => shortfall.arrive - EPSILON,
            _ => EPSILON,
        };
        block.needed > 0 && shortfall.at(f64::from(block.in_flight)) > slack
    }

    fn hold(&self, loss: Loss, rtt: Duration) -> Duration {
        match self.rule {
            // The usual answer, with each packet.
            _ if loss.burst_time.is_zero() => Duration::ZERO,
            Rule::Margins { .. } => loss.burst_time.mul_f64(LONG_BURST).min(rtt / MAX_HOLD),
            Rule::Expected(_) => Duration::ZERO,
        }
    }

    fn copy_gap(&self, block: &BlockView, loss: Loss) -> Duration {
        match self.rule {
            Rule::Margins { .. } => copy_gap(loss, block.in_flight),
            Rule::Expected(_) => Duration::ZERO,
        }
    }

    fn blocks_in_turn(&self, loss: Loss) -> usize {
        let margins = matches!(self.rule, Rule::Margins { .. });
        match margins && loss.burstiness >= TURN_BURSTINESS {
            true => IN_TURN,
            false => 1,
        }
    }

    fn max_open_blocks(&self) -> usize {
        self.open_blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{LossEstimate, LossEstimator};

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

    /// Symbols sent for a block of 128 before feedback.
    fn sent_for_128(last: bool, loss: Loss) -> u32 {
        let scheduler = Deficit::default();
        let mut block = BlockView::new(128, 128, 0, last);
        let at_once = scheduler.deficit(&block, loss);
        while scheduler.wants_symbol(&block, loss) {
            block.in_flight += 1;
        }
        assert_eq!(at_once, block.in_flight, "{last}, {loss:?}");
        block.in_flight
    }

    #[test]
    fn bursts_take_the_repairs_of_bulk_and_add_to_those_of_the_end() {
        for (loss, burst) in [(0.09, 50.0), (0.2, 12.0), (0.048, 5.0)] {
            let bursts = Loss::in_bursts(loss, burst);
            assert_eq!(sent_for_128(false, bursts), 128, "{bursts:?}");
            let (more, less) = (
                sent_for_128(true, bursts),
                sent_for_128(true, Loss::known(loss)),
            );
            let most = f64::from(less) + MAX_BURST_MARGIN * 128.0 / (1.0 - loss) + 2.0;
            assert!(more > less && f64::from(more) <= most, "{less}, {more}");
        }
    }

    #[test]
    fn repair_symbols_wait_for_bursts_and_no_longer_than_a_quarter_of_a_round_trip() {
        let ms = Duration::from_millis;
        let hold = |burst_time| {
            let bursts = Loss {
                burst_time,
                ..Loss::in_bursts(0.02, 12.0)
            };
            Deficit::default().hold(bursts, ms(100))
        };
        assert_eq!(hold(ms(2)), ms(6));
        assert_eq!(hold(ms(20)), ms(25));
        assert_eq!(hold(Duration::ZERO), Duration::ZERO);
        let in_turn = |loss| Deficit::default().blocks_in_turn(loss);
        assert_eq!(in_turn(Loss::known(0.1)), 1);
        assert_eq!(in_turn(Loss::in_bursts(0.02, 5.0)), 4);
    }

    #[test]
    fn the_last_block_gets_a_margin_only_where_there_is_loss() {
        assert!(deficit(105, 105, true, 0.1) >= 12);
        assert_eq!(deficit(105, 105, true, 0.002), 0);
        assert_eq!(deficit(1, 1, true, 0.01), 0, "a lone packet is not doubled");
        assert_eq!(deficit(0, 0, true, 0.5), 0);
    }

    #[test]
    fn the_last_block_gets_more_while_little_is_known_of_the_loss() {
        let sent = |delivered| {
            let mut seen = LossEstimator::new(LossEstimate::Counted);
            seen.update(delivered, 0);
            let loss = seen.estimate();
            let block = BlockView::new(105, 105, 0, true);
            Deficit::default().deficit(&block, loss)
        };
        assert_eq!(sent(0), 119);
        // What is feared of a path shrinks as packets arrive.
        let after = [30, 100, 200].map(sent);
        assert!(after.is_sorted_by(|a, b| a > b), "{after:?}");
        assert_eq!(sent(400), 105);
        // Whatever is feared, it ends.
        let mut seen = LossEstimator::new(LossEstimate::Counted);
        seen.update(0, 50);
        let block = BlockView::new(100, 100, 0, true);
        let sent = Deficit::default().deficit(&block, seen.estimate());
        assert!(sent < 100_000, "{sent}");
    }

    #[test]
    fn a_short_message_is_hardly_ever_lost_in_all_of_its_copies() {
        let deficit = |bytes, in_flight, loss| {
            let block = BlockView::new(1, 1, in_flight, true).of_bytes(bytes);
            Deficit::default().deficit(&block, Loss::known(loss))
        };
        assert_eq!(deficit(64, 1, 0.01), 1);
        assert_eq!(deficit(64, 2, 0.01), 0, "twice is enough");
        assert_eq!(deficit(SHORT_MESSAGE + 1, 1, 0.01), 0);
        assert_eq!(deficit(64, 1, 0.001), 0);
        // What is learnt of a path's loss is below it half of the time.
        for (loss, copies) in [
            (0.015, 2),
            (0.02, 3),
            (0.05, 3),
            (0.06, 3),
            (0.1, 4),
            (0.12, 4),
            (0.2, 6),
        ] {
            assert_eq!(deficit(64, 0, loss), copies, "{loss}");
            assert!(loss.powi(copies as i32) <= 1.0 / 4400.0, "{loss}");
        }
        assert!(deficit(64, 0, 0.9) <= 100, "not without end");
    }

    #[test]
    fn copies_of_a_message_leave_so_far_apart_that_a_burst_takes_few_of_them() {
        let ms = Duration::from_millis;
        let gaps = |burst_time| {
            let loss = Loss {
                burst_time,
                ..Loss::in_bursts(0.05, 10.0)
            };
            let (scheduler, mut gaps) = (Deficit::default(), Vec::new());
            let mut block = BlockView::new(1, 1, 1, true).of_bytes(64);
            while scheduler.wants_symbol(&block, loss) {
                gaps.push(scheduler.copy_gap(&block, loss));
                block.in_flight += 1;
            }
            gaps
        };
        assert_eq!(gaps(Duration::ZERO), [Duration::ZERO; 2]);
        // What chance makes of independent losses.
        assert_eq!(gaps(ms(1) / 10), [ms(1); 2]);
        // 0.05 · 0.4 · 0.097² is one in 5300.
        assert_eq!(gaps(ms(2)), [ms(2), ms(6), ms(6)]);
        assert_eq!(gaps(ms(4)), [[ms(4)].as_slice(), &[ms(8); 3]].concat());
        assert_eq!(gaps(ms(100)), [ms(8); 11], "not without end");
        let first = BlockView::new(1, 1, 1, true).of_bytes(64);
        let ctcp = Deficit::without_margin(8, Rounding::Down);
        let loss = Loss {
            burst_time: ms(2),
            ..Loss::in_bursts(0.05, 10.0)
        };
        assert_eq!(ctcp.copy_gap(&first, loss), Duration::ZERO);
    }

    /// Symbols sent for a block of 32 before feedback.
    fn sent_for_32(rounding: Rounding, loss: f64) -> u32 {
        let scheduler = Deficit::without_margin(8, rounding);
        let mut block = BlockView::new(32, 32, 0, false);
        let at_once = scheduler.deficit(&block, Loss::known(loss));
        while scheduler.wants_symbol(&block, Loss::known(loss)) {
            block.in_flight += 1;
        }
        assert_eq!(at_once, block.in_flight, "{rounding:?}, {loss}");
        block.in_flight
    }

    #[test]
    fn without_margin_as_many_are_sent_as_are_expected_to_arrive() {
        for (loss, down, up) in [(0.0, 32, 32), (0.01, 32, 33), (0.05, 33, 34), (0.2, 40, 40)] {
            assert_eq!(sent_for_32(Rounding::Down, loss), down, "{loss}");
            assert_eq!(sent_for_32(Rounding::Up, loss), up, "{loss}");
        }
        for rounding in [Rounding::Down, Rounding::Up] {
            let lone = BlockView::new(32, 1, 0, true);
            let scheduler = Deficit::without_margin(8, rounding);
            assert_eq!(scheduler.deficit(&lone, Loss::known(0.0)), 1);
            assert!(scheduler.wants_symbol(&lone, Loss::known(0.97)));
        }
    }
}
