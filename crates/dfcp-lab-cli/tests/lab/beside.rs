//! `scripts/bench-proxy`: that each part of the comparison still gives figures, of `dfcp` and of plain TCP.

use crate::common;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Why there can be no comparison here, if so.
fn missing() -> Option<String> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|said| said.status.success()) {
        return Some("no python3".into());
    }
    let mut lab = common::lab();
    let empty = lab.args(["lab", "exec", "--", "true"]).output().unwrap();
    let errors = String::from_utf8_lossy(&empty.stderr).into_owned();
    (!empty.status.success()).then_some(errors)
}

#[test]
fn every_part_of_the_comparison_beside_others_has_figures() {
    if let Some(why) = missing() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("python3")
        .arg(root.join("scripts/bench-proxy"))
        .arg("--smoke")
        .arg(folder.path())
        .env("DFCP", common::dfcp())
        .env("DFCP_LAB", env!("CARGO_BIN_EXE_dfcp-lab"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let skipped: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("SKIPPED"))
        .collect();
    eprintln!("{}", skipped.join("\n"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    let results = fs::read_to_string(folder.path().join("proxy.jsonl")).unwrap();
    let lines: Vec<Value> = results
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &lines {
        let (peer, part) = (
            line["peer"].as_str().unwrap(),
            line["part"].as_str().unwrap(),
        );
        assert!(line["failure"].is_null(), "{line}");
        parts.entry(peer).or_default().push(part);
        // A page without one of its objects is none.
        for load in line["loads"].as_array().into_iter().flatten() {
            assert_eq!((&load["objects"], &load["broken"]), (&60.into(), &0.into()));
        }
    }
    let without = |part: &str| {
        said.lines()
            .any(|line| line.starts_with(&format!("SKIPPED: {part}:")))
    };
    let mut expected = vec!["page", "one", "many", "echo", "beside", "forward"];
    expected.retain(|part: &&str| !without(part));
    assert_eq!(parts["tcp-cubic"], expected);
    assert_eq!(parts["send"], ["one"]);
    assert_eq!(parts["udp"], ["video"]);
    expected.push("idle");
    assert_eq!(parts["dfcp"], expected);
    assert!(parts.contains_key("tun") || without("tun"), "{said}");
}
