//! The handshake under loss, forgery and misuse.

use crate::common::raw::{self, answer, ask, drain, params, server, syn};
use crate::common::{Flow, MS, SECOND, closed, established, lossy, run_flows};
use dfcp_proto::wire::{Packet, Syn, VERSION};
use dfcp_proto::{ChannelKind, CloseCode, ConnectionError, Duration, Instant, TransportConfig};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};

const START: Instant = Instant::from_nanos(1_000_000_000);
/// When the secret of two minutes with [`START`] in them is wiped.
const SECRET_END: Instant = Instant::from_nanos(240_000_000_000);

/// Loses everything on one link for a while, then lets the handshake go on.
fn blackout(side: Side, from: Duration, length: Duration) {
    let clean = LinkConfig {
        delay: MS(10),
        ..LinkConfig::default()
    };
    let dark = LinkConfig {
        loss: 1.0.into(),
        ..clean.clone()
    };
    let mut pair = Pair::new(PairConfig::symmetric(clean.clone(), 5));
    let link = side as usize;
    let set = |pair: &mut Pair, config: &LinkConfig| {
        let now = pair.now;
        pair.links[link].set_config(now, config.clone());
    };
    if from.is_zero() {
        set(&mut pair, &dark);
    }
    pair.connect();
    pair.run_until(from, |_| false);
    set(&mut pair, &dark);
    pair.run_until(length, |_| false);
    set(&mut pair, &clean);
    let mut flow = None;
    let done = pair.run_until(5 * SECOND, |pair| {
        if pair.connection(Side::Client).is_established() && flow.is_none() {
            flow = Some(Flow::open(pair, Side::Client, ChannelKind::Object, 50_000));
        }
        flow.as_mut()
            .is_some_and(|flow| pair.hosts[1].connection.is_some() && flow.poll(pair))
    });
    assert!(
        done,
        "{side:?} dark from {from:?} for {length:?}: {:?}",
        pair.hosts[0].events
    );
    assert_eq!(pair.hosts[1].endpoint.handles().len(), 1);
}

#[test]
fn any_lost_packet_of_the_handshake_is_made_good() {
    // One way is 10 ms: SYN leaves at 0, SYNACK at 10, ACK and data at 20.
    blackout(Side::Client, MS(0), MS(25));
    blackout(Side::Server, MS(0), MS(45));
    for from in [15, 18, 19, 21, 25, 35] {
        for length in [1, 5, 20, 200] {
            blackout(Side::Client, MS(from), MS(length));
            blackout(Side::Server, MS(from), MS(length));
        }
    }
}

#[test]
fn handshakes_survive_bad_paths() {
    let paths = [
        LinkConfig {
            loss: 0.5.into(),
            ..lossy(0.0)
        },
        LinkConfig {
            duplicate: 1.0,
            ..lossy(0.0)
        },
        LinkConfig {
            jitter: MS(100).into(),
            reorder: 0.3,
            reorder_delay: MS(50),
            ..lossy(0.1)
        },
        LinkConfig {
            corrupt: 0.5,
            ..lossy(0.0)
        },
        LinkConfig {
            delay: MS(900),
            ..lossy(0.1)
        },
    ];
    for path in paths {
        for seed in 0..20 {
            let mut pair = established(PairConfig::symmetric(path.clone(), seed));
            pair.run_until(SECOND, |_| false);
            assert_eq!(pair.hosts[1].endpoint.handles().len(), 1, "seed {seed}");
        }
    }
}

#[test]
fn data_before_the_ack_does_no_harm() {
    // The first datagrams of the client after the SYN are held back at random: data overtakes.
    let path = LinkConfig {
        reorder: 0.5,
        reorder_delay: MS(40),
        delay: MS(10),
        ..LinkConfig::default()
    };
    for seed in 0..20 {
        let mut pair = Pair::new(PairConfig::symmetric(path.clone(), seed));
        pair.connect();
        assert!(pair.run_until(5 * SECOND, |p| p.connection(Side::Client).is_established()));
        let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 100_000);
        flow.write(&mut pair);
        let done = pair.run_until(10 * SECOND, |p| {
            p.hosts[1].connection.is_some() && flow.poll(p)
        });
        assert!(done, "seed {seed}: {:?}", pair.hosts[0].events);
    }
}

#[test]
fn another_key_than_expected_is_an_error_that_names_it() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 1));
    let found = pair.hosts[1].endpoint.public_key();
    let expected = raw::key("someone else").public();
    pair.connect_to(Some(expected));
    pair.run_until(3 * SECOND, |_| false);
    assert_eq!(
        closed(&pair, Side::Client),
        Some(&ConnectionError::WrongKey { found })
    );
    assert_eq!(
        pair.hosts[1].endpoint.handles().len(),
        0,
        "the client revealed nothing"
    );
}

#[test]
fn a_host_that_is_busy_for_long_still_says_that_it_closes() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 3));
    assert!(pair.establish(20 * SECOND));
    let late = pair.now + 10 * SECOND;
    let now = pair.now;
    pair.connection(Side::Server)
        .close(now, CloseCode::NO_ERROR, "done");
    // What was due meanwhile comes first, as in a driver that was held up.
    let server = &mut pair.hosts[1].endpoint;
    server.handle_timeout(late);
    let said = drain(server, late);
    let (client, address) = (&mut pair.hosts[0].endpoint, pair.hosts[1].address);
    for mut datagram in said {
        client.handle_datagram(late, address, 0, &mut datagram);
    }
    assert!(!pair.connection(Side::Client).is_established());
}

#[test]
fn a_silent_host_is_unreachable_within_the_handshake_timeout() {
    let config = PairConfig {
        client: TransportConfig::default().handshake_timeout(3 * SECOND),
        ..PairConfig::symmetric(
            LinkConfig {
                loss: 1.0.into(),
                ..lossy(0.0)
            },
            3,
        )
    };
    let mut pair = Pair::new(config);
    let start = pair.now;
    pair.connect();
    pair.run_until(10 * SECOND, |pair| closed(pair, Side::Client).is_some());
    assert_eq!(
        closed(&pair, Side::Client),
        Some(&ConnectionError::Unreachable)
    );
    assert!(pair.now.saturating_since(start) <= 3 * SECOND + MS(10));
    assert!(
        pair.hosts[0].ip_bytes < 24 * 1500,
        "a silent host is not flooded"
    );
}

#[test]
fn a_server_that_answers_only_the_syn_is_unreachable_too() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 4));
    pair.connect();
    pair.run_until(5 * SECOND, |pair| {
        pair.connection(Side::Client).is_established()
    });
    let (now, dark) = (
        pair.now,
        LinkConfig {
            loss: 1.0.into(),
            ..lossy(0.0)
        },
    );
    pair.links[0].set_config(now, dark);
    pair.run_until(10 * SECOND, |pair| closed(pair, Side::Client).is_some());
    assert_eq!(
        closed(&pair, Side::Client),
        Some(&ConnectionError::Unreachable)
    );
}

#[test]
fn another_version_is_a_mismatch() {
    let mut server = server();
    let unknown = Syn {
        version: VERSION + 1,
        ..syn()
    };
    server.handle_datagram(START, raw::address(1), 0, &mut unknown.emit(1400));
    let reply = drain(&mut server, START).remove(0);
    let Ok(Packet::Version {
        client_cid,
        versions,
    }) = Packet::parse(&reply)
    else {
        panic!("{reply:?}")
    };
    assert_eq!(
        (client_cid, versions),
        (raw::CID, &VERSION.to_be_bytes()[..])
    );
    assert!(reply.len() < 100);
    // The client's side: a server that lists other versions only.
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 6));
    pair.connect();
    let mut first = pair.links[0].poll(pair.now + SECOND).expect("a SYN").data;
    // Those that left with it.
    while pair.links[0].poll(pair.now + SECOND).is_some() {}
    let Ok(Packet::Syn(sent)) = Packet::parse(&first) else {
        panic!("{first:?}")
    };
    let address = pair.hosts[1].address;
    // The server itself is not heard, or it would be believed.
    let now = pair.now;
    let dark = LinkConfig {
        loss: 1.0.into(),
        ..lossy(0.0)
    };
    pair.links[0].set_config(now, dark);
    for (versions, wait, is_end) in [
        (vec![VERSION, 9], SECOND, false),
        (vec![9, 10], 2 * SECOND, true),
    ] {
        first = dfcp_proto::wire::emit_version(sent.client_cid, &versions);
        pair.hosts[0]
            .endpoint
            .handle_datagram(pair.now, address, 0, &mut first);
        pair.flush();
        pair.run_until(wait, |_| false);
        let ended = closed(&pair, Side::Client) == Some(&ConnectionError::VersionMismatch);
        assert_eq!(ended, is_end, "{versions:?}");
    }
}

#[test]
fn an_unvalidated_address_gets_no_more_than_it_sent_and_no_state() {
    for size in [1200, 1400, 1472] {
        let mut server = server();
        let (mut sent, mut received) = (0, 0);
        for i in 0..50 {
            let mut datagram = Syn {
                attempt: i,
                ..syn()
            }
            .emit(size);
            sent += datagram.len();
            server.handle_datagram(START, raw::address(1), 0, &mut datagram);
            received += drain(&mut server, START)
                .iter()
                .map(Vec::len)
                .sum::<usize>();
        }
        assert!(received <= 3 * sent, "{received} for {sent}");
        assert!(received > 0);
        assert_eq!(server.handles().len(), 0);
        assert_eq!(
            server.poll_timeout(),
            Some(SECRET_END),
            "no timer of any client's, so no state"
        );
    }
}

#[test]
fn a_small_syn_is_not_answered() {
    let mut server = server();
    server.handle_datagram(START, raw::address(1), 0, &mut syn().emit(1199));
    assert!(drain(&mut server, START).is_empty());
    assert_eq!(server.stats().refused, 1);
}

#[test]
fn a_cookie_is_good_for_its_address_its_syn_and_its_time_only() {
    let slot = Duration::from_secs(120);
    type Spoil = fn(&mut Vec<u8>);
    let spoil: [(&str, Spoil); 6] = [
        ("server ID", |ack| ack[5] ^= 1),
        ("client ID", |ack| ack[13] ^= 1),
        ("slot", |ack| ack[24] ^= 1),
        ("slot at its end", |ack| ack[21..25].fill(0xff)),
        ("size", |ack| ack[26] ^= 1),
        ("cookie", |ack| ack[27] ^= 1),
    ];
    for (what, spoil) in spoil {
        let mut server = server();
        let mut ack = answer(&ask(&mut server, START, raw::address(1)), &params()).0;
        spoil(&mut ack);
        server.handle_datagram(START, raw::address(1), 0, &mut ack);
        assert_eq!(server.handles().len(), 0, "{what}");
        assert_eq!(server.stats().refused, 1, "{what}");
    }
    for (from, later, accepted) in [
        (1, slot / 2, 1),
        (2, Duration::ZERO, 0),
        (1, 2 * slot, 0),
        (1, 1000 * slot, 0),
    ] {
        let mut server = server();
        let mut ack = answer(&ask(&mut server, START, raw::address(1)), &params()).0;
        server.handle_datagram(START + later, raw::address(from), 0, &mut ack);
        assert_eq!(
            server.handles().len(),
            accepted,
            "from {from}, {later:?} later"
        );
    }
}

#[test]
fn a_replayed_handshake_makes_no_second_connection() {
    let mut server = server();
    let ack = answer(&ask(&mut server, START, raw::address(1)), &params()).0;
    for _ in 0..3 {
        server.handle_datagram(START, raw::address(1), 0, &mut ack.clone());
    }
    assert_eq!(server.handles().len(), 1);
    let handle = server.accept().expect("accepted");
    assert_eq!(server.accept(), None);
    let connection = server.connection(handle).expect("known");
    connection.close(START, CloseCode::NO_ERROR, "");
    server.forget(handle);
    drain(&mut server, START);
    for later in [0, 1, 100, 239, 241, 500] {
        let now = START + Duration::from_secs(later);
        server.handle_datagram(now, raw::address(1), 0, &mut ack.clone());
        assert_eq!(server.handles().len(), 0, "{later} s later");
        assert!(drain(&mut server, now).is_empty());
    }
}

#[test]
fn a_path_with_small_packets_connects_and_grows_when_it_can() {
    for limit in [1200, 1300, 1400] {
        let config = PairConfig {
            client: TransportConfig::default().keep_alive(Some(5 * SECOND)),
            ..PairConfig::symmetric(lossy(0.05), 7)
        };
        let mut pair = Pair::new(config);
        pair.hosts.iter_mut().for_each(|h| h.path_mtu = limit);
        assert!(pair.establish(8 * SECOND), "{limit}");
        let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 2_000_000);
        assert!(
            run_flows(&mut pair, std::slice::from_mut(&mut flow), 30 * SECOND),
            "{limit}"
        );
        let size = pair.connection(Side::Client).stats().datagram_size;
        assert!(
            size <= limit && size + 170 > limit,
            "{size} on a path of {limit}"
        );
        pair.hosts.iter_mut().for_each(|h| h.path_mtu = usize::MAX);
        pair.run_until(700 * SECOND, |_| false);
        assert_eq!(
            pair.connection(Side::Client).stats().datagram_size,
            1472,
            "{limit}"
        );
    }
}

/// An answer of full size does not arrive there, and the short ones say nothing of what does.
#[test]
fn a_way_back_with_smaller_packets_does_not_make_those_on_the_way_out_small() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 9));
    pair.hosts[Side::Server as usize].path_mtu = 1300;
    assert!(pair.establish(SECOND));
    assert_eq!(pair.connection(Side::Client).stats().datagram_size, 1472);
    let mut flows =
        Side::BOTH.map(|side| Flow::open(&mut pair, side, ChannelKind::Object, 500_000));
    assert!(run_flows(&mut pair, &mut flows, 10 * SECOND));
    let back = pair.connection(Side::Server).stats();
    assert!((1170..=1300).contains(&back.datagram_size), "{back:?}");
    assert!(back.packets_lost < 20, "{back:?}");
}

#[test]
fn the_smaller_of_both_sides_sizes_is_used() {
    for (client, server) in [(9000, 1500), (1500, 9000), (1280, 9000)] {
        let config = PairConfig {
            client: TransportConfig::default().mtu(client),
            server: TransportConfig::default().mtu(server),
            ..PairConfig::symmetric(lossy(0.0), 8)
        };
        let mut pair = established(config);
        pair.run_until(5 * SECOND, |_| false);
        for side in Side::BOTH {
            let size = pair.connection(side).stats().datagram_size;
            assert_eq!(size, usize::from(client.min(server)) - 28, "{side:?}");
        }
    }
}

#[test]
fn what_a_server_answered_from_is_wiped_though_nobody_asks_again() {
    let mut server = server();
    assert_eq!(server.poll_timeout(), None);
    ask(&mut server, START, raw::address(1));
    ask(
        &mut server,
        START + Duration::from_secs(120),
        raw::address(1),
    );
    assert_eq!(server.poll_timeout(), Some(SECRET_END));
    server.handle_timeout(SECRET_END);
    let next = SECRET_END + Duration::from_secs(120);
    assert_eq!(server.poll_timeout(), Some(next), "the second one's");
    server.handle_timeout(next);
    assert_eq!(server.poll_timeout(), None, "nothing is left to wipe");
}

#[test]
fn nothing_that_is_printed_for_debugging_has_a_secret_in_it() {
    let mut pair = Pair::new(PairConfig::symmetric(lossy(0.0), 4));
    pair.connect();
    let connecting = format!("{:?}", pair.connection(Side::Client));
    assert!(pair.establish(8 * SECOND));
    let (_, session) = answer(&ask(&mut server(), START, raw::address(1)), &params());
    let texts = [
        connecting,
        format!("{:?}", pair.connection(Side::Client)),
        format!("{:?}", pair.connection(Side::Server)),
        format!("{session:?}"),
    ];
    for text in texts {
        // Keys, seeds and tokens would be lists of 16 numbers and more, hardly two of them the same.
        for list in text.split('[') {
            let item = |item: &str| item.trim_end_matches(']').trim().parse::<u8>().ok();
            let bytes: Vec<u8> = list.split(',').map_while(item).take(16).collect();
            let distinct: std::collections::BTreeSet<_> = bytes.iter().collect();
            assert!(distinct.len() < 10, "{bytes:?} in {text}");
        }
    }
}

#[test]
fn forged_refusals_do_not_end_an_attempt_that_the_server_answers() {
    // Somebody near the client sees its SYN, while the server is two seconds away.
    let far = LinkConfig {
        delay: SECOND,
        ..lossy(0.1)
    };
    for path in [lossy(0.1), far] {
        let mut pair = Pair::new(PairConfig::symmetric(path, 9));
        let expected = pair.hosts[1].endpoint.public_key();
        pair.connect_to(Some(expected));
        let leaves = pair.links[0].clone().poll(pair.now + 3 * SECOND);
        let mut syn = leaves.expect("a SYN").data;
        let Ok(Packet::Syn(sent)) = Packet::parse(&syn) else {
            panic!("{syn:?}")
        };
        let version = dfcp_proto::wire::emit_version(sent.client_cid, &[9, 10]);
        // He has a key of his own.
        let mut other = server();
        other.handle_datagram(pair.now, pair.hosts[0].address, 0, &mut syn);
        let synack = drain(&mut other, pair.now).remove(0);
        let address = pair.hosts[1].address;
        for mut forged in [version, synack] {
            let now = pair.now;
            let client = &mut pair.hosts[0].endpoint;
            client.handle_datagram(now, address, 0, &mut forged);
        }
        pair.flush();
        let done = pair.run_until(8 * SECOND, |pair| {
            pair.connection(Side::Client).is_established()
        });
        assert!(done, "{:?}", pair.hosts[0].events);
    }
}
