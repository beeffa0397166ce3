//! Resets: how an endpoint that lost a connection's state proves so to the peer.
//!
//! In the handshake each side tells the other a key, which it can make again at any time from its
//! static key, the place where it runs, and the connection's ID. A reset carries a token made with
//! that key over the tag of the packet that it answers. Nobody can guess the tag of a packet that was
//! not made yet, so a token says: after this packet was made, the peer did not know the connection.

use super::keys::StaticKey;
use crate::wire::{ConnectionId, RESET_KEY_LEN, RESET_TOKEN_LEN, TAG_LEN};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The key of one connection.
pub type ResetKey = [u8; RESET_KEY_LEN];

/// What a reset proves itself with, when it answers a packet that ends with `tag`.
pub fn reset_token(key: &ResetKey, tag: &[u8; TAG_LEN]) -> [u8; RESET_TOKEN_LEN] {
    let mut hasher = blake3::Hasher::new_derive_key("dfcp 2026 reset token");
    hasher.update(key).update(tag);
    first(&hasher)
}

/// From which an endpoint makes the keys of all its connections.
pub(crate) struct ResetSecret([u8; 32]);

impl ResetSecret {
    /// `place` is the same after a restart and differs between endpoints with the same static key.
    pub fn new(key: &StaticKey, place: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dfcp 2026 reset key");
        hasher.update(key.secret()).update(place);
        Self(*hasher.finalize().as_bytes())
    }

    /// Whoever sends a packet from another address than the peer's learns another key's token, which
    /// is of no use to him.
    pub fn key(&self, cid: ConnectionId, peer: SocketAddr) -> ResetKey {
        let ip = match peer.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&cid.0).update(&ip.octets());
        hasher.update(&peer.port().to_be_bytes());
        first(&hasher)
    }
}

impl fmt::Debug for ResetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetSecret")
    }
}

fn first<const N: usize>(hasher: &blake3::Hasher) -> [u8; N] {
    let mut out = [0; N];
    hasher.finalize_xof().fill(&mut out);
    out
}

/// Tags that are kept. A sender whose packets are not acknowledged stops, and then probes, two
/// packets at a time, four times a second or once in a round trip: the probes of some round trips.
const KEPT: usize = 16;

/// The tags of the newest packets that were sent.
#[derive(Default)]
pub(crate) struct RecentTags {
    tags: [[u8; TAG_LEN]; KEPT],
    count: usize,
}

impl fmt::Debug for RecentTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecentTags({})", self.count)
    }
}

impl RecentTags {
    /// Remembers a sealed packet.
    pub fn push(&mut self, packet: &[u8]) {
        if let Some(tag) = packet.last_chunk() {
            self.tags[self.count % KEPT] = *tag;
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Whether the token answers one of them.
    pub fn prove(&self, key: &ResetKey, token: &[u8; RESET_TOKEN_LEN]) -> bool {
        let token = blake3::hash(token);
        let mut tags = self.tags.iter().take(self.count);
        // blake3::Hash compares in constant time.
        tags.any(|tag| blake3::hash(&reset_token(key, tag)) == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SecretRng;
    use crate::wire::CID_LEN;

    fn key(name: &str) -> StaticKey {
        StaticKey::generate(&mut SecretRng::new(&[9; 32], name))
    }

    #[test]
    fn a_key_is_of_one_identity_place_connection_and_address() {
        let at = |last: u8, port: u16| SocketAddr::from(([10, 0, 0, last], port));
        let make = |name: &str, place: &[u8], cid: u8, from: SocketAddr| {
            ResetSecret::new(&key(name), place).key(ConnectionId([cid; CID_LEN]), from)
        };
        let own = make("a", b"one", 1, at(1, 5000));
        assert_eq!(own, make("a", b"one", 1, at(1, 5000)), "after a restart");
        let mapped = "[::ffff:10.0.0.1]:5000".parse().expect("an address");
        assert_eq!(own, make("a", b"one", 1, mapped));
        for other in [
            make("b", b"one", 1, at(1, 5000)),
            make("a", b"two", 1, at(1, 5000)),
            make("a", b"one", 2, at(1, 5000)),
            make("a", b"one", 1, at(2, 5000)),
            make("a", b"one", 1, at(1, 5001)),
        ] {
            assert_ne!(own, other);
        }
    }

    /// The test vector of docs/spec/wire.md.
    #[test]
    fn a_token_is_that_of_the_specification() {
        let key = std::array::from_fn(|i| i as u8);
        let tag = std::array::from_fn(|i| 0xf0 + i as u8);
        let token = reset_token(&key, &tag);
        let expected = 0xca0c_366b_a51f_7751_a8e2_492a_d8b9_93b2;
        assert_eq!(u128::from_be_bytes(token), expected, "{token:02x?}");
    }

    #[test]
    fn a_token_answers_one_of_the_newest_packets() {
        let key = [7; RESET_KEY_LEN];
        let packet = |n: u8| [n; 30];
        let token = |n: u8| reset_token(&key, &[n; TAG_LEN]);
        let mut sent = RecentTags::default();
        assert!(!sent.prove(&key, &token(0)), "nothing was sent");
        for n in 0..=KEPT as u8 {
            sent.push(&packet(n));
        }
        assert!(!sent.prove(&key, &token(0)), "forgotten");
        assert!((1..=KEPT as u8).all(|n| sent.prove(&key, &token(n))));
        assert!(!sent.prove(&[8; RESET_KEY_LEN], &token(1)), "another key");
        assert!(!sent.prove(&key, &token(40)), "not sent yet");
    }
}
