//! Handshakes that are tampered with, with a server that is flooded now and then.

use super::Input;
use super::live::Watch;
use super::raw::{self, address, answer, ask, drain, drain_to, params};
use dfcp_proto::wire::{COOKIE_LEN, ConnectionId, Packet, Retry, Syn};
use dfcp_proto::{ConnectionHandle, Duration, Endpoint, Event, Instant, TransportConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// Two endpoints with two connections, and what the attacker keeps of their packets.
const MAY_HOLD: usize = 1 << 19;
/// Handshakes that a server computes in a second for whoever asks.
const FREE: u32 = 100;
/// A flood takes 20 ms of public-key arithmetic.
const FLOODS: u32 = 2;
/// A cookie is good in the slot that it was made in and the next.
const SLOT: Duration = Duration::from_secs(120);
/// Where the honest client is, and the server.
const CLIENT: u8 = 3;
const SERVER: u8 = 9;
/// An attempt that is not older than this completes as soon as its packets arrive: what was forged may
/// end it 2.6 s after its beginning, and SYNs are 250 ms apart at most.
const YOUNG: Duration = Duration::from_secs(1);

/// Changes a packet in up to eight places.
fn tamper(input: &mut Input<'_>, packet: &mut Vec<u8>) {
    for _ in 0..input.byte() % 8 {
        let at = input.number();
        match input.byte() % 4 {
            0 => packet.truncate(at),
            1 => packet.extend_from_within(..at.min(packet.len()) / 2),
            _ if packet.is_empty() => {}
            _ => {
                let at = at % packet.len();
                packet[at] ^= input.byte();
            }
        }
    }
}

/// An attempt of an honest client, whose packets the attacker has.
struct Attempt {
    client: Endpoint,
    handle: ConnectionHandle,
    address: SocketAddr,
    began: Instant,
    /// What it sent; of these so many were delivered.
    up: Vec<Vec<u8>>,
    delivered: usize,
    /// Where its SYNs came from: the attacker may have carried them elsewhere, as an address translator does.
    asked_from: BTreeSet<SocketAddr>,
    /// From where it was let in. Each address has an answer of its own, and the server cannot know which of them
    /// the client will go on with.
    is_in_from: BTreeSet<SocketAddr>,
    /// The server heard that it goes on with one of these, or ended.
    has_gone_on: bool,
}

impl Attempt {
    fn new(now: Instant, name: &str, host: u8) -> Self {
        let mut client = Endpoint::new(raw::key(name), None, [4; 32]);
        let config = Arc::new(TransportConfig::default());
        let handle = client.connect(now, address(SERVER), None, config);
        Self {
            client,
            handle: handle.expect("a good key"),
            address: address(host),
            began: now,
            up: Vec::new(),
            delivered: 0,
            asked_from: BTreeSet::new(),
            is_in_from: BTreeSet::new(),
            has_gone_on: false,
        }
    }

    /// Notes where a packet comes from that the server takes for a SYN of this attempt.
    fn note_asking(&mut self, from: SocketAddr, packet: &[u8]) {
        let syn_of = |packet: &[u8]| match Packet::parse(packet) {
            Ok(Packet::Syn(syn)) => Some((syn.client_cid, syn.noise)),
            _ => None,
        };
        let asking = syn_of(packet);
        if asking.is_some() && self.up.iter().any(|sent| syn_of(sent) == asking) {
            self.asked_from.insert(from);
        }
    }

    fn is_done(&mut self) -> bool {
        let connection = self.client.connection(self.handle);
        !self.is_in_from.is_empty()
            && connection.is_some_and(|connection| connection.is_established())
    }
}

struct World {
    server: Endpoint,
    now: Instant,
    /// When there was a flood last.
    flooded: Option<Instant>,
    /// What servers want to see again, and when they said so; the newest is the last.
    cookies: BTreeMap<Asker, Vec<([u8; COOKIE_LEN], Instant)>>,
    /// What the server sent, and to whom.
    down: Vec<(SocketAddr, Vec<u8>)>,
    /// The ACK of the client that is made by hand, and whether it is in.
    ack: Vec<u8>,
    raw_is_in: bool,
    attempt: Attempt,
}

/// Whom a cookie is for: an address, and what a SYN says of the client there.
type Asker = (SocketAddr, [u8; 8], [u8; 32]);

fn asker(from: SocketAddr, syn: &Syn) -> Asker {
    (from, syn.client_cid.0, syn.noise)
}

/// The second on the server's clock, in which handshakes are counted.
fn second(now: Instant) -> u64 {
    now.as_nanos() / 1_000_000_000
}

fn slot(now: Instant) -> u64 {
    now.as_nanos() / SLOT.as_nanos() as u64
}

impl World {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut server = raw::server();
        let synack = ask(&mut server, now, address(1));
        Self {
            server,
            now,
            flooded: None,
            cookies: BTreeMap::new(),
            down: Vec::new(),
            ack: answer(&synack, &params()).0,
            raw_is_in: false,
            attempt: Attempt::new(now, "client", CLIENT),
        }
    }

    /// Whether arithmetic is for those only who proved their address.
    fn is_busy(&self) -> bool {
        // In the second of a flood, and in the next.
        self.flooded
            .is_some_and(|at| second(self.now) <= second(at) + 1)
    }

    /// More SYNs than are answered to whoever asks, each from elsewhere.
    fn flood(&mut self) {
        let mut syn = raw::syn();
        for i in 0..FREE as u8 {
            syn.client_cid = ConnectionId([i; 8]);
            let from = SocketAddr::from(([10, 1, 0, i], 5000));
            let mut packet = syn.emit(1200);
            self.server.handle_datagram(self.now, from, 0, &mut packet);
        }
        drain(&mut self.server, self.now);
        // A busy server computed nothing for it.
        if !self.is_busy() {
            self.flooded = Some(self.now);
        }
    }

    /// Gives the server a packet, and holds it to what it may do then.
    fn say(&mut self, from: SocketAddr, packet: &[u8]) {
        let before = self.server.stats();
        self.attempt.note_asking(from, packet);
        let mut copy = packet.to_vec();
        self.server.handle_datagram(self.now, from, 0, &mut copy);
        let answers = drain_to(&mut self.server, self.now);
        assert!(answers.len() <= 8, "{} answers to a packet", answers.len());
        let handles = self.server.handles();
        let peers = handles.into_iter().filter_map(|h| self.server.peek(h));
        let peers: Vec<_> = peers.map(|peer| peer.remote_address()).collect();
        let strangers = answers.iter().filter(|(to, _)| !peers.contains(to));
        let mut answered = 0;
        for (to, answer) in strangers {
            assert_eq!(*to, from, "who did not ask is answered");
            answered += answer.len();
        }
        assert!(answered <= packet.len(), "{answered} for {}", packet.len());
        self.check_work(from, packet, &answers, before.computed);
        self.check_accepted(from, packet);
        for (to, answer) in answers {
            if let Ok(Packet::Retry(Retry { cookie, .. })) = Packet::parse(&answer)
                && let Ok(Packet::Syn(syn)) = Packet::parse(packet)
            {
                let cookies = self.cookies.entry(asker(to, &syn)).or_default();
                cookies.push((cookie, self.now));
            }
            self.down.push((to, answer));
        }
    }

    /// A busy server computes nothing for who did not prove his address, asks him to, and computes for
    /// who did.
    fn check_work(
        &self,
        from: SocketAddr,
        packet: &[u8],
        answers: &[(SocketAddr, Vec<u8>)],
        before: u64,
    ) {
        let Ok(Packet::Syn(syn)) = Packet::parse(packet) else {
            return;
        };
        let mut asked = self.cookies.get(&asker(from, &syn)).into_iter().flatten();
        let asked =
            asked.find(|(cookie, at)| *cookie == syn.cookie && slot(self.now) <= slot(*at) + 1);
        if self.is_busy() && asked.is_none() {
            let computed = self.server.stats().computed - before;
            assert_eq!(computed, 0, "arithmetic for who proved nothing");
        }
        let is_whole =
            syn.noise == raw::syn().noise && syn.client_cid == raw::CID && packet.len() >= 1200;
        if is_whole && syn.version == raw::syn().version {
            let is = |packet: &[u8]| match Packet::parse(packet) {
                Ok(Packet::Retry(_)) => self.is_busy() && asked.is_none(),
                Ok(Packet::SynAck(_)) => asked.is_some() || !self.is_busy(),
                _ => false,
            };
            assert!(
                answers.iter().any(|(to, answer)| *to == from && is(answer)),
                "no answer"
            );
        }
    }

    /// Who comes in has sent his ACK as it was made, from where a SYN of his came from, for the first time from
    /// there, and before the server heard that he goes on with another.
    fn check_accepted(&mut self, from: SocketAddr, packet: &[u8]) {
        let attempt = &mut self.attempt;
        let mut came = false;
        while let Some(handle) = self.server.accept() {
            let peer = self
                .server
                .peek(handle)
                .and_then(|connection| connection.peer());
            if peer == Some(raw::key("raw client").public()) {
                assert!(
                    packet.starts_with(&self.ack) && from == address(1),
                    "another ACK"
                );
                assert!(!std::mem::replace(&mut self.raw_is_in, true), "twice");
                came = true;
            } else {
                assert_eq!(peer, Some(attempt.client.public_key()), "nobody's key");
                let is_its = |sent: &Vec<u8>| packet.starts_with(sent);
                assert!(
                    attempt.up.iter().any(is_its) && attempt.asked_from.contains(&from),
                    "another ACK"
                );
                assert!(attempt.is_in_from.insert(from), "twice");
                assert!(!attempt.has_gone_on, "what is left of a handshake");
            }
        }
        let own = attempt.client.public_key();
        for handle in self.server.handles() {
            let Some(connection) = self.server.connection(handle) else {
                continue;
            };
            let is_its = connection.peer() == Some(own);
            let events = std::iter::from_fn(|| connection.poll_event());
            let settles = events
                .filter(|event| matches!(event, Event::Confirmed))
                .count()
                > 0;
            attempt.has_gone_on |= is_its && settles;
        }
        let is_good = packet == self.ack && from == address(1) && slot(self.now) <= 1;
        assert!(
            came || self.raw_is_in || !is_good,
            "a good ACK lets nobody in"
        );
    }

    /// What the client has to say is in the attacker's hands.
    fn keep(&mut self) {
        let sent = drain(&mut self.attempt.client, self.now);
        self.attempt.up.extend(sent);
    }

    /// An honest network: what was not delivered yet arrives, and what is answered.
    fn deliver(&mut self) {
        self.keep();
        let attempt = &mut self.attempt;
        let news = attempt.up[attempt.delivered..].to_vec();
        attempt.delivered = attempt.up.len();
        let (from, answered) = (attempt.address, self.down.len());
        news.iter().for_each(|packet| self.say(from, packet));
        let answers = self.down[answered..].to_vec();
        for (to, mut packet) in answers {
            if to == from {
                self.tell(&mut packet);
            }
        }
    }

    /// The client hears something that seems to be the server's.
    fn tell(&mut self, packet: &mut [u8]) {
        let from = address(SERVER);
        self.attempt
            .client
            .handle_datagram(self.now, from, 0, packet);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.server.handle_timeout(self.now);
        self.attempt.client.handle_timeout(self.now);
        // Of connections there are.
        self.down.extend(drain_to(&mut self.server, self.now));
    }

    /// Packets arrive from now on: an attempt completes that is young enough.
    fn complete(&mut self) {
        for _ in 0..YOUNG.as_millis() {
            self.deliver();
            if self.attempt.is_done() {
                return;
            }
            self.wait(Duration::from_millis(1));
        }
        panic!("an attempt does not complete though its packets arrive");
    }
}

/// Tampered SYNs, ACKs and answers, and floods. Nobody comes in but by an ACK that is as it was made, from
/// where a SYN of the attempt came from, once from each such address; that one lets its sender in. Nobody is
/// answered with more than he sent. A busy server computes for those only who proved their address. An honest
/// client that hears forged answers gets in as soon as its own packets arrive.
pub fn handshake(data: &[u8]) {
    let mut input = Input(data);
    let watch = Watch::allow(MAY_HOLD);
    let mut world = World::new();
    let mut floods = 0;
    for _ in 0..32 {
        if input.is_empty() {
            break;
        }
        world.keep();
        let op = input.byte();
        let sender = address(1 + (op >> 3 & 1));
        match op & 7 {
            kind @ (0 | 3) => {
                let asked = world.cookies.get(&asker(sender, &raw::syn()));
                let asked = asked.filter(|_| kind == 3).and_then(|all| all.last());
                let cookie = asked.map_or([0; COOKIE_LEN], |(cookie, _)| *cookie);
                let syn = Syn {
                    cookie,
                    ..raw::syn()
                };
                let mut packet = syn.emit(1200 + input.number() % 300);
                tamper(&mut input, &mut packet);
                world.say(sender, &packet);
            }
            1 | 2 => {
                let mut packet = world.ack.clone();
                tamper(&mut input, &mut packet);
                world.say(sender, &packet);
            }
            4 if floods < FLOODS => {
                floods += 1;
                world.flood();
            }
            5 if !world.attempt.up.is_empty() => {
                let up = &world.attempt.up;
                let mut packet = up[input.number() % up.len()].clone();
                tamper(&mut input, &mut packet);
                let from = if op & 8 == 0 {
                    address(CLIENT)
                } else {
                    address(2)
                };
                world.say(from, &packet);
            }
            6 if !world.down.is_empty() => {
                let (_, mut packet) = world.down[input.number() % world.down.len()].clone();
                tamper(&mut input, &mut packet);
                world.tell(&mut packet);
            }
            _ => world.deliver(),
        }
        watch.check();
        world.wait(match op {
            0xff => SLOT,
            _ => Duration::from_millis(u64::from(op >> 4) * 20),
        });
    }
    if world.attempt.is_done() {
        return;
    }
    if world.now.saturating_since(world.attempt.began) > YOUNG {
        // It may have ended; whoever comes now finds the server at work.
        world.attempt = Attempt::new(world.now, "another client", CLIENT + 1);
    }
    world.complete();
}
