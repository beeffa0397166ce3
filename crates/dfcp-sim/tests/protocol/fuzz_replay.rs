//! The committed corpus of the fuzz targets, through the same functions.

use crate::bodies;
use dfcp_sim::Seed;
use std::path::{Path, PathBuf};

/// The committed inputs of a target; a fuzzer leaves others beside them.
fn seeds(target: &str) -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let files = std::fs::read_dir(corpus).expect("a corpus for each target");
    let is_seed = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("seed-"))
    };
    let mut seeds: Vec<_> = files
        .map(|f| f.expect("readable").path())
        .filter(is_seed)
        .collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds.sort();
    seeds
}

#[test]
fn the_corpus_is_survived() {
    for (name, body) in bodies::TARGETS {
        for file in seeds(name) {
            println!("{}", file.display());
            body(&std::fs::read(file).expect("readable"));
        }
    }
}

#[test]
fn mutated_inputs_are_survived() {
    for (name, body) in bodies::TARGETS {
        let rounds = if matches!(
            name,
            "answers"
                | "datagrams"
                | "sealed_frames"
                | "published"
                | "handshake"
                | "migration"
                | "receiver"
                | "resets"
                | "solves"
        ) {
            40
        } else {
            2000
        };
        let mut random = Seed(1).stream(name);
        let seeds = seeds(name);
        for round in 0..rounds {
            let pick = random.below(seeds.len() as u64) as usize;
            let mut data = std::fs::read(&seeds[pick]).expect("readable");
            for _ in 0..=random.below(8) {
                let at = random.below(data.len() as u64 + 1) as usize;
                match random.below(4) {
                    0 => data.truncate(at),
                    1 => data.insert(at, random.next_u64() as u8),
                    _ if at < data.len() => data[at] = random.next_u64() as u8,
                    _ => data.extend_from_within(..at / 2),
                }
            }
            println!("{name}, round {round}, seed 1: {} bytes", data.len());
            body(&data);
        }
    }
}
