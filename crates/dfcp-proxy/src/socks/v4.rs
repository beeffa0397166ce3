//! SOCKS 4 (Ying-Da Lee's note) and 4A, which is all that some older programs speak, and which `ssh -D` takes,
//! too. Connections alone; the names of 4A are resolved at the far end.

use std::net::Ipv4Addr;

use super::{BIND, CONNECT};
use crate::local::{Asked, Inbox, Mistake, Speech, Wish};
use crate::status::Refusal;
use crate::target::{Host, Target};

/// First byte of a request.
pub(crate) const VERSION: u8 = 4;

const GRANTED: u8 = 90;
/// Rejected or failed: there is no number for more.
const REJECTED: u8 = 91;
/// Longest user and name, bytes: a name of DNS has 253 (RFC 1035 §2.3.4), and nobody looks at the user.
const LONGEST: usize = 255;

fn reply(code: u8) -> Vec<u8> {
    vec![0, code, 0, 0, 0, 0, 0, 0]
}

/// What a program hears at the end of its request.
pub(crate) fn answer(outcome: Result<(), &Refusal>) -> Vec<u8> {
    reply(match outcome {
        Ok(()) => GRANTED,
        Err(_) => REJECTED,
    })
}

fn mistake(why: &str) -> Mistake {
    Mistake::new(why, reply(REJECTED))
}

/// Reads a request.
pub(crate) async fn wish(inbox: &mut Inbox<'_>) -> Result<Asked, Mistake> {
    let head = inbox.take(8).await?;
    let port = u16::from_be_bytes([head[2], head[3]]);
    // There are no users here.
    word(inbox).await?;
    let host = match [head[4], head[5], head[6], head[7]] {
        // 4A: no address, a name follows.
        [0, 0, 0, last] if last != 0 => {
            let name = word(inbox).await?;
            let name = std::str::from_utf8(&name).ok();
            let host = name.and_then(|name| Host::parse(name).ok());
            host.ok_or_else(|| mistake("the name that it asks for is none"))?
        }
        octets => Host::Ip(Ipv4Addr::from(octets).into()),
    };
    match head[1] {
        CONNECT => {
            let (speech, target) = (Speech::Socks4, Target { host, port });
            let rest = std::mem::take(&mut inbox.bytes);
            Ok(Asked::Connection(Wish {
                speech,
                target,
                rest,
            }))
        }
        BIND => Err(mistake("it asks for BIND, which is not supported")),
        other => Err(mistake(&format!(
            "it asks for command {other}, which is not supported"
        ))),
    }
}

/// What stands before the next zero.
async fn word(inbox: &mut Inbox<'_>) -> Result<Vec<u8>, Mistake> {
    loop {
        let end = inbox.bytes.iter().position(|byte| *byte == 0);
        if end.unwrap_or(inbox.bytes.len()) > LONGEST {
            return Err(mistake("a word of its request is longer than 255 bytes"));
        }
        if let Some(end) = end {
            let mut word = inbox.take(end + 1).await?;
            word.truncate(end);
            return Ok(word);
        }
        inbox.more().await?;
    }
}
