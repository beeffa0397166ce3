//! provisional
use crate::packet::Ecn;
use dfcp_proto::{Duration, Instant};
/// s
#[derive(Clone, Copy, Debug)]
pub struct Segment(u32);
impl Segment {
    /// s
    pub fn size(&self) -> u32 {
        self.0
    }
}
/// c
#[derive(Clone, Debug, Default)]
pub struct TcpSenderConfig {
    /// s
    pub size: Option<u64>,
}
/// c
#[derive(Clone, Debug, Default)]
pub struct TcpReceiverConfig;
/// s
#[derive(Debug, Default)]
pub struct TcpStats {
    /// r
    pub retransmitted: u64,
    /// s
    pub srtt: Option<Duration>,
}
/// s
#[derive(Debug)]
pub struct TcpSender(TcpStats);
/// s
#[derive(Debug)]
pub struct TcpReceiver;
#[allow(missing_docs)]
impl TcpSender {
    pub fn new(_: TcpSenderConfig) -> Self {
        Self(TcpStats::default())
    }
    pub fn start(&mut self, _: Instant) {}
    pub fn on_segment(&mut self, _: Instant, _: Ecn, _: &Segment) {}
    pub fn on_timeout(&mut self, _: Instant) {}
    pub fn poll_transmit(&mut self, _: Instant) -> Option<(Segment, Ecn)> {
        None
    }
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    pub fn stats(&self) -> &TcpStats {
        &self.0
    }
}
#[allow(missing_docs)]
impl TcpReceiver {
    pub fn new(_: TcpReceiverConfig) -> Self {
        Self
    }
    pub fn on_segment(&mut self, _: Instant, _: Ecn, _: &Segment) {}
    pub fn on_timeout(&mut self, _: Instant) {}
    pub fn poll_transmit(&mut self, _: Instant) -> Option<(Segment, Ecn)> {
        None
    }
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    pub fn in_order_bytes(&self) -> u64 {
        0
    }
}
