//! What holds for every discipline.

use std::collections::BTreeMap;

use super::*;
use crate::random::Random;

fn random_limit(random: &mut Random) -> Limit {
    match random.below(4) {
        0 => Limit::Unlimited,
        1 => Limit::Bytes(random.below(20_000)),
        _ => Limit::Packets(random.below(30) as usize),
    }
}

/// Follows every packet: the random operations of one seed on one discipline.
struct Ledger {
    queue: Queue<Parcel>,
    limit: Limit,
    inside: BTreeMap<u64, Parcel>,
    /// Latest packet out of each flow.
    latest: BTreeMap<u32, u64>,
    next_id: u64,
}

impl Ledger {
    fn offer(&mut self, now: Instant, rate: Option<Rate>, random: &mut Random) {
        let flow = random.below(6) as u32;
        let packet = Parcel {
            // A flow keeps its codepoint: DualPI2 has a queue for each kind.
            ecn: Ecn::from(flow as u8),
            ..parcel(
                self.next_id,
                flow,
                (random.below(3) * random.below(751)) as u32, // some are empty
            )
        };
        self.next_id += 1;
        self.inside.insert(packet.id, packet.clone());
        let inside = &mut self.inside;
        let mut dropped = |p: Parcel, _| assert!(inside.remove(&p.id).is_some());
        let item = queued(now, packet);
        if self.queue.is_empty() && random.chance(0.5) {
            let passed = self.queue.pass(now, rate, item, &mut dropped);
            self.leave(passed);
        } else {
            self.queue.enqueue(now, item, &mut dropped);
        }
        let (packets, bytes) = (self.queue.packets(), self.queue.bytes());
        assert!(self.limit.holds(packets, bytes));
    }

    fn take(&mut self, now: Instant, rate: Option<Rate>) {
        let inside = &mut self.inside;
        let mut dropped = |p: Parcel, _| assert!(inside.remove(&p.id).is_some());
        let item = self.queue.dequeue(now, rate, &mut dropped);
        assert!(item.is_some() || self.queue.is_empty(), "it is idle");
        self.leave(item);
    }

    fn leave(&mut self, item: Option<Queued<Parcel>>) {
        let Some(Queued { packet, .. }) = item else {
            return;
        };
        let known = self.inside.remove(&packet.id).expect("it went in");
        assert_eq!((known.flow, known.size), (packet.flow, packet.size));
        let before = self.latest.insert(packet.flow, packet.id);
        assert!(before.is_none_or(|id| id < packet.id), "overtaken");
    }

    fn check(&self) {
        assert_eq!(self.queue.packets(), self.inside.len());
        let bytes: u64 = self.inside.values().map(|p| u64::from(p.size)).sum();
        assert_eq!(self.queue.bytes(), bytes);
        for flow in 0..7 {
            let packets = self.inside.values().filter(|p| p.flow == flow).count();
            assert_eq!(self.queue.packets_of(FlowId(flow)), packets);
        }
    }
}

#[test]
fn packets_are_conserved_and_flows_stay_in_order() {
    for seed in 0..100 {
        for discipline in all_disciplines() {
            println!("seed {seed}, {discipline:?}");
            let mut random = Seed(seed).stream("operations");
            let limit = random_limit(&mut random);
            let mut ledger = Ledger {
                queue: queue(discipline, limit, seed),
                limit,
                inside: BTreeMap::new(),
                latest: BTreeMap::new(),
                next_id: 0,
            };
            let rates = [None, Some(1_000_000), Some(100_000_000)];
            let rate = rates[random.below(3) as usize].map(Rate::from_bps);
            let arrivals = 0.3 + 0.4 * random.next_f64();
            let mut now = Instant::ZERO;
            for _ in 0..600 {
                now += Duration::from_micros(random.below(4_000));
                if random.chance(arrivals) {
                    ledger.offer(now, rate, &mut random);
                } else {
                    ledger.take(now, rate);
                }
                ledger.check();
            }
            while !ledger.queue.is_empty() {
                ledger.take(now, rate);
            }
            ledger.check();
            assert!(ledger.inside.is_empty());
        }
    }
}

#[test]
fn without_a_buffer_packets_pass_or_are_dropped() {
    for limit in [Limit::Packets(0), Limit::Bytes(0)] {
        for discipline in all_disciplines() {
            let mut server = Server::new(queue(discipline, limit, 1), Rate::from_bps(8_000_000));
            // A millisecond each: every other one finds the transmitter busy.
            for n in 0..100 {
                server.arrive(at(n * 500_000), parcel(n, (n % 5) as u32, 1000));
                assert!(server.queue.is_empty());
            }
            server.run(at(u64::MAX));
            let sent: Vec<u64> = server.departed.iter().map(|(_, p)| p.id).collect();
            let expected: Vec<u64> = (0..100).step_by(2).collect();
            assert_eq!(sent, expected, "{discipline:?}");
            assert_eq!(server.dropped.len(), 50);
            assert!(server.dropped.iter().all(|d| d.2 == DropCause::Full));
        }
    }
}

#[test]
fn packet_larger_than_the_buffer_pushes_out_nobody() {
    for discipline in all_disciplines() {
        let mut queue = queue(discipline, Limit::Bytes(1000), 1);
        let mut dropped = Vec::new();
        for (id, size) in [(0, 400), (1, 400), (2, 1001)] {
            let item = queued(at(0), parcel(id, id as u32, size));
            queue.enqueue(at(0), item, &mut |p, cause| dropped.push((p.id, cause)));
        }
        assert_eq!(dropped, [(2, DropCause::Full)], "{discipline:?}");
    }
}

#[test]
fn smaller_limit_holds_from_the_next_arrival() {
    for discipline in all_disciplines() {
        let mut queue = queue(discipline, Limit::Packets(100), 1);
        let mut drops = 0;
        for id in 0..4 {
            let item = queued(at(0), parcel(id, id as u32, 1000));
            queue.enqueue(at(0), item, &mut |_, _| drops += 1);
        }
        queue.set_limit(Limit::Packets(3));
        assert_eq!((queue.packets(), drops), (4, 0));
        let item = queued(at(0), parcel(4, 4, 1000));
        queue.enqueue(at(0), item, &mut |_, _| drops += 1);
        assert_eq!(queue.packets() + drops, 5);
        assert!(queue.packets() <= 4, "{discipline:?}");
    }
}

#[test]
fn parameters_that_make_no_sense_are_named() {
    let validate = |discipline| {
        let limit = Limit::default();
        QueueConfig {
            discipline,
            limit,
            ..QueueConfig::default()
        }
        .validate()
    };
    for discipline in all_disciplines() {
        assert_eq!(validate(discipline), Ok(()));
    }
    let quantum = DrrConfig {
        quantum: 0,
        ..DrrConfig::default()
    };
    let zero = QueueConfigError::Zero { name: "quantum" };
    assert_eq!(validate(Discipline::Drr(quantum)), Err(zero));
    let thresholds = RedConfig {
        min_threshold: 20.0,
        ..RedConfig::default()
    };
    let error = validate(Discipline::Red(thresholds)).expect_err("above the other");
    assert_eq!(
        error.to_string(),
        "thresholds 20 and 15 packets are not 0 <= minimum < maximum"
    );
    let nan = RedConfig {
        weight: f64::NAN,
        ..RedConfig::default()
    };
    assert!(validate(Discipline::Red(nan)).is_err());
    let buckets = FqCoDelConfig {
        buckets: u32::MAX,
        ..FqCoDelConfig::default()
    };
    assert!(validate(Discipline::FqCoDel(buckets)).is_err());
}

/// Whatever the parameters, a queue neither panics nor loses a packet.
#[test]
fn parameters_out_of_range_are_harmless() {
    let none = Duration::ZERO;
    let ever = Duration::MAX;
    let codel = |target, interval| CoDelConfig {
        target,
        interval,
        ecn: true,
    };
    let disciplines = [
        Discipline::Drr(DrrConfig {
            quantum: 0,
            ..DrrConfig::default()
        }),
        Discipline::Sfq(SfqConfig {
            buckets: 0,
            quantum: 0,
            perturb: Some(none),
            ..SfqConfig::default()
        }),
        Discipline::Red(RedConfig {
            min_threshold: f64::NAN,
            max_threshold: f64::NEG_INFINITY,
            max_probability: f64::NAN,
            weight: f64::INFINITY,
            mean_packet: 0,
            ..RedConfig::default()
        }),
        Discipline::CoDel(codel(none, none)),
        Discipline::CoDel(codel(ever, ever)),
        Discipline::FqCoDel(FqCoDelConfig {
            codel: codel(none, ever),
            buckets: 0,
            quantum: 0,
        }),
        Discipline::Pie(PieConfig {
            target: none,
            update_interval: ever,
            max_burst: none,
            ecn: true,
        }),
        Discipline::DualPi2(DualPi2Config {
            target: ever,
            update_interval: ever,
            coupling: f64::NAN,
            l4s_threshold: none,
            l4s_range: none,
            classic_share: f64::NAN,
        }),
    ];
    for discipline in disciplines {
        let limit = Limit::Packets(10);
        let config = QueueConfig {
            discipline,
            limit,
            ..QueueConfig::default()
        };
        let mut queue = Queue::new(&config, Shares::equal(), Seed(1).stream("queue"));
        let (mut dropped, mut sent) = (0, 0);
        for n in 0..200 {
            let now = at(n * 1_000_000_000);
            let item = queued(now, parcel(n, n as u32 % 3, 100));
            queue.enqueue(now, item, &mut |_, _| dropped += 1);
            if n % 3 == 0 {
                let rate = Some(Rate::MAX);
                sent += usize::from(queue.dequeue(now, rate, &mut |_, _| dropped += 1).is_some());
            }
        }
        assert_eq!(sent + dropped + queue.packets(), 200, "{discipline:?}");
    }
}
