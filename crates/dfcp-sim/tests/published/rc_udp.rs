//! RC-UDP: the same wire with other numbers, both ends and both directions.

use crate::common::{MS, SECOND, link, lossy, pair};
use dfcp_proto::published::header::{Header, Kind, PseudoHeader, seal};
use dfcp_proto::published::{
    Code, Config, Endpoint, Error, Event, GeneratorState, Listen, RcUdpCode,
};
use dfcp_proto::rate::{BlockWait, FixedRate};
use dfcp_proto::{Instant, Rate};
use dfcp_sim::published_pair::PORT;
use dfcp_sim::{PublishedTransfer, Side};
use std::net::SocketAddr;
use std::sync::Arc;

/// Blocks of 20 kB; a debug build decodes those of the paper slowly.
fn small(code: RcUdpCode, message: Option<u64>) -> Config {
    let mut config = Config::rc_udp(message).with_rate(|| {
        let rate = FixedRate::new(Rate::from_bps(50_000_000));
        Box::new(BlockWait::new(Box::new(rate), MS(3) / 10))
    });
    config.code = code.code(80, 250);
    config
}

#[test]
fn both_codes_carry_data_both_ways_over_lossy_paths() {
    for code in [RcUdpCode::RaptorQ, RcUdpCode::Raptor] {
        for loss in [0.0, 0.1] {
            for message in [None, Some(90_001)] {
                let mut pair = pair(lossy(20, loss), small(code, message), 5);
                assert!(pair.establish(70 * SECOND));
                let mut up = PublishedTransfer::new(Side::Client, 90_001);
                let mut down = PublishedTransfer::new(Side::Server, 70_000);
                let done = pair.run_until(60 * SECOND, |pair| {
                    let (up, down) = (up.poll(pair), down.poll(pair));
                    up && down
                });
                assert!(done, "{code:?}, loss {loss}, message {message:?}");
                let server = pair.try_connection(Side::Server).expect("connected");
                assert_eq!(server.message(), message);
            }
        }
    }
}

#[test]
fn more_or_less_than_the_message_is_refused() {
    let mut pair = pair(link(20), small(RcUdpCode::RaptorQ, Some(10)), 1);
    assert!(pair.establish(SECOND));
    let now = pair.now;
    let client = pair.try_connection(Side::Client).expect("connected");
    assert_eq!(client.write(now, &[1; 20]), Ok(10));
    assert_eq!(client.write(now, &[1; 20]), Err(Error::Message));
    let mut pair = crate::common::pair(link(20), small(RcUdpCode::RaptorQ, Some(10)), 1);
    assert!(pair.establish(SECOND));
    let now = pair.now;
    let client = pair.try_connection(Side::Client).expect("connected");
    assert_eq!(client.write(now, &[1; 9]), Ok(9));
    client.finish(now);
    pair.flush();
    let told = |pair: &mut dfcp_sim::PublishedPair| {
        pair.saw(Side::Client, &Event::Closed(Some(Error::Message)))
            && pair.saw(Side::Server, &Event::Closed(Some(Error::Reset)))
    };
    assert!(pair.run_until(SECOND, told));
}

/// What a server answers to a SYN whose payload was changed.
fn answer(config: &Config, change: impl FnOnce(&mut Vec<u8>)) -> (Header, Vec<u8>) {
    let remote = SocketAddr::from(([10, 0, 0, 2], 1));
    let mut client = Endpoint::new(None, 2);
    let connecting = client.connect(Instant::ZERO, remote, PORT, Arc::new(config.clone()));
    connecting.expect("within limits");
    let mut syn = Vec::new();
    client
        .poll_transmit(Instant::ZERO, 1, &mut syn)
        .expect("a SYN");
    change(&mut syn);
    seal(&mut syn, &PseudoHeader::Udp);
    let listen = Listen {
        port: PORT,
        config: Arc::new(Config::default()),
        max_connections: 8,
        memory: u64::MAX,
    };
    let mut server = Endpoint::new(Some(listen), 1);
    server.handle_packet(Instant::ZERO, remote, 0, &syn);
    let mut out = Vec::new();
    server
        .poll_transmit(Instant::ZERO, 1, &mut out)
        .expect("an answer");
    let (header, payload) = Header::parse(&out, &PseudoHeader::Udp).expect("well-formed");
    (header, payload.to_vec())
}

#[test]
fn a_server_takes_the_clients_code_and_refuses_numbers_that_do_not_fit_together() {
    let config = Config::rc_udp(Some(10_000_000));
    let (header, settled) = answer(&config, |_| {});
    assert_eq!(header.kind, Kind::SynAck);
    assert_eq!(settled.len(), 60);
    const PAYLOAD: usize = 24;
    let changes: [(&str, usize, u8); 7] = [
        ("S_m", 44 + 5, 0x40),
        ("N", 52 + 3, 0x01),
        ("B", 56 + 3, 0x01),
        ("K", 4 + 3, 0x01),
        ("K, huge", 4, 0xff),
        ("L", 12 + 1, 0x01),
        ("the code", 1, 0x01),
    ];
    for (what, at, flip) in changes {
        let (header, reason) = answer(&config, |syn| syn[PAYLOAD + at] ^= flip);
        assert_eq!(header.kind, Kind::Rst, "{what}");
        assert!(matches!(reason[..], [1 | 2 | 6]), "{what}: {reason:?}");
    }
    let (header, _) = answer(&config, |syn| syn.truncate(PAYLOAD + 44));
    assert_eq!(header.kind, Kind::Rst, "without the message's fields");
    let (header, reason) = answer(&config, |syn| syn[PAYLOAD + 44] = 0xff);
    assert_eq!((header.kind, &reason[..]), (Kind::Rst, &[6][..]));
}

#[test]
fn settings_beyond_limits_are_an_error_before_anything_is_sent() {
    let mut endpoint = Endpoint::new(None, 1);
    let remote = SocketAddr::from(([10, 0, 0, 2], 1));
    let code = |k, symbol_size| Config {
        code: Code::RaptorQ { k, symbol_size },
        ..Config::rc_udp(None)
    };
    for config in [
        code(0, 1024),
        code(8193, 100),
        code(977, 0),
        code(8192, 65_000),
        Config::rc_udp(Some(u64::MAX)),
    ] {
        let refused = endpoint.connect(Instant::ZERO, remote, PORT, Arc::new(config));
        assert!(matches!(refused, Err(Error::Parameters(_))));
    }
}

#[test]
fn forged_symbols_of_a_message_neither_crash_nor_fill_a_receiver() {
    let mut pair = pair(link(20), small(RcUdpCode::RaptorQ, Some(50_000)), 3);
    assert!(pair.establish(SECOND));
    let ports = pair
        .try_connection(Side::Server)
        .expect("connected")
        .ports();
    let from = pair.hosts[0].address;
    let mut random = dfcp_sim::Seed(3).stream("forger");
    for _ in 0..20_000 {
        let pick = |random: &mut dfcp_sim::Random, near: u32| match random.below(3) {
            0 => near,
            1 => near + random.below(300) as u32,
            _ => random.next_u64() as u32 | 16,
        };
        let state = GeneratorState::new(
            pick(&mut random, 2),
            pick(&mut random, 8),
            pick(&mut random, 16 + 20_000),
        );
        let header = Header {
            source: ports.1,
            destination: ports.0,
            block: pick(&mut random, 0),
            state: state.expect("a state"),
            kind: Kind::Data {
                echo: random.chance(0.5),
                short: random.chance(0.1),
            },
            report: None,
        };
        let mut packet = Vec::new();
        header.emit(&mut packet);
        packet.resize(24 + 250 * (1 + random.below(4) as usize), 7);
        seal(&mut packet, &PseudoHeader::Udp);
        let now = pair.now;
        pair.hosts[1].endpoint.handle_packet(now, from, 0, &packet);
    }
    pair.run_until(SECOND, |_| false);
}
