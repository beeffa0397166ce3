//! Speed of the codes at 1280-byte symbols, one core, as markdown tables.
//!
//! `cargo bench -p dfcp-fec` prints the tables; `-- --json FILE` also writes every single sample.
//! All contenders of a table take turns within each round, so that a busy or throttled machine
//! slows them alike, and the median over the rounds counts.

#[path = "codes/contenders.rs"]
mod contenders;
#[path = "raptor/cpu_time.rs"]
mod cpu_time;
#[path = "codes/report.rs"]
mod report;
#[path = "codes/xor.rs"]
mod xor;

use std::hint::black_box;
use std::time::{Duration, Instant};

use contenders::{Contender, contenders};
use cpu_time::cpu_time;
use dfcp_fec::gf256::{Kernel, Rows};
use report::{Report, Sample};

/// Bytes of a symbol: what fits an IPv6 minimum-MTU path is close to what is used.
const T: usize = 1280;
const ROUNDS: usize = 15;
/// Long enough to be measured, short enough for all to fit in a minute.
const SLICE: Duration = Duration::from_millis(20);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let json = args
        .iter()
        .position(|arg| arg == "--json")
        .and_then(|at| args.get(at + 1));
    let mut report = Report::default();
    combination_against_memory(&mut report);
    codes(&mut report);
    print!("{}", report.markdown());
    if let Some(path) = json {
        std::fs::write(path, report.json()).expect("the JSON file can be written");
    }
}

/// Bytes per second of processor time of `work`, which handles `bytes` each time it is called.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let (start, spent) = (Instant::now(), cpu_time());
    let mut calls = 0;
    while start.elapsed() < SLICE {
        work();
        calls += 1;
    }
    (bytes * calls) as f64 / (cpu_time() - spent).as_secs_f64()
}

/// One repair symbol out of n rows with every kernel, beside the plain XOR of the same rows.
fn combination_against_memory(report: &mut Report) {
    for n in [16usize, 64, 256, 1000] {
        let memory = contenders::bytes(n * T + 128);
        let index: Vec<u16> = (0..n as u16).collect();
        let coeffs: Vec<u8> = (0..n).map(|i| (i % 255) as u8 + 1).collect();
        let mut out = vec![0; T];
        // Large blocks come from malloc 16 bytes beyond a cache line, so that every vector
        // straddles two.
        for (table, beyond) in [("combine", 16), ("combine, aligned", 0)] {
            let start = memory.as_ptr().align_offset(64) + beyond;
            let data = &memory[start..][..n * T];
            let rows = Rows::new(data, T, &index);
            for round in 0..ROUNDS {
                let mut sample = |name: &str, rate: f64| {
                    report.push(Sample::new(table, name, n, round, rate));
                };
                let bound = rate(n * T, || xor::xor_rows(black_box(&mut out), data));
                sample("xor", bound);
                for kernel in Kernel::available() {
                    let combine = || kernel.combine(black_box(&mut out), &coeffs, rows);
                    sample(kernel.name(), rate(n * T, combine));
                }
            }
        }
    }
}

/// Encoding K/10 repair symbols and decoding with a tenth of the source symbols lost.
fn codes(report: &mut Report) {
    for k in [16, 32, 64, 128, 256, 512, 1000] {
        let mut all: Vec<Box<dyn Contender>> = contenders(k);
        for round in 0..ROUNDS {
            for code in &mut all {
                let encode = rate(k * T, || code.encode());
                report.push(Sample::new("encode", code.name(), k, round, encode));
                let decode = rate(k * T, || code.decode());
                report.push(Sample::new("decode", code.name(), k, round, decode));
            }
        }
    }
}
