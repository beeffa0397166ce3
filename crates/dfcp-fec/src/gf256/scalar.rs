//! The portable kernel, one byte at a time: slow, plain, and the reference for the others.

use super::Kernel;
use super::field::{NIBBLES, Nibbles};
use super::strip::{self, Isa, Op};
use super::sum::{self, Sum};

pub(super) const SCALAR: Kernel = Kernel {
    name: "scalar",
    supported: || true,
    run,
    sum: sum_scalar,
};

struct Scalar;

unsafe fn run(op: &Op) {
    // SAFETY: passed on from the caller; no instruction set beyond the target's is used.
    unsafe { strip::run::<Scalar>(op) }
}

unsafe fn sum_scalar(op: &Sum) {
    // SAFETY: passed on from the caller; no instruction set beyond the target's is used.
    unsafe { sum::run::<Scalar>(op) }
}

impl Isa for Scalar {
    type Vector = u8;
    type Coefficient = &'static Nibbles;
    const LANES: usize = 1;
    const MAX_SUMS: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> u8 {
        0
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> u8 {
        // SAFETY: the caller's.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: u8) {
        // SAFETY: the caller's.
        unsafe { to.write(value) }
    }
    #[inline(always)]
    unsafe fn coefficient(c: u8) -> &'static Nibbles {
        &NIBBLES[usize::from(c)]
    }
    #[inline(always)]
    unsafe fn mul_add(sum: u8, c: &'static Nibbles, x: u8) -> u8 {
        sum ^ c.mul(x)
    }
    #[inline(always)]
    unsafe fn add(sum: u8, x: u8) -> u8 {
        sum ^ x
    }
    #[inline(always)]
    unsafe fn load_head(_: *const u8, _: usize) -> u8 {
        0 // no rest is smaller than one byte
    }
    #[inline(always)]
    unsafe fn store_head(_: *mut u8, _: u8, _: usize) {}
}
