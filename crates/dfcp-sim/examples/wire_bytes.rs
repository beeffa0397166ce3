//! Bytes on the wire of a bulk transfer at a fixed rate over paths that lose in bursts, beside the
//! least for what was lost: (IP bytes sent × share that arrived) ÷ (bytes of the object, with the
//! headers that full packets need). The rate controller has no part in it.
//!
//! `cargo run --release -p dfcp-sim --example wire_bytes -- [megabytes] [seeds]`

use dfcp_proto::{Duration, Profile, Rate, TransportConfig};
use dfcp_sim::link::GilbertElliott;
use dfcp_sim::{Limit, LinkConfig, LossModel, ObjectTransfer, Pair, PairConfig, Side};

/// Loss, and packets of a mean burst.
const PATHS: [(f64, f64); 7] = [
    (0.0, 1.0),
    (0.02, 1.0),
    (0.2, 1.0),
    (0.5, 1.0),
    (0.048, 5.0),
    (0.2, 12.0),
    (0.09, 50.0),
];

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse::<u64>().ok());
    let bytes = args.next().unwrap_or(20) * 1_000_000;
    let seeds = args.next().unwrap_or(3);
    println!("| loss % | mean burst | lost % | bytes ÷ least | repairs ÷ lost | seconds |");
    println!("|---|---|---|---|---|---|");
    for (loss, burst) in PATHS {
        let mut sum = [0.0; 4];
        for seed in 0..seeds {
            let figures = run(bytes, loss, burst, seed);
            sum.iter_mut()
                .zip(figures)
                .for_each(|(s, f)| *s += f / seeds as f64);
        }
        let [lost, bytes, repairs, seconds] = sum;
        println!(
            "| {} | {burst} | {:.1} | {bytes:.3} | {repairs:.3} | {seconds:.2} |",
            loss * 100.0,
            lost * 100.0
        );
    }
}

fn run(bytes: u64, loss: f64, burst: f64, seed: u64) -> [f64; 4] {
    let model = LossModel::GilbertElliott(GilbertElliott {
        good_to_bad: loss / (1.0 - loss) / burst,
        bad_to_good: 1.0 / burst,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    let clean = LinkConfig {
        rate: Rate::from_bps(100_000_000).into(),
        delay: Duration::from_millis(25),
        queue: Limit::Packets(416).into(),
        ..LinkConfig::default()
    };
    let mut config = PairConfig::symmetric(clean.clone(), seed);
    let profile = Profile::auto().with_fixed_rate(Rate::from_bps(90_000_000));
    config.client = TransportConfig::default().profile(profile);
    let mut pair = Pair::new(config);
    assert!(pair.establish(Duration::from_secs(8)), "seed {seed}");
    let now = pair.now;
    pair.links[0].set_config(
        now,
        LinkConfig {
            loss: model,
            ..clean
        },
    );
    let before = pair.connection(Side::Client).stats();
    let start_bytes = pair.hosts[0].ip_bytes;
    let mut transfer = ObjectTransfer::start(&mut pair, bytes);
    let done = pair.run_until(Duration::from_secs(120), |pair| transfer.poll(pair));
    assert!(done, "seed {seed}: transfer");
    let after = pair.connection(Side::Client).stats();
    let sent = (after.packets_sent - before.packets_sent) as f64;
    let arrived = pair.connection(Side::Server).stats().packets_received as f64;
    let lost = (1.0 - arrived / sent).max(0.0);
    // A packet of 1500 bytes carries 1437 of the object.
    let least = bytes as f64 * 1500.0 / 1437.0;
    let on_wire = (pair.hosts[0].ip_bytes - start_bytes) as f64;
    let repairs = after.repair_symbols_sent as f64 / (sent - arrived).max(1.0);
    [
        lost,
        on_wire * (1.0 - lost) / least,
        repairs,
        pair.now.saturating_since(now).as_secs_f64(),
    ]
}
