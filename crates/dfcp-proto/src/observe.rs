//! What happens to a connection's packets, told as it happens to one observer: a log, a meter, a test's
//! invariants. It is chosen with the settings ([`TransportConfig::observer`]); without one an event
//! costs a comparison and is never made. Observers change nothing: a run with one is the run without.
//!
//! [`TransportConfig::observer`]: crate::TransportConfig::observer

pub use crate::block::Role;
use crate::connection::ConnectionError;
use crate::crypto::PublicKey;
pub use crate::time::Instant;
use crate::time::{Duration, Rate};
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
    /// A client completes its handshake.
    HandshakeAck,
    /// Everything after that.
    Sealed,
}

/// A packet that left or came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketInfo {
    /// What it is for.
    pub kind: PacketKind,
    /// Its number; those of the handshake have none.
    pub number: Option<u64>,
    /// Bytes of UDP payload.
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

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Observation<'a> {
    /// The handshake is done.
    Established {
        /// The key that the peer proved.
        peer: PublicKey,
    },
    /// A packet leaves.
    Sent(PacketInfo),
    /// A sealed packet came that is authentic and new.
    Received(PacketInfo),
    /// A packet is taken for lost.
    Lost {
        /// Its number.
        number: u64,
        /// Bytes of UDP payload.
        size: u64,
    },
    /// Acknowledgements, losses or time taught something of the path.
    Metrics(PathMetrics),
    /// The connection is over for the application.
    Closed(&'a ConnectionError),
}

/// Sees a connection's events. It runs where the connection does, so it must neither wait nor panic.
pub trait Observe: fmt::Debug + Send {
    /// Something happened at `now`, on the core's clock; a driver that takes packets late hands in when
    /// they came, which may be before the last event.
    fn observe(&mut self, now: Instant, event: &Observation<'_>);
}

type Make = dyn Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync;

/// Makes observers, or does not.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<Make>>);

impl Observers {
    pub fn new(
        make: impl Fn(&Vantage) -> Option<Box<dyn Observe>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(make)))
    }

    /// The observer of a new connection.
    pub fn begin(&self, role: Role, remote: SocketAddr) -> Observer {
        let make = self.0.as_ref();
        Observer(make.and_then(|make| make(&Vantage { role, remote })))
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.is_some())
    }
}

/// The observer of one connection, if there is one.
#[derive(Debug)]
pub(crate) struct Observer(Option<Box<dyn Observe>>);

impl Observer {
    /// Whether somebody listens.
    pub fn listens(&self) -> bool {
        self.0.is_some()
    }

    /// Makes the event and tells it, if somebody listens.
    pub fn tell<'a>(&mut self, now: Instant, event: impl FnOnce() -> Observation<'a>) {
        if let Some(observer) = &mut self.0 {
            observer.observe(now, &event());
        }
    }
}
