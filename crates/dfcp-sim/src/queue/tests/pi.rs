//! PIE and DualPI2 against RFC 8033 and RFC 9332.

use super::*;

/// 1000 bytes take 1 ms.
const RATE: Rate = Rate::from_bps(8_000_000);

fn capable(packet: Parcel, ecn: Ecn) -> Parcel {
    Parcel { ecn, ..packet }
}

/// A source of 1000-byte packets that does not respond.
#[derive(Clone, Copy)]
struct Deaf {
    flow: u32,
    ecn: Ecn,
    every: Duration,
}

/// Feeds a queue for `seconds`; packets of the second half only stay on record.
fn feed(discipline: Discipline, sources: &[Deaf], seconds: u64) -> Server {
    let mut server = Server::new(queue(discipline, Limit::Packets(2000), 1), RATE);
    let end = at(seconds * 1_000_000_000);
    let mut next: Vec<Instant> = vec![Instant::ZERO; sources.len()];
    let mut halved = false;
    for id in 0.. {
        let first = (0..sources.len()).min_by_key(|&i| next[i]);
        let i = first.expect("a source at least");
        if next[i] >= end {
            break;
        }
        if !halved && next[i] >= at(seconds * 500_000_000) {
            halved = true;
            server.departed.clear();
            server.dropped.clear();
        }
        let source = sources[i];
        server.arrive(next[i], capable(parcel(id, source.flow, 1000), source.ecn));
        next[i] += source.every;
    }
    server
}

/// Share of a flow's packets that were dropped, and of those that left marked.
fn signals(server: &Server, flow: u32) -> (f64, f64) {
    let left = server.departed.iter().filter(|(_, p)| p.flow == flow);
    let marked = left.clone().filter(|(_, p)| p.ecn == Ecn::Ce).count() as f64;
    let left = left.count() as f64;
    let dropped = server.dropped.iter().filter(|(_, p, _)| p.flow == flow);
    let dropped = dropped.count() as f64;
    (dropped / (left + dropped), marked / left)
}

fn pie() -> Discipline {
    Discipline::Pie(PieConfig::default())
}

fn dual() -> Discipline {
    Discipline::DualPi2(DualPi2Config::default())
}

fn near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance
}

/// A source a tenth above the link's rate: a controller with an integral term settles where just
/// the excess is dropped, with the queue at its target.
#[test]
fn excess_of_a_deaf_source_is_dropped_and_the_delay_is_the_target() {
    let source = Deaf {
        flow: 0,
        ecn: Ecn::NotEct,
        every: Duration::from_nanos(909_091),
    };
    for discipline in [pie(), dual()] {
        let server = feed(discipline, &[source], 200);
        let (dropped, _) = signals(&server, 0);
        assert!(
            near(dropped, 1.0 / 11.0, 0.005),
            "{discipline:?}: {dropped}"
        );
        assert!(server.dropped.iter().all(|d| d.2 == DropCause::Early));
        let packets = server.queue.packets() as f64;
        assert!(near(packets, 15.0, 8.0), "{discipline:?}: {packets} ms");
    }
}

/// RFC 8033 §4.4: what follows calm is let through for 150 ms.
#[test]
fn pie_lets_a_burst_through_but_not_a_standing_queue() {
    let mut server = Server::new(queue(pie(), Limit::Unlimited, 1), RATE);
    for id in 0..100 {
        server.arrive(at(0), parcel(id, 0, 1000));
    }
    server.run(at(1_000_000_000));
    assert_eq!((server.departed.len(), server.dropped.len()), (100, 0));
    // 60 ms of queue, which every further packet keeps.
    for id in 0..60 {
        server.arrive(at(1_000_000_000), parcel(id, 0, 1000));
    }
    for millisecond in 1001..3000 {
        server.arrive(at(millisecond * 1_000_000), parcel(0, 0, 1000));
    }
    assert!(!server.dropped.is_empty());
}

/// RFC 8033 §5.1: below a probability of a tenth capable packets are marked, above it dropped.
#[test]
fn pie_marks_while_the_probability_is_low() {
    let config = PieConfig {
        ecn: true,
        ..PieConfig::default()
    };
    let mut server = Server::new(queue(Discipline::Pie(config), Limit::Unlimited, 1), RATE);
    // A queue that stands at 30 ms whatever is marked: the probability rises through a tenth.
    for id in 0..30 {
        server.arrive(at(0), capable(parcel(id, 0, 1000), Ecn::Ect0));
    }
    let mut millisecond = 0;
    while server.dropped.is_empty() && millisecond < 100_000 {
        millisecond += 1;
        let now = at(millisecond * 1_000_000);
        server.arrive(now, capable(parcel(millisecond, 0, 1000), Ecn::Ect0));
    }
    assert!(
        server.queue.marked() > 10,
        "{} marks",
        server.queue.marked()
    );
    assert_eq!(server.dropped.len(), 1);
}

/// RFC 9332 §2.4: what low-latency packets are marked with is k times the square root of what
/// classic ones are dropped with.
#[test]
fn dual_pi2_couples_marks_to_the_square_root_of_drops() {
    let classic = Deaf {
        flow: 0,
        ecn: Ecn::NotEct,
        every: Duration::from_nanos(990_099),
    };
    let low_latency = Deaf {
        flow: 1,
        ecn: Ecn::Ect1,
        every: Duration::from_millis(29),
    };
    let server = feed(dual(), &[classic, low_latency], 400);
    let (dropped, _) = signals(&server, 0);
    let (lost, marked) = signals(&server, 1);
    assert!(near(dropped, 0.044, 0.01), "{dropped}");
    assert_eq!(lost, 0.0);
    let coupled = 2.0 * dropped.sqrt();
    assert!(near(marked, coupled, 0.02), "{marked} instead of {coupled}");
}

/// A packet that carries ECT(1) waits for the one in the transmitter, not for the classic queue.
#[test]
fn low_latency_packets_pass_the_classic_queue() {
    let mut server = Server::new(queue(dual(), Limit::Unlimited, 1), RATE);
    for id in 0..20 {
        server.arrive(at(0), capable(parcel(id, 0, 1000), Ecn::Ect0));
    }
    server.arrive(at(100_000), capable(parcel(20, 1, 1000), Ecn::Ect1));
    server.run(at(10_000_000));
    assert_eq!(server.departed[1].1.flow, 1);
    assert_eq!(server.departed[1].0, at(2_000_000));
    assert_eq!(server.departed[1].1.ecn, Ecn::Ect1);
}

/// RFC 9332 §A.1: no mark below 0.8 ms of delay, every packet above 1.2 ms, in between by the ramp.
#[test]
fn low_latency_queue_marks_by_its_own_ramp() {
    for (ahead, share) in [(700, 0.0), (1000, 0.5), (1300, 1.0)] {
        let mut marks = 0;
        let mut queue = queue(dual(), Limit::Unlimited, 1);
        for n in 0..200 {
            let (came, now) = (at(n * 10_000_000), at(n * 10_000_000 + ahead * 1000));
            for id in [2 * n, 2 * n + 1] {
                let packet = capable(parcel(id, 0, 1000), Ecn::Ect1);
                queue.enqueue(came, queued(came, packet), &mut |_, _| ());
            }
            // The second has nobody behind it, so it is left alone.
            for _ in 0..2 {
                let item = queue.dequeue(now, Some(RATE), &mut |_, _| ());
                marks += u32::from(item.expect("two wait").packet.ecn == Ecn::Ce);
            }
        }
        assert!(
            near(f64::from(marks) / 200.0, share, 0.01),
            "{marks} at {ahead} us"
        );
    }
}

/// RFC 9332 §4.2: low-latency packets that do not respond are dropped like all others, and the
/// classic queue keeps its share.
#[test]
fn overload_by_low_latency_packets_is_dropped_and_starves_nobody() {
    let flood = Deaf {
        flow: 1,
        ecn: Ecn::Ect1,
        every: Duration::from_micros(500),
    };
    let classic = Deaf {
        flow: 0,
        ecn: Ecn::Ect0,
        every: Duration::from_millis(20),
    };
    let server = feed(dual(), &[classic, flood], 60);
    let (lost, marked) = signals(&server, 1);
    assert!(near(lost, 0.5, 0.1), "{lost}");
    assert!(marked > 0.99, "{marked}");
    // 5 % of the rate are below its tenth: what the controller drops is all it loses.
    let (dropped, _) = signals(&server, 0);
    assert!(near(dropped, lost, 0.1), "{dropped}");
    assert!(server.queue.packets_of(FlowId(0)) <= 3);
}
