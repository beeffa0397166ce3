//! RaptorQ (RFC 6330) on the `raptorq` crate.

use crate::block::{BlockDecoder, BlockEncoder, FecScheme};
use crate::error::FecError;
use crate::spec::{BlockSpec, SchemeId};

/// RaptorQ.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaptorQScheme;

impl FecScheme for RaptorQScheme {
    fn id(&self) -> SchemeId {
        SchemeId::RaptorQ
    }

    fn max_k(&self) -> u32 {
        8192
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        spec.check_source(&source)?;
        Err(FecError::Internal("not there yet"))
    }

    fn decoder(&self, spec: BlockSpec, _: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        spec.check_max_k(self.max_k())?;
        Err(FecError::Internal("not there yet"))
    }
}
