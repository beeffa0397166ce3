//! Two machines over a network that loses, duplicates, delays and reorders: every run up to stated
//! bounds, by a model checker.
//!
//! Timers expire at any time, in any order: a superset of what clocks allow. What surrounds the
//! machine in `connection` and `endpoint` is modelled as far as it decides who hears what: generator
//! states as the number of the server's life (0 is the client's), RST for packets of no
//! connection, the challenge for an RST with the state of data. Each side has one datum to send
//! and may close once it is acknowledged.

use super::*;
use stateright::{Checker, Expectation, Model, Property};
use std::collections::{BTreeMap, BTreeSet};

/// State in packets of data: neither side's first one.
const DATA_STATE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    Segment(Segment),
    Data,
    DataAck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Packet {
    to: usize,
    what: What,
    /// Generator state: 0 the client's, n that of the server's life n.
    words: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    /// None: a server that listens.
    machine: Option<Machine>,
    armed: bool,
    end: Option<End>,
    /// The server's life that this side belongs to.
    life: u8,
    /// Copies of the datum that may still be sent.
    sends: u8,
    acked: bool,
    /// The other side's datum is here.
    got: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    peers: [Peer; 2],
    network: BTreeMap<Packet, u8>,
    drops: u8,
    copies: u8,
    aborts: u8,
    early: u8,
    /// Challenges that the limit on their rate still allows.
    challenges: u8,
    /// Keep-alives that may still be sent.
    keeps: u8,
    lives: u8,
    /// The last step did not bring the run nearer to its end.
    stalled: bool,
    /// A FIN came before the data that it follows.
    overtaken: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Deliver(Packet),
    Drop(Packet),
    Copy(Packet),
    Timeout(usize),
    Send(usize),
    Close(usize),
    Abort(usize),
    Silence(usize),
    KeepAlive(usize),
}

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    retries: u8,
    drops: u8,
    copies: u8,
    aborts: u8,
    /// Timers that expire although an answer is still on its way.
    early: u8,
    /// Copies of a datum; 0: connections without data.
    sends: u8,
    /// Keep-alives, sent at any time.
    keeps: u8,
    /// A client without a connection sends no RST, as over IP.
    silent: bool,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Peer {
    fn state(&self) -> State {
        self.machine.as_ref().map_or(Closed, Machine::state)
    }
}

use State::*;

impl World {
    fn send(&mut self, to: usize, what: What, words: u8) {
        *self.network.entry(Packet { to, what, words }).or_default() += 1;
    }

    fn take(&mut self, packet: Packet) {
        if let Some(count) = self.network.get_mut(&packet) {
            *count -= 1;
            if *count == 0 {
                self.network.remove(&packet);
            }
        }
    }

    /// As `Connection::step`; `echo` are the words of what is answered.
    fn step(&mut self, side: usize, input: Input, echo: Option<u8>) {
        let peer = &mut self.peers[side];
        let Some(machine) = &mut peer.machine else {
            return;
        };
        let step = machine.step(input);
        match step.timer {
            Some(Timer::Arm(_)) => peer.armed = true,
            Some(Timer::Stop) => peer.armed = false,
            None => {}
        }
        peer.end = peer.end.or(step.ended);
        if let Some(segment) = step.send {
            self.send_segment(side, segment, echo);
        }
    }

    fn send_segment(&mut self, side: usize, segment: Segment, echo: Option<u8>) {
        let life = self.peers[side].life;
        let (own, others) = if side == CLIENT { (0, life) } else { (life, 0) };
        let words = match segment {
            Segment::Ack | Segment::AckOfFin => others,
            Segment::Rst => echo.unwrap_or(own),
            _ => own,
        };
        self.send(1 - side, What::Segment(segment), words);
    }

    fn deliver(&mut self, packet: Packet, bounds: &Bounds) {
        let Packet { to, what, words } = packet;
        let peer = &self.peers[to];
        let state = peer.state();
        let (own, others) = if to == CLIENT {
            (words == 0, words == peer.life && peer.life > 0)
        } else {
            (words == peer.life, words == 0)
        };
        let seg = |s| What::Segment(s);
        if state == Closed {
            if to == SERVER && what == seg(Segment::Syn) {
                return self.accept(bounds);
            }
            if what != seg(Segment::Rst) && !(bounds.silent && to == CLIENT) {
                self.send(1 - to, seg(Segment::Rst), words);
            }
            return;
        }
        match what {
            What::Segment(Segment::Rst) if own || others => {
                self.step(to, Input::Segment(Segment::Rst), None);
            }
            What::Segment(Segment::Rst) => {
                if state != SynSent && self.challenges > 0 {
                    self.challenges -= 1;
                    self.send_segment(to, Segment::Ack, None);
                }
            }
            What::Segment(Segment::SynAck) if state == SynSent => {
                self.peers[to].life = words;
                self.step(to, Input::Segment(Segment::SynAck), None);
            }
            _ if state == SynSent => self.step(to, Input::Data, Some(words)),
            What::Segment(Segment::SynAck | Segment::Fin | Segment::FinAck) if !others => {}
            What::Segment(Segment::Ack | Segment::AckOfFin) if !own => {}
            What::Segment(s @ (Segment::Syn | Segment::Ack | Segment::AckOfFin)) => {
                self.step(to, Input::Segment(s), None);
            }
            _ if state == SynRecv => self.step(to, Input::Data, None),
            What::Segment(segment) => {
                let fin = matches!(segment, Segment::Fin | Segment::FinAck);
                self.overtaken |= fin && !self.peers[to].got;
                self.step(to, Input::Segment(segment), None);
            }
            What::Data => {
                self.peers[to].got = true;
                self.send(1 - to, What::DataAck, DATA_STATE);
            }
            What::DataAck => self.peers[to].acked = true,
        }
    }

    fn accept(&mut self, bounds: &Bounds) {
        self.lives += 1;
        let (machine, _) = Machine::accept(bounds.retries);
        let server = &mut self.peers[SERVER];
        *server = Peer {
            machine: Some(machine),
            armed: true,
            end: None,
            life: self.lives,
            sends: server.sends,
            acked: bounds.sends == 0,
            got: bounds.sends == 0,
        };
        self.send_segment(SERVER, Segment::SynAck, None);
    }

    /// Nothing on its way and nothing to wait for but the idle timeout.
    fn is_quiet(&self) -> bool {
        self.network.is_empty() && !self.peers.iter().any(|p| p.armed)
    }

    /// What is left of the run: every step must lower it, so no run is endless.
    fn measure(&self, bounds: &Bounds) -> u64 {
        let step = 6;
        let rank = (u64::from(bounds.retries) + 2) * step;
        let syn = 7 * rank + 4;
        let machine = |machine: &Machine| {
            let left = u64::from(machine.limit - machine.retries.min(machine.limit));
            match machine.state {
                SynSent => 7 * rank + left * (syn + 1),
                SynRecv => 6 * rank + left * step,
                Established => 5 * rank,
                FinWait1 => 4 * rank + left * step,
                CloseWait => 3 * rank,
                FinWait2 => 2 * rank,
                LastAck => 2 * rank + left * step,
                TimeWait => rank,
                Closed => 0,
            }
        };
        let weight = |packet: &Packet| match packet.what {
            What::Segment(Segment::Rst) => 1,
            What::Segment(Segment::Ack | Segment::AckOfFin) => 2,
            What::Segment(Segment::SynAck) if packet.to == CLIENT => 3,
            // A keep-alive, which another SYNACK may answer.
            What::Segment(Segment::SynAck) => 4,
            What::Segment(Segment::FinAck) | What::DataAck => 4,
            What::Segment(Segment::Fin) | What::Data => 5,
            What::Segment(Segment::Syn) => syn,
        };
        let packets = self.network.iter();
        packets
            .map(|(p, &count)| weight(p) * u64::from(count))
            .sum::<u64>()
            + self
                .peers
                .iter()
                .flat_map(|p| &p.machine)
                .map(machine)
                .sum::<u64>()
            + self
                .peers
                .iter()
                .map(|p| u64::from(p.sends) * step)
                .sum::<u64>()
            + u64::from(self.copies) * (syn + 1)
            + u64::from(self.aborts) * 2
            + u64::from(self.challenges) * 2
            + u64::from(self.keeps) * step
    }
}

impl Model for Bounds {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let (machine, _) = Machine::connect(self.retries);
        let peer = |machine: Option<Machine>| Peer {
            armed: machine.is_some(),
            machine,
            end: None,
            life: 0,
            sends: self.sends,
            acked: self.sends == 0,
            got: self.sends == 0,
        };
        let mut world = World {
            peers: [peer(Some(machine)), peer(None)],
            network: BTreeMap::new(),
            drops: self.drops,
            copies: self.copies,
            aborts: self.aborts,
            early: self.early,
            challenges: 2,
            keeps: self.keeps,
            lives: 0,
            stalled: false,
            overtaken: false,
        };
        world.send_segment(CLIENT, Segment::Syn, None);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for &packet in world.network.keys() {
            actions.push(Action::Deliver(packet));
            if world.drops > 0 {
                actions.push(Action::Drop(packet));
            }
            if world.copies > 0 {
                actions.push(Action::Copy(packet));
            }
        }
        for (side, peer) in world.peers.iter().enumerate() {
            let state = peer.state();
            if peer.armed && (world.early > 0 || world.network.is_empty()) {
                actions.push(Action::Timeout(side));
            }
            let sending = matches!(state, Established | CloseWait);
            if sending && !peer.acked && peer.sends > 0 {
                actions.push(Action::Send(side));
            }
            if sending && peer.acked {
                actions.push(Action::Close(side));
            }
            if world.aborts > 0 && state != Closed {
                actions.push(Action::Abort(side));
            }
            let waits = matches!(state, Established | FinWait2 | CloseWait);
            if waits && world.is_quiet() {
                actions.push(Action::Silence(side));
            }
            let asks = peer.machine.as_ref().and_then(Machine::keep_alive);
            if world.keeps > 0 && asks.is_some() {
                actions.push(Action::KeepAlive(side));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Deliver(packet) => {
                next.take(packet);
                next.deliver(packet, self);
            }
            Action::Drop(packet) => {
                next.drops -= 1;
                next.take(packet);
            }
            Action::Copy(packet) => {
                next.copies -= 1;
                next.send(packet.to, packet.what, packet.words);
            }
            Action::Timeout(side) => {
                next.early -= u8::from(!world.network.is_empty());
                next.peers[side].armed = false;
                next.step(side, Input::Timeout, None);
            }
            Action::Send(side) => {
                next.peers[side].sends -= 1;
                next.send(1 - side, What::Data, DATA_STATE);
            }
            Action::Close(side) => next.step(side, Input::Close, None),
            Action::Abort(side) => {
                next.aborts -= 1;
                next.step(side, Input::Abort, None);
            }
            Action::Silence(side) => next.step(side, Input::Silence, None),
            Action::KeepAlive(side) => {
                next.keeps -= 1;
                let machine = next.peers[side].machine.as_ref();
                let segment = machine.and_then(Machine::keep_alive)?;
                next.send_segment(side, segment, None);
            }
        }
        next.stalled |= next.measure(self) >= world.measure(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn in_order(world: &World) -> [bool; 2] {
            [0, 1].map(|side| world.peers[side].end == Some(End::InOrder))
        }
        vec![
            Property::always(
                "every step brings the run nearer to its end",
                |_, w: &World| !w.stalled,
            ),
            Property::always(
                "where nothing can happen all is closed",
                |model, w: &World| {
                    let mut actions = Vec::new();
                    model.actions(w, &mut actions);
                    !actions.is_empty() || w.peers.iter().all(|p| p.state() == Closed)
                },
            ),
            Property::always("in order means: all data are there", |_, w: &World| {
                let sides = in_order(w);
                (0..2).all(|side| !sides[side] || (w.peers[side].acked && w.peers[side].got))
            }),
            Property::always("FIN does not overtake data", |_, w: &World| !w.overtaken),
            Property::always("what only silence ends had a cause", |_, w: &World| {
                let states = [w.peers[0].state(), w.peers[1].state()];
                let broken = w
                    .peers
                    .iter()
                    .any(|p| p.state() == Closed && !matches!(p.end, None | Some(End::InOrder)));
                let unsent = w.peers.iter().any(|p| !p.acked);
                let fine = matches!(
                    states,
                    [Closed, Closed]
                        | [Established, Established]
                        | [FinWait2, CloseWait]
                        | [CloseWait, FinWait2]
                );
                !w.is_quiet() || fine || broken || unsent
            }),
            Property::sometimes("both close in order", |_, w: &World| {
                in_order(w) == [true; 2]
            }),
            Property::sometimes("both close at once", |_, w: &World| {
                w.peers
                    .iter()
                    .all(|p| p.machine.as_ref().is_some_and(|m| m.crossed))
            }),
            Property::sometimes("retries run out", |_, w: &World| {
                w.peers.iter().any(|p| p.end == Some(End::Unreachable))
            }),
            Property::sometimes("a late SYN opens a second connection", |_, w: &World| {
                w.lives > 1
            }),
        ]
    }
}

/// Bounds of the runs that are explored; they have about 1.7 million states, which takes seconds. Two
/// more losses or copies multiply them by ten.
const RUNS: [Bounds; 12] = [
    bounds(2, [2, 1, 0, 1], 0),
    bounds(1, [2, 2, 0, 1], 0),
    bounds(2, [1, 1, 0, 2], 0),
    bounds(1, [1, 1, 1, 1], 0),
    bounds(1, [2, 1, 0, 1], 1),
    bounds(1, [1, 0, 1, 1], 1),
    bounds(RETRIES, [2, 0, 0, 1], 0),
    bounds(RETRIES, [2, 0, 0, 0], 2),
    keeps(2, bounds(1, [1, 1, 0, 1], 0)),
    keeps(1, bounds(1, [1, 0, 1, 1], 1)),
    silent(bounds(1, [1, 1, 0, 1], 1)),
    silent(keeps(1, bounds(1, [1, 1, 1, 0], 0))),
];

const fn bounds(retries: u8, [drops, copies, aborts, early]: [u8; 4], sends: u8) -> Bounds {
    Bounds {
        retries,
        drops,
        copies,
        aborts,
        early,
        sends,
        keeps: 0,
        silent: false,
    }
}

const fn silent(bounds: Bounds) -> Bounds {
    Bounds {
        silent: true,
        ..bounds
    }
}

const fn keeps(keeps: u8, bounds: Bounds) -> Bounds {
    Bounds { keeps, ..bounds }
}

#[test]
fn every_run_ends_and_ends_as_both_sides_may_believe() {
    let mut reached = BTreeSet::new();
    let mut states = 0;
    for bounds in RUNS {
        let checker = bounds.checker().spawn_bfs().join();
        states += checker.unique_state_count();
        for (name, path) in checker.discoveries() {
            let example = bounds.property(name).expectation == Expectation::Sometimes;
            assert!(example, "{name}: {bounds:?} {:?}", path.into_actions());
            reached.insert(name);
        }
    }
    assert!(states > 1_200_000, "{states} states: the bounds shrank");
    let all = RUNS[0].properties();
    let examples = all
        .iter()
        .filter(|p| p.expectation == Expectation::Sometimes);
    assert!(examples.map(|p| p.name).all(|name| reached.contains(name)));
}
