//! The server where two peers find each other: numbers, letters between those who have one, and for
//! those who cannot reach each other a relay.
//!
//! It keeps everything in memory, knows no keys, no words and no data, and is built to be left alone
//! on a public address:
//!
//! - nothing is kept or sent elsewhere for an address that has not returned a cookie;
//! - each request leads to one datagram at most, which is no longer than the request;
//! - all tables are bounded; what an address prefix may ask, and hold, is limited;
//! - answers to letters need no table: where they go stands in a ticket that only the server makes.

mod limits;
mod numbers;
mod relay;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use dfcp_proto::{Duration, Instant, SecretRng};

pub use crate::wire::Allowance as RelayLimits;
use crate::wire::{Id, REQUEST_LEN, Request, Response, Ticket, is_meeting, put_address};
use limits::Limits;
use numbers::{Numbers, Opening};
use relay::Relays;

/// How long one secret makes cookies and tickets; they are good for this long and as long again.
const SLOT: Duration = Duration::from_secs(120);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// What it relays for one pair; nothing without.
    pub relay: Option<RelayLimits>,
    /// Pairs that are relayed at a time.
    pub max_relays: usize,
    /// Codes that are open at a time.
    pub max_codes: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            relay: None,
            max_relays: 64,
            max_codes: 10_000,
        }
    }
}

/// Somebody who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its address.
    pub address: SocketAddr,
    /// The server's own address that it asks at, if that is known: it knows the server by no other.
    pub at: Option<IpAddr>,
}

impl From<SocketAddr> for Asker {
    fn from(address: SocketAddr) -> Self {
        Self { address, at: None }
    }
}

/// What to do about a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Drop,
    /// Send this there, from where that one asks.
    Send(Asker, Vec<u8>),
    /// Send the datagram on as it is, from there, too.
    Forward(Asker),
}

/// The server's own addresses that are remembered: machines have a few, and may change those of IPv6 daily.
const OWN_ADDRESSES: usize = 16;

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Codes that are open.
    pub codes: usize,
    /// Pairs that are relayed.
    pub relays: usize,
    /// Codes that were opened.
    pub opened: u64,
    /// Letters that were passed on.
    pub letters: u64,
    /// Bytes that were relayed.
    pub relayed_bytes: u64,
    /// Requests that were refused because there were too many.
    pub refused: u64,
}

/// See the module's text.
pub struct Server {
    config: ServerConfig,
    rng: SecretRng,
    /// Of this slot and the one before.
    secrets: [[u8; 32]; 2],
    slot_ends: Instant,
    /// Where it was asked, the last place first.
    own: VecDeque<Option<IpAddr>>,
    limits: Limits,
    numbers: Numbers,
    relays: Relays,
    stats: ServerStats,
}

/// What requests cost of an address prefix' allowance: see [`limits`].
mod cost {
    /// Letters, refreshes, joins.
    pub const SMALL: u32 = 1;
    /// Questions for a number: each is a guess.
    pub const FIND: u32 = 5;
    /// New codes.
    pub const OPEN: u32 = 5;
}

impl Server {
    /// A server with nothing in it.
    pub fn new(config: ServerConfig, mut rng: SecretRng, now: Instant) -> Self {
        let secrets = [rng.array(), rng.array()];
        Self {
            secrets,
            slot_ends: now + SLOT,
            own: VecDeque::new(),
            limits: Limits::default(),
            numbers: Numbers::new(config.max_codes),
            relays: Relays::new(config.relay, config.max_relays),
            stats: ServerStats::default(),
            rng,
            config,
        }
    }

    /// Figures for its owner.
    pub fn stats(&self) -> ServerStats {
        ServerStats {
            codes: self.numbers.len(),
            relays: self.relays.len(),
            ..self.stats
        }
    }

    /// Reads a datagram; anything may be in it.
    pub fn handle(&mut self, now: Instant, from: impl Into<Asker>, datagram: &[u8]) -> Action {
        let from = from.into();
        self.turn(now);
        if !is_meeting(datagram) {
            return match self.relays.forward(now, from.address, datagram.len()) {
                Some(to) => {
                    self.stats.relayed_bytes += datagram.len() as u64;
                    Action::Forward(to)
                }
                None => Action::Drop,
            };
        }
        let Some((nonce, cookie, request)) = Request::parse(datagram) else {
            return Action::Drop;
        };
        let own = self.cookies(from.address);
        if !own.contains(&cookie) {
            return Action::Send(from, Response::Cookie(own[0]).encode(nonce));
        }
        self.note_own(from.at);
        let answer = self.answer(now, from, request);
        let action = match answer {
            Answer::Nothing => Action::Drop,
            Answer::Here(response) => Action::Send(from, response.encode(nonce)),
            Answer::There(to, response) => Action::Send(to, response.encode(nonce)),
        };
        debug_assert!(!matches!(&action, Action::Send(_, out) if out.len() > REQUEST_LEN));
        action
    }

    /// Forgets what is over.
    fn turn(&mut self, now: Instant) {
        if now >= self.slot_ends {
            // After two slots without a datagram both secrets are of no use.
            self.secrets = [self.rng.array(), self.secrets[0]];
            if now >= self.slot_ends + SLOT {
                self.secrets[1] = self.rng.array();
            }
            self.slot_ends = now + SLOT;
        }
        self.numbers.turn(now);
        self.relays.turn(now);
    }

    /// The cookies that are good, the present one first.
    fn cookies(&self, of: SocketAddr) -> [Id; 2] {
        self.secrets
            .map(|secret| mac(&secret, b"cookie", of.into(), &[0; 16]))
    }

    fn tickets(&self, of: Asker, session: &Id) -> [Id; 2] {
        self.secrets
            .map(|secret| mac(&secret, b"ticket", of, session))
    }

    /// Whom a ticket was made for. Where that one asks is not written in it: it is where its MAC is good.
    fn holder(&self, ticket: &Ticket, session: &Id) -> Option<Asker> {
        let address = ticket.address;
        let mut askers = self.own.iter().map(|&at| Asker { address, at });
        askers.find(|asker| self.tickets(*asker, session).contains(&ticket.mac))
    }

    fn note_own(&mut self, at: Option<IpAddr>) {
        if self.own.front() != Some(&at) {
            self.own.retain(|known| *known != at);
            self.own.push_front(at);
            self.own.truncate(OWN_ADDRESSES);
        }
    }

    fn allows(&mut self, now: Instant, from: Asker, cost: u32) -> bool {
        let allows = self.limits.take(now, from.address.ip(), cost);
        self.stats.refused += u64::from(!allows);
        allows
    }

    fn open(&mut self, now: Instant, opening: Opening) -> Response {
        let (seen, relay) = (opening.asker.address, self.config.relay);
        let is_new = !self.numbers.is_open(&opening.session);
        let Some(number) = self.numbers.open(now, opening, &mut self.rng) else {
            return Response::Busy;
        };
        self.stats.opened += u64::from(is_new);
        Response::Opened {
            number,
            seen,
            relay,
        }
    }

    fn answer(&mut self, now: Instant, from: Asker, request: Request) -> Answer {
        let cost = match &request {
            Request::Find { .. } => cost::FIND,
            Request::Open { session, .. } if !self.numbers.is_open(session) => cost::OPEN,
            _ => cost::SMALL,
        };
        if !self.allows(now, from, cost) {
            return Answer::Here(Response::Busy);
        }
        match request {
            Request::Open {
                session,
                owner,
                number,
            } => {
                let opening = Opening {
                    session,
                    owner,
                    number,
                    asker: from,
                };
                Answer::Here(self.open(now, opening))
            }
            Request::Find { number } => Answer::Here(match self.numbers.find(number) {
                Ok(session) => Response::Found {
                    session,
                    seen: from.address,
                    relay: self.config.relay,
                },
                Err(why) => Response::Gone(why),
            }),
            Request::Send { session, letter } => match self.numbers.sender(&session) {
                Some(to) => {
                    self.stats.letters += 1;
                    let ticket = Ticket {
                        address: from.address,
                        mac: self.tickets(from, &session)[0],
                    };
                    Answer::There(to, Response::Delivered { ticket, letter })
                }
                None => Answer::Nothing,
            },
            Request::Reply {
                session,
                ticket,
                letter,
            } => {
                // Only the session's sender, and only to who wrote to it.
                let sender = self.numbers.sender(&session);
                let is_sender = sender.is_some_and(|sender| sender.address == from.address);
                // What is cheap first: each of its own addresses costs a hash.
                match is_sender.then(|| self.holder(&ticket, &session)).flatten() {
                    Some(to) => {
                        self.stats.letters += 1;
                        Answer::There(to, Response::Answer { session, letter })
                    }
                    None => Answer::Nothing,
                }
            }
            Request::Join {
                session,
                token,
                sender,
            } => {
                let is_open = self.numbers.is_open(&session);
                let joined = self.relays.join(now, from, token, sender, is_open);
                let joined = joined.map(|ready| Response::Joined { ready });
                Answer::Here(joined.unwrap_or(Response::Busy))
            }
            Request::Close {
                session,
                owner,
                why,
            } => {
                self.numbers.close(now, &session, &owner, why);
                Answer::Nothing
            }
        }
    }
}

/// One datagram at most.
enum Answer {
    Nothing,
    Here(Response),
    There(Asker, Response),
}

fn mac(secret: &[u8; 32], label: &[u8; 6], of: Asker, session: &Id) -> Id {
    let mut input = label.to_vec();
    put_address(&mut input, of.address);
    input.extend(session);
    if let Some(at) = of.at {
        put_address(&mut input, SocketAddr::new(at, 0));
    }
    *blake3::keyed_hash(secret, &input)
        .as_bytes()
        .first_chunk()
        .expect("16 of 32 bytes")
}
