//! The kernel for AArch64: `TBL` looks the products of the half bytes up.

use std::arch::aarch64::*;

use super::Kernel;
use super::field::NIBBLES;
use super::strip::{self, Isa, Op};
use super::sum::{self, Sum};

pub(super) const NEON: Kernel = Kernel {
    name: "neon",
    supported: || std::arch::is_aarch64_feature_detected!("neon"),
    run,
    sum: sum_neon,
};

#[target_feature(enable = "neon")]
unsafe fn run(op: &Op) {
    // SAFETY: passed on from the caller; the instructions are enabled here.
    unsafe { strip::run::<Neon>(op) }
}

#[target_feature(enable = "neon")]
unsafe fn sum_neon(op: &Sum) {
    // SAFETY: passed on from the caller; the instructions are enabled here.
    unsafe { sum::run::<Neon>(op) }
}

struct Neon;

impl Isa for Neon {
    type Vector = uint8x16_t;
    type Coefficient = (uint8x16_t, uint8x16_t);
    const LANES: usize = 16;
    const MAX_SUMS: usize = 20; // of 32 registers

    #[inline(always)]
    unsafe fn zero() -> uint8x16_t {
        // SAFETY: NEON is enabled in the caller.
        unsafe { vdupq_n_u8(0) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: the caller's.
        unsafe { vld1q_u8(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: uint8x16_t) {
        // SAFETY: the caller's.
        unsafe { vst1q_u8(to, value) }
    }
    #[inline(always)]
    unsafe fn coefficient(c: u8) -> (uint8x16_t, uint8x16_t) {
        let table = &NIBBLES[usize::from(c)];
        // SAFETY: both halves of a table are 16 bytes.
        unsafe { (vld1q_u8(table.low.as_ptr()), vld1q_u8(table.high.as_ptr())) }
    }
    #[inline(always)]
    unsafe fn mul_add(sum: uint8x16_t, c: (uint8x16_t, uint8x16_t), x: uint8x16_t) -> uint8x16_t {
        // SAFETY: NEON is enabled in the caller.
        unsafe {
            let low = vqtbl1q_u8(c.0, vandq_u8(x, vdupq_n_u8(15)));
            let high = vqtbl1q_u8(c.1, vshrq_n_u8::<4>(x));
            veorq_u8(veorq_u8(low, high), sum)
        }
    }
    #[inline(always)]
    unsafe fn add(sum: uint8x16_t, x: uint8x16_t) -> uint8x16_t {
        // SAFETY: NEON is enabled in the caller.
        unsafe { veorq_u8(sum, x) }
    }
    #[inline(always)]
    unsafe fn load_head(from: *const u8, len: usize) -> uint8x16_t {
        let mut whole = [0u8; 16];
        // SAFETY: `from` has `len` bytes, `whole` has 16, and `len` is below that.
        unsafe {
            from.copy_to_nonoverlapping(whole.as_mut_ptr(), len);
            Self::load(whole.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_head(to: *mut u8, value: uint8x16_t, len: usize) {
        let mut whole = [0u8; 16];
        // SAFETY: `to` has `len` bytes, `whole` has 16, and `len` is below that.
        unsafe {
            Self::store(whole.as_mut_ptr(), value);
            to.copy_from_nonoverlapping(whole.as_ptr(), len);
        }
    }
}
