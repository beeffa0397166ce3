//! X25519 for the handshake, by aws-lc: half the time of the Noise library's own, and private keys are
//! wiped when it ends.

use super::keys::Secret;
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use snow::types::{Dh, Random};

/// A key pair; none before one is set.
#[derive(Default)]
pub(super) struct KeyPair {
    private: Option<PrivateKey>,
    secret: Secret,
    public: [u8; 32],
}

impl KeyPair {
    /// The pair of a private key.
    pub fn of(secret: &Secret) -> Self {
        // Any 32 bytes are a private key (RFC 7748 §5), and have a public one.
        let private = PrivateKey::from_private_key(&X25519, &secret[..]).ok();
        let public = private.as_ref().and_then(|k| k.compute_public_key().ok());
        let public = public.and_then(|k| k.as_ref().try_into().ok());
        Self {
            private,
            secret: secret.clone(),
            public: public.unwrap_or_default(),
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
        &self.secret[..]
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let private = self.private.as_ref().ok_or(snow::Error::Dh)?;
        let public = public.get(..32).ok_or(snow::Error::Dh)?;
        let peer = UnparsedPublicKey::new(&X25519, public);
        agree(private, peer, snow::Error::Dh, |shared| {
            out.get_mut(..32)
                .ok_or(snow::Error::Dh)?
                .copy_from_slice(shared);
            Ok(())
        })
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
