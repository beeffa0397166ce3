//! The sender's side: it has a number at a server or one of its own, waits for somebody who knows
//! the words, counts wrong guesses, and then looks for a path.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dfcp_proto::{Duration, Instant, PublicKey, SecretRng};

use crate::code::Words;
use crate::machine::{Datagram, Event, Failure, Machine};
use crate::pake::{Exchange, Introduction, Keys, Run, Side};
use crate::party::Party;
use crate::wire::{Allowance, Body, Gone, Id, Letter, PAKE_LEN, Packet, Request, Response, Ticket};
use crate::{LIFETIME, MAX_GUESSES};

/// Attempts that are remembered. A flood of them pushes honest ones out, at [`MAX_RATE`] not before
/// a second and a quarter, which is more than the round trip that they take.
const MAX_ATTEMPTS: usize = 64;
/// New attempts a second. Each costs three multiplications on the curve, some 200 µs: 1 % of a core.
const MAX_RATE: u32 = 50;
/// Between two requests to a server that has not answered: at first, and at most.
const ASK: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];
/// Between two refreshes: bindings of address translators last half a minute at least (RFC 4787
/// §4.3 wants two minutes, many have less), and one refresh may be lost.
const REFRESH: Duration = Duration::from_secs(10);
/// How long a server may take to answer at all.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// Silence after which a server that had answered is taken for gone: two refreshes were lost, or it
/// does not run any more.
const LOST: Duration = Duration::from_secs(25);

/// What an offer is made of.
pub struct OfferConfig {
    /// The secret words.
    pub words: Words,
    /// This side's dfcp key.
    pub key: PublicKey,
    /// This side's own addresses, with the port of the socket.
    pub local: Vec<SocketAddr>,
    /// The server, if there is one.
    pub server: Option<SocketAddr>,
    /// Whether the local network is told of the offer: without that a server is needed.
    pub lan: bool,
    /// How long the code is good, at most [`LIFETIME`].
    pub lifetime: Duration,
}

enum Stage {
    /// Its keys wait for the proof.
    Answered(Keys),
    /// Wrong words; so many guesses were left then.
    Wrong(u8),
    /// The one that knew the words: the welcome, to be said again.
    Welcome(Vec<u8>),
}

struct Attempt {
    id: Id,
    hello: [u8; PAKE_LEN],
    answer: [u8; PAKE_LEN],
    stage: Stage,
}

/// Which way a letter came, and its answer goes.
#[derive(Clone, Copy)]
enum Way {
    Direct(SocketAddr),
    Server(Ticket),
}

/// How the server stands to this offer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was asked and has not answered yet.
    Asked,
    /// The number is open there.
    Open,
    /// It does without.
    Without,
}

/// See the module's text.
pub struct Offer {
    words: Words,
    lan: bool,
    lifetime: Duration,
    party: Party,
    session: Id,
    owner: Id,
    /// Zero until it is known.
    number: u32,
    standing: Standing,
    /// When the server answered last, and whether it was said that it does no more.
    heard: Instant,
    lost: bool,
    began: Instant,
    ask_at: Instant,
    ask_gap: Duration,
    attempts: VecDeque<Attempt>,
    /// Attempts of the second that began then.
    rate: (Instant, u32),
    guesses_left: u8,
}

/// Numbers that an offer without a server chooses among: two digits are said quickly, and few
/// people send at once on one local network.
const OWN_NUMBERS: u64 = 99;

impl Offer {
    /// Opens the offer.
    pub fn new(config: OfferConfig, rng: SecretRng, now: Instant) -> Self {
        let OfferConfig {
            words,
            key,
            local,
            server,
            lan,
            lifetime,
        } = config;
        let mut party = Party::new(Side::Sender, key, local, server, rng);
        let mut offer = Self {
            words,
            lan,
            // Servers keep no code for longer.
            lifetime: lifetime.min(LIFETIME),
            session: party.rng.array(),
            owner: party.rng.array(),
            number: 0,
            standing: match party.link {
                Some(_) => Standing::Asked,
                None => Standing::Without,
            },
            party,
            heard: now,
            lost: false,
            began: now,
            ask_at: now,
            ask_gap: ASK[0],
            attempts: VecDeque::new(),
            rate: (now, 0),
            guesses_left: MAX_GUESSES,
        };
        if offer.party.link.is_none() {
            offer.choose_number();
        }
        offer
    }

    /// The public name of the session, for the local network.
    pub fn session(&self) -> Id {
        self.session
    }

    /// What the server relays, as far as it has said.
    pub fn relay(&self) -> Option<Allowance> {
        self.party.link.as_ref().and_then(|link| link.relay)
    }

    /// Says goodbye to the server: the code is not good any more. For a driver that gives up.
    pub fn withdraw(&mut self) {
        self.close(Gone::Expired);
        self.party.over = true;
    }

    /// Says goodbye to the server after a path was found and the receiver agreed: the code is used. For
    /// a driver, which sends what [`Machine::transmit`] gives from the same socket.
    pub fn spend(&mut self) {
        self.close(Gone::Used);
    }

    /// The same offer at another socket, which has these addresses, after a receiver that came and did
    /// not agree. The code, its time and the guesses left are what they were.
    #[must_use]
    pub fn again(self, local: Vec<SocketAddr>, now: Instant) -> Self {
        let Party { key, link, rng, .. } = self.party;
        let server = link.map(|link| link.address());
        Self {
            party: Party::new(Side::Sender, key, local, server, rng),
            heard: now,
            lost: false,
            ask_at: now,
            ask_gap: ASK[0],
            attempts: VecDeque::new(),
            rate: (now, 0),
            ..self
        }
    }

    /// Its number, zero until it has one.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How long the code is good from `now` on.
    pub fn left(&self, now: Instant) -> Duration {
        (self.began + self.lifetime).saturating_since(now)
    }

    fn choose_number(&mut self) {
        self.number = 1 + self.party.rng.below(OWN_NUMBERS) as u32;
        self.party.events.push_back(Event::Ready(self.number));
    }

    fn close(&mut self, why: Gone) {
        if let (Some(link), Standing::Open) = (&self.party.link, self.standing) {
            let (session, owner) = (self.session, self.owner);
            let close = link.request(&Request::Close {
                session,
                owner,
                why,
            });
            // Nobody answers it. Twice, for one may be lost; forgotten codes end by themselves.
            self.party.out.extend([close.clone(), close]);
        }
    }

    fn end(&mut self, event: Event) {
        if !self.party.over {
            match &event {
                // It is used when the receiver has agreed to what comes of it.
                Event::Found(_) => {}
                Event::Failed(Failure::Gone(why)) => self.close(*why),
                _ => self.close(Gone::Used),
            }
            self.party.over = true;
            self.party.events.push_back(event);
        }
    }

    fn end_if(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.end(event);
        }
    }

    fn ask(&mut self, now: Instant) {
        if let Some(link) = &self.party.link {
            self.party.out.push_back(link.request(&Request::Open {
                session: self.session,
                owner: self.owner,
                number: self.number,
            }));
        }
        self.ask_at = now + self.ask_gap;
        self.ask_gap = match self.standing {
            Standing::Open => REFRESH,
            _ => (self.ask_gap * 2).min(ASK[1]),
        };
    }

    fn without_server(&mut self, failure: Failure) {
        self.standing = Standing::Without;
        self.party.link = None;
        match self.lan {
            true => {
                self.party.events.push_back(Event::WithoutServer(failure));
                self.choose_number();
            }
            false => self.end(Event::Failed(failure)),
        }
    }

    fn on_response(&mut self, now: Instant, response: Response) {
        let Some(link) = &mut self.party.link else {
            return;
        };
        match response {
            Response::Cookie(cookie) if link.take_cookie(now, cookie) => {
                self.ask_gap = ASK[0];
                self.ask(now);
                self.party.ask_again(now);
            }
            Response::Opened {
                number,
                seen,
                relay,
            } => {
                (link.seen, link.relay) = (Some(seen), relay);
                self.heard = now;
                if std::mem::take(&mut self.lost) {
                    self.party.events.push_back(Event::ServerBack);
                }
                if self.standing == Standing::Asked && number > 0 {
                    (self.standing, self.number) = (Standing::Open, number);
                    self.party.events.push_back(Event::Ready(number));
                }
                self.ask_gap = REFRESH;
                self.ask_at = now + REFRESH;
            }
            Response::Busy if self.standing == Standing::Asked => {
                self.without_server(Failure::ServerBusy);
            }
            Response::Delivered { ticket, letter } => {
                self.on_letter(now, Way::Server(ticket), &letter)
            }
            Response::Joined { ready } => {
                let found = self.party.on_joined(ready);
                self.end_if(found);
            }
            _ => {}
        }
    }

    fn say(&mut self, way: Way, attempt: Id, body: Body) {
        let letter = Letter { attempt, body }.encode();
        let datagram = match (way, &self.party.link) {
            (Way::Direct(to), _) => (to, Packet::direct(&self.session, &letter)),
            (Way::Server(ticket), Some(link)) => link.request(&Request::Reply {
                session: self.session,
                ticket,
                letter,
            }),
            (Way::Server(_), None) => return,
        };
        self.party.out.push_back(datagram);
    }

    fn on_letter(&mut self, now: Instant, way: Way, letter: &[u8]) {
        let Some(Letter { attempt, body }) = Letter::parse(letter) else {
            return;
        };
        match body {
            Body::Hello(message) => self.on_hello(now, way, attempt, message),
            Body::Proof(sealed) => self.on_proof(now, way, attempt, &sealed),
            Body::Answer(_) | Body::Welcome(_) | Body::Wrong(_) | Body::Refused(_) => {}
        }
    }

    fn on_hello(&mut self, now: Instant, way: Way, id: Id, hello: [u8; PAKE_LEN]) {
        if let Some(known) = self.attempts.iter().find(|attempt| attempt.id == id) {
            if known.hello == hello {
                let body = Body::Answer(known.answer);
                self.say(way, id, body);
            }
            return;
        }
        if self.party.has_met() {
            return self.say(way, id, Body::Refused(Gone::Used));
        }
        if now.saturating_since(self.rate.0) >= Duration::from_secs(1) {
            self.rate = (now, 0);
        }
        if self.rate.1 >= MAX_RATE {
            return; // it asks again
        }
        self.rate.1 += 1;
        let run = Run {
            side: Side::Sender,
            session: &self.session,
            attempt: &id,
            words: &self.words,
        };
        let exchange = Exchange::start(run, &mut self.party.rng);
        let answer = exchange.message();
        let Some(keys) = exchange.finish(&hello) else {
            return;
        };
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(Attempt {
            id,
            hello,
            answer,
            stage: Stage::Answered(keys),
        });
        self.say(way, id, Body::Answer(answer));
    }

    fn on_proof(&mut self, now: Instant, way: Way, id: Id, sealed: &[u8]) {
        let is_met = self.party.has_met();
        let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.id == id) else {
            return;
        };
        let body = match &attempt.stage {
            Stage::Wrong(left) => Body::Wrong(*left),
            Stage::Welcome(welcome) => Body::Welcome(welcome.clone()),
            Stage::Answered(_) if is_met => Body::Refused(Gone::Used),
            // The guess counts before anything is said about it.
            Stage::Answered(keys) => match keys.open(sealed) {
                Some(peer) => return self.meet(now, way, id, peer),
                None => {
                    self.guesses_left = self.guesses_left.saturating_sub(1);
                    attempt.stage = Stage::Wrong(self.guesses_left);
                    self.party
                        .events
                        .push_back(Event::WrongGuess(self.guesses_left));
                    Body::Wrong(self.guesses_left)
                }
            },
        };
        self.say(way, id, body);
        if self.guesses_left == 0 {
            self.end(Event::Failed(Failure::Gone(Gone::Dead)));
        }
    }

    /// Somebody knew the words: from here on the code is used.
    fn meet(&mut self, now: Instant, way: Way, id: Id, peer: Introduction) {
        let own = self.party.introduction();
        let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.id == id) else {
            return;
        };
        let Stage::Answered(keys) = std::mem::replace(&mut attempt.stage, Stage::Wrong(0)) else {
            return;
        };
        let welcome = keys.seal(&own);
        attempt.stage = Stage::Welcome(welcome.clone());
        self.say(way, id, Body::Welcome(welcome));
        let from = match way {
            Way::Direct(address) => Some(address),
            Way::Server(_) => None,
        };
        self.party.meet(now, self.session, keys, from, peer);
        // Its keys are of no use any more.
        self.attempts.retain(|attempt| attempt.id == id);
        self.on_timeout(now);
    }
}

impl Machine for Offer {
    fn handle(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        if self.party.over {
            return;
        }
        match Packet::parse(datagram) {
            Some(Packet::Response(nonce, response)) => {
                let link = self.party.link.as_ref();
                if link.is_some_and(|link| link.is_genuine(from, nonce, &response)) {
                    self.on_response(now, response);
                }
            }
            Some(Packet::Direct { session, letter }) if session == self.session => {
                self.on_letter(now, Way::Direct(from), &letter);
            }
            Some(Packet::Probe(probe)) => {
                let found = self.party.on_probe(now, from, &probe);
                self.end_if(found);
            }
            _ => {}
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.party.over {
            return;
        }
        if self.party.has_met() {
            let found = self.party.on_timeout(now);
            self.end_if(found);
        } else if now.saturating_since(self.began) >= self.lifetime {
            return self.end(Event::Failed(Failure::Gone(Gone::Expired)));
        }
        if self.party.over || self.standing == Standing::Without {
            return;
        }
        let waited = now.saturating_since(self.began);
        if self.standing == Standing::Asked && waited >= SERVER_PATIENCE {
            return self.without_server(Failure::ServerSilent);
        }
        if now >= self.ask_at {
            // Who has met needs it no more, or hears of it by the path that is not found.
            let silence = now.saturating_since(self.heard);
            if silence >= LOST && !self.lost && !self.party.has_met() {
                self.lost = true;
                self.party.events.push_back(Event::ServerLost);
            }
            self.ask(now);
        }
    }

    fn transmit(&mut self) -> Option<Datagram> {
        self.party.out.pop_front()
    }

    fn timeout(&self) -> Option<Instant> {
        if self.party.over {
            return None;
        }
        let expires = self.began + self.lifetime;
        let ends = self.party.timeout().unwrap_or(expires);
        Some(match self.standing {
            Standing::Without => ends,
            Standing::Open => ends.min(self.ask_at),
            Standing::Asked => ends.min(self.ask_at).min(self.began + SERVER_PATIENCE),
        })
    }

    fn event(&mut self) -> Option<Event> {
        self.party.events.pop_front()
    }
}
