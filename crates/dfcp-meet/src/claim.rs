//! The receiver's side: it looks for sessions with the number of its code, at a server and on the
//! local network, proves to each that it knows the words, and then looks for a path to the first
//! that proves the same.
//!
//! A session has one attempt, whatever ways lead to it, so that a typing error costs one guess.

use std::net::SocketAddr;

use dfcp_proto::{Duration, Instant, PublicKey, SecretRng};

use crate::code::Code;
use crate::machine::{Datagram, Event, Failure, Machine};
use crate::pake::{Exchange, Introduction, Keys, Run, Side};
use crate::party::Party;
use crate::wire::{Body, Id, Letter, PAKE_LEN, Packet, Request, Response};

/// Sessions of one number that are tried. Each may be an impostor's, who gets one guess.
const MAX_SESSIONS: usize = 3;
/// Addresses of a session on the local network.
const MAX_WAYS: usize = 8;
/// Between two times that a letter or a request is sent: at first, and at most. Four ways of a
/// letter and its answer through a server at 20 % loss each let two in five through: of the dozen
/// that [`SESSION_PATIENCE`] has room for, one in a thousand times none.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(600)];
/// After so long without an answer the server is asked whether the sender is still there.
const DOUBT: Duration = Duration::from_millis(1500);
/// How long the local network is searched. A responder of mDNS may wait 120 ms (RFC 6762 §6), and
/// questions are repeated after 1 s and 2 s more (§5.2): two may be lost.
const LAN_WINDOW: Duration = Duration::from_secs(4);
/// How long another session of the number is waited for after one said that the words are wrong.
const OTHERS_WINDOW: Duration = Duration::from_millis(1500);
/// How long a server may take to answer at all.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);
/// How long a session that was found may be silent.
const SESSION_PATIENCE: Duration = Duration::from_secs(8);

/// What a claim is made of.
pub struct ClaimConfig {
    /// The code that was typed.
    pub code: Code,
    /// This side's dfcp key.
    pub key: PublicKey,
    /// This side's own addresses, with the port of the socket.
    pub local: Vec<SocketAddr>,
    /// The server, if there is one.
    pub server: Option<SocketAddr>,
    /// Whether the local network is searched ([`Claim::found_locally`]).
    pub lan: bool,
}

enum Stage {
    /// The sender's message is waited for.
    Hello(Option<Exchange>, [u8; PAKE_LEN]),
    /// Its welcome is.
    Proof(Keys, Vec<u8>),
    /// It said no.
    Over(Failure),
}

struct Guess {
    session: Id,
    attempt: Id,
    direct: Vec<SocketAddr>,
    by_server: bool,
    since: Instant,
    stage: Stage,
}

/// How the server stands to this claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was asked and has not answered yet.
    Asked,
    /// It knows a session.
    Found,
    /// It does not, or there is none.
    Not(Option<Failure>),
}

/// See the module's text.
pub struct Claim {
    code: Code,
    lan: bool,
    party: Party,
    standing: Standing,
    began: Instant,
    again_at: Instant,
    gap: Duration,
    guesses: Vec<Guess>,
}

impl Claim {
    /// Begins the search.
    pub fn new(config: ClaimConfig, rng: SecretRng, now: Instant) -> Self {
        let ClaimConfig {
            code,
            key,
            local,
            server,
            lan,
        } = config;
        let party = Party::new(Side::Receiver, key, local, server, rng);
        Self {
            code,
            lan,
            standing: match party.link {
                Some(_) => Standing::Asked,
                None => Standing::Not(None),
            },
            party,
            began: now,
            again_at: now,
            gap: AGAIN[0],
            guesses: Vec::new(),
        }
    }

    /// A session with the number of the code is on the local network, at one of these addresses.
    pub fn found_locally(&mut self, now: Instant, session: Id, addresses: &[SocketAddr]) {
        if self.party.over || self.party.has_met() {
            return;
        }
        if let Some(at) = self.guess(now, session) {
            let direct = &mut self.guesses[at].direct;
            for address in addresses {
                if direct.len() < MAX_WAYS && !direct.contains(address) {
                    direct.push(*address);
                }
            }
            self.say(at);
        }
    }

    /// The guess at a session, a new one if it was not known.
    fn guess(&mut self, now: Instant, session: Id) -> Option<usize> {
        let known = self
            .guesses
            .iter()
            .position(|guess| guess.session == session);
        if known.is_some() || self.guesses.len() == MAX_SESSIONS {
            return known;
        }
        let attempt: Id = self.party.rng.array();
        let run = Run {
            side: Side::Receiver,
            session: &session,
            attempt: &attempt,
            words: &self.code.words,
        };
        let exchange = Exchange::start(run, &mut self.party.rng);
        let hello = exchange.message();
        self.guesses.push(Guess {
            session,
            attempt,
            direct: Vec::new(),
            by_server: false,
            since: now,
            stage: Stage::Hello(Some(exchange), hello),
        });
        (self.gap, self.again_at) = (AGAIN[0], now + AGAIN[0]);
        Some(self.guesses.len() - 1)
    }

    /// Sends what a session is to hear, on all ways to it.
    fn say(&mut self, at: usize) {
        let guess = &self.guesses[at];
        let body = match &guess.stage {
            Stage::Hello(_, hello) => Body::Hello(*hello),
            Stage::Proof(_, sealed) => Body::Proof(sealed.clone()),
            Stage::Over(_) => return,
        };
        let attempt = guess.attempt;
        let letter = Letter { attempt, body }.encode();
        for way in &guess.direct {
            let datagram = Packet::direct(&guess.session, &letter);
            self.party.out.push_back((*way, datagram));
        }
        if let (Some(link), true) = (&self.party.link, guess.by_server) {
            let session = guess.session;
            self.party
                .out
                .push_back(link.request(&Request::Send { session, letter }));
        }
    }

    /// Sends all that waits for an answer.
    fn say_all(&mut self, now: Instant) {
        let doubts = |guess: &Guess| now.saturating_since(guess.since) >= DOUBT;
        let asks = match self.standing {
            Standing::Asked => true,
            Standing::Found => self.guesses.iter().any(doubts),
            Standing::Not(_) => false,
        };
        if let (Some(link), true) = (&self.party.link, asks) {
            let number = self.code.number;
            self.party
                .out
                .push_back(link.request(&Request::Find { number }));
        }
        (0..self.guesses.len()).for_each(|at| self.say(at));
    }

    fn end(&mut self, event: Event) {
        if !self.party.over {
            self.party.over = true;
            self.party.events.push_back(event);
        }
    }

    fn end_if(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.end(event);
        }
    }

    fn on_response(&mut self, now: Instant, response: Response) {
        let Some(link) = &mut self.party.link else {
            return;
        };
        match response {
            Response::Cookie(cookie) => match link.take_cookie(now, cookie) {
                true if !self.party.has_met() => self.say_all(now),
                true => self.party.ask_again(now),
                false => {}
            },
            Response::Found {
                session,
                seen,
                relay,
            } => {
                (link.seen, link.relay) = (Some(seen), relay);
                if self.standing == Standing::Asked && !self.party.has_met() {
                    self.standing = Standing::Found;
                    if let Some(at) = self.guess(now, session) {
                        self.guesses[at].by_server = true;
                        self.say(at);
                    }
                }
            }
            Response::Gone(why) if self.standing == Standing::Asked => {
                self.standing = Standing::Not(Some(Failure::Gone(why)));
            }
            Response::Gone(why) => {
                let told =
                    |guess: &&mut Guess| guess.by_server && !matches!(guess.stage, Stage::Over(_));
                for guess in self.guesses.iter_mut().filter(told) {
                    guess.stage = Stage::Over(Failure::Gone(why));
                }
            }
            Response::Busy if self.standing == Standing::Asked => {
                self.standing = Standing::Not(Some(Failure::ServerBusy));
            }
            Response::Answer { session, letter } => self.on_letter(now, None, session, &letter),
            Response::Joined { ready } => {
                let found = self.party.on_joined(ready);
                self.end_if(found);
            }
            _ => {}
        }
    }

    fn on_letter(&mut self, now: Instant, from: Option<SocketAddr>, session: Id, letter: &[u8]) {
        if self.party.has_met() {
            return;
        }
        let Some(Letter { attempt, body }) = Letter::parse(letter) else {
            return;
        };
        let is_it = |guess: &Guess| guess.session == session && guess.attempt == attempt;
        let Some(at) = self.guesses.iter().position(is_it) else {
            return;
        };
        let introduction = self.party.introduction();
        let guess = &mut self.guesses[at];
        match (&mut guess.stage, body) {
            (Stage::Hello(exchange, _), Body::Answer(answer)) => {
                // An answer that is no message spends the exchange: then the session is silent.
                let keys = exchange
                    .take()
                    .and_then(|exchange| exchange.finish(&answer));
                if let Some(keys) = keys {
                    let sealed = keys.seal(&introduction);
                    guess.stage = Stage::Proof(keys, sealed);
                    guess.since = now;
                    (self.gap, self.again_at) = (AGAIN[0], now + AGAIN[0]);
                    self.say(at);
                }
            }
            (Stage::Proof(keys, _), Body::Welcome(sealed)) => {
                if let Some(peer) = keys.open(&sealed) {
                    let stage = std::mem::replace(&mut guess.stage, Stage::Over(Failure::Silent));
                    if let Stage::Proof(keys, _) = stage {
                        self.meet(now, from, session, keys, peer);
                    }
                }
            }
            (Stage::Over(_), _) => {}
            (_, Body::Wrong(left)) => guess.stage = Stage::Over(Failure::WrongCode(left)),
            (_, Body::Refused(why)) => guess.stage = Stage::Over(Failure::Gone(why)),
            _ => {}
        }
        self.give_up_if_over(now);
    }

    fn meet(
        &mut self,
        now: Instant,
        from: Option<SocketAddr>,
        session: Id,
        keys: Keys,
        peer: Introduction,
    ) {
        self.party.meet(now, session, keys, from, peer);
        self.on_timeout(now);
    }

    /// Until when something else than what is known may still turn up.
    fn search_ends(&self) -> Instant {
        let lan = match self.lan {
            true => self.began + LAN_WINDOW,
            false => self.began,
        };
        match self.standing {
            Standing::Asked => lan.max(self.began + SERVER_PATIENCE),
            // The server knows who has the number.
            Standing::Found => self.began,
            Standing::Not(_) => lan,
        }
    }

    /// When the session that was found last is given up.
    fn silence_ends(&self) -> Option<Instant> {
        let pending = |guess: &&Guess| !matches!(guess.stage, Stage::Over(_));
        let since = self.guesses.iter().filter(pending).map(|guess| guess.since);
        since.max().map(|since| since + SESSION_PATIENCE)
    }

    /// When it may be over without another word.
    fn deadline(&self) -> Instant {
        if let Some(silence) = self.silence_ends() {
            return silence;
        }
        let refused = !self.guesses.is_empty();
        match refused && self.standing != Standing::Asked {
            true => self.search_ends().min(self.began + OTHERS_WINDOW),
            false => self.search_ends(),
        }
    }

    fn give_up_if_over(&mut self, now: Instant) {
        if self.party.over || self.party.has_met() || now < self.deadline() {
            return;
        }
        let refusals = self.guesses.iter().filter_map(|guess| match guess.stage {
            Stage::Over(failure) => Some(failure),
            _ => None,
        });
        // Wrong words say more than a code that is used: the right one may be another.
        let refusal = refusals.min_by_key(|failure| !matches!(failure, Failure::WrongCode(_)));
        let failure = match (refusal, self.guesses.is_empty(), self.standing) {
            (Some(failure), ..) => failure,
            (None, false, _) => Failure::Silent,
            (None, true, Standing::Not(Some(failure))) => failure,
            (None, true, Standing::Asked) => Failure::ServerSilent,
            (None, true, _) => Failure::NotFound,
        };
        self.end(Event::Failed(failure));
    }
}

impl Machine for Claim {
    fn handle(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        if self.party.over {
            return;
        }
        match Packet::parse(datagram) {
            Some(Packet::Response(nonce, response)) => {
                let link = self.party.link.as_ref();
                if link.is_some_and(|link| link.is_genuine(from, nonce, &response)) {
                    self.on_response(now, response);
                    self.give_up_if_over(now);
                }
            }
            Some(Packet::Direct { session, letter }) => {
                self.on_letter(now, Some(from), session, &letter);
            }
            Some(Packet::Probe(probe)) => {
                let found = self.party.on_probe(now, from, &probe);
                self.end_if(found);
            }
            None => {}
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.party.over {
            return;
        }
        if self.party.has_met() {
            let found = self.party.on_timeout(now);
            return self.end_if(found);
        }
        self.give_up_if_over(now);
        if !self.party.over && now >= self.again_at {
            self.again_at = now + self.gap;
            self.gap = (self.gap * 2).min(AGAIN[1]);
            self.say_all(now);
        }
    }

    fn transmit(&mut self) -> Option<Datagram> {
        self.party.out.pop_front()
    }

    fn timeout(&self) -> Option<Instant> {
        let searches = self.again_at.min(self.deadline());
        (!self.party.over).then(|| self.party.timeout().unwrap_or(searches))
    }

    fn event(&mut self) -> Option<Event> {
        self.party.events.pop_front()
    }
}
