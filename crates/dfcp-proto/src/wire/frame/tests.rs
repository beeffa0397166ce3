use super::*;

fn reparse(bytes: &[u8]) -> Vec<Frame<'_>> {
    FrameIter::new(bytes)
        .map(|f| f.expect("valid frame"))
        .collect()
}

#[test]
fn ack_ranges_survive_the_wire() {
    let ranges = [(90, 100), (50, 88), (7, 7), (0, 5)];
    let mut out = Vec::new();
    let said = AckHead {
        largest: 100,
        received_at_us: 5000,
        delay_us: 20,
        ce: 3,
    };
    Frame::emit_ack(&mut out, said, ranges.into_iter(), 1000);
    let frames = reparse(&out);
    let Frame::Ack { head, ranges: got } = frames[0] else {
        panic!("{frames:?}")
    };
    assert_eq!(head, said);
    assert_eq!(
        got.iter()
            .map(|r| (*r.start(), *r.end()))
            .collect::<Vec<_>>(),
        ranges
    );
}

/// Of a path that loses a third the ranges take two bytes each, and the bitmap one for eight packets.
#[test]
fn acks_of_many_ranges_are_bitmaps() {
    let head = AckHead {
        largest: 10_000,
        ..AckHead::default()
    };
    let ranges: Vec<_> = (0..100u64)
        .map(|i| (9_999 - 3 * i, 10_000 - 3 * i))
        .collect();
    let mut out = Vec::new();
    assert_eq!(
        Frame::emit_shortest_ack(&mut out, head, ranges.iter().copied(), 60),
        100
    );
    assert_eq!(out.len(), 1 + 2 + 1 + 1 + 1 + 1 + 299usize.div_ceil(8));
    let Frame::Ack {
        head: heard,
        ranges: got,
    } = reparse(&out)[0]
    else {
        panic!()
    };
    assert_eq!(heard, head);
    let got: Vec<_> = got.iter().map(|r| (*r.start(), *r.end())).collect();
    assert_eq!(got, ranges);
    // The newest, where room is short.
    let mut out = Vec::new();
    let said = Frame::emit_shortest_ack(&mut out, head, ranges.iter().copied(), 30);
    assert!(
        said > 50 && out.len() <= 30,
        "{said} in {} bytes",
        out.len()
    );
    let Frame::Ack { ranges: got, .. } = reparse(&out)[0] else {
        panic!()
    };
    let got: Vec<_> = got.iter().map(|r| (*r.start(), *r.end())).collect();
    assert_eq!(got, ranges[..said]);
}

/// At the edges where the number of a gap takes a byte more.
#[test]
fn ranges_of_an_ack_fill_the_room_that_they_need() {
    for gap in (62..70).chain(16_382..16_390) {
        let head = AckHead {
            largest: 100_000,
            ..AckHead::default()
        };
        let ranges: Vec<_> = (0..3).map(|i| 100_000 - i * gap).map(|n| (n, n)).collect();
        let (mut whole, mut tight) = (Vec::new(), Vec::new());
        Frame::emit_ack(&mut whole, head, ranges.iter().copied(), usize::MAX);
        // Two bytes are kept for the count, which takes one.
        let said = Frame::emit_ack(&mut tight, head, ranges.iter().copied(), whole.len() + 1);
        assert_eq!((said, &tight), (3, &whole), "{gap}");
        let said = Frame::emit_ack(&mut tight, head, ranges.iter().copied(), whole.len());
        assert_eq!(said, 2, "{gap}");
    }
}

#[test]
fn bitmaps_name_no_number_below_zero_and_are_no_longer_than_reports() {
    let ack = |largest: u8, bits: &[u8]| {
        let mut out = vec![ACK_BITMAP, largest, 0, 0, 0];
        write_varint(&mut out, bits.len() as u64);
        out.extend_from_slice(bits);
        let parsed = FrameIter::new(&out).next().expect("a frame");
        parsed.map(|frame| match frame {
            Frame::Ack { ranges, .. } => ranges.iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(ack(9, &[]), Ok(vec![9..=9]));
    assert_eq!(ack(9, &[0b101, 0, 0]), Ok(vec![8..=9, 6..=6]));
    assert_eq!(ack(9, &[0xff, 1]), Ok(vec![0..=9]));
    assert_eq!(ack(0, &[0; 600]), Ok(vec![0..=0]));
    let below = Err(WireError::Invalid("ACK bitmap"));
    assert_eq!(ack(9, &[0, 2]), below);
    assert_eq!(ack(0, &[1]), below);
    let long = Err(WireError::Invalid("ACK bitmap length"));
    assert_eq!(ack(9, &[0; 601]), long);
}

#[test]
fn ack_keeps_the_newest_ranges_when_room_is_short() {
    let mut out = Vec::new();
    let ranges = (0..300u64).map(|i| (10_000 - 10 * i, 10_003 - 10 * i));
    let head = AckHead {
        largest: 10_003,
        ..AckHead::default()
    };
    Frame::emit_ack(&mut out, head, ranges, 100);
    assert!(out.len() <= 100);
    let Frame::Ack { ranges, .. } = reparse(&out)[0] else {
        panic!()
    };
    assert_eq!(ranges.iter().next(), Some(10_000..=10_003));
    assert!(ranges.iter().count() > 30);
}

#[test]
fn block_reports_survive_the_wire() {
    let entries = [(1000, 3), (2000, 0), (700_000, 255)];
    let mut out = Vec::new();
    Frame::emit_blocks(&mut out, 5, 1000, entries.into_iter(), 100);
    let Frame::Blocks(report) = reparse(&out)[0] else {
        panic!()
    };
    assert_eq!((report.channel, report.done_below), (5, 1000));
    assert_eq!(report.iter().collect::<Vec<_>>(), entries);
}

#[test]
fn sack_pairs_survive_the_wire_as_far_as_there_is_room() {
    let path = crate::rate::PathReport {
        receive_rate: 125_000.0,
        loss_event_rate: 0.25,
    };
    let report = SackReport::new(path, 4, 63, 5000);
    let pairs = [6000..8000, 9000..9500];
    let mut out = Vec::new();
    Frame::emit_sack(&mut out, &report, pairs.clone().into_iter(), 100);
    let Frame::Sack(got) = reparse(&out)[0] else {
        panic!()
    };
    assert_eq!((got.channel, got.avail_win, got.offset), (4, 63, 5000));
    assert_eq!(got.path.receive_rate, 125_000.0);
    assert!((got.path.loss_event_rate - 0.25).abs() < 1e-9);
    assert_eq!(got.pairs().collect::<Vec<_>>(), pairs);
    let mut short = Vec::new();
    Frame::emit_sack(
        &mut short,
        &report,
        pairs.clone().into_iter(),
        out.len() - 1,
    );
    let Frame::Sack(got) = reparse(&short)[0] else {
        panic!()
    };
    assert_eq!(got.pairs().collect::<Vec<_>>(), pairs[..1]);
}

#[test]
fn an_ack_below_packet_zero_is_refused() {
    let mut out = vec![ACK];
    for v in [5, 0, 0, 0, 1, 6] {
        write_varint(&mut out, v);
    }
    assert_eq!(
        FrameIter::new(&out).next(),
        Some(Err(WireError::Invalid("ACK range")))
    );
}

/// Writes a report into so much room.
type Emit<'a> = &'a dyn Fn(&mut Vec<u8>, usize);

/// As many as fit, and no byte more than there is room for: two bytes are kept for the count,
/// which takes one below 64.
#[test]
fn reports_fill_their_room() {
    let head = AckHead {
        largest: 10_003,
        ..AckHead::default()
    };
    let ack = |out: &mut Vec<u8>, room| {
        let ranges = (0..30u64).map(|i| (10_000 - 300 * i, 10_003 - 300 * i));
        Frame::emit_ack(out, head, ranges, room);
    };
    let blocks = |out: &mut Vec<u8>, room| {
        // Two bytes and one: sizes whose sum is not their product.
        let entries = (0..30).map(|i| (1000 + 300 * i, 7));
        Frame::emit_blocks(out, 5, 1000, entries, room);
    };
    let sack = |out: &mut Vec<u8>, room| {
        let path = crate::rate::PathReport {
            receive_rate: 1e6,
            loss_event_rate: 0.5,
        };
        let report = SackReport::new(path, 4, 63, 5000);
        let pairs = (0..30).map(|i| 5100 + 300 * i..5200 + 300 * i);
        Frame::emit_sack(out, &report, pairs, room);
    };
    let count = |bytes: &[u8]| match reparse(bytes)[0] {
        Frame::Ack { ranges, .. } => ranges.iter().count(),
        Frame::Blocks(report) => report.iter().count(),
        Frame::Sack(report) => report.pairs().count(),
        ref other => panic!("{other:?}"),
    };
    for emit in [&ack as Emit<'_>, &blocks, &sack] {
        let written = |before: usize, room| {
            let mut out = vec![0xff; before];
            emit(&mut out, room);
            out.split_off(before)
        };
        let whole = written(0, usize::MAX);
        assert_eq!(count(&whole), 30);
        assert_eq!(written(0, whole.len() + 1), whole, "exactly enough");
        assert_eq!(written(9, whole.len() + 1), whole, "behind other frames");
        for room in 40..=whole.len() {
            let part = written(0, room);
            let more = written(0, room + 1);
            assert!(part.len() < room, "{room}");
            assert!(count(&part) < 30 && count(&more) <= count(&part) + 1);
            // The next would not have fitted, of six bytes at most.
            assert!(part.len() + 1 + 6 > room, "{room}");
        }
    }
}

/// What is more than a frame may report is cut off where it is written, and refused where it is
/// read.
#[test]
fn reports_have_a_limit() {
    let mut out = Vec::new();
    let ranges = (0..1000u64).map(|i| (10_000 - 10 * i, 10_003 - 10 * i));
    let head = AckHead {
        largest: 10_003,
        ..AckHead::default()
    };
    let written = Frame::emit_ack(&mut out, head, ranges, usize::MAX);
    let Frame::Ack { ranges, .. } = reparse(&out)[0] else {
        panic!()
    };
    assert_eq!((written, ranges.iter().count()), (512, 512));
    let mut out = Vec::new();
    Frame::emit_blocks(&mut out, 5, 0, (0..2000).map(|i| (i, 1)), usize::MAX);
    let Frame::Blocks(report) = reparse(&out)[0] else {
        panic!()
    };
    assert_eq!(report.iter().count(), 1024);
    let path = crate::rate::PathReport {
        receive_rate: 1.0,
        loss_event_rate: 0.0,
    };
    let (report, mut out) = (SackReport::new(path, 4, 63, 0), Vec::new());
    let pairs = (0..500).map(|i| 2 * i + 1..2 * i + 2);
    Frame::emit_sack(&mut out, &report, pairs, usize::MAX);
    let Frame::Sack(report) = reparse(&out)[0] else {
        panic!()
    };
    assert_eq!(report.pairs().count(), 256);
    for (head, count) in [
        (&[ACK, 9, 0, 0, 0][..], 0),
        (&[ACK, 9, 0, 0, 0], 513),
        (&[BLOCKS, 5, 0], 1025),
        (&[SACK, 1, 0, 0, 0, 0, 4, 63, 0], 257),
    ] {
        let mut out = head.to_vec();
        write_varint(&mut out, count);
        out.extend_from_slice(&[0; 4096]);
        let parsed = FrameIter::new(&out).next();
        assert!(
            matches!(parsed, Some(Err(WireError::Invalid(_)))),
            "{parsed:?}"
        );
    }
}

#[test]
fn overheads_are_what_is_written() {
    for len in [1, 63, 64, 1400, 20_000] {
        let (data, mut out) = (vec![7; len], Vec::new());
        Frame::Datagram(&data).emit(&mut out);
        assert_eq!(out.len(), len + datagram_overhead(len));
        let mut out = Vec::new();
        let (symbol_len, at) = (len as u64, len as u64 / 2);
        Frame::Part { symbol_len, at }.emit(&mut out);
        assert_eq!(out.len(), part_overhead(len, len / 2));
    }
    let mut out = Vec::new();
    let (number, rtt_us) = (1, 2);
    Frame::RoundTrip { number, rtt_us }.emit(&mut out);
    assert_eq!(out.len(), ROUND_TRIP_LEN);
}

#[test]
fn frames_of_data_ask_for_feedback_and_those_of_feedback_do_not() {
    let mut out = Vec::new();
    Frame::emit_ack(&mut out, AckHead::default(), [(0, 0)].into_iter(), 100);
    Frame::emit_blocks(&mut out, 5, 0, std::iter::empty(), 100);
    for frame in [Frame::MaxData(1), Frame::Ping, Frame::Datagram(b"tick")] {
        frame.emit(&mut out);
    }
    let asked: Vec<bool> = reparse(&out).iter().map(Frame::is_ack_eliciting).collect();
    assert_eq!(asked, [false, false, false, true, true]);
}
