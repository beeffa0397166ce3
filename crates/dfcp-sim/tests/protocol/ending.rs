//! The end of a session as `dfcp send` and `dfcp recv` have it: an object, the receiver's last word,
//! the sender's CLOSE. Every loss of the last packets is tried.

use crate::common::raw::{RawClient, drain};
use crate::common::*;
use dfcp_proto::wire::{AckHead, BlockLen, Frame, SymbolHeader};
use dfcp_proto::{
    ChannelId, ChannelKind, CloseCode, ConnectionError, Duration, Event, Instant, Read, Role,
    SchemeId, TransportConfig, VarInt,
};
use dfcp_sim::{LossModel, Pair, PairConfig, Side};

const OBJECT: u64 = 20_000;
const LAST_WORD: u64 = 60;
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Packets before the end, in each direction, whose loss is tried.
const LAST: usize = 8;

/// How a session went.
struct Ended {
    /// The receiver had everything.
    verified: Instant,
    /// The sender had nothing more to do and could leave.
    sender_left: Option<Instant>,
    /// How the receiver saw the end.
    receiver: Option<ConnectionError>,
    /// Packets sent by client and server.
    packets: [usize; 2],
    /// Those sent before the sender closed.
    before_close: [usize; 2],
}

/// Loses the packets with these numbers.
fn mask(lost: &[usize]) -> LossModel {
    let len = lost.iter().max().map_or(0, |last| last + 1);
    LossModel::Mask((0..len).map(|n| lost.contains(&n)).collect())
}

fn session(lost: [&[usize]; 2]) -> Ended {
    let mut config = PairConfig::symmetric(link(100, 50), 7);
    config.forward.loss = mask(lost[0]);
    config.backward.loss = mask(lost[1]);
    let mut pair = Pair::new(config);
    for host in &mut pair.hosts {
        host.sent = Some(Vec::new());
    }
    assert!(pair.establish(8 * SECOND), "{lost:?}");
    let mut object = Flow::open(&mut pair, Side::Client, ChannelKind::Object, OBJECT);
    let mut last_word: Option<Flow> = None;
    let (mut verified, mut said, mut left) = (None, false, None);
    let count = |pair: &Pair| [0, 1].map(|side| pair.hosts[side].sent.as_ref().map_or(0, Vec::len));
    let mut before_close = [0; 2];
    pair.run_until(20 * SECOND, |pair| {
        let now = pair.now;
        if !said {
            object.poll(pair);
        }
        if object.received == OBJECT && verified.is_none() {
            verified = Some(now);
            let flow = Flow::open(pair, Side::Server, ChannelKind::Stream, LAST_WORD);
            last_word = Some(flow);
        }
        if let Some(flow) = last_word.as_mut().filter(|_| !said) {
            flow.poll(pair);
            if flow.received == LAST_WORD {
                said = true;
                before_close = count(pair);
                let client = pair.connection(Side::Client);
                client.close(now, CloseCode::NO_ERROR, "");
                pair.flush();
            }
        }
        let client_is_over = pair
            .try_connection(Side::Client)
            .is_none_or(|c| c.is_closed());
        if said && client_is_over {
            left.get_or_insert(now);
        }
        left.is_some() && pair.connection(Side::Server).is_closed()
    });
    let events = &pair.hosts[1].events;
    let end = events.iter().find_map(|event| match event {
        Event::Closed(error) => Some(error.clone()),
        _ => None,
    });
    Ended {
        verified: verified.unwrap_or_else(|| panic!("{lost:?}: the object did not arrive")),
        sender_left: left,
        receiver: end,
        packets: count(&pair),
        before_close,
    }
}

/// Asserts that both sides ended in order, and gives the time from verification to the sender's end.
fn check(lost: [&[usize]; 2]) -> Duration {
    let ended = session(lost);
    assert!(
        matches!(ended.receiver, Some(ConnectionError::PeerClosed { .. })),
        "{lost:?}: the receiver saw {:?}",
        ended.receiver
    );
    let left = ended.sender_left;
    let left = left.unwrap_or_else(|| panic!("{lost:?}: the sender hangs"));
    left.saturating_since(ended.verified)
}

#[test]
fn the_sender_leaves_one_and_a_half_round_trips_after_the_verification() {
    let took = check([&[], &[]]);
    assert!(took <= ROUND_TRIP * 3 / 2 + MS(2), "{took:?}");
}

#[test]
fn any_two_of_the_last_packets_may_be_lost() {
    let clean = session([&[], &[]]).packets;
    let last = |side: usize| clean[side].saturating_sub(LAST)..clean[side] + 2;
    for first in last(0) {
        for second in last(0) {
            check([&[first, second], &[]]);
        }
        for back in last(1) {
            check([&[first], &[back]]);
        }
    }
    for first in last(1) {
        for second in last(1) {
            check([&[], &[first, second]]);
        }
    }
}

#[test]
fn runs_of_the_last_packets_may_be_lost() {
    let clean = session([&[], &[]]).packets;
    for (side, clean) in clean.into_iter().enumerate() {
        for first in clean.saturating_sub(LAST)..clean + 2 {
            for length in 3..=6 {
                let run: Vec<usize> = (first..first + length).collect();
                let lost: [&[usize]; 2] = if side == 0 { [&run, &[]] } else { [&[], &run] };
                let took = check(lost);
                assert!(took <= 12 * ROUND_TRIP, "{lost:?}: {took:?}");
            }
        }
    }
}

#[test]
fn a_sender_that_nobody_answers_leaves_all_the_same() {
    let clean = session([&[], &[]]).before_close;
    // The last word has arrived; nothing arrives after it, in one direction or the other.
    for (from, hears) in [(0, false), (1, true)] {
        let dark: Vec<usize> = (clean[from]..clean[from] + 1000).collect();
        let lost: [&[usize]; 2] = if from == 0 {
            [&dark, &[]]
        } else {
            [&[], &dark]
        };
        let ended = session(lost);
        let left = ended.sender_left.expect("the sender leaves");
        let took = left.saturating_since(ended.verified);
        assert!(took <= 8 * ROUND_TRIP, "{took:?}");
        assert_eq!(ended.receiver.is_some(), hears, "{:?}", ended.receiver);
    }
}

/// `dfcp send` ends its process as soon as what may leave has left, and repeats nothing after that.
#[test]
fn who_ends_its_process_after_closing_is_heard_where_much_is_lost() {
    const RUNS: u64 = 400;
    for (loss, spare) in [(0.0, 2), (0.2, 10), (0.4, 10)] {
        let mut unheard = 0;
        for seed in 0..RUNS {
            let mut config = PairConfig::symmetric(link(100, 50), seed);
            config.forward.loss = LossModel::Bernoulli(loss);
            let mut pair = Pair::new(config);
            assert!(pair.establish(20 * SECOND), "{loss}, seed {seed}");
            let mut object = Flow::open(&mut pair, Side::Client, ChannelKind::Object, 150_000);
            pair.run_until(60 * SECOND, |pair| {
                object.poll(pair);
                object.received == 150_000
            });
            let (now, sent) = (pair.now, pair.connection(Side::Client).stats().packets_sent);
            let client = pair.connection(Side::Client);
            client.close(now, CloseCode::NO_ERROR, "");
            pair.flush();
            let copies = pair.connection(Side::Client).stats().packets_sent - sent;
            assert!(
                (2..=spare).contains(&copies),
                "{loss}, seed {seed}: {copies}"
            );
            // The process has ended: what is said later does not count.
            pair.run_until(ROUND_TRIP / 2 + MS(1), |_| false);
            let heard = pair.hosts[1]
                .events
                .iter()
                .any(|event| matches!(event, Event::Closed(ConnectionError::PeerClosed { .. })));
            unheard += u64::from(!heard);
        }
        assert!(
            unheard <= RUNS / 100,
            "{loss}: {unheard} of {RUNS} are not heard"
        );
    }
}

/// A peer that has read the last byte may leave before its report of it was due to leave.
#[test]
fn who_reads_the_end_and_closes_says_that_all_came() {
    let mut raw = RawClient::connect();
    let channel = ChannelId::new(Role::Client, ChannelKind::Uni, 0);
    let data = [7; 100];
    let header = SymbolHeader {
        scheme: SchemeId::Arq,
        channel: channel.0,
        offset: 0,
        block: BlockLen::Bytes(100),
        esi: 0,
    };
    raw.receive(|_, _| {});
    raw.send_frames(&[
        Frame::Symbol {
            header,
            data: &data,
        },
        Frame::Fin {
            channel: channel.0,
            size: 100,
        },
    ]);
    let now = raw.now;
    let mut buffer = [0; 200];
    let connection = raw.connection();
    assert_eq!(
        connection.read(now, channel, &mut buffer),
        Ok(Read::Data(100))
    );
    connection.close(now, CloseCode::NO_ERROR, "");
    let (mut reported, mut closed) = (false, false);
    raw.receive(|_, frame| match frame {
        Frame::Blocks(report) => reported |= !closed && report.done_below >= 100,
        Frame::Close { .. } => closed = true,
        _ => {}
    });
    assert!(reported && closed, "{reported} {closed}");
}

/// It is known to have come before it is rebuilt, so the peer may close meanwhile.
#[test]
fn the_end_is_told_after_what_is_being_rebuilt() {
    let mut raw = RawClient::connect();
    let channel = ChannelId::new(Role::Client, ChannelKind::Uni, 0);
    let tell = |raw: &mut RawClient, frame: Frame<'_>| {
        let mut plain = Vec::new();
        frame.emit(&mut plain);
        let mut packet = raw.seal(&plain);
        let (now, from) = (raw.now, raw.address);
        raw.server.handle_datagram(now, from, 0, &mut packet);
    };
    for esi in 4..8 {
        let header = SymbolHeader {
            scheme: SchemeId::Dense,
            channel: channel.0,
            offset: 0,
            block: BlockLen::Bytes(1200),
            esi,
        };
        let data = &[esi as u8; 300];
        tell(&mut raw, Frame::Symbol { header, data });
    }
    let mut job = raw.connection().take_solve_job().expect("there is enough");
    let code = VarInt::from_u32(0);
    tell(&mut raw, Frame::Close { code, reason: &[] });
    assert_eq!(raw.closed(), None, "it is still being rebuilt");
    job.run();
    let now = raw.now;
    raw.connection().finish_solve(now, job);
    let read = raw.connection().read(now, channel, &mut [0; 2000]);
    assert_eq!(read, Ok(Read::Data(1200)));
    let closed = raw.closed();
    let in_order = matches!(closed, Some(ConnectionError::PeerClosed { .. }));
    assert!(in_order, "{closed:?}");
}

/// A stream of each side, `size` bytes of the client's; the client writes all of its own, reads nothing and leaves.
fn left_after_finishing(config: PairConfig, size: u64) -> (Pair, Flow, Flow) {
    let mut pair = established(config);
    let mut ours = Flow::open(&mut pair, Side::Client, ChannelKind::Stream, size);
    let mut theirs = Flow::open(&mut pair, Side::Server, ChannelKind::Stream, 100_000);
    theirs.write(&mut pair);
    let opened = Event::Opened(theirs.channel);
    assert!(pair.run_until(SECOND, |pair| has_event(pair, Side::Client, &opened)));
    ours.write(&mut pair);
    assert_eq!(ours.written, size);
    let now = pair.now;
    pair.connection(Side::Client).close_when_delivered(now);
    pair.flush();
    (pair, ours, theirs)
}

#[test]
fn who_leaves_after_finishing_is_heard_to_the_end() {
    for loss in [0.0, 0.2] {
        let config = PairConfig::symmetric(lossy(loss), 3);
        let (mut pair, mut ours, theirs) = left_after_finishing(config, 500_000);
        let delivered = pair.run_until(20 * SECOND, |pair| {
            ours.read_some(pair, usize::MAX);
            ours.ended
        });
        assert!(delivered && ours.received == 500_000, "{loss}: {ours:?}");
        let code = VarInt::from_u32(0);
        let stopped = Event::Stopped {
            channel: theirs.channel,
            code,
        };
        assert!(has_event(&pair, Side::Server, &stopped), "{loss}");
        let over = pair.run_until(20 * SECOND, |pair| {
            pair.connection(Side::Client).is_closed()
        });
        let closed = Event::Closed(ConnectionError::PeerClosed {
            code: CloseCode::NO_ERROR,
            reason: String::new(),
        });
        assert!(over && has_event(&pair, Side::Server, &closed), "{loss}");
    }
}

/// They leave one after the other on a slow path, all of them within its queue.
#[test]
fn who_leaves_after_datagrams_is_heard_to_the_last_of_them() {
    const DATAGRAMS: u64 = 40;
    let mut pair = established(PairConfig::symmetric(link(2, 20), 3));
    let now = pair.now;
    let client = pair.connection(Side::Client);
    for _ in 0..DATAGRAMS {
        assert_eq!(client.send_datagram(vec![7; 1000]), Ok(()));
    }
    client.close_when_delivered(now);
    pair.flush();
    let over = pair.run_until(20 * SECOND, |pair| closed(pair, Side::Server).is_some());
    assert!(over);
    let came = pair.connection(Side::Server).stats().datagrams_received;
    assert_eq!(came, DATAGRAMS);
}

/// What may be missing of it has no worth, and a peer that takes nothing of it keeps nobody.
#[test]
fn who_leaves_a_stream_unfinished_waits_for_nothing_of_it() {
    let mut config = PairConfig::symmetric(lossy(0.0), 3);
    config.server = TransportConfig::default().receive_budget(1 << 18);
    let mut pair = established(config);
    let mut ours = Flow::open(&mut pair, Side::Client, ChannelKind::Stream, 2_000_000);
    ours.write_to(&mut pair, 1_000_000);
    assert_eq!(ours.written, 1_000_000);
    let now = pair.now;
    pair.connection(Side::Client).close_when_delivered(now);
    pair.flush();
    let heard = pair.run_until(SECOND, |pair| closed(pair, Side::Server).is_some());
    assert!(heard, "it waits for who reads nothing");
}

#[test]
fn a_peer_that_takes_nothing_does_not_keep_who_left() {
    let idle = 10 * SECOND;
    let transport = TransportConfig::default().idle_timeout(idle);
    let mut config = PairConfig::symmetric(lossy(0.0), 3);
    config.client = transport.clone().keep_alive(Some(SECOND));
    config.server = transport.receive_budget(1 << 20);
    let (mut pair, _ours, _theirs) = left_after_finishing(config, 1_500_000);
    let left = pair.now;
    let over = pair.run_until(10 * idle, |pair| pair.connection(Side::Client).is_closed());
    let took = pair.now.saturating_since(left);
    assert!(over && took >= idle && took < idle + 2 * SECOND, "{took:?}");
}

/// A slow reader has as long as it needs: more than an idle timeout in all, and never as long without taking anything.
#[test]
fn who_left_waits_while_its_peer_takes_something() {
    const ALL: u64 = 1_500_000;
    let idle = 4 * SECOND;
    let mut config = PairConfig::symmetric(lossy(0.0), 3);
    config.client = TransportConfig::default().idle_timeout(idle);
    config.server = config.client.clone().receive_budget(1 << 18);
    let (mut pair, mut ours, _theirs) = left_after_finishing(config, ALL);
    let left = pair.now;
    while !ours.ended && pair.now.saturating_since(left) < 10 * idle {
        let later = pair.now + SECOND;
        pair.run_until(SECOND, |pair| pair.now >= later);
        ours.read_some(&mut pair, 100_000);
        pair.flush();
    }
    assert!(ours.ended && ours.received == ALL, "{ours:?}");
    assert!(pair.now.saturating_since(left) > 2 * idle);
}

/// Its acknowledgements say that a round trip takes most of a minute.
#[test]
fn a_peer_that_answers_late_is_forgotten_soon_once_it_is_closed() {
    let mut raw = RawClient::connect();
    for _ in 0..4 {
        raw.connection().ping();
        let mut newest = 0;
        raw.receive(|pn, _| newest = pn);
        for _ in 0..10 {
            raw.now += 5 * SECOND;
            raw.send_frames(&[Frame::Ping]);
            let now = raw.now;
            drain(&mut raw.server, now);
        }
        let (mut ack, head) = (
            Vec::new(),
            AckHead {
                largest: newest,
                ..AckHead::default()
            },
        );
        Frame::emit_ack(&mut ack, head, [(newest, newest)].into_iter(), 1000);
        raw.send(&ack);
    }
    let slow = raw.connection().stats().rtt;
    assert!(slow > 10 * SECOND, "{slow:?}");
    let start = raw.now;
    raw.connection().close(start, CloseCode::NO_ERROR, "");
    while !raw.connection().is_closed() {
        let now = raw.now;
        raw.server.handle_timeout(now);
        drain(&mut raw.server, now);
        raw.now += SECOND;
    }
    let took = raw.now.saturating_since(start);
    assert!(took <= 32 * SECOND, "{took:?}");
}
