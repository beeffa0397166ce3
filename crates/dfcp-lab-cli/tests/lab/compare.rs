//! `dfcp lab compare` with programs that misbehave, and for real where this machine allows a lab.

use crate::common;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

fn program(name: &str, folder: &Path, script: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Compares with no programs but those in `folder`, and a shell's.
fn compare(folder: &Path, arguments: &[&str]) -> Output {
    let path = format!("{}:/bin:/usr/bin", folder.display());
    common::lab()
        .args(["lab", "compare"])
        .args(arguments)
        .env("PATH", path)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The runs that were printed; none where there can be no lab.
fn runs(output: &Output) -> Option<Vec<Value>> {
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && errors.contains("namespace") {
        eprintln!("SKIPPED: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let runs: Vec<Value> = lines
        .filter(|line: &Value| line["kind"] != "context")
        .collect();
    assert!(!runs.is_empty());
    Some(runs)
}

fn of<'a>(runs: &'a [Value], peer: &str) -> &'a Value {
    let mut own = runs.iter().filter(|run| run["peer"] == peer);
    let run = own.next().unwrap_or_else(|| panic!("no run of {peer}"));
    assert!(own.next().is_none(), "one run of {peer}");
    run
}

/// Whether a process runs with this in its command line.
fn is_running(words: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands
        .map(|command| String::from_utf8_lossy(&command).into_owned())
        .any(|command| command.contains(words))
}

#[test]
fn whoever_crashes_hangs_or_is_missing_costs_its_own_row_only() {
    let folder = tempfile::tempdir().unwrap();
    program(
        "srt-file-transmit",
        folder.path(),
        "echo no such luck >&2; exit 3",
    );
    let hang = format!("1{:09}", std::process::id()); // seconds, of this test only
    for name in ["kcptun-server", "kcptun-client"] {
        program(name, folder.path(), &format!("sleep {hang}"));
    }
    let peers = "--peers=srt,hysteria2,kcptun,tcp-nosuchcontrol,dfcp";
    let grid = [
        "--rate=50M",
        "--rtt=4ms",
        "--repeat=1",
        "--objects=1",
        "--size=2M",
    ];
    let output = compare(
        folder.path(),
        &[&[peers, "--json", "--limit=20s"], &grid[..]].concat(),
    );
    let Some(runs) = runs(&output) else { return };
    for (peer, status, reason) in [
        ("srt", "failed", "no such luck"),
        ("hysteria2", "missing", "not installed: hysteria"),
        ("kcptun", "failed", "tunnel's server does not start"),
        ("tcp-nosuchcontrol", "failed", "no congestion control"),
    ] {
        let run = of(&runs, peer);
        assert_eq!(run["status"], status, "{run}");
        let said = run["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{run}");
    }
    let dfcp = of(&runs, "dfcp");
    assert!(
        dfcp["status"] == "complete" || dfcp["status"] == "invalid",
        "{dfcp}"
    );
    assert_eq!(dfcp["file"]["bytes"], 2_000_000);
    assert!(!is_running(&hang), "nothing is left");
}

#[test]
fn a_dead_path_ends_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let grid = [
        "--loss=100%",
        "--rtt=4ms",
        "--repeat=1",
        "--objects=1",
        "--size=1M",
    ];
    let output = compare(
        folder.path(),
        &[
            &["--peers=tcp-cubic,dfcp", "--json", "--limit=1s"],
            &grid[..],
        ]
        .concat(),
    );
    let Some(runs) = runs(&output) else { return };
    for peer in ["tcp-cubic", "dfcp"] {
        let run = of(&runs, peer);
        assert!(
            run["status"] == "limit" || run["status"] == "invalid",
            "{run}"
        );
        assert_eq!(run["file"]["bytes"], 0, "{run}");
        assert_eq!(run["objects"]["unfinished"], 1, "{run}");
    }
}

#[test]
fn figures_are_plausible_and_become_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let grid = [
        "--rate=50M",
        "--rtt=10ms",
        "--loss=2%",
        "--repeat=2",
        "--objects=2",
        "--size=5M",
    ];
    let output = compare(
        folder.path(),
        &[
            &["--peers=tcp-cubic,dfcp", "--json", "--out=raw.jsonl"],
            &grid[..],
        ]
        .concat(),
    );
    let Some(runs) = runs(&output) else { return };
    assert_eq!(runs.len(), 4);
    let order: Vec<_> = runs
        .iter()
        .map(|run| run["peer"].as_str().unwrap())
        .collect();
    assert_eq!(
        order,
        ["tcp-cubic", "dfcp", "tcp-cubic", "dfcp"],
        "interleaved"
    );
    for run in runs.iter().filter(|run| run["peer"] == "dfcp") {
        let file = &run["file"];
        let figure = |name: &str| {
            file[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {run}"))
        };
        assert_eq!(figure("bytes"), 5e6);
        // What the path lets through, with handshake and all.
        let goodput = 5e6 * 8.0 / figure("seconds");
        assert!(goodput < 0.98 * 50e6 * 1472.0 / 1500.0, "{goodput}");
        // At least the least, and not the file several times over.
        let wire = figure("wire_bytes") / 5e6;
        assert!((1500.0 / 1472.0..2.0).contains(&wire), "{wire}");
        assert!(figure("dropped_loss") > 0.0);
        let cpu: f64 = file["cpu_s"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_f64)
            .sum();
        assert!(cpu > 0.0 && cpu < 2.5 * figure("seconds") + 1.0, "{cpu}");
        for seconds in run["objects"]["seconds"].as_array().unwrap() {
            assert!(
                seconds.as_f64().unwrap() > 0.010,
                "at least a round trip: {run}"
            );
        }
    }
    let page = compare(folder.path(), &["--from=raw.jsonl", "--page=page.md"]);
    assert!(
        page.status.success(),
        "{}",
        String::from_utf8_lossy(&page.stderr)
    );
    let text = fs::read_to_string(folder.path().join("page.md")).unwrap();
    assert!(text.contains("## 50 Mbit/s, 10 ms, 2 % loss"), "{text}");
    assert!(
        text.contains("| dfcp | ") && text.contains("| tcp-cubic | "),
        "{text}"
    );
}

#[test]
fn lines_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("raw.jsonl"), "{}\n").unwrap();
    let output = compare(folder.path(), &["--from=raw.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("raw.jsonl: line 1: "), "{errors}");
}
