//! Both halves of a channel against each other, with nothing between them but losses.

mod gaps;
mod receiver;
mod sender;
mod settled;
mod turns;
mod windows;

use super::credit::MemoryBudget;
use super::*;
use crate::config::{Payload, TransportConfig};
use crate::connection::CloseCode;
use crate::packet::Loss;
use crate::scheduler::{BlockScheduler, BlockView, Policy};
use crate::time::{Duration, Instant};

const START: Instant = Instant::from_nanos(1_000_000_000);
/// Of what the pair crosses.
const ROUND_TRIP: Duration = Duration::from_millis(50);
const LIMIT: u64 = 1 << 20;

/// What is missing goes again, and nothing ahead of need.
#[derive(Debug)]
struct Repeat;

impl BlockScheduler for Repeat {
    fn deficit(&self, block: &BlockView, _loss: Loss) -> u32 {
        block.needed.saturating_sub(block.in_flight)
    }
}

/// Blocks are cut so.
fn cutter<'a>(cut: &'a Cut, buffers: &'a mut Buffers) -> Cutter<'a> {
    Cutter { cut, buffers }
}

struct Pair {
    id: ChannelId,
    send: SendChannel,
    recv: RecvChannel,
    credit: Credit,
    cut: Cut,
    now: Instant,
    /// Symbols that left.
    sent: u64,
}

impl Pair {
    fn new(kind: ChannelKind, scheme: SchemeId, reliability: Reliability) -> Self {
        let id = ChannelId::new(Role::Client, kind, 3);
        let budget = MemoryBudget::new(64 << 20, 1);
        Self {
            id,
            send: SendChannel::new(id, LIMIT, reliability),
            recv: RecvChannel::new(id, &TransportConfig::default()),
            credit: Credit::new(16 << 20, budget),
            cut: Cut {
                scheme,
                k: 16,
                room: 1000,
                max_symbol: 900,
                payload: Payload::Real,
            },
            now: START,
            sent: 0,
        }
    }

    fn policy(&self) -> Policy<'static> {
        Policy {
            scheduler: &Repeat,
            loss: Loss::known(0.0),
            awaits_all: false,
        }
    }

    fn write(&mut self, data: &[u8]) {
        let taken = self.send.write(
            self.now,
            Source::Bytes(data),
            u64::MAX,
            &mut cutter(&self.cut, &mut Buffers::default()),
        );
        assert_eq!(taken.expect("good blocks"), data.len() as u64);
    }

    /// The next symbol and its bytes.
    fn next(&mut self) -> Option<(SymbolOut, Vec<u8>)> {
        let policy = self.policy();
        let left = self.credit.granted - self.credit.used;
        let symbol = self
            .send
            .next_repair(policy, self.now, Duration::ZERO)
            .or_else(|| {
                let new = self
                    .send
                    .next_new(&mut cutter(&self.cut, &mut Buffers::default()), left);
                new.expect("a good block")
            })?;
        let mut data = Vec::new();
        let written = self.send.write_symbol(self.now, &symbol, &mut data, policy);
        written.expect("a good symbol");
        assert_eq!(data.len(), symbol.symbol_len);
        self.sent += 1;
        Some((symbol, data))
    }

    fn arrive(&mut self, symbol: &SymbolOut, data: &[u8]) -> Result<Received, CloseCode> {
        let symbol = SymbolIn {
            scheme: symbol.scheme,
            offset: symbol.offset,
            block_len: symbol.block_len,
            esi: symbol.esi,
            len: symbol.symbol_len,
            data,
        };
        let received = self.recv.on_symbol(&symbol, &mut self.credit);
        while let Some(mut job) = self.recv.take_job() {
            job.run();
            self.recv.on_solved(job, &mut self.credit)?;
        }
        received
    }

    /// A block of 300 bytes in one symbol arrives at `offset`.
    fn arrive_short(&mut self, offset: u64) -> Result<Received, CloseCode> {
        let symbol = SymbolIn {
            scheme: SchemeId::Arq,
            offset,
            block_len: 300,
            esi: 0,
            len: 300,
            data: &[1; 300],
        };
        self.recv.on_symbol(&symbol, &mut self.credit)
    }

    /// Sends all that may leave, loses what `is_lost` says by its number, and brings the report.
    fn round(&mut self, is_lost: impl Fn(u64) -> bool) {
        let mut flight = Vec::new();
        while let Some((symbol, data)) = self.next() {
            let arrived = !is_lost(self.sent);
            if arrived {
                self.arrive(&symbol, &data).expect("honest");
            }
            flight.push((symbol.offset, arrived));
            assert!(flight.len() < 10_000, "it goes on for ever");
        }
        let policy = self.policy();
        for (offset, arrived) in flight {
            self.send.on_settled(offset, arrived, false, policy);
        }
        self.report();
        self.now += Duration::from_millis(100);
    }

    fn report(&mut self) -> u64 {
        let policy = self.policy();
        let (below, entries) = self.recv.report();
        let mut freed = self.send.on_done_below(below);
        for (offset, needed) in entries {
            assert!(self.send.is_plausible(offset, needed));
            freed += self.send.on_report(offset, needed, policy);
        }
        freed
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

const EVERY: [SchemeId; 5] = [
    SchemeId::Arq,
    SchemeId::Dense,
    SchemeId::RaptorQ,
    SchemeId::Raptor,
    SchemeId::Rlnc,
];

#[test]
fn a_stream_arrives_in_order_whatever_is_lost_and_all_credit_comes_back() {
    for scheme in EVERY {
        let mut pair = Pair::new(ChannelKind::Stream, scheme, Reliability::Reliable);
        let data = bytes(50_000);
        for part in data.chunks(7000) {
            pair.write(part);
        }
        assert_eq!(pair.send.size(), 50_000);
        assert_eq!(pair.send.unsent_bytes(), 50_000);
        pair.send.finish();
        let (mut got, mut buffer, mut rounds) = (Vec::new(), [0; 3000], 0);
        while !pair.recv.is_complete() {
            pair.round(|n| n % 5 == 3);
            loop {
                let had = pair.recv.readiness();
                let n = pair.recv.read(&mut buffer, &mut pair.credit);
                assert_eq!(n > 0, had > 0, "{scheme:?}");
                got.extend_from_slice(&buffer[..n]);
                if n == 0 {
                    break;
                }
            }
            if pair.recv.final_size().is_none() {
                pair.recv.on_fin(50_000).expect("its size");
            }
            rounds += 1;
            assert!(rounds < 30, "{scheme:?}");
        }
        assert!(got == data, "{scheme:?}");
        assert!(pair.recv.is_drained() && !pair.send.is_acknowledged());
        pair.send.fin_acked = true;
        assert!(pair.send.is_acknowledged(), "{scheme:?}");
        assert_eq!((pair.send.open_blocks(), pair.send.unsent_bytes()), (0, 0));
        // 56 symbols and a few of the last ones of blocks; a fifth is lost.
        assert!((56..110).contains(&pair.sent), "{scheme:?}: {}", pair.sent);
        let (used, freed) = (pair.credit.used, pair.credit.freed);
        assert_eq!((used, freed), (pair.send.charged(), used), "{scheme:?}");
        let took = pair.send.take_acked();
        assert_eq!(used, 50_000 + took.len() as u64 * BLOCK_OVERHEAD);
        assert_eq!(pair.credit.ranges, 0);
    }
}

#[test]
fn an_object_arrives_in_any_order_and_waits_for_full_blocks() {
    for scheme in EVERY {
        let mut pair = Pair::new(ChannelKind::Object, scheme, Reliability::Reliable);
        let data = bytes(40_000);
        pair.write(&data[..500]);
        assert!(!pair.send.is_active() && pair.next().is_none(), "no block");
        pair.write(&data[500..]);
        assert!(pair.send.is_active());
        pair.round(|n| n % 3 == 1);
        pair.send.finish();
        let mut got = vec![0; data.len()];
        for _ in 0..30 {
            pair.round(|n| n % 3 == 1);
            while let Some((at, len, block)) = pair.recv.take_block(&mut pair.credit) {
                assert_eq!(len, block.len() as u64);
                got[at as usize..][..block.len()].copy_from_slice(&block);
                pair.credit.freed += charge(len);
            }
        }
        assert!(got == data, "{scheme:?}");
        assert_eq!(pair.send.open_blocks(), 0);
        assert_eq!(pair.credit.used, pair.credit.freed);
        assert_eq!(pair.recv.final_size(), None);
        pair.recv.on_fin(40_000).expect("its size");
        assert!(pair.recv.is_drained(), "{scheme:?}");
        assert!(!pair.send.is_active() && pair.next().is_none());
    }
}

#[test]
fn a_block_begins_when_credit_limit_and_allowance_reach_it() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    pair.send = SendChannel::new(pair.id, 1000, Reliability::Reliable);
    assert_eq!(pair.send.room(500), 1500);
    pair.write(&[1; 1000]);
    assert_eq!(pair.send.room(500), 500);
    let cut = pair.cut;
    let next = |send: &mut SendChannel, credit| {
        send.next_new(&mut cutter(&cut, &mut Buffers::default()), credit)
            .expect("good")
    };
    assert_eq!(next(&mut pair.send, charge(1000) - 1), None);
    pair.send.allow(0);
    assert_eq!(next(&mut pair.send, charge(1000)), None);
    pair.send.allow(1);
    let first = next(&mut pair.send, charge(1000)).expect("all that it takes");
    assert_eq!(
        (first.offset, first.block_len, first.charge),
        (0, 1000, 1256)
    );
    assert_eq!(pair.send.probe(), None, "nothing was begun");
    let policy = pair.policy();
    let mut out = Vec::new();
    let written = pair.send.write_symbol(START, &first, &mut out, policy);
    written.expect("a good symbol");
    assert_eq!((pair.send.charged(), pair.send.unsent_bytes()), (1256, 0));
    let probe = pair.send.probe().expect("it is open");
    assert_eq!((probe.offset, probe.esi, probe.charge), (0, 1, 0));
    // One byte behind the limit.
    pair.write(&[1]);
    pair.send.allow(1);
    assert_eq!(next(&mut pair.send, 1 << 20), None);
    pair.send.raise_limit(1001);
    pair.send.raise_limit(900);
    assert!(next(&mut pair.send, 1 << 20).is_some_and(|symbol| symbol.offset == 1000));
    assert_eq!(pair.send.begun_since(0), Some(1));
    assert_eq!(pair.send.begun_since(1001), None);
    assert_eq!(pair.send.open_blocks(), 1);
    assert_eq!(pair.send.abandon(), 1001);
    assert!(pair.send.is_abandoned() && pair.send.is_finished());
    assert!(!pair.send.is_active() && !pair.send.is_acknowledged());
}

#[test]
fn a_receiver_takes_nothing_beyond_what_it_granted_or_beside_what_it_knows() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    let (window, data) = (TransportConfig::default().initial_stream_window, [0; 900]);
    let symbol = |offset, block_len, len: usize| SymbolIn {
        scheme: SchemeId::Dense,
        offset,
        block_len,
        esi: 0,
        len,
        data: &data[..len],
    };
    let mut push = |symbol: &SymbolIn<'_>| pair.recv.on_symbol(symbol, &mut pair.credit);
    assert_eq!(push(&symbol(10_000, 5000, 500)), Ok(Received::Progress));
    assert_eq!(push(&symbol(10_000, 5000, 500)), Ok(Received::Redundant));
    let protocol = Err(CloseCode::PROTOCOL);
    for wrong in [
        symbol(10_000, 4000, 500),
        symbol(10_000, 5000, 501),
        SymbolIn {
            scheme: SchemeId::Rlnc,
            ..symbol(10_000, 5000, 500)
        },
        // Overlaps from below and from above.
        symbol(9_000, 1001, 500),
        symbol(14_999, 100, 100),
        // Symbols as small cost more than they bring; the last of all offsets.
        symbol(20_000, 5000, 255),
        symbol(20_000, 255, 254),
        symbol((1 << 60) - 99, 100, 100),
        symbol(u64::MAX, 100, 100),
        symbol(20_000, 0, 256),
    ] {
        assert_eq!(push(&wrong), protocol, "{wrong:?}");
    }
    assert_eq!(push(&symbol(9_000, 1000, 500)), Ok(Received::Progress));
    assert_eq!(push(&symbol(15_000, 256, 256)), Ok(Received::Complete));
    assert_eq!(push(&symbol(15_100, 100, 100)), Ok(Received::Redundant));
    assert_eq!(push(&symbol(14_900, 200, 200)), protocol);
    let flow = Err(CloseCode::FLOW_CONTROL);
    assert_eq!(push(&symbol(window - 99, 100, 100)), flow);
    assert_eq!(
        push(&symbol(window - 100, 100, 100)),
        Ok(Received::Complete)
    );
    pair.credit.granted = pair.credit.used + charge(300);
    let mut push = |symbol: &SymbolIn<'_>| pair.recv.on_symbol(symbol, &mut pair.credit);
    assert_eq!(push(&symbol(30_000, 301, 301)), flow);
    assert_eq!(push(&symbol(30_000, 300, 300)), Ok(Received::Complete));
    // Blocks of 5000, 1000, 256, 100 and 300 bytes.
    assert_eq!(pair.credit.used, 6656 + 5 * BLOCK_OVERHEAD);
    assert_eq!(pair.recv.on_fin(window - 1), Err(CloseCode::PROTOCOL));
    assert_eq!(pair.recv.on_fin((1 << 60) + 1), Err(CloseCode::PROTOCOL));
    assert_eq!(pair.recv.on_fin(window), Ok(()));
    assert_eq!(pair.recv.on_fin(window), Ok(()));
    assert_eq!(pair.recv.on_fin(window + 1), Err(CloseCode::PROTOCOL));
}

#[test]
fn a_reader_takes_chunks_or_passes_over_bytes() {
    let mut pair = Pair::new(ChannelKind::Stream, SchemeId::Dense, Reliability::Reliable);
    let data = bytes(40_000);
    pair.write(&data);
    pair.round(|_| false);
    let chunk = |pair: &mut Pair, most| pair.recv.read_chunk(most, &mut pair.credit);
    let (part, range) = chunk(&mut pair, 1000).expect("a part");
    assert!(part[range] == data[..1000]);
    // The rest of a block comes in its own buffer.
    let (block, range) = chunk(&mut pair, usize::MAX).expect("the rest");
    assert_eq!(range, 1000..14_400);
    assert!(block[range] == data[1000..14_400]);
    assert_eq!(pair.credit.freed, charge(14_400));
    assert_eq!(pair.recv.skip(5000, &mut pair.credit), 5000);
    let (part, range) = chunk(&mut pair, 100).expect("a part");
    assert!(part[range] == data[19_400..19_500]);
    assert_eq!(pair.recv.skip(100_000, &mut pair.credit), 20_500);
    assert_eq!(chunk(&mut pair, 100), None);
    assert_eq!(pair.credit.used, pair.credit.freed);
}

#[test]
fn a_full_block_is_taken_as_it_is_where_one_ended() {
    let mut pair = Pair::new(ChannelKind::Object, SchemeId::Dense, Reliability::Reliable);
    let cut = pair.cut;
    let full = BlockSizes::new(pair.id, cut).at(0);
    assert_eq!(full, 14_400);
    let write = |send: &mut SendChannel, len: usize, cut: &Cut| {
        let mut block = bytes(len);
        let taken = send.write_block(START, &mut block, &mut cutter(cut, &mut Buffers::default()));
        let taken = taken.expect("a good block");
        assert_ne!(taken, block == bytes(len), "it is gone if it was taken");
        taken
    };
    let send = &mut pair.send;
    assert!(!write(send, full - 1, &cut) && !write(send, full + 1, &cut));
    let payload = Payload::Virtual;
    assert!(!write(send, full, &Cut { payload, ..cut }));
    assert!(write(send, full, &cut) && write(send, full, &cut) && write(send, full, &cut));
    assert_eq!((send.unsent_bytes(), send.size()), (43_200, 43_200));
    pair.round(|_| true);
    assert_eq!(pair.send.unsent_bytes(), 0);
    assert_eq!(pair.send.on_done_within(14_400..28_800), 14_400);
    assert_eq!(pair.send.open_blocks(), 2);
    pair.write(&[1]);
    let mut block = bytes(full);
    let taken = pair.send.write_block(
        START,
        &mut block,
        &mut cutter(&cut, &mut Buffers::default()),
    );
    assert!(!taken.expect("no block"), "bytes wait before it");
}

#[test]
fn a_block_that_is_probably_complete_waits_for_the_report_unless_none_comes() {
    let mut pair = Pair::new(
        ChannelKind::Stream,
        SchemeId::Dense,
        Reliability::Unreliable,
    );
    pair.write(&bytes(1500));
    let policy = pair.policy();
    for _ in 0..2 {
        let (symbol, _) = pair.next().expect("two symbols");
        pair.send.on_settled(symbol.offset, true, false, policy);
    }
    assert!(pair.next().is_none(), "each once");
    assert_eq!(pair.send.give_up(START), GivenUp::default());
    let given_up = pair.send.give_up_undecided();
    assert_eq!((given_up.blocks, given_up.bytes), (1, 1500));
    assert_eq!(pair.send.open_blocks(), 0);
}

#[test]
fn short_messages_are_those_of_streams() {
    let of = |kind, len| ChannelId::new(Role::Client, kind, 0).is_message(len);
    let (stream, uni) = (ChannelKind::Stream, ChannelKind::Uni);
    assert!(of(stream, SHORT_MESSAGE) && of(uni, SHORT_MESSAGE));
    assert!(!of(stream, SHORT_MESSAGE + 1) && !of(ChannelKind::Object, 1));
}
