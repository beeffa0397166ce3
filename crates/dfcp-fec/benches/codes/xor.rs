//! The bound: rows read once and XORed together, nothing multiplied.

use super::T;

/// XOR of all rows of `data` into `out`, in the widest strips that the registers hold.
pub fn xor_rows(out: &mut [u8], data: &[u8]) {
    assert!(out.len() == T && data.len().is_multiple_of(T));
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions were just detected.
        return unsafe { xor_avx512(out, data) };
    }
    portable(out, data);
}

/// The compiler turns the arrays into vector registers.
#[inline(always)]
fn portable(out: &mut [u8], data: &[u8]) {
    const STRIP: usize = 320;
    for at in (0..T).step_by(STRIP) {
        let mut sum = [0u8; STRIP];
        for row in data.chunks_exact(T) {
            for (sum, &byte) in sum.iter_mut().zip(&row[at..at + STRIP]) {
                *sum ^= byte;
            }
        }
        out[at..at + STRIP].copy_from_slice(&sum);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn xor_avx512(out: &mut [u8], data: &[u8]) {
    use std::arch::x86_64::*;
    const VECTORS: usize = 20;
    for at in (0..T).step_by(VECTORS * 64) {
        let mut sum = [_mm512_setzero_si512(); VECTORS];
        for row in data.chunks_exact(T) {
            let row = &row[at..at + VECTORS * 64];
            for (n, sum) in sum.iter_mut().enumerate() {
                // SAFETY: the slice has VECTORS times 64 bytes.
                let x = unsafe { _mm512_loadu_si512(row.as_ptr().add(n * 64).cast()) };
                *sum = _mm512_xor_si512(*sum, x);
            }
        }
        let out = &mut out[at..at + VECTORS * 64];
        for (n, &sum) in sum.iter().enumerate() {
            // SAFETY: the slice has VECTORS times 64 bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(n * 64).cast(), sum) };
        }
    }
}
