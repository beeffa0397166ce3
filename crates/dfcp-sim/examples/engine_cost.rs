//! What a link traversal costs.
use dfcp_proto::{Duration, Instant, Rate};
use dfcp_sim::LinkConfig;
use dfcp_sim::engine::*;
fn main() {
    let mut network = Network::new(1);
    let rates = [10_000, 1_000, 10_000, 10_000, 1_000, 10_000];
    let links: Vec<_> = rates
        .iter()
        .enumerate()
        .map(|(i, r)| {
            network.add_link(
                format!("l{i}"),
                LinkConfig {
                    rate: Rate::from_bps(r * 1_000_000).into(),
                    delay: Duration::from_millis(5),
                    framing: 0,
                    ..LinkConfig::default()
                },
            )
        })
        .collect();
    network.add_flow(FlowConfig {
        name: "cbr".into(),
        class: 0,
        forward: links,
        backward: vec![],
        start: Instant::ZERO,
        stop: None,
        size: None,
        traffic: Traffic::Udp(UdpConfig {
            rate: Rate::from_bps(990_000_000),
            packet: 1500,
            pattern: UdpPattern::Poisson,
        }),
    });
    let mut s = network.build().unwrap();
    let t = std::time::Instant::now();
    s.run_until(Instant::from_nanos(20_000_000_000));
    let w = t.elapsed().as_secs_f64();
    println!(
        "{} events, {:.1} ns an event",
        s.events(),
        w * 1e9 / s.events() as f64
    );
}
