//! The Raptor code of DFCP as published (DFCP-J §4.4, DFCP-TR §2.4): an LDPC pre-code over small
//! symbols, then a rateless LT code whose generator state travels in every packet.
//!
//! The source block's k symbols and n − k LDPC check nodes are the n intermediate symbols; each
//! encoding symbol is the sum of some of them, as many as its degree, all drawn from the generator.
//! Both peers derive the same graph from [`RaptorParameters`]; `docs/spec/codes.md` says how. A code
//! with n = k has no pre-code and is a plain LT code.
//!
//! | module | part |
//! |---|---|
//! | `taus88`, `draws` | the generator, one output at a time and in bulk |
//! | `degrees` | degree distributions |
//! | `precode` | the LDPC graph |
//! | `encoder` | a block on the sending side |
//! | `drawn` | its packets as drawn, kept for the next blocks, T = 1 |
//! | `decoder` | a block on the receiving side: what was received, and bytes |
//! | `bytes` | the decoder's data pass |
//! | `scheme` | the code behind the interface of all codes |
//! | `rows`, `graph` | rows as drawn, and symbols' rows, kept from block to block |
//! | `peel`, `inactivate` | which symbol is found from which row: no bytes but T = 1 |
//! | `plan` | what was found, kept for blocks with the same packets, T = 1 |

mod bytes;
mod decoder;
mod degrees;
mod drawn;
mod draws;
mod encoder;
mod graph;
#[cfg(test)]
mod graph_tests;
mod inactivate;
mod peel;
mod plan;
mod precode;

mod rows;
mod scheme;
mod taus88;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
mod workspace;

use std::fmt;
use std::sync::Arc;

use crate::error::FecError;
use degrees::DegreeTable;
use draws::Form;
use precode::Precode;
use workspace::Pool;

pub use decoder::Decoder;
pub use degrees::Degrees;
pub use encoder::Encoder;
pub use precode::{LdpcDegrees, MAX_LDPC_DEGREES};
pub use scheme::RaptorScheme;
pub use taus88::State;

/// Most intermediate symbols: what 16 bits name, and what the published code has.
pub const MAX_INTERMEDIATE: u32 = 65_536;

/// Most LDPC neighbours of a message node.
pub const MAX_LDPC_DEGREE: u8 = 32;

/// What both ends must agree on to code alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaptorParameters {
    /// Source symbols of a block, k.
    pub k: u32,
    /// Intermediate symbols, n ≥ k; n − k are LDPC check nodes, none for a plain LT code.
    pub n: u32,
    /// Bytes of a symbol, T.
    pub symbol_size: u16,
    /// LDPC neighbours of message nodes; without meaning if n = k.
    pub ldpc_degrees: LdpcDegrees,
    /// Degrees of LT symbols.
    pub degrees: Degrees,
    /// State from which the LDPC graph is drawn.
    pub precode: State,
}

impl RaptorParameters {
    /// The code of the papers: k = 63536 symbols of a byte and 2000 check nodes.
    pub fn published(precode: State) -> Self {
        Self {
            k: 63_536,
            n: 65_536,
            symbol_size: 1,
            ldpc_degrees: LdpcDegrees::Constant(4),
            degrees: Degrees::Shokrollahi,
            precode,
        }
    }

    /// Whether a code with these parameters can be made.
    ///
    /// # Errors
    /// [`FecError::SymbolCount`], [`FecError::SymbolSize`] or [`FecError::Parameter`].
    pub fn check(&self) -> Result<(), FecError> {
        if self.k == 0 || self.k > MAX_INTERMEDIATE {
            return Err(FecError::SymbolCount {
                k: self.k,
                max: MAX_INTERMEDIATE,
            });
        }
        if self.n < self.k || self.n > MAX_INTERMEDIATE {
            return Err(FecError::Parameter("number of intermediate symbols"));
        }
        // A block fits a 32-bit machine's address space several times.
        let size = u64::from(self.n) * u64::from(self.symbol_size);
        if self.symbol_size == 0 || size > isize::MAX as u64 / 8 {
            return Err(FecError::SymbolSize(self.symbol_size));
        }
        if self.n > self.k {
            self.ldpc_degrees.check()?;
        }
        self.degrees.check()
    }
}

/// A code with its tables: made once for a connection, shared by its blocks.
#[derive(Clone)]
pub struct RaptorCode(Arc<Tables>);

/// Without the tables, which are megabytes of text.
impl fmt::Debug for RaptorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RaptorCode")
            .field(&self.0.parameters)
            .finish()
    }
}

struct Tables {
    parameters: RaptorParameters,
    degrees: DegreeTable,
    form: Form,
    precode: Precode,
    pool: Pool,
}

impl RaptorCode {
    /// Draws the graph.
    ///
    /// # Errors
    /// [`FecError`] for parameters outside limits, before anything is allocated.
    pub fn new(parameters: RaptorParameters) -> Result<Self, FecError> {
        parameters.check()?;
        let degrees = DegreeTable::new(parameters.degrees, parameters.n);
        Ok(Self(Arc::new(Tables {
            form: Form::new(parameters.n, &degrees),
            degrees,
            precode: Precode::new(&parameters),
            pool: Pool::default(),
            parameters,
        })))
    }

    /// The parameters.
    pub fn parameters(&self) -> &RaptorParameters {
        &self.0.parameters
    }

    /// Pre-codes a block. `source` has k · T bytes; capacity for n · T saves moving them.
    ///
    /// # Errors
    /// [`FecError::SourceLength`].
    pub fn encoder(&self, source: Vec<u8>) -> Result<Encoder, FecError> {
        Encoder::new(self.clone(), source)
    }

    /// A decoder that rebuilds bytes. `buffer` is a recycled allocation.
    pub fn decoder(&self, buffer: Vec<u8>) -> Decoder {
        Decoder::new(self.clone(), buffer)
    }

    /// A decoder of symbols without bytes: it decides decodability alone ("decoding OFF").
    pub fn structural_decoder(&self) -> Decoder {
        Decoder::structural(self.clone())
    }

    /// Bytes of memory held by the tables and the working memory that blocks share.
    pub fn memory(&self) -> usize {
        size_of::<Tables>()
            + self.0.degrees.memory()
            + self.0.precode.memory()
            + self.0.pool.memory()
    }

    fn k(&self) -> usize {
        self.0.parameters.k as usize
    }

    fn n(&self) -> usize {
        self.0.parameters.n as usize
    }

    fn symbol_size(&self) -> usize {
        usize::from(self.0.parameters.symbol_size)
    }
}
