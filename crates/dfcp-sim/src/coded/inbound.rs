//! The receiving half of a node: degrees of freedom of the open blocks, and reports of them.

use super::{Blocks, CodedConfig, CodedPacket, Content, Data, Report, Symbol};
use dfcp_fec::{BlockDecoder, BlockSpec, FecError, Push, Recoder, RlncDecoder};
use dfcp_proto::Instant;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What is kept of a block: a decoder at the sink, a recoder at a relay.
pub(super) trait Span: Debug + Send {
    /// Takes a symbol.
    fn take(&mut self, symbol: &Symbol) -> Result<Push, FecError>;
    /// Degrees of freedom.
    fn degrees(&self) -> u32;
}

/// Both have the methods, by the same names.
macro_rules! span {
    ($($kind:ty),*) => {$(
        impl Span for $kind {
            fn take(&mut self, symbol: &Symbol) -> Result<Push, FecError> {
                match symbol {
                    Symbol::Esi(esi) => self.push(*esi, &[]),
                    Symbol::Combination(vector) => self.push_coded(vector, &[]),
                }
            }

            fn degrees(&self) -> u32 {
                self.rank()
            }
        }
    )*};
}

span!(RlncDecoder, Recoder);

/// A block with its number of source symbols.
#[derive(Debug)]
struct Open<S> {
    span: S,
    symbols: u32,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Inbound<S> {
    blocks: Blocks,
    numblks: u64,
    open: BTreeMap<u64, Open<S>>,
    /// The first block that is not complete here.
    current: u64,
    /// The first block that is still kept.
    kept: u64,
    make: fn(BlockSpec, u64) -> Result<S, FecError>,
    seed: u64,
}

impl<S: Span> Inbound<S> {
    /// `make` makes what is kept of a block, with a seed of its own drawn from `seed`.
    pub fn new(
        config: &CodedConfig,
        blocks: Blocks,
        seed: u64,
        make: fn(BlockSpec, u64) -> Result<S, FecError>,
    ) -> Self {
        Self {
            blocks,
            numblks: config.numblks(),
            open: BTreeMap::new(),
            current: 0,
            kept: 0,
            make,
            seed,
        }
    }

    /// A symbol came; whether it completed its block.
    pub fn on_data(&mut self, data: &Data) -> bool {
        let completed = self.take(data).unwrap_or(false);
        while self.is_complete(self.current) {
            self.current += 1;
        }
        completed
    }

    fn take(&mut self, data: &Data) -> Option<bool> {
        if !(self.current..self.limit()).contains(&data.block) {
            return None;
        }
        if !self.open.contains_key(&data.block) {
            let spec = self.blocks.spec(data.block, data.symbols)?;
            let span = (self.make)(spec, self.seed ^ data.block).ok()?;
            let symbols = spec.k();
            self.open.insert(data.block, Open { span, symbols });
        }
        let open = self.open.get_mut(&data.block)?;
        let push = open.span.take(&data.symbol).ok()?;
        Some(push == Push::Innovative && open.span.degrees() == open.symbols)
    }

    fn is_complete(&self, block: u64) -> bool {
        let open = self.open.get(&block);
        open.is_some_and(|open| open.span.degrees() == open.symbols)
    }

    /// No block from here on is taken yet.
    fn limit(&self) -> u64 {
        self.kept + self.numblks
    }

    /// What is here.
    pub fn report(&self, path: u8, answers: Option<(u64, Instant)>) -> CodedPacket {
        let last = self.open.last_key_value().map_or(0, |(&last, _)| last);
        let degrees = (self.current..=last).map(|block| self.degrees(block) as u16);
        CodedPacket {
            path,
            content: Content::Report(Report {
                answers,
                current: self.current,
                degrees: degrees.collect(),
                limit: self.limit(),
            }),
        }
    }

    /// Degrees of freedom of a block.
    pub fn degrees(&self, block: u64) -> u32 {
        self.open.get(&block).map_or(0, |open| open.span.degrees())
    }

    /// What is kept of a block, and its number of source symbols.
    pub fn span(&mut self, block: u64) -> Option<(&mut S, u32)> {
        let open = self.open.get_mut(&block)?;
        Some((&mut open.span, open.symbols))
    }

    /// The first block that is not complete here.
    pub fn current(&self) -> u64 {
        self.current
    }

    /// Forgets blocks below `block`, which are complete; whether there were any.
    pub fn release(&mut self, block: u64) -> bool {
        let block = block.min(self.current);
        let moved = block > self.kept;
        while self.kept < block {
            self.open.remove(&self.kept);
            self.kept += 1;
        }
        moved
    }
}
