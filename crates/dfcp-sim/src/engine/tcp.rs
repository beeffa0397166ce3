//! TCP's two ends as agents.

use super::agent::{Agent, Arrival, Buffers, Outgoing, Progress};
use super::network::FlowConfig;
use super::packet::Body;
use crate::packet::{Ecn, Priority};
use crate::tcp::{Segment, TcpReceiver, TcpReceiverConfig, TcpSender, TcpSenderConfig};
use dfcp_proto::Instant;

/// Settings of both ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpConfig {
    /// The sender's; the flow says how much it sends.
    pub sender: TcpSenderConfig,
    /// The receiver's.
    pub receiver: TcpReceiverConfig,
}

#[derive(Debug)]
pub(super) struct TcpSource {
    sender: TcpSender,
    mss: u32,
    start: Instant,
    stop: Option<Instant>,
    started: bool,
    stopped: bool,
}

impl TcpSource {
    pub fn new(config: &TcpConfig, flow: &FlowConfig) -> Result<Self, String> {
        let sender = TcpSenderConfig {
            size: flow.size,
            ..config.sender.clone()
        };
        sender.validate().map_err(|error| error.to_string())?;
        let receiver = config.receiver.validate();
        receiver.map_err(|error| error.to_string())?;
        Ok(Self {
            mss: sender.mss,
            sender: TcpSender::new(sender),
            start: flow.start,
            stop: flow.stop,
            started: false,
            stopped: false,
        })
    }
}

impl Agent for TcpSource {
    #[inline]
    fn receive(&mut self, now: Instant, packet: Arrival, _: &mut Buffers) {
        if let Body::Tcp(segment) = &packet.body {
            self.sender.on_segment(now, packet.ecn, segment);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.stopped |= self.stop.is_some_and(|stop| stop <= now);
        if self.started {
            self.sender.on_timeout(now);
        } else if self.start <= now {
            self.started = true;
            self.sender.start(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Instant, _: &mut Buffers) -> Option<Outgoing> {
        if !self.started || self.stopped {
            return None;
        }
        self.sender.poll_transmit(now).map(packet)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        match (self.started, self.stopped) {
            (false, _) => Some(self.start),
            (true, true) => None,
            (true, false) => self
                .sender
                .poll_timeout()
                .into_iter()
                .chain(self.stop)
                .min(),
        }
    }

    fn progress(&self) -> Progress {
        let stats = self.sender.stats();
        Progress {
            repairs: stats.retransmitted,
            srtt: stats.srtt,
            window: Some((stats.cwnd * f64::from(self.mss)) as u64),
            ..Progress::default()
        }
    }
}

/// A segment on its way.
fn packet((segment, ecn): (Segment, Ecn)) -> Outgoing {
    Outgoing {
        size: segment.ip_size(),
        ecn,
        priority: Priority::Data,
        route: 0,
        body: Body::Tcp(segment),
    }
}

#[derive(Debug)]
pub(super) struct TcpSink {
    receiver: TcpReceiver,
    size: Option<u64>,
    progress: Progress,
}

impl TcpSink {
    pub fn new(config: &TcpConfig, flow: &FlowConfig) -> Self {
        Self {
            receiver: TcpReceiver::new(config.receiver.clone()),
            size: flow.size,
            progress: Progress::default(),
        }
    }
}

impl Agent for TcpSink {
    #[inline]
    fn receive(&mut self, now: Instant, packet: Arrival, _: &mut Buffers) {
        let Body::Tcp(segment) = &packet.body else {
            return;
        };
        self.receiver.on_segment(now, packet.ecn, segment);
        self.progress.delivered = self.receiver.in_order_bytes();
        if Some(self.progress.delivered) == self.size && self.progress.finished.is_none() {
            self.progress.finished = Some(now);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.receiver.on_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Instant, _: &mut Buffers) -> Option<Outgoing> {
        self.receiver.poll_transmit(now).map(packet)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.receiver.poll_timeout()
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}
