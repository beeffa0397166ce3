//! Packet headers: the three handshake packets, version negotiation, reset, and sealed packets.

use super::codec::{Reader, WireError};

/// The one protocol version that this code speaks: "df" and a number.
pub const VERSION: u32 = 0x6466_000a;
/// Bytes of a connection ID.
pub const CID_LEN: usize = 8;
/// Bytes of the address-validation cookie.
pub const COOKIE_LEN: usize = 16;
/// Bytes of the token that proves a reset.
pub const RESET_TOKEN_LEN: usize = 16;
/// Bytes of a reset: type, connection ID, token.
pub const RESET_LEN: usize = 1 + CID_LEN + RESET_TOKEN_LEN;
/// Bytes of the key that tokens are made with.
pub const RESET_KEY_LEN: usize = 16;
/// Bytes of an AEAD tag.
pub const TAG_LEN: usize = 16;
/// Type, destination connection ID, low 32 bits of the packet number.
pub const SEALED_HEADER_LEN: usize = 1 + CID_LEN + 4;

const TYPE_SYN: u8 = 0x01;
const TYPE_SYNACK: u8 = 0x02;
const TYPE_ACK: u8 = 0x03;
const TYPE_VERSION: u8 = 0x04;
const TYPE_RESET: u8 = 0x05;
const TYPE_RETRY: u8 = 0x06;
/// The first of four: the lowest two bits say which key it is, and are the sealer's.
const TYPE_SEALED: u8 = 0x40;
const LAST_TYPE_SEALED: u8 = 0x43;

/// Names a connection at the peer that chose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub [u8; CID_LEN]);

/// First packet of a client, padded to the datagram size it wants to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Version the client wants.
    pub version: u32,
    /// Where the client wants answers.
    pub client_cid: ConnectionId,
    /// Which of the client's SYNs this is; echoed, so that the answer gives a round-trip time.
    pub attempt: u8,
    /// First Noise message: the client's ephemeral public key.
    pub noise: [u8; 32],
    /// From the last RETRY; zeros before one came.
    pub cookie: [u8; COOKIE_LEN],
}

/// The answer of a busy server: it computes nothing for who has not proven to receive there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// From the SYN.
    pub client_cid: ConnectionId,
    /// From the SYN.
    pub attempt: u8,
    /// What the next SYN must bring.
    pub cookie: [u8; COOKIE_LEN],
}

/// The server's stateless answer, padded to the size of the SYN if that is the client's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynAck<'a> {
    /// Version of the SYN.
    pub version: u32,
    /// From the SYN.
    pub client_cid: ConnectionId,
    /// From the SYN.
    pub attempt: u8,
    /// Which cookie secret was used.
    pub slot: u32,
    /// Bytes of the SYN datagram as received.
    pub syn_size: u16,
    /// When the SYN arrived, on the server's clock, microseconds, wrapping. Nobody vouches for it.
    pub received_at: u32,
    /// Returned by the client to prove that it receives at its address.
    pub cookie: [u8; COOKIE_LEN],
    /// Second Noise message.
    pub noise: &'a [u8],
}

/// The client's last handshake packet; holds all that a stateless server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Version of the SYN.
    pub version: u32,
    /// The server's ID, read from the SYNACK.
    pub server_cid: ConnectionId,
    /// From the SYN.
    pub client_cid: ConnectionId,
    /// From the SYNACK.
    pub slot: u32,
    /// From the SYNACK.
    pub syn_size: u16,
    /// From the SYNACK.
    pub cookie: [u8; COOKIE_LEN],
    /// First Noise message again.
    pub noise_syn: [u8; 32],
    /// Third Noise message.
    pub noise: &'a [u8],
}

/// Header of a protected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Destination connection ID.
    pub cid: ConnectionId,
    /// Low 32 bits of the packet number.
    pub packet_number: u32,
}

/// Any packet, borrowed from its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Handshake, first.
    Syn(Syn),
    /// Handshake, second.
    SynAck(SynAck<'a>),
    /// Handshake, third.
    Ack(Ack<'a>),
    /// The server does not speak the client's version; big-endian list of those it does.
    Version {
        /// The client that asked.
        client_cid: ConnectionId,
        /// Versions, four bytes each.
        versions: &'a [u8],
    },
    /// The peer does not know the connection.
    Reset {
        /// The connection ID that the peer did not know.
        cid: ConnectionId,
        /// Proof that the peer is the one that chose the ID.
        token: [u8; RESET_TOKEN_LEN],
    },
    /// Handshake: the SYN is to be sent again, with a cookie.
    Retry(Retry),
    /// Frames under AEAD; they begin [`SEALED_HEADER_LEN`] bytes into the datagram.
    Sealed(Sealed),
}

impl<'a> Packet<'a> {
    /// Reads the header of a datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(datagram);
        match r.u8()? {
            TYPE_SEALED..=LAST_TYPE_SEALED => {
                let header = Sealed {
                    cid: cid(&mut r)?,
                    packet_number: r.u32()?,
                };
                if r.rest().len() < TAG_LEN {
                    return Err(WireError::Truncated);
                }
                Ok(Self::Sealed(header))
            }
            TYPE_SYN => Ok(Self::Syn(Syn {
                version: r.u32()?,
                client_cid: cid(&mut r)?,
                attempt: r.u8()?,
                noise: r.array()?,
                cookie: r.array()?,
            })),
            TYPE_SYNACK => Ok(Self::SynAck(SynAck {
                version: r.u32()?,
                client_cid: cid(&mut r)?,
                attempt: r.u8()?,
                slot: r.u32()?,
                syn_size: r.u16()?,
                received_at: r.u32()?,
                cookie: r.array()?,
                noise: short_bytes(&mut r)?,
            })),
            TYPE_ACK => Ok(Self::Ack(Ack {
                version: r.u32()?,
                server_cid: cid(&mut r)?,
                client_cid: cid(&mut r)?,
                slot: r.u32()?,
                syn_size: r.u16()?,
                cookie: r.array()?,
                noise_syn: r.array()?,
                noise: short_bytes(&mut r)?,
            })),
            TYPE_VERSION => {
                let client_cid = cid(&mut r)?;
                let versions = r.rest();
                if versions.is_empty() || !versions.len().is_multiple_of(4) {
                    return Err(WireError::Invalid("version list"));
                }
                Ok(Self::Version {
                    client_cid,
                    versions,
                })
            }
            TYPE_RETRY => Ok(Self::Retry(Retry {
                client_cid: cid(&mut r)?,
                attempt: r.u8()?,
                cookie: r.array()?,
            })),
            TYPE_RESET => Ok(Self::Reset {
                cid: cid(&mut r)?,
                token: r.array()?,
            }),
            other => Err(WireError::UnknownType(other)),
        }
    }
}

fn cid(r: &mut Reader<'_>) -> Result<ConnectionId, WireError> {
    r.array().map(ConnectionId)
}

fn short_bytes<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let len = r.u16()?;
    r.bytes(usize::from(len))
}

fn push_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

impl Syn {
    /// Writes the packet padded with zeros to `size` bytes.
    pub fn emit(&self, size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(size);
        out.push(TYPE_SYN);
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.client_cid.0);
        out.push(self.attempt);
        out.extend_from_slice(&self.noise);
        out.extend_from_slice(&self.cookie);
        out.resize(size.max(out.len()), 0);
        out
    }
}

impl Retry {
    /// Writes the packet.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![TYPE_RETRY];
        out.extend_from_slice(&self.client_cid.0);
        out.push(self.attempt);
        out.extend_from_slice(&self.cookie);
        out
    }
}

impl SynAck<'_> {
    /// Writes the packet padded with zeros to `size` bytes.
    pub fn emit(&self, size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(size);
        out.push(TYPE_SYNACK);
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.client_cid.0);
        out.push(self.attempt);
        out.extend_from_slice(&self.slot.to_be_bytes());
        out.extend_from_slice(&self.syn_size.to_be_bytes());
        out.extend_from_slice(&self.received_at.to_be_bytes());
        out.extend_from_slice(&self.cookie);
        push_short_bytes(&mut out, self.noise);
        out.resize(size.max(out.len()), 0);
        out
    }
}

impl Ack<'_> {
    /// Writes the packet.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.push(TYPE_ACK);
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.server_cid.0);
        out.extend_from_slice(&self.client_cid.0);
        out.extend_from_slice(&self.slot.to_be_bytes());
        out.extend_from_slice(&self.syn_size.to_be_bytes());
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(&self.noise_syn);
        push_short_bytes(&mut out, self.noise);
        out
    }
}

/// Writes a version negotiation packet.
pub fn emit_version(client_cid: ConnectionId, versions: &[u32]) -> Vec<u8> {
    let mut out = vec![TYPE_VERSION];
    out.extend_from_slice(&client_cid.0);
    versions
        .iter()
        .for_each(|v| out.extend_from_slice(&v.to_be_bytes()));
    out
}

/// Writes a reset for a connection ID that is not known here.
pub fn emit_reset(cid: ConnectionId, token: [u8; RESET_TOKEN_LEN]) -> Vec<u8> {
    let mut out = vec![TYPE_RESET];
    out.extend_from_slice(&cid.0);
    out.extend_from_slice(&token);
    out
}

/// Appends the header of a sealed packet.
pub fn emit_sealed_header(out: &mut Vec<u8>, cid: ConnectionId, packet_number: u64) {
    out.push(TYPE_SEALED);
    out.extend_from_slice(&cid.0);
    out.extend_from_slice(&(packet_number as u32).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ConnectionId = ConnectionId([1; CID_LEN]);
    const SERVER: ConnectionId = ConnectionId([2; CID_LEN]);

    #[test]
    fn packets_survive_the_wire_and_shorter_ones_are_refused() {
        let syn = Syn {
            version: VERSION,
            client_cid: CLIENT,
            attempt: 3,
            noise: [4; 32],
            cookie: [5; COOKIE_LEN],
        };
        let retry = Retry {
            client_cid: CLIENT,
            attempt: 3,
            cookie: [5; COOKIE_LEN],
        };
        let synack = SynAck {
            version: VERSION,
            client_cid: CLIENT,
            attempt: 3,
            slot: 70_000,
            syn_size: 1200,
            received_at: 80_000,
            cookie: [5; COOKIE_LEN],
            noise: b"second",
        };
        let ack = Ack {
            version: VERSION,
            server_cid: SERVER,
            client_cid: CLIENT,
            slot: 70_000,
            syn_size: 1200,
            cookie: [5; COOKIE_LEN],
            noise_syn: [4; 32],
            noise: b"third",
        };
        let token = [6; RESET_TOKEN_LEN];
        let reset = Packet::Reset { cid: SERVER, token };
        let versions = &[0, 0, 0, 1, 0, 0, 0, 2];
        let version = Packet::Version {
            client_cid: CLIENT,
            versions,
        };
        let mut sealed = Vec::new();
        emit_sealed_header(&mut sealed, SERVER, (1 << 32) + 9);
        assert_eq!(sealed.len(), SEALED_HEADER_LEN);
        sealed.extend_from_slice(&[0; TAG_LEN]);
        let header = Sealed {
            cid: SERVER,
            packet_number: 9,
        };
        for (bytes, packet) in [
            (syn.emit(0), Packet::Syn(syn)),
            (retry.emit(), Packet::Retry(retry)),
            (synack.emit(0), Packet::SynAck(synack)),
            (ack.emit(), Packet::Ack(ack)),
            (emit_reset(SERVER, token), reset),
            (emit_version(CLIENT, &[1, 2]), version),
            (sealed, Packet::Sealed(header)),
        ] {
            assert_eq!(Packet::parse(&bytes), Ok(packet));
            for cut in 0..bytes.len() {
                let parsed = Packet::parse(&bytes[..cut]);
                // A list of versions may be of one.
                let shorter =
                    matches!(parsed, Ok(Packet::Version { versions, .. }) if versions.len() == 4);
                assert!(shorter || parsed.is_err(), "{cut} bytes of {packet:?}");
            }
        }
        assert_eq!(emit_reset(SERVER, token).len(), RESET_LEN);
        let padded = [syn.emit(1200), synack.emit(1200)];
        assert!(padded.iter().all(|packet| packet.len() == 1200));
        assert_eq!(Packet::parse(&padded[1]), Ok(Packet::SynAck(synack)));
        assert_eq!(
            Packet::parse(&[0x44; 40]),
            Err(WireError::UnknownType(0x44))
        );
        assert!(
            Packet::parse(&emit_version(CLIENT, &[])).is_err(),
            "no version"
        );
    }
}
