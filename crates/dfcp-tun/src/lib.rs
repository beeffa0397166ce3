//! An IP link over a lossy path: a device of the kernel at each end, and between them one connection of
//! dfcp, whose datagrams carry the packets. Nothing is sent twice; what the path loses is recovered from
//! repair symbols, which leave only while it loses.
//!
//! * [`Device`]: where the kernel's packets come out and in;
//! * [`Client`] and [`serve`]: the two ends;
//! * [`code`]: packets as datagrams, coded across packets: no I/O, no clock;
//! * [`queue`]: what waits for the path, and what is dropped of it: no I/O, no clock;
//! * [`Event`]: what both have to say, for whoever shows it.
//!
//! What goes over the connection is specified in `docs/spec/tun.md`.

#![deny(unsafe_code)]

mod client;
pub mod code;
mod device;
mod event;
mod hello;
mod nets;
pub mod packet;
pub mod queue;
mod server;
mod session;
mod site;
mod stats;

pub use client::{Client, ClientConfig};
pub use device::{Device, DeviceConfig, DeviceError};
pub use event::{Event, Report};
pub use nets::{Net, Table};
pub use server::{Clients, Server, ServerConfig, serve};
pub use site::{MIN_MTU, Mtu};
pub use stats::Stats;

use std::time::Duration;

use dfcp::{Application, TransportConfig};

/// Before a connection says what its path holds: what most do, an MTU of 1500 less 80 of headers.
pub const FIRST_MTU: usize = 1420;

/// Longest packets that can be asked for: two datagrams of the narrowest path.
pub const MAX_MTU: usize = 2320;

/// What a connection may hold of datagrams that came and wait to be read, bytes: 80 ms of 100 Mbit/s.
/// Those that wait to leave are fewer: they wait in the link's own queue.
const DATAGRAM_BUFFER: usize = 1 << 20;

/// How long packets may wait for each other at each end. Each of three such waits on the way of a packet
/// is in the round trips of all that is inside; some 500 wake-ups a second of a busy link take a twentieth
/// of a processor.
const COALESCING: Duration = Duration::from_millis(2);

/// Streams that the other side may have open at once: it asks one question.
const MAX_STREAMS: u64 = 4;

/// `transport` with what links want: datagrams, and next to nothing else.
pub fn transport(transport: TransportConfig) -> TransportConfig {
    let transport = transport
        .application(Application::LINK)
        .max_channels(MAX_STREAMS)
        .receive_budget(1 << 20)
        .send_buffer(1 << 20);
    beside_others(transport)
}

/// The same of a server whose port has other applications, too: their streams are left as they are.
pub fn beside_others(transport: TransportConfig) -> TransportConfig {
    transport
        .datagram_buffer(DATAGRAM_BUFFER)
        .coalescing(COALESCING)
}
