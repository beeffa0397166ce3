//! The receiving half of a channel: symbols in, bytes out, within the credit that was given.

mod ahead;
mod read;
mod skip;

use super::done::Done;
use super::gaps::Gaps;
use super::{Ahead, Beside, ChannelId, ChannelKind, Credit, SolveJob, charge};
use crate::config::{Payload, TransportConfig};
use crate::connection::CloseCode;
use crate::wire::VarInt;
use ahead::ReadingPace;
use dfcp_fec::{BlockDecoder, SchemeId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Highest offset of any channel.
const MAX_OFFSET: u64 = 1 << 60;
/// Settled ranges above a hole, and gaps not told, that a channel may have: more than any honest
/// window holds.
const MAX_DONE_BLOCKS: usize = 1 << 16;
/// Least bytes of a symbol, unless it is all of its block.
pub const MIN_SYMBOL: u64 = 256;
/// Blocks looked at for the complete parts of one report.
const MAX_SACKED: usize = 1024;
/// Blocks named in one report.
const MAX_REPORTED: usize = 128;

/// A symbol as it came from the wire.
#[derive(Clone, Copy, Debug)]
pub struct SymbolIn<'a> {
    /// Code.
    pub scheme: SchemeId,
    /// Start of the block.
    pub offset: u64,
    /// Source bytes of the block.
    pub block_len: u64,
    /// Which symbol.
    pub esi: u32,
    /// Bytes of the symbol.
    pub len: usize,
    /// The symbol; empty with virtual payload.
    pub data: &'a [u8],
}

/// What a symbol did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It helped; the block is not ready yet.
    Progress,
    /// The block can be rebuilt: a solve job waits.
    Solvable,
    /// The block is complete.
    Complete,
    /// Nothing new.
    Redundant,
}

#[derive(Debug)]
enum Block {
    Receiving {
        decoder: Box<dyn BlockDecoder>,
        len: u64,
        scheme: SchemeId,
        queued: bool,
        beside: Beside,
    },
    /// Its decoder is in a solve job; `needed` is what to report meanwhile.
    Solving {
        len: u64,
        needed: u32,
        beside: Beside,
    },
}

impl Block {
    fn len(&self) -> u64 {
        match self {
            Self::Receiving { len, .. } | Self::Solving { len, .. } => *len,
        }
    }

    fn beside(&self) -> Beside {
        match self {
            Self::Receiving { beside, .. } | Self::Solving { beside, .. } => *beside,
        }
    }
}

/// Bytes that a new `decoder` holds beside the charge of its block of `len` bytes, or comes to hold:
/// the coefficients of dense codes.
fn excess(decoder: &dyn BlockDecoder, scheme: SchemeId, len: u64) -> u64 {
    let spec = decoder.spec();
    let coefficients = match scheme {
        SchemeId::Dense | SchemeId::Rlnc => spec.k() as usize * spec.k() as usize,
        SchemeId::Arq | SchemeId::RaptorQ | SchemeId::Raptor => 0,
    };
    let held = decoder.memory() + coefficients;
    (held as u64).saturating_sub(charge(len))
}

/// A complete block.
#[derive(Debug)]
struct Ready {
    len: u64,
    /// Empty with virtual payload.
    bytes: Vec<u8>,
}

impl Ready {
    fn beside(&self) -> Beside {
        let excess = (self.bytes.capacity() as u64).saturating_sub(charge(self.len));
        Beside { excess, stuck: 0 }
    }
}

/// What an unsolved block of `scheme` needs at least: these codes may fail with K symbols, and only
/// solving tells, so the sender must keep the block until then.
fn unproven(scheme: SchemeId) -> u32 {
    u32::from(matches!(scheme, SchemeId::RaptorQ | SchemeId::Raptor))
}

/// See the module's text.
#[derive(Debug)]
pub struct RecvChannel {
    id: ChannelId,
    payload: Payload,
    /// Codes that blocks may come in, a bit each, and most symbols that they may have.
    schemes: u64,
    max_symbols: u32,
    blocks: BTreeMap<u64, Block>,
    /// Complete blocks, and those that the peer gave up.
    done: Done,
    gaps: Gaps,
    /// Complete blocks that the application has not taken.
    ready: BTreeMap<u64, Ready>,
    /// Blocks whose solve job has not been handed out.
    solvable: VecDeque<u64>,
    /// Next byte of the stream to read, and how much of its block was read.
    read_offset: u64,
    final_size: Option<u64>,
    /// Offset that the peer may reach (streams).
    limit: u64,
    /// How far that is ahead of the reader at first, and at most.
    initial_window: u64,
    pace: ReadingPace,
    /// Bytes of symbols that brought something, and how many come in a round trip.
    arrived: u64,
    arriving: ReadingPace,
    window: u64,
    /// Of the credit's account of that.
    ahead: Ahead,
    charged: u64,
    freed: u64,
    /// Bytes settled: complete or skipped, and of the newest block: the window counts packets.
    complete_bytes: u64,
    block_len: u64,
    /// Ranges that the credit counts.
    ranges: u64,
    /// `done_below` at the last SACK.
    sacked_below: u64,
    /// The application gave it up, or the peer did.
    ended: Option<VarInt>,
    /// All that the peer charged for the channel is accounted for.
    settled: bool,
    /// The application will not ask again.
    pub discarded: bool,
}

impl RecvChannel {
    /// A channel within the limits that `config` sets.
    pub fn new(id: ChannelId, config: &TransportConfig) -> Self {
        let limit = if id.kind() == ChannelKind::Object {
            u64::MAX
        } else {
            config.initial_stream_window
        };
        Self {
            id,
            payload: config.payload,
            schemes: config.schemes,
            max_symbols: config.max_block_symbols,
            blocks: BTreeMap::new(),
            done: Done::default(),
            gaps: Gaps::default(),
            ready: BTreeMap::new(),
            solvable: VecDeque::new(),
            read_offset: 0,
            final_size: None,
            limit,
            initial_window: config.initial_stream_window,
            pace: ReadingPace::default(),
            arrived: 0,
            arriving: ReadingPace::default(),
            window: config.stream_window,
            ahead: Ahead::default(),
            charged: 0,
            freed: 0,
            complete_bytes: 0,
            block_len: 1,
            ranges: 0,
            sacked_below: 0,
            ended: None,
            settled: false,
            discarded: false,
        }
    }

    /// Takes a symbol. An error is the peer's fault and closes the connection.
    pub fn on_symbol(
        &mut self,
        symbol: &SymbolIn<'_>,
        credit: &mut Credit,
    ) -> Result<Received, CloseCode> {
        let known = self.blocks.contains_key(&symbol.offset);
        if self.ended.is_some() || !known && self.done.end_at(symbol.offset).is_some() {
            return Ok(Received::Redundant);
        }
        if !known {
            self.open_block(symbol, credit)?;
        }
        let Some(Block::Receiving {
            decoder,
            len,
            scheme,
            queued,
            ..
        }) = self.blocks.get_mut(&symbol.offset)
        else {
            return Ok(Received::Redundant);
        };
        let same = *len == symbol.block_len
            && *scheme == symbol.scheme
            && decoder.spec().symbol_size() == symbol.len;
        if !same {
            return Err(CloseCode::PROTOCOL);
        }
        let push = decoder
            .push(symbol.esi, symbol.data)
            .map_err(|_| CloseCode::PROTOCOL)?;
        if decoder.is_complete() {
            self.complete(symbol.offset, credit);
            return Ok(Received::Complete);
        }
        if decoder.needed() == 0 && !*queued {
            *queued = true;
            self.solvable.push_back(symbol.offset);
            return Ok(Received::Solvable);
        }
        Ok(match push {
            dfcp_fec::Push::Innovative => Received::Progress,
            _ => Received::Redundant,
        })
    }

    /// Checks a new block against everything known, then makes room for it. Where too much is held
    /// beside other blocks it has to come again, as if its symbol were lost.
    fn open_block(&mut self, symbol: &SymbolIn<'_>, credit: &mut Credit) -> Result<(), CloseCode> {
        let (offset, len) = (symbol.offset, symbol.block_len);
        let end = offset
            .checked_add(len)
            .filter(|&e| e <= MAX_OFFSET)
            .ok_or(CloseCode::PROTOCOL)?;
        let before = self
            .blocks
            .range(..offset)
            .next_back()
            .map(|(o, b)| o + b.len());
        let after = self.blocks.range(offset..).next().map(|(o, _)| *o);
        let overlaps = before.is_some_and(|b| b > offset)
            || after.is_some_and(|start| start < end)
            || self.done.begins_within(offset, end)
            || self.final_size.is_some_and(|size| end > size);
        if overlaps {
            return Err(CloseCode::PROTOCOL);
        }
        let charge = charge(len);
        if credit.used.saturating_add(charge) > credit.granted || end > self.limit {
            return Err(CloseCode::FLOW_CONTROL);
        }
        // Tiny symbols would make us keep far more than the block's charge.
        if (symbol.len as u64) < len.min(MIN_SYMBOL) {
            return Err(CloseCode::PROTOCOL);
        }
        let spec = super::block_spec(symbol.scheme, self.id.0, offset, len, symbol.len)
            .map_err(|_| CloseCode::PROTOCOL)?;
        // The peer was told what is decoded here.
        if self.schemes & (1 << symbol.scheme as u8) == 0 || spec.k() > self.max_symbols {
            return Err(CloseCode::PROTOCOL);
        }
        let code = self.payload.code(symbol.scheme);
        let begin = |buffer| {
            let decoder = code
                .decoder(spec, buffer)
                .map_err(|_| CloseCode::PROTOCOL)?;
            let excess = excess(&*decoder, symbol.scheme, len);
            Ok::<_, CloseCode>((decoder, excess))
        };
        let buffer = credit.buffer(len);
        let was_larger = buffer.capacity() as u64 > charge;
        let (mut decoder, mut beyond) = begin(buffer)?;
        if was_larger && !credit.has_room_beside(beyond) {
            (decoder, beyond) = begin(Vec::new())?;
        }
        let is_alone = credit.used == credit.freed;
        if !credit.has_room_beside(beyond) && !is_alone {
            return Ok(());
        }
        let beside = Beside {
            excess: beyond,
            stuck: 0,
        };
        credit.hold(beside);
        credit.used += charge;
        self.charged += charge;
        self.count_ahead(credit);
        self.block_len = len;
        let block = Block::Receiving {
            decoder,
            len,
            scheme: symbol.scheme,
            queued: false,
            beside,
        };
        self.blocks.insert(offset, block);
        Ok(())
    }

    /// The next block that waits to be solved.
    pub fn take_job(&mut self) -> Option<SolveJob> {
        while let Some(offset) = self.solvable.pop_front() {
            match self.blocks.remove(&offset) {
                Some(Block::Receiving {
                    decoder,
                    len,
                    scheme,
                    beside,
                    ..
                }) => {
                    let needed = unproven(scheme);
                    let solving = Block::Solving {
                        len,
                        needed,
                        beside,
                    };
                    self.blocks.insert(offset, solving);
                    let channel = self.id;
                    return Some(SolveJob::new(channel, (offset, len), scheme, decoder));
                }
                Some(other) => {
                    self.blocks.insert(offset, other);
                }
                None => {}
            }
        }
        None
    }

    /// Takes a job back; true if its block is complete now. An error is the peer's fault: the block
    /// cannot be solved, or it and others like it hold too much.
    pub fn on_solved(&mut self, job: SolveJob, credit: &mut Credit) -> Result<bool, CloseCode> {
        let Some(&Block::Solving { mut beside, .. }) = self.blocks.get(&job.offset) else {
            return Ok(false);
        };
        if self.ended.is_some() {
            return Ok(false);
        }
        let SolveJob {
            offset,
            len,
            scheme,
            decoder,
            solved,
            ..
        } = job;
        let complete = solved.map_err(|_| CloseCode::UNSOLVABLE)? && decoder.is_complete();
        let stuck = u64::from(decoder.needed()) * decoder.spec().symbol_size() as u64;
        beside.stuck += stuck;
        credit.hold(Beside { excess: 0, stuck });
        if credit.is_stuck() {
            return Err(CloseCode::UNSOLVABLE);
        }
        self.blocks.insert(
            offset,
            Block::Receiving {
                decoder,
                len,
                scheme,
                queued: false,
                beside,
            },
        );
        if complete {
            self.complete(offset, credit);
        }
        Ok(complete)
    }

    /// Moves a complete block to where the application finds it.
    fn complete(&mut self, offset: u64, credit: &mut Credit) {
        if let Some(Block::Receiving {
            decoder,
            len,
            beside,
            ..
        }) = self.blocks.remove(&offset)
        {
            let mut bytes = decoder.into_buffer();
            bytes.truncate(len as usize);
            // What waits to be read counts for its block and no more.
            if bytes.capacity() as u64 > charge(len) {
                bytes.shrink_to_fit();
            }
            let ready = Ready { len, bytes };
            credit.let_go(beside);
            credit.hold(ready.beside());
            self.ready.insert(offset, ready);
            self.done.insert(offset, offset + len);
            self.complete_bytes += len;
            self.count_ranges(credit);
        }
    }

    /// Has the credit know how many ranges are kept.
    fn count_ranges(&mut self, credit: &mut Credit) {
        let ranges = (self.done.count() + self.gaps.count()) as u64;
        credit.ranges = credit.ranges - std::mem::replace(&mut self.ranges, ranges) + ranges;
    }

    /// Offset that blocks have reached.
    fn reached(&self) -> u64 {
        let open = self.blocks.last_key_value().map_or(0, |(o, b)| o + b.len());
        open.max(self.done.reached())
    }

    /// Blocks between what the application took and the highest that arrived, those that are missing
    /// included: what the receive window holds (Chameleon §II). A gap counts in blocks as long as
    /// the newest.
    pub fn occupancy(&self) -> u64 {
        let open: u64 = self.blocks.values().map(Block::len).sum();
        let missing = self.reached().saturating_sub(self.complete_bytes + open);
        (self.ready.len() + self.blocks.len()) as u64 + missing.div_ceil(self.block_len.max(1))
    }

    /// What a SACK says: the border up to which the one before knew everything to be complete, and
    /// the complete parts above it, lowest first.
    pub fn sack(&mut self) -> (u64, Vec<Range<u64>>) {
        let below = self.done.below();
        let border = std::mem::replace(&mut self.sacked_below, below);
        let mut parts: Vec<Range<u64>> = Vec::new();
        if border < below {
            parts.push(border..below);
        }
        for (start, end) in self.done.ranges().take(MAX_SACKED) {
            match parts.last_mut() {
                Some(part) if part.end == start => part.end = end,
                _ => parts.push(start..end),
            }
        }
        (border, parts)
    }

    /// The peer says where the channel ends.
    pub fn on_fin(&mut self, size: u64) -> Result<(), CloseCode> {
        let known = self.final_size.is_some_and(|known| known != size);
        if known || self.reached() > size || size > MAX_OFFSET {
            return Err(CloseCode::PROTOCOL);
        }
        self.final_size = Some(size);
        Ok(())
    }

    /// Ends the channel early; its blocks' credit is freed, with what the peer says was used for
    /// blocks that never showed up. Without that the channel is not settled: it must be kept until
    /// the peer says it.
    pub fn end(&mut self, code: VarInt, charged: Option<u64>, credit: &mut Credit) {
        let unseen = charged.map_or(0, |c| c.saturating_sub(self.charged));
        let unseen = unseen.min(credit.granted.saturating_sub(credit.used));
        credit.used += unseen;
        self.charged += unseen;
        credit.freed += self.charged - self.freed;
        self.freed = self.charged;
        let open = self.blocks.values().map(Block::beside);
        let ready = self.ready.values().map(Ready::beside);
        open.chain(ready).for_each(|beside| credit.let_go(beside));
        self.blocks.clear();
        self.ready.clear();
        self.gaps.clear();
        // Else the credit would count them after the channel is gone.
        self.done.clear_above();
        self.count_ranges(credit);
        credit.set_ahead(&mut self.ahead, Ahead::default());
        self.solvable.clear();
        self.ended.get_or_insert(code);
        self.settled |= charged.is_some();
    }

    /// Whether nothing more need be known of an ended channel.
    pub fn is_settled(&self) -> bool {
        self.settled || self.is_complete()
    }

    /// Why the channel ended early, if it did.
    pub fn ended(&self) -> Option<VarInt> {
        self.ended
    }

    /// The final size, once known.
    pub fn final_size(&self) -> Option<u64> {
        self.final_size
    }

    /// Everything up to the final size has arrived or was given up by the peer.
    pub fn is_complete(&self) -> bool {
        self.final_size == Some(self.done.below())
    }

    /// Everything arrived and was taken by the application, which knows of all gaps.
    pub fn is_drained(&self) -> bool {
        self.is_complete() && self.ready.is_empty() && self.gaps.count() == 0
    }

    /// Grows when a read may give what it would not have given before.
    pub fn readiness(&self) -> u64 {
        match self.id.kind() {
            // Also for who reads it in order, and waits for the first block though others are there.
            ChannelKind::Object => self.ready.len() as u64 + self.missing(),
            ChannelKind::Stream | ChannelKind::Uni => {
                let gap = self.gaps.at(self.read_offset);
                u64::from(self.in_order().is_some() || gap.is_some())
            }
        }
    }

    /// Whether the channel keeps more state than an honest peer would cause.
    pub fn is_excessive(&self) -> bool {
        self.done.count() + self.gaps.count() > MAX_DONE_BLOCKS
    }

    /// For the report: everything below is complete; of the blocks above, what each needs.
    pub fn report(&self) -> (u64, Vec<(u64, u32)>) {
        let open = self
            .blocks
            .iter()
            .take(MAX_REPORTED)
            .map(|(&offset, block)| {
                let needed = match block {
                    Block::Receiving {
                        decoder, scheme, ..
                    } => decoder.needed().max(unproven(*scheme)),
                    Block::Solving { needed, .. } => *needed,
                };
                (offset, needed)
            });
        let done = self
            .done
            .ranges()
            .take(MAX_REPORTED)
            .map(|(offset, _)| (offset, 0));
        let mut entries: Vec<_> = open.chain(done).collect();
        entries.sort_unstable();
        entries.truncate(MAX_REPORTED);
        (self.done.below(), entries)
    }
}
