//! The scenarios of the repository: each reads, each survives being written out, each sweep makes
//! every one of its points.

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
        let again = Scenario::from_toml(scenario.to_toml(), &file);
        let again = again.unwrap_or_else(|e| panic!("{e}\n{}", scenario.to_toml()));
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
