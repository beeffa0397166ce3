//! The loop shared by all kernels, generic over the instruction set.

/// What the output starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Zero: the output is overwritten.
    Zero,
    /// The output itself.
    Out,
}

/// Most outputs of one pass over the rows. A vector that is loaded once and used for four outputs
/// makes multiplication the limit instead of the caches.
pub(super) const MAX_OUTPUTS: usize = 4;

/// Linear combinations of the same rows with their bounds already checked. Whoever builds one
/// promises: there are at most [`MAX_OUTPUTS`] of `outs`; each is valid for `len` bytes of reading
/// and writing, `data + index[i] * stride` for `len` bytes of reading, and none of these ranges
/// overlaps an output; `coeffs` has, output by output, one coefficient for each of `index`.
pub(super) struct Op<'a> {
    pub(super) outs: &'a [*mut u8],
    pub(super) len: usize,
    pub(super) start: Start,
    pub(super) data: *const u8,
    pub(super) stride: usize,
    pub(super) index: &'a [u16],
    pub(super) coeffs: &'a [u8],
}

/// What an instruction set brings. Its methods are inlined into a function that enables the
/// instructions, hence `inline(always)` in every implementation.
pub(super) trait Isa {
    /// One vector of bytes.
    type Vector: Copy;
    /// A coefficient in the form that multiplication wants.
    type Coefficient: Copy;
    /// Bytes of a vector.
    const LANES: usize;
    /// Whether incomplete vectors cost no more than whole ones.
    const MASKS: bool = false;
    /// Most sums kept in registers at a time, at most 20. The wider a strip of them, the longer
    /// the runs of memory read from each row.
    const MAX_SUMS: usize;

    /// # Safety
    /// The instruction set is enabled in the caller; so too for all others.
    unsafe fn zero() -> Self::Vector;
    /// # Safety
    /// `from` is valid for a vector.
    unsafe fn load(from: *const u8) -> Self::Vector;
    /// # Safety
    /// `to` is valid for a vector.
    unsafe fn store(to: *mut u8, value: Self::Vector);
    /// # Safety
    /// The instruction set is enabled.
    unsafe fn coefficient(c: u8) -> Self::Coefficient;
    /// `sum ⊕ c · x`
    /// # Safety
    /// The instruction set is enabled.
    unsafe fn mul_add(sum: Self::Vector, c: Self::Coefficient, x: Self::Vector) -> Self::Vector;
    /// `sum ⊕ x`
    /// # Safety
    /// The instruction set is enabled.
    unsafe fn add(sum: Self::Vector, x: Self::Vector) -> Self::Vector;
    /// The first `len < LANES` bytes, zeros behind.
    /// # Safety
    /// `from` is valid for `len` bytes.
    unsafe fn load_head(from: *const u8, len: usize) -> Self::Vector;
    /// The first `len < LANES` bytes.
    /// # Safety
    /// `to` is valid for `len` bytes.
    unsafe fn store_head(to: *mut u8, value: Self::Vector, len: usize);
}

/// Runs all combinations.
///
/// # Safety
/// `op` keeps its promise, and the instruction set is enabled in the caller.
#[inline(always)]
pub(super) unsafe fn run<I: Isa>(op: &Op) {
    // SAFETY: the caller's.
    unsafe {
        match op.outs.len() {
            1 => run_outputs::<I, 1>(op),
            2 => run_outputs::<I, 2>(op),
            3 => run_outputs::<I, 3>(op),
            4 => run_outputs::<I, 4>(op),
            n => debug_assert!(n == 0, "an Op has at most MAX_OUTPUTS"),
        }
    }
}

/// # Safety
/// As [`run`], with `M` outputs.
#[inline(always)]
unsafe fn run_outputs<I: Isa, const M: usize>(op: &Op) {
    let vectors = op.len / I::LANES;
    let strips = vectors.div_ceil((I::MAX_SUMS / M).max(1));
    let mut at = 0;
    for n in 0..strips {
        // Strips of nearly equal width: each costs a walk over all rows.
        let width = vectors / strips + usize::from(n < vectors % strips);
        // SAFETY: the promise of `op` covers every strip, for they share out the whole vectors.
        unsafe { strip_of_width::<I, M>(op, at, width) };
        at += width * I::LANES;
    }
    if at < op.len {
        // SAFETY: less than a vector is left.
        unsafe { tail::<I, M>(op, at) }
    }
}

/// One strip with its width made a constant, so that the sums stay in registers.
///
/// # Safety
/// As [`run_outputs`], and `at + width · LANES ≤ len`.
#[inline(always)]
unsafe fn strip_of_width<I: Isa, const M: usize>(op: &Op, at: usize, width: usize) {
    macro_rules! widths {
        ($($n:literal)*) => {
            match width {
                // SAFETY: the caller's.
                $($n if $n == 1 || $n * M <= I::MAX_SUMS => unsafe { strip::<I, M, $n>(op, at) },)*
                _ => debug_assert!(false, "no strip is wider than MAX_SUMS"),
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20);
}

/// `N` whole vectors of every output from byte `at` on.
///
/// # Safety
/// As [`run_outputs`], and `at + N · LANES ≤ len`.
#[inline(always)]
unsafe fn strip<I: Isa, const M: usize, const N: usize>(op: &Op, at: usize) {
    let rows = op.index.len();
    // SAFETY: all accesses are within `at .. at + N · LANES` of a row or of an output, and at
    // coefficients of one of `M` outputs and one of `rows` rows.
    unsafe {
        // Addresses inside what was checked before cannot wrap; checking each again costs percents.
        let row = |i: usize| {
            let row = usize::from(*op.index.get_unchecked(i));
            op.data.add(row.wrapping_mul(op.stride).wrapping_add(at))
        };
        let coefficients = |i: usize| -> [I::Coefficient; M] {
            let at = |m: usize| m.wrapping_mul(rows).wrapping_add(i);
            std::array::from_fn(|m| I::coefficient(*op.coeffs.get_unchecked(at(m))))
        };
        let mut sums = [[I::zero(); M]; N];
        if op.start == Start::Out {
            for (n, sums) in sums.iter_mut().enumerate() {
                for (sum, &out) in sums.iter_mut().zip(op.outs) {
                    *sum = I::load(out.add(at + n * I::LANES));
                }
            }
        }
        // Two rows a step: their products are added to a sum by one three-way XOR where the
        // machine has that.
        for i in (1..rows).step_by(2) {
            let before = i.wrapping_sub(1);
            let (a, b) = (row(before), row(i));
            let (ca, cb) = (coefficients(before), coefficients(i));
            for (n, sums) in sums.iter_mut().enumerate() {
                let (x, y) = (I::load(a.add(n * I::LANES)), I::load(b.add(n * I::LANES)));
                for (sum, (&ca, &cb)) in sums.iter_mut().zip(ca.iter().zip(&cb)) {
                    *sum = I::mul_add(I::mul_add(*sum, ca, x), cb, y);
                }
            }
        }
        if rows % 2 == 1 {
            let (a, ca) = (row(rows - 1), coefficients(rows - 1));
            for (n, sums) in sums.iter_mut().enumerate() {
                let x = I::load(a.add(n * I::LANES));
                for (sum, &ca) in sums.iter_mut().zip(&ca) {
                    *sum = I::mul_add(*sum, ca, x);
                }
            }
        }
        for (n, sums) in sums.iter().enumerate() {
            for (&sum, &out) in sums.iter().zip(op.outs) {
                I::store(out.add(at + n * I::LANES), sum);
            }
        }
    }
}

/// The last bytes of every output, fewer than a vector.
///
/// # Safety
/// As [`run_outputs`], and `len - LANES < at < len`.
#[inline(always)]
unsafe fn tail<I: Isa, const M: usize>(op: &Op, at: usize) {
    let len = op.len - at;
    // SAFETY: all accesses are to the `len` bytes from `at` on of a row or of an output.
    unsafe {
        let mut sums = [I::zero(); M];
        if op.start == Start::Out {
            for (sum, &out) in sums.iter_mut().zip(op.outs) {
                *sum = I::load_head(out.add(at), len);
            }
        }
        for (i, &row) in op.index.iter().enumerate() {
            let x = I::load_head(op.data.add(usize::from(row) * op.stride + at), len);
            for (m, sum) in sums.iter_mut().enumerate() {
                let c = I::coefficient(op.coeffs[m * op.index.len() + i]);
                *sum = I::mul_add(*sum, c, x);
            }
        }
        for (&sum, &out) in sums.iter().zip(op.outs) {
            I::store_head(out.add(at), sum, len);
        }
    }
}
