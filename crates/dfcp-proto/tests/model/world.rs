//! What each step changes: the client, the server and what the attacker has.

use super::*;

impl World {
    /// The server sends to an address; the attacker sees it unless it is the victim's.
    fn to(&mut self, at: Address, packet: Packet) {
        if at == Address::Victim {
            return;
        }
        if let Packet::Down(session, _, Body::Challenge(n)) = packet
            && session.who == Who::Attacker
        {
            self.known.insert(n);
        }
        self.net.insert(packet);
    }

    fn up(&mut self, bounds: &Bounds, body: Body) {
        if let Some(session) = self.client.session
            && self.client.next < bounds.packets
        {
            self.net.insert(Packet::Up(session, self.client.next, body));
            self.client.next += 1;
        }
    }

    /// What the client says acknowledges what it heard.
    fn say(&mut self, bounds: &Bounds) {
        let heard = self.client.heard.is_some();
        self.up(bounds, if heard { Body::Ack } else { Body::Nothing });
    }

    /// What left under the keys of another answer leaves again, as in `Connection::switch_to`.
    fn repeat(&mut self, bounds: &Bounds) {
        match self.client.phase {
            Phase::Closing => self.up(bounds, Body::Close),
            _ => self.say(bounds),
        }
    }

    fn down(&mut self, bounds: &Bounds, session: Session, body: Body) {
        let Some(seat) = self.seats.get_mut(&session) else {
            return;
        };
        let fenced = seat.challenge.is_some() && bounds.has(Rule::NewAddressesAreFenced);
        if fenced && seat.sent >= 3 * seat.received {
            return;
        }
        if seat.next == bounds.packets {
            return;
        }
        let (at, number) = (seat.at, seat.next);
        seat.next += 1;
        seat.sent += 1;
        if at == Address::Victim && seat.sent > 3 * seat.received {
            self.wrong = Some(AIMED);
        }
        self.to(at, Packet::Down(session, number, body));
    }

    /// As `Endpoint::handle_syn`: nothing is kept.
    fn on_syn(&mut self, who: Who, from: Address) {
        let session = Session {
            who,
            at: from,
            slot: self.slot,
            life: self.life,
        };
        self.to(from, Packet::SynAck(session));
    }

    /// As `Endpoint::handle_ack`.
    fn on_confirm(&mut self, bounds: &Bounds, session: Session, from: Address) {
        let fresh = session.slot == self.slot || session.slot + 1 == self.slot;
        let is_ours = session.life == self.life && session.at == from;
        let expired = !fresh && bounds.has(Rule::SlotsExpire);
        let used = self.used.contains_key(&session) && bounds.has(Rule::IdsAreUsedOnce);
        if !is_ours || expired || used || self.seats.contains_key(&session) {
            return;
        }
        let is_client = session.who == Who::Client;
        if is_client && !self.client.answers.contains(&session) {
            self.wrong = Some(AUTHENTIC);
        }
        self.used.insert(session, self.slot);
        let mut seats = self.seats.iter();
        let is_in = seats.any(|(other, seat)| other.who == session.who && seat.at == from);
        if self.settled.contains_key(&session.who) || is_in {
            return;
        }
        if is_client && self.has_gone_on {
            self.wrong = Some(GONE);
        }
        let seat = Seat {
            is_open: true,
            at: from,
            validated: from,
            challenge: None,
            received: 1,
            sent: 0,
            next: 0,
            newest: None,
            seen: BTreeSet::new(),
        };
        self.seats.insert(session, seat);
    }

    /// As `Endpoint::handle_sealed` and `Connection::handle_sealed` of a server.
    fn on_up(
        &mut self,
        bounds: &Bounds,
        session: Session,
        (number, body): (u8, Body),
        from: Address,
    ) {
        let Some(seat) = self.seats.get_mut(&session) else {
            return self.on_junk(session, number, from);
        };
        if !seat.seen.insert(number) && bounds.has(Rule::PacketsCountOnce) {
            return;
        }
        let goes_on = matches!(body, Body::Ack | Body::Close);
        self.has_gone_on |= goes_on && session.who == Who::Client;
        let settles = bounds.has(Rule::GoingOnSettles)
            && (seat.is_open || bounds.has(Rule::AlsoOnceTheServerClosed));
        if goes_on && settles {
            self.settled.entry(session.who).or_insert(self.slot);
        }
        if !seat.is_open {
            if body == Body::Close {
                self.seats.remove(&session);
            }
            return;
        }
        if session.who == Who::Client && !self.taken.insert((session, number)) {
            self.wrong = Some(ONCE);
        }
        if seat.newest.is_none_or(|newest| newest < number) {
            seat.newest = Some(number);
            if seat.at != from {
                seat.at = from;
                let moved = from != seat.validated;
                seat.challenge = moved.then_some(self.fresh);
                self.fresh += u8::from(moved);
                (seat.received, seat.sent) = (0, 0);
            }
        }
        if seat.at == from {
            seat.received += 1;
        }
        let answers = match body {
            Body::Response(n) => seat.challenge == Some(n) && seat.at == from,
            Body::Ack => !bounds.has(Rule::AnswersValidate) && seat.sent > 0,
            _ => false,
        };
        if answers {
            seat.challenge = None;
            seat.validated = seat.at;
            if seat.at == Address::Victim {
                self.wrong = Some(AIMED);
            }
        }
        if body == Body::Close {
            seat.is_open = false;
            self.down(bounds, session, Body::Close);
        }
    }

    /// As `Endpoint::handle_sealed` for a connection that it does not know.
    fn on_junk(&mut self, session: Session, number: u8, from: Address) {
        if !self.seats.contains_key(&session) {
            self.to(from, Packet::Reset(session, from, number));
        }
    }

    /// Whether a connection of this name may still come to be.
    fn can_begin(&self, session: Session) -> bool {
        session.life == self.life
            && session.slot + 1 >= self.slot
            && !self.used.contains_key(&session)
    }

    /// What reaches the client.
    fn on_client(&mut self, bounds: &Bounds, packet: Packet) {
        let client = &mut self.client;
        let lives = matches!(client.phase, Phase::Open | Phase::Closing);
        match packet {
            Packet::SynAck(session) if client.phase == Phase::Waiting => {
                client.phase = Phase::Open;
                client.session = Some(session);
                client.answers.insert(session);
                self.net.insert(Packet::Confirm(session));
            }
            Packet::SynAck(session) if lives && client.heard.is_none() => {
                client.answers.insert(session);
                self.net.insert(Packet::Confirm(session));
            }
            Packet::Down(session, number, body)
                if client.session == Some(session)
                    || lives && client.heard.is_none() && client.answers.contains(&session) =>
            {
                if !client.seen.insert(number) {
                    return;
                }
                client.heard.get_or_insert(client.next);
                let (before, said) = (client.session.replace(session), client.next > 0);
                if before != Some(session) && said {
                    self.repeat(bounds);
                }
                match (self.client.phase, body) {
                    (Phase::Open, Body::Challenge(n)) => self.up(bounds, Body::Response(n)),
                    (Phase::Open | Phase::Closing, Body::Close) => {
                        self.client.phase = Phase::ClosedByPeer;
                        self.up(bounds, Body::Close);
                    }
                    _ => {}
                }
            }
            Packet::Reset(session, token, number) if client.session == Some(session) => {
                let answers = |heard: u8| heard <= number || !bounds.has(Rule::ResetsAnswerPackets);
                let believed = client.heard.is_some_and(answers) && token == session.at;
                if client.phase != Phase::Open || !believed {
                    return;
                }
                client.phase = Phase::ClosedByReset;
                if self.seats.contains_key(&session) || self.can_begin(session) {
                    self.wrong = Some(TRUTH);
                }
            }
            _ => {}
        }
    }

    pub(super) fn step(&mut self, bounds: &Bounds, step: Step) {
        match step {
            Step::Deliver(packet, from) => match packet {
                Packet::Syn(who) => self.on_syn(who, from),
                Packet::Confirm(session) => self.on_confirm(bounds, session, from),
                Packet::Up(session, number, body) => {
                    self.on_up(bounds, session, (number, body), from);
                }
                Packet::SynAck(session) if session.who == Who::Attacker => {
                    self.net.insert(Packet::Confirm(session));
                }
                _ => self.on_client(bounds, packet),
            },
            Step::Inject(session, number, body, from) => {
                self.on_up(bounds, session, (number, body), from);
            }
            Step::Junk(session, number, from) => self.on_junk(session, number, from),
            Step::ClientSays => self.say(bounds),
            Step::ClientMoves => self.client.at = Address::Away,
            Step::ClientCloses => {
                self.client.phase = Phase::Closing;
                self.up(bounds, Body::Close);
            }
            Step::ClientGivesUp => self.client.phase = Phase::Silence,
            Step::ServerSays(session) => self.down(bounds, session, Body::Nothing),
            Step::ServerAsks(session) => {
                let challenge = self.seats.get(&session).and_then(|seat| seat.challenge);
                if let Some(n) = challenge {
                    self.down(bounds, session, Body::Challenge(n));
                }
            }
            Step::ServerCloses(session) => {
                self.down(bounds, session, Body::Close);
                if let Some(seat) = self.seats.get_mut(&session) {
                    seat.is_open = false;
                }
            }
            Step::ServerForgets(session) => {
                self.seats.remove(&session);
            }
            Step::Tick => {
                self.slot += 1;
                let now = self.slot;
                self.used.retain(|_, slot| now < *slot + 2);
                let kept = 1 + u8::from(bounds.has(Rule::SettledOutlivesCookies));
                self.settled.retain(|_, slot| now < *slot + kept);
            }
            Step::Crash => {
                self.life += 1;
                self.seats.clear();
                self.used.clear();
                self.settled.clear();
                self.has_gone_on = false;
            }
        }
    }
}
