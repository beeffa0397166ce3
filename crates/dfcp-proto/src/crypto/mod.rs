//! Keys, the Noise handshake and packet protection.
//!
//! The handshake is `Noise_XX_25519_ChaChaPoly_BLAKE2s`, carried in SYN, SYNACK, ACK: both sides prove
//! a static key, the client's is hidden from everyone but the authenticated server. Packets are
//! then sealed with AES-256-GCM under the two keys that Noise splits off.

mod dh;
mod handshake;
mod keys;
mod reset;
mod seal;
mod slots;
mod sys;

pub use handshake::{ClientHandshake, HandshakeError, Responder, SessionKeys, SynFacts, export};
pub use keys::{KeyError, PublicKey, Secret, SecretRng, StaticKey};
pub(crate) use reset::{RecentTags, ResetSecret};
pub use reset::{ResetKey, reset_token};
pub use seal::{EPOCH_BITS, Opener, Sealer};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    #[test]
    fn what_holds_secrets_is_named_when_printed_and_its_secrets_are_not() {
        let mut rng = SecretRng::new(&[1; 32], "printed");
        let key = StaticKey::generate(&mut rng);
        let secret = Secret::from([0xab; 32]);
        let client = ClientHandshake::new(&key, &[1; 8], secret.clone()).expect("a first message");
        let (public, place) = (key.public(), ResetSecret::new(&key, b"place"));
        for (printed, expected) in [
            (format!("{secret:?}"), "Secret".to_owned()),
            (format!("{rng:?}"), "SecretRng".to_owned()),
            (format!("{key:?}"), format!("StaticKey(public {public})")),
            (format!("{place:?}"), "ResetSecret".to_owned()),
            (
                format!("{:?}", RecentTags::default()),
                "RecentTags(0)".to_owned(),
            ),
            (
                format!("{:?}", Sealer::new(secret.clone(), Instant::ZERO)),
                "Sealer(epoch 0)".to_owned(),
            ),
            (
                format!("{:?}", Opener::new(secret.clone())),
                "Opener(epoch 0)".to_owned(),
            ),
            (format!("{client:?}"), "ClientHandshake".to_owned()),
            (
                format!("{:?}", Responder::new(key.clone(), rng)),
                format!("Responder({public})"),
            ),
        ] {
            assert_eq!(printed, expected);
        }
    }
}
