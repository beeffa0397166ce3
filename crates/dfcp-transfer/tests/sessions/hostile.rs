//! Hostile senders: the fuzz targets of this crate, with their corpus and changes of it.

#[path = "../../../../fuzz/src/transfer.rs"]
mod bodies;

use std::path::Path;

/// A generator that is always the same: xorshift64 (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = std::fs::read_dir(folder.join(target)).expect("a corpus for each target");
    let mut seeds: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    // A fuzzer leaves others beside them.
    seeds.retain(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("seed-")
    });
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn the_corpus_and_changes_of_it_are_survived() {
    for (name, body) in bodies::TARGETS {
        let seeds = corpus(name);
        seeds.iter().for_each(|seed| body(seed));
        let mut random = Random(1);
        // A connection takes some milliseconds.
        let rounds = if ["objects", "resume"].contains(&name) {
            50
        } else {
            500
        };
        for round in 0..rounds {
            let mut data = seeds[random.below(seeds.len())].clone();
            for _ in 0..=random.below(8) {
                let at = random.below(data.len() + 1);
                match random.below(4) {
                    0 => data.truncate(at),
                    1 => data.insert(at, random.below(256) as u8),
                    _ if at < data.len() => data[at] = random.below(256) as u8,
                    _ => data.extend_from_within(..at / 2),
                }
            }
            println!("{name}, round {round}, seed 1: {data:?}");
            body(&data);
        }
    }
}

/// Nothing would be proven by sessions that all fail.
#[test]
fn a_session_of_the_corpus_brings_a_file() {
    let seeds = corpus("session");
    assert!(seeds.iter().any(|seed| bodies::session(seed) == 3));
}

#[test]
fn a_session_of_the_corpus_goes_on_with_what_is_there() {
    // One file, of which all but a group is there and noted, and the word that it is all there.
    let asked_for_one = corpus("resume").iter().any(|seed| {
        let is_noted = seed.starts_with(&[0, 1, 0, 1, 1, 2]);
        is_noted && bodies::resume(seed, 20 * bodies::PATIENCE) == 1
    });
    assert!(asked_for_one);
}
