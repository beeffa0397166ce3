//! `dfcp-lab` and `dfcp` find each other, and say so where they do not.

use crate::common;
use std::path::Path;
use std::process::{Command, Output};

/// `dfcp-lab` in a folder of its own, with nothing in `PATH`.
fn alone(arguments: &[&str]) -> (tempfile::TempDir, Output) {
    // Links need the file system of what they link to.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("dfcp-lab");
    std::fs::hard_link(env!("CARGO_BIN_EXE_dfcp-lab"), &program).unwrap();
    let mut command = Command::new(program);
    let output = command.args(arguments).env("PATH", "").output().unwrap();
    (folder, output)
}

#[test]
fn both_programs_say_the_same() {
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/dumbbell-cubic.toml");
    let ask = |mut program: Command| program.args(["sim", "show"]).arg(&scenario).output();
    let by_lab = ask(common::lab()).unwrap();
    let by_dfcp = ask(Command::new(common::dfcp())).unwrap();
    assert!(by_lab.status.success(), "{by_lab:?}");
    assert_eq!(by_dfcp, by_lab);
    let help = Command::new(common::dfcp())
        .args(["sim", "--help"])
        .output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("Usage: dfcp sim <COMMAND>"), "{help}");
}

#[test]
fn a_demo_without_dfcp_says_how_to_get_it() {
    let (folder, output) = alone(&["demo", "--json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = report["error"]["message"].as_str().unwrap();
    let place = folder.path().to_str().unwrap();
    assert!(said.contains(place) && said.contains("dfcp-cli"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_comparison_without_dfcp_says_how_to_get_it() {
    let grid = ["--rtt=1ms", "--repeat=1", "--objects=0", "--size=1M"];
    let (_folder, output) =
        alone(&[&["lab", "compare", "--json", "--peers=dfcp"], &grid[..]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && errors.contains("namespace") {
        eprintln!("SKIPPED: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let run: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(run["status"], "missing", "{run}");
    assert!(
        run["reason"].as_str().unwrap().contains("dfcp-cli"),
        "{run}"
    );
}
