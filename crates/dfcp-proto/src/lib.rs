//! The protocol core of dfcp, without I/O, clock, threads or randomness of its own.
//!
//! A driver owns sockets and time and calls an [`Endpoint`]:
//!
//! * [`Endpoint::handle_datagram`] for every datagram that arrives,
//! * [`Endpoint::handle_timeout`] when the time of [`Endpoint::poll_timeout`] has come,
//! * then, until they give nothing more, for each connection of [`Endpoint::poll_news`]:
//!   [`Connection::take_solve_job`] (run the job anywhere and hand it to
//!   [`Connection::finish_solve`]) and [`Connection::poll_event`],
//! * and [`Endpoint::poll_transmit`].
//!
//! Packets carry congestion, symbols carry reliability: packet numbers alone teach round trips,
//! loss and rate ([`packet`]); blocks alone say what the receiver still needs ([`block`]). What a
//! transport is made of is a [`Profile`].
//!
//! # Panics
//! Never on input from the network.

#![deny(unsafe_code)] // but for `crypto::sys`

pub mod block;
pub mod config;
pub mod connection;
pub mod crypto;
pub mod endpoint;
pub mod feedback;
pub mod host;
pub mod observe;
pub mod order;
pub mod packet;
pub mod profile;
pub mod published;
pub mod rate;
pub mod scheduler;
mod table;
pub mod time;
pub mod wire;

pub use block::{BlockSizes, ChannelId, ChannelKind, Reliability, Role, SolveJob};
pub use config::{Application, Payload, TransportConfig};
pub use connection::{
    ChannelError, CloseCode, Connection, ConnectionError, ConnectionStats, Datagram, DatagramError,
    Event, Read, Timer,
};
pub use crypto::{KeyError, PublicKey, SecretRng, StaticKey};
pub use dfcp_fec::SchemeId;
pub use endpoint::{Admission, Endpoint, EndpointStats, ServerConfig};
pub use host::{ConnectionHandle, Priority, Transmit};
pub use profile::Profile;
pub use time::{Duration, Instant, Rate};
pub use wire::{VarInt, VarIntTooLarge};
