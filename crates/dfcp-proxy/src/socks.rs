//! SOCKS5 (RFC 1928) as far as a program asks for a connection. Names are resolved at the far end.

use crate::local::{Inbox, Mistake, Speech, Wish};
use crate::status::{Refusal, Status};
use crate::target::{BadTarget, Target};

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

/// The reply of SOCKS 4 to those who speak it: rejected.
pub(crate) const REFUSED_4: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

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

/// Reads the greeting and the request.
pub(crate) async fn wish(inbox: &mut Inbox<'_>) -> Result<Wish, Mistake> {
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
                let why = "the name that it asks for is none";
                return Err(Mistake::new(why, reply(Status::HostUnreachable.socks())));
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
            Ok(Wish {
                speech,
                target,
                rest,
            })
        }
        BIND => unsupported("BIND"),
        UDP_ASSOCIATE => unsupported("UDP ASSOCIATE"),
        other => unsupported(&format!("command {other}")),
    }
}
