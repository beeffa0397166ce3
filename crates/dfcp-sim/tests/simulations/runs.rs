//! Scenarios run from the file to the report, and the report says what must be so.

use crate::assert_near;
use dfcp_proto::{Duration, Instant};
use dfcp_sim::Seed;
use dfcp_sim::report::{FlowReport, LinkReport, RunReport};
use dfcp_sim::scenario::Document;

fn document(text: &str) -> Document {
    Document::parse(text, "test.toml").expect("valid")
}

fn run(document: &Document) -> RunReport {
    let scenario = document.scenario().expect("valid");
    dfcp_sim::run(&scenario).expect("can be built")
}

fn run_text(text: &str) -> RunReport {
    run(&document(text))
}

fn flow<'a>(report: &'a RunReport, name: &str) -> &'a FlowReport {
    let found = report.flows.iter().find(|flow| flow.name == name);
    found.expect("the flow is in the report")
}

fn link<'a>(report: &'a RunReport, name: &str) -> &'a LinkReport {
    let found = report.links.iter().find(|link| link.name == name);
    found.expect("the link is in the report")
}

/// One link of 10 Mbit/s and 10 ms; `extra` adds to it.
fn one_link(extra: &str, flows: &str) -> String {
    format!(
        r#"
schema = 1
[run]
duration = "20 s"
[link.wire]
between = ["a", "b"]
rate = "10 Mbit/s"
delay = "10 ms"
framing = "ip"
{extra}
{flows}
"#
    )
}

const FLOOD: &str = r#"
[[flow]]
name = "flood"
protocol = "udp-cbr"
from = "a"
to = "b"
udp = { rate = "20 Mbit/s" }
"#;

#[test]
fn every_example_runs_and_runs_again_alike() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).expect("the examples are there") {
        let path = entry.expect("readable").path();
        let name = path.to_string_lossy().into_owned();
        if !name.ends_with(".toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let mut document = Document::parse(&text, &name).expect("valid");
        let beside = |file: &str| {
            std::fs::read_to_string(path.with_file_name(file)).map_err(|e| e.to_string())
        };
        document.load_files(beside).expect("traces lie beside");
        let mut scenario = document.scenario().expect("valid");
        scenario.run.duration = Duration::from_millis(1500);
        scenario.run.warmup = Duration::ZERO;
        let run = || dfcp_sim::run(&scenario).expect("can be built");
        let report = run();
        assert_eq!(report, run(), "{name}: two runs differ");
        let moved = report.flows.iter().map(|flow| flow.bytes).sum::<u64>();
        assert!(moved > 0, "{name}: nothing arrived");
        for flow in &report.flows {
            let useful = flow.bytes as f64;
            assert!(useful <= flow.bytes_sent as f64, "{name}: {}", flow.name);
        }
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} examples");
}

#[test]
fn loss_costs_its_share_and_nothing_else() {
    let report = run_text(&one_link("loss = 0.1", FLOOD));
    // (1 − p) · C · payload / packet
    let limit = 0.9 * 10e6 * 1472.0 / 1500.0;
    assert_near(flow(&report, "flood").goodput_bps, limit, 0.02, "goodput");
    let wire = link(&report, "wire");
    assert_near(wire.utilisation, 1.0, 0.001, "utilisation");
    let drops = flow(&report, "flood").drops;
    assert_eq!((drops.full, drops.loss), (wire.drops.full, wire.drops.loss));
}

#[test]
fn bursts_lose_what_their_parameters_say() {
    let model = "loss = { p_good_to_bad = 0.01, p_bad_to_good = 0.19, loss_bad = 1.0 }";
    let report = run_text(&one_link(model, FLOOD));
    let wire = link(&report, "wire");
    let sent = wire.packets - wire.drops.full;
    // A twentieth of the packets find the bad state; bursts make the estimate coarse.
    let lost = wire.drops.loss as f64 / sent as f64;
    assert_near(lost, 0.05, 0.15, "lost share");
}

#[test]
fn a_recorded_link_delivers_its_opportunities() {
    // 3 opportunities in 4 ms: 9 Mbit/s.
    let text = one_link("", FLOOD).replace("\"10 Mbit/s\"", "{ trace = \"cell.trace\" }");
    let mut document = document(&text);
    document
        .load_files(|_| Ok("1\n2\n4\n".into()))
        .expect("given");
    let report = run(&document);
    let throughput = flow(&report, "flood").throughput_bps;
    assert_near(throughput, 9e6, 0.002, "throughput");
}

#[test]
fn packets_above_the_mtu_end_there() {
    let change = "\n[[change]]\nat = \"10 s\"\nlink = \"wire\"\nmtu = \"1400 B\"\n";
    let report = run_text(&(one_link("", FLOOD) + change));
    let flood = flow(&report, "flood");
    assert_near(
        flood.bytes as f64 * 8.0,
        10e6 * 10.0 * 1472.0 / 1500.0,
        0.15,
        "bits before",
    );
    assert_near(
        flood.drops.mtu as f64,
        0.5 * flood.packets_sent as f64,
        0.001,
        "drops after",
    );
}

#[test]
fn classes_share_a_fair_queue_by_weight() {
    let queue = r#"queue = { discipline = "drr", limit = "100 packets", weights = { small = 0.3, large = 0.7 } }"#;
    let flows = ["small", "large", "large"].iter().enumerate().map(|(i, class)| {
        format!(
            "[[flow]]\nname = \"f{i}\"\nclass = \"{class}\"\nprotocol = \"udp-cbr\"\nfrom = \"a\"\nto = \"b\"\nudp = {{ rate = \"10 Mbit/s\" }}\n"
        )
    });
    let report = run_text(&one_link(queue, &flows.collect::<String>()));
    let rate = |name| flow(&report, name).throughput_bps;
    assert_near(rate("f0"), 3e6, 0.02, "weight 0.3");
    assert_near(rate("f1") + rate("f2"), 7e6, 0.02, "weight 0.7");
}

#[test]
fn changes_take_effect_when_they_are_due() {
    let change = "\n[[change]]\nat = \"10 s\"\nlink = \"wire\"\nrate = \"5 Mbit/s\"\n";
    let text = one_link("", FLOOD) + change;
    let report = run_text(&text.replace(
        "duration = \"20 s\"",
        "duration = \"20 s\"\nsample = \"1 s\"",
    ));
    let series = report.series.iter().find(|s| s.name == "flood");
    let values = &series.expect("sampled").values;
    let payload = 1472.0 / 1500.0;
    assert_near(values[5], 10e6 * payload, 0.01, "before");
    assert_near(values[15], 5e6 * payload, 0.01, "after");
}

const DISCIPLINES: [&str; 9] = [
    "fifo", "drr", "wfq", "sfq", "red", "codel", "fq-codel", "pie", "dual-pi2",
];
const PROTOCOLS: [&str; 8] = [
    "auto",
    "tcp-newreno",
    "tcp-cubic",
    "tcp-highspeed",
    "tcp-htcp",
    "tcp-bbr",
    "udp-cbr",
    "udp-on-off",
];

/// A dumbbell with random queues, impairments and flows; everything stops after 1.5 s.
fn random_scenario(seed: u64) -> String {
    let mut random = Seed(seed).stream("scenario");
    let mut pick = |bound: u64| random.below(bound);
    let mut text = format!(
        r#"
schema = 1
[run]
duration = "4 s"
seed = {seed}
[topology]
kind = "dumbbell"
pairs = 3
rtt = "{} ms"
[link.default]
rate = "1 Gbit/s"
[link.bottleneck]
rate = "{} Mbit/s"
loss = {}
jitter = "{} ms"
queue = {{ discipline = "{}", limit = "{} packets", ecn = {} }}
[udp]
rate = "3 Mbit/s"
on = "50 ms"
off = "100 ms"
"#,
        1 + pick(80),
        2 + pick(40),
        [0.0, 0.0, 0.01, 0.2][pick(4) as usize],
        pick(3) * pick(5),
        DISCIPLINES[pick(9) as usize],
        1 + pick(60),
        pick(2) == 0,
    );
    for flow in 0..1 + pick(5) {
        let protocol = PROTOCOLS[pick(8) as usize];
        let start = pick(500);
        let flow = format!(
            "[[flow]]\nname = \"f{flow}\"\nprotocol = \"{protocol}\"\nstart = \"{start} ms\"\nstop = \"1500 ms\"\n"
        );
        text += &flow;
    }
    text
}

#[test]
fn no_packet_is_lost_without_a_cause() {
    for seed in 0..60 {
        let text = random_scenario(seed);
        let scenario = document(&text).scenario();
        let scenario = scenario.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        let mut simulation = dfcp_sim::build(&scenario).expect("can be built");
        simulation.run_until(Instant::ZERO + Duration::from_secs(4));
        for flow in simulation.flows() {
            let counters = simulation.counters(flow.id);
            let ended = counters.packets_arrived + counters.drops.total();
            let context = format!("seed {seed}, {}: {counters:?}\n{text}", flow.name);
            assert_eq!(counters.packets_sent, ended, "{context}");
            assert!(counters.packets_sent > 0, "{context}");
            assert!(counters.delivered <= counters.bytes_arrived, "{context}");
        }
        for link in simulation.links() {
            assert_eq!(link.queued_packets(), 0, "seed {seed}");
        }
    }
}

#[test]
fn a_flow_that_gives_data_up_reports_what_arrived_and_what_is_missing() {
    for (protocol, payload, reliability, missing) in [
        ("auto", "virtual", "\"unreliable\"", 0.1),
        ("auto", "real", "\"unreliable\"", 0.1),
        ("auto", "virtual", "{ retransmissions = 1 }", 0.01),
        ("chameleon", "real", "\"unreliable\"", 0.1),
    ] {
        let size = if protocol == "auto" {
            8_000_000
        } else {
            500_000
        };
        let flows = format!(
            r#"
[[flow]]
name = "live"
protocol = "{protocol}"
from = "a"
to = "b"
size = "{size} B"
dfcp = {{ code = "arq", reliability = {reliability}, payload = "{payload}" }}
"#
        );
        let report = run_text(&one_link("loss = 0.1", &flows));
        let live = flow(&report, "live");
        assert_eq!(live.bytes + live.bytes_missing, size);
        assert!(live.finished && live.fct_s.is_some());
        let share = live.bytes_missing as f64 / size as f64;
        assert_near(share, missing, 0.4, reliability);
    }
}
/// The goodput of the first flow of an example, changed.
fn coded_example(file: &str, changes: &[(&str, &str)]) -> f64 {
    let path = format!("{}/../../scenarios/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(&path).expect("readable");
    for (old, new) in changes {
        assert!(text.contains(old), "{file} has no {old}");
        text = text.replacen(old, new, 1);
    }
    run_text(&text).flows[0].goodput_bps
}

#[test]
fn a_relay_of_the_example_gains_what_theory_says() {
    let relay = |relay: &str, loss: &str| {
        let relay = format!("control = \"line rate\"\nrelay = \"{relay}\"");
        let changes = [("control = \"line rate\"", &*relay), ("loss = 0.1", loss)];
        coded_example("recoding-relay.toml", &changes)
    };
    // Symbols are shorter by a vector of 32 coefficients.
    let vector = (1500.0 - 48.0 - 32.0) / (1500.0 - 48.0);
    for (loss, p) in [("loss = 0.1", 0.1), ("loss = 0.3", 0.3)] {
        let gain = relay("recode", loss) / relay("forward", loss);
        // 1 − p against (1 − p)²; the more is lost end to end, the less exactly it is foreseen.
        assert_near(gain, vector / (1.0 - p), 0.05, loss);
    }
}

#[test]
fn the_paths_of_the_example_add_up() {
    let all = "[\"satellite-gateway\", \"base-station\", \"exchange\"]";
    let goodput = |paths: &str| coded_example("several-paths.toml", &[(all, paths)]);
    let single = ["satellite-gateway", "base-station", "exchange"];
    let sum: f64 = single
        .iter()
        .map(|node| goodput(&format!("[\"{node}\"]")))
        .sum();
    let together = goodput(all);
    assert!(together > 0.95 * sum, "{together} of {sum}");
}
