//! The outputs of a generator as a buffer that grows at its end.
//!
//! The generator is linear over GF(2), so a state can be moved ahead by any number of steps with a
//! few table look-ups. Long runs are therefore made in sixteen lanes, each a stretch of its own.
//!
//! An output may be used as a degree or as a number. Both are written down, in arrays of their own
//! for the sake of the cache; whoever reads knows which of the two it is.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m512i;
use std::sync::OnceLock;

use super::degrees::DegreeTable;
use super::taus88::{State, scale, step};

const LANES: usize = 16;

/// Steps of a lane in a short run.
const SHORT: usize = 64;

/// Steps of a lane in a long run.
const LONG: usize = 256;

/// Outputs made one by one, where a whole run would be wasted.
const FEW: usize = 8;

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

/// From lane to lane, of a short run and of a long one.
static JUMPS: OnceLock<[Jump; 2]> = OnceLock::new();

fn jump(stretch: usize) -> &'static Jump {
    let [short, long] = JUMPS.get_or_init(|| [Jump::new(SHORT), Jump::new(LONG)]);
    if stretch == SHORT { short } else { long }
}

/// How outputs are written down, so that little has to be computed when they are used.
#[derive(Clone, Debug)]
pub(super) struct Form {
    n: u32,
    /// Thresholds of the distribution and by how much the degree grows from one to the next, if
    /// degrees fit eight bits and there are few; otherwise outputs are kept to draw from.
    steps: Option<Vec<(u32, u32)>>,
    least: u32,
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only AVX-512 looks degrees up")
    )]
    buckets: Option<Buckets>,
}

/// Degrees by an output's six upper bits, if no more than one threshold is between two such.
#[derive(Clone, Debug)]
struct Buckets {
    /// Upper half of the threshold within; never met where there is none.
    thresholds: [u16; BUCKETS],
    below: [u16; BUCKETS],
    above: [u16; BUCKETS],
}

const BUCKETS: usize = 64;

impl Buckets {
    fn new(steps: &[(u32, u32)], least: u32) -> Option<Self> {
        let mut buckets = Self {
            thresholds: [0; BUCKETS],
            below: [0; BUCKETS],
            above: [0; BUCKETS],
        };
        buckets.thresholds[0] = u16::MAX;
        let (mut degree, mut steps) = (least as u16, steps.iter().peekable());
        for bucket in 0..BUCKETS {
            buckets.below[bucket] = degree;
            if let Some(&(threshold, step)) =
                steps.next_if(|step| (step.0 >> 26) as usize == bucket)
            {
                buckets.thresholds[bucket] = (threshold >> 16) as u16;
                degree += step as u16;
            }
            buckets.above[bucket] = degree;
        }
        // A second threshold of a bucket stopped the walk.
        steps.next().is_none().then_some(buckets)
    }
}

impl Form {
    pub(super) fn new(n: u32, table: &DegreeTable) -> Self {
        let (steps, least) = (table.steps(), table.min());
        let buckets = steps.as_ref().and_then(|steps| Buckets::new(steps, least));
        Self {
            n,
            steps,
            least,
            buckets,
        }
    }

    /// Whether degrees are written down, eight bits each.
    pub(super) fn is_packed(&self) -> bool {
        self.steps.is_some()
    }

    /// The degrees that outputs draw, if they are written down.
    #[inline(always)]
    fn degrees<const N: usize>(&self, outputs: &[u32; N]) -> [u32; N] {
        let mut degrees = [self.least; N];
        for &(threshold, step) in self.steps.iter().flatten() {
            for (degree, &output) in degrees.iter_mut().zip(outputs) {
                *degree += if output >= threshold { step } else { 0 };
            }
        }
        degrees
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Draws {
    numbers: Vec<u16>,
    /// As long as `numbers` if outputs are many and the form is packed, otherwise empty.
    degrees: Vec<u8>,
    /// As long as `numbers` if `degrees` is empty.
    outputs: Vec<u32>,
    words: [u32; 3],
    /// Outputs that are still expected to be used.
    expected: usize,
    many: bool,
}

/// Room for the outputs of one run; `degrees` or `outputs` is empty as in [`Draws`].
struct Run<'a> {
    numbers: &'a mut [u16],
    degrees: &'a mut [u8],
    outputs: &'a mut [u32],
}

/// States of all lanes: by component, then lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Lanes([[u32; LANES]; 3]);

impl Lanes {
    /// Lane after lane, a stretch apart.
    fn apart(mut words: [u32; 3], stretch: usize) -> Self {
        let jump = jump(stretch);
        let mut lanes = Self::default();
        lanes.set(0, words);
        for lane in 1..LANES {
            words = jump.apply(words);
            lanes.set(lane, words);
        }
        lanes
    }

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

impl Draws {
    /// Starts again from `state`; about `expected` outputs will be used.
    pub(super) fn restart(&mut self, state: State, expected: usize) {
        self.numbers.clear();
        self.degrees.clear();
        self.outputs.clear();
        self.words = state.words();
        self.expected = expected;
        self.many = expected >= LANES * SHORT / 4;
    }

    /// Makes at least `len` outputs available. The form is the same for all calls between two
    /// restarts.
    #[inline(always)]
    pub(super) fn reserve(&mut self, len: usize, form: &Form) {
        if self.numbers.len() < len {
            self.extend(len, form);
        }
    }

    /// The degree that output `at` draws; it is available.
    #[inline(always)]
    pub(super) fn degree(&self, at: usize, table: &DegreeTable) -> u32 {
        match self.degrees.get(at) {
            Some(&degree) => degree.into(),
            None => table.draw(self.outputs[at]),
        }
    }

    /// Whether degrees are written down.
    pub(super) fn has_degrees(&self, form: &Form) -> bool {
        self.many && form.is_packed()
    }

    /// The degrees that outputs draw, as far as they are available, if they are written down.
    pub(super) fn degrees(&self) -> &[u8] {
        &self.degrees
    }

    /// The numbers that outputs draw, as far as they are available.
    #[inline(always)]
    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    pub(super) fn memory(&self) -> usize {
        self.numbers.capacity() * size_of::<u16>()
            + self.degrees.capacity()
            + self.outputs.capacity() * size_of::<u32>()
    }

    #[cold]
    fn extend(&mut self, len: usize, form: &Form) {
        while self.numbers.len() < len {
            let at = self.numbers.len();
            let count = if !self.many {
                FEW
            } else if self.expected >= LANES * LONG * 3 / 4 {
                LANES * LONG
            } else {
                LANES * SHORT
            };
            self.expected = self.expected.saturating_sub(count);
            self.numbers.resize(at + count, 0);
            if !self.many {
                self.words = self.one_by_one(at, form);
                continue;
            }
            let packed = if form.is_packed() {
                self.degrees.resize(at + count, 0);
                at
            } else {
                self.outputs.resize(at + count, 0);
                0
            };
            let run = Run {
                numbers: &mut self.numbers[at..],
                degrees: &mut self.degrees[packed..],
                outputs: &mut self.outputs[at - packed..],
            };
            let mut lanes = Lanes::apart(self.words, count / LANES);
            widest(&mut lanes, run, form);
            self.words = lanes.get(LANES - 1);
        }
    }

    /// A few outputs, without lanes; the state after them. Most are no degrees: these are drawn
    /// when they are asked for.
    fn one_by_one(&mut self, at: usize, form: &Form) -> [u32; 3] {
        let mut words = self.words;
        for number in &mut self.numbers[at..] {
            words = step(words);
            let output = words[0] ^ words[1] ^ words[2];
            *number = scale(output, form.n) as u16;
            self.outputs.push(output);
        }
        words
    }
}

/// The fastest that this machine runs. A run has a multiple of 64 outputs of each lane.
fn widest(lanes: &mut Lanes, run: Run<'_>, form: &Form) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(lanes: &mut Lanes, run: Run<'_>, form: &Form) {
            portable(lanes, run, form);
        }
        if let Some(buckets) = &form.buckets
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
        {
            // SAFETY: the features were just detected.
            return unsafe { avx512(lanes, run, (form, buckets)) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { avx2(lanes, run, form) };
        }
    }
    portable(lanes, run, form);
}

/// The same as [`portable`] for a packed form: compilers do not see through the transposition.
/// Numbers of two steps share a word, degrees of four do, so that fewer words are transposed.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn avx512(lanes: &mut Lanes, run: Run<'_>, (form, buckets): (&Form, &Buckets)) {
    use std::arch::x86_64::*;

    let stretch = run.numbers.len() / LANES;
    // SAFETY: each component's array is 64 bytes.
    let mut states = [0, 1, 2].map(|i| unsafe { _mm512_loadu_si512(lanes.0[i].as_ptr().cast()) });
    let zero = _mm512_setzero_si512();
    // Bytes 1 and 2 of each word change places.
    let in_order = _mm512_set4_epi32(0x0F0D_0E0C, 0x0B09_0A08, 0x0705_0604, 0x0301_0200);
    for from in (0..stretch).step_by(4 * LANES) {
        let mut degrees = [zero; LANES];
        for half in 0..2 {
            let mut numbers = [zero; LANES];
            for (four, numbers) in numbers.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                // In words, for closures are not inlined into functions of other features.
                let first = [step_lanes(&mut states), step_lanes(&mut states)];
                let second = [step_lanes(&mut states), step_lanes(&mut states)];
                numbers[0] = pair_of_numbers(first, form.n);
                numbers[1] = pair_of_numbers(second, form.n);
                let drawn = [
                    pair_of_degrees(first, form, buckets),
                    pair_of_degrees(second, form, buckets),
                ];
                degrees[half * LANES / 2 + four] =
                    _mm512_or_si512(drawn[0], _mm512_slli_epi32::<8>(drawn[1]));
            }
            for (lane, column) in transposed(&numbers).into_iter().enumerate() {
                let at = lane * stretch + from + half * 2 * LANES;
                let out = &mut run.numbers[at..][..2 * LANES];
                // SAFETY: the slice is 64 bytes.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), column) };
            }
        }
        for (lane, column) in transposed(&degrees).into_iter().enumerate() {
            let out = &mut run.degrees[lane * stretch + from..][..4 * LANES];
            let column = _mm512_shuffle_epi8(column, in_order);
            // SAFETY: the slice is 64 bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), column) };
        }
    }
    for (lanes, state) in lanes.0.iter_mut().zip(states) {
        // SAFETY: the array is 64 bytes.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), state) };
    }
}

/// One step of all lanes, and its outputs.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn step_lanes(states: &mut [__m512i; 3]) -> __m512i {
    use std::arch::x86_64::*;

    let word = |word: u32| _mm512_set1_epi32(word as i32);
    let [s1, s2, s3] = *states;
    let s1 = _mm512_xor_si512(
        _mm512_slli_epi32::<12>(_mm512_and_si512(s1, word(0xFFFF_FFFE))),
        _mm512_srli_epi32::<19>(_mm512_xor_si512(_mm512_slli_epi32::<13>(s1), s1)),
    );
    let s2 = _mm512_xor_si512(
        _mm512_slli_epi32::<4>(_mm512_and_si512(s2, word(0xFFFF_FFF8))),
        _mm512_srli_epi32::<25>(_mm512_xor_si512(_mm512_slli_epi32::<2>(s2), s2)),
    );
    let s3 = _mm512_xor_si512(
        _mm512_slli_epi32::<17>(_mm512_and_si512(s3, word(0xFFFF_FFF0))),
        _mm512_srli_epi32::<11>(_mm512_xor_si512(_mm512_slli_epi32::<3>(s3), s3)),
    );
    *states = [s1, s2, s3];
    _mm512_xor_si512(_mm512_xor_si512(s1, s2), s3)
}

/// Upper halves of two words each, the first one's below.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn upper_halves([first, second]: [__m512i; 2]) -> __m512i {
    use std::arch::x86_64::*;

    let upper = _mm512_and_si512(second, _mm512_set1_epi32(!0xffff));
    _mm512_or_si512(_mm512_srli_epi32::<16>(first), upper)
}

/// Numbers of two steps, the first one's in the lower halves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn pair_of_numbers(outputs: [__m512i; 2], n: u32) -> __m512i {
    use std::arch::x86_64::*;

    if n == 1 << 16 {
        return upper_halves(outputs);
    }
    let factor = _mm512_set1_epi32(n as i32);
    let mut numbers = outputs;
    for output in &mut numbers {
        // Products of even and odd words; the upper half of each is the number.
        let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(*output, factor));
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(*output), factor);
        *output = _mm512_mask_blend_epi32(0xAAAA, even, odd);
    }
    _mm512_or_si512(numbers[0], _mm512_slli_epi32::<16>(numbers[1]))
}

/// Degrees of two steps, the first one's in the lower halves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn pair_of_degrees(outputs: [__m512i; 2], form: &Form, buckets: &Buckets) -> __m512i {
    use std::arch::x86_64::*;

    let halves = upper_halves(outputs);
    let bucket = _mm512_srli_epi16::<10>(halves);
    let threshold = look_up(&buckets.thresholds, bucket);
    // The lower halves decide.
    if _mm512_cmpeq_epu16_mask(halves, threshold) != 0 {
        return exact_degrees(outputs, form);
    }
    let above = _mm512_cmpge_epu16_mask(halves, threshold);
    let below = look_up(&buckets.below, bucket);
    _mm512_mask_blend_epi16(above, below, look_up(&buckets.above, bucket))
}

/// Entries of a table by the lowest six bits of each half word.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn look_up(table: &[u16; BUCKETS], at: __m512i) -> __m512i {
    use std::arch::x86_64::*;

    // SAFETY: the table is 128 bytes.
    let (low, high) = unsafe {
        let from = table.as_ptr().cast::<__m512i>();
        (_mm512_loadu_si512(from), _mm512_loadu_si512(from.add(1)))
    };
    _mm512_permutex2var_epi16(low, at, high)
}

/// The same by comparing whole outputs.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[cold]
#[inline(never)]
fn exact_degrees(outputs: [__m512i; 2], form: &Form) -> __m512i {
    use std::arch::x86_64::*;

    let word = |word: u32| _mm512_set1_epi32(word as i32);
    let mut drawn = outputs;
    for output in &mut drawn {
        let mut degrees = word(form.least);
        for &(threshold, step) in form.steps.iter().flatten() {
            let above = _mm512_cmpge_epu32_mask(*output, word(threshold));
            degrees = _mm512_mask_add_epi32(degrees, above, degrees, word(step));
        }
        *output = degrees;
    }
    _mm512_or_si512(drawn[0], _mm512_slli_epi32::<16>(drawn[1]))
}

/// Columns of a tile of 16 × 16 words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn transposed(rows: &[__m512i; LANES]) -> [__m512i; LANES] {
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
fn portable(lanes: &mut Lanes, run: Run<'_>, form: &Form) {
    let mut now = *lanes;
    let stretch = run.numbers.len() / LANES;
    for from in (0..stretch).step_by(LANES) {
        let mut outputs = [[0u32; LANES]; LANES];
        let mut degrees = [[0u32; LANES]; LANES];
        for (row, degrees) in outputs.iter_mut().zip(&mut degrees) {
            for (lane, output) in row.iter_mut().enumerate() {
                let words = step(now.get(lane));
                now.set(lane, words);
                *output = words[0] ^ words[1] ^ words[2];
            }
            *degrees = form.degrees(row);
        }
        for lane in 0..LANES {
            for step in 0..LANES {
                let (at, output) = (lane * stretch + from + step, outputs[step][lane]);
                run.numbers[at] = scale(output, form.n) as u16;
                if form.is_packed() {
                    run.degrees[at] = degrees[step][lane] as u8;
                } else {
                    run.outputs[at] = output;
                }
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
                // Few, many, more, and few after having been used for many.
                for expected in [1, LANES * SHORT / 4, 5_000, 100_000, 2] {
                    draws.restart(state, expected);
                    draws.reserve(10, &form);
                    draws.reserve(7000, &form);
                    let mut plain = state;
                    for (at, &number) in draws.numbers().iter().enumerate() {
                        let output = plain.next_u32();
                        let drawn = (draws.degree(at, &table), u32::from(number));
                        assert_eq!(drawn, (table.draw(output), scale(output, n)), "seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_vector_width_gives_the_same() {
        for n in [65_536, 1_003] {
            let table = DegreeTable::new(Degrees::Shokrollahi, n);
            let form = Form::new(n, &table);
            let mut lanes = Lanes::default();
            (0..LANES).for_each(|lane| lanes.set(lane, State::from_seed(lane as u32).words()));
            let fill = |run: fn(&mut Lanes, Run<'_>, &Form)| {
                // Many enough that some outputs share their upper half with a threshold.
                let (mut lanes, len) = (lanes, 16 * LANES * LONG);
                let (mut numbers, mut degrees) = (vec![0; len], vec![0; len]);
                let room = Run {
                    numbers: &mut numbers,
                    degrees: &mut degrees,
                    outputs: &mut [],
                };
                run(&mut lanes, room, &form);
                (lanes, numbers, degrees)
            };
            assert!(fill(widest) == fill(portable), "n = {n}");
        }
    }
}
