//! The progressive decoder.

use super::basis::Basis;
use super::check_vector;
use crate::block::{BlockDecoder, Push};
use crate::dense::{MAX_K, repair_coefficients};
use crate::error::FecError;
use crate::gf256::Kernel;
use crate::spec::BlockSpec;

/// Decoder of one block that eliminates every symbol as it arrives.
///
/// Besides symbols known by their ESI it takes recoded ones. There is nothing to solve at the end:
/// the block is complete as soon as K independent symbols arrived, and single source symbols are
/// known before that wherever the symbols received determine them.
#[derive(Debug)]
pub struct RlncDecoder {
    basis: Basis,
    redundant: u64,
}

impl RlncDecoder {
    /// Starts decoding a block. `buffer` is a recycled allocation of any length and capacity.
    ///
    /// # Errors
    /// [`FecError::SymbolCount`] above 256 source symbols.
    pub fn new(spec: BlockSpec, buffer: Vec<u8>) -> Result<Self, FecError> {
        Self::with_kernel(spec, buffer, Kernel::best())
    }

    pub(super) fn with_kernel(
        spec: BlockSpec,
        buffer: Vec<u8>,
        kernel: &'static Kernel,
    ) -> Result<Self, FecError> {
        spec.check_max_k(MAX_K as u32)?;
        Ok(Self {
            basis: Basis::new(spec, buffer, kernel),
            redundant: 0,
        })
    }

    /// Takes a symbol that is the combination of the source symbols with these coefficients.
    ///
    /// # Errors
    /// [`FecError::VectorLength`] unless there are K, [`FecError::ZeroVector`] if all are zero,
    /// [`FecError::SymbolLength`] unless `symbol` has T bytes.
    pub fn push_coded(&mut self, coefficients: &[u8], symbol: &[u8]) -> Result<Push, FecError> {
        check_vector(self.basis.spec(), coefficients)?;
        self.basis.spec().check_symbol(0, symbol)?;
        let innovative = self.basis.insert(coefficients, symbol);
        Ok(self.count(innovative))
    }

    /// Degrees of freedom held: independent symbols received, 0 to K.
    pub fn rank(&self) -> u32 {
        self.basis.rank() as u32
    }

    /// Symbols that depended on those before them.
    pub fn redundant(&self) -> u64 {
        self.redundant
    }

    /// Whether source symbol `symbol` is known; its bytes are then in place in the source block.
    pub fn is_known(&self, symbol: usize) -> bool {
        self.basis.known().contains(symbol)
    }

    fn count(&mut self, innovative: bool) -> Push {
        if innovative {
            return Push::Innovative;
        }
        self.redundant += 1;
        Push::Redundant
    }
}

impl BlockDecoder for RlncDecoder {
    fn spec(&self) -> BlockSpec {
        self.basis.spec()
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        let spec = self.basis.spec();
        spec.check_symbol(esi, symbol)?;
        let innovative = if esi < spec.k() {
            self.basis.insert_source(esi as usize, symbol)
        } else {
            let mut vector = [0; MAX_K];
            let vector = &mut vector[..spec.k() as usize];
            repair_coefficients(spec.seed(), esi, vector);
            self.basis.insert(vector, symbol)
        };
        Ok(self.count(innovative))
    }

    fn needed(&self) -> u32 {
        self.basis.spec().k() - self.rank()
    }

    /// None: the work was done as the symbols arrived.
    fn solve_operations(&self) -> u64 {
        0
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        Ok(self.is_complete())
    }

    fn is_complete(&self) -> bool {
        self.basis.known().is_full()
    }

    fn prefix_symbols(&self) -> usize {
        self.basis.known().prefix()
    }

    fn source(&self) -> &[u8] {
        self.basis.buffer()
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.basis.into_buffer()
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.basis.memory()
    }
}
