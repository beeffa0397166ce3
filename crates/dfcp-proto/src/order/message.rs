//! One datagram between controller and sender: all kinds have the same fields and the same length,
//! so that no answer is longer than what it answers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use aws_lc_rs::hmac;

use crate::time::{Duration, Rate};

/// Bytes of every message.
pub const MESSAGE_LEN: usize = 116;

/// Bytes before the authentication code.
const AUTHENTICATED: usize = MESSAGE_LEN - 32;

const MAGIC: [u8; 4] = *b"DFRO";
const VERSION: u8 = 1;

/// The key that a controller and its senders share.
#[derive(Clone)]
pub struct OrderKey(hmac::Key);

impl OrderKey {
    /// A key of 32 random bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The key that a file holds: 64 hexadecimal digits, with white space around them.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.trim().as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self::new(&bytes))
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderKey")
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sender is there and listens.
    Hello,
    /// The controller wants to see its token before it believes that.
    Challenge,
    /// The controller allows a rate.
    Order,
    /// A sender has sent all it wanted.
    Farewell,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Challenge => 2,
            Self::Order => 3,
            Self::Farewell => 4,
        }
    }

    fn of(number: u8) -> Option<Self> {
        let kinds = [Self::Hello, Self::Challenge, Self::Order, Self::Farewell];
        kinds.into_iter().find(|kind| kind.number() == number)
    }
}

/// A flow as switches see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where its packets come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// Of what IP carries: 17 for UDP, 253 for published DFCP in IP packets.
    pub protocol: u8,
    /// Port that they come from.
    pub source_port: u16,
    /// Port that they go to.
    pub destination_port: u16,
    /// Bytes of its full IP packets: what links add to each follows from them.
    pub packet: u16,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// The sender's number of this session; never used for another.
    pub session: u64,
    /// The controller's number of this session; zero while the sender knows none.
    pub token: u64,
    /// Higher in each message of one side; in a challenge that of the message which it answers.
    pub sequence: u64,
    /// The rate, of IP packets: allowed, or in a hello the most that is of use.
    pub rate: Rate,
    /// How long an order holds.
    pub valid: Duration,
    /// Whose it is.
    pub flow: Flow,
}

/// Why a datagram is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is of other length, or begins otherwise.
    #[error("no rate order")]
    Foreign,
    /// It was not made with the key, or was changed.
    #[error("not authentic")]
    Forged,
    /// Its maker has the key, and writes what is not in the specification.
    #[error("malformed")]
    Malformed,
}

impl Message {
    /// The datagram.
    pub fn encode(&self, key: &OrderKey) -> [u8; MESSAGE_LEN] {
        let mut out = [0; MESSAGE_LEN];
        let flow = &self.flow;
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.kind.number();
        out[6] = flow.protocol;
        out[7] = if flow.source.is_ipv4() { 4 } else { 6 };
        out[8..16].copy_from_slice(&self.session.to_be_bytes());
        out[16..24].copy_from_slice(&self.token.to_be_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        out[32..40].copy_from_slice(&self.rate.as_bps().to_be_bytes());
        let valid = u32::try_from(self.valid.as_millis()).unwrap_or(u32::MAX);
        out[40..44].copy_from_slice(&valid.to_be_bytes());
        out[44..46].copy_from_slice(&flow.packet.to_be_bytes());
        out[46..48].copy_from_slice(&flow.source_port.to_be_bytes());
        out[48..50].copy_from_slice(&flow.destination_port.to_be_bytes());
        out[52..68].copy_from_slice(&wide(flow.source).octets());
        out[68..84].copy_from_slice(&wide(flow.destination).octets());
        let code = hmac::sign(&key.0, &out[..AUTHENTICATED]);
        out[AUTHENTICATED..].copy_from_slice(code.as_ref());
        out
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// When it is no message, or none of somebody with the key.
    pub fn decode(datagram: &[u8], key: &OrderKey) -> Result<Self, Refused> {
        let bytes: &[u8; MESSAGE_LEN] = datagram.try_into().map_err(|_| Refused::Foreign)?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return Err(Refused::Foreign);
        }
        let (text, code) = bytes.split_at(AUTHENTICATED);
        hmac::verify(&key.0, text, code).map_err(|_| Refused::Forged)?;
        let long = |at: usize| u64::from_be_bytes(array(bytes, at));
        let short = |at: usize| u16::from_be_bytes(array(bytes, at));
        let address = |at: usize| narrow(Ipv6Addr::from(array::<16>(bytes, at)), bytes[7]);
        let malformed = Refused::Malformed;
        let flow = Flow {
            source: address(52).ok_or(malformed)?,
            destination: address(68).ok_or(malformed)?,
            protocol: bytes[6],
            source_port: short(46),
            destination_port: short(48),
            packet: short(44),
        };
        if bytes[50..52] != [0; 2] || flow.packet == 0 {
            return Err(malformed);
        }
        Ok(Self {
            kind: Kind::of(bytes[5]).ok_or(malformed)?,
            session: long(8),
            token: long(16),
            sequence: long(24),
            rate: Rate::from_bps(long(32)),
            valid: Duration::from_millis(u32::from_be_bytes(array(bytes, 40)).into()),
            flow,
        })
    }
}

/// Bytes from a place that lies within every message.
fn array<const N: usize>(bytes: &[u8; MESSAGE_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn narrow(address: Ipv6Addr, family: u8) -> Option<IpAddr> {
    match family {
        4 => address.to_ipv4_mapped().map(IpAddr::V4),
        6 => Some(IpAddr::V6(address)),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn flow() -> Flow {
        Flow {
            source: "198.18.0.1".parse().unwrap(),
            destination: "198.18.0.2".parse().unwrap(),
            protocol: 253,
            source_port: 49152,
            destination_port: 20000,
            packet: 1500,
        }
    }

    fn key() -> OrderKey {
        OrderKey::from_hex(&"0f".repeat(32)).expect("a key")
    }

    fn order() -> Message {
        Message {
            kind: Kind::Order,
            session: 0x1122_3344_5566_7788,
            token: 0x99aa_bbcc_ddee_ff00,
            sequence: 7,
            rate: Rate::from_bps(42_000_000),
            valid: Duration::from_millis(1000),
            flow: flow(),
        }
    }

    /// The example of the specification, made there by other means (Python's hmac).
    #[test]
    fn the_specified_example_is_read_and_written() {
        let example = "4446524f0103fd04112233445566778899aabbccddeeff000000000000000007\
            000000000280de80000003e805dcc0004e20000000000000000000000000ffffc612\
            000100000000000000000000ffffc6120002";
        let bytes = order().encode(&key());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..168], example);
        let code = "ae55df1507482ee720fc8fafbe553ce9\
            3cb977de0c7c8034f23f355afe264ef8";
        assert_eq!(&hex[168..], code);
        assert_eq!(Message::decode(&bytes, &key()), Ok(order()));
    }

    #[test]
    fn every_kind_and_family_comes_back() {
        let v6 = Flow {
            source: "2001:2::1".parse().unwrap(),
            destination: "2001:2::2".parse().unwrap(),
            ..flow()
        };
        for kind in [Kind::Hello, Kind::Challenge, Kind::Order, Kind::Farewell] {
            for flow in [flow(), v6] {
                let message = Message {
                    kind,
                    flow,
                    ..order()
                };
                let decoded = Message::decode(&message.encode(&key()), &key());
                assert_eq!(decoded, Ok(message));
            }
        }
    }

    #[test]
    fn no_changed_byte_and_no_other_length_or_key_is_accepted() {
        let bytes = order().encode(&key());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes;
                changed[at] ^= 1 << bit;
                assert!(Message::decode(&changed, &key()).is_err(), "byte {at}");
            }
        }
        for len in 0..bytes.len() {
            let refused = Message::decode(&bytes[..len], &key());
            assert_eq!(refused, Err(Refused::Foreign));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Message::decode(&longer, &key()), Err(Refused::Foreign));
        let other = OrderKey::new(&[1; 32]);
        assert_eq!(Message::decode(&bytes, &other), Err(Refused::Forged));
    }

    /// Who has the key may still write nonsense.
    #[test]
    fn authentic_nonsense_is_refused() {
        let wrong: [(usize, u8); 5] = [(5, 0), (5, 5), (7, 5), (50, 1), (62, 0)];
        for (at, value) in wrong {
            let mut bytes = order().encode(&key());
            bytes[at] = value;
            let code = hmac::sign(&key().0, &bytes[..AUTHENTICATED]);
            bytes[AUTHENTICATED..].copy_from_slice(code.as_ref());
            let refused = Message::decode(&bytes, &key());
            assert_eq!(refused, Err(Refused::Malformed), "byte {at}");
        }
    }

    #[test]
    fn a_key_is_64_hexadecimal_digits() {
        assert!(OrderKey::from_hex(&format!(" {}\n", "aB".repeat(32))).is_some());
        for text in [
            "",
            "00",
            &"0g".repeat(32),
            &"00".repeat(33),
            &"é".repeat(32),
        ] {
            assert!(OrderKey::from_hex(text).is_none(), "{text}");
        }
    }
}
