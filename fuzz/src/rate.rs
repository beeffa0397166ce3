//! Rate controllers and what a peer can make of their feedback.

use super::Input;
use dfcp_proto::packet::RttEstimator;
use dfcp_proto::rate::{
    AckPoint, Feedback, Marked, Ordered, OscillationReduction, PathReport, ProbeGap, ProbeRate,
    RateController, Specification, Tfrc, Tokens,
};
use dfcp_proto::{Duration, Instant, Rate};

/// Any feedback to the rate controllers that go by it: the rate stays one that packets can leave at,
/// and a probe's packet is never put off for long.
pub fn feedback(data: &[u8]) {
    let mut input = Input(data);
    let mut control: Box<dyn RateController> = match input.byte() % 8 {
        0 => Box::new(ProbeGap::new(0.05)),
        1 => Box::new(ProbeGap::with_capacity(1.0, Rate::from_bps(input.wide()))),
        2 => Box::new(ProbeRate::new(f64::from_bits(input.wide()))),
        3 => Box::new(Marked::new()),
        4 => Box::new(Tokens::default()),
        5 => Box::new(Tfrc::new(Specification::Rfc5348, OscillationReduction::On)),
        6 => Box::new(Tfrc::new(Specification::Rfc3448, OscillationReduction::Off)),
        _ => Box::new(Ordered::new(Rate::from_bps(1_000_000))),
    };
    let mut now = Instant::from_nanos(input.wide() >> 8);
    let packet = input.number().max(1) as u64;
    control.on_established(now, Duration::from_nanos(input.wide()), packet);
    let mut rtt = RttEstimator::default();
    let (mut sent, mut orders) = (0_u64, false);
    // Totals of the packets sent last: an honest answer names one of them.
    let mut totals = [0; 16];
    for _ in 0..4096 {
        if input.is_empty() {
            break;
        }
        let op = input.byte();
        now += Duration::from_nanos(u64::from(op >> 3) << (op & 31));
        match op & 7 {
            0 | 1 => {
                let sample = Duration::from_nanos(input.wide());
                rtt.update(sample, Duration::from_nanos(input.wide() >> 32));
            }
            2 => {
                orders = true;
                control.on_order(now, Rate::from_bps(input.wide()));
            }
            3 | 4 => {
                let mut feedback = Feedback::new(now, &rtt);
                let total = if op & 8 == 0 {
                    totals[usize::from(input.byte()) % totals.len()]
                } else {
                    input.wide()
                };
                let arrived = Duration::from_nanos(input.wide());
                let left = Instant::from_nanos(input.wide());
                let newest = AckPoint::new(arrived, left, total, input.wide());
                feedback.newest = (op & 16 == 0).then_some(newest);
                feedback.acked_packets = input.wide();
                feedback.lost_packets = input.wide();
                feedback.ce_packets = input.wide();
                feedback.bytes_in_flight = input.wide();
                feedback.idle_total = input.wide();
                feedback.path = (op & 32 == 0).then(|| PathReport {
                    receive_rate: f64::from_bits(input.wide()),
                    loss_event_rate: f64::from_bits(input.wide()),
                });
                control.on_feedback(&feedback);
            }
            _ => {
                let departure = control.departure();
                now = now.max(
                    departure
                        .at
                        .unwrap_or(now)
                        .min(now + Duration::from_secs(1)),
                );
                sent = sent.saturating_add(packet);
                totals[usize::from(op >> 4)] = sent;
                control.on_sent(now, sent);
            }
        }
        let late = Duration::from_secs(120);
        let wait = control.departure().at.map(|at| at.saturating_since(now));
        assert!(
            wait.is_none_or(|wait| wait <= late),
            "the next packet is {wait:?} away"
        );
        assert!(
            control.pacing_rate() > Rate::ZERO || orders,
            "nothing leaves any more"
        );
        assert!(control.window() > 0, "nothing may be in flight");
        control.initial_burst();
        control.bandwidth();
    }
}
