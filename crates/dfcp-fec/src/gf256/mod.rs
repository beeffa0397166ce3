//! Linear combinations of symbols over GF(256), the inner loop of every dense code.
//!
//! One operation carries encoding, syndromes and the final solve: `out ← start ⊕ Σ cᵢ · rowᵢ`.
//! All rows are fused into one pass: a strip of the output stays in registers while every row's
//! strip is multiplied into it, so the output is touched once however many rows there are.
//!
//! The loop exists once ([`strip`]); an instruction set supplies the vector type and its
//! multiply-accumulate. [`Kernel::best`] is chosen at run time, [`Kernel::available`] lists all that
//! this machine runs, and all are tested against [`Kernel::SCALAR`].

#![allow(unsafe_code)]

mod field;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod strip;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

pub use field::{inv, mul};
use strip::{Op, Start};

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
}

/// Bytes from the start of a buffer to the end of the furthest row.
fn extent(index: &[u16], stride: usize, row_len: usize) -> usize {
    match index.iter().max() {
        Some(&last) => usize::from(last) * stride + row_len,
        None => 0,
    }
}

/// One implementation of the linear combination.
pub struct Kernel {
    name: &'static str,
    supported: fn() -> bool,
    /// Requires what [`Op`] promises and a machine for which `supported` holds.
    run: unsafe fn(&Op),
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
        self.checked(Start::Zero, out, coeffs, rows);
    }

    /// `out ← out ⊕ Σ coeffs[i] · rowᵢ`, over the length of `out`.
    ///
    /// # Panics
    /// As [`combine`](Self::combine).
    pub fn accumulate(&self, out: &mut [u8], coeffs: &[u8], rows: Rows<'_>) {
        self.checked(Start::Out, out, coeffs, rows);
    }

    fn checked(&self, start: Start, out: &mut [u8], coeffs: &[u8], rows: Rows<'_>) {
        assert_eq!(coeffs.len(), rows.index.len());
        assert!(extent(rows.index, rows.stride, out.len()) <= rows.data.len());
        let op = Op {
            out: out.as_mut_ptr(),
            len: out.len(),
            start,
            data: rows.data.as_ptr(),
            stride: rows.stride,
            index: rows.index,
            coeffs,
        };
        // SAFETY: the assertions are what `Op` promises of its rows, `out` is a unique borrow and
        // so cannot overlap `rows`, and only supported kernels leave this module.
        unsafe { (self.run)(&op) }
    }

    /// `rowₜ ← rowₜ ⊕ Σ coeffs[i] · rowᵢ` for rows of one buffer that lie `row_len` bytes apart,
    /// where `t` is `target` and `i` runs over `index`.
    ///
    /// # Panics
    /// If there are not as many coefficients as rows, a row ends outside the buffer or the target
    /// is among the rows.
    pub fn accumulate_within(
        &self,
        data: &mut [u8],
        row_len: usize,
        target: usize,
        coeffs: &[u8],
        index: &[u16],
    ) {
        assert_eq!(coeffs.len(), index.len());
        assert!(extent(index, row_len, row_len) <= data.len());
        assert!((target + 1) * row_len <= data.len());
        assert!(index.iter().all(|&row| usize::from(row) != target));
        let base = data.as_mut_ptr();
        let op = Op {
            out: base.wrapping_add(target * row_len),
            len: row_len,
            start: Start::Out,
            data: base,
            stride: row_len,
            index,
            coeffs,
        };
        // SAFETY: target and rows lie inside the unique borrow `data`, and rows of whole length
        // that differ in number do not overlap; only supported kernels leave this module.
        unsafe { (self.run)(&op) }
    }
}
