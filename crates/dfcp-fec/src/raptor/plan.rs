//! Decoding by a plan. Which row gives which symbol follows from the packets alone, so blocks that
//! have the same packets of a graph are decoded in the same way: it is found out once, and the others
//! only sum bytes.
//!
//! Symbols of one byte alone are decoded so: with them peeling costs several times the sums, with
//! larger ones it is a small share.

use super::graph::System;
use super::peel::Found;

/// Symbols that 16 bits name.
pub(super) const ALL: usize = 1 << 16;

/// Plans of a graph. Most blocks of a path that loses little have all packets of their first pass;
/// others lose one of them, and there are as many ways to do so as packets, which seldom come back
/// before the graph changes.
const KEPT: usize = 4;

/// Sets of packets remembered, so that a plan is made for one that comes a second time.
const REMEMBERED: usize = 8;

/// Which packets of a graph a block has, one bit each.
pub(super) type Set = Vec<u64>;

/// The plans of a graph.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// The last one used comes first.
    plans: Vec<Plan>,
    /// Sets without a plan, the latest first.
    remembered: Vec<Set>,
}

impl Plans {
    /// The graph is another one now.
    pub(super) fn clear(&mut self) {
        self.plans.clear();
        self.remembered.clear();
    }

    /// Makes the plan of a block with these packets the first; false if there is none.
    pub(super) fn find(&mut self, set: &Set) -> bool {
        let at = self.plans.iter().position(|plan| plan.set == *set);
        if let Some(at) = at {
            self.plans[..=at].rotate_right(1);
        }
        at.is_some()
    }

    /// The first plan.
    pub(super) fn first(&self) -> Option<&Plan> {
        self.plans.first()
    }

    /// Whether a plan for these packets is worth its making: they were asked for not long ago.
    pub(super) fn is_wanted(&mut self, set: &Set) -> bool {
        if let Some(at) = self.remembered.iter().position(|other| other == set) {
            self.remembered.remove(at);
            return true;
        }
        self.remembered.truncate(REMEMBERED - 1);
        self.remembered.insert(0, set.clone());
        false
    }

    /// Keeps a plan; the one not used for longest gives way.
    pub(super) fn keep(&mut self, plan: Plan) {
        self.plans.truncate(KEPT - 1);
        self.plans.insert(0, plan);
    }

    pub(super) fn memory(&self) -> usize {
        let sets = self.remembered.iter().map(|set| set.capacity() * 8);
        self.plans.iter().map(Plan::memory).sum::<usize>() + sets.sum::<usize>()
    }
}

/// Steps that do not need each other, each with as many symbols to sum.
#[derive(Clone, Copy, Debug)]
struct Run {
    steps: usize,
    ids: usize,
}

/// Which symbols are computed from which others, in order.
#[derive(Debug)]
pub(super) struct Plan {
    set: Set,
    runs: Vec<Run>,
    /// By step: the symbol.
    targets: Vec<u16>,
    /// By step: where the row's right side is, see [`Block::fill`](super::graph::Block::fill).
    sides: Vec<u32>,
    /// The row's other symbols, step after step.
    ids: Vec<u16>,
}

impl Plan {
    /// From what peeling found, which is everything.
    pub(super) fn new(set: Set, system: &System<'_>, found: &[Found]) -> Self {
        let mut levels = vec![0u32; ALL];
        let mut steps: Vec<(u32, u32, Found)> = found
            .iter()
            .map(|&found| {
                let neighbours = system.neighbours(found.row as usize);
                let before = neighbours.iter().map(|&v| levels[usize::from(v)]).max();
                let level = before.unwrap_or(0) + 1;
                levels[usize::from(found.symbol)] = level;
                (level, neighbours.len() as u32 - 1, found)
            })
            .collect();
        // Loops of one length each, which a processor foresees; what was found early stays early.
        steps.sort_by_key(|&(level, count, _)| (level, count));
        let mut plan = Self {
            set,
            runs: Vec::new(),
            targets: Vec::with_capacity(steps.len()),
            sides: Vec::with_capacity(steps.len()),
            ids: Vec::new(),
        };
        for run in steps.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            plan.runs.push(Run {
                steps: run.len(),
                ids: run[0].1 as usize,
            });
            for &(_, _, Found { symbol, row }) in run {
                plan.targets.push(symbol);
                plan.sides.push(system.value(row as usize));
                let neighbours = system.neighbours(row as usize);
                let own = neighbours.iter().position(|&v| v == symbol);
                let (before, after) = neighbours.split_at(own.unwrap_or(neighbours.len()));
                plan.ids.extend_from_slice(before);
                plan.ids
                    .extend_from_slice(after.get(1..).unwrap_or_default());
            }
        }
        plan
    }

    /// Computes all symbols. `sides` are the block's [values](super::graph::Block::fill).
    pub(super) fn run(&self, sides: &[u8], symbols: &mut [u8; ALL]) {
        let (mut targets, mut rows, mut ids) = (&self.targets[..], &self.sides[..], &self.ids[..]);
        for run in &self.runs {
            let steps = Steps {
                targets: targets.split_off(..run.steps).unwrap_or_default(),
                sides: rows.split_off(..run.steps).unwrap_or_default(),
                ids: ids.split_off(..run.steps * run.ids).unwrap_or_default(),
            };
            match run.ids {
                0 => steps.sum::<0>(sides, symbols),
                1 => steps.sum::<1>(sides, symbols),
                2 => steps.sum::<2>(sides, symbols),
                3 => steps.sum::<3>(sides, symbols),
                4 => steps.sum::<4>(sides, symbols),
                7 => steps.sum::<7>(sides, symbols),
                8 => steps.sum::<8>(sides, symbols),
                18 => steps.sum::<18>(sides, symbols),
                64 => steps.sum::<64>(sides, symbols),
                count => steps.sum_any(count, sides, symbols),
            }
        }
    }

    fn memory(&self) -> usize {
        self.set.capacity() * size_of::<u64>()
            + self.runs.capacity() * size_of::<Run>()
            + (self.targets.capacity() + self.ids.capacity()) * size_of::<u16>()
            + self.sides.capacity() * size_of::<u32>()
    }
}

/// The steps of a run.
struct Steps<'a> {
    targets: &'a [u16],
    sides: &'a [u32],
    ids: &'a [u16],
}

impl Steps<'_> {
    /// With `D` symbols to sum in each.
    #[inline(always)]
    fn sum<const D: usize>(&self, sides: &[u8], symbols: &mut [u8; ALL]) {
        for (at, (&target, &side)) in self.targets.iter().zip(self.sides).enumerate() {
            let ids: &[u16; D] = self.ids[at * D..].first_chunk().expect("D of each step");
            let side = sides[side as usize];
            let sum = ids
                .iter()
                .fold(side, |sum, &v| sum ^ symbols[usize::from(v)]);
            symbols[usize::from(target)] = sum;
        }
    }

    fn sum_any(&self, count: usize, sides: &[u8], symbols: &mut [u8; ALL]) {
        let steps = self.targets.iter().zip(self.sides);
        for ((&target, &side), ids) in steps.zip(self.ids.chunks_exact(count)) {
            let side = sides[side as usize];
            let sum = ids
                .iter()
                .fold(side, |sum, &v| sum ^ symbols[usize::from(v)]);
            symbols[usize::from(target)] = sum;
        }
    }
}
