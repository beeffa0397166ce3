//! Handshakes that somebody floods a server with.

use crate::common::raw::{self, answer, drain, params, server, syn};
use crate::common::{MS, SECOND};
use dfcp_proto::wire::{Packet, Syn};
use dfcp_proto::{ConnectionHandle, Duration, Endpoint, Instant, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;

const START: Instant = Instant::from_nanos(1_000_000_000);
/// When the secret of two minutes with [`START`] in them is wiped.
const SECRET_END: Instant = Instant::from_nanos(240_000_000_000);

/// One of many addresses.
fn spoofed(i: u32) -> SocketAddr {
    let [_, b, c, d] = i.to_be_bytes();
    SocketAddr::from(([11, b, c, d], 4000))
}

/// Sends SYNs from `count` addresses at `now`; gives the answers.
fn flood(server: &mut Endpoint, now: Instant, count: u32) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    for i in 0..count {
        server.handle_datagram(now, spoofed(i), 0, &mut syn().emit(1200));
        answers.extend(drain(server, now));
    }
    answers
}

fn is_synack(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram), Ok(Packet::SynAck(_)))
}

/// The cookie that a busy server asks `from` for.
fn cookie(server: &mut Endpoint, now: Instant, from: SocketAddr) -> [u8; 16] {
    server.handle_datagram(now, from, 0, &mut syn().emit(1200));
    let reply = drain(server, now).remove(0);
    match Packet::parse(&reply) {
        Ok(Packet::Retry(retry)) => retry.cookie,
        other => panic!("{other:?}"),
    }
}

/// Whether a SYN with this cookie is answered.
fn is_answered(server: &mut Endpoint, now: Instant, from: SocketAddr, cookie: [u8; 16]) -> bool {
    let mut datagram = Syn { cookie, ..syn() }.emit(1200);
    server.handle_datagram(now, from, 0, &mut datagram);
    drain(server, now).iter().any(|reply| is_synack(reply))
}

#[test]
fn a_flood_of_syns_costs_hashes_and_is_answered_with_less_than_it_sent() {
    let mut server = server();
    let answers = flood(&mut server, START, 5000);
    let (large, small): (Vec<_>, Vec<_>) = answers.iter().partition(|a| is_synack(a));
    assert!(
        large.len() <= 100,
        "{} handshakes were computed",
        large.len()
    );
    assert!(large.len() + small.len() == 5000 && small.iter().all(|a| a.len() < 40));
    assert_eq!(server.stats().computed, large.len() as u64);
    assert_eq!(server.handles().len(), 0);
    assert_eq!(
        server.poll_timeout(),
        Some(SECRET_END),
        "no timer of any client's, so no state"
    );
}

#[test]
fn syns_that_leave_together_take_one_computation_and_repeats_without_end_take_many() {
    let ask = |server: &mut Endpoint, from, attempt| {
        let mut datagram = Syn { attempt, ..syn() }.emit(1200);
        server.handle_datagram(START, from, 0, &mut datagram);
        drain(server, START)
    };
    let mut server = server();
    let answers: Vec<_> = (0..3)
        .flat_map(|attempt| ask(&mut server, raw::address(1), attempt))
        .collect();
    assert!(answers.len() == 3 && answers.iter().all(|a| is_synack(a)));
    assert_eq!(server.stats().computed, 1);
    // The last one is as good as the first.
    let mut ack = answer(&answers[2], &params()).0;
    server.handle_datagram(START, raw::address(1), 0, &mut ack);
    assert_eq!(server.handles().len(), 1);
    drain(&mut server, START);
    // Another client in between gets an answer of its own, as does who only differs in the address.
    let before = server.stats().computed;
    ask(&mut server, raw::address(2), 0);
    ask(&mut server, raw::address(3), 0);
    ask(&mut server, raw::address(2), 1);
    assert_eq!(server.stats().computed - before, 3);
    // Who repeats one SYN has no more answers than a few for each that is counted.
    let mut server = self::server();
    let answers: Vec<_> = (0..250)
        .flat_map(|_| ask(&mut server, raw::address(1), 0))
        .collect();
    assert!(answers.iter().all(|a| is_synack(a)));
    let computed = server.stats().computed;
    assert!(3 * computed >= 250, "{computed} for {}", answers.len());
}

#[test]
fn a_cookie_of_a_busy_server_is_good_for_its_address_and_four_minutes_at_most() {
    let slot = Duration::from_secs(120);
    for (from, later, good) in [
        (raw::address(1), Duration::ZERO, true),
        (raw::address(2), Duration::ZERO, false),
        (
            SocketAddr::new(raw::address(1).ip(), 4999),
            Duration::ZERO,
            false,
        ),
        (raw::address(1), slot, true),
        (raw::address(1), 2 * slot, false),
    ] {
        let mut server = server();
        flood(&mut server, START, 200);
        let cookie = cookie(&mut server, START, raw::address(1));
        let now = START + later;
        flood(&mut server, now, 200);
        let answered = is_answered(&mut server, now, from, cookie);
        assert_eq!(answered, good, "{from} {later:?} later");
        assert!(!is_answered(&mut server, now, from, [0; 16]), "no cookie");
    }
}

#[test]
fn a_busy_server_computes_little_for_one_network() {
    let mut server = server();
    flood(&mut server, START, 200);
    let before = server.stats().computed;
    for port in 1..2000 {
        let from = SocketAddr::from(([10, 0, 0, 1], port));
        let cookie = cookie(&mut server, START, from);
        is_answered(&mut server, START, from, cookie);
    }
    assert!(server.stats().computed - before <= 100);
    let (other, now) = (raw::address(2), START);
    let cookie = cookie(&mut server, now, other);
    assert!(
        is_answered(&mut server, now, other, cookie),
        "others get theirs"
    );
}

#[test]
fn acks_that_prove_nothing_are_rarely_computed() {
    let mut server = server();
    let from = raw::address(1);
    let synack = raw::ask(&mut server, START, from);
    let ack = answer(&synack, &params()).0;
    for i in 0..5000_u32 {
        let mut forged = ack.clone();
        let end = forged.len();
        forged[end - 4..].copy_from_slice(&i.to_be_bytes());
        server.handle_datagram(START, from, 0, &mut forged);
    }
    assert!(server.stats().computed <= 101, "{:?}", server.stats());
    // Its owner still gets in, a second later.
    server.handle_datagram(START + SECOND, from, 0, &mut ack.clone());
    assert!(server.accept().is_some());
}

/// A client and a server on a path without loss, 10 ms long.
struct Attempt {
    client: Endpoint,
    handle: ConnectionHandle,
    server: Endpoint,
    now: Instant,
    syns: usize,
}

impl Attempt {
    fn new() -> Self {
        let mut client = Endpoint::new(raw::key("client"), None, [4; 32]);
        let config = Arc::new(TransportConfig::default());
        let handle = client
            .connect(START, raw::address(2), None, config)
            .expect("a good key");
        Self {
            client,
            handle,
            server: server(),
            now: START,
            syns: 0,
        }
    }

    fn address(&self) -> SocketAddr {
        raw::address(1)
    }

    /// Both sides send what they have; the server's answers to others are lost.
    fn step(&mut self) {
        self.now += MS(10);
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        for mut datagram in drain(&mut self.client, self.now) {
            self.syns += usize::from(matches!(Packet::parse(&datagram), Ok(Packet::Syn(_))));
            let from = self.address();
            self.server
                .handle_datagram(self.now, from, 0, &mut datagram);
        }
        let mut buffer = Vec::new();
        while let Some(sent) = self.server.poll_transmit(self.now, 1, &mut buffer) {
            if sent.destination == self.address() {
                self.client
                    .handle_datagram(self.now, raw::address(2), 0, &mut buffer);
            }
            buffer.clear();
        }
    }

    fn is_established(&self) -> bool {
        let connection = self.client.peek(self.handle);
        connection.is_some_and(|c| c.is_established())
    }
}

#[test]
fn an_honest_client_connects_through_a_flood() {
    let mut attempt = Attempt::new();
    while !attempt.is_established() {
        flood(&mut attempt.server, attempt.now, 500);
        attempt.step();
        assert!(attempt.now < START + MS(500), "not within half a second");
    }
    assert!(attempt.server.stats().retries > 0, "the flood was none");
    attempt.step();
    assert!(attempt.server.accept().is_some());
}

#[test]
fn forged_retries_neither_stop_a_client_nor_make_it_flood() {
    let mut attempt = Attempt::new();
    let syn = drain(&mut attempt.client, START).remove(0);
    let Ok(Packet::Syn(syn)) = Packet::parse(&syn) else {
        panic!("the client begins with a SYN")
    };
    for i in 0..200 {
        let mut retry = dfcp_proto::wire::Retry {
            client_cid: syn.client_cid,
            attempt: i,
            cookie: [i; 16],
        };
        for attempt_number in [i, 0, 1, 2, 3, 4] {
            retry.attempt = attempt_number;
            let mut forged = retry.emit();
            attempt
                .client
                .handle_datagram(START, raw::address(2), 0, &mut forged);
        }
        attempt.syns += drain(&mut attempt.client, START).len();
    }
    assert!(
        attempt.syns <= 3,
        "{} SYNs for forged packets",
        attempt.syns
    );
    while !attempt.is_established() {
        attempt.step();
        assert!(attempt.now < START + MS(500), "not within half a second");
    }
}
