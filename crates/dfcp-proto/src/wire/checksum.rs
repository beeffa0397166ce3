//! The Internet checksum (RFC 1071): the complement of a sum of 16-bit words, whose carries are added
//! again.

/// The sum of 16-bit words, the last one padded with zeros; carries are kept. Of 131,072 bytes at most, so
/// that 32 bits hold it.
pub fn word_sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |b| u32::from(*b) << 8);
    words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum::<u32>()
        + last
}

/// Adds the carries: the checksum is the complement of this.
pub fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
