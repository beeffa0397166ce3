//! One connection: signalling by `state`, data by `send` and `recv`.

use super::state::State;
use crate::time::{Instant, Rate};
use std::net::SocketAddr;

/// Whether the network should let a packet pass first (DFCP-J §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Coded data.
    Data,
    /// Signalling and acknowledgements.
    Control,
}

/// Packets for one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to. The port is the carrier's (0 over IP); DFCP's own ports are in the header.
    pub destination: SocketAddr,
    /// ECN codepoint for the IP header.
    pub ecn: u8,
    /// Bytes written to the buffer.
    pub size: usize,
    /// If set, the bytes are several packets of this size (the last may be shorter).
    pub segment_size: Option<usize>,
    /// Bytes that each packet stands for beyond those in the buffer (virtual payload).
    pub elided: usize,
    /// Data or signalling.
    pub priority: Priority,
}

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done.
    Connected,
    /// In-order data waits.
    Readable,
    /// There is room to write after there was none.
    Writable,
    /// The peer has finished: nothing follows what is readable.
    PeerFinished,
    /// The connection ended; `None` if both sides closed it in order.
    Closed(Option<Error>),
}

/// Why a connection failed or refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer to SYN, SYNACK or FIN after all retries.
    #[error("the peer does not answer")]
    Unreachable,
    /// Silence.
    #[error("the peer fell silent")]
    TimedOut,
    /// RST from the peer.
    #[error("the peer reset the connection")]
    Reset,
    /// The peer's parameters cannot be agreed to.
    #[error("the peer refuses the coding parameters: {0}")]
    Parameters(String),
    /// The connection is closed for this call.
    #[error("the connection is closed")]
    Closed,
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes.
    Data(usize),
    /// Nothing yet.
    Blocked,
    /// The peer has finished and everything was read.
    Finished,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Data packets sent.
    pub data_packets: u64,
    /// Of these, beyond the first pass over their block.
    pub extra_packets: u64,
    /// Blocks acknowledged by the peer.
    pub blocks_acked: u64,
    /// Blocks received.
    pub blocks_received: u64,
    /// Useful bytes of blocks received, in whatever order.
    pub bytes_received: u64,
    /// Blocks that could not be decoded with the symbols that should suffice.
    pub decode_failures: u64,
    /// Data packets received for blocks already complete.
    pub late_packets: u64,
    /// Round-trip time.
    pub srtt: Option<crate::time::Duration>,
    /// Loss rate of data packets as measured.
    pub loss: f64,
    /// Pacing rate.
    pub rate: Rate,
}

/// A connection.
#[derive(Debug)]
pub struct Connection;

impl Connection {
    /// Takes bytes to send; returns how many fit (0: wait for [`Event::Writable`]).
    ///
    /// # Errors
    /// [`Error::Closed`] after [`finish`](Self::finish), or why the connection ended.
    pub fn write(&mut self, _now: Instant, _data: &[u8]) -> Result<usize, Error> {
        unimplemented!()
    }

    /// As [`write`](Self::write) for virtual payload: a length.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_virtual(&mut self, _now: Instant, _len: u64) -> Result<u64, Error> {
        unimplemented!()
    }

    /// Sends what is written though it fills no block: it is padded.
    pub fn flush(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// Nothing more will be written: once everything is acknowledged the connection is closed in
    /// this direction.
    pub fn finish(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// Ends the connection at once with RST.
    pub fn abort(&mut self, _now: Instant) {
        unimplemented!()
    }

    /// Reads in-order bytes.
    ///
    /// # Errors
    /// Why the connection ended, once everything in order was read.
    pub fn read(&mut self, _now: Instant, _out: &mut [u8]) -> Result<Read, Error> {
        unimplemented!()
    }

    /// Takes all readable in-order virtual bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_virtual(&mut self, _now: Instant) -> Result<Read, Error> {
        unimplemented!()
    }

    /// A network controller allows this rate (DFCP-J §7.6); controllers that obey one follow it.
    pub fn order_rate(&mut self, _now: Instant, _rate: Rate) {
        unimplemented!()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        unimplemented!()
    }

    /// The peer's address, of the carrier.
    pub fn remote_address(&self) -> SocketAddr {
        unimplemented!()
    }

    /// Its state.
    pub fn state(&self) -> State {
        unimplemented!()
    }

    /// Its counters.
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
}
