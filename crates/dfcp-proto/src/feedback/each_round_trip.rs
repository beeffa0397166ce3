//! A report each round trip, and at once when loss grows (RFC 5348 §6): what rate control by equation
//! asks of a receiver.
//!
//! The loss event rate is worked out here, from the numbers of data packets; the sender tells the
//! round-trip time that this takes. Reports also say how many packets the receiver has room for.

use super::holes::Holes;
use super::{Arrival, FeedbackPolicy};
use crate::packet::decode_packet_number;
use crate::rate::{Discounting, LossEvent, LossHistory, PathReport, loss_event_rate};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// A round trip counts at least this, so that reports stay few beside data.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Arrivals within this part of a round trip are counted together.
const MERGE: u32 = 64;
/// Weight of a packet in the mean size.
const SIZE_GAIN: f64 = 1.0 / 16.0;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct EachRoundTrip {
    /// Packets that the receive window of a channel holds.
    window: u8,
    rtt: Duration,
    holes: Holes,
    losses: LossHistory,
    /// When bytes arrived within the last round trip.
    arrivals: VecDeque<(Instant, u64)>,
    /// Mean size of packets.
    size: f64,
    last: Option<Instant>,
    due: Option<Instant>,
    /// p as it was reported last.
    reported: f64,
}

impl EachRoundTrip {
    /// With a receive window of so many packets for each channel, at least 1.
    pub fn new(window: u8) -> Self {
        Self {
            window: window.max(1),
            rtt: MIN_INTERVAL,
            holes: Holes::default(),
            losses: LossHistory::new(Discounting::On),
            arrivals: VecDeque::new(),
            size: 0.0,
            last: None,
            due: None,
            reported: 0.0,
        }
    }

    fn expect_report(&mut self, now: Instant) {
        let next = self.last.map_or(now, |last| (last + self.rtt).max(now));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    fn count(&mut self, now: Instant, size: u64) {
        let together = self.rtt / MERGE;
        match self.arrivals.back_mut() {
            Some((since, bytes)) if now.saturating_since(*since) < together => *bytes += size,
            _ => self.arrivals.push_back((now, size)),
        }
        self.forget(now);
    }

    fn forget(&mut self, now: Instant) {
        while let Some((since, _)) = self.arrivals.front()
            && *since + self.rtt <= now
        {
            self.arrivals.pop_front();
        }
    }

    /// X_recv: bytes per second over the last round trip.
    fn receive_rate(&mut self, now: Instant) -> f64 {
        self.forget(now);
        let bytes: u64 = self.arrivals.iter().map(|(_, bytes)| bytes).sum();
        bytes as f64 / self.rtt.as_secs_f64()
    }

    /// A data packet arrived: what is lost by its number?
    fn look_for_losses(&mut self, now: Instant, arrival: &Arrival, number: u32) {
        let number = decode_packet_number(self.holes.highest(), number);
        let mut event = self
            .holes
            .on_packet(now, number, self.rtt, &mut self.losses);
        if arrival.marked {
            let marked = self.losses.on_loss(number, now, self.rtt);
            event = event.or(Some(marked).filter(|&marked| marked != LossEvent::Same));
        }
        if event == Some(LossEvent::First) {
            let rate = self.receive_rate(now).max(self.size);
            let p = loss_event_rate(self.size, self.rtt, rate);
            self.losses.seed(1.0 / p);
        }
        if event.is_some() || self.losses.event_rate() > self.reported {
            self.due = Some(now);
        }
    }
}

impl FeedbackPolicy for EachRoundTrip {
    fn number(&self) -> u64 {
        3
    }

    fn max_delay(&self, rtt: Duration, _gap: Duration) -> Duration {
        rtt.max(MIN_INTERVAL)
    }

    fn receive_window(&self) -> Option<u8> {
        Some(self.window)
    }

    fn on_packet(&mut self, now: Instant, arrival: &Arrival) {
        self.rtt = arrival.rtt.max(MIN_INTERVAL);
        self.count(now, arrival.size);
        self.expect_report(now);
        if let Some(number) = arrival.data_number {
            let size = arrival.size as f64;
            let gain = if self.size > 0.0 { SIZE_GAIN } else { 1.0 };
            self.size += gain * (size - self.size);
            self.look_for_losses(now, arrival, number);
        }
    }

    fn on_immediate(&mut self, now: Instant, arrival: &Arrival) {
        self.on_packet(now, arrival);
        self.due = Some(now);
    }

    fn on_urgent(&mut self, now: Instant) {
        self.due = Some(now);
    }

    fn on_room(&mut self, now: Instant) {
        self.expect_report(now);
    }

    fn report(&mut self, now: Instant) -> Option<PathReport> {
        self.reported = self.losses.event_rate();
        Some(PathReport {
            receive_rate: self.receive_rate(now),
            loss_event_rate: self.reported,
        })
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn on_sent(&mut self, now: Instant, _size: u64) {
        self.last = Some(now);
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const GAP: Duration = Duration::from_millis(5);

    fn packet(number: u32) -> Arrival {
        let mut packet = Arrival::new(u64::from(number), 1000);
        packet.data_number = Some(number);
        packet.rtt = RTT;
        packet
    }

    /// Packets 5 ms apart but those in `lost`; when reports left, and the last one.
    fn run(packets: u32, lost: &[u32]) -> (Vec<Instant>, PathReport) {
        let (mut policy, mut times) = (EachRoundTrip::new(64), Vec::new());
        let mut last = PathReport::default();
        for number in 0..packets {
            let now = Instant::ZERO + GAP * number;
            if !lost.contains(&number) {
                policy.on_packet(now, &packet(number));
            }
            if policy.due().is_some_and(|due| due <= now) {
                last = policy.report(now).expect("it reports");
                policy.on_sent(now, 80);
                times.push(now);
            }
        }
        (times, last)
    }

    #[test]
    fn one_report_a_round_trip_with_the_rate_of_arrivals() {
        let (times, report) = run(201, &[]);
        assert_eq!(times.len(), 11);
        assert!(times.windows(2).all(|pair| pair[1] == pair[0] + RTT));
        // 1000 bytes each 5 ms.
        assert!((report.receive_rate - 200_000.0).abs() < 10_001.0);
        assert_eq!(report.loss_event_rate, 0.0);
    }

    #[test]
    fn a_loss_event_is_reported_at_once_and_its_further_losses_are_not() {
        let (times, report) = run(71, &[62, 64]);
        let told = Instant::ZERO + GAP * 66; // 63, 65, 66: the third packet above 62
        assert!(times.contains(&told), "{times:?}");
        assert_eq!(times.len(), 5);
        // 18 packets arrived in that round trip. The equation gives 180 kB/s where
        // sqrt(2p/3) + 12 · sqrt(3p/8) · p = 1/18: p = 0.0043.
        let p = report.loss_event_rate;
        assert!((0.0042..0.0044).contains(&p), "{p}");
    }
}
