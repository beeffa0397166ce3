//! What TCP itself costs in the simulator: nanoseconds for a data segment and its acknowledgement,
//! through sender, receiver and two plain delay lines.
//!
//! `cargo run --release -p dfcp-sim --example tcp_cost`

use dfcp_proto::{Duration, Instant};
use dfcp_sim::tcp::{
    Congestion, CubicConfig, Segment, TcpReceiver, TcpReceiverConfig, TcpSender, TcpSenderConfig,
};
use dfcp_sim::{Ecn, Random, Seed};
use std::collections::VecDeque;

const SEGMENTS: u64 = 10_000_000;
const STEP: Duration = Duration::from_micros(12);

/// One segment a step arrives at each end, as at a bottleneck.
fn run(congestion: Congestion, window: u32, loss: f64) -> f64 {
    let mut sender = TcpSender::new(TcpSenderConfig {
        congestion,
        size: Some(SEGMENTS * 1448),
        initial_window: window,
        initial_ssthresh: Some(window),
        send_buffer: Some(u64::from(window) * 1448),
        find_lost_retransmissions: true,
        handshake: false,
        ..TcpSenderConfig::default()
    });
    let mut receiver = TcpReceiver::new(TcpReceiverConfig {
        delayed_ack: None,
        ..TcpReceiverConfig::default()
    });
    let mut data: VecDeque<(Segment, Ecn)> = VecDeque::with_capacity(1 << 17);
    let mut acks: VecDeque<(Segment, Ecn)> = VecDeque::with_capacity(1 << 17);
    let mut random: Random = Seed(1).stream("loss");
    let mut now = Instant::ZERO;
    let started = std::time::Instant::now();
    sender.start(now);
    while !sender.is_finished() {
        while let Some(out) = sender.poll_transmit(now) {
            if loss == 0.0 || !random.chance(loss) {
                data.push_back(out);
            }
        }
        now += STEP;
        if let Some((segment, ecn)) = data.pop_front() {
            receiver.on_segment(now, ecn, &segment);
            acks.extend(receiver.poll_transmit(now));
        }
        if let Some((segment, ecn)) = acks.pop_front() {
            sender.on_segment(now, ecn, &segment);
        }
        if sender.poll_timeout().is_some_and(|timer| timer <= now) {
            sender.on_timeout(now);
        }
    }
    started.elapsed().as_nanos() as f64 / sender.stats().segments as f64
}

fn main() {
    println!("control | window | loss | ns per segment and acknowledgement");
    for (name, congestion) in [
        ("reno", Congestion::Reno),
        ("cubic", Congestion::Cubic(CubicConfig::default())),
        ("highspeed", Congestion::HighSpeed),
        ("htcp", Congestion::HTcp),
    ] {
        for (window, loss) in [(1000, 0.0), (100_000, 0.0), (1000, 1e-4), (1000, 1e-2)] {
            let cost = run(congestion, window, loss);
            println!("{name} | {window} | {loss} | {cost:.1}");
        }
    }
}
