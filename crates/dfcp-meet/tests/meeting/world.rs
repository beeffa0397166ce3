//! A small network in virtual time: hosts with or without address translators, a server, loss,
//! copies, delay that reorders, and somebody who sends what he likes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dfcp_meet::{
    Action, Claim, ClaimConfig, Code, Event, Machine, Offer, OfferConfig, RelayLimits, Server,
    ServerConfig, code::Words,
};
use dfcp_proto::{Duration, Instant, PublicKey, SecretRng};

pub const SENDER_KEY: PublicKey = PublicKey([1; 32]);
pub const RECEIVER_KEY: PublicKey = PublicKey([2; 32]);
pub const SERVER: &str = "203.0.113.1:4435";
/// How often the receiver is told of the choice: with a third lost, never all of them.
const NOTICES: usize = 20;
const WORDS: [&str; 4] = ["otter", "lamp", "rope", "acorn"];

/// An address translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat {
    /// None: the address is public.
    None,
    /// One port for all destinations, which lets in only from where something was sent to.
    Cone,
    /// A port for each destination.
    Symmetric,
}

#[derive(Default)]
struct Translator {
    symmetric: bool,
    /// Inside and, if symmetric, outside address → port.
    ports: BTreeMap<(SocketAddr, Option<SocketAddr>), u16>,
    /// Port → inside address, and whom it has sent to.
    inside: BTreeMap<u16, (SocketAddr, BTreeSet<SocketAddr>)>,
}

impl Translator {
    fn out(&mut self, from: SocketAddr, to: SocketAddr) -> u16 {
        let key = (from, self.symmetric.then_some(to));
        let next = 20_000 + self.ports.len() as u16 * 7;
        let port = *self.ports.entry(key).or_insert(next);
        let mapping = self.inside.entry(port).or_insert((from, BTreeSet::new()));
        mapping.1.insert(to);
        port
    }

    fn back(&self, from: SocketAddr, port: u16) -> Option<SocketAddr> {
        let (inside, sent_to) = self.inside.get(&port)?;
        sent_to.contains(&from).then_some(*inside)
    }
}

pub enum Host {
    Offer(Box<Offer>),
    Claim(Box<Claim>),
}

impl Host {
    pub fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Self::Offer(offer) => &mut **offer,
            Self::Claim(claim) => &mut **claim,
        }
    }
}

pub struct World {
    pub now: Instant,
    pub rng: SecretRng,
    pub server: Option<Server>,
    /// Share of datagrams that are lost, that come twice, of 1000.
    pub loss: u64,
    pub copies: u64,
    pub hosts: BTreeMap<SocketAddr, Host>,
    /// Which translator a host is behind, by its public address.
    behind: BTreeMap<SocketAddr, IpAddr>,
    nats: BTreeMap<IpAddr, Translator>,
    flying: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sequence: u64,
    /// What happened, by host.
    pub events: BTreeMap<SocketAddr, Vec<Event>>,
    /// Every datagram that was sent, for those who replay.
    pub heard: Vec<Vec<u8>>,
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn allowance() -> RelayLimits {
    RelayLimits {
        bytes: 1_000_000,
        seconds: 60,
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        Self {
            now: Instant::ZERO + Duration::from_secs(1),
            rng: SecretRng::new(&bytes, "world"),
            server: None,
            loss: 0,
            copies: 0,
            hosts: BTreeMap::new(),
            behind: BTreeMap::new(),
            nats: BTreeMap::new(),
            flying: BTreeMap::new(),
            sequence: 0,
            events: BTreeMap::new(),
            heard: Vec::new(),
        }
    }

    pub fn with_server(mut self, relay: Option<RelayLimits>) -> Self {
        let config = ServerConfig {
            relay,
            ..ServerConfig::default()
        };
        let rng = self.rng.fork("server");
        self.server = Some(Server::new(config, rng, self.now));
        self
    }

    /// Puts a host behind a translator with this public address.
    pub fn place(&mut self, host: &str, public: &str, nat: Nat) {
        if nat != Nat::None {
            let public: IpAddr = public.parse().unwrap();
            self.behind.insert(address(host), public);
            self.nats.entry(public).or_default().symmetric = nat == Nat::Symmetric;
        }
    }

    pub fn words(&mut self) -> Words {
        Words::draw(&WORDS, 2, &mut self.rng)
    }

    pub fn offer(&mut self, host: &str, words: Words, lan: bool) {
        let config = OfferConfig {
            words,
            key: SENDER_KEY,
            local: vec![address(host)],
            server: self.server.as_ref().map(|_| address(SERVER)),
            lan,
            lifetime: dfcp_meet::LIFETIME,
        };
        let rng = self.rng.fork(host);
        let offer = Offer::new(config, rng, self.now);
        self.add(host, Host::Offer(Box::new(offer)));
    }

    pub fn claim(&mut self, host: &str, code: Code, lan: bool) {
        let config = ClaimConfig {
            code,
            key: RECEIVER_KEY,
            local: vec![address(host)],
            server: self.server.as_ref().map(|_| address(SERVER)),
            lan,
        };
        let rng = self.rng.fork(host);
        let claim = Claim::new(config, rng, self.now);
        self.add(host, Host::Claim(Box::new(claim)));
    }

    fn add(&mut self, host: &str, machine: Host) {
        self.hosts.insert(address(host), machine);
        self.events.insert(address(host), Vec::new());
        self.drain(address(host));
    }

    /// The number of the offer at `host`, once it has one.
    pub fn number(&mut self, host: &str) -> u32 {
        self.run_until(|world| world.ready(host).is_some());
        self.ready(host).expect("a number")
    }

    fn ready(&self, host: &str) -> Option<u32> {
        self.of(host).iter().find_map(|event| match event {
            Event::Ready(number) => Some(*number),
            _ => None,
        })
    }

    pub fn of(&self, host: &str) -> &[Event] {
        &self.events[&address(host)]
    }

    pub fn last(&self, host: &str) -> &Event {
        self.of(host).last().expect("something happened")
    }

    pub fn is_over(&self, host: &str) -> bool {
        let last = self.of(host).last();
        last.is_some_and(|event| matches!(event, Event::Found(_) | Event::Failed(_)))
    }

    /// Puts a datagram on the network as if it came from `from`.
    pub fn forge(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        self.fly(from, to, datagram);
    }

    fn fly(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        let delay = Duration::from_micros(10_000 + self.rng.below(20_000));
        self.sequence += 1;
        let key = (self.now + delay, self.sequence);
        self.flying.insert(key, (from, to, datagram));
    }

    /// A host or the server sends.
    fn send(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        self.heard.push(datagram.clone());
        let source = match self.behind.get(&from) {
            // Neighbours behind one translator reach each other as they are.
            Some(public) if self.behind.get(&to) != Some(public) => {
                let public = *public;
                let port = self.nats.get_mut(&public).unwrap().out(from, to);
                SocketAddr::new(public, port)
            }
            _ => from,
        };
        let private = matches!(to.ip(), IpAddr::V4(ip) if ip.is_private());
        if private && self.behind.get(&to) != self.behind.get(&from) {
            return;
        }
        if self.rng.below(1000) < self.loss {
            return;
        }
        if self.rng.below(1000) < self.copies {
            self.fly(source, to, datagram.clone());
        }
        self.fly(source, to, datagram);
    }

    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        if to == address(SERVER) {
            let Some(server) = &mut self.server else {
                return;
            };
            match server.handle(self.now, from, datagram) {
                Action::Drop => {}
                Action::Send(to, answer) => {
                    assert!(answer.len() <= datagram.len(), "amplified");
                    self.send(address(SERVER), to.address, answer);
                }
                Action::Forward(to) => self.send(address(SERVER), to.address, datagram.to_vec()),
            }
            return;
        }
        let to = match self.nats.get(&to.ip()) {
            Some(nat) => match nat.back(from, to.port()) {
                Some(inside) => inside,
                None => return,
            },
            None => to,
        };
        if let Some(host) = self.hosts.get_mut(&to) {
            host.machine().handle(self.now, from, datagram);
            self.drain(to);
        }
    }

    /// Takes out what a host has to say.
    pub fn drain(&mut self, at: SocketAddr) {
        let host = self.hosts.get_mut(&at).unwrap();
        let (mut out, mut is_found) = (Vec::new(), false);
        while let Some(datagram) = host.machine().transmit() {
            out.push(datagram);
        }
        while let Some(event) = host.machine().event() {
            is_found |= matches!(event, Event::Found(_));
            // Drivers repeat what tells the receiver of the choice.
            if let Event::Found(path) = &event
                && let Some(notice) = &path.notice
            {
                out.extend(vec![(path.remote, notice.clone()); NOTICES]);
            }
            self.events.get_mut(&at).unwrap().push(event);
        }
        // Receivers agree at once here.
        if let (Host::Offer(offer), true) = (host, is_found) {
            offer.spend();
            while let Some(datagram) = offer.transmit() {
                out.push(datagram);
            }
        }
        for (to, datagram) in out {
            self.send(at, to, datagram);
        }
    }

    /// One step: the next arrival or timer. Whether there was any.
    pub fn step(&mut self) -> bool {
        let timers = self.hosts.iter_mut();
        let timers = timers.filter_map(|(at, host)| Some((host.machine().timeout()?, *at)));
        let timer = timers.min();
        let arrival = self.flying.keys().next().copied();
        match (timer, arrival) {
            (None, None) => false,
            (Some((time, at)), arrival) if arrival.is_none_or(|(when, _)| time < when) => {
                self.now = self.now.max(time);
                let now = self.now;
                self.hosts.get_mut(&at).unwrap().machine().on_timeout(now);
                self.drain(at);
                true
            }
            (_, Some(key)) => {
                self.now = self.now.max(key.0);
                let (from, to, datagram) = self.flying.remove(&key).unwrap();
                self.arrive(from, to, &datagram);
                true
            }
            (Some(_), None) => unreachable!("the guard holds without arrivals"),
        }
    }

    pub fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..200_000 {
            if done(self) || !self.step() {
                return;
            }
        }
        panic!("it goes on and on");
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.run_until(|world| world.next().is_none_or(|next| next > until));
        self.now = until;
    }

    fn next(&mut self) -> Option<Instant> {
        let timers = self.hosts.values_mut();
        let timers = timers.filter_map(|host| host.machine().timeout());
        timers.chain(self.flying.keys().map(|key| key.0)).min()
    }

    /// Tells a claim what the local network would.
    pub fn found_locally(&mut self, claim: &str, offer: &str) {
        let (at, offer_at) = (address(claim), address(offer));
        let Host::Offer(offer) = &self.hosts[&offer_at] else {
            panic!("no offer")
        };
        let session = offer.session();
        let now = self.now;
        let Some(Host::Claim(claim)) = self.hosts.get_mut(&at) else {
            panic!("no claim")
        };
        claim.found_locally(now, session, &[offer_at]);
        self.drain(at);
    }
}

/// An address that nobody has.
pub fn stranger(rng: &mut SecretRng) -> SocketAddr {
    let ip = Ipv4Addr::new(192, 0, 2, rng.below(250) as u8 + 1);
    SocketAddr::new(ip.into(), 1000 + rng.below(60_000) as u16)
}
