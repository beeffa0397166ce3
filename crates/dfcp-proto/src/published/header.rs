//! The header of DFCP-J Fig. 2 (§4.2; DFCP-TR §2.2): six 32-bit words in clear, big endian.
//!
//! Reading is total: any bytes give a packet that obeys every rule of docs/spec/published.md, or
//! say which one they break.

use crate::wire::checksum::{fold, word_sum};
use crate::wire::{Reader, WireError};
use dfcp_fec::raptor::State;
use std::net::IpAddr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 24;
/// Bytes of the options of an ACK that reports.
pub const REPORT_LEN: usize = 36;
/// Bytes of payload that the checksum covers: "partially on the data field" (DFCP-TR §2.2).
pub const CHECKSUM_PREFIX: usize = 64;
/// `block` of the ACK that answers a SYNACK; no block has this number.
pub const HANDSHAKE: u32 = u32::MAX;

const SYN: u8 = 0x01;
const ACK: u8 = 0x02;
const FIN: u8 = 0x04;
const RST: u8 = 0x08;
const BLOCK: u8 = 0x10;
const ECHO: u8 = 0x20;
const SHORT: u8 = 0x40;

const BLOCK_AT: usize = 4;
const OFFSET_AT: usize = 20;
const FLAGS_AT: usize = 21;
const CHECKSUM_AT: usize = 22;

/// What a packet is: the allowed combinations of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYN, with the offered parameters as payload.
    Syn,
    /// SYN, ACK, with the settled parameters as payload.
    SynAck,
    /// ACK: completes the handshake, or acknowledges FIN or FINACK.
    Ack,
    /// FIN.
    Fin,
    /// FIN, ACK.
    FinAck,
    /// RST, with at most one byte of payload: the reason.
    Rst,
    /// BLOCK: symbols of a block.
    Data {
        /// ECHO: the receiver answers at once.
        echo: bool,
        /// SHORT: the block's last four bytes hold its useful length.
        short: bool,
    },
    /// BLOCK, ACK.
    BlockAck {
        /// SHORT: not an acknowledgement but its withdrawal: the block needs more symbols.
        more: bool,
    },
    /// ACK, ECHO: the answer to data with ECHO.
    Echo,
}

impl Kind {
    fn flags(self) -> u8 {
        let when = |set: bool, flag: u8| if set { flag } else { 0 };
        match self {
            Self::Syn => SYN,
            Self::SynAck => SYN | ACK,
            Self::Ack => ACK,
            Self::Fin => FIN,
            Self::FinAck => FIN | ACK,
            Self::Rst => RST,
            Self::Data { echo, short } => BLOCK | when(echo, ECHO) | when(short, SHORT),
            Self::BlockAck { more } => BLOCK | ACK | when(more, SHORT),
            Self::Echo => ACK | ECHO,
        }
    }

    fn from_flags(flags: u8) -> Option<Self> {
        let (echo, short) = (flags & ECHO != 0, flags & SHORT != 0);
        let kind = match flags & !(ECHO | SHORT) {
            SYN => Self::Syn,
            FIN => Self::Fin,
            RST => Self::Rst,
            BLOCK => Self::Data { echo, short },
            f if f == SYN | ACK => Self::SynAck,
            f if f == FIN | ACK => Self::FinAck,
            f if f == BLOCK | ACK => Self::BlockAck { more: short },
            ACK if echo => Self::Echo,
            ACK => Self::Ack,
            _ => return None,
        };
        (kind.flags() == flags).then_some(kind)
    }

    fn may_report(self) -> bool {
        matches!(self, Self::BlockAck { .. } | Self::Echo)
    }

    fn takes_payload(self, len: usize) -> bool {
        match self {
            Self::Syn | Self::SynAck | Self::Data { .. } => len > 0,
            Self::Rst => len <= 1,
            _ => len == 0,
        }
    }
}

/// The options of an answer: what the receiver saw so far of the whole connection, "statistics
/// about some relevant network parameters" (DFCP-J §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Data packets that arrived, wrapping.
    pub packets: u32,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Of the packets, those marked Congestion Experienced, wrapping.
    pub ce: u32,
    /// The receiver's clock when the packet arrived, ns; its origin is arbitrary.
    pub clock: u64,
    /// All blocks below are decoded (and, with one ACK a window, acknowledged).
    pub decoded: u32,
    /// Blocks from here on find no room.
    pub limit: u32,
    /// Symbols that the answer's block still lacks; 0: it has enough.
    pub missing: u32,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Block ID; blocks sent in FIN and FINACK, what is acknowledged in ACK.
    pub block: u32,
    /// S1, S2, S3.
    pub state: State,
    /// Flags.
    pub kind: Kind,
    /// Options.
    pub report: Option<Report>,
}

/// Why a packet was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than its header, or payload where none belongs, or none where some does.
    #[error("wrong length")]
    Length,
    /// Neither 6 words, nor 15 in an ACK that may report.
    #[error("wrong offset")]
    Offset,
    /// A combination of flags without meaning, or reserved bits set.
    #[error("wrong flags")]
    Flags,
    /// The generator would get stuck in this state.
    #[error("wrong generator state")]
    State,
    /// The checksum does not fit.
    #[error("wrong checksum")]
    Checksum,
}

impl From<WireError> for HeaderError {
    fn from(_: WireError) -> Self {
        Self::Length
    }
}

/// What the checksum covers of the carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PseudoHeader {
    /// Protocol number and length only: translators rewrite addresses under UDP.
    Udp,
    /// Addresses, protocol number, length.
    Ip {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
    },
}

/// Protocol number of UDP.
const UDP: u32 = 17;
/// Protocol number for experiments (RFC 3692).
pub const EXPERIMENTAL: u8 = 253;

impl PseudoHeader {
    /// The other direction's.
    pub(super) fn turned(&self) -> Self {
        match *self {
            Self::Udp => Self::Udp,
            Self::Ip {
                source,
                destination,
            } => Self::Ip {
                source: destination,
                destination: source,
            },
        }
    }

    fn sum(&self, len: usize) -> u32 {
        let address = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(a) => word_sum(&a.octets()),
            IpAddr::V6(a) => word_sum(&a.octets()),
        };
        let carrier = match *self {
            Self::Udp => UDP,
            Self::Ip {
                source,
                destination,
            } => u32::from(EXPERIMENTAL) + address(source) + address(destination),
        };
        carrier + len as u32
    }
}

/// Internet checksum (RFC 1071) of a packet; 0 if the checksum in it is right.
fn checksum(packet: &[u8], header_len: usize, pseudo: &PseudoHeader) -> u16 {
    let covered = &packet[..packet.len().min(header_len + CHECKSUM_PREFIX)];
    !fold(pseudo.sum(packet.len().min(usize::from(u16::MAX))) + word_sum(covered))
}

impl Header {
    /// Reads a packet: its header and its payload.
    ///
    /// # Errors
    /// The first rule that the packet breaks.
    pub fn parse<'a>(
        packet: &'a [u8],
        pseudo: &PseudoHeader,
    ) -> Result<(Self, &'a [u8]), HeaderError> {
        let mut r = Reader::new(packet);
        let (source, destination, block) = (r.u16()?, r.u16()?, r.u32()?);
        let [s1, s2, s3] = [r.u32()?, r.u32()?, r.u32()?];
        let (offset, flags, _) = (r.u8()?, r.u8()?, r.u16()?);
        let header_len = usize::from(offset >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(HeaderError::Offset);
        }
        if header_len > packet.len() {
            return Err(HeaderError::Length);
        }
        if checksum(packet, header_len, pseudo) != 0 {
            return Err(HeaderError::Checksum);
        }
        let kind = Kind::from_flags(flags).filter(|_| offset & 0xf == 0);
        let kind = kind.ok_or(HeaderError::Flags)?;
        let report = match header_len - HEADER_LEN {
            0 => None,
            REPORT_LEN if kind.may_report() => Some(Report {
                packets: r.u32()?,
                bytes: u64::from_be_bytes(r.array()?),
                ce: r.u32()?,
                clock: u64::from_be_bytes(r.array()?),
                decoded: r.u32()?,
                limit: r.u32()?,
                missing: r.u32()?,
            }),
            _ => return Err(HeaderError::Offset),
        };
        let payload = r.rest();
        if !kind.takes_payload(payload.len()) {
            return Err(HeaderError::Length);
        }
        let header = Self {
            source,
            destination,
            block,
            state: State::new(s1, s2, s3).ok_or(HeaderError::State)?,
            kind,
            report,
        };
        Ok((header, payload))
    }

    /// Kind and block of a packet that is only looked at, as captures do: nothing else is checked.
    pub fn peek(packet: &[u8]) -> Option<(Kind, u32)> {
        let block = packet.get(BLOCK_AT..)?.first_chunk()?;
        let kind = Kind::from_flags(*packet.get(FLAGS_AT)?)?;
        Some((kind, u32::from_be_bytes(*block)))
    }

    /// The header without options and checksum.
    pub fn words(&self) -> [u8; HEADER_LEN] {
        let mut words = [0; HEADER_LEN];
        let len = HEADER_LEN + self.report.map_or(0, |_| REPORT_LEN);
        words[..2].copy_from_slice(&self.source.to_be_bytes());
        words[2..4].copy_from_slice(&self.destination.to_be_bytes());
        words[BLOCK_AT..BLOCK_AT + 4].copy_from_slice(&self.block.to_be_bytes());
        for (at, word) in (8..).step_by(4).zip(self.state.words()) {
            words[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        words[OFFSET_AT] = (len as u8 / 4) << 4;
        words[FLAGS_AT] = self.kind.flags();
        words
    }

    /// Appends the header; the checksum follows by [`seal`] once the payload is there.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.words());
        if let Some(report) = &self.report {
            out.extend_from_slice(&report.packets.to_be_bytes());
            out.extend_from_slice(&report.bytes.to_be_bytes());
            out.extend_from_slice(&report.ce.to_be_bytes());
            out.extend_from_slice(&report.clock.to_be_bytes());
            for word in [report.decoded, report.limit, report.missing] {
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
    }
}

/// Writes the checksum into a packet that [`Header::emit`] began.
pub fn seal(packet: &mut [u8], pseudo: &PseudoHeader) {
    if packet.len() < HEADER_LEN {
        return;
    }
    packet[CHECKSUM_AT..HEADER_LEN].fill(0);
    let header_len = usize::from(packet[OFFSET_AT] >> 4) * 4;
    let sum = checksum(packet, header_len, pseudo);
    packet[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests;
