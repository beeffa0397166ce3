//! The test of `auto` that tells the path's loss from that of its own rate, on paths where it went wrong.

use crate::bad_paths::{run, share_of};

/// A quarter lost in bursts of 72 packets, beside round trips of 107: tests began with what a burst had left, some with
/// a fiftieth of what the path carries, and took seconds at that.
#[test]
fn bursts_as_long_as_a_round_trip_do_not_keep_a_loss_test_slow() {
    for seed in ["1", "2", "3", "4"] {
        let report = run(
            "burst50",
            &[
                ("link.bottleneck.rate", "126.4 Mbit/s"),
                ("topology.rtt", "10.1 ms"),
                ("link.bottleneck.queue.limit", "83 packets"),
                ("link.bottleneck.loss", "{ share = 0.257, burst = 72 }"),
                ("run.duration", "20 s"),
                ("run.seed", seed),
            ],
        );
        let share = share_of(&report);
        // 0.71, 0.61, 0.27 and 0.78 before.
        assert!(share > 0.8, "seed {seed}: {share:.3} of the limit");
    }
}

/// A quarter of the packets 40 ms late beside random loss, far from full: what was late at the end of a fast stretch
/// counted as lost, what was late at the end of a slow one did not, and seven loss tests in a row blamed the rate.
#[test]
fn late_packets_do_not_make_a_loss_test_blame_the_rate() {
    for seed in ["1", "2", "4"] {
        let report = run(
            "late20",
            &[
                ("link.bottleneck.rate", "225 Mbit/s"),
                ("topology.rtt", "180 ms"),
                ("link.bottleneck.queue.limit", "4360 packets"),
                ("link.bottleneck.jitter.late", "40 ms"),
                ("link.bottleneck.jitter.share", "0.25"),
                ("link.bottleneck.loss", "0.05"),
                ("run.duration", "20 s"),
                ("run.seed", seed),
            ],
        );
        let share = share_of(&report);
        assert!(share > 0.9, "seed {seed}: {share:.3} of the limit");
    }
}

/// The queue that 95 of 100 packets find shorter in the first eight seconds over a path of 100 Mbit/s, milliseconds.
fn own_queue(rtt: &str, loss: &str, seed: &str) -> f64 {
    let report = run(
        "burst5",
        &[
            ("link.bottleneck.rate", "100 Mbit/s"),
            ("topology.rtt", rtt),
            ("link.bottleneck.queue.limit", "1 bdp"),
            ("link.bottleneck.loss", loss),
            ("run.duration", "8 s"),
            ("run.warmup", "0 s"),
            ("run.seed", seed),
        ],
    );
    let share = share_of(&report);
    assert!(share > 0.5, "{rtt}, {loss} lost: {share:.3} of the limit");
    let queue = report.links[0].queue.sojourn_p95_s.expect("packets passed");
    queue * 1e3
}

/// A test leaves an empty queue behind, and what it left was heard of for a round trip: probes took it for room, and
/// doubled meanwhile.
#[test]
fn the_queue_that_a_loss_test_emptied_is_not_filled_by_probes() {
    for (rtt, loss) in [("80 ms", "0.1"), ("200 ms", "0.1")] {
        for seed in ["1", "2"] {
            let queue = own_queue(rtt, loss, seed);
            assert!(
                queue < 15.0,
                "{rtt}, {loss} lost, seed {seed}: {queue:.1} ms"
            );
        }
    }
}

/// The second flight leaves when the first is heard of: meanwhile the queue of the first ended. That passed for jitter,
/// and the first probe asked for twice the rate there.
#[test]
fn a_queue_that_ends_between_two_flights_is_no_jitter() {
    for (rtt, loss) in [("500 ms", "0.0"), ("500 ms", "0.02")] {
        for seed in ["1", "2"] {
            let queue = own_queue(rtt, loss, seed);
            assert!(
                queue < 20.0,
                "{rtt}, {loss} lost, seed {seed}: {queue:.1} ms"
            );
        }
    }
}

/// A bucket of a megabyte fills while a loss test sends less: the loss was gone, the rate doubled into the bucket, and
/// what was sent beyond it was lost, over and over: 4 % in all.
#[test]
fn a_policer_that_refused_a_rate_is_seldom_asked_for_it_again() {
    for (path, most) in [("police-big", 0.02), ("police-small", 0.015)] {
        let mut lost = 0.0;
        for seed in ["1", "2", "3", "4"] {
            let report = run(path, &[("run.seed", seed)]);
            let (flow, share) = (&report.flows[0], share_of(&report));
            lost += flow.drops.total() as f64 / flow.packets_sent as f64 / 4.0;
            assert!(share > 0.9, "{path}, seed {seed}: {share:.3} of the limit");
        }
        // 0.046 and 0.026 before.
        assert!(lost < most, "{path}: {lost:.4} lost");
    }
}

/// A delay that wanders passes for others' queue there, and each loss of the path's own, 15 %, cut the window that
/// was kept beside them: to a twelfth in three seconds. Then the scatter of a flood long past hid that the
/// loss was excessive, a test at what was left took ten seconds, and the rate came back by its own growth.
#[test]
fn what_a_window_lost_by_the_paths_own_loss_comes_back() {
    for seed in ["603", "607", "616"] {
        let share = share_of(&run("cn-home", &[("run.seed", seed)]));
        // 0.34, 0.34 and 0.36 before.
        assert!(share > 0.55, "seed {seed}: {share:.3} of the limit");
    }
}

/// A delay that wanders looks like the queue of others. Where much is lost a drain shows first that it is lost at any
/// rate, so that nobody can keep a queue there: the window of one that competes had 0.18 and 0.68 of the limit. And
/// what a loss test sent that such a queue ended passed for what the path carries: 0.24.
#[test]
fn a_delay_that_wanders_beside_much_loss_is_no_queue_of_others() {
    for (path, seed, least) in [
        ("cn-us", "7235", 0.6),
        ("cn-home", "7214", 0.75),
        ("cn-us", "7223", 0.4),
    ] {
        let first = [("run.duration", "25 s"), ("run.warmup", "1 s")];
        let report = run(path, &[first[0], first[1], ("run.seed", seed)]);
        let share = share_of(&report);
        assert!(
            share > least,
            "{path}, seed {seed}: {share:.3} of the limit"
        );
    }
}
