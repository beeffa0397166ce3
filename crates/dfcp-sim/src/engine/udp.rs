//! Datagrams without any control: constant rate, or on and off (cross traffic).

use super::agent::{Agent, Arrival, Buffers, Outgoing, Progress};
use super::network::FlowConfig;
use super::packet::Body;
use crate::packet::{Ecn, Priority};
use crate::random::Random;
use dfcp_proto::{Duration, Instant, Rate};

/// What a UDP source sends.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpConfig {
    /// Rate while it sends, of IP bytes.
    pub rate: Rate,
    /// Bytes of each IP packet, headers included.
    pub packet: u32,
    /// When it sends.
    pub pattern: UdpPattern,
}

/// When a UDP source sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum UdpPattern {
    /// Always, equally spaced.
    #[default]
    Constant,
    /// Always, as a Poisson process.
    Poisson,
    /// In bursts with pauses between.
    OnOff {
        /// Mean length of a burst.
        on: Duration,
        /// Mean length of a pause.
        off: Duration,
        /// How the lengths vary.
        lengths: Lengths,
    },
}

/// How the lengths of bursts and pauses are distributed around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Lengths {
    /// All alike.
    Constant,
    /// Exponential.
    #[default]
    Exponential,
    /// Pareto with this shape, above one: heavy tails, as of file sizes.
    Pareto(f64),
}

/// Headers of IPv4 and UDP.
pub(super) const IP_UDP_HEADER: u32 = 28;

/// When a UDP source sends; on whatever clock it is asked.
#[derive(Debug)]
pub struct UdpSource {
    config: UdpConfig,
    random: Random,
    /// When the next packet is due; `None` when it is done.
    due: Option<Instant>,
    /// When this burst ends.
    until: Option<Instant>,
    stop: Option<Instant>,
    left: Option<u64>,
    sent: u64,
    /// Nanoseconds that spacing was rounded down by so far, as a fraction.
    owed: f64,
}

impl UdpSource {
    /// A source of `flow`'s start, end and size.
    ///
    /// # Errors
    /// What is out of range.
    pub fn new(config: &UdpConfig, flow: &FlowConfig, random: Random) -> Result<Self, String> {
        if config.rate == Rate::ZERO {
            return Err("a source at rate zero sends nothing".into());
        }
        if config.packet <= IP_UDP_HEADER {
            return Err(format!(
                "a packet of {} bytes has no room beyond its headers' {IP_UDP_HEADER}",
                config.packet
            ));
        }
        if let UdpPattern::OnOff { on, off, lengths } = config.pattern {
            if on.is_zero() || off.is_zero() {
                return Err("the times on and off must be longer than zero".into());
            }
            if let Lengths::Pareto(shape) = lengths
                && (shape.is_nan() || shape <= 1.0)
            {
                return Err(format!(
                    "a Pareto distribution of shape {shape} has no mean: it must be above 1"
                ));
            }
        }
        let mut source = Self {
            config: config.clone(),
            random,
            due: Some(flow.start),
            until: None,
            stop: flow.stop,
            left: flow.size,
            sent: 0,
            owed: 0.0,
        };
        source.until = source.burst().map(|on| flow.start + on);
        Ok(source)
    }

    /// How long the next burst is; `None` for without end.
    fn burst(&mut self) -> Option<Duration> {
        match self.config.pattern {
            UdpPattern::Constant | UdpPattern::Poisson => None,
            UdpPattern::OnOff { on, lengths, .. } => Some(self.length(on, lengths)),
        }
    }

    fn pause(&mut self) -> Duration {
        match self.config.pattern {
            UdpPattern::Constant | UdpPattern::Poisson => Duration::ZERO,
            UdpPattern::OnOff { off, lengths, .. } => self.length(off, lengths),
        }
    }

    fn length(&mut self, mean: Duration, lengths: Lengths) -> Duration {
        match lengths {
            Lengths::Constant => mean,
            Lengths::Exponential => self.exponential(mean),
            Lengths::Pareto(shape) => {
                let least = mean.as_nanos() as f64 * (shape - 1.0) / shape;
                let factor = (1.0 - self.random.next_f64()).powf(-1.0 / shape);
                Duration::from_nanos((least * factor) as u64)
            }
        }
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        // 1 - u is in (0, 1], so the logarithm is finite.
        let factor = -(1.0 - self.random.next_f64()).ln();
        Duration::from_nanos((mean.as_nanos() as f64 * factor) as u64)
    }

    fn spacing(&mut self) -> Duration {
        let exact = f64::from(self.config.packet) * 8e9 / self.config.rate.as_bps() as f64;
        if self.config.pattern == UdpPattern::Poisson {
            return self.exponential(Duration::from_nanos(exact as u64));
        }
        let owed = exact + self.owed;
        self.owed = owed.fract();
        Duration::from_nanos(owed as u64)
    }
}

impl Agent for UdpSource {
    fn receive(&mut self, _: Instant, _: Arrival, _: &mut Buffers) {}

    fn timeout(&mut self, _: Instant) {}

    fn poll_transmit(&mut self, now: Instant, _: &mut Buffers) -> Option<Outgoing> {
        let due = self.due.filter(|&due| due <= now)?;
        if self.left == Some(0) || self.stop.is_some_and(|stop| due >= stop) {
            self.due = None;
            return None;
        }
        let mut next = due + self.spacing();
        while let Some(until) = self.until.filter(|&until| next >= until) {
            let back = until + self.pause();
            self.until = self.burst().map(|on| back + on);
            next = next.max(back);
        }
        self.due = Some(next);
        let room = u64::from(self.config.packet - IP_UDP_HEADER);
        let payload = self.left.map_or(room, |left| left.min(room));
        self.left = self.left.map(|left| left - payload);
        self.sent += 1;
        Some(Outgoing {
            size: payload as u32 + IP_UDP_HEADER,
            ecn: Ecn::NotEct,
            priority: Priority::Data,
            route: 0,
            body: Body::Udp(self.sent - 1),
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

#[derive(Debug)]
pub(super) struct UdpSink {
    size: Option<u64>,
    progress: Progress,
}

impl UdpSink {
    pub fn new(flow: &FlowConfig) -> Self {
        Self {
            size: flow.size,
            progress: Progress::default(),
        }
    }
}

impl Agent for UdpSink {
    fn receive(&mut self, now: Instant, packet: Arrival, _: &mut Buffers) {
        self.progress.delivered += u64::from(packet.size - IP_UDP_HEADER);
        if Some(self.progress.delivered) == self.size {
            self.progress.finished = Some(now);
        }
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}
