//! Erasure codes of `dfcp`: one interface, five schemes.
//!
//! | scheme | K | repair symbol | for |
//! |---|---|---|---|
//! | [`SchemeId::Arq`] | 1 | the same bytes again | profiles without coding |
//! | [`SchemeId::Dense`] | ≤ 256 | random combination over GF(256) | small blocks, rich feedback |
//! | [`SchemeId::RaptorQ`] | ≤ 8192 | RFC 6330 | large blocks, poor feedback |
//! | [`SchemeId::Raptor`] | ≤ 8192 | sum of few random symbols | DFCP as published |
//! | [`SchemeId::Rlnc`] | ≤ 256 | random combination over GF(256) | decoding as symbols arrive, recoding on the way |
//!
//! Every scheme but Raptor is systematic: encoding symbol `ESI < K` is source symbol `ESI`, `ESI ≥ K` is a
//! repair symbol (terms of RFC 5052, RFC 6330 and RFC 8406). Both peers derive whatever a repair
//! symbol needs from the block's seed and the ESI; `docs/spec/codes.md` says how, byte for byte.
//!
//! The crate does no I/O, reads no clock and draws no randomness, and input of any shape yields a
//! [`FecError`] rather than a panic.

#![deny(unsafe_code)]

mod arq;
mod block;
mod dense;
mod error;
pub mod gf256;
pub mod raptor;
mod raptorq;
mod rlnc;
mod spec;
pub mod structural;
mod symbol_set;

pub use crate::arq::ArqScheme;
pub use crate::block::{BlockDecoder, BlockEncoder, FecScheme, Push};
pub use crate::dense::{DenseScheme, repair_coefficients};
pub use crate::error::FecError;
pub use crate::raptorq::RaptorQScheme;
pub use crate::rlnc::{Recoder, RlncDecoder, RlncScheme, coefficient_vector};
pub use crate::spec::{BlockSpec, MAX_BLOCK_SYMBOLS, MAX_ESI, MAX_SOURCE_SYMBOLS, SchemeId};

/// The scheme behind `id`, with its defaults.
pub fn scheme(id: SchemeId) -> &'static dyn FecScheme {
    match id {
        SchemeId::Arq => &ArqScheme,
        SchemeId::Dense => &DenseScheme::AUTO,
        SchemeId::RaptorQ => &RaptorQScheme,
        SchemeId::Raptor => &raptor::RaptorScheme,
        SchemeId::Rlnc => &RlncScheme::AUTO,
    }
}
