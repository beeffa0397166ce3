//! Two peers that know each other look for a path: directly, and where that fails over the relay of
//! the server that they share, if it has one.

use std::collections::VecDeque;
use std::net::SocketAddr;

use dfcp_proto::{Duration, Instant, SecretRng};

use crate::link::Link;
use crate::machine::{Datagram, Event, Failure, Path};
use crate::pake::{Candidate, Keys, Side};
use crate::punch::{Outcome, Punch};
use crate::wire::{Id, Probe, Request};

/// Between two requests to join a relayed path.
const JOIN_AGAIN: Duration = Duration::from_millis(250);
/// How long the other end may take to join: the two give up probing [`crate::punch::LONGER`] apart
/// at most, and then there may be loss.
const JOIN_PATIENCE: Duration = Duration::from_secs(6);

/// What a step has at hand.
pub struct Step<'a> {
    /// The time.
    pub now: Instant,
    /// The server, if there is one.
    pub link: Option<&'a mut Link>,
    /// Randomness.
    pub rng: &'a mut SecretRng,
    /// Where datagrams go.
    pub out: &'a mut VecDeque<Datagram>,
}

#[derive(Debug)]
struct Joining {
    next: Instant,
    ends: Instant,
}

/// See the module's text.
pub struct Approach {
    side: Side,
    session: Id,
    keys: Keys,
    punch: Punch,
    joining: Option<Joining>,
}

impl Approach {
    /// Begins with the addresses that the other side named.
    pub fn start(
        side: Side,
        session: Id,
        keys: Keys,
        candidates: &[Candidate],
        now: Instant,
    ) -> Self {
        Self {
            side,
            session,
            keys,
            punch: Punch::start(side, candidates, now),
            joining: None,
        }
    }

    /// When to call [`Approach::on_timeout`].
    pub fn timeout(&self) -> Instant {
        match &self.joining {
            Some(joining) => joining.next.min(joining.ends),
            None => self.punch.timeout(),
        }
    }

    /// Sends what is due.
    pub fn on_timeout(&mut self, mut step: Step<'_>) -> Option<Event> {
        if let Some(joining) = &mut self.joining {
            if step.now >= joining.ends {
                return Some(Event::Failed(Failure::NoRelay));
            }
            if step.now >= joining.next {
                joining.next = step.now + JOIN_AGAIN;
                self.join(&mut step);
            }
            return None;
        }
        let outcome = self
            .punch
            .on_timeout(step.now, &self.keys, step.rng, step.out)?;
        self.conclude(outcome, &mut step)
    }

    /// Reads a probe. One that says that a pair was chosen counts also while a relay is joined: the
    /// sender may have found it in the last moment.
    pub fn on_probe(
        &mut self,
        from: SocketAddr,
        probe: &Probe,
        mut step: Step<'_>,
    ) -> Option<Event> {
        let outcome = self
            .punch
            .handle(step.now, from, probe, &self.keys, step.out)?;
        if self.joining.is_some() && self.side == Side::Sender {
            return None; // the relay may be in use by the other side already
        }
        self.conclude(outcome, &mut step)
    }

    /// The server has this end of a relayed path, and with `ready` the other one.
    pub fn on_joined(&mut self, ready: bool, link: &Link) -> Option<Event> {
        let path = Path {
            remote: link.address(),
            relayed: true,
            notice: None,
        };
        (ready && self.joining.is_some()).then_some(Event::Found(path))
    }

    /// Asks the server again, because it gave a new cookie.
    pub fn ask_again(&mut self, mut step: Step<'_>) {
        if self.joining.is_some() {
            self.join(&mut step);
        }
    }

    fn conclude(&mut self, outcome: Outcome, step: &mut Step<'_>) -> Option<Event> {
        match outcome {
            Outcome::Found(path) => Some(Event::Found(path)),
            Outcome::Nothing => {
                let relays = step.link.as_ref().is_some_and(|link| link.relay.is_some());
                if !relays {
                    return Some(Event::Failed(Failure::NoPath));
                }
                self.joining = Some(Joining {
                    next: step.now + JOIN_AGAIN,
                    ends: step.now + JOIN_PATIENCE,
                });
                self.join(step);
                None
            }
        }
    }

    fn join(&self, step: &mut Step<'_>) {
        if let Some(link) = &step.link {
            step.out.push_back(link.request(&Request::Join {
                session: self.session,
                token: self.keys.relay_token(),
                sender: self.side == Side::Sender,
            }));
        }
    }
}
