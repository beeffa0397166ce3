//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): sends at the bottleneck's rate,
//! learnt from delivery-rate samples, with about two bandwidth-delay products in flight.
//!
//! Rates are in segments per second. Left out, as in the first version: long-term sampling of
//! policed links, and allowance for aggregated acknowledgements.

use super::{Ack, Window};
use crate::tcp::TcpSenderConfig;
use dfcp_proto::{Duration, Instant, Rate};

/// 2/ln 2: the least gain that doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.885;
const CWND_GAIN: f64 = 2.0;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_CWND: f64 = 4.0;
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Below the estimate, so that a standing queue drains.
const PACING_MARGIN: f64 = 0.99;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

#[derive(Clone, Debug)]
pub(in crate::tcp) struct Bbr {
    state: State,
    bandwidth: MaxFilter,
    pacing_gain: f64,
    pacing_rate: f64,
    /// IP bytes of a full segment.
    packet: f64,
    initial_window: f64,
    round: u64,
    round_end: u64,
    full_bandwidth: f64,
    full_rounds: u32,
    pipe_full: bool,
    cycle: usize,
    cycle_start: Instant,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round: u64,
    /// The window to go back to after a recovery or a probe.
    prior_cwnd: f64,
    /// In the first round of a recovery one segment is sent for each delivered.
    conserve_until: Option<u64>,
}

impl Bbr {
    pub fn new(config: &TcpSenderConfig) -> Self {
        let window = f64::from(config.initial_window.max(1));
        Self {
            state: State::Startup,
            bandwidth: MaxFilter::default(),
            pacing_gain: HIGH_GAIN,
            // As if the round-trip time were 1 ms, until one is known.
            pacing_rate: HIGH_GAIN * window / 1e-3,
            packet: f64::from(config.mss) + 40.0,
            initial_window: window,
            round: 0,
            round_end: 0,
            full_bandwidth: 0.0,
            full_rounds: 0,
            pipe_full: false,
            cycle: 0,
            cycle_start: Instant::ZERO,
            min_rtt: None,
            min_rtt_at: Instant::ZERO,
            probe_rtt_done: None,
            probe_rtt_round: 0,
            prior_cwnd: 0.0,
            conserve_until: None,
        }
    }

    pub fn pacing_rate(&self) -> Rate {
        Rate::from_bps((self.pacing_rate * self.packet * 8.0).max(1.0) as u64)
    }

    pub fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let round_start = self.update_round(ack);
        self.update_bandwidth(ack);
        self.update_cycle(ack);
        self.check_full(ack, round_start);
        self.check_drain(ack);
        self.update_min_rtt(window, ack);
        self.set_pacing_rate(ack);
        self.set_window(window, ack, round_start);
    }

    pub fn on_recovery(&mut self, window: &mut Window, in_flight: u32, delivered: u32) {
        self.save_window(window);
        window.cwnd = f64::from(in_flight) + f64::from(delivered.max(1));
        self.conserve_until = Some(self.round + 1);
        self.round_end = u64::MAX;
    }

    pub fn on_recovered(&mut self, window: &mut Window) {
        self.conserve_until = None;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
    }

    pub fn on_timeout(&mut self, window: &Window) {
        self.save_window(window);
        self.conserve_until = None;
        self.full_bandwidth = 0.0;
    }

    fn save_window(&mut self, window: &Window) {
        self.prior_cwnd = if self.conserve_until.is_none() && self.state != State::ProbeRtt {
            window.cwnd
        } else {
            self.prior_cwnd.max(window.cwnd)
        };
    }

    /// Whether a round trip, counted in packets, begins with this acknowledgement.
    fn update_round(&mut self, ack: &Ack) -> bool {
        // A recovery begins a round of its own.
        if self.round_end == u64::MAX {
            self.round_end = ack.total_delivered;
            return false;
        }
        match ack.rate {
            Some(rate) if rate.prior_delivered >= self.round_end => {
                self.round_end = ack.total_delivered;
                self.round += 1;
                true
            }
            _ => false,
        }
    }

    fn update_bandwidth(&mut self, ack: &Ack) {
        if let Some(rate) = ack.rate {
            let sample = rate.delivered as f64 / rate.interval.as_secs_f64();
            if !rate.app_limited || sample >= self.bandwidth.max() {
                self.bandwidth.update(self.round, sample);
            }
        }
    }

    fn bdp(&self) -> Option<f64> {
        let min_rtt = self.min_rtt?;
        let bandwidth = self.bandwidth.max();
        (bandwidth > 0.0).then_some(bandwidth * min_rtt.as_secs_f64())
    }

    /// What `gain` allows in flight.
    fn target(&self, gain: f64) -> f64 {
        // Three more keep delayed acknowledgements and bursts from stopping the flow.
        self.bdp()
            .map_or(self.initial_window, |bdp| (gain * bdp).ceil() + 3.0)
            .max(MIN_CWND)
    }

    fn update_cycle(&mut self, ack: &Ack) {
        if self.state != State::ProbeBandwidth {
            return;
        }
        let Some(min_rtt) = self.min_rtt else { return };
        let full_length = ack.now.saturating_since(self.cycle_start) > min_rtt;
        let in_flight = f64::from(ack.in_flight);
        let next = match self.pacing_gain {
            // Until the extra is really in flight, or something was lost.
            gain if gain > 1.0 => full_length && (ack.lost > 0 || in_flight >= self.target(gain)),
            // Until the queue that the extra made is gone.
            gain if gain < 1.0 => full_length || in_flight <= self.target(1.0),
            _ => full_length,
        };
        if next {
            self.set_cycle(ack.now, (self.cycle + 1) % CYCLE.len());
        }
    }

    fn set_cycle(&mut self, now: Instant, phase: usize) {
        self.cycle = phase;
        self.cycle_start = now;
        self.pacing_gain = CYCLE[phase];
    }

    fn check_full(&mut self, ack: &Ack, round_start: bool) {
        if self.pipe_full || !round_start || ack.rate.is_none_or(|rate| rate.app_limited) {
            return;
        }
        let bandwidth = self.bandwidth.max();
        if bandwidth >= self.full_bandwidth * FULL_GROWTH {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.pipe_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.state == State::Startup && self.pipe_full {
            self.state = State::Drain;
            self.pacing_gain = 1.0 / HIGH_GAIN;
        }
        if self.state == State::Drain && f64::from(ack.in_flight) <= self.target(1.0) {
            self.probe_bandwidth(ack.now);
        }
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        self.state = State::ProbeBandwidth;
        // Any phase but the one that drains; spread by what differs between flows, not by chance.
        let spread = (now.as_nanos() / 1000 % 7) as usize;
        self.set_cycle(now, if spread == 0 { 0 } else { spread + 1 });
    }

    fn update_min_rtt(&mut self, window: &mut Window, ack: &Ack) {
        let expired = ack.now > self.min_rtt_at + MIN_RTT_WINDOW && self.min_rtt.is_some();
        if let Some(rtt) = ack.rtt
            && (expired || self.min_rtt.is_none_or(|min| rtt <= min))
        {
            self.min_rtt = Some(rtt.max(Duration::from_nanos(1)));
            self.min_rtt_at = ack.now;
        }
        if expired && self.state != State::ProbeRtt {
            self.save_window(window);
            self.state = State::ProbeRtt;
            self.pacing_gain = 1.0;
            self.probe_rtt_done = None;
        }
        if self.state != State::ProbeRtt {
            return;
        }
        match self.probe_rtt_done {
            None if f64::from(ack.in_flight) <= MIN_CWND => {
                self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                self.probe_rtt_round = self.round + 1;
            }
            Some(done) if ack.now >= done && self.round >= self.probe_rtt_round => {
                self.min_rtt_at = ack.now;
                window.cwnd = window.cwnd.max(self.prior_cwnd);
                if self.pipe_full {
                    self.probe_bandwidth(ack.now);
                } else {
                    self.state = State::Startup;
                    self.pacing_gain = HIGH_GAIN;
                }
            }
            _ => {}
        }
    }

    fn set_pacing_rate(&mut self, ack: &Ack) {
        let bandwidth = self.bandwidth.max();
        let rate = if bandwidth > 0.0 {
            self.pacing_gain * bandwidth * PACING_MARGIN
        } else if ack.smoothed_rtt.is_zero() {
            return;
        } else {
            HIGH_GAIN * self.initial_window / ack.smoothed_rtt.as_secs_f64()
        };
        // In startup the rate never falls: a short sample must not stop the doubling.
        if self.pipe_full || bandwidth == 0.0 || rate > self.pacing_rate || self.round <= 1 {
            self.pacing_rate = rate;
        }
    }

    fn set_window(&mut self, window: &mut Window, ack: &Ack, round_start: bool) {
        let delivered = f64::from(ack.delivered);
        if ack.lost > 0 {
            window.cwnd = (window.cwnd - f64::from(ack.lost)).max(1.0);
        }
        if round_start && self.conserve_until.is_some_and(|round| self.round >= round) {
            self.conserve_until = None;
        }
        if self.conserve_until.is_some() {
            window.cwnd = window.cwnd.max(f64::from(ack.in_flight) + delivered);
        } else {
            let gain = match self.state {
                State::Startup | State::Drain => HIGH_GAIN,
                State::ProbeBandwidth | State::ProbeRtt => CWND_GAIN,
            };
            let target = self.target(gain);
            if self.pipe_full {
                window.cwnd = (window.cwnd + delivered).min(target);
            } else if window.cwnd < target || (ack.total_delivered as f64) < self.initial_window {
                window.cwnd += delivered;
            }
            window.cwnd = window.cwnd.max(MIN_CWND);
        }
        if self.state == State::ProbeRtt {
            window.cwnd = window.cwnd.min(MIN_CWND);
        }
    }
}

/// The greatest of the samples of the last [`BANDWIDTH_ROUNDS`] rounds.
///
/// Keeps the greatest of each round in a ring: rounds pass slowly, samples come with every ACK.
#[derive(Clone, Debug, Default)]
struct MaxFilter {
    by_round: [f64; BANDWIDTH_ROUNDS as usize],
    newest: u64,
    max: f64,
}

impl MaxFilter {
    fn max(&self) -> f64 {
        self.max
    }

    fn update(&mut self, round: u64, sample: f64) {
        if round != self.newest {
            let passed = (round - self.newest).min(BANDWIDTH_ROUNDS);
            for old in 0..passed {
                self.by_round[((round - old) % BANDWIDTH_ROUNDS) as usize] = 0.0;
            }
            self.newest = round;
            self.max = self.by_round.iter().copied().fold(0.0, f64::max);
        }
        let slot = &mut self.by_round[(round % BANDWIDTH_ROUNDS) as usize];
        *slot = slot.max(sample);
        self.max = self.max.max(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_forgets_after_ten_rounds() {
        let mut filter = MaxFilter::default();
        filter.update(0, 5.0);
        filter.update(1, 3.0);
        filter.update(9, 1.0);
        assert_eq!(filter.max(), 5.0);
        filter.update(10, 1.0);
        assert_eq!(filter.max(), 3.0);
        filter.update(30, 0.5);
        assert_eq!(filter.max(), 0.5);
    }
}
