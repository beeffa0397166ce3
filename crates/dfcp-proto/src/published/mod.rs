//! DFCP as published: the header of DFCP-J Fig. 2 in clear, the state machine of DFCP-TR §2.3,
//! Raptor-coded blocks in a sliding window (DFCP-J §4.5), no congestion control of its own.
//! RC-UDP is the same with other numbers ([`Config::rc_udp`]).
//!
//! For the simulator, the lab and networks that are one's own. One packet out:
//! `Endpoint::poll_transmit` → `Connection::poll_transmit` (signalling, block ACKs, then data) →
//! `send` picks a block → the code writes symbols behind the header. One packet in:
//! `Endpoint::handle_packet` → `header` → `Connection::handle_packet` → `state` for signalling,
//! `recv` for data, `send` for block ACKs.

mod code;
mod config;
mod connection;
mod data;
mod endpoint;
pub mod header;
mod negotiation;
mod recv;
mod send;
mod sizing;
mod state;
#[cfg(test)]
mod transfer_tests;
#[cfg(test)]
mod vectors;

pub use crate::host::{ConnectionHandle, Priority, Transmit};
pub use code::Code;
pub use config::{
    Acknowledge, BlockSize, Carrier, Codec, Completion, Config, Family, LastPacket, Layout, Moment,
    RcUdpCode, Redundancy, Sending,
};
pub use connection::{Connection, Error, Event, Read, SolveJob, Stats};
pub use dfcp_fec::raptor::{
    Degrees, LdpcDegrees, MAX_LDPC_DEGREE, MAX_LDPC_DEGREES, RaptorParameters,
    State as GeneratorState,
};
pub use endpoint::{Endpoint, EndpointStats, Listen};
pub use state::State;
