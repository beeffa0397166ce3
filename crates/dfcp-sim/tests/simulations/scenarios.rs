//! The scenarios of the repository: each reads, each survives being written out, each sweep makes
//! every one of its points.

use dfcp_sim::Seed;
use dfcp_sim::scenario::{Document, Scenario};
use std::path::Path;

fn examples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut found: Vec<_> = std::fs::read_dir(&folder)
        .expect("the repository has scenarios")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("readable");
            (path.display().to_string(), text)
        })
        .collect();
    found.sort();
    assert!(found.len() >= 10);
    found
}

#[test]
fn examples_read_and_survive_being_written_out() {
    for (file, text) in examples() {
        let scenario = Scenario::from_toml(&text, &file).unwrap_or_else(|e| panic!("{e}"));
        let again = Scenario::from_toml(scenario.to_toml_with_defaults(), &file);
        let again = again.unwrap_or_else(|e| panic!("{e}\n{}", scenario.to_toml_with_defaults()));
        assert_eq!(scenario, again, "{file}");
    }
}

#[test]
fn every_point_of_the_examples_is_a_scenario() {
    for (file, text) in examples() {
        let sweep = Document::parse(&text, &file).and_then(Document::sweep);
        let sweep = sweep.unwrap_or_else(|e| panic!("{e}"));
        for index in 0..sweep.len() {
            let point = sweep.point(index).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(point.scenario.run.seed.0, point.seed);
            assert_eq!(point.parameters.len(), sweep.parameters().count());
        }
        let written = sweep.to_toml_with_defaults().expect("it was read");
        let again = Document::parse(&written, &file).and_then(Document::sweep);
        let again = again.unwrap_or_else(|e| panic!("{e}\n{written}"));
        assert_eq!(again.hash(), sweep.hash(), "{file}");
        assert_eq!(again.len(), sweep.len(), "{file}");
    }
}

/// Examples with a few bytes, words or lines changed are read or refused, never a panic; what is
/// refused has a line of the file.
#[test]
fn damaged_examples_are_refused_politely() {
    let examples = examples();
    let words: Vec<&str> = examples
        .iter()
        .flat_map(|(_, text)| text.split_whitespace())
        .collect();
    let seed = 7;
    let mut random = Seed(seed).stream("damage");
    let mut below = |n: usize| random.below(n as u64) as usize;
    let (mut passed, mut refused) = (0, 0);
    for round in 0..1000 {
        let (_, text) = &examples[below(examples.len())];
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=below(3) {
            let (line, other) = (below(lines.len()), below(lines.len()));
            match below(4) {
                0 => lines[line] = lines[line].replacen(words[below(words.len())], "-1", 1),
                1 => lines.swap(line, other),
                2 => {
                    let word = lines[line]
                        .split_whitespace()
                        .next_back()
                        .map(str::to_owned);
                    let new = words[below(words.len())];
                    lines[line] = lines[line].replace(&word.unwrap_or_default(), new);
                }
                _ => drop(lines.remove(line)),
            }
        }
        let damaged = lines.join("\n");
        match Document::parse(&damaged, "damaged.toml").and_then(Document::sweep) {
            Ok(sweep) => {
                passed += 1;
                // Values that only fail together may still be refused.
                let _ = sweep.point(sweep.len() - 1);
            }
            Err(error) => {
                refused += 1;
                let count = damaged.lines().count();
                assert!(
                    error
                        .line
                        .is_some_and(|line| (1..=count.max(1)).contains(&line)),
                    "seed {seed}, round {round}: {error}\n{damaged}"
                );
            }
        }
    }
    assert!(
        passed > 50 && refused > 50,
        "{passed} passed, {refused} refused"
    );
}

#[test]
fn every_key_is_documented() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let docs = std::fs::read_to_string(folder.join("scenarios.md")).expect("there are docs");
    for (file, text) in examples() {
        let scenario = Scenario::from_toml(&text, &file).unwrap_or_else(|e| panic!("{e}"));
        let written = scenario.to_toml_with_defaults();
        let body = written.lines().filter(|line| !line.starts_with('['));
        for key in body
            .filter_map(|line| line.split_once(" = "))
            .map(|(key, _)| key)
        {
            let named = ["`{}`", "`{} =", "\n{} ="].map(|shape| shape.replace("{}", key));
            assert!(
                named.iter().any(|name| docs.contains(name.as_str())),
                "`{key}` is not in docs/scenarios.md"
            );
        }
    }
}
