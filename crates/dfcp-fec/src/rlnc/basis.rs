//! The space spanned by the symbols received, kept as its reduced row echelon form: Gauss–Jordan
//! elimination one symbol at a time, CTCP's Algorithm 4 made complete.
//!
//! Invariants: every row has a one at its pivot column, and zeros at the pivots of all other rows.
//! The bytes of the row with pivot p lie in slot p of the buffer, so that the block never needs
//! more than its own K · T bytes. Rows that have no other entry *are* source symbol p (`known`):
//! they need no coefficients. Only the others (`mixed`) keep their vectors, K bytes each.
//!
//! Because of the second invariant the factors that take a symbol's pivot columns out are its own
//! coefficients there: all rows are fused into one pass over the bytes, and vectors alone say
//! beforehand whether the symbol is worth it.

use crate::dense::{ALL_ROWS, MAX_K};
use crate::gf256::{Kernel, Rows, inv};
use crate::spec::BlockSpec;
use crate::symbol_set::SymbolSet;

/// Rows of the basis and what to multiply each with.
struct Terms {
    rows: [u16; MAX_K],
    factors: [u8; MAX_K],
    len: usize,
}

impl Terms {
    fn new() -> Self {
        Self {
            rows: [0; MAX_K],
            factors: [0; MAX_K],
            len: 0,
        }
    }

    fn push(&mut self, row: usize, factor: u8) {
        self.rows[self.len] = row as u16;
        self.factors[self.len] = factor;
        self.len += 1;
    }

    fn rows(&self) -> &[u16] {
        &self.rows[..self.len]
    }

    fn factors(&self) -> &[u8] {
        &self.factors[..self.len]
    }
}

#[derive(Debug)]
pub(super) struct Basis {
    spec: BlockSpec,
    kernel: &'static Kernel,
    buffer: Vec<u8>,
    pivots: SymbolSet,
    known: SymbolSet,
    /// Pivots of the rows that are not yet single source symbols.
    mixed: Vec<u16>,
    /// Their vectors, K bytes each, in the same order.
    vectors: Vec<u8>,
}

impl Basis {
    /// The empty basis of a block of at most [`MAX_K`] symbols. `buffer` is recycled.
    pub(super) fn new(spec: BlockSpec, buffer: Vec<u8>, kernel: &'static Kernel) -> Self {
        let k = spec.k() as usize;
        Self {
            spec,
            kernel,
            buffer: spec.recycle(buffer),
            pivots: SymbolSet::new(k),
            known: SymbolSet::new(k),
            mixed: Vec::new(),
            vectors: Vec::new(),
        }
    }

    pub(super) fn spec(&self) -> BlockSpec {
        self.spec
    }

    pub(super) fn rank(&self) -> usize {
        self.pivots.count()
    }

    /// Source symbols that the rows determine one by one.
    pub(super) fn known(&self) -> &SymbolSet {
        &self.known
    }

    pub(super) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
            + self.pivots.memory()
            + self.known.memory()
            + self.mixed.capacity() * size_of::<u16>()
            + self.vectors.capacity()
    }

    /// Takes source symbol `column`; false if it depends on what is there.
    pub(super) fn insert_source(&mut self, column: usize, symbol: &[u8]) -> bool {
        if !self.mixed.is_empty() {
            let mut vector = [0; MAX_K];
            vector[column] = 1;
            return self.insert(&vector[..self.spec.k() as usize], symbol);
        }
        if !self.known.insert(column) {
            return false;
        }
        self.pivots.insert(column);
        self.buffer[self.spec.range(column)].copy_from_slice(symbol);
        true
    }

    /// Takes a symbol with its vector, K bytes; false if it depends on what is there.
    pub(super) fn insert(&mut self, vector: &[u8], symbol: &[u8]) -> bool {
        if self.pivots.is_full() {
            return false;
        }
        let k = self.spec.k() as usize;
        let last = self.mixed.len();
        let mut terms = self.reduce(vector);
        let row = &mut self.vectors[last * k..];
        let Some(pivot) = row.iter().position(|&c| c != 0) else {
            self.vectors.truncate(last * k);
            return false;
        };
        let scale = inv(row[pivot]);
        multiply(self.kernel, row, scale);
        multiply(self.kernel, &mut terms.factors[..terms.len], scale);
        self.store(pivot, scale, symbol, &terms);
        self.pivots.insert(pivot);
        self.eliminate(pivot);
        self.mixed.push(pivot as u16);
        self.settle();
        true
    }

    /// Appends `vector`, with the pivot columns taken out, to the vectors. Returns the rows that
    /// this takes, by pivot.
    fn reduce(&mut self, vector: &[u8]) -> Terms {
        let k = vector.len();
        let last = self.mixed.len();
        self.vectors.extend_from_slice(vector);
        let mut terms = Terms::new();
        for column in self.pivots.iter().filter(|&column| vector[column] != 0) {
            terms.push(column, vector[column]);
        }
        let mut factors = [0; MAX_K];
        for (factor, &pivot) in factors.iter_mut().zip(&self.mixed) {
            *factor = vector[usize::from(pivot)];
        }
        let (factors, index) = (&factors[..last], &ALL_ROWS[..last]);
        self.kernel
            .accumulate_within(&mut self.vectors, k, &[last * k], factors, index);
        let row = &mut self.vectors[last * k..];
        for column in self.known.iter() {
            row[column] = 0;
        }
        terms
    }

    /// Puts the bytes of the new row into its slot: `scale` · symbol ⊕ the terms.
    fn store(&mut self, pivot: usize, scale: u8, symbol: &[u8], terms: &Terms) {
        let size = self.spec.symbol_size();
        if size == 0 {
            return;
        }
        let slot = &mut self.buffer[self.spec.range(pivot)];
        if scale == 1 {
            slot.copy_from_slice(symbol);
        } else {
            let rows = Rows::new(symbol, size, &ALL_ROWS[..1]);
            self.kernel.combine(slot, &[scale], rows);
        }
        let target = self.spec.range(pivot).start;
        let (factors, rows) = (terms.factors(), terms.rows());
        self.kernel
            .accumulate_within(&mut self.buffer, size, &[target], factors, rows);
    }

    /// Takes column `pivot` of the new row, the last of the vectors, out of all other rows.
    fn eliminate(&mut self, pivot: usize) {
        let (k, size) = (self.spec.k() as usize, self.spec.symbol_size());
        let last = self.mixed.len();
        let (mut at, mut slots) = ([0; MAX_K], [0; MAX_K]);
        let mut factors = [0; MAX_K];
        let mut n = 0;
        for (i, &row) in self.mixed.iter().enumerate() {
            let factor = self.vectors[i * k + pivot];
            if factor != 0 {
                (at[n], slots[n], factors[n]) = (i * k, usize::from(row) * size, factor);
                n += 1;
            }
        }
        let (at, slots, factors) = (&at[..n], &slots[..n], &factors[..n]);
        self.kernel
            .accumulate_within(&mut self.vectors, k, at, factors, &[last as u16]);
        if size > 0 {
            self.kernel
                .accumulate_within(&mut self.buffer, size, slots, factors, &[pivot as u16]);
        }
    }

    /// Moves the rows that became source symbols from `mixed` to `known`.
    fn settle(&mut self) {
        let k = self.spec.k() as usize;
        for i in (0..self.mixed.len()).rev() {
            let row = &self.vectors[i * k..][..k];
            if row.iter().filter(|&&c| c != 0).nth(1).is_some() {
                continue;
            }
            self.known.insert(usize::from(self.mixed.swap_remove(i)));
            let end = self.mixed.len() * k;
            self.vectors.copy_within(end.., i * k);
            self.vectors.truncate(end);
        }
    }
}

/// `row ← c · row`, at most [`MAX_K`] bytes.
fn multiply(kernel: &Kernel, row: &mut [u8], c: u8) {
    if c != 1 {
        let mut copy = [0; MAX_K];
        let copy = &mut copy[..row.len()];
        copy.copy_from_slice(row);
        kernel.combine(row, &[c], Rows::new(copy, copy.len(), &ALL_ROWS[..1]));
    }
}
