//! The codes without the bytes: what a block needs is decided by structure alone, for simulated
//! networks in which only sizes matter.
//!
//! Blocks have the geometry of real ones, but sources and symbols are empty: memory is O(K) for a
//! block. ARQ, the dense code, RLNC and Raptor are the codes themselves, run on symbols of no bytes, so
//! the verdict is exact. RaptorQ goes by count, and differs from the code in one thing: whether N ≥ K received
//! symbols are enough is not computed but drawn, from (block seed, N), with the failure rate that
//! the code was designed for: 1 % with K symbols, a hundredth of it with each further one.
//!
//! Invariant: every buffer is empty, whatever the block's geometry says.

use crate::arq::ArqScheme;
use crate::block::{BlockDecoder, BlockEncoder, FecScheme, Push};
use crate::dense::{DenseScheme, mix64};
use crate::error::FecError;
use crate::raptor::RaptorScheme;
use crate::raptorq::{self, BackOff, RaptorQScheme};
use crate::rlnc::{Recoder, RlncDecoder, RlncScheme};
use crate::spec::{BlockSpec, SchemeId};
use crate::symbol_set::SymbolSet;
use std::collections::BTreeSet;

/// The twin of [`crate::scheme`] whose sources and symbols have no bytes: empty slices are passed
/// wherever the code itself would take or fill some, others are refused.
pub fn scheme(id: SchemeId) -> &'static dyn FecScheme {
    match id {
        SchemeId::Arq => &Structural(ArqScheme),
        SchemeId::Dense => &Structural(DenseScheme::AUTO),
        SchemeId::RaptorQ => &Structural(Count),
        SchemeId::Raptor => &Structural(RaptorScheme),
        SchemeId::Rlnc => &Structural(RlncScheme::AUTO),
    }
}

/// The progressive decoder for symbols of no bytes, recoded ones among them. Its geometry has
/// T = 0.
///
/// # Errors
/// As [`RlncDecoder::new`].
pub fn rlnc_decoder(spec: BlockSpec) -> Result<RlncDecoder, FecError> {
    RlncDecoder::new(spec.without_bytes(), Vec::new())
}

/// The recoder for symbols of no bytes: vectors are all it combines. Its geometry has T = 0.
///
/// # Errors
/// As [`Recoder::new`].
pub fn recoder(spec: BlockSpec, seed: u64) -> Result<Recoder, FecError> {
    Recoder::new(spec.without_bytes(), seed)
}

/// A code on blocks without bytes.
#[derive(Clone, Copy, Debug)]
struct Structural<C>(C);

impl<C: FecScheme> FecScheme for Structural<C> {
    fn id(&self) -> SchemeId {
        self.0.id()
    }

    fn max_k(&self) -> u32 {
        self.0.max_k()
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        spec.without_bytes().check_source(&source)?;
        Ok(Box::new(Encoder(spec)))
    }

    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        let inner = self.0.decoder(spec.without_bytes(), buffer)?;
        Ok(Box::new(Decoder { spec, inner }))
    }
}

/// Every symbol of every code has no bytes.
#[derive(Debug)]
struct Encoder(BlockSpec);

impl BlockEncoder for Encoder {
    fn spec(&self) -> BlockSpec {
        self.0
    }

    fn source(&self) -> &[u8] {
        &[]
    }

    fn write_symbol(&mut self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.0.without_bytes().check_symbol(esi, out)
    }

    fn append_symbol(&mut self, esi: u32, _out: &mut Vec<u8>) -> Result<(), FecError> {
        self.write_symbol(esi, &mut [])
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        Vec::new()
    }
}

/// A decoder of symbols without bytes under the name of the block's true geometry.
#[derive(Debug)]
struct Decoder {
    spec: BlockSpec,
    inner: Box<dyn BlockDecoder>,
}

impl BlockDecoder for Decoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.inner.push(esi, symbol)
    }

    fn needed(&self) -> u32 {
        self.inner.needed()
    }

    fn solve_operations(&self) -> u64 {
        self.inner.solve_operations()
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        self.inner.solve()
    }

    fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }

    fn prefix_symbols(&self) -> usize {
        self.inner.prefix_symbols()
    }

    fn source(&self) -> &[u8] {
        &[]
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.inner.into_buffer()
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.inner.memory()
    }
}

/// RaptorQ by count.
#[derive(Clone, Copy, Debug)]
struct Count;

impl FecScheme for Count {
    fn id(&self) -> SchemeId {
        SchemeId::RaptorQ
    }

    fn max_k(&self) -> u32 {
        RaptorQScheme.max_k()
    }

    fn encoder(&self, spec: BlockSpec, _: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        Ok(Box::new(Encoder(spec)))
    }

    fn decoder(&self, spec: BlockSpec, _: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        Ok(Box::new(CountDecoder {
            spec,
            present: SymbolSet::new(spec.k() as usize),
            repairs: BTreeSet::new(),
            back_off: BackOff::new(spec.k()),
        }))
    }
}

#[derive(Debug)]
struct CountDecoder {
    spec: BlockSpec,
    present: SymbolSet,
    repairs: BTreeSet<u32>,
    /// As in the code's own decoder.
    back_off: BackOff,
}

impl CountDecoder {
    fn received(&self) -> usize {
        self.present.count() + self.repairs.len()
    }

    /// Whether the symbols received happen not to be enough: 100 to the power of −(N − K + 1).
    fn is_deficient(&self) -> bool {
        let spare = self.received() as i32 - self.spec.k() as i32;
        let draw = mix64(self.spec.seed() ^ mix64(self.received() as u64));
        (draw as f64) < 2f64.powi(64) * 0.01f64.powi(spare + 1)
    }
}

impl BlockDecoder for CountDecoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.spec.check_symbol(esi, symbol)?;
        let new = self.needed() > 0
            && if esi < self.spec.k() {
                self.present.insert(esi as usize)
            } else {
                self.repairs.insert(esi)
            };
        Ok(if new {
            Push::Innovative
        } else {
            Push::Redundant
        })
    }

    fn needed(&self) -> u32 {
        if self.is_complete() {
            return 0;
        }
        self.back_off.required.saturating_sub(self.received()) as u32
    }

    fn solve_operations(&self) -> u64 {
        raptorq::solve_operations(self.spec.k(), self.is_complete())
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        if !self.is_complete() && self.needed() == 0 {
            if self.is_deficient() {
                self.back_off.on_failure(self.received())?;
            } else {
                self.present.fill();
                self.repairs.clear();
            }
        }
        Ok(self.is_complete())
    }

    fn is_complete(&self) -> bool {
        self.present.is_full()
    }

    fn prefix_symbols(&self) -> usize {
        self.present.prefix()
    }

    fn source(&self) -> &[u8] {
        &[]
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        Vec::new()
    }

    fn memory(&self) -> usize {
        let repairs = self.repairs.len() * size_of::<u32>();
        size_of::<Self>() + self.present.memory() + repairs
    }
}
