//! Whose packet is this: ports, listening, SYN floods, resets.

use super::config::Config;
use super::connection::{Connection, Error, Transmit};
use crate::time::Instant;
use std::net::SocketAddr;
use std::sync::Arc;

/// Names a connection of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionHandle(pub u32);

/// How an endpoint takes connections.
#[derive(Clone, Debug)]
pub struct Listen {
    /// DFCP port.
    pub port: u16,
    /// Settings of connections taken.
    pub config: Arc<Config>,
    /// Most connections at once, half-open ones included.
    pub max_connections: usize,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Packets dropped: too short, wrong offset, flags or generator state.
    pub malformed: u64,
    /// Packets dropped: wrong checksum.
    pub bad_checksum: u64,
    /// Packets of no connection.
    pub unknown: u64,
    /// SYN refused: too many half-open connections.
    pub syn_refused: u64,
    /// SYN refused: parameters outside limits.
    pub bad_parameters: u64,
    /// Data of blocks beyond the window.
    pub beyond_window: u64,
}

/// All connections of one socket.
#[derive(Debug)]
pub struct Endpoint;

impl Endpoint {
    /// `seed` feeds ports and generator states.
    pub fn new(_listen: Option<Listen>, _seed: u64) -> Self {
        unimplemented!()
    }

    /// Opens a connection to DFCP port `port` at `remote` (address of the carrier).
    ///
    /// # Errors
    /// [`Error::Parameters`].
    pub fn connect(
        &mut self,
        _now: Instant,
        _remote: SocketAddr,
        _port: u16,
        _config: Arc<Config>,
    ) -> Result<ConnectionHandle, Error> {
        unimplemented!()
    }

    /// A packet arrived: the DFCP header and what follows. `remote` is the carrier's address.
    pub fn handle_packet(&mut self, _now: Instant, _remote: SocketAddr, _ecn: u8, _packet: &[u8]) {
        unimplemented!()
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// Writes packets to `out` (appended), at most `max_segments` and all of one size but the last.
    pub fn poll_transmit(
        &mut self,
        _now: Instant,
        _max_segments: usize,
        _out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        unimplemented!()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// The next connection that a peer has established.
    pub fn accept(&mut self) -> Option<ConnectionHandle> {
        unimplemented!()
    }

    /// A connection, until it is closed and forgotten.
    pub fn connection(&mut self, _handle: ConnectionHandle) -> Option<&mut Connection> {
        unimplemented!()
    }

    /// Looks at a connection.
    pub fn peek(&self, _handle: ConnectionHandle) -> Option<&Connection> {
        unimplemented!()
    }

    /// Drops a closed connection.
    pub fn forget(&mut self, _handle: ConnectionHandle) {
        unimplemented!()
    }

    /// Counters.
    pub fn stats(&self) -> EndpointStats {
        unimplemented!()
    }
}
