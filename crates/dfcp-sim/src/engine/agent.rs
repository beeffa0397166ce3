//! What sits at the ends of a route: the engine's view of a host.

use super::packet::Body;
use crate::packet::{Ecn, Priority};
use dfcp_proto::{Duration, Instant, Rate};
use std::fmt::Debug;

/// One end of a flow, sans-IO. The engine hands it packets and wakes it, and after each of these
/// calls asks what it sends until it has nothing more.
pub trait Agent: Debug + Send {
    /// A packet arrived.
    fn receive(&mut self, now: Instant, packet: Arrival, buffers: &mut Buffers);

    /// The time of [`Self::poll_timeout`] has come.
    fn timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next packet to send now.
    fn poll_transmit(&mut self, now: Instant, buffers: &mut Buffers) -> Option<Outgoing> {
        let _ = (now, buffers);
        None
    }

    /// When to wake it; it may be earlier than anything happens.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// How far the flow is, as this end knows it.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// What makes it wait when it could send.
    fn pace(&self) -> Pace {
        Pace::Own
    }

    /// A network controller allows this rate, of what its pacer counts: IP packets without their IP
    /// and UDP headers.
    fn order_rate(&mut self, now: Instant, rate: Rate) {
        let _ = (now, rate);
    }
}

/// What makes a sender wait when it could send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Its own rate control.
    #[default]
    Own,
    /// Its own rate control, which follows the orders of a network controller.
    Orders,
    /// Its first link: it sends as fast as that takes packets, and queues none before it.
    FirstLink,
}

/// A packet that reached an agent.
#[derive(Debug)]
pub struct Arrival {
    /// Bytes of the IP packet.
    pub size: u32,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// What it carries.
    pub body: Body,
}

/// A packet that an agent sends.
#[derive(Debug)]
pub struct Outgoing {
    /// Bytes of the IP packet.
    pub size: u32,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// Whether queues that tell them apart let it pass first.
    pub priority: Priority,
    /// Which of its routes it takes; most agents have only the first.
    pub route: u8,
    /// What it carries.
    pub body: Body,
}

/// How far a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of use to the application that it has got.
    pub delivered: u64,
    /// Bytes that the sender gave up.
    pub missing: u64,
    /// When it had all of a flow that has an end, or knew what was missing of it.
    pub finished: Option<Instant>,
    /// Packets sent again: TCP's retransmissions, repair symbols of a code.
    pub repairs: u64,
    /// Packets taken for lost that arrived after all, where the sender counts them.
    pub spurious_losses: Option<u64>,
    /// Smoothed round-trip time, where it is measured.
    pub srtt: Option<Duration>,
    /// Congestion window or what stands for it, bytes.
    pub window: Option<u64>,
    /// Packets for which the receive window that the flow's protocol keeps had no room.
    pub receiver_drops: u64,
    /// Bytes that arrived and were not what was sent; where bytes are real.
    pub wrong_bytes: u64,
    /// Of a published protocol.
    pub blocks: Option<BlockProgress>,
}

/// What one end of a published protocol knows of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockProgress {
    /// Blocks begun (sender), or with symbols enough (receiver).
    pub count: u64,
    /// The sum of the times when that was, since the start of the run.
    pub at: Duration,
    /// Data packets sent.
    pub packets: u64,
    /// Data packets that were enough for the blocks acknowledged.
    pub needed_packets: u64,
}

/// Datagram buffers that wait for reuse.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Vec<Vec<u8>>);

/// More than this would be memory kept for nothing.
const MAX_BUFFERS: usize = 4096;

impl Buffers {
    /// An empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < MAX_BUFFERS {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}
