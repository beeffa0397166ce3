//! Two sides of a code and a server, to whom anything may be said at any moment of a meeting.

use dfcp_meet::wire::{MAGIC, Packet, REQUEST_LEN, Request, Response};
use dfcp_meet::{
    Action, Claim, ClaimConfig, Code, Event, Machine, Offer, OfferConfig, RelayLimits, Server,
    ServerConfig,
};
use dfcp_proto::{Duration, Instant, PublicKey, SecretRng};
use std::collections::VecDeque;
use std::net::SocketAddr;

const SERVER: &str = "203.0.113.1:4435";
const SENDER: &str = "198.51.100.1:7000";
const RECEIVER: &str = "198.51.101.1:7000";
const STRANGER: &str = "192.0.2.1:9";

struct Trio {
    now: Instant,
    server: Server,
    /// The stranger's, so that requests get past it.
    cookie: [u8; 16],
    offer: Offer,
    claim: Option<Claim>,
    /// What the two put into their requests, so that forged answers are looked at.
    nonces: [u64; 2],
    flying: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
}

fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

impl Trio {
    fn new() -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let rng = |label| SecretRng::new(&[1; 32], label);
        let relay = Some(RelayLimits {
            bytes: 10_000,
            seconds: 60,
        });
        let config = ServerConfig {
            relay,
            ..ServerConfig::default()
        };
        let code: Code = "1-otter-lamp".parse().expect("a code");
        let offer = OfferConfig {
            words: code.words,
            key: PublicKey([1; 32]),
            local: vec![at(SENDER)],
            server: Some(at(SERVER)),
            lan: true,
            lifetime: dfcp_meet::LIFETIME,
        };
        let mut server = Server::new(config, rng("server"), now);
        let ask = Request::Find { number: 1 }.encode(0, &[0; 16]);
        let cookie = match server.handle(now, at(STRANGER), &ask) {
            Action::Send(_, answer) => match Packet::parse(&answer) {
                Some(Packet::Response(_, Response::Cookie(cookie))) => cookie,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        Self {
            now,
            server,
            cookie,
            offer: Offer::new(offer, rng("offer"), now),
            claim: None,
            nonces: [0; 2],
            flying: VecDeque::new(),
        }
    }

    fn drain(&mut self) {
        while let Some((to, out)) = self.offer.transmit() {
            self.nonces[0] = Request::parse(&out).map_or(self.nonces[0], |(nonce, ..)| nonce);
            self.flying.push_back((at(SENDER), to, out));
        }
        while let Some(event) = self.offer.event() {
            if let Event::Ready(number) = event {
                let words = "1-otter-lamp".parse::<Code>().expect("a code").words;
                let config = ClaimConfig {
                    code: Code { number, words },
                    key: PublicKey([2; 32]),
                    local: vec![at(RECEIVER)],
                    server: Some(at(SERVER)),
                    lan: true,
                };
                let rng = SecretRng::new(&[1; 32], "claim");
                let mut claim = Claim::new(config, rng, self.now);
                claim.found_locally(self.now, self.offer.session(), &[at(SENDER)]);
                self.claim = Some(claim);
            }
        }
        if let Some(claim) = &mut self.claim {
            while let Some((to, out)) = claim.transmit() {
                self.nonces[1] = Request::parse(&out).map_or(self.nonces[1], |(nonce, ..)| nonce);
                self.flying.push_back((at(RECEIVER), to, out));
            }
            while claim.event().is_some() {}
        }
        // Nobody answers a datagram with many.
        assert!(self.flying.len() < 10_000, "an avalanche");
        self.flying.truncate(64);
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        assert!(datagram.len() <= 2048, "longer than drivers read");
        if to == at(SERVER) {
            match self.server.handle(self.now, from, datagram) {
                Action::Drop => {}
                Action::Send(to, out) => {
                    assert!(out.len() <= datagram.len(), "amplified");
                    self.flying.push_back((at(SERVER), to.address, out));
                }
                Action::Forward(to) => {
                    self.flying
                        .push_back((at(SERVER), to.address, datagram.to_vec()));
                }
            }
        } else if to == at(SENDER) {
            self.offer.handle(self.now, from, datagram);
        } else if let (true, Some(claim)) = (to == at(RECEIVER), &mut self.claim) {
            claim.handle(self.now, from, datagram);
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        let due = |at: Option<Instant>, now| at.is_some_and(|at| at <= now);
        if due(self.offer.timeout(), self.now) {
            self.offer.on_timeout(self.now);
        }
        if let Some(claim) = &mut self.claim
            && due(claim.timeout(), self.now)
        {
            claim.on_timeout(self.now);
        }
    }
}

/// Takes `len` bytes off the front, fewer if there are fewer.
fn take<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (head, rest) = input.split_at(len.min(input.len()));
    *input = rest;
    head
}

/// Steps that the input chooses: what is under way arrives or is lost, time passes, and a stranger
/// speaks as a client of the server, as the server or as the other side.
pub fn steps(data: &[u8]) {
    let mut trio = Trio::new();
    let mut input = data;
    while let [step, rest @ ..] = input {
        input = rest;
        match step % 6 {
            0 => {
                if let Some((from, to, datagram)) = trio.flying.pop_front() {
                    trio.deliver(from, to, &datagram);
                }
            }
            1 => drop(trio.flying.pop_front()),
            2 => {
                let time = take(&mut input, 1).first().copied().unwrap_or(1);
                trio.wait(Duration::from_millis(u64::from(time) * 20));
            }
            said => {
                let kind = take(&mut input, 1).first().copied().unwrap_or(0);
                let len = take(&mut input, 1).first().copied().unwrap_or(0);
                let fields = take(&mut input, usize::from(len));
                let mut datagram = [&MAGIC[..], &[kind]].concat();
                let (from, to) = match said {
                    3 => {
                        datagram.extend([0; 8]);
                        datagram.extend(trio.cookie);
                        (at(STRANGER), at(SERVER))
                    }
                    4 => (at(SERVER), at(SENDER)),
                    _ => (at(SERVER), at(RECEIVER)),
                };
                if said > 3 && kind >= 0x80 {
                    let nonce = trio.nonces[usize::from(said - 4)];
                    datagram.extend(nonce.to_be_bytes());
                }
                datagram.extend(fields);
                if said == 3 {
                    datagram.resize(REQUEST_LEN, 0);
                }
                trio.deliver(from, to, &datagram);
            }
        }
        trio.drain();
    }
}
