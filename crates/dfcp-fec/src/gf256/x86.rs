//! Kernels for x86-64: GFNI multiplies by 0x11B directly; without it two byte shuffles look the
//! products of the half bytes up (Plank, Greenan, Miller: "Screaming Fast Galois Field
//! Arithmetic Using Intel SIMD Instructions", FAST 2013).

use std::arch::x86_64::*;

use super::Kernel;
use super::field::NIBBLES;
use super::strip::{self, Isa, Op};
use super::sum::{self, Sum};

pub(super) const GFNI_AVX512: Kernel = Kernel {
    name: "gfni+avx512",
    supported: || {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni")
    },
    run: gfni_avx512,
    sum: sum_avx512,
};

pub(super) const AVX512: Kernel = Kernel {
    name: "avx512",
    supported: || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
    run: avx512,
    sum: sum_avx512,
};

pub(super) const GFNI_AVX2: Kernel = Kernel {
    name: "gfni+avx2",
    supported: || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
    run: gfni_avx2,
    sum: sum_avx2,
};

pub(super) const AVX2: Kernel = Kernel {
    name: "avx2",
    supported: || is_x86_feature_detected!("avx2"),
    run: avx2,
    sum: sum_avx2,
};

/// A function whose whole body may use these instructions.
macro_rules! with_features {
    ($($name:ident($op:ident) = $module:ident::run::<$isa:ident>, $features:literal;)*) => {$(
        #[target_feature(enable = $features)]
        unsafe fn $name(op: &$op) {
            // SAFETY: passed on from the caller; the instructions are enabled here.
            unsafe { $module::run::<$isa>(op) }
        }
    )*};
}

with_features! {
    gfni_avx512(Op) = strip::run::<GfniAvx512>, "avx512f,avx512bw,gfni";
    avx512(Op) = strip::run::<Avx512>, "avx512f,avx512bw";
    gfni_avx2(Op) = strip::run::<GfniAvx2>, "avx2,gfni";
    avx2(Op) = strip::run::<Avx2>, "avx2";
    sum_avx512(Sum) = sum::run::<Avx512>, "avx512f,avx512bw";
    sum_avx2(Sum) = sum::run::<Avx2>, "avx2";
}

struct GfniAvx512;
struct Avx512;
struct GfniAvx2;
struct Avx2;

/// Memory access with 64-byte vectors; the mask takes care of incomplete ones.
macro_rules! memory_avx512 {
    () => {
        type Vector = __m512i;
        const LANES: usize = 64;
        const MASKS: bool = true;

        #[inline(always)]
        unsafe fn zero() -> __m512i {
            // SAFETY: AVX-512 is enabled in the caller.
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m512i {
            // SAFETY: the caller's.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut u8, value: __m512i) {
            // SAFETY: the caller's.
            unsafe { _mm512_storeu_si512(to.cast(), value) }
        }
        #[inline(always)]
        unsafe fn add(sum: __m512i, x: __m512i) -> __m512i {
            // SAFETY: AVX-512 is enabled in the caller.
            unsafe { _mm512_xor_si512(sum, x) }
        }
        #[inline(always)]
        unsafe fn load_head(from: *const u8, len: usize) -> __m512i {
            // SAFETY: the mask limits the access to `len` bytes.
            unsafe { _mm512_maskz_loadu_epi8((1 << len) - 1, from.cast()) }
        }
        #[inline(always)]
        unsafe fn store_head(to: *mut u8, value: __m512i, len: usize) {
            // SAFETY: the mask limits the access to `len` bytes.
            unsafe { _mm512_mask_storeu_epi8(to.cast(), (1 << len) - 1, value) }
        }
    };
}

/// Memory access with 32-byte vectors; incomplete ones go through the stack, for AVX2 has no
/// masks for bytes.
macro_rules! memory_avx2 {
    () => {
        type Vector = __m256i;
        const LANES: usize = 32;

        #[inline(always)]
        unsafe fn zero() -> __m256i {
            // SAFETY: AVX2 is enabled in the caller.
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m256i {
            // SAFETY: the caller's.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut u8, value: __m256i) {
            // SAFETY: the caller's.
            unsafe { _mm256_storeu_si256(to.cast(), value) }
        }
        #[inline(always)]
        unsafe fn add(sum: __m256i, x: __m256i) -> __m256i {
            // SAFETY: AVX2 is enabled in the caller.
            unsafe { _mm256_xor_si256(sum, x) }
        }
        #[inline(always)]
        unsafe fn load_head(from: *const u8, len: usize) -> __m256i {
            let mut whole = [0u8; 32];
            // SAFETY: `from` has `len` bytes, `whole` has 32, and `len` is below that.
            unsafe {
                from.copy_to_nonoverlapping(whole.as_mut_ptr(), len);
                Self::load(whole.as_ptr())
            }
        }
        #[inline(always)]
        unsafe fn store_head(to: *mut u8, value: __m256i, len: usize) {
            let mut whole = [0u8; 32];
            // SAFETY: `to` has `len` bytes, `whole` has 32, and `len` is below that.
            unsafe {
                Self::store(whole.as_mut_ptr(), value);
                to.copy_from_nonoverlapping(whole.as_ptr(), len);
            }
        }
    };
}

impl Isa for GfniAvx512 {
    memory_avx512!();
    type Coefficient = __m512i;
    const MAX_SUMS: usize = 20; // of 32 registers

    #[inline(always)]
    unsafe fn coefficient(c: u8) -> __m512i {
        // SAFETY: AVX-512 is enabled in the caller.
        unsafe { _mm512_set1_epi8(c as i8) }
    }
    #[inline(always)]
    unsafe fn mul_add(sum: __m512i, c: __m512i, x: __m512i) -> __m512i {
        // SAFETY: GFNI and AVX-512 are enabled in the caller.
        unsafe { _mm512_xor_si512(sum, _mm512_gf2p8mul_epi8(x, c)) }
    }
}

impl Isa for Avx512 {
    memory_avx512!();
    type Coefficient = (__m512i, __m512i);
    const MAX_SUMS: usize = 16; // of 32 registers

    #[inline(always)]
    unsafe fn coefficient(c: u8) -> (__m512i, __m512i) {
        let table = &NIBBLES[usize::from(c)];
        // SAFETY: both halves of a table are 16 bytes; AVX-512 is enabled in the caller.
        unsafe {
            (
                _mm512_broadcast_i32x4(_mm_loadu_si128(table.low.as_ptr().cast())),
                _mm512_broadcast_i32x4(_mm_loadu_si128(table.high.as_ptr().cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn mul_add(sum: __m512i, c: (__m512i, __m512i), x: __m512i) -> __m512i {
        // SAFETY: AVX-512 BW is enabled in the caller.
        unsafe {
            let half = _mm512_set1_epi8(15);
            let low = _mm512_shuffle_epi8(c.0, _mm512_and_si512(x, half));
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(x), half);
            let high = _mm512_shuffle_epi8(c.1, high);
            _mm512_xor_si512(_mm512_xor_si512(low, high), sum)
        }
    }
}

impl Isa for GfniAvx2 {
    memory_avx2!();
    type Coefficient = __m256i;
    const MAX_SUMS: usize = 10; // of 16 registers

    #[inline(always)]
    unsafe fn coefficient(c: u8) -> __m256i {
        // SAFETY: AVX2 is enabled in the caller.
        unsafe { _mm256_set1_epi8(c as i8) }
    }
    #[inline(always)]
    unsafe fn mul_add(sum: __m256i, c: __m256i, x: __m256i) -> __m256i {
        // SAFETY: GFNI and AVX2 are enabled in the caller.
        unsafe { _mm256_xor_si256(sum, _mm256_gf2p8mul_epi8(x, c)) }
    }
}

impl Isa for Avx2 {
    memory_avx2!();
    type Coefficient = (__m256i, __m256i);
    const MAX_SUMS: usize = 10; // of 16 registers

    #[inline(always)]
    unsafe fn coefficient(c: u8) -> (__m256i, __m256i) {
        let table = &NIBBLES[usize::from(c)];
        // SAFETY: both halves of a table are 16 bytes; AVX2 is enabled in the caller.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.high.as_ptr().cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn mul_add(sum: __m256i, c: (__m256i, __m256i), x: __m256i) -> __m256i {
        // SAFETY: AVX2 is enabled in the caller.
        unsafe {
            let half = _mm256_set1_epi8(15);
            let low = _mm256_shuffle_epi8(c.0, _mm256_and_si256(x, half));
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(x), half);
            let high = _mm256_shuffle_epi8(c.1, high);
            _mm256_xor_si256(_mm256_xor_si256(low, high), sum)
        }
    }
}
