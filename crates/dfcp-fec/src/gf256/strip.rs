//! The loop shared by all kernels, generic over the instruction set.

/// What the output starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Zero: the output is overwritten.
    Zero,
    /// The output itself.
    Out,
}

/// A linear combination with its bounds already checked. Whoever builds one promises: `out` is
/// valid for `len` bytes of reading and writing, `data + index[i] * stride` for `len` bytes of
/// reading, no row overlaps `out`, and `coeffs` and `index` are equally long.
pub(super) struct Op<'a> {
    pub(super) out: *mut u8,
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
    /// Most vectors of the output that are kept in registers at a time, at most 24. The wider the
    /// strip the longer the runs of memory read from each row.
    const MAX_STRIP: usize;

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
    /// The first `len < LANES` bytes, zeros behind.
    /// # Safety
    /// `from` is valid for `len` bytes.
    unsafe fn load_head(from: *const u8, len: usize) -> Self::Vector;
    /// The first `len < LANES` bytes.
    /// # Safety
    /// `to` is valid for `len` bytes.
    unsafe fn store_head(to: *mut u8, value: Self::Vector, len: usize);
}

/// Runs the whole combination.
///
/// # Safety
/// `op` keeps its promise, and the instruction set is enabled in the caller.
#[inline(always)]
pub(super) unsafe fn run<I: Isa>(op: &Op) {
    let vectors = op.len / I::LANES;
    let strips = vectors.div_ceil(I::MAX_STRIP);
    let mut at = 0;
    for n in 0..strips {
        // Strips of nearly equal width: each costs a walk over all rows.
        let width = vectors / strips + usize::from(n < vectors % strips);
        // SAFETY: the promise of `op` covers every strip, for they share out the whole vectors.
        unsafe { strip_of_width::<I>(op, at, width) };
        at += width * I::LANES;
    }
    if at < op.len {
        // SAFETY: less than a vector is left.
        unsafe { tail::<I>(op, at) }
    }
}

/// One strip with its width made a constant, so that the sums stay in registers.
///
/// # Safety
/// As [`run`], and `at + width · LANES ≤ len`.
#[inline(always)]
unsafe fn strip_of_width<I: Isa>(op: &Op, at: usize, width: usize) {
    macro_rules! widths {
        ($($n:literal)*) => {
            match width {
                // SAFETY: the caller's.
                $($n if $n <= I::MAX_STRIP => unsafe { strip::<I, $n>(op, at) },)*
                _ => debug_assert!(false, "no strip is wider than MAX_STRIP"),
            }
        };
    }
    widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24);
}

/// `N` whole vectors of the output from byte `at` on.
///
/// # Safety
/// As [`run`], and `at + N · LANES ≤ len`.
#[inline(always)]
unsafe fn strip<I: Isa, const N: usize>(op: &Op, at: usize) {
    // SAFETY: all accesses are within `at .. at + N · LANES` of a row or of the output.
    unsafe {
        let out = op.out.add(at);
        let mut sum = [I::zero(); N];
        if op.start == Start::Out {
            for (n, sum) in sum.iter_mut().enumerate() {
                *sum = I::load(out.add(n * I::LANES));
            }
        }
        for (&row, &c) in op.index.iter().zip(op.coeffs) {
            let row = op.data.add(usize::from(row) * op.stride + at);
            let c = I::coefficient(c);
            for (n, sum) in sum.iter_mut().enumerate() {
                *sum = I::mul_add(*sum, c, I::load(row.add(n * I::LANES)));
            }
        }
        for (n, &sum) in sum.iter().enumerate() {
            I::store(out.add(n * I::LANES), sum);
        }
    }
}

/// The last bytes of the output, fewer than a vector.
///
/// # Safety
/// As [`run`], and `len - LANES < at < len`.
#[inline(always)]
unsafe fn tail<I: Isa>(op: &Op, at: usize) {
    let len = op.len - at;
    // SAFETY: all accesses are to the `len` bytes from `at` on of a row or of the output.
    unsafe {
        let out = op.out.add(at);
        let mut sum = match op.start {
            Start::Zero => I::zero(),
            Start::Out => I::load_head(out, len),
        };
        for (&row, &c) in op.index.iter().zip(op.coeffs) {
            let row = op.data.add(usize::from(row) * op.stride + at);
            sum = I::mul_add(sum, I::coefficient(c), I::load_head(row, len));
        }
        I::store_head(out, sum, len);
    }
}
