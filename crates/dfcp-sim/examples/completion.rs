//! Completion time of a small object on a new connection, in simulated time: quantiles in round
//! trips over many seeds, and the bytes that it took on the wire beside the least for that loss.
//!
//! `cargo run --release -p dfcp-sim --example completion -- [bytes] [rate Mbit/s] [rtt ms] [runs]
//! [mean burst, packets] [rate control: 0 for auto, else a fixed rate in Mbit/s] [loss %...]`; a
//! burst of 1 is independent loss.

use dfcp_proto::{Duration, Instant, Profile, Rate, TransportConfig};
use dfcp_sim::link::GilbertElliott;
use dfcp_sim::{Limit, LinkConfig, LossModel, ObjectTransfer, Pair, PairConfig, Side};

/// Loss probabilities unless given, in per cent.
const LOSSES: [f64; 7] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];

#[derive(Clone, Copy)]
struct Path {
    bytes: u64,
    mbit: f64,
    rtt: f64,
    burst: f64,
    fixed: f64,
    loss: f64,
}

/// Of one transfer; times in round trips.
struct Outcome {
    /// From the first SYN until the receiver has everything.
    received: f64,
    /// From the handshake's end at the client until the receiver has everything.
    after_handshake: f64,
    /// From the first SYN until the sender knows.
    known: f64,
    /// IP bytes of the sender ÷ (bytes of the object ÷ the share that arrives).
    overhead: f64,
}

fn main() {
    let args: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let get = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    let runs = get(3, 400.0) as u64;
    let losses = args.get(6..).filter(|l| !l.is_empty()).unwrap_or(&LOSSES);
    println!(
        "| loss % | received, RTT: 50 % | 95 % | 99 % | without handshake: 50 % | 95 % | 99 % | known to the sender: 50 % | 95 % | 99 % | bytes ÷ least |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for loss in losses {
        let path = Path {
            bytes: get(0, 150e3) as u64,
            mbit: get(1, 100.0),
            rtt: get(2, 50.0),
            burst: get(4, 1.0),
            fixed: get(5, 0.0),
            loss: loss / 100.0,
        };
        let outcomes: Vec<Outcome> = (0..runs).map(|seed| run(path, seed)).collect();
        let column = |f: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(f).collect();
            values.sort_by(f64::total_cmp);
            let at = |q: f64| values[((values.len() - 1) as f64 * q) as usize];
            format!("{:.2} | {:.2} | {:.2}", at(0.5), at(0.95), at(0.99))
        };
        let overhead = outcomes.iter().map(|o| o.overhead).sum::<f64>() / runs as f64;
        println!(
            "| {loss} | {} | {} | {} | {overhead:.3} |",
            column(|o| o.received),
            column(|o| o.after_handshake),
            column(|o| o.known)
        );
    }
}

fn run(path: Path, seed: u64) -> Outcome {
    let rate = Rate::from_bps((path.mbit * 1e6) as u64);
    let delay = Duration::from_secs_f64(path.rtt / 2e3);
    let packets = (rate.bytes_in(2 * delay) / 1500).max(50) as usize;
    let queue = Limit::Packets(packets);
    let link = LinkConfig {
        rate: rate.into(),
        delay,
        queue: queue.into(),
        loss: if path.burst > 1.0 {
            bursts(path.loss, path.burst)
        } else {
            path.loss.into()
        },
        ..LinkConfig::default()
    };
    let mut config = PairConfig::symmetric(link, seed);
    if path.fixed > 0.0 {
        let fixed = Rate::from_bps((path.fixed * 1e6) as u64);
        let profile = Profile::auto().with_fixed_rate(fixed);
        config.client = TransportConfig::default().profile(profile);
    }
    let mut pair = Pair::new(config);
    let start = pair.now;
    pair.connect();
    let up = pair.run_until(Duration::from_secs(8), |pair| {
        pair.try_connection(Side::Client)
            .is_some_and(|c| c.is_established())
    });
    assert!(up, "seed {seed}: handshake");
    let established = pair.now;
    let mut transfer = ObjectTransfer::start(&mut pair, path.bytes);
    let mut received = None;
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        let done = transfer.poll(pair);
        if transfer.delivered == path.bytes && received.is_none() {
            received = Some(pair.now);
        }
        done
    });
    assert!(done, "seed {seed}: transfer");
    let received = received.expect("done");
    let trips =
        |to: Instant, from: Instant| to.saturating_since(from).as_secs_f64() * 1e3 / path.rtt;
    Outcome {
        received: trips(received, start),
        after_handshake: trips(received, established),
        known: trips(pair.now, start),
        overhead: pair.hosts[0].ip_bytes as f64 * (1.0 - path.loss) / path.bytes as f64,
    }
}

/// Bursts in which everything is lost, of so many packets on average.
fn bursts(loss: f64, mean: f64) -> LossModel {
    LossModel::GilbertElliott(GilbertElliott {
        good_to_bad: (loss / (1.0 - loss) / mean).min(1.0),
        bad_to_good: 1.0 / mean,
        loss_good: 0.0,
        loss_bad: 1.0,
    })
}
