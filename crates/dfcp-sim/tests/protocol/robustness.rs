//! Paths that break and strangers who meddle.

use crate::common::raw::{CID, RawClient, drain, key, params, server_with};
use crate::common::{Flow, MS, SECOND, closed, established, link, lossy, run_flows, set_links};
use dfcp_proto::crypto::reset_token;
use dfcp_proto::wire::{CID_LEN, ConnectionId, Frame, Packet, TAG_LEN, emit_reset};
use dfcp_proto::{
    ChannelKind, CloseCode, ConnectionError, ConnectionHandle, Endpoint, Instant, Timer,
    TransportConfig,
};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Random, Seed, Side};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

fn object(pair: &mut Pair, size: u64) -> Flow {
    Flow::open(pair, Side::Client, ChannelKind::Object, size)
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

/// The tag of a sealed packet.
fn tag(packet: &[u8]) -> [u8; TAG_LEN] {
    *packet.last_chunk().expect("a sealed packet has a tag")
}

#[test]
fn a_reset_is_believed_only_with_its_token() {
    let mut raw = RawClient::connect();
    raw.send_frames(&[Frame::Ping]);
    let sent = drain(&mut raw.server, raw.now);
    let sent = tag(sent.last().expect("the ping is acknowledged"));
    raw.now += 3 * SECOND;
    let key = params().reset_key;
    for token in [[0; 16], key, sent, reset_token(&key, &[0; TAG_LEN])] {
        raw.deliver(&mut emit_reset(CID, token));
        assert_eq!(raw.closed(), None, "{token:?}");
    }
    let right = reset_token(&key, &sent);
    raw.deliver(&mut emit_reset(ConnectionId([1; CID_LEN]), right));
    assert_eq!(raw.closed(), None, "another connection's");
    raw.deliver(&mut emit_reset(CID, right));
    assert_eq!(raw.closed(), Some(ConnectionError::Reset));
}

/// A client whose packets do not leave by themselves, and a server that knows it.
struct HeldBack {
    client: Endpoint,
    handle: ConnectionHandle,
    server: Endpoint,
    now: Instant,
    /// What the server answered before it knew the client.
    early: Vec<Vec<u8>>,
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 5000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99)), 5000);

impl HeldBack {
    /// The attacker holds the ACKs back, shows the server the packets that went with them and some
    /// of his own, keeps the answers, and lets the handshake go on.
    fn connect() -> Self {
        let config = Arc::new(TransportConfig::default());
        let mut client = Endpoint::new(key("client"), None, [4; 32]);
        let now = Instant::from_nanos(1_000_000_000);
        let handle = client.connect(now, SERVER, None, config).expect("a key");
        let server = server_with(TransportConfig::default(), |_| true).at(b"here");
        let mut world = Self {
            client,
            handle,
            server,
            now,
            early: Vec::new(),
        };
        let mut syn = drain(&mut world.client, now).remove(0);
        let answers = world.ask(&mut syn);
        world.tell(answers);
        let connection = world.client.connection(handle).expect("known");
        let id = connection.open(ChannelKind::Object).expect("open");
        connection.write(now, id, &[7; 3000]).expect("open");
        connection.finish_channel(id).expect("open");
        let flight = drain(&mut world.client, now);
        let (acks, sealed): (Vec<_>, Vec<_>) =
            flight.into_iter().partition(|packet| packet[0] == 0x03);
        for mut packet in sealed {
            let mut forged = packet.clone();
            forged.truncate(200);
            for question in [&mut packet, &mut forged] {
                let answers = world.ask(question);
                world.early.extend(answers);
            }
        }
        let answers: Vec<_> = acks
            .into_iter()
            .flat_map(|mut a| world.ask(&mut a))
            .collect();
        world.tell(answers);
        world
    }

    fn ask(&mut self, packet: &mut [u8]) -> Vec<Vec<u8>> {
        self.server.handle_datagram(self.now, CLIENT, 0, packet);
        drain(&mut self.server, self.now)
    }

    fn tell(&mut self, packets: Vec<Vec<u8>>) {
        for mut packet in packets {
            self.client
                .handle_datagram(self.now, SERVER, 0, &mut packet);
        }
    }

    /// What the client sends while the server is silent.
    fn probes(&mut self) -> Vec<Vec<u8>> {
        let mut probes = Vec::new();
        for _ in 0..20 {
            self.now += MS(100);
            self.client.handle_timeout(self.now);
            probes.extend(drain(&mut self.client, self.now));
        }
        assert!(!probes.is_empty(), "silence is probed");
        probes
    }

    fn is_established(&self) -> bool {
        let connection = self.client.peek(self.handle);
        connection.is_some_and(|connection| connection.is_established())
    }
}

#[test]
fn a_token_from_before_the_session_is_of_no_use() {
    let mut world = HeldBack::connect();
    let asked = world.early.len();
    assert!(
        asked >= 4,
        "the server answers what it does not know: {asked}"
    );
    // Before later packets make the client forget what it sent at first.
    for _ in 0..10 {
        world.now += MS(20);
        world.client.handle_timeout(world.now);
        world.tell(world.early.clone());
        assert!(world.is_established(), "the server has not lost anything");
    }
    let last = world.probes().pop().expect("probes");
    // A true reset ends it at once.
    for handle in world.server.handles() {
        world.server.forget(handle);
    }
    let answers = world.ask(&mut last.clone());
    world.tell(answers);
    assert!(!world.is_established());
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
    // Whoever sees the packets of a connection asks another endpoint with the server's key, from the
    // client's address or from his own, and repeats the answer to the client in the server's name.
    let mut world = HeldBack::connect();
    let probe = world.probes().pop().expect("probes");
    let elsewhere = SocketAddr::from(([203, 0, 113, 1], 53));
    for (place, from) in [(&b"there"[..], CLIENT), (b"here", elsewhere)] {
        let mut other = server_with(TransportConfig::default(), |_| true).at(place);
        other.handle_datagram(world.now, from, 0, &mut probe.clone());
        let answers = drain(&mut other, world.now);
        assert_eq!(answers.len(), 1);
        world.tell(answers);
        assert!(world.is_established(), "{place:?} {from}");
    }
    // The server itself after a restart.
    world.server = server_with(TransportConfig::default(), |_| true).at(b"here");
    let answers = world.ask(&mut probe.clone());
    world.tell(answers);
    assert!(!world.is_established());
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
