//! `dfcp doctor` and `dfcp probe` between hosts on a path with a known rate, loss or policer, each in a
//! network namespace; and what they say of hosts that do not answer.

use std::process::Command;
use std::time::Instant;

use crate::common::meeting::{Place, program_in};
use crate::common::namespace::{Namespace, privileged};
use crate::common::{Bench, Receiver, run};
use serde_json::Value;

const RECEIVER: &str = "10.9.0.2";

/// Two hosts on a cable; commands in each, one a line, make it the path that is meant.
fn cable(near: &str, far: &str) -> [Namespace; 2] {
    let hosts = [Namespace::new(), Namespace::new()];
    let ends = (("near", "10.9.0.1/24"), ("far", "10.9.0.2/24"));
    hosts[0].cable(ends.0, &hosts[1], ends.1);
    hosts[0].run(near);
    hosts[1].run(far);
    hosts
}

fn receiver(bench: &Bench, place: Place, allow: &str) -> Receiver {
    let mut command = program_in(place, &bench.path("receiver"));
    command
        .args(["recv", "--json", "--allow", allow, "--key"])
        .arg(bench.path("receiver.key"))
        .arg("-o")
        .arg(bench.path("received"));
    Receiver::start(command)
}

fn probe(bench: &Bench, place: Place) -> Command {
    let mut command = program_in(place, &bench.path("sender"));
    command
        .args(["probe", RECEIVER, "--json", "--time", "5s"])
        .args(["--peer-key", &bench.receiver_key, "--key"])
        .arg(bench.path("sender.key"));
    command
}

/// The way there, as measured between the two.
fn measured(near: &str, far: &str) -> Value {
    let bench = Bench::new();
    let hosts = cable(near, far);
    let _receiver = receiver(&bench, hosts[1].place(), &bench.sender_key);
    let (code, report, _) = run(&mut probe(&bench, hosts[0].place()));
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["reachable"], true);
    assert!(report["path"]["back"]["rate_bps"].as_u64().unwrap() > 0);
    report["path"]["there"].clone()
}

/// Whether the path carries about 20 Mbit/s: what UDP has of it is 19.4 Mbit/s.
fn assert_20m(there: &Value) {
    let rate = there["rate_bps"].as_f64().unwrap() / 1e6;
    assert!((14.0..25.0).contains(&rate), "{there}");
}

const SHAPER: &str = "tc qdisc add dev near root tbf rate 20mbit burst 5kb limit 100kb";

#[test]
fn rate_and_queue_of_a_slow_link_are_found() {
    let able = "tc qdisc add dev lo root tbf rate 20mbit burst 5kb limit 100kb";
    privileged(able, || {
        let there = measured(SHAPER, "true");
        assert_20m(&there);
        assert_eq!(there["limit"], "rate", "{there}");
        // It holds 100 kB, 40 ms.
        let queue = there["queue_ms"].as_f64().unwrap();
        assert!((2.0..80.0).contains(&queue), "{there}");
    });
}

#[test]
fn loss_at_any_rate_is_not_taken_for_a_limit() {
    let able = "tc qdisc add dev lo root tbf rate 20mbit burst 5kb limit 100kb && iptables -A INPUT \
                -m statistic --mode random --probability 0.08 -j DROP";
    privileged(able, || {
        let lossy = "iptables -A INPUT -m statistic --mode random --probability 0.08 -j DROP";
        let there = measured(SHAPER, lossy);
        let loss = there["loss"].as_f64().unwrap();
        assert!((0.04..0.13).contains(&loss), "{there}");
        assert_eq!(there["limit"], "random_loss", "{there}");
    });
}

#[test]
fn a_policer_is_told_from_a_bad_line() {
    let police = "nft add table ip police\n\
                  nft add chain ip police in '{ type filter hook input priority 0; }'\n\
                  nft add rule ip police in ip protocol udp limit rate over 2500 kbytes/second burst \
                  200 kbytes drop";
    privileged(police, || {
        // What is policed are packets, not trains of them.
        let there = measured("ip link set near gso_max_segs 1", police);
        // What it carries, and not what its bucket let through at first. A sender that a busy machine
        // holds up for longer than the bucket lasts gets less.
        let rate = there["rate_bps"].as_f64().unwrap() / 1e6;
        let peak = there["peak_bps"].as_f64().unwrap() / 1e6;
        assert!((5.0..40.0).contains(&rate) && peak > 60.0, "{there}");
        let limit = there["limit"].as_str().unwrap();
        assert!(["policer", "shallow_queue"].contains(&limit), "{there}");
    });
}

#[test]
fn what_keeps_a_host_from_answering_is_told_apart() {
    let able = "iptables -A INPUT -p udp -j REJECT --reject-with icmp-admin-prohibited";
    privileged(able, || {
        let bench = Bench::new();
        let hosts = cable("true", "true");
        let file = bench.write("x", 1000);
        let took = |words: &str, command: &mut Command| {
            let start = Instant::now();
            let (code, report, _) = run(command);
            let message = report["error"]["message"].as_str().unwrap();
            assert!(code == 5 && message.contains(words), "{report}");
            start.elapsed()
        };
        // How long a probe and a sender take to say so.
        let both_say = |words: &str| {
            let mut send = program_in(hosts[0].place(), &bench.path("sender"));
            let known = ["--peer-key", &bench.receiver_key];
            send.args(["send", "--json"]).args(known);
            [
                took(words, &mut probe(&bench, hosts[0].place())),
                took(words, send.arg(&file).arg(RECEIVER)),
            ]
        };
        // Kernels answer one host once a second, after the first few.
        hosts[1].run("sysctl -qw net.ipv4.icmp_ratelimit=0");
        let refused = both_say("no receiver listens");
        let reject = "iptables -A INPUT -p udp -j REJECT --reject-with icmp-admin-prohibited";
        hosts[1].run(reject);
        let rejected = both_say("no route");
        hosts[1].run("iptables -F INPUT");
        let _receiver = receiver(&bench, hosts[1].place(), &bench.sender_key);
        hosts[1].run("iptables -A INPUT -p udp -j DROP");
        both_say("answers over TCP");
        hosts[1].run("iptables -A INPUT -j DROP");
        let silence = both_say("over TCP neither");
        hosts[0].run("ip route flush dev near");
        let no_route = both_say("no route");
        for who in 0..2 {
            // Nobody waits for an answer where the host refuses or a firewall says that it rejects ...
            let told = refused[who].max(rejected[who]);
            assert!(told < silence[who] / 2, "{told:?} of {silence:?}");
            // ... and nobody even asks where nothing can leave.
            assert!(
                no_route[who] < told / 2,
                "{no_route:?}, told after {told:?}"
            );
        }
    });
}

/// Who reads what a probe found has no line where there is nothing.
#[test]
fn a_probe_that_nobody_answers_finds_nothing() {
    let bench = Bench::new();
    // Where nobody listens.
    let nobody = bench.program().args(["probe", "127.0.0.1:1"]).output();
    let nobody = nobody.unwrap();
    assert_eq!(nobody.status.code(), Some(5));
    assert_eq!(nobody.stdout, b"");
    assert!(!nobody.stderr.is_empty());
}

#[test]
fn strangers_are_not_measured_but_learn_that_they_got_through() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--allow", &bench.receiver_key]);
    let mut command = bench.program();
    command.args(["doctor", "--json", &receiver.address.to_string(), "--key"]);
    let (code, report, _) = run(command.arg(bench.path("sender.key")));
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!((code, &report["reachable"]), (4, &true.into()), "{report}");
    assert!(
        message.contains(&format!("dfcp recv --allow {}", bench.sender_key)),
        "{message}"
    );
    assert_eq!(report["path"], Value::Null);
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn a_session_that_measures_does_not_end_a_receiver_of_one() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let mut command = bench.program();
    let time = ["--time", "2s", "--peer-key", &bench.receiver_key];
    command
        .args(["probe", "--json", &receiver.address.to_string()])
        .args(time);
    let (code, report, _) = run(command.arg("--key").arg(bench.path("sender.key")));
    assert_eq!(code, 0, "{report}");
    let mut sender = bench.sender();
    let sent = sender
        .arg(bench.write("x", 1000))
        .arg(receiver.address.to_string());
    assert_eq!(run(sent).0, 0);
    assert_eq!(receiver.end().0, 0);
}

#[test]
fn without_a_host_this_machine_is_looked_at() {
    let bench = Bench::new();
    let (code, report, _) = run(bench.program().args(["doctor", "--json"]));
    assert_eq!(code, 0, "{report}");
    let subjects = report["findings"].as_array().unwrap();
    for subject in ["socket buffers", "offloads", "firewall", "clock"] {
        assert!(
            subjects.iter().any(|found| found["subject"] == subject),
            "{report}"
        );
    }
    // What could be better comes with what to do.
    for found in subjects {
        assert_eq!(
            found["grade"] == "good",
            found["advice"].is_null(),
            "{found}"
        );
    }
}

/// In a container the files below /sys may be those of its host.
#[test]
fn interfaces_are_those_of_the_own_network_namespace() {
    privileged("true", || {
        let bench = Bench::new();
        let hosts = cable("ip link set near mtu 1400", "true");
        let mut doctor = program_in(hosts[0].place(), &bench.path("sender"));
        let (code, report, _) = run(doctor.args(["doctor", "--json"]));
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|found| found["subject"] == "MTU");
        assert_eq!(code, 0, "{report}");
        assert_eq!(found.unwrap()["found"], "near 1400", "{report}");
    });
}
