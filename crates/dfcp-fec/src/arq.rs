//! ARQ as a code: a block is one symbol and every encoding symbol is that symbol again.

use crate::block::{BlockDecoder, BlockEncoder, FecScheme, Push};
use crate::error::FecError;
use crate::spec::{BlockSpec, SchemeId};

/// The scheme without coding, K = 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArqScheme;

impl FecScheme for ArqScheme {
    fn id(&self) -> SchemeId {
        SchemeId::Arq
    }

    fn max_k(&self) -> u32 {
        1
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        spec.check_source(&source)?;
        Ok(Box::new(ArqEncoder { spec, source }))
    }

    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        Ok(Box::new(ArqDecoder {
            spec,
            source: spec.recycle(buffer),
            complete: false,
        }))
    }
}

#[derive(Debug)]
struct ArqEncoder {
    spec: BlockSpec,
    source: Vec<u8>,
}

impl BlockEncoder for ArqEncoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn source(&self) -> &[u8] {
        &self.source
    }

    fn write_symbol(&mut self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.spec.check_symbol(esi, out)?;
        out.copy_from_slice(&self.source);
        Ok(())
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.source
    }
}

#[derive(Debug)]
struct ArqDecoder {
    spec: BlockSpec,
    source: Vec<u8>,
    complete: bool,
}

impl BlockDecoder for ArqDecoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.spec.check_symbol(esi, symbol)?;
        if self.complete {
            return Ok(Push::Redundant);
        }
        self.source.copy_from_slice(symbol);
        self.complete = true;
        Ok(Push::Innovative)
    }

    fn needed(&self) -> u32 {
        u32::from(!self.complete)
    }

    fn solve_operations(&self) -> u64 {
        0
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        Ok(self.complete)
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn prefix_symbols(&self) -> usize {
        usize::from(self.complete)
    }

    fn source(&self) -> &[u8] {
        &self.source
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.source
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.source.capacity()
    }
}
