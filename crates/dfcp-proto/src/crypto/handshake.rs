//! Noise XX in three packets, with a responder that keeps no state before the third.
//!
//! The server's ephemeral key is a keyed hash of the SYN and the client's address. When the ACK
//! comes back it brings the SYN's Noise message along, the server repeats its own second message
//! and reads the third: a client that cannot receive at its address cannot have seen the second
//! message, so the same bytes validate the address and authenticate the client.

use super::dh::KeyPair;
use super::keys::{PublicKey, Secret, SecretRng, StaticKey};
use super::slots::SlotSecrets;
use crate::wire::{CID_LEN, COOKIE_LEN, TransportParams, VERSION, WireError};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use std::net::SocketAddr;
use zeroize::Zeroize;

const PATTERN: &str = "Noise_XX_25519_ChaChaPoly_BLAKE2s";
/// Room for any handshake message with its parameters.
const MESSAGE_MAX: usize = 1024;

/// The handshake cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// A message failed authentication or is malformed.
    #[error("handshake message refused: {0}")]
    Noise(#[from] snow::Error),
    /// The peer's parameters are malformed.
    #[error("handshake parameters refused: {0}")]
    Params(#[from] WireError),
    /// The server proved a key other than the one expected.
    #[error("the peer's key is {found}, expected {expected}")]
    WrongKey {
        /// The key that was expected.
        expected: PublicKey,
        /// The key that the peer proved.
        found: PublicKey,
    },
}

/// What a finished handshake leaves: secrets of both directions, the peer's key and parameters.
#[derive(Debug)]
pub struct SessionKeys {
    /// Protects what this side sends.
    pub send: Secret,
    /// Protects what this side receives.
    pub receive: Secret,
    /// What the application may have derived, see [`export`].
    pub exporter: Secret,
    /// The peer's static key, proven.
    pub peer: PublicKey,
    /// The peer's parameters, authenticated.
    pub params: TransportParams,
}

/// Snow's own primitives, except that randomness comes from our seeded generator, and X25519 from
/// aws-lc.
struct Seeded(Secret);

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(NoiseRng(SecretRng::new(&self.0, "noise"))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(KeyPair::default()) as Box<dyn Dh>)
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct NoiseRng(SecretRng);

impl Random for NoiseRng {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill(out);
        Ok(())
    }
}

// OutputReader holds only plain data; the trait asks for both.
fn builder<'a>(
    key: &'a StaticKey,
    seed: Secret,
    prologue: &'a [u8],
) -> Result<Builder<'a>, snow::Error> {
    let params: NoiseParams = PATTERN.parse()?;
    Builder::with_resolver(params, Box::new(Seeded(seed)))
        .local_private_key(key.secret())?
        .prologue(prologue)
}

/// Both sides must have seen the same version and client address ID, or the first tag fails.
fn prologue(client_cid: &[u8]) -> Vec<u8> {
    [b"dfcp".as_slice(), &VERSION.to_be_bytes(), client_cid].concat()
}

fn finish(
    mut noise: HandshakeState,
    params: TransportParams,
) -> Result<SessionKeys, HandshakeError> {
    let mut peer = [0; 32];
    peer.copy_from_slice(noise.get_remote_static().ok_or(snow::Error::State(
        snow::error::StateProblem::MissingKeyMaterial,
    ))?);
    let (initiator, responder) = noise.dangerously_get_raw_split();
    let (initiator, responder) = (Secret::from(initiator), Secret::from(responder));
    let exporter = exporter(&initiator, &responder, noise.get_handshake_hash());
    let (send, receive) = if noise.is_initiator() {
        (initiator, responder)
    } else {
        (responder, initiator)
    };
    Ok(SessionKeys {
        send,
        receive,
        exporter,
        peer: PublicKey(peer),
        params,
    })
}

/// A secret of its own beside those of packets, bound to all that was said in the handshake.
fn exporter(initiator: &Secret, responder: &Secret, transcript: &[u8]) -> Secret {
    let mut hasher = blake3::Hasher::new_derive_key("dfcp 2026 exporter");
    hasher.update(&initiator[..]);
    hasher.update(&responder[..]);
    hasher.update(transcript);
    let secret = Secret::from(*hasher.finalize().as_bytes());
    hasher.zeroize();
    secret
}

/// Key material for `label` and `context`, of any length.
pub fn export(exporter: &Secret, label: &[u8], context: &[u8]) -> blake3::OutputReader {
    let mut hasher = blake3::Hasher::new_keyed(exporter);
    // Their lengths keep what belongs to one apart from the other.
    for part in [label, context] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let material = hasher.finalize_xof();
    hasher.zeroize();
    material
}

/// The client's side.
pub struct ClientHandshake {
    noise: HandshakeState,
    /// First message, sent in the SYN and again in the ACK.
    pub message: [u8; 32],
}

impl ClientHandshake {
    /// Makes the first message.
    pub fn new(key: &StaticKey, client_cid: &[u8], seed: Secret) -> Result<Self, HandshakeError> {
        let prologue = prologue(client_cid);
        let mut noise = builder(key, seed, &prologue)?.build_initiator()?;
        // Snow wants room for a tag even where the pattern has none.
        let mut buffer = [0; 64];
        noise.write_message(&[], &mut buffer)?;
        let message = *buffer.first_chunk().expect("64 bytes hold 32");
        Ok(Self { noise, message })
    }

    /// Reads the SYNACK's message and makes the ACK's. The peer's key is checked against
    /// `expected` before anything of ours is revealed to it.
    pub fn finish(
        mut self,
        message: &[u8],
        expected: Option<PublicKey>,
        params: &TransportParams,
    ) -> Result<(Vec<u8>, SessionKeys), HandshakeError> {
        let mut payload = [0; MESSAGE_MAX];
        let len = self.noise.read_message(message, &mut payload)?;
        let peer_params = TransportParams::parse(&payload[..len])?;
        let found = self
            .noise
            .get_remote_static()
            .and_then(|k| k.try_into().ok())
            .map(PublicKey);
        if let (Some(expected), Some(found)) = (expected, found)
            && expected != found
        {
            return Err(HandshakeError::WrongKey { expected, found });
        }
        let mut reply = [0; MESSAGE_MAX];
        let len = self.noise.write_message(&params.emit(), &mut reply)?;
        Ok((reply[..len].to_vec(), finish(self.noise, peer_params)?))
    }
}

impl std::fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientHandshake")
    }
}

/// The facts of a SYN that a stateless answer depends on.
#[derive(Clone, Copy, Debug)]
pub struct SynFacts<'a> {
    /// Where it came from.
    pub remote: SocketAddr,
    /// Its connection ID.
    pub client_cid: &'a [u8],
    /// Its Noise message.
    pub message: &'a [u8; 32],
    /// Its datagram's size.
    pub syn_size: u16,
    /// Which two-minute slot the server answered in.
    pub slot: u32,
}

/// The server's side: secrets, no per-client state.
pub struct Responder {
    key: StaticKey,
    slots: SlotSecrets,
}

impl Responder {
    /// Answers with `key`; ephemeral keys and cookies come from secrets that `rng` gives.
    pub fn new(key: StaticKey, rng: SecretRng) -> Self {
        let slots = SlotSecrets::new(rng);
        Self { key, slots }
    }

    /// A client asks in slot `now`, which needs a secret.
    pub fn begin(&mut self, now: u32) {
        self.slots.draw(now);
    }

    /// It is slot `now`: secrets that are too old are wiped.
    pub fn forget_before(&mut self, now: u32) {
        self.slots.forget_before(now);
    }

    /// The slot before which there is nothing to wipe.
    pub fn next_forget(&self) -> Option<u32> {
        self.slots.oldest().map(|slot| slot.saturating_add(2))
    }

    /// Bytes that depend on the slot's secret and on everything in `syn`; none once it is wiped.
    fn derive<const N: usize>(&self, label: &str, syn: &SynFacts<'_>) -> Option<[u8; N]> {
        let mut hasher = blake3::Hasher::new_keyed(self.slots.of(syn.slot)?);
        hasher.update(label.as_bytes());
        match syn.remote.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => hasher.update(&ip.octets()),
            std::net::IpAddr::V6(ip) => hasher.update(&ip.octets()),
        };
        hasher.update(&syn.remote.port().to_be_bytes());
        hasher.update(&syn.slot.to_be_bytes());
        hasher.update(&syn.syn_size.to_be_bytes());
        hasher.update(syn.message);
        hasher.update(syn.client_cid);
        let mut out = [0; N];
        hasher.finalize_xof().fill(&mut out);
        hasher.zeroize();
        Some(out)
    }

    /// The connection ID that this server gives the client of `syn`.
    pub fn connection_id(&self, syn: &SynFacts<'_>) -> Option<[u8; CID_LEN]> {
        self.derive("cid", syn)
    }

    /// The cookie for `syn`.
    pub fn cookie(&self, syn: &SynFacts<'_>) -> Option<[u8; COOKIE_LEN]> {
        self.derive("cookie", syn)
    }

    /// What a SYN must bring along while the server is busy: a hash of who asks from where. The
    /// size is left out, as it changes from SYN to SYN.
    pub fn retry_cookie(&self, syn: &SynFacts<'_>) -> Option<[u8; COOKIE_LEN]> {
        let syn_size = 0;
        self.derive("retry", &SynFacts { syn_size, ..*syn })
    }

    /// Whether `cookie` is what [`retry_cookie`](Self::retry_cookie) gave in this slot or the last.
    pub fn proves_address(&self, syn: &SynFacts<'_>, cookie: &[u8; COOKIE_LEN]) -> bool {
        let slots = [Some(syn.slot), syn.slot.checked_sub(1)];
        let asked = |slot| self.retry_cookie(&SynFacts { slot, ..*syn });
        let mut asked = slots.into_iter().flatten().filter_map(asked);
        // Nobody is asked for zeros.
        cookie != &[0; COOKIE_LEN] && asked.any(|asked| same(&asked, cookie))
    }

    /// Whether an ACK may be what answers our SYNACK: its cookie and our connection ID in it are
    /// what `syn` gives. Costs two hashes; what is refused here came from nobody who got that SYNACK.
    pub fn is_expected(
        &self,
        syn: &SynFacts<'_>,
        cookie: &[u8; COOKIE_LEN],
        server_cid: &[u8; CID_LEN],
    ) -> bool {
        self.cookie(syn).is_some_and(|ours| same(&ours, cookie))
            && self.connection_id(syn) == Some(*server_cid)
    }

    /// The second message: the same bytes for the same `syn` and `params`.
    fn respond(
        &self,
        syn: &SynFacts<'_>,
        params: &TransportParams,
    ) -> Result<(HandshakeState, Vec<u8>), HandshakeError> {
        let prologue = prologue(syn.client_cid);
        let seed = self.derive("ephemeral", syn).ok_or(snow::Error::Rng)?;
        let seed = Secret::from(seed);
        let mut noise = builder(&self.key, seed, &prologue)?.build_responder()?;
        noise.read_message(syn.message, &mut [0; MESSAGE_MAX])?;
        let mut reply = [0; MESSAGE_MAX];
        let len = noise.write_message(&params.emit(), &mut reply)?;
        Ok((noise, reply[..len].to_vec()))
    }

    /// The Noise message of a SYNACK.
    pub fn synack(
        &self,
        syn: &SynFacts<'_>,
        params: &TransportParams,
    ) -> Result<Vec<u8>, HandshakeError> {
        self.respond(syn, params).map(|(_, message)| message)
    }

    /// Checks the whole exchange of an expected ACK, and gives the session's keys.
    pub fn accept(
        &self,
        syn: &SynFacts<'_>,
        params: &TransportParams,
        message: &[u8],
    ) -> Result<SessionKeys, HandshakeError> {
        let (mut noise, _) = self.respond(syn, params)?;
        let mut payload = [0; MESSAGE_MAX];
        let len = noise.read_message(message, &mut payload)?;
        finish(noise, TransportParams::parse(&payload[..len])?)
    }
}

/// Compares in constant time, as blake3::Hash does.
fn same(a: &[u8; COOKIE_LEN], b: &[u8; COOKIE_LEN]) -> bool {
    blake3::Hash::from_bytes(pad(*a)) == blake3::Hash::from_bytes(pad(*b))
}

fn pad(cookie: [u8; COOKIE_LEN]) -> [u8; 32] {
    let mut out = [0; 32];
    out[..COOKIE_LEN].copy_from_slice(&cookie);
    out
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Responder({})", self.key.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ConnectionId, RESET_KEY_LEN};

    const SLOT: u32 = 7;
    const CID: [u8; CID_LEN] = [3; CID_LEN];

    fn key(name: &str) -> StaticKey {
        StaticKey::generate(&mut SecretRng::new(&[4; 32], name))
    }

    fn params() -> TransportParams {
        TransportParams {
            cid: ConnectionId([5; CID_LEN]),
            reset_key: [6; RESET_KEY_LEN],
            max_datagram: 1200,
            max_data: 1,
            max_stream_data: 1,
            max_channels: 1,
            idle_timeout_ms: 1,
            schemes: 1,
            feedback: 0,
            receive_packets: 0,
            round_trip_us: 0,
            max_block_symbols: 1,
            application: 0,
            synack_size: 0,
        }
    }

    fn responder() -> Responder {
        let mut responder = Responder::new(key("server"), SecretRng::new(&[8; 32], "responder"));
        responder.begin(SLOT);
        responder
    }

    fn facts<'a>(message: &'a [u8; 32], client_cid: &'a [u8]) -> SynFacts<'a> {
        SynFacts {
            remote: ([192, 0, 2, 1], 5000).into(),
            client_cid,
            message,
            syn_size: 1200,
            slot: SLOT,
        }
    }

    /// What differs from `syn` in one fact each, the size of the SYN aside.
    fn others<'a>(syn: &SynFacts<'a>, message: &'a [u8; 32], cid: &'a [u8]) -> [SynFacts<'a>; 4] {
        [
            SynFacts {
                remote: ([192, 0, 2, 2], 5000).into(),
                ..*syn
            },
            SynFacts {
                remote: ([192, 0, 2, 1], 5001).into(),
                ..*syn
            },
            SynFacts { message, ..*syn },
            SynFacts {
                client_cid: cid,
                ..*syn
            },
        ]
    }

    fn client() -> ClientHandshake {
        ClientHandshake::new(&key("client"), &CID, Secret::from([1; 32])).expect("a first message")
    }

    #[test]
    fn both_sides_get_the_same_secrets_and_each_other_s_keys() {
        let (client, responder) = (client(), responder());
        let message = client.message;
        let syn = facts(&message, &CID);
        let synack = responder.synack(&syn, &params()).expect("an answer");
        assert_eq!(responder.synack(&syn, &params()).expect("again"), synack);
        let expected = Some(key("server").public());
        let (ack, ours) = client.finish(&synack, expected, &params()).expect("good");
        let theirs = responder.accept(&syn, &params(), &ack).expect("good");
        assert_eq!(*ours.send, *theirs.receive);
        assert_eq!(*ours.receive, *theirs.send);
        assert_ne!(*ours.send, *ours.receive);
        assert_eq!(*ours.exporter, *theirs.exporter);
        for key in [&ours.send, &ours.receive] {
            assert_ne!(*ours.exporter, **key);
        }
        assert_eq!(ours.peer, key("server").public());
        assert_eq!(theirs.peer, key("client").public());
        assert_eq!((ours.params, theirs.params), (params(), params()));
    }

    #[test]
    fn every_handshake_has_secrets_of_its_own() {
        let responder = responder();
        let keys = [1, 2].map(|seed| {
            let seed = Secret::from([seed; 32]);
            let client = ClientHandshake::new(&key("client"), &CID, seed).expect("a first message");
            let message = client.message;
            let synack = responder.synack(&facts(&message, &CID), &params());
            let synack = synack.expect("an answer");
            // Behind a new ephemeral key everything is encrypted anew.
            let finished = client.finish(&synack, None, &params()).expect("good");
            (message, synack[..32].to_vec(), finished.1)
        });
        let [(message, synack, one), (other_message, other_synack, other)] = keys;
        assert_ne!(message, other_message);
        assert_ne!(synack, other_synack, "the server's ephemeral key");
        assert_ne!(*one.send, *other.send);
        assert_ne!(*one.receive, *other.receive);
        assert_ne!(*one.exporter, *other.exporter);
    }

    #[test]
    fn a_handshake_whose_connection_id_was_changed_under_way_fails() {
        let (client, responder) = (client(), responder());
        let message = client.message;
        let syn = facts(&message, &[9; CID_LEN]);
        let synack = responder.synack(&syn, &params()).expect("an answer");
        let finished = client.finish(&synack, None, &params());
        assert!(matches!(finished, Err(HandshakeError::Noise(_))));
    }

    #[test]
    fn another_key_than_expected_gets_nothing() {
        let (client, responder) = (client(), responder());
        let message = client.message;
        let synack = responder.synack(&facts(&message, &CID), &params());
        let (expected, found) = (key("other").public(), key("server").public());
        let finished = client.finish(&synack.expect("an answer"), Some(expected), &params());
        let Err(HandshakeError::WrongKey {
            expected: e,
            found: f,
        }) = finished
        else {
            panic!("{finished:?}")
        };
        assert_eq!((e, f), (expected, found));
    }

    #[test]
    fn a_retry_cookie_is_of_who_asks_from_where_and_of_two_slots() {
        let mut responder = responder();
        let (message, other) = ([1; 32], [2; 32]);
        let syn = facts(&message, &CID);
        let cookie = responder.retry_cookie(&syn).expect("the slot has begun");
        // SYNs get smaller while no answer comes.
        let small = SynFacts {
            syn_size: 600,
            ..syn
        };
        assert!(
            responder.proves_address(&syn, &cookie) && responder.proves_address(&small, &cookie)
        );
        for wrong in others(&syn, &other, &[9; CID_LEN]) {
            assert!(!responder.proves_address(&wrong, &cookie), "{wrong:?}");
        }
        assert!(!responder.proves_address(&syn, &[0; COOKIE_LEN]));
        let at = |slot| SynFacts { slot, ..syn };
        for (slot, good) in [(SLOT + 1, true), (SLOT + 2, false)] {
            responder.begin(slot);
            assert_eq!(responder.proves_address(&at(slot), &cookie), good);
        }
    }

    #[test]
    fn an_ack_is_expected_from_whom_the_synack_went_to() {
        let responder = responder();
        let (message, other) = ([1; 32], [2; 32]);
        let syn = facts(&message, &CID);
        let cookie = responder.cookie(&syn).expect("the slot has begun");
        let cid = responder.connection_id(&syn).expect("the slot has begun");
        assert!(responder.is_expected(&syn, &cookie, &cid));
        let mapped = SynFacts {
            remote: "[::ffff:192.0.2.1]:5000".parse().expect("an address"),
            ..syn
        };
        assert!(responder.is_expected(&mapped, &cookie, &cid), "the same");
        let resized = SynFacts {
            syn_size: 1201,
            ..syn
        };
        for wrong in others(&syn, &other, &[9; CID_LEN])
            .into_iter()
            .chain([resized])
        {
            assert!(!responder.is_expected(&wrong, &cookie, &cid), "{wrong:?}");
        }
        assert!(!responder.is_expected(&syn, &[0; COOKIE_LEN], &cid));
        assert!(!responder.is_expected(&syn, &cookie, &[0; CID_LEN]));
        // What one secret gives for one purpose is of no use for another.
        assert_ne!(responder.retry_cookie(&syn), Some(cookie));
    }

    #[test]
    fn nothing_comes_of_a_slot_whose_secret_was_wiped() {
        let mut responder = responder();
        let message = [1; 32];
        let syn = facts(&message, &CID);
        assert_eq!(responder.next_forget(), Some(SLOT + 2));
        responder.forget_before(SLOT + 1);
        assert!(responder.cookie(&syn).is_some());
        responder.forget_before(SLOT + 2);
        assert!(responder.cookie(&syn).is_none() && responder.connection_id(&syn).is_none());
        assert!(responder.synack(&syn, &params()).is_err());
        assert_eq!(responder.next_forget(), None);
    }
}
