//! The numbers expected of a link, computed by hand.

use super::*;
use crate::packet::Ecn;
use crate::queue::Limit;
use std::collections::BTreeSet;

mod limits;
mod loss;
mod outages;

const MBIT: u64 = 1_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn rate(bps: u64) -> LinkRate {
    Rate::from_bps(bps).into()
}

/// Packets of `size` bytes on the link (28 of them framing), tagged from zero.
fn packet(tag: u64, size: usize) -> Datagram {
    Datagram {
        tag,
        ..Datagram::new(vec![0; size - 28])
    }
}

fn drain(link: &mut Link<Datagram>) -> Vec<(Instant, Datagram)> {
    let end = at(u64::MAX / 2);
    std::iter::from_fn(|| link.poll_timed(end)).collect()
}

fn tags(delivered: &[(Instant, Datagram)]) -> Vec<u64> {
    delivered.iter().map(|(_, p)| p.tag).collect()
}

#[test]
fn default_link_delivers_at_once() {
    let mut link = Link::new(LinkConfig::default(), 1);
    link.send(at(5), packet(0, 100));
    assert_eq!(link.poll_at(), Some(at(5)));
    assert_eq!(link.poll_timed(at(5)), Some((at(5), packet(0, 100))));
    assert_eq!(link.poll_at(), None);
}

#[test]
fn packets_leave_at_the_rate_after_the_delay() {
    let config = LinkConfig {
        rate: rate(100 * MBIT),
        delay: ms(30),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    for tag in 0..3 {
        link.send(at(0), packet(tag, 1500));
    }
    // 1500 bytes at 100 Mbit/s are 120 µs.
    assert_eq!(link.poll_at(), Some(at(30_120_000)));
    assert_eq!(link.queue_delay(at(0)), Duration::from_micros(360));
    assert!(link.poll(at(30_119_999)).is_none());
    let times: Vec<_> = drain(&mut link).iter().map(|d| d.0.as_nanos()).collect();
    assert_eq!(times, [30_120_000, 30_240_000, 30_360_000]);
    assert_eq!(link.stats().sojourn_max(), Duration::from_micros(240));
    assert_eq!(link.stats().sojourn_mean(), Duration::from_micros(120));
}

#[test]
fn rounding_does_not_accumulate() {
    // 7 Gbit/s: 1500 bytes take 1714 2/7 ns.
    let config = LinkConfig {
        rate: rate(7000 * MBIT),
        queue: Limit::Unlimited.into(),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    for tag in 0..70_000 {
        link.send(at(0), packet(tag, 1500));
    }
    let last = drain(&mut link).last().map(|d| d.0);
    assert_eq!(last, Some(at(120_000_000)));
}

#[test]
fn full_queue_drops_the_tail() {
    for (queue, room) in [
        (Limit::Packets(10), 10),
        (Limit::Bytes(10 * 1500 + 1499), 10),
        (Limit::Packets(0), 0),
    ] {
        let config = LinkConfig {
            rate: rate(MBIT),
            queue: queue.into(),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        for tag in 0..20 {
            link.send(at(0), packet(tag, 1500));
        }
        // One in the transmitter, `room` behind it.
        assert_eq!(tags(&drain(&mut link)), Vec::from_iter(0..=room));
        let stats = link.stats();
        assert_eq!(stats.drops.full, 19 - room);
        assert_eq!(stats.queue_peak_bytes, room * 1500);
        assert_eq!(stats.packets_in, 20);
    }
}

#[test]
fn losses_are_independent_and_cost_their_share() {
    let (n, p) = (100_000_u64, 0.05);
    let config = LinkConfig {
        rate: rate(100 * MBIT),
        queue: Limit::Unlimited.into(),
        loss: p.into(),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 3);
    for tag in 0..n {
        link.send(at(0), packet(tag, 1500));
    }
    let delivered = drain(&mut link);
    let lost = link.stats().drops.loss;
    assert_eq!(delivered.len() as u64 + lost, n);
    // Five standard deviations of the binomial distribution.
    let bound = 5.0 * (n as f64 * p * (1.0 - p)).sqrt();
    assert!((lost as f64 - n as f64 * p).abs() < bound, "{lost} lost");
    // Runs of losses are as rare as independence says: p² of the pairs.
    let pairs = delivered
        .windows(2)
        .filter(|w| w[1].1.tag - w[0].1.tag == 3)
        .count();
    let expected = n as f64 * p * p * (1.0 - p) * (1.0 - p);
    assert!((pairs as f64 - expected).abs() < 5.0 * expected.sqrt());
    // Survivors keep the times that they would have had without loss.
    for (time, p) in delivered {
        assert_eq!(time, at((p.tag + 1) * 120_000));
    }
}

#[test]
fn jitter_changes_the_order_only_if_it_may() {
    let order = |jitter_order| {
        let mut link = Link::new(
            LinkConfig {
                rate: rate(50 * MBIT),
                jitter: ms(3).into(),
                jitter_order,
                ..LinkConfig::default()
            },
            11,
        );
        (0..500).for_each(|tag| link.send(at(tag * 500_000), packet(tag, 1500)));
        drain(&mut link)
    };
    let (free, kept) = (order(PacketOrder::Free), order(PacketOrder::Kept));
    assert!(!tags(&free).is_sorted());
    assert!(tags(&kept).is_sorted());
    let pairs = kept.windows(2);
    let gaps: BTreeSet<_> = pairs.map(|w| w[1].0.saturating_since(w[0].0)).collect();
    assert!(gaps.len() > 100, "delays are random still");
}

/// A link with every impairment, driven by arrivals of varying spacing.
fn impaired(seed: u64, poll_every: Option<u64>) -> Vec<(Instant, Datagram)> {
    let config = LinkConfig {
        rate: rate(50 * MBIT),
        delay: ms(3),
        queue: Limit::Packets(20).into(),
        loss: 0.1.into(),
        jitter: ms(1).into(),
        reorder: 0.05,
        reorder_delay: ms(2),
        duplicate: 0.05,
        corrupt: 0.05,
        ecn_threshold: Some(ms(1)),
        ..LinkConfig::default()
    };
    let mut faster = config.clone();
    faster.rate = rate(80 * MBIT);
    let mut link = Link::new(config, seed);
    let (mut delivered, mut polled) = (Vec::new(), 0);
    for i in 0..2000_u64 {
        let now = i * 97_001 + (i % 7) * 300_000;
        let now = now.max((i / 7 * 7 + 6) * 97_001);
        if let Some(step) = poll_every {
            while polled + step <= now {
                polled += step;
                delivered.extend(std::iter::from_fn(|| link.poll_timed(at(polled))));
            }
        }
        let mut p = packet(i, 100 + (i as usize * 31) % 1400);
        p.ecn = ((i % 4) as u8).into();
        link.send(at(now), p);
        if i == 1000 {
            link.set_config(at(now + 10), faster.clone());
        }
    }
    delivered.extend(drain(&mut link));
    delivered
}

#[test]
fn polling_does_not_change_what_happens() {
    let never = impaired(9, None);
    assert!(never.len() > 1000);
    assert!(never.is_sorted_by_key(|d| d.0));
    for step in [1_000, 33_333, 5_000_000] {
        assert_eq!(impaired(9, Some(step)), never, "polled every {step} ns");
    }
    assert_ne!(impaired(10, None), never);
}

#[test]
fn poll_at_is_never_late() {
    let config = LinkConfig {
        rate: rate(MBIT),
        delay: ms(20),
        loss: 0.3.into(),
        jitter: ms(30).into(),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 4);
    let mut delivered = 0;
    let mut run_until = |link: &mut Link<Datagram>, end: Instant| {
        while let Some(wake) = link.poll_at().filter(|&wake| wake <= end) {
            while let Some((time, _)) = link.poll_timed(wake) {
                assert_eq!(time, wake);
                delivered += 1;
            }
        }
    };
    for tag in 0..200 {
        let now = at(tag * 1_000_000);
        run_until(&mut link, now);
        link.send(now, packet(tag, 1500));
    }
    run_until(&mut link, at(u64::MAX));
    assert_eq!(delivered, link.stats().delivered);
    assert_eq!(delivered + link.stats().drops.loss, 200);
}

#[test]
fn held_back_packets_are_overtaken() {
    let config = LinkConfig {
        reorder: 0.1,
        reorder_delay: ms(5),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 5);
    for tag in 0..1000 {
        link.send(at(tag * 1_000_000), packet(tag, 1500));
    }
    let delivered = drain(&mut link);
    assert_eq!(delivered.len(), 1000);
    assert!(!tags(&delivered).is_sorted());
    assert!((50..150).contains(&link.stats().held_back));
    for (time, p) in delivered {
        let late = time.as_nanos() - p.tag * 1_000_000;
        assert!(late == 0 || late == 5_000_000);
    }
}

#[test]
fn duplicates_and_corruption_are_counted() {
    let config = LinkConfig {
        duplicate: 1.0,
        corrupt: 1.0,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 6);
    link.send(at(0), packet(0, 128));
    link.send(at(0), packet(1, 28)); // nothing to corrupt
    let delivered = drain(&mut link);
    assert_eq!(tags(&delivered), [0, 0, 1, 1]);
    for (_, p) in &delivered[..2] {
        let flipped: u32 = p.data.iter().map(|b| b.count_ones()).sum();
        assert_eq!(flipped, 1);
    }
    let stats = link.stats();
    assert_eq!((stats.duplicated, stats.corrupted), (2, 2));
    assert_eq!((stats.delivered, stats.delivered_bytes), (4, 2 * 156));
}

#[test]
fn long_waits_mark_capable_packets() {
    let config = LinkConfig {
        rate: rate(12 * MBIT), // 1500 bytes in 1 ms
        ecn_threshold: Some(ms(2)),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    for tag in 0..8 {
        let ecn = Ecn::from(tag as u8);
        let p = packet(tag, 1500);
        link.send(at(0), Datagram { ecn, ..p });
    }
    // Datagram n waits n ms: marked are those that wait longer than 2 ms and are capable.
    let codepoints: Vec<_> = drain(&mut link).iter().map(|d| d.1.ecn as u8).collect();
    assert_eq!(codepoints, [0, 1, 2, 3, 0, 3, 3, 3]);
    assert_eq!(link.stats().marked, 4);
}

#[test]
fn rate_changes_in_the_middle_of_a_packet() {
    let with_rate = |bps| LinkConfig {
        rate: rate(bps),
        ..LinkConfig::default()
    };
    let mut link = Link::new(with_rate(12 * MBIT), 1); // 1500 bytes in 1 ms
    link.send(at(0), packet(0, 1500));
    link.send(at(0), packet(1, 1500));
    // Half of packet 0 takes 0.5 ms, the other half 0.25 ms at twice the rate.
    link.set_config(at(500_000), with_rate(24 * MBIT));
    assert_eq!(link.queue_delay(at(500_000)), Duration::from_micros(750));
    // The rate stops at 1 ms, with half of packet 1 sent, and comes back at 5 ms.
    link.set_config(at(1_000_000), with_rate(0));
    assert_eq!(link.poll_at(), Some(at(750_000)));
    link.set_config(at(5_000_000), with_rate(12 * MBIT));
    let times: Vec<_> = drain(&mut link).iter().map(|d| d.0.as_nanos()).collect();
    assert_eq!(times, [750_000, 5_500_000]);
}

#[test]
fn blackout_loses_everything_until_it_ends() {
    let clear = LinkConfig::default();
    let blackout = LinkConfig {
        loss: 1.0.into(),
        ..LinkConfig::default()
    };
    let mut link = Link::new(clear.clone(), 1);
    link.send(at(0), packet(0, 100));
    link.set_config(at(1), blackout);
    link.send(at(2), packet(1, 100));
    link.set_config(at(3), clear);
    link.send(at(4), packet(2, 100));
    assert_eq!(tags(&drain(&mut link)), [0, 2]);
}

#[test]
fn time_does_not_go_back() {
    let mut link = Link::new(LinkConfig::default(), 1);
    link.send(at(10), packet(0, 100));
    link.send(at(3), packet(1, 100));
    let delivered = drain(&mut link);
    assert_eq!(tags(&delivered), [0, 1]);
    assert_eq!(delivered[1].0, at(10));
}

#[test]
fn nonsense_is_reported_and_survived() {
    let nonsense = LinkConfig {
        rate: rate(0),
        loss: f64::NAN.into(),
        jitter: Duration::MAX.into(),
        delay: Duration::MAX,
        queue: Limit::Bytes(u64::MAX).into(),
        ..LinkConfig::default()
    };
    assert_eq!(nonsense.validate(), Err(LinkConfigError::ZeroRate));
    let mut link = Link::new(nonsense.clone(), 1);
    link.send(at(u64::MAX), packet(0, 100));
    link.send(at(u64::MAX), packet(1, 100));
    link.poll(at(u64::MAX));
    link.queue_delay(at(0));

    let loss = |loss: f64| LinkConfig {
        loss: LossModel::from(loss),
        ..LinkConfig::default()
    };
    assert!(loss(f64::NAN).validate().is_err());
    assert!(loss(1.5).validate().is_err());
    assert!(loss(-0.1).validate().is_err());
    assert_eq!(loss(1.0).validate(), Ok(()));
}
