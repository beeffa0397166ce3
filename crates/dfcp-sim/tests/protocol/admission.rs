//! Whom a server lets in, and what it tells the others.

use crate::common::raw::{self, answer, drain, params, server_with, syn};
use crate::common::{SECOND, closed, lossy};
use dfcp_proto::wire::Packet;
use dfcp_proto::{
    Admission, CloseCode, ConnectionError, Endpoint, Instant, PublicKey, ServerConfig,
    TransportConfig,
};
use dfcp_sim::{Pair, PairConfig, Side};
use std::net::SocketAddr;
use std::sync::Arc;

const START: Instant = Instant::from_nanos(1_000_000_000);

#[test]
fn an_unwelcome_client_is_told_and_forgotten() {
    for (admission, error) in [
        (Admission::Unknown, ConnectionError::Refused),
        (Admission::Expired, ConnectionError::Expired),
    ] {
        is_told_and_forgotten(admission, &error);
    }
}

fn is_told_and_forgotten(admission: Admission, error: &ConnectionError) {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 2));
    let server = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(move |_| admission),
        max_connections: 4,
        max_per_peer: 4,
        memory: 128 << 20,
    };
    pair.hosts[1].endpoint = Endpoint::new(raw::key("server"), Some(server), [1; 32]);
    for round in 0..20 {
        pair.hosts[0].events.clear();
        pair.connect();
        pair.run_until(20 * SECOND, |pair| closed(pair, Side::Client).is_some());
        assert_eq!(closed(&pair, Side::Client), Some(error), "round {round}");
        assert!(pair.hosts[1].connection.is_none(), "nothing to accept");
        pair.run_until(20 * SECOND, |_| false);
        assert_eq!(
            pair.hosts[1].endpoint.handles().len(),
            0,
            "refused clients leave no state"
        );
    }
}

#[test]
fn who_finds_no_place_is_told() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 2));
    let server = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(|_| true.into()),
        max_connections: 1,
        max_per_peer: 2,
        memory: 128 << 20,
    };
    pair.hosts[1].endpoint = Endpoint::new(raw::key("server"), Some(server), [1; 32]);
    assert!(pair.establish(SECOND));
    pair.hosts[0].events.clear();
    pair.connect();
    pair.run_until(20 * SECOND, |pair| closed(pair, Side::Client).is_some());
    let end = closed(&pair, Side::Client);
    assert!(
        matches!(end, Some(ConnectionError::PeerClosed { code, .. }) if *code == CloseCode::LIMIT),
        "{end:?}"
    );
    pair.run_until(20 * SECOND, |_| false);
    assert_eq!(pair.hosts[1].endpoint.handles().len(), 1);
}

#[test]
fn a_full_server_accepts_nobody_new() {
    let mut server = server_with(TransportConfig::default(), |_| true);
    for i in 0..12 {
        let from = raw::address(i);
        server.handle_datagram(START, from, 0, &mut syn().emit(1400));
        for synack in drain(&mut server, START) {
            if matches!(Packet::parse(&synack), Ok(Packet::SynAck(_))) {
                let mut ack = answer(&synack, &params()).0;
                server.handle_datagram(START, from, 0, &mut ack);
            }
        }
    }
    assert_eq!(std::iter::from_fn(|| server.accept()).count(), 8);
}

/// Connects from `address` with a key of that `name`, unless the server does not let it.
fn arrive(server: &mut Endpoint, address: SocketAddr, name: &str) -> bool {
    let config = Arc::new(TransportConfig::default());
    let mut client = Endpoint::new(raw::key(name), None, [address.port() as u8; 32]);
    let to = raw::address(99);
    let handle = client.connect(START, to, None, config).expect("a good key");
    for _ in 0..3 {
        for mut datagram in drain(&mut client, START) {
            server.handle_datagram(START, address, 0, &mut datagram);
        }
        for mut datagram in drain(server, START) {
            client.handle_datagram(START, to, 0, &mut datagram);
        }
    }
    client.peek(handle).is_some_and(|c| c.is_established())
}

#[test]
fn one_peer_gets_its_part_of_the_connections_only() {
    let address = |a, b, port| SocketAddr::from(([10, 9, a, b], port));
    let config = |authorize: fn(&PublicKey) -> bool| ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(move |key| authorize(key).into()),
        max_connections: 32,
        max_per_peer: 8,
        memory: 128 << 20,
    };
    let seats = |server: &mut Endpoint| std::iter::from_fn(|| server.accept()).count();
    // Many keys at one address, then one key from many.
    let mut server = Endpoint::new(raw::key("server"), Some(config(|_| true)), [5; 32]);
    for i in 0..20_u8 {
        arrive(
            &mut server,
            address(1, 1, 1000 + u16::from(i)),
            &i.to_string(),
        );
    }
    assert_eq!(seats(&mut server), 8);
    for i in 0..20_u8 {
        arrive(&mut server, address(2, i, 1000 + u16::from(i)), "one");
    }
    assert_eq!(seats(&mut server), 8);
    assert!(arrive(&mut server, address(3, 1, 1100), "another"));
    // Those who are refused take no place, however many they are.
    let mut server = Endpoint::new(
        raw::key("server"),
        Some(config(|key| *key == raw::key("welcome").public())),
        [5; 32],
    );
    for i in 0..90_u8 {
        let refused = address(4, i, 1000 + u16::from(i));
        assert!(!arrive(&mut server, refused, &i.to_string()));
    }
    assert!(server.handles().len() <= 64, "{}", server.handles().len());
    assert!(arrive(&mut server, address(5, 1, 1200), "welcome"));
    assert_eq!(seats(&mut server), 1);
}
