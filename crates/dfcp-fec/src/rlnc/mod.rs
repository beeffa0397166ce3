//! Systematic random linear network coding over GF(256), K ≤ 256: the code of CTCP (section 4.4).
//!
//! Symbols are those of the dense code ([`crate::dense`]), made by the same encoder: source symbols
//! below K, from K on random combinations whose coefficients follow from (block seed, ESI). Two
//! things are added:
//! - the decoder is progressive (section 5.1, Algorithm 4): each symbol is eliminated as it
//!   arrives, so that the degrees of freedom held are exact after every one, and no solve is left
//!   when the last comes;
//! - nodes on the way may [recode](Recoder): combine what they hold of a block without decoding
//!   it. Recoded symbols have no ESI; they come with their coefficient vector, K bytes.
//!
//! Decoder and recoder stand on one thing, the basis (module `basis`) of the space spanned by the
//! coefficient vectors received. Normative text and test vectors: `docs/spec/codes.md`.

mod basis;
mod decoder;
mod recoder;

pub use decoder::RlncDecoder;
pub use recoder::Recoder;

use crate::block::{BlockDecoder, BlockEncoder, FecScheme};
use crate::dense::{DenseScheme, MAX_K, repair_coefficients};
use crate::error::FecError;
use crate::gf256::Kernel;
use crate::spec::{BlockSpec, SchemeId};

/// Random linear network coding.
#[derive(Clone, Copy, Debug)]
pub struct RlncScheme(DenseScheme);

impl RlncScheme {
    /// With the fastest kernel of the machine.
    pub const AUTO: Self = Self(DenseScheme::AUTO);

    /// With one kernel, for tests and benchmarks. The symbols are the same with every kernel.
    pub const fn with_kernel(kernel: &'static Kernel) -> Self {
        Self(DenseScheme::with_kernel(kernel))
    }
}

impl FecScheme for RlncScheme {
    fn id(&self) -> SchemeId {
        SchemeId::Rlnc
    }

    fn max_k(&self) -> u32 {
        MAX_K as u32
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        self.0.encoder(spec, source)
    }

    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        let decoder = RlncDecoder::with_kernel(spec, buffer, self.0.kernel())?;
        Ok(Box::new(decoder))
    }
}

/// Fills `vector`, one byte for each source symbol, with the coefficients of symbol `esi` of the
/// block with this seed: a unit vector below K = `vector.len()`.
///
/// # Errors
/// [`FecError::Esi`] above 24 bits, [`FecError::SymbolCount`] unless `vector` has 1 to 256 bytes.
pub fn coefficient_vector(seed: u64, esi: u32, vector: &mut [u8]) -> Result<(), FecError> {
    let k = u32::try_from(vector.len()).unwrap_or(u32::MAX);
    let spec = BlockSpec::new(k, 1, seed)?.without_bytes();
    spec.check_max_k(MAX_K as u32)?;
    spec.check_symbol(esi, &[])?;
    write_vector(spec, esi, vector);
    Ok(())
}

/// As [`coefficient_vector`], with everything checked.
fn write_vector(spec: BlockSpec, esi: u32, vector: &mut [u8]) {
    if esi < spec.k() {
        vector.fill(0);
        vector[esi as usize] = 1;
    } else {
        repair_coefficients(spec.seed(), esi, vector);
    }
}

/// Whether `vector` can be the coefficients of a symbol of the block.
fn check_vector(spec: BlockSpec, vector: &[u8]) -> Result<(), FecError> {
    if vector.len() != spec.k() as usize {
        return Err(FecError::VectorLength {
            expected: spec.k() as usize,
            actual: vector.len(),
        });
    }
    if vector.iter().all(|&c| c == 0) {
        return Err(FecError::ZeroVector);
    }
    Ok(())
}
