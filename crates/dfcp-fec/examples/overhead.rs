//! Reception overhead of the fountain codes: how many blocks decode, by extra symbols received.
//!
//! `cargo run --release -p dfcp-fec --example overhead -- DIRECTORY [FILE]…` writes one CSV file a
//! curve family, or those named alone; see docs/reproduction/overhead/README.md.

use std::fmt::Write as _;
use std::path::Path;

use dfcp_fec::raptor::{Degrees, LdpcDegrees, RaptorCode, RaptorParameters, State};
use dfcp_fec::{BlockSpec, SchemeId, scheme};

/// One curve: a code and how it is decoded.
struct Curve {
    name: &'static str,
    k: u32,
    n: u32,
    ldpc: LdpcDegrees,
    degrees: Degrees,
    inactive: u16,
    blocks: u32,
}

const ROBUST: Degrees = Degrees::RobustSoliton {
    c_millionths: 30_000,
    delta_millionths: 500_000,
};

const PUBLISHED: Curve = Curve {
    name: "raptor, peeling",
    k: 63_536,
    n: 65_536,
    ldpc: LdpcDegrees::Constant(4),
    degrees: Degrees::Shokrollahi,
    inactive: 0,
    blocks: 200,
};

const SMALL: Curve = Curve {
    name: "raptor, peeling",
    k: 1_000,
    n: 1_042,
    ldpc: LdpcDegrees::Constant(4),
    degrees: Degrees::Shokrollahi,
    inactive: 0,
    blocks: 500,
};

fn main() {
    let mut args = std::env::args().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let wanted: Vec<String> = args.collect();
    let write = |file: &str, outcomes: &dyn Fn() -> Vec<Outcome>| {
        if wanted.is_empty() || wanted.iter().any(|name| name == file) {
            write(&directory, file, outcomes().into_iter());
        }
    };
    write("k63536.csv", &|| published().iter().map(raptor).collect());
    write("k1000.csv", &|| {
        let curves = small();
        let curves = curves.iter().map(raptor);
        curves.chain([raptorq(1_000, 500)]).collect()
    });
    write("ldpc.csv", &|| ldpc().iter().map(raptor).collect());
}

fn robust(curve: Curve) -> Curve {
    Curve {
        name: "LT, robust soliton, peeling",
        n: curve.k,
        degrees: ROBUST,
        ..curve
    }
}

fn ideal(curve: Curve) -> Curve {
    Curve {
        name: "LT, ideal soliton, peeling",
        n: curve.k,
        degrees: Degrees::IdealSoliton,
        ..curve
    }
}

fn published() -> [Curve; 4] {
    [
        PUBLISHED,
        Curve {
            name: "raptor, 1024 inactive",
            inactive: 1024,
            blocks: 50,
            ..PUBLISHED
        },
        Curve {
            blocks: 50,
            ..robust(PUBLISHED)
        },
        Curve {
            blocks: 20,
            ..ideal(PUBLISHED)
        },
    ]
}

fn small() -> [Curve; 4] {
    [
        SMALL,
        Curve {
            name: "raptor, 1024 inactive",
            inactive: 1024,
            ..SMALL
        },
        robust(SMALL),
        ideal(SMALL),
    ]
}

/// The same codes with other LDPC degrees, by peeling and with inactivation.
fn ldpc() -> Vec<Curve> {
    let constant = LdpcDegrees::Constant;
    let irregular = LdpcDegrees::Weighted(vec![(3, 6), (5, 3), (12, 1)]);
    let mut curves = Vec::new();
    for (names, ldpc) in [
        (["3, peeling", "3, 1024 inactive"], constant(3)),
        (["4, peeling", "4, 1024 inactive"], constant(4)),
        (["7, peeling", "7, 1024 inactive"], constant(7)),
        (
            ["3 to 5, peeling", "3 to 5, 1024 inactive"],
            LdpcDegrees::uniform(3..=5),
        ),
        (
            ["irregular, peeling", "irregular, 1024 inactive"],
            irregular,
        ),
    ] {
        for (base, blocks) in [(PUBLISHED, [100, 20]), (SMALL, [500, 500])] {
            for (at, inactive) in [0, 1024].into_iter().enumerate() {
                curves.push(Curve {
                    name: names[at],
                    ldpc: ldpc.clone(),
                    inactive,
                    blocks: blocks[at],
                    ..base
                });
            }
        }
    }
    curves
}

/// Extra symbols with which each block decoded; `None` for those that never did.
struct Outcome {
    name: &'static str,
    k: u32,
    extra: Vec<Option<u32>>,
}

fn raptor(curve: &Curve) -> Outcome {
    let code = RaptorCode::new(RaptorParameters {
        k: curve.k,
        n: curve.n,
        ldpc_degrees: curve.ldpc.clone(),
        degrees: curve.degrees,
        ..RaptorParameters::published(State::from_seed(1))
    })
    .expect("valid parameters");
    let initial = State::from_seed(2);
    let solves = |block, symbols| {
        let mut decoder = code.structural_decoder();
        decoder.limit_inactivation(curve.inactive);
        let state = initial.of_packet(block, 0);
        decoder.push(state, symbols, &[]).expect("below the limit");
        decoder.solve()
    };
    // More symbols never hurt: the least that solve, by bisection.
    let decode = |block| {
        let (mut fails, mut enough) = (curve.k - 1, code.structural_decoder().limit());
        if !solves(block, enough) {
            return None;
        }
        while enough - fails > 1 {
            let middle = fails + (enough - fails) / 2;
            match solves(block, middle) {
                true => enough = middle,
                false => fails = middle,
            }
        }
        Some(enough - curve.k)
    };
    Outcome {
        name: curve.name,
        k: curve.k,
        extra: (0..curve.blocks).map(decode).collect(),
    }
}

/// RaptorQ with repair symbols alone, the crate's own verdict.
fn raptorq(k: u32, blocks: u32) -> Outcome {
    let decode = |block| {
        let spec = BlockSpec::new(k, 1, 0).expect("valid geometry");
        let code = scheme(SchemeId::RaptorQ);
        let source = vec![0; spec.source_len()];
        let mut encoder = code.encoder(spec, source).expect("valid block");
        let mut decoder = code.decoder(spec, Vec::new()).expect("valid block");
        let mut symbol = [0];
        let mut received = 0;
        while !decoder.solve().expect("no internal error") {
            let esi = k + block * (k + 50) + received;
            encoder.write_symbol(esi, &mut symbol).expect("an ESI");
            decoder.push(esi, &symbol).expect("an ESI");
            received += 1;
        }
        Some(received - k)
    };
    Outcome {
        name: "RaptorQ (RFC 6330)",
        k,
        extra: (0..blocks).map(decode).collect(),
    }
}

/// For each curve: by extra symbols, ascending, how many of its blocks decode with them.
fn write(directory: &str, file: &str, outcomes: impl Iterator<Item = Outcome>) {
    let mut text = String::from("code,k,extra_symbols,overhead,decoded,blocks\n");
    for outcome in outcomes {
        let mut extra: Vec<u32> = outcome.extra.iter().flatten().copied().collect();
        extra.sort_unstable();
        let (k, blocks) = (f64::from(outcome.k), outcome.extra.len());
        for (at, &symbols) in extra.iter().enumerate() {
            // The last block with as many stands for all of them.
            if extra.get(at + 1) != Some(&symbols) {
                let overhead = f64::from(symbols) / k;
                let (name, decoded) = (outcome.name, at + 1);
                let row = format!("\"{name}\",{k},{symbols},{overhead:.5},{decoded},{blocks}");
                let _ = writeln!(text, "{row}");
            }
        }
        let mean = extra.iter().map(|&e| f64::from(e)).sum::<f64>() / extra.len().max(1) as f64;
        println!(
            "{}, k = {k}: {} of {blocks} blocks decoded, mean overhead {:.2} %, at most {:.2} %",
            outcome.name,
            extra.len(),
            100.0 * mean / k,
            100.0 * f64::from(extra.last().copied().unwrap_or(0)) / k,
        );
    }
    let path = Path::new(directory).join(file);
    std::fs::write(path, text).expect("the directory can be written to");
}
