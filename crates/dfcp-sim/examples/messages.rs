//! Delivery delay of the messages of one stream, in order, in simulated time: quantiles in
//! milliseconds from a message's write until its last byte can be read, and the bytes that the sender
//! put on the wire for each byte of payload.
//!
//! `cargo run --release -p dfcp-sim --example messages -- [rate Mbit/s] [rtt ms] [seeds] [first seed]
//! [least bytes] [most bytes] [interval ms] [seconds] [path names...]`

use dfcp_proto::{ChannelId, ChannelKind, Duration, Instant, Rate, Read};
use dfcp_sim::link::{GilbertElliott, TimedGilbertElliott};
use dfcp_sim::random::Seed;
use dfcp_sim::{Limit, LinkConfig, LossModel, Pair, PairConfig, Side};
use std::collections::VecDeque;

/// The path as it is called, and how it loses.
fn paths() -> Vec<(String, LossModel)> {
    let mut paths = vec![
        ("none".to_owned(), LossModel::None),
        ("single2".to_owned(), 0.02.into()),
        ("single10".to_owned(), 0.1.into()),
    ];
    for share in [2, 9] {
        let loss = f64::from(share) / 100.0;
        for packets in [5, 12, 40] {
            let model = GilbertElliott::in_bursts(loss, f64::from(packets)).expect("possible");
            let name = format!("burst{share}-{packets}p");
            paths.push((name, LossModel::GilbertElliott(model)));
        }
        for ms in [2, 10, 17] {
            let model = TimedGilbertElliott::in_bursts(loss, Duration::from_millis(ms));
            let name = format!("burst{share}-{ms}ms");
            paths.push((name, LossModel::TimedGilbertElliott(model)));
        }
    }
    paths
}

/// What is sent.
#[derive(Clone, Copy)]
struct Traffic {
    least: u64,
    most: u64,
    interval: Duration,
    messages: u64,
}

/// Of one run.
#[derive(Default)]
struct Outcome {
    /// Of each message, in milliseconds.
    delays: Vec<f64>,
    wire: u64,
    payload: u64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: f64| {
        let given = args.get(i).and_then(|a| a.parse().ok());
        given.unwrap_or(default)
    };
    let (mbit, rtt) = (number(0, 100.0), number(1, 50.0));
    let (seeds, first) = (number(2, 3.0) as u64, number(3, 1.0) as u64);
    let interval = number(6, 20.0);
    let traffic = Traffic {
        least: number(4, 5000.0) as u64,
        most: number(5, 20_000.0) as u64,
        interval: Duration::from_secs_f64(interval / 1e3),
        messages: (number(7, 30.0) * 1e3 / interval) as u64,
    };
    println!("| path | median | 95 % | 99 % | worst, ms | bytes ÷ payload |");
    println!("|---|---|---|---|---|---|");
    for (name, loss) in paths() {
        let wanted = args.get(8..).unwrap_or_default();
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let link = link(mbit, rtt);
        let mut all = Outcome::default();
        for seed in first..first + seeds {
            let lossy = LinkConfig {
                loss: loss.clone(),
                ..link.clone()
            };
            let config = PairConfig {
                forward: lossy,
                ..PairConfig::symmetric(link.clone(), seed)
            };
            let run = run(config, traffic);
            all.delays.extend(run.delays);
            all.wire += run.wire;
            all.payload += run.payload;
        }
        all.delays.sort_by(f64::total_cmp);
        let at = |q: f64| all.delays[((all.delays.len() - 1) as f64 * q) as usize];
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.3} |",
            at(0.5),
            at(0.95),
            at(0.99),
            at(1.0),
            all.wire as f64 / all.payload as f64
        );
    }
}

/// A queue of one bandwidth-delay product.
fn link(mbit: f64, rtt: f64) -> LinkConfig {
    let rate = Rate::from_bps((mbit * 1e6) as u64);
    let delay = Duration::from_secs_f64(rtt / 2e3);
    let packets = (rate.bytes_in(2 * delay) / 1500).max(50) as usize;
    LinkConfig {
        rate: rate.into(),
        delay,
        queue: Limit::Packets(packets).into(),
        ..LinkConfig::default()
    }
}

/// The messages on their way: where each ends, and when it was written.
struct Messages {
    channel: ChannelId,
    waiting: VecDeque<(u64, Instant)>,
    received: u64,
    delays: Vec<f64>,
}

impl Messages {
    fn read(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let Some(server) = pair.try_connection(Side::Server) else {
            return;
        };
        let mut buffer = [0; 32_768];
        while let Ok(Read::Data(n)) = server.read(now, self.channel, &mut buffer) {
            self.received += n as u64;
        }
        while let Some(&(end, written)) = self.waiting.front()
            && end <= self.received
        {
            let delay = now.saturating_since(written).as_secs_f64();
            self.delays.push(delay * 1e3);
            self.waiting.pop_front();
        }
    }
}

fn run(config: PairConfig, traffic: Traffic) -> Outcome {
    let seed = config.seed;
    let mut sizes = Seed(seed).stream("message.sizes");
    let mut pair = Pair::new(config);
    assert!(pair.establish(Duration::from_secs(8)), "handshake, {seed}");
    let channel = pair
        .connection(Side::Client)
        .open(ChannelKind::Stream)
        .expect("room for a channel");
    let mut messages = Messages {
        channel,
        waiting: VecDeque::new(),
        received: 0,
        delays: Vec::new(),
    };
    let data = vec![7; traffic.most as usize];
    let (before, mut end) = (pair.hosts[0].ip_bytes, 0);
    let mut next = pair.now;
    for _ in 0..traffic.messages {
        let size = traffic.least + sizes.below(traffic.most - traffic.least + 1);
        end += size;
        let now = pair.now;
        messages.waiting.push_back((end, now));
        let client = pair.connection(Side::Client);
        let taken = client.write(now, channel, &data[..size as usize]);
        assert_eq!(taken, Ok(size as usize), "no room, seed {seed}");
        pair.flush();
        next += traffic.interval;
        let wait = next.saturating_since(pair.now);
        pair.run_until(wait, |pair| {
            messages.read(pair);
            false
        });
    }
    pair.run_until(Duration::from_secs(10), |pair| {
        messages.read(pair);
        messages.waiting.is_empty()
    });
    assert!(messages.waiting.is_empty(), "not all arrived, seed {seed}");
    Outcome {
        delays: messages.delays,
        wire: pair.hosts[0].ip_bytes - before,
        payload: end,
    }
}
