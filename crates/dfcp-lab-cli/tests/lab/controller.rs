//! Scenarios with a network controller on a real path: switches, meters and orders, where Open vSwitch
//! and os-ken are installed; else that their lack is said, and that the rest runs.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// DFCP-J §7.6, a fiftieth of its rates: flow 1 crosses both bottlenecks, 2 the first, 3 the second.
const PARKING_LOT: &str = r#"
schema = 1
[run]
duration = "4 s"
warmup = "2 s"
[topology]
kind = "parking-lot"
[link.default]
rate = "100 Mbit/s"
framing = "ethernet"
queue = { discipline = "drr", limit = "100 packets" }
[link.bottleneck-1]
rate = "20 Mbit/s"
delay = "5 ms"
[link.bottleneck-2]
rate = "8 Mbit/s"
delay = "5 ms"
[published]
window = 100
symbol = "16 B"
control = "ordered"
initial_rate = "1 Mbit/s"
[controller]
error = 0.05
[[flow]]
name = "flow"
protocol = "dfcp"
count = 3
[[flow]]
name = "cross"
protocol = "udp-cbr"
from = "source-3"
to = "sink-3"
[udp]
rate = "100 kbit/s"
"#;

fn run() -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scenario.toml");
    std::fs::write(&file, PARKING_LOT).unwrap();
    Command::new(env!("CARGO_BIN_EXE_dfcp-lab"))
        .args(["lab", "run", "--json"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The lines of a run, if this machine may have a lab.
fn lines() -> Option<Vec<Value>> {
    let output = run();
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    if let Some(error) = lines
        .first()
        .and_then(|line| line["error"]["message"].as_str())
    {
        let missing = ["namespace", "veth", "user"];
        assert!(missing.iter().any(|word| error.contains(word)), "{error}");
        eprintln!("SKIPPED: {error}");
        return None;
    }
    assert!(lines.len() == 5, "{text}{errors}");
    Some(lines)
}

// Of seven runs on a machine that was busy two got no word of the switches in time and one delivered
// nothing: it wants a machine at rest (`cargo test -p dfcp-lab-cli --test lab controller -- --ignored`).
#[test]
#[ignore = "wants a machine at rest"]
fn senders_have_the_rates_that_a_real_controller_orders() {
    let Some(lines) = lines() else { return };
    let goodput = |flow: usize| lines[flow]["goodput_bps"].as_f64().unwrap();
    // Whoever follows no orders runs in any case.
    assert!(goodput(3) > 50_000.0, "{lines:?}");
    let failure = lines[0]["failure"].as_str().unwrap_or_default();
    if failure.contains("install-controller") {
        eprintln!("SKIPPED: {failure}");
        return;
    }
    for line in &lines[..4] {
        assert!(line["failure"].is_null(), "{line}");
    }
    // The second bottleneck is shared by three, since UDP counts as elastic, and flow 2 has what flow 1
    // leaves of the first: 2.7, 17.7 and 2.7 Mbit/s are ordered. A busy machine makes it less, never more.
    let [first, second, third] = [0, 1, 2].map(goodput);
    assert!(first > 1e6 && third > 1e6, "{first} {third}");
    assert!(second > 1.5 * first, "{first} {second}");
    assert!(first < 5e6 && second < 18e6 && third < 5e6, "{lines:?}");
}

#[test]
fn the_controllers_own_tests_pass() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../dfcp-lab/controller");
    let tests = Command::new("python3")
        .args(["-B", "test_controller.py"])
        .current_dir(directory)
        .output();
    let Ok(tests) = tests else {
        eprintln!("SKIPPED: no python3 here");
        return;
    };
    let said = String::from_utf8_lossy(&tests.stderr);
    assert!(tests.status.success(), "{said}");
}
