//! What reordering and feedback cost, path by path, in simulated time: spurious losses, how long a
//! loss takes to be found, bytes of feedback beside those of data.
//!
//! `cargo run --release -p dfcp-sim --example feedback -- [seconds] [path name part] [auto]`; a
//! fixed rate of 0.9 of the path unless `auto` is said.

use dfcp_proto::{Duration, Profile, Rate, TransportConfig};
use dfcp_sim::{Limit, LinkConfig, ObjectTransfer, Pair, PairConfig, Side};

/// A path and its name.
struct Path {
    name: &'static str,
    mbit: f64,
    rtt_ms: f64,
    forward: fn(&mut LinkConfig),
    backward: fn(&mut LinkConfig),
}

const MS: fn(u64) -> Duration = Duration::from_millis;

const PATHS: [Path; 13] = [
    path("plain", 100.0, 50.0, |_| {}, |_| {}),
    path("plain 1 Mbit/s", 1.0, 50.0, |_| {}, |_| {}),
    path("plain 10 Mbit/s", 10.0, 50.0, |_| {}, |_| {}),
    path("loss 10 %", 100.0, 50.0, |l| l.loss = 0.1.into(), |_| {}),
    path(
        "jitter 30 ms",
        100.0,
        50.0,
        |l| l.jitter = MS(30).into(),
        |_| {},
    ),
    path(
        "20 % 30 ms late",
        100.0,
        50.0,
        |l| (l.reorder, l.reorder_delay) = (0.2, MS(30)),
        |_| {},
    ),
    path(
        "5 % 5 ms late",
        100.0,
        100.0,
        |l| (l.reorder, l.reorder_delay) = (0.05, MS(5)),
        |_| {},
    ),
    path(
        "jitter 8 ms",
        1000.0,
        80.0,
        |l| l.jitter = MS(8).into(),
        |_| {},
    ),
    path(
        "jitter 30 ms, loss 10 %, gigabit",
        1000.0,
        80.0,
        |l| (l.jitter, l.loss) = (MS(30).into(), 0.1.into()),
        |_| {},
    ),
    path(
        "reverse 1 Mbit/s",
        100.0,
        50.0,
        |_| {},
        |l| l.rate = Rate::from_bps(1_000_000).into(),
    ),
    path(
        "reverse 200 kbit/s",
        100.0,
        50.0,
        |_| {},
        |l| {
            l.rate = Rate::from_bps(200_000).into();
            l.queue = Limit::Packets(50).into();
        },
    ),
    path(
        "reverse loses 90 %",
        100.0,
        50.0,
        |_| {},
        |l| l.loss = 0.9.into(),
    ),
    path(
        "loss 10 %, reverse 200 kbit/s",
        100.0,
        50.0,
        |l| l.loss = 0.1.into(),
        |l| l.rate = Rate::from_bps(200_000).into(),
    ),
];

const fn path(
    name: &'static str,
    mbit: f64,
    rtt_ms: f64,
    forward: fn(&mut LinkConfig),
    backward: fn(&mut LinkConfig),
) -> Path {
    Path {
        name,
        mbit,
        rtt_ms,
        forward,
        backward,
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seconds: f64 = args.first().and_then(|a| a.parse().ok()).unwrap_or(10.0);
    let only = args.get(1).map_or("", String::as_str);
    let auto = args.iter().any(|a| a == "auto");
    println!(
        "| path | goodput ÷ limit | lost % | spurious % | probes | feedback kbit/s | of bytes % | replays refused | max reverse queue ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for path in PATHS.iter().filter(|path| path.name.contains(only)) {
        run(path, seconds, auto);
    }
}

fn run(path: &Path, seconds: f64, auto: bool) {
    let rate = Rate::from_bps((path.mbit * 1e6) as u64);
    let delay = Duration::from_secs_f64(path.rtt_ms / 2e3);
    let packets = (rate.bytes_in(2 * delay) / 1500).max(50) as usize;
    let link = LinkConfig {
        rate: rate.into(),
        delay,
        queue: Limit::Packets(packets).into(),
        ..LinkConfig::default()
    };
    let mut config = PairConfig::symmetric(link, 7);
    (path.forward)(&mut config.forward);
    (path.backward)(&mut config.backward);
    if !auto {
        let profile = Profile::auto().with_fixed_rate(rate.mul_f64(0.9 * 1472.0 / 1500.0));
        config.client = TransportConfig::default().profile(profile);
    }
    let mut pair = Pair::new(config);
    assert!(pair.establish(Duration::from_secs(8)), "handshake");
    let start = pair.now;
    let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
    let end = Duration::from_secs_f64(seconds);
    let (mut queue, mut next) = (Duration::ZERO, pair.now + end / 5);
    pair.run_until(end, |pair| {
        if pair.now >= next {
            next = pair.now + MS(5);
            queue = queue.max(pair.links[1].queue_delay(pair.now));
        }
        transfer.poll(pair)
    });
    let time = pair.now.saturating_since(start).as_secs_f64();
    let client = pair.connection(Side::Client).stats();
    let server = pair.connection(Side::Server).stats();
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    println!(
        "| {} | {:.3} | {:.2} | {:.3} | {} | {:.0} | {:.2} | {} | {:.1} |",
        path.name,
        transfer.delivered as f64 * 8.0 / time / (path.mbit * 1e6 * 1472.0 / 1500.0),
        percent(client.packets_lost, client.packets_sent),
        percent(client.spurious_losses, client.packets_sent),
        client.probes,
        pair.hosts[1].ip_bytes as f64 * 8.0 / time / 1e3,
        percent(server.bytes_sent, server.bytes_received),
        server.duplicates,
        queue.as_secs_f64() * 1e3,
    );
}
