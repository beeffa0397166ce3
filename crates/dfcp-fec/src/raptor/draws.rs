//! The outputs of a generator as a buffer that grows at its end.
//!
//! The generator is linear over GF(2), so a state can be moved ahead by any number of steps with a
//! few table look-ups. Long runs are therefore made in sixteen lanes, each a stretch of its own.

use std::sync::OnceLock;

use super::taus88::{State, step};

const LANES: usize = 16;

/// Steps of a lane in one run.
const STRETCH: usize = 64;

/// Outputs of one run.
const RUN: usize = LANES * STRETCH;

/// Outputs made one by one, where a whole run would be wasted.
const FEW: usize = 16;

/// Where the components are after a fixed number of steps, by the bytes of where they were.
struct Jump([[[u32; 256]; 4]; 3]);

impl Jump {
    fn new(steps: usize) -> Self {
        let mut tables = [[[0; 256]; 4]; 3];
        for bit in 0..32 {
            let mut words = [1 << bit; 3];
            for _ in 0..steps {
                words = step(words);
            }
            for (table, image) in tables.iter_mut().zip(words) {
                let table = &mut table[bit / 8];
                for (byte, entry) in table.iter_mut().enumerate() {
                    *entry ^= if byte >> (bit % 8) & 1 == 1 { image } else { 0 };
                }
            }
        }
        Self(tables)
    }

    #[inline(always)]
    fn apply(&self, words: [u32; 3]) -> [u32; 3] {
        let image = |component: usize| {
            let (table, b) = (&self.0[component], words[component].to_le_bytes());
            table[0][usize::from(b[0])]
                ^ table[1][usize::from(b[1])]
                ^ table[2][usize::from(b[2])]
                ^ table[3][usize::from(b[3])]
        };
        [image(0), image(1), image(2)]
    }
}

/// By one stretch, from lane to lane; and from the end of a run's stretch to the lane's next one.
static JUMPS: OnceLock<[Jump; 2]> = OnceLock::new();

fn jumps() -> &'static [Jump; 2] {
    JUMPS.get_or_init(|| [Jump::new(STRETCH), Jump::new(RUN - STRETCH)])
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Draws {
    outputs: Vec<u32>,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    One(Option<State>),
    /// By component, then lane.
    Lanes([[u32; LANES]; 3]),
}

impl Default for Source {
    fn default() -> Self {
        Self::One(None)
    }
}

impl Draws {
    /// Starts again from `state`; about `expected` outputs will be used.
    pub(super) fn restart(&mut self, state: State, expected: usize) {
        self.outputs.clear();
        self.source = if expected < RUN / 4 {
            Source::One(Some(state))
        } else {
            let jump = &jumps()[0];
            let mut lanes = [[0; LANES]; 3];
            let mut words = state.words();
            for lane in 0..LANES {
                for component in 0..3 {
                    lanes[component][lane] = words[component];
                }
                words = jump.apply(words);
            }
            Source::Lanes(lanes)
        };
    }

    /// Makes at least `len` outputs available and returns all there are.
    #[inline(always)]
    pub(super) fn upto(&mut self, len: usize) -> &[u32] {
        if self.outputs.len() < len {
            self.extend(len);
        }
        &self.outputs
    }

    /// Forgets the first `count` outputs.
    pub(super) fn forget(&mut self, count: usize) {
        self.outputs.copy_within(count.., 0);
        self.outputs.truncate(self.outputs.len() - count);
    }

    pub(super) fn memory(&self) -> usize {
        self.outputs.capacity() * size_of::<u32>()
    }

    #[cold]
    fn extend(&mut self, len: usize) {
        while self.outputs.len() < len {
            match &mut self.source {
                Source::One(Some(state)) => self.outputs.extend((0..FEW).map(|_| state.next_u32())),
                Source::One(None) => self.outputs.resize(len, 0),
                Source::Lanes(lanes) => {
                    let at = self.outputs.len();
                    self.outputs.resize(at + RUN, 0);
                    if let Ok(run) = (&mut self.outputs[at..]).try_into() {
                        fill(lanes, run);
                    }
                }
            }
        }
    }
}

/// One run, then every lane moves to its next stretch.
fn fill(lanes: &mut [[u32; LANES]; 3], run: &mut [u32; RUN]) {
    portable(lanes, run);
    let jump = &jumps()[1];
    for lane in 0..LANES {
        let words = jump.apply([lanes[0][lane], lanes[1][lane], lanes[2][lane]]);
        for component in 0..3 {
            lanes[component][lane] = words[component];
        }
    }
}

/// The compiler makes vectors of the arrays.
#[inline(always)]
fn portable(lanes: &mut [[u32; LANES]; 3], run: &mut [u32; RUN]) {
    for from in (0..STRETCH).step_by(LANES) {
        let mut tile = [[0u32; LANES]; LANES];
        for row in &mut tile {
            for lane in 0..LANES {
                let words = step([lanes[0][lane], lanes[1][lane], lanes[2][lane]]);
                lanes[0][lane] = words[0];
                lanes[1][lane] = words[1];
                lanes[2][lane] = words[2];
                row[lane] = words[0] ^ words[1] ^ words[2];
            }
        }
        for lane in 0..LANES {
            let out = &mut run[lane * STRETCH + from..][..LANES];
            for (out, row) in out.iter_mut().zip(&tile) {
                *out = row[lane];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_give_what_the_generator_gives() {
        for seed in 0..20 {
            let state = State::from_seed(seed);
            let mut draws = Draws::default();
            // Few, many, and many after having been used for few.
            for expected in [1, RUN / 4, 100_000, 2] {
                draws.restart(state, expected);
                let mut plain = state;
                let all = draws.upto(3000).to_vec();
                let expected: Vec<u32> = all.iter().map(|_| plain.next_u32()).collect();
                assert!(all == expected, "seed {seed}");
            }
            draws.forget(2990);
            let tail = draws.upto(5000).len();
            assert_eq!(draws.upto(5000)[tail - 1], {
                let mut again = state;
                (0..2990 + tail).map(|_| again.next_u32()).last().unwrap()
            });
        }
    }
}
