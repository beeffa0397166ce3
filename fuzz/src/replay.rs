//! The committed corpus of a fuzz target, and what is near it, for the tests of the crates beside.

/// SplitMix64.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z >> 33) as usize
}

/// The committed inputs of a target; a fuzzer leaves others beside them.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/");
    let mut seeds: Vec<_> = std::fs::read_dir(format!("{folder}{target}"))
        .expect("a corpus")
        .map(|file| file.expect("readable").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("seed-")
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    seeds
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect()
}

/// Runs `body` on the corpus of `target`, and on it with up to 16 bytes changed, `rounds` times.
pub fn run(target: &str, rounds: usize, body: impl Fn(&[u8])) {
    let corpus = corpus(target);
    corpus.iter().for_each(|data| body(data));
    let mut random = 9;
    for round in 0..rounds {
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
        println!(
            "round {round}, seed 9: {} bytes, {:?}",
            data.len(),
            &data[..data.len().min(64)]
        );
        body(&data);
    }
}
