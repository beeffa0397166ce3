//! What a connection tells its driver, and why connections end.

use crate::block::ChannelId;
use crate::crypto::PublicKey;
use crate::wire::{VarInt, VarIntTooLarge};
use std::fmt;

/// Why a connection is closed, as the wire has it. Codes from 256 up belong to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(pub VarInt);

impl CloseCode {
    /// Nothing is wrong.
    pub const NO_ERROR: Self = Self::from_u32(0);
    /// The peer broke the protocol.
    pub const PROTOCOL: Self = Self::from_u32(1);
    /// The peer sent more than it was allowed to.
    pub const FLOW_CONTROL: Self = Self::from_u32(2);
    /// The peer's key is not welcome here.
    pub const REFUSED: Self = Self::from_u32(3);
    /// A limit on the number of things was passed.
    pub const LIMIT: Self = Self::from_u32(4);
    /// Blocks of the peer cannot be decoded with what it sends of them.
    pub const UNSOLVABLE: Self = Self::from_u32(5);
    /// The application that the client is here for is not served.
    pub const NOT_OFFERED: Self = Self::from_u32(6);
    /// The peer's key was welcome for a time that is over.
    pub const EXPIRED: Self = Self::from_u32(7);

    /// The first one of the application.
    const APPLICATION: u32 = 256;

    const fn from_u32(code: u32) -> Self {
        Self(VarInt::from_u32(code))
    }

    /// The application's code number `n`, from 0.
    pub const fn application(n: u16) -> Self {
        Self::from_u32(Self::APPLICATION + n as u32)
    }

    /// Which of the application's codes it is, from 0; `None` if it is the protocol's.
    pub const fn application_number(self) -> Option<u64> {
        self.0.get().checked_sub(Self::APPLICATION as u64)
    }
}

/// What it says, for people.
impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::NO_ERROR => "no error",
            Self::PROTOCOL => "the protocol was broken",
            Self::FLOW_CONTROL => "more was sent than allowed",
            Self::REFUSED => "not accepted",
            Self::LIMIT => "too many things at once",
            Self::UNSOLVABLE => "blocks that cannot be decoded",
            Self::NOT_OFFERED => "not offered here",
            Self::EXPIRED => "not accepted any more",
            other => {
                return match other.application_number() {
                    Some(number) => write!(f, "application code {number}"),
                    None => write!(f, "unknown code {}", other.0),
                };
            }
        })
    }
}

impl From<u32> for CloseCode {
    fn from(code: u32) -> Self {
        Self::from_u32(code)
    }
}

impl TryFrom<u64> for CloseCode {
    type Error = VarIntTooLarge;

    fn try_from(code: u64) -> Result<Self, VarIntTooLarge> {
        code.try_into().map(Self)
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The application here closed it.
    #[error("closed here")]
    LocallyClosed,
    /// The peer closed it.
    #[error("closed by the peer ({code}){}{reason}", if reason.is_empty() { "" } else { ": " })]
    PeerClosed {
        /// Why.
        code: CloseCode,
        /// In words.
        reason: String,
    },
    /// The peer does not accept our key.
    #[error("the peer does not accept this key")]
    Refused,
    /// The peer accepted our key for a time that is over.
    #[error("the peer does not accept this key any more: its time is over")]
    Expired,
    /// The peer serves other applications than the one that this side is there for.
    #[error("the other side does not offer this{}{reason}", if reason.is_empty() { "" } else { ": " })]
    NotOffered {
        /// In words.
        reason: String,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol ({0})")]
    Violation(CloseCode),
    /// Symbols that the peer sent do not make up its blocks, however many there are.
    #[error("the peer sent blocks that cannot be decoded")]
    Unsolvable,
    /// Nobody answered the handshake.
    #[error("no answer: the host is silent or UDP is blocked")]
    Unreachable,
    /// Nothing was heard for the idle time.
    #[error("the path went silent")]
    TimedOut,
    /// The peer lost its state.
    #[error("the peer does not know this connection any more")]
    Reset,
    /// The peer proved another key than expected.
    #[error("wrong key: the peer has {found}")]
    WrongKey {
        /// The key it proved.
        found: PublicKey,
    },
    /// The peer speaks no version of ours.
    #[error("the peer speaks other versions of the protocol only")]
    VersionMismatch,
    /// One side's packets carry data, the other's only sizes.
    #[error("one side simulates with virtual payload, the other has real data")]
    PayloadMismatch,
    /// The handshake's cryptography failed.
    #[error("handshake failed")]
    HandshakeFailed,
}

/// Something the application should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done; the peer proved this key. Comes again, with the same key, where a client
    /// goes on with another answer of the server than its first.
    Connected {
        /// The peer's static key.
        peer: PublicKey,
    },
    /// The server was heard: a client goes on with no other answer of it from here on. At a server: the client
    /// has acknowledged something, so that it goes on with this connection, or has closed.
    Confirmed,
    /// The peer opened a channel.
    Opened(ChannelId),
    /// Bytes or blocks wait to be read, or the channel came to its end.
    Readable(ChannelId),
    /// A datagram came, and none waited before.
    Datagram,
    /// There is room for datagrams, of which [`super::Connection::datagram_room`] had none.
    DatagramRoom,
    /// There is room to write on a channel again, of which a write found none.
    Writable(ChannelId),
    /// There is room for a channel more, of which [`super::Connection::open`] had none: told once for each
    /// time that it had none, at most.
    ChannelRoom,
    /// All that was written, to its end, is known to have arrived.
    Acknowledged(ChannelId),
    /// The same but for bytes that were given up ([`crate::Reliability`]). The peer may have some of
    /// these: they were not known to have arrived in time.
    PartlyAcknowledged {
        /// The channel.
        channel: ChannelId,
        /// Bytes given up.
        abandoned: u64,
    },
    /// The peer gave its sending side up.
    Reset {
        /// The channel.
        channel: ChannelId,
        /// Its reason.
        code: VarInt,
    },
    /// The peer wants no more of what we send.
    Stopped {
        /// The channel.
        channel: ChannelId,
        /// Its reason.
        code: VarInt,
    },
    /// The connection is over; nothing follows.
    Closed(ConnectionError),
}

#[cfg(test)]
mod tests {
    use super::CloseCode;

    #[test]
    fn close_codes_say_whose_they_are() {
        for (code, number, text) in [
            (CloseCode::NO_ERROR, None, "no error"),
            (CloseCode::UNSOLVABLE, None, "blocks that cannot be decoded"),
            (CloseCode::NOT_OFFERED, None, "not offered here"),
            (CloseCode::from(255), None, "unknown code 255"),
            (CloseCode::application(0), Some(0), "application code 0"),
            (CloseCode::application(44), Some(44), "application code 44"),
        ] {
            assert_eq!(code.application_number(), number, "{code:?}");
            assert_eq!(code.to_string(), text);
        }
    }
}
