//! What a host needs of an endpoint, whichever its wire: a driver over sockets or a simulated host
//! is one loop over [`Core`].
//!
//! The loop: [`handle_datagram`](Core::handle_datagram) what arrived and
//! [`handle_timeout`](Core::handle_timeout) when it is due; read the news; then
//! [`poll_transmit`](Core::poll_transmit) until there is nothing, and sleep until
//! [`poll_timeout`](Core::poll_timeout).

use crate::published;
use crate::table::Member;
use crate::time::{Duration, Instant};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Names a connection of an endpoint; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub u64);

/// What one customer has of addresses, at least: an IPv4 address, whose neighbours are other
/// customers and behind which there may be many already (RFC 6888), or an IPv6 /64 (RFC 6177). The
/// same as what OpenSSH counts, but for its single IPv6 addresses, of which everybody has 2⁶⁴.
pub(crate) fn network(address: SocketAddr) -> u64 {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64,
    }
}

/// What one customer may have of IPv6: a /48, the most that RFC 6177 knows of. It counts as two of those
/// that one has at least.
pub(crate) fn site(address: SocketAddr) -> Option<u64> {
    match address.ip().to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => Some((u128::from(ip) >> 80) as u64),
    }
}

/// Networks that a site counts as.
pub(crate) const NETWORKS_OF_SITE: usize = 2;

/// Bytes of packets that leave together, at most: segmentation offload is one large UDP datagram to
/// the system.
pub const MAX_BATCH: usize = 65_000;

/// Whether the network should let a packet pass first (DFCP-J §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Data, and everything of the sealed wire.
    Data,
    /// Signalling and acknowledgements of the published wire.
    Control,
}

/// Packets for one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to. Directly over IP the port is 0.
    pub destination: SocketAddr,
    /// ECN codepoint for the IP header.
    pub ecn: u8,
    /// Bytes written to the buffer.
    pub size: usize,
    /// If set, the bytes are several packets of this size (the last may be shorter).
    pub segment_size: Option<usize>,
    /// Bytes that each of the packets stands for beyond those in the buffer: none, except with
    /// virtual payload.
    pub elided: usize,
    /// Whether it may overtake data.
    pub priority: Priority,
}

/// An endpoint with its connections. The endpoints have the methods themselves, by the same names;
/// only `handle_datagram` is `handle_packet` of the published one.
pub trait Core {
    /// A connection of it.
    type Connection: CoreConnection;

    /// A packet arrived; it may be decrypted in place. Says whose it is: a connection that is lent has
    /// yet to take it.
    fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ecn: u8,
        datagram: &mut [u8],
    ) -> Option<ConnectionHandle>;

    /// Acts on every timer that is due.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Instant>;

    /// Appends packets that may leave now to `out`: at most `max_segments`, all of one size but the
    /// last.
    fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// Longest time that packets may wait for each other while there are many.
    fn coalescing_delay(&self) -> Duration;

    /// The next connection that a peer has established.
    fn accept(&mut self) -> Option<ConnectionHandle>;

    /// The connection, to work with, unless it was forgotten.
    fn connection(&mut self, handle: ConnectionHandle) -> Option<&mut Self::Connection>;

    /// The connection, to look at.
    fn peek(&self, handle: ConnectionHandle) -> Option<&Self::Connection>;

    /// The next connection that may have events or blocks to be rebuilt. Who changes it so that it
    /// may have packets asks for it by [`connection`](Self::connection).
    fn poll_news(&mut self) -> Option<(ConnectionHandle, &mut Self::Connection)>;

    /// Drops a connection that is over and whose events were read.
    fn forget(&mut self, handle: ConnectionHandle);

    /// Lends a connection to a host that drives each by itself.
    fn lend(&mut self, handle: ConnectionHandle) -> Option<Box<Self::Connection>>;

    /// A lent connection's handshake is done, or it is closed.
    fn learn(&mut self, handle: ConnectionHandle, connection: &Self::Connection);

    /// Has a connection that was lent back.
    fn take_back(&mut self, handle: ConnectionHandle, connection: Box<Self::Connection>);
}

/// A connection as its host sees it. What moves packets is for those that are
/// [lent](Core::lend); endpoints do it for all others.
pub trait CoreConnection {
    /// What happened on it.
    type Event: fmt::Debug;
    /// A block to be rebuilt.
    type SolveJob: Solve;

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// A block whose rebuilding may be done anywhere, and is then reported back.
    fn take_solve_job(&mut self) -> Option<Self::SolveJob>;

    /// The job was run.
    fn finish_solve(&mut self, now: Instant, job: Self::SolveJob);

    /// A packet of it arrived; it may be decrypted in place.
    fn handle_datagram(&mut self, now: Instant, remote: SocketAddr, ecn: u8, datagram: &mut [u8]);

    /// Acts on every timer that is due.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Instant>;

    /// Appends packets that may leave now to `out`, as [`Core::poll_transmit`] does.
    fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// Longest time that its packets may wait for each other while there are many.
    fn coalescing_delay(&self) -> Duration;
}

/// Rebuilding a block, on whatever thread.
pub trait Solve: fmt::Debug + Send + 'static {
    /// About how long [`run`](Self::run) takes.
    fn estimated_time(&self) -> Duration;

    /// Bytes of memory that [`run`](Self::run) takes beside the block, rather more than less.
    fn memory(&self) -> usize;

    /// Does the work.
    fn run(&mut self);
}

/// Methods that are those of the type itself, by the names behind `=`.
macro_rules! forward {
    ($(fn $name:ident($this:ident: $receiver:ty $(, $arg:ident: $type:ty)*) $(-> $out:ty)? = $own:ident;)*) => {$(
        fn $name($this: $receiver $(, $arg: $type)*) $(-> $out)? {
            Self::$own($this $(, $arg)*)
        }
    )*};
}

/// Makes a [`Core`] of an endpoint that has the methods.
macro_rules! core {
    ($wire:ident, $handle_datagram:ident) => {
        impl Core for $wire::Endpoint {
            type Connection = $wire::Connection;

            forward! {
                fn handle_datagram(self: &mut Self, now: Instant, remote: SocketAddr, ecn: u8, datagram: &mut [u8])
                    -> Option<ConnectionHandle> = $handle_datagram;
                fn handle_timeout(self: &mut Self, now: Instant) = handle_timeout;
                fn poll_timeout(self: &Self) -> Option<Instant> = poll_timeout;
                fn poll_transmit(self: &mut Self, now: Instant, max_segments: usize, out: &mut Vec<u8>)
                    -> Option<Transmit> = poll_transmit;
                fn coalescing_delay(self: &Self) -> Duration = coalescing_delay;
                fn accept(self: &mut Self) -> Option<ConnectionHandle> = accept;
                fn connection(self: &mut Self, handle: ConnectionHandle) -> Option<&mut Self::Connection> = connection;
                fn peek(self: &Self, handle: ConnectionHandle) -> Option<&Self::Connection> = peek;
                fn poll_news(self: &mut Self) -> Option<(ConnectionHandle, &mut Self::Connection)> = poll_news;
                fn forget(self: &mut Self, handle: ConnectionHandle) = forget;
                fn lend(self: &mut Self, handle: ConnectionHandle) -> Option<Box<Self::Connection>> = lend;
                fn learn(self: &mut Self, handle: ConnectionHandle, connection: &Self::Connection) = learn;
                fn take_back(self: &mut Self, handle: ConnectionHandle, connection: Box<Self::Connection>) = take_back;
            }
        }

        impl CoreConnection for $wire::Connection {
            type Event = $wire::Event;
            type SolveJob = $wire::SolveJob;

            forward! {
                fn poll_event(self: &mut Self) -> Option<Self::Event> = poll_event;
                fn take_solve_job(self: &mut Self) -> Option<Self::SolveJob> = take_solve_job;
                fn finish_solve(self: &mut Self, now: Instant, job: Self::SolveJob) = finish_solve;
                fn handle_datagram(self: &mut Self, now: Instant, remote: SocketAddr, ecn: u8, datagram: &mut [u8])
                    = handle_datagram;
                fn handle_timeout(self: &mut Self, now: Instant) = handle_timeout;
                fn poll_timeout(self: &Self) -> Option<Instant> = next_timeout;
                fn poll_transmit(self: &mut Self, now: Instant, max_segments: usize, out: &mut Vec<u8>)
                    -> Option<Transmit> = poll_transmit;
                fn coalescing_delay(self: &Self) -> Duration = patience;
            }
        }

        impl Solve for $wire::SolveJob {
            forward! {
                fn estimated_time(self: &Self) -> Duration = estimated_time;
                fn memory(self: &Self) -> usize = memory;
                fn run(self: &mut Self) = run;
            }
        }
    };
}

/// The sealed wire, by the names that the published one has.
mod sealed {
    pub use crate::block::SolveJob;
    pub use crate::connection::{Connection, Event};
    pub use crate::endpoint::Endpoint;
}

core!(sealed, handle_datagram);
core!(published, handle_packet);
