//! The vectors of `docs/spec/codes.md`, made again and looked up in its text.

use super::*;

const TEXT: &str = include_str!("../../../../docs/spec/codes.md");

fn expect(line: &str) {
    println!("{line}");
    assert!(
        TEXT.lines().any(|l| l == line),
        "not in the document: {line}"
    );
}

fn words(words: &[u32]) -> String {
    let hex: Vec<_> = words.iter().map(|word| format!("{word:08x}")).collect();
    hex.join(" ")
}

fn small(degrees: Degrees, n: u32) -> RaptorCode {
    let parameters = RaptorParameters {
        k: 100,
        n,
        symbol_size: 8,
        ldpc_degrees: LdpcDegrees::Constant(4),
        degrees,
        precode: State::from_seed(2),
    };
    RaptorCode::new(parameters).unwrap()
}

const ROBUST: Degrees = Degrees::RobustSoliton {
    c_millionths: 30_000,
    delta_millionths: 500_000,
};

#[test]
fn generator() {
    for seed in [0, 1, 2, 0xDEAD_BEEF, u32::MAX] {
        let mut state = State::from_seed(seed);
        let start = words(&state.words());
        let outputs: Vec<u32> = (0..4).map(|_| state.next_u32()).collect();
        expect(&format!("| {seed:08x} | {start} | {} |", words(&outputs)));
    }
    for (block, index) in [(0, 0), (0, 1), (1, 0), (256, 0), (u32::MAX, u32::MAX)] {
        let state = State::from_seed(1).of_packet(block, index);
        expect(&format!(
            "| {block} | {index} | {} |",
            words(&state.words())
        ));
    }
}

#[test]
fn distributions() {
    let lines = |name: &str, degrees: Degrees, n: u32, shown: &[u32]| {
        let table = DegreeTable::new(degrees, n);
        for &degree in shown {
            let threshold = table.threshold(degree).unwrap();
            expect(&format!("| {name} | {n} | {degree} | {threshold} |"));
        }
    };
    lines(
        "Shokrollahi",
        Degrees::Shokrollahi,
        65_536,
        &[1, 2, 3, 4, 5, 8, 9, 19, 65],
    );
    lines(
        "ideal soliton",
        Degrees::IdealSoliton,
        1000,
        &[1, 2, 3, 10, 999],
    );
    // The spike is at 138.
    lines(
        "robust soliton",
        ROBUST,
        1000,
        &[1, 2, 3, 137, 138, 139, 999],
    );
}

#[test]
fn graph_and_symbols() {
    let published = RaptorCode::new(RaptorParameters::published(State::from_seed(1))).unwrap();
    let weighted = RaptorCode::new(RaptorParameters {
        ldpc_degrees: LdpcDegrees::Weighted(vec![(3, 6), (5, 3), (12, 1)]),
        ..published.parameters().clone()
    });
    let graphs = [
        ("published", &published, [0, 1, 2, 63_535]),
        ("weighted", &weighted.unwrap(), [0, 5, 8, 63_535]),
    ];
    for (name, code, messages) in graphs {
        for message in messages {
            let checks = code.0.precode.checks_of(message);
            let checks: Vec<_> = checks.iter().map(u16::to_string).collect();
            expect(&format!("| {name} | {message} | {} |", checks.join(" ")));
        }
    }
    let codes = [
        ("published", published),
        ("pre-coded", small(Degrees::Shokrollahi, 110)),
        ("LT, ideal", small(Degrees::IdealSoliton, 100)),
        ("LT, robust", small(ROBUST, 100)),
    ];
    for (name, code) in codes {
        let source = (0..code.k() * code.symbol_size()).map(|i| (i * 7 + i / 256) as u8);
        let encoder = code.encoder(source.collect()).unwrap();
        for index in [0, 1] {
            let state = State::from_seed(3).of_packet(9, index);
            let mut out = [0; 16];
            encoder.write_symbols(state, &mut out);
            let hex: Vec<_> = out.iter().map(|byte| format!("{byte:02x}")).collect();
            expect(&format!("| {name} | {index} | {} |", hex.join(" ")));
        }
    }
}
