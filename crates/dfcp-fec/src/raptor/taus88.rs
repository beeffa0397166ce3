//! The generator taus88 (L'Ecuyer, "Maximally Equidistributed Combined Tausworthe Generators",
//! 1996; `random32` of Linux), whose state travels in packets.
//!
//! Everything here is linear over GF(2) but the choice of states; `docs/spec/codes.md` has vectors.

use crate::dense::{GOLDEN_GAMMA, mix64};

/// Multiplier of the congruential generator that spreads a seed over the words (Linux).
const SEED_MULTIPLIER: u32 = 69_069;

/// Outputs thrown away after seeding (Linux).
const WARM_UP: usize = 6;

/// A component loses the low bits that the masks clear, so a word below this is stuck at zero.
const LEAST: [u32; 3] = [2, 8, 16];

/// Low bits that say nothing about outputs.
const FREE: [u32; 3] = [1, 7, 15];

/// Blocks in a row of which packets of one number have the same symbols: as many as the free bits
/// tell apart.
const ALIKE: u32 = 256;

/// Three words of generator state: S1 > 1, S2 > 7, S3 > 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    s1: u32,
    s2: u32,
    s3: u32,
}

impl State {
    /// A state from the network; `None` if the generator would get stuck in it.
    pub fn new(s1: u32, s2: u32, s3: u32) -> Option<Self> {
        (s1 >= LEAST[0] && s2 >= LEAST[1] && s3 >= LEAST[2]).then_some(Self { s1, s2, s3 })
    }

    /// The state that Linux makes of a seed: words by the multiplier 69069, then six outputs are
    /// thrown away.
    pub fn from_seed(seed: u32) -> Self {
        let s1 = seed.max(1).wrapping_mul(SEED_MULTIPLIER);
        let s2 = s1.wrapping_mul(SEED_MULTIPLIER);
        let s3 = s2.wrapping_mul(SEED_MULTIPLIER);
        let mut state = Self::lifted([s1, s2, s3]);
        for _ in 0..WARM_UP {
            state.next_u32();
        }
        state
    }

    /// The words S1, S2, S3.
    pub fn words(self) -> [u32; 3] {
        [self.s1, self.s2, self.s3]
    }

    /// The state at which packet `index` of block `block` starts, on a connection that agreed on
    /// `self`. Only the sender needs it: packets carry theirs. No two are the same, but outputs are,
    /// for blocks in a row: a receiver may keep what it made of them.
    pub fn of_packet(self, block: u32, index: u32) -> Self {
        let key = mix64((u64::from(self.s1) << 32 | u64::from(self.s2)) ^ mix64(self.s3.into()));
        let place = mix64(key ^ (u64::from(block / ALIKE) << 32 | u64::from(index)));
        let first = mix64(place.wrapping_add(GOLDEN_GAMMA));
        let second = mix64(place.wrapping_add(GOLDEN_GAMMA.wrapping_mul(2)));
        let words = [(first >> 32) as u32, first as u32, (second >> 32) as u32];
        let (state, number) = (Self::lifted(words).plain(), block % ALIKE);
        Self {
            s1: state.s1 | number & FREE[0],
            s2: state.s2 | number >> 1 & FREE[1],
            s3: state.s3 | number >> 4 & FREE[2],
        }
    }

    /// The state with the same outputs whose free bits are zero.
    pub(super) fn plain(self) -> Self {
        Self {
            s1: self.s1 & !FREE[0],
            s2: self.s2 & !FREE[1],
            s3: self.s3 & !FREE[2],
        }
    }

    /// The next output; the state moves on.
    pub fn next_u32(&mut self) -> u32 {
        [self.s1, self.s2, self.s3] = step(self.words());
        self.s1 ^ self.s2 ^ self.s3
    }

    /// A number below `n`, by the upper half of output · n.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        scale(self.next_u32(), n)
    }

    /// Lifts words below the least that keep the generator going.
    fn lifted(words: [u32; 3]) -> Self {
        let lift = |i: usize| words[i] + if words[i] < LEAST[i] { LEAST[i] } else { 0 };
        Self {
            s1: lift(0),
            s2: lift(1),
            s3: lift(2),
        }
    }
}

/// Maps an output to 0..n.
#[inline(always)]
pub(super) fn scale(output: u32, n: u32) -> u32 {
    ((u64::from(output) * u64::from(n)) >> 32) as u32
}

/// One step of the three components.
#[inline(always)]
pub(super) fn step([s1, s2, s3]: [u32; 3]) -> [u32; 3] {
    [
        (s1 & 0xFFFF_FFFE) << 12 ^ (s1 << 13 ^ s1) >> 19,
        (s2 & 0xFFFF_FFF8) << 4 ^ (s2 << 2 ^ s2) >> 25,
        (s3 & 0xFFFF_FFF0) << 17 ^ (s3 << 3 ^ s3) >> 11,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_states_are_refused() {
        assert!(State::new(2, 8, 16).is_some());
        for (s1, s2, s3) in [(1, 8, 16), (2, 7, 16), (2, 8, 15), (0, 0, 0)] {
            assert_eq!(State::new(s1, s2, s3), None);
        }
        // Why: the component below its least word is zero for good.
        assert_eq!(step([1, 7, 15]), [0, 0, 0]);
    }

    #[test]
    fn blocks_in_a_row_have_the_same_outputs() {
        let initial = State::from_seed(7);
        let outputs = |state: State| {
            let mut state = State::new(state.s1, state.s2, state.s3).unwrap();
            [(); 50].map(|()| state.next_u32())
        };
        for block in [1, 128, 255] {
            let (first, other) = (initial.of_packet(0, 3), initial.of_packet(block, 3));
            assert_ne!(first, other);
            assert_eq!(first.plain(), other.plain());
            assert_eq!(outputs(first), outputs(other));
        }
        let next = initial.of_packet(256, 3);
        assert_ne!(outputs(initial.of_packet(0, 3)), outputs(next));
        assert_eq!(next, next.plain());
    }

    #[test]
    fn packets_start_in_states_of_their_own() {
        let initial = State::from_seed(7);
        let mut seen = std::collections::BTreeSet::new();
        for block in (0..50).chain(240..270).chain([u32::MAX]) {
            for index in (0..50).chain([u32::MAX]) {
                let [s1, s2, s3] = initial.of_packet(block, index).words();
                assert!(State::new(s1, s2, s3).is_some());
                assert!(seen.insert((s1, s2, s3)), "block {block}, packet {index}");
            }
        }
        assert_ne!(initial.of_packet(1, 2), State::from_seed(8).of_packet(1, 2));
    }
}
