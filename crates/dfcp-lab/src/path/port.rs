//! Where packets enter and leave a path.

use std::io;
use std::os::fd::AsFd;

use dfcp_proto::Instant;
use dfcp_sim::engine::{Direction, ExternalPacket};
use dfcp_sim::{Ecn, FlowId};

use super::clock::Clock;

/// A packet as a port takes it in.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// When it came.
    pub at: Instant,
    /// Whose it is.
    pub flow: FlowId,
    /// Which way it goes.
    pub direction: Direction,
    /// Bytes that links count.
    pub size: u32,
    /// Its ECN codepoint.
    pub ecn: Ecn,
    /// What the port that sends it must know.
    pub tag: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What a port did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets taken in.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that the kernel dropped because nobody took them in.
    pub overflowed: u64,
    /// Packets that the kernel did not take.
    pub refused: u64,
    /// Packets that belong to no flow.
    pub strange: u64,
}

/// An end of a path; its descriptor is readable when packets wait.
pub trait Port: AsFd + Send + 'static {
    /// Takes in what has arrived, without waiting.
    ///
    /// # Errors
    /// When the port is of no more use.
    fn receive(&mut self, clock: &Clock, arrived: &mut dyn FnMut(Arrived<'_>)) -> io::Result<()>;

    /// Sends packets in their order; drops those for which that is not possible at once.
    fn send(&mut self, packets: &mut [ExternalPacket]);

    /// What happened here so far.
    fn stats(&self) -> PortStats;
}
