//! Decoder of the dense code.
//!
//! A block never needs more memory than its own K · T bytes: repair symbols wait in the slots of
//! source symbols that are missing. There are always enough, for a repair symbol is kept only
//! while fewer are held than source symbols are missing.
//!
//! Invariant: `repairs.len() ≤ missing`, and equality means that the matrix of the repair symbols'
//! coefficients at the missing positions is invertible and `inverse` is its inverse.

use super::matrix::{Inversion, invert};
use super::{ALL_ROWS, MAX_K, repair_coefficients};
use crate::block::{BlockDecoder, Push};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows};
use crate::spec::BlockSpec;
use crate::symbol_set::SymbolSet;

/// Bytes of each symbol that the final solve takes at once: bounds its scratch memory.
const STRIP: usize = 2048;

/// A repair symbol that waits in the slot of a missing source symbol.
#[derive(Clone, Copy, Debug)]
struct Repair {
    esi: u32,
    slot: usize,
}

#[derive(Debug)]
pub(super) struct DenseDecoder {
    spec: BlockSpec,
    kernel: &'static Kernel,
    buffer: Vec<u8>,
    present: SymbolSet,
    /// Slots that hold a repair symbol.
    occupied: SymbolSet,
    repairs: Vec<Repair>,
    /// Missing source symbols (rows, ascending) out of syndromes (columns, as in `repairs`).
    inverse: Vec<u8>,
}

impl DenseDecoder {
    pub(super) fn new(spec: BlockSpec, buffer: Vec<u8>, kernel: &'static Kernel) -> Self {
        let k = spec.k() as usize;
        Self {
            spec,
            kernel,
            buffer,
            present: SymbolSet::new(k),
            occupied: SymbolSet::new(k),
            repairs: Vec::new(),
            inverse: Vec::new(),
        }
    }

    fn is_solvable(&self) -> bool {
        self.repairs.len() == self.present.missing()
    }

    /// A missing slot without a repair symbol. From the end of the block, because source symbols
    /// arrive roughly in order and would push the repair symbol out again.
    fn free_slot(&self) -> Option<usize> {
        self.present.last_in_neither(&self.occupied)
    }

    fn push_source(&mut self, symbol: usize, bytes: &[u8]) -> bool {
        if self.present.contains(symbol) {
            return false;
        }
        if self.occupied.contains(symbol) {
            let repair = self.repairs.iter().position(|r| r.slot == symbol);
            // The invariant gives both: an occupied slot has its repair symbol, and a block that
            // is not solvable has a free slot.
            let (Some(repair), Some(slot)) = (repair, self.free_slot()) else {
                return false;
            };
            let from = self.spec.range(symbol);
            self.buffer.copy_within(from, self.spec.range(slot).start);
            self.repairs[repair].slot = slot;
            self.occupied.remove(symbol);
            self.occupied.insert(slot);
        }
        self.buffer[self.spec.range(symbol)].copy_from_slice(bytes);
        self.present.insert(symbol)
    }

    fn push_repair(&mut self, esi: u32, bytes: &[u8]) -> bool {
        if self.repairs.iter().any(|repair| repair.esi == esi) {
            return false;
        }
        let Some(slot) = self.free_slot() else {
            return false;
        };
        self.buffer[self.spec.range(slot)].copy_from_slice(bytes);
        self.occupied.insert(slot);
        self.repairs.push(Repair { esi, slot });
        true
    }

    /// With as many repair symbols as missing ones: inverts their matrix, or drops the repair
    /// symbols that depend on others. Those are worthless for good, since a dependence among rows
    /// outlives the removal of columns by source symbols that come later.
    fn check_rank(&mut self) {
        let k = self.spec.k() as usize;
        self.inverse.clear();
        self.inverse
            .reserve_exact(self.repairs.len() * self.repairs.len());
        let mut coeffs = [0; MAX_K];
        for repair in &self.repairs {
            repair_coefficients(self.spec.seed(), repair.esi, &mut coeffs[..k]);
            let missing = self.present.iter_missing().map(|column| coeffs[column]);
            self.inverse.extend(missing);
        }
        let outcome = invert(self.kernel, &mut self.inverse, self.repairs.len());
        if let Inversion::Dependent(rows) = outcome {
            for row in rows.into_iter().rev() {
                let dropped = self.repairs.remove(row);
                self.occupied.remove(dropped.slot);
            }
        }
    }

    /// Takes the known source symbols out of the repair symbols, in their slots.
    fn reduce_to_syndromes(&mut self) {
        let k = self.spec.k() as usize;
        let mut index = Vec::with_capacity(self.present.count());
        index.extend(self.present.iter().map(|row| row as u16));
        let mut all = [0; MAX_K];
        let mut coeffs = Vec::with_capacity(self.repairs.len() * index.len());
        for repair in &self.repairs {
            repair_coefficients(self.spec.seed(), repair.esi, &mut all[..k]);
            coeffs.extend(index.iter().map(|&row| all[usize::from(row)]));
        }
        let slot = |repair: &Repair| self.spec.range(repair.slot).start;
        let slots: Vec<usize> = self.repairs.iter().map(slot).collect();
        let len = self.spec.symbol_size();
        self.kernel
            .accumulate_within(&mut self.buffer, len, &slots, &coeffs, &index);
    }

    /// Overwrites the slots, which hold the syndromes, with the source symbols missing there.
    fn apply_inverse(&mut self) {
        let n = self.repairs.len();
        let size = self.spec.symbol_size();
        let missing = self.present.iter_missing();
        let mut targets = Vec::with_capacity(n);
        targets.extend(missing.map(|row| self.spec.range(row).start));
        let mut scratch = vec![0; n * STRIP.min(size)];
        for start in (0..size).step_by(STRIP) {
            let width = STRIP.min(size - start);
            for (syndrome, repair) in scratch.chunks_exact_mut(width).zip(&self.repairs) {
                let at = self.spec.range(repair.slot).start + start;
                syndrome.copy_from_slice(&self.buffer[at..at + width]);
            }
            let rows = Rows::new(&scratch, width, &ALL_ROWS[..n]);
            self.kernel
                .combine_into(&mut self.buffer, width, &targets, &self.inverse, rows);
            for target in &mut targets {
                *target += width;
            }
        }
    }
}

impl BlockDecoder for DenseDecoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.spec.check_symbol(esi, symbol)?;
        if self.is_solvable() {
            return Ok(Push::Redundant);
        }
        let is_source = esi < self.spec.k();
        let mut innovative = if is_source {
            self.push_source(esi as usize, symbol)
        } else {
            self.push_repair(esi, symbol)
        };
        if innovative && self.is_solvable() && !self.repairs.is_empty() {
            self.check_rank();
            // It may be the very symbol pushed that was dropped.
            innovative = is_source || self.repairs.last().is_some_and(|last| last.esi == esi);
        }
        Ok(if innovative {
            Push::Innovative
        } else {
            Push::Redundant
        })
    }

    fn needed(&self) -> u32 {
        (self.present.missing() - self.repairs.len()) as u32
    }

    fn solve_operations(&self) -> u64 {
        // Each repair symbol meets the K − n symbols that are known, then n syndromes.
        self.repairs.len() as u64 * u64::from(self.spec.k())
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        if !self.is_solvable() {
            return Ok(false);
        }
        if !self.repairs.is_empty() {
            // Symbols without bytes: the rank is all there is to know.
            if self.spec.symbol_size() > 0 {
                self.reduce_to_syndromes();
                self.apply_inverse();
            }
            self.present.fill();
            self.repairs.clear();
        }
        Ok(true)
    }

    fn is_complete(&self) -> bool {
        self.present.is_full()
    }

    fn prefix_symbols(&self) -> usize {
        self.present.prefix()
    }

    fn source(&self) -> &[u8] {
        &self.buffer
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.buffer
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.buffer.capacity()
            + self.present.memory()
            + self.occupied.memory()
            + self.repairs.capacity() * size_of::<Repair>()
            + self.inverse.capacity()
    }
}
