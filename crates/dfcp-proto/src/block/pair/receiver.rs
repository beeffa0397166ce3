//! What a receiver says of its blocks, and what it holds for those that are not solved.

use super::*;

fn stream() -> Pair {
    Pair::new(ChannelKind::Stream, SchemeId::Arq, Reliability::Reliable)
}

/// A block of 300 bytes in one symbol arrives at each offset.
fn arrive(pair: &mut Pair, offsets: impl IntoIterator<Item = u64>) {
    for offset in offsets {
        let received = pair.arrive_short(offset);
        assert_eq!(received, Ok(Received::Complete), "{offset}");
    }
}

#[test]
fn a_sack_says_what_is_new_below_and_all_that_is_complete_above() {
    let mut pair = stream();
    let sack = |pair: &mut Pair| {
        let (border, parts) = pair.recv.sack();
        let parts = parts.iter().map(|part| (part.start, part.end));
        (border, parts.collect::<Vec<_>>())
    };
    assert_eq!(sack(&mut pair), (0, vec![]));
    arrive(&mut pair, [0]);
    assert_eq!(sack(&mut pair), (0, vec![(0, 300)]));
    arrive(&mut pair, [600, 900, 1500]);
    let above = vec![(600, 1200), (1500, 1800)];
    assert_eq!(sack(&mut pair), (300, above.clone()));
    assert_eq!(sack(&mut pair), (300, above), "until it is below");
    arrive(&mut pair, [300]);
    assert_eq!(sack(&mut pair), (300, vec![(300, 1200), (1500, 1800)]));
    assert_eq!(sack(&mut pair), (1200, vec![(1500, 1800)]));
}

#[test]
fn a_report_names_the_lowest_blocks_in_order() {
    let mut pair = stream();
    let open = SymbolIn {
        scheme: SchemeId::Dense,
        offset: 900,
        block_len: 1500,
        esi: 2,
        len: 300,
        data: &[2; 300],
    };
    let received = pair.recv.on_symbol(&open, &mut pair.credit);
    assert_eq!(received, Ok(Received::Progress));
    arrive(&mut pair, [0, 2700, 600]);
    let entries = vec![(600, 0), (900, 4), (2700, 0)];
    assert_eq!(pair.recv.report(), (300, entries));
    arrive(&mut pair, (0..300).map(|i| 3600 + 600 * i));
    let (below, entries) = pair.recv.report();
    assert_eq!((below, entries.len()), (300, 128));
    assert_eq!(entries[..4], [(600, 0), (900, 4), (2700, 0), (3600, 0)]);
    assert!(entries.is_sorted());
}

/// Ranges are dear to keep: 2¹⁶ of them, those included that the application has yet to hear of.
#[test]
fn a_channel_of_nothing_but_holes_is_excessive_at_a_bound() {
    let mut pair = stream();
    for i in 1..=1 << 15 {
        let skip = Skip {
            offset: 2 * i,
            len: 1,
            charged: 0,
        };
        assert_eq!(pair.recv.on_skip(&skip, &mut pair.credit), Ok(true));
    }
    assert!(!pair.recv.is_excessive());
    assert_eq!(pair.credit.ranges, 1 << 16);
    let last = Skip {
        offset: 1 << 20,
        len: 1,
        charged: 0,
    };
    assert_eq!(pair.recv.on_skip(&last, &mut pair.credit), Ok(true));
    assert!(pair.recv.is_excessive());
    pair.recv
        .end(crate::VarInt::from_u32(0), Some(0), &mut pair.credit);
    assert_eq!(pair.credit.ranges, 0, "a channel that ended leaves none");
}

#[test]
fn blocks_in_codes_or_sizes_that_were_not_agreed_are_refused() {
    let symbol = |scheme, k: u64| SymbolIn {
        scheme,
        offset: 0,
        block_len: 300 * k,
        esi: 0,
        len: 300,
        data: &[1; 300],
    };
    let push = |config: &TransportConfig, symbol| {
        let mut pair = stream();
        pair.recv = RecvChannel::new(pair.id, config);
        pair.recv.on_symbol(&symbol, &mut pair.credit)
    };
    let small = TransportConfig::default().max_block_symbols(20);
    let (dense, rlnc) = (SchemeId::Dense, SchemeId::Rlnc);
    assert_eq!(push(&small, symbol(dense, 20)), Ok(Received::Progress));
    assert_eq!(
        push(&small, symbol(dense, 21)),
        Err(CloseCode::PROTOCOL),
        "larger than was said"
    );
    let one = TransportConfig {
        schemes: 1 << dense as u8,
        ..TransportConfig::default()
    };
    assert_eq!(push(&one, symbol(dense, 20)), Ok(Received::Progress));
    assert_eq!(push(&one, symbol(rlnc, 20)), Err(CloseCode::PROTOCOL));
}

/// RaptorQ's blocks fail with K symbols once in a hundred, and only solving tells: until then the sender
/// must keep them.
#[test]
fn a_block_that_solving_alone_can_prove_is_not_reported_complete_before() {
    const K: u32 = 16;
    let mut failed = 0;
    for first in 0..2000 {
        let mut pair = Pair::new(
            ChannelKind::Stream,
            SchemeId::RaptorQ,
            Reliability::Reliable,
        );
        let data = bytes(900 * K as usize);
        let spec = block_spec(SchemeId::RaptorQ, pair.id.0, 0, data.len() as u64, 900);
        let code = dfcp_fec::scheme(SchemeId::RaptorQ);
        let encoder = code.encoder(spec.expect("good"), data.clone());
        let mut encoder = encoder.expect("a good block");
        let mut push = |pair: &mut Pair, esi| {
            let mut bytes = Vec::new();
            encoder.append_symbol(esi, &mut bytes).expect("good");
            let symbol = SymbolIn {
                scheme: SchemeId::RaptorQ,
                offset: 0,
                block_len: data.len() as u64,
                esi,
                len: 900,
                data: &bytes,
            };
            pair.recv.on_symbol(&symbol, &mut pair.credit)
        };
        let (first, last) = (K + first * K, K + first * K + K - 1);
        for esi in first..last {
            assert_eq!(push(&mut pair, esi), Ok(Received::Progress));
        }
        assert_eq!(pair.recv.report(), (0, vec![(0, 1)]));
        assert!(pair.recv.take_job().is_none());
        assert_eq!(push(&mut pair, last), Ok(Received::Solvable));
        assert_eq!(pair.recv.report(), (0, vec![(0, 1)]), "not solved yet");
        let mut job = pair.recv.take_job().expect("it waits");
        assert!(pair.recv.take_job().is_none(), "once");
        assert_eq!((job.offset, job.bytes()), (0, data.len() as u64));
        assert_eq!(pair.recv.report(), (0, vec![(0, 1)]), "at work");
        assert_eq!(push(&mut pair, last + 1), Ok(Received::Redundant));
        assert_eq!(job.symbol_size(), 900);
        assert!(job.symbol_operations() >= u64::from(K), "{job:?}");
        job.run();
        let cost = job.estimated_time();
        let wasted = job.wasted();
        let solved = pair.recv.on_solved(job, &mut pair.credit);
        if solved == Ok(true) {
            assert_eq!(wasted, Duration::ZERO);
            assert!(pair.recv.report() == (data.len() as u64, vec![]));
            continue;
        }
        // It goes on with more symbols, which count beside the block.
        failed += 1;
        assert_eq!((solved, wasted), (Ok(false), cost));
        let (_, entries) = pair.recv.report();
        let [(0, needed @ 1..)] = entries[..] else {
            panic!("{entries:?}");
        };
        let room = pair.credit.reserved() / 4 - u64::from(needed) * 900;
        assert!(pair.credit.has_room_beside(room));
        assert!(!pair.credit.has_room_beside(room + 1));
        let mut more = last + 1;
        while pair.recv.report().0 == 0 {
            let received = push(&mut pair, more).expect("honest");
            if received == Received::Solvable {
                let mut job = pair.recv.take_job().expect("it waits");
                job.run();
                pair.recv.on_solved(job, &mut pair.credit).expect("honest");
            }
            more += 1;
            assert!(more < last + 20, "it never ends");
        }
        let mut got = vec![0; data.len()];
        assert_eq!(pair.recv.read(&mut got, &mut pair.credit), data.len());
        assert!(got == data);
        let room = pair.credit.reserved() / 4;
        assert!(pair.credit.has_room_beside(room), "nothing is left");
        if failed == 3 {
            return;
        }
    }
    panic!("{failed} of 2000 failed");
}

#[test]
fn a_solve_of_a_channel_that_ended_meanwhile_changes_nothing() {
    let mut pair = Pair::new(
        ChannelKind::Stream,
        SchemeId::RaptorQ,
        Reliability::Reliable,
    );
    pair.write(&bytes(14_400));
    pair.next().expect("the first one, which is lost");
    for _ in 1..16 {
        let (symbol, data) = pair.next().expect("it is there");
        pair.arrive(&symbol, &data).expect("honest");
    }
    let policy = pair.policy();
    pair.send.on_settled(0, false, false, policy);
    let (symbol, data) = pair.next().expect("a repair symbol");
    let symbol = SymbolIn {
        scheme: symbol.scheme,
        offset: symbol.offset,
        block_len: symbol.block_len,
        esi: symbol.esi,
        len: symbol.symbol_len,
        data: &data,
    };
    let received = pair.recv.on_symbol(&symbol, &mut pair.credit);
    assert_eq!(received, Ok(Received::Solvable));
    let mut job = pair.recv.take_job().expect("it waits");
    pair.recv
        .end(crate::VarInt::from_u32(1), None, &mut pair.credit);
    job.run();
    assert_eq!(pair.recv.on_solved(job, &mut pair.credit), Ok(false));
    assert_eq!(pair.recv.read(&mut [0; 100], &mut pair.credit), 0);
    assert_eq!(pair.credit.used, pair.credit.freed);
}

#[test]
fn a_stream_s_limit_stays_within_its_window_and_what_others_leave() {
    let config = TransportConfig {
        stream_window: 100_000,
        ..TransportConfig::default()
    };
    let config = config.initial_stream_window(65_536);
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    pair.recv = RecvChannel::new(pair.id, &config);
    pair.write(&bytes(60_000));
    pair.round(|_| false);
    assert_eq!(pair.recv.skip(60_000, &mut pair.credit), 60_000);
    pair.recv.on_read(START, ROUND_TRIP);
    let limit = pair.recv.new_limit(&mut pair.credit);
    assert_eq!(limit, Some(160_000), "its own window");
    // 34,464 bytes beyond its initial window.
    let half = 8 << 20;
    let room = crate::block::square(half / 2, half - 34_464, half);
    assert_eq!(pair.credit.room_ahead(0, 0), room);

    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    pair.recv = RecvChannel::new(pair.id, &config);
    let mut others = Ahead::default();
    let promised = 2 * half - 2 * half / 6 - 2 * 9 * 16_384;
    pair.credit
        .set_ahead(&mut others, Ahead { promised, held: 0 });
    pair.write(&bytes(60_000));
    pair.round(|_| false);
    assert_eq!(pair.recv.skip(60_000, &mut pair.credit), 60_000);
    // Of half of what others leave beyond a sixth of the credit a stream has a ninth.
    pair.recv.on_read(START, ROUND_TRIP);
    let limit = pair.recv.new_limit(&mut pair.credit);
    assert_eq!(limit, Some(60_000 + 65_536 + 16_384));
    pair.recv
        .end(crate::VarInt::from_u32(1), None, &mut pair.credit);
    assert_eq!(
        pair.credit.room_ahead(0, 0),
        16_384,
        "its share is free again"
    );
}
