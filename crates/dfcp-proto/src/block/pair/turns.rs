//! Which block gets the next symbol: several in turn where losses come in bursts, and the last one's spare
//! symbols when a burst is over.

use super::*;

/// Bytes of a full block: 16 symbols of 900.
const FULL: usize = 14_400;

/// The last `most` blocks take turns, and what is waited for gets `spare` symbols more than it lacks, of
/// messages each `gap` after the one before.
#[derive(Debug)]
struct InTurn {
    most: usize,
    spare: u32,
    gap: Duration,
}

impl InTurn {
    fn new(most: usize, spare: u32) -> Self {
        let gap = Duration::ZERO;
        Self { most, spare, gap }
    }
}

impl BlockScheduler for InTurn {
    fn deficit(&self, block: &BlockView, _loss: Loss) -> u32 {
        let spare = if block.last { self.spare } else { 0 };
        (block.needed + spare).saturating_sub(block.in_flight)
    }

    fn copy_gap(&self, _block: &BlockView, _loss: Loss) -> Duration {
        self.gap
    }

    fn blocks_in_turn(&self, _loss: Loss) -> usize {
        self.most
    }
}

fn policy(scheduler: &InTurn) -> Policy<'_> {
    Policy {
        scheduler,
        loss: Loss::known(0.0),
        awaits_all: false,
    }
}

fn pair(kind: ChannelKind) -> Pair {
    Pair::new(kind, SchemeId::Dense, Reliability::Reliable)
}

/// The blocks, by number, of all symbols that leave, as a connection picks them when none waits any more.
fn order(pair: &mut Pair, scheduler: &InTurn) -> Vec<u64> {
    let (policy, cut) = (policy(scheduler), pair.cut);
    let size = cut.block_size(pair.id, 0) as u64;
    let mut blocks = Vec::new();
    loop {
        let send = &mut pair.send;
        let new = |send: &mut SendChannel| {
            send.next_new(&mut cutter(&cut, &mut Buffers::default()), u64::MAX)
                .expect("a good block")
        };
        let early = send.begins_early(policy, &cut).then(|| new(send)).flatten();
        let repair = early.or_else(|| send.next_repair(policy, pair.now, Duration::ZERO));
        let Some(symbol) = repair.or_else(|| new(send)) else {
            return blocks;
        };
        let written = send.write_symbol(pair.now, &symbol, &mut Vec::new(), policy);
        written.expect("a good symbol");
        blocks.push(symbol.offset / size);
        assert!(blocks.len() < 1000, "it goes on for ever");
    }
}

/// `blocks`, each `symbols` times in turn.
fn in_turn(blocks: std::ops::Range<u64>, symbols: usize) -> Vec<u64> {
    (0..symbols).flat_map(|_| blocks.clone()).collect()
}

/// `blocks`, one after the other.
fn one_by_one(blocks: std::ops::Range<u64>) -> Vec<u64> {
    blocks.flat_map(|block| [block; 16]).collect()
}

const FOUR: InTurn = InTurn {
    most: 4,
    spare: 0,
    gap: Duration::ZERO,
};

#[test]
fn the_last_blocks_take_turns_where_losses_come_in_bursts() {
    let alone = InTurn::new(1, 0);
    for kind in [ChannelKind::Stream, ChannelKind::Object] {
        let mut three = pair(kind);
        three.write(&bytes(3 * FULL));
        three.send.finish();
        assert_eq!(order(&mut three, &FOUR), in_turn(0..3, 16));

        let mut three = pair(kind);
        three.write(&bytes(3 * FULL));
        three.send.finish();
        assert_eq!(order(&mut three, &alone), one_by_one(0..3));
    }
    let mut eight = pair(ChannelKind::Stream);
    eight.write(&bytes(8 * FULL));
    let expected = [one_by_one(0..4), in_turn(4..8, 16)].concat();
    assert_eq!(order(&mut eight, &FOUR), expected, "the last four only");

    let mut goes_on = pair(ChannelKind::Object);
    goes_on.write(&bytes(3 * FULL));
    assert_eq!(order(&mut goes_on, &FOUR), one_by_one(0..3), "more follow");
}

#[test]
fn what_is_left_of_a_stream_takes_its_turn_too() {
    let mut pair = pair(ChannelKind::Stream);
    pair.write(&bytes(2 * FULL + 2700));
    let expected = [in_turn(0..3, 3), in_turn(0..2, 13)].concat();
    assert_eq!(order(&mut pair, &FOUR), expected);
}

#[test]
fn nothing_begins_early_behind_a_message() {
    for len in [FULL / 2 - 1, FULL / 2] {
        let mut pair = pair(ChannelKind::Stream);
        let policy = policy(&FOUR);
        pair.write(&bytes(len));
        assert!(
            !pair.send.begins_early(policy, &pair.cut),
            "nothing is open"
        );
        let first = pair
            .send
            .next_new(&mut cutter(&pair.cut, &mut Buffers::default()), u64::MAX);
        let first = first.expect("a good block").expect("what there is");
        let written = pair
            .send
            .write_symbol(START, &first, &mut Vec::new(), policy);
        written.expect("a good symbol");
        pair.write(&bytes(FULL));
        let early = pair.send.begins_early(policy, &pair.cut);
        assert_eq!(early, len >= FULL / 2, "{len}");
    }
}

#[test]
fn what_was_lost_comes_before_new_blocks_begin() {
    let mut pair = pair(ChannelKind::Stream);
    pair.write(&bytes(FULL));
    assert_eq!(order(&mut pair, &FOUR), [0; 16]);
    for _ in 0..2 {
        pair.send.on_settled(0, false, false, policy(&FOUR));
    }
    pair.write(&bytes(2 * FULL));
    let expected = [vec![0, 0], in_turn(1..3, 16)].concat();
    assert_eq!(order(&mut pair, &FOUR), expected);
    // Repairs do not take turns: the first block is the first that is read.
    for block in [0, 0, 1, 1, 2, 2] {
        let offset = block * FULL as u64;
        pair.send.on_settled(offset, false, false, policy(&FOUR));
    }
    assert_eq!(order(&mut pair, &FOUR), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn what_was_lost_comes_before_the_first_symbols_of_later_blocks() {
    let mut pair = pair(ChannelKind::Stream);
    let (policy, cut) = (policy(&FOUR), pair.cut);
    pair.write(&bytes(3 * FULL));
    for block in [0; 16].into_iter().chain([1, 2]) {
        let lowest = pair.send.next_repair(policy, START, Duration::ZERO);
        let symbol = lowest.filter(|_| block == 0).or_else(|| {
            let new = pair
                .send
                .next_new(&mut cutter(&cut, &mut Buffers::default()), u64::MAX);
            new.expect("a good block")
        });
        let symbol = symbol.expect("it waits");
        assert_eq!(symbol.offset, block * FULL as u64);
        let written = pair
            .send
            .write_symbol(START, &symbol, &mut Vec::new(), policy);
        written.expect("a good symbol");
    }
    for _ in 0..2 {
        pair.send.on_settled(0, false, false, policy);
    }
    let expected = [vec![0, 0], in_turn(1..3, 15)].concat();
    assert_eq!(order(&mut pair, &FOUR), expected);
}

#[test]
fn spare_symbols_of_the_newest_block_wait_for_the_end_of_a_burst() {
    let spare = InTurn::new(1, 2);
    let policy = policy(&spare);
    let mut pair = pair(ChannelKind::Stream);
    pair.write(&bytes(2 * FULL));
    let (hold, none) = (Duration::from_millis(1), Duration::ZERO);
    let repairs = |pair: &mut Pair, hold| {
        let mut blocks = Vec::new();
        while let Some(symbol) = pair.send.next_repair(policy, START, hold) {
            let written = pair
                .send
                .write_symbol(START, &symbol, &mut Vec::new(), policy);
            written.expect("a good symbol");
            blocks.push(symbol.offset / FULL as u64);
        }
        blocks
    };
    let begin = |pair: &mut Pair| {
        let new = pair
            .send
            .next_new(&mut cutter(&pair.cut, &mut Buffers::default()), u64::MAX);
        let symbol = new.expect("a good block").expect("it waits");
        let written = pair
            .send
            .write_symbol(START, &symbol, &mut Vec::new(), policy);
        written.expect("a good symbol");
    };
    begin(&mut pair);
    assert_eq!(repairs(&mut pair, hold), [0; 15], "another one follows");
    assert_eq!(pair.send.waits_until(START, hold), None);
    begin(&mut pair);
    // Now the first one is waited for too, and began long enough ago.
    assert_eq!(repairs(&mut pair, hold), [&[0; 2][..], &[1; 15]].concat());
    assert_eq!(pair.send.waits_until(START, hold), Some(START + hold));
    assert_eq!(pair.send.waits_until(START, none), None);
    // What is known to be lost does not wait.
    pair.send.on_settled(FULL as u64, false, false, policy);
    assert_eq!(repairs(&mut pair, hold), [1]);
    assert_eq!(repairs(&mut pair, none), [1, 1]);
    assert_eq!(pair.send.waits_until(START, hold), None, "nothing is left");
}

/// One block of a message leaves in its first symbol.
fn say(pair: &mut Pair, policy: Policy<'_>, now: Instant) {
    pair.write(&bytes(100));
    let mut buffers = Buffers::default();
    let new = pair
        .send
        .next_new(&mut cutter(&pair.cut, &mut buffers), u64::MAX);
    let symbol = new.expect("a good block").expect("it waits");
    let written = pair
        .send
        .write_symbol(now, &symbol, &mut Vec::new(), policy);
    written.expect("a good symbol");
}

/// Of which messages, by number, copies leave, until none waits any more.
fn copies(pair: &mut Pair, policy: Policy<'_>, now: Instant) -> Vec<u64> {
    let mut blocks = Vec::new();
    while let Some(symbol) = pair.send.next_repair(policy, now, Duration::ZERO) {
        let written = pair
            .send
            .write_symbol(now, &symbol, &mut Vec::new(), policy);
        written.expect("a good symbol");
        blocks.push(symbol.offset / 100);
    }
    blocks
}

fn at(ms: u64) -> Instant {
    START + Duration::from_millis(ms)
}

/// When the next copy leaves, as somebody asks then.
fn next_due(pair: &Pair, ms: u64) -> Option<Instant> {
    pair.send.waits_until(at(ms), Duration::ZERO)
}

const APART: InTurn = InTurn {
    most: 1,
    spare: 2,
    gap: Duration::from_millis(10),
};

#[test]
fn each_copy_of_a_message_leaves_a_gap_after_the_one_before() {
    let policy = policy(&APART);
    let mut pair = pair(ChannelKind::Stream);
    say(&mut pair, policy, START);
    assert!(copies(&mut pair, policy, at(9)).is_empty());
    assert_eq!(next_due(&pair, 9), Some(at(10)));
    // It was asked late: the one after waits from then on.
    assert_eq!(copies(&mut pair, policy, at(12)), [0], "not all at once");
    assert_eq!(next_due(&pair, 12), Some(at(22)));
    assert_eq!(copies(&mut pair, policy, at(22)), [0]);
    assert_eq!(next_due(&pair, 22), None, "there are enough");
}

#[test]
fn no_copy_leaves_of_a_message_that_is_known_to_have_arrived() {
    let policy = policy(&APART);
    let mut pair = pair(ChannelKind::Stream);
    say(&mut pair, policy, START);
    say(&mut pair, policy, at(5));
    assert_eq!(copies(&mut pair, policy, at(10)), [0]);
    pair.send.on_report(0, 0, policy);
    assert_eq!(next_due(&pair, 10), Some(at(15)));
    assert_eq!(copies(&mut pair, policy, at(40)), [1]);
    pair.send.on_report(100, 0, policy);
    assert_eq!(next_due(&pair, 40), None);
    assert!(copies(&mut pair, policy, at(80)).is_empty());
}

#[test]
fn messages_that_follow_each_other_within_a_burst_keep_their_copies() {
    let policy = policy(&APART);
    let mut pair = pair(ChannelKind::Stream);
    for n in 0..3 {
        say(&mut pair, policy, at(4 * n));
        assert!(
            copies(&mut pair, policy, at(4 * n)).is_empty(),
            "a burst may go on"
        );
        assert_eq!(next_due(&pair, 4 * n), Some(at(10)));
    }
    // Each waits for itself; of those that need not wait any more, the newest goes first.
    assert_eq!(copies(&mut pair, policy, at(10)), [0]);
    assert_eq!(next_due(&pair, 10), Some(at(14)));
    assert_eq!(copies(&mut pair, policy, at(18)), [2, 1]);
    assert_eq!(copies(&mut pair, policy, at(28)), [2, 1, 0]);
    assert_eq!(next_due(&pair, 28), None);
}

#[test]
fn a_message_does_not_wait_for_copies_of_those_before() {
    let spare = InTurn::new(1, 2);
    let policy = policy(&spare);
    let mut pair = pair(ChannelKind::Stream);
    say(&mut pair, policy, START);
    assert!(pair.send.has_hungry());
    pair.write(&bytes(100));
    assert!(pair.send.begins_early(policy, &pair.cut));
    say(&mut pair, policy, START);
    // What is known to be lost goes before all.
    pair.send.on_settled(0, false, false, policy);
    assert!(!pair.send.begins_early(policy, &pair.cut));
    assert_eq!(copies(&mut pair, policy, START)[0], 0);
}

#[test]
fn an_end_makes_blocks_waited_for_that_were_not() {
    let spare = InTurn::new(1, 2);
    let mut pair = pair(ChannelKind::Object);
    pair.write(&bytes(2 * FULL));
    assert_eq!(order(&mut pair, &spare), one_by_one(0..2));
    pair.send.finish();
    assert!(!pair.send.is_active());
    pair.send.refresh_all(policy(&spare));
    assert!(pair.send.is_active());
    assert_eq!(order(&mut pair, &spare), [0, 0, 1, 1]);

    // Of blocks of one symbol only the last: all that is in flight would go twice.
    let mut single = pair_of_single_symbols();
    single.write(&bytes(2700));
    assert_eq!(order(&mut single, &spare), [0, 1, 2, 2, 2]);
}

fn pair_of_single_symbols() -> Pair {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Arq, Reliability::Reliable);
    pair.cut.k = 1;
    pair
}
