//! What each side tells the other, under encryption, in its handshake message.

use super::codec::{Reader, WireError, write_varint};
use super::header::{ConnectionId, RESET_KEY_LEN};
use crate::config::Payload;
use crate::time::Duration;
use std::fmt;

/// Limits and facts of the side that sends them. Written as (id, length, value); unknown ids are
/// skipped so that later versions can add some.
#[derive(Clone, PartialEq, Eq)]
pub struct TransportParams {
    /// The sender's connection ID.
    pub cid: ConnectionId,
    /// What the tokens of later resets of this connection are made with.
    pub reset_key: [u8; RESET_KEY_LEN],
    /// Largest UDP payload that the sender of this accepts, bytes.
    pub max_datagram: u64,
    /// Block bytes that the peer may open before more credit comes.
    pub max_data: u64,
    /// Bytes that the peer may send on one stream before more credit comes.
    pub max_stream_data: u64,
    /// Channels that the peer may hold open at once.
    pub max_channels: u64,
    /// Silence after which this side drops the connection, milliseconds.
    pub idle_timeout_ms: u64,
    /// Bit i set: this side decodes the scheme with id i. [`VIRTUAL_PAYLOAD`] set: symbols have
    /// no bytes.
    pub schemes: u64,
    /// Feedback that this side wants for what it sends, by number.
    pub feedback: u64,
    /// Packets that this side's receive window holds, where its feedback reports what is free of
    /// it; 0 says nothing.
    pub receive_packets: u64,
    /// Round-trip time of the handshake as a client saw it, microseconds; 0 says nothing.
    pub round_trip_us: u64,
    /// Most source symbols of a block that this side takes.
    pub max_block_symbols: u64,
    /// What a client is here for, by the number of the application; 0 says nothing.
    pub application: u64,
    /// Size of the SYNACK that a client took, bytes: packets of that size arrive there. 0 says nothing.
    pub synack_size: u64,
}

/// The bit of [`TransportParams::schemes`] that only simulated networks know.
pub const VIRTUAL_PAYLOAD: u64 = 1 << 5;

const ID_CID: u64 = 0;
const ID_RESET_KEY: u64 = 1;
const ID_MAX_DATAGRAM: u64 = 2;
const ID_MAX_DATA: u64 = 3;
const ID_MAX_STREAM_DATA: u64 = 4;
const ID_MAX_CHANNELS: u64 = 5;
const ID_IDLE_TIMEOUT: u64 = 6;
const ID_SCHEMES: u64 = 7;
const ID_FEEDBACK: u64 = 8;
const ID_RECEIVE_PACKETS: u64 = 9;
const ID_ROUND_TRIP: u64 = 10;
const ID_MAX_BLOCK_SYMBOLS: u64 = 11;
const ID_APPLICATION: u64 = 12;
const ID_SYNACK_SIZE: u64 = 13;

/// Without the token, which is a secret.
impl fmt::Debug for TransportParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportParams")
            .field("cid", &self.cid)
            .field("max_datagram", &self.max_datagram)
            .field("max_data", &self.max_data)
            .field("max_stream_data", &self.max_stream_data)
            .field("max_channels", &self.max_channels)
            .field("idle_timeout_ms", &self.idle_timeout_ms)
            .field("schemes", &self.schemes)
            .field("feedback", &self.feedback)
            .field("max_block_symbols", &self.max_block_symbols)
            .field("application", &self.application)
            .finish_non_exhaustive()
    }
}

impl TransportParams {
    /// What the symbols that the sender of this takes are made of.
    pub fn payload(&self) -> Payload {
        if self.schemes & VIRTUAL_PAYLOAD == 0 {
            Payload::Real
        } else {
            Payload::Virtual
        }
    }

    /// The round-trip time, if it is said.
    pub fn round_trip(&self) -> Option<Duration> {
        (self.round_trip_us > 0).then(|| Duration::from_micros(self.round_trip_us))
    }

    /// Serialises all parameters.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        for (id, bytes) in [
            (ID_CID, &self.cid.0[..]),
            (ID_RESET_KEY, &self.reset_key[..]),
        ] {
            write_varint(&mut out, id);
            write_varint(&mut out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        let optional = [
            (ID_APPLICATION, self.application),
            (ID_SYNACK_SIZE, self.synack_size),
        ];
        for (id, value) in [
            (ID_MAX_DATAGRAM, self.max_datagram),
            (ID_MAX_DATA, self.max_data),
            (ID_MAX_STREAM_DATA, self.max_stream_data),
            (ID_MAX_CHANNELS, self.max_channels),
            (ID_IDLE_TIMEOUT, self.idle_timeout_ms),
            (ID_SCHEMES, self.schemes),
            (ID_FEEDBACK, self.feedback),
            (ID_RECEIVE_PACKETS, self.receive_packets),
            (ID_ROUND_TRIP, self.round_trip_us),
            (ID_MAX_BLOCK_SYMBOLS, self.max_block_symbols),
        ]
        .into_iter()
        .chain(optional.into_iter().filter(|(_, value)| *value > 0))
        {
            write_varint(&mut out, id);
            write_varint(&mut out, super::varint_len(value) as u64);
            write_varint(&mut out, value);
        }
        out
    }

    /// Reads parameters; a missing number counts as zero, a missing ID or token is an error.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        let (mut cid, mut reset_key) = (None, None);
        let mut numbers = [0u64; 14];
        while !r.is_empty() {
            let id = r.varint()?;
            let mut value = Reader::new(r.var_bytes()?);
            match id {
                ID_CID => cid = Some(ConnectionId(value.array()?)),
                ID_RESET_KEY => reset_key = Some(value.array()?),
                ID_MAX_DATAGRAM..=ID_SYNACK_SIZE => numbers[id as usize] = value.varint()?,
                _ => {}
            }
        }
        let [
            _,
            _,
            max_datagram,
            max_data,
            max_stream_data,
            max_channels,
            idle,
            schemes,
            feedback,
            receive_packets,
            round_trip_us,
            max_block_symbols,
            application,
            synack_size,
        ] = numbers;
        if max_datagram < 1200 {
            return Err(WireError::Invalid("max_datagram"));
        }
        Ok(Self {
            cid: cid.ok_or(WireError::Invalid("connection ID"))?,
            reset_key: reset_key.ok_or(WireError::Invalid("reset key"))?,
            max_datagram,
            max_data,
            max_stream_data,
            max_channels,
            idle_timeout_ms: idle,
            schemes,
            feedback,
            receive_packets,
            round_trip_us,
            max_block_symbols,
            application,
            synack_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CID_LEN;

    /// Every number another.
    fn params() -> TransportParams {
        TransportParams {
            cid: ConnectionId([1; CID_LEN]),
            reset_key: [2; RESET_KEY_LEN],
            max_datagram: 1200,
            max_data: 1 << 40,
            max_stream_data: 70_000,
            max_channels: 100,
            idle_timeout_ms: 30_000,
            schemes: 7,
            feedback: 2,
            receive_packets: 300,
            round_trip_us: 50_000,
            max_block_symbols: 8192,
            application: 4,
            synack_size: 1472,
        }
    }

    #[test]
    fn parameters_are_printed_without_the_reset_key() {
        let printed = format!("{:?}", params());
        assert!(printed.contains("max_stream_data: 70000"), "{printed}");
        assert!(!printed.contains("reset_key"), "{printed}");
    }

    #[test]
    fn parameters_survive_the_wire() {
        let all = params();
        let bytes = all.emit();
        assert_eq!(TransportParams::parse(&bytes), Ok(all.clone()));
        assert_eq!(all.round_trip(), Some(Duration::from_millis(50)));
        assert_eq!(all.payload(), Payload::Real);
        let little = TransportParams {
            application: 0,
            synack_size: 0,
            round_trip_us: 0,
            schemes: VIRTUAL_PAYLOAD,
            ..params()
        };
        let short = little.emit();
        assert_eq!(TransportParams::parse(&short), Ok(little.clone()));
        assert_eq!(little.round_trip(), None);
        assert_eq!(little.payload(), Payload::Virtual);
        // Identifier, length and value of the application and of the SYNACK's size; a round trip of one
        // byte instead of four.
        assert_eq!(short.len(), bytes.len() - 3 - 4 - 3);
    }

    #[test]
    fn what_is_unknown_is_skipped_and_what_is_missing_refused() {
        let bytes = params().emit();
        let with = |id: u64, value: &[u8]| {
            let mut out = bytes.clone();
            write_varint(&mut out, id);
            write_varint(&mut out, value.len() as u64);
            out.extend_from_slice(value);
            TransportParams::parse(&out)
        };
        assert_eq!(with(ID_SYNACK_SIZE + 1, b"news"), Ok(params()));
        assert_eq!(with(ID_MAX_DATAGRAM, &[0x44, 0xb0]), Ok(params()));
        let small = Err(WireError::Invalid("max_datagram"));
        assert_eq!(with(ID_MAX_DATAGRAM, &[0x44, 0xaf]), small);
        assert_eq!(with(ID_CID, &[1; 7]), Err(WireError::Truncated));
        for cut in 0..bytes.len() {
            // Cut between two parameters, those after it count as zero.
            if let Ok(parsed) = TransportParams::parse(&bytes[..cut]) {
                assert_eq!(parsed.cid, params().cid);
                assert_eq!(parsed.synack_size, 0);
            }
        }
        let id = 2 + CID_LEN;
        let no_id = Err(WireError::Invalid("connection ID"));
        assert_eq!(TransportParams::parse(&bytes[id..]), no_id);
        let key = 2 + RESET_KEY_LEN;
        let no_key = [&bytes[..id], &bytes[id + key..]].concat();
        let refused = Err(WireError::Invalid("reset key"));
        assert_eq!(TransportParams::parse(&no_key), refused);
    }
}
