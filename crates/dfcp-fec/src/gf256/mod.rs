//! Linear combinations of symbols over GF(256), the inner loop of every dense code.
//!
//! One operation carries encoding, syndromes and the final solve: `out ← start ⊕ Σ cᵢ · rowᵢ`.
//! All rows are fused into one pass: a strip of the output stays in registers while every row's
//! strip is multiplied into it, so the output is touched once however many rows there are. Up to
//! four outputs of the same rows share the pass.
//!
//! The loop exists once (module `strip`); an instruction set supplies the vector type and its
//! multiply-accumulate. [`Kernel::best`] is chosen at run time, [`Kernel::available`] lists all that
//! this machine runs, and all are tested against [`Kernel::SCALAR`].

#![allow(unsafe_code)]

mod field;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod strip;
mod sum;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

pub use field::{inv, mul};
use strip::{MAX_OUTPUTS, Op};
pub use sum::Start;
use sum::Sum;

/// Rows of equal distance in one buffer, picked by number.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [u8],
    stride: usize,
    index: &'a [u16],
}

impl<'a> Rows<'a> {
    /// Row `i` of the combination starts at byte `index[i] * stride` of `data`.
    pub fn new(data: &'a [u8], stride: usize, index: &'a [u16]) -> Self {
        Self {
            data,
            stride,
            index,
        }
    }

    fn raw(self) -> RawRows<'a> {
        RawRows {
            data: self.data.as_ptr(),
            stride: self.stride,
            index: self.index,
        }
    }
}

/// [`Rows`] that may lie in the same buffer as the outputs.
struct RawRows<'a> {
    data: *const u8,
    stride: usize,
    index: &'a [u16],
}

/// Outputs of `len` bytes each, at `offsets` of a buffer of `size` bytes.
struct RawTargets<'a> {
    data: *mut u8,
    size: usize,
    len: usize,
    offsets: &'a [usize],
}

/// Whether rows of `len` bytes end inside a buffer of `size` bytes.
fn rows_fit(index: &[u16], stride: usize, len: usize, size: usize) -> bool {
    let Some(&last) = index.iter().max() else {
        return true;
    };
    let end = usize::from(last)
        .checked_mul(stride)
        .and_then(|start| start.checked_add(len));
    end.is_some_and(|end| end <= size)
}

/// Asks for bytes that will be read soon, a few hundred nanoseconds ahead. They come to the second
/// level of caches: more requests are under way there than the first one waits for.
#[inline(always)]
pub fn fetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let start = bytes.as_ptr();
        let into_line = start.addr() % 64;
        for at in (0..into_line + bytes.len()).step_by(64) {
            let line = start.wrapping_add(at).wrapping_sub(into_line);
            // SAFETY: a prefetch reads nothing, and every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// One implementation of the linear combination.
pub struct Kernel {
    name: &'static str,
    supported: fn() -> bool,
    /// Requires what [`Op`] promises and a machine for which `supported` holds.
    run: unsafe fn(&Op),
    /// Requires what [`Sum`] promises and a machine for which `supported` holds.
    sum: unsafe fn(&Sum),
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.name).finish()
    }
}

/// Every kernel of this architecture, fastest first.
static KERNELS: &[&Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    &x86::GFNI_AVX512,
    #[cfg(target_arch = "x86_64")]
    &x86::AVX512,
    #[cfg(target_arch = "x86_64")]
    &x86::GFNI_AVX2,
    #[cfg(target_arch = "x86_64")]
    &x86::AVX2,
    #[cfg(target_arch = "aarch64")]
    &neon::NEON,
    &Kernel::SCALAR,
];

impl Kernel {
    /// The portable implementation, the reference for all others.
    pub const SCALAR: Self = scalar::SCALAR;

    /// The fastest kernel of this machine.
    pub fn best() -> &'static Self {
        static BEST: OnceLock<&'static Kernel> = OnceLock::new();
        BEST.get_or_init(|| Self::available().next().unwrap_or(&Self::SCALAR))
    }

    /// Every kernel that this machine runs, fastest first. The last is the scalar one.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        KERNELS
            .iter()
            .copied()
            .filter(|kernel| (kernel.supported)())
    }

    /// Name of the instruction sets used.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `out ← Σ coeffs[i] · rowᵢ`, over the length of `out`.
    ///
    /// # Panics
    /// If there are not as many coefficients as rows, or a row ends outside its buffer.
    pub fn combine(&self, out: &mut [u8], coeffs: &[u8], rows: Rows<'_>) {
        let len = out.len();
        self.combine_into(out, len, &[0], coeffs, rows);
    }

    /// `targetₜ ← Σ coeffs[t · n + i] · rowᵢ` for `n` rows and any number of targets. They have
    /// `len` bytes and start at the byte offsets `targets` of `data`.
    ///
    /// # Panics
    /// If a row or target ends outside its buffer, or there is not one coefficient for each target
    /// and row. Targets must not overlap: that panics or gives wrong sums.
    pub fn combine_into(
        &self,
        data: &mut [u8],
        len: usize,
        targets: &[usize],
        coeffs: &[u8],
        rows: Rows<'_>,
    ) {
        assert!(rows_fit(rows.index, rows.stride, len, rows.data.len()));
        let targets = RawTargets {
            data: data.as_mut_ptr(),
            size: data.len(),
            len,
            offsets: targets,
        };
        // SAFETY: the rows end inside their buffer, which cannot overlap `data`, for that is
        // borrowed uniquely; the targets are given with the true size of `data`.
        unsafe { self.run_groups(strip::Start::Zero, targets, coeffs, rows.raw()) }
    }

    /// `targetₜ ← targetₜ ⊕ Σ coeffs[t · n + i] · rowᵢ` for rows and targets in one buffer, all
    /// of `len` bytes and starting at multiples of that: `targets` are byte offsets, `index` are
    /// the numbers of the `n` rows.
    ///
    /// # Panics
    /// As [`combine_into`](Self::combine_into), and if a target is among the rows or does not
    /// start at a multiple of `len`, or if `len` is zero.
    pub fn accumulate_within(
        &self,
        data: &mut [u8],
        len: usize,
        targets: &[usize],
        coeffs: &[u8],
        index: &[u16],
    ) {
        assert!(rows_fit(index, len, len, data.len()));
        for &target in targets {
            assert!(target.is_multiple_of(len));
            let target = target / len;
            assert!(index.iter().all(|&row| usize::from(row) != target));
        }
        // One pointer for both, so that neither invalidates the other.
        let (data, size) = (data.as_mut_ptr(), data.len());
        let targets = RawTargets {
            data,
            size,
            len,
            offsets: targets,
        };
        let rows = RawRows {
            data,
            stride: len,
            index,
        };
        // SAFETY: the rows end inside the buffer, and whole rows that differ in number from every
        // target do not overlap one; the targets are given with the true size of the buffer.
        unsafe { self.run_groups(strip::Start::Out, targets, coeffs, rows) }
    }

    /// `out ← start ⊕ Σ rowᵢ`, over the length of `out`.
    ///
    /// # Panics
    /// If a row ends outside its buffer, or `start` has another length than `out`.
    pub fn sum(&self, out: &mut [u8], start: Start<'_>, rows: Rows<'_>) {
        let len = out.len();
        assert!(rows_fit(rows.index, rows.stride, len, rows.data.len()));
        let out = out.as_mut_ptr();
        // SAFETY: the rows end inside their buffer, which cannot overlap `out`, for that is
        // borrowed uniquely.
        unsafe { self.run_sum(out, len, start, rows.raw()) }
    }

    /// `rowₜ ← start ⊕ Σ rowᵢ` within a buffer of rows of `len` bytes: `target` is t, `index` are
    /// the i.
    ///
    /// # Panics
    /// If a row ends outside the buffer, the target is among the rows, or `start` has another length
    /// than `len`.
    pub fn sum_within(
        &self,
        data: &mut [u8],
        len: usize,
        target: u16,
        start: Start<'_>,
        index: &[u16],
    ) {
        // One pass without branches over the few rows that there are as a rule.
        let largest = index.iter().fold(target, |largest, &row| largest.max(row));
        assert!(rows_fit(&[largest], len, len, data.len()));
        assert!(
            index
                .iter()
                .fold(true, |apart, &row| apart & (row != target))
        );
        // One pointer for both, so that neither invalidates the other.
        let data = data.as_mut_ptr();
        let rows = RawRows {
            data,
            stride: len,
            index,
        };
        let out = data.wrapping_add(usize::from(target) * len);
        // SAFETY: the rows and the target end inside the buffer, and whole rows of other numbers
        // do not overlap the target.
        unsafe { self.run_sum(out, len, start, rows) }
    }

    /// # Safety
    /// `out` is valid for `len` bytes of reading and writing; each row is readable for that length
    /// and does not overlap it.
    unsafe fn run_sum(&self, out: *mut u8, len: usize, start: Start<'_>, rows: RawRows<'_>) {
        let start = match start {
            Start::Zero => std::ptr::null(),
            Start::Out => out.cast_const(),
            Start::Bytes(bytes) => {
                assert_eq!(bytes.len(), len);
                bytes.as_ptr()
            }
        };
        let sum = Sum {
            out,
            len,
            start,
            data: rows.data,
            stride: rows.stride,
            index: rows.index,
        };
        // SAFETY: the caller promises for output and rows; `start` is as long, and no borrowed
        // bytes overlap an output; only supported kernels leave this module.
        unsafe { (self.sum)(&sum) }
    }

    /// Runs the kernel on as many targets at a time as it takes.
    ///
    /// # Safety
    /// `targets` names a writable buffer; each row is readable for the targets' length and
    /// overlaps no target.
    unsafe fn run_groups(
        &self,
        start: strip::Start,
        targets: RawTargets<'_>,
        coeffs: &[u8],
        rows: RawRows<'_>,
    ) {
        let (len, n) = (targets.len, rows.index.len());
        assert_eq!(coeffs.len(), targets.offsets.len() * n);
        let ends_inside = |&at: &usize| at <= targets.size && len <= targets.size - at;
        assert!(targets.offsets.iter().all(ends_inside));
        for (group, offsets) in targets.offsets.chunks(MAX_OUTPUTS).enumerate() {
            for (i, &a) in offsets.iter().enumerate() {
                assert!(offsets[..i].iter().all(|&b| a.abs_diff(b) >= len));
            }
            let mut outs = [std::ptr::null_mut(); MAX_OUTPUTS];
            for (out, &at) in outs.iter_mut().zip(offsets) {
                *out = targets.data.wrapping_add(at);
            }
            let from = group * MAX_OUTPUTS * n;
            let op = Op {
                outs: &outs[..offsets.len()],
                len,
                start,
                data: rows.data,
                stride: rows.stride,
                index: rows.index,
                coeffs: &coeffs[from..from + offsets.len() * n],
            };
            // SAFETY: the assertions put every target inside its buffer and those of a group
            // apart, the caller promises for the rows; only supported kernels leave this module.
            unsafe { (self.run)(&op) }
        }
    }
}
