//! The published Raptor code: symbols of one byte, and the same code with large symbols.
//!
//! Encoding is pre-coding and (1 + ε) k LT symbols, decoding starts from as many received symbols;
//! rates count source bytes. Large symbols stand beside the memory bound of the same run: XOR of as
//! many rows as the code has to read, d + 1 for each LT symbol of mean degree d, rows in order and
//! from a buffer as large as the block.

use std::hint::black_box;

use dfcp_fec::raptor::{RaptorCode, RaptorParameters, State};

use super::contenders::bytes;
use super::report::{Report, Sample};
use super::{ROUNDS, rate};

/// k, n, T, redundancy in per cent.
const CASES: [(&str, u32, u32, u16, u32); 5] = [
    ("T = 1, ε 5 %", 63_536, 65_536, 1, 5),
    ("T = 1, ε 10 %", 63_536, 65_536, 1, 10),
    ("T = 1024, ε 5 %", 1_000, 1_042, 1024, 5),
    ("T = 1024, ε 5 %", 4_000, 4_135, 1024, 5),
    ("T = 1024, ε 5 %", 63_536, 65_536, 1024, 5),
];

/// Mean degree of Shokrollahi's column.
const MEAN_DEGREE: f64 = 5.87;

struct Block {
    code: RaptorCode,
    source: Vec<u8>,
    /// Symbols of a packet.
    per_packet: u32,
    /// The encoding symbols, packet by packet.
    encoded: Vec<u8>,
    buffer: Vec<u8>,
}

impl Block {
    fn new(k: u32, n: u32, symbol_size: u16, percent: u32) -> Self {
        let parameters = RaptorParameters {
            k,
            n,
            symbol_size,
            ..RaptorParameters::published(State::from_seed(1))
        };
        let size = usize::from(symbol_size);
        let per_packet = (1456 / u32::from(symbol_size)).max(1);
        let packets = (k + k * percent / 100).div_ceil(per_packet);
        Self {
            code: RaptorCode::new(parameters).expect("valid parameters"),
            source: bytes(k as usize * size),
            per_packet,
            encoded: vec![0; (packets * per_packet) as usize * size],
            buffer: Vec::new(),
        }
    }

    fn packet_len(&self) -> usize {
        self.per_packet as usize * usize::from(self.code.parameters().symbol_size)
    }

    fn encode(&mut self) {
        let len = self.packet_len();
        let source = std::mem::take(&mut self.source);
        let encoder = self.code.encoder(source).expect("a whole block");
        for (index, packet) in (0..).zip(self.encoded.chunks_mut(len)) {
            encoder.write_symbols(State::from_seed(2).of_packet(0, index), packet);
        }
        self.source = encoder.into_buffer();
    }

    fn decode(&mut self) {
        let mut decoder = self.code.decoder(std::mem::take(&mut self.buffer));
        for (index, packet) in (0..).zip(self.encoded.chunks(self.packet_len())) {
            let state = State::from_seed(2).of_packet(0, index);
            decoder
                .push(state, self.per_packet, packet)
                .expect("below the limit");
        }
        assert!(decoder.solve(), "this many symbols are enough");
        self.buffer = black_box(decoder.into_buffer());
    }

    /// As many rows XORed as encoding reads, in order.
    fn bound(&mut self) {
        let size = usize::from(self.code.parameters().symbol_size);
        let rows = (self.encoded.len() / size) as f64 * MEAN_DEGREE;
        let mut out = vec![0u8; size];
        let mut next = self.source.chunks_exact(size).cycle();
        for _ in 0..rows as usize {
            let row = next.next().unwrap_or_default();
            out.iter_mut().zip(row).for_each(|(out, byte)| *out ^= byte);
        }
        black_box(&out);
    }
}

/// Adds the tables.
pub fn published(report: &mut Report) {
    let mut blocks =
        CASES.map(|(name, k, n, size, percent)| (name, Block::new(k, n, size, percent)));
    for round in 0..ROUNDS {
        for (name, block) in &mut blocks {
            let (k, len) = (block.code.parameters().k as usize, block.source.len());
            let mut sample = |table, rate| report.push(Sample::new(table, name, k, round, rate));
            sample("published, encode", rate(len, || block.encode()));
            assert!(!block.encoded.is_empty());
            sample("published, decode", rate(len, || block.decode()));
            if block.code.parameters().symbol_size > 1 {
                sample("published, XOR bound", rate(len, || block.bound()));
            }
        }
    }
}
