//! The receiving half: blocks being collected, their ACKs, in-order delivery (DFCP-J §4.5).
//!
//! A block is complete with ⌈(1 + ε) k⌉ symbols, whichever they are; then it is acknowledged, by
//! default before it is decoded. Should it not decode, the ACK is taken back (`AckKind::More`)
//! and a packet more is collected. Further packets of a complete block are answered with its
//! ACK again, at most once a millisecond, or whenever they ask (ECHO).
//!
//! Invariants: `base` ≤ `decoded`; blocks are kept from `base` (next to be read) to at most
//! `base + W`; at most one answer waits for each packet that came, at most [`MAX_ANSWERS`] in all.

mod block;
mod deliver;
mod report;

use super::code::Decoder;
use super::config::{Acknowledge, Completion, Moment};
use super::data::{
    Ack, AckKind, DATA_HEADER, DataHeader, Padding, SHORT_LENGTH, Settled, VIRTUAL_BYTES,
};
use crate::config::Payload;
use crate::time::{Duration, Instant};
use block::{Block, Phase};
use dfcp_fec::FecError;
use dfcp_fec::raptor::State;
use report::Arrivals;
use std::collections::VecDeque;

/// Bytes of what is noted of a block before its first packet.
pub(super) const RECORD: usize = std::mem::size_of::<Block>();
/// Answers that wait for `poll_ack`; the oldest gives way.
const MAX_ANSWERS: usize = 1024;
/// A block is acknowledged at most once in this time, unless the sender asks.
const ACK_PAUSE: Duration = Duration::from_millis(1);
/// With ACKs off the sender never comes back to a block: this many later ones may overtake it.
const REORDERING: u32 = 16;

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiverStats {
    /// Blocks received.
    pub blocks: u64,
    /// Useful bytes of blocks received, in whatever order.
    pub bytes: u64,
    /// Attempts to decode that failed with symbols that should suffice.
    pub decode_failures: u64,
    /// Data packets for blocks already complete.
    pub late_packets: u64,
    /// Data packets that came twice.
    pub duplicates: u64,
    /// Data packets of blocks beyond the window.
    pub beyond_window: u64,
    /// Bytes of symbols that came.
    pub symbol_bytes: u64,
    /// Data packets whose payload makes no sense.
    pub malformed: u64,
    /// Blocks given up (ACKs off).
    pub skipped: u64,
}

impl ReceiverStats {
    /// Data packets that taught nothing.
    pub fn redundant(&self) -> u64 {
        self.late_packets + self.duplicates + self.beyond_window
    }
}

/// A block to be solved; may run anywhere.
#[derive(Debug)]
pub struct SolveJob {
    block: u32,
    decoder: Box<Decoder>,
    /// The packet that completed it.
    state: State,
    solved: Result<bool, FecError>,
}

impl SolveJob {
    /// About how long [`SolveJob::run`] takes: milliseconds for blocks of the papers' sizes.
    pub fn estimated_time(&self) -> Duration {
        Duration::from_millis(1)
    }

    /// Bytes of memory that [`SolveJob::run`] takes beside the block, rather more than less.
    pub fn memory(&self) -> usize {
        self.decoder.solve_memory()
    }

    /// Does the work.
    pub fn run(&mut self) {
        self.solved = self.decoder.solve();
    }
}

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
struct Content<'a> {
    symbols: u32,
    useful: u32,
    bytes: &'a [u8],
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    settled: Settled,
    base: u32,
    ring: VecDeque<Block>,
    /// Lowest block not decoded.
    decoded: u32,
    /// What reports say of it.
    announced: u32,
    /// Room as announced last.
    limit: u32,
    /// Bytes already read of the lowest block.
    read: u32,
    arrivals: Arrivals,
    answers: VecDeque<Ack>,
    jobs: VecDeque<SolveJob>,
    /// State of the newest packet.
    newest: State,
    last_arrival: Instant,
    /// When an ACK of a block that is no longer kept was sent.
    old_acked_at: Option<Instant>,
    /// Blocks in all, once known.
    total: Option<u32>,
    spare: Vec<Vec<u8>>,
    /// A block has failed more often than chance explains.
    is_unsolvable: bool,
    /// Packets of a block that are noted.
    most_packets: u64,
    stats: ReceiverStats,
}

impl Receiver {
    /// A receiver that has nothing.
    pub fn new(now: Instant, settled: &Settled) -> Self {
        Self {
            base: 0,
            ring: VecDeque::new(),
            decoded: 0,
            announced: 0,
            limit: settled.window,
            read: 0,
            arrivals: Arrivals::default(),
            answers: VecDeque::new(),
            jobs: VecDeque::new(),
            newest: settled.initial,
            last_arrival: now,
            old_acked_at: None,
            total: None,
            spare: Vec::new(),
            is_unsolvable: false,
            most_packets: match settled.payload {
                Payload::Real => settled.most_packets(),
                Payload::Virtual => u64::MAX,
            },
            stats: ReceiverStats::default(),
            settled: settled.clone(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    // ---- packets

    /// A data packet arrived. `ecn` is its codepoint, `payload` what follows the header.
    pub fn on_data(&mut self, now: Instant, ecn: u8, header: &DataHeader, payload: &[u8]) {
        // There is no block of the highest number: what follows the last one has a number, too.
        let content = self.parse(header, payload);
        let Some(content) = content.filter(|_| header.block < u32::MAX) else {
            self.stats.malformed += 1;
            return;
        };
        let symbol_size = u64::from(self.settled.code.symbol_size());
        let bytes = DATA_HEADER as u64 + u64::from(content.symbols) * symbol_size;
        self.stats.symbol_bytes += bytes - DATA_HEADER as u64;
        self.arrivals.count(ecn, bytes);
        self.newest = header.state;
        self.last_arrival = now;
        let id = header.block;
        if id < self.base {
            self.stats.late_packets += 1;
            let paused = |at| now.saturating_since(at) < ACK_PAUSE;
            if header.echo || !self.old_acked_at.is_some_and(paused) {
                self.old_acked_at = Some(now);
                self.answer_complete(now, header);
            }
            return;
        }
        if !self.make_room(id) {
            self.stats.beyond_window += 1;
            if header.echo {
                let needed = self.settled.symbols_needed(content.useful);
                self.answer(now, AckKind::Echo, header, needed);
            }
            return;
        }
        match self.collect(header, &content) {
            Collected::Enough => self.on_enough(now, header),
            Collected::Missing(missing, extra) => {
                if header.echo {
                    let kind = if extra { AckKind::More } else { AckKind::Echo };
                    self.answer(now, kind, header, missing);
                }
            }
            Collected::Late => self.on_late(now, header),
        }
    }

    fn parse<'a>(&self, header: &DataHeader, payload: &'a [u8]) -> Option<Content<'a>> {
        let told = self.settled.code.useful(header.state, header.block).ok()?;
        // Beyond a message there is nothing.
        let expected = match self.settled.message {
            Some(message) => Some(message.useful(header.block)?),
            None => None,
        };
        if told.is_some() && expected.is_some() && told != expected {
            return None;
        }
        let known = told.or(expected);
        if self.settled.payload == Payload::Real {
            let size = usize::from(self.settled.code.symbol_size());
            let whole = !payload.is_empty() && payload.len().is_multiple_of(size);
            let full = match header.short {
                true => self.settled.block_bytes() - SHORT_LENGTH as u32,
                false => self.settled.block_bytes(),
            };
            return whole.then(|| Content {
                symbols: (payload.len() / size) as u32,
                useful: known.unwrap_or(full),
                bytes: payload,
            });
        }
        let payload: [u8; VIRTUAL_BYTES] = payload.try_into().ok()?;
        let [a, b, c, d, e, f] = payload;
        let symbols = u32::from(u16::from_be_bytes([a, b]));
        let useful = u32::from_be_bytes([c, d, e, f]);
        let right = known.is_none_or(|known| known == useful);
        (symbols > 0 && right && useful <= self.settled.block_bytes()).then_some(Content {
            symbols,
            useful,
            bytes: &[],
        })
    }

    /// Makes sure that a block is kept; false if it is beyond the window.
    fn make_room(&mut self, id: u32) -> bool {
        if self.settled.acknowledge == Acknowledge::Off {
            let allowance = REORDERING.min(self.settled.window);
            if let Some(low) = id.checked_sub(allowance) {
                self.skip_to(low.saturating_add(1));
            }
        }
        // With ACKs off, blocks that nobody reads are kept to the window too.
        if id < self.base || id - self.base >= self.settled.window {
            return false;
        }
        let kept = (id - self.base) as usize + 1;
        if kept > self.ring.len() {
            self.ring.resize_with(kept, Block::new);
        }
        true
    }

    fn collect(&mut self, header: &DataHeader, content: &Content<'_>) -> Collected {
        let index = (header.block - self.base) as usize;
        let block = &mut self.ring[index];
        let Phase::Collecting(decoder) = &mut block.phase else {
            self.stats.late_packets += 1;
            return Collected::Late;
        };
        if block.symbols == 0 {
            block.short = header.short && self.settled.padding() == Padding::Length;
            block.useful = content.useful;
        }
        let needed = self.settled.symbols_needed(block.useful);
        let needed = needed.saturating_add(block.extra);
        let names_it = matches!(self.settled.padding(), Padding::Symbol(_));
        if names_it && block.useful != content.useful {
            self.stats.malformed += 1;
            return Collected::Missing(needed - block.symbols, block.extra > 0);
        }
        if block.seen.contains(header.state) {
            self.stats.duplicates += 1;
            return Collected::Missing(needed - block.symbols, block.extra > 0);
        }
        if u64::from(block.seen.len()) >= self.most_packets {
            self.stats.malformed += 1;
            return Collected::Missing(needed - block.symbols, block.extra > 0);
        }
        if block.symbols == 0 {
            let k = self.settled.code.symbols_of(block.useful);
            let payload = match self.settled.rebuilds() {
                true => Payload::Real,
                false => Payload::Virtual,
            };
            let follows =
                payload == Payload::Real || self.settled.completion == Completion::Structure;
            if let Some(coder) = self.settled.coder.as_ref().filter(|_| follows) {
                let buffer = match payload {
                    Payload::Real => self.spare.pop().unwrap_or_default(),
                    Payload::Virtual => Vec::new(),
                };
                let made = coder.decoder(payload, (header.block, k), buffer);
                *decoder = made.ok().map(Box::new);
            }
        }
        if let Some(decoder) = decoder {
            let bytes = match self.settled.rebuilds() {
                true => content.bytes,
                false => &[],
            };
            if let Err(error) = decoder.push(header.state, content.symbols, bytes) {
                self.stats.malformed += 1;
                // It failed before, and no more symbols will ever be taken.
                let is_full = matches!(error, FecError::Full { .. });
                self.is_unsolvable |= is_full && block.extra > 0;
                return Collected::Missing(needed - block.symbols, block.extra > 0);
            }
        }
        // Noted last: what the decoder has no room for is not noted either.
        block.seen.insert(header.state);
        block.symbols = block.symbols.saturating_add(content.symbols).min(needed);
        if block.symbols == needed {
            Collected::Enough
        } else {
            Collected::Missing(needed - block.symbols, block.extra > 0)
        }
    }

    /// A block has the symbols that should suffice.
    fn on_enough(&mut self, now: Instant, header: &DataHeader) {
        let block = &mut self.ring[(header.block - self.base) as usize];
        let again = block.extra > 0;
        let Phase::Collecting(decoder) = std::mem::replace(&mut block.phase, Phase::Solving) else {
            return;
        };
        let Some(decoder) = decoder else {
            self.complete(header.block, Vec::new());
            self.acknowledge(now, header);
            return;
        };
        self.jobs.push_back(SolveJob {
            block: header.block,
            decoder,
            state: header.state,
            solved: Ok(false),
        });
        // Having been wrong about this block once, it is not promised again.
        if self.settled.moment == Moment::Received && !again {
            self.acknowledge(now, header);
        } else if header.echo {
            self.answer(now, AckKind::Echo, header, 0);
        }
    }

    fn on_late(&mut self, now: Instant, header: &DataHeader) {
        let block = &mut self.ring[(header.block - self.base) as usize];
        let promised = self.settled.moment == Moment::Received && block.extra == 0;
        if !block.is_complete() && !promised {
            if header.echo {
                self.answer(now, AckKind::Echo, header, 0);
            }
            return;
        }
        let paused = |at| now.saturating_since(at) < ACK_PAUSE;
        if header.echo || !block.acked_at.is_some_and(paused) {
            self.answer_complete(now, header);
        }
    }

    // ---- solving

    /// A block to be solved.
    pub fn take_solve_job(&mut self) -> Option<SolveJob> {
        self.jobs.pop_front()
    }

    /// Whether a block has failed more often than chance explains, or with all symbols that it takes: more of
    /// them would only be work.
    pub fn is_unsolvable(&self) -> bool {
        self.is_unsolvable
    }

    /// Takes a solved job back.
    pub fn finish_solve(&mut self, now: Instant, job: SolveJob) {
        let SolveJob {
            block: id,
            decoder,
            state,
            solved,
        } = job;
        let header = DataHeader {
            block: id,
            state,
            echo: false,
            short: false,
        };
        let Some(index) = id.checked_sub(self.base) else {
            return;
        };
        let Some(block) = self.ring.get_mut(index as usize) else {
            return;
        };
        if !matches!(block.phase, Phase::Solving) {
            return;
        }
        if !matches!(solved, Ok(true)) {
            self.stats.decode_failures += 1;
            self.is_unsolvable |= solved.is_err();
            let more = u32::from(self.settled.symbols_per_packet);
            block.extra = block.extra.saturating_add(more);
            block.phase = Phase::Collecting(Some(decoder));
            self.answer(now, AckKind::More, &header, more);
            return;
        }
        let promised = self.settled.moment == Moment::Received && block.extra == 0;
        let bytes = match self.settled.rebuilds() {
            true => decoder.into_buffer(),
            false => Vec::new(),
        };
        self.complete(id, bytes);
        // The last block's ACK said that it was not decoded yet.
        let last = self.jobs.is_empty() && self.decoded == self.base + self.ring.len() as u32;
        if !promised || last {
            self.acknowledge(now, &header);
        }
    }

    fn complete(&mut self, id: u32, bytes: Vec<u8>) {
        let capacity = self.settled.block_bytes();
        let block = &mut self.ring[(id - self.base) as usize];
        if block.short
            && let Some((_, length)) = bytes.split_last_chunk::<SHORT_LENGTH>()
        {
            let most = capacity - SHORT_LENGTH as u32;
            block.useful = u32::from_be_bytes(*length).min(most);
        }
        block.phase = Phase::Complete(bytes);
        block.seen.clear();
        self.stats.blocks += 1;
        self.stats.bytes += u64::from(block.useful);
        self.advance();
    }

    /// Moves `decoded` past what is over.
    pub(super) fn advance(&mut self) {
        let over = |d: u32| {
            self.ring
                .get((d - self.base) as usize)
                .is_some_and(Block::is_over)
        };
        let mut decoded = self.decoded;
        while over(decoded) {
            decoded += 1;
        }
        self.decoded = decoded;
    }

    // ---- answers

    /// Acknowledges a block, or the window that it completes.
    fn acknowledge(&mut self, now: Instant, header: &DataHeader) {
        match self.settled.acknowledge {
            Acknowledge::Off => {
                if header.echo {
                    self.answer(now, AckKind::Echo, header, 0);
                }
            }
            Acknowledge::EachBlock => {
                self.announced = self.decoded;
                self.note_ack(now, header.block);
                self.answer(now, AckKind::Block, header, 0);
            }
            Acknowledge::EachWindow => {
                let window = self.settled.window;
                if self.decoded / window > self.announced / window {
                    self.answer_complete(now, header);
                } else if header.echo {
                    self.answer(now, AckKind::Echo, header, 0);
                }
            }
        }
    }

    fn note_ack(&mut self, now: Instant, id: u32) {
        if let Some(index) = id.checked_sub(self.base)
            && let Some(block) = self.ring.get_mut(index as usize)
        {
            block.acked_at = Some(now);
        }
    }

    /// Says again that a block is there.
    fn answer_complete(&mut self, now: Instant, header: &DataHeader) {
        self.note_ack(now, header.block);
        match self.settled.acknowledge {
            Acknowledge::Off => self.answer(now, AckKind::Echo, header, 0),
            Acknowledge::EachBlock => {
                self.announced = self.decoded;
                self.answer(now, AckKind::Block, header, 0);
            }
            Acknowledge::EachWindow if header.block < self.decoded => {
                self.announced = self.decoded;
                let up_to = DataHeader {
                    block: self.decoded - 1,
                    ..*header
                };
                self.answer(now, AckKind::Block, &up_to, 0);
            }
            Acknowledge::EachWindow => self.answer(now, AckKind::Echo, header, 0),
        }
    }

    fn answer(&mut self, now: Instant, kind: AckKind, header: &DataHeader, missing: u32) {
        if self.answers.len() == MAX_ANSWERS {
            self.answers.pop_front();
        }
        let mut report = self.arrivals.report(now);
        report.missing = missing;
        self.answers.push_back(Ack {
            kind,
            block: header.block,
            state: header.state,
            report: Some(report),
        });
    }

    /// The next answer to send.
    pub fn poll_ack(&mut self) -> Option<Ack> {
        let mut ack = self.answers.pop_front()?;
        if let Some(report) = &mut ack.report {
            report.decoded = self.announced_decoded();
            report.limit = self.room();
            self.limit = report.limit;
        }
        Some(ack)
    }

    fn announced_decoded(&self) -> u32 {
        match self.settled.acknowledge {
            Acknowledge::EachWindow => self.announced,
            _ => self.decoded,
        }
    }

    fn room(&self) -> u32 {
        self.base.saturating_add(self.settled.window)
    }
}

/// What became of a data packet.
enum Collected {
    /// Its block has enough now.
    Enough,
    /// So many symbols are missing; and whether they once seemed to be enough.
    Missing(u32, bool),
    /// Its block had enough before.
    Late,
}
