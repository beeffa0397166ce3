//! What peeling leaves: some unknown symbols are set aside as inactive, so that peeling goes on with
//! everything it finds being a sum over them; the rows left over then determine them by Gaussian
//! elimination (Shokrollahi, Lassen, Karp: "Systems and Processes for Decoding Chain Reaction Codes
//! through Inactivation", 2005; RFC 6330 section 5.4.2).
//!
//! Only the number of inactive symbols is limited: time and memory follow from it and from n.

use super::graph::System;
use super::peel::{Peel, Word};

/// Rows of bits, all of the same number of words.
#[derive(Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    width: usize,
}

impl Bits {
    fn reset(&mut self, rows: usize, columns: usize) {
        self.width = columns.div_ceil(64).max(1);
        self.words.clear();
        self.words.resize(rows * self.width, 0);
    }

    pub(super) fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.words[row * self.width..][..self.width]
    }

    fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

fn add(sum: &mut [u64], other: &[u64]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum ^= other;
    }
}

pub(super) fn bit(row: &[u64], column: usize) -> bool {
    row[column / 64] >> (column % 64) & 1 == 1
}

fn first_bit(row: &[u64]) -> Option<usize> {
    let word = row.iter().position(|&word| word != 0)?;
    Some(word * 64 + row[word].trailing_zeros() as usize)
}

/// Disjoint sets of symbols (union by size, paths halved).
#[derive(Debug, Default)]
struct Sets {
    parents: Vec<u16>,
    sizes: Vec<u32>,
}

impl Sets {
    fn reset(&mut self, n: usize) {
        self.parents.clear();
        self.parents.extend((0..n).map(|v| v as u16));
        self.sizes.clear();
        self.sizes.resize(n, 1);
    }

    fn root(&mut self, mut v: u16) -> u16 {
        loop {
            let parent = self.parents[usize::from(v)];
            if parent == v {
                return v;
            }
            let above = self.parents[usize::from(parent)];
            self.parents[usize::from(v)] = above;
            v = above;
        }
    }

    /// Unites the sets of two symbols; the size of the result.
    fn join(&mut self, a: u16, b: u16) -> u32 {
        let (mut a, mut b) = (self.root(a), self.root(b));
        if self.sizes[usize::from(a)] < self.sizes[usize::from(b)] {
            std::mem::swap(&mut a, &mut b);
        }
        if a != b {
            self.parents[usize::from(b)] = a;
            self.sizes[usize::from(a)] += self.sizes[usize::from(b)];
        }
        self.sizes[usize::from(a)]
    }

    /// One symbol of each set of at least `size`.
    fn roots(&self, size: u32) -> impl Iterator<Item = u16> + '_ {
        // Few sets are that large: asked first.
        let is_root =
            move |&v: &u16| self.sizes[usize::from(v)] >= size && self.parents[usize::from(v)] == v;
        (0..self.parents.len()).map(|v| v as u16).filter(is_root)
    }
}

/// See the module's text. Valid after [`solve`](Self::solve) said true.
#[derive(Debug, Default)]
pub(super) struct Inactivation {
    /// Symbols set aside.
    inactive: Vec<u16>,
    /// How many symbols were found before.
    peeled: usize,
    /// As many independent rows as there are inactive symbols, and no others unknown in them.
    rows: Vec<u32>,
    /// Symbols to set aside next.
    chosen: Vec<u16>,
    /// Rows that may still give something.
    active: Vec<u32>,
    /// Symbols tied together by rows that have just two left.
    sets: Sets,
    /// Inactive symbols of which a symbol is the sum, besides a constant; by symbol.
    sums: Bits,
    /// Rows in echelon form, by their first column.
    echelon: Bits,
    used: Vec<bool>,
}

impl Inactivation {
    /// Nothing needs to be set aside.
    pub(super) fn clear(&mut self) {
        self.inactive.clear();
        self.rows.clear();
    }

    /// Decides whether the rows left over determine what peeling did not find, with at most `limit`
    /// symbols set aside.
    pub(super) fn solve<W: Word>(
        &mut self,
        system: &System<'_>,
        peel: &mut Peel<W>,
        limit: usize,
    ) -> bool {
        self.clear();
        self.peeled = peel.found().len();
        let rows = 0..system.len() as u32;
        self.active.clear();
        self.active
            .extend(rows.filter(|&row| peel.degree(row as usize) > 1));
        let unknown = peel.unknown(system.code.n());
        // Independent rows, if any, are at most as many as rows.
        if self.active.len() < unknown {
            return false;
        }
        let candidates = self.active.clone();
        while self.choose(system, peel) {
            for at in 0..self.chosen.len() {
                let symbol = self.chosen[at];
                // Those chosen before may have made it known.
                if !peel.is_unknown(symbol) {
                    continue;
                }
                if self.inactive.len() == limit {
                    return false;
                }
                self.inactive.push(symbol);
                peel.assume(system, symbol);
            }
        }
        // A symbol in no row at all is nobody's business here.
        if peel.unknown(system.code.n()) > 0 {
            return false;
        }
        self.express(system, peel);
        self.eliminate(system, peel, &candidates)
    }

    /// Symbols whose knowledge lets peeling go furthest: one of each of the largest sets that rows with
    /// two unknown symbols tie together. False if all rows are exhausted.
    fn choose<W: Word>(&mut self, system: &System<'_>, peel: &Peel<W>) -> bool {
        self.active.retain(|&row| peel.degree(row as usize) > 0);
        self.chosen.clear();
        self.sets.reset(system.code.n());
        let mut largest = 1;
        let mut least = (u32::MAX, None);
        for &row in &self.active {
            let degree = peel.degree(row as usize);
            if degree > 2 && degree >= least.0 {
                continue;
            }
            let Some(a) = first_unknown(system, peel, row) else {
                continue;
            };
            if degree < least.0 {
                least = (degree, Some(a));
            }
            if degree == 2 {
                let size = self.sets.join(a, a ^ peel.numbers(row as usize));
                largest = largest.max(size);
            }
        }
        if largest > 1 {
            // Sets of half the size would be next: looking for them again would find the same.
            self.chosen
                .extend(self.sets.roots(largest.div_ceil(2).max(2)));
        } else {
            self.chosen.extend(least.1);
        }
        !self.chosen.is_empty()
    }

    /// Writes every symbol found since, and the inactive ones, as sums of inactive ones.
    fn express<W: Word>(&mut self, system: &System<'_>, peel: &Peel<W>) {
        self.sums.reset(system.code.n(), self.inactive.len());
        for (column, &symbol) in self.inactive.iter().enumerate() {
            self.sums.row_mut(symbol.into())[column / 64] |= 1 << (column % 64);
        }
        let mut sum = vec![0; self.sums.width];
        for found in &peel.found()[self.peeled..] {
            // The symbol itself has no sum yet, so it adds nothing.
            self.row_sum(system, found.row, &mut sum);
            self.sums.row_mut(found.symbol.into()).copy_from_slice(&sum);
        }
    }

    /// Sum of inactive symbols that row `row` is.
    fn row_sum(&self, system: &System<'_>, row: u32, sum: &mut [u64]) {
        let neighbours = system.neighbours(row as usize);
        if let [sum] = sum {
            let words = &self.sums.words[..];
            *sum = neighbours
                .iter()
                .fold(0, |sum, &v| sum ^ words[usize::from(v)]);
            return;
        }
        sum.fill(0);
        for &v in neighbours {
            add(sum, self.sums.row(v.into()));
        }
    }

    /// Looks for as many independent rows as there are inactive symbols.
    fn eliminate<W: Word>(
        &mut self,
        system: &System<'_>,
        peel: &Peel<W>,
        candidates: &[u32],
    ) -> bool {
        let inactive = self.inactive.len();
        self.used.clear();
        self.used.resize(system.len(), false);
        for found in &peel.found()[self.peeled..] {
            self.used[found.row as usize] = true;
        }
        self.echelon.reset(inactive, inactive);
        let mut sum = vec![0; self.sums.width];
        for &row in candidates {
            if self.rows.len() == inactive {
                break;
            }
            if self.used[row as usize] {
                continue;
            }
            self.row_sum(system, row, &mut sum);
            while let Some(column) = first_bit(&sum) {
                let pivot = self.echelon.row_mut(column);
                if first_bit(pivot).is_none() {
                    pivot.copy_from_slice(&sum);
                    self.rows.push(row);
                    break;
                }
                add(&mut sum, pivot);
            }
        }
        self.rows.len() == inactive
    }

    /// Symbols set aside.
    pub(super) fn inactive(&self) -> &[u16] {
        &self.inactive
    }

    /// How many symbols were found before any was set aside.
    pub(super) fn peeled(&self) -> usize {
        self.peeled
    }

    /// Inactive symbols of which a symbol is the sum, besides a constant.
    pub(super) fn sum(&self, symbol: u16) -> &[u64] {
        self.sums.row(symbol.into())
    }

    /// The square system of the inactive symbols: rows of the block, and their coefficients.
    pub(super) fn system(&mut self, system: &System<'_>) -> (&[u32], &mut Bits) {
        let inactive = self.inactive.len();
        let mut echelon = std::mem::take(&mut self.echelon);
        echelon.reset(inactive, inactive);
        for (at, &row) in self.rows.iter().enumerate() {
            self.row_sum(system, row, echelon.row_mut(at));
        }
        self.echelon = echelon;
        (&self.rows, &mut self.echelon)
    }

    pub(super) fn memory(&self) -> usize {
        (self.inactive.capacity() + self.chosen.capacity() + self.sets.parents.capacity())
            * size_of::<u16>()
            + (self.rows.capacity() + self.active.capacity() + self.sets.sizes.capacity())
                * size_of::<u32>()
            + self.used.capacity()
            + self.sums.memory()
            + self.echelon.memory()
    }
}

/// The first symbol of a row that is unknown.
fn first_unknown<W: Word>(system: &System<'_>, peel: &Peel<W>, row: u32) -> Option<u16> {
    let neighbours = system.neighbours(row as usize).iter();
    neighbours.copied().find(|&v| peel.is_unknown(v))
}

/// Solves a square system of full rank: `swap(a, b)` and `add(to, from)` do to the right sides what is
/// done to the rows. Afterwards right side i is unknown i.
pub(super) fn solve_square(bits: &mut Bits, size: usize, mut side: impl FnMut(Step)) {
    let width = bits.width;
    for column in 0..size {
        let Some(pivot) = (column..size).find(|&row| bit(bits.row(row), column)) else {
            return;
        };
        if pivot != column {
            let (upper, lower) = bits.words.split_at_mut(pivot * width);
            upper[column * width..][..width].swap_with_slice(&mut lower[..width]);
            side(Step::Swap(column, pivot));
        }
        let pivot = bits.row(column).to_vec();
        for row in 0..size {
            if row != column && bit(bits.row(row), column) {
                add(bits.row_mut(row), &pivot);
                side(Step::Add {
                    to: row,
                    from: column,
                });
            }
        }
    }
}

/// What happens to right sides.
pub(super) enum Step {
    Swap(usize, usize),
    Add { to: usize, from: usize },
}
