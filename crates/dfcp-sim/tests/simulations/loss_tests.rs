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
