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
