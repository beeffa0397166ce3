//! Paths that break and strangers who meddle.

use crate::common::raw::{RawClient, drain};
use crate::common::{Flow, MS, SECOND, established, link, lossy, run_flows};
use dfcp_proto::wire::{CID_LEN, ConnectionId, Frame, Packet, emit_reset, emit_sealed_header};
use dfcp_proto::{ChannelKind, CloseCode, ConnectionError, Event, Timer, TransportConfig};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Random, Seed, Side};
use std::net::SocketAddr;

fn object(pair: &mut Pair, size: u64) -> Flow {
    Flow::open(pair, Side::Client, ChannelKind::Object, size)
}

fn closed(pair: &Pair, side: Side) -> Option<&ConnectionError> {
    pair.hosts[side as usize]
        .events
        .iter()
        .find_map(|event| match event {
            Event::Closed(error) => Some(error),
            _ => None,
        })
}

fn set_links(pair: &mut Pair, config: &LinkConfig) {
    let now = pair.now;
    pair.links
        .iter_mut()
        .for_each(|link| link.set_config(now, config.clone()));
}

/// A datagram made from `captured` that no honest peer sent.
fn spoil(random: &mut Random, captured: &[Vec<u8>]) -> Vec<u8> {
    let pick = random.below(captured.len() as u64) as usize;
    let mut datagram = captured[pick].clone();
    match random.below(4) {
        0 => (0..random.below(1500))
            .map(|_| random.next_u64() as u8)
            .collect(),
        1 => {
            datagram.truncate(random.below(datagram.len() as u64) as usize);
            datagram
        }
        2 => datagram,
        _ => {
            for _ in 0..=random.below(3) {
                let at = random.below(datagram.len() as u64) as usize;
                datagram[at] ^= 1 << random.below(8);
            }
            datagram
        }
    }
}

#[test]
fn garbage_and_replays_are_counted_and_ignored() {
    for seed in 1..4 {
        let mut random = Seed(seed).stream("spoil");
        let mut pair = established(PairConfig::symmetric(lossy(0.02), seed));
        let mut flow = object(&mut pair, 3_000_000);
        let mut captured: Vec<Vec<u8>> = vec![vec![0x40; 60]];
        let mut tick = pair.now;
        let done = pair.run_until(60 * SECOND, |pair| {
            if pair.now >= tick {
                tick = pair.now + MS(1);
                for side in Side::BOTH {
                    // What is on the wire right now, seen by a stranger beside it.
                    let mut copy = pair.links[side as usize].clone();
                    captured.extend(copy.poll(pair.now + SECOND).map(|p| p.data));
                    let remote = pair.hosts[side as usize].address;
                    let mut bad = spoil(&mut random, &captured);
                    let (now, to) = (pair.now, side.other() as usize);
                    pair.hosts[to]
                        .endpoint
                        .handle_datagram(now, remote, 0, &mut bad);
                }
                pair.flush();
            }
            flow.poll(pair)
        });
        assert!(done, "seed {seed}: {flow:?} {:?}", pair.hosts[0].events);
        let stats = pair.connection(Side::Server).stats();
        assert!(
            stats.forged > 10 && stats.duplicates > 10,
            "seed {seed}: {stats:?}"
        );
        let endpoint = pair.hosts[1].endpoint.stats();
        assert!(
            endpoint.malformed > 10 && endpoint.unknown > 0,
            "seed {seed}: {endpoint:?}"
        );
    }
}

#[test]
fn a_reset_is_believed_only_with_its_token() {
    let mut raw = RawClient::connect();
    raw.now += 3 * SECOND;
    for token in [[0; 16], [9; 16], [2; 16]] {
        let mut reset = emit_reset(crate::common::raw::CID, token);
        raw.deliver(&mut reset);
        assert_eq!(raw.closed(), None, "{token:?}");
    }
    let mut elsewhere = emit_reset(ConnectionId([1; CID_LEN]), [3; 16]);
    raw.deliver(&mut elsewhere);
    assert_eq!(raw.closed(), None, "another connection's");
    let mut right = emit_reset(crate::common::raw::CID, [3; 16]);
    raw.deliver(&mut right);
    assert_eq!(raw.closed(), Some(ConnectionError::Reset));
}

#[test]
fn a_server_that_lost_its_state_resets_the_connection() {
    let mut pair = established(PairConfig::symmetric(lossy(0.1), 3));
    let mut flow = object(&mut pair, 50_000_000);
    pair.run_until(SECOND, |pair| flow.poll(pair));
    let handle = pair.hosts[1].connection.take().expect("connected");
    pair.hosts[1].endpoint.forget(handle);
    assert!(pair.run_until(3 * SECOND, |pair| closed(pair, Side::Client).is_some()));
    assert_eq!(closed(&pair, Side::Client), Some(&ConnectionError::Reset));
}

#[test]
fn an_endpoint_with_the_same_key_is_no_oracle_for_resets() {
    // Somebody who saw the connection's ID asks another endpoint with the server's key, or the server
    // after it lost its state, and repeats the answer to the client in the server's name.
    let mut pair = established(PairConfig::symmetric(lossy(0.0), 4));
    let mut flow = object(&mut pair, 1000);
    flow.write(&mut pair);
    let cid = {
        let mut copy = pair.links[0].clone();
        let mut packets = std::iter::from_fn(|| copy.poll(pair.now + SECOND));
        let sealed = packets.find_map(|packet| match Packet::parse(&packet.data) {
            Ok(Packet::Sealed(header)) => Some(header.cid),
            _ => None,
        });
        sealed.expect("something was sent")
    };
    let handle = pair.hosts[1].connection.take().expect("connected");
    pair.hosts[1].endpoint.forget(handle);
    set_links(
        &mut pair,
        &LinkConfig {
            loss: 1.0.into(),
            ..lossy(0.0)
        },
    );
    let stranger = SocketAddr::from(([203, 0, 113, 1], 53));
    let mut question = Vec::new();
    emit_sealed_header(&mut question, cid, 77);
    question.resize(100, 0);
    pair.run_until(SECOND, |_| false); // the server was silent for long enough
    let now = pair.now;
    let server = &mut pair.hosts[1].endpoint;
    server.handle_datagram(now, stranger, 0, &mut question);
    let mut answers = drain(server, now);
    let address = pair.hosts[1].address;
    for answer in &mut answers {
        let client = &mut pair.hosts[0].endpoint;
        client.handle_datagram(now, address, 0, answer);
    }
    assert_eq!(answers.len(), 1);
    assert!(pair.connection(Side::Client).is_established());
}

#[test]
fn resets_are_smaller_than_their_cause_and_limited() {
    let mut server = crate::common::raw::server();
    let now = dfcp_proto::Instant::from_nanos(5_000_000_000);
    let from = SocketAddr::from(([10, 0, 0, 9], 9));
    let (mut sent, mut received, mut count) = (0, 0, 0);
    for i in 0..1000u32 {
        let mut packet = vec![0x40; 30 + (i % 60) as usize];
        packet[1..5].copy_from_slice(&i.to_be_bytes());
        sent += packet.len();
        server.handle_datagram(now, from, 0, &mut packet);
        for reply in crate::common::raw::drain(&mut server, now) {
            assert!(reply.len() < packet.len());
            assert!(matches!(Packet::parse(&reply), Ok(Packet::Reset { .. })));
            received += reply.len();
            count += 1;
        }
    }
    assert!(
        count <= 100 && received < sent,
        "{count} resets in an instant"
    );
}

#[test]
fn a_vanished_peer_is_noticed_after_the_idle_timeout() {
    for busy in [false, true] {
        let config = PairConfig {
            client: TransportConfig::default().idle_timeout(5 * SECOND),
            ..PairConfig::symmetric(lossy(0.0), 10)
        };
        let mut pair = established(config);
        let mut flow = object(&mut pair, 100_000_000);
        if busy {
            pair.run_until(SECOND, |pair| flow.poll(pair));
        }
        set_links(
            &mut pair,
            &LinkConfig {
                loss: 1.0.into(),
                ..lossy(0.0)
            },
        );
        let (start, sent) = (pair.now, pair.hosts[0].ip_bytes);
        assert!(pair.run_until(20 * SECOND, |pair| closed(pair, Side::Client).is_some()));
        assert_eq!(
            closed(&pair, Side::Client),
            Some(&ConnectionError::TimedOut)
        );
        let waited = pair.now.saturating_since(start);
        assert!(waited > 4 * SECOND && waited < 6 * SECOND, "{waited:?}");
        let sent = pair.hosts[0].ip_bytes - sent;
        assert!(sent < 2_000_000, "{sent} bytes into the void");
        // The smaller timeout of both counts, so the server is done as well.
        pair.run_until(20 * SECOND, |_| false);
        assert_eq!(
            closed(&pair, Side::Server),
            Some(&ConnectionError::TimedOut)
        );
    }
}

#[test]
fn an_idle_connection_is_silent() {
    let mut pair = established(PairConfig::symmetric(lossy(0.0), 12));
    let mut flows = [object(&mut pair, 1_000_000)];
    assert!(run_flows(&mut pair, &mut flows, 10 * SECOND));
    pair.run_until(SECOND, |_| false);
    let before: u64 = pair.hosts.iter().map(|h| h.ip_bytes).sum();
    pair.run_until(20 * SECOND, |_| false);
    assert_eq!(pair.hosts.iter().map(|h| h.ip_bytes).sum::<u64>(), before);
    let host = &pair.hosts[0];
    let connection = host.connection.and_then(|h| host.endpoint.peek(h));
    let timer = connection.and_then(|c| c.poll_timeout());
    assert!(matches!(timer, Some((_, Timer::Idle))), "{timer:?}");
}

#[test]
fn a_blackout_of_thirty_seconds_only_costs_its_time() {
    for (seed, kind) in [(13, ChannelKind::Object), (14, ChannelKind::Stream)] {
        let path = link(20, 50);
        let mut pair = established(PairConfig::symmetric(path.clone(), seed));
        let mut flow = Flow::open(&mut pair, Side::Client, kind, 20_000_000);
        pair.run_until(2 * SECOND, |pair| flow.poll(pair));
        let (received, sent) = (flow.received, pair.hosts[0].ip_bytes);
        assert!(received > 1_000_000 && received < 19_000_000, "{received}");
        set_links(
            &mut pair,
            &LinkConfig {
                loss: 1.0.into(),
                ..path.clone()
            },
        );
        pair.run_until(30 * SECOND, |pair| flow.poll(pair));
        assert!(
            pair.hosts[0].ip_bytes - sent < 1_000_000,
            "no flood into the dark"
        );
        set_links(&mut pair, &path);
        let back = pair.now;
        let done = pair.run_until(60 * SECOND, |pair| flow.poll(pair));
        assert!(done, "seed {seed}: {flow:?}");
        let took = pair.now.saturating_since(back);
        let at_full_rate = (20_000_000 - received) as f64 * 8.0 / 20e6;
        assert!(
            took.as_secs_f64() < 1.35 * at_full_rate + 2.5,
            "{took:?} for {at_full_rate} s"
        );
    }
}

#[test]
fn short_blackouts_of_either_direction_are_survived() {
    for side in Side::BOTH {
        let path = lossy(0.05);
        let mut pair = established(PairConfig::symmetric(path.clone(), 15));
        let mut flow = object(&mut pair, 8_000_000);
        let mut dark = false;
        let mut next = pair.now;
        let done = pair.run_until(60 * SECOND, |pair| {
            if pair.now >= next {
                dark = !dark;
                next = pair.now + MS(if dark { 150 } else { 400 });
                let config = LinkConfig {
                    loss: if dark { 1.0 } else { 0.05 }.into(),
                    ..path.clone()
                };
                let now = pair.now;
                pair.links[side as usize].set_config(now, config);
            }
            flow.poll(pair)
        });
        assert!(done, "{side:?} goes dark: {flow:?}");
    }
}

#[test]
fn a_close_reaches_the_peer_even_with_loss() {
    for loss in [0.0, 0.2, 0.5] {
        for seed in 0..40 {
            let mut pair = established(PairConfig::symmetric(lossy(loss), seed));
            pair.run_until(SECOND, |_| false);
            let now = pair.now;
            pair.connection(Side::Client)
                .close(now, CloseCode::from(300), "done");
            pair.flush();
            pair.run_until(10 * SECOND, |_| false);
            assert_eq!(
                closed(&pair, Side::Client),
                Some(&ConnectionError::LocallyClosed)
            );
            let told = ConnectionError::PeerClosed {
                code: CloseCode::from(300),
                reason: "done".into(),
            };
            assert_eq!(
                closed(&pair, Side::Server),
                Some(&told),
                "loss {loss}, seed {seed}"
            );
            for side in Side::BOTH {
                assert!(pair.connection(side).is_closed(), "{side:?}");
            }
        }
    }
}

#[test]
fn keys_change_under_way() {
    // 2^22 packets are too many to send here; the numbers are ours to choose as a raw client.
    let mut raw = RawClient::connect();
    let mut opened = 0;
    for skip in [0, (1 << 22) - 10, 5, 5, 1 << 21, 1 << 21, 1 << 22] {
        raw.skip(skip);
        raw.send_frames(&[Frame::Ping]);
        let stats = raw.connection().stats();
        assert_eq!(stats.forged, 0, "after {skip} more");
        opened += 1;
        assert_eq!(stats.packets_received, opened);
    }
}

#[test]
fn a_client_does_not_follow_its_server() {
    let mut pair = established(PairConfig::symmetric(lossy(0.0), 6));
    let before = pair.hosts[1].address;
    pair.hosts[1].address = SocketAddr::from(([198, 51, 100, 1], 9));
    let mut flow = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 100_000);
    assert!(run_flows(
        &mut pair,
        std::slice::from_mut(&mut flow),
        5 * SECOND
    ));
    assert_eq!(pair.connection(Side::Client).remote_address(), before);
}
