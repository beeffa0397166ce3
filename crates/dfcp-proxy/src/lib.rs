//! TCP connections and datagrams of other programs over dfcp: each connection is a stream, each datagram
//! one of the same connection of dfcp.
//!
//! * [`Client`]: where programs come in ([SOCKS5 and HTTP](Client::serve_local) on one port, on
//!   Linux connections that the firewall leads here,
//!   forwards of [TCP](Client::forward) and [UDP](Client::forward_udp), [standard input and output](Client::carry)), over a connection to a
//!   server that is made again whenever it is lost;
//! * [`Server`]: connects to where its [`Rules`] allow;
//! * [`Event`]: what both have to say, for whoever shows it; [`Traffic`]: what they carry, counted.
//!
//! What goes over the streams is specified in `docs/spec/proxy.md`. The crate knows no command line, no
//! key files and no terminal; it uses the public interface of `dfcp` alone.

#![forbid(unsafe_code)]

mod account;
mod client;
mod dial;
mod door;
mod event;
mod here;
mod http;
mod known;
mod link;
mod local;
#[doc(hidden)]
pub mod parse;
mod relay;
mod rules;
mod server;
mod socks;
mod status;
mod target;
mod traffic;
#[cfg(target_os = "linux")]
mod transparent;
mod udp;
mod wire;

pub use account::{Limits, Quota};
pub use client::{Client, ClientConfig, Dialed};
pub use event::{Event, Report};
pub use here::is_here;
pub use known::FastOpen;
pub use link::{Down, Link, Remote, Resolve};
pub use relay::Broken;
pub use rules::{Network, Ports, Rule, Rules};
pub use server::{LimitsOf, Server, ServerConfig, Settings};
pub use status::{Refusal, Status};
pub use target::{Host, Target};
pub use traffic::{Counts, Traffic};
#[cfg(target_os = "linux")]
pub use transparent::{Interception, listen_transparent};
#[cfg(target_os = "linux")]
pub use udp::InterceptedUdp;
pub use udp::{Packet, UdpPort};

use std::time::Duration;

use dfcp::{Application, TransportConfig};

/// Streams that one side may have open at once on a connection, unless a server says less.
pub const MAX_STREAMS: u64 = 16_384;

/// Associations that a key may have at once unless a server says else: all sources of four forwarded ports.
/// Each takes an open file of the server, of which systems give a process half a million at most by default
/// (systemd's hard limit) and a thousand at least.
pub const MAX_ASSOCIATIONS: u64 = 1024;

/// What a stream may send ahead of its reader at first, bytes: most answers of web servers in one go,
/// three of the largest blocks of `auto`, and 256 streams that nobody reads in half of the connection's
/// budget.
const INITIAL_WINDOW: u64 = 512 << 10;

/// What a connection may hold of what its streams receive, bytes. What is held is memory only while
/// somebody does not read.
const RECEIVE_BUDGET: u64 = 256 << 20;

/// What a connection may hold of what its streams send, bytes: each may have 64 KiB of one half of it that
/// nobody takes, and a thousand do.
const SEND_BUFFER: u64 = 128 << 20;

/// What a connection may hold of datagrams that wait to leave, or to be taken, bytes: what a socket of
/// UDP has on Linux by default. Those that waited longer are late, and make room.
const DATAGRAM_BUFFER: usize = 208 << 10;

/// How long packets may wait for each other at each end, where there are many. Keystrokes wait at both
/// ends beside a download: 4 ms each leave most of the 30 ms in which an answer is felt to be at once
/// beside a path of its own; less costs a wake-up more often, which is most of the processor's time.
const COALESCING: Duration = Duration::from_millis(4);

/// `transport` with what connections of many streams want: the peer may open [`MAX_STREAMS`], and
/// streams that nobody reads leave room to the others.
pub fn transport(transport: TransportConfig) -> TransportConfig {
    transport
        .application(Application::PROXY)
        .max_channels(MAX_STREAMS)
        .receive_budget(RECEIVE_BUDGET)
        .send_buffer(SEND_BUFFER)
        .datagram_buffer(DATAGRAM_BUFFER)
        .initial_stream_window(INITIAL_WINDOW)
        .coalescing(COALESCING)
}
