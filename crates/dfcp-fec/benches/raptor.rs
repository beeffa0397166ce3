//! Speed of the published Raptor code, one core: symbols of one byte, and the same code with large
//! symbols beside the memory bound.
//!
//! Encoding is pre-coding and (1 + ε) k LT symbols, decoding starts from as many received symbols and
//! ends with the source block; rates count source bytes. Blocks are decoded one after the other whose
//! packets are all the same, of which others are lost each time, and that have no state in common; a
//! few come first, so that a receiver has made what it keeps. The bound of the same run is XOR of as many
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
const CASES: [(u32, u32, u16, u32); 7] = [
    (63_536, 65_536, 1, 5),
    (63_536, 65_536, 1, 10),
    (15_884, 16_384, 64, 10),
    (1_000, 1_042, 1024, 5),
    (4_000, 4_135, 1024, 5),
    (4_000, 4_135, 1024, 15),
    (63_536, 65_536, 1024, 5),
];

const ROUNDS: usize = 15;

/// Source bytes handled for one sample, at least.
const SAMPLE: usize = 2_000_000;

/// Blocks before each sample at most.
const WARM_UP: usize = 8;

/// Mean degree of Shokrollahi's column.
const MEAN_DEGREE: f64 = 5.87;

/// Check nodes of a message node.
const LDPC_DEGREE: f64 = 4.0;

/// Packets that are lost of a hundred.
const LOST_PERCENT: u32 = 5;

/// Graphs of blocks that have nothing in common: more than a receiver keeps.
const GRAPHS: u32 = 3;

/// What is measured.
const WHAT: [&str; 5] = [
    "encode",
    "decode, same packets",
    "decode, other losses",
    "decode, other states",
    "xor",
];

/// What a block has in common with the one before it.
#[derive(Clone, Copy)]
enum Common {
    /// The states of all packets, and all arrive.
    Packets,
    /// The states of all packets, and others are lost.
    States,
    /// No state.
    Nothing,
}

/// A packet's state and symbols.
type Packet = (State, Vec<u8>);

struct Bench {
    code: RaptorCode,
    source: Vec<u8>,
    /// Symbols of a packet.
    per_packet: u32,
    /// Packets that a block is decoded from.
    needed: usize,
    /// The packets of a few blocks: as many as it takes to lose some.
    blocks: Vec<Vec<Packet>>,
    /// Number of the next block.
    next: u32,
    random: State,
    buffer: Vec<u8>,
}

impl Bench {
    fn new((k, n, symbol_size, percent): (u32, u32, u16, u32)) -> Self {
        let parameters = RaptorParameters {
            k,
            n,
            symbol_size,
            ..RaptorParameters::published(State::from_seed(1))
        };
        let size = usize::from(symbol_size);
        let per_packet = (1456 / u32::from(symbol_size)).max(1);
        let needed = (k + k * percent / 100).div_ceil(per_packet);
        let packets = (needed * 100).div_ceil(100 - LOST_PERCENT);
        let packet = |block, index| {
            let state = State::from_seed(2).of_packet(block * 256, index);
            (state, vec![0; per_packet as usize * size])
        };
        let mut bench = Self {
            code: RaptorCode::new(parameters).expect("valid parameters"),
            source: (0..k as usize * size)
                .map(|i| (i * 7 + i / 251) as u8)
                .collect(),
            per_packet,
            needed: needed as usize,
            blocks: (0..GRAPHS)
                .map(|block| (0..packets).map(|index| packet(block, index)).collect())
                .collect(),
            next: 0,
            random: State::from_seed(3),
            buffer: Vec::new(),
        };
        let packets = packets as usize;
        for block in 0..bench.blocks.len() {
            bench.encode(block, packets);
        }
        bench
    }

    fn symbol_size(&self) -> usize {
        usize::from(self.code.parameters().symbol_size)
    }

    /// The first packets of a block.
    fn encode(&mut self, block: usize, packets: usize) {
        let source = std::mem::take(&mut self.source);
        let encoder = self.code.encoder(source).expect("a whole block");
        for (state, symbols) in &mut self.blocks[block][..packets] {
            encoder.write_symbols(*state, symbols);
        }
        self.source = encoder.into_buffer();
    }

    fn decode(&mut self, common: Common) {
        self.next += 1;
        let block = match common {
            Common::Packets | Common::States => 0,
            Common::Nothing => self.next % GRAPHS,
        };
        let packets = &self.blocks[block as usize];
        let mut decoder = self.code.decoder(std::mem::take(&mut self.buffer));
        let mut needed = self.needed;
        for (at, (state, symbols)) in packets.iter().enumerate() {
            // Every choice of packets is as likely as any other.
            let left = (packets.len() - at) as u64;
            let random = (u64::from(self.random.next_u32()) * left) >> 32;
            if matches!(common, Common::States) && random >= needed as u64 {
                continue;
            }
            let pushed = decoder.push(*state, self.per_packet, symbols);
            pushed.expect("below the limit");
            needed -= 1;
            if needed == 0 {
                break;
            }
        }
        // Once in a while a few packets are not enough: then the others come too.
        if !decoder.solve() {
            for (state, symbols) in packets {
                let pushed = decoder.push(*state, self.per_packet, symbols);
                pushed.expect("below the limit");
            }
            assert!(decoder.solve(), "this many symbols are enough");
        }
        self.buffer = black_box(decoder.into_buffer());
        debug_assert!(self.buffer == self.source);
    }

    fn xor(&mut self) {
        let size = self.symbol_size();
        let parameters = self.code.parameters();
        let checks = f64::from(parameters.k) * LDPC_DEGREE;
        let symbols = self.needed * self.per_packet as usize;
        let rows = symbols as f64 * MEAN_DEGREE + checks;
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
    // What is kept from block to block is there when time is taken.
    (0..calls.min(WARM_UP)).for_each(|_| work());
    let start = cpu_time();
    (0..calls).for_each(|_| work());
    (bytes * calls) as f64 / (cpu_time() - start).as_secs_f64()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let json = args.iter().position(|arg| arg == "--json");
    let mut samples = Vec::new();
    println!(
        "| k | T | ε | encode | {} | XOR bound |",
        WHAT[1..4].join(" | ")
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for case in CASES {
        let (k, n, symbol_size, percent) = case;
        let mut bench = Bench::new(case);
        let mut best = [0f64; WHAT.len()];
        for round in 0..ROUNDS {
            let (len, needed) = (bench.source.len(), bench.needed);
            let rates = [
                rate(len, || bench.encode(0, needed)),
                rate(len, || bench.decode(Common::Packets)),
                rate(len, || bench.decode(Common::States)),
                rate(len, || bench.decode(Common::Nothing)),
                if symbol_size > 1 {
                    rate(len, || bench.xor())
                } else {
                    0.0
                },
            ];
            for ((best, rate), what) in best.iter_mut().zip(rates).zip(WHAT) {
                *best = best.max(rate);
                samples.push(format!(
                    "{{\"what\": \"{what}\", \"k\": {k}, \"n\": {n}, \"symbol_size\": {symbol_size}, \
                     \"redundancy_percent\": {percent}, \"round\": {round}, \
                     \"bytes_per_second\": {rate:.0}}}"
                ));
            }
        }
        let [encode, same, losses, own, xor] = best.map(|rate| rate / 1e6);
        println!(
            "| {k} | {symbol_size} | {percent} % | {encode:.1} | {same:.1} | {losses:.1} | {own:.1} | {xor:.0} |"
        );
    }
    if let Some(path) = json.and_then(|at| args.get(at + 1)) {
        let mut text = String::from("{\"samples\": [\n");
        let _ = writeln!(text, "{}\n]}}", samples.join(",\n"));
        std::fs::write(path, text).expect("the JSON file can be written");
    }
}
