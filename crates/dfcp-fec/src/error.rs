//! The one error type of the crate.

use thiserror::Error;

/// Why a request to a code was refused. Nothing was changed when one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FecError {
    /// The number of source symbols is zero or above the scheme's limit.
    #[error("{k} source symbols, allowed are 1 to {max}")]
    SymbolCount {
        /// Source symbols asked for.
        k: u32,
        /// Most that the scheme takes.
        max: u32,
    },
    /// Symbols of no bytes, or a block too large for this machine's address space.
    #[error("symbol size {0} is not usable")]
    SymbolSize(u16),
    /// The source block does not have `K · T` bytes.
    #[error("source block of {actual} bytes, expected {expected}")]
    SourceLength {
        /// `K · T`.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// A symbol or the buffer for one does not have `T` bytes.
    #[error("symbol of {actual} bytes, expected {expected}")]
    SymbolLength {
        /// `T`.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The encoding symbol ID has more than 24 bits.
    #[error("encoding symbol ID {0} has more than 24 bits")]
    Esi(u32),
    /// A parameter of a code is outside its limits.
    #[error("{0} is outside its limits")]
    Parameter(&'static str),
    /// A coefficient vector does not have one byte for each source symbol.
    #[error("coefficient vector of {actual} bytes, expected {expected}")]
    VectorLength {
        /// K.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// All coefficients of a symbol are zero.
    #[error("all coefficients are zero")]
    ZeroVector,
    /// Nothing was received that could be combined.
    #[error("no symbol to combine")]
    Empty,
    /// A block holds as many symbols as it takes.
    #[error("block full: it takes at most {limit} symbols")]
    Full {
        /// Most symbols.
        limit: u32,
    },
    /// Solving failed so often that the symbols must have been chosen for it.
    #[error("no solution with {received} symbols, after {failures} attempts")]
    Unsolvable {
        /// Symbols held.
        received: u32,
        /// Solves that failed.
        failures: u32,
    },
    /// No scheme has this number.
    #[error("unknown FEC scheme {0}")]
    UnknownScheme(u8),
    /// The code behind the scheme broke its contract; the block cannot be used further.
    #[error("the code failed internally: {0}")]
    Internal(&'static str),
}
