//! A block on the receiving side: stores what arrives, and solves when asked to.

use std::collections::BTreeSet;

use super::RaptorCode;
use super::graph::System;
use super::inactivate::{Step, solve_square};
use super::peel::{Found, Peel, Word};
use super::rows::Packet;
use super::taus88::State;
use super::workspace::Workspace;
use crate::error::FecError;
use crate::gf256::Kernel;

/// Symbols set aside at most, unless told otherwise: bounds a solve's time and memory.
const MAX_INACTIVE: usize = 1024;

/// A failed solve is not tried again before one more symbol arrived for each this many source symbols.
const RETRY: u32 = 512;

/// A block on the receiving side.
#[derive(Debug)]
pub struct Decoder {
    code: RaptorCode,
    /// Symbols have bytes.
    real: bool,
    packets: Vec<Packet>,
    seen: BTreeSet<State>,
    /// Received symbols, in order of arrival.
    received: Vec<u8>,
    count: u32,
    /// Symbols before the next attempt.
    required: u32,
    /// Intermediate symbols; nothing without bytes.
    symbols: Vec<u8>,
    max_inactive: usize,
    solved: bool,
}

impl Decoder {
    pub(super) fn new(code: RaptorCode, mut buffer: Vec<u8>) -> Self {
        let len = code.n() * code.symbol_size();
        if buffer.capacity() < len {
            buffer = vec![0; len];
        } else {
            buffer.resize(len, 0);
        }
        Self {
            symbols: buffer,
            real: true,
            ..Self::structural(code)
        }
    }

    pub(super) fn structural(code: RaptorCode) -> Self {
        Self {
            real: false,
            packets: Vec::new(),
            seen: BTreeSet::new(),
            received: Vec::new(),
            count: 0,
            // Every row determines one symbol at most, and check nodes take theirs.
            required: code.parameters().k,
            symbols: Vec::new(),
            max_inactive: MAX_INACTIVE,
            solved: false,
            code,
        }
    }

    /// Sets at most this many symbols aside where peeling stops; zero for peeling alone. More
    /// decode with fewer symbols, and take time with its square.
    pub fn limit_inactivation(&mut self, most: u16) {
        self.max_inactive = most.into();
    }

    /// Takes the symbols of one packet, drawn from `state` on. `symbols` counts them; `payload`
    /// has their bytes, none for a structural decoder. Cheap: only stores. A packet with a state
    /// that was there before, free bits apart, changes nothing.
    ///
    /// # Errors
    /// [`FecError::SymbolLength`] for a payload of the wrong length, [`FecError::Full`] for a block
    /// beyond [`limit`](Self::limit).
    pub fn push(&mut self, state: State, symbols: u32, payload: &[u8]) -> Result<(), FecError> {
        let size = if self.real {
            self.code.symbol_size()
        } else {
            0
        };
        let expected = (symbols as usize).saturating_mul(size);
        if payload.len() != expected {
            return Err(FecError::SymbolLength {
                expected,
                actual: payload.len(),
            });
        }
        if self.solved || symbols == 0 {
            return Ok(());
        }
        let state = state.plain();
        let limit = self.limit();
        let count = self.count.checked_add(symbols).filter(|&c| c <= limit);
        if count.is_none() && !self.seen.contains(&state) {
            return Err(FecError::Full { limit });
        }
        if !self.seen.insert(state) {
            return Ok(());
        }
        self.count = count.unwrap_or(limit);
        self.packets.push(Packet { state, symbols });
        if self.received.capacity() == 0 {
            // What decodes as a rule; a vector that grows would be copied several times.
            let k = self.code.k();
            self.received.reserve_exact((k + k / 16 + 64) * size);
        }
        self.received.extend_from_slice(payload);
        Ok(())
    }

    /// Most symbols that a block takes: twice what it has, and some.
    pub fn limit(&self) -> u32 {
        2 * self.code.parameters().n + 256
    }

    /// Symbols taken so far, those of repeated packets not counted.
    pub fn received(&self) -> u32 {
        self.count
    }

    /// Waits for this many symbols before the first attempt.
    pub(super) fn require(&mut self, symbols: u32) {
        self.required = self.required.max(symbols);
    }

    /// Whether [`solve`](Self::solve) said true.
    pub fn is_solved(&self) -> bool {
        self.solved
    }

    /// Further symbols before [`solve`](Self::solve) can say anything but what it said before: at
    /// first up to k, after a failure a little more than then.
    pub fn needed(&self) -> u32 {
        if self.solved {
            0
        } else {
            self.required.saturating_sub(self.count)
        }
    }

    /// Tries to decode: true when every source symbol is known. Decides at once while more symbols
    /// are [`needed`](Self::needed).
    pub fn solve(&mut self) -> bool {
        if self.solved || self.needed() > 0 {
            return self.solved;
        }
        let code = self.code.clone();
        self.solved = code.0.pool.with(|workspace| self.attempt(&code, workspace));
        if self.solved {
            (self.packets, self.seen, self.received) = Default::default();
        } else {
            self.required = self.count + code.parameters().k.div_ceil(RETRY);
        }
        self.solved
    }

    fn attempt(&mut self, code: &RaptorCode, workspace: &mut Workspace) -> bool {
        if !workspace.cover(code, &self.packets, self.limit()) {
            return false;
        }
        let degrees = [code.0.degrees.max() as usize, code.0.precode.max_degree()];
        if degrees[0] <= u32::MAX_DEGREES[0] && degrees[1] <= u32::MAX_DEGREES[1] {
            let mut peel = std::mem::take(&mut workspace.compact);
            let solved = self.solve_with(code, workspace, &mut peel);
            workspace.compact = peel;
            solved
        } else {
            let mut peel = std::mem::take(&mut workspace.wide);
            let solved = self.solve_with(code, workspace, &mut peel);
            workspace.wide = peel;
            solved
        }
    }

    fn solve_with<W: Word>(
        &mut self,
        code: &RaptorCode,
        workspace: &mut Workspace,
        peel: &mut Peel<W>,
    ) -> bool {
        let Workspace {
            graphs: [graph, _],
            block,
            inactivation,
            ..
        } = workspace;
        let one_byte = self.real && code.symbol_size() == 1;
        let bytes = if one_byte { &self.received[..] } else { &[] };
        block.arrange(graph, &self.packets, bytes);
        let system = System {
            code,
            graph,
            block,
            one_byte,
        };
        peel.start(&system, !one_byte);
        inactivation.clear();
        let complete = peel.unknown(code.k()) == 0;
        if !complete && !inactivation.solve(&system, peel, self.max_inactive) {
            return false;
        }
        if !self.real {
            return true;
        }
        if !one_byte || !complete {
            block.number(graph, &self.packets);
        }
        let system = System {
            code,
            graph,
            block,
            one_byte,
        };
        let mut bytes = Bytes {
            system: &system,
            size: code.symbol_size(),
            received: &self.received,
            symbols: &mut self.symbols,
            ids: &mut workspace.ids,
        };
        if one_byte {
            peel.copy_values(bytes.symbols);
        } else {
            for &symbol in inactivation.inactive() {
                bytes.symbol_mut(symbol).fill(0);
            }
            bytes.evaluate(peel.found());
        }
        if !inactivation.inactive().is_empty() {
            bytes.solve_inactive(inactivation);
            bytes.evaluate(&peel.found()[inactivation.peeled()..]);
        }
        true
    }

    /// The source block, k · T bytes; meaningful once [`solve`](Self::solve) said true. Nothing for
    /// a structural decoder.
    pub fn source(&self) -> &[u8] {
        let len = self.code.k() * self.code.symbol_size();
        &self.symbols[..len.min(self.symbols.len())]
    }

    /// Gives the allocation back: the source block.
    pub fn into_buffer(mut self) -> Vec<u8> {
        self.symbols
            .truncate(self.code.k() * self.code.symbol_size());
        self.symbols
    }

    /// Bytes of memory held by this block; what solving takes belongs to the code.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.packets.capacity() * size_of::<Packet>()
            + self.seen.len() * size_of::<State>()
            + self.received.capacity()
            + self.symbols.capacity()
    }
}

/// The data pass: the same steps with the symbols' bytes.
struct Bytes<'a> {
    system: &'a System<'a>,
    size: usize,
    received: &'a [u8],
    symbols: &'a mut [u8],
    /// Other symbols of the row at hand.
    ids: &'a mut Vec<u16>,
}

impl Bytes<'_> {
    fn symbol_mut(&mut self, symbol: u16) -> &mut [u8] {
        &mut self.symbols[usize::from(symbol) * self.size..][..self.size]
    }

    /// Each symbol in turn: the right side of its row and the row's other symbols, summed.
    fn evaluate(&mut self, found: &[Found]) {
        for found in found {
            let neighbours = self.system.neighbours(found.row as usize);
            self.ids.clear();
            self.ids
                .extend(neighbours.iter().filter(|&&v| v != found.symbol));
            let side = self.system.symbol(found.row as usize);
            let at = usize::from(found.symbol) * self.size;
            let out = &mut self.symbols[at..at + self.size];
            match side {
                Some(side) => out.copy_from_slice(&self.received[side * self.size..][..self.size]),
                None => out.fill(0),
            }
            add_within(self.symbols, self.size, at, self.ids);
        }
    }

    /// Elimination on the rows left over, with inactive symbols as unknowns.
    fn solve_inactive(&mut self, inactivation: &mut super::inactivate::Inactivation) {
        let size = self.size;
        let (rows, bits) = inactivation.system(self.system);
        let mut sides = vec![0; rows.len() * size];
        for (&row, side) in rows.iter().zip(sides.chunks_exact_mut(size)) {
            // Inactive symbols are zero as yet: they add nothing.
            super::encoder::sum_into(side, self.symbols, self.system.neighbours(row as usize));
            if let Some(at) = self.system.symbol(row as usize) {
                let received = &self.received[at * size..][..size];
                side.iter_mut().zip(received).for_each(|(s, r)| *s ^= r);
            }
        }
        let count = rows.len();
        solve_square(bits, count, |step| match step {
            Step::Swap(a, b) => {
                let (upper, lower) = sides.split_at_mut(b * size);
                upper[a * size..][..size].swap_with_slice(&mut lower[..size]);
            }
            Step::Add { to, from } => add_within(&mut sides, size, to * size, &[from as u16]),
        });
        for (&symbol, side) in inactivation.inactive().iter().zip(sides.chunks_exact(size)) {
            self.symbol_mut(symbol).copy_from_slice(side);
        }
    }
}

/// Adds the symbols `ids` to the one that starts at byte `at`, which is not among them.
fn add_within(symbols: &mut [u8], size: usize, at: usize, ids: &[u16]) {
    if size == 1 {
        let sum = ids
            .iter()
            .fold(0, |sum, &id| sum ^ symbols[usize::from(id)]);
        symbols[at] ^= sum;
        return;
    }
    for ids in ids.chunks(super::encoder::ONES.len()) {
        Kernel::best().accumulate_within(
            symbols,
            size,
            &[at],
            &super::encoder::ONES[..ids.len()],
            ids,
        );
    }
}
