//! New combinations out of those received, at a node that need not decode.
//!
//! Symbols are kept as they came; only their vectors are eliminated, to keep independent ones
//! alone. Memory is bounded by K symbols and vectors, whatever arrives.

use super::basis::Basis;
use super::{check_vector, write_vector};
use crate::block::Push;
use crate::dense::{ALL_ROWS, MAX_K, repair_coefficients};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows};
use crate::spec::BlockSpec;

/// What a relay holds of one block.
#[derive(Debug)]
pub struct Recoder {
    spec: BlockSpec,
    kernel: &'static Kernel,
    seed: u64,
    /// Combinations made so far.
    made: u32,
    /// Of the vectors alone, to know which are independent.
    basis: Basis,
    /// K bytes for each symbol held.
    vectors: Vec<u8>,
    /// T bytes for each symbol held.
    symbols: Vec<u8>,
    redundant: u64,
}

impl Recoder {
    /// A relay's share of a block. Its combinations are drawn from `seed`, which must differ from
    /// relay to relay: equal ones would send the same combinations.
    ///
    /// # Errors
    /// [`FecError::SymbolCount`] above 256 source symbols.
    pub fn new(spec: BlockSpec, seed: u64) -> Result<Self, FecError> {
        spec.check_max_k(MAX_K as u32)?;
        let kernel = Kernel::best();
        Ok(Self {
            spec,
            kernel,
            seed,
            made: 0,
            basis: Basis::new(spec.without_bytes(), Vec::new(), kernel),
            vectors: Vec::new(),
            symbols: Vec::new(),
            redundant: 0,
        })
    }

    /// The block's geometry.
    pub fn spec(&self) -> BlockSpec {
        self.spec
    }

    /// Takes a symbol that the sender made.
    ///
    /// # Errors
    /// As [`BlockDecoder::push`](crate::BlockDecoder::push).
    pub fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.spec.check_symbol(esi, symbol)?;
        let mut vector = [0; MAX_K];
        let vector = &mut vector[..self.spec.k() as usize];
        write_vector(self.spec, esi, vector);
        Ok(self.keep(vector, symbol))
    }

    /// Takes a symbol that another relay made.
    ///
    /// # Errors
    /// As [`RlncDecoder::push_coded`](super::RlncDecoder::push_coded).
    pub fn push_coded(&mut self, coefficients: &[u8], symbol: &[u8]) -> Result<Push, FecError> {
        check_vector(self.spec, coefficients)?;
        self.spec.check_symbol(0, symbol)?;
        Ok(self.keep(coefficients, symbol))
    }

    fn keep(&mut self, vector: &[u8], symbol: &[u8]) -> Push {
        if !self.basis.insert(vector, &[]) {
            self.redundant += 1;
            return Push::Redundant;
        }
        self.vectors.extend_from_slice(vector);
        self.symbols.extend_from_slice(symbol);
        Push::Innovative
    }

    /// Writes a random combination of all symbols held to `symbol`, T bytes, and its coefficients
    /// to `coefficients`, K bytes. They are never all zero.
    ///
    /// # Errors
    /// [`FecError::Empty`] if nothing is held; [`FecError::VectorLength`],
    /// [`FecError::SymbolLength`].
    pub fn recode(&mut self, coefficients: &mut [u8], symbol: &mut [u8]) -> Result<(), FecError> {
        let (k, size, held) = (self.spec.k() as usize, symbol.len(), self.basis.rank());
        if coefficients.len() != k {
            return Err(FecError::VectorLength {
                expected: k,
                actual: coefficients.len(),
            });
        }
        self.spec.check_symbol(0, symbol)?;
        if held == 0 {
            return Err(FecError::Empty);
        }
        let (mut factors, index) = ([0; MAX_K], &ALL_ROWS[..held]);
        let factors = &mut factors[..held];
        repair_coefficients(self.seed, self.made, factors);
        self.made = self.made.wrapping_add(1);
        let combine = |out: &mut [u8], rows| self.kernel.combine(out, factors, rows);
        combine(coefficients, Rows::new(&self.vectors, k, index));
        combine(symbol, Rows::new(&self.symbols, size, index));
        Ok(())
    }

    /// Degrees of freedom held: independent symbols received, 0 to K.
    pub fn rank(&self) -> u32 {
        self.basis.rank() as u32
    }

    /// Symbols that depended on those before them.
    pub fn redundant(&self) -> u64 {
        self.redundant
    }

    /// Bytes of memory held now.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.basis.memory() + self.vectors.capacity() + self.symbols.capacity()
    }
}
