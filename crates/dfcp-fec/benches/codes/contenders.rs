//! The codes compared, each with a block of its own and a tenth of it lost.
//!
//! Every decode starts from the received symbols and ends with the whole source block in memory;
//! it includes making the decoder. Allocations are reused where a code's interface allows it.

use std::hint::black_box;

use dfcp_fec::{BlockSpec, SchemeId, scheme};
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::T;

/// A code with its block.
pub trait Contender {
    /// What the table calls it.
    fn name(&self) -> &'static str;
    /// Makes the repair symbols that stand in for the lost ones.
    fn encode(&mut self);
    /// Rebuilds the block.
    fn decode(&mut self);
}

/// All codes that take `k` source symbols.
pub fn contenders(k: usize) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    if k <= scheme(SchemeId::Dense).max_k() as usize {
        all.push(Box::new(Ours::new("dense", SchemeId::Dense, k)));
        all.push(Box::new(Ours::new("RLNC", SchemeId::Rlnc, k)));
    }
    all.push(Box::new(Ours::new("RaptorQ", SchemeId::RaptorQ, k)));
    all.push(Box::new(RawRaptorQ::new(k)));
    all.push(Box::new(ReedSolomon::new(k)));
    all
}

/// Bytes that look random.
pub fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

/// Source symbols lost: every tenth on average, spread irregularly, the same for every code.
fn lost(k: usize) -> Vec<usize> {
    let draws = bytes(k);
    (0..k.div_ceil(10))
        .map(|group| (group * 10 + usize::from(draws[group]) % 10).min(k - 1))
        .collect()
}

struct Ours {
    name: &'static str,
    id: SchemeId,
    spec: BlockSpec,
    source: Vec<u8>,
    lost: Vec<usize>,
    /// What arrives, and a reserve for a block that fails with K symbols.
    received: Vec<(u32, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl Ours {
    fn new(name: &'static str, id: SchemeId, k: usize) -> Self {
        let spec = BlockSpec::new(k as u32, T as u16, 7).expect("valid geometry");
        let source = bytes(k * T);
        let lost = lost(k);
        let mut encoder = scheme(id)
            .encoder(spec, source.clone())
            .expect("valid block");
        let survivors = (0..k).filter(|row| !lost.contains(row));
        let repairs = k..k + lost.len() + 8;
        let received = survivors.chain(repairs).map(|esi| {
            let mut symbol = vec![0; T];
            encoder
                .write_symbol(esi as u32, &mut symbol)
                .expect("valid symbol");
            (esi as u32, symbol)
        });
        Self {
            name,
            id,
            spec,
            received: received.collect(),
            source,
            lost,
            buffer: Vec::new(),
        }
    }
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        self.name
    }

    fn encode(&mut self) {
        let source = std::mem::take(&mut self.source);
        let mut encoder = scheme(self.id)
            .encoder(self.spec, source)
            .expect("valid block");
        let mut out = [0; T];
        for esi in (self.spec.k()..).take(self.lost.len()) {
            encoder.write_symbol(esi, &mut out).expect("valid symbol");
            black_box(&out);
        }
        self.source = encoder.into_buffer();
    }

    fn decode(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut decoder = scheme(self.id)
            .decoder(self.spec, buffer)
            .expect("valid block");
        for (esi, symbol) in &self.received {
            decoder.push(*esi, symbol).expect("valid symbol");
            if decoder.needed() == 0 && decoder.solve().expect("no internal error") {
                break;
            }
        }
        assert!(decoder.is_complete());
        self.buffer = black_box(decoder.into_buffer());
    }
}

/// The crate as it is, with all packets at once and ready made.
struct RawRaptorQ {
    config: ObjectTransmissionInformation,
    source: Vec<u8>,
    lost: usize,
    received: Vec<EncodingPacket>,
}

impl RawRaptorQ {
    fn new(k: usize) -> Self {
        let config = ObjectTransmissionInformation::new((k * T) as u64, T as u16, 1, 1, 1);
        let source = bytes(k * T);
        let encoder = SourceBlockEncoder::new(0, &config, &source);
        let lost = lost(k);
        let mut received: Vec<_> = encoder.source_packets();
        for &row in lost.iter().rev() {
            received.remove(row);
        }
        // One more than lost: with exactly K symbols it fails now and then.
        received.extend(encoder.repair_packets(0, lost.len() as u32 + 1));
        Self {
            config,
            source,
            lost: lost.len(),
            received,
        }
    }
}

impl Contender for RawRaptorQ {
    fn name(&self) -> &'static str {
        "raptorq crate"
    }

    fn encode(&mut self) {
        let encoder = SourceBlockEncoder::new(0, &self.config, &self.source);
        black_box(encoder.repair_packets(0, self.lost as u32));
    }

    fn decode(&mut self) {
        let mut decoder = SourceBlockDecoder::new(0, &self.config, self.source.len() as u64);
        let block = decoder.decode(self.received.iter().cloned());
        assert!(black_box(block).is_some());
    }
}

struct ReedSolomon {
    k: usize,
    source: Vec<u8>,
    lost: Vec<usize>,
    recovery: Vec<Vec<u8>>,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
    buffer: Vec<u8>,
}

impl ReedSolomon {
    fn new(k: usize) -> Self {
        let source = bytes(k * T);
        let lost = lost(k);
        let repairs = lost.len();
        let mut encoder = ReedSolomonEncoder::new(k, repairs, T).expect("valid geometry");
        for symbol in source.chunks(T) {
            encoder.add_original_shard(symbol).expect("valid symbol");
        }
        let encoded = encoder.encode().expect("all symbols added");
        let recovery = encoded.recovery_iter().map(<[u8]>::to_vec).collect();
        drop(encoded);
        Self {
            k,
            buffer: vec![0; k * T],
            source,
            recovery,
            encoder,
            decoder: ReedSolomonDecoder::new(k, repairs, T).expect("valid geometry"),
            lost,
        }
    }
}

impl Contender for ReedSolomon {
    fn name(&self) -> &'static str {
        "reed-solomon-simd"
    }

    fn encode(&mut self) {
        for symbol in self.source.chunks(T) {
            self.encoder
                .add_original_shard(symbol)
                .expect("valid symbol");
        }
        black_box(self.encoder.encode().expect("all symbols added"));
    }

    fn decode(&mut self) {
        let mut lost = self.lost.iter().peekable();
        for row in 0..self.k {
            if lost.next_if_eq(&&row).is_some() {
                continue;
            }
            let symbol = &self.source[row * T..][..T];
            self.buffer[row * T..][..T].copy_from_slice(symbol);
            self.decoder
                .add_original_shard(row, symbol)
                .expect("valid symbol");
        }
        for (i, symbol) in self.recovery.iter().enumerate() {
            self.decoder
                .add_recovery_shard(i, symbol)
                .expect("valid symbol");
        }
        let result = self.decoder.decode().expect("enough symbols");
        for (row, symbol) in result.restored_original_iter() {
            self.buffer[row * T..][..T].copy_from_slice(symbol);
        }
        black_box(&self.buffer);
    }
}
