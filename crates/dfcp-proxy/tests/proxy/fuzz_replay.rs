//! The committed corpus of the fuzz target, and what is near it, through the same function.

#[path = "../../../../fuzz/src/proxy.rs"]
mod bodies;

/// SplitMix64.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z >> 33) as usize
}

#[test]
fn the_corpus_and_what_is_near_it_are_survived() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/proxy");
    let mut seeds: Vec<_> = std::fs::read_dir(path)
        .expect("a corpus")
        .map(|file| file.expect("readable").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("seed-")
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    let corpus: Vec<Vec<u8>> = seeds
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect();
    corpus.iter().for_each(|data| bodies::parsers(data));
    let mut random = 9;
    for round in 0..20_000 {
        let mut data = corpus[round % corpus.len()].clone();
        for _ in 0..=next(&mut random) % 16 {
            let at = next(&mut random) % (data.len() + 1);
            let byte = next(&mut random) as u8;
            match next(&mut random) % 3 {
                0 if at > 8 => data.truncate(at),
                1 => data.insert(at, byte),
                _ if at < data.len() => data[at] = byte,
                _ => data.push(byte),
            }
        }
        println!("round {round}, seed 9: {data:?}");
        bodies::parsers(&data);
    }
}
