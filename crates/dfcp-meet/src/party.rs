//! What the two sides have alike: a link to the server, the search for a path once they have met, and
//! what leaves.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dfcp_proto::{Instant, PublicKey, SecretRng};

use crate::approach::{Approach, Step};
use crate::link::Link;
use crate::machine::{Datagram, Event};
use crate::pake::{Candidate, CandidateKind, Introduction, Keys, MAX_CANDIDATES, Side};
use crate::wire::{Id, Probe};

/// See the module's text.
pub(crate) struct Party {
    side: Side,
    pub key: PublicKey,
    local: Vec<SocketAddr>,
    approach: Option<Approach>,
    pub link: Option<Link>,
    pub rng: SecretRng,
    pub over: bool,
    pub out: VecDeque<Datagram>,
    pub events: VecDeque<Event>,
}

impl Party {
    pub fn new(
        side: Side,
        key: PublicKey,
        local: Vec<SocketAddr>,
        server: Option<SocketAddr>,
        mut rng: SecretRng,
    ) -> Self {
        Self {
            side,
            key,
            local,
            approach: None,
            link: server.map(|server| Link::new(server, &mut rng)),
            rng,
            over: false,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// What this side says of itself.
    pub fn introduction(&self) -> Introduction {
        let candidate = |address, kind| Candidate { address, kind };
        let seen = self.link.as_ref().and_then(|link| link.seen);
        let seen = seen.map(|address| candidate(address, CandidateKind::Seen));
        let local = self.local.iter().copied();
        let local = local.map(|address| candidate(address, CandidateKind::Local));
        // The server's sight first: if there are too many, it is the last that may be left out.
        let candidates = seen.into_iter().chain(local);
        Introduction {
            key: self.key,
            candidates: candidates.take(MAX_CANDIDATES).collect(),
        }
    }

    /// Whether the other side has shown that it knows the words.
    pub fn has_met(&self) -> bool {
        self.approach.is_some()
    }

    /// It has, directly from the address `from` if there is one: a path to it is looked for from now on.
    pub fn meet(
        &mut self,
        now: Instant,
        session: Id,
        keys: Keys,
        from: Option<SocketAddr>,
        peer: Introduction,
    ) {
        self.events.push_back(Event::Met(peer.key));
        let kind = CandidateKind::Local;
        let direct = from.map(|address| Candidate { address, kind });
        let candidates: Vec<Candidate> = direct.into_iter().chain(peer.candidates).collect();
        let approach = Approach::start(self.side, session, keys, &candidates, now);
        self.approach = Some(approach);
    }

    /// Lets the search for a path do something; how it ended, if it did.
    fn step(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Approach, Step<'_>) -> Option<Event>,
    ) -> Option<Event> {
        let step = Step {
            now,
            link: self.link.as_mut(),
            rng: &mut self.rng,
            out: &mut self.out,
        };
        act(self.approach.as_mut()?, step)
    }

    /// The server gave a new cookie: what waits for it is asked for again.
    pub fn ask_again(&mut self, now: Instant) {
        self.step(now, |approach, step| {
            approach.ask_again(step);
            None
        });
    }

    pub fn on_joined(&mut self, ready: bool) -> Option<Event> {
        self.approach
            .as_mut()?
            .on_joined(ready, self.link.as_ref()?)
    }

    pub fn on_probe(&mut self, now: Instant, from: SocketAddr, probe: &Probe) -> Option<Event> {
        self.step(now, |approach, step| approach.on_probe(from, probe, step))
    }

    /// Sends what the search has to send by now.
    pub fn on_timeout(&mut self, now: Instant) -> Option<Event> {
        self.step(now, |approach, step| match approach.timeout() <= now {
            true => approach.on_timeout(step),
            false => None,
        })
    }

    /// When the search has something to do.
    pub fn timeout(&self) -> Option<Instant> {
        self.approach.as_ref().map(Approach::timeout)
    }
}
