//! Static keys and the seeded generator that every secret of an endpoint comes from.

use super::dh::KeyPair;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use zeroize::{Zeroize, Zeroizing};

/// 32 secret bytes: wiped from memory when dropped, and never printed.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl From<[u8; 32]> for Secret {
    fn from(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl Deref for Secret {
    type Target = [u8; 32];
    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl DerefMut for Secret {
    fn deref_mut(&mut self) -> &mut [u8; 32] {
        &mut self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Bytes made at a time: with the next key eight BLAKE3 blocks, which are computed together.
const POOL: usize = 480;

/// A deterministic cryptographic generator: BLAKE3 with fast key erasure (Bernstein 2017). The key is
/// replaced before any byte made from it is used, and bytes are wiped when they are handed out, so
/// who reads the generator's memory learns nothing of what came from it before. The driver seeds it
/// from the operating system; tests seed it with constants.
pub struct SecretRng {
    key: Secret,
    pool: Zeroizing<[u8; POOL]>,
    used: usize,
}

impl SecretRng {
    /// A generator for `seed`; streams of different `label`s are independent.
    pub fn new(seed: &[u8; 32], label: &str) -> Self {
        let mut rng = Self {
            key: Secret::default(),
            pool: Zeroizing::new([0; POOL]),
            used: 0,
        };
        rng.refill(blake3::Hasher::new_keyed(seed).update(label.as_bytes()));
        rng
    }

    /// An independent generator for `label`.
    pub fn fork(&mut self, label: &str) -> Self {
        Self::new(&self.secret(), label)
    }

    fn refill(&mut self, hasher: &mut blake3::Hasher) {
        let mut stream = hasher.finalize_xof();
        stream.fill(&mut self.pool[..]);
        stream.fill(&mut self.key[..]);
        self.used = 0;
        stream.zeroize();
        hasher.zeroize();
    }

    /// Fills `out`.
    pub fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            if self.used == POOL {
                let key = self.key.clone();
                self.refill(&mut blake3::Hasher::new_keyed(&key));
            }
            let n = out.len().min(POOL - self.used);
            let (head, tail) = out.split_at_mut(n);
            let fresh = &mut self.pool[self.used..self.used + n];
            head.copy_from_slice(fresh);
            fresh.zeroize();
            self.used += n;
            out = tail;
        }
    }

    /// 32 bytes for a key.
    pub fn secret(&mut self) -> Secret {
        let mut secret = Secret::default();
        self.fill(&mut secret[..]);
        secret
    }

    /// `N` random bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// A random integer below `bound` (bias below 2⁻³², fit for spreading timers and gaps).
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(u64::from_le_bytes(self.array())) * u128::from(bound);
        (wide >> 64) as u64
    }
}

impl fmt::Debug for SecretRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretRng")
    }
}

/// A text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key: expected {0} and 64 hexadecimal digits")]
pub struct KeyError(&'static str);

/// An X25519 public key: who a peer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

const PUBLIC_PREFIX: &str = "dfcp-pub-";
const SECRET_PREFIX: &str = "dfcp-key-";

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse_hex(text, PUBLIC_PREFIX)
            .map(Self)
            .ok_or(KeyError(PUBLIC_PREFIX))
    }
}

/// An X25519 private key, wiped from memory when dropped.
#[derive(Clone)]
pub struct StaticKey(Secret);

impl StaticKey {
    /// A new key from `rng`.
    pub fn generate(rng: &mut SecretRng) -> Self {
        Self(rng.secret())
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(KeyPair::of(&self.0).public())
    }

    /// The private bytes.
    pub fn secret(&self) -> &[u8; 32] {
        &self.0
    }

    /// The form kept in a key file.
    pub fn to_text(&self) -> Zeroizing<String> {
        let hex: String = self.0.iter().map(|b| format!("{b:02x}")).collect();
        Zeroizing::new(format!("{SECRET_PREFIX}{hex}"))
    }
}

impl FromStr for StaticKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse_hex(text, SECRET_PREFIX)
            .map(|k| Self(Secret::from(k)))
            .ok_or(KeyError(SECRET_PREFIX))
    }
}

impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticKey(public {})", self.public())
    }
}

fn parse_hex(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let hex = text.trim().strip_prefix(prefix)?;
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_generator_gave_out_is_not_in_it_any_more() {
        let mut rng = SecretRng::new(&[3; 32], "test");
        let given: Vec<[u8; 16]> = (0..100).map(|_| rng.array()).collect();
        let mut kept = rng.key.to_vec();
        kept.extend_from_slice(&rng.pool[..]);
        for (i, bytes) in given.iter().enumerate() {
            assert!(!kept.windows(8).any(|w| w == &bytes[..8]), "draw {i}");
        }
        // Nor does what is left lead back: the stream goes on with another key.
        let again: Vec<[u8; 16]> = (0..100).map(|_| rng.array()).collect();
        assert!(again.iter().all(|bytes| !given.contains(bytes)));
    }

    #[test]
    fn a_seed_and_a_label_make_the_stream_whatever_the_pieces() {
        let stream = |label, pieces: &[usize]| {
            let mut rng = SecretRng::new(&[5; 32], label);
            let mut out = Vec::new();
            for &n in pieces {
                let mut piece = vec![0; n];
                rng.fill(&mut piece);
                out.extend(piece);
            }
            out
        };
        let whole = stream("a", &[2000]);
        assert_eq!(stream("a", &[1, 479, 480, 481, 500, 59]), whole);
        assert_ne!(stream("b", &[2000]), whole);
        let mut sorted: Vec<&[u8]> = whole.chunks(8).collect();
        sorted.sort();
        assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn keys_survive_as_text_and_nothing_else_is_one() {
        let key = StaticKey::from_str(&format!("dfcp-key-{}", "0a".repeat(32))).expect("a key");
        assert_eq!(key.secret(), &[10; 32]);
        assert_eq!(*key.to_text(), format!("dfcp-key-{}", "0a".repeat(32)));
        let text = key.public().to_string();
        assert_eq!(text.parse(), Ok(key.public()));
        assert_eq!(format!("{:?}", key.public()), text);
        assert_eq!(format!(" {text}\n").parse(), Ok(key.public()));
        let digits = text.strip_prefix("dfcp-pub-").expect("says what it is");
        for wrong in [
            digits.to_string(),
            format!("dfcp-key-{digits}"),
            format!("dfcp-pub-{digits}0"),
            format!("dfcp-pub-{}", &digits[1..]),
            format!("dfcp-pub-g{}", &digits[1..]),
            format!("dfcp-pub-\u{e4}{}", &digits[2..]),
            String::new(),
        ] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
        }
        assert!(
            StaticKey::from_str(&text).is_err(),
            "a public key is no secret"
        );
    }

    #[test]
    fn numbers_below_a_bound_are_spread_over_all_of_them() {
        let mut rng = SecretRng::new(&[6; 32], "below");
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[rng.below(10) as usize] += 1;
        }
        // 1000 each; five standard deviations are 150.
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
        assert_eq!(rng.below(1), 0);
    }
}
