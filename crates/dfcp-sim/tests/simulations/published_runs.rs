//! DFCP as published in scenarios: what the papers' formulas say it must reach.

use crate::assert_near;
use dfcp_proto::{Duration, Instant};
use dfcp_sim::report::{FlowReport, RunReport};
use dfcp_sim::scenario::Scenario;

fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(text, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn run(text: &str) -> RunReport {
    dfcp_sim::run(&scenario(text)).expect("can be built")
}

fn series<'a>(report: &'a RunReport, name: &str, quantity: &str) -> &'a [f64] {
    let mut found = report.series.iter();
    let found = found.find(|s| s.name == name && s.quantity == quantity);
    &found.expect("it is sampled").values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Useful bytes of a block.
const K: f64 = 63_536.0;
/// A packet of 1500 bytes on Ethernet, and the symbols of a byte in it (beside IPv4's 20 bytes of
/// headers and DFCP's 24).
const WIRE: f64 = 1538.0;
const SYMBOLS: f64 = 1456.0;

/// Packets of a block: what the redundancy ε asks for, rounded up to whole packets.
fn packets(epsilon: f64) -> f64 {
    ((1.0 + epsilon) * K / SYMBOLS).ceil()
}

/// Goodput on `rate` bits a second of an Ethernet link: equation (2) divides by 1 + ε; here that
/// is packets as they are on the wire.
fn goodput(rate: f64, epsilon: f64) -> f64 {
    rate * K / (packets(epsilon) * WIRE)
}

/// A dumbbell of 100 Mbit/s on Ethernet with one flow for each access rate (Mbit/s).
fn dumbbell(access: &[u32], epsilon: f64) -> String {
    let pairs = access.len();
    let links: String = (1..)
        .zip(access)
        .map(|(n, rate)| format!("[link.access-left-{n}]\nrate = \"{rate} Mbit/s\"\n"))
        .collect();
    format!(
        r#"
schema = 1
[run]
duration = "24 s"
warmup = "4 s"
[topology]
kind = "dumbbell"
pairs = {pairs}
rtt = "10 ms"
[link.default]
rate = "100 Mbit/s"
framing = "ethernet"
[link.bottleneck]
queue = {{ discipline = "wfq", limit = "1000 packets" }}
{links}
[published]
window = 1000
redundancy = {epsilon}
[[flow]]
protocol = "dfcp"
count = {pairs}
"#
    )
}

fn goodputs(report: &RunReport) -> Vec<f64> {
    report.flows.iter().map(|flow| flow.goodput_bps).collect()
}

/// DFCP-J equation (2), all three cases.
#[test]
fn goodput_is_that_of_equation_2() {
    for epsilon in [0.05, 0.1] {
        let budget = packets(epsilon) * SYMBOLS / K;
        assert!((1.0 + epsilon..1.0 + epsilon + SYMBOLS / K).contains(&budget));
        // Every access link has at least c_B / N.
        let all = goodputs(&run(&dumbbell(&[100, 60, 100], epsilon)));
        for goodput_bps in all {
            let expected = goodput(100e6 / 3.0, epsilon);
            assert_near(goodput_bps, expected, 0.01, "an equal share");
        }
        // One has less: it is used up, and the others share what is left.
        let [slow, fast, other] = goodputs(&run(&dumbbell(&[20, 100, 100], epsilon)))[..] else {
            panic!("three flows");
        };
        assert_near(slow, goodput(20e6, epsilon), 0.01, "the slow link");
        // Of these 60 % of all packets are lost.
        for rest in [fast, other] {
            let expected = goodput(40e6, epsilon);
            assert_near(rest, expected, 0.01, "what the slow one leaves");
        }
    }
}

/// DFCP-J Table 3 (ns-2): 842 Mbit/s of 1 Gbit/s without loss, whatever the round trip.
#[test]
fn a_lone_flow_reaches_the_goodput_of_table_3() {
    for rtt in ["1 ms", "50 ms"] {
        let text = dumbbell(&[1000], 0.1)
            .replace("rate = \"100 Mbit/s\"", "rate = \"1 Gbit/s\"")
            .replace("24 s", "2 s")
            .replace("4 s", "1 s")
            .replace("window = 1000", "window = 10000")
            .replace("10 ms", rtt);
        let report = run(&text);
        let [flow] = &report.flows[..] else {
            panic!("one flow");
        };
        assert_near(flow.goodput_bps, 842e6, 0.03, rtt);
        assert_near(flow.goodput_bps, goodput(1e9, 0.1), 0.005, rtt);
        // Nothing is sent twice, nothing queues before the first link.
        assert_eq!((flow.packets_retransmitted, flow.drops.total()), (0, 0));
        let access = report.links.iter().find(|l| l.name == "access-left-1");
        assert!(access.expect("it is there").queue.max_packets <= 1);
    }
}

/// Loss costs its own share and hardly more, up to half of all packets.
#[test]
fn loss_costs_its_own_share() {
    for loss in [0.01, 0.1, 0.5] {
        let text = dumbbell(&[100], 0.1).replace(
            "[link.bottleneck]",
            &format!("[link.bottleneck]\nloss = {loss}\nreverse = {{ loss = 0.0 }}"),
        );
        // Half of all SYN get lost too: with another seed the handshake may take long.
        let text = text
            .replace("24 s", "40 s")
            .replace("warmup = \"4 s\"", "warmup = \"20 s\"\nseed = 2");
        let got = run(&text).flows[0].goodput_bps;
        let ideal = goodput(100e6, 0.1) * (1.0 - loss);
        assert!(got <= 1.005 * ideal, "{loss}: {got} of {ideal}");
        assert!(got >= 0.97 * ideal, "{loss}: {got} of {ideal}");
    }
}

const REAL: &str = r#"
schema = 1
[run]
duration = "20 s"
end = "finished"
[topology]
kind = "dumbbell"
rtt = "10 ms"
[link.default]
rate = "100 Mbit/s"
[link.bottleneck]
loss = 0.05
[published]
payload = "real"
[[flow]]
protocol = "dfcp"
size = "1 MB"
"#;

/// Every byte that is coded, lost in part and decoded is the one that was sent.
#[test]
fn real_bytes_arrive_as_they_were() {
    let scenario = scenario(REAL);
    let mut simulation = dfcp_sim::build(&scenario).expect("can be built");
    simulation.run_until(Instant::ZERO + Duration::from_secs(5));
    let flow = simulation.flows()[0].id;
    let progress = simulation.sink(flow).progress();
    assert_eq!((progress.delivered, progress.wrong_bytes), (1_000_000, 0));
    let sizes_only = run(&REAL.replace("\"real\"", "\"virtual\""));
    let real = progress.finished.expect("all is there");
    let real = real.saturating_since(Instant::ZERO).as_secs_f64();
    let sizes_only = sizes_only.flows[0].fct_s.expect("all is there");
    // Packets get lost alike; only what a failed attempt to decode costs may differ.
    assert_near(real, sizes_only, 0.1, "completion time");
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let text = dumbbell(&[100, 100], 0.05)
        .replace("24 s", "6 s")
        .replace("[link.bottleneck]", "[link.bottleneck]\nloss = 0.02");
    let seeded = |seed: u32| run(&text.replace("[run]", &format!("[run]\nseed = {seed}")));
    let one = seeded(1);
    assert_eq!(one.flows, seeded(1).flows);
    assert_eq!(one.links, seeded(1).links);
    assert_ne!(one.flows, seeded(2).flows);
}

/// Senders at line rate that share their first link share it equally and fill no queue.
#[test]
fn line_rate_is_the_first_link_s() {
    for protocol in ["dfcp", "auto"] {
        let text = dumbbell(&[10], 0.1)
            .replace(
                "protocol = \"dfcp\"\ncount = 1",
                &format!("protocol = \"{protocol}\"\ncount = 3"),
            )
            .replace("24 s", "9 s")
            .replace(
                "[published]",
                "[dfcp]\ncontrol = \"line rate\"\n[published]",
            );
        let report = run(&text);
        let access = report.links.iter().find(|l| l.name == "access-left-1");
        let access = access.expect("it is there");
        assert!(
            access.utilisation > 0.999,
            "{protocol}: {}",
            access.utilisation
        );
        // Two of each flow, less the one in the transmitter.
        assert!(access.queue.max_packets <= 5, "{protocol}");
        assert_eq!(access.drops.total(), 0, "{protocol}");
        let sent = |flow: &FlowReport| flow.throughput_bps;
        for flow in &report.flows {
            assert_near(sent(flow), sent(&report.flows[0]), 0.01, protocol);
        }
    }
}

/// With exact clocks, one of two senders at line rate finds a FIFO queue full for ever. Clocks as
/// exact as Ethernet's let both have their turn.
#[test]
fn clocks_that_are_off_break_phases() {
    let text = dumbbell(&[100, 100], 0.1)
        .replace("\"wfq\", limit = \"1000", "\"fifo\", limit = \"100")
        .replace("[link.default]", "[link.default]\nclock_tolerance = 0.0001");
    let report = run(&text);
    let jain = report.summary.jain.expect("two flows");
    assert!(jain > 0.95, "{jain}");
    let locked = run(&text.replace("0.0001", "0.0"));
    assert!(locked.summary.jain.expect("two flows") < 0.6);
}

/// DFCP-J §8: weights of a fair queue let DFCP and TCP live beside each other.
#[test]
fn weights_let_tcp_have_its_share() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/coexistence.toml"
    );
    let text = std::fs::read_to_string(file).expect("it is in the repository");
    for discipline in ["wfq", "drr"] {
        let report = run(&text.replace("\"wfq\"", &format!("\"{discipline}\"")));
        let share = |class: &str| -> f64 {
            let flows = report.flows.iter().filter(|flow| flow.class == class);
            flows.map(|flow| flow.throughput_bps).sum()
        };
        assert_near(share("tcp"), 70e6, 0.03, discipline);
        assert_near(share("dfcp"), 30e6, 0.03, discipline);
    }
}

/// The parking lot of DFCP-J Fig. 26 at a tenth of its rates.
const PARKING_LOT: &str = r#"
schema = 1
[run]
duration = "8 s"
sample = "10 ms"
[topology]
kind = "parking-lot"
[controller]
response = "100 ms"
error = 0.05
[link.default]
rate = "100 Mbit/s"
framing = "ethernet"
queue = { discipline = "drr", limit = "50 packets" }
[link.bottleneck-1]
delay = "25 ms"
[link.bottleneck-2]
rate = "40 Mbit/s"
delay = "15 ms"
[published]
control = "ordered"
window = 1000
redundancy = 0.05
[dfcp]
control = "ordered"
[[flow]]
name = "both"
protocol = "dfcp"
[[flow]]
name = "first"
protocol = "dfcp"
[[flow]]
name = "second"
protocol = "dfcp"
start = "4 s"
"#;

/// Goodput of a flow between two times, as a rate on the wire.
fn on_the_wire(report: &RunReport, flow: &str, seconds: std::ops::Range<usize>) -> f64 {
    let samples = series(report, flow, "goodput_bps");
    mean(&samples[seconds.start * 100..seconds.end * 100]) / goodput(1.0, 0.05)
}

/// DFCP-J §7.6: before flow 3 enters, flow 1 has 400 and flow 2 600 Mbit/s; then 200, 800, 200.
#[test]
fn a_controller_shares_the_parking_lot() {
    let report = run(PARKING_LOT);
    for (flow, seconds, expected) in [
        ("both", 1..4, 40e6),
        ("first", 1..4, 60e6),
        ("both", 5..8, 20e6),
        ("first", 5..8, 80e6),
        ("second", 5..8, 20e6),
    ] {
        let got = on_the_wire(&report, flow, seconds.clone());
        // It sends 5 % more, and what the queue drops is not all dropped from the same flow.
        assert_near(got, expected, 0.06, &format!("{flow} {seconds:?}"));
    }
    // Fig. 26: flow 3 begins with what B2 could give it, flow 1 has not heard of it. The handshake
    // takes 30 ms of the response time.
    let drops = series(&report, "bottleneck-2", "drop_rate");
    let during = mean(&drops[405..410]);
    assert_near(
        during,
        1.0 - 1.0 / (2.0 * 1.05),
        0.15,
        "drop rate before the response",
    );
    // Then the over-estimate alone is dropped (derived: e / (1 + e)).
    let after = mean(&drops[500..]);
    assert_near(after, 0.05 / 1.05, 0.15, "drop rate after it");
}

/// The core's own protocol follows the same orders.
#[test]
fn a_controller_orders_auto_too() {
    let report = run(&PARKING_LOT.replace("protocol = \"dfcp\"", "protocol = \"auto\""));
    let arrived = |name: &str| {
        let samples = series(&report, name, "goodput_bps");
        mean(&samples[500..])
    };
    let (both, first, second) = (arrived("both"), arrived("first"), arrived("second"));
    assert_near(first / both, 4.0, 0.1, "flow 2 to flow 1");
    assert_near(second / both, 1.0, 0.1, "flow 3 to flow 1");
}

/// DFCP-J §4.3: with priority at the queues, acknowledgements do not wait behind others' data.
#[test]
fn priority_spares_acknowledgements_the_queue() {
    let text = |priority: &str| {
        format!(
            r#"
schema = 1
[run]
duration = "5 s"
[link.wire]
between = ["a", "b"]
rate = "20 Mbit/s"
delay = "5 ms"
queue = {{ limit = "100 packets", priority = "{priority}" }}
[published]
control = "10 Mbit/s"
[[flow]]
name = "data"
protocol = "dfcp"
from = "a"
to = "b"
[[flow]]
name = "flood"
protocol = "udp-cbr"
udp = {{ rate = "30 Mbit/s" }}
from = "b"
to = "a"
"#
        )
    };
    let rtt = |priority: &str| run(&text(priority)).flows[0].rtt_mean_s.expect("measured");
    // 100 packets of 1500 bytes are 60 ms at 20 Mbit/s.
    assert!(rtt("none") > 0.065);
    assert!(rtt("control-first") < 0.013);
}
