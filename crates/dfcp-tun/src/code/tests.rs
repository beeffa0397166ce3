//! The code over simulated losses. Each failure names its seed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Decoder, Encoder, Path, max_piece};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn chance(&mut self, p: f64) -> bool {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64 > 1.0 - p
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A path that loses packets, in bursts of a mean length.
struct Link {
    random: Random,
    loss: f64,
    burst: f64,
    is_bad: bool,
    sent: u64,
    lost: u64,
}

impl Link {
    fn new(seed: u64, loss: f64, burst: f64) -> Self {
        Self {
            random: Random(seed),
            loss,
            burst,
            is_bad: false,
            sent: 0,
            lost: 0,
        }
    }

    fn loses(&mut self) -> bool {
        self.sent += 1;
        // Gilbert's chain: bad times last `burst` packets, and are `loss` of all.
        let leave = 1.0 / self.burst;
        let enter = self.loss * leave / (1.0 - self.loss);
        self.is_bad = match self.is_bad && self.burst > 1.0 {
            true => !self.random.chance(leave),
            false if self.burst > 1.0 => self.random.chance(enter),
            false => self.random.chance(self.loss),
        };
        self.lost += u64::from(self.is_bad);
        self.is_bad
    }

    fn path(&self, delay: Duration) -> Path {
        Path {
            loss: self.loss,
            burstiness: 2.0 * self.burst - 1.0,
            settled: self.sent,
            lost: self.lost,
            delay,
        }
    }
}

fn packet(number: u32, len: usize) -> Vec<u8> {
    let mut random = Random(u64::from(number));
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize_with(len.max(4), || random.next() as u8);
    bytes
}

/// What came of packets.
struct Outcome {
    /// Share that never arrived.
    residual: f64,
    /// Datagrams sent for each packet, less one.
    overhead: f64,
    decoder: Decoder,
}

/// Sends `count` packets, one each `gap`, over `link`; `most` is the size of datagrams.
fn carry(link: &mut Link, count: u32, gap: Duration, delay: Duration) -> Outcome {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let mut arrived = vec![false; count as usize];
    let mut datagrams = 0_u64;
    let mut transmit = |link: &mut Link, decoder: &mut Decoder, datagram: Vec<u8>| {
        datagrams += 1;
        if link.loses() {
            return;
        }
        decoder.handle(&datagram, &mut |bytes| {
            let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(bytes, packet(number, bytes.len()), "packet {number}");
            let first = !std::mem::replace(&mut arrived[number as usize], true);
            assert!(first, "{number} came twice");
        });
    };
    let mut lengths = Random(count.into());
    for number in 0..count {
        let now = gap * number;
        encoder.set_path(&link.path(delay));
        while let Some(at) = encoder.timeout().filter(|&at| at <= now) {
            while let Some(repair) = encoder.repair(at) {
                transmit(link, &mut decoder, repair);
            }
        }
        let len = 40 + lengths.below(1360) as usize;
        let mut out = Vec::new();
        assert!(
            encoder.push(now, &packet(number, len), 1441, &mut |datagram| out
                .push(datagram))
        );
        while let Some(repair) = encoder.repair(now) {
            out.push(repair);
        }
        out.into_iter()
            .for_each(|datagram| transmit(link, &mut decoder, datagram));
    }
    let end = gap * count + delay;
    while let Some(repair) = encoder.repair(end) {
        transmit(link, &mut decoder, repair);
    }
    let missing = arrived.iter().filter(|&&came| !came).count();
    Outcome {
        residual: missing as f64 / f64::from(count),
        overhead: datagrams as f64 / f64::from(count) - 1.0,
        decoder,
    }
}

#[test]
fn bulk_loses_next_to_nothing_at_little_cost() {
    for (seed, loss, most) in [
        (1, 0.05, 0.13),
        (2, 0.01, 0.05),
        (3, 0.1, 0.23),
        (4, 0.001, 0.02),
    ] {
        // 100 Mbit/s in packets of 1400 bytes, 50 ms.
        let gap = Duration::from_micros(112);
        let outcome = carry(&mut Link::new(seed, loss, 1.0), 100_000, gap, MS(50));
        let said = format!("seed {seed}: {} {}", outcome.residual, outcome.overhead);
        assert!(outcome.residual < 1e-4, "{said}");
        assert!(outcome.overhead < most, "{said}");
        assert_eq!(outcome.decoder.counts().malformed, 0, "{said}");
    }
}

#[test]
fn bursts_are_spanned() {
    let gap = Duration::from_micros(112);
    let outcome = carry(&mut Link::new(5, 0.02, 4.0), 100_000, gap, MS(50));
    assert!(outcome.residual < 1e-3, "{}", outcome.residual);
    assert!(outcome.overhead < 0.25, "{}", outcome.overhead);
}

#[test]
fn thin_flows_are_repaired_in_time() {
    for (seed, gap) in [(6, 20), (7, 1000)] {
        let outcome = carry(&mut Link::new(seed, 0.05, 1.0), 20_000, MS(gap), MS(50));
        assert!(outcome.residual < 4e-4, "seed {seed}: {}", outcome.residual);
        assert!(outcome.overhead < 3.1, "seed {seed}: {}", outcome.overhead);
    }
}

/// What a transport knows of a path: its estimate remembers a thousand packets, and what becomes of one is
/// known a round trip later.
struct Transport {
    round_trip: Duration,
    under_way: VecDeque<(Duration, bool)>,
    /// Weighted by their age.
    packets: f64,
    missing: f64,
    settled: u64,
    lost: u64,
}

impl Transport {
    fn new(round_trip: Duration) -> Self {
        Self {
            round_trip,
            under_way: VecDeque::new(),
            packets: 1.0,
            missing: 0.0,
            settled: 0,
            lost: 0,
        }
    }

    fn path(&mut self, now: Duration) -> Path {
        while let Some(&(at, is_lost)) = self.under_way.front()
            && at + self.round_trip <= now
        {
            self.under_way.pop_front();
            let (keep, lost) = (1.0 - 1e-3, u64::from(is_lost));
            self.packets = self.packets * keep + 1.0;
            self.missing = self.missing * keep + lost as f64;
            self.settled += 1;
            self.lost += lost;
        }
        Path {
            loss: self.missing / self.packets,
            burstiness: 1.0,
            settled: self.settled,
            lost: self.lost,
            delay: self.round_trip,
        }
    }
}

/// A flow of `rate` small packets a second over a path of 50 ms that has lost nothing for long, and then
/// loses the share `loss` for `seconds`: of that time the share of packets that did not come within 50 ms, and
/// datagrams for each packet less one.
fn begins_to_lose(seed: u64, rate: u32, loss: f64, seconds: u32) -> (f64, f64) {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let mut transport = Transport::new(MS(50));
    let mut link = Link::new(seed, loss, 1.0);
    let gap = Duration::from_secs(1) / rate;
    let clean = 40_000;
    let (mut came, mut sent) = (BTreeMap::new(), 0_u64);
    for number in 0..clean + rate * seconds {
        let now = gap * number;
        let begin = gap * clean;
        let mut transmit = |at: Duration, datagram: Vec<u8>, transport: &mut Transport| {
            let is_lost = at >= begin && link.loses();
            transport.under_way.push_back((at, is_lost));
            sent += u64::from(at >= begin);
            if !is_lost {
                decoder.handle(&datagram, &mut |bytes| {
                    let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                    came.insert(number, at);
                });
            }
        };
        while let Some(at) = encoder.timeout().filter(|&at| at <= now) {
            encoder.set_path(&transport.path(at));
            while let Some(repair) = encoder.repair(at) {
                transmit(at, repair, &mut transport);
            }
        }
        encoder.set_path(&transport.path(now));
        let mut out = Vec::new();
        assert!(encoder.push(now, &packet(number, 160), 1441, &mut |d| out.push(d)));
        out.extend(std::iter::from_fn(|| encoder.repair(now)));
        for datagram in out {
            transmit(now, datagram, &mut transport);
        }
        // One that a chain of repair symbols brings later is of no use either.
        came.retain(|number, at| *number >= clean && *at <= gap * *number + MS(50));
    }
    let count = f64::from(rate * seconds);
    let missing = count - came.len() as f64;
    (missing / count, sent as f64 / count - 1.0)
}

/// What this guards is that repair symbols are back with the first losses after a time without any, and soon as
/// many as are needed, although the transport's estimate is slow. Here each datagram is lost by itself: it would
/// not notice if repair symbols shared a packet with what they repair and were lost with it, as they once were.
/// The packets are the transport's, and so is the test of that (`Datagram::apart`).
#[test]
fn thin_flows_are_soon_repaired_when_their_path_begins_to_lose() {
    for (seed, rate) in [(21, 5), (22, 50), (23, 500), (32, 500)] {
        for loss in [0.01, 0.05, 0.2] {
            let (missing, overhead) = begins_to_lose(seed, rate, loss, 30);
            let said = format!("seed {seed}: {rate}/s, {loss}: {missing} {overhead}");
            println!("{said}");
            // What is lost in the first two round trips of 30 s, one until the sender hears of it and one until
            // it has heard enough, and two packets more.
            let most = loss * 2.0 * 0.05 / 30.0 + 2.0 / f64::from(rate * 30);
            assert!(missing < most, "{said}");
        }
    }
}

#[test]
fn a_path_that_loses_nothing_soon_costs_nothing() {
    let gap = Duration::from_micros(112);
    let begin = carry(&mut Link::new(8, 0.0, 1.0), 29_000, gap, MS(50));
    assert_eq!(begin.residual, 0.0);
    assert!(begin.overhead < 0.015, "{}", begin.overhead);
    let all = carry(&mut Link::new(8, 0.0, 1.0), 90_000, gap, MS(50));
    assert!(
        all.overhead < begin.overhead / 2.9,
        "{} {}",
        begin.overhead,
        all.overhead
    );
}

/// Losses, reordering, doubles and packets in two parts, across the wrap of numbers.
#[test]
fn whatever_the_path_does_packets_come_once_and_right() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let start = u32::MAX - 300;
        let (mut encoder, mut decoder) = (Encoder::beginning(start), Decoder::beginning(start));
        let loss = random.below(40) as f64 / 100.0;
        let (mut link, mut held) = (Link::new(seed, loss, 1.0), VecDeque::new());
        let mut count = std::collections::BTreeMap::new();
        for number in 0..2000_u32 {
            let now = Duration::from_micros(100) * number;
            encoder.set_path(&link.path(MS(20)));
            let most = 600 + random.below(900) as usize;
            let len = 4 + random.below(2 * max_piece(most) as u64 - 4) as usize;
            let datagrams = &mut held;
            let taken = encoder.push(now, &packet(number, len), most, &mut |d| {
                assert!(d.len() <= most);
                datagrams.push_back(d);
            });
            assert!(taken);
            held.extend(std::iter::from_fn(|| encoder.repair(now)));
            while held.len() > 8 {
                let next = held.remove(random.below(8) as usize).unwrap();
                let times = if link.loses() {
                    0
                } else {
                    1 + u64::from(random.chance(0.05))
                };
                for _ in 0..times {
                    decoder.handle(&next, &mut |bytes| {
                        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                        assert_eq!(bytes, packet(number, bytes.len()), "seed {seed}");
                        *count.entry(number).or_insert(0) += 1;
                    });
                }
            }
        }
        assert!(count.values().all(|&times| times == 1), "seed {seed}");
        assert!(
            count.len() > 1900,
            "seed {seed}: loss {loss}, {} came",
            count.len()
        );
        assert_eq!(decoder.counts().malformed, 0, "seed {seed}");
    }
}

#[test]
fn packets_that_two_datagrams_do_not_hold_are_refused() {
    let mut encoder = Encoder::default();
    let none = &mut |_: Vec<u8>| panic!("nothing fits");
    assert!(!encoder.push(MS(0), &[1; 2 * (1171 - 11) + 1], 1171, none));
    assert!(!encoder.push(MS(0), &[1], 11, none));
    let mut sizes = Vec::new();
    assert!(encoder.push(MS(0), &[1; 1280], 1171, &mut |d| sizes.push(d.len())));
    assert_eq!(sizes, [645, 645]);
}

/// Any bytes, and repair symbols that were never made of anything: no panic, bounded rows.
#[test]
fn hostile_datagrams_do_no_harm() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut decoder = Decoder::default();
        for _ in 0..300 {
            let kind = random.below(5) as u8;
            let near = random.chance(0.9);
            let number = if near {
                random.below(600) as u32
            } else {
                random.next() as u32
            };
            let mut datagram = vec![kind];
            datagram.extend_from_slice(&number.to_be_bytes());
            let len = if near {
                4 + random.below(60)
            } else {
                random.below(1700)
            };
            datagram.resize_with(5 + len as usize, || random.next() as u8);
            decoder.handle(&datagram[..], &mut |packet| assert!(packet.len() <= 3072));
        }
        assert!(decoder.waiting() <= 128, "seed {seed}");
    }
}
