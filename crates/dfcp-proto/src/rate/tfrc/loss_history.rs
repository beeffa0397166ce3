//! The loss event rate (RFC 5348 §5): losses within a round trip are one event, and p is the inverse
//! of the weighted mean of the last intervals between events.
//!
//! Receivers that report p and senders that work it out from acknowledgements use the same history.
//! Numbers are those of packets; a number counts once, whatever the packet carries.

use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// Weights of the intervals, the newest first (RFC 5348 §5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// Least weight that old intervals keep (RFC 5348 §5.5).
const DISCOUNT_THRESHOLD: f64 = 0.25;

/// Whether old intervals count less once the present one is long (RFC 5348 §5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discounting {
    /// They do.
    #[default]
    On,
    /// They keep their weight.
    Off,
}

/// What a lost packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossEvent {
    /// The present event.
    Same,
    /// The first event ever: the interval before it is to be [seeded](LossHistory::seed).
    First,
    /// A new event.
    New,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    packets: f64,
    discount: f64,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    number: u64,
    at: Instant,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct LossHistory {
    discounting: Discounting,
    /// Between events, the newest first; at most as many as there are weights.
    closed: VecDeque<Interval>,
    /// First loss of the newest event.
    event: Option<Event>,
    highest: u64,
}

impl LossHistory {
    /// Without any loss.
    pub fn new(discounting: Discounting) -> Self {
        Self {
            discounting,
            ..Self::default()
        }
    }

    /// Packets up to `number` were sent.
    pub fn on_packet(&mut self, number: u64) {
        self.highest = self.highest.max(number);
    }

    /// Packet `number`, which would have arrived at `at`, was lost; losses within `rtt` of an
    /// event's first are part of it. Told in order of numbers.
    pub fn on_loss(&mut self, number: u64, at: Instant, rtt: Duration) -> LossEvent {
        self.on_packet(number);
        let news = match self.event {
            None => LossEvent::First,
            Some(event) if at <= event.at + rtt || number <= event.number => {
                return LossEvent::Same;
            }
            Some(event) => {
                let discount = self.discount();
                for interval in &mut self.closed {
                    interval.discount *= discount;
                }
                self.close((number - event.number) as f64);
                LossEvent::New
            }
        };
        self.event = Some(Event { number, at });
        news
    }

    /// Says how many packets the interval before the first event stands for: slow start ends where
    /// it happens to end, so the rate reached says more than the packets sent (RFC 5348 §6.3.1).
    pub fn seed(&mut self, packets: f64) {
        if self.closed.is_empty() {
            self.close(packets.max(1.0));
        }
    }

    fn close(&mut self, packets: f64) {
        let discount = 1.0;
        self.closed.push_front(Interval { packets, discount });
        self.closed.truncate(WEIGHTS.len());
    }

    /// When the present event began.
    pub fn event_at(&self) -> Option<Instant> {
        self.event.map(|event| event.at)
    }

    /// Packets since the present event began.
    fn open(&self) -> f64 {
        self.event
            .map_or(0.0, |event| (self.highest - event.number) as f64)
    }

    /// Sums of packets and of weights over the closed intervals, which stand at `shift` and behind;
    /// `discount` is that of all of them.
    fn sums(&self, shift: usize, discount: f64) -> (f64, f64) {
        let weighted = self.closed.iter().zip(&WEIGHTS[shift..]);
        weighted.fold((0.0, 0.0), |(packets, weights), (interval, weight)| {
            let weight = weight * interval.discount * discount;
            (packets + weight * interval.packets, weights + weight)
        })
    }

    /// How much the closed intervals still count beside the present one.
    fn discount(&self) -> f64 {
        let (packets, weights) = self.sums(0, 1.0);
        let mean = packets / weights;
        let open = self.open();
        match self.discounting {
            Discounting::On if weights > 0.0 && open > 2.0 * mean => {
                (2.0 * mean / open).max(DISCOUNT_THRESHOLD)
            }
            _ => 1.0,
        }
    }

    /// p: loss events per packet, 0 before the first.
    pub fn event_rate(&self) -> f64 {
        if self.event.is_none() {
            return 0.0;
        }
        let (packets, weights) = self.sums(0, 1.0);
        let (old_packets, old_weights) = self.sums(1, self.discount());
        let with_open = (old_packets + WEIGHTS[0] * self.open()) / (old_weights + WEIGHTS[0]);
        // The present interval counts only where it makes the mean longer.
        let mean = if weights > 0.0 {
            with_open.max(packets / weights)
        } else {
            with_open
        };
        1.0 / mean.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// A history whose events begin with the packets `starts`, a second apart.
    fn events(discounting: Discounting, starts: &[u64]) -> LossHistory {
        let mut history = LossHistory::new(discounting);
        for (n, &start) in (0..).zip(starts) {
            history.on_loss(start, at(1000 * n), RTT);
        }
        history
    }

    #[test]
    fn losses_within_a_round_trip_are_one_event() {
        let mut history = LossHistory::default();
        assert_eq!(history.event_rate(), 0.0);
        assert_eq!(history.on_loss(50, at(0), RTT), LossEvent::First);
        history.seed(50.0);
        assert_eq!(history.on_loss(53, at(100), RTT), LossEvent::Same);
        assert_eq!(history.on_loss(60, at(101), RTT), LossEvent::New);
        // Intervals of 10 and 50 packets.
        assert!((history.event_rate() - 1.0 / 30.0).abs() < 1e-12);
    }

    #[test]
    fn eight_intervals_have_the_weights_of_the_rfc() {
        // Nine events, the intervals between them 10, 20 … 80 packets, the newest 80.
        let mut starts = vec![100];
        (1..9).for_each(|n| starts.push(starts[n - 1] + 10 * n as u64));
        let mut history = events(Discounting::Off, &starts);
        // (80 + 70 + 60 + 50 + 0.8·40 + 0.6·30 + 0.4·20 + 0.2·10) / 6 = 320 / 6.
        assert!((history.event_rate() - 6.0 / 320.0).abs() < 1e-12);
        // A present interval of 20 is too short to matter, one of 200 is not:
        // (200 + 80 + 70 + 60 + 0.8·50 + 0.6·40 + 0.4·30 + 0.2·20) / 6 = 490 / 6.
        history.on_packet(starts[8] + 20);
        assert!((history.event_rate() - 6.0 / 320.0).abs() < 1e-12);
        history.on_packet(starts[8] + 200);
        assert!((history.event_rate() - 6.0 / 490.0).abs() < 1e-12);
        // A ninth interval drives the oldest out.
        history.on_loss(starts[8] + 200, at(9000), RTT);
        assert_eq!(history.closed.len(), 8);
        assert!((history.event_rate() - 6.0 / 490.0).abs() < 1e-12);
    }

    #[test]
    fn a_long_quiet_interval_discounts_the_old_ones() {
        let starts = [100, 200, 300];
        let (mut on, mut off) = (
            events(Discounting::On, &starts),
            events(Discounting::Off, &starts),
        );
        // Twice the mean is not long yet.
        on.on_packet(500);
        off.on_packet(500);
        assert_eq!(on.event_rate(), off.event_rate());
        // Mean 100, open 1000: DF = max(200/1000, 0.25), so (1000 + 0.25·200) / 1.5 = 700.
        on.on_packet(1300);
        off.on_packet(1300);
        assert!((on.event_rate() - 1.0 / 700.0).abs() < 1e-12);
        assert!((off.event_rate() - 3.0 / 1200.0).abs() < 1e-12);
        // The next event keeps the discount of what was old then: (1000 + 0.25·200) / 1.5.
        on.on_loss(1300, at(5000), RTT);
        assert!((on.event_rate() - 1.0 / 700.0).abs() < 1e-12);
    }
}
