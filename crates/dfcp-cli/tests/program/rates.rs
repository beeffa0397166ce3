//! Rates that do not give way: what they are called, and what they want.

use crate::common::{Bench, bytes, run};

/// What a sender with these options says who is refused for his command line.
fn refused(bench: &Bench, options: &[&str], host: &[&str]) -> String {
    let mut sender = bench.sender();
    let file = bench.write("x", 1000);
    let (code, report, _) = run(sender.args(options).arg(file).args(host));
    assert_eq!(
        (code, &report["error"]["kind"]),
        (2, &"usage".into()),
        "{report}"
    );
    report["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn old_names_lead_to_the_new_ones() {
    let bench = Bench::new();
    for (old, new) in [
        (&["--rate", "20M"][..], "--fixed-rate 20M"),
        (&["--rate=20M"], "--fixed-rate 20M"),
        (&["--max-rate"], "--fixed-rate max"),
    ] {
        let message = refused(&bench, &[old, &["--quiet"]].concat(), &["127.0.0.1"]);
        assert!(message.contains(new), "{message}");
    }
}

#[test]
fn beyond_this_machine_the_user_has_to_vouch() {
    let bench = Bench::new();
    for rate in ["20M", "max"] {
        let message = refused(&bench, &["--fixed-rate", rate], &["192.0.2.1"]);
        assert!(message.contains("--i-own-this-network"), "{message}");
    }
    for profile in ["dfcp-sealed", "rc-udp-sealed"] {
        let message = refused(&bench, &["--profile", profile], &["192.0.2.1"]);
        assert!(
            message.contains(&format!("--profile {profile}")),
            "{message}"
        );
        assert!(message.contains("--i-own-this-network"), "{message}");
    }
    // Without the rate there is nothing to vouch for.
    refused(&bench, &["--i-own-this-network"], &["192.0.2.1"]);
    let mut by_code = bench.program();
    by_code
        .args(["send", "--json", "--fixed-rate", "20M"])
        .arg(bench.write("x", 1));
    let (code, report, _) = run(&mut by_code);
    assert_eq!(code, 2, "a code leads anywhere: {report}");
}

#[test]
fn within_this_machine_fixed_rates_just_work() {
    let bench = Bench::new();
    for (name, rate) in [("a", "50M"), ("b", "max")] {
        let receiver = bench.receiver(&["--once"]);
        let mut sender = bench.sender();
        sender
            .args(["--fixed-rate", rate])
            .arg(bench.write(name, 1_000_000));
        let (code, report, _) = run(sender.arg(receiver.address.to_string()));
        assert_eq!((code, receiver.end().0), (0, 0), "{report}");
        bench.assert_received(name, &bytes(name, 1_000_000));
    }
}
