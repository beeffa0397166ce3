//! CoDel and FQ-CoDel against RFC 8289 and RFC 8290.

use super::*;

/// 1000 bytes take 1 ms.
const RATE: Rate = Rate::from_bps(8_000_000);

fn server(config: CoDelConfig) -> Server {
    let queue = queue(Discipline::CoDel(config), Limit::Unlimited, 1);
    Server::new(queue, RATE)
}

/// A burst of `packets` every `period`, with this codepoint.
fn bursts(server: &mut Server, packets: u64, period: Duration, ecn: Ecn) {
    let mut now = Instant::ZERO;
    for burst in 0..100 {
        for n in 0..packets {
            let packet = Parcel {
                ecn,
                ..parcel(burst * packets + n, 0, 1000)
            };
            server.arrive(now, packet);
        }
        now += period;
    }
    server.run(now);
}

/// RFC 8289 §5.3: the first drop comes an interval after the sojourn time passed the target, and
/// the `n`-th `interval / sqrt(n)` after the one before.
#[test]
fn drops_of_an_overload_follow_the_control_law() {
    let mut server = server(CoDelConfig::default());
    // Twice what the link carries, and deaf: the dropping state never ends.
    let source = Constant {
        flow: 0,
        size: 1000,
        every: Duration::from_micros(500),
    };
    feed(&mut server, &[source], at(3_000_000_000));
    let drops: Vec<f64> = server
        .dropped
        .iter()
        .map(|(time, _, cause)| {
            assert_eq!(*cause, DropCause::Early);
            time.as_nanos() as f64 * 1e-6
        })
        .collect();
    assert!(drops.len() > 200, "{} drops", drops.len());
    // The queue grows by half a millisecond in each: 5 ms of wait are passed at about 10 ms.
    let mut due = drops[0];
    assert!((109.0..=112.0).contains(&due), "first drop at {due} ms");
    for (n, drop) in (1..).zip(&drops[1..]) {
        due += 100.0 / f64::from(n).sqrt();
        // Packets leave every millisecond.
        assert!(
            (0.0..1.001).contains(&(drop - due)),
            "drop {n} at {drop}, due {due}"
        );
    }
}

/// RFC 8289 §5.4: a dropping state soon after another, within 16 intervals, takes up about the rate
/// of drops where that one ended; later it begins afresh.
#[test]
fn dropping_resumes_soon_after_but_not_later() {
    let overload = |server: &mut Server, start: u64| {
        for n in 0..1000 {
            server.arrive(at(start + n * 500_000), parcel(n, 0, 1000));
        }
        server.run(at(start + 1_500_000_000));
        assert!(server.queue.is_empty());
    };
    for (start, resumes) in [(2_000_000_000, true), (5_000_000_000, false)] {
        let mut server = server(CoDelConfig::default());
        overload(&mut server, 0);
        let first = server.dropped.len();
        assert!(first > 10, "{first} drops");
        overload(&mut server, start);
        let next: Vec<Instant> = server.dropped[first..].iter().map(|d| d.0).collect();
        let spacing = next[1].saturating_since(next[0]).as_nanos() as f64 * 1e-6;
        let count = if resumes { first as f64 - 1.0 } else { 1.0 };
        let expected = 100.0 / count.sqrt();
        assert!(
            (0.0..1.001).contains(&(spacing - expected)),
            "{spacing} ms, expected {expected}"
        );
    }
}

#[test]
fn queues_below_the_target_or_short_lived_are_left_alone() {
    for (packets, period) in [(5, ms(5)), (90, ms(100))] {
        let mut server = server(CoDelConfig::default());
        bursts(&mut server, packets, period, Ecn::NotEct);
        assert!(server.dropped.is_empty(), "bursts of {packets}");
        assert_eq!(server.departed.len() as u64, 100 * packets);
    }
}

/// The same queue, but standing: a window that is always full.
#[test]
fn standing_queue_is_dropped_from() {
    let mut server = server(CoDelConfig::default());
    for id in 0..20 {
        server.arrive(at(0), parcel(id, 0, 1000));
    }
    for millisecond in 1..=200 {
        server.arrive(at(millisecond * 1_000_000), parcel(0, 0, 1000));
    }
    assert!(!server.dropped.is_empty());
}

#[test]
fn capable_packets_are_marked_instead_of_dropped() {
    let config = CoDelConfig {
        ecn: true,
        ..CoDelConfig::default()
    };
    let overload = |ecn| {
        let mut server = server(config);
        bursts(&mut server, 40, ms(20), ecn);
        server
    };
    let capable = overload(Ecn::Ect0);
    assert!(capable.dropped.is_empty());
    let marks = capable.departed.iter().filter(|(_, p)| p.ecn == Ecn::Ce);
    assert_eq!(marks.count() as u64, capable.queue.marked());
    // As many signals as there would have been drops, by the same law.
    let drops = overload(Ecn::NotEct).dropped.len() as u64;
    assert!(drops > 50);
    assert!(capable.queue.marked().abs_diff(drops) <= drops / 10);
}

/// RFC 8290 §4.2: a queue that just became busy goes first, for one quantum; then it waits for
/// its turn like the others.
#[test]
fn new_flows_go_first_for_a_quantum() {
    let fq_codel = Discipline::FqCoDel(FqCoDelConfig::default());
    let mut queue = queue(fq_codel, Limit::Unlimited, 1);
    let mut dropped = |_, _| unreachable!("nothing waits that long");
    for id in 0..20 {
        queue.enqueue(at(0), queued(at(0), parcel(id, 0, 1514)), &mut dropped);
    }
    // Past its first quantum the bulk flow is old, and has no credits left after two packets.
    let mut take = |queue: &mut Queue<Parcel>| {
        let item = queue.dequeue(at(0), Some(RATE), &mut dropped);
        item.expect("packets wait").packet.flow
    };
    assert_eq!(take(&mut queue), 0);
    assert_eq!(take(&mut queue), 0);
    for id in 20..28 {
        let item = queued(at(0), parcel(id, 1, 757));
        queue.enqueue(at(0), item, &mut |_, _| ());
    }
    let order: Vec<u32> = (0..8).map(|_| take(&mut queue)).collect();
    // The second pair: the bulk flow got new credits, and for that goes to the end once more.
    assert_eq!(order, [1, 1, 1, 1, 0, 1, 1, 0]);
}

/// A flow that keeps its rate sees no queue beside one that does not.
#[test]
fn sparse_flow_does_not_wait_behind_bulk() {
    let fq_codel = Discipline::FqCoDel(FqCoDelConfig::default());
    let mut server = Server::new(queue(fq_codel, Limit::Packets(1000), 1), RATE);
    let sources = [
        Constant {
            flow: 0,
            size: 1000,
            every: Duration::from_micros(500),
        },
        Constant {
            flow: 1,
            size: 100,
            every: ms(7),
        },
    ];
    feed(&mut server, &sources, at(5_000_000_000));
    let sparse: Vec<_> = server.departed.iter().filter(|d| d.1.flow == 1).collect();
    assert!(sparse.len() >= 714);
    // At the start both flows are new.
    for (n, (left, _)) in (0..).zip(sparse).skip(1) {
        // At most the packet in the transmitter is ahead, and its own 0.1 ms.
        let delay = left.saturating_since(Instant::ZERO + ms(7) * n);
        assert!(delay <= Duration::from_micros(1_100), "{delay:?}");
    }
}
