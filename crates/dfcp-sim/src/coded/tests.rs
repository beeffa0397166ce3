//! What recoding and several paths are for: the gains that theory promises.

use super::*;
use crate::engine::{FlowConfig, Network, Simulation, Traffic};
use crate::link::{LinkConfig, LinkRate};
use crate::packet::FlowId;
use crate::queue::Limit;
use dfcp_proto::Duration;

const FLOW: FlowId = FlowId(0);

fn link(mbps: u64, delay_ms: u64, loss: f64) -> LinkConfig {
    LinkConfig {
        rate: LinkRate::Constant(Rate::from_bps(mbps * 1_000_000)),
        delay: Duration::from_millis(delay_ms),
        loss: loss.into(),
        framing: 0,
        queue: Limit::Packets(50).into(),
        ..LinkConfig::default()
    }
}

/// A flow over a chain of links there, lossless links back.
fn over_chain(seed: u64, losses: &[f64], size: Option<u64>, config: CodedConfig) -> Simulation {
    let mut network = Network::new(seed);
    let add = |network: &mut Network, name: String, loss| network.add_link(name, link(10, 5, loss));
    let forward: Vec<LinkId> = (losses.iter().enumerate())
        .map(|(i, &loss)| add(&mut network, format!("there-{i}"), loss))
        .collect();
    let backward = (0..losses.len()).map(|i| add(&mut network, format!("back-{i}"), 0.0));
    let backward = backward.collect();
    network.add_flow(flow(forward, backward, size, config));
    network.build().expect("it makes sense")
}

fn flow(
    forward: Vec<LinkId>,
    backward: Vec<LinkId>,
    size: Option<u64>,
    config: CodedConfig,
) -> FlowConfig {
    FlowConfig {
        name: "coded".into(),
        class: 0,
        forward,
        backward,
        start: Instant::ZERO,
        stop: None,
        size,
        traffic: Traffic::Coded(Box::new(config)),
    }
}

fn at_line_rate(relaying: Relaying) -> CodedConfig {
    let mut config = CodedConfig {
        control: CodedControl::LineRate,
        relaying,
        ..CodedConfig::default()
    };
    config.ctcp.open_blocks = 32;
    config
}

fn seconds(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}

/// Useful symbols a second as a share of the packets that a link of 10 Mbit/s takes.
fn efficiency(losses: &[f64], relaying: Relaying) -> f64 {
    let config = at_line_rate(relaying);
    let symbol = f64::from(config.symbol_size().expect("there is room"));
    let packet = f64::from(config.packet);
    let mut simulation = over_chain(7, losses, None, config);
    simulation.run_until(seconds(2));
    let before = simulation.counters(FLOW).delivered;
    simulation.run_until(seconds(22));
    let delivered = simulation.counters(FLOW).delivered - before;
    delivered as f64 / symbol * packet * 8.0 / 20.0 / 10e6
}

fn assert_near(found: f64, theory: f64, what: &str) {
    // Algorithm 3 sends a symbol too many now and then (equation (7)): some percent for blocks
    // of 32. More than theory is what the estimate's noise allows.
    assert!(
        (theory * 0.95..theory * 1.01).contains(&found),
        "{what}: {found}, theory {theory}"
    );
}

#[test]
fn a_recoding_relay_carries_what_the_worse_link_carries() {
    for (p1, p2) in [(0.2, 0.2), (0.05, 0.2), (0.2, 0.05), (0.1, 0.0)] {
        let name = |what| format!("{what}, loss {p1} and {p2}, seed 7");
        let alone = efficiency(&[p1], Relaying::Forward);
        assert_near(alone, 1.0 - p1, &name("one link"));
        let forwarded = efficiency(&[p1, p2], Relaying::Forward);
        assert_near(forwarded, (1.0 - p1) * (1.0 - p2), &name("forwarded"));
        let recoded = efficiency(&[p1, p2], Relaying::Recode);
        assert_near(recoded, (1.0 - p1).min(1.0 - p2), &name("recoded"));
    }
}

#[test]
fn a_chain_of_relays_loses_no_more_than_one_link() {
    let losses = [0.1; 4];
    let forwarded = efficiency(&losses, Relaying::Forward);
    assert_near(forwarded, 0.9f64.powi(4), "forwarded, seed 7");
    let recoded = efficiency(&losses, Relaying::Recode);
    assert_near(recoded, 0.9, "recoded, seed 7");
}

/// Paths of a rate in Mbit/s, a one-way delay in ms and a loss.
fn over_paths(paths: &[(u64, u64, f64)], buffer: u64) -> Simulation {
    let mut network = Network::new(3);
    let mut routes = Vec::new();
    for (i, &(mbps, delay, loss)) in paths.iter().enumerate() {
        let config = LinkConfig {
            queue: Limit::packets(buffer).into(),
            ..link(mbps, delay, loss)
        };
        let there = network.add_link(format!("there-{i}"), config);
        let back = network.add_link(format!("back-{i}"), link(mbps, delay, 0.0));
        routes.push((vec![there], vec![back]));
    }
    let (forward, backward) = routes.remove(0);
    let mut config = CodedConfig {
        others: routes,
        ..CodedConfig::default()
    };
    config.ctcp.open_blocks = 64;
    network.add_flow(flow(forward, backward, None, config));
    network.build().expect("it makes sense")
}

fn goodput(paths: &[(u64, u64, f64)], buffer: u64) -> f64 {
    let mut simulation = over_paths(paths, buffer);
    simulation.run_until(seconds(10));
    let before = simulation.counters(FLOW).delivered;
    simulation.run_until(seconds(30));
    (simulation.counters(FLOW).delivered - before) as f64 * 8.0 / 20.0
}

#[test]
fn paths_of_different_rate_delay_and_loss_add_up() {
    let paths = [(8, 10, 0.01), (4, 60, 0.05), (2, 5, 0.0)];
    let share = f64::from(CodedConfig::default().symbol_size().expect("room")) / 1500.0;
    let rate = |&(mbps, _, loss): &(u64, u64, f64)| mbps as f64 * 1e6 * (1.0 - loss);
    let theory = paths.iter().map(rate).sum::<f64>() * share;
    // In the deeper buffer the slowest path takes more than a second.
    for buffer in [20, 50, 200] {
        let alone: f64 = paths.iter().map(|&path| goodput(&[path], buffer)).sum();
        let together = goodput(&paths, buffer);
        println!("seed 3, {buffer}: alone {alone}, together {together}, theory {theory}");
        assert!(together > 0.95 * alone, "{together} of {alone}");
        assert!((0.9 * theory..1.01 * theory).contains(&together));
    }
}

#[test]
fn a_path_that_dies_takes_nothing_with_it() {
    let size = 20_000_000;
    let paths = [(10, 10, 0.0), (10, 30, 0.0)];
    let mut network = Network::new(5);
    let mut routes = Vec::new();
    for (i, &(mbps, delay, loss)) in paths.iter().enumerate() {
        let there = network.add_link(format!("there-{i}"), link(mbps, delay, loss));
        let back = network.add_link(format!("back-{i}"), link(mbps, delay, loss));
        routes.push((vec![there], vec![back]));
    }
    network.change_link(seconds(3), routes[0].0[0], link(10, 10, 1.0));
    let (forward, backward) = routes.remove(0);
    let config = CodedConfig {
        others: routes,
        ..CodedConfig::default()
    };
    network.add_flow(flow(forward, backward, Some(size), config));
    let mut simulation = network.build().expect("it makes sense");
    simulation.run_until(seconds(60));
    let progress = simulation.sink(FLOW).progress();
    assert_eq!(progress.delivered, size, "seed 5");
    // 3 s of both paths and the rest over one: about 14.5 s, and some to notice.
    let finished = progress.finished.expect("all arrived");
    assert!(finished < seconds(18), "{finished:?}");
}

#[test]
fn every_byte_of_a_flow_arrives_whatever_is_lost() {
    for seed in 1..=6 {
        for size in [1, 1000, 45_000, 46_465, 3_000_000] {
            for relaying in [Relaying::Forward, Relaying::Recode] {
                println!("seed {seed}, {size} bytes, {relaying:?}");
                let control = match seed % 2 {
                    0 => CodedControl::Tokens,
                    _ => CodedControl::LineRate,
                };
                let mut config = at_line_rate(relaying);
                config.control = control;
                config.ctcp.open_blocks = seed as u32;
                let mut network = Network::new(seed);
                // Reports are lost as well, and packets overtake each other.
                let lossy = LinkConfig {
                    jitter: Duration::from_millis(2).into(),
                    ..link(10, 5, 0.3)
                };
                let mut add = |name: &str| network.add_link(name, lossy.clone());
                let forward = vec![add("there-0"), add("there-1")];
                let backward = vec![add("back-0"), add("back-1")];
                network.add_flow(flow(forward, backward, Some(size), config));
                let mut simulation = network.build().expect("it makes sense");
                simulation.run_until(seconds(120));
                let progress = simulation.sink(FLOW).progress();
                assert_eq!(progress.delivered, size);
                assert!(progress.finished.is_some());
                let events = simulation.events();
                simulation.run_until(seconds(1000));
                let idle = simulation.events() - events;
                assert!(idle < 10, "{idle} events after the end");
            }
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let build = |change: fn(&mut CodedConfig)| {
        let mut config = at_line_rate(Relaying::Forward);
        change(&mut config);
        let mut network = Network::new(1);
        let there = network.add_link("there", link(1, 1, 0.0));
        let back = network.add_link("back", link(1, 1, 0.0));
        network.add_flow(flow(vec![there], vec![back], None, config));
        network.build().map(drop)
    };
    assert_eq!(build(|_| ()), Ok(()));
    assert!(build(|config| config.ctcp.block_symbols = 257).is_err());
    assert!(build(|config| config.packet = 48).is_err());
    assert!(build(|config| config.others = vec![(vec![LinkId(0)], vec![LinkId(9)])]).is_err());
    assert!(
        build(|config| {
            config.others = vec![(vec![LinkId(0)], vec![LinkId(1)])];
        })
        .is_err(),
        "several paths at line rate"
    );
    assert!(
        build(|config| {
            config.control = CodedControl::Tokens;
            config.relaying = Relaying::Recode;
            config.others = vec![(vec![LinkId(0)], vec![LinkId(1)])];
        })
        .is_err(),
        "relays on several paths"
    );
}
