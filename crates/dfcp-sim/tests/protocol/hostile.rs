//! An authenticated peer that breaks the rules: the connection closes, nothing panics.

use crate::common::raw::{RawClient, params, server_with};
use crate::common::{MS, SECOND};
use dfcp_proto::wire::{BlockLen, Frame, SymbolHeader, TransportParams, write_varint};
use dfcp_proto::{
    ChannelId, ChannelKind, CloseCode, ConnectionError, Duration, Event, Read, Role, SchemeId,
    TransportConfig,
};

const OBJECT: u64 = 2;
const STREAM: u64 = 0;

fn symbol(channel: u64, offset: u64, block_len: u64, esi: u32, data: &[u8]) -> Frame<'_> {
    let header = SymbolHeader {
        scheme: SchemeId::Dense,
        channel,
        offset,
        block: BlockLen::Bytes(block_len),
        esi,
    };
    Frame::Symbol { header, data }
}

/// Sends each group of frames as one packet; gives why the connection closed.
fn verdict(packets: &[&[Frame<'_>]]) -> Option<ConnectionError> {
    let mut raw = RawClient::connect();
    packets.iter().for_each(|frames| raw.send_frames(frames));
    let closed = raw.closed();
    // It goes on to live its life without a panic, whatever happened.
    for _ in 0..50 {
        raw.now += MS(100);
        raw.server.handle_timeout(raw.now);
        raw.receive(|_, _| {});
    }
    closed
}

fn violation(code: CloseCode) -> Option<ConnectionError> {
    Some(ConnectionError::Violation(code))
}

#[test]
fn contradictions_about_blocks_close_the_connection() {
    let (a, b) = ([1; 1000], [1; 999]);
    let first = symbol(OBJECT, 5000, 3000, 0, &a);
    let cases: [(&str, Frame<'_>); 9] = [
        ("other symbol size", symbol(OBJECT, 5000, 3000, 1, &b)),
        ("other length", symbol(OBJECT, 5000, 2999, 1, &a)),
        ("overlap from below", symbol(OBJECT, 4999, 1000, 0, &a)),
        ("overlap from above", symbol(OBJECT, 7999, 1000, 0, &a)),
        (
            "beyond the largest offset",
            symbol(OBJECT, 1 << 60, 1000, 0, &a),
        ),
        (
            "offset at the end of the numbers",
            symbol(OBJECT, (1 << 62) - 1, 1000, 0, &a),
        ),
        ("no bytes", symbol(OBJECT, 0, 0, 0, &[])),
        ("symbols without bytes", symbol(OBJECT, 0, 5, 0, &[])),
        ("too many symbols", symbol(OBJECT, 0, 400_000, 0, &a)),
    ];
    for (what, second) in cases {
        assert_eq!(
            verdict(&[&[first], &[second]]),
            violation(CloseCode::PROTOCOL),
            "{what}"
        );
    }
    let Frame::Symbol { header, .. } = first else {
        panic!("{first:?}")
    };
    let scheme = SymbolHeader {
        scheme: SchemeId::RaptorQ,
        esi: 1,
        ..header
    };
    let of_a = |header| Frame::Symbol { header, data: &a };
    assert_eq!(
        verdict(&[&[first], &[of_a(scheme)]]),
        violation(CloseCode::PROTOCOL),
        "other code"
    );
    let short = |k, padding| SymbolHeader {
        block: BlockLen::Symbols { k, padding },
        esi: 1,
        ..header
    };
    for (what, block) in [("padded", short(3, 1)), ("longer", short(4, 0))] {
        assert_eq!(
            verdict(&[&[first], &[of_a(block)]]),
            violation(CloseCode::PROTOCOL),
            "{what}, in the short form"
        );
    }
    assert_eq!(verdict(&[&[first], &[of_a(short(3, 0))]]), None);
    let padding = Frame::Symbol {
        header: short(1, 200),
        data: &a[..200],
    };
    assert_eq!(
        verdict(&[&[padding]]),
        violation(CloseCode::PROTOCOL),
        "nothing but padding"
    );
    assert_eq!(
        verdict(&[&[first], &[symbol(OBJECT, 5000, 3000, 1, &a)]]),
        None
    );
}

#[test]
fn many_tiny_symbols_are_refused() {
    for scheme in [SchemeId::Dense, SchemeId::RaptorQ] {
        let header = SymbolHeader {
            scheme,
            channel: OBJECT,
            offset: 0,
            block: BlockLen::Symbols { k: 250, padding: 0 },
            esi: 0,
        };
        let frame = Frame::Symbol { header, data: &[1] };
        assert_eq!(
            verdict(&[&[frame]]),
            violation(CloseCode::PROTOCOL),
            "{scheme:?}"
        );
    }
    assert_eq!(
        verdict(&[&[symbol(OBJECT, 0, 1, 0, &[1])]]),
        None,
        "a block of one byte is fine"
    );
}

/// Sends a symbol of zeros for each ESI, as a block of `k` symbols of 300 bytes at `offset`.
fn send_zeros(raw: &mut RawClient, scheme: SchemeId, (offset, k): (u64, u64), esis: &[u32]) {
    for &esi in esis {
        let header = SymbolHeader {
            scheme,
            channel: OBJECT,
            offset,
            block: BlockLen::Bytes(300 * k),
            esi,
        };
        let data = &[0; 300];
        raw.send_frames(&[Frame::Symbol { header, data }]);
    }
}

/// Repair symbols for K = 10 that never make up the block, found as `dfcp-fec/tests/codes/chosen.rs` does.
const DEFICIENT: [u32; 60] = [
    10, 11, 12, 13, 14, 15, 16, 17, 18, 476, 601, 858, 1131, 1411, 1772, 2209, 2225, 2616, 2658,
    3001, 3067, 3720, 3922, 4050, 4198, 5078, 5218, 5476, 6134, 6784, 6948, 7401, 7504, 7516, 7578,
    7624, 8017, 8229, 8398, 8443, 8658, 8871, 9027, 9078, 9143, 9407, 9442, 9972, 10201, 10697,
    10803, 10810, 10940, 11451, 11695, 12380, 12482, 12577, 12647, 12711,
];

#[test]
fn symbols_chosen_so_that_they_never_suffice_end_the_connection() {
    let mut raw = RawClient::connect();
    send_zeros(&mut raw, SchemeId::RaptorQ, (0, 10), &DEFICIENT);
    assert_eq!(raw.closed(), Some(ConnectionError::Unsolvable));
    let mut said = None;
    raw.receive(|_, frame| {
        if let Frame::Close { code, reason } = frame {
            said = Some((*code, String::from_utf8_lossy(reason).into_owned()));
        }
    });
    let reason = "blocks that cannot be decoded".to_owned();
    assert_eq!(said, Some((CloseCode::UNSOLVABLE.0, reason)));
}

#[test]
fn codes_and_sizes_of_blocks_that_the_receiver_does_not_want_are_refused() {
    let config = TransportConfig::default()
        .accept_schemes(&[SchemeId::Dense])
        .max_block_symbols(16);
    for (scheme, k, verdict) in [
        (SchemeId::Dense, 16, None),
        (SchemeId::Arq, 1, None),
        (SchemeId::Dense, 17, violation(CloseCode::PROTOCOL)),
        (SchemeId::RaptorQ, 16, violation(CloseCode::PROTOCOL)),
        (SchemeId::Raptor, 16, violation(CloseCode::PROTOCOL)),
        (SchemeId::Rlnc, 16, violation(CloseCode::PROTOCOL)),
    ] {
        let server = server_with(config.clone(), |_| true);
        let mut raw = RawClient::connect_with(server, &params());
        send_zeros(&mut raw, scheme, (0, k), &[0]);
        assert_eq!(raw.closed(), verdict, "{scheme:?} {k}");
    }
}

#[test]
fn ends_that_contradict_each_other_or_the_data_close_the_connection() {
    let data = [1; 1000];
    let fin = |size| Frame::Fin {
        channel: OBJECT,
        size,
    };
    let block = symbol(OBJECT, 0, 1000, 0, &data);
    let past = symbol(OBJECT, 1000, 1000, 0, &data);
    for packets in [
        [&[fin(500)][..], &[block][..]],
        [&[block], &[fin(500)]],
        [&[fin(1000)], &[fin(1001)]],
        [&[fin(1000)], &[past]],
        [&[fin(1 << 61)], &[]],
    ] {
        assert_eq!(
            verdict(&packets),
            violation(CloseCode::PROTOCOL),
            "{packets:?}"
        );
    }
    assert_eq!(verdict(&[&[block], &[fin(1000)]]), None);
}

#[test]
fn more_data_than_granted_closes_the_connection() {
    let data = [1; 1000];
    // The budget is 32 MiB by default: in blocks of 256 symbols.
    let mut raw = RawClient::connect();
    for i in 0..200 {
        raw.send_frames(&[symbol(OBJECT, 256_000 * i, 256_000, 0, &data)]);
    }
    assert_eq!(raw.closed(), violation(CloseCode::FLOW_CONTROL));
    // Many small blocks count with what they cost.
    let mut raw = RawClient::connect();
    for i in 0..140_000 {
        raw.send_frames(&[symbol(OBJECT, 2 * i, 1, 0, &[1])]);
    }
    assert!(matches!(
        raw.closed(),
        Some(ConnectionError::Violation(
            CloseCode::FLOW_CONTROL | CloseCode::LIMIT
        ))
    ));
    // Its window is 16 MiB by default.
    let stream = symbol(STREAM, 16 << 20, 1000, 0, &data);
    assert_eq!(
        verdict(&[&[stream]]),
        violation(CloseCode::FLOW_CONTROL),
        "a stream's own window"
    );
}

fn skip(channel: u64, offset: u64, len: u64, charged: u64) -> Frame<'static> {
    Frame::Skip {
        channel,
        offset,
        len,
        charged,
    }
}

/// What a block of `len` bytes uses of the credit.
const fn charge(len: u64) -> u64 {
    len + 256
}

#[test]
fn gaps_that_contradict_the_data_or_the_credit_close_the_connection() {
    let data = [1; 1000];
    let open = symbol(OBJECT, 5000, 3000, 0, &data);
    let complete = symbol(OBJECT, 5000, 1000, 0, &data);
    let fin = Frame::Fin {
        channel: OBJECT,
        size: 5500,
    };
    let wrong = |frames: &[Frame<'_>], code| {
        let packets: Vec<_> = frames.iter().map(std::slice::from_ref).collect();
        assert_eq!(verdict(&packets), violation(code), "{frames:?}");
    };
    for frames in [
        [open, skip(OBJECT, 4000, 1500, 0)],
        [open, skip(OBJECT, 7999, 10, 0)],
        [open, skip(OBJECT, 4000, 9000, 0)],
        [open, skip(OBJECT, 5000, 2999, charge(2999))],
        [open, skip(OBJECT, 5000, 3000, 0)],
        [complete, skip(OBJECT, 5500, 1000, 0)],
        [complete, skip(OBJECT, 4000, 2000, 0)],
        [fin, skip(OBJECT, 5000, 501, 0)],
        [skip(OBJECT, 5000, 501, 0), fin],
        [skip(OBJECT, 0, 500, 0), skip(OBJECT, 400, 500, 0)],
        [skip(OBJECT, 400, 500, 0), skip(OBJECT, 0, 500, 0)],
        [Frame::Ping, skip(OBJECT, 5000, 0, 0)],
        [Frame::Ping, skip(OBJECT, 5000, 0, 256)],
        [Frame::Ping, skip(OBJECT, 5000, 100, 100)],
        [Frame::Ping, skip(OBJECT, 1 << 60, 1, 0)],
        [Frame::Ping, skip(OBJECT, 1, 1 << 60, 0)],
        [Frame::Ping, skip(OBJECT, (1 << 62) - 1, (1 << 62) - 1, 0)],
    ] {
        wrong(&frames, CloseCode::PROTOCOL);
    }
    wrong(
        &[skip(OBJECT, 0, 1 << 40, charge(1 << 40))],
        CloseCode::FLOW_CONTROL,
    );
    let own = ChannelId::new(Role::Server, ChannelKind::Object, 0).0;
    wrong(&[skip(own, 0, 1, 0)], CloseCode::PROTOCOL);
}

#[test]
fn gaps_of_what_is_settled_change_nothing() {
    let data = [1; 1000];
    let mut raw = RawClient::connect();
    raw.send_frames(&[symbol(OBJECT, 0, 1000, 0, &data)]);
    let id = ChannelId(OBJECT);
    // A block that is complete; then one that never shows up, told twice, and its late symbol.
    raw.send_frames(&[skip(OBJECT, 0, 1000, charge(1000))]);
    for _ in 0..2 {
        raw.send_frames(&[skip(OBJECT, 1000, 2000, charge(2000))]);
        raw.send_frames(&[symbol(OBJECT, 1000, 2000, 0, &data)]);
    }
    // A block that began, and a gap of bytes that were never sent, beyond any window.
    raw.send_frames(&[symbol(OBJECT, 3000, 2000, 0, &data)]);
    raw.send_frames(&[skip(OBJECT, 3000, 2000, charge(2000))]);
    raw.send_frames(&[skip(OBJECT, 5000, 1 << 50, 0)]);
    raw.send_frames(&[Frame::Fin {
        channel: OBJECT,
        size: 5000 + (1 << 50),
    }]);
    let now = raw.now;
    let connection = raw.connection();
    let stats = connection.stats();
    assert_eq!((stats.skips_received, stats.skips_ignored), (3, 2));
    assert_eq!(connection.credit_in_use(), charge(1000));
    assert_eq!(connection.take_gap(id), Some(1000..5000 + (1 << 50)));
    assert_eq!(connection.take_gap(id), None);
    assert!(!connection.is_drained(id), "a block waits");
    assert_eq!(
        connection.take_block(now, id),
        Ok(Some((0, data.to_vec()))),
        "what was complete is delivered"
    );
    assert!(connection.is_drained(id));
    assert_eq!(connection.missing(id), 4000 + (1 << 50));
    assert_eq!(
        connection.credit_in_use(),
        charge(1000),
        "until it is given back"
    );
    connection.recycle(now, data.to_vec());
    assert_eq!(connection.credit_in_use(), 0);
    assert_eq!(raw.closed(), None);
}

#[test]
fn a_flood_of_gaps_is_bounded() {
    // Holes between them, so that they never join.
    let mut raw = RawClient::connect();
    for i in 0..100_000 {
        raw.send_frames(&[skip(OBJECT, 2 * i + 1, 1, 0)]);
    }
    assert_eq!(raw.closed(), violation(CloseCode::LIMIT));
    // Neighbours join, in any number.
    let mut raw = RawClient::connect();
    for i in 0..100_000 {
        raw.send_frames(&[skip(STREAM, i, 1, 0)]);
    }
    assert_eq!(raw.closed(), None);
    let now = raw.now;
    let read = raw.connection().read(now, ChannelId(STREAM), &mut [0; 9]);
    assert_eq!(read, Ok(Read::Gap(100_000)));
}

#[test]
fn channels_out_of_bounds_close_the_connection() {
    let own = |role, kind, index| ChannelId::new(role, kind, index).0;
    let server_stream = own(Role::Server, ChannelKind::Stream, 0);
    let server_object = own(Role::Server, ChannelKind::Object, 0);
    for channel in [server_stream, server_object] {
        for frame in [
            symbol(channel, 0, 1, 0, &[1]),
            Frame::Fin { channel, size: 0 },
            Frame::Reset {
                channel,
                code: 0.into(),
                charged: 0,
            },
            Frame::Stop {
                channel,
                code: 0.into(),
            },
            Frame::MaxStreamData { channel, limit: 9 },
        ] {
            assert_eq!(
                verdict(&[&[frame]]),
                violation(CloseCode::PROTOCOL),
                "{frame:?} was never opened"
            );
        }
    }
    // Of a kind that there is not.
    let unknown = Frame::Fin {
        channel: 6,
        size: 0,
    };
    assert_eq!(verdict(&[&[unknown]]), violation(CloseCode::PROTOCOL));
    let far = own(Role::Client, ChannelKind::Stream, 100_000);
    assert_eq!(
        verdict(&[&[Frame::Fin {
            channel: far,
            size: 0
        }]]),
        violation(CloseCode::LIMIT)
    );
    let end = (1 << 62) - 4;
    assert_eq!(
        verdict(&[&[Frame::Fin {
            channel: end,
            size: 0
        }]]),
        violation(CloseCode::LIMIT)
    );
}

#[test]
fn frames_that_do_not_parse_close_the_connection() {
    for plaintext in [
        &[0x07][..],
        &[0x0b, 0, 0, 1, 0, 0, 0],
        &[0x02, 1],
        &[0x16, 0, 0, 1],
        &[0x17],
        &[0x15, 0, 0x40],
    ] {
        let mut raw = RawClient::connect();
        raw.send(plaintext);
        assert_eq!(
            raw.closed(),
            violation(CloseCode::PROTOCOL),
            "{plaintext:?}"
        );
    }
    let mut raw = RawClient::connect();
    raw.send(&[]);
    raw.send(&[0; 1000]);
    assert_eq!(raw.closed(), None, "padding is nothing");
}

fn ack(largest: u64, first_range: u64) -> Vec<u8> {
    let mut out = vec![0x02];
    [largest, 0, 0, 0, 1, first_range]
        .into_iter()
        .for_each(|v| write_varint(&mut out, v));
    out
}

#[test]
fn acknowledging_what_was_never_sent_closes_the_connection() {
    let mut raw = RawClient::connect();
    raw.send(&ack(1000, 0));
    assert_eq!(raw.closed(), violation(CloseCode::PROTOCOL), "unsent");
    // Numbers are skipped at random: acknowledging all of a range finds one.
    let mut raw = RawClient::connect();
    let (mut seen, mut largest) = (Vec::new(), 0);
    while largest < 6000 {
        raw.send_frames(&[Frame::Ping]);
        raw.now += MS(5);
        raw.receive(|pn, _| {
            seen.push(pn);
            largest = largest.max(pn);
        });
        raw.server.handle_timeout(raw.now);
    }
    seen.dedup();
    assert!(
        seen.windows(2).any(|w| w[0] + 1 < w[1]),
        "some numbers were skipped"
    );
    raw.send(&ack(largest, largest));
    assert_eq!(raw.closed(), violation(CloseCode::PROTOCOL), "skipped");
}

#[test]
fn the_peer_learns_why_and_nothing_follows() {
    let mut raw = RawClient::connect();
    raw.send(&[0x07]);
    let mut codes = Vec::new();
    raw.receive(|_, frame| {
        if let Frame::Close { code, .. } = frame {
            codes.push(*code);
        }
    });
    assert!(codes.contains(&CloseCode::PROTOCOL.0), "{codes:?}");
    let mut raw = RawClient::connect();
    raw.send_frames(&[
        Frame::Close {
            code: 300.into(),
            reason: b"bye",
        },
        Frame::Fin {
            channel: 4,
            size: 0,
        },
    ]);
    let events: Vec<Event> = std::iter::from_fn(|| raw.connection().poll_event()).collect();
    assert!(
        matches!(events.last(), Some(Event::Closed(ConnectionError::PeerClosed { code, .. })) if *code == 300.into()),
        "{events:?}"
    );
    // A CLOSE is answered with CLOSE, and with nothing else.
    raw.receive(|_, frame| assert!(matches!(frame, Frame::Close { .. }), "{frame:?}"));
}

#[test]
fn mad_parameters_and_clocks_are_survived() {
    let extreme = TransportParams {
        max_datagram: (1 << 62) - 1,
        max_data: (1 << 62) - 1,
        max_stream_data: (1 << 62) - 1,
        max_channels: (1 << 62) - 1,
        idle_timeout_ms: (1 << 62) - 1,
        feedback: (1 << 62) - 1,
        ..params()
    };
    let nothing = TransportParams {
        max_data: 0,
        max_stream_data: 0,
        max_channels: 0,
        idle_timeout_ms: 1,
        schemes: 0,
        feedback: 0,
        ..params()
    };
    for params in [extreme, nothing] {
        let server = server_with(TransportConfig::default(), |_| true);
        let mut raw = RawClient::connect_with(server, &params);
        let object = raw.connection().open(ChannelKind::Object);
        if let Some(id) = object {
            let now = raw.now;
            let connection = raw.connection();
            connection.write(now, id, &[7; 1_000_000]).expect("open");
        }
        let mut largest = 0;
        for clock in [0, 1 << 61, 5, (1 << 62) - 1, 0, 1] {
            raw.now += MS(1);
            raw.server.handle_timeout(raw.now);
            raw.receive(|pn, _| largest = largest.max(pn));
            let mut out = vec![0x02];
            [largest, clock, clock, clock, 1, 0]
                .into_iter()
                .for_each(|v| write_varint(&mut out, v));
            raw.send(&out);
        }
        let rate = raw.connection().stats().pacing_rate;
        assert!(rate.as_bps() > 0);
    }
}

#[test]
fn a_receiver_that_lies_about_time_cannot_make_a_flood() {
    flood_by_lies(1 << 40);
}

/// The sender has nothing to send in every round trip, as the receiver gives it credit for less.
#[test]
fn nor_one_that_keeps_the_sender_short_of_credit() {
    flood_by_lies(400_000);
}

/// A receiver acknowledges everything at 1 packet/ms but says it all came within microseconds. So many bytes may
/// be sent beyond what arrived.
fn flood_by_lies(credit: u64) {
    let mut raw = RawClient::connect_with(
        server_with(TransportConfig::default(), |_| true),
        &TransportParams {
            max_data: credit,
            ..params()
        },
    );
    let id = raw
        .connection()
        .open(ChannelKind::Object)
        .expect("channels");
    let (mut sent, start) = (0u64, raw.now);
    let mut waiting = std::collections::VecDeque::new();
    let (mut clock, mut delivered) = (0, 0u64);
    while raw.now < start + 4 * SECOND {
        let now = raw.now;
        let connection = raw.connection();
        while connection.write(now, id, &[7; 65536]).is_ok_and(|n| n > 0) {}
        raw.now += Duration::from_millis(1);
        let now = raw.now;
        raw.server.handle_timeout(now);
        raw.receive(|pn, frame| {
            if matches!(frame, Frame::Symbol { .. }) {
                sent += 1;
                waiting.push_back((now + MS(20), pn));
            }
        });
        // The path carries one packet per millisecond, 11.8 Mbit/s, with a queue of 40.
        waiting.truncate(60);
        if let Some((at, pn)) = waiting.front().copied()
            && at <= now
        {
            waiting.pop_front();
            delivered += 1;
            clock += 3;
            let mut out = vec![0x02];
            [pn, clock, 0, 0, 1, 0]
                .into_iter()
                .for_each(|v| write_varint(&mut out, v));
            Frame::MaxData(delivered * 1200 + credit).emit(&mut out);
            raw.send(&out);
        }
    }
    assert!(
        sent < 6 * delivered + 1000,
        "{sent} packets sent, {delivered} carried"
    );
}
