//! What happens on a connection of either wire, told as it happens to observers: a log, [counters], a
//! test's invariants. They are chosen with the settings ([`TransportConfig::observer`],
//! [`Config::observer`]); without one an event costs a comparison and is never made. Observers change
//! nothing: a run with one is the run without.
//!
//! [counters]: Metrics
//! [`TransportConfig::observer`]: crate::TransportConfig::observer
//! [`Config::observer`]: crate::published::Config::observer

mod metrics;

pub use crate::block::Role;
use crate::connection::ConnectionError;
use crate::crypto::PublicKey;
use crate::published;
pub use crate::time::Instant;
use crate::time::{Duration, Rate};
pub use metrics::{Counters, Metrics};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Whose events an observer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vantage {
    /// Which end this is.
    pub role: Role,
    /// The peer's address when the connection began.
    pub remote: SocketAddr,
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketKind {
    /// A client asks for a connection.
    Syn,
    /// A server of DFCP as published answers; on the sealed wire no connection is there yet to do it.
    SynAck,
    /// A client completes its handshake.
    HandshakeAck,
    /// Everything after that, of the sealed wire.
    Sealed,
    /// Symbols of one block, of DFCP as published.
    Data,
    /// DFCP as published: a block has arrived.
    BlockAck,
    /// DFCP as published: what is missing of a block.
    Report,
    /// DFCP as published: an end, its acknowledgement, or a reset.
    Ending,
}

/// A packet that left or came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketInfo {
    /// What it is for.
    pub kind: PacketKind,
    /// Its number; those of the handshake have none. DFCP as published has no packet numbers: this is
    /// the block that data or an acknowledgement is of.
    pub number: Option<u64>,
    /// Bytes behind the UDP header, or behind IP's where there is none; with virtual payload as many as
    /// it stands for.
    pub size: u64,
    /// Codepoint of Explicit Congestion Notification in its IP header, two bits.
    pub ecn: u8,
}

/// What the sender knows of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathMetrics {
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Smallest round-trip time.
    pub min_rtt: Duration,
    /// Newest round-trip time.
    pub latest_rtt: Duration,
    /// Bytes sent that are neither acknowledged nor lost.
    pub bytes_in_flight: u64,
    /// Most bytes in flight that the rate controller allows.
    pub window: u64,
    /// Rate at which packets leave.
    pub pacing_rate: Rate,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending<'a> {
    /// Of the sealed wire.
    Sealed(&'a ConnectionError),
    /// Of DFCP as published; `None` if both sides closed it in order.
    Published(Option<&'a published::Error>),
}

impl fmt::Display for Ending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed(error) => error.fmt(f),
            Self::Published(Some(error)) => error.fmt(f),
            Self::Published(None) => f.write_str("closed by both sides"),
        }
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Observation<'a> {
    /// The handshake is done.
    Established {
        /// The key that the peer proved; DFCP as published has none.
        peer: Option<PublicKey>,
    },
    /// A packet leaves.
    Sent(PacketInfo),
    /// A packet came that is the peer's: sealed, authentic and new, or of DFCP as published.
    Received(PacketInfo),
    /// Packets are taken for lost.
    Lost {
        /// The number of a sealed packet. Those of DFCP as published are lost by count.
        number: Option<u64>,
        /// How many.
        packets: u64,
        /// Their bytes, as in [`PacketInfo::size`].
        bytes: u64,
    },
    /// Symbols came.
    Symbols {
        /// Their bytes.
        bytes: u64,
        /// Whether they taught nothing: all of them were known, or their block was.
        redundant: bool,
    },
    /// Blocks are whole at this receiver, in whatever order.
    Blocks {
        /// Their bytes.
        bytes: u64,
    },
    /// Acknowledgements, losses or time taught something of the path.
    Metrics(PathMetrics),
    /// The connection is over for the application.
    Closed(Ending<'a>),
}

/// Sees a connection's events. It runs where the connection does, so it must neither wait nor panic.
pub trait Observe: fmt::Debug + Send {
    /// Something happened at `now`, on the core's clock; a driver that takes packets late hands in when
    /// they came, which may be before the last event.
    fn observe(&mut self, now: Instant, event: &Observation<'_>);
}

type Make = dyn Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync;

/// Who makes observers of connections: nobody, unless [added](Self::add).
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<Make>>);

impl Observers {
    /// Asks `make`, too, for an observer of each connection.
    pub fn add(
        &mut self,
        make: impl Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync + 'static,
    ) {
        self.0.push(Arc::new(make));
    }

    /// The observers of a new connection.
    pub(crate) fn begin(&self, role: Role, remote: SocketAddr) -> Observer {
        let vantage = Vantage { role, remote };
        Observer(self.0.iter().filter_map(|make| make(&vantage)).collect())
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

/// The observers of one connection, if there are any.
#[derive(Debug)]
pub(crate) struct Observer(Vec<Box<dyn Observe>>);

impl Observer {
    /// Whether somebody listens.
    pub fn listens(&self) -> bool {
        !self.0.is_empty()
    }

    /// Makes the event and tells it, if somebody listens.
    pub fn tell<'a>(&mut self, now: Instant, event: impl FnOnce() -> Observation<'a>) {
        if self.listens() {
            let event = event();
            for observer in &mut self.0 {
                observer.observe(now, &event);
            }
        }
    }
}
