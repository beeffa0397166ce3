//! The demo.

use crate::common;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The demo, which prints exactly one JSON object.
fn demo(arguments: &[&str]) -> (i32, Value) {
    run(common::lab().args(["demo", "--json"]).args(arguments))
}

fn run(command: &mut Command) -> (i32, Value) {
    let output = command.output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (output.status.code().unwrap(), report)
}

#[test]
fn a_small_demo_delivers() {
    let path = ["--rate", "20M", "--rtt", "20ms", "--loss", "5%"];
    let (code, report) = demo(&[&path[..], &["--size", "1M"]].concat());
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["hash_ok"], true);
    assert_eq!(report["useful_bytes"], 1_000_000);
    assert_eq!(report["rtt_ms_path"], 20.0);
    let limit = 0.95 * 20e6 * 1472.0 / 1500.0;
    assert!((report["limit_bps"].as_f64().unwrap() - limit).abs() < 1.0);
    for field in [
        "goodput_bps",
        "steady_bps",
        "ratio",
        "overhead",
        "cpu_seconds_sender",
    ] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field}: {report}");
    }
}

#[test]
fn every_encrypted_profile_gets_a_file_across_a_lossy_path() {
    for profile in ["ctcp", "chameleon", "dfcp-sealed", "rc-udp-sealed"] {
        let path = ["--rate", "20M", "--rtt", "20ms", "--loss", "5%"];
        let (code, report) = demo(&[&path[..], &["--size", "1M", "--profile", profile]].concat());
        assert_eq!(code, 0, "{report}");
        let outcome = (&report["hash_ok"], &report["profile"]);
        assert_eq!(outcome, (&true.into(), &profile.into()));
        assert_eq!(report["useful_bytes"], 1_000_000);
    }
}

#[test]
fn a_demo_that_cannot_run_says_why() {
    let mut command = common::lab();
    command.env("TMPDIR", "/nowhere/at/all");
    let (code, report) = run(command.args(["demo", "--json"]));
    assert!(
        code == 1 && report["error"]["message"].is_string(),
        "{report}"
    );
}

#[test]
fn a_demo_of_nothing_is_refused_with_what_to_give_instead() {
    for (arguments, code, words) in [
        (["--loss", "100%"], 2, "nothing arrives"),
        (["--queue", "0"], 2, "none passes"),
        (["--size", "0"], 2, "nothing to send"),
        // It would fill the disk first.
        (["--size", "15000T"], 1, "smaller --size"),
    ] {
        let (ended, report) = demo(&arguments);
        let message = report["error"]["message"].as_str().unwrap();
        assert!(ended == code && message.contains(words), "{report}");
    }
}

/// After `make demo` nothing is in `PATH` yet, and what is shown at the end is typed as it stands there.
#[test]
fn the_next_commands_can_be_typed_as_they_are_shown() {
    let program = common::dfcp();
    let folder = program.parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let with_it = format!("{}:{path}", folder.display());
    let shown = |path: &str, folder: &Path| {
        let mut demo = common::lab();
        demo.args(["demo", "--no-tcp", "--rtt", "20ms", "--size", "100k"]);
        let output = demo.env("PATH", path).current_dir(folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let elsewhere = shown(&path, Path::new("/"));
    let whole = format!("{} demo --loss 20%", program.display()).replacen('/', "./", 1);
    assert!(elsewhere.contains(&whole), "{whole}: {elsewhere}");
    assert!(shown(&path, folder).contains("   ./dfcp demo --loss 20%"));
    assert!(shown(&with_it, folder).contains("   dfcp demo --loss 20%"));
}

/// The sender's reasons are those of networks: a firewall is not what is in the way here.
#[test]
fn a_path_that_nobody_gets_across_is_called_that() {
    let (code, report) = demo(&["--loss", "99%", "--size", "1M"]);
    let message = report["error"]["message"].as_str().unwrap();
    assert!(
        code == 1 && message.contains("99 % lost each way"),
        "{report}"
    );
}

/// What TCP did in a small demo, or nothing where the machine does not allow it.
fn tcp_demo(loss: &str, size: &str) -> Option<Vec<serde_json::Value>> {
    let path = ["--rate", "50M", "--rtt", "4ms", "--loss", loss];
    let (code, report) = demo(&[&path[..], &["--tcp", "--size", size]].concat());
    assert_eq!(code, 0, "{report}");
    match report["tcp"].as_array() {
        Some(results) => Some(results.clone()),
        None => {
            let reason = report["tcp"]["unavailable"].as_str().unwrap();
            assert!(!reason.is_empty());
            eprintln!("SKIPPED: {reason}");
            None
        }
    }
}

#[test]
fn tcp_crosses_the_demos_path_or_the_demo_says_why_not() {
    for result in tcp_demo("0%", "200k").unwrap_or_default() {
        assert!(
            result["complete"] == true && result["bytes"] == 200_000,
            "{result}"
        );
        let goodput = result["goodput_bps"].as_u64().unwrap();
        assert!(goodput > 0 && goodput < 50_000_000, "{result}");
    }
}
