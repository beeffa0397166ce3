//! Names of the schemes and the geometry of a block.

use crate::error::FecError;

/// Largest encoding symbol ID: 24 bits, as in RFC 6330 section 3.2.
pub const MAX_ESI: u32 = (1 << 24) - 1;

/// Largest number of source symbols of any block: K'_max of RFC 6330 section 5.1.2.
pub const MAX_SOURCE_SYMBOLS: u32 = 56_403;

/// Most source symbols that the codes take whose solving is one uninterrupted job: its time and
/// memory grow with them.
pub const MAX_BLOCK_SYMBOLS: u32 = 8192;

/// Which code makes the repair symbols of a block. The number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SchemeId {
    /// No coding: K = 1 and every symbol is the same bytes.
    Arq = 0,
    /// Systematic random linear code over GF(256).
    Dense = 1,
    /// RaptorQ, RFC 6330.
    RaptorQ = 2,
    /// The Raptor code of DFCP as published: LDPC and LT.
    Raptor = 3,
    /// Systematic random linear network coding over GF(256): the symbols of the dense code, decoded
    /// as they arrive, and recoded on the way.
    Rlnc = 4,
}

impl SchemeId {
    /// Every code.
    pub const ALL: [Self; 5] = [
        Self::Arq,
        Self::Dense,
        Self::RaptorQ,
        Self::Raptor,
        Self::Rlnc,
    ];
}

impl TryFrom<u8> for SchemeId {
    type Error = FecError;

    fn try_from(id: u8) -> Result<Self, FecError> {
        match id {
            0 => Ok(Self::Arq),
            1 => Ok(Self::Dense),
            2 => Ok(Self::RaptorQ),
            3 => Ok(Self::Raptor),
            4 => Ok(Self::Rlnc),
            other => Err(FecError::UnknownScheme(other)),
        }
    }
}

/// Geometry of one block, valid by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    k: u32,
    symbol_size: u16,
    seed: u64,
}

impl BlockSpec {
    /// A block of `k` source symbols of `symbol_size` bytes each. Both peers derive coefficients
    /// from (`seed`, ESI); schemes with a fixed code ignore the seed.
    ///
    /// # Errors
    /// [`FecError::SymbolCount`] unless 1 ≤ `k` ≤ [`MAX_SOURCE_SYMBOLS`], [`FecError::SymbolSize`]
    /// for symbols of no bytes or a block beyond the address space.
    pub fn new(k: u32, symbol_size: u16, seed: u64) -> Result<Self, FecError> {
        if k == 0 || k > MAX_SOURCE_SYMBOLS {
            return Err(FecError::SymbolCount {
                k,
                max: MAX_SOURCE_SYMBOLS,
            });
        }
        // `Vec` holds at most isize::MAX bytes, which matters on 32-bit machines only.
        let fits = (k as usize)
            .checked_mul(usize::from(symbol_size))
            .is_some_and(|len| isize::try_from(len).is_ok());
        if symbol_size == 0 || !fits {
            return Err(FecError::SymbolSize(symbol_size));
        }
        Ok(Self {
            k,
            symbol_size,
            seed,
        })
    }

    /// Source symbols of the block, K.
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Bytes of one symbol, T.
    pub fn symbol_size(&self) -> usize {
        usize::from(self.symbol_size)
    }

    /// What coefficients are derived from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Bytes of the source block, K · T.
    pub fn source_len(&self) -> usize {
        self.k as usize * self.symbol_size()
    }

    /// The same block with symbols of no bytes: only [`crate::structural`] has such.
    pub(crate) fn without_bytes(self) -> Self {
        Self {
            symbol_size: 0,
            ..self
        }
    }

    pub(crate) fn check_max_k(&self, max: u32) -> Result<(), FecError> {
        if self.k > max {
            return Err(FecError::SymbolCount { k: self.k, max });
        }
        Ok(())
    }

    pub(crate) fn check_source(&self, source: &[u8]) -> Result<(), FecError> {
        if source.len() != self.source_len() {
            return Err(FecError::SourceLength {
                expected: self.source_len(),
                actual: source.len(),
            });
        }
        Ok(())
    }

    pub(crate) fn check_symbol(&self, esi: u32, symbol: &[u8]) -> Result<(), FecError> {
        if esi > MAX_ESI {
            return Err(FecError::Esi(esi));
        }
        if symbol.len() != self.symbol_size() {
            return Err(FecError::SymbolLength {
                expected: self.symbol_size(),
                actual: symbol.len(),
            });
        }
        Ok(())
    }

    /// Where symbol `row` lies in a source block; `row` must be below K.
    pub(crate) fn range(&self, row: usize) -> std::ops::Range<usize> {
        let at = row * self.symbol_size();
        at..at + self.symbol_size()
    }

    /// A recycled allocation made K · T bytes long. What it held stays: clearing it would cost as
    /// much as a tenth of decoding, and no byte of an absent symbol is ever meaningful.
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) -> Vec<u8> {
        if buffer.capacity() < self.source_len() {
            return vec![0; self.source_len()];
        }
        buffer.resize(self.source_len(), 0);
        buffer
    }
}
