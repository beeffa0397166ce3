//! How a channel's bytes are settled at the receiver, and what is held until then.

use super::*;

fn pair(kind: ChannelKind) -> Pair {
    Pair::new(kind, SchemeId::Arq, Reliability::Reliable)
}

fn skip(pair: &mut Pair, offset: u64, len: u64, charged: u64) -> Result<bool, CloseCode> {
    let skip = Skip {
        offset,
        len,
        charged,
    };
    pair.recv.on_skip(&skip, &mut pair.credit)
}

#[test]
fn nothing_comes_or_is_given_up_beyond_the_end() {
    for kind in [ChannelKind::Stream, ChannelKind::Object] {
        let mut pair = pair(kind);
        assert_eq!(pair.arrive_short(0), Ok(Received::Complete));
        assert_eq!(pair.recv.on_fin(299), Err(CloseCode::PROTOCOL));
        assert_eq!(pair.recv.final_size(), None);
        assert_eq!(pair.recv.on_fin(900), Ok(()));
        assert_eq!(pair.recv.final_size(), Some(900));
        assert_eq!(pair.arrive_short(601), Err(CloseCode::PROTOCOL));
        assert_eq!(skip(&mut pair, 601, 300, 0), Err(CloseCode::PROTOCOL));
        assert_eq!(pair.arrive_short(600), Ok(Received::Complete));
        assert_eq!(skip(&mut pair, 300, 300, 0), Ok(true));
        assert!(pair.recv.is_complete());
    }
    let mut short = pair(ChannelKind::Stream);
    assert_eq!(short.arrive_short(0), Ok(Received::Complete));
    assert_eq!(short.recv.on_fin(300), Ok(()), "that was all");
    assert!(short.recv.is_complete());
    let mut longest = pair(ChannelKind::Object);
    assert_eq!(longest.recv.on_fin(1 << 60), Ok(()));
    assert_eq!(skip(&mut longest, (1 << 60) - 9, 9, 0), Ok(true));
}

#[test]
fn what_is_given_up_beside_an_open_block_is_not_of_it() {
    let mut pair = pair(ChannelKind::Stream);
    let open = SymbolIn {
        scheme: SchemeId::Dense,
        offset: 1000,
        block_len: 2000,
        esi: 0,
        len: 500,
        data: &[1; 500],
    };
    let received = pair.recv.on_symbol(&open, &mut pair.credit);
    assert_eq!(received, Ok(Received::Progress));
    assert_eq!(skip(&mut pair, 2999, 100, 0), Err(CloseCode::PROTOCOL));
    assert_eq!(skip(&mut pair, 901, 100, 0), Err(CloseCode::PROTOCOL));
    assert_eq!(skip(&mut pair, 3000, 100, 0), Ok(true));
    assert_eq!(skip(&mut pair, 900, 100, 0), Ok(true));
    assert_eq!(skip(&mut pair, 1000, 2000, charge(2000)), Ok(true));
    assert_eq!(pair.credit.used, pair.credit.freed);
}

#[test]
fn an_object_tells_of_its_gaps_lowest_first() {
    let mut pair = pair(ChannelKind::Object);
    assert_eq!(pair.recv.readiness(), 0);
    assert_eq!(pair.arrive_short(600), Ok(Received::Complete));
    assert_eq!(pair.recv.readiness(), 1);
    assert_eq!(skip(&mut pair, 900, 50, 0), Ok(true));
    assert_eq!(skip(&mut pair, 0, 300, 0), Ok(true));
    // Who reads in order waits for the block at 300 and has heard of more all the same.
    assert_eq!((pair.recv.readiness(), pair.recv.missing()), (351, 350));
    let mut gap = || pair.recv.take_gap(&mut pair.credit);
    assert_eq!([gap(), gap(), gap()], [Some(0..300), Some(900..950), None]);
    assert_eq!(pair.recv.missing(), 350);
    // A stream tells of gaps where they are read.
    let mut stream = Pair::new(ChannelKind::Stream, SchemeId::Arq, Reliability::Reliable);
    assert_eq!(skip(&mut stream, 0, 300, 0), Ok(true));
    assert_eq!(stream.recv.take_gap(&mut stream.credit), None);
    assert_eq!(stream.recv.read_gap(&mut stream.credit), Some(300));
}

#[test]
fn an_end_frees_what_was_not_freed_before() {
    let mut pair = pair(ChannelKind::Object);
    for offset in [0, 300, 600] {
        assert_eq!(pair.arrive_short(offset), Ok(Received::Complete));
    }
    // The application is done with one of the two that it took.
    let mut take = || pair.recv.take_block(&mut pair.credit);
    assert!(take().is_some() && take().is_some());
    pair.credit.freed += charge(300);
    assert_eq!(skip(&mut pair, 900, 300, charge(300)), Ok(true));
    let code = crate::VarInt::from_u32(7);
    pair.recv.end(code, Some(5 * charge(300)), &mut pair.credit);
    let (used, freed) = (pair.credit.used, pair.credit.freed);
    assert_eq!((used, freed), (5 * charge(300), 4 * charge(300)));
    // It says no more than it was granted.
    let mut pair = Pair::new(ChannelKind::Object, SchemeId::Arq, Reliability::Reliable);
    pair.recv.end(code, Some(u64::MAX), &mut pair.credit);
    assert_eq!(pair.credit.used, pair.credit.granted);
    assert_eq!(pair.credit.freed, pair.credit.used);
}

#[test]
fn a_window_holds_what_is_complete_and_what_is_missing_below_it() {
    let mut pair = pair(ChannelKind::Stream);
    for offset in [0, 300, 1200] {
        assert_eq!(pair.arrive_short(offset), Ok(Received::Complete));
    }
    // Three blocks, and 600 bytes before the last.
    assert_eq!(pair.recv.occupancy(), 5);
    assert_eq!(pair.recv.read(&mut [0; 600], &mut pair.credit), 600);
    assert_eq!(pair.recv.occupancy(), 3);
    assert_eq!(skip(&mut pair, 600, 300, 0), Ok(true));
    assert_eq!(pair.recv.occupancy(), 2);
}

/// Dense codes keep K coefficients of each symbol, which are more than tiny symbols themselves.
#[test]
fn what_a_decoder_takes_beyond_its_block_is_held_until_the_block_is_over() {
    const K: u64 = 200;
    for (scheme, coefficients) in [
        (SchemeId::Dense, K * K),
        (SchemeId::Rlnc, K * K),
        (SchemeId::RaptorQ, 0),
    ] {
        for way in ["ended", "given up"] {
            let mut pair = Pair::new(ChannelKind::Stream, scheme, Reliability::Reliable);
            let room = pair.credit.reserved() / 4;
            let len = 256 * K;
            let symbol = SymbolIn {
                scheme,
                offset: 0,
                block_len: len,
                esi: 3,
                len: 256,
                data: &[1; 256],
            };
            let received = pair.recv.on_symbol(&symbol, &mut pair.credit);
            assert_eq!(received, Ok(Received::Progress));
            let spec = block_spec(scheme, pair.id.0, 0, len, 256).expect("good");
            let decoder = dfcp_fec::scheme(scheme).decoder(spec, Vec::new());
            let memory = decoder.expect("good").memory() as u64;
            let excess = (memory + coefficients).saturating_sub(charge(len));
            assert!(excess > 0 || coefficients == 0, "{scheme:?}");
            assert!(pair.credit.has_room_beside(room - excess), "{scheme:?}");
            assert!(!pair.credit.has_room_beside(room - excess + 1));
            match way {
                "ended" => pair
                    .recv
                    .end(crate::VarInt::from_u32(1), None, &mut pair.credit),
                _ => assert_eq!(skip(&mut pair, 0, len, charge(len)), Ok(true)),
            }
            assert!(pair.credit.has_room_beside(room), "{scheme:?} {way}");
        }
    }
}

#[test]
fn a_block_that_finds_no_room_beside_others_has_to_come_again() {
    let mut pair = pair(ChannelKind::Stream);
    let symbol = SymbolIn {
        scheme: SchemeId::Dense,
        offset: 0,
        block_len: 256 * 200,
        esi: 3,
        len: 256,
        data: &[1; 256],
    };
    let others = super::super::Beside {
        excess: pair.credit.reserved() / 4,
        stuck: 0,
    };
    pair.credit.hold(others);
    pair.credit.used += charge(1);
    let used = pair.credit.used;
    let received = pair.recv.on_symbol(&symbol, &mut pair.credit);
    assert_eq!(received, Ok(Received::Redundant));
    assert_eq!(pair.credit.used, used, "nothing was taken of the credit");
    pair.credit.let_go(others);
    let received = pair.recv.on_symbol(&symbol, &mut pair.credit);
    assert_eq!(received, Ok(Received::Progress));

    // It would wait for ever if nothing else were there to go.
    let mut alone = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    alone.credit.hold(others);
    let received = alone.recv.on_symbol(&symbol, &mut alone.credit);
    assert_eq!(received, Ok(Received::Progress));
}
