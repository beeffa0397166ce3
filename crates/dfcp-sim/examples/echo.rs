//! Delay of an echo beside a download over the same connection, in simulated time: of messages that the
//! client writes to one stream, and the server writes back as they come, while it sends all that goes on
//! another one of lower priority, as `dfcp proxy` does.
//!
//! Quantiles are in milliseconds above the path's round trip, of messages written two seconds after the
//! beginning or later; `there` and `back` are 99 % of each way above half of it. The download's goodput is a
//! share of what the path lets through, its bytes on the wire are for each byte that arrived.
//!
//! `cargo run --release -p dfcp-sim --example echo -- [rate Mbit/s] [rtt ms] [seeds] [first seed] [bytes]
//! [interval ms] [seconds] [path names...]`
//!
//! With interval 0 there is a download and no echo.

use dfcp_proto::{ChannelId, ChannelKind, Duration, Instant, Rate, Read};
use dfcp_sim::link::{GilbertElliott, TimedGilbertElliott};
use dfcp_sim::{Limit, LinkConfig, LossModel, Pair, PairConfig, Side};
use std::collections::VecDeque;

/// Echoes before are of a connection that has only begun.
const START: Duration = Duration::from_secs(2);

/// What each way loses: nothing, single packets, or in bursts of ten full packets' time (`burst`), of ten of
/// the packets that are sent, however seldom (`packets`).
fn paths(rate: Rate) -> Vec<(String, LossModel)> {
    let single = |percent: u32| {
        let loss = f64::from(percent) / 100.0;
        (format!("single{percent}"), loss.into())
    };
    let mut paths = vec![("none".to_owned(), LossModel::None)];
    paths.extend([1, 5, 10, 20].map(single));
    let burst = rate.time_for(10 * 1500);
    let timed = TimedGilbertElliott::in_bursts(0.05, burst);
    paths.push(("burst".into(), LossModel::TimedGilbertElliott(timed)));
    let packets = GilbertElliott::in_bursts(0.05, 10.0).expect("possible");
    paths.push(("packets".into(), LossModel::GilbertElliott(packets)));
    paths
}

#[derive(Clone, Copy)]
struct Traffic {
    bytes: usize,
    interval: Duration,
    time: Duration,
}

/// Of one run, or of several.
#[derive(Default)]
struct Outcome {
    /// Of each message, in milliseconds: there and back, there alone, back alone.
    delays: [Vec<f64>; 3],
    downloaded: u64,
    wire: u64,
    seconds: f64,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        for (all, one) in self.delays.iter_mut().zip(other.delays) {
            all.extend(one);
        }
        self.downloaded += other.downloaded;
        self.wire += other.wire;
        self.seconds += other.seconds;
    }

    /// A quantile of the `n`th delays less what the path itself takes.
    fn late(&self, n: usize, share: f64, least: f64) -> f64 {
        let delays = &self.delays[n];
        let at = (delays.len().saturating_sub(1) as f64 * share) as usize;
        delays.get(at).map_or(0.0, |delay| delay - least)
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: f64| {
        let given = args.get(i).and_then(|a| a.parse().ok());
        given.unwrap_or(default)
    };
    let rate = Rate::from_bps((number(0, 50.0) * 1e6) as u64);
    let rtt = number(1, 80.0);
    let (seeds, first) = (number(2, 5.0) as u64, number(3, 1.0) as u64);
    let traffic = Traffic {
        bytes: number(4, 64.0) as usize,
        interval: Duration::from_secs_f64(number(5, 20.0) / 1e3),
        time: Duration::from_secs_f64(number(6, 10.0)),
    };
    println!("| path | median | 95 % | 99 % | worst | there | back | goodput | wire |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, loss) in paths(rate) {
        let wanted = args.get(7..).unwrap_or_default();
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let limit = rate.as_bps() as f64 / 8.0 * (1.0 - loss.mean_loss()) * 1472.0 / 1500.0;
        let link = LinkConfig {
            loss,
            ..link(rate, rtt)
        };
        let mut all = Outcome::default();
        for seed in first..first + seeds {
            all.add(run(PairConfig::symmetric(link.clone(), seed), traffic));
        }
        for delays in &mut all.delays {
            delays.sort_by(f64::total_cmp);
        }
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.3} | {:.3} |",
            all.late(0, 0.5, rtt),
            all.late(0, 0.95, rtt),
            all.late(0, 0.99, rtt),
            all.late(0, 1.0, rtt),
            all.late(1, 0.99, rtt / 2.0),
            all.late(2, 0.99, rtt / 2.0),
            all.downloaded as f64 / all.seconds / limit,
            all.wire as f64 / all.downloaded as f64,
        );
    }
}

/// A queue of one bandwidth-delay product.
fn link(rate: Rate, rtt: f64) -> LinkConfig {
    let delay = Duration::from_secs_f64(rtt / 2e3);
    let packets = (rate.bytes_in(2 * delay) / 1500).max(10) as usize;
    LinkConfig {
        rate: rate.into(),
        delay,
        queue: Limit::Packets(packets).into(),
        ..LinkConfig::default()
    }
}

/// The messages on their way: when each was written, and when it was read at the far end.
struct Echo {
    channel: ChannelId,
    bytes: usize,
    there: VecDeque<Instant>,
    back: VecDeque<(Instant, Instant)>,
    /// Bytes of a message that is not whole.
    parts: [usize; 2],
    delays: [Vec<f64>; 3],
    since: Instant,
}

impl Echo {
    /// Messages that are whole now at one end.
    fn read(&mut self, pair: &mut Pair, side: Side) -> usize {
        let (now, mut buffer) = (pair.now, [0; 32_768]);
        let connection = pair.connection(side);
        let part = &mut self.parts[side as usize];
        while let Ok(Read::Data(n)) = connection.read(now, self.channel, &mut buffer) {
            *part += n;
        }
        let whole = *part / self.bytes;
        *part %= self.bytes;
        whole
    }

    fn poll(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let came = self.read(pair, Side::Server);
        for _ in 0..came {
            let written = self.there.pop_front().expect("was written");
            self.back.push_back((written, now));
            self.write(pair, Side::Server);
        }
        for _ in 0..self.read(pair, Side::Client) {
            let (written, echoed) = self.back.pop_front().expect("was written");
            if written >= self.since {
                let times = [(written, now), (written, echoed), (echoed, now)];
                for (delays, (from, to)) in self.delays.iter_mut().zip(times) {
                    delays.push(to.saturating_since(from).as_secs_f64() * 1e3);
                }
            }
        }
        if came > 0 {
            pair.flush();
        }
    }

    fn write(&self, pair: &mut Pair, side: Side) {
        let (now, data) = (pair.now, vec![7; self.bytes]);
        let taken = pair.connection(side).write(now, self.channel, &data);
        assert_eq!(taken, Ok(self.bytes), "there is room");
    }
}

/// A stream that always has something to send.
struct Download {
    channel: ChannelId,
    data: Vec<u8>,
    arrived: u64,
}

impl Download {
    fn poll(&mut self, pair: &mut Pair) {
        let (now, id) = (pair.now, self.channel);
        let server = pair.connection(Side::Server);
        let mut wrote = false;
        while server
            .write(now, id, &self.data)
            .is_ok_and(|taken| taken > 0)
        {
            wrote = true;
        }
        let client = pair.connection(Side::Client);
        let mut read = false;
        while let Ok(Read::Data(n)) = client.read(now, id, &mut self.data) {
            self.arrived += n as u64;
            read = true;
        }
        if wrote || read {
            pair.flush();
        }
    }
}

fn run(config: PairConfig, traffic: Traffic) -> Outcome {
    let seed = config.seed;
    let mut pair = Pair::new(config);
    assert!(pair.establish(Duration::from_secs(8)), "handshake, {seed}");
    let client = pair.connection(Side::Client);
    let channel = client.open(ChannelKind::Stream).expect("room");
    client.set_priority(channel, 1).expect("just opened");
    let bulk = client.open(ChannelKind::Stream).expect("room");
    let now = pair.now;
    for id in [channel, bulk] {
        // The far end learns of both.
        let taken = pair.connection(Side::Client).write(now, id, &[1]);
        assert_eq!(taken, Ok(1), "there is room");
    }
    pair.flush();
    let both = |pair: &mut Pair| {
        let (now, mut byte) = (pair.now, [0]);
        let server = pair.connection(Side::Server);
        let mut has = |id| matches!(server.read(now, id, &mut byte), Ok(Read::Data(1)));
        [channel, bulk].map(&mut has)
    };
    let mut known = [false; 2];
    let arrived = pair.run_until(Duration::from_secs(8), |pair| {
        known.iter_mut().zip(both(pair)).for_each(|(k, h)| *k |= h);
        known == [true; 2]
    });
    assert!(arrived, "the channels, {seed}");
    let server = pair.connection(Side::Server);
    server.set_priority(channel, 1).expect("just opened");
    let start = pair.now;
    let mut echo = Echo {
        channel,
        bytes: traffic.bytes,
        there: VecDeque::new(),
        back: VecDeque::new(),
        parts: [0; 2],
        delays: Default::default(),
        since: start + START,
    };
    let mut download = Download {
        channel: bulk,
        data: vec![7; 65_536],
        arrived: 0,
    };
    let before = pair.hosts[1].ip_bytes;
    let end = start + traffic.time;
    let is_alone = traffic.interval.is_zero();
    let step = if is_alone {
        traffic.time
    } else {
        traffic.interval
    };
    let mut next = pair.now;
    while next < end {
        if !is_alone {
            echo.there.push_back(pair.now);
            echo.write(&mut pair, Side::Client);
        }
        download.poll(&mut pair);
        pair.flush();
        next += step;
        let wait = next.saturating_since(pair.now);
        pair.run_until(wait, |pair| {
            download.poll(pair);
            echo.poll(pair);
            false
        });
    }
    let (downloaded, wire) = (download.arrived, pair.hosts[1].ip_bytes - before);
    let done = pair.run_until(Duration::from_secs(20), |pair| {
        download.poll(pair);
        echo.poll(pair);
        echo.there.is_empty() && echo.back.is_empty()
    });
    assert!(done, "not all came back, seed {seed}");
    Outcome {
        delays: echo.delays,
        downloaded,
        wire,
        seconds: traffic.time.as_secs_f64(),
    }
}
