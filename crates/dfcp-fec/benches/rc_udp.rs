//! RC-UDP Fig. 3 with our codes: time to encode and to decode files, one core.
//!
//! A file is one block up to 1 MB, and blocks of 1 MB beyond. Encoding makes as many symbols as
//! bring (1 + ε) K to the receiver, ε = 1 %, of which it decodes. Processor time of the thread where
//! the system tells; median and the tenths beside it. `-- --csv FILE` writes the table.

#[path = "raptor/cpu_time.rs"]
mod cpu_time;

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use cpu_time::cpu_time;
use dfcp_fec::raptor::{RaptorCode, RaptorParameters, State};
use dfcp_fec::{BlockSpec, SchemeId, scheme};

const BLOCK: usize = 1_000_000;
/// Sizes S_m of Fig. 3a and c, and symbols L of Fig. 3b (with 1 MB), bytes.
const FILES: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const SYMBOLS: [usize; 4] = [128, 256, 512, 1024];
/// Drops of Fig. 3c, per cent.
const DROPS: [u32; 3] = [0, 5, 10];
/// Check nodes for each source symbol, as RC-UDP has them here.
const CHECK_NODES: (usize, usize) = (300, 977);

#[derive(Clone, Copy, Debug)]
enum Code {
    RaptorQ,
    Raptor,
}

/// A measured time in ms: tenth, median, ninth tenth.
fn quantiles(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort();
    [0.1, 0.5, 0.9].map(|q| {
        let at = (q * (times.len() - 1) as f64).round() as usize;
        times[at].as_secs_f64() * 1e3
    })
}

/// Encodes a block and decodes what was not dropped; gives both times.
fn trial(code: Code, source: Vec<u8>, size: usize, drops: u32, seed: u32) -> [Duration; 2] {
    let k = source.len().div_ceil(size);
    let needed = k + (k as f64 * 0.01).ceil() as usize;
    let mut random = State::from_seed(seed + 1);
    let mut kept = Vec::new();
    let mut esi = 0;
    while kept.len() < needed {
        if random.next_u32() % 100 >= drops {
            kept.push(esi);
        }
        esi += 1;
    }
    let mut padded = source;
    padded.resize(k * size, 0);
    let mut sent = vec![0; esi as usize * size];
    let expected = padded.clone();
    let (encoding, decoding, decoded);
    match code {
        Code::RaptorQ => {
            let spec = BlockSpec::new(k as u32, size as u16, 0).expect("within limits");
            let codec = scheme(SchemeId::RaptorQ);
            let begin = cpu_time();
            let mut encoder = codec.encoder(spec, padded).expect("a whole block");
            for (esi, symbol) in (0..).zip(sent.chunks_mut(size)) {
                encoder.write_symbol(esi, symbol).expect("within limits");
            }
            encoding = cpu_time() - begin;
            let begin = cpu_time();
            let mut decoder = codec.decoder(spec, Vec::new()).expect("within limits");
            for &esi in &kept {
                let symbol = &sent[esi as usize * size..][..size];
                decoder.push(esi, symbol).expect("a symbol");
            }
            black_box(decoder.solve()).expect("no fault");
            decoding = cpu_time() - begin;
            decoded = decoder.is_complete().then(|| decoder.into_buffer());
        }
        Code::Raptor => {
            let n = k + (k * CHECK_NODES.0).div_ceil(CHECK_NODES.1);
            let parameters = RaptorParameters {
                k: k as u32,
                n: n as u32,
                symbol_size: size as u16,
                ..RaptorParameters::published(State::from_seed(1))
            };
            // Made once for a connection.
            let code = RaptorCode::new(parameters).expect("within limits");
            let initial = State::from_seed(seed + 2);
            let begin = cpu_time();
            let encoder = code.encoder(padded).expect("a whole block");
            for (index, symbol) in (0..).zip(sent.chunks_mut(size)) {
                encoder.write_symbols(initial.of_packet(0, index), symbol);
            }
            encoding = cpu_time() - begin;
            let begin = cpu_time();
            let mut decoder = code.decoder(Vec::new());
            for &index in &kept {
                let symbol = &sent[index as usize * size..][..size];
                let state = initial.of_packet(0, index);
                decoder.push(state, 1, symbol).expect("a symbol");
            }
            let solved = black_box(decoder.solve());
            decoding = cpu_time() - begin;
            decoded = solved.then(|| decoder.into_buffer());
        }
    }
    assert!(decoded.is_none_or(|block| block == expected));
    [encoding, decoding]
}

/// Times of a whole file, all its blocks.
fn file(code: Code, bytes: usize, size: usize, drops: u32, seed: u32) -> [Duration; 2] {
    let content: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut sum = [Duration::ZERO; 2];
    for (index, block) in (0..).zip(content.chunks(BLOCK)) {
        let times = trial(code, block.to_vec(), size, drops, seed * 64 + index);
        sum = [sum[0] + times[0], sum[1] + times[1]];
    }
    sum
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut table = String::from(
        "code,file_bytes,symbol_bytes,drops,trials,encode_ms_p10,encode_ms_p50,encode_ms_p90,\
         decode_ms_p10,decode_ms_p50,decode_ms_p90\n",
    );
    let by_size = FILES.iter().map(|&bytes| (bytes, 1024));
    let by_symbol = SYMBOLS[..3].iter().map(|&size| (BLOCK, size));
    let cases: Vec<(usize, usize)> = by_size.chain(by_symbol).collect();
    for code in [Code::RaptorQ, Code::Raptor] {
        for &(bytes, size) in &cases {
            for drops in DROPS {
                // The paper has 1000 trials.
                let trials = (100_000_000 / bytes).clamp(10, 1000) as u32;
                let times = (0..trials).map(|seed| file(code, bytes, size, drops, seed));
                let (encode, decode): (Vec<_>, Vec<_>) = times.map(|[e, d]| (e, d)).unzip();
                let row = [quantiles(encode), quantiles(decode)].concat();
                let row: Vec<String> = row.iter().map(|ms| format!("{ms:.4}")).collect();
                writeln!(
                    table,
                    "{code:?},{bytes},{size},{drops},{trials},{}",
                    row.join(",")
                )
                .expect("a string takes all");
                eprint!(".");
            }
        }
    }
    match arguments.iter().position(|argument| argument == "--csv") {
        Some(at) => std::fs::write(&arguments[at + 1], table).expect("a writable file"),
        None => print!("\n{table}"),
    }
}
