//! Completion time of a small object on a new connection, in simulated time: median and 95th
//! percentile in round trips, over many seeds.
//!
//! `cargo run --release -p dfcp-sim --example completion -- [bytes] [rate Mbit/s] [rtt ms] [runs]`

use dfcp_proto::{Duration, Rate};
use dfcp_sim::{Limit, LinkConfig, ObjectTransfer, Pair, PairConfig};

fn main() {
    let args: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let get = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    let (bytes, mbit, rtt, runs) = (get(0, 150e3), get(1, 100.0), get(2, 50.0), get(3, 400.0));
    println!("| loss % | received, median RTT | 95 % | known to the sender, median RTT | 95 % |");
    println!("|---|---|---|---|---|");
    for loss in [0.0, 1.0, 2.0, 5.0, 10.0] {
        let (mut received, mut known) = (Vec::new(), Vec::new());
        for seed in 0..runs as u64 {
            let (r, k) = run(bytes as u64, mbit, rtt, loss / 100.0, seed);
            received.push(r / (rtt / 1e3));
            known.push(k / (rtt / 1e3));
        }
        let quantile = |values: &mut Vec<f64>, q: f64| {
            values.sort_by(f64::total_cmp);
            values[((values.len() - 1) as f64 * q) as usize]
        };
        println!(
            "| {loss} | {:.2} | {:.2} | {:.2} | {:.2} |",
            quantile(&mut received, 0.5),
            quantile(&mut received, 0.95),
            quantile(&mut known, 0.5),
            quantile(&mut known, 0.95)
        );
    }
}

/// Seconds from the first SYN until the receiver has everything, and until the sender knows.
fn run(bytes: u64, mbit: f64, rtt: f64, loss: f64, seed: u64) -> (f64, f64) {
    let rate = Rate::from_bps((mbit * 1e6) as u64);
    let delay = Duration::from_secs_f64(rtt / 2e3);
    let packets = (rate.bytes_in(2 * delay) / 1500).max(50) as usize;
    let queue = Limit::Packets(packets);
    let link = LinkConfig {
        rate: rate.into(),
        delay,
        queue: queue.into(),
        loss: loss.into(),
        ..LinkConfig::default()
    };
    let mut pair = Pair::new(PairConfig::symmetric(link, seed));
    let start = pair.now;
    pair.connect();
    let up = pair.run_until(Duration::from_secs(8), |pair| {
        pair.try_connection(dfcp_sim::Side::Client)
            .is_some_and(|c| c.is_established())
    });
    assert!(up, "seed {seed}: handshake");
    let mut transfer = ObjectTransfer::start(&mut pair, bytes);
    let mut received = None;
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        let done = transfer.poll(pair);
        if transfer.delivered == bytes && received.is_none() {
            received = Some(pair.now);
        }
        done
    });
    assert!(done, "seed {seed}: transfer");
    let since = |t: dfcp_proto::Instant| t.saturating_since(start).as_secs_f64();
    (since(received.expect("done")), since(pair.now))
}
