//! Rate control: plans of paths that change, and what the sender makes of them.

use crate::common::{MS, SECOND, established, link};
use dfcp_proto::{ChannelId, ChannelKind, Duration, Instant, Profile, Rate, TransportConfig};
use dfcp_sim::{Datagram, Limit, Link, LinkConfig, ObjectTransfer, Pair, PairConfig, Side};

const SEED: u64 = 77;
/// UDP payload in a full IPv4 packet.
const PAYLOAD: f64 = 1472.0 / 1500.0;

/// A client that always has something to send and a server that takes it.
pub struct Bulk {
    pair: Pair,
    channel: ChannelId,
    delivered: u64,
    data: Vec<u8>,
}

/// What a stretch of time looked like.
#[derive(Debug, Default)]
pub struct Seen {
    seconds: f64,
    delivered: f64,
    ip_bytes: f64,
    dropped: f64,
    queue_ms: Vec<f64>,
    /// Most IP bytes sent in any window of a round trip, as bits per second.
    peak: f64,
}

impl Seen {
    /// Goodput in Mbit/s.
    pub fn goodput(&self) -> f64 {
        self.delivered * 8e-6 / self.seconds
    }

    fn queue(&self, p: f64) -> f64 {
        let mut sorted = self.queue_ms.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * p) as usize]
    }

    /// IP bytes sent ÷ those needed to carry what was delivered without loss.
    fn overhead(&self) -> f64 {
        self.ip_bytes * PAYLOAD / self.delivered
    }
}

impl Bulk {
    fn new(path: LinkConfig) -> Self {
        Self::seeded(path, SEED)
    }

    fn seeded(path: LinkConfig, seed: u64) -> Self {
        // Feedback goes back over the same delay, unhindered.
        let config = PairConfig {
            backward: LinkConfig {
                loss: 0.0.into(),
                ..path.clone()
            },
            ..PairConfig::symmetric(path, seed)
        };
        Self::from_pair(Pair::new(config))
    }

    pub fn from_pair(mut pair: Pair) -> Self {
        assert!(pair.establish(8 * SECOND));
        let channel = pair
            .connection(Side::Client)
            .open(ChannelKind::Object)
            .expect("a channel");
        Self {
            pair,
            channel,
            delivered: 0,
            data: vec![7; 1 << 18],
        }
    }

    fn poll(&mut self) {
        let now = self.pair.now;
        let pair = &mut self.pair;
        let client = pair.connection(Side::Client);
        while client.write(now, self.channel, &self.data).expect("open") > 0 {}
        let server = pair.connection(Side::Server);
        while let Ok(Some((_, bytes))) = server.take_block(now, self.channel) {
            self.delivered += bytes.len() as u64;
            server.recycle(now, bytes);
        }
        pair.flush();
    }

    pub fn set(&mut self, path: LinkConfig) {
        let now = self.pair.now;
        self.pair.links[1].set_config(
            now,
            LinkConfig {
                loss: 0.0.into(),
                ..path.clone()
            },
        );
        self.pair.links[0].set_config(now, path);
    }

    /// IP bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.pair.hosts[0].ip_bytes
    }

    /// Runs for `time`, looking at the queue every 2 ms and the sending rate over `window`.
    pub fn run(&mut self, time: Duration, window: Duration) -> Seen {
        let mut seen = Seen::default();
        let start = self.pair.now;
        let dropped = self.pair.links[0].stats().drops.full;
        let (delivered, sent) = (self.delivered, self.pair.hosts[0].ip_bytes);
        let mut history: Vec<(Instant, u64)> = vec![(start, sent)];
        while self.pair.now < start + time {
            let step = self.pair.now + MS(2);
            while self.pair.now < step {
                self.pair
                    .run_until(step.saturating_since(self.pair.now).min(MS(1)), |_| false);
                self.poll();
            }
            let now = self.pair.now;
            seen.queue_ms
                .push(self.pair.links[0].queue_delay(now).as_secs_f64() * 1e3);
            history.push((now, self.pair.hosts[0].ip_bytes));
            while history.len() > 1 && now.saturating_since(history[1].0) >= window {
                history.remove(0);
            }
            let span = now.saturating_since(history[0].0);
            if span >= window {
                let bytes = self.pair.hosts[0].ip_bytes - history[0].1;
                seen.peak = seen.peak.max(bytes as f64 * 8.0 / span.as_secs_f64());
            }
        }
        seen.seconds = self.pair.now.saturating_since(start).as_secs_f64();
        seen.delivered = (self.delivered - delivered) as f64;
        seen.ip_bytes = (self.pair.hosts[0].ip_bytes - sent) as f64;
        seen.dropped = (self.pair.links[0].stats().drops.full - dropped) as f64;
        seen
    }
}

fn with_loss(loss: f64, path: LinkConfig) -> LinkConfig {
    LinkConfig {
        loss: loss.into(),
        ..path
    }
}

/// Uses the path, keeps the queue short, never sends far more than the path carries.
fn steady(mbit: u64, rtt: u64, loss: f64, time: Duration) {
    let name = format!("{mbit} Mbit/s, {rtt} ms, loss {loss}, seed {SEED}");
    let mut bulk = Bulk::new(with_loss(loss, link(mbit, rtt)));
    let window = MS(rtt.max(10));
    let limit = mbit as f64 * 1e6;
    let start_up = bulk.run((time / 3).max(MS(16 * rtt)), window);
    // A search doubles; the window that is counted in may hold one packet more.
    let packet = 1500.0 * 8.0 / window.as_secs_f64();
    assert!(
        start_up.peak <= 2.0 * limit + packet,
        "{name}: {:.1} Mbit/s in start-up",
        start_up.peak / 1e6
    );
    let seen = bulk.run(time, window);
    let share = seen.goodput() / (mbit as f64 * (1.0 - loss) * PAYLOAD);
    println!(
        "{name}: {share:.3}, queue {:.1}/{:.1} ms, peak {:.2}/{:.2}",
        seen.queue(0.5),
        seen.queue(0.95),
        start_up.peak / limit,
        seen.peak / limit
    );
    assert!(share >= 0.93, "{name}: {share:.3} of the limit");
    assert!(
        seen.queue(0.5) <= (rtt as f64 / 4.0).max(20.0),
        "{name}: {:.1} ms",
        seen.queue(0.5)
    );
    assert!(
        seen.peak <= 1.25 * limit,
        "{name}: {:.2} of the bottleneck",
        seen.peak / limit
    );
}

#[test]
fn a_near_path_is_used_with_a_short_queue() {
    [0.0, 0.05, 0.2]
        .into_iter()
        .for_each(|loss| steady(100, 10, loss, SECOND));
}

#[test]
fn a_far_path_is_used_with_a_short_queue() {
    [0.0, 0.05, 0.2]
        .into_iter()
        .for_each(|loss| steady(100, 60, loss, 8 * SECOND));
}

#[test]
fn a_satellite_path_is_used_with_a_short_queue() {
    [0.0, 0.05, 0.2]
        .into_iter()
        .for_each(|loss| steady(100, 200, loss, 3 * SECOND));
}

#[test]
fn a_fast_path_is_used_with_a_short_queue() {
    steady(1000, 20, 0.0, MS(500));
}

#[test]
fn a_slow_path_is_used_with_a_short_queue() {
    let mut bulk = Bulk::new(LinkConfig {
        queue: Limit::Packets(200).into(),
        ..link(1, 50)
    });
    bulk.run(10 * SECOND, MS(100));
    let seen = bulk.run(30 * SECOND, MS(100));
    let share = seen.goodput() / PAYLOAD;
    assert!(share >= 0.93, "{share:.3} of 1 Mbit/s");
    // Two packets and a half are 30 ms here.
    assert!(seen.queue(0.5) <= 50.0, "{:.1} ms", seen.queue(0.5));
    assert!(seen.peak <= 1.5e6, "{:.2} Mbit/s", seen.peak / 1e6);
}

#[test]
fn a_rate_that_drops_and_comes_back_is_followed() {
    for loss in [0.0, 0.05] {
        let path = |mbit| LinkConfig {
            queue: Limit::Packets(500).into(),
            ..with_loss(loss, link(mbit, 60))
        };
        let mut bulk = Bulk::new(path(100));
        bulk.run(2 * SECOND, MS(60));
        bulk.set(path(20));
        bulk.run(3 * SECOND, MS(60));
        let low = bulk.run(3 * SECOND, MS(60));
        let share = low.goodput() / (20.0 * (1.0 - loss) * PAYLOAD);
        assert!(share > 0.9, "loss {loss}: {share:.3} of 20 Mbit/s");
        assert!(
            low.queue(0.5) < 25.0,
            "loss {loss}: {:.1} ms standing after the drop",
            low.queue(0.5)
        );
        bulk.set(path(100));
        bulk.run(3 * SECOND, MS(60));
        let high = bulk.run(SECOND, MS(60));
        let share = high.goodput() / (100.0 * (1.0 - loss) * PAYLOAD);
        assert!(
            share > 0.85,
            "loss {loss}: {share:.3} of 100 Mbit/s three seconds after it came back"
        );
    }
}

#[test]
fn a_path_that_gets_longer_keeps_its_rate() {
    for loss in [0.0, 0.05] {
        let path = |rtt| LinkConfig {
            queue: Limit::Packets(800).into(),
            ..with_loss(loss, link(50, rtt))
        };
        let mut bulk = Bulk::new(path(40));
        bulk.run(2 * SECOND, MS(40));
        bulk.set(path(140)); // 50 ms each way
        let at_once = bulk.run(2 * SECOND, MS(140));
        let later = bulk.run(4 * SECOND, MS(140));
        let share = |seen: &Seen| seen.goodput() / (50.0 * (1.0 - loss) * PAYLOAD);
        let shares = (share(&at_once), share(&later));
        assert!(
            shares.0 > 0.3 && shares.1 > 0.8,
            "loss {loss}: {shares:.3?}"
        );
        bulk.set(path(40));
        bulk.run(SECOND, MS(40));
        let back = bulk.run(2 * SECOND, MS(40));
        assert!(
            share(&back) > 0.9,
            "loss {loss}: {:.3} when it is short again",
            share(&back)
        );
    }
}

#[test]
fn a_small_queue_or_none_makes_no_runaway() {
    for (packets, least, most) in [(20, 0.85, 1.15), (8, 0.8, 1.3), (2, 0.6, 1.5)] {
        for (mbit, rtt) in [(50, 20), (50, 60)] {
            let mut bulk = Bulk::new(LinkConfig {
                queue: Limit::Packets(packets).into(),
                ..link(mbit, rtt)
            });
            bulk.run(2 * SECOND, MS(rtt));
            let seen = bulk.run(5 * SECOND, MS(rtt));
            let share = seen.goodput() / (mbit as f64 * PAYLOAD);
            println!(
                "{packets} packets, {rtt} ms: {share:.3}, overhead {:.3}",
                seen.overhead()
            );
            assert!(
                seen.overhead() <= most,
                "{packets} packets, {rtt} ms: {:.3}",
                seen.overhead()
            );
            assert!(share >= least, "{packets} packets, {rtt} ms: {share:.3}");
        }
    }
}

/// Queue, median and 95th percentile, and share of the limit on a path of 50 Mbit/s that marks from 3 ms on.
fn marked(rtt: u64, loss: f64, seed: u64) -> (f64, f64, f64) {
    let path = LinkConfig {
        ecn_threshold: Some(MS(3)),
        ..with_loss(loss, link(50, rtt))
    };
    let mut bulk = Bulk::seeded(path, seed);
    bulk.run(2 * SECOND, MS(rtt));
    let seen = bulk.run(4 * SECOND, MS(rtt));
    let share = seen.goodput() / (50.0 * (1.0 - loss) * PAYLOAD);
    (seen.queue(0.5), seen.queue(0.95), share)
}

#[test]
fn congestion_marks_keep_the_queue_at_their_threshold() {
    for (rtt, loss) in [(20, 0.0), (60, 0.05)] {
        let mut longest = Vec::new();
        for seed in SEED..SEED + 9 {
            let (median, high, share) = marked(rtt, loss, seed);
            let said = format!("{rtt} ms, seed {seed}: {share:.3}, queue {median:.1}/{high:.1}");
            assert!(median <= 5.0 && share >= 0.83, "{said}");
            longest.push(high);
        }
        longest.sort_by(f64::total_cmp);
        // What a loss test sends beyond the path's rate in these four seconds differs by chance.
        assert!(longest[4] <= 18.0, "{rtt} ms: {longest:.1?}");
    }
}

#[test]
fn jitter_is_no_queue() {
    for loss in [0.0, 0.05] {
        let path = LinkConfig {
            jitter: MS(10).into(),
            ..with_loss(loss, link(50, 40))
        };
        let mut bulk = Bulk::new(path);
        bulk.run(2 * SECOND, MS(40));
        let seen = bulk.run(4 * SECOND, MS(40));
        let share = seen.goodput() / (50.0 * (1.0 - loss) * PAYLOAD);
        assert!(share >= 0.9, "loss {loss}: {share:.3}");
        assert!(
            seen.queue(0.5) <= 25.0,
            "loss {loss}: {:.1} ms",
            seen.queue(0.5)
        );
        assert!(
            seen.overhead() * (1.0 - loss) <= 1.08,
            "loss {loss}: {:.3}",
            seen.overhead()
        );
    }
}

/// Two pairs whose forward packets share one bottleneck.
struct Dumbbell {
    bulks: Vec<Bulk>,
    shared: Link<Datagram>,
    /// Not in the bottleneck yet.
    joined: usize,
}

impl Dumbbell {
    fn new(shared: LinkConfig) -> Self {
        let pair = |seed| {
            let backward = LinkConfig {
                delay: shared.delay,
                ..LinkConfig::default()
            };
            Pair::new(PairConfig {
                forward: LinkConfig::default(),
                backward,
                ..PairConfig::symmetric(LinkConfig::default(), seed)
            })
        };
        let bulks = [1, 2].map(|seed| Bulk::from_pair(pair(seed))).into();
        Self {
            bulks,
            shared: Link::new(shared, SEED),
            joined: 1,
        }
    }

    fn run(&mut self, time: Duration) -> [f64; 2] {
        let before = [0, 1].map(|i| self.bulks[i].delivered);
        let start = self.bulks[0].pair.now;
        let mut now = start;
        while now < start + time {
            let joined = &mut self.bulks[..self.joined];
            let next = joined.iter().filter_map(|b| b.pair.next_event());
            now = next
                .chain(self.shared.poll_at())
                .min()
                .expect("busy")
                .max(now);
            for bulk in joined.iter_mut() {
                bulk.pair.now = now;
                if bulk.pair.next_event().is_some_and(|next| next <= now) {
                    bulk.pair.step();
                }
            }
            while let Some(mut packet) = self.shared.poll(now) {
                let pair = &mut joined[packet.tag as usize].pair;
                let from = pair.hosts[0].address;
                pair.hosts[1].endpoint.handle_datagram(
                    now,
                    from,
                    packet.ecn as u8,
                    &mut packet.data,
                );
            }
            for (i, bulk) in (0..).zip(joined) {
                bulk.poll();
                while let Some(mut packet) = bulk.pair.links[0].poll(now) {
                    packet.tag = i;
                    self.shared.send(now, packet);
                }
            }
        }
        self.bulks.iter_mut().for_each(|bulk| bulk.pair.now = now);
        let seconds = now.saturating_since(start).as_secs_f64();
        [0, 1].map(|i| (self.bulks[i].delivered - before[i]) as f64 * 8e-6 / seconds)
    }
}

#[test]
fn two_transfers_share_a_bottleneck() {
    for rtt in [20, 60] {
        let rate = Rate::from_bps(20_000_000);
        let path = LinkConfig {
            rate: rate.into(),
            queue: Limit::Packets(150).into(),
            ..link(20, rtt)
        };
        let mut both = Dumbbell::new(path);
        let [alone, _] = both.run(3 * SECOND);
        assert!(alone > 17.0, "{rtt} ms: alone {alone:.1} Mbit/s");
        both.joined = 2;
        let now = both.bulks[0].pair.now;
        both.bulks[1].pair.now = now;
        both.run(8 * SECOND);
        let shares = both.run(8 * SECOND);
        let total: f64 = shares.iter().sum();
        println!("{rtt} ms: {shares:.2?}");
        assert!(total > 17.0, "{rtt} ms: {shares:.2?} together");
        assert!(
            shares.iter().all(|s| *s > 0.15 * total),
            "{rtt} ms: {shares:.2?}"
        );
    }
}

/// What a sender takes of a path at most under a cap, and what it leaves of slower paths unused.
#[test]
fn a_cap_holds_and_changes_nothing_on_slower_paths() {
    let goodput = |mbit, loss: f64, cap: Option<u64>, seed| {
        let path = LinkConfig {
            loss: loss.into(),
            ..link(mbit, 60)
        };
        let profile = match cap {
            Some(cap) => Profile::auto().with_rate_cap(Rate::from_bps(cap * 1_000_000)),
            None => Profile::auto(),
        };
        let config = PairConfig {
            client: TransportConfig::default().profile(profile),
            ..PairConfig::symmetric(path, seed)
        };
        let mut pair = established(config);
        let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
        pair.run_until(20 * SECOND, |pair| transfer.poll(pair));
        let sent = pair.connection(Side::Client).stats().bytes_sent * 8 / 20;
        (transfer.delivered as f64 * 8.0 / 20e6, sent as f64 / 1e6)
    };
    for (seed, loss) in (40..).zip([0.0, 0.1]) {
        for cap in [1, 10] {
            let (useful, sent) = goodput(50, loss, Some(cap), seed);
            let cap = cap as f64;
            let shown = format!("seed {seed}, loss {loss}, cap {cap}: {useful}, {sent} sent");
            assert!(sent <= cap * 1.01 + 0.1, "{shown}");
            assert!(useful >= cap * (1.0 - loss) * 0.85, "{shown}");
        }
        let (with, _) = goodput(10, loss, Some(30), seed);
        let (without, _) = goodput(10, loss, None, seed);
        assert!(
            (with / without - 1.0).abs() < 0.05,
            "seed {seed}: {with}, {without} without a cap"
        );
    }
}

/// There a packet is acknowledged long before the next one may leave.
#[test]
fn a_low_cap_holds_on_short_paths() {
    for (seed, rtt) in [(50, 1), (51, 5)] {
        let cap = Rate::from_bps(400_000);
        let config = PairConfig {
            client: TransportConfig::default().profile(Profile::auto().with_rate_cap(cap)),
            ..PairConfig::symmetric(link(100, rtt), seed)
        };
        let mut pair = established(config);
        let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
        pair.run_until(20 * SECOND, |pair| transfer.poll(pair));
        let sent = pair.connection(Side::Client).stats().bytes_sent as f64 * 8.0 / 20.0;
        let shown = format!("seed {seed}, {rtt} ms: {sent:.0} of {cap}");
        assert!((300_000.0..450_000.0).contains(&sent), "{shown}");
    }
}

/// A rate that somebody typed wrong is no flood for longer than a few seconds, and serves all the same.
#[test]
fn a_fixed_rate_far_above_the_path_is_cut_to_what_arrives() {
    for (seed, loss) in (60..).zip([0.0, 0.1]) {
        let path = LinkConfig {
            loss: loss.into(),
            ..link(10, 60)
        };
        let profile = Profile::auto().with_fixed_rate(Rate::from_bps(200_000_000));
        let config = PairConfig {
            client: TransportConfig::default().profile(profile),
            ..PairConfig::symmetric(path, seed)
        };
        let mut pair = established(config);
        let mut transfer = ObjectTransfer::start(&mut pair, 1 << 40);
        let [first, second] = [(); 2].map(|()| {
            pair.run_until(10 * SECOND, |pair| transfer.poll(pair));
            pair.connection(Side::Client).stats().bytes_sent as f64 * 8e-6
        });
        let useful = transfer.delivered as f64 * 8e-6 / 20.0;
        let shown = format!(
            "seed {seed}, loss {loss}: sent {first:.0}, {second:.0} Mbit, {useful:.2} Mbit/s"
        );
        assert!(second - first <= 160.0, "{shown}");
        assert!(useful >= 0.7 * 10.0 * (1.0 - loss), "{shown}");
    }
}
