//! Controllers that measure the available bandwidth or follow marks, in networks where it is known.

use crate::assert_near;
use dfcp_sim::report::{FlowReport, LinkReport, RunReport};
use dfcp_sim::scenario::Document;

/// A protocol that has a rate controller.
#[derive(Clone, Copy, Debug)]
struct Transport {
    protocol: &'static str,
    /// Where its settings are.
    section: &'static str,
    /// Useful bytes ÷ bytes of IP packets.
    payload: f64,
}

/// Blocks of 128 symbols and a code that costs little.
const AUTO: Transport = Transport {
    protocol: "auto",
    section: "dfcp",
    payload: 0.953,
};
/// 63,536 bytes in 49 packets of 1500.
const PUBLISHED: Transport = Transport {
    protocol: "dfcp",
    section: "published",
    payload: 0.864,
};
const BOTH: [Transport; 2] = [AUTO, PUBLISHED];
/// Goodputs are taken over a second: whole blocks arrive, up to 188 kB at a time.
const SAMPLE: usize = 1;

/// One link of 100 Mbit/s and 10 ms each way, with a transfer under `control`; `link` adds to the
/// link, `flows` to the flows.
fn scenario(transport: Transport, control: &str, link: &str, flows: &str) -> String {
    let Transport {
        protocol, section, ..
    } = transport;
    format!(
        r#"
schema = 1
[run]
duration = "12 s"
sample = "{SAMPLE} s"
warmup = "2 s"
[link.wire]
between = ["a", "b"]
rate = "100 Mbit/s"
delay = "10 ms"
framing = "ip"
{link}
[[flow]]
name = "transfer"
protocol = "{protocol}"
from = "a"
to = "b"
{section} = {{ {control} }}
{flows}
"#
    )
}

const ONE_BDP: &str = r#"queue = { limit = "1 bdp" }"#;

/// Cross traffic of a constant rate; `extra` adds to the flow.
fn cross(name: &str, mbit: u64, extra: &str) -> String {
    if mbit == 0 {
        return String::new();
    }
    format!(
        r#"
[[flow]]
name = "{name}"
protocol = "udp-cbr"
from = "a"
to = "b"
udp = {{ rate = "{mbit} Mbit/s" }}
{extra}
"#
    )
}

fn run(text: &str) -> RunReport {
    let document = Document::parse(text, "test.toml").expect("valid");
    let scenario = document.scenario().expect("valid");
    dfcp_sim::run(&scenario).expect("can be built")
}

fn transfer(report: &RunReport) -> &FlowReport {
    &report.flows[0]
}

fn wire(report: &RunReport) -> &LinkReport {
    &report.links[0]
}

/// The transfer's goodput in Mbit/s, second by second.
fn goodputs(report: &RunReport) -> Vec<f64> {
    let is_it = |name: &str, quantity: &str| name == "transfer" && quantity == "goodput_bps";
    let series = report.series.iter().find(|s| is_it(&s.name, &s.quantity));
    let values = &series.expect("it was sampled").values;
    values.iter().map(|bps| bps / 1e6).collect()
}

fn probing(control: &str, overestimate: f64) -> String {
    format!(r#"control = "{control}", overestimate = {overestimate}"#)
}

/// Both transports with both ways to probe.
fn probers() -> impl Iterator<Item = (Transport, &'static str)> {
    let with = |transport| ["probe-gap", "probe-rate"].map(|control| (transport, control));
    BOTH.into_iter().flat_map(with)
}

#[test]
fn the_available_bandwidth_is_found_and_left_without_loss() {
    for (transport, control) in probers() {
        for others in [0, 30, 60] {
            let name = format!(
                "{} with {control} beside {others} Mbit/s",
                transport.protocol
            );
            let flows = cross("cross", others, "");
            let report = run(&scenario(
                transport,
                &probing(control, 0.0),
                ONE_BDP,
                &flows,
            ));
            let flow = transfer(&report);
            let available = (100 - others) as f64;
            assert_near(flow.throughput_bps / 1e6, available, 0.03, &name);
            assert!(flow.loss < 0.005, "{name}: {:.4} lost", flow.loss);
            for (second, goodput) in (0..).zip(goodputs(&report)).skip(1) {
                let what = format!("{name}, second {second}");
                assert_near(goodput, available * transport.payload, 0.15, &what);
            }
        }
    }
}

#[test]
fn an_overestimate_overloads_by_no_more_than_itself() {
    for (transport, control) in probers() {
        for others in [0, 30, 60] {
            let name = format!(
                "{} with {control} beside {others} Mbit/s",
                transport.protocol
            );
            let flows = cross("cross", others, "");
            let report = run(&scenario(
                transport,
                &probing(control, 0.05),
                ONE_BDP,
                &flows,
            ));
            let flow = transfer(&report);
            let sent = flow.throughput_bps / (1.0 - flow.loss) / 1e6;
            assert_near(sent, (100 - others) as f64, 0.15, &name);
            assert!(wire(&report).utilisation > 0.99, "{name}: not full");
            let dropped = wire(&report).drop_rate;
            assert!(dropped < 0.06, "{name}: {dropped:.4} dropped");
        }
    }
}

#[test]
fn a_change_of_the_others_is_followed_within_a_second() {
    let flows = cross("early", 30, "stop = \"8 s\"")
        + &cross("late", 30, "start = \"4 s\"\nstop = \"8 s\"");
    for (transport, control) in probers() {
        for overestimate in [0.0, 0.05] {
            let report = run(&scenario(
                transport,
                &probing(control, overestimate),
                ONE_BDP,
                &flows,
            ));
            let seconds = goodputs(&report);
            for (from, available) in [(1, 70.0), (5, 40.0), (9, 100.0)] {
                for (second, goodput) in (from..).zip(&seconds[from..from + 3]) {
                    let what =
                        format!("{transport:?} with {control} + {overestimate}, second {second}");
                    assert_near(*goodput, available * transport.payload, 0.15, &what);
                }
            }
        }
    }
}

#[test]
fn fair_queues_give_probing_flows_their_share() {
    let link = r#"queue = { limit = "1 bdp", discipline = "drr" }"#;
    for (transport, control) in probers() {
        let dfcp = probing(control, 0.05);
        let greedy = cross("flood", 90, "");
        let report = run(&scenario(transport, &dfcp, link, &greedy));
        let share = transfer(&report).throughput_bps / 1e6;
        assert_near(
            share,
            50.0,
            0.03,
            &format!("{transport:?} with {control} beside a flood"),
        );
        assert!(
            transfer(&report).loss < 0.06,
            "{transport:?}, {control}: too much lost"
        );
        let Transport {
            protocol, section, ..
        } = transport;
        let second = format!(
            r#"
[[flow]]
protocol = "{protocol}"
from = "a"
to = "b"
start = "1 s"
{section} = {{ {dfcp} }}
"#
        );
        let report = run(&scenario(transport, &dfcp, link, &second));
        let jain = report.summary.jain.expect("two flows");
        assert!(jain > 0.99, "{protocol}, {control}: {jain:.4}");
    }
}

#[test]
fn loss_of_the_path_costs_probing_flows_only_itself() {
    let link = format!("loss = 0.1\n{ONE_BDP}");
    for (transport, control) in probers() {
        let flows = cross("cross", 30, "");
        let report = run(&scenario(transport, &probing(control, 0.0), &link, &flows));
        let arrived = transfer(&report).throughput_bps / 1e6;
        let name = format!("{transport:?} with {control}");
        assert_near(arrived, 0.9 * 70.0, 0.15, &name);
    }
}

#[test]
fn a_short_queue_is_not_flooded() {
    let link = r#"queue = { limit = "10 packets" }"#;
    for (transport, control) in probers() {
        let flows = cross("cross", 60, "");
        let report = run(&scenario(transport, &probing(control, 0.05), link, &flows));
        let flow = transfer(&report);
        let arrived = flow.throughput_bps / 1e6;
        assert!(
            (38.0..52.0).contains(&arrived),
            "{transport:?}, {control}: {arrived:.1}"
        );
        assert!(
            flow.loss < 0.35,
            "{transport:?}, {control}: {:.3} lost",
            flow.loss
        );
    }
}

#[test]
fn marks_keep_queues_short_and_links_busy() {
    let red =
        r#"queue = { discipline = "red", ecn = true, min_threshold = 15.0, max_threshold = 60.0 }"#;
    let threshold = format!("ecn_threshold = \"3 ms\"\n{ONE_BDP}");
    let links = [red, &threshold];
    let cases = BOTH.into_iter().flat_map(|t| links.map(|link| (t, link)));
    for (transport, link) in cases {
        for others in [0, 30] {
            let name = format!("{transport:?}, {link}, beside {others} Mbit/s");
            let flows = cross("cross", others, "");
            let report = run(&scenario(transport, r#"control = "marked""#, link, &flows));
            let wire = wire(&report);
            assert!(wire.utilisation > 0.9, "{name}: {:.3}", wire.utilisation);
            // 25 packets are 3 ms; the round trip is 167.
            let queue = (wire.queue.mean_packets, wire.queue.p95_packets);
            assert!(queue.0 < 25.0 && queue.1 < 60.0, "{name}: {queue:.1?}");
            assert!(transfer(&report).loss < 0.001, "{name}: loss");
            assert!(wire.marked > 0, "{name}: no marks");
        }
    }
}

/// DualPI2 (RFC 9332) serves what says ECT(1) first, marks it from 0.8 ms on, and couples its marks
/// to the drops of the classic queue, so that both get the same rate for each flow.
#[test]
fn low_latency_queues_stay_short_and_are_shared() {
    let link = r#"queue = { discipline = "dual-pi2", limit = "2 MB" }"#;
    let control = r#"control = "path-model-l4s""#;
    let own = r#"
[[flow]]
name = "other"
protocol = "auto"
from = "a"
to = "b"
dfcp = { control = "path-model-l4s" }
"#;
    let cubic = r#"
[[flow]]
name = "other"
protocol = "tcp-cubic"
from = "a"
to = "b"
"#;
    for (rate, seed) in [(20, 1), (100, 2)] {
        let long = |flows: &str| {
            let text = scenario(AUTO, control, link, flows);
            let text = text.replace("100 Mbit/s", &format!("{rate} Mbit/s"));
            let text = text
                .replace("\"12 s\"", "\"30 s\"")
                .replace("\"2 s\"", "\"10 s\"");
            run(&text.replace(
                "schema = 1\n[run]",
                &format!("schema = 1\n[run]\nseed = {seed}"),
            ))
        };
        let share = |report: &RunReport, flow: usize| {
            report.flows[flow].goodput_bps / (f64::from(rate) * 1e6 * AUTO.payload)
        };
        let alone = long("");
        let wait = wire(&alone).queue.sojourn_mean_s.expect("packets");
        assert!(
            share(&alone, 0) > 0.8,
            "{rate} Mbit/s: {:.2} of the link",
            share(&alone, 0)
        );
        assert!(wait < 0.001, "{rate} Mbit/s: {wait} s in the queue");
        assert!(wire(&alone).marked > 0);
        let two = long(own);
        let (first, second) = (share(&two, 0), share(&two, 1));
        let said = format!("{rate} Mbit/s: {first:.2} and {second:.2} of the link");
        assert!(first.min(second) > 0.36 && first + second > 0.8, "{said}");
        let beside = long(cubic);
        let (first, second) = (share(&beside, 0), share(&beside, 1));
        let said = format!("{rate} Mbit/s: {first:.2}, and {second:.2} for CUBIC");
        assert!(first.min(second) > 0.3, "{said}");
    }
}
