//! Coefficients of a repair symbol, derived from (block seed, ESI) alone.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
//! Generators", OOPSLA 2014), used as a counter so that every ESI has its own stream. Normative
//! text and test vectors: `docs/spec/codes.md`.

/// The increment of SplitMix64, the golden ratio in 64 bits.
pub(crate) const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's output function, a permutation of the 64-bit integers.
pub(crate) fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Fills `out` with the coefficients of repair symbol `esi`, one for each source symbol in order.
///
/// None is zero. Each byte of the stream that is zero becomes one: that makes 1 twice as likely as
/// the others, which raises the chance of a dependent symbol by less than 1 % of itself.
pub fn repair_coefficients(seed: u64, esi: u32, out: &mut [u8]) {
    // ESIs are spread over the whole state space first: states that differ by a few gammas would
    // give streams that are shifted copies of one another.
    let mut state = mix64(seed ^ mix64(u64::from(esi)));
    for group in out.chunks_mut(8) {
        state = state.wrapping_add(GOLDEN_GAMMA);
        for (c, byte) in group.iter_mut().zip(mix64(state).to_le_bytes()) {
            *c = byte.max(1);
        }
    }
}
