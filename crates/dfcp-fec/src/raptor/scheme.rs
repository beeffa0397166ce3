//! The code as one of the schemes: encoding symbol ESI is the one LT symbol drawn from
//! (block seed, ESI). The only scheme that is not systematic: symbols below K are no copies either,
//! for LT symbols of small degree fill few gaps wherever most of the block has arrived.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::{Decoder, Degrees, Encoder, LdpcDegrees, RaptorCode, RaptorParameters, State};
use crate::block::{BlockDecoder, BlockEncoder, FecScheme, Push};
use crate::dense::mix64;
use crate::error::FecError;
use crate::spec::{BlockSpec, MAX_BLOCK_SYMBOLS, SchemeId};

/// Most source symbols of a block.
const MAX_K: u32 = MAX_BLOCK_SYMBOLS;

/// Codes kept by geometry; a sender has two or three, for its full and its last blocks.
const KEPT: usize = 16;

/// Symbol operations of a solve for each source symbol: rows used have 8 symbols on average, and
/// what peeling leaves costs about as much again.
const OPERATIONS_PER_SYMBOL: u64 = 16;

/// Failed solves that a block may have; by then it waited for half as many symbols again as it has
/// source symbols, where a tenth is rarely missing.
const MAX_FAILURES: u32 = 12;

static CODES: Mutex<BTreeMap<(u32, u16), RaptorCode>> = Mutex::new(BTreeMap::new());

/// Raptor: LDPC and LT.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaptorScheme;

impl RaptorScheme {
    /// Check nodes of a block of `k` symbols: about the published share, and enough for few.
    fn checks(k: u32) -> u32 {
        10 + k.div_ceil(32)
    }

    /// The code of a block; one byte a symbol where it has none, which a structural decoder ignores.
    fn code(spec: &BlockSpec) -> Result<RaptorCode, FecError> {
        // `BlockSpec` got its symbol size from 16 bits.
        let key = (spec.k(), spec.symbol_size().max(1) as u16);
        let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = codes.get(&key) {
            return Ok(code.clone());
        }
        let code = RaptorCode::new(RaptorParameters {
            k: key.0,
            n: key.0 + Self::checks(key.0),
            symbol_size: key.1,
            ldpc_degrees: LdpcDegrees::Constant(4),
            degrees: Degrees::Shokrollahi,
            precode: State::from_seed(key.0),
        })?;
        if codes.len() >= KEPT {
            codes.clear();
        }
        codes.insert(key, code.clone());
        Ok(code)
    }

    /// Where symbol `esi` is drawn from.
    fn state(spec: &BlockSpec, esi: u32) -> State {
        let seed = mix64(spec.seed());
        State::from_seed((seed >> 32) as u32).of_packet(seed as u32, esi)
    }
}

impl FecScheme for RaptorScheme {
    fn id(&self) -> SchemeId {
        SchemeId::Raptor
    }

    fn max_k(&self) -> u32 {
        MAX_K
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        spec.check_max_k(MAX_K)?;
        let encoder = Self::code(&spec)?.encoder(source)?;
        Ok(Box::new(SchemeEncoder { spec, encoder }))
    }

    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        spec.check_max_k(MAX_K)?;
        let code = Self::code(&spec)?;
        let mut decoder = if spec.symbol_size() == 0 {
            code.structural_decoder()
        } else {
            code.decoder(buffer)
        };
        // What is enough more often than not: a failed solve costs the sender a round trip.
        decoder.require(spec.k() + 2 + spec.k() / 256);
        Ok(Box::new(SchemeDecoder { spec, decoder }))
    }
}

#[derive(Debug)]
struct SchemeEncoder {
    spec: BlockSpec,
    encoder: Encoder,
}

impl BlockEncoder for SchemeEncoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn source(&self) -> &[u8] {
        self.encoder.source()
    }

    fn write_symbol(&mut self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.spec.check_symbol(esi, out)?;
        self.encoder
            .write_symbols(RaptorScheme::state(&self.spec, esi), out);
        Ok(())
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.encoder.into_buffer()
    }
}

#[derive(Debug)]
struct SchemeDecoder {
    spec: BlockSpec,
    decoder: Decoder,
}

impl BlockDecoder for SchemeDecoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.spec.check_symbol(esi, symbol)?;
        if self.decoder.needed() == 0 {
            return Ok(Push::Redundant);
        }
        let before = self.decoder.received();
        self.decoder
            .push(RaptorScheme::state(&self.spec, esi), 1, symbol)?;
        Ok(if self.decoder.received() > before {
            Push::Innovative
        } else {
            Push::Redundant
        })
    }

    fn needed(&self) -> u32 {
        self.decoder.needed()
    }

    fn solve_operations(&self) -> u64 {
        if self.is_complete() {
            0
        } else {
            u64::from(self.spec.k()) * OPERATIONS_PER_SYMBOL
        }
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        let solved = self.decoder.solve();
        match self.decoder.failures() {
            failures @ MAX_FAILURES.. if !solved => Err(FecError::Unsolvable {
                received: self.decoder.received(),
                failures,
            }),
            _ => Ok(solved),
        }
    }

    fn is_complete(&self) -> bool {
        self.decoder.is_solved()
    }

    fn prefix_symbols(&self) -> usize {
        if self.is_complete() {
            self.spec.k() as usize
        } else {
            0
        }
    }

    fn source(&self) -> &[u8] {
        self.decoder.source()
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.decoder.into_buffer()
    }

    fn memory(&self) -> usize {
        size_of::<BlockSpec>() + self.decoder.memory()
    }
}
