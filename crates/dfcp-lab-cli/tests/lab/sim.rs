//! `dfcp sim` as people call it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SCENARIO: &str = r#"schema = 1
title = "A test"

[run]
duration = "2 s"

[topology]
kind = "dumbbell"
rtt = "10 ms"

[link.default]
rate = "10 Mbit/s"

[[flow]]
protocol = "tcp-cubic"

[sweep]
seeds = "1..2"

[sweep.grid]
link.bottleneck.loss = [0.0, 0.01]
"#;

fn sim(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dfcp-lab"));
    let command = command.current_dir(directory).arg("sim").args(args);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn show_prints_a_scenario_that_means_the_same() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.toml"), SCENARIO).unwrap();
    let shown = sim(dir.path(), &["show", "a.toml"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("initial_window") && shown.contains("[sweep"),
        "{shown}"
    );
    fs::write(dir.path().join("b.toml"), &shown).unwrap();
    assert_eq!(text(&sim(dir.path(), &["show", "b.toml"]).stdout), shown);
}

#[test]
fn a_mistake_is_shown_with_its_place_and_nothing_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let bad = SCENARIO.replace("rate =", "rat =");
    fs::write(dir.path().join("bad.toml"), bad).unwrap();
    for command in ["run", "show", "sweep"] {
        let refused = sim(dir.path(), &[command, "bad.toml"]);
        assert_eq!(refused.status.code(), Some(2), "{command}");
        let stderr = text(&refused.stderr);
        assert!(stderr.starts_with("bad.toml:12: "), "{command}: {stderr}");
        assert!(refused.stdout.is_empty());
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no file was made"
    );
    fs::write(dir.path().join("good.toml"), SCENARIO).unwrap();
    let refused = sim(
        dir.path(),
        &["run", "good.toml", "--set", "link.bottleneck.lost=1"],
    );
    assert_eq!(refused.status.code(), Some(2));
    let refused = sim(dir.path(), &["run", "missing.toml"]);
    assert_eq!(refused.status.code(), Some(7));
    let refused = sim(dir.path(), &["sweep", "good.toml", "--points", "4..9"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("points 0..4"));
}

#[test]
fn run_and_sweep_measure_alike() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = SCENARIO.replace("tcp-cubic", "auto");
    fs::write(dir.path().join("a.toml"), scenario).unwrap();
    let set = [
        "--set",
        "link.bottleneck.loss=0.01",
        "--seed",
        "2",
        "--json",
    ];
    let run = sim(dir.path(), &[&["run", "a.toml"], &set[..]].concat());
    assert!(run.status.success(), "{}", text(&run.stderr));
    let lines: Vec<serde_json::Value> = text(&run.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [flow, whole] = &lines[..] else {
        panic!("a line for the flow and one for the run: {lines:?}");
    };
    let goodput = flow["goodput_bps"].as_f64().unwrap();
    assert!((1e6..10e6).contains(&goodput), "{goodput}");
    assert!(whole["wall_s"].is_number() && whole["events"].as_u64() > Some(0));

    let swept = sim(
        dir.path(),
        &["sweep", "a.toml", "-o", "out.csv", "--jobs", "2"],
    );
    assert!(swept.status.success(), "{}", text(&swept.stderr));
    let rows = fs::read_to_string(dir.path().join("out.csv")).unwrap();
    let mut rows = rows.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap();
    let column = head.iter().position(|name| *name == "goodput_bps").unwrap();
    let point = rows.find(|row| row[1..3] == ["0.01", "2"]).unwrap();
    assert_eq!(
        point[column].parse(),
        Ok(goodput),
        "the same run in a sweep"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_costs_the_capture_and_not_the_results() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.toml"), SCENARIO).unwrap();
    let run = sim(dir.path(), &["run", "a.toml", "--pcap", "/dev/full"]);
    assert_eq!(run.status.code(), Some(7));
    assert!(text(&run.stderr).contains("/dev/full: No space left"));
    let plain = sim(dir.path(), &["run", "a.toml", "--json"]);
    let full = sim(
        dir.path(),
        &["run", "a.toml", "--json", "--pcap", "/dev/full"],
    );
    let first = |run: &Output| text(&run.stdout).lines().next().map(ToOwned::to_owned);
    assert!(first(&plain).is_some());
    assert_eq!(first(&full), first(&plain), "the flow's line is printed");
}

#[test]
fn plot_draws_beside_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "point,delay,seed,protocol,goodput_bps\n0,10 ms,1,x,1e6\n1,20 ms,1,x,2e6\n";
    fs::write(dir.path().join("data.csv"), rows).unwrap();
    let drawn = sim(dir.path(), &["plot", "data.csv"]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let svg = fs::read_to_string(dir.path().join("data.svg")).unwrap();
    assert!(svg.contains(">Delay (ms)</text>"), "{svg}");
    let refused = sim(dir.path(), &["plot", "data.csv", "--by", "colour"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("there are point, delay, seed, protocol"));
}
