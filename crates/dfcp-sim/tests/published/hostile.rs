//! Strangers, floods, nonsense.

use crate::common::{MS, SECOND, link, pair, small};
use dfcp_fec::raptor::State as Words;
use dfcp_proto::Instant;
use dfcp_proto::published::header::{Header, Kind, PseudoHeader, Report, seal};
use dfcp_proto::published::{Endpoint, Listen, State};
use dfcp_sim::published_pair::PORT;
use dfcp_sim::{Datagram, PublishedPair, PublishedTransfer, Seed, Side};
use std::net::SocketAddr;
use std::sync::Arc;

fn words(seed: u32) -> Words {
    Words::new(seed | 0x100, seed | 0x200, seed | 0x300).expect("valid")
}

fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    out.extend_from_slice(payload);
    seal(&mut out, &PseudoHeader::Udp);
    out
}

fn header(source: u16, destination: u16, kind: Kind) -> Header {
    Header {
        source,
        destination,
        block: 0,
        state: words(7),
        kind,
        report: None,
    }
}

fn server(max_connections: usize) -> Endpoint {
    server_with(max_connections, 1)
}

fn server_with(max_connections: usize, seed: u64) -> Endpoint {
    let listen = Listen {
        port: PORT,
        config: Arc::new(small()),
        max_connections,
        memory: u64::MAX,
    };
    Endpoint::new(Some(listen), seed)
}

/// The payload of a SYN that the server takes.
fn offer() -> Vec<u8> {
    let mut client = Endpoint::new(None, 2);
    let remote = SocketAddr::from(([10, 0, 0, 2], 1));
    let config = Arc::new(small());
    client
        .connect(Instant::ZERO, remote, PORT, config)
        .expect("a port");
    let mut syn = Vec::new();
    client
        .poll_transmit(Instant::ZERO, 1, &mut syn)
        .expect("a SYN");
    syn.split_off(24)
}

/// Everything an endpoint has to send: packets with their parsed headers.
fn answers(endpoint: &mut Endpoint, now: Instant) -> Vec<(Header, usize)> {
    let mut all = Vec::new();
    let mut buffer = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(now, 1, &mut buffer) {
        let (header, _) = Header::parse(&buffer, &PseudoHeader::Udp).expect("well-formed");
        all.push((header, transmit.size));
        buffer.clear();
    }
    all
}

#[test]
fn a_flood_of_syns_keeps_few_half_open_connections_and_lets_a_client_in() {
    let mut server = server(10_000);
    let (now, payload) = (Instant::from_nanos(5), offer());
    let mut newest = None;
    for i in 0..20_000u32 {
        let remote = SocketAddr::from(([10, 1, (i >> 8) as u8, i as u8], (i >> 16) as u16 + 1));
        let syn = Header {
            state: words(i << 12),
            ..header(5, PORT, Kind::Syn)
        };
        let bytes = packet(&syn, &payload);
        server.handle_packet(now, remote, 0, &bytes);
        let sent = answers(&mut server, now);
        assert_eq!(sent.len(), 1);
        assert!(sent[0].1 <= bytes.len(), "no amplification");
        newest = Some((remote, sent[0].0));
    }
    assert_eq!(server.stats().syn_refused, 20_000 - 1024);
    // All but 1024 are gone: their timers do not fire.
    let timeout = server.poll_timeout().expect("half-open connections wait");
    server.handle_timeout(timeout);
    assert_eq!(answers(&mut server, timeout).len(), 1024);
    // The newest client completes its handshake.
    let (remote, synack) = newest.expect("there was one");
    let ack = Header {
        state: synack.state,
        block: u32::MAX,
        ..header(5, PORT, Kind::Ack)
    };
    server.handle_packet(timeout, remote, 0, &packet(&ack, &[]));
    assert!(server.accept().is_some());
}

/// Somebody begins a handshake, `flood` SYNs come from elsewhere, and the handshake goes on: is he in?
fn gets_in(mut server: Endpoint, flood: impl Iterator<Item = SocketAddr>) -> bool {
    let (now, payload) = (Instant::from_nanos(5), offer());
    let syn = |server: &mut Endpoint, remote, n: u32| {
        let syn = Header {
            state: words(n << 12),
            ..header(5, PORT, Kind::Syn)
        };
        server.handle_packet(now, remote, 0, &packet(&syn, &payload));
        answers(server, now)[0].0
    };
    let honest = SocketAddr::from(([192, 0, 2, 1], 9));
    let synack = syn(&mut server, honest, 0);
    for (n, remote) in (1..).zip(flood) {
        syn(&mut server, remote, n);
    }
    let ack = Header {
        state: synack.state,
        block: u32::MAX,
        ..header(5, PORT, Kind::Ack)
    };
    server.handle_packet(now, honest, 0, &packet(&ack, &[]));
    server.accept().is_some()
}

#[test]
fn a_flood_from_one_network_displaces_nobody_else() {
    let flood = (1..10_000).map(|port| SocketAddr::from(([10, 0, 0, 7], port)));
    assert!(gets_in(server(4), flood));
    // An IPv6 network is a /64.
    let address = |i: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 1, 0, 0, 0, i], 9));
    assert!(gets_in(server(4), (1..10_000).map(address)));
}

#[test]
fn a_flood_in_everybodys_name_displaces_by_chance_alone() {
    // 2048 SYNs: when 1024 are there, each further one displaces a random one. Who came first is
    // still there with chance 1/e.
    let flood = || (0..2048u16).map(|i| SocketAddr::from(([10, 1, (i >> 8) as u8, i as u8], 9)));
    let seeds = 0..40;
    let lucky = seeds.filter(|&seed| gets_in(server_with(4, seed), flood()));
    let lucky = lucky.count();
    assert!((6..=26).contains(&lucky), "{lucky} of 40");
}

#[test]
fn who_completes_a_handshake_for_which_there_is_no_place_left_is_reset() {
    let mut server = server(1);
    let (now, payload) = (Instant::from_nanos(5), offer());
    let clients = [1, 2].map(|i| SocketAddr::from(([192, 0, 2, i], 9)));
    let synacks = clients.map(|remote| {
        let syn = header(5, PORT, Kind::Syn);
        server.handle_packet(now, remote, 0, &packet(&syn, &payload));
        answers(&mut server, now)[0].0
    });
    for (remote, synack) in clients.into_iter().zip(synacks) {
        let ack = Header {
            state: synack.state,
            block: u32::MAX,
            ..header(5, PORT, Kind::Ack)
        };
        server.handle_packet(now, remote, 0, &packet(&ack, &[]));
    }
    assert!(server.accept().is_some() && server.accept().is_none());
    let sent = answers(&mut server, now);
    let resets = sent.iter().filter(|(header, _)| header.kind == Kind::Rst);
    assert_eq!((resets.count(), server.stats().syn_refused), (1, 1));
}

#[test]
fn an_address_that_answers_nothing_gets_three_times_what_came_from_there() {
    // A stranger names somebody else's address in one SYN, or in several, and in data that call for
    // the SYNACK again.
    for syns in 1..=3u64 {
        let mut server = server(16);
        let victim = SocketAddr::from(([10, 0, 0, 66], 9));
        let syn = packet(&header(5, PORT, Kind::Syn), &offer());
        let data = packet(&header(5, PORT, Kind::Fin), &[]);
        let (mut received, mut sent) = (0, 0);
        let mut now = Instant::from_nanos(5);
        for second in 0..200 {
            for bytes in [&syn, &data] {
                if second < syns {
                    server.handle_packet(now, victim, 0, bytes);
                    received += bytes.len();
                }
            }
            now += SECOND;
            server.handle_timeout(now);
            sent += answers(&mut server, now).iter().map(|a| a.1).sum::<usize>();
            assert!(sent <= 3 * received, "{sent} bytes for {received}");
        }
        assert!(sent >= syn.len(), "it is answered");
        assert_eq!(server.poll_timeout(), None, "the attempt is over");
    }
}

#[test]
fn garbage_is_counted_and_never_answered_with_more_than_it_was() {
    let mut server = server(16);
    let remote = SocketAddr::from(([10, 0, 0, 1], 9));
    let mut random = Seed(11).stream("garbage");
    let (mut now, rounds) = (Instant::from_nanos(1), 30_000u64);
    for round in 0..rounds {
        now += MS(1);
        let mut bytes: Vec<u8> = (0..random.below(120))
            .map(|_| random.next_u64() as u8)
            .collect();
        if random.chance(0.7) && bytes.len() >= 24 {
            // Most of it has a right length, port and checksum.
            bytes[2..4].copy_from_slice(&PORT.to_be_bytes());
            bytes[20] = [0x60, 0xf0][random.below(2) as usize];
            bytes[21] &= [0x01, 0x1f, 0x7f][random.below(3) as usize];
            seal(&mut bytes, &PseudoHeader::Udp);
        }
        server.handle_packet(now, remote, 0, &bytes);
        let sent: usize = answers(&mut server, now).iter().map(|a| a.1).sum();
        assert!(sent <= bytes.len(), "seed 11, round {round}");
    }
    let stats = server.stats();
    let counted = stats.malformed + stats.bad_checksum + stats.unknown + stats.bad_parameters;
    assert_eq!(counted, rounds, "{stats:?}");
    let each = [stats.malformed, stats.bad_checksum, stats.unknown];
    assert!(each.into_iter().all(|count| count > 200), "{stats:?}");
    assert!(stats.resets_sent <= 100 * 31);
}

#[test]
fn rst_is_never_answered_and_resets_are_few() {
    let mut server = server(16);
    let remote = SocketAddr::from(([10, 0, 0, 1], 9));
    let now = Instant::from_nanos(1);
    server.handle_packet(now, remote, 0, &packet(&header(5, PORT, Kind::Rst), &[]));
    assert!(answers(&mut server, now).is_empty());
    for _ in 0..1000 {
        server.handle_packet(now, remote, 0, &packet(&header(5, PORT, Kind::Fin), &[]));
        for (answer, _) in answers(&mut server, now) {
            assert_eq!((answer.kind, answer.state), (Kind::Rst, words(7)));
        }
    }
    assert_eq!(server.stats().resets_sent, 100);
}

/// Ports of an established pair's connection: client, server.
fn ports(pair: &mut PublishedPair) -> (u16, u16) {
    pair.connection(Side::Client).ports()
}

#[test]
fn signalling_of_strangers_changes_nothing() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    let (client, server) = ports(&mut pair);
    let mut up = PublishedTransfer::new(Side::Client, 2_000_000);
    pair.run_until(MS(100), |pair| up.poll(pair));
    let kinds = [
        Kind::Syn,
        Kind::SynAck,
        Kind::Ack,
        Kind::Fin,
        Kind::FinAck,
        Kind::Rst,
    ];
    for side in Side::BOTH {
        for kind in kinds {
            let (source, destination) = match side {
                Side::Client => (server, client),
                Side::Server => (client, server),
            };
            let payload = match kind {
                Kind::Syn | Kind::SynAck => offer(),
                _ => Vec::new(),
            };
            let bytes = packet(&header(source, destination, kind), &payload);
            pair.deliver(side, &Datagram::new(bytes));
            pair.run_until(MS(150), |pair| up.poll(pair));
        }
    }
    assert!(pair.run_until(5 * SECOND, |pair| up.poll(pair)));
    for host in &pair.hosts {
        assert_eq!(
            host.endpoint.stats().forged,
            5,
            "all but SYN, which is challenged"
        );
    }
}

#[test]
fn blocks_far_ahead_and_wild_reports_are_survived() {
    let mut pair = pair(link(20), small(), 1);
    assert!(pair.establish(SECOND));
    let (client, server) = ports(&mut pair);
    let mut up = PublishedTransfer::new(Side::Client, 3_000_000);
    pair.run_until(MS(100), |pair| up.poll(pair));
    let mut random = Seed(4).stream("wild");
    for round in 0..200 {
        let data = Kind::Data {
            echo: round % 2 == 0,
            short: round % 3 == 0,
        };
        let ahead = Header {
            block: u32::MAX - random.below(1000) as u32,
            state: words(random.next_u64() as u32),
            ..header(client, server, data)
        };
        pair.deliver(Side::Server, &Datagram::new(packet(&ahead, &[3; 80])));
        // Acknowledges nothing that was sent, whatever the report says.
        let kind = [Kind::Echo, Kind::BlockAck { more: true }][round % 2];
        let report = Report {
            packets: random.next_u64() as u32,
            bytes: random.next_u64(),
            ce: random.next_u64() as u32,
            clock: random.next_u64(),
            decoded: 0,
            limit: random.next_u64() as u32,
            missing: random.next_u64() as u32,
        };
        let wild = Header {
            block: random.next_u64() as u32,
            report: Some(report),
            ..header(server, client, kind)
        };
        pair.deliver(Side::Client, &Datagram::new(packet(&wild, &[])));
        pair.run_until(MS(1), |pair| up.poll(pair));
    }
    assert_eq!(pair.hosts[1].endpoint.stats().beyond_window, 200);
    assert!(pair.run_until(20 * SECOND, |pair| up.poll(pair)));
    assert!(pair.run_until(20 * SECOND, |pair| {
        let now = pair.now;
        pair.connection(Side::Server).finish(now);
        pair.flush();
        pair.states() == [State::Closed; 2]
    }));
}
