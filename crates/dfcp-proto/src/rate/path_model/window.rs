//! How much may be in flight.

use super::tuning::{bounds, cruise, spans, startup};
use super::{Mode, PathModel};

impl PathModel {
    /// Disbelieves a receiver that claims far more than was delivered.
    pub(super) fn bound_by_delivery(&mut self) {
        if matches!(self.mode, Mode::Startup(_)) {
            if self.delivered.used > startup::MAX_ROUND_TRIPS {
                self.begin_cruise();
            }
            return;
        }
        let Some(rate) = self.delivered.best() else {
            self.trusted = self.estimate;
            return;
        };
        let recent = self.delivered.intervals - self.steady_since < bounds::EARLY_ROUND_TRIPS;
        let claim = if recent {
            bounds::EARLY_CLAIM
        } else {
            bounds::MAX_CLAIM
        };
        let most = claim * rate / (1.0 - self.loss.mean.min(bounds::MAX_EXCUSE));
        let most = most.max(bounds::CLAIM_PACKETS * self.packet / self.rtt.max(bounds::CLAIM_TIME));
        // Readers that have stopped make the sender wait as well: that shows no less than was known before, and
        // no more.
        let most = match self.delivered.waited {
            true => most.max(self.trusted),
            false => most,
        };
        self.estimate = self.estimate.min(most);
        if !self.delivered.waited {
            self.trusted = self.estimate;
        }
        if let Mode::Competitive(window) = &mut self.mode {
            window.limit(most * self.smoothed_rtt.max(self.rtt));
        }
    }

    /// Bytes in flight beyond which a window is not believed, by all that arrived so far. Before the deliveries of a
    /// round trip are known by this side's clock, the estimate is the receiver's word alone, and how long a round
    /// trip takes is always.
    fn most_in_flight(&self) -> f64 {
        self.delivered_window(bounds::EARLY_CLAIM * bounds::WINDOW_ROUND_TRIPS)
    }

    /// Bytes that may be in flight by what is known of the path.
    pub(super) fn informed_window(&self) -> f64 {
        let window = match &self.mode {
            Mode::Startup(_) => self.startup_window(),
            Mode::Competitive(window) => window.window(),
            Mode::Cruise(cruise) => {
                // A probe that asks for more than the window has room for anyway.
                let asked = cruise.probe_gain(self.now).unwrap_or(1.0);
                let room = (asked / cruise::MAX_GROWTH).max(1.0);
                self.estimated_window(room)
            }
            // Else the window would slow fast stretches down.
            Mode::LossTest(test, _) => {
                self.estimated_window((test.fastest() / self.estimate).max(1.0))
            }
            Mode::Yield(_) => self.estimated_window(1.0),
        };
        window.min(self.most_in_flight())
    }

    /// Bytes that may be in flight at `gain` times the estimated rate.
    fn estimated_window(&self, gain: f64) -> f64 {
        gain * self.estimate * self.window_time() + bounds::SPARE_WINDOW * self.packet
    }

    /// Seconds of data that may be in flight: the smoothed round trip and half of it again, or the
    /// highest of late, outages included. A window too small for a path that got longer or holds packets back would
    /// make gaps, and gaps pass for a slow bottleneck. Feedback comes a few milliseconds late, and
    /// loss is noticed an eighth late. Round trips count up to a bound: a window that grew with the
    /// queue that it makes would know no end on a link that nearly stands still.
    fn window_time(&self) -> f64 {
        let most = self.rtt + bounds::MAX_HELD;
        let smoothed = self.smoothed_rtt.clamp(self.rtt, most) + self.target();
        let smoothed = bounds::WINDOW_ROUND_TRIPS * smoothed;
        let high = self.high_rtt.get().min(most) + self.target();
        // Where reports are lost, or few, the next one may be several gaps away.
        let gap = (spans::GAPS * self.usual_gap).min(bounds::LONGEST_GAP);
        smoothed.max(high) + gap.max(bounds::LATE_FEEDBACK)
    }
}
