//! How bytes become blocks: what is written to a channel, and how much of it a block takes.

use crate::block::{Buffers, ChannelId, block_spec, geometry};
use crate::config::Payload;
use crate::wire::symbol_overhead;
use dfcp_fec::{BlockEncoder, FecError, SchemeId};

/// How the next blocks are to be cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Code.
    pub scheme: SchemeId,
    /// Source symbols of a full block.
    pub k: u32,
    /// Bytes of the largest frame: symbol frame header and symbol.
    pub room: usize,
    /// Most bytes of a symbol.
    pub max_symbol: usize,
    /// Whether blocks have bytes.
    pub payload: Payload,
}

/// How blocks are cut, and the buffers that they are put into.
#[derive(Debug)]
pub struct Cutter<'a> {
    /// How.
    pub cut: &'a Cut,
    /// Of the connection.
    pub buffers: &'a mut Buffers,
}

impl Cut {
    /// Bytes of a symbol behind `header` bytes.
    fn symbol(&self, header: usize) -> usize {
        let room = self.room.saturating_sub(header);
        room.min(self.max_symbol).max(1)
    }

    /// Source bytes of a full block of `channel` at `offset`: the header grows with the offset.
    pub fn block_size(&self, channel: ChannelId, offset: u64) -> usize {
        let max_k = dfcp_fec::scheme(self.scheme).max_k();
        let k = self.k.min(max_k).max(1);
        let worst = k as u64 * self.room as u64;
        let header = symbol_overhead(channel.0, offset, k, worst);
        k as usize * self.symbol(header)
    }

    /// The code of a block of `channel` at `offset` that has the `len` bytes in `source`, or virtual ones.
    pub fn encoder(
        &self,
        channel: ChannelId,
        offset: u64,
        (len, mut source): (usize, Vec<u8>),
    ) -> Result<Box<dyn BlockEncoder>, FecError> {
        let header = |k| symbol_overhead(channel.0, offset, k, len as u64);
        let (mut k, mut symbol) = geometry(len, self.symbol(header(1)));
        if header(k) > header(1) {
            (k, symbol) = geometry(len, self.symbol(header(k)));
        }
        if self.payload == Payload::Real {
            let padded = k as usize * usize::from(symbol);
            source.reserve_exact(padded.saturating_sub(source.len()));
            source.resize(padded, 0);
        }
        let symbol = usize::from(symbol);
        let spec = block_spec(self.scheme, channel.0, offset, len as u64, symbol)?;
        self.payload.code(self.scheme).encoder(spec, source)
    }
}

/// The sizes of a channel's blocks as they would be cut now, for a writer that fills whole ones.
#[derive(Clone, Copy, Debug)]
pub struct BlockSizes {
    channel: ChannelId,
    cut: Cut,
}

impl BlockSizes {
    /// Sizes of blocks on `channel`.
    pub(crate) fn new(channel: ChannelId, cut: Cut) -> Self {
        Self { channel, cut }
    }

    /// Bytes of the full block that starts at `offset`.
    pub fn at(&self, offset: u64) -> usize {
        self.cut.block_size(self.channel, offset)
    }
}

/// What is written to a channel.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// So many bytes of virtual payload.
    Length(u64),
}

impl Source<'_> {
    /// How many bytes.
    pub fn len(&self) -> u64 {
        match *self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Length(len) => len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{ChannelKind, Role};

    #[test]
    fn a_block_of_any_length_fits_into_packets_and_a_full_one_has_k_symbols() {
        let id = ChannelId::new(Role::Client, ChannelKind::Object, 70);
        for (scheme, k) in [
            (SchemeId::Dense, 1),
            (SchemeId::Dense, 20),
            (SchemeId::RaptorQ, 128),
            (SchemeId::RaptorQ, 1000),
        ] {
            for room in [300, 1171, 1452] {
                let cut = Cut {
                    scheme,
                    k,
                    room,
                    max_symbol: 9000,
                    payload: Payload::Virtual,
                };
                // The header grows with the offset.
                for offset in [0, 1 << 14, 1 << 40] {
                    let full = cut.block_size(id, offset);
                    for len in [1, room / 2, full / 3, full - 1, full] {
                        let encoder = cut.encoder(id, offset, (len.max(1), Vec::new()));
                        let spec = encoder.expect("a good block").spec();
                        let header = symbol_overhead(id.0, offset, spec.k(), len as u64);
                        let packet = header + spec.symbol_size();
                        assert!(packet <= room, "{cut:?} at {offset}: {len}, {packet}");
                        assert!(len < full || spec.k() == k, "{cut:?} at {offset}: {spec:?}");
                    }
                    // Nothing is left in a packet that would hold a byte more of each symbol.
                    let most = full / k as usize + symbol_overhead(id.0, offset, k, full as u64);
                    assert!(most + 2 >= room, "{cut:?} at {offset}: {most}");
                }
            }
        }
    }
}
