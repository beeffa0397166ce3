//! A client whose address changes, and one that aims its server at somebody else.

use crate::common::raw::{RawClient, address, drain, params, server};
use crate::common::{Flow, MS, SECOND, established, link, lossy, run_flows, set_links};
use dfcp_proto::wire::{AckHead, Frame, PATH_DATA_LEN, TransportParams};
use dfcp_proto::{ChannelKind, CloseCode};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};
use std::net::{IpAddr, SocketAddr};

fn object(pair: &mut Pair, size: u64) -> Flow {
    Flow::open(pair, Side::Client, ChannelKind::Object, size)
}

/// A client that nothing is on its way to, and that knows which numbers its server's packets have.
fn settled() -> (RawClient, u64) {
    let mut raw = RawClient::connect();
    raw.send_frames(&[Frame::Ping]);
    let mut newest = 0;
    raw.receive(|pn, _| newest = pn);
    (raw, newest)
}

/// What the server asks this address now.
fn challenge(raw: &mut RawClient) -> Option<[u8; PATH_DATA_LEN]> {
    let mut asked = None;
    raw.receive(|_, frame| {
        if let Frame::PathChallenge(data) = frame {
            asked = Some(*data);
        }
    });
    asked
}

/// An ACK of `newest` and all before.
fn acknowledge(raw: &mut RawClient, newest: u64) {
    let mut ack = Vec::new();
    let head = AckHead {
        largest: newest,
        ..AckHead::default()
    };
    Frame::emit_ack(&mut ack, head, [(0, newest)].into_iter(), 1000);
    raw.send(&ack);
}

#[test]
fn who_acknowledges_unseen_packets_validates_no_address() {
    let (mut raw, newest) = settled();
    raw.address = address(99);
    raw.send_frames(&[Frame::Ping]);
    let now = raw.now;
    let unseen = drain(&mut raw.server, now);
    assert!(!unseen.is_empty(), "the server asked the new address");
    // Numbers follow each other, so whoever has the session knows which to name.
    acknowledge(&mut raw, newest + 1);
    assert!(raw.connection().is_established());
    assert!(!raw.connection().is_validated());
}

#[test]
fn only_what_was_asked_answered_from_where_it_was_asked_validates() {
    let (mut raw, _) = settled();
    raw.address = address(99);
    raw.send_frames(&[Frame::Ping]);
    let asked = challenge(&mut raw).expect("a challenge");
    let mut other = asked;
    other[7] ^= 1;
    raw.send_frames(&[Frame::PathResponse(other)]);
    assert!(!raw.connection().is_validated(), "another answer");
    raw.address = address(98);
    raw.send_frames(&[Frame::PathResponse(asked)]);
    assert!(!raw.connection().is_validated(), "from another address");
    let again = challenge(&mut raw).expect("a challenge for this address too");
    assert_ne!(asked, again);
    raw.send_frames(&[Frame::PathResponse(again)]);
    assert!(raw.connection().is_validated());
}

#[test]
fn a_lost_challenge_is_repeated_and_not_for_ever() {
    let (mut raw, _) = settled();
    raw.address = address(99);
    raw.send_frames(&[Frame::Ping]);
    let began = raw.now;
    let mut asked = Vec::new();
    while raw.now < began + 55 * SECOND {
        if challenge(&mut raw).is_some() {
            asked.push(raw.now);
        }
        let due = raw.server.poll_timeout().expect("it waits");
        raw.now = due.clamp(raw.now, began + 55 * SECOND);
        let now = raw.now;
        raw.server.handle_timeout(now);
    }
    // Three times the 26 bytes of a ping are two challenges.
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1] > asked[0]);
    let data = std::iter::from_fn(|| {
        raw.now += SECOND;
        raw.send_frames(&[Frame::Ping]);
        let now = raw.now;
        raw.server.handle_timeout(now);
        Some(challenge(&mut raw))
    })
    .take(20)
    .flatten()
    .next()
    .expect("who comes back is asked again");
    raw.send_frames(&[Frame::PathResponse(data)]);
    assert!(raw.connection().is_validated());
}

/// Bytes that the server sends now.
fn sent(raw: &mut RawClient) -> usize {
    let now = raw.now;
    drain(&mut raw.server, now).iter().map(Vec::len).sum()
}

/// A client whose handshake proved less than both sides take, so that the server probes for more,
/// and to which data flow.
fn downloading() -> RawClient {
    let wide = TransportParams {
        max_datagram: 1472,
        ..params()
    };
    let mut raw = RawClient::connect_with(server(), &wide);
    raw.send_frames(&[Frame::Ping]);
    let id = raw.connection().open(ChannelKind::Object).expect("open");
    let now = raw.now;
    raw.connection()
        .write(now, id, &[7; 200_000])
        .expect("open");
    sent(&mut raw);
    raw
}

/// Probes after a timeout pass window and pacing, and those for a larger MTU are larger than other
/// packets: neither passes the limit.
#[test]
fn nothing_at_all_passes_three_times_what_came() {
    for padding in (0..1300).step_by(50) {
        let mut raw = downloading();
        // A probe timeout is over, and what it allows has not left.
        raw.now += SECOND;
        let now = raw.now;
        raw.server.handle_timeout(now);
        raw.address = address(99);
        let (mut received, mut gone) = (0, 0);
        for _ in 0..5 {
            let mut plaintext = vec![1];
            plaintext.resize(1 + padding, 0);
            let mut packet = raw.seal(&plaintext);
            received += packet.len();
            raw.deliver(&mut packet);
            gone += sent(&mut raw);
            assert!(gone <= 3 * received, "{gone} bytes for {received}");
        }
        // Time alone earns nothing.
        for _ in 0..100 {
            raw.now += MS(250);
            let now = raw.now;
            raw.server.handle_timeout(now);
            gone += sent(&mut raw);
        }
        assert!(gone <= 3 * received, "{gone} bytes for {received}");
    }
}

#[test]
fn who_moves_to_and_fro_gets_no_more_than_three_times_what_it_sends() {
    for wait in [1, 300, 10_000] {
        let (mut raw, _) = settled();
        let (home, elsewhere) = (raw.address, address(99));
        let (mut received, mut gone) = (0, 0);
        for turn in 0..20 {
            for (place, wait) in [(elsewhere, MS(wait)), (home, MS(1))] {
                raw.address = place;
                let mut packet = raw.seal(&[1]);
                received += packet.len();
                raw.deliver(&mut packet);
                let until = raw.now + wait;
                while raw.now < until {
                    let due = raw.server.poll_timeout().unwrap_or(until);
                    raw.now = due.clamp(raw.now + MS(1), until);
                    let now = raw.now;
                    raw.server.handle_timeout(now);
                    let bytes = sent(&mut raw);
                    gone += if place == elsewhere { bytes } else { 0 };
                }
            }
            assert!(
                gone <= 3 * received,
                "turn {turn}, {wait} ms: {gone} bytes for {received}"
            );
        }
        assert!(gone > 0, "{wait} ms: the address is asked");
    }
}

#[test]
fn a_peer_that_only_receives_or_only_sends_goes_on_after_an_outage() {
    for from in [Side::Server, Side::Client] {
        for seed in 0..3 {
            let path = lossy(0.1);
            let mut pair = established(PairConfig::symmetric(path.clone(), seed));
            let mut flow = Flow::open(&mut pair, from, ChannelKind::Object, 3_000_000);
            pair.run_until(MS(200), |pair| flow.poll(pair));
            pair.hosts[0].address = SocketAddr::from(([192, 0, 2, 77], 1024));
            pair.run_until(MS(30), |pair| flow.poll(pair));
            // What the new address had earned is lost.
            let dark = LinkConfig {
                loss: 1.0.into(),
                ..path.clone()
            };
            set_links(&mut pair, &dark);
            pair.run_until(3 * SECOND, |pair| flow.poll(pair));
            set_links(&mut pair, &path);
            let done = run_flows(&mut pair, std::slice::from_mut(&mut flow), 60 * SECOND);
            assert!(done, "{from:?}, seed {seed}: {flow:?}");
            assert!(pair.connection(Side::Server).is_validated(), "seed {seed}");
        }
    }
}

/// Where a NAT forgets a client, or it changes networks, what the server sends is lost, and so may be what the
/// client said last: it has to say something, of itself, soon.
#[test]
fn a_client_that_only_receives_is_found_at_its_new_address() {
    for seed in 0..3 {
        let path = lossy(0.1);
        let mut pair = established(PairConfig::symmetric(path.clone(), seed));
        let mut flow = Flow::open(&mut pair, Side::Server, ChannelKind::Object, 3_000_000);
        pair.run_until(MS(200), |pair| flow.poll(pair));
        let dark = LinkConfig {
            loss: 1.0.into(),
            ..path.clone()
        };
        set_links(&mut pair, &dark);
        pair.run_until(MS(300), |pair| flow.poll(pair));
        let moved = SocketAddr::from(([192, 0, 2, 77], 1024));
        pair.hosts[0].address = moved;
        let now = pair.now;
        pair.links[Side::Client as usize].set_config(now, path.clone());
        let is_found = pair.run_until(2 * SECOND, |pair| {
            flow.poll(pair);
            pair.connection(Side::Server).remote_address() == moved
        });
        assert!(is_found, "seed {seed}: the server sends to where nobody is");
        set_links(&mut pair, &path);
        let done = run_flows(&mut pair, std::slice::from_mut(&mut flow), 20 * SECOND);
        assert!(done, "seed {seed}: {flow:?}");
    }
}

#[test]
fn a_client_whose_address_changes_goes_on() {
    for seed in 0..5 {
        let mut pair = established(PairConfig::symmetric(lossy(0.05), seed));
        let mut flows = [object(&mut pair, 6_000_000)];
        pair.run_until(MS(400), |pair| flows[0].poll(pair));
        pair.hosts[0].address = SocketAddr::from(([192, 0, 2, 77], 1024));
        assert!(
            run_flows(&mut pair, &mut flows, 20 * SECOND),
            "seed {seed}: {flows:?}"
        );
        let moved = pair.hosts[0].address;
        assert_eq!(
            pair.connection(Side::Server).remote_address(),
            moved,
            "seed {seed}"
        );
    }
}

#[test]
fn what_was_learnt_of_a_path_is_forgotten_on_another() {
    let (near, far) = (link(50, 20), link(50, 200));
    for forgets in [true, false] {
        let mut pair = established(PairConfig::symmetric(near.clone(), 6));
        let mut flow = Flow::open(&mut pair, Side::Server, ChannelKind::Object, 20_000_000);
        pair.run_until(SECOND, |pair| flow.poll(pair));
        assert!(pair.connection(Side::Server).stats().min_rtt < MS(50));
        set_links(&mut pair, &far);
        // Only the port is another one where a NAT forgot the old one.
        let own = pair.hosts[0].address.ip();
        let other = IpAddr::from([192, 0, 2, 77]);
        let ip = if forgets { other } else { own };
        pair.hosts[0].address = SocketAddr::new(ip, 1024);
        pair.run_until(3 * SECOND, |pair| flow.poll(pair));
        let least = pair.connection(Side::Server).stats().min_rtt;
        assert_eq!(least >= MS(150), forgets, "{least:?}");
        let done = run_flows(&mut pair, std::slice::from_mut(&mut flow), 60 * SECOND);
        assert!(done, "{flow:?}");
    }
}

#[test]
fn a_new_address_that_never_answers_is_not_flooded() {
    // One who relays a client's packets from a victim's address aims the server at the victim.
    let path = link(100, 50);
    let mut pair = established(PairConfig::symmetric(path.clone(), 21));
    let mut flow = Flow::open(&mut pair, Side::Server, ChannelKind::Object, 50_000_000);
    pair.run_until(SECOND, |pair| flow.poll(pair));
    assert!(flow.received > 1_000_000, "the server sends at full rate");
    pair.hosts[0].address = SocketAddr::from(([203, 0, 113, 9], 4433));
    // The victim hears, and says nothing that helps.
    let now = pair.now;
    let dark = LinkConfig {
        loss: 1.0.into(),
        ..path
    };
    pair.links[Side::Server as usize].set_config(now, dark);
    let before = (pair.hosts[0].ip_bytes, pair.hosts[1].ip_bytes);
    let moved = pair.hosts[0].address;
    pair.run_until(SECOND, |pair| {
        pair.connection(Side::Server).remote_address() == moved
    });
    let at_move = pair.hosts[1].ip_bytes;
    pair.run_until(5 * SECOND, |pair| flow.poll(pair));
    let (received, sent) = (
        pair.hosts[0].ip_bytes - before.0,
        pair.hosts[1].ip_bytes - at_move,
    );
    // All kinds of packets count; IP headers are not the core's. Timeouts may add a PING each, which
    // double their distance.
    let headers = 28 * (sent / 54) + 6 * 66;
    assert!(
        sent <= 3 * received + headers,
        "{sent} bytes to the victim for {received} from it"
    );
}

/// A CLOSE has a reason of up to 512 bytes and answers each packet that comes.
#[test]
fn a_close_to_a_new_address_is_no_more_than_three_times_what_came() {
    let mut raw = RawClient::connect();
    raw.send_frames(&[Frame::Ping]);
    let now = raw.now;
    drain(&mut raw.server, now);
    raw.address = address(99);
    let (mut received, mut sent) = (0, 0);
    for count in 0..20 {
        let mut packet = raw.seal(&[1]);
        received += packet.len();
        raw.deliver(&mut packet);
        if count == 0 {
            let reason = "r".repeat(500);
            raw.connection()
                .close(now, CloseCode::application(1), &reason);
        }
        sent += drain(&mut raw.server, now)
            .iter()
            .map(Vec::len)
            .sum::<usize>();
    }
    assert!(sent <= 3 * received, "{sent} bytes for {received}");
}

/// Its place is somebody else's soon, though it may not even be told.
#[test]
fn who_moves_and_falls_silent_is_forgotten_once_it_is_closed() {
    let mut raw = RawClient::connect();
    raw.send_frames(&[Frame::Ping]);
    let now = raw.now;
    drain(&mut raw.server, now);
    raw.address = address(99);
    let mut packet = raw.seal(&[1]);
    raw.deliver(&mut packet);
    drain(&mut raw.server, now);
    raw.connection()
        .close(now, CloseCode::application(1), "not a word");
    drain(&mut raw.server, now);
    for _ in 0..60 {
        raw.now += SECOND;
        let now = raw.now;
        raw.server.handle_timeout(now);
        drain(&mut raw.server, now);
    }
    assert!(raw.connection().is_closed());
}

#[test]
fn a_peer_that_comes_back_is_where_it_was_validated() {
    let mut raw = RawClient::connect();
    raw.send_frames(&[Frame::Ping]);
    let now = raw.now;
    drain(&mut raw.server, now);
    let home = raw.address;
    raw.address = address(99);
    raw.send_frames(&[Frame::Ping]);
    assert!(!raw.connection().is_validated());
    raw.address = home;
    raw.send_frames(&[Frame::Ping]);
    assert!(raw.connection().is_validated());
}

#[test]
fn a_forged_address_does_not_take_the_connection_away() {
    // A stranger repeats the client's packets from elsewhere: late copies move nothing.
    let mut pair = established(PairConfig::symmetric(lossy(0.0), 9));
    let mut flow = object(&mut pair, 2_000_000);
    let stranger = SocketAddr::from(([203, 0, 113, 1], 53));
    let mut kept = Vec::new();
    let done = pair.run_until(20 * SECOND, |pair| {
        let mut copy = pair.links[0].clone();
        kept.extend(copy.poll(pair.now + SECOND).map(|p| p.data));
        if kept.len() > 50 {
            let mut old = kept.remove(0);
            pair.hosts[1]
                .endpoint
                .handle_datagram(pair.now, stranger, 0, &mut old);
        }
        assert_ne!(pair.connection(Side::Server).remote_address(), stranger);
        flow.poll(pair)
    });
    assert!(done);
}
