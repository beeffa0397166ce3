//! What TCP has beside CTCP (CTCP §6.3) and beside TFRC, and what CTCP has alone.

use dfcp_sim::report::{FlowReport, RunReport};
use dfcp_sim::scenario::Document;
use std::path::PathBuf;

const SEEDS: [u64; 3] = [1, 2, 3];

fn run(text: &str, settings: &[(&str, &str)], seed: u64) -> RunReport {
    let mut document = Document::parse(text, "test").expect("the text is a scenario");
    for (key, value) in settings {
        let set = document.set(key, value);
        set.unwrap_or_else(|e| panic!("{key} = {value}: {e}"));
    }
    let seed = document.set("run.seed", &seed.to_string());
    seed.expect("a seed is a number");
    let scenario = document.scenario().unwrap_or_else(|e| panic!("{e}"));
    dfcp_sim::run(&scenario).expect("the network can be built")
}

fn flow<'a>(report: &'a RunReport, name: &str) -> &'a FlowReport {
    let mut flows = report.flows.iter();
    flows.find(|f| f.name == name).expect("it is in the text")
}

/// Mean over seeds of what flow `name` has of the link, bit/s.
fn goodput(text: &str, settings: &[(&str, &str)], name: &str) -> f64 {
    let runs = SEEDS.map(|seed| flow(&run(text, settings, seed), name).goodput_bps);
    runs.iter().sum::<f64>() / runs.len() as f64
}

/// A buffer of one bandwidth-delay product behind the loss, as the papers' Dummynet.
const TESTBED: &str = r#"
schema = 1
[run]
duration = "50 s"
warmup = "10 s"
[topology]
kind = "dumbbell"
pairs = 2
rtt = "25 ms"
[link.default]
rate = "1 Gbit/s"
clock_tolerance = 0.0001
[link.access-left]
jitter = "1200 us"
jitter_order = "kept"
[link.bottleneck]
rate = "10 Mbit/s"
loss_at = "entry"
queue = { limit = "1 bdp" }
reverse = { loss = 0.0 }
[tcp]
initial_window = 3
[[flow]]
name = "TCP"
protocol = "tcp-newreno"
start = { uniform = ["0 s", "2 s"] }
[[flow]]
name = "other"
protocol = "ctcp"
start = { uniform = ["0 s", "2 s"] }
"#;

#[test]
fn tcp_has_beside_ctcp_what_it_has_beside_tcp() {
    // A link of 8 packets, one of 21, and one of 52 with what TCP survives.
    for (rate, rtt, loss) in [
        ("10 Mbit/s", "10 ms", "0.0"),
        ("10 Mbit/s", "25 ms", "0.0"),
        ("25 Mbit/s", "25 ms", "0.01"),
    ] {
        let path = [
            ("link.bottleneck.rate", rate),
            ("topology.rtt", rtt),
            ("link.bottleneck.loss", loss),
        ];
        let beside_tcp = [&path[..], &[("flow.1.protocol", "tcp-newreno")]].concat();
        let both = ["TCP", "other"].map(|name| goodput(TESTBED, &beside_tcp, name));
        let share = 2.0 * goodput(TESTBED, &path, "TCP") / (both[0] + both[1]);
        let cell = format!("{rate}, {rtt}, loss {loss}");
        assert!((0.87..=1.15).contains(&share), "{cell}: {share:.3}");
    }
}

#[test]
fn ctcp_alone_is_near_what_its_redundancy_leaves() {
    let alone = TESTBED.split("[[flow]]").next().expect("a text");
    let text = format!("{alone}\n[[flow]]\nname = \"ctcp\"\nprotocol = \"ctcp\"\n")
        .replace("1200 us", "0 s")
        .replace("pairs = 2", "pairs = 1");
    // Equation (7) for blocks of 32, and 1436 bytes of 1500.
    for (loss, equation) in [("0.01", 1.0), ("0.1", 0.9826), ("0.2", 0.9397)] {
        let settings = [
            ("link.bottleneck.loss", loss),
            ("link.bottleneck.rate", "25 Mbit/s"),
        ];
        let goodput = flow(&run(&text, &settings, 1), "ctcp").goodput_bps;
        let efficiency = goodput / (25e6 * 1436.0 / 1500.0);
        let least = equation - 0.025;
        assert!(efficiency >= least, "loss {loss}: {efficiency:.4}");
    }
}

/// TFRC's packets ÷ TCP's in ns-2 (`validation/run-ns2-tfrc`), smoothed, with TCP's host that takes
/// up to 8 ms.
fn in_ns2(tcp: &str) -> f64 {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../validation/reference/ns2-tfrc.csv");
    let text = std::fs::read_to_string(path).expect("the reference is committed");
    let wanted = format!("{tcp},1,0.008,");
    let sums = text.lines().filter(|line| line.starts_with(&wanted));
    let (tfrc, tcp) = sums.fold((0.0, 0.0), |(tfrc, tcp), line| {
        let cells: Vec<f64> = line.split(',').filter_map(|c| c.parse().ok()).collect();
        let [_, _, _, tfrc_sent, _, tcp_sent, _] = cells[..] else {
            panic!("a row of the reference: {line}");
        };
        (tfrc + tfrc_sent, tcp + tcp_sent)
    });
    tfrc / tcp
}

#[test]
fn tfrc_takes_from_tcp_what_it_takes_in_ns2() {
    let text = include_str!("../../../../validation/ours/tfrc.toml");
    for (tcp, sack) in [("sack", "true"), ("newreno", "false")] {
        // Single runs differ by a tenth: as many as make that a thirtieth.
        let runs: Vec<_> = (1..=9)
            .map(|seed| run(text, &[("tcp.sack", sack)], seed))
            .collect();
        let sent = |name| -> f64 {
            let counts = runs.iter().map(|r| flow(r, name).packets_sent as f64);
            counts.sum()
        };
        let (ours, reference) = (sent("TFRC") / sent("TCP"), in_ns2(tcp));
        let ratio = ours / reference;
        assert!(
            (0.85..=1.15).contains(&ratio),
            "{tcp}: {ours:.2} of TCP, in ns-2 {reference:.2}"
        );
    }
}

/// Two Chameleon flows whose readers take less than their share (Table III of its paper: 0.051). What is
/// read then comes evenly, 0.018; the paper's S is of throughput, which is what arrives.
#[test]
fn stability_is_of_what_arrives_however_it_is_read() {
    let text = r#"
schema = 1
[run]
duration = "400 s"
sample = "1 s"
[link.default]
queue = { limit = "50 packets" }
[link.first]
between = ["source", "router"]
rate = "10 Mbit/s"
delay = "5 ms"
[link.second]
between = ["router", "sink"]
rate = "1 Mbit/s"
delay = "5 ms"
[chameleon]
oscillation_reduction = "on"
[[flow]]
name = "flow"
protocol = "chameleon"
count = 2
from = "source"
to = "sink"
read_rate = "300 kbit/s"
"#;
    let stability = run(text, &[], 1).summary.stability;
    let stability = stability.expect("there are samples");
    assert!((0.045..0.08).contains(&stability), "{stability}");
}
