//! Who gets what where nothing but the senders sees to fairness: one first-in first-out queue.

use dfcp_sim::report::RunReport;
use dfcp_sim::scenario::Document;
use std::ops::Range;

/// A dumbbell of 100 Mbit/s with flows of one sender each, and a queue of so many packets; the
/// round trips are the pairs', in turn.
fn run(round_trips: &str, queue: u32, seed: u64, flows: &[(&str, &str, u32)]) -> RunReport {
    run_at("100 Mbit/s", round_trips, queue, seed, flows)
}

/// The same at another rate. The clocks of `auto`'s senders are up to a tenth of a second apart, as NTP keeps them.
fn run_at(
    rate: &str,
    round_trips: &str,
    queue: u32,
    seed: u64,
    flows: &[(&str, &str, u32)],
) -> RunReport {
    let flows: Vec<_> = flows
        .iter()
        .map(|&(name, protocol, start)| (name, protocol, 1000 * start))
        .collect();
    run_from(rate, round_trips, queue, seed, &flows)
}

/// The same with starts in milliseconds.
fn run_from(
    rate: &str,
    round_trips: &str,
    queue: u32,
    seed: u64,
    flows: &[(&str, &str, u32)],
) -> RunReport {
    run_document(&scenario(rate, round_trips, queue, seed, flows))
}

fn run_document(document: &Document) -> RunReport {
    let scenario = document.scenario().expect("valid");
    dfcp_sim::run(&scenario).expect("can be built")
}

fn scenario(
    rate: &str,
    round_trips: &str,
    queue: u32,
    seed: u64,
    flows: &[(&str, &str, u32)],
) -> Document {
    let mut text = format!(
        r#"
schema = 1
[run]
duration = "50 s"
warmup = "20 s"
sample = "off"
seed = {seed}
[topology]
kind = "dumbbell"
pairs = {}
rtt = {round_trips}
[link.default]
rate = "1 Gbit/s"
[link.bottleneck]
rate = "{rate}"
queue = {{ limit = "{queue} packets" }}
"#,
        flows.len()
    );
    for (index, (name, protocol, start)) in flows.iter().enumerate() {
        text += &format!(
            r#"
[[flow]]
name = "{name}"
protocol = "{protocol}"
start = "{start} ms"
"#
        );
        if *protocol == "auto" {
            let ahead = index * 37 % 100;
            text += &format!("sender_clock = {{ offset = \"{ahead} ms\" }}\n");
        }
    }
    Document::parse(&text, "sharing.toml").expect("valid")
}

/// Goodputs in Mbit/s, and what the bottleneck was used.
fn goodputs(report: &RunReport) -> (Vec<f64>, f64) {
    let flows = report.flows.iter().map(|f| f.goodput_bps / 1e6).collect();
    (flows, report.summary.utilisation)
}

#[test]
fn beside_cubic_both_get_a_good_part_of_the_link() {
    // A third of the round trip's packets, all of them, and three times as many.
    for queue in [125, 416, 1250] {
        for (starts, seed) in [([0, 0], 1), ([0, 5], 2), ([5, 0], 3)] {
            let flows = [
                ("auto", "auto", starts[0]),
                ("cubic", "tcp-cubic", starts[1]),
            ];
            let report = run("\"50 ms\"", queue, seed, &flows);
            let (got, used) = goodputs(&report);
            let at = format!("queue {queue}, starts {starts:?}, seed {seed}: {got:.1?}");
            assert!(got[0] > 15.0 && got[1] > 25.0, "{at}");
            assert!(used > 0.98, "{at}: {used}");
        }
    }
}

/// While others keep a queue nobody sees it empty. Who forgot what the path's delay is had 7 to 35 % there, as it took
/// their queue for the path.
#[test]
fn in_a_long_queue_that_never_empties_a_share_is_kept() {
    for (rate, queue) in [("10 Mbit/s", 250), ("100 Mbit/s", 2500)] {
        for (other, least) in [("tcp-cubic", 0.25), ("tcp-bbr", 0.36)] {
            for seed in [8101, 8102] {
                let flows = [("auto", "auto", 0), ("other", other, 0)];
                let report = run_at(rate, "\"100 ms\"", queue, seed, &flows);
                let (got, used) = goodputs(&report);
                let at = format!("{rate}, {queue} packets, seed {seed}, {other}: {got:.1?}");
                let share = got[0] / (got[0] + got[1]);
                assert!(share > least && share < 0.7, "{at}");
                assert!(used > 0.98, "{at}: {used}");
            }
        }
    }
}

/// A CUBIC flow ends as the route becomes longer by twice the round trip: that is no queue of others.
#[test]
fn a_route_that_becomes_longer_as_others_leave_is_used() {
    let change = (
        "change",
        r#"[{ at = "15 s", link = "bottleneck", delay = "75 ms" }]"#,
    );
    let flows = [("auto", "auto", 0), ("other", "tcp-cubic", 0)];
    for seed in 1..=3 {
        let mut document = scenario("100 Mbit/s", "\"50 ms\"", 1250, seed, &flows);
        for (key, value) in [change, ("flow.1.stop", "15 s"), ("run.warmup", "33 s")] {
            document.set(key, value).expect(key);
        }
        let (got, _) = goodputs(&run_document(&document));
        assert!(got[0] > 93.0, "seed {seed}: {got:.1?}");
    }
}

#[test]
fn a_latecomer_gets_its_share_and_the_queue_stays_short() {
    for seed in [1, 2] {
        let flows = [("early", "auto", 0), ("late", "auto", 8)];
        let report = run("\"50 ms\"", 416, seed, &flows);
        assert!(
            report.summary.jain > Some(0.95),
            "seed {seed}: {:?}",
            goodputs(&report)
        );
        for flow in &report.flows {
            let rtt = flow.rtt_mean_s.unwrap_or(1.0);
            assert!(rtt < 0.065, "seed {seed}: round trips of {rtt} s");
        }
    }
}

/// Both flood the queue at first. What it holds is what it held then, not what stands in it when the last of those
/// losses are heard of.
#[test]
fn two_that_begin_together_come_to_equal_shares() {
    for seed in 1..=5 {
        let flows = [("one", "auto", 0), ("other", "auto", 500)];
        let report = run_from("40 Mbit/s", "\"90 ms\"", 150, seed, &flows);
        let (got, used) = goodputs(&report);
        let at = format!("seed {seed}: {got:.1?}");
        assert!(got.iter().all(|&rate| rate > 0.8 * 19.0), "{at}");
        assert!(used > 0.98, "{at}: {used}");
    }
}

#[test]
fn a_long_round_trip_costs_no_share() {
    let flows = [("near", "auto", 0), ("far", "auto", 0)];
    let report = run(r#"["20 ms", "100 ms"]"#, 833, 1, &flows);
    assert!(report.summary.jain > Some(0.8), "{:?}", goodputs(&report));
}

#[test]
fn a_short_queue_is_filled_without_losing_much() {
    // 1.2 ms.
    let report = run("\"50 ms\"", 10, 1, &[("auto", "auto", 0)]);
    let (got, _) = goodputs(&report);
    assert!(got[0] > 92.0, "{got:?}");
    // One packet in a hundred, and chance.
    assert!(report.flows[0].loss < 0.015, "{}", report.flows[0].loss);
}

#[test]
fn beside_cubic_short_queues_are_shared_too() {
    // A third of the round trip's packets, and at 10 Mbit/s and 10 ms all of them: 2.5 to 16 ms. These
    // left a CUBIC flow 3 to 13 % when overflows were answered by no more than half a queue.
    for (rate, round_trip, queue) in [
        ("10 Mbit/s", "\"50 ms\"", 13),
        ("10 Mbit/s", "\"10 ms\"", 8),
        ("100 Mbit/s", "\"10 ms\"", 25),
    ] {
        let flows = [("auto", "auto", 0), ("cubic", "tcp-cubic", 0)];
        let mut shares: Vec<f64> = (11..=15)
            .map(|seed| {
                let report = run_at(rate, round_trip, queue, seed, &flows);
                let (got, _) = goodputs(&report);
                got[1] / (got[0] + got[1])
            })
            .collect();
        shares.sort_by(f64::total_cmp);
        let at = format!("{rate}, {round_trip}, {queue} packets: {shares:.2?} (seeds 11 to 15)");
        assert!(shares[2] > 0.2 && shares[2] < 0.7, "{at}");
    }
}

/// What as many of `auto` lose of what they send with these seeds, in order.
fn lost_by(
    senders: usize,
    (rate, round_trip, packets): (&str, &str, u32),
    seeds: Range<u64>,
) -> Vec<f64> {
    let names = [
        "one", "two", "three", "four", "five", "six", "seven", "eight",
    ];
    let flows: Vec<_> = names[..senders].iter().map(|n| (*n, "auto", 0)).collect();
    lost_by_flows(&flows, (rate, round_trip, packets), seeds)
}

/// What these flows lose on average with these seeds, in order.
fn lost_by_flows(
    flows: &[(&str, &str, u32)],
    (rate, round_trip, packets): (&str, &str, u32),
    seeds: Range<u64>,
) -> Vec<f64> {
    let loss = &|seed| {
        let report = run_at(rate, &format!("\"{round_trip}\""), packets, seed, flows);
        report.flows.iter().map(|f| f.loss).sum::<f64>() / flows.len() as f64
    };
    // Side by side, or the longest of these tests would be left alone at the end, on one core.
    let mut lost: Vec<f64> = std::thread::scope(|scope| {
        let runs: Vec<_> = seeds.map(|seed| scope.spawn(move || loss(seed))).collect();
        runs.into_iter()
            .map(|run| run.join().expect("a run"))
            .collect()
    });
    lost.sort_by(f64::total_cmp);
    lost
}

#[test]
fn two_at_a_queue_of_few_packets_do_not_flood_it() {
    // Each saw the other's loss in its own tests and took it for the path's: at two packets of 10 Mbit/s half was
    // lost, and while their tests changed pace in turns, 0.41 and 0.66 on the faster paths.
    for (rate, round_trip, packets, most) in [
        ("10 Mbit/s", "10 ms", 3, 0.25),
        ("10 Mbit/s", "10 ms", 2, 0.4),
        ("50 Mbit/s", "40 ms", 3, 0.25),
        ("200 Mbit/s", "30 ms", 2, 0.25),
    ] {
        let lost = lost_by(2, (rate, round_trip, packets), 21..30);
        let said = format!("{rate}, {packets} packets: lost {lost:.3?} (seeds 21 to 29)");
        assert!(lost[4] < most, "{said}");
    }
}

#[test]
fn four_at_a_queue_shorter_than_their_targets_do_not_flood_it() {
    // None of them healed enough by a fifth less for its test to show it: they lost 0.85 and 0.79 of what they sent
    // (seeds 41 to 46).
    for (rate, round_trip, packets) in [("50 Mbit/s", "40 ms", 32), ("100 Mbit/s", "50 ms", 40)] {
        let lost = lost_by(4, (rate, round_trip, packets), 41..50);
        let said = format!("{rate}, {packets} packets: lost {lost:.3?} (seeds 41 to 49)");
        assert!(lost[4] < 0.1, "{said}");
    }
}

#[test]
fn eight_at_a_queue_shorter_than_their_targets_do_not_flood_it() {
    // No test of one of so many shows that less heals what they lose: six lost 0.69 and 0.79, eight 0.75. They drain the
    // queue together, and see what is lost then.
    for (senders, rate, round_trip, packets) in [
        (6, "50 Mbit/s", "40 ms", 32),
        (6, "200 Mbit/s", "30 ms", 100),
        (8, "50 Mbit/s", "40 ms", 64),
    ] {
        let lost = lost_by(senders, (rate, round_trip, packets), 61..64);
        let said =
            format!("{senders}, {rate}, {packets} packets: lost {lost:.3?} (seeds 61 to 63)");
        assert!(lost[1] < 0.1, "{said}");
    }
}

#[test]
fn those_whose_first_flights_fill_a_queue_know_from_the_handshake_that_it_is_one() {
    // They had never seen it empty and took the full queue's delay for the path's: none of them had anything to drain,
    // and they lost 0.39 and 0.85 of what they sent on average.
    for (senders, rate, round_trip, packets) in
        [(7, "40 Mbit/s", "25 ms", 20), (8, "80 Mbit/s", "25 ms", 40)]
    {
        let lost = lost_by(senders, (rate, round_trip, packets), 111..116);
        let said =
            format!("{senders}, {rate}, {packets} packets: lost {lost:.3?} (seeds 111 to 115)");
        assert!(lost.iter().sum::<f64>() < 5.0 * 0.15, "{said}");
    }
}

#[test]
fn those_who_come_to_a_full_queue_look_at_it_at_the_same_moment_as_others() {
    // Each newcomer took the full queue's delay for the path's and had nothing to drain, and the drains of those before
    // it emptied nothing: 0.79 and 0.83 of what they sent was lost.
    let names = [
        "one", "two", "three", "four", "five", "six", "seven", "eight",
    ];
    for (senders, apart, path) in [
        (8, 2, ("100 Mbit/s", "60 ms", 60)),
        (7, 1, ("45 Mbit/s", "50 ms", 25)),
    ] {
        let flows: Vec<_> = (0..senders)
            .map(|i| (names[i], "auto", i as u32 * apart))
            .collect();
        let lost = lost_by_flows(&flows, path, 151..154);
        let said =
            format!("{senders}, {apart} s apart, {path:?}: lost {lost:.3?} (seeds 151 to 153)");
        assert!(lost.iter().sum::<f64>() < 3.0 * 0.2, "{said}");
    }
}

#[test]
fn what_a_look_of_all_has_healed_does_not_come_back_with_their_tests() {
    // In the five seconds to the next look each one's loss test took the others' loss for the path's and sent more for
    // it: 0.33, 0.71 and 0.80 of what they sent was lost.
    let lost = lost_by(6, ("400 Mbit/s", "25 ms", 60), 231..234);
    let said = format!("lost {lost:.3?} (seeds 231 to 233)");
    assert!(lost.iter().sum::<f64>() < 3.0 * 0.25, "{said}");
}

#[test]
fn who_asks_for_a_drain_does_not_take_what_others_make_it_lose_for_the_paths() {
    // One alone drained the queue that stood, while the others went on: half of these runs lost 0.17 to 0.53. Most lose
    // next to nothing now; two still flood it for other reasons, 0.26 and 0.77.
    let lost = lost_by(8, ("500 Mbit/s", "20 ms", 100), 7404..7410);
    let said = format!("lost {lost:.3?} (seeds 7404 to 7409)");
    assert!(lost[3] < 0.1, "{said}");
}
