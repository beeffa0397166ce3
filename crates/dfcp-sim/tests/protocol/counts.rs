//! What a server counts of its handshakes, and how long its answers are.

use crate::common::raw::{address, drain, drain_to, key, server, syn};
use dfcp_proto::wire::Syn;
use dfcp_proto::{Endpoint, Instant, ServerConfig, TransportConfig};
use std::sync::Arc;

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const SERVER: u8 = 200;

/// The handshake of a client at an address of its own.
fn join(server: &mut Endpoint, who: &str, at: u8) {
    let mut client = Endpoint::new(key(who), None, [at; 32]);
    let config = Arc::new(TransportConfig::default());
    let connected = client.connect(NOW, address(SERVER), Some(server.public_key()), config);
    connected.expect("a good key");
    for _ in 0..3 {
        for mut packet in drain(&mut client, NOW) {
            server.handle_datagram(NOW, address(at), 0, &mut packet);
        }
        for (to, mut packet) in drain_to(server, NOW) {
            assert_eq!(to, address(at));
            client.handle_datagram(NOW, address(SERVER), 0, &mut packet);
        }
    }
}

#[test]
fn who_is_turned_away_counts_as_such_and_only_welcome_clients_without_a_place_as_crowded_out() {
    let stranger = key("stranger").public();
    let config = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(move |key| (*key != stranger).into()),
        max_connections: 2,
        max_per_peer: 1,
        memory: 128 << 20,
    };
    let mut server = Endpoint::new(key("server"), Some(config), [5; 32]);
    let steps = [
        ("one", (0, 0)),
        ("one", (1, 0)), // there is a place, but not for this key
        ("stranger", (2, 0)),
        ("two", (2, 0)),
        ("one", (3, 0)), // all are taken, and it has its own
        ("stranger", (4, 0)),
        ("three", (5, 1)),
        ("four", (6, 2)),
    ];
    for (at, (who, counts)) in (1..).zip(steps) {
        join(&mut server, who, at);
        let stats = server.stats();
        assert_eq!((stats.refused, stats.crowded), counts, "{who}, the {at}th");
    }
}

#[test]
fn who_carries_a_handshake_from_many_addresses_takes_places_of_its_key_alone() {
    const MOST: usize = 8;
    const OF_ONE: usize = 3;
    let config = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(|_| true.into()),
        max_connections: MOST,
        max_per_peer: OF_ONE,
        memory: 128 << 20,
    };
    let mut server = Endpoint::new(key("server"), Some(config), [5; 32]);
    let mut client = Endpoint::new(key("client"), None, [4; 32]);
    let config = Arc::new(TransportConfig::default());
    let connected = client.connect(NOW, address(SERVER), Some(server.public_key()), config);
    connected.expect("a good key");
    let syn = drain(&mut client, NOW).remove(0);
    // Each address has an answer of its own, which the client acknowledges, too.
    for at in 1..20 {
        server.handle_datagram(NOW, address(at), 0, &mut syn.clone());
        for mut answer in drain(&mut server, NOW) {
            client.handle_datagram(NOW, address(SERVER), 0, &mut answer);
        }
        for mut packet in drain(&mut client, NOW) {
            server.handle_datagram(NOW, address(at), 0, &mut packet);
        }
        drain_to(&mut server, NOW);
    }
    let accepted = |server: &mut Endpoint| std::iter::from_fn(|| server.accept()).count();
    assert_eq!(accepted(&mut server), OF_ONE);
    (20..40).for_each(|at| join(&mut server, "another", at));
    assert_eq!(accepted(&mut server), OF_ONE);
    (40..60).for_each(|at| join(&mut server, "a third", at));
    assert_eq!(accepted(&mut server), MOST - 2 * OF_ONE);
}

#[test]
fn a_syn_that_is_no_message_of_noise_is_refused_and_counted() {
    let mut server = server();
    for count in 1..3 {
        // A point of small order.
        let nonsense = Syn {
            noise: [0; 32],
            ..syn()
        };
        server.handle_datagram(NOW, address(1), 0, &mut nonsense.emit(1400));
        assert_eq!(server.stats().refused, count);
        assert!(drain(&mut server, NOW).is_empty());
    }
}

#[test]
fn the_first_answer_alone_is_as_long_as_what_it_answers() {
    let mut server = server();
    let sizes = [0, 1, 2].map(|attempt| {
        let syn = Syn { attempt, ..syn() };
        server.handle_datagram(NOW, address(1), 0, &mut syn.emit(1400));
        drain(&mut server, NOW).remove(0).len()
    });
    // One shows that the way back carries as much; more would take seconds where that is narrow.
    assert_eq!(sizes[0], 1400);
    assert!(sizes[1..].iter().all(|&size| size < 400), "{sizes:?}");
}
