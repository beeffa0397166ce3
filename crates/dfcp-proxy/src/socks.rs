//! SOCKS5 (RFC 1928) as far as a program asks for a connection, or to send datagrams. Names are resolved at the far end.

pub(crate) mod v4;

use std::net::SocketAddr;

use bytes::{Buf, Bytes};

use crate::local::{Asked, Inbox, Mistake, Speech, Wish};
use crate::status::{Refusal, Status};
use crate::target::{BadTarget, Target};
use crate::udp::{self, Packet};

/// First byte of everything.
pub(crate) const VERSION: u8 = 5;

/// No authentication: the port is for programs of this machine, or of who opened it to others.
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;
const BIND: u8 = 2;
const UDP_ASSOCIATE: u8 = 3;

/// Replies that are no status of an attempt.
const GENERAL_FAILURE: u8 = 1;
const UNKNOWN_COMMAND: u8 = 7;
const UNKNOWN_ADDRESS: u8 = 8;

/// A reply. The address that the far end connects from is not told: it may be a private one.
fn reply(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// What a program hears at the end of its request.
pub(crate) fn answer(outcome: Result<(), &Refusal>) -> Vec<u8> {
    reply(match outcome {
        Ok(()) => Status::Connected.socks(),
        Err(refusal) => refusal.status.socks(),
    })
}

/// What a program hears that may send its datagrams to `at`.
pub(crate) fn associated(at: SocketAddr) -> Vec<u8> {
    let mut out = vec![VERSION, Status::Connected.socks(), 0];
    Target::from(at).encode(&mut out);
    out
}

/// Reads a datagram (RFC 1928 §7); `None` if it is none, or a part of one: fragments are for the
/// implementation to refuse.
pub(crate) fn datagram(mut bytes: Bytes) -> Option<Packet> {
    let (reserved, fragment) = (bytes.try_get_u16().ok()?, bytes.try_get_u8().ok()?);
    Packet::decode(bytes).filter(|_| (reserved, fragment) == (0, 0))
}

/// What [`datagram`] reads.
pub(crate) fn encode_datagram(packet: &Packet) -> Vec<u8> {
    let mut out = vec![0; 3];
    udp::encode(&packet.host, &packet.payload, &mut out);
    out
}

/// Reads the greeting and the request.
pub(crate) async fn wish(inbox: &mut Inbox<'_>) -> Result<Asked, Mistake> {
    let methods = inbox.take(2).await?[1];
    let methods = inbox.take(methods.into()).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        let why = "it wants a password, and there is none";
        return Err(Mistake::new(why, [VERSION, NO_METHOD]));
    }
    inbox.say(&[VERSION, NO_AUTHENTICATION]).await?;
    let head = inbox.take(3).await?;
    if head[0] != VERSION {
        let why = format!("its request is of SOCKS {}", head[0]);
        return Err(Mistake::new(why, reply(GENERAL_FAILURE)));
    }
    let target = loop {
        match Target::decode(&inbox.bytes) {
            Ok(Some((target, len))) => {
                inbox.bytes.drain(..len);
                break target;
            }
            Ok(None) => inbox.more().await?,
            Err(BadTarget::Kind) => {
                let why = "its address is of an unknown kind";
                return Err(Mistake::new(why, reply(UNKNOWN_ADDRESS)));
            }
            Err(BadTarget::Name) => {
                // No resolver was asked: nothing is known to be unreachable.
                let why = "the name that it asks for is none";
                return Err(Mistake::new(why, reply(GENERAL_FAILURE)));
            }
        }
    };
    let unsupported = |what: &str| {
        let why = format!("it asks for {what}, which is not supported");
        Err(Mistake::new(why, reply(UNKNOWN_COMMAND)))
    };
    match head[1] {
        CONNECT => {
            let (speech, rest) = (Speech::Socks, std::mem::take(&mut inbox.bytes));
            Ok(Asked::Connection(Wish {
                speech,
                target,
                rest,
            }))
        }
        UDP_ASSOCIATE => Ok(Asked::Datagrams),
        BIND => unsupported("BIND"),
        other => unsupported(&format!("command {other}")),
    }
}
