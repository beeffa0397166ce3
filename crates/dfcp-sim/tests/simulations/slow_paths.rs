//! `auto` alone on paths where a packet takes as long as a round trip elsewhere.

use crate::bad_paths::share_of;
use dfcp_sim::scenario::Document;

/// kbit/s, round trip in ms, packets that the queue holds, share lost.
fn path((rate, rtt, queue, loss): (u32, u32, u32, f64), seed: u64) -> Document {
    let text = format!(
        r#"
schema = 1
[run]
duration = "240 s"
warmup = "100 s"
seed = {seed}
[topology]
kind = "dumbbell"
pairs = 1
rtt = "{rtt} ms"
[link.default]
rate = "1 Gbit/s"
[link.bottleneck]
rate = "{rate} kbit/s"
loss = {loss}
queue = {{ limit = "{queue} packets" }}
[[flow]]
name = "transfer"
protocol = "auto"
"#
    );
    Document::parse(&text, "slow.toml").expect("valid")
}

#[test]
fn a_slow_link_has_a_queue_of_a_few_packets() {
    // With drains of a second at most, and two packets in a quarter of a second at least, all of the first two stood
    // full, 3.8 and 5.4 s, and lost up to 13 % more than the path.
    for settings in [
        (64, 20, 20, 0.0),
        (64, 100, 50, 0.05),
        (64, 600, 50, 0.0),
        (96, 100, 50, 0.05),
        (128, 20, 50, 0.0),
        (128, 600, 20, 0.05),
    ] {
        for seed in [3101, 3102] {
            let scenario = path(settings, seed).scenario().expect("valid");
            let report = dfcp_sim::run(&scenario).expect("can be built");
            let link = report.links.iter().find(|link| link.name == "bottleneck");
            let link = link.expect("a dumbbell has a bottleneck");
            let packet = 12.0 / f64::from(settings.0);
            let queue = link.queue.sojourn_p95_s.expect("packets passed") / packet;
            let share = share_of(&report);
            let said = format!(
                "{settings:?}, seed {seed}: 95 % wait for {queue:.1} packets, {share:.2} of the limit"
            );
            println!("{said}, {} dropped", link.drops.full);
            // Three are aimed at, an overshoot and one that is served come on top.
            assert!(queue < 6.0, "{said}");
            assert_eq!(link.drops.full, 0, "{said}");
            // Blocks count when they are complete. While they took 12 to 23 s, 0.84 or 1.01 came of the same.
            assert!(share > 0.9 && share < 1.0, "{said}");
        }
    }
}
