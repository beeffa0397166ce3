//! `auto` alone on bad paths: named ones, and others made at random of the same parts.

use std::fmt::Write as _;
use std::path::Path;

use dfcp_sim::Seed;
use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::Document;

/// Share of the path's limit that one transfer reaches.
fn share(document: &Document) -> f64 {
    let scenario = document.scenario().expect("valid");
    share_of(&dfcp_sim::run(&scenario).expect("can be built"))
}

/// The same of a report.
pub(crate) fn share_of(report: &RunReport) -> f64 {
    let flow = &report.flows[0];
    flow.goodput_bps / flow.limit_bps.expect("the path has a limit")
}

#[test]
fn what_varies_by_itself_does_not_stop_the_sender() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/bad-paths.toml");
    let text = std::fs::read_to_string(file).expect("in the repository");
    // Bursts of loss, jitter, packets that come late, a short queue, outages, a longer route, delay
    // that wanders beside 15 and 42 % of loss; with seeds on which nothing was tuned.
    for (path, least) in [
        ("burst12-20", 0.9),
        ("burst50", 0.88),
        ("jitter30-kept", 0.88),
        ("jitter30-free", 0.93),
        ("late20", 0.93),
        ("queue4", 0.93),
        ("outage50", 0.93),
        ("wifi-suspend", 0.93),
        // More in flight than half of the send buffer.
        ("geo-loss", 0.88),
        ("oneweb", 0.93),
        ("wifi-far", 0.7),
        ("cn-home", 0.75),
        ("cn-us", 0.75),
    ] {
        for seed in [101, 102] {
            let mut document = Document::parse(&text, "bad-paths.toml").expect("valid");
            document.choose(path).expect("a path of the file");
            document.set("run.seed", &seed.to_string()).expect("a seed");
            let share = share(&document);
            assert!(
                share > least,
                "{path}, seed {seed}: {share:.3} of the limit"
            );
        }
    }
}

#[test]
fn a_link_that_holds_packets_back_neither_ends_start_up_nor_is_flooded() {
    let seeds = 201..=236;
    let (mut shares, mut drops) = (Vec::new(), Vec::new());
    for seed in seeds.clone() {
        let report = run(
            "wifi-far",
            &[
                ("run.seed", &seed.to_string()),
                ("run.duration", "\"6 s\""),
                ("run.warmup", "\"1 s\""),
            ],
        );
        shares.push(share_of(&report));
        let link = report.links.iter().find(|link| link.name == "bottleneck");
        drops.push(link.expect("a dumbbell has a bottleneck").drops.full);
    }
    let runs = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / runs;
    // Halfway from what it was when such a link ended start-up, 0.21, to 0.59.
    assert!(
        mean > 0.4,
        "{mean:.2} of the limit in the first seconds on average, seeds {seeds:?}: {shares:.2?}"
    );
    drops.sort_unstable();
    let dropped = drops[drops.len() / 2];
    // A tenth of the packets that the path carries in this time. Single runs lose thousands, and the medians of
    // a dozen are 300 to 1100.
    assert!(
        dropped < 1500,
        "{dropped} packets dropped in the median, seeds {seeds:?}: {drops:?}"
    );
}

/// The report of a named path with other settings.
pub(crate) fn run(path: &str, settings: &[(&str, &str)]) -> RunReport {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/bad-paths.toml");
    let text = std::fs::read_to_string(file).expect("in the repository");
    let mut document = Document::parse(&text, "bad-paths.toml").expect("valid");
    document.choose(path).expect("a path of the file");
    for (key, value) in settings {
        document.set(key, value).expect(key);
    }
    dfcp_sim::run(&document.scenario().expect("valid")).expect("can be built")
}

#[test]
fn a_short_queue_costs_start_up_little() {
    // Ten seconds from the first packet on. With groups of 2 ms it had 0.82 of the limit, and 0.90 while what
    // a loss test had sent too fast was taken for what the path carries, and its loss for a new one.
    let (duration, warmup) = (("run.duration", "\"10 s\""), ("run.warmup", "\"0 s\""));
    for seed in ["103", "104"] {
        let share = share_of(&run("queue4", &[duration, warmup, ("run.seed", seed)]));
        assert!(share > 0.91, "seed {seed}: {share:.3} of the limit");
    }
}

/// A group of the usual length has more packets than the queue takes, and what it loses looks like what
/// the path loses by itself: the sender had 0.7 of the limit for as long as it lasted.
#[test]
fn groups_become_as_short_as_a_queue_beside_loss_has_room_for() {
    for (rate, rtt, queue, loss) in [
        ("300 Mbit/s", "3 ms", "15 packets", "0.05"),
        ("1 Gbit/s", "10 ms", "40 packets", "0.1"),
    ] {
        let report = run(
            "queue4",
            &[
                ("link.bottleneck.rate", rate),
                ("topology.rtt", rtt),
                ("link.bottleneck.queue.limit", queue),
                ("link.bottleneck.loss", loss),
                ("run.duration", "6 s"),
                ("run.warmup", "2 s"),
                ("run.seed", "503"),
            ],
        );
        let share = share_of(&report);
        assert!(share > 0.9, "{rate}, {rtt}, {queue}, {loss}: {share:.3}");
    }
}

/// The share of the limit of `auto` over a path that loses both ways.
fn share_with_way_back(path: [&str; 4], reverse: &str, seed: u64) -> f64 {
    share_of(&run_with_way_back(path, reverse, seed))
}

/// Nine seconds of `auto` over such a path.
fn run_with_way_back(path: [&str; 4], reverse: &str, seed: u64) -> RunReport {
    let [rate, rtt, queue, loss] = path;
    let text = format!(
        r#"
        schema = 1
        title = "few reports come back"
        [run]
        seed = {seed}
        duration = "9 s"
        warmup = "3 s"
        [topology]
        kind = "dumbbell"
        rtt = "{rtt}"
        [link.default]
        rate = "unlimited"
        [link.bottleneck]
        rate = "{rate}"
        queue = {{ limit = "{queue}" }}
        loss = {loss}
        reverse = {reverse}
        [[flow]]
        name = "transfer"
        protocol = "auto"
    "#
    );
    let document = Document::parse(&text, "reports.toml").expect("valid");
    dfcp_sim::run(&document.scenario().expect("valid")).expect("can be built")
}

#[test]
fn few_reports_leave_the_window_room() {
    // A window of one and a half round trips was used up long before the next report came: 0.1 to 0.3.
    let path = ["9.43 Mbit/s", "5.3 ms", "8 packets", "0.05"];
    for seed in [1, 31] {
        let share = share_with_way_back(path, "{ loss = 0.9 }", seed);
        assert!(
            share > 0.5,
            "nine reports in ten lost, seed {seed}: {share:.3}"
        );
    }
    // The receiver named what had arrived once, and a report that was lost made it lost: 0.23 to 0.84.
    let path = ["50.56 Mbit/s", "5.5 ms", "8 packets", "0.2"];
    let narrow = "{ rate = \"393 kbit/s\", queue = { limit = \"61 packets\" } }";
    for seed in [2, 32] {
        let share = share_with_way_back(path, narrow, seed);
        assert!(share > 0.75, "a narrow way back, seed {seed}: {share:.3}");
    }
}

/// Reports are rarer than a round trip there: a stretch of a loss test of that length was in none of them, no
/// test came to a verdict, and twice what the path carries was sent for ten seconds and more: 130,000
/// packets of 26 at a time.
#[test]
fn a_loss_test_sees_its_stretches_though_reports_are_few() {
    let path = ["172.74 Mbit/s", "6.4 ms", "26 packets", "0.0"];
    let narrow = "{ rate = \"442 kbit/s\", queue = { limit = \"20 packets\" } }";
    for seed in [3, 7] {
        let report = run_with_way_back(path, narrow, seed);
        let (share, dropped) = (share_of(&report), report.links[0].drop_rate);
        let said = format!("seed {seed}: {share:.3} of the limit, {dropped:.3} dropped");
        assert!(share > 0.8 && dropped < 0.1, "{said}");
    }
}

/// Reports of what a flood left of many ranges came twice a second there, one range in two bytes: 0.5 to 0.7.
/// Single runs have 0.66 to 0.88.
#[test]
fn reports_of_many_losses_do_not_become_rare() {
    let path = ["30.1 Mbit/s", "49.2 ms", "16 packets", "0.0"];
    let narrow = "{ rate = \"55 kbit/s\", queue = { limit = \"50 packets\" } }";
    let share = |seed| share_with_way_back(path, narrow, seed);
    let mean = (1..=8).map(share).sum::<f64>() / 8.0;
    assert!(mean > 0.73, "{mean:.3} on average, seeds 1 to 8");
}

#[test]
fn the_handshake_does_not_fill_a_narrow_way_back() {
    // Twelve answers of full size took eight seconds there, and the connection was given up.
    let path = ["1.24 Mbit/s", "248 ms", "11 packets", "0.0"];
    let narrow = "{ rate = \"16 kbit/s\", queue = { limit = \"20 packets\" } }";
    let share = share_with_way_back(path, narrow, 1);
    assert!(share > 0.7, "{share:.3}");
}

/// An overflow of a short queue is answered as CUBIC answers it, but no loss of the path while that queue is
/// empty: where bursts followed one another, this had a fifth of the limit for ten seconds.
#[test]
fn after_an_overflow_losses_without_a_queue_cut_no_window() {
    let text = r#"
        schema = 1
        title = "bursts on a long path with a short queue"
        [run]
        seed = 2
        duration = "16 s"
        warmup = "8 s"
        [topology]
        kind = "dumbbell"
        rtt = "62.6 ms"
        [link.default]
        rate = "unlimited"
        [link.bottleneck]
        rate = "469.22 Mbit/s"
        queue = { limit = "162 packets" }
        loss = { share = 0.0026, burst = 27.3 }
        reverse = { loss = 0.0 }
        [[flow]]
        name = "transfer"
        protocol = "auto"
    "#;
    let share = share(&Document::parse(text, "bursts.toml").expect("valid"));
    assert!(share > 0.7, "{share:.3} of the limit");
}

#[test]
fn nobody_is_given_way_to_where_the_path_leaves_no_window() {
    // 42 % lost at any rate: a delay that wanders is no queue that others fill, beside whom this sender was as
    // slow as a CUBIC window (0.81, 0.78 and 0.75 of the limit on the first three). Single runs differ by chance.
    let share = |seed: u64| share_of(&run("cn-us", &[("run.seed", &seed.to_string())]));
    let mean = (24..30).map(share).sum::<f64>() / 6.0;
    assert!(mean > 0.84, "{mean:.3} of the limit");
    // Neither where a test blamed the rate and saw as much lost at a lower one, nor by the overflow of a short
    // queue: 0.69 and 0.47 of the limit.
    for (path, seed, least) in [("cn-home", "68", 0.73), ("cn-us", "66", 0.65)] {
        let share = share_of(&run(path, &[("run.seed", seed)]));
        let said = format!("{path}, seed {seed}: {share:.3} of the limit");
        assert!(share > least, "{said}");
    }
}

#[test]
fn a_policer_that_refuses_bursts_is_sent_even_flights() {
    // The first flight left at the rate of the handshake's pair, and so did the next two, of which the bucket of
    // 25 kB passed a quarter: 0.52, 0.52 and 0.13 of the limit in the first ten seconds.
    let (duration, warmup) = (("run.duration", "\"10 s\""), ("run.warmup", "\"0 s\""));
    for seed in ["702", "703", "819"] {
        let share = share_of(&run("cn-home", &[duration, warmup, ("run.seed", seed)]));
        assert!(share > 0.55, "seed {seed}: {share:.3} of the limit");
    }
}

#[test]
fn what_a_policers_bucket_lets_pass_is_not_taken_for_the_bottleneck() {
    // Delay that wanders and 15 % of loss beside: a first train of 160 Mbit/s passed, of which the path
    // carries 25, and a test of that rate took ten seconds. Runs of a minute had 0.51 to 0.68 of the limit.
    for seed in ["56", "59", "60"] {
        let share = share_of(&run("cn-home", &[("run.seed", seed)]));
        assert!(share > 0.75, "seed {seed}: {share:.3} of the limit");
    }
}

#[test]
fn a_loss_test_without_a_verdict_does_not_end_the_transfer() {
    // 42 % lost, a policer, and a delay that wanders. On these seeds a test could not tell the two causes of
    // loss apart, and the loss of the path then took the rate down to nothing: 0.06, 0.01 and 0.02 of the limit.
    for seed in ["51", "71", "154"] {
        let share = share_of(&run("cn-us", &[("run.seed", seed)]));
        assert!(share > 0.4, "seed {seed}: {share:.3} of the limit");
    }
}

#[test]
fn much_loss_and_a_policer_do_not_keep_start_up_down() {
    let warmup = ("run.warmup", "\"0 s\"");
    // The window held the fast stretches of a loss test to the slow ones' rate: 0.17 of the limit.
    let duration = ("run.duration", "\"30 s\"");
    let share = share_of(&run("cn-us", &[duration, warmup, ("run.seed", "701")]));
    assert!(share > 0.5, "seed 701: {share:.3} of the limit");
    // A rate of a policer's full bucket left in bursts, and each round had a gap that hid its loss: 0.15.
    let duration = ("run.duration", "\"12 s\"");
    let share = share_of(&run("cn-us", &[duration, warmup, ("run.seed", "713")]));
    assert!(share > 0.3, "seed 713: {share:.3} of the limit");
}

#[test]
fn reports_that_are_lost_do_not_take_the_rate_down() {
    // Reports are lost as data are, and gaps between those that arrive passed for outages in loss tests: without the
    // packets lost in them a low rate seemed to heal what the path loses. 0.31, 0.65 and 0.64 of the limit; 0.54 on the
    // second while what a verdict took for congestion was not given back by the next one.
    let (duration, warmup) = (("run.duration", "\"30 s\""), ("run.warmup", "\"0 s\""));
    let share = |seed| share_of(&run("cn-us", &[duration, warmup, ("run.seed", seed)]));
    let mean = ["2", "6", "13"].map(share).iter().sum::<f64>() / 3.0;
    assert!(mean > 0.66, "{mean:.3} of the limit");
}

#[test]
fn what_the_path_loses_itself_is_not_taken_from_the_estimate() {
    // While no test had said what the path loses, what arrived passed for all that it carries. The test called
    // the loss the path's own, and the rate stayed as low as it had gone meanwhile: 0.42 of the limit.
    let (duration, warmup) = (("run.duration", "\"12 s\""), ("run.warmup", "\"0 s\""));
    let share = share_of(&run("cn-us", &[duration, warmup, ("run.seed", "1009")]));
    // With a common look in these twelve seconds; 0.5 without.
    assert!(share > 0.48, "seed 1009: {share:.3} of the limit");
}

#[test]
fn start_up_ends_though_the_receivers_credit_limits_the_sender() {
    // Round trips and queues of 8 to 35 MB, and a window of the receiver of 32 MiB.
    for (rate, rtt) in [("300 Mbit/s", "600 ms"), ("350 Mbit/s", "400 ms")] {
        let (rate, rtt) = (format!("\"{rate}\""), format!("\"{rtt}\""));
        let report = run(
            "geo",
            &[
                ("run.duration", "\"20 s\""),
                ("link.bottleneck.rate", &rate),
                ("topology.rtt", &rtt),
            ],
        );
        let link = report.links.iter().find(|link| link.name == "bottleneck");
        let link = link.expect("a dumbbell has a bottleneck");
        let queue = link.queue.sojourn_mean_s.expect("packets passed");
        assert!(queue < 0.03, "{rate}, {rtt}: {queue:.3} s of queue");
    }
}

#[test]
fn a_policer_is_not_flooded_once_its_bucket_is_empty() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/bad-paths.toml");
    let text = std::fs::read_to_string(file).expect("in the repository");
    // Start-up runs on the bucket, at two to a hundred times the rate that lasts. Mbit/s, kB, ms, and
    // what the path loses beside.
    for (rate, bucket, rtt, loss) in [
        (1, 500, 20, 0.0),
        (1, 100, 40, 0.0),
        (2, 500, 40, 0.0),
        (3, 300, 300, 0.0),
        (4, 2000, 30, 0.2),
        (5, 3000, 40, 0.0),
        (7, 5000, 200, 0.0),
        (10, 1000, 40, 0.0),
        (10, 1000, 40, 0.1),
        (10, 1000, 40, 0.4),
        (20, 250, 40, 0.0),
        (80, 5000, 100, 0.05),
    ] {
        let mut document = Document::parse(&text, "bad-paths.toml").expect("valid");
        document.choose("police-big").expect("a path of the file");
        let policer = format!(r#"{{ rate = "{rate} Mbit/s", burst = "{bucket} kB" }}"#);
        let seed = rate + bucket + rtt;
        for (key, value) in [
            ("link.bottleneck.policer", policer),
            ("topology.rtt", format!("\"{rtt} ms\"")),
            ("link.bottleneck.loss", loss.to_string()),
            ("run.seed", seed.to_string()),
        ] {
            document.set(key, &value).expect(key);
        }
        let report = dfcp_sim::run(&document.scenario().expect("valid")).expect("can be built");
        let flow = &report.flows[0];
        let wire = flow.bytes_sent as f64 * (1.0 - loss) / flow.bytes as f64;
        let share = flow.goodput_bps / flow.limit_bps.expect("the path has a limit");
        let path = format!("{rate} Mbit/s, {bucket} kB, {rtt} ms, {loss} lost, seed {seed}");
        let said = format!("{path}: {share:.2} of the limit, {wire:.2} of the least sent");
        assert!(share > 0.85 && wire < 1.7, "{said}");
    }
}

#[test]
fn a_link_that_nearly_stands_still_is_not_flooded() {
    // A cellular link that fades, from 2 Mbit/s to three packets a second and back, with a queue for
    // three seconds of the one and three minutes of the other.
    let text = r#"
schema = 1
[run]
duration = "60 s"
[topology]
kind = "dumbbell"
rtt = "120 ms"
[link.default]
rate = "unlimited"
[link.bottleneck]
rate = "2 Mbit/s"
queue = { limit = "760 kB" }
reverse = { rate = "1 Mbit/s" }
[[change]]
at = "10 s"
link = "bottleneck"
direction = "forward"
rate = "36 kbit/s"
[[change]]
at = "40 s"
link = "bottleneck"
direction = "forward"
rate = "2 Mbit/s"
[[flow]]
name = "transfer"
protocol = "auto"
"#;
    for seed in [1, 2, 3] {
        let mut document = Document::parse(text, "fade.toml").expect("valid");
        document.set("run.seed", &seed.to_string()).expect("a seed");
        let report = dfcp_sim::run(&document.scenario().expect("valid")).expect("can be built");
        let link = &report.links[0];
        // What a window at 2 Mbit/s may hold: one and a half of the round trip, 250 ms that count
        // beyond it and the target, and as much again for probes while nothing is heard.
        let most = 2.0 * 1.5 * 0.4 * 2e6 / 8.0 / 1500.0;
        let (queue, dropped) = (link.queue.max_packets as f64, link.drops.full);
        assert!(
            queue < most && dropped == 0,
            "seed {seed}: {queue} packets of {most:.0} waited, {dropped} dropped"
        );
        let share = share(&document);
        assert!(share > 0.8, "seed {seed}: {share:.3} of the limit");
    }
}

#[test]
fn a_sender_that_its_buffer_limits_does_not_flood() {
    // Jitter hides the queue of 20 ms, so start-up ends at twice the rate, at which 32 MiB in flight
    // and not the rate is the limit.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/bad-paths.toml");
    let text = std::fs::read_to_string(file).expect("in the repository");
    for seed in [103, 104] {
        let mut document = Document::parse(&text, "bad-paths.toml").expect("valid");
        document.choose("spray").expect("a path of the file");
        for (key, value) in [
            ("run.seed", seed.to_string()),
            ("run.warmup", "\"2 s\"".to_string()),
            ("run.duration", "\"6 s\"".to_string()),
        ] {
            document.set(key, &value).expect(key);
        }
        let report = dfcp_sim::run(&document.scenario().expect("valid")).expect("can be built");
        let lost = report.links[0].drop_rate;
        assert!(lost < 0.1, "seed {seed}: {lost:.3} dropped");
    }
}

/// What an outage takes in one stretch of a loss test its neighbour keeps: a queue of four packets that overflowed
/// looked like the path's own loss, and was flooded with three times of what it carries.
#[test]
fn an_outage_in_a_loss_test_does_not_hide_that_the_queue_overflows() {
    let settings = [
        ("link.bottleneck.rate", "5.8 Mbit/s"),
        ("topology.rtt", "26.5 ms"),
        ("link.bottleneck.queue.limit", "4 packets"),
        ("link.bottleneck.outage.every", "744 ms"),
        ("link.bottleneck.outage.length", "205 ms"),
        ("run.duration", "15 s"),
    ];
    let mut dropped = 0.0;
    for seed in ["301", "302", "303", "304"] {
        let report = run("outage50", &[&settings[..], &[("run.seed", seed)]].concat());
        let share = share_of(&report);
        assert!(share > 0.8, "seed {seed}: {share:.3} of the limit");
        dropped += report.links[0].drop_rate / 4.0;
    }
    // Outages take 0.28.
    assert!(dropped < 0.38, "{dropped:.3} of all packets dropped");
}

/// Where delay varies by itself, probes find the rate: what a queue refused of one passed for carried, and the next
/// one asked for twice of that.
#[test]
fn what_a_probe_lost_does_not_pass_for_carried() {
    let path = ["38.2 Mbit/s", "231.5 ms", "132 packets", "0.2"];
    let reverse = "{ rate = \"111 kbit/s\", queue = { limit = \"5 packets\" } }";
    let (mut share, mut dropped) = (0.0, 0.0);
    for seed in 1..=8 {
        let report = run_with_way_back(path, reverse, seed);
        share += share_of(&report) / 8.0;
        dropped += report.links[0].drop_rate / 8.0;
    }
    // The path itself loses 0.2. It was 0.32, and 0.85 of the limit.
    let said = format!("{share:.3} of the limit, {dropped:.3} of all packets dropped");
    assert!(share > 0.87 && dropped < 0.28, "{said}");
}

/// Wi-Fi that holds packets back in each round trip of a long path: with an outage in each, the rate never grew by
/// more than two hundredths a round trip once start-up had ended too early.
#[test]
fn outages_in_each_round_trip_do_not_keep_the_rate_from_growing() {
    let mut shares = Vec::new();
    for seed in 1..=6 {
        let report = run(
            "wifi-good",
            &[
                ("link.bottleneck.rate", "97 Mbit/s"),
                ("topology.rtt", "157 ms"),
                ("link.bottleneck.queue.limit", "213 packets"),
                ("link.bottleneck.jitter.wifi", "2.9 ms"),
                ("run.duration", "20 s"),
                ("run.seed", &seed.to_string()),
            ],
        );
        shares.push(share_of(&report));
    }
    let mean = shares.iter().sum::<f64>() / 6.0;
    // 0.74 before, and 0.13 the least.
    assert!(
        mean > 0.8,
        "{mean:.2} of the limit on average: {shares:.2?}"
    );
}

/// A path of random parts: rate, round trip, queue, and one to three of loss in bursts, jitter and
/// outages.
///
/// Returns it with the share of its limit that is asked for: less where bursts of loss are longer than
/// half of what is in flight, which what is sent unanswered has to end (docs/spec/auto.md).
fn random_path(seed: u64) -> (String, f64) {
    let mut random = Seed(seed).stream("path");
    let mut pick = |from: f64, to: f64| from * (to / from).powf(random.next_f64());
    let (rate, rtt) = (pick(1.0, 200.0), pick(5.0, 300.0));
    // In packets of 1500 bytes, of products of rate and round trip.
    let queue = (pick(0.25, 4.0) * rate * rtt / 12.0).max(4.0);
    let mut text = format!(
        r#"
schema = 1
[run]
duration = "{} s"
warmup = "{} s"
sample = "off"
seed = {seed}
[topology]
kind = "dumbbell"
rtt = "{rtt:.1} ms"
[link.default]
rate = "unlimited"
[link.bottleneck]
rate = "{rate:.2} Mbit/s"
queue = {{ limit = "{queue:.0} packets" }}
"#,
        30.0 + 0.06 * rtt,
        // Thirty round trips, and no less than five seconds.
        (0.03 * rtt).max(5.0)
    );
    let mut least = 0.8;
    let parts = pick(1.0, 8.0) as u32;
    if parts & 1 != 0 {
        let (share, burst) = (pick(0.002, 0.3), pick(1.0, 30.0));
        writeln!(text, "loss = {{ share = {share:.4}, burst = {burst:.1} }}").unwrap();
        if burst > rate * rtt / 12.0 / 2.0 {
            least = 0.35;
        }
        writeln!(text, "reverse = {{ loss = 0.0 }}").unwrap();
    }
    if parts & 2 != 0 {
        let order = if pick(1.0, 4.0) < 2.0 { "kept" } else { "free" };
        writeln!(text, "jitter = \"{:.1} ms\"", pick(0.02, 0.5) * rtt).unwrap();
        writeln!(text, "jitter_order = \"{order}\"").unwrap();
    }
    if parts & 4 != 0 {
        let (every, length) = (pick(500.0, 5000.0), pick(10.0, 100.0));
        writeln!(
            text,
            "outage = {{ every = \"{every:.0} ms\", length = \"{length:.0} ms\", start = \"1 s\" }}"
        )
        .unwrap();
    }
    text.push_str("[[flow]]\nname = \"transfer\"\nprotocol = \"auto\"\n");
    (text, least)
}

#[test]
fn random_paths_are_used_within_thirty_round_trips() {
    // The last four, with bursts longer than a window, once stopped for seconds at a time.
    for seed in (1..=30).chain([102, 110, 226, 291]) {
        let (text, least) = random_path(seed);
        let share_in = |run: u64| {
            let mut document = Document::parse(&text, "random.toml").expect("valid");
            let seed = seed + 1000 * run;
            document.set("run.seed", &seed.to_string()).expect("a seed");
            share(&document)
        };
        // Where a burst swallows all that is in flight, or jitter hides the rate for some cycles of probes,
        // one of them more or less decides a run: then the median of five counts.
        let first = share_in(0);
        if first > least {
            continue;
        }
        let mut shares: Vec<f64> = (1..5).map(share_in).chain([first]).collect();
        shares.sort_by(f64::total_cmp);
        assert!(
            shares[2] > least,
            "seed {seed}: {shares:.3?} of the limit of\n{text}"
        );
    }
}
