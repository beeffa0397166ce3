//! What a sender makes of reports and losses, and when it has done enough for a block.

use super::*;

/// Bytes of a full block: 16 symbols of 900.
const FULL: u64 = 14_400;

fn pair(scheme: SchemeId, reliability: Reliability) -> Pair {
    Pair::new(ChannelKind::Stream, scheme, reliability)
}

/// Blocks of one symbol each.
fn single(reliability: Reliability) -> Pair {
    let mut pair = pair(SchemeId::Arq, reliability);
    pair.cut.k = 1;
    pair
}

/// Sends all that may leave, by number of its block.
fn send(pair: &mut Pair) -> Vec<u64> {
    let mut blocks = Vec::new();
    while let Some((symbol, _)) = pair.next() {
        blocks.push(symbol.offset / FULL);
        assert!(blocks.len() < 1000, "it goes on for ever");
    }
    blocks
}

fn settle(pair: &mut Pair, offset: u64, symbols: usize, arrived: bool) {
    let policy = pair.policy();
    for _ in 0..symbols {
        pair.send.on_settled(offset, arrived, false, policy);
    }
}

#[test]
fn a_receiver_cannot_lack_less_than_was_never_sent() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    pair.write(&bytes(FULL as usize));
    for _ in 0..3 {
        pair.next().expect("it is there");
    }
    assert!(pair.send.is_plausible(0, 13) && !pair.send.is_plausible(0, 12));
    assert!(pair.send.is_plausible(FULL, 0), "nothing is known of that");
    send(&mut pair);
    assert!(pair.send.is_plausible(0, 0));
}

#[test]
fn a_receiver_that_asks_for_much_gets_a_block_and_a_little() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    pair.write(&bytes(FULL as usize));
    assert_eq!(send(&mut pair), [0; 16]);
    settle(&mut pair, 0, 16, false);
    let policy = pair.policy();
    assert_eq!(pair.send.on_report(0, 5, policy), 0);
    assert_eq!(send(&mut pair), [0; 5]);
    settle(&mut pair, 0, 5, false);
    pair.send.on_report(0, u32::MAX, policy);
    assert_eq!(send(&mut pair), [0; 24]);
}

#[test]
fn what_was_written_off_is_not_counted_on_twice() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    pair.write(&bytes(FULL as usize));
    assert_eq!(send(&mut pair), [0; 16]);
    let policy = pair.policy();
    for arrived in [false, true] {
        pair.send.on_settled(0, arrived, true, policy);
    }
    assert!(send(&mut pair).is_empty(), "as many are on their way");
    settle(&mut pair, 0, 2, false);
    // One was needed less: it arrived after all.
    assert_eq!(send(&mut pair), [0]);
}

#[test]
fn blocks_go_as_they_are_reported_complete_and_none_before_it_began() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    pair.write(&bytes(5 * FULL as usize));
    pair.send.allow(3);
    assert_eq!(send(&mut pair).len(), 48);
    let policy = pair.policy();
    assert_eq!(
        pair.send.on_report(3 * FULL, 0, policy),
        0,
        "nothing was sent"
    );
    assert_eq!(pair.send.on_done_within(3 * FULL..5 * FULL), 0);
    let since = |pair: &Pair| [0, 1, 2, 3, 4].map(|n| pair.send.begun_since(n * FULL));
    assert_eq!(since(&pair), [Some(3), Some(2), Some(1), Some(0), None]);
    assert_eq!(pair.send.on_report(FULL, 0, policy), FULL);
    assert_eq!(pair.send.on_report(FULL, 0, policy), 0, "once");
    assert_eq!(since(&pair), [Some(3), Some(1), Some(1), Some(0), None]);
    assert_eq!(pair.send.on_done_below(FULL), FULL);
    assert_eq!(since(&pair), [Some(1), Some(1), Some(1), Some(0), None]);
    assert_eq!(pair.send.open_blocks(), 1);
    // What it says beyond what was begun changes nothing.
    assert_eq!(pair.send.on_done_below(u64::MAX), FULL);
    assert_eq!(pair.send.unsent_bytes(), 2 * FULL);
    pair.send.allow(u64::MAX);
    assert_eq!(send(&mut pair).len(), 32);
    let took = pair.send.take_acked();
    assert_eq!(took.len(), 3);
    assert!(pair.send.take_acked().is_empty(), "each once");
}

#[test]
fn a_probe_is_of_the_first_block_that_may_send_whether_it_lacks_something_or_not() {
    let mut pair = pair(SchemeId::Dense, Reliability::Retransmissions(1));
    pair.write(&bytes(2 * FULL as usize));
    assert_eq!(pair.send.probe(), None);
    pair.send.allow(1);
    assert_eq!(send(&mut pair), [0; 16]);
    let esi = |pair: &Pair| pair.send.probe().map(|probe| (probe.offset, probe.esi));
    assert_eq!(esi(&pair), Some((0, 16)));
    pair.send.allow(1);
    assert_eq!(send(&mut pair), [1; 16]);
    // Of the first block all that may be sent was sent.
    settle(&mut pair, 0, 16, false);
    assert_eq!(send(&mut pair), [0; 16]);
    assert_eq!(esi(&pair), Some((FULL, 16)));
}

#[test]
fn a_message_goes_as_often_as_it_may_and_is_given_up_then() {
    let mut pair = single(Reliability::Retransmissions(2));
    pair.write(&bytes(900));
    for _ in 0..3 {
        assert_eq!(send(&mut pair), [0]);
        assert_eq!(
            pair.send.give_up(START),
            GivenUp::default(),
            "it may arrive"
        );
        settle(&mut pair, 0, 1, false);
    }
    assert!(send(&mut pair).is_empty());
    let expected = GivenUp {
        freed: 900,
        blocks: 1,
        unsent: 0,
        bytes: 900,
    };
    assert_eq!(pair.send.give_up(START), expected);
    assert_eq!((pair.send.open_blocks(), pair.send.given_up()), (0, 900));
    let skips = pair.send.tell_skips();
    assert_eq!(skips.len(), 1);
    assert_eq!((skips[0].offset, skips[0].charged), (0, charge(900)));
}

#[test]
fn a_message_that_arrived_is_not_given_up_though_no_report_says_so() {
    let mut pair = single(Reliability::Unreliable);
    pair.write(&bytes(1800));
    assert_eq!(send(&mut pair).len(), 2);
    settle(&mut pair, 0, 1, true);
    settle(&mut pair, 900, 1, false);
    let expected = GivenUp {
        freed: 1800,
        blocks: 1,
        unsent: 0,
        bytes: 900,
    };
    assert_eq!(pair.send.give_up(START), expected);
    assert_eq!(pair.send.tell_skips()[0].offset, 900);
}

#[test]
fn a_block_that_falls_short_though_all_arrived_is_given_up_when_it_is_said() {
    // Of codes whose blocks may need more than K symbols.
    let mut pair = pair(SchemeId::RaptorQ, Reliability::Unreliable);
    pair.write(&bytes(FULL as usize));
    assert_eq!(send(&mut pair), [0; 16]);
    settle(&mut pair, 0, 16, true);
    assert_eq!(pair.send.give_up(START), GivenUp::default());
    let policy = pair.policy();
    pair.send.on_report(0, 1, policy);
    let given_up = pair.send.give_up(START);
    assert_eq!((given_up.blocks, given_up.bytes), (1, FULL));

    // One that lacks some before the rest has arrived does not fall short yet.
    pair.write(&bytes(FULL as usize));
    assert_eq!(send(&mut pair), [1; 16]);
    settle(&mut pair, FULL, 10, true);
    pair.send.on_report(FULL, 6, policy);
    assert_eq!(pair.send.give_up(START), GivenUp::default());
    settle(&mut pair, FULL, 5, true);
    assert_eq!(pair.send.give_up(START), GivenUp::default());
    settle(&mut pair, FULL, 1, false);
    assert_eq!(pair.send.give_up(START).blocks, 1);
}

#[test]
fn what_is_too_old_gets_nothing_more_but_may_still_arrive() {
    let age = Duration::from_secs(1);
    let mut pair = pair(SchemeId::Dense, Reliability::Deadline(age));
    pair.write(&bytes(FULL as usize));
    assert_eq!(send(&mut pair), [0; 16]);
    pair.now += Duration::from_millis(500);
    pair.write(&bytes(FULL as usize + 100));
    assert_eq!(pair.send.next_expiry(), Some(START + age));
    assert_eq!(pair.send.give_up(START + age), GivenUp::default());
    assert_eq!(pair.send.next_expiry(), Some(pair.now + age));
    assert!(pair.next().is_some_and(|(symbol, _)| symbol.offset == FULL));
    let later = pair.now + age;
    settle(&mut pair, 0, 1, false);
    let given_up = pair.send.give_up(START + age);
    assert_eq!(
        (given_up.blocks, given_up.unsent),
        (1, 0),
        "it cannot arrive"
    );
    assert_eq!(pair.send.unsent_bytes(), 100, "what has not begun");
    // Of what comes later one block has begun and lacks nearly all; the rest is a block by now or none.
    settle(&mut pair, FULL, 1, true);
    let given_up = pair.send.give_up(later);
    assert_eq!((given_up.bytes, given_up.unsent), (FULL + 100, 1));
    assert_eq!(
        (pair.send.next_expiry(), pair.send.unsent_bytes()),
        (None, 0)
    );
    assert_eq!(pair.send.size(), 2 * FULL + 100);
    assert_eq!(pair.send.give_up(later + age), GivenUp::default(), "once");
    let told: Vec<_> = pair
        .send
        .tell_skips()
        .iter()
        .map(|s| (s.offset, s.len))
        .collect();
    assert_eq!(told, [(0, FULL), (FULL, FULL), (2 * FULL, 100)]);
    // What follows is as old as it is.
    pair.write(&bytes(100));
    assert_eq!(pair.send.next_expiry(), Some(pair.now + age));
}

#[test]
fn a_write_takes_what_there_is_room_for() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    let (cut, data) = (pair.cut, bytes(40_000));
    let mut write = |source, room| {
        let taken = pair.send.write(
            START,
            source,
            room,
            &mut cutter(&cut, &mut Buffers::default()),
        );
        (taken.expect("good blocks"), pair.send.size())
    };
    assert_eq!(write(Source::Bytes(&data), 30_000), (30_000, 30_000));
    assert_eq!(write(Source::Bytes(&data[30_000..]), 0), (0, 30_000));
    assert_eq!(
        write(Source::Bytes(&data[30_000..]), 99_999),
        (10_000, 40_000)
    );
    pair.send.finish();
    let mut got = vec![0; 40_000];
    while pair.recv.report().0 < 40_000 {
        pair.round(|_| false);
    }
    assert_eq!(pair.recv.read(&mut got, &mut pair.credit), 40_000);
    assert!(got == data);
}

#[test]
fn virtual_payload_is_counted_like_bytes() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    let config = TransportConfig {
        payload: Payload::Virtual,
        ..TransportConfig::default()
    };
    pair.cut.payload = Payload::Virtual;
    pair.recv = RecvChannel::new(pair.id, &config);
    let cut = pair.cut;
    for part in [100, 20_000, 9_900] {
        let taken = pair.send.write(
            START,
            Source::Length(part),
            u64::MAX,
            &mut cutter(&cut, &mut Buffers::default()),
        );
        assert_eq!(taken.expect("good blocks"), part);
    }
    assert_eq!(pair.send.unsent_bytes(), 30_000);
    let policy = pair.policy();
    let mut symbols = 0;
    while let Some(symbol) = pair
        .send
        .next_repair(policy, START, Duration::ZERO)
        .or_else(|| {
            let new = pair
                .send
                .next_new(&mut cutter(&cut, &mut Buffers::default()), u64::MAX);
            new.expect("a good block")
        })
    {
        let mut out = Vec::new();
        let written = pair.send.write_symbol(START, &symbol, &mut out, policy);
        written.expect("a good symbol");
        assert!(out.is_empty());
        pair.arrive(&symbol, &out).expect("honest");
        symbols += 1;
    }
    // Two full blocks, and 1200 bytes in two symbols.
    assert_eq!((symbols, pair.send.unsent_bytes()), (34, 0));
    assert_eq!(pair.recv.skip(usize::MAX, &mut pair.credit), 30_000);
    assert_eq!(pair.credit.used, pair.credit.freed);
}

#[test]
fn a_channel_is_acknowledged_when_all_of_it_is_and_its_end() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    assert!(!pair.send.is_active() && !pair.send.is_finished());
    pair.write(&bytes(100));
    assert!(pair.send.is_active(), "a stream sends what it has");
    pair.send.fin_acked = true;
    assert!(!pair.send.is_acknowledged());
    pair.send.finish();
    assert!(pair.send.is_finished() && !pair.send.is_abandoned());
    assert!(!pair.send.is_acknowledged(), "nothing was sent");
    assert_eq!(send(&mut pair), [0]);
    assert!(!pair.send.is_acknowledged(), "nobody has it");
    pair.send.on_done_below(100);
    pair.send.fin_acked = false;
    assert!(!pair.send.is_acknowledged(), "it may go on");
    pair.send.fin_acked = true;
    assert!(pair.send.is_acknowledged());
}

#[test]
fn an_abandoned_channel_frees_all_that_was_written() {
    let mut pair = pair(SchemeId::Dense, Reliability::Reliable);
    pair.write(&bytes(2 * FULL as usize + 100));
    pair.next().expect("it is there");
    assert_eq!(pair.send.abandon(), 2 * FULL + 100);
    assert!(pair.send.is_abandoned() && !pair.send.is_active());
    assert!(pair.next().is_none());
}

#[test]
fn what_is_withheld_of_a_window_cuts_a_block_to_what_may_leave() {
    // Blocks of ARQ are packets, and smaller than a piece.
    for scheme in [SchemeId::Dense, SchemeId::RaptorQ, SchemeId::Rlnc] {
        let mut pair = pair(scheme, Reliability::Reliable);
        let data = bytes(3 * FULL as usize);
        pair.write(&data);
        pair.send.finish();
        let (mut got, mut buffer) = (Vec::new(), [0; 3000]);
        // Less than a kilobyte is no piece.
        for (may_leave, leaves) in [
            (FULL + 5000, FULL + 5000),
            (FULL + 5500, FULL + 5000),
            (LIMIT, 3 * FULL),
        ] {
            pair.send.withhold(LIMIT - may_leave);
            pair.round(|_| false);
            loop {
                let n = pair.recv.read(&mut buffer, &mut pair.credit);
                got.extend_from_slice(&buffer[..n]);
                if n == 0 {
                    break;
                }
            }
            assert_eq!(got.len() as u64, leaves, "{scheme:?}, {may_leave}");
        }
        assert!(got == data, "{scheme:?}");
    }
}

#[test]
fn blocks_cut_for_a_faster_path_are_cut_again_before_they_begin() {
    for kind in [ChannelKind::Stream, ChannelKind::Object] {
        let mut pair = Pair::new(kind, SchemeId::Dense, Reliability::Reliable);
        let data = bytes(3 * FULL as usize + 100);
        pair.write(&data);
        pair.send.finish();
        let first = pair.next().expect("a first symbol").0;
        pair.cut.k = 4;
        let mut lengths = vec![first.block_len];
        while let Some((symbol, _)) = pair.next() {
            if lengths.len() < pair.send.open_blocks() {
                lengths.push(symbol.block_len);
            }
        }
        // The first had begun; the last is no full one.
        let quarters = vec![FULL / 4; 8];
        assert_eq!(
            lengths,
            [vec![FULL], quarters, vec![100]].concat(),
            "{kind:?}"
        );
    }
}
