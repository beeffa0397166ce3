//! The codes of blocks: the published Raptor code, and RaptorQ (docs/spec/published.md, "Codes").
//!
//! Packets of either name their symbols by the three words of a generator state. The Raptor code
//! draws from it; with RaptorQ the words say which symbols of which block these are, and how many
//! useful bytes the block has. So a RaptorQ block has as many symbols as its bytes ask for.

use crate::config::Payload;
use dfcp_fec::raptor::{self, RaptorCode, RaptorParameters, State};
use dfcp_fec::{BlockDecoder, BlockEncoder, BlockSpec, FecError, MAX_ESI, SchemeId};

/// Added to what S1, S2 and S3 say with RaptorQ, so that they are a state.
const OFFSETS: [u32; 3] = [2, 8, 16];
/// S2 says the block modulo this: what is in flight at once has words of its own.
const BLOCKS: u32 = 1 << 24;

/// What a receiver spends on each byte of a block's intermediate symbols: these, and twice as many
/// received ones.
const DECODER_BYTES: u64 = 3;
/// Symbols beyond that which a block takes before it is given up.
const RETRY_SYMBOLS: u64 = 256;
/// Bytes that a RaptorQ decoder notes of a symbol: an entry in each of two B-trees, whose nodes may be half
/// empty (27 bytes each), and a place in a hash table that is at least 7/16 full.
const SYMBOL_NOTE: u64 = 64;
/// Bytes that are noted of a packet: 16 in a list that doubles, 13 and 4 in two hash tables as full as that.
const PACKET_NOTE: u64 = 72;
/// Packets of a block that may be as small as they like.
pub(super) const FREE_PACKETS: u64 = 16;
/// Least bytes of a RaptorQ symbol. A solve takes some 4 µs for each symbol, whatever its size: with fewer
/// bytes a sender of 100 Mbit/s would keep a processor busy.
const MIN_RAPTORQ_SYMBOL: u16 = 64;

/// A code and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// LDPC and LT, as published (DFCP-J §4.4).
    Raptor(RaptorParameters),
    /// RaptorQ (RFC 6330). A block that is not full has fewer symbols.
    RaptorQ {
        /// Source symbols of a full block, K, at most 8192.
        k: u32,
        /// Bytes of a symbol, T.
        symbol_size: u16,
    },
}

impl From<RaptorParameters> for Code {
    fn from(parameters: RaptorParameters) -> Self {
        Self::Raptor(parameters)
    }
}

impl Code {
    /// Source symbols of a full block, K.
    pub fn k(&self) -> u32 {
        match self {
            Self::Raptor(code) => code.k,
            Self::RaptorQ { k, .. } => *k,
        }
    }

    /// Bytes of a symbol, T.
    pub fn symbol_size(&self) -> u16 {
        match self {
            Self::Raptor(code) => code.symbol_size,
            Self::RaptorQ { symbol_size, .. } => *symbol_size,
        }
    }

    /// Bytes of a full block, K · T.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.k()) * u64::from(self.symbol_size())
    }

    /// Whether blocks of it can be coded.
    ///
    /// # Errors
    /// [`FecError`] for numbers outside limits.
    pub fn check(&self) -> Result<(), FecError> {
        match self {
            Self::Raptor(code) => code.check(),
            Self::RaptorQ { k, symbol_size } => {
                let max = dfcp_fec::scheme(SchemeId::RaptorQ).max_k();
                let spec = BlockSpec::new(*k, *symbol_size, 0)?;
                match spec.k() <= max {
                    true => Ok(()),
                    false => Err(FecError::SymbolCount { k: *k, max }),
                }
            }
        }
    }

    /// Whether its symbols are so small that blocks cost more to solve than to send.
    pub(super) fn is_too_fine(&self) -> bool {
        matches!(self, Self::RaptorQ { symbol_size, .. } if *symbol_size < MIN_RAPTORQ_SYMBOL)
    }

    /// Intermediate symbols of a full block.
    fn intermediate(&self) -> u32 {
        match self {
            Self::Raptor(code) => code.n,
            Self::RaptorQ { k, .. } => *k,
        }
    }

    /// Bytes of a full block's intermediate symbols.
    pub(super) fn coded_bytes(&self) -> u64 {
        u64::from(self.intermediate()) * u64::from(self.symbol_size())
    }

    /// Most symbols that a decoder takes of a block: those of [`raptor::Decoder::limit`].
    pub(super) fn most_symbols(&self) -> u64 {
        2 * u64::from(self.intermediate()) + RETRY_SYMBOLS
    }

    /// What a receiver spends on a block: its symbols and the intermediate ones, whatever comes; with
    /// RaptorQ also what is noted of each symbol; and of each packet up to [`FREE_PACKETS`]. What further
    /// packets cost is small beside their bytes.
    pub(super) fn block_memory(&self) -> u64 {
        let symbols = self.coded_bytes() * DECODER_BYTES;
        let size = u64::from(self.symbol_size());
        let notes = match self {
            Self::Raptor(_) => RETRY_SYMBOLS * size,
            Self::RaptorQ { k, .. } => (u64::from(*k) + RETRY_SYMBOLS) * SYMBOL_NOTE,
        };
        symbols + notes + FREE_PACKETS * PACKET_NOTE
    }

    /// Source symbols of a block with `useful` bytes.
    pub(super) fn symbols_of(&self, useful: u32) -> u32 {
        match self {
            Self::Raptor(code) => code.k,
            Self::RaptorQ { symbol_size, .. } => {
                useful.div_ceil(u32::from(*symbol_size).max(1)).max(1)
            }
        }
    }

    /// Words of packet `index`, of up to `symbols` symbols, of a block with `useful` bytes.
    pub(super) fn words(&self, initial: State, packet: PacketName) -> State {
        let PacketName {
            block,
            index,
            symbols,
            useful,
        } = packet;
        match self {
            Self::Raptor(_) => initial.of_packet(block, index),
            Self::RaptorQ { .. } => {
                let symbols = u32::from(symbols).max(1);
                // After all symbols that 24 bits name, the first ones again.
                let esi = index % ((MAX_ESI + 1) / symbols) * symbols;
                let [a, b, c] = OFFSETS;
                State::new(
                    a + esi,
                    b + block % BLOCKS,
                    c.saturating_add(useful), // a block has at most 2²⁶ bytes
                )
                .expect("the offsets are the least words of a state")
            }
        }
    }

    /// Useful bytes of the block that a packet's words tell of; `None` if the code's words do not.
    ///
    /// # Errors
    /// The words are none of a packet of `block`.
    pub(super) fn useful(&self, state: State, block: u32) -> Result<Option<u32>, BadWords> {
        let Self::RaptorQ { .. } = self else {
            return Ok(None);
        };
        let [s1, s2, s3] = state.words();
        let [a, b, c] = OFFSETS;
        let useful = s3 - c;
        let right = s1 - a <= MAX_ESI
            && s2 - b == block % BLOCKS
            && (1..=self.block_bytes()).contains(&u64::from(useful));
        if right {
            Ok(Some(useful))
        } else {
            Err(BadWords)
        }
    }
}

/// The words of a packet are not those of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadWords;

/// Which packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketName {
    /// Block.
    pub block: u32,
    /// Number within the block.
    pub index: u32,
    /// Symbols of a full packet.
    pub symbols: u16,
    /// Useful bytes of the block.
    pub useful: u32,
}

/// First symbol of a RaptorQ packet whose words are right.
fn first_symbol(state: State) -> u32 {
    state.words()[0] - OFFSETS[0]
}

/// A code with its tables: made once for a connection, shared by its blocks.
#[derive(Clone, Debug)]
pub(super) enum Coder {
    Raptor(RaptorCode),
    RaptorQ { k: u32, symbol_size: u16 },
}

impl Coder {
    /// Draws what must be drawn.
    ///
    /// # Errors
    /// [`FecError`] for numbers outside limits, before anything is allocated.
    pub fn new(code: &Code) -> Result<Self, FecError> {
        code.check()?;
        Ok(match code {
            Code::Raptor(parameters) => Self::Raptor(RaptorCode::new(parameters.clone())?),
            &Code::RaptorQ { k, symbol_size } => Self::RaptorQ { k, symbol_size },
        })
    }

    /// Pre-codes a block: its whole symbols.
    ///
    /// # Errors
    /// [`FecError::SourceLength`].
    pub fn encoder(&self, source: Vec<u8>) -> Result<Encoder, FecError> {
        Ok(match self {
            Self::Raptor(code) => Encoder::Raptor(code.encoder(source)?),
            &Self::RaptorQ { symbol_size, .. } => {
                let k = source.len() / usize::from(symbol_size);
                let k = u32::try_from(k).unwrap_or(u32::MAX);
                let spec = BlockSpec::new(k, symbol_size, 0)?;
                let scheme = dfcp_fec::scheme(SchemeId::RaptorQ);
                Encoder::RaptorQ(scheme.encoder(spec, source)?)
            }
        })
    }

    /// A decoder of block `block` with `symbols` source symbols; `buffer` is a recycled allocation.
    /// For [`Payload::Virtual`] it decides decodability alone.
    ///
    /// # Errors
    /// [`FecError`] for a number of symbols beyond the code's.
    pub fn decoder(
        &self,
        payload: Payload,
        (block, symbols): (u32, u32),
        buffer: Vec<u8>,
    ) -> Result<Decoder, FecError> {
        match (self, payload) {
            (Self::Raptor(code), Payload::Real) => Ok(Decoder::Raptor(code.decoder(buffer))),
            (Self::Raptor(code), Payload::Virtual) => {
                Ok(Decoder::Raptor(code.structural_decoder()))
            }
            (&Self::RaptorQ { k, symbol_size }, payload) => {
                let spec = BlockSpec::new(symbols.min(k), symbol_size, block.into())?;
                let inner = payload.code(SchemeId::RaptorQ).decoder(spec, buffer)?;
                Ok(Decoder::RaptorQ(inner))
            }
        }
    }
}

/// A block on the sending side.
#[derive(Debug)]
pub(super) enum Encoder {
    Raptor(raptor::Encoder),
    RaptorQ(Box<dyn BlockEncoder>),
}

impl Encoder {
    /// Fills `out` with whole symbols of the packet with these words.
    pub fn write_symbols(&mut self, state: State, out: &mut [u8]) {
        match self {
            Self::Raptor(encoder) => encoder.write_symbols(state, out),
            Self::RaptorQ(encoder) => {
                let size = encoder.spec().symbol_size();
                for (esi, symbol) in (first_symbol(state)..).zip(out.chunks_exact_mut(size)) {
                    // Beyond 24 bits a symbol stays zero; the first of a packet never is there.
                    let _ = encoder.write_symbol(esi, symbol);
                }
            }
        }
    }

    /// Makes what the first symbols beyond the source need, which would otherwise wait for them.
    pub fn prepare(&mut self) {
        if let Self::RaptorQ(encoder) = self {
            let spec = encoder.spec();
            let _ = encoder.write_symbol(spec.k(), &mut vec![0; spec.symbol_size()]);
        }
    }
}

/// A block on the receiving side.
#[derive(Debug)]
pub(super) enum Decoder {
    Raptor(raptor::Decoder),
    RaptorQ(Box<dyn BlockDecoder>),
}

impl Decoder {
    /// Takes the symbols of one packet; `payload` has their bytes, none if they are virtual.
    ///
    /// # Errors
    /// What the code says about symbols that it cannot take.
    pub fn push(&mut self, state: State, symbols: u32, payload: &[u8]) -> Result<(), FecError> {
        match self {
            Self::Raptor(decoder) => decoder.push(state, symbols, payload),
            Self::RaptorQ(decoder) => {
                let size = match payload {
                    [] => 0,
                    _ => decoder.spec().symbol_size(),
                };
                for (i, esi) in (0..symbols as usize).zip(first_symbol(state)..) {
                    let symbol = payload.get(i * size..(i + 1) * size).unwrap_or(&[]);
                    decoder.push(esi, symbol)?;
                }
                Ok(())
            }
        }
    }

    /// Bytes of memory held now.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        match self {
            Self::Raptor(decoder) => decoder.memory(),
            Self::RaptorQ(decoder) => decoder.memory(),
        }
    }

    /// Bytes that solving takes besides.
    pub fn solve_memory(&self) -> usize {
        match self {
            // Within what a block is charged with.
            Self::Raptor(_) => 0,
            Self::RaptorQ(decoder) => decoder.solve_memory(),
        }
    }

    /// Whether the block is known now.
    ///
    /// # Errors
    /// [`FecError::Unsolvable`] where its symbols have failed so often that they were chosen to.
    pub fn solve(&mut self) -> Result<bool, FecError> {
        match self {
            Self::Raptor(decoder) => Ok(decoder.solve()),
            Self::RaptorQ(decoder) => decoder.solve(),
        }
    }

    /// The block, K · T bytes; of no meaning before it is solved.
    pub fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Raptor(decoder) => decoder.into_buffer(),
            Self::RaptorQ(decoder) => decoder.into_buffer(),
        }
    }
}
