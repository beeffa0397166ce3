//! One transfer per path in simulated time, as a table: goodput and overhead against the limit.
//!
//! `cargo run --release -p dfcp-sim --example transfer -- [MB] [rate Mbit/s] [rtt ms] [loss %]
//! [queue packets]`;
//! without RTT and loss, a grid; without a queue, one bandwidth-delay product.

use dfcp_proto::{Duration, Rate};
use dfcp_sim::{Limit, LinkConfig, ObjectTransfer, Pair, PairConfig, Side};

fn main() {
    let args: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let get = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    let (megabytes, mbit) = (get(0, 64.0), get(1, 100.0));
    let rtts = args
        .get(2)
        .map_or(vec![10.0, 60.0, 200.0], |&rtt| vec![rtt]);
    let losses = args
        .get(3)
        .map_or(vec![0.0, 1.0, 5.0, 10.0, 20.0, 50.0], |&loss| vec![loss]);
    println!(
        "| rtt ms | loss % | steady ÷ limit | whole ÷ limit | IP bytes ÷ ideal | queue p50/p95/max ms | repair % | spurious | s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for &rtt in &rtts {
        for &loss in &losses {
            run(
                megabytes,
                mbit,
                rtt,
                loss / 100.0,
                args.get(4).map(|&q| q as usize),
            );
        }
    }
}

fn run(megabytes: f64, mbit: f64, rtt: f64, loss: f64, queue: Option<usize>) {
    let rate = Rate::from_bps((mbit * 1e6) as u64);
    let delay = Duration::from_secs_f64(rtt / 2e3);
    let bdp_packets = (rate.bytes_in(2 * delay) / 1500).max(50) as usize;
    let bdp_packets = queue.unwrap_or(bdp_packets);
    let link = LinkConfig {
        rate: rate.into(),
        delay,
        queue: Limit::Packets(bdp_packets).into(),
        loss: loss.into(),
        ..LinkConfig::default()
    };
    let size = (megabytes * 1e6) as u64;
    let mut pair = Pair::new(PairConfig::symmetric(link, 7));
    let start = pair.now;
    assert!(pair.establish(Duration::from_secs(8)), "handshake");
    let mut transfer = ObjectTransfer::start(&mut pair, size);
    let mut tenth = None;
    let mut queues = Vec::new();
    let trace = std::env::var_os("TRACE").is_some();
    let mut next_sample = pair.now;
    let done = pair.run_until(Duration::from_secs(3600), |pair| {
        if pair.now >= next_sample {
            next_sample = pair.now + Duration::from_millis(if trace { 20 } else { 5 });
            let queue = pair.links[0].queue_delay(pair.now).as_secs_f64() * 1e3;
            queues.push(queue);
            if trace {
                let stats = pair.connection(Side::Client).stats();
                eprintln!(
                    "{:8.3} queue {queue:6.2} bw {} pace {} loss {:.3} srtt {:?}",
                    pair.now.saturating_since(start).as_secs_f64(),
                    stats.bandwidth,
                    stats.pacing_rate,
                    stats.loss,
                    stats.rtt
                );
            }
        }
        let complete = transfer.poll(pair);
        if transfer.delivered * 10 >= size && tenth.is_none() {
            tenth = Some((pair.now, transfer.delivered));
        }
        transfer.delivered == size || complete
    });
    assert!(done, "transfer ends");
    let limit = (1.0 - loss) * mbit * 1e6 / 8.0 * 1472.0 / 1500.0;
    let whole = size as f64 / pair.now.saturating_since(start).as_secs_f64();
    let (at, bytes) = tenth.expect("passed a tenth");
    let steady = (size - bytes) as f64 / pair.now.saturating_since(at).as_secs_f64();
    let ideal = size as f64 * 1500.0 / 1472.0 / (1.0 - loss);
    let skip = queues.len() / 10;
    let mut steady_queue = queues[skip..].to_vec();
    steady_queue.sort_by(f64::total_cmp);
    let pick = |p: f64| steady_queue[((steady_queue.len() - 1) as f64 * p) as usize];
    let ip = pair.hosts[0].ip_bytes as f64;
    let stats = pair.connection(Side::Client).stats();
    println!(
        "| {rtt} | {} | {:.3} | {:.3} | {:.4} | {:.1}/{:.1}/{:.1} | {:.2} | {} | {:.2} |",
        loss * 100.0,
        steady / limit,
        whole / limit,
        ip / ideal,
        pick(0.5),
        pick(0.95),
        queues.iter().copied().fold(0.0, f64::max),
        100.0 * stats.repair_symbols_sent as f64 / stats.source_symbols_sent as f64,
        stats.spurious_losses,
        pair.now.saturating_since(start).as_secs_f64(),
    );
}
