//! HyStart++ (RFC 9406): leave slow start when the round-trip time rises, after a probation in
//! which the window grows at a quarter of the speed.

use super::{Ack, Window};
use dfcp_proto::Duration;

const MIN_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_THRESHOLD: Duration = Duration::from_millis(16);
const SAMPLES: u32 = 8;
const PROBATION_DIVISOR: f64 = 4.0;
const PROBATION_ROUNDS: u32 = 5;

#[derive(Clone, Debug)]
pub(super) struct HyStart {
    round_end: u32,
    last_min: Duration,
    current_min: Duration,
    samples: u32,
    probation: Option<Probation>,
}

#[derive(Clone, Debug)]
struct Probation {
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    pub fn new() -> Self {
        Self {
            round_end: 0,
            last_min: Duration::MAX,
            current_min: Duration::MAX,
            samples: 0,
            probation: None,
        }
    }

    /// An acknowledgement in slow start. May end it, by setting the threshold to the window.
    pub fn observe(&mut self, window: &mut Window, ack: &Ack) {
        if ack.una > self.round_end {
            self.round_end = ack.next;
            self.last_min = self.current_min;
            self.current_min = Duration::MAX;
            self.samples = 0;
            if let Some(probation) = &mut self.probation {
                probation.rounds += 1;
                if probation.rounds >= PROBATION_ROUNDS {
                    window.ssthresh = window.cwnd;
                    return;
                }
            }
        }
        let Some(rtt) = ack.rtt else { return };
        self.current_min = self.current_min.min(rtt);
        self.samples += 1;
        if self.samples < SAMPLES {
            return;
        }
        match &self.probation {
            Some(probation) if self.current_min < probation.baseline => self.probation = None,
            Some(_) => {}
            None if self.last_min == Duration::MAX => {}
            None => {
                let threshold = (self.last_min / 8).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
                if self.current_min >= self.last_min + threshold {
                    self.probation = Some(Probation {
                        baseline: self.current_min,
                        rounds: 0,
                    });
                }
            }
        }
    }

    /// What slow start's step is divided by.
    pub fn divisor(&self) -> f64 {
        if self.probation.is_some() {
            PROBATION_DIVISOR
        } else {
            1.0
        }
    }
}
