//! Datagrams of a meeting. Every one begins with [`MAGIC`], whose first byte no packet of the sealed
//! transport begins with, so both share a socket. Parsing is total: what is not understood is `None`.
//!
//! A request to a server is always [`REQUEST_LEN`] bytes long, and no answer is longer: whoever
//! forges addresses gets nothing amplified.

mod fields;

pub(crate) use fields::{Reader, put_address};
use fields::{put_letter, put_relay, put_ticket};
use std::net::SocketAddr;

/// What every datagram begins with; the last byte is the version.
pub const MAGIC: [u8; 4] = [0xd5, b'm', b't', 1];
/// Bytes of every request to a server.
pub const REQUEST_LEN: usize = 512;
/// Longest letter between two peers: the largest fits in a request with all that is around it.
pub const MAX_LETTER: usize = 400;
/// Bytes of an address: that of IPv6, or IPv4's within it (RFC 4291 §2.5.5.2), and the port.
pub const ADDRESS_LEN: usize = 18;
/// Bytes of a message of the key exchange: which side's it is, and a point.
pub const PAKE_LEN: usize = 33;

/// Sixteen bytes that name something and cannot be guessed.
pub type Id = [u8; 16];

/// Whether a datagram is one of a meeting, well-formed or not.
pub fn is_meeting(datagram: &[u8]) -> bool {
    datagram.starts_with(&MAGIC)
}

/// Why a number leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// No sender has it.
    Unknown,
    /// Its time is over, or its sender left.
    Expired,
    /// It was used.
    Used,
    /// Too many wrong words were tried.
    Dead,
}

impl Gone {
    fn byte(self) -> u8 {
        self as u8
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Unknown, Self::Expired, Self::Used, Self::Dead]
            .into_iter()
            .find(|gone| gone.byte() == byte)
    }
}

/// What a relay carries for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes of datagrams, both ways together.
    pub bytes: u64,
    /// Seconds.
    pub seconds: u32,
}

/// Where to send the answer to a letter that came through a server. Only the server can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The receiver's address as the server sees it.
    pub address: SocketAddr,
    /// The server's proof that a letter for this session came from there.
    pub mac: Id,
}

/// What peers ask of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A sender waits; repeated while it does. Number 0 asks for any.
    Open {
        /// Public name of the session.
        session: Id,
        /// Known to the sender and the server alone.
        owner: Id,
        /// The number it has, or 0.
        number: u32,
    },
    /// Which session has this number?
    Find {
        /// The number of the code.
        number: u32,
    },
    /// A letter to the sender of a session.
    Send {
        /// Which.
        session: Id,
        /// The letter.
        letter: Vec<u8>,
    },
    /// A sender's answer to a letter.
    Reply {
        /// Which session it is.
        session: Id,
        /// Where the letter came from.
        ticket: Ticket,
        /// The letter.
        letter: Vec<u8>,
    },
    /// One end of a relayed path.
    Join {
        /// The session that it is for.
        session: Id,
        /// Known to the two peers; the same from both.
        token: Id,
        /// Whether it is the sender.
        sender: bool,
    },
    /// The session is over.
    Close {
        /// Which.
        session: Id,
        /// Proof that it is the sender who says so.
        owner: Id,
        /// Why.
        why: Gone,
    },
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Ask again with this cookie.
    Cookie(Id),
    /// The session is open.
    Opened {
        /// Its number.
        number: u32,
        /// The sender's address as the server sees it.
        seen: SocketAddr,
        /// What may be relayed.
        relay: Option<Allowance>,
    },
    /// A sender waits under the number.
    Found {
        /// Its session.
        session: Id,
        /// The receiver's address as the server sees it.
        seen: SocketAddr,
        /// What may be relayed.
        relay: Option<Allowance>,
    },
    /// The number leads nowhere.
    Gone(Gone),
    /// Too many requests from there, or in all.
    Busy,
    /// To a sender: a letter for its session.
    Delivered {
        /// Where its answer goes.
        ticket: Ticket,
        /// The letter.
        letter: Vec<u8>,
    },
    /// To a receiver: the answer to a letter.
    Answer {
        /// Of which session.
        session: Id,
        /// The letter.
        letter: Vec<u8>,
    },
    /// The relayed path has this end; with both it is ready.
    Joined {
        /// Whether both ends are there.
        ready: bool,
    },
}

/// Probes between two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Is this path open?
    Probe,
    /// It is.
    Echo,
    /// The sender takes this path.
    Chosen,
}

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What it says.
    pub kind: ProbeKind,
    /// What an echo repeats.
    pub nonce: u64,
    /// Proof that it is of the peer.
    pub mac: Id,
}

/// Any datagram that a peer can get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// From a server; the number is that of the requests.
    Response(u64, Response),
    /// From a peer on the local network.
    Direct {
        /// Of which session.
        session: Id,
        /// The letter.
        letter: Vec<u8>,
    },
    /// From a peer that is looking for a path.
    Probe(Probe),
}

/// What two peers say to each other before they know each other's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The attempt that it belongs to, the receiver's choice.
    pub attempt: Id,
    /// What it says.
    pub body: Body,
}

/// See [`Letter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Receiver: its message of the key exchange.
    Hello([u8; PAKE_LEN]),
    /// Sender: its message.
    Answer([u8; PAKE_LEN]),
    /// Receiver: that it has the key, its name and addresses.
    Proof(Vec<u8>),
    /// Sender: the same.
    Welcome(Vec<u8>),
    /// Sender: those are not the words; so many more guesses are allowed.
    Wrong(u8),
    /// Sender: the code is not good any more.
    Refused(Gone),
}

const OPEN: u8 = 0x01;
const FIND: u8 = 0x02;
const SEND: u8 = 0x03;
const REPLY: u8 = 0x04;
const JOIN: u8 = 0x05;
const CLOSE: u8 = 0x06;
const COOKIE: u8 = 0x81;
const OPENED: u8 = 0x82;
const FOUND: u8 = 0x83;
const GONE: u8 = 0x84;
const BUSY: u8 = 0x85;
const DELIVERED: u8 = 0x86;
const ANSWER: u8 = 0x87;
const JOINED: u8 = 0x88;
const DIRECT: u8 = 0x21;
const PROBE: u8 = 0x31;
const ECHO: u8 = 0x32;
const CHOSEN: u8 = 0x33;

fn start(kind: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(REQUEST_LEN);
    out.extend(MAGIC);
    out.push(kind);
    out
}

impl Request {
    /// The datagram; `nonce` comes back in the answer.
    pub fn encode(&self, nonce: u64, cookie: &Id) -> Vec<u8> {
        let mut out = start(match self {
            Self::Open { .. } => OPEN,
            Self::Find { .. } => FIND,
            Self::Send { .. } => SEND,
            Self::Reply { .. } => REPLY,
            Self::Join { .. } => JOIN,
            Self::Close { .. } => CLOSE,
        });
        out.extend(nonce.to_be_bytes());
        out.extend(cookie);
        match self {
            Self::Open {
                session,
                owner,
                number,
            } => {
                out.extend(session);
                out.extend(owner);
                out.extend(number.to_be_bytes());
            }
            Self::Find { number } => out.extend(number.to_be_bytes()),
            Self::Send { session, letter } => {
                out.extend(session);
                put_letter(&mut out, letter);
            }
            Self::Reply {
                session,
                ticket,
                letter,
            } => {
                out.extend(session);
                put_ticket(&mut out, ticket);
                put_letter(&mut out, letter);
            }
            Self::Join {
                session,
                token,
                sender,
            } => {
                out.extend(session);
                out.extend(token);
                out.push(u8::from(*sender));
            }
            Self::Close {
                session,
                owner,
                why,
            } => {
                out.extend(session);
                out.extend(owner);
                out.push(why.byte());
            }
        }
        out.resize(REQUEST_LEN, 0);
        out
    }

    /// A request with its nonce and cookie.
    pub fn parse(datagram: &[u8]) -> Option<(u64, Id, Self)> {
        if datagram.len() != REQUEST_LEN {
            return None;
        }
        let mut r = Reader(datagram.strip_prefix(&MAGIC)?);
        let (kind, nonce, cookie) = (r.u8()?, r.u64()?, r.array()?);
        let request = match kind {
            OPEN => Self::Open {
                session: r.array()?,
                owner: r.array()?,
                number: r.u32()?,
            },
            FIND => Self::Find { number: r.u32()? },
            SEND => Self::Send {
                session: r.array()?,
                letter: r.letter()?,
            },
            REPLY => Self::Reply {
                session: r.array()?,
                ticket: r.ticket()?,
                letter: r.letter()?,
            },
            JOIN => Self::Join {
                session: r.array()?,
                token: r.array()?,
                sender: r.u8()? == 1,
            },
            CLOSE => Self::Close {
                session: r.array()?,
                owner: r.array()?,
                why: Gone::from_byte(r.u8()?)?,
            },
            _ => return None,
        };
        Some((nonce, cookie, request))
    }
}

impl Response {
    /// The datagram that answers the request with `nonce`.
    pub fn encode(&self, nonce: u64) -> Vec<u8> {
        let mut out = start(match self {
            Self::Cookie(_) => COOKIE,
            Self::Opened { .. } => OPENED,
            Self::Found { .. } => FOUND,
            Self::Gone(_) => GONE,
            Self::Busy => BUSY,
            Self::Delivered { .. } => DELIVERED,
            Self::Answer { .. } => ANSWER,
            Self::Joined { .. } => JOINED,
        });
        out.extend(nonce.to_be_bytes());
        match self {
            Self::Cookie(cookie) => out.extend(cookie),
            Self::Opened {
                number,
                seen,
                relay,
            } => {
                out.extend(number.to_be_bytes());
                put_address(&mut out, *seen);
                put_relay(&mut out, *relay);
            }
            Self::Found {
                session,
                seen,
                relay,
            } => {
                out.extend(session);
                put_address(&mut out, *seen);
                put_relay(&mut out, *relay);
            }
            Self::Gone(why) => out.push(why.byte()),
            Self::Busy => {}
            Self::Delivered { ticket, letter } => {
                put_ticket(&mut out, ticket);
                put_letter(&mut out, letter);
            }
            Self::Answer { session, letter } => {
                out.extend(session);
                put_letter(&mut out, letter);
            }
            Self::Joined { ready } => out.push(u8::from(*ready)),
        }
        out
    }
}

impl Packet {
    /// What a peer got, if it is one of these.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let mut r = Reader(datagram.strip_prefix(&MAGIC)?);
        let kind = r.u8()?;
        match kind {
            DIRECT => {
                let session = r.array()?;
                let letter = r.letter()?;
                return Some(Self::Direct { session, letter });
            }
            PROBE | ECHO | CHOSEN => {
                return Some(Self::Probe(Probe {
                    kind: match kind {
                        PROBE => ProbeKind::Probe,
                        ECHO => ProbeKind::Echo,
                        _ => ProbeKind::Chosen,
                    },
                    nonce: r.u64()?,
                    mac: r.array()?,
                }));
            }
            _ => {}
        }
        let nonce = r.u64()?;
        let response = match kind {
            COOKIE => Response::Cookie(r.array()?),
            OPENED => Response::Opened {
                number: r.u32()?,
                seen: r.address()?,
                relay: r.relay()?,
            },
            FOUND => Response::Found {
                session: r.array()?,
                seen: r.address()?,
                relay: r.relay()?,
            },
            GONE => Response::Gone(Gone::from_byte(r.u8()?)?),
            BUSY => Response::Busy,
            DELIVERED => Response::Delivered {
                ticket: r.ticket()?,
                letter: r.letter()?,
            },
            ANSWER => Response::Answer {
                session: r.array()?,
                letter: r.letter()?,
            },
            JOINED => Response::Joined {
                ready: r.u8()? == 1,
            },
            _ => return None,
        };
        Some(Self::Response(nonce, response))
    }

    /// The datagram of a letter without a server between.
    pub fn direct(session: &Id, letter: &[u8]) -> Vec<u8> {
        let mut out = start(DIRECT);
        out.extend(session);
        put_letter(&mut out, letter);
        out
    }
}

impl Probe {
    /// The datagram.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = start(self.kind.byte());
        out.extend(self.nonce.to_be_bytes());
        out.extend(self.mac);
        out
    }
}

impl ProbeKind {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Probe => PROBE,
            Self::Echo => ECHO,
            Self::Chosen => CHOSEN,
        }
    }
}

impl Letter {
    /// The letter as it travels.
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self.body {
            Body::Hello(_) => 1,
            Body::Answer(_) => 2,
            Body::Proof(_) => 3,
            Body::Welcome(_) => 4,
            Body::Wrong(_) => 5,
            Body::Refused(_) => 6,
        };
        let mut out = vec![kind];
        out.extend(self.attempt);
        match &self.body {
            Body::Hello(point) | Body::Answer(point) => out.extend(point),
            Body::Proof(sealed) | Body::Welcome(sealed) => out.extend(sealed),
            Body::Wrong(left) => out.push(*left),
            Body::Refused(why) => out.push(why.byte()),
        }
        out
    }

    /// The letter, if it is one.
    pub fn parse(letter: &[u8]) -> Option<Self> {
        let mut r = Reader(letter);
        let (kind, attempt) = (r.u8()?, r.array()?);
        let body = match kind {
            1 => Body::Hello(r.array()?),
            2 => Body::Answer(r.array()?),
            3 => Body::Proof(r.0.to_vec()),
            4 => Body::Welcome(r.0.to_vec()),
            5 => Body::Wrong(r.u8()?),
            6 => Body::Refused(Gone::from_byte(r.u8()?)?),
            _ => return None,
        };
        Some(Self { attempt, body })
    }
}

#[cfg(test)]
mod tests;
