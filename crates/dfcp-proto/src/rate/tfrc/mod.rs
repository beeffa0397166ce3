//! TCP-friendly rate control (RFC 5348; RFC 3448 on request, which Chameleon was built on).
//!
//! The rate is what TCP would get at the loss event rate p and the round-trip time R
//! ([`tcp_throughput`]), never above twice what the receiver gets; before the first loss it doubles
//! each round trip. Silence for four round trips halves it.
//!
//! p and the receive rate come from the receiver ([`PathReport`]) where it reports them; else the
//! sender works them out from acknowledgements (RFC 5348 §8). Reports are held against those: a
//! receiver may err, but not make the sender explode.

mod equation;
mod loss_history;
mod own;
#[cfg(test)]
mod tests;

pub use equation::{loss_event_rate, tcp_throughput};
pub use loss_history::{Discounting, LossEvent, LossHistory};

use super::{Feedback, PathReport, RateController};
use crate::time::{Duration, Instant, Rate};
use own::OwnView;

/// Longest interval between packets (RFC 5348 §4.3).
const T_MBI: f64 = 64.0;
/// Weight of the past in the round-trip time (RFC 5348 §4.3).
const RTT_MEMORY: f64 = 0.9;
/// Above this a rate means nothing any more, bytes per second.
const MAX_RATE: f64 = 1e13;
/// A report may be this far above what the sender saw delivered, and below the loss that it saw: it
/// counts at another place, over other intervals.
const REPORT_SLACK: f64 = 4.0;

/// Which text is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Specification {
    /// Starts with up to four packets per round trip; a sender that had little to say is not held
    /// to twice of that.
    #[default]
    Rfc5348,
    /// Starts with one packet per round trip; never above twice the receive rate.
    Rfc3448,
}

/// Whether single round-trip samples move the rate (RFC 5348 §4.5), so that short queues do not
/// swing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OscillationReduction {
    /// They do not.
    #[default]
    Off,
    /// The rate goes by the root of the sample over the mean root.
    On,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Tfrc {
    specification: Specification,
    reduction: OscillationReduction,
    /// s, bytes.
    packet: f64,
    /// R.
    rtt: Duration,
    /// Mean of the roots of round-trip samples, and the last root (seconds).
    roots: Option<(f64, f64)>,
    /// X, bytes per second.
    rate: f64,
    /// p.
    loss_event_rate: f64,
    /// X_recv of the last two round trips with their times, infinite at first.
    received: Vec<(Instant, f64)>,
    /// When slow start last doubled the rate.
    doubled: Instant,
    timer: NoFeedback,
    last_sent: Option<Instant>,
    own: OwnView,
    /// The peer reports.
    reported: bool,
    refused: u64,
}

/// The no-feedback timer. It is looked at when something is sent or heard: in between, its rate
/// moves nothing.
#[derive(Clone, Copy, Debug, Default)]
struct NoFeedback {
    set: Instant,
    expires: Instant,
}

impl Tfrc {
    /// By `specification`.
    pub fn new(specification: Specification, reduction: OscillationReduction) -> Self {
        Self {
            specification,
            reduction,
            packet: 1460.0,
            rtt: Duration::from_millis(100),
            rate: 1460.0,
            ..Self::default()
        }
    }

    /// What the connection starts with, and may always come back to after a pause.
    fn initial_rate(&self) -> f64 {
        let window = match self.specification {
            // RFC 3390's window, as RFC 5348 §4.2 has it.
            Specification::Rfc5348 => (4.0 * self.packet).min((2.0 * self.packet).max(4380.0)),
            Specification::Rfc3448 => self.packet,
        };
        window / self.rtt.as_secs_f64()
    }

    fn least_rate(&self) -> f64 {
        self.packet / T_MBI
    }

    /// X_recv, the largest that counts.
    fn receive_rate(&self) -> f64 {
        self.received.iter().fold(0.0, |most, &(_, x)| most.max(x))
    }

    fn set_timer(&mut self, now: Instant) {
        let wait = (4.0 * self.rtt.as_secs_f64()).max(2.0 * self.packet / self.rate);
        self.timer = NoFeedback {
            set: now,
            expires: now + Duration::from_secs_f64(wait),
        };
    }

    fn sample(&mut self, latest: Duration) {
        let root = latest.as_secs_f64().sqrt();
        match self.roots {
            // The handshake's was a guess on one of the sides.
            None => self.rtt = latest.max(Duration::from_nanos(1)),
            Some(_) => {
                let mixed = self.rtt.mul_f64(RTT_MEMORY) + latest.mul_f64(1.0 - RTT_MEMORY);
                self.rtt = mixed.max(Duration::from_nanos(1));
            }
        }
        let mean = self.roots.map_or(root, |(mean, _)| {
            RTT_MEMORY * mean + (1.0 - RTT_MEMORY) * root
        });
        self.roots = Some((mean, root));
    }

    /// What a report says, as far as the acknowledgements bear it out.
    fn believed(&mut self, report: PathReport) -> PathReport {
        let most = REPORT_SLACK * (self.own.best_rate() + self.initial_rate());
        let least = self.own.loss_event_rate() / REPORT_SLACK;
        let PathReport {
            receive_rate: x,
            loss_event_rate: p,
        } = report;
        if !(0.0..=most).contains(&x) || !(least..=1.0).contains(&p) {
            self.refused += 1;
        }
        // What is no number at all counts as the worst.
        PathReport {
            receive_rate: if x.is_nan() { 0.0 } else { x.clamp(0.0, most) },
            loss_event_rate: if p.is_nan() {
                1.0
            } else {
                p.clamp(least.min(1.0), 1.0)
            },
        }
    }

    /// RFC 5348 §4.3, step 4.
    fn on_report(&mut self, now: Instant, report: PathReport, limited: Limited) {
        let worse = report.loss_event_rate > self.loss_event_rate;
        self.loss_event_rate = report.loss_event_rate;
        let limit = match (self.specification, limited) {
            (Specification::Rfc3448, _) => {
                self.received = vec![(now, report.receive_rate)];
                2.0 * report.receive_rate
            }
            (Specification::Rfc5348, Limited::ByNetwork) => {
                let old = now - 2 * self.rtt;
                self.received.retain(|&(at, _)| at >= old);
                // Feedback closer than this is an exception (a loss); more of it teaches nothing.
                self.received.truncate(16);
                self.received.push((now, report.receive_rate));
                2.0 * self.receive_rate()
            }
            (Specification::Rfc5348, Limited::ByApplication) => {
                self.received.retain(|&(_, x)| x.is_finite());
                let mut most = report.receive_rate;
                let factor = if worse {
                    most *= 0.85;
                    self.received.iter_mut().for_each(|(_, x)| *x /= 2.0);
                    1.0
                } else {
                    2.0
                };
                most = most.max(self.receive_rate());
                self.received = vec![(now, most)];
                factor * most
            }
        };
        self.follow(now, limit);
        self.set_timer(now);
    }

    /// The rate at most `limit`.
    fn follow(&mut self, now: Instant, limit: f64) {
        let least = self.least_rate();
        if self.loss_event_rate > 0.0 {
            let equation = tcp_throughput(self.packet, self.rtt, self.loss_event_rate);
            self.rate = equation.min(limit).max(least);
        } else if now.saturating_since(self.doubled) >= self.rtt {
            self.rate = (2.0 * self.rate).min(limit).max(self.initial_rate());
            self.doubled = now;
        }
        self.rate = self.rate.min(MAX_RATE);
    }

    /// Lets the no-feedback timer expire as often as it did (RFC 5348 §4.4). Each time the rate falls
    /// or the interval is long, so this ends soon.
    fn expire(&mut self, now: Instant) {
        while self.timer.expires <= now {
            let expired = self.timer.expires;
            let idle = self.last_sent.is_none_or(|sent| sent < self.timer.set);
            let received = self.receive_rate();
            let enough = self.initial_rate();
            let modest = if self.loss_event_rate > 0.0 {
                received < enough
            } else {
                self.rate < 2.0 * enough
            };
            if idle && modest {
                return self.set_timer(now);
            }
            self.on_silence(expired, received);
            self.set_timer(expired);
            if self.rate <= self.least_rate() {
                return self.set_timer(now);
            }
        }
    }

    fn on_silence(&mut self, now: Instant, received: f64) {
        let least = self.least_rate();
        if self.loss_event_rate == 0.0 {
            self.rate = (self.rate / 2.0).max(least);
            return;
        }
        let equation = tcp_throughput(self.packet, self.rtt, self.loss_event_rate);
        let limit = if equation > 2.0 * received {
            received
        } else {
            equation / 2.0
        };
        let limit = limit.max(least);
        self.received = vec![(now, limit / 2.0)];
        self.follow(now, limit);
    }
}

/// What held the sender back in the interval that a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limited {
    ByNetwork,
    /// Little to send, or a slow reader.
    ByApplication,
}

impl RateController for Tfrc {
    fn on_established(&mut self, now: Instant, rtt: Duration, packet_size: u64) {
        self.packet = packet_size.max(1) as f64;
        self.rtt = rtt.max(Duration::from_nanos(1));
        self.rate = self.initial_rate().min(MAX_RATE);
        self.received = vec![(now, f64::INFINITY)];
        self.doubled = now;
        self.own.start(now);
        self.set_timer(now);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        self.expire(now);
        if feedback.newest.is_some() {
            self.sample(feedback.rtt.latest());
        }
        let own = self.own.update(feedback, self.packet, self.rtt);
        let report = match feedback.path {
            Some(report) => {
                self.reported = true;
                Some(self.believed(report))
            }
            None => own.filter(|_| !self.reported),
        };
        let idle = feedback.newest.map(|n| feedback.idle_total >= n.sent_total);
        let limited = match idle {
            Some(true) => Limited::ByApplication,
            _ => Limited::ByNetwork,
        };
        if let Some(report) = report {
            self.on_report(now, report, limited);
        } else if feedback.newest.is_some() {
            self.set_timer(now);
        }
    }

    fn on_sent(&mut self, now: Instant, _sent_total: u64) {
        self.expire(now);
        self.last_sent = Some(now);
    }

    fn round_trip(&self) -> Option<Duration> {
        Some(self.rtt)
    }

    fn refused_reports(&self) -> u64 {
        self.refused
    }

    fn pacing_rate(&self) -> Rate {
        let factor = match (self.reduction, self.roots) {
            (OscillationReduction::On, Some((mean, root))) if root > 0.0 => mean / root,
            _ => 1.0,
        };
        let rate = (self.rate * factor).clamp(self.least_rate(), MAX_RATE);
        Rate::from_bps(((8.0 * rate) as u64).max(1))
    }

    /// The rate alone holds it back: silence makes it fall.
    fn window(&self) -> u64 {
        u64::MAX
    }

    fn initial_burst(&self) -> u64 {
        self.packet as u64
    }

    fn bandwidth(&self) -> Rate {
        Rate::from_bps((8.0 * self.rate) as u64)
    }
}
