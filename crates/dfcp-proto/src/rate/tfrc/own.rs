//! What a sender knows of loss events and the receive rate from acknowledgements alone: for peers
//! that do not report them, and to hold reports against.

use super::equation::loss_event_rate;
use super::loss_history::{LossEvent, LossHistory};
use super::{Feedback, PathReport};
use crate::time::{Duration, Instant};

/// Counts packets in the order in which their fate becomes known.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnView {
    losses: LossHistory,
    number: u64,
    /// Bytes delivered, and when that was known: the beginning of the interval being measured.
    since: (u64, Instant),
    delivered: u64,
    /// Bytes per second in the last intervals, newest first.
    rates: [f64; 3],
}

impl OwnView {
    pub fn start(&mut self, now: Instant) {
        self.since = (self.delivered, now);
    }

    /// Takes feedback in; gives a report once per round trip, and at a new loss event.
    pub fn update(
        &mut self,
        feedback: &Feedback<'_>,
        packet: f64,
        rtt: Duration,
    ) -> Option<PathReport> {
        let now = feedback.now;
        self.number = self.number.saturating_add(feedback.acked_packets);
        if let Some(newest) = feedback.newest {
            self.delivered = self.delivered.max(newest.delivered_total);
        }
        let elapsed = now.saturating_since(self.since.1);
        let measured = elapsed >= rtt && !elapsed.is_zero();
        let rate = (self.delivered - self.since.0) as f64 / elapsed.max(rtt).as_secs_f64();
        if measured {
            self.rates = [rate, self.rates[0], self.rates[1]];
            self.since = (self.delivered, now);
        }
        self.losses.on_packet(self.number);
        let mut news = false;
        if feedback.lost_packets > 0 {
            self.number = self.number.saturating_add(feedback.lost_packets);
            // Found lost at one moment, they are of one event.
            let event = self.losses.on_loss(self.number, now, rtt);
            if event == LossEvent::First {
                let p = loss_event_rate(packet, rtt, self.rates[0].max(rate).max(packet));
                self.losses.seed(1.0 / p);
            }
            news = event != LossEvent::Same;
        }
        (measured || news).then(|| PathReport {
            receive_rate: self.rates[0].max(rate),
            loss_event_rate: self.losses.event_rate(),
        })
    }

    pub fn loss_event_rate(&self) -> f64 {
        self.losses.event_rate()
    }

    /// Most bytes per second that were delivered over any of the last intervals.
    pub fn best_rate(&self) -> f64 {
        self.rates.into_iter().fold(0.0, f64::max)
    }
}
