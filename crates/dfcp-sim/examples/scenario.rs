//! Runs a scenario without the command line program: `cargo run -p dfcp-sim --example scenario -- FILE`.

fn main() {
    let file = std::env::args().nth(1).expect("a scenario file");
    let text = std::fs::read_to_string(&file).expect("readable");
    let scenario =
        dfcp_sim::scenario::Scenario::from_toml(&text, &file).unwrap_or_else(|e| panic!("{e}"));
    let started = std::time::Instant::now();
    let report = dfcp_sim::run(&scenario).unwrap_or_else(|e| panic!("{e}"));
    let wall = started.elapsed();
    for flow in &report.flows {
        println!(
            "{} {} goodput {:.3} Mbit/s throughput {:.3} fct {:?} sent {} repairs {} loss {:.4} overhead {:?} rtt {:?}",
            flow.name,
            flow.protocol,
            flow.goodput_bps / 1e6,
            flow.throughput_bps / 1e6,
            flow.fct_s,
            flow.packets_sent,
            flow.packets_retransmitted,
            flow.loss,
            flow.overhead,
            flow.rtt_mean_s
        );
    }
    for link in &report.links {
        println!(
            "{} util {:.4} drop {:.4} qmean {:.1} max {}",
            link.name,
            link.utilisation,
            link.drop_rate,
            link.queue.mean_packets,
            link.queue.max_packets
        );
    }
    let s = &report.summary;
    println!(
        "{:.2} s wall, {} packets, {} events: {:.0} ns a packet, {:.0} ns an event",
        wall.as_secs_f64(),
        s.packets,
        s.events,
        wall.as_nanos() as f64 / s.packets as f64,
        wall.as_nanos() as f64 / s.events as f64
    );
}
