//! AES-256-GCM packet protection. The nonce is the packet number; the header is authenticated.
//!
//! A sender goes on to the next key after 2²² packets or two minutes, whichever is first, without a
//! message: two bits of the header name the key (RFC 9001 §6 has one), and each key is derived one way
//! from the one before. So neither GCM's limits (RFC 9001 §6.6) nor a long transfer need a
//! negotiation, and who learns a key cannot read what is older.

use super::keys::Secret;
use crate::time::{Duration, Instant};
use crate::wire::TAG_LEN;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use std::fmt;

/// log₂ of the packets protected with one key, half of what RFC 9001 §6.6 allows.
pub const EPOCH_BITS: u32 = 22;
/// How long a key is used (WireGuard's REKEY_AFTER_TIME).
const KEY_LIFE: Duration = Duration::from_secs(120);
/// Bits of the first byte that say which key it is.
const PHASES: u8 = 0b11;

/// The packet cannot be opened: forged, damaged, or too far from what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenError;

struct Epoch {
    number: u64,
    secret: Secret,
    key: LessSafeKey,
}

impl Epoch {
    fn new(number: u64, secret: Secret) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &secret[..]).expect("a 32-byte key fits AES-256");
        Self {
            number,
            secret,
            key: LessSafeKey::new(key),
        }
    }

    fn next(&self) -> Self {
        let secret = blake3::derive_key("dfcp 2026 packet key update", &self.secret[..]);
        Self::new(self.number + 1, Secret::from(secret))
    }

    fn phase(&self) -> u8 {
        self.number as u8 & PHASES
    }
}

fn nonce(packet_number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&packet_number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Protects outgoing packets.
pub struct Sealer {
    epoch: Epoch,
    /// First packet number under this key, and since when it is used.
    first: u64,
    since: Instant,
}

impl Sealer {
    /// Starts with the key from the handshake.
    pub fn new(secret: Secret, now: Instant) -> Self {
        Self {
            epoch: Epoch::new(0, secret),
            first: 0,
            since: now,
        }
    }

    /// Goes on to the next key if this one was used for long enough; `next` is the number of the
    /// next packet. Not before a packet under this one was acknowledged: the peer keeps one ahead.
    pub fn renew(&mut self, now: Instant, next: u64, acknowledged: Option<u64>) {
        let is_old = next.saturating_sub(self.first) >= 1 << EPOCH_BITS
            || now.saturating_since(self.since) >= KEY_LIFE;
        if is_old && acknowledged.is_some_and(|largest| largest >= self.first) {
            self.epoch = self.epoch.next();
            (self.first, self.since) = (next, now);
        }
    }

    /// Encrypts `packet[header_len..]` in place and appends the tag; the first byte gets the key's
    /// number. Packet numbers must ascend.
    pub fn seal(
        &mut self,
        packet_number: u64,
        packet: &mut Vec<u8>,
        start: usize,
        header_len: usize,
    ) {
        packet[start] |= self.epoch.phase();
        let (header, body) = packet[start..].split_at_mut(header_len);
        let tag = self
            .epoch
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
    /// Since when the previous key is known to be no longer used.
    retired: Option<Instant>,
}

impl Opener {
    /// Starts with the key from the handshake.
    pub fn new(secret: Secret) -> Self {
        let current = Epoch::new(0, secret);
        let next = current.next();
        Self {
            previous: None,
            current,
            next,
            retired: None,
        }
    }

    /// Wipes the previous key `wait` after the peer went on to this one: what is later than that
    /// counts as lost.
    pub fn retire(&mut self, now: Instant, wait: Duration) {
        if self.previous.is_some() && now.saturating_since(*self.retired.get_or_insert(now)) >= wait
        {
            (self.previous, self.retired) = (None, None);
        }
    }

    /// Decrypts in place and returns the frames.
    pub fn open<'a>(
        &mut self,
        packet_number: u64,
        packet: &'a mut [u8],
        header_len: usize,
    ) -> Result<&'a mut [u8], OpenError> {
        let phase = packet.first().ok_or(OpenError)? & PHASES;
        let key = [
            Some(&self.current),
            Some(&self.next),
            self.previous.as_ref(),
        ]
        .into_iter()
        .flatten()
        .find(|e| e.phase() == phase)
        .ok_or(OpenError)?;
        let is_next = key.number == self.next.number;
        let (header, body) = packet.split_at_mut_checked(header_len).ok_or(OpenError)?;
        let len = body.len().checked_sub(TAG_LEN).ok_or(OpenError)?;
        key.key
            .open_in_place(nonce(packet_number), Aad::from(&*header), body)
            .map_err(|_| OpenError)?;
        if is_next {
            self.retired = None;
            let next = self.next.next();
            let current = std::mem::replace(&mut self.next, next);
            self.previous = Some(std::mem::replace(&mut self.current, current));
        }
        Ok(&mut body[..len])
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer(epoch {})", self.epoch.number)
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

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(Secret::from([byte; 32]), START)
    }

    fn opener(byte: u8) -> Opener {
        Opener::new(Secret::from([byte; 32]))
    }

    fn seal(sealer: &mut Sealer, pn: u64) -> Vec<u8> {
        let mut packet = b"@eadbody".to_vec();
        sealer.seal(pn, &mut packet, 0, 4);
        packet
    }

    #[test]
    fn a_changed_header_body_or_number_is_refused() {
        let mut opener = opener(7);
        let packet = seal(&mut sealer(7), 3);
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
    fn keys_change_by_count_and_by_time_once_the_peer_has_the_last_one() {
        let (mut sealer, mut opener) = (sealer(1), opener(1));
        let edge = 1 << EPOCH_BITS;
        sealer.renew(START, edge - 1, Some(5));
        let mut late = seal(&mut sealer, edge - 1);
        sealer.renew(START, edge, None);
        assert_eq!(sealer.epoch.number, 0, "nothing is acknowledged");
        sealer.renew(START, edge, Some(edge - 2));
        let mut early = seal(&mut sealer, edge);
        assert!(opener.open(edge, &mut early, 4).is_ok());
        assert!(
            opener.open(edge - 1, &mut late, 4).is_ok(),
            "reordered over the edge"
        );
        let soon = START + KEY_LIFE / 2;
        sealer.renew(soon, edge + 9, Some(edge + 5));
        assert_eq!(sealer.epoch.number, 1);
        let later = START + KEY_LIFE;
        sealer.renew(later, edge + 9, Some(edge - 1));
        assert_eq!(sealer.epoch.number, 1, "the peer may not have this key yet");
        sealer.renew(later, edge + 9, Some(edge + 5));
        assert_eq!(sealer.epoch.number, 2);
        assert!(
            opener
                .open(edge + 9, &mut seal(&mut sealer, edge + 9), 4)
                .is_ok()
        );
        sealer.renew(later + KEY_LIFE, edge + 20, Some(edge + 15));
        sealer.renew(later + 2 * KEY_LIFE, edge + 21, Some(edge + 20));
        let mut far = seal(&mut sealer, edge + 21);
        assert_eq!(
            opener.open(edge + 21, &mut far, 4),
            Err(OpenError),
            "two keys ahead"
        );
    }

    #[test]
    fn of_many_keys_each_has_its_two_bits_and_no_others() {
        let (mut sealer, mut opener) = (sealer(1), opener(1));
        for number in 0..9 {
            sealer.renew(
                START + KEY_LIFE * number as u32,
                number,
                number.checked_sub(1),
            );
            let mut packet = seal(&mut sealer, number);
            assert_eq!(packet[0], b'@' | (number % 4) as u8);
            assert!(opener.open(number, &mut packet, 4).is_ok(), "key {number}");
        }
    }

    #[test]
    fn the_previous_key_is_wiped_a_while_after_the_change() {
        let (mut sealer, mut opener) = (sealer(1), opener(1));
        let mut late = [seal(&mut sealer, 7), seal(&mut sealer, 8)];
        let changed = START + KEY_LIFE;
        sealer.renew(changed, 9, Some(0));
        opener
            .open(9, &mut seal(&mut sealer, 9), 4)
            .expect("the next key");
        let second = Duration::from_secs(1);
        opener.retire(changed, second);
        assert!(opener.open(7, &mut late[0], 4).is_ok());
        opener.retire(changed + second, second);
        assert_eq!(opener.open(8, &mut late[1], 4), Err(OpenError));
        assert!(opener.open(10, &mut seal(&mut sealer, 10), 4).is_ok());
    }
}
