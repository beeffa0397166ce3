//! What a scenario costs to simulate, for each packet sent and each event.
//!
//! `cargo run --release -p dfcp-sim --example scenario_cost -- FILE…`

use dfcp_sim::scenario::Document;
use std::path::Path;

fn main() {
    for file in std::env::args().skip(1) {
        if let Err(why) = run(&file) {
            eprintln!("{why}");
        }
    }
}

fn run(file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file)?;
    let mut document = Document::parse(&text, file)?;
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    document.load_files(|name| {
        std::fs::read_to_string(folder.join(name)).map_err(|why| why.to_string())
    })?;
    let scenario = document.scenario()?;
    let started = std::time::Instant::now();
    let report = dfcp_sim::run(&scenario)?;
    let wall = started.elapsed();
    for flow in &report.flows {
        println!(
            "{}: {} Mbit/s goodput, {} packets, {} again, {:.2} % lost",
            flow.name,
            flow.goodput_bps / 1e6,
            flow.packets_sent,
            flow.packets_retransmitted,
            100.0 * flow.loss
        );
    }
    let each = |n: u64| wall.as_nanos() as f64 / n as f64;
    println!(
        "{:.2} s: {:.0} ns for each of {} packets, {:.0} ns for each of {} events",
        wall.as_secs_f64(),
        each(report.summary.packets),
        report.summary.packets,
        each(report.summary.events),
        report.summary.events
    );
    Ok(())
}
