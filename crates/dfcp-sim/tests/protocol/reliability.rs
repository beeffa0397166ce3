//! Connections that give data up: what arrives is right and in its place, what is missing is told,
//! limits are kept, and credit never leaks.

use crate::common::{MS, SECOND, established, lossy, scheme};
use dfcp_proto::{
    ChannelId, ChannelKind, ConnectionStats, Duration, Event, Instant, Payload, Profile, Rate,
    Read, Reliability, SchemeId, TransportConfig,
};
use dfcp_sim::pair::pattern;
use dfcp_sim::{Limit, LinkConfig, Pair, PairConfig, Side};
use proptest::prelude::*;
use std::ops::Range;

const KINDS: [ChannelKind; 2] = [ChannelKind::Stream, ChannelKind::Object];

/// Blocks of one packet each.
fn packets() -> Profile {
    scheme(SchemeId::Arq, 1)
}

fn config(link: LinkConfig, seed: u64, profile: Profile, reliability: Reliability) -> PairConfig {
    PairConfig {
        client: TransportConfig::default()
            .profile(profile)
            .reliability(reliability),
        ..PairConfig::symmetric(link, seed)
    }
}

/// One channel from the client to the server on which bytes may be missing.
#[derive(Clone)]
struct Channel {
    id: ChannelId,
    size: u64,
    written: u64,
    finished: bool,
    /// What the application was given, and what it was told to be missing, as it came.
    data: Vec<Range<u64>>,
    gaps: Vec<Range<u64>>,
    position: u64,
    ended: bool,
    /// When each write was made: the offset after it, and when.
    writes: Vec<(u64, Instant)>,
    /// Longest and all times from the write of a byte to its delivery.
    ages: Vec<Duration>,
}

impl Channel {
    fn open(pair: &mut Pair, kind: ChannelKind, size: u64) -> Self {
        let id = pair.connection(Side::Client).open(kind).expect("channels");
        Self {
            id,
            size,
            written: 0,
            finished: false,
            data: Vec::new(),
            gaps: Vec::new(),
            position: 0,
            ended: false,
            writes: Vec::new(),
            ages: Vec::new(),
        }
    }

    /// Writes up to `most` bytes, and the end after the last.
    fn write(&mut self, pair: &mut Pair, most: u64) {
        let now = pair.now;
        let client = pair.connection(Side::Client);
        let stop = self.size.min(self.written.saturating_add(most));
        while self.written < stop {
            let end = stop.min(self.written + 65_536);
            let bytes: Vec<u8> = (self.written..end).map(pattern).collect();
            match client.write(now, self.id, &bytes).expect("open") {
                0 => break,
                n => self.written += n as u64,
            }
        }
        self.writes.push((self.written, now));
        if self.written == self.size && !self.finished {
            client.finish_channel(self.id).expect("open");
            self.finished = true;
        }
        pair.flush();
    }

    fn got(&mut self, now: Instant, offset: u64, bytes: &[u8]) {
        let wrong = bytes.iter().zip(offset..).find(|&(&b, o)| b != pattern(o));
        assert_eq!(wrong, None, "wrong byte on {:?}", self.id);
        let first = self.writes.partition_point(|(end, _)| *end <= offset);
        self.ages.push(now.saturating_since(self.writes[first].1));
        self.data.push(offset..offset + bytes.len() as u64);
    }

    fn read(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let server = pair.connection(Side::Server);
        let mut buffer = [0; 20_000];
        while self.id.kind() == ChannelKind::Stream && !self.ended {
            match server.read(now, self.id, &mut buffer) {
                Ok(Read::Data(n)) => {
                    self.got(now, self.position, &buffer[..n]);
                    self.position += n as u64;
                }
                Ok(Read::Gap(n)) => {
                    self.gaps.push(self.position..self.position + n);
                    self.position += n;
                }
                Ok(Read::End) => self.ended = true,
                Ok(Read::Blocked) => break,
                Err(_) if self.position == 0 => break, // not opened at this side yet
                Err(error) => panic!("{error}"),
            }
        }
        if self.id.kind() == ChannelKind::Object && !self.ended {
            while let Ok(Some((offset, bytes))) = server.take_block(now, self.id) {
                self.got(now, offset, &bytes);
                server.recycle(now, bytes);
            }
            while let Some(gap) = server.take_gap(self.id) {
                self.gaps.push(gap);
            }
            if server.final_size(self.id).is_some() && server.is_drained(self.id) {
                server.end_recv(self.id);
                self.ended = true;
            }
        }
        pair.flush();
    }

    /// What the sender was told at the end: the bytes that it gave up.
    fn outcome(&self, pair: &Pair) -> Option<u64> {
        pair.hosts[0].events.iter().find_map(|event| match *event {
            Event::Acknowledged(id) if id == self.id => Some(0),
            Event::PartlyAcknowledged { channel, abandoned } if channel == self.id => {
                Some(abandoned)
            }
            _ => None,
        })
    }

    /// Writes and reads what is possible; true once both sides know the end.
    fn poll(&mut self, pair: &mut Pair) -> bool {
        if !self.finished {
            self.write(pair, u64::MAX);
        }
        self.read(pair);
        self.ended && self.outcome(pair).is_some()
    }

    fn missing(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.end - gap.start).sum()
    }

    /// Every byte was given once or told to be missing once, and the sender claims no more than
    /// arrived.
    fn check(&self, pair: &Pair, what: &str) {
        let mut all: Vec<_> = self.data.iter().chain(&self.gaps).cloned().collect();
        all.sort_by_key(|part| part.start);
        let mut next = 0;
        for part in all {
            assert_eq!(part.start, next, "{what}: {:?}", self.id);
            next = part.end;
        }
        assert_eq!(next, self.size, "{what}: {:?}", self.id);
        let abandoned = self.outcome(pair).expect("the end");
        assert!(abandoned >= self.missing(), "{what}: {abandoned} given up");
    }
}

/// A transfer of `size` bytes as fast as possible, to its end; what the sender counted.
fn transfer(config: PairConfig, kind: ChannelKind, size: u64) -> (Pair, Channel, ConnectionStats) {
    let what = format!("seed {}, {:?}", config.seed, config.client);
    let mut pair = established(config);
    let mut channel = Channel::open(&mut pair, kind, size);
    let done = pair.run_until(300 * SECOND, |pair| channel.poll(pair));
    let stats = pair.connection(Side::Client).stats();
    assert!(
        done,
        "{what}: stuck at {} of {size}, {stats:?}",
        channel.position
    );
    channel.check(&pair, &what);
    (pair, channel, stats)
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[test]
fn unreliable_sends_everything_once_and_tells_what_is_missing() {
    for (seed, kind) in (3000..).zip(KINDS) {
        // Whatever the profile's code.
        for profile in [packets(), Profile::auto()] {
            let config = config(lossy(0.1), seed, profile, Reliability::Unreliable);
            let (pair, channel, stats) = transfer(config, kind, 3_000_000);
            assert_eq!(stats.repair_symbols_sent, 0, "seed {seed}");
            let missing = share(channel.missing(), channel.size);
            assert!((0.07..0.14).contains(&missing), "seed {seed}: {missing}");
            assert_eq!(
                channel.outcome(&pair),
                Some(channel.missing()),
                "seed {seed}"
            );
            assert_eq!(stats.bytes_abandoned, channel.missing(), "seed {seed}");
        }
    }
}

#[test]
fn without_loss_unreliable_loses_nothing() {
    for kind in KINDS {
        let config = config(lossy(0.0), 3010, packets(), Reliability::Unreliable);
        let (pair, channel, _) = transfer(config, kind, 1_000_000);
        let lost = pair.links[0].stats().drops.total();
        assert!(channel.gaps.len() as u64 <= lost, "{:?}", channel.gaps);
        assert!(share(channel.missing(), channel.size) < 0.02);
    }
}

#[test]
fn each_retransmission_loses_a_tenth_of_what_was_lost() {
    for (seed, kind) in (3020..).zip(KINDS) {
        for (count, expected) in [(0, 0.1), (1, 0.01), (2, 0.001)] {
            let reliability = Reliability::Retransmissions(count);
            let config = config(lossy(0.1), seed, packets(), reliability);
            let (_, channel, stats) = transfer(config, kind, 6_000_000);
            let missing = share(channel.missing(), channel.size);
            let bounds = expected * 0.5..expected * 1.8;
            assert!(
                bounds.contains(&missing) || expected < 0.005 && missing < 0.004,
                "seed {seed}, {count}: {missing}"
            );
            let most = u64::from(count) * stats.source_symbols_sent;
            assert!(stats.repair_symbols_sent <= most, "seed {seed}, {count}");
        }
    }
}

/// A source that writes `bytes` every `interval`, `count` times, to a reader that always reads.
fn live(
    pair: &mut Pair,
    kind: ChannelKind,
    (bytes, interval, count): (u64, Duration, u64),
) -> Channel {
    let mut channel = Channel::open(pair, kind, bytes * count);
    for _ in 0..count {
        channel.write(pair, bytes);
        pair.run_until(interval, |pair| {
            channel.read(pair);
            false
        });
    }
    let done = pair.run_until(60 * SECOND, |pair| channel.poll(pair));
    assert!(done, "stuck at {}", channel.position);
    channel.check(pair, "live");
    channel.ages.sort_unstable();
    channel
}

const ONE_WAY: Duration = Duration::from_millis(10);

#[test]
fn nothing_comes_later_than_the_deadline_and_nearly_all_comes() {
    let age = MS(100);
    for (seed, kind) in (3030..).zip(KINDS) {
        let config = config(lossy(0.1), seed, packets(), Reliability::Deadline(age));
        let mut pair = established(config);
        let channel = live(&mut pair, kind, (1400, MS(5), 4000));
        let missing = share(channel.missing(), channel.size);
        assert!(missing < 0.01, "seed {seed}: {missing}");
        let (oldest, most) = (channel.ages.last(), channel.ages.len() * 99 / 100);
        println!("{kind:?}: {missing} {:?} {oldest:?}", channel.ages[most]);
        match kind {
            // A block leaves for the last time before its deadline.
            ChannelKind::Object => {
                assert!(
                    oldest <= Some(&(age + 2 * ONE_WAY)),
                    "seed {seed}: {oldest:?}"
                );
            }
            // In order a byte may wait for a gap before it, and that for a lost SKIP.
            ChannelKind::Stream | ChannelKind::Uni => {
                assert!(channel.ages[most] <= age + 2 * ONE_WAY, "seed {seed}");
                assert!(
                    oldest <= Some(&(age + 12 * ONE_WAY)),
                    "seed {seed}: {oldest:?}"
                );
            }
        }
    }
}

#[test]
fn what_arrives_within_a_deadline_shorter_than_the_round_trip_is_delivered() {
    for kind in KINDS {
        let reliability = Reliability::Deadline(MS(12));
        let mut pair = established(config(lossy(0.0), 3040, packets(), reliability));
        let channel = live(&mut pair, kind, (1400, MS(5), 400));
        assert_eq!(channel.missing(), 0);
        assert_eq!(channel.outcome(&pair), Some(0), "the sender waited to know");
    }
}

#[test]
fn a_source_faster_than_the_path_loses_what_is_stale_and_stays_fresh() {
    let link = LinkConfig {
        rate: Rate::from_bps(2_000_000).into(),
        delay: ONE_WAY,
        queue: Limit::Packets(100).into(),
        ..LinkConfig::default()
    };
    let age = MS(200);
    let reliability = Reliability::Deadline(age);
    let mut pair = established(config(link, 3050, packets(), reliability));
    // 4.5 Mbit/s for 20 s.
    let channel = live(&mut pair, ChannelKind::Stream, (2800, MS(5), 4000));
    let rate = (channel.size - channel.missing()) as f64 * 8.0 / 20.0;
    assert!(rate > 1.5e6, "{rate} bit/s");
    let stats = pair.connection(Side::Client).stats();
    assert!(stats.blocks_never_sent > 1000, "{stats:?}");
    let most = channel.ages.len() * 95 / 100;
    assert!(channel.ages[most] < 2 * age, "{:?}", channel.ages[most]);
    assert_eq!(channel.outcome(&pair), Some(channel.missing()));
    // News of gaps must not crowd the path.
    let symbols = stats.source_symbols_sent + stats.repair_symbols_sent;
    let other = stats.bytes_sent - symbols * stats.datagram_size as u64;
    assert!(other * 20 < stats.bytes_sent, "{stats:?}");
}

#[test]
fn a_deadline_in_the_past_sends_nothing() {
    for kind in KINDS {
        let reliability = Reliability::Deadline(Duration::ZERO);
        let config = config(lossy(0.05), 3060, Profile::auto(), reliability);
        let (_, channel, stats) = transfer(config, kind, 500_000);
        assert_eq!(channel.missing(), 500_000);
        assert_eq!(stats.source_symbols_sent + stats.repair_symbols_sent, 0);
        assert!(stats.blocks_abandoned > 0);
        assert_eq!(stats.blocks_abandoned, stats.blocks_never_sent);
    }
}

#[test]
fn blocks_of_every_code_are_given_up_whole() {
    let codes = [
        scheme(SchemeId::Dense, 16),
        scheme(SchemeId::RaptorQ, 50),
        scheme(SchemeId::Raptor, 50),
    ];
    let limits = [
        Reliability::Deadline(MS(40)),
        Reliability::Retransmissions(0),
        Reliability::Retransmissions(1),
    ];
    for (seed, code) in (3070..).zip(&codes) {
        for limit in limits {
            for kind in KINDS {
                let config = config(lossy(0.2), seed, code.clone(), limit);
                let (pair, channel, stats) = transfer(config, kind, 1_000_000);
                println!("{code:?} {limit:?} {kind:?}: {} missing", channel.missing());
                let outcome = channel.outcome(&pair);
                assert_eq!(outcome, Some(stats.bytes_abandoned), "seed {seed}");
                if limit == Reliability::Retransmissions(1) {
                    // A twentieth, or one block: of those with 50 symbols there are 14.
                    let block = u64::from(code.block_symbols) * 1472;
                    let (missing, most) = (channel.missing(), block.max(channel.size / 20));
                    assert!(missing <= most, "seed {seed}, {code:?}: {missing} bytes");
                }
            }
        }
    }
}

#[test]
fn credit_never_leaks() {
    let server = TransportConfig::default().receive_budget(1 << 20);
    for (seed, kind) in (3080..).zip(KINDS) {
        for reliability in [Reliability::Unreliable, Reliability::Deadline(MS(15))] {
            let config = PairConfig {
                server: server.clone(),
                ..config(lossy(0.3), seed, packets(), reliability)
            };
            let (mut pair, ..) = transfer(config, kind, 20_000_000);
            pair.run_until(2 * SECOND, |_| false);
            assert_eq!(
                pair.connection(Side::Server).credit_in_use(),
                0,
                "seed {seed}"
            );
            assert_eq!(
                pair.connection(Side::Client).unacknowledged(),
                0,
                "seed {seed}"
            );
        }
    }
}

/// Sizes and times of the client's datagrams, and the bytes missing at the server.
fn trace(
    payload: Payload,
    mut config: PairConfig,
    kind: ChannelKind,
) -> (Vec<(Instant, usize)>, u64) {
    config.client = config.client.payload(payload);
    config.server = config.server.payload(payload);
    let mut pair = Pair::new(config);
    pair.hosts[0].sent = Some(Vec::new());
    assert!(pair.establish(8 * SECOND));
    let id = pair.connection(Side::Client).open(kind).expect("channels");
    let (size, mut written, mut missing, mut ended) = (1_500_000, 0, 0, false);
    let bytes = vec![9; 50_000];
    let done = pair.run_until(300 * SECOND, |pair| {
        let now = pair.now;
        let client = pair.connection(Side::Client);
        while written < size {
            let part = (size - written).min(50_000);
            let taken = match payload {
                Payload::Real => client
                    .write(now, id, &bytes[..part as usize])
                    .expect("open") as u64,
                Payload::Virtual => client.write_virtual(now, id, part).expect("open"),
            };
            written += taken;
            if taken == 0 {
                break;
            }
            if written == size {
                client.finish_channel(id).expect("open");
            }
        }
        pair.flush();
        let server = pair.connection(Side::Server);
        loop {
            let read = match (kind, payload) {
                (ChannelKind::Stream, Payload::Real) => server.read(now, id, &mut [0; 30_000]),
                (ChannelKind::Stream, Payload::Virtual) => server.read_virtual(now, id, 30_000),
                (_, Payload::Real) => {
                    while let Ok(Some((_, bytes))) = server.take_block(now, id) {
                        server.recycle(now, bytes);
                    }
                    break;
                }
                (_, Payload::Virtual) => {
                    while let Ok(Some(_)) = server.take_virtual_block(now, id) {}
                    break;
                }
            };
            match read {
                Ok(Read::Data(_)) => {}
                Ok(Read::Gap(n)) => missing += n,
                Ok(Read::End) => ended = true,
                _ => break,
            }
        }
        while let Some(gap) = server.take_gap(id) {
            missing += gap.end - gap.start;
        }
        ended |= server.final_size(id).is_some() && server.is_drained(id);
        pair.flush();
        let known =
            |e: &Event| matches!(e, Event::Acknowledged(_) | Event::PartlyAcknowledged { .. });
        ended && pair.hosts[0].events.iter().any(known)
    });
    assert!(done, "{payload:?}");
    (pair.hosts[0].sent.take().unwrap_or_default(), missing)
}

#[test]
fn virtual_payload_is_given_up_in_the_same_way() {
    let link = LinkConfig {
        jitter: MS(4).into(),
        reorder: 0.05,
        reorder_delay: MS(8),
        duplicate: 0.1,
        ..lossy(0.1)
    };
    for reliability in [
        Reliability::Unreliable,
        Reliability::Deadline(MS(30)),
        Reliability::Retransmissions(1),
    ] {
        for kind in KINDS {
            let plan = || config(link.clone(), 3090, scheme(SchemeId::Dense, 5), reliability);
            let [real, bare] = [Payload::Real, Payload::Virtual].map(|p| trace(p, plan(), kind));
            assert!(real == bare, "{reliability:?}, {kind:?}");
        }
    }
}

fn reliability() -> impl Strategy<Value = Reliability> {
    prop_oneof![
        Just(Reliability::Reliable),
        Just(Reliability::Unreliable),
        (0u64..300).prop_map(|ms| Reliability::Deadline(MS(ms))),
        (0u32..3).prop_map(Reliability::Retransmissions),
    ]
}

fn code() -> impl Strategy<Value = Profile> {
    prop_oneof![
        2 => Just(packets()),
        1 => (1u32..140).prop_map(|k| scheme(SchemeId::Dense, k)),
        1 => (2u32..60).prop_map(|k| scheme(SchemeId::RaptorQ, k)),
    ]
}

fn path() -> impl Strategy<Value = LinkConfig> {
    let shape = (1u64..50, 0u64..80, 1usize..300);
    let faults = (0u32..50, 0u64..20, 0u32..20, 0u32..20);
    (shape, faults).prop_map(
        |((mbit, delay, queue), (loss, jitter, reorder, duplicate))| LinkConfig {
            rate: Rate::from_bps(mbit * 1_000_000).into(),
            delay: MS(delay),
            queue: Limit::Packets(queue).into(),
            loss: (f64::from(loss) / 100.0).into(),
            jitter: MS(jitter).into(),
            reorder: f64::from(reorder) / 100.0,
            reorder_delay: MS(delay),
            duplicate: f64::from(duplicate) / 100.0,
            ..LinkConfig::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_byte_is_given_or_told_missing_once(
        reliability in reliability(),
        code in code(),
        link in path(),
        writes in prop::collection::vec((any::<bool>(), 0u64..60_000, 0u64..200), 1..12),
        // Whether the object is reset by its sender, or refused by its receiver, on the way.
        (reset, stop) in (prop::bool::weighted(0.2), prop::bool::weighted(0.2)),
        seed in any::<u64>(),
    ) {
        let clean = LinkConfig { loss: 0.0.into(), ..link.clone() };
        let budget = TransportConfig::default().receive_budget(1 << 20);
        let mut pair = established(PairConfig {
            server: budget,
            ..config(clean, seed, code, reliability)
        });
        let now = pair.now;
        pair.links.iter_mut().for_each(|l| l.set_config(now, link.clone()));
        let size: u64 = writes.iter().map(|w| w.1).sum();
        let mut channels = KINDS.map(|kind| Channel::open(&mut pair, kind, size));
        for (reads, bytes, wait) in writes {
            channels.iter_mut().for_each(|c| c.write(&mut pair, bytes));
            pair.run_until(MS(wait), |pair| {
                channels.iter_mut().filter(|_| reads).for_each(|c| c.read(pair));
                false
            });
        }
        let mut channels = channels.to_vec();
        if reset || stop {
            let given_up = channels.pop().expect("the object").id;
            if reset {
                pair.connection(Side::Client).reset_channel(given_up, 1.into());
            }
            if stop {
                pair.connection(Side::Server).end_recv(given_up);
            }
            pair.run_until(SECOND, |_| false);
            pair.connection(Side::Client).reset_channel(given_up, 1.into());
            pair.connection(Side::Server).end_recv(given_up);
        }
        let now = pair.now;
        pair.links.iter_mut().for_each(|l| l.set_config(now, lossy(0.02)));
        let done = pair.run_until(120 * SECOND, |pair| {
            channels.iter_mut().filter_map(|c| (!c.poll(pair)).then_some(())).count() == 0
        });
        prop_assert!(done, "{:?}", pair.connection(Side::Client).stats());
        for channel in &channels {
            channel.check(&pair, "plan");
            if reliability == Reliability::Reliable {
                prop_assert_eq!(channel.missing(), 0);
            }
        }
        pair.run_until(5 * SECOND, |_| false);
        prop_assert_eq!(pair.connection(Side::Server).credit_in_use(), 0);
        prop_assert_eq!(pair.connection(Side::Client).unacknowledged(), 0);
    }
}
