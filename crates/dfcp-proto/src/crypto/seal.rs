//! AES-256-GCM packet protection. The nonce is the packet number; the header is authenticated.
//!
//! Keys change every 2²² packets without a message: the epoch is the packet number shifted right,
//! and each key is derived one way from the one before, so neither GCM's limits (RFC 9001 §6.6)
//! nor a long transfer need a negotiation.

use crate::wire::TAG_LEN;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fmt;
use zeroize::Zeroizing;

/// log₂ of the packets protected with one key.
pub const EPOCH_BITS: u32 = 22;

/// The packet cannot be opened: forged, damaged, or too far from what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenError;

struct Epoch {
    number: u64,
    secret: Zeroizing<[u8; 32]>,
    key: LessSafeKey,
}

impl Epoch {
    fn new(number: u64, secret: Zeroizing<[u8; 32]>) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &secret[..]).expect("a 32-byte key fits AES-256");
        Self {
            number,
            secret,
            key: LessSafeKey::new(key),
        }
    }

    fn next(&self) -> Self {
        let secret = blake3::derive_key("dfcp 2026 packet key update", &self.secret[..]);
        Self::new(self.number + 1, Zeroizing::new(secret))
    }
}

fn nonce(packet_number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&packet_number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Protects outgoing packets.
pub struct Sealer(Epoch);

impl Sealer {
    /// Starts with the key from the handshake.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(Epoch::new(0, Zeroizing::new(secret)))
    }

    /// Encrypts `packet[header_len..]` in place and appends the tag. Packet numbers must ascend.
    pub fn seal(
        &mut self,
        packet_number: u64,
        packet: &mut Vec<u8>,
        start: usize,
        header_len: usize,
    ) {
        while packet_number >> EPOCH_BITS > self.0.number {
            self.0 = self.0.next();
        }
        let (header, body) = packet[start..].split_at_mut(header_len);
        let tag = self
            .0
            .key
            .seal_in_place_separate_tag(nonce(packet_number), Aad::from(&*header), body)
            .expect("a datagram is far below GCM's length limit");
        packet.extend_from_slice(tag.as_ref());
    }
}

/// Opens incoming packets; keeps the key before and the key after the current one.
pub struct Opener {
    previous: Option<Epoch>,
    current: Epoch,
    next: Epoch,
}

impl Opener {
    /// Starts with the key from the handshake.
    pub fn new(secret: [u8; 32]) -> Self {
        let current = Epoch::new(0, Zeroizing::new(secret));
        let next = current.next();
        Self {
            previous: None,
            current,
            next,
        }
    }

    /// Decrypts in place and returns the frames.
    pub fn open<'a>(
        &mut self,
        packet_number: u64,
        packet: &'a mut [u8],
        header_len: usize,
    ) -> Result<&'a mut [u8], OpenError> {
        let epoch = packet_number >> EPOCH_BITS;
        let key = [
            Some(&self.current),
            Some(&self.next),
            self.previous.as_ref(),
        ]
        .into_iter()
        .flatten()
        .find(|e| e.number == epoch)
        .ok_or(OpenError)?;
        let (header, body) = packet.split_at_mut_checked(header_len).ok_or(OpenError)?;
        let len = body.len().checked_sub(TAG_LEN).ok_or(OpenError)?;
        key.key
            .open_in_place(nonce(packet_number), Aad::from(&*header), body)
            .map_err(|_| OpenError)?;
        if epoch == self.next.number {
            let next = self.next.next();
            let current = std::mem::replace(&mut self.next, next);
            self.previous = Some(std::mem::replace(&mut self.current, current));
        }
        Ok(&mut body[..len])
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer(epoch {})", self.0.number)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener(epoch {})", self.current.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(sealer: &mut Sealer, pn: u64) -> Vec<u8> {
        let mut packet = b"headbody".to_vec();
        sealer.seal(pn, &mut packet, 0, 4);
        packet
    }

    #[test]
    fn a_changed_header_body_or_number_is_refused() {
        let mut opener = Opener::new([7; 32]);
        let packet = seal(&mut Sealer::new([7; 32]), 3);
        for i in 0..packet.len() {
            let mut bad = packet.clone();
            bad[i] ^= 1;
            assert_eq!(opener.open(3, &mut bad, 4), Err(OpenError), "byte {i}");
        }
        assert_eq!(opener.open(4, &mut packet.clone(), 4), Err(OpenError));
        assert_eq!(
            opener.open(3, &mut packet.clone(), 4),
            Ok(&mut b"body".to_vec()[..])
        );
    }

    #[test]
    fn keys_follow_the_packet_number_across_epochs_with_reordering() {
        let (mut sealer, mut opener) = (Sealer::new([1; 32]), Opener::new([1; 32]));
        let edge = 1 << EPOCH_BITS;
        let (mut late, mut early) = (seal(&mut sealer, edge - 1), seal(&mut sealer, edge));
        assert!(opener.open(edge, &mut early, 4).is_ok());
        assert!(
            opener.open(edge - 1, &mut late, 4).is_ok(),
            "reordered over the edge"
        );
        let mut far = seal(&mut sealer, 3 * edge);
        assert_eq!(
            opener.open(3 * edge, &mut far, 4),
            Err(OpenError),
            "two epochs ahead"
        );
    }
}
