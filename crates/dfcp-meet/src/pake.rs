//! From the words to keys: SPAKE2 over Ed25519 (the crate `spake2`), explicit key confirmation, and
//! the introductions that the two sides seal under what it yields.
//!
//! One run tests one guess: whoever does not know the words learns from a run whether its one guess
//! was right, and nothing that would let it test others afterwards. The receiver confirms first, so
//! that a sender answers nothing that a guess could be tested with before it has counted the guess.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use dfcp_proto::{PublicKey, SecretRng};
use rand_core::{CryptoRng, RngCore};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use crate::code::Words;
use crate::wire::{ADDRESS_LEN, Id, PAKE_LEN, Probe, ProbeKind, Reader, put_address};

/// Addresses that an introduction names at most.
pub const MAX_CANDIDATES: usize = 8;
/// Bytes of a confirmation.
const CONFIRM_LEN: usize = 32;
/// Separates this use of the hash from all others.
const CONTEXT: &str = "dfcp 2026 meeting v1";

/// Which side of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who made the code.
    Sender,
    /// Who typed it.
    Receiver,
}

/// Where an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    /// An interface has it.
    Local,
    /// A server saw it.
    Seen,
}

/// An address at which a side may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address.
    pub address: SocketAddr,
    /// Where it comes from.
    pub kind: CandidateKind,
}

impl Candidate {
    /// Whether something could be sent there at all. A peer may name what it likes.
    fn is_possible(&self) -> bool {
        let broadcast = matches!(self.address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
        let ip = self.address.ip();
        !(ip.is_unspecified() || ip.is_multicast() || broadcast || self.address.port() == 0)
    }
}

/// What a side says of itself, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its dfcp key: the transfer runs between the two that were named here.
    pub key: PublicKey,
    /// Where to look for it.
    pub candidates: Vec<Candidate>,
}

impl Introduction {
    fn encode(&self) -> Vec<u8> {
        let candidates = &self.candidates[..self.candidates.len().min(MAX_CANDIDATES)];
        let mut out = self.key.0.to_vec();
        out.push(candidates.len() as u8);
        for candidate in candidates {
            out.push(u8::from(candidate.kind == CandidateKind::Seen));
            put_address(&mut out, candidate.address);
        }
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        let key = PublicKey(r.array()?);
        let count = usize::from(r.u8()?);
        if count > MAX_CANDIDATES || r.0.len() != count * (1 + ADDRESS_LEN) {
            return None;
        }
        let mut candidates = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = match r.u8()? {
                0 => CandidateKind::Local,
                _ => CandidateKind::Seen,
            };
            let address = r.address()?;
            candidates.push(Candidate { address, kind });
        }
        candidates.retain(Candidate::is_possible);
        Some(Self { key, candidates })
    }
}

/// The generator in the form that the crate takes.
struct Draw<'a>(&'a mut SecretRng);

impl CryptoRng for Draw<'_> {}

impl RngCore for Draw<'_> {
    fn next_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.0.array())
    }

    fn next_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.0.array())
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), rand_core::Error> {
        self.0.fill(out);
        Ok(())
    }
}

/// What a run is about, and the words.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Whose run it is.
    pub side: Side,
    /// The session, named by the sender.
    pub session: &'a Id,
    /// The attempt, named by the receiver.
    pub attempt: &'a Id,
    /// The secret.
    pub words: &'a Words,
}

/// A run of the key exchange that waits for the other side's message.
pub struct Exchange {
    side: Side,
    state: Spake2<Ed25519Group>,
    own: [u8; PAKE_LEN],
    about: [u8; 32],
}

impl Exchange {
    /// Begins a run.
    pub fn start(run: Run<'_>, rng: &mut SecretRng) -> Self {
        let password = Password::new(run.words.text());
        let name = |role: &str| Identity::new(&[role.as_bytes(), run.session].concat());
        let (receiver, sender) = (name("dfcp receiver "), name("dfcp sender "));
        let start = match run.side {
            Side::Receiver => Spake2::<Ed25519Group>::start_a_with_rng,
            Side::Sender => Spake2::<Ed25519Group>::start_b_with_rng,
        };
        let (state, message) = start(&password, &receiver, &sender, Draw(rng));
        let own = message
            .try_into()
            .expect("a byte for the side and a point of 32");
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(run.session).update(run.attempt);
        Self {
            side: run.side,
            state,
            own,
            about: *hasher.finalize().as_bytes(),
        }
    }

    /// This side's message.
    pub fn message(&self) -> [u8; PAKE_LEN] {
        self.own
    }

    /// The keys; `None` if the other side's message is not one. Keys that differ from the other
    /// side's show only when something sealed arrives.
    pub fn finish(self, theirs: &[u8; PAKE_LEN]) -> Option<Keys> {
        let secret = Zeroizing::new(self.state.finish(theirs).ok()?);
        let (receiver, sender) = match self.side {
            Side::Receiver => (&self.own, theirs),
            Side::Sender => (theirs, &self.own),
        };
        // The crate hashes words, names and both messages into its secret; the session, the
        // attempt and the messages enter here again, so that this does not rest on it.
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&secret).update(&self.about);
        hasher.update(receiver).update(sender);
        let mut stream = hasher.finalize_xof();
        let mut draw = || {
            let mut key = Zeroizing::new([0; 32]);
            stream.fill(&mut key[..]);
            key
        };
        let mut side = || SideKeys {
            confirm: draw(),
            seal: draw(),
            probe: draw(),
        };
        let (receiver, sender) = (side(), side());
        let token = *draw().first_chunk().expect("16 of 32 bytes");
        let (own, peer) = match self.side {
            Side::Receiver => (receiver, sender),
            Side::Sender => (sender, receiver),
        };
        Some(Keys { own, peer, token })
    }
}

struct SideKeys {
    confirm: Zeroizing<[u8; 32]>,
    seal: Zeroizing<[u8; 32]>,
    probe: Zeroizing<[u8; 32]>,
}

/// What a run of the key exchange gave.
pub struct Keys {
    own: SideKeys,
    peer: SideKeys,
    token: Id,
}

/// The same nonce always: each key seals one introduction.
const ONCE: [u8; 12] = [0; 12];

impl Keys {
    fn cipher(key: &[u8; 32]) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key);
        LessSafeKey::new(key.expect("32 bytes are a key"))
    }

    /// Seals this side's introduction; call it once. In front stands a keyed hash of the sealed
    /// bytes, which, unlike the cipher's tag, belongs to one key only.
    pub fn seal(&self, introduction: &Introduction) -> Vec<u8> {
        let mut bytes = introduction.encode();
        Self::cipher(&self.own.seal)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(ONCE), Aad::empty(), &mut bytes)
            .expect("far below the cipher's limit");
        let confirm = blake3::keyed_hash(&self.own.confirm, &bytes);
        [&confirm.as_bytes()[..], &bytes].concat()
    }

    /// The other side's introduction; `None` if its words are not these.
    pub fn open(&self, sealed: &[u8]) -> Option<Introduction> {
        let (confirm, bytes) = sealed.split_first_chunk::<CONFIRM_LEN>()?;
        // Equality of these takes the same time wherever they differ.
        if blake3::keyed_hash(&self.peer.confirm, bytes) != *confirm {
            return None;
        }
        let mut bytes = bytes.to_vec();
        let opened = Self::cipher(&self.peer.seal)
            .open_in_place(Nonce::assume_unique_for_key(ONCE), Aad::empty(), &mut bytes)
            .ok()?;
        Introduction::parse(opened)
    }

    /// Names the relayed path between the two.
    pub fn relay_token(&self) -> Id {
        self.token
    }

    /// A probe of this side.
    pub fn probe(&self, kind: ProbeKind, nonce: u64) -> Probe {
        let mac = mac(&self.own.probe, kind, nonce);
        let mac = *mac.as_bytes().first_chunk().expect("16 of 32 bytes");
        Probe { kind, nonce, mac }
    }

    /// Whether the other side made this probe.
    pub fn is_genuine(&self, probe: &Probe) -> bool {
        let mac = mac(&self.peer.probe, probe.kind, probe.nonce);
        aws_lc_rs::constant_time::verify_slices_are_equal(&mac.as_bytes()[..16], &probe.mac).is_ok()
    }
}

fn mac(key: &[u8; 32], kind: ProbeKind, nonce: u64) -> blake3::Hash {
    let mut input = [kind.byte(); 9];
    input[1..].copy_from_slice(&nonce.to_be_bytes());
    blake3::keyed_hash(key, &input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    fn words(text: &str) -> Words {
        text.parse::<Code>().unwrap().words
    }

    fn run(sender: (&str, Id), receiver: (&str, Id), rng: &mut SecretRng) -> (Keys, Keys) {
        let start = |side, (text, session): (&str, Id), rng: &mut SecretRng| {
            let (attempt, words) = (&[9; 16], &words(text));
            let run = Run {
                side,
                session: &session,
                attempt,
                words,
            };
            Exchange::start(run, rng)
        };
        let a = start(Side::Receiver, receiver, rng);
        let b = start(Side::Sender, sender, rng);
        let (ma, mb) = (a.message(), b.message());
        (b.finish(&ma).unwrap(), a.finish(&mb).unwrap())
    }

    fn introduction() -> Introduction {
        let at = |text: &str, kind| Candidate {
            address: text.parse().unwrap(),
            kind,
        };
        Introduction {
            key: PublicKey([5; 32]),
            candidates: vec![
                at("192.0.2.1:5", CandidateKind::Local),
                at("[2001:db8::1]:6", CandidateKind::Seen),
            ],
        }
    }

    #[test]
    fn the_same_words_introduce_and_others_do_not() {
        let mut rng = SecretRng::new(&[1; 32], "pake, seed 1");
        let (sender, receiver) = run(
            ("7-otter-lamp", [1; 16]),
            ("7-otter-lamp", [1; 16]),
            &mut rng,
        );
        let said = introduction();
        assert_eq!(receiver.open(&sender.seal(&said)), Some(said.clone()));
        assert_eq!(sender.open(&receiver.seal(&said)), Some(said.clone()));
        assert_eq!(sender.relay_token(), receiver.relay_token());
        // What a side said does not come back to it as the other's.
        assert_eq!(sender.open(&sender.seal(&said)), None);
        let mut sealed = sender.seal(&said);
        for at in 0..sealed.len() {
            sealed[at] ^= 1;
            assert_eq!(receiver.open(&sealed), None, "byte {at}");
            sealed[at] ^= 1;
        }
        for other in [("7-otter-lump", [1; 16]), ("7-otter-lamp", [2; 16])] {
            let (sender, receiver) = run(("7-otter-lamp", [1; 16]), other, &mut rng);
            assert_eq!(receiver.open(&sender.seal(&said)), None, "{other:?}");
            assert_eq!(sender.open(&receiver.seal(&said)), None, "{other:?}");
            assert_ne!(sender.relay_token(), receiver.relay_token());
        }
    }

    #[test]
    fn probes_are_believed_from_the_other_side_only() {
        let mut rng = SecretRng::new(&[2; 32], "pake, seed 2");
        let code = ("7-otter-lamp", [1; 16]);
        let (sender, receiver) = run(code, code, &mut rng);
        let probe = sender.probe(ProbeKind::Probe, 77);
        assert!(receiver.is_genuine(&probe) && !sender.is_genuine(&probe));
        for forged in [
            Probe { nonce: 78, ..probe },
            Probe {
                kind: ProbeKind::Chosen,
                ..probe
            },
            Probe {
                mac: [0; 16],
                ..probe
            },
        ] {
            assert!(!receiver.is_genuine(&forged), "{forged:?}");
        }
    }

    #[test]
    fn what_is_no_point_or_of_the_wrong_side_is_refused() {
        let mut rng = SecretRng::new(&[3; 32], "pake, seed 3");
        let words = words("7-otter-lamp");
        for round in 0..200 {
            let (session, attempt) = (&[1; 16], &[2; 16]);
            let run = Run {
                side: Side::Sender,
                session,
                attempt,
                words: &words,
            };
            let exchange = Exchange::start(run, &mut rng);
            let mut message: [u8; PAKE_LEN] = rng.array();
            if round % 2 == 0 {
                message = exchange.message(); // its own, thrown back
                assert!(exchange.finish(&message).is_none());
            } else {
                message[0] = 0x41;
                let _ = exchange.finish(&message); // about half of all strings are points
            }
        }
    }

    #[test]
    fn addresses_that_nobody_has_are_left_out() {
        let mut said = introduction();
        for bad in [
            "0.0.0.0:5",
            "255.255.255.255:5",
            "224.0.0.1:5",
            "[ff02::1]:5",
            "192.0.2.1:0",
        ] {
            said.candidates[0].address = bad.parse().unwrap();
            let read = Introduction::parse(&said.encode()).unwrap();
            assert_eq!(read.candidates, said.candidates[1..], "{bad}");
        }
        for len in 0..said.encode().len() {
            assert_eq!(Introduction::parse(&said.encode()[..len]), None);
        }
    }
}
