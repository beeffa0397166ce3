//! A block on the receiving side: stores what arrives, and solves when asked to.

use std::collections::HashSet;

use super::RaptorCode;
use super::bytes::Bytes;
use super::graph::System;
use super::peel::{Peel, Word};
use super::plan::{self, Plan};
use super::rows::Packet;
use super::taus88::State;
use super::workspace::Workspace;
use crate::error::FecError;

/// Symbols set aside at most, unless told otherwise: bounds a solve's time and memory.
const MAX_INACTIVE: usize = 1024;

/// A failed solve is not tried again before one more symbol arrived for each this many source symbols.
const RETRY: u32 = 512;

/// Failures after which the wait doubles each time: more are rare by chance, and somebody who chooses
/// the symbols can have every solve fail.
const PATIENT_FAILURES: u32 = 4;

/// Symbols beside whose bytes a place in a set is small: room for all is made at once.
const LARGE_SYMBOL: usize = 128;

/// Symbols after which a block decodes as a rule.
fn usual(code: &RaptorCode) -> usize {
    let k = code.k();
    k + k / 16 + 64
}

/// What becomes of a block by a plan of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planned {
    /// It is decoded.
    Done,
    /// There is none, and one should be made.
    Wanted,
    /// There is none, nor is one worth its making.
    Unwanted,
}

/// A block on the receiving side.
#[derive(Debug)]
pub struct Decoder {
    code: RaptorCode,
    /// Symbols have bytes.
    real: bool,
    packets: Vec<Packet>,
    seen: HashSet<State>,
    count: u32,
    /// Symbols before the next attempt.
    required: u32,
    /// Intermediate symbols, then received ones in order of arrival; nothing without bytes. One
    /// allocation, for it is recycled as one: fresh memory costs more than the copy into it.
    symbols: Vec<u8>,
    max_inactive: usize,
    /// Solves that failed.
    failures: u32,
    solved: bool,
}

impl Decoder {
    pub(super) fn new(code: RaptorCode, mut buffer: Vec<u8>) -> Self {
        let len = code.n() * code.symbol_size();
        let all = len + usual(&code) * code.symbol_size();
        if buffer.capacity() < all {
            buffer = vec![0; all];
        }
        buffer.resize(len, 0);
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
            seen: HashSet::new(),
            count: 0,
            // Every row determines one symbol at most, and check nodes take theirs.
            required: code.parameters().k,
            symbols: Vec::new(),
            max_inactive: MAX_INACTIVE,
            failures: 0,
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
        if self.seen.is_empty() && size >= LARGE_SYMBOL {
            self.seen.reserve(usual(&self.code) / symbols as usize);
        }
        if !self.seen.insert(state) {
            return Ok(());
        }
        self.count = count.unwrap_or(limit);
        self.packets.push(Packet { state, symbols });
        if self.symbols.capacity() - self.symbols.len() < payload.len() {
            // More than the usual: room for all that may come, and no more.
            let all = (self.code.n() + limit as usize) * size;
            self.symbols.reserve_exact(all - self.symbols.len());
        }
        self.symbols.extend_from_slice(payload);
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

    /// How often [`solve`](Self::solve) tried and failed.
    pub fn failures(&self) -> u32 {
        self.failures
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
            (self.packets, self.seen) = Default::default();
        } else {
            let doubled = self.failures.saturating_sub(PATIENT_FAILURES).min(16);
            let further = code.parameters().k.div_ceil(RETRY) << doubled;
            self.required = self.count.saturating_add(further);
            self.failures += 1;
        }
        self.solved
    }

    fn attempt(&mut self, code: &RaptorCode, workspace: &mut Workspace) -> bool {
        if !workspace.cover(code, &self.packets, self.limit()) {
            return false;
        }
        let plan = self.follow(code, workspace);
        if plan == Planned::Done {
            return true;
        }
        let degrees = [code.0.degrees.max() as usize, code.0.precode.max_degree()];
        if degrees[0] <= u32::MAX_DEGREES[0] && degrees[1] <= u32::MAX_DEGREES[1] {
            let mut peel = std::mem::take(&mut workspace.compact);
            let solved = self.solve_with(code, workspace, &mut peel, plan);
            workspace.compact = peel;
            solved
        } else {
            let mut peel = std::mem::take(&mut workspace.wide);
            let solved = self.solve_with(code, workspace, &mut peel, plan);
            workspace.wide = peel;
            solved
        }
    }

    fn solve_with<W: Word>(
        &mut self,
        code: &RaptorCode,
        workspace: &mut Workspace,
        peel: &mut Peel<W>,
        plan: Planned,
    ) -> bool {
        let Workspace {
            graphs: [graph, _],
            block,
            inactivation,
            set,
            ..
        } = workspace;
        let one_byte = self.real && code.symbol_size() == 1;
        let len = code.n() * code.symbol_size();
        let (symbols, received) = self.symbols.split_at_mut(if self.real { len } else { 0 });
        let bytes: &[u8] = if one_byte { received } else { &[] };
        block.arrange(graph, &self.packets, bytes);
        let system = System {
            code,
            graph,
            block,
            one_byte,
        };
        let wanted = plan == Planned::Wanted;
        peel.start(&system, !one_byte || wanted);
        inactivation.clear();
        let complete = peel.unknown(code.k()) == 0;
        let plan = (complete && wanted).then(|| Plan::new(set.clone(), &system, peel.found()));
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
            received,
            symbols,
            ids: &mut workspace.ids,
        };
        if one_byte {
            peel.copy_values(bytes.symbols);
        } else {
            bytes.clear(inactivation.inactive());
            bytes.evaluate(peel.found());
        }
        if !inactivation.inactive().is_empty() {
            bytes.solve_inactive(inactivation);
            bytes.correct(inactivation, &peel.found()[inactivation.peeled()..]);
        }
        if let Some(plan) = plan {
            graph.plans.keep(plan);
        }
        true
    }

    /// Decodes in the same way as another block that had the same packets, if there was one.
    fn follow(&mut self, code: &RaptorCode, workspace: &mut Workspace) -> Planned {
        let Workspace {
            graphs: [graph, _],
            block,
            set,
            table,
            ..
        } = workspace;
        let one_byte = self.real && code.symbol_size() == 1;
        if !one_byte || !graph.choose(&self.packets, set) {
            return Planned::Unwanted;
        }
        if !graph.plans.find(set) {
            return match graph.plans.is_wanted(set) {
                true => Planned::Wanted,
                false => Planned::Unwanted,
            };
        }
        let (symbols, received) = self.symbols.split_at_mut(code.n());
        block.fill(graph, &self.packets, received);
        table.resize(plan::ALL, 0);
        let (Some(plan), Some(table)) = (graph.plans.first(), table.first_chunk_mut()) else {
            return Planned::Unwanted;
        };
        plan.run(&block.values, table);
        symbols.copy_from_slice(&table[..code.n()]);
        Planned::Done
    }

    /// The source block, k · T bytes; meaningful once [`solve`](Self::solve) said true. Nothing for
    /// a structural decoder.
    pub fn source(&self) -> &[u8] {
        let len = self.code.k() * self.code.symbol_size();
        &self.symbols[..len.min(self.symbols.len())]
    }

    /// Gives the allocation back: the source block, with room for all that the next one takes.
    pub fn into_buffer(mut self) -> Vec<u8> {
        self.symbols
            .truncate(self.code.k() * self.code.symbol_size());
        self.symbols
    }

    /// Bytes of memory held by this block; what solving takes belongs to the code.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.packets.capacity() * size_of::<Packet>()
            + self.seen.capacity() * size_of::<State>()
            + self.symbols.capacity()
    }
}
