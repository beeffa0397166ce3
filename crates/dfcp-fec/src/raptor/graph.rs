//! The graph of LT symbols, by rows and by intermediate symbols, and which of its rows a block has.
//!
//! A sender may use the same generator states, free bits apart, for each of its blocks; the graph is
//! then the same too, and making it costs more than a block's decoding on it. So it is kept from block
//! to block. A block need not have all of its packets: rows of others are *missing*, and never tell
//! anything. Packets that other blocks had are known by their states alone, whoever sends them.

use super::RaptorCode;
use super::draws::Draws;
use super::plan::{Plans, Set};
use super::rows::{Packet, Rows};
use super::taus88::State;

/// Degrees up to which rows join in each stage of peeling; check nodes have one more to themselves.
const DEGREES: [usize; STAGES] = [5, 9, 30, usize::MAX];

/// Stages in which LT rows join.
pub(super) const STAGES: usize = 4;

/// Rows of the first stage at most, and of all others: what 16 bits name. Others of small degree join
/// in the second stage.
const MOST_ROWS: usize = 1 << 16;

/// In a cell: the symbol is unknown.
pub(super) const UNKNOWN: u16 = 0x8000;

/// In a cell of an unknown symbol: the last slot of its place says where in `more` its other rows are.
pub(super) const LONG: u16 = 0x0800;

/// In a cell of an unknown symbol, where the number of rows in its place is.
pub(super) const COUNT_SHIFT: u32 = 8;

/// In a side: the block does not have the symbol.
pub(super) const MISSING: u16 = 0x80;

const NONE: u32 = u32::MAX;

/// A symbol's rows of the first stage.
pub(super) type Place = [u16; SLOTS];
const SLOTS: usize = 4;

/// Further rows of a symbol, then how many they are, and [`GOES_ON`] if the next entry has more.
pub(super) type More = [u16; MORE + 1];
pub(super) const MORE: usize = 7;
pub(super) const GOES_ON: u16 = 8;

/// A symbol's rows of the other stages: `list` from `start` on, up to `start + ends[stage - 1]`, those
/// of the last one up to where the next symbol's rows are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Later {
    pub(super) start: u32,
    pub(super) ends: [u16; STAGES - 2],
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Graph {
    packets: Vec<Packet>,
    /// First symbols of the packets, and the end of the last.
    starts: Vec<u32>,
    /// Packets by state.
    index: Vec<(State, u32)>,
    pub(super) rows: Rows,
    /// Ends of the stages' rows.
    pub(super) ends: [usize; STAGES],
    /// By symbol: how a block begins, everything unknown.
    pub(super) cells: Vec<u16>,
    pub(super) places: Vec<Place>,
    pub(super) more: Vec<More>,
    pub(super) later: Vec<Later>,
    /// Rows by symbol, in order; those of later stages are counted from the end of the first one's.
    pub(super) list: Vec<u16>,
    /// Where the symbols' rows start, and the end of the last one's.
    pub(super) first: Vec<u32>,
    /// Where the next row of a symbol goes.
    next: Vec<u32>,
    /// How blocks with some of its packets are decoded.
    pub(super) plans: Plans,
}

/// There are more rows of large degree than any honest sender's, or one symbol is in too many.
#[derive(Clone, Copy, Debug)]
struct TooMany;

impl Graph {
    /// Makes this a graph that has all `packets`. `limit` is the most symbols that a block takes.
    /// False for packets that no honest sender makes.
    pub(super) fn cover(
        &mut self,
        code: &RaptorCode,
        draws: &mut Draws,
        packets: &[Packet],
        limit: u32,
    ) -> bool {
        let own: u32 = packets.iter().map(|packet| packet.symbols).sum();
        let known = self.known(packets);
        // More than half of the rows missing cost more than another graph.
        let fits = |symbols: usize| symbols as u64 <= u64::from(limit.min(2 * own));
        if known == packets.len() && fits(self.symbols()) {
            return true;
        }
        // States come back: those not seen today may be there tomorrow.
        if known > packets.len() / 2 {
            self.add(packets);
            let total = self.packets.iter().map(|packet| packet.symbols as usize);
            if fits(total.sum()) && matches!(self.make(code, draws, limit), Ok(true)) {
                return true;
            }
        }
        self.forget();
        self.add(packets);
        let made = self.make(code, draws, limit);
        if made.is_err() {
            self.forget();
        }
        made.is_ok()
    }

    /// Has no packets any more.
    fn forget(&mut self) {
        self.packets.clear();
        self.index.clear();
        self.plans.clear();
    }

    /// How many of these it has.
    pub(super) fn known(&self, packets: &[Packet]) -> usize {
        self.find(packets).filter(Option::is_some).count()
    }

    /// Which packets of the graph these are, if it has them and all of their symbols.
    fn find(&self, packets: &[Packet]) -> impl Iterator<Item = Option<usize>> {
        let mut next = 0;
        packets.iter().map(move |packet| {
            // As a rule they come one after the other.
            let is_next = self
                .packets
                .get(next)
                .is_some_and(|p| p.state == packet.state);
            let at = if is_next {
                Some(next)
            } else {
                self.position(packet.state)
            };
            let at = at.filter(|&at| self.packets[at].symbols >= packet.symbols)?;
            next = at + 1;
            Some(at)
        })
    }

    /// Which of its packets these are, in `set`; false if it has not all of them.
    pub(super) fn choose(&self, packets: &[Packet], set: &mut Set) -> bool {
        set.clear();
        self.find(packets).zip(packets).all(|(at, packet)| {
            // Plans count on whole packets.
            let whole = at.filter(|&at| self.packets[at].symbols == packet.symbols);
            whole.is_some_and(|at| {
                // As long as it must be: the same after the graph has grown.
                set.resize(set.len().max(at / 64 + 1), 0);
                set[at / 64] |= 1 << (at % 64);
                true
            })
        })
    }

    fn position(&self, state: State) -> Option<usize> {
        let at = self.index.binary_search_by_key(&state, |&(state, _)| state);
        at.ok().map(|at| self.index[at].1 as usize)
    }

    /// Adds packets; of one that is there already the number of symbols may grow.
    fn add(&mut self, packets: &[Packet]) {
        let known = self.packets.len();
        for packet in packets {
            match self.position(packet.state) {
                Some(at) => {
                    let symbols = &mut self.packets[at].symbols;
                    if packet.symbols > *symbols {
                        *symbols = packet.symbols;
                        // They name symbols, and those of later packets change their places.
                        self.plans.clear();
                    }
                }
                None => self.packets.push(*packet),
            }
        }
        let states = self.packets.iter().map(|packet| packet.state);
        self.index.extend(states.zip(0..).skip(known));
        self.index.sort_unstable();
    }

    /// Symbols of all packets.
    fn symbols(&self) -> usize {
        self.starts.last().map_or(0, |&end| end as usize)
    }

    /// Draws everything. Whether it is whole: see [`Rows::expand`].
    fn make(&mut self, code: &RaptorCode, draws: &mut Draws, limit: u32) -> Result<bool, TooMany> {
        self.starts.clear();
        self.starts.push(0);
        let mut end = 0;
        for packet in &self.packets {
            end += packet.symbols;
            self.starts.push(end);
        }
        let whole = self.rows.expand(code, draws, &self.packets, limit);
        self.ends = DEGREES.map(|degree| self.rows.first_above(degree));
        self.ends[0] = self.ends[0].min(MOST_ROWS);
        self.transpose(code.n())?;
        self.place();
        Ok(whole)
    }

    /// Lists the rows of every symbol in order.
    fn transpose(&mut self, n: usize) -> Result<(), TooMany> {
        self.first.clear();
        self.first.resize(n + 1, 0);
        for &v in self.rows.ids() {
            self.first[usize::from(v) + 1] += 1;
        }
        for v in 0..n {
            self.first[v + 1] += self.first[v];
        }
        self.next.clear();
        self.next.extend_from_slice(&self.first[..n]);
        self.list.clear();
        // One chunk more: lists are read by chunks.
        self.list.resize(self.rows.ids().len() + 8, 0);
        self.later.clear();
        self.later.resize(n, Later::default());
        if self.rows.len() > self.ends[0] + MOST_ROWS {
            return Err(TooMany);
        }
        let mut start = 0;
        for (stage, &end) in self.ends.iter().enumerate() {
            let base = if stage == 0 { 0 } else { self.ends[0] };
            let (next, list) = (&mut self.next[..], &mut self.list[..]);
            for run in self.rows.runs(start, end) {
                for (row, ids) in run.rows.zip(run.ids.chunks_exact(run.degree)) {
                    for &v in ids {
                        let next = &mut next[usize::from(v)];
                        list[*next as usize] = (row - base) as u16;
                        *next += 1;
                    }
                }
            }
            for (later, &next) in self.later.iter_mut().zip(&self.next) {
                match stage.checked_sub(1) {
                    None => later.start = next,
                    Some(at) => {
                        let count = u16::try_from(next - later.start).map_err(|_| TooMany)?;
                        if let Some(end) = later.ends.get_mut(at) {
                            *end = count;
                        }
                    }
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Puts the rows of the first stage where symbols have them at hand.
    fn place(&mut self) {
        self.cells.clear();
        self.places.clear();
        self.more.clear();
        for (later, &first) in self.later.iter().zip(&self.first) {
            let rows = &self.list[first as usize..later.start as usize];
            let mut place = Place::default();
            if rows.len() <= SLOTS {
                place
                    .iter_mut()
                    .zip(rows)
                    .for_each(|(slot, &row)| *slot = row);
                self.cells
                    .push(UNKNOWN | (rows.len() as u16) << COUNT_SHIFT);
            } else {
                let (here, rest) = rows.split_at(SLOTS - 1);
                place
                    .iter_mut()
                    .zip(here)
                    .for_each(|(slot, &row)| *slot = row);
                // Rows of the first stage have so few symbols that 16 bits are enough here too.
                place[SLOTS - 1] = self.more.len() as u16;
                self.cells
                    .push(UNKNOWN | LONG | (here.len() as u16) << COUNT_SHIFT);
                for chunk in rest.chunks(MORE) {
                    let mut more = More::default();
                    more.iter_mut()
                        .zip(chunk)
                        .for_each(|(slot, &row)| *slot = row);
                    more[MORE] = chunk.len() as u16 | GOES_ON;
                    self.more.push(more);
                }
                if let Some(last) = self.more.last_mut() {
                    last[MORE] &= !GOES_ON;
                }
            }
            self.places.push(place);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<Packet>()
            + self.index.capacity() * size_of::<(State, u32)>()
            + self.rows.memory()
            + self.cells.capacity() * size_of::<u16>()
            + self.places.capacity() * size_of::<Place>()
            + self.more.capacity() * size_of::<More>()
            + self.later.capacity() * size_of::<Later>()
            + (self.list.capacity()
                + self.first.capacity()
                + self.next.capacity()
                + self.starts.capacity())
                * size_of::<u32>()
            + self.plans.memory()
    }
}

/// What a block has of a graph.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// By symbol of the graph: its value in the upper byte if it has one, or [`MISSING`].
    pub(super) sides: Vec<u16>,
    /// By symbol of the graph: its place in order of arrival.
    order: Vec<u32>,
    /// See [`Block::fill`].
    pub(super) values: Vec<u8>,
}

impl Block {
    /// Finds the symbols of `packets`, which the graph has. `bytes` are their values if they are one
    /// byte each, otherwise empty.
    pub(super) fn arrange(&mut self, graph: &Graph, packets: &[Packet], bytes: &[u8]) {
        self.sides.clear();
        self.sides.resize(graph.symbols(), MISSING);
        let mut bytes = bytes.iter();
        for (packet, at) in packets.iter().zip(graph.find(packets)) {
            let Some(at) = at else { continue };
            let sides = &mut self.sides[graph.starts[at] as usize..][..packet.symbols as usize];
            if bytes.as_slice().is_empty() {
                sides.fill(0);
            } else {
                let values = bytes.by_ref();
                sides
                    .iter_mut()
                    .zip(values)
                    .for_each(|(side, &value)| *side = u16::from(value) << 8);
            }
        }
    }

    /// Writes down the values of symbols of one byte, by symbol of the graph, behind a first one that is
    /// zero: graphs grow at their end, and plans stay.
    pub(super) fn fill(&mut self, graph: &Graph, packets: &[Packet], mut bytes: &[u8]) {
        self.values.resize(1 + graph.symbols(), 0);
        for (packet, at) in packets.iter().zip(graph.find(packets)) {
            let own = bytes.split_off(..packet.symbols as usize);
            let (Some(at), Some(own)) = (at, own) else {
                continue;
            };
            self.values[1 + graph.starts[at] as usize..][..own.len()].copy_from_slice(own);
        }
    }

    /// Says where in order of arrival the symbols are, which peeling does not ask for.
    pub(super) fn number(&mut self, graph: &Graph, packets: &[Packet]) {
        self.order.clear();
        self.order.resize(graph.symbols(), NONE);
        let mut next = 0;
        for (packet, at) in packets.iter().zip(graph.find(packets)) {
            let Some(at) = at else { continue };
            let order = &mut self.order[graph.starts[at] as usize..][..packet.symbols as usize];
            order
                .iter_mut()
                .zip(next..)
                .for_each(|(order, number)| *order = number);
            next += packet.symbols;
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.sides.capacity() * size_of::<u16>()
            + self.order.capacity() * size_of::<u32>()
            + self.values.capacity()
    }
}

/// All rows of a block: LT rows, missing ones too, then check nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct System<'a> {
    pub(super) code: &'a RaptorCode,
    pub(super) graph: &'a Graph,
    pub(super) block: &'a Block,
    /// Symbols have a value of one byte; larger ones do not matter for what can be solved.
    pub(super) one_byte: bool,
}

impl System<'_> {
    /// Intermediate symbols of a row; some may be there twice.
    #[inline(always)]
    pub(super) fn neighbours(&self, row: usize) -> &[u16] {
        match row.checked_sub(self.graph.rows.len()) {
            None => self.graph.rows.neighbours(row),
            Some(check) => self.code.0.precode.nodes(check),
        }
    }

    /// Which received symbol a row's right side is; none, that is zero, for check nodes.
    pub(super) fn symbol(&self, row: usize) -> Option<usize> {
        let lt = row < self.graph.rows.len();
        lt.then(|| self.block.order[self.graph.rows.symbol(row)] as usize)
    }

    /// Which of the block's [values](Block::fill) a row's right side is.
    pub(super) fn value(&self, row: usize) -> u32 {
        match row < self.graph.rows.len() {
            true => 1 + self.graph.rows.symbol(row) as u32,
            false => 0,
        }
    }

    /// LT rows and check nodes.
    pub(super) fn len(&self) -> usize {
        self.graph.rows.len() + self.code.0.precode.checks()
    }
}
