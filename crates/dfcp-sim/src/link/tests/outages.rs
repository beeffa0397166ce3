//! Outages: what is lost or held in them, and what the link carries beside.

use super::*;

/// A packet of 1500 bytes a millisecond.
const RATE: u64 = 12 * MBIT;

fn with_outages(outages: Vec<Outage>) -> LinkConfig {
    LinkConfig {
        rate: rate(RATE),
        queue: Limit::Unlimited.into(),
        outages,
        ..LinkConfig::default()
    }
}

/// The times in ms at which packets leave that come every millisecond.
fn run(config: LinkConfig, packets: u64) -> (Vec<f64>, Link<Datagram>) {
    let mut link = Link::new(config, 7);
    (0..packets).for_each(|tag| link.send(at(tag * 1_000_000), packet(tag, 1500)));
    let delivered = drain(&mut link);
    assert!(tags(&delivered).is_sorted());
    let times = delivered.iter().map(|d| d.0.as_nanos() as f64 / 1e6);
    (times.collect(), link)
}

fn regular(every: u64, length: u64, start: u64) -> Windows {
    Windows {
        start: ms(start),
        ..Windows::regular(ms(every), ms(length))
    }
}

#[test]
fn what_is_transmitted_in_an_outage_is_lost() {
    let outage = Outage::lost(regular(500, 50, 100));
    let (times, link) = run(with_outages(vec![outage]), 5000);
    assert_eq!(link.stats().drops.loss, 500);
    assert!(times.iter().all(|t| (t + 400.0) % 500.0 >= 50.0));
    // They have had their share of the link: the others leave as they would have.
    assert!(times.iter().all(|t| t.fract() == 0.0));
    assert!((link.config().mean_loss() - 0.1).abs() < 1e-12);
    // Before the queue they take nothing.
    let entry = LinkConfig {
        loss_at: LossAt::Entry,
        ..with_outages(vec![outage])
    };
    let (_, link) = run(entry, 5000);
    assert_eq!(link.stats().drops.loss, 500);
    assert_eq!(link.stats().transmitted, 4500);
}

#[test]
fn a_held_link_keeps_packets_and_their_order() {
    let mut slow = with_outages(vec![Outage::held(regular(500, 50, 100))]);
    slow.rate = rate(2 * RATE);
    let (times, link) = run(slow, 5000);
    assert_eq!((times.len(), link.stats().drops.total()), (5000, 0));
    assert!(times.iter().all(|t| {
        let phase = (t + 400.0) % 500.0;
        phase == 0.0 || phase > 50.0
    }));
    // 50 wait at the end of a hold, and the link then works at full speed until they are gone.
    assert_eq!(link.stats().queue_peak_packets, 50);
    let after: Vec<_> = times.iter().skip_while(|t| **t <= 100.0).take(3).collect();
    assert_eq!(after, [&150.5, &151.0, &151.5]);
}

#[test]
fn a_hold_in_the_middle_of_a_packet_lengthens_it() {
    let config = LinkConfig {
        rate: rate(RATE / 10), // 10 ms a packet
        ..with_outages(vec![Outage::held(regular(1000, 20, 15))])
    };
    let mut link = Link::new(config.clone(), 1);
    (0..3).for_each(|tag| link.send(at(0), packet(tag, 1500)));
    assert_eq!(link.queue_delay(at(0)), ms(50));
    // Twice the rate from 40 ms on: half of the third packet is left.
    let faster = LinkConfig {
        rate: rate(RATE / 5),
        ..config
    };
    link.set_config(at(45_000_000), faster);
    let times: Vec<_> = drain(&mut link).iter().map(|d| d.0.as_nanos()).collect();
    assert_eq!(times, [10_000_000, 40_000_000, 47_500_000]);
}

#[test]
fn a_link_without_a_rate_can_be_held_too() {
    let config = LinkConfig {
        rate: LinkRate::Unlimited,
        ..with_outages(vec![Outage::held(regular(100, 10, 5))])
    };
    let (times, _) = run(config, 20);
    let held = times.iter().filter(|t| **t == 15.0).count();
    assert_eq!(held, 11); // those of 5 to 14 ms, and of 15
}

#[test]
fn fades_halve_the_rate_and_lose_a_part() {
    let fade = Outage {
        loss: 0.25,
        rate_factor: 0.5,
        windows: regular(100, 40, 0),
    };
    let mut config = with_outages(vec![fade]);
    config.rate = rate(RATE);
    let (times, link) = run(config, 50_000);
    // 80 packets in 100 ms, of which 20 in the fade.
    let last = times.last().copied().unwrap_or_default();
    assert!((last / 50_000.0 - 1.25).abs() < 1e-3, "{last} ms");
    let lost = link.stats().drops.loss as f64 / 50_000.0;
    assert!((lost - 0.0625).abs() < 0.005, "{lost} lost");
}

#[test]
fn what_a_trace_offers_in_a_hold_is_gone() {
    let trace = RateTrace::parse("1\n").expect("one a millisecond");
    let config = LinkConfig {
        rate: LinkRate::Trace(trace.into()),
        ..with_outages(vec![Outage::held(regular(100, 50, 0))])
    };
    let (times, _) = run(config, 1000);
    assert!(times.iter().all(|t| t % 100.0 >= 50.0));
    let last = times.last().copied().unwrap_or_default();
    assert!((last - 1999.0).abs() <= 1.0, "{last} ms");
}

#[test]
fn outages_come_whoever_looks_and_end_with_a_change() {
    let random = |every, length| Windows {
        spread: Spread::Exponential,
        ..regular(every, length, 0)
    };
    let config = with_outages(vec![
        Outage::held(random(200, 30)),
        Outage::lost(random(300, 20)),
    ]);
    let polled = |step: Option<u64>| {
        let mut link = Link::new(config.clone(), 3);
        let mut delivered = Vec::new();
        for tag in 0..2000_u64 {
            let now = tag * 1_000_000;
            if let Some(step) = step {
                let times = (now.saturating_sub(1_000_000)..now).step_by(step as usize);
                for polled in times {
                    let due = std::iter::from_fn(|| link.poll_timed(at(polled)));
                    delivered.extend(due);
                }
            }
            link.send(at(now), packet(tag, 1000));
            if tag == 700 || tag == 1400 {
                let mut other = config.clone();
                other.delay = ms(tag / 100);
                link.set_config(at(now), other);
            }
        }
        delivered.extend(drain(&mut link));
        let tagged = delivered.into_iter().map(|(at, p)| (at, p.tag));
        tagged.collect::<Vec<_>>()
    };
    let never = polled(None);
    assert!(never.len() < 2000);
    assert_eq!(polled(Some(300_000)), never);

    let mut link = Link::new(with_outages(vec![Outage::held(regular(1000, 900, 0))]), 1);
    link.send(at(0), packet(0, 1500));
    assert_eq!(link.poll_at(), Some(at(901_000_000)));
    link.set_config(at(5_000_000), with_outages(Vec::new()));
    assert_eq!(link.poll_at(), Some(at(6_000_000)));
}
