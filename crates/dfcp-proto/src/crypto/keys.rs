//! Static keys and the seeded generator that every secret of an endpoint comes from.

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A deterministic cryptographic generator: the BLAKE3 output stream of a seed. The driver seeds
/// it from the operating system; tests seed it with constants.
pub struct SecretRng(blake3::OutputReader);

impl SecretRng {
    /// A generator for `seed`; streams of different `label`s are independent.
    pub fn new(seed: &[u8; 32], label: &str) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(label.as_bytes());
        Self(hasher.finalize_xof())
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
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
pub struct StaticKey(Zeroizing<[u8; 32]>);

impl StaticKey {
    /// A new key from `rng`.
    pub fn generate(rng: &mut SecretRng) -> Self {
        Self(Zeroizing::new(rng.array()))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        let mut dh = DefaultResolver
            .resolve_dh(&DHChoice::Curve25519)
            .expect("Curve25519 is compiled in");
        dh.set(self.secret());
        let mut public = [0; 32];
        public.copy_from_slice(dh.pubkey());
        PublicKey(public)
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
            .map(|k| Self(Zeroizing::new(k)))
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
