//! Congestion control: how the window grows and by how much it shrinks. One algorithm a file.
//!
//! Windows are in segments, as floating-point numbers. Growth counts segments delivered, not
//! acknowledgements (RFC 3465), so delayed ACKs do not slow it down.
//!
//! Recovery itself belongs to the sender. The loss-based algorithms set `ssthresh` when told of
//! congestion and the sender brings the window down to it; BBR alone keeps the window for itself.

mod bbr;
mod cubic;
mod highspeed;
mod htcp;
mod hystart;
mod reno;

pub use cubic::{CubicConfig, CubicVariant};

use super::config::{TcpConfigError, TcpSenderConfig};
use super::rate::RateSample;
use bbr::Bbr;
use cubic::Cubic;
use dfcp_proto::{Duration, Instant, Rate};
use highspeed::HighSpeed;
use htcp::HTcp;
use reno::Reno;

/// The least window after a loss, segments (RFC 5681, equation 4).
const MIN_SSTHRESH: f64 = 2.0;

/// Which algorithm, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Congestion {
    /// RFC 5681, with appropriate byte counting.
    Reno,
    /// CUBIC, today's or an earlier one.
    Cubic(CubicConfig),
    /// HighSpeed TCP (RFC 3649).
    HighSpeed,
    /// H-TCP (draft-leith-tcp-htcp-06).
    HTcp,
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr,
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Cubic(CubicConfig::default())
    }
}

impl Congestion {
    pub(super) fn validate(&self) -> Result<(), TcpConfigError> {
        match self {
            Self::Cubic(config) => config.validate(),
            Self::Reno | Self::HighSpeed | Self::HTcp | Self::Bbr => Ok(()),
        }
    }
}

/// The congestion window, segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub cwnd: f64,
    pub ssthresh: f64,
}

impl Window {
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start, up to the threshold; gives how many of `delivered` segments are left for
    /// congestion avoidance.
    #[inline]
    pub fn slow_start(&mut self, delivered: f64) -> f64 {
        let step = delivered.min((self.ssthresh - self.cwnd).ceil().max(0.0));
        self.cwnd += step;
        delivered - step
    }
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub now: Instant,
    /// Segments newly known to have arrived.
    pub delivered: u32,
    /// Segments newly found lost.
    pub lost: u32,
    pub in_flight: u32,
    /// A round-trip time sample.
    pub rtt: Option<Duration>,
    pub smoothed_rtt: Duration,
    pub min_rtt: Duration,
    /// The first segment not acknowledged, and the first never sent.
    pub una: u32,
    pub next: u32,
    /// Whether the window was what held the sender back, and it is not repairing a loss.
    pub may_grow: bool,
    pub rate: Option<RateSample>,
    /// All segments delivered so far; zero without rate samples.
    pub total_delivered: u64,
}

/// One connection's algorithm.
#[derive(Clone, Debug)]
pub(super) enum Controller {
    Reno(Reno),
    Cubic(Cubic),
    HighSpeed(HighSpeed),
    HTcp(HTcp),
    Bbr(Bbr),
}

impl Controller {
    pub fn new(config: &TcpSenderConfig) -> Self {
        match config.congestion {
            Congestion::Reno => Self::Reno(Reno),
            Congestion::Cubic(cubic) => Self::Cubic(Cubic::new(cubic)),
            Congestion::HighSpeed => Self::HighSpeed(HighSpeed::new()),
            Congestion::HTcp => Self::HTcp(HTcp::new()),
            Congestion::Bbr => Self::Bbr(Bbr::new(config)),
        }
    }

    /// Whether it needs rate samples, and sets the window itself whatever the sender repairs.
    #[inline]
    pub fn is_model_based(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    /// An acknowledgement arrived.
    #[inline]
    pub fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        match self {
            Self::Bbr(bbr) => return bbr.on_ack(window, ack),
            Self::HTcp(htcp) => htcp.observe(ack),
            Self::Cubic(cubic) => cubic.observe(window, ack),
            Self::Reno(_) | Self::HighSpeed(_) => {}
        }
        if !ack.may_grow || ack.delivered == 0 {
            return;
        }
        let mut delivered = f64::from(ack.delivered);
        if window.in_slow_start() {
            delivered = match self {
                Self::Cubic(cubic) => cubic.slow_start(window, delivered),
                _ => window.slow_start(delivered),
            };
            if delivered <= 0.0 {
                return;
            }
        }
        match self {
            Self::Reno(reno) => reno.avoid(window, delivered),
            Self::Cubic(cubic) => cubic.avoid(window, ack, delivered),
            Self::HighSpeed(highspeed) => highspeed.avoid(window, delivered),
            Self::HTcp(htcp) => htcp.avoid(window, ack, delivered),
            Self::Bbr(_) => {}
        }
    }

    /// Congestion: a loss found, a mark echoed or a timeout. At most once a window.
    pub fn on_congestion(&mut self, window: &mut Window, now: Instant) {
        let factor = match self {
            Self::Reno(reno) => reno.beta(),
            Self::Cubic(cubic) => cubic.on_congestion(window.cwnd),
            Self::HighSpeed(highspeed) => highspeed.beta(window.cwnd),
            Self::HTcp(htcp) => htcp.on_congestion(now),
            Self::Bbr(_) => return,
        };
        window.ssthresh = (window.cwnd * factor).max(MIN_SSTHRESH);
    }

    /// The sender begins to repair losses.
    pub fn on_recovery(&mut self, window: &mut Window, in_flight: u32, delivered: u32) {
        if let Self::Bbr(bbr) = self {
            bbr.on_recovery(window, in_flight, delivered);
        }
    }

    /// The sender has repaired all losses.
    pub fn on_recovered(&mut self, window: &mut Window) {
        if let Self::Bbr(bbr) = self {
            bbr.on_recovered(window);
        }
    }

    /// The retransmission timer ran out, after [`Controller::on_congestion`] if that was due.
    pub fn on_timeout(&mut self, window: &Window) {
        match self {
            Self::Cubic(cubic) => cubic.on_timeout(),
            Self::Bbr(bbr) => bbr.on_timeout(window),
            Self::Reno(_) | Self::HighSpeed(_) | Self::HTcp(_) => {}
        }
    }

    /// The rate to pace at, IP bytes; `None` sends as the window allows.
    #[inline]
    pub fn pacing_rate(&self) -> Option<Rate> {
        match self {
            Self::Bbr(bbr) => Some(bbr.pacing_rate()),
            _ => None,
        }
    }
}

#[cfg(test)]
impl Ack {
    /// An acknowledgement of one segment on a path of 100 ms.
    fn at(now: Instant) -> Self {
        Self {
            now,
            delivered: 1,
            lost: 0,
            in_flight: 0,
            rtt: None,
            smoothed_rtt: Duration::from_millis(100),
            min_rtt: Duration::from_millis(100),
            una: 0,
            next: 0,
            may_grow: true,
            rate: None,
            total_delivered: 0,
        }
    }
}
