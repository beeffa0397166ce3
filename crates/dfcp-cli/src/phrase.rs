//! A key in words, for people who compare it by eye or read it out.
//!
//! Six words of 256 are 48 bits of a hash. That tells apart the keys that people really have, and
//! shows a wrong paste. Who sets out to can search for a key with the same six words, in days on
//! many machines: what protects is the whole key, and programs compare nothing else.

use dfcp::PublicKey;

/// One word for each value of a byte, in alphabetical order. Changing it changes every phrase. Codes
/// are made of them, too.
pub const WORDS: &str = include_str!("words.txt");
/// Words of a phrase.
const LENGTH: usize = 6;
/// Separates this use of the hash from all others.
const CONTEXT: &str = "dfcp 2026 words of a public key v1";

/// The phrase of `key`.
pub fn phrase(key: &PublicKey) -> String {
    let hash = blake3::derive_key(CONTEXT, &key.0);
    let word = |byte: &u8| WORDS.lines().nth(usize::from(*byte)).unwrap_or_default();
    let words: Vec<_> = hash[..LENGTH].iter().map(word).collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_are_short_and_cannot_be_mixed_up() {
        let words: Vec<_> = WORDS.lines().collect();
        assert_eq!(words.len(), 256);
        assert!(words.is_sorted());
        // Four letters tell.
        let beginnings: BTreeSet<_> = words.iter().map(|word| word.get(..4)).collect();
        let short = words.iter().filter(|word| word.len() < 4).count();
        assert!(beginnings.len() + short > 256 && words.iter().all(|word| word.len() <= 8));
    }

    #[test]
    fn a_phrase_stays_what_it_is() {
        assert_eq!(
            phrase(&PublicKey([7; 32])),
            "ginger-volcano-album-pond-island-pencil"
        );
        assert_ne!(phrase(&PublicKey([8; 32])), phrase(&PublicKey([7; 32])));
    }
}
