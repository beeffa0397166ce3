//! Connections without bytes behave as those with bytes, datagram by datagram.

use crate::common::{MS, SECOND, established, lossy, raw, scheme};
use dfcp_proto::wire::{BlockLen, Frame, SymbolHeader, TransportParams, VIRTUAL_PAYLOAD};
use dfcp_proto::{
    ChannelError, ChannelId, ChannelKind, Connection, ConnectionError, Event, Instant, Payload,
    Profile, Read, Role, SchemeId, TransportConfig,
};
use dfcp_sim::{LinkConfig, Pair, PairConfig, Side};

/// What a transfer looked like from outside.
#[derive(Debug, PartialEq)]
struct Trace {
    /// When each host sent datagrams, and how large.
    sent: [Vec<(Instant, usize)>; 2],
    /// UDP payload bytes sent and received, by the connections' own account.
    counted: [(u64, u64); 2],
    end: Instant,
}

fn config(link: LinkConfig, seed: u64, profile: &Profile, payload: Payload) -> PairConfig {
    let transport = TransportConfig::default()
        .profile(profile.clone())
        .payload(payload);
    PairConfig {
        client: transport.clone(),
        server: transport,
        ..PairConfig::symmetric(link, seed)
    }
}

/// Several channels of `size` bytes at once, from the client to the server.
struct Transfer {
    payload: Payload,
    size: u64,
    /// Channel, bytes written, bytes read.
    channels: Vec<(ChannelId, u64, u64)>,
}

impl Transfer {
    fn write(&mut self, pair: &mut Pair) {
        let (now, bytes) = (pair.now, vec![9; 50_000]);
        let connection = pair.connection(Side::Client);
        for (id, written, _) in &mut self.channels {
            while *written < self.size {
                let part = (self.size - *written).min(bytes.len() as u64);
                let taken = match self.payload {
                    Payload::Real => {
                        connection.write(now, *id, &bytes[..part as usize]).unwrap() as u64
                    }
                    Payload::Virtual => connection.write_virtual(now, *id, part).unwrap(),
                };
                if taken == 0 {
                    break;
                }
                *written += taken;
                if *written == self.size {
                    connection.finish_channel(*id).unwrap();
                }
            }
        }
        pair.flush();
    }

    fn read(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let connection = pair.connection(Side::Server);
        for (id, _, read) in &mut self.channels {
            while let Some(n) = read_some(connection, now, *id, self.payload) {
                *read += n;
            }
        }
        pair.flush();
    }

    fn is_done(&self, pair: &Pair) -> bool {
        let acknowledged = |id: ChannelId| pair.hosts[0].events.contains(&Event::Acknowledged(id));
        self.channels
            .iter()
            .all(|&(id, _, read)| read == self.size && acknowledged(id))
    }
}

/// Bytes of the next block or piece of stream.
fn read_some(
    connection: &mut Connection,
    now: Instant,
    id: ChannelId,
    payload: Payload,
) -> Option<u64> {
    let mut buffer = [0; 30_000];
    let read = match (id.kind(), payload) {
        (ChannelKind::Object, Payload::Real) => {
            let (_, bytes) = connection.take_block(now, id).ok()??;
            let len = bytes.len() as u64;
            connection.recycle(now, bytes);
            return Some(len);
        }
        (ChannelKind::Object, Payload::Virtual) => {
            let (_, len) = connection.take_virtual_block(now, id).ok()??;
            return Some(len);
        }
        (ChannelKind::Stream | ChannelKind::Uni, Payload::Real) => {
            connection.read(now, id, &mut buffer)
        }
        (ChannelKind::Stream | ChannelKind::Uni, Payload::Virtual) => {
            connection.read_virtual(now, id, buffer.len())
        }
    };
    match read {
        Ok(Read::Data(n)) => Some(n as u64),
        _ => None,
    }
}

fn trace(payload: Payload, config: PairConfig, kinds: &[ChannelKind], size: u64) -> Trace {
    let seed = config.seed;
    let mut pair = Pair::new(config);
    pair.hosts
        .iter_mut()
        .for_each(|h| h.sent = Some(Vec::new()));
    assert!(pair.establish(8 * SECOND), "seed {seed}");
    let channels = kinds.iter().map(|&kind| {
        let id = pair.connection(Side::Client).open(kind).unwrap();
        (id, 0, 0)
    });
    let mut transfer = Transfer {
        payload,
        size,
        channels: channels.collect(),
    };
    let done = pair.run_until(300 * SECOND, |pair| {
        transfer.write(pair);
        transfer.read(pair);
        transfer.is_done(pair)
    });
    assert!(done, "seed {seed}, {payload:?}");
    Trace {
        counted: Side::BOTH.map(|side| {
            let stats = pair.connection(side).stats();
            (stats.bytes_sent, stats.bytes_received)
        }),
        sent: pair.hosts.map(|h| h.sent.unwrap_or_default()),
        end: pair.now,
    }
}

/// Both kinds of payload over the same path: the two traces.
fn both(link: &LinkConfig, seed: u64, profile: &Profile, kinds: &[ChannelKind]) -> [Trace; 2] {
    [Payload::Real, Payload::Virtual].map(|payload| {
        let config = config(link.clone(), seed, profile, payload);
        trace(payload, config, kinds, 1_500_000)
    })
}

#[test]
fn every_datagram_leaves_at_the_same_time_with_the_same_size() {
    use ChannelKind::{Object, Stream};
    let jitter = LinkConfig {
        jitter: MS(4).into(),
        reorder: 0.05,
        reorder_delay: MS(8),
        duplicate: 0.1,
        ..lossy(0.05)
    };
    let links = [lossy(0.0), lossy(0.05), lossy(0.3), jitter];
    let profiles = [
        Profile::auto(),
        scheme(SchemeId::Dense, 7),
        scheme(SchemeId::Arq, 1),
        scheme(SchemeId::Rlnc, 9),
        scheme(SchemeId::Raptor, 50),
    ];
    for (seed, link) in (900..).zip(&links) {
        for profile in &profiles {
            for kinds in [&[Object][..], &[Stream], &[Object, Stream, Object]] {
                println!("seed {seed}, {profile:?}, {kinds:?}");
                let [real, bare] = both(link, seed, profile, kinds);
                for (side, (real, bare)) in Side::BOTH.iter().zip(real.sent.iter().zip(&bare.sent))
                {
                    let differ = real.iter().zip(bare).position(|(a, b)| a != b);
                    assert_eq!(differ, None, "{side:?}, {} datagrams", real.len());
                }
                assert_eq!(real, bare);
                assert!(real.sent[0].len() > 1000);
            }
        }
    }
}

/// RaptorQ's rare failures are drawn, not computed: the few blocks that need a symbol more are not
/// the same ones.
#[test]
fn raptorq_takes_nearly_the_same_time() {
    let profile = scheme(SchemeId::RaptorQ, 100);
    let start = Instant::from_nanos(1_000_000_000);
    for seed in 950..954 {
        let [real, bare] = both(&lossy(0.1), seed, &profile, &[ChannelKind::Object]);
        let [real, bare] = [real, bare].map(|t| t.end.saturating_since(start).as_secs_f64());
        assert!(
            (real / bare - 1.0).abs() < 0.1,
            "{real} {bare}, seed {seed}"
        );
    }
}

#[test]
fn real_and_virtual_refuse_each_other() {
    for (client, server) in [
        (Payload::Real, Payload::Virtual),
        (Payload::Virtual, Payload::Real),
    ] {
        let mut config = config(lossy(0.0), 970, &Profile::auto(), client);
        config.server = config.server.payload(server);
        let mut pair = Pair::new(config);
        assert!(!pair.establish(3 * SECOND));
        let closed = Event::Closed(ConnectionError::PayloadMismatch);
        assert!(pair.hosts[0].events.contains(&closed));
        assert_eq!(pair.hosts[1].connection, None, "no state at the server");
    }
}

#[test]
fn calls_for_the_other_payload_are_refused() {
    for payload in [Payload::Real, Payload::Virtual] {
        let mut pair = established(config(lossy(0.0), 980, &Profile::auto(), payload));
        let now = pair.now;
        let connection = pair.connection(Side::Client);
        let id = connection.open(ChannelKind::Stream).unwrap();
        let wrong = Some(ChannelError::Payload);
        if payload == Payload::Virtual {
            assert_eq!(connection.write(now, id, b"bytes").err(), wrong);
            assert_eq!(connection.read(now, id, &mut [0; 9]).err(), wrong);
            assert_eq!(connection.take_block(now, id).err(), wrong);
        } else {
            assert_eq!(connection.write_virtual(now, id, 5).err(), wrong);
            assert_eq!(connection.read_virtual(now, id, 9).err(), wrong);
            assert_eq!(connection.take_virtual_block(now, id).err(), wrong);
        }
    }
}

/// A server of virtual payload and a client that is free to lie.
fn bare_server() -> dfcp_proto::Endpoint {
    let transport = TransportConfig::default().payload(Payload::Virtual);
    raw::server_with(transport, |_| true)
}

#[test]
fn a_server_refuses_a_client_that_does_not_look() {
    let (now, from) = (Instant::from_nanos(1_000_000_000), raw::address(1));
    for (mut server, schemes) in [(bare_server(), 7), (raw::server(), 7 | VIRTUAL_PAYLOAD)] {
        let params = TransportParams {
            schemes,
            ..raw::params()
        };
        let synack = raw::ask(&mut server, now, from);
        let (mut ack, _) = raw::answer(&synack, &params);
        server.handle_datagram(now, from, 0, &mut ack);
        assert_eq!(server.accept(), None);
        assert_eq!(server.stats().refused, 1);
    }
}

#[test]
fn what_is_no_length_closes_the_connection() {
    // One byte for one, two for the rest, as long as the block's other symbols.
    for (data, fine) in [
        (&[4, 0][..], true),
        (&[3, 0], false),
        (&[0, 1], false),
        (&[1], false),
        (&[], false),
        (&[4, 0, 0], false),
    ] {
        let params = TransportParams {
            schemes: 7 | VIRTUAL_PAYLOAD,
            ..raw::params()
        };
        let mut client = raw::RawClient::connect_with(bare_server(), &params);
        for (esi, data) in [(0, &[4, 0][..]), (1, data)] {
            let header = SymbolHeader {
                scheme: SchemeId::Dense,
                channel: ChannelId::new(Role::Client, ChannelKind::Object, 0).0,
                offset: 0,
                block: BlockLen::Symbols { k: 20, padding: 0 },
                esi,
            };
            client.send_frames(&[Frame::Symbol { header, data }]);
        }
        let handle = client.handle;
        let connection = client.server.connection(handle).unwrap();
        assert_eq!(connection.is_established(), fine, "{data:?}");
    }
}
