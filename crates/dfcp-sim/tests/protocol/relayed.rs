//! Somebody sees a client's SYN, sends it to the server from an address of his own, and hands the client the
//! answer, which is the server's own.

use crate::common::raw::{self, drain, drain_to};
use crate::common::{Flow, MS, SECOND, lossy};
use dfcp_proto::wire::Packet;
use dfcp_proto::{
    ChannelId, ChannelKind, CloseCode, Connection, ConnectionError, ConnectionHandle, Duration,
    Endpoint, Event, Instant, Read, ServerConfig, TransportConfig,
};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};
use std::sync::Arc;

fn clean() -> LinkConfig {
    LinkConfig {
        delay: MS(10),
        ..LinkConfig::default()
    }
}

fn dark() -> LinkConfig {
    LinkConfig {
        loss: 1.0.into(),
        ..clean()
    }
}

fn begin(path: LinkConfig, seed: u64) -> Pair {
    let mut pair = Pair::new(PairConfig::symmetric(path, seed));
    pair.connect();
    pair
}

/// The client's first SYN, of those that are on their way.
fn first_syn(pair: &Pair) -> Vec<u8> {
    let syn = pair.links[0].clone().poll(pair.now + 3 * SECOND);
    syn.expect("a SYN").data
}

/// What the server answers to the client's SYN at some addresses that are not the client's.
fn relay(pair: &mut Pair, addresses: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    let (now, syn) = (pair.now, first_syn(pair));
    let server = &mut pair.hosts[1].endpoint;
    let answers = addresses.map(|last| {
        server.handle_datagram(now, raw::address(last), 0, &mut syn.clone());
        let answer = drain(server, now).remove(0);
        assert!(matches!(Packet::parse(&answer), Ok(Packet::SynAck(_))));
        answer
    });
    answers.collect()
}

/// The client gets answers as if they came from the server.
fn hand(pair: &mut Pair, answers: &[Vec<u8>]) {
    let (now, from) = (pair.now, pair.hosts[1].address);
    for answer in answers {
        let client = &mut pair.hosts[0].endpoint;
        client.handle_datagram(now, from, 0, &mut answer.clone());
    }
    pair.flush();
}

/// What the client has to say from its first answer on arrives, over one connection.
fn delivers(pair: &mut Pair, what: &str) {
    let mut flow = None;
    let done = pair.run_until(60 * SECOND, |pair| {
        if pair.connection(Side::Client).is_established() && flow.is_none() {
            flow = Some(Flow::open(pair, Side::Client, ChannelKind::Object, 100_000));
        }
        let Some(flow) = &mut flow else { return false };
        match pair.hosts[1].connection {
            Some(_) => flow.poll(pair),
            None => {
                flow.write(pair);
                false
            }
        }
    });
    assert!(done, "{what}: {:?}", pair.hosts[0].events);
    let peers = pair.hosts[1].endpoint.handles().len();
    assert_eq!(peers, 1, "{what}: connections of one client");
}

#[test]
fn answers_that_were_relayed_before_the_server_s_own_keep_nobody_out() {
    for count in [1, 2, 5, 30, 60] {
        let mut pair = begin(clean(), 1);
        let answers = relay(&mut pair, 70..70 + count);
        hand(&mut pair, &answers);
        assert!(pair.connection(Side::Client).is_established());
        delivers(&mut pair, &format!("{count} relayed"));
    }
}

#[test]
fn answers_that_were_relayed_after_the_server_s_own_change_nothing() {
    // One way is 10 ms: the server's answer is there at 20, its first sealed packet at 40.
    for (count, after) in [(1, 21), (5, 21), (30, 25), (3, 39), (3, 41), (3, 60)] {
        let mut pair = begin(clean(), 2);
        let answers = relay(&mut pair, 70..70 + count);
        pair.run_until(MS(after), |_| false);
        hand(&mut pair, &answers);
        delivers(&mut pair, &format!("{count} relayed after {after} ms"));
    }
}

#[test]
fn relayed_answers_keep_nobody_out_of_a_path_with_losses() {
    for seed in 0..30 {
        let path = lossy(0.25);
        let mut pair = begin(path, seed);
        if pair.links[0].clone().poll(pair.now + 3 * SECOND).is_none() {
            continue; // all three SYNs are lost
        }
        let answers = relay(&mut pair, 70..74);
        hand(&mut pair, &answers[..2]);
        pair.run_until(MS(15), |_| false);
        hand(&mut pair, &answers[2..]);
        delivers(&mut pair, &format!("seed {seed}"));
    }
}

#[test]
fn a_client_whose_only_answer_was_relayed_asks_again() {
    for link in [0, 1] {
        let mut pair = begin(clean(), 3);
        let answers = relay(&mut pair, 70..71);
        // None of the three SYNs that left together is answered.
        let now = pair.now;
        if link == 0 {
            while pair.links[0].poll(now + SECOND).is_some() {}
        }
        pair.links[link].set_config(now, dark());
        hand(&mut pair, &answers);
        pair.run_until(MS(30), |_| false);
        let now = pair.now;
        pair.links[link].set_config(now, clean());
        delivers(&mut pair, &format!("link {link}"));
    }
}

#[test]
fn answers_to_syns_of_two_sizes_make_one_connection() {
    // SYNs of 1200 bytes take turns with large ones before the first answer comes.
    for (delay, loss) in [(400, 0.0), (900, 0.0), (400, 0.2), (900, 0.2)] {
        let path = LinkConfig {
            delay: MS(delay),
            ..lossy(loss)
        };
        for seed in 0..10 {
            let mut pair = begin(path.clone(), seed);
            delivers(&mut pair, &format!("{delay} ms, {loss} lost, seed {seed}"));
            pair.run_until(5 * SECOND, |_| false);
            let peers = pair.hosts[1].endpoint.handles().len();
            assert_eq!(peers, 1, "{delay} ms, {loss} lost, seed {seed}");
        }
    }
}

#[test]
fn nobody_with_another_key_takes_the_place_of_who_answered_first() {
    // Any key is welcome, and somebody else answers first with his own.
    let mut pair = Pair::new(PairConfig::symmetric(clean(), 4));
    pair.connect_to(None);
    // It says of itself what the server says.
    let server = ServerConfig {
        transport: Arc::new(TransportConfig::default()),
        authorize: Arc::new(|_| true.into()),
        max_connections: 64,
        max_per_peer: 64,
        memory: 128 << 20,
    };
    let mut other = Endpoint::new(raw::key("another"), Some(server), [6; 32]);
    let (now, address) = (pair.now, pair.hosts[0].address);
    let mut syn = first_syn(&pair);
    other.handle_datagram(now, address, 0, &mut syn);
    let answers = drain(&mut other, now);
    hand(&mut pair, &answers);
    assert!(pair.connection(Side::Client).is_established());
    pair.run_until(20 * SECOND, |_| false);
    let first = other.public_key();
    for event in &pair.hosts[0].events {
        if let Event::Connected { peer } = event {
            assert_eq!(*peer, first, "the application was told of another peer");
        }
    }
    let end = Event::Closed(ConnectionError::Unreachable);
    assert!(pair.hosts[0].events.contains(&end));
    assert!(
        pair.hosts[1].connection.is_none(),
        "the client let in by a key that it did not take"
    );
}

#[test]
fn who_hands_over_any_number_of_answers_has_a_client_send_little() {
    let mut pair = Pair::new(PairConfig::symmetric(clean(), 5));
    pair.connect_to(None);
    let (now, from) = (pair.now, pair.hosts[1].address);
    // Answers to all but the first SYN are short.
    let mut sent = pair.links[0].clone();
    let syn = std::iter::repeat_with(|| sent.poll(now + SECOND));
    let syn = syn.flatten().nth(1).expect("two SYNs").data;
    let (mut handed, mut said) = (0, 0);
    for seed in 0..100 {
        // The same key with other secrets: ten answers of each.
        let mut server = raw::server_of(TransportConfig::default(), |_| true, [seed; 32]);
        for last in 70..80 {
            server.handle_datagram(now, raw::address(last), 0, &mut syn.clone());
            let answer = drain(&mut server, now).remove(0);
            handed += answer.len();
            let client = &mut pair.hosts[0].endpoint;
            client.handle_datagram(now, from, 0, &mut answer.clone());
            said += drain_to(client, now)
                .iter()
                .map(|(_, d)| d.len())
                .sum::<usize>();
        }
    }
    assert!(said < handed / 2, "{said} bytes for {handed}");
}

/// How often the client said that it is connected: once more where it went on with another answer.
fn connected(pair: &Pair) -> usize {
    let events = pair.hosts[0].events.iter();
    let connected = events.filter(|event| matches!(event, Event::Connected { .. }));
    connected.count()
}

#[test]
fn who_goes_on_with_another_answer_has_all_that_belongs_to_it() {
    let mut pair = Pair::new(PairConfig::symmetric(clean(), 6));
    let server = |seed| raw::server_of(TransportConfig::default(), |_| true, [seed; 32]);
    pair.hosts[1].endpoint = server(1);
    pair.connect();
    let answers = relay(&mut pair, 70..72);
    hand(&mut pair, &answers);
    assert!(!pair.connection(Side::Client).is_confirmed());
    delivers(&mut pair, "two relayed");
    assert_eq!(connected(&pair), 2);
    // What depends on the keys is known to be final, and who waits for that is told, behind the last change.
    assert!(Side::BOTH.map(|side| pair.connection(side).is_confirmed()) == [true; 2]);
    let mut told = pair.hosts[0]
        .events
        .iter()
        .filter(|event| matches!(event, Event::Connected { .. } | Event::Confirmed));
    assert_eq!(told.next_back(), Some(&Event::Confirmed));
    let [near, far] = Side::BOTH.map(|side| {
        let mut out = [0; 32];
        let exported = pair
            .connection(side)
            .export_keying_material(&mut out, b"test", b"");
        exported.expect("established");
        out
    });
    assert_eq!(near, far, "both ends have the same");
    // The server forgets everything, and says so with a key that it told the client.
    pair.hosts[1].endpoint = server(2);
    pair.hosts[1].connection = None;
    pair.connection(Side::Client).ping();
    pair.flush();
    pair.run_until(20 * SECOND, |pair| {
        pair.hosts[0]
            .events
            .contains(&Event::Closed(ConnectionError::Reset))
    });
    let end = Event::Closed(ConnectionError::Reset);
    assert!(
        pair.hosts[0].events.contains(&end),
        "{:?}",
        pair.hosts[0].events
    );
}

#[test]
fn the_size_that_another_s_path_carries_is_not_taken_for_the_client_s() {
    let mut pair = begin(clean(), 7);
    let answers = relay(&mut pair, 70..71);
    pair.hosts.iter_mut().for_each(|host| host.path_mtu = 1200);
    // What left before the path was known to be so small.
    while pair.links[0].poll(pair.now + SECOND).is_some() {}
    hand(&mut pair, &answers);
    assert_eq!(pair.connection(Side::Client).stats().datagram_size, 1472);
    let gone_on = pair.run_until(20 * SECOND, |pair| connected(pair) == 2);
    assert!(gone_on, "{:?}", pair.hosts[0].events);
    assert_eq!(pair.connection(Side::Client).stats().datagram_size, 1200);
    delivers(&mut pair, "small packets");
}

#[test]
fn an_answer_to_a_syn_of_another_size_than_the_client_s_is_not_taken() {
    let mut pair = begin(clean(), 8);
    let (now, mut short) = (pair.now, first_syn(&pair));
    short.truncate(1200);
    let server = &mut pair.hosts[1].endpoint;
    server.handle_datagram(now, raw::address(70), 0, &mut short);
    let answers = drain(server, now);
    hand(&mut pair, &answers);
    assert!(!pair.connection(Side::Client).is_established());
    delivers(&mut pair, "another size");
    assert_eq!(pair.connection(Side::Client).stats().datagram_size, 1472);
    assert_eq!(connected(&pair), 1);
}

#[test]
fn an_answer_that_is_handed_over_again_costs_nothing() {
    let mut pair = begin(clean(), 9);
    let answers = relay(&mut pair, 70..72);
    for _ in 0..1000 {
        hand(&mut pair, &answers);
    }
    delivers(&mut pair, "a thousand times the same");
}

#[test]
fn what_left_with_a_relayed_answer_leaves_again_as_soon_as_another_is_confirmed() {
    let time = |is_relayed| {
        let mut pair = begin(clean(), 10);
        if is_relayed {
            let answers = relay(&mut pair, 70..71);
            hand(&mut pair, &answers);
        }
        let start = pair.now;
        delivers(&mut pair, "relayed");
        pair.now.saturating_since(start)
    };
    let (plain, relayed) = (time(false), time(true));
    // Two round trips of 20 ms and a bit: one for the flight, and one as the client does not know how far apart the path
    // draws packets.
    assert!(
        relayed <= plain + MS(50),
        "{relayed:?} instead of {plain:?}"
    );
}

/// A client at one address, its server, and somebody at another who carries the client's packets from there.
struct Carried {
    now: Instant,
    client: Endpoint,
    of_client: ConnectionHandle,
    server: Endpoint,
    /// What the carrier has of the client's handshake and what left with it.
    kept: Vec<Vec<u8>>,
    channel: Option<ChannelId>,
}

const CLIENT: u8 = 3;
const CARRIER: u8 = 70;
const SERVER: u8 = 9;

impl Carried {
    /// The client has an answer to a SYN that the carrier sent, and its own SYN on the way.
    fn new() -> Self {
        let now = Instant::from_nanos(SECOND.as_nanos() as u64);
        let mut server = raw::server();
        let mut client = Endpoint::new(raw::key("client"), None, [4; 32]);
        let config = Arc::new(TransportConfig::default());
        let to = raw::address(SERVER);
        let of_client = client.connect(now, to, Some(server.public_key()), config);
        let of_client = of_client.expect("a good key");
        let syn = drain(&mut client, now).remove(0);
        server.handle_datagram(now, raw::address(CARRIER), 0, &mut syn.clone());
        let mut answer = drain(&mut server, now).remove(0);
        client.handle_datagram(now, to, 0, &mut answer);
        server.handle_datagram(now, raw::address(CLIENT), 0, &mut syn.clone());
        Self {
            now,
            client,
            of_client,
            server,
            kept: Vec::new(),
            channel: None,
        }
    }

    fn connection(&mut self) -> &mut Connection {
        let connection = self.client.connection(self.of_client);
        connection.expect("known")
    }

    /// The client says one thing.
    fn say(&mut self) {
        let now = self.now;
        let connection = self.connection();
        let channel = connection.open(ChannelKind::Stream).expect("established");
        let written = connection.write(now, channel, b"pay");
        assert_eq!(written, Ok(3));
        connection.finish_channel(channel).expect("open");
        self.channel = Some(channel);
    }

    /// The carrier keeps what the client has to say, instead of the network.
    fn keep(&mut self) {
        self.kept = drain(&mut self.client, self.now);
    }

    /// It arrives, from where the carrier is.
    fn carry(&mut self) {
        for packet in &self.kept {
            let from = raw::address(CARRIER);
            self.server
                .handle_datagram(self.now, from, 0, &mut packet.clone());
        }
    }

    /// The client's packets and those that are for it arrive, for a second.
    fn run(&mut self) {
        (0..1000).for_each(|_| self.step());
    }

    /// And for a millisecond.
    fn step(&mut self) {
        for mut packet in drain(&mut self.client, self.now) {
            let from = raw::address(CLIENT);
            self.server.handle_datagram(self.now, from, 0, &mut packet);
        }
        for (to, mut packet) in drain_to(&mut self.server, self.now) {
            if to == raw::address(CLIENT) {
                let from = raw::address(SERVER);
                self.client.handle_datagram(self.now, from, 0, &mut packet);
            }
        }
        self.wait(MS(1));
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    /// The client ends its connection, and the server forgets it.
    fn end(&mut self) {
        let now = self.now;
        self.connection().close(now, CloseCode::NO_ERROR, "");
        self.run();
        let own = self.server.accept().expect("the client's");
        self.server.forget(own);
    }

    /// On how many connections the server hears it now.
    fn heard(&mut self) -> usize {
        let (now, channel) = (self.now, self.channel.expect("said"));
        let handles = self.server.handles();
        let heard = handles.into_iter().filter(|&handle| {
            let connection = self.server.connection(handle).expect("known");
            while let Some(mut job) = connection.take_solve_job() {
                job.run();
                connection.finish_solve(now, job);
            }
            connection.read(now, channel, &mut [0; 8]) == Ok(Read::Data(3))
        });
        heard.count()
    }
}

#[test]
fn what_leaves_before_an_answer_is_confirmed_is_heard_twice_at_most() {
    let mut carried = Carried::new();
    carried.say();
    carried.keep();
    carried.carry();
    carried.run();
    assert!(carried.connection().is_confirmed());
    assert_eq!(carried.heard(), 2);
    assert_eq!(carried.server.handles().len(), 2, "one from each address");
    // All of it again.
    carried.carry();
    carried.run();
    assert_eq!(carried.heard(), 0);
    assert_eq!(carried.server.handles().len(), 2);
}

#[test]
fn what_leaves_once_an_answer_is_confirmed_is_heard_once() {
    let mut carried = Carried::new();
    carried.keep();
    carried.carry();
    carried.run();
    assert!(carried.connection().is_confirmed());
    carried.say();
    carried.run();
    assert_eq!(carried.heard(), 1);
}

#[test]
fn a_handshake_that_was_held_back_lets_nobody_in_once_its_cookie_is_too_old() {
    // The slots of two minutes in which the cookie is good, and those after them.
    for (wait, heard) in [(SECOND, 1), (4 * 60 * SECOND, 0)] {
        let mut carried = Carried::new();
        carried.say();
        carried.keep();
        carried.wait(wait);
        carried.carry();
        assert_eq!(carried.heard(), heard, "after {wait:?}");
        assert_eq!(carried.server.handles().len(), heard);
    }
}

#[test]
fn a_handshake_that_was_held_back_lets_nobody_in_once_its_client_has_gone_on() {
    for is_over in [false, true] {
        let mut carried = Carried::new();
        carried.say();
        carried.keep();
        carried.run();
        assert_eq!(carried.heard(), 1);
        if is_over {
            carried.end();
        }
        let connections = usize::from(!is_over);
        let is_ack = |packet: &&Vec<u8>| matches!(Packet::parse(packet), Ok(Packet::Ack(_)));
        let acks = carried.kept.iter().filter(is_ack).count() as u64;
        for wait in [MS(0), SECOND, 100 * SECOND] {
            carried.wait(wait);
            let refused = carried.server.stats().refused;
            carried.carry();
            assert_eq!(carried.server.stats().refused - refused, acks);
            assert_eq!(carried.heard(), 0, "after {wait:?}");
            assert!(carried.server.handles().len() <= connections);
        }
    }
}

#[test]
fn who_closes_before_he_has_acknowledged_anything_is_not_heard_again() {
    let mut carried = Carried::new();
    carried.say();
    carried.keep();
    while !carried.connection().is_confirmed() {
        carried.step();
    }
    carried.end();
    carried.carry();
    assert_eq!(carried.heard(), 0);
}

#[test]
fn a_handshake_that_was_held_back_lets_nobody_in_where_the_server_closed_first() {
    let mut carried = Carried::new();
    carried.say();
    carried.keep();
    let own = loop {
        carried.step();
        if let Some(own) = carried.server.accept() {
            break own;
        }
    };
    // The client has acknowledged nothing yet: it answers the CLOSE.
    let now = carried.now;
    let connection = carried.server.connection(own).expect("known");
    connection.close(now, CloseCode::NO_ERROR, "");
    carried.run();
    carried.server.forget(own);
    carried.carry();
    assert_eq!(carried.heard(), 0);
    assert!(carried.server.handles().is_empty());
}

#[test]
fn a_handshake_of_another_attempt_lets_the_same_client_in() {
    let mut carried = Carried::new();
    carried.run();
    carried.end();
    let (now, to) = (carried.now, raw::address(SERVER));
    let (key, config) = (carried.server.public_key(), TransportConfig::default());
    let again = carried.client.connect(now, to, Some(key), Arc::new(config));
    carried.of_client = again.expect("a good key");
    carried.run();
    assert!(carried.connection().is_confirmed());
}

#[test]
fn what_is_carried_bit_by_bit_keeps_no_place_for_longer_than_silence_would() {
    let mut carried = Carried::new();
    carried.say();
    // What the client says while nobody answers.
    for _ in 0..800 {
        let said = drain(&mut carried.client, carried.now);
        carried.kept.extend(said);
        carried.wait(MS(10));
    }
    let sealed = |packet: &Vec<u8>| matches!(Packet::parse(packet), Ok(Packet::Sealed(_)));
    let (sealed, mut kept): (Vec<_>, Vec<_>) = carried.kept.drain(..).partition(sealed);
    kept.retain(|packet| matches!(Packet::parse(packet), Ok(Packet::Ack(_))));
    carried.kept = kept;
    carried.carry();
    let began = carried.now;
    let accepted = carried.server.accept().expect("carried");
    let mut lived = None;
    for packet in sealed {
        carried.kept = vec![packet];
        carried.carry();
        let connection = carried.server.connection(accepted).expect("known");
        if !connection.is_closed() {
            lived = Some(carried.now.saturating_since(began));
        }
        carried.wait(20 * SECOND);
    }
    let lived = lived.expect("packets were taken");
    // A minute of silence is allowed.
    assert!((30 * SECOND..=60 * SECOND).contains(&lived), "{lived:?}");
}
