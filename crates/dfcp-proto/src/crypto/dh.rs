//! X25519 for the handshake, by aws-lc: half the time of the Noise library's own, and private keys are
//! wiped when it ends.

use super::keys::Secret;
use super::sys;
use snow::types::{Dh, Random};

/// A key pair; none before one is set.
#[derive(Default)]
pub(super) struct KeyPair {
    secret: Option<Secret>,
    public: [u8; 32],
}

impl KeyPair {
    /// The pair of a private key.
    pub fn of(secret: &Secret) -> Self {
        Self {
            secret: Some(secret.clone()),
            public: sys::public_of(secret),
        }
    }

    pub fn public(&self) -> [u8; 32] {
        self.public
    }
}

impl Dh for KeyPair {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, private: &[u8]) {
        let mut secret = Secret::default();
        secret.copy_from_slice(private);
        *self = Self::of(&secret);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        let mut secret = Secret::default();
        rng.try_fill_bytes(&mut secret[..])?;
        *self = Self::of(&secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.secret.as_ref().map_or(&[], |secret| &secret[..])
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let secret = self.secret.as_ref().ok_or(snow::Error::Dh)?;
        let public = public.first_chunk().ok_or(snow::Error::Dh)?;
        let out = out.first_chunk_mut().ok_or(snow::Error::Dh)?;
        sys::agree(secret, public, out).ok_or(snow::Error::Dh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> [u8; 32] {
        let byte = |i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex");
        std::array::from_fn(byte)
    }

    /// RFC 7748 §6.1: Bob's side.
    #[test]
    fn a_secret_is_agreed_as_in_the_rfc() {
        let secret = bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let bob = KeyPair::of(&Secret::from(secret));
        assert_eq!(
            bob.public(),
            bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
        );
        let alice = bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        let mut shared = [0; 56];
        bob.dh(&alice, &mut shared).expect("agrees");
        assert_eq!(
            shared[..32],
            bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        );
        // A peer that sends the point of order one forces no key.
        assert!(bob.dh(&[0; 32], &mut shared).is_err());
    }
}
