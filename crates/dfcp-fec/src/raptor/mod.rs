//! The Raptor code of DFCP as published (DFCP-J §4.4, DFCP-TR §2.4): an LDPC pre-code over small
//! symbols, then a rateless LT code whose generator state travels in every packet.

mod taus88;

use std::sync::Arc;

pub use taus88::State;

use crate::FecError;

/// Degree distribution of the LT code.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Degrees {
    /// Table I of Shokrollahi's "Raptor Codes", the column of k = 65536.
    Shokrollahi,
    /// Ideal soliton (Luby, LT codes).
    IdealSoliton,
    /// Robust soliton (Luby, LT codes).
    RobustSoliton {
        /// The constant c.
        c: f64,
        /// Probability of failure δ.
        delta: f64,
    },
}

/// What both ends must agree on to code alike.
#[derive(Clone, Debug, PartialEq)]
pub struct RaptorParameters {
    /// Source symbols of a block, k.
    pub k: u32,
    /// Intermediate symbols, n ≥ k; n − k are LDPC check nodes, none for a plain LT code.
    pub n: u32,
    /// Bytes of a symbol, T.
    pub symbol_size: u16,
    /// LDPC neighbours of every message node.
    pub ldpc_degree: u8,
    /// Degrees of LT symbols.
    pub degrees: Degrees,
    /// State from which the LDPC graph is drawn.
    pub precode: State,
}

/// A code with its tables: made once for a connection, shared by its blocks.
#[derive(Clone, Debug)]
pub struct RaptorCode(Arc<RaptorParameters>);

impl RaptorCode {
    /// Draws the graph.
    ///
    /// # Errors
    /// [`FecError`] for parameters outside limits.
    pub fn new(_parameters: RaptorParameters) -> Result<Self, FecError> {
        unimplemented!()
    }

    /// The parameters.
    pub fn parameters(&self) -> &RaptorParameters {
        &self.0
    }

    /// Pre-codes a block. `source` has k · T bytes.
    ///
    /// # Errors
    /// [`FecError::SourceLength`].
    pub fn encoder(&self, _source: Vec<u8>) -> Result<Encoder, FecError> {
        unimplemented!()
    }

    /// A decoder that rebuilds bytes. `buffer` is a recycled allocation.
    pub fn decoder(&self, _buffer: Vec<u8>) -> Decoder {
        unimplemented!()
    }

    /// A decoder of symbols without bytes: it decides decodability alone ("decoding OFF").
    pub fn structural_decoder(&self) -> Decoder {
        unimplemented!()
    }
}

/// A block on the sending side.
#[derive(Debug)]
pub struct Encoder;

impl Encoder {
    /// Fills `out` with the symbols that follow `state`; whole symbols only.
    pub fn write_symbols(&self, _state: State, _out: &mut [u8]) {
        unimplemented!()
    }
}

/// A block on the receiving side.
#[derive(Debug)]
pub struct Decoder;

impl Decoder {
    /// Takes the symbols of one packet, drawn from `state` on. `symbols` counts them; `payload`
    /// has their bytes, none for a structural decoder. Cheap: only stores.
    ///
    /// # Errors
    /// [`FecError`] for a payload of the wrong length or a block full beyond its limit.
    pub fn push(&mut self, _state: State, _symbols: u32, _payload: &[u8]) -> Result<(), FecError> {
        unimplemented!()
    }

    /// Symbols taken so far.
    pub fn received(&self) -> u32 {
        unimplemented!()
    }

    /// Tries to decode: true when every source symbol is known.
    pub fn solve(&mut self) -> bool {
        unimplemented!()
    }

    /// The source block, k · T bytes; meaningful once [`solve`](Self::solve) said true.
    pub fn source(&self) -> &[u8] {
        unimplemented!()
    }

    /// Gives the allocation back: the source block.
    pub fn into_buffer(self) -> Vec<u8> {
        unimplemented!()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        unimplemented!()
    }
}
