//! The committed corpus of the fuzz target, and what is near it, through the same function.

use dfcp_proto::SecretRng;

#[path = "../../../fuzz/src/meeting.rs"]
mod meeting;

fn corpus() -> Vec<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/meeting");
    let mut files: Vec<_> = std::fs::read_dir(path)
        .expect("a corpus")
        .map(|file| file.expect("readable").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("seed-")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect()
}

#[test]
fn the_corpus_and_what_is_near_it_are_survived() {
    let corpus = corpus();
    corpus.iter().for_each(|data| meeting::steps(data));
    let mut rng = SecretRng::new(&[6; 32], "meeting, seed 6");
    for round in 0..300 {
        let mut data = corpus[rng.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=rng.below(8) {
            let at = rng.below(data.len() as u64 + 1) as usize;
            let byte = rng.array::<1>()[0];
            match rng.below(3) {
                0 => data.truncate(at),
                1 => data.insert(at, byte),
                _ if at < data.len() => data[at] = byte,
                _ => data.push(byte),
            }
        }
        println!("round {round}, seed 6: {} bytes", data.len());
        meeting::steps(&data);
    }
}
