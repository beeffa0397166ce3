//! Hosts whose clocks are off, and what happens to their packets on the way back.

use dfcp_proto::{Duration, Instant};
use dfcp_sim::packet::Ecn;
use dfcp_sim::report::{FlowReport, LinkReport, RunReport};
use dfcp_sim::scenario::{Document, Scenario};

fn scenario(text: &str) -> Scenario {
    let document = Document::parse(text, "test.toml").expect("TOML");
    document
        .scenario()
        .unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn run(text: &str) -> RunReport {
    dfcp_sim::run(&scenario(text)).expect("can be built")
}

fn flow<'a>(report: &'a RunReport, name: &str) -> &'a FlowReport {
    let found = report.flows.iter().find(|flow| flow.name == name);
    found.expect("the flow is in the report")
}

fn link<'a>(report: &'a RunReport, name: &str) -> &'a LinkReport {
    let found = report.links.iter().find(|link| link.name == name);
    found.expect("the link is in the report")
}

/// One link of 20 Mbit/s and 10 ms each way, with a transfer; `link` and `flow` add to them.
fn transfer(protocol: &str, link: &str, flow: &str) -> String {
    format!(
        r#"
schema = 1
[run]
duration = "20 s"
[link.wire]
between = ["a", "b"]
rate = "20 Mbit/s"
delay = "10 ms"
queue = {{ limit = "1 bdp" }}
{link}
[[flow]]
name = "transfer"
protocol = "{protocol}"
from = "a"
to = "b"
{flow}
"#
    )
}

/// Clocks as they are found, and as bad as NTP and `adjtime` make them.
const CLOCKS: [&str; 5] = [
    "clock = { offset = \"1 s\" }",
    "sender_clock = { offset = \"1 h\", skew_ppm = -100.0 }",
    "clock = { skew_ppm = 500.0, steps = [{ at = \"5 s\", by = \"128 ms\" }, { at = \"10 s\", by = \"-128 ms\" }] }",
    "clock = { skew_ppm = [{ at = \"3 s\", ppm = 83_333.0 }, { at = \"6 s\", ppm = 0.0 }] }",
    "sender_clock = { steps = [{ at = \"5 s\", by = \"2 s\" }, { at = \"10 s\", by = \"-1 s\" }] }",
];

#[test]
fn transfers_end_whatever_the_clocks_show() {
    for protocol in ["auto", "ctcp", "chameleon"] {
        for clock in CLOCKS {
            let size = format!("size = \"8 MB\"\n{clock}");
            let report = run(&transfer(protocol, "loss = 0.01", &size));
            let transfer = flow(&report, "transfer");
            assert!(transfer.finished, "{protocol}, {clock}");
            assert_eq!(transfer.bytes, 8_000_000, "{protocol}, {clock}");
            // 3.4 s at the link's rate; some lose a second or two to a step.
            let took = transfer.fct_s.expect("it finished");
            assert!((3.2..20.0).contains(&took), "{protocol}, {clock}: {took} s");
        }
    }
}

#[test]
fn a_constant_offset_changes_nothing() {
    let exact = run(&transfer("auto", "", ""));
    let offset = "clock = { offset = \"1 s\" }\nsender_clock = { offset = \"7 ms\" }";
    let off = run(&transfer("auto", "", offset));
    let goodput = |report| flow(report, "transfer").goodput_bps;
    let share = goodput(&off) / goodput(&exact);
    assert!((share - 1.0).abs() < 0.01, "{share}");
}

#[test]
fn flows_start_and_stop_in_true_time() {
    let plan = "start = \"2 s\"\nstop = \"4 s\"\nsender_clock = { offset = \"1 min\", skew_ppm = 80_000.0 }";
    let text = transfer("auto", "", plan).replace("[link.wire]", "sample = \"1 s\"\n[link.wire]");
    let report = run(&text);
    let series = report.series.iter().find(|s| s.name == "transfer");
    let values = &series.expect("sampled").values;
    assert!(values[..2].iter().all(|rate| *rate == 0.0), "{values:?}");
    assert!(values[3] > 10e6, "{values:?}");
    assert!(values[5..].iter().all(|rate| *rate == 0.0), "{values:?}");
}

#[test]
fn clocks_that_make_no_sense_are_refused() {
    let error = |protocol, flow| {
        let document = Document::parse(&transfer(protocol, "", flow), "test.toml").expect("TOML");
        let error = document.scenario().expect_err("refused");
        assert!(error.line.is_some(), "{error}");
        error.to_string()
    };
    let wrong = error("tcp-cubic", "sender_clock = { offset = \"1 s\" }");
    assert!(wrong.contains("exact clocks"), "{wrong}");
    let wrong = error("auto", "clock = { skew_ppm = 200_000.0 }");
    assert!(wrong.contains("not within"), "{wrong}");
    let descends =
        "clock = { steps = [{ at = \"5 s\", by = \"1 s\" }, { at = \"1 s\", by = \"1 s\" }] }";
    let wrong = error("auto", descends);
    assert!(wrong.contains("ascend"), "{wrong}");
    let wrong = error("auto", "clock = { ofset = \"1 s\" }");
    assert!(wrong.contains("offset"), "{wrong}");
}

#[test]
fn clocks_survive_being_written_out() {
    for clock in CLOCKS {
        let read = scenario(&transfer("auto", "ack_thinning = \"newest\"", clock));
        let again = scenario(read.to_toml_with_defaults());
        assert_eq!(read, again);
        assert!(!read.flows[0].clock.is_exact() || !read.flows[0].sender_clock.is_exact());
    }
}

/// Two pairs over a line of 20 and 2 Mbit/s; the second sends against the first.
fn both_ways(protocol: &str, back: &str) -> String {
    format!(
        r#"
schema = 1
[run]
duration = "30 s"
warmup = "10 s"
[topology]
kind = "dumbbell"
pairs = 2
rtt = "30 ms"
[link.default]
rate = "1 Gbit/s"
[link.bottleneck]
rate = "20 Mbit/s"
queue = {{ limit = "60 packets" }}
reverse = {{ rate = "2 Mbit/s", queue = {{ limit = "20 packets" }} {back} }}
[[flow]]
name = "down"
protocol = "{protocol}"
from = "source-1"
to = "sink-1"
[[flow]]
name = "up"
protocol = "tcp-cubic"
from = "sink-2"
to = "source-2"
"#
    )
}

/// Data of one flow and acknowledgements of the other share a link, each way.
#[test]
fn traffic_flows_both_ways_over_a_bottleneck() {
    for protocol in ["tcp-cubic", "tcp-bbr", "auto"] {
        let report = run(&both_ways(protocol, ""));
        let (down, up) = (flow(&report, "down"), flow(&report, "up"));
        let back = link(&report, "bottleneck.reverse");
        assert!(back.utilisation > 0.8, "{protocol}: {}", back.utilisation);
        // The congested way back, shared with its feedback, costs the download little of its rate,
        // and never all.
        assert!(down.goodput_bps > 6e6, "{protocol}: {}", down.goodput_bps);
        assert!(up.goodput_bps > 0.3e6, "{protocol}: {}", up.goodput_bps);
        let rtt = down.rtt_mean_s.expect("it is measured");
        assert!(
            rtt > 0.04,
            "{protocol}: {rtt} s, so the way back has a queue"
        );
    }
}

#[test]
fn acknowledgements_that_wait_are_thinned() {
    let dropped = |thinning: &str| {
        let report = run(&both_ways("tcp-cubic", thinning));
        let back = link(&report, "bottleneck.reverse");
        let up = flow(&report, "up");
        // Data are never taken for acknowledgements.
        assert_eq!(up.drops.early, 0);
        (back.drops.early, flow(&report, "down").goodput_bps)
    };
    let (all, _) = dropped("");
    let (half, half_rate) = dropped(", ack_thinning = 2");
    let (most, most_rate) = dropped(", ack_thinning = \"newest\"");
    assert_eq!(all, 0);
    assert!(half > 1000 && most > 1000, "{half}, {most}");
    assert!(
        half_rate > 3e6 && most_rate > 3e6,
        "{half_rate}, {most_rate}"
    );
}

/// A cable modem: acknowledgements wait for the next grant, and the newest of them goes.
#[test]
fn acknowledgements_are_held_for_a_grant_and_thinned_there() {
    let modem = "reverse = { grants = { every = \"8 ms\" }, ack_thinning = \"newest\" }";
    let plain = run(&transfer("tcp-cubic", "", ""));
    let held = run(&transfer("tcp-cubic", modem, ""));
    let back = link(&held, "wire.reverse");
    // Of 830 acknowledgements a second 125 grants carry one each.
    assert!(back.drops.early > 5000, "{:?}", back.drops);
    let goodput = |report| flow(report, "transfer").goodput_bps;
    let share = goodput(&held) / goodput(&plain);
    assert!((0.8..1.2).contains(&share), "{share}");
}

#[test]
fn thinning_needs_a_discipline_with_one_line() {
    let back = ", ack_thinning = 4, queue = { discipline = \"drr\" }";
    let text = both_ways("auto", back).replace("queue = { limit = \"20 packets\" } ,", "");
    let document = Document::parse(&text, "test.toml").expect("TOML");
    let error = document.scenario().expect_err("refused");
    assert!(error.to_string().contains("thinned only"), "{error}");
    assert!(error.line.is_some());
}

/// A queue of RFC 9332 keeps what does not ask for low latency at its target, with no more loss than
/// a controller needs.
#[test]
fn pi_controllers_keep_the_delay_at_their_target() {
    for discipline in ["pie", "dual-pi2"] {
        let queue =
            format!("queue = {{ discipline = \"{discipline}\", limit = \"1000 packets\" }}");
        let text = transfer("tcp-cubic", "", "").replace("queue = { limit = \"1 bdp\" }", &queue);
        let text = text.replace(
            "duration = \"20 s\"",
            "duration = \"40 s\"\nwarmup = \"10 s\"",
        );
        let report = run(&text);
        let wire = link(&report, "wire");
        assert!(wire.drops.early > 0 && wire.drops.full == 0, "{discipline}");
        assert!(wire.utilisation > 0.9, "{discipline}: {}", wire.utilisation);
        let wait = wire.queue.sojourn_mean_s.expect("packets waited");
        assert!((0.003..0.02).contains(&wait), "{discipline}: {wait} s");
    }
}

/// The codepoint that the core asks for is the one that queues see.
#[test]
fn codepoints_of_the_core_reach_the_queues() {
    let text = transfer(
        "auto",
        "ecn_threshold = \"1 ms\"",
        "dfcp = { control = \"marked\" }",
    );
    let mut simulation = dfcp_sim::build(&scenario(&text)).expect("can be built");
    let (sender, receiver) = std::sync::mpsc::channel();
    simulation.observe(Box::new(move |event| {
        let _ = sender.send((event.end, event.packet.direction, event.packet.ecn));
    }));
    simulation.run_until(Instant::ZERO + Duration::from_secs(5));
    drop(simulation);
    let seen: Vec<_> = receiver.iter().collect();
    let count = |end, ecn| {
        let data = |packet: &&_| {
            let (at, way, codepoint) = packet;
            (*at, *way, *codepoint) == (end, dfcp_sim::engine::Direction::Forward, ecn)
        };
        seen.iter().filter(data).count()
    };
    use dfcp_sim::engine::End::{Received, Sent};
    assert!(count(Sent, Ecn::Ect0) > 1000);
    assert_eq!(count(Sent, Ecn::Ce), 0);
    assert!(count(Received, Ecn::Ce) > 10);
}
