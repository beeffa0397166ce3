//! Speed of the published Raptor code, one core: symbols of one byte, and the same code with large
//! symbols beside the memory bound.
//!
//! Encoding is pre-coding and (1 + ε) k LT symbols, decoding starts from as many received symbols and
//! ends with the source block; rates count source bytes. The bound of the same run is XOR of as many
//! rows as encoding reads, for LT symbols and for check nodes, out of a buffer of the same size, in
//! order. Time is the thread's processor
//! time where the system tells, and the best of the rounds counts: on a machine shared with others the
//! rest measures them. `-- --json FILE` writes every sample.

#[path = "raptor/cpu_time.rs"]
mod cpu_time;

use std::fmt::Write;
use std::hint::black_box;

use cpu_time::cpu_time;
use dfcp_fec::raptor::{RaptorCode, RaptorParameters, State};

/// k, n, T, redundancy in per cent.
const CASES: [(u32, u32, u16, u32); 6] = [
    (63_536, 65_536, 1, 5),
    (63_536, 65_536, 1, 10),
    (1_000, 1_042, 1024, 5),
    (4_000, 4_135, 1024, 5),
    (4_000, 4_135, 1024, 15),
    (63_536, 65_536, 1024, 5),
];

const ROUNDS: usize = 15;

/// Source bytes handled for one sample, at least.
const SAMPLE: usize = 2_000_000;

/// Mean degree of Shokrollahi's column.
const MEAN_DEGREE: f64 = 5.87;

/// Check nodes of a message node.
const LDPC_DEGREE: f64 = 4.0;

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
    fn new((k, n, symbol_size, percent): (u32, u32, u16, u32)) -> Self {
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
            source: (0..k as usize * size)
                .map(|i| (i * 7 + i / 251) as u8)
                .collect(),
            per_packet,
            encoded: vec![0; (packets * per_packet) as usize * size],
            buffer: Vec::new(),
        }
    }

    fn symbol_size(&self) -> usize {
        usize::from(self.code.parameters().symbol_size)
    }

    fn encode(&mut self) {
        let len = self.per_packet as usize * self.symbol_size();
        let source = std::mem::take(&mut self.source);
        let encoder = self.code.encoder(source).expect("a whole block");
        for (index, packet) in (0..).zip(self.encoded.chunks_mut(len)) {
            encoder.write_symbols(State::from_seed(2).of_packet(0, index), packet);
        }
        self.source = encoder.into_buffer();
    }

    fn decode(&mut self) {
        let len = self.per_packet as usize * self.symbol_size();
        let mut decoder = self.code.decoder(std::mem::take(&mut self.buffer));
        for (index, packet) in (0..).zip(self.encoded.chunks(len)) {
            let state = State::from_seed(2).of_packet(0, index);
            let pushed = decoder.push(state, self.per_packet, packet);
            pushed.expect("below the limit");
        }
        assert!(decoder.solve(), "this many symbols are enough");
        self.buffer = black_box(decoder.into_buffer());
    }

    fn xor(&mut self) {
        let size = self.symbol_size();
        let parameters = self.code.parameters();
        let checks = f64::from(parameters.k) * LDPC_DEGREE;
        let rows = (self.encoded.len() / size) as f64 * MEAN_DEGREE + checks;
        let mut out = vec![0u8; size];
        let mut next = self.source.chunks_exact(size).cycle();
        for _ in 0..rows as usize {
            let row = next.next().unwrap_or_default();
            out.iter_mut().zip(row).for_each(|(out, byte)| *out ^= byte);
        }
        black_box(&out);
    }
}

/// Bytes per second of `work`, which handles `bytes` each time it is called.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let calls = SAMPLE.div_ceil(bytes);
    let start = cpu_time();
    (0..calls).for_each(|_| work());
    (bytes * calls) as f64 / (cpu_time() - start).as_secs_f64()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let json = args.iter().position(|arg| arg == "--json");
    let mut samples = Vec::new();
    println!("| k | T | ε | encode MB/s | decode MB/s | XOR bound MB/s |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for case in CASES {
        let (k, n, symbol_size, percent) = case;
        let mut block = Block::new(case);
        let mut best = [0f64; 3];
        for round in 0..ROUNDS {
            let len = block.source.len();
            let rates = [
                rate(len, || block.encode()),
                rate(len, || block.decode()),
                if symbol_size > 1 {
                    rate(len, || block.xor())
                } else {
                    0.0
                },
            ];
            for ((best, rate), what) in best.iter_mut().zip(rates).zip(["encode", "decode", "xor"])
            {
                *best = best.max(rate);
                samples.push(format!(
                    "{{\"what\": \"{what}\", \"k\": {k}, \"n\": {n}, \"symbol_size\": {symbol_size}, \
                     \"redundancy_percent\": {percent}, \"round\": {round}, \
                     \"bytes_per_second\": {rate:.0}}}"
                ));
            }
        }
        let [encode, decode, xor] = best.map(|rate| rate / 1e6);
        let bound = if symbol_size > 1 {
            format!("{xor:.0}")
        } else {
            String::new()
        };
        println!("| {k} | {symbol_size} | {percent} % | {encode:.1} | {decode:.1} | {bound} |");
    }
    if let Some(path) = json.and_then(|at| args.get(at + 1)) {
        let mut text = String::from("{\"samples\": [\n");
        let _ = writeln!(text, "{}\n]}}", samples.join(",\n"));
        std::fs::write(path, text).expect("the JSON file can be written");
    }
}
