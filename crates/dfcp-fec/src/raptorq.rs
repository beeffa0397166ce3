//! RaptorQ (RFC 6330) on the `raptorq` crate.
//!
//! The crate trusts its input: symbols of the wrong length, an empty symbol size or hostile
//! geometry panic or exhaust memory. Everything is therefore checked before it is called. It
//! keeps encoding plans, by K, in a cache bounded to 64 plans.
//!
//! One block here is one RFC 6330 object: source block number 0, Z = 1, N = 1, Al = 1, F = K · T.
//! K is extended to the next K′ with zero symbols that are not sent (section 5.3.1).

use ::raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder,
    SourceBlockEncoder,
};
use std::collections::BTreeMap;
use std::ops::Range;

use crate::block::{BlockDecoder, BlockEncoder, FecScheme, Push};
use crate::error::FecError;
use crate::spec::{BlockSpec, MAX_BLOCK_SYMBOLS, SchemeId};
use crate::symbol_set::SymbolSet;

/// Most source symbols of a block, well below the K'_max = 56403 of RFC 6330.
const MAX_K: u32 = MAX_BLOCK_SYMBOLS;

/// Symbol operations that solving takes for each source symbol. The crate does not count them: this
/// is the time of a solve with a tenth lost, K = 128 and K = 1000, ÷ that of a dense operation.
const OPERATIONS_PER_SYMBOL: u64 = 270;

/// Estimated symbol operations of a solve.
pub(crate) fn solve_operations(k: u32, complete: bool) -> u64 {
    if complete {
        0
    } else {
        u64::from(k) * OPERATIONS_PER_SYMBOL
    }
}

/// Copies of all symbols that a solve may hold at a time: as packets, as the right side of its equations
/// with rows of its own beside, and as the block that it makes.
const SOLVE_COPIES: usize = 4;
/// Bytes of its matrix, and of what it notes, for each symbol: 3070 with K = 8192, whether the symbols were
/// chosen at random, in runs or in steps, and a tenth more (`tests/allocations.rs`).
const SOLVE_NOTES: usize = 3400;
/// Bytes that it takes whatever K is.
const SOLVE_BASE: usize = 72 << 10;

/// Failed solves that a block may have. Symbols can be chosen so that they never suffice, and each
/// attempt costs milliseconds. By chance 1 % of blocks fail with K symbols and a hundredth of these with
/// each further one, so that four failures of one block in a row have a chance of 10⁻¹⁶.
const MAX_FAILURES: u32 = 6;

/// How often solving a block failed, and what it waits for in consequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    failures: u32,
    /// Symbols to hold before the next attempt.
    pub(crate) required: usize,
}

impl BackOff {
    /// A block of `k` symbols before its first attempt.
    pub(crate) fn new(k: u32) -> Self {
        Self {
            failures: 0,
            required: k as usize,
        }
    }

    /// An attempt with `received` symbols failed: the code cannot say how many it lacks, so one
    /// more is waited for, then two, four, eight.
    pub(crate) fn on_failure(&mut self, received: usize) -> Result<(), FecError> {
        self.required = received + (1 << self.failures);
        self.failures += 1;
        if self.failures < MAX_FAILURES {
            return Ok(());
        }
        Err(FecError::Unsolvable {
            received: received as u32,
            failures: self.failures,
        })
    }
}

/// Every block is source block 0 of its own object.
const SOURCE_BLOCK_NUMBER: u8 = 0;

/// RaptorQ.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaptorQScheme;

impl FecScheme for RaptorQScheme {
    fn id(&self) -> SchemeId {
        SchemeId::RaptorQ
    }

    fn max_k(&self) -> u32 {
        MAX_K
    }

    fn encoder(&self, spec: BlockSpec, source: Vec<u8>) -> Result<Box<dyn BlockEncoder>, FecError> {
        spec.check_max_k(MAX_K)?;
        spec.check_source(&source)?;
        Ok(Box::new(RaptorQEncoder {
            spec,
            source,
            intermediate: None,
        }))
    }

    fn decoder(&self, spec: BlockSpec, buffer: Vec<u8>) -> Result<Box<dyn BlockDecoder>, FecError> {
        spec.check_max_k(MAX_K)?;
        Ok(Box::new(RaptorQDecoder {
            spec,
            buffer: spec.recycle(buffer),
            present: SymbolSet::new(spec.k() as usize),
            repairs: BTreeMap::new(),
            lodgers: BTreeMap::new(),
            free_below: spec.k() as usize,
            back_off: BackOff::new(spec.k()),
        }))
    }
}

/// FEC Object Transmission Information (RFC 6330 section 3.3) of one block.
fn transmission_information(spec: &BlockSpec) -> ObjectTransmissionInformation {
    // `BlockSpec` got its symbol size from 16 bits.
    ObjectTransmissionInformation::new(spec.source_len() as u64, spec.symbol_size() as u16, 1, 1, 1)
}

#[derive(Debug)]
struct RaptorQEncoder {
    spec: BlockSpec,
    source: Vec<u8>,
    /// The intermediate symbols, computed when the first repair symbol is asked for: a block that
    /// loses nothing never pays for them.
    intermediate: Option<SourceBlockEncoder>,
}

impl BlockEncoder for RaptorQEncoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn source(&self) -> &[u8] {
        &self.source
    }

    fn write_symbol(&mut self, esi: u32, out: &mut [u8]) -> Result<(), FecError> {
        self.spec.check_symbol(esi, out)?;
        let Some(repair) = esi.checked_sub(self.spec.k()) else {
            out.copy_from_slice(&self.source[self.spec.range(esi as usize)]);
            return Ok(());
        };
        let intermediate = self.intermediate.get_or_insert_with(|| {
            let config = transmission_information(&self.spec);
            SourceBlockEncoder::new(SOURCE_BLOCK_NUMBER, &config, &self.source)
        });
        match intermediate.repair_packets(repair, 1).first() {
            Some(packet) if packet.data().len() == out.len() => {
                out.copy_from_slice(packet.data());
                Ok(())
            }
            _ => Err(FecError::Internal("raptorq made no repair symbol")),
        }
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.source
    }
}

#[derive(Debug)]
struct RaptorQDecoder {
    spec: BlockSpec,
    /// The rows of the block, then those of repair symbols that found no free one among them.
    buffer: Vec<u8>,
    present: SymbolSet,
    /// Repair symbols by ESI, and the rows where they lie: those of source symbols not received, so
    /// that a block takes no more memory than its own until it has more symbols than rows.
    repairs: BTreeMap<u32, usize>,
    /// The ESIs of the repair symbols among the block's own rows.
    lodgers: BTreeMap<usize, u32>,
    /// No row of the block from here on is free.
    free_below: usize,
    back_off: BackOff,
}

impl RaptorQDecoder {
    fn received(&self) -> usize {
        self.present.count() + self.repairs.len()
    }

    /// All that was received, as the crate wants it.
    fn packets(&self) -> impl Iterator<Item = EncodingPacket> + '_ {
        let packet = |esi: u32, bytes: &[u8]| {
            EncodingPacket::new(PayloadId::new(SOURCE_BLOCK_NUMBER, esi), bytes.to_vec())
        };
        let sources = self
            .present
            .iter()
            .map(move |row| packet(row as u32, &self.buffer[self.spec.range(row)]));
        let repairs = self.repairs.iter();
        let repairs = repairs.map(move |(&esi, &row)| packet(esi, &self.buffer[self.row(row)]));
        sources.chain(repairs)
    }

    /// The bytes of a row, of the block or beyond.
    fn row(&self, row: usize) -> Range<usize> {
        let size = self.spec.symbol_size();
        row * size..(row + 1) * size
    }

    /// A row for one more repair symbol.
    fn free_row(&mut self) -> usize {
        while let Some(row) = self.free_below.checked_sub(1) {
            self.free_below = row;
            if !self.present.contains(row) {
                return row;
            }
        }
        let rows = self.buffer.len() / self.spec.symbol_size();
        self.buffer.reserve_exact(self.spec.symbol_size());
        self.buffer.resize((rows + 1) * self.spec.symbol_size(), 0);
        rows
    }

    /// Finds room for a repair symbol: its bytes.
    fn lodge(&mut self, esi: u32) -> Range<usize> {
        let row = self.free_row();
        self.repairs.insert(esi, row);
        if row < self.spec.k() as usize {
            self.lodgers.insert(row, esi);
        }
        self.row(row)
    }

    fn fill_in(&mut self, block: &[u8]) {
        for row in self.present.iter_missing() {
            let range = self.spec.range(row);
            self.buffer[range.clone()].copy_from_slice(&block[range]);
        }
        self.complete();
    }

    fn complete(&mut self) {
        self.present.fill();
        self.repairs = BTreeMap::new();
        self.lodgers = BTreeMap::new();
        self.buffer.truncate(self.spec.source_len());
    }
}

impl BlockDecoder for RaptorQDecoder {
    fn spec(&self) -> BlockSpec {
        self.spec
    }

    fn push(&mut self, esi: u32, symbol: &[u8]) -> Result<Push, FecError> {
        self.spec.check_symbol(esi, symbol)?;
        if self.needed() == 0 {
            return Ok(Push::Redundant);
        }
        if esi < self.spec.k() {
            if !self.present.insert(esi as usize) {
                return Ok(Push::Redundant);
            }
            let row = esi as usize;
            if let Some(lodger) = self.lodgers.remove(&row) {
                let bytes = self.lodge(lodger);
                self.buffer.copy_within(self.spec.range(row), bytes.start);
            }
            self.buffer[self.spec.range(row)].copy_from_slice(symbol);
            if self.present.is_full() {
                self.complete();
            }
        } else if self.repairs.contains_key(&esi) {
            return Ok(Push::Redundant);
        } else {
            let bytes = self.lodge(esi);
            self.buffer[bytes].copy_from_slice(symbol);
        }
        Ok(Push::Innovative)
    }

    fn needed(&self) -> u32 {
        if self.is_complete() {
            return 0;
        }
        self.back_off.required.saturating_sub(self.received()) as u32
    }

    fn solve_operations(&self) -> u64 {
        solve_operations(self.spec.k(), self.is_complete())
    }

    fn solve(&mut self) -> Result<bool, FecError> {
        if self.is_complete() || self.needed() > 0 {
            return Ok(self.is_complete());
        }
        let config = transmission_information(&self.spec);
        let block_length = self.spec.source_len() as u64;
        let mut decoder = SourceBlockDecoder::new(SOURCE_BLOCK_NUMBER, &config, block_length);
        match decoder.decode(self.packets()) {
            None => {
                self.back_off.on_failure(self.received())?;
                Ok(false)
            }
            Some(block) if block.len() == self.spec.source_len() => {
                self.fill_in(&block);
                Ok(true)
            }
            Some(_) => Err(FecError::Internal("raptorq made a block of another length")),
        }
    }

    fn is_complete(&self) -> bool {
        self.present.is_full()
    }

    fn prefix_symbols(&self) -> usize {
        self.present.prefix()
    }

    fn source(&self) -> &[u8] {
        &self.buffer[..self.spec.source_len()]
    }

    fn into_buffer(mut self: Box<Self>) -> Vec<u8> {
        self.buffer.truncate(self.spec.source_len());
        self.buffer
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.buffer.capacity()
            + self.present.memory()
            + (self.repairs.len() + self.lodgers.len()) * size_of::<(u32, usize)>()
    }

    /// The crate makes copies of all symbols, and a matrix.
    fn solve_memory(&self) -> usize {
        match self.is_complete() {
            true => 0,
            false => SOLVE_COPIES * self.buffer.len() + self.received() * SOLVE_NOTES + SOLVE_BASE,
        }
    }
}
