//! How hard a sender tries: reliable, unreliable, or in between (Chameleon §I; limits as in
//! RFC 3758 and RFC 7496).
//!
//! The sender decides alone. What it gives up it says in SKIP frames, which are delivered
//! reliably, so both sides account for every byte and for all credit.

use super::charge;
use crate::time::Duration;

/// Which blocks of a connection may be given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reliability {
    /// None: everything arrives.
    #[default]
    Reliable,
    /// Every packet is sent once. Nothing is coded: a block that must not be repaired would be lost
    /// as a whole with any of its packets.
    Unreliable,
    /// Those that are older than this: time since the application wrote their first byte.
    Deadline(Duration),
    /// Those of which (1 + this) times as many symbols were sent as they have source symbols, and
    /// which the peer still lacks; for blocks of one symbol it is the number of retransmissions.
    Retransmissions(u32),
}

impl Reliability {
    /// Whether anything is ever given up.
    pub fn is_partial(self) -> bool {
        self != Self::Reliable
    }

    /// Symbols of a block of `k` that may be sent.
    pub fn max_symbols(self, k: u32) -> u32 {
        match self {
            Self::Reliable | Self::Deadline(_) => u32::MAX,
            Self::Unreliable => k,
            Self::Retransmissions(n) => k.saturating_mul(n.saturating_add(1)),
        }
    }

    /// Age at which a block is given up.
    pub fn deadline(self) -> Option<Duration> {
        match self {
            Self::Deadline(age) => Some(age),
            _ => None,
        }
    }
}

/// Bytes of a channel that its sender gave up: one block of which something was sent, or any number
/// of neighbours of which nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// Credit that they used: a block's charge, or none.
    pub charged: u64,
}

impl Skip {
    /// The end of the bytes.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Whether its numbers can be true.
    pub fn is_consistent(&self) -> bool {
        let end = self.offset.checked_add(self.len);
        let charge = self.charged == 0 || self.len < 1 << 60 && self.charged == charge(self.len);
        self.len > 0 && end.is_some() && charge
    }
}

/// What a sender gave up at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Bytes that the send buffer is rid of, those included that turned out to have arrived.
    pub freed: u64,
    /// Blocks given up.
    pub blocks: u64,
    /// Of these, blocks of which nothing had been sent.
    pub unsent: u64,
    /// Bytes of the blocks given up.
    pub bytes: u64,
}

impl std::ops::AddAssign for GivenUp {
    fn add_assign(&mut self, other: Self) {
        self.freed += other.freed;
        self.blocks += other.blocks;
        self.unsent += other.unsent;
        self.bytes += other.bytes;
    }
}

/// What a sending channel gave up: skips that the peer has yet to be told, and the sum.
#[derive(Clone, Debug, Default)]
pub struct Abandoned {
    untold: Vec<Skip>,
    /// Told, and not acknowledged.
    in_flight: usize,
    bytes: u64,
}

impl Abandoned {
    /// More was given up.
    pub fn add(&mut self, skip: Skip) {
        self.bytes += skip.len;
        match self.untold.last_mut() {
            Some(last) if last.charged + skip.charged == 0 && last.end() == skip.offset => {
                last.len += skip.len;
            }
            _ => self.untold.push(skip),
        }
    }

    /// What is to be told now.
    pub fn tell(&mut self) -> Vec<Skip> {
        self.in_flight += self.untold.len();
        std::mem::take(&mut self.untold)
    }

    /// The peer knows of one more.
    pub fn on_acked(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether there is something to tell.
    pub fn is_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Whether the peer knows everything.
    pub fn is_known(&self) -> bool {
        self.untold.is_empty() && self.in_flight == 0
    }

    /// Bytes given up so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_symbols_of_the_whole_block() {
        assert_eq!(Reliability::Unreliable.max_symbols(1), 1);
        assert_eq!(Reliability::Retransmissions(2).max_symbols(1), 3);
        assert_eq!(Reliability::Retransmissions(1).max_symbols(128), 256);
        assert_eq!(
            Reliability::Retransmissions(u32::MAX).max_symbols(9),
            u32::MAX
        );
        assert_eq!(Reliability::Reliable.max_symbols(9), u32::MAX);
    }

    #[test]
    fn only_neighbours_that_used_no_credit_are_told_as_one() {
        let skip = |offset, len, charged| Skip {
            offset,
            len,
            charged,
        };
        let mut abandoned = Abandoned::default();
        for next in [
            skip(0, 10, charge(10)),
            skip(10, 10, 0),
            skip(20, 10, 0),
            skip(40, 10, 0),
        ] {
            abandoned.add(next);
        }
        let told = [skip(0, 10, charge(10)), skip(10, 20, 0), skip(40, 10, 0)];
        assert_eq!(abandoned.tell(), told);
        assert_eq!(abandoned.bytes(), 40);
        assert!(!abandoned.is_known());
        told.iter().for_each(|_| abandoned.on_acked());
        assert!(abandoned.is_known());
    }

    #[test]
    fn everything_but_reliable_may_give_up_and_only_deadlines_have_an_age() {
        let age = Duration::from_millis(5);
        assert!(!Reliability::Reliable.is_partial());
        for (partial, deadline) in [
            (Reliability::Unreliable, None),
            (Reliability::Retransmissions(0), None),
            (Reliability::Deadline(age), Some(age)),
        ] {
            assert!(partial.is_partial());
            assert_eq!(partial.deadline(), deadline);
        }
    }

    #[test]
    fn a_skip_is_of_bytes_that_there_can_be_and_of_their_credit_or_none() {
        for (offset, len, charged, good) in [
            (0, 10, 0, true),
            (5, 10, charge(10), true),
            (5, 10, charge(10) + 1, false),
            (5, 0, 0, false),
            (u64::MAX - 9, 9, 0, true),
            (u64::MAX - 9, 10, 0, false),
            (0, 1 << 60, 0, true),
            (0, u64::MAX, 1, false),
        ] {
            let skip = Skip {
                offset,
                len,
                charged,
            };
            assert_eq!(skip.is_consistent(), good, "{skip:?}");
        }
    }

    #[test]
    fn what_was_given_up_adds_up() {
        let each = |n| GivenUp {
            freed: n,
            blocks: 2 * n,
            unsent: 3 * n,
            bytes: 4 * n,
        };
        let mut sum = each(1);
        sum += each(10);
        assert_eq!(sum, each(11));
    }
}
