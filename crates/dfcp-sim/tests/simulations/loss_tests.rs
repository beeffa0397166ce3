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
