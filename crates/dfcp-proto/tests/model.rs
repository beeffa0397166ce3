//! The sealed handshake, close, reset and migration as a model, against an attacker, by a model
//! checker: every run up to stated bounds.
//!
//! The attacker is the network: he sees everything but what goes to the victim's address, delivers
//! any packet whenever, as often, and from whatever address he likes, or never. He has a key of his
//! own with which the server lets him in, and knows the names (connection IDs) of all sessions. He
//! cannot make packets of sessions that are not his, nor guess what was sent to the victim alone.
//! Time is left out where it only helps him: any timer may expire at any moment.
//!
//! What the code does is restated here in a few lines a packet. Each rule that a promise rests on can
//! be left out, and a test shows that the checker then finds the attack: so the model is not true by
//! its own making.

#[path = "model/world.rs"]
mod world;

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model, Property};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Who {
    Client,
    Attacker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Address {
    Home,
    /// Where the client moves to.
    Away,
    /// Somebody who takes no part, and whose packets the attacker does not see.
    Victim,
}

const ADDRESSES: [Address; 3] = [Address::Home, Address::Away, Address::Victim];

/// What both sides' keys and the server's connection ID follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Session {
    /// Whose ephemeral key.
    who: Who,
    at: Address,
    slot: u8,
    /// The server's life: each has secrets of its own.
    life: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Body {
    Nothing,
    /// An acknowledgement of everything that the server may have sent.
    Ack,
    Challenge(u8),
    Response(u8),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Packet {
    Syn(Who),
    SynAck(Session),
    /// The third packet of the handshake; it names its maker's static key.
    Confirm(Session),
    Up(Session, u8, Body),
    Down(Session, u8, Body),
    /// With the token for a peer at this address, and a packet of that number.
    Reset(Session, Address, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waiting,
    Open,
    Closing,
    ClosedByPeer,
    ClosedByReset,
    Silence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    /// The answer whose keys are in use.
    session: Option<Session>,
    /// All answers that it acknowledged: which of them the server gave to this client it learns later.
    answers: BTreeSet<Session>,
    at: Address,
    /// The first packet that was made after something of the server opened.
    heard: Option<u8>,
    next: u8,
    seen: BTreeSet<u8>,
}

/// A connection of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seat {
    is_open: bool,
    at: Address,
    /// Where the peer was last known to receive.
    validated: Address,
    challenge: Option<u8>,
    received: u8,
    sent: u8,
    next: u8,
    newest: Option<u8>,
    seen: BTreeSet<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    client: Client,
    slot: u8,
    life: u8,
    fresh: u8,
    seats: BTreeMap<Session, Seat>,
    /// Connection IDs that are not taken again, and the slot in which they were.
    used: BTreeMap<Session, u8>,
    /// Clients of whom the server knows which connection they go on with, or that it is over, and the slot
    /// in which they said so.
    settled: BTreeMap<Who, u8>,
    /// The client has acknowledged something to the server in this life, or closed, whatever it made of it.
    has_gone_on: bool,
    /// What the attacker has of packets, and of challenges.
    net: BTreeSet<Packet>,
    known: BTreeSet<u8>,
    /// Packets of the client that the server took, of whatever connection.
    taken: BTreeSet<(Session, u8)>,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Deliver(Packet, Address),
    /// The attacker's own packet.
    Inject(Session, u8, Body, Address),
    /// Bytes that do not open, with the name of a session, and the tag of a packet of that number.
    Junk(Session, u8, Address),
    ClientSays,
    ClientMoves,
    ClientCloses,
    ClientGivesUp,
    ServerSays(Session),
    ServerAsks(Session),
    ServerCloses(Session),
    ServerForgets(Session),
    Tick,
    Crash,
}

/// Rules that a promise rests on; left out to see it fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    IdsAreUsedOnce,
    PacketsCountOnce,
    AnswersValidate,
    NewAddressesAreFenced,
    SlotsExpire,
    ResetsAnswerPackets,
    /// Who acknowledged or closed makes no other connection,
    GoingOnSettles,
    /// whoever closed first,
    AlsoOnceTheServerClosed,
    /// as long as a cookie of the attempt may be good.
    SettledOutlivesCookies,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Packets that each side seals.
    packets: u8,
    slots: u8,
    lives: u8,
    /// The attacker has a session of his own.
    insider: bool,
    /// He does no more than to carry a client's handshake to and fro: no victim, no resets, no moves.
    carrier: bool,
    without: Option<Rule>,
}

const AUTHENTIC: &str = "nobody is taken for the client";
const ONCE: &str = "a packet counts once";
const AIMED: &str = "nobody can be aimed at";
const TRUTH: &str = "a reset tells of a lost connection";
const GONE: &str = "who has gone on makes no other connection";
const PROMISES: [&str; 5] = [AUTHENTIC, ONCE, AIMED, TRUTH, GONE];

impl Bounds {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

impl Model for Bounds {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut net = BTreeSet::from([Packet::Syn(Who::Client)]);
        if self.insider {
            net.insert(Packet::Syn(Who::Attacker));
        }
        let client = Client {
            phase: Phase::Waiting,
            session: None,
            answers: BTreeSet::new(),
            at: Address::Home,
            heard: None,
            next: 0,
            seen: BTreeSet::new(),
        };
        vec![World {
            client,
            slot: 0,
            life: 0,
            fresh: 0,
            seats: BTreeMap::new(),
            used: BTreeMap::new(),
            settled: BTreeMap::new(),
            has_gone_on: false,
            net,
            known: BTreeSet::new(),
            taken: BTreeSet::new(),
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.wrong.is_some() {
            return;
        }
        for &packet in &world.net {
            let to_server = matches!(packet, Packet::Syn(_) | Packet::Confirm(_) | Packet::Up(..));
            let from = match (to_server, self.carrier) {
                (true, false) => &ADDRESSES[..],
                (true, true) => &ADDRESSES[..2],
                (false, _) => &ADDRESSES[..1],
            };
            steps.extend(from.iter().map(|&from| Step::Deliver(packet, from)));
            // Only tags that the client made: others can be guessed no better than keys.
            if let Packet::Up(session, number, _) = packet
                && !self.carrier
            {
                let junk = |&from: &Address| Step::Junk(session, number, from);
                steps.extend(ADDRESSES.iter().map(junk));
            }
        }
        for (&session, seat) in &world.seats {
            steps.extend([Step::ServerSays(session), Step::ServerForgets(session)]);
            if seat.challenge.is_some() {
                steps.push(Step::ServerAsks(session));
            }
            if seat.is_open {
                steps.push(Step::ServerCloses(session));
            }
            if session.who == Who::Attacker {
                let number = seat.newest.map_or(0, |newest| newest + 1);
                let answers = world.known.iter().map(|&n| Body::Response(n));
                let bodies = answers.chain([Body::Nothing, Body::Ack]);
                for body in bodies.filter(|_| number < self.packets) {
                    let inject = |&from: &Address| Step::Inject(session, number, body, from);
                    steps.extend(ADDRESSES.iter().map(inject));
                }
            }
        }
        if world.client.phase == Phase::Open {
            steps.extend([Step::ClientSays, Step::ClientCloses, Step::ClientGivesUp]);
            if world.client.at == Address::Home && !self.carrier {
                steps.push(Step::ClientMoves);
            }
        }
        if world.slot + 1 < self.slots {
            steps.push(Step::Tick);
        }
        if world.life + 1 < self.lives {
            steps.push(Step::Crash);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        world.step(self, step);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AUTHENTIC, |_, world: &World| world.wrong != Some(AUTHENTIC)),
            Property::always(ONCE, |_, world: &World| world.wrong != Some(ONCE)),
            Property::always(AIMED, |_, world: &World| world.wrong != Some(AIMED)),
            Property::always(TRUTH, |_, world: &World| world.wrong != Some(TRUTH)),
            Property::always(GONE, |_, world: &World| world.wrong != Some(GONE)),
            Property::sometimes("a client moves and is validated", |_, world: &World| {
                let mut seats = world.seats.iter();
                seats.any(|(s, seat)| s.who == Who::Client && seat.validated != s.at)
            }),
            Property::sometimes("a client is in from two addresses", |_, world: &World| {
                let seats = world.seats.keys();
                seats.filter(|session| session.who == Who::Client).count() == 2
            }),
            Property::sometimes("a close is answered", |_, world: &World| {
                world.client.phase == Phase::ClosedByPeer && world.seats.is_empty()
            }),
            Property::sometimes(
                "a client hears that the server lost it",
                |_, world: &World| world.client.phase == Phase::ClosedByReset,
            ),
        ]
    }
}

const SMALL: Bounds = Bounds {
    packets: 2,
    slots: 1,
    lives: 2,
    insider: false,
    carrier: false,
    without: None,
};

/// Enough for an answer that another takes the place of: what left with the first leaves again.
const CARRIED: Bounds = Bounds {
    packets: 3,
    slots: 1,
    lives: 1,
    insider: false,
    carrier: true,
    without: None,
};

/// A checker of about as many steps as `most`, that may end before.
fn checker(bounds: Bounds, most: usize, end: HasDiscoveries) -> CheckerBuilder<Bounds> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = bounds.checker().threads(threads);
    let checker = checker.target_state_count(most);
    checker.finish_when(end)
}

/// States, promises that fell, and examples that were reached.
fn judge(checker: &impl Checker<Bounds>) -> (usize, Vec<&'static str>, Vec<&'static str>) {
    let (mut fell, mut reached) = (Vec::new(), Vec::new());
    for (name, path) in checker.discoveries() {
        match PROMISES.contains(&name) {
            true => {
                println!("{name}: {:?}", path.into_actions());
                fell.push(name);
            }
            false => reached.push(name),
        }
    }
    (checker.unique_state_count(), fell, reached)
}

fn check(
    bounds: Bounds,
    most: usize,
    end: HasDiscoveries,
) -> (usize, Vec<&'static str>, Vec<&'static str>) {
    judge(&checker(bounds, most, end).spawn_bfs().join())
}

#[test]
fn the_promises_hold_against_every_attack_within_bounds() {
    let mut all = BTreeSet::new();
    let mut states = 0;
    for bounds in [
        SMALL,
        Bounds {
            lives: 1,
            insider: true,
            ..SMALL
        },
        Bounds {
            packets: 1,
            slots: 3,
            lives: 1,
            ..SMALL
        },
        CARRIED,
    ] {
        let (count, fell, reached) = check(bounds, 300_000, HasDiscoveries::AnyFailures);
        println!("{count} states: {bounds:?}");
        assert!(fell.is_empty(), "{fell:?} with {bounds:?}");
        all.extend(reached);
        states += count;
    }
    assert_eq!(all.len(), 4, "only {all:?} can happen at all");
    assert!(states > 100_000, "{states} states: the bounds shrank");
}

#[test]
fn without_its_rule_each_promise_falls() {
    let insider = Bounds {
        lives: 1,
        insider: true,
        ..SMALL
    };
    let late = Bounds {
        packets: 1,
        slots: 3,
        lives: 1,
        ..SMALL
    };
    for (without, promise, bounds) in [
        (Rule::IdsAreUsedOnce, ONCE, SMALL),
        (Rule::PacketsCountOnce, ONCE, SMALL),
        (Rule::AnswersValidate, AIMED, insider),
        (
            Rule::NewAddressesAreFenced,
            AIMED,
            Bounds {
                packets: 6,
                ..insider
            },
        ),
        (Rule::SlotsExpire, ONCE, late),
        (Rule::ResetsAnswerPackets, TRUTH, SMALL),
        (Rule::GoingOnSettles, GONE, CARRIED),
        (Rule::AlsoOnceTheServerClosed, GONE, CARRIED),
        (
            Rule::SettledOutlivesCookies,
            GONE,
            Bounds {
                packets: 2,
                slots: 2,
                ..CARRIED
            },
        ),
    ] {
        let bounds = Bounds {
            without: Some(without),
            ..bounds
        };
        let (_, fell, _) = check(
            bounds,
            3_000_000,
            HasDiscoveries::AnyOf(BTreeSet::from([promise])),
        );
        assert!(
            fell.contains(&promise),
            "{without:?} is not missed: {fell:?}"
        );
    }
}

/// Ten million states and more; some minutes in a release build.
#[test]
#[ignore = "scripts/model runs it"]
fn the_promises_hold_in_ten_million_states() {
    let bounds = Bounds {
        packets: 3,
        slots: 2,
        insider: true,
        ..SMALL
    };
    // Depth first: all that is yet to do of so many states would not fit into memory.
    let (count, fell, _) = judge(
        &checker(bounds, 80_000_000, HasDiscoveries::AnyFailures)
            .spawn_dfs()
            .join(),
    );
    println!("{count} states: {bounds:?}");
    assert!(fell.is_empty(), "{fell:?}");
    assert!(count >= 10_000_000, "{count} states");
}
