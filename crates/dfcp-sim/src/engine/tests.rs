//! What flows do on networks small enough to reckon by hand.

use super::*;
use crate::link::LinkConfig;
use crate::queue::Limit;
use dfcp_proto::Rate;

const MBIT: u64 = 1_000_000;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn seconds(s: f64) -> Instant {
    at((s * 1e9) as u64)
}

fn link(mbit: u64, delay_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::from_bps(mbit * MBIT).into(),
        delay: Duration::from_millis(delay_ms),
        framing: 0,
        ..LinkConfig::default()
    }
}

/// Two links there and two back; the first is the slower one.
fn two_hops(network: &mut Network, bottleneck: LinkConfig) -> (Vec<LinkId>, Vec<LinkId>) {
    let mut add = |name: &str, config| network.add_link(name, config);
    let forward = vec![
        add("bottleneck", bottleneck.clone()),
        add("access", link(1000, 1)),
    ];
    let clean = LinkConfig {
        loss: 0.0.into(),
        ..bottleneck
    };
    let backward = vec![
        add("access.back", link(1000, 1)),
        add("bottleneck.back", clean),
    ];
    (forward, backward)
}

fn flow(name: &str, route: &(Vec<LinkId>, Vec<LinkId>), traffic: Traffic) -> FlowConfig {
    FlowConfig {
        name: name.into(),
        class: 0,
        forward: route.0.clone(),
        backward: route.1.clone(),
        start: Instant::ZERO,
        stop: None,
        size: None,
        traffic,
    }
}

fn udp(mbit: u64, pattern: UdpPattern) -> Traffic {
    Traffic::Udp(UdpConfig {
        rate: Rate::from_bps(mbit * MBIT),
        packet: 1500,
        pattern,
    })
}

#[test]
fn constant_rate_crosses_two_links_on_time() {
    let mut network = Network::new(1);
    let route = two_hops(&mut network, link(12, 10)); // 1500 bytes in 1 ms
    let id = network.add_flow(FlowConfig {
        size: Some(14_720), // ten packets
        start: at(5_000_000),
        ..flow("cbr", &route, udp(6, UdpPattern::Constant))
    });
    let mut simulation = network.build().expect("valid");
    simulation.run_until(seconds(1.0));
    let counters = simulation.counters(id);
    assert_eq!((counters.packets_sent, counters.packets_arrived), (10, 10));
    assert_eq!((counters.bytes_sent, counters.delivered), (15_000, 14_720));
    // The tenth leaves 9 × 2 ms after the first; 1 ms and 12 µs to serialise, 11 ms of delay.
    let finished = simulation.sink(id).progress().finished;
    assert_eq!(
        finished,
        Some(at(5_000_000 + 18_000_000 + 1_012_000 + 11_000_000))
    );
    // Ten packets, two traversals and one timer each, and the timer that finds nothing left.
    assert_eq!(simulation.events(), 31);
}

#[test]
fn too_much_is_dropped_and_counted_by_cause() {
    let mut network = Network::new(1);
    let bottleneck = LinkConfig {
        queue: Limit::Packets(10).into(),
        loss: 0.1.into(),
        ..link(10, 1)
    };
    let route = two_hops(&mut network, bottleneck);
    let id = network.add_flow(flow("flood", &route, udp(20, UdpPattern::Constant)));
    network.warm_up_until(seconds(1.0));
    let mut simulation = network.build().expect("valid");
    simulation.run_until(seconds(11.0));
    let stats = simulation.link(route.0[0]).stats();
    let counters = simulation.counters_since_warm_up(id);
    assert_eq!(
        (counters.drops.full, counters.drops.loss),
        (stats.drops.full, stats.drops.loss)
    );
    let share = |n: u64| n as f64 / counters.packets_sent as f64;
    assert!((share(stats.drops.full) - 0.5).abs() < 0.01);
    assert!((share(stats.drops.loss) - 0.05).abs() < 0.01);
    let bps = counters.bytes_arrived as f64 * 8.0 / 10.0;
    assert!((bps / 9e6 - 1.0).abs() < 0.02, "{bps}");
    assert!((stats.occupancy.until(simulation.now()).mean_packets() - 10.0).abs() < 0.6);
}

#[test]
fn bursts_have_the_mean_rate_that_was_asked_for() {
    for lengths in [
        Lengths::Constant,
        Lengths::Exponential,
        Lengths::Pareto(2.5),
    ] {
        let mut network = Network::new(7);
        let route = two_hops(&mut network, link(100, 1));
        let pattern = UdpPattern::OnOff {
            on: Duration::from_millis(20),
            off: Duration::from_millis(60),
            lengths,
        };
        let id = network.add_flow(flow("bursts", &route, udp(40, pattern)));
        let mut simulation = network.build().expect("valid");
        simulation.run_until(seconds(400.0));
        let bps = simulation.counters(id).bytes_sent as f64 * 8.0 / 400.0;
        assert!((bps / 10e6 - 1.0).abs() < 0.06, "{lengths:?}: {bps}");
    }
}

#[test]
fn a_flow_starts_stops_and_a_link_changes_when_told() {
    let mut network = Network::new(1);
    let route = two_hops(&mut network, link(10, 1));
    let id = network.add_flow(FlowConfig {
        start: seconds(1.0),
        stop: Some(seconds(4.0)),
        ..flow("cbr", &route, udp(20, UdpPattern::Constant))
    });
    network.change_link(seconds(2.0), route.0[0], link(20, 1));
    network.sample(Duration::from_secs(1), &[route.0[0]]);
    let mut simulation = network.build().expect("valid");
    simulation.run_until(seconds(5.0));
    let delivered = &simulation.samples().delivered[id.0 as usize];
    let per_second: Vec<f64> = [0]
        .iter()
        .chain(delivered)
        .zip(delivered)
        .map(|(a, b)| (b - a) as f64 * 8e-6 * 1500.0 / 1472.0)
        .collect();
    for (got, expected) in per_second.iter().zip([0.0, 10.0, 20.0, 20.0]) {
        assert!((got - expected).abs() < 0.3, "{per_second:?}");
    }
    assert_eq!(simulation.samples().links[0].1.len(), 5);
}

fn dfcp(payload: DfcpPayload) -> Traffic {
    Traffic::Dfcp(Box::new(DfcpConfig {
        payload,
        ..DfcpConfig::default()
    }))
}

#[test]
fn the_core_fills_a_lossy_link_and_every_byte_is_right() {
    for payload in [DfcpPayload::Real, DfcpPayload::Virtual] {
        let mut network = Network::new(3);
        let bottleneck = LinkConfig {
            loss: 0.05.into(),
            ..link(50, 20)
        };
        let route = two_hops(&mut network, bottleneck);
        let id = network.add_flow(flow("auto", &route, dfcp(payload)));
        network.warm_up_until(seconds(2.0));
        let mut simulation = network.build().expect("valid");
        simulation.run_until(seconds(6.0));
        let goodput = simulation.counters_since_warm_up(id).delivered as f64 * 8.0 / 4.0;
        // Of 1500 bytes about 1430 are payload.
        let limit = 0.95 * 50e6 * 1430.0 / 1500.0;
        assert!(goodput > 0.95 * limit, "{payload:?}: {goodput}");
        assert!(goodput < 1.02 * limit, "{payload:?}: {goodput}");
        assert_eq!(simulation.sink(id).progress().wrong_bytes, 0);
    }
}

#[test]
fn coding_that_takes_time_slows_the_flow() {
    let run = |coding_rate| {
        let mut network = Network::new(3);
        let bottleneck = LinkConfig {
            loss: 0.1.into(),
            ..link(50, 5)
        };
        let route = two_hops(&mut network, bottleneck);
        let config = DfcpConfig {
            block_symbols: 128,
            coding_rate,
            ..DfcpConfig::default()
        };
        let id = network.add_flow(flow("auto", &route, Traffic::Dfcp(Box::new(config))));
        let mut simulation = network.build().expect("valid");
        simulation.run_until(seconds(4.0));
        simulation.counters(id).delivered as f64 * 2.0
    };
    let free = run(None);
    // A tenth of the symbols are coded, at 128 operations each: 45 Mbit/s need 0.6 Gbit/s.
    let fast = run(Some(Rate::from_bps(100_000 * MBIT)));
    let slow = run(Some(Rate::from_bps(200 * MBIT)));
    assert!(fast > 0.9 * free, "{fast} of {free}");
    assert!(slow < 0.7 * free, "{slow} of {free}");
    assert!(slow > 1e6, "{slow}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut network = Network::new(seed);
        let bottleneck = LinkConfig {
            loss: 0.02.into(),
            jitter: Duration::from_millis(1).into(),
            ..link(20, 10)
        };
        let route = two_hops(&mut network, bottleneck);
        network.add_flow(flow("auto", &route, dfcp(DfcpPayload::Virtual)));
        let poisson = udp(5, UdpPattern::Poisson);
        network.add_flow(flow("poisson", &route, poisson));
        let mut simulation = network.build().expect("valid");
        let trace = std::sync::Arc::new(std::sync::Mutex::new(0_u64));
        let seen = trace.clone();
        simulation.observe(Box::new(move |event| {
            let mut digest = seen.lock().expect("one thread");
            let mixed = digest.rotate_left(7) ^ event.at.as_nanos() ^ u64::from(event.packet.size);
            *digest = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }));
        simulation.run_until(seconds(2.0));
        let digest = *trace.lock().expect("one thread");
        (digest, simulation.events())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn nonsense_is_refused_by_name() {
    let mut network = Network::new(1);
    let id = network.add_link(
        "dead",
        LinkConfig {
            rate: Rate::ZERO.into(),
            ..LinkConfig::default()
        },
    );
    let error = network.build().expect_err("no rate").to_string();
    assert!(error.contains("dead") && error.contains("zero"), "{error}");

    let mut network = Network::new(1);
    let route = (vec![id], vec![]);
    network.add_flow(flow("lost", &route, udp(1, UdpPattern::Constant)));
    let error = network.build().expect_err("no link").to_string();
    assert!(error.contains("lost"), "{error}");
}
