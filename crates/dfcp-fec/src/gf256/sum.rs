//! Sums of symbols, the inner loop of sparse codes: linear combinations whose coefficients are all
//! one need neither coefficients nor multiplication.

use super::strip::Isa;

/// What a sum starts from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// Zero: the output is overwritten.
    Zero,
    /// The output itself.
    Out,
    /// These bytes, as many as the output has: the output is overwritten.
    Bytes(&'a [u8]),
}

/// A sum with its bounds already checked. Whoever builds one promises: `out` is valid for `len`
/// bytes of reading and writing; `start` is null or `out`, or valid for `len` bytes of reading and
/// does not overlap `out`; so is `data + index[i] * stride` for every `i`.
pub(super) struct Sum<'a> {
    pub(super) out: *mut u8,
    pub(super) len: usize,
    /// Null for zero.
    pub(super) start: *const u8,
    pub(super) data: *const u8,
    pub(super) stride: usize,
    pub(super) index: &'a [u16],
}

/// Runs the sum.
///
/// # Safety
/// `sum` keeps its promise, and the instruction set is enabled in the caller.
#[inline(always)]
pub(super) unsafe fn run<I: Isa>(sum: &Sum) {
    let mut at = 0;
    if I::MASKS && sum.stride.is_multiple_of(I::LANES) && sum.len >= I::LANES {
        // Rows that start within a cache line would have every vector in two.
        at = sum.data.align_offset(I::LANES);
        if at > 0 {
            // SAFETY: less than a vector, and `len` is not.
            unsafe { part::<I>(sum, 0, at) }
        }
    }
    let vectors = (sum.len - at) / I::LANES;
    let strips = vectors.div_ceil(I::MAX_SUMS);
    for n in 0..strips {
        // Strips of nearly equal width: each costs a walk over all rows.
        let width = vectors / strips + usize::from(n < vectors % strips);
        // SAFETY: the promise of `sum` covers every strip, for they share out the whole vectors.
        unsafe { strip_of_width::<I>(sum, at, width) };
        at += width * I::LANES;
    }
    if at < sum.len {
        // SAFETY: less than a vector is left.
        unsafe { part::<I>(sum, at, sum.len - at) }
    }
}

/// One strip with its width made a constant, so that the sums stay in registers.
///
/// # Safety
/// As [`run`], and `at + width · LANES ≤ len`.
#[inline(always)]
unsafe fn strip_of_width<I: Isa>(sum: &Sum, at: usize, width: usize) {
    macro_rules! widths {
        ($($n:literal)*) => {
            match width {
                // SAFETY: the caller's.
                $($n if $n <= I::MAX_SUMS => unsafe { strip::<I, $n>(sum, at) },)*
                _ => debug_assert!(false, "no strip is wider than MAX_SUMS"),
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20);
}

/// `N` whole vectors from byte `at` on.
///
/// # Safety
/// As [`run`], and `at + N · LANES ≤ len`.
#[inline(always)]
unsafe fn strip<I: Isa, const N: usize>(sum: &Sum, at: usize) {
    // SAFETY: all accesses are within `at .. at + N · LANES` of a row, the start or the output.
    unsafe {
        let row = |&row: &u16| sum.data.add(usize::from(row) * sum.stride + at);
        let load = |from: *const u8, n: usize| I::load(from.add(n * I::LANES));
        let mut sums = [I::zero(); N];
        if !sum.start.is_null() {
            for (n, vector) in sums.iter_mut().enumerate() {
                *vector = load(sum.start.add(at), n);
            }
        }
        // Two rows a step: one three-way XOR adds both where the machine has that.
        let (pairs, rest) = sum.index.as_chunks::<2>();
        for [a, b] in pairs {
            let (a, b) = (row(a), row(b));
            for (n, vector) in sums.iter_mut().enumerate() {
                *vector = I::add(I::add(*vector, load(a, n)), load(b, n));
            }
        }
        if let [a] = rest {
            let a = row(a);
            for (n, vector) in sums.iter_mut().enumerate() {
                *vector = I::add(*vector, load(a, n));
            }
        }
        for (n, &vector) in sums.iter().enumerate() {
            I::store(sum.out.add(at + n * I::LANES), vector);
        }
    }
}

/// `len` bytes from byte `at` on, fewer than a vector.
///
/// # Safety
/// As [`run`], `len < LANES` and `at + len` not beyond the output.
#[inline(always)]
unsafe fn part<I: Isa>(sum: &Sum, at: usize, len: usize) {
    // SAFETY: all accesses are to the `len` bytes from `at` on of a row, the start or the output.
    unsafe {
        let mut vector = if sum.start.is_null() {
            I::zero()
        } else {
            I::load_head(sum.start.add(at), len)
        };
        for &row in sum.index {
            let row = sum.data.add(usize::from(row) * sum.stride + at);
            vector = I::add(vector, I::load_head(row, len));
        }
        I::store_head(sum.out.add(at), vector, len);
    }
}
