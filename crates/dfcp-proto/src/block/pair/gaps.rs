//! What a sender gives up, and the credit that comes back of it.

use super::*;

#[test]
fn what_is_lost_unreliably_is_a_gap_and_costs_no_credit_in_the_end() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Arq, Reliability::Unreliable);
    let data = bytes(9500);
    pair.write(&data);
    pair.send.finish();
    pair.round(|n| n == 2 || n == 3 || n == 7);
    let given_up = pair.send.give_up(pair.now);
    assert_eq!((given_up.blocks, given_up.unsent), (3, 0));
    assert_eq!(given_up.bytes, pair.send.given_up());
    assert!(pair.send.has_untold_skips());
    let skips = pair.send.tell_skips();
    assert_eq!(
        skips.iter().map(|skip| skip.len).sum::<u64>(),
        given_up.bytes
    );
    for skip in &skips {
        assert_eq!(pair.recv.on_skip(skip, &mut pair.credit), Ok(true));
        assert_eq!(
            pair.recv.on_skip(skip, &mut pair.credit),
            Ok(false),
            "again"
        );
        assert!(!pair.send.is_acknowledged());
    }
    skips.iter().for_each(|_| pair.send.on_skip_acked());
    pair.report();
    pair.send.fin_acked = true;
    assert!(!pair.send.has_untold_skips() && pair.send.is_acknowledged());
    pair.recv.on_fin(9500).expect("its size");
    assert!(pair.recv.is_complete() && !pair.recv.is_drained());
    assert_eq!(pair.recv.missing(), given_up.bytes);
    let (mut at, mut gaps, mut buffer) = (0, 0, [0; 400]);
    while !pair.recv.is_drained() {
        let n = pair.recv.read(&mut buffer, &mut pair.credit);
        assert!(buffer[..n] == data[at..at + n]);
        at += n;
        if n == 0 {
            let gap = pair.recv.read_gap(&mut pair.credit).expect("or bytes");
            (at, gaps) = (at + gap as usize, gaps + gap);
        }
    }
    assert_eq!((at, gaps), (9500, given_up.bytes));
    assert_eq!(pair.credit.used, pair.credit.freed);
    assert_eq!(pair.credit.used, 9500 + 11 * BLOCK_OVERHEAD);
    assert_eq!(pair.credit.ranges, 0);
}

#[test]
fn what_is_too_old_is_given_up_sent_or_not() {
    let age = Duration::from_secs(1);
    let mut pair = Pair::new(
        ChannelKind::Stream,
        SchemeId::Dense,
        Reliability::Deadline(age),
    );
    assert_eq!(pair.send.next_expiry(), None);
    pair.write(&[1; 30_000]);
    assert_eq!(pair.send.next_expiry(), Some(START + age));
    let (first, data) = pair.next().expect("it is there");
    pair.arrive(&first, &data).expect("honest");
    let soon = START + Duration::from_millis(999);
    assert_eq!(pair.send.give_up(soon), GivenUp::default());
    let policy = pair.policy();
    pair.send.on_settled(first.offset, true, false, policy);
    let given_up = pair.send.give_up(START + age);
    assert_eq!((given_up.bytes, given_up.freed), (30_000, 30_000));
    assert_eq!(
        (pair.send.unsent_bytes(), pair.send.next_expiry()),
        (0, None)
    );
    assert!(!pair.send.is_active());
    let skips = pair.send.tell_skips();
    // The block that was begun, and in one what was not.
    let charged: Vec<u64> = skips.iter().map(|skip| skip.charged).collect();
    assert_eq!(charged, [charge(first.block_len), 0]);
    let bad = |change: fn(&mut Skip)| {
        let mut skip = skips[0];
        change(&mut skip);
        skip
    };
    for wrong in [
        bad(|skip| skip.charged = 0),
        bad(|skip| skip.charged += 1),
        bad(|skip| skip.offset += 1),
        bad(|skip| skip.len = 0),
        bad(|skip| skip.offset = 1 << 60),
        bad(|skip| skip.offset = u64::MAX),
    ] {
        let refused = pair.recv.on_skip(&wrong, &mut pair.credit);
        assert_eq!(refused, Err(CloseCode::PROTOCOL), "{wrong:?}");
    }
    for skip in &skips {
        assert_eq!(pair.recv.on_skip(skip, &mut pair.credit), Ok(true));
    }
    assert_eq!(pair.credit.used, pair.credit.freed);
    let beyond = Skip {
        offset: 30_000,
        len: 1000,
        charged: charge(1000),
    };
    pair.credit.granted = pair.credit.used + charge(1000) - 1;
    let refused = pair.recv.on_skip(&beyond, &mut pair.credit);
    assert_eq!(refused, Err(CloseCode::FLOW_CONTROL));
    pair.credit.granted += 1;
    assert_eq!(pair.recv.on_skip(&beyond, &mut pair.credit), Ok(true));
    assert_eq!(pair.recv.read_gap(&mut pair.credit), Some(31_000));
}

#[test]
fn blocks_that_end_early_give_their_credit_back() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    pair.write(&bytes(40_000));
    for n in 0..20 {
        let (symbol, data) = pair.next().expect("it is there");
        if n < 16 && n % 2 == 0 {
            pair.arrive(&symbol, &data).expect("honest");
        }
    }
    let code = crate::VarInt::from_u32(7);
    pair.recv.end(code, None, &mut pair.credit);
    assert_eq!(
        (pair.recv.ended(), pair.recv.is_settled()),
        (Some(code), false)
    );
    assert_eq!(pair.credit.used, pair.credit.freed);
    // What the peer says it used for blocks that did not show up.
    let charged = pair.send.charged();
    pair.recv.end(code, Some(charged), &mut pair.credit);
    assert!(pair.recv.is_settled());
    assert_eq!((pair.credit.used, pair.credit.freed), (charged, charged));
    let (symbol, data) = pair.next().expect("it is there");
    assert_eq!(pair.arrive(&symbol, &data), Ok(Received::Redundant));
}
