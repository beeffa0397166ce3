//! Systematic random linear code over GF(256), K ≤ 256, without a limit on repair symbols.
//!
//! Repair symbol `ESI` is `Σ cᵢ · sourceᵢ` with nonzero coefficients drawn from (seed, ESI), see
//! [`repair_coefficients`]. Any K symbols rebuild the block unless their coefficients happen to be
//! dependent: about 1 time in 250, and then one symbol more nearly always does.

mod coefficients;
mod decoder;
mod matrix;
#[cfg(test)]
mod tests;

pub use coefficients::repair_coefficients;
pub(crate) use coefficients::{GOLDEN_GAMMA, mix64};

use crate::block::{BlockDecoder, BlockEncoder, FecScheme};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows};
use crate::spec::{BlockSpec, SchemeId};

/// Most source symbols of a block. Decoding costs K symbol operations for each lost symbol, so
/// that beyond this RaptorQ begins to win.
pub(crate) const MAX_K: usize = 256;

/// The numbers 0 to 255, to name all rows of a block.
pub(crate) static ALL_ROWS: [u16; MAX_K] = {
    let mut rows = [0; MAX_K];
    let mut row = 0;
    while row < MAX_K {
        rows[row] = row as u16;
        row += 1;
    }
    rows
};

/// The dense code.
#[derive(Clone, Copy, Debug)]
pub struct DenseScheme {
    kernel: Option<&'static Kernel>,
}

impl DenseScheme {
    /// With the fastest kernel of the machine.
    pub const AUTO: Self = Self { kernel: None };

    /// With one kernel, for tests and benchmarks. The symbols are the same with every kernel.
    pub const fn with_kernel(kernel: &'static Kernel) -> Self {
        Self {
            kernel: Some(kernel),
        }
    }

    pub(crate) fn kernel(&self) -> &'static Kernel {
        self.kernel.unwrap_or_else(Kernel::best)
    }
}

impl FecScheme for DenseScheme {
    fn id(&self) -> SchemeId {
        SchemeId::Dense
    }

    fn max_k(&self) -> u32 {
        MAX_K as u32
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        spec.check_source(&source)?;
        let kernel = self.kernel();
        Ok(Box::new(DenseEncoder {
            spec,
            source,
            kernel,
        }))
    }

    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        let buffer = spec.recycle(buffer);
        Ok(Box::new(decoder::DenseDecoder::new(
            spec,
            buffer,
            self.kernel(),
        )))
    }
}

#[derive(Debug)]
struct DenseEncoder {
    spec: BlockSpec,
    source: Vec<u8>,
    kernel: &'static Kernel,
}

impl BlockEncoder for DenseEncoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn source(&self) -> &[u8] {
        &self.source
    }

    fn write_symbol(&mut self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.spec.check_symbol(esi, out)?;
        if esi < self.spec.k() {
            out.copy_from_slice(&self.source[self.spec.range(esi as usize)]);
            return Ok(());
        }
        let k = self.spec.k() as usize;
        let mut coeffs = [0; MAX_K];
        repair_coefficients(self.spec.seed(), esi, &mut coeffs[..k]);
        let rows = Rows::new(&self.source, self.spec.symbol_size(), &ALL_ROWS[..k]);
        self.kernel.combine(out, &coeffs[..k], rows);
        Ok(())
    }

    fn source_symbol(&self, esi: u32) -> Option<&[u8]> {
        (esi < self.spec.k()).then(|| &self.source[self.spec.range(esi as usize)])
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.source
    }
}
