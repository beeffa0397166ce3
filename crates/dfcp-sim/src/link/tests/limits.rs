//! Policers, shapers, grants, and delays that change.

use super::*;

/// A packet of 1500 bytes a millisecond.
const RATE: u64 = 12 * MBIT;

fn unlimited_queue() -> LinkConfig {
    LinkConfig {
        queue: Limit::Unlimited.into(),
        ..LinkConfig::default()
    }
}

fn bucket(packets: u64) -> Option<TokenBucket> {
    Some(TokenBucket {
        rate: Rate::from_bps(RATE),
        burst: packets * 1500,
    })
}

/// Sends a packet every `gap` µs and says when they leave, in µs.
fn run(link: &mut Link<Datagram>, packets: u64, gap: u64) -> Vec<u64> {
    (0..packets).for_each(|tag| link.send(at(tag * gap * 1000), packet(tag, 1500)));
    let delivered = drain(link);
    delivered.iter().map(|d| d.0.as_nanos() / 1000).collect()
}

#[test]
fn a_policer_drops_what_exceeds_burst_and_rate() {
    let config = LinkConfig {
        policer: bucket(20),
        ..unlimited_queue()
    };
    let mut link = Link::new(config, 1);
    // Twice the rate: the burst lasts 40 packets, then every other one passes.
    let times = run(&mut link, 10_000, 500);
    let expected = 5000 + 20;
    assert!(
        (times.len() as i64 - expected).abs() <= 1,
        "{}",
        times.len()
    );
    assert_eq!(
        times[..39],
        std::array::from_fn::<_, 39, _>(|n| n as u64 * 500)
    );
    let stats = link.stats();
    assert_eq!(stats.drops.policed, stats.drops.total());
    assert_eq!(stats.drops.policed + times.len() as u64, 10_000);
    // Who keeps to the rate loses nothing.
    let config = link.config().clone();
    let mut link = Link::new(config, 1);
    assert_eq!(run(&mut link, 1000, 1000).len(), 1000);
}

#[test]
fn a_shaper_lets_a_burst_pass_at_line_rate_and_queues_the_rest() {
    let config = LinkConfig {
        rate: rate(10 * RATE),
        shaper: bucket(20),
        ..unlimited_queue()
    };
    let mut link = Link::new(config.clone(), 1);
    assert_eq!(link.rate(), Some(Rate::from_bps(RATE)));
    let times = run(&mut link, 100, 0);
    // 20 of 100 µs each, in which two more have come.
    let gaps: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(gaps[..21], [100; 21]);
    assert_eq!(gaps[23..], [1000; 76]);
    assert_eq!(times.last(), Some(&(80_000 - 1000 + 1000 + 100)));
    assert_eq!(link.stats().drops.total(), 0);
    // Only so many wait.
    let short = LinkConfig {
        queue: Limit::Packets(10).into(),
        ..config
    };
    let mut link = Link::new(short, 1);
    let passed = run(&mut link, 10_000, 500).len() as i64;
    assert!((passed - 5030).abs() <= 3, "{passed}");
    assert_eq!(link.stats().drops.full + passed as u64, 10_000);
}

#[test]
fn a_shaper_goes_on_through_changes() {
    let config = LinkConfig {
        rate: rate(10 * RATE),
        shaper: bucket(1),
        ..unlimited_queue()
    };
    let mut link = Link::new(config.clone(), 1);
    (0..5).for_each(|tag| link.send(at(0), packet(tag, 1500)));
    // The second packet waits for its tokens then.
    let other = LinkConfig {
        delay: ms(1),
        ..config.clone()
    };
    link.set_config(at(500_000), other);
    link.set_config(at(2_500_000), config);
    let times: Vec<_> = drain(&mut link).iter().map(|d| d.0.as_nanos()).collect();
    assert_eq!(times, [100_000, 2_100_000, 3_100_000, 3_100_000, 4_100_000]);
}

fn grants(every: u64, packets: Option<u32>, bps: Option<u64>) -> LinkConfig {
    LinkConfig {
        rate: bps.map_or(LinkRate::Unlimited, rate),
        grants: Some(Grants {
            every: ms(every),
            packets,
            bytes: None,
        }),
        ..unlimited_queue()
    }
}

#[test]
fn packets_leave_in_bunches_at_the_rate_and_within_the_grant() {
    // Five packets a millisecond wait; the rate allows 4 in 4 ms, or the grant 3.
    for (bps, most, each) in [
        (Some(RATE), None, 4),
        (Some(RATE), Some(3), 3),
        (None, Some(7), 7),
    ] {
        let mut link = Link::new(grants(4, most, bps), 1);
        let times = run(&mut link, 4000, 200);
        assert!(times.iter().all(|t| t % 4000 == 0));
        let at = |time| times.iter().filter(|t| **t == time).count();
        assert!((2..100).all(|n| at(n * 4000) == each), "{bps:?}, {most:?}");
    }
    // In the long run the rate is exact, also where a grant is no whole number of packets.
    for (every, bps) in [(4, 11 * MBIT), (1, 5 * MBIT), (10, 100_000)] {
        let mut link = Link::new(grants(every, None, Some(bps)), 1);
        let times = run(&mut link, 2000, 0);
        let due = 2000 * 1500 * 8 * 1_000_000 / bps;
        let last = times.last().copied().unwrap_or_default();
        let slack = (1500 * 8 * 1_000_000 / bps).max(every * 1000) * 2;
        assert!(
            last.abs_diff(due) <= slack,
            "{last} of {due} µs at {bps} bit/s"
        );
    }
}

#[test]
fn a_lone_packet_waits_for_the_next_grant_only() {
    let mut link = Link::new(grants(4, Some(64), Some(200 * MBIT)), 1);
    let times = run(&mut link, 100, 10_500);
    let due = (0..100_u64).map(|n| (n * 10_500).div_ceil(4000) * 4000);
    assert_eq!(times, due.collect::<Vec<_>>());
    let bytes = LinkConfig {
        grants: Some(Grants {
            every: ms(2),
            packets: None,
            bytes: Some(4000),
        }),
        ..unlimited_queue()
    };
    let mut link = Link::new(bytes, 1);
    let times = run(&mut link, 6, 0);
    assert_eq!(times, [0, 0, 2000, 2000, 4000, 4000]);
}

#[test]
fn no_grant_comes_while_the_link_is_held() {
    let config = LinkConfig {
        outages: vec![Outage::held(Windows {
            start: ms(10),
            ..Windows::regular(ms(1000), ms(20))
        })],
        ..grants(4, Some(2), Some(RATE))
    };
    let mut link = Link::new(config, 1);
    let times = run(&mut link, 16, 0);
    let due = [4, 4, 8, 8, 32, 32, 36, 36, 40, 40, 44, 44, 48, 48];
    assert_eq!(times[2..], due.map(|ms| ms * 1000));
}

#[test]
fn a_shorter_delay_lets_packets_overtake_only_if_it_may() {
    for order in [PacketOrder::Free, PacketOrder::Kept] {
        let with_delay = |delay| LinkConfig {
            delay: ms(delay),
            delay_order: order,
            ..LinkConfig::default()
        };
        let mut link = Link::new(with_delay(150), 1);
        for tag in 0..200 {
            if tag == 100 {
                link.set_config(at(tag * 1_000_000), with_delay(50));
            }
            link.send(at(tag * 1_000_000), packet(tag, 100));
        }
        let delivered = drain(&mut link);
        assert_eq!(tags(&delivered).is_sorted(), order == PacketOrder::Kept);
        let last = delivered.last().map(|d| d.0);
        assert_eq!(last, Some(at(249_000_000)));
    }
}

#[test]
fn delay_wanders_within_its_range_and_keeps_the_order() {
    let config = LinkConfig {
        delay: ms(10),
        wander: Some(Wander {
            range: ms(200),
            step: ms(20),
        }),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    let times = run(&mut link, 20_000, 1000);
    assert!(times.is_sorted());
    let delays: Vec<_> = (0..20_000).map(|n| times[n] - n as u64 * 1000).collect();
    assert!(delays.iter().all(|d| (10_000..=210_000).contains(d)));
    let (least, most) = (delays.iter().min(), delays.iter().max());
    assert!(least < Some(&30_000) && most > Some(&190_000));
}

#[test]
fn polling_and_unrelated_changes_make_no_difference() {
    let config = LinkConfig {
        rate: rate(5 * RATE),
        shaper: bucket(8),
        policer: Some(TokenBucket {
            rate: Rate::from_bps(2 * RATE),
            burst: 30 * 1500,
        }),
        wander: Some(Wander {
            range: ms(20),
            step: ms(50),
        }),
        jitter: vec![
            JitterModel::WiFi(ms(12)),
            JitterModel::Late {
                delay: ms(30),
                share: 0.2,
            },
        ]
        .into(),
        jitter_order: PacketOrder::Kept,
        loss: LossModel::Any(vec![
            LossModel::Bernoulli(0.01),
            LossModel::TimedGilbertElliott(TimedGilbertElliott::in_bursts(0.05, ms(10))),
        ]),
        ..unlimited_queue()
    };
    let with_grants = LinkConfig {
        grants: Some(Grants {
            every: ms(3),
            packets: Some(5),
            bytes: None,
        }),
        ..config.clone()
    };
    for config in [config, with_grants] {
        let mut runs = [None, Some(70_000), Some(1_000_000)].map(|step| {
            let mut link = Link::new(config.clone(), 9);
            let mut delivered = Vec::new();
            for tag in 0..3000_u64 {
                let now = (tag / 9) * 7_000_000;
                if let Some(step) = step {
                    for polled in (now.saturating_sub(7_000_000)..now).step_by(step) {
                        delivered.extend(std::iter::from_fn(|| link.poll_timed(at(polled))));
                    }
                }
                let size = 400 + (tag as usize * 37) % 1100;
                link.send(at(now), packet(tag, size));
                if tag % 1000 == 999 {
                    let mut other = config.clone();
                    other.mtu = Some(1500 + tag as u32);
                    link.set_config(at(now), other);
                }
            }
            delivered.extend(drain(&mut link));
            delivered
                .iter()
                .map(|(at, p)| (*at, p.tag))
                .collect::<Vec<_>>()
        });
        assert!(runs[0].len() > 1000 && runs[0].len() < 3000);
        assert!(runs[0].is_sorted_by_key(|(_, tag)| *tag));
        runs.sort();
        assert!(runs[0] == runs[1] && runs[1] == runs[2]);
    }
}
