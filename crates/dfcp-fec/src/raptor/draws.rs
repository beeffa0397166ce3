//! The outputs of a generator as a buffer that grows at its end.
//!
//! The generator is linear over GF(2), so a state can be moved ahead by any number of steps with a
//! few table look-ups. Long runs are therefore made in sixteen lanes, each a stretch of its own.

#![allow(unsafe_code)]

use std::sync::OnceLock;

use super::degrees::DegreeTable;
use super::taus88::{State, scale, step};

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

/// How outputs are written down, so that nothing has to be computed when they are used.
#[derive(Clone, Debug)]
pub(super) struct Form {
    n: u32,
    /// Thresholds of the distribution and by how much the degree grows from one to the next, if
    /// degrees fit eight bits and there are few; otherwise outputs stay as they are.
    steps: Option<Vec<(u32, u32)>>,
    least: u32,
}

impl Form {
    pub(super) fn new(n: u32, table: &DegreeTable) -> Self {
        Self {
            n,
            steps: table.steps(),
            least: table.min(),
        }
    }

    /// Writes outputs in this form.
    #[inline(always)]
    fn pack<const N: usize>(&self, outputs: &mut [u32; N]) {
        let Some(steps) = &self.steps else { return };
        let mut degrees = [self.least; N];
        for &(threshold, step) in steps {
            for (degree, &output) in degrees.iter_mut().zip(&*outputs) {
                *degree += if output >= threshold { step } else { 0 };
            }
        }
        for (output, degree) in outputs.iter_mut().zip(degrees) {
            *output = scale(*output, self.n) << 16 | degree;
        }
    }

    /// The degree that a word draws.
    #[inline(always)]
    pub(super) fn degree(&self, word: u32, table: &DegreeTable) -> u32 {
        if self.steps.is_some() {
            word & 0xff
        } else {
            table.draw(word)
        }
    }

    /// Adds the symbols that words draw to `out`.
    pub(super) fn numbers(&self, words: &[u32], out: &mut Vec<u16>) {
        if self.is_packed() {
            out.extend(words.iter().map(|&word| (word >> 16) as u16));
        } else {
            out.extend(words.iter().map(|&word| scale(word, self.n) as u16));
        }
    }

    /// Whether words are packed: the number in their upper half, the degree in their lowest byte.
    pub(super) fn is_packed(&self) -> bool {
        self.steps.is_some()
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Draws {
    words: Vec<u32>,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    One(Option<State>),
    Lanes(Lanes),
}

/// States of all lanes: by component, then lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Lanes([[u32; LANES]; 3]);

impl Lanes {
    #[inline(always)]
    fn get(&self, lane: usize) -> [u32; 3] {
        self.0.map(|component| component[lane])
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, words: [u32; 3]) {
        for (component, word) in self.0.iter_mut().zip(words) {
            component[lane] = word;
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::One(None)
    }
}

impl Draws {
    /// Starts again from `state`; about `expected` outputs will be used.
    pub(super) fn restart(&mut self, state: State, expected: usize) {
        self.words.clear();
        self.source = if expected < RUN / 4 {
            Source::One(Some(state))
        } else {
            let jump = &jumps()[0];
            let mut lanes = Lanes::default();
            let mut words = state.words();
            for lane in 0..LANES {
                lanes.set(lane, words);
                words = jump.apply(words);
            }
            Source::Lanes(lanes)
        };
    }

    /// Makes at least `len` outputs available and returns all there are, in `form`; the same one
    /// for all calls between two restarts.
    #[inline(always)]
    pub(super) fn upto(&mut self, len: usize, form: &Form) -> &[u32] {
        if self.words.len() < len {
            self.extend(len, form);
        }
        &self.words
    }

    pub(super) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u32>()
    }

    #[cold]
    fn extend(&mut self, len: usize, form: &Form) {
        while self.words.len() < len {
            let at = self.words.len();
            match &mut self.source {
                Source::One(Some(state)) => {
                    let mut few = [0; FEW];
                    for output in &mut few {
                        *output = state.next_u32();
                    }
                    form.pack(&mut few);
                    self.words.extend_from_slice(&few);
                }
                Source::One(None) => self.words.resize(len, 0),
                Source::Lanes(lanes) => {
                    self.words.resize(at + RUN, 0);
                    if let Ok(run) = (&mut self.words[at..]).try_into() {
                        fill(lanes, run, form);
                    }
                }
            }
        }
    }
}

/// One run, then every lane moves to its next stretch.
fn fill(lanes: &mut Lanes, run: &mut [u32; RUN], form: &Form) {
    widest(lanes, run, form);
    let jump = &jumps()[1];
    for lane in 0..LANES {
        lanes.set(lane, jump.apply(lanes.get(lane)));
    }
}

/// The fastest that this machine runs.
fn widest(lanes: &mut Lanes, run: &mut [u32; RUN], form: &Form) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(lanes: &mut Lanes, run: &mut [u32; RUN], form: &Form) {
            portable(lanes, run, form);
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just detected.
            return unsafe { avx512(lanes, run, form) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { avx2(lanes, run, form) };
        }
    }
    portable(lanes, run, form);
}

/// The same as [`portable`]: compilers do not see through the transposition.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(lanes: &mut Lanes, run: &mut [u32; RUN], form: &Form) {
    use std::arch::x86_64::*;

    let word = |value: u32| _mm512_set1_epi32(value as i32);
    // SAFETY: all arrays of lanes are 64 bytes.
    let [mut s1, mut s2, mut s3] =
        [0, 1, 2].map(|i| unsafe { _mm512_loadu_si512(lanes.0[i].as_ptr().cast()) });
    let (n, high) = (word(form.n), 0xAAAA);
    for from in (0..STRETCH).step_by(LANES) {
        let mut tile = [_mm512_setzero_si512(); LANES];
        for row in &mut tile {
            s1 = _mm512_xor_si512(
                _mm512_slli_epi32::<12>(_mm512_and_si512(s1, word(0xFFFF_FFFE))),
                _mm512_srli_epi32::<19>(_mm512_xor_si512(_mm512_slli_epi32::<13>(s1), s1)),
            );
            s2 = _mm512_xor_si512(
                _mm512_slli_epi32::<4>(_mm512_and_si512(s2, word(0xFFFF_FFF8))),
                _mm512_srli_epi32::<25>(_mm512_xor_si512(_mm512_slli_epi32::<2>(s2), s2)),
            );
            s3 = _mm512_xor_si512(
                _mm512_slli_epi32::<17>(_mm512_and_si512(s3, word(0xFFFF_FFF0))),
                _mm512_srli_epi32::<11>(_mm512_xor_si512(_mm512_slli_epi32::<3>(s3), s3)),
            );
            *row = _mm512_xor_si512(_mm512_xor_si512(s1, s2), s3);
        }
        if let Some(steps) = &form.steps {
            // As many at a time as registers hold with their degrees.
            for rows in tile.as_chunks_mut::<8>().0 {
                let mut degrees = [word(form.least); 8];
                for &(threshold, step) in steps {
                    let (threshold, step) = (word(threshold), word(step));
                    for (degree, &output) in degrees.iter_mut().zip(&*rows) {
                        let above = _mm512_cmpge_epu32_mask(output, threshold);
                        *degree = _mm512_mask_add_epi32(*degree, above, *degree, step);
                    }
                }
                for (output, degree) in rows.iter_mut().zip(degrees) {
                    // Products of even and odd words; the upper half of each is the number.
                    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(*output, n));
                    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(*output), n);
                    let number = _mm512_mask_blend_epi32(high, even, odd);
                    *output = _mm512_or_si512(_mm512_slli_epi32::<16>(number), degree);
                }
            }
        }
        for (lane, column) in transposed(&tile).into_iter().enumerate() {
            let out = &mut run[lane * STRETCH + from..][..LANES];
            // SAFETY: the slice is 64 bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), column) };
        }
    }
    for (lanes, state) in lanes.0.iter_mut().zip([s1, s2, s3]) {
        // SAFETY: the array is 64 bytes.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), state) };
    }
}

/// Columns of a tile of 16 × 16 words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn transposed(rows: &[std::arch::x86_64::__m512i; LANES]) -> [std::arch::x86_64::__m512i; LANES] {
    use std::arch::x86_64::*;

    // By twos, by fours: `quads[4 g + c]` has rows 4g to 4g + 3 of columns c, 4 + c, 8 + c, 12 + c.
    let mut quads = [_mm512_setzero_si512(); LANES];
    for g in (0..LANES).step_by(4) {
        let low = [0, 2].map(|i| _mm512_unpacklo_epi32(rows[g + i], rows[g + i + 1]));
        let high = [0, 2].map(|i| _mm512_unpackhi_epi32(rows[g + i], rows[g + i + 1]));
        quads[g] = _mm512_unpacklo_epi64(low[0], low[1]);
        quads[g + 1] = _mm512_unpackhi_epi64(low[0], low[1]);
        quads[g + 2] = _mm512_unpacklo_epi64(high[0], high[1]);
        quads[g + 3] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    let mut columns = [_mm512_setzero_si512(); LANES];
    for c in 0..4 {
        let even = [0, 8].map(|g| _mm512_shuffle_i32x4::<0x88>(quads[g + c], quads[g + 4 + c]));
        let odd = [0, 8].map(|g| _mm512_shuffle_i32x4::<0xDD>(quads[g + c], quads[g + 4 + c]));
        columns[c] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        columns[4 + c] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        columns[8 + c] = _mm512_shuffle_i32x4::<0xDD>(even[0], even[1]);
        columns[12 + c] = _mm512_shuffle_i32x4::<0xDD>(odd[0], odd[1]);
    }
    columns
}

/// The compiler makes vectors of the arrays.
#[inline(always)]
fn portable(lanes: &mut Lanes, run: &mut [u32; RUN], form: &Form) {
    let mut now = *lanes;
    for from in (0..STRETCH).step_by(LANES) {
        let mut tile = [[0u32; LANES]; LANES];
        for row in &mut tile {
            for (lane, output) in row.iter_mut().enumerate() {
                let words = step(now.get(lane));
                now.set(lane, words);
                *output = words[0] ^ words[1] ^ words[2];
            }
            form.pack(row);
        }
        for lane in 0..LANES {
            let out = &mut run[lane * STRETCH + from..][..LANES];
            for (out, row) in out.iter_mut().zip(&tile) {
                *out = row[lane];
            }
        }
    }
    *lanes = now;
}

#[cfg(test)]
mod tests {
    use super::super::Degrees;
    use super::*;

    #[test]
    fn bulk_gives_what_single_steps_give() {
        for (n, degrees) in [
            (65_536, Degrees::Shokrollahi),
            (1_003, Degrees::Shokrollahi),
            (300, Degrees::IdealSoliton),
        ] {
            let table = DegreeTable::new(degrees, n);
            let form = Form::new(n, &table);
            assert_eq!(form.is_packed(), degrees == Degrees::Shokrollahi);
            let mut draws = Draws::default();
            for seed in 0..20 {
                let state = State::from_seed(seed);
                // Few, many, and few after having been used for many.
                for expected in [1, RUN / 4, 100_000, 2] {
                    draws.restart(state, expected);
                    draws.upto(10, &form);
                    let mut plain = state;
                    let words = draws.upto(3000, &form);
                    let mut numbers = Vec::new();
                    form.numbers(words, &mut numbers);
                    for (&word, number) in words.iter().zip(numbers) {
                        let output = plain.next_u32();
                        let drawn = (form.degree(word, &table), u32::from(number));
                        assert_eq!(drawn, (table.draw(output), scale(output, n)), "seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_vector_width_gives_the_same() {
        for degrees in [Degrees::Shokrollahi, Degrees::IdealSoliton] {
            let table = DegreeTable::new(degrees, 65_536);
            let form = Form::new(65_536, &table);
            let mut lanes = Lanes::default();
            (0..LANES).for_each(|lane| lanes.set(lane, State::from_seed(lane as u32).words()));
            let (mut a, mut b) = (lanes, lanes);
            let (mut first, mut second) = ([0; RUN], [0; RUN]);
            widest(&mut a, &mut first, &form);
            portable(&mut b, &mut second, &form);
            assert!(a == b && first == second);
        }
    }
}
