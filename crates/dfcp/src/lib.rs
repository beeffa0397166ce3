//! Transport for bad networks: coded, encrypted, over UDP, on tokio.
//!
//! An [`Endpoint`] owns a socket; it [connects](Endpoint::connect) and [accepts](Endpoint::accept).
//! A [`Connection`] carries any number of
//!
//! * streams ([`SendStream`], [`RecvStream`]): bytes in order, [both ways](Connection::open_bi) or
//!   [one](Connection::open_uni), by [priority](SendStream::set_priority);
//! * objects ([`Connection::send_object`], [`IncomingObject::recv_object`]): whole files, whose parts
//!   are written where they belong in the order they complete; several at once are told apart by their
//!   [number](SendStream::index);
//! * [datagrams](Connection::send_datagram): messages that nothing repeats.
//!
//! One socket serves IPv4 and IPv6: unless told otherwise, a client's is bound to `[::]`, where the
//! system takes both. Times are [`std::time::Duration`], sizes bytes, rates [`Rate`].
//!
//! A connection lasts as long as both processes and the path between them do: idle ones are kept
//! alive ([`EndpointConfig::keep_alive`]). A server that was killed and has begun again with its key tells clients
//! that it knows nothing of them ([`ConnectionError::Reset`]) when they send something next, if only to keep
//! the connection alive; it ends in silence ([`ConnectionError::TimedOut`]) where nobody is there.
//!
//! Dropping everything loses nothing that was [finished](SendStream::finish) while the runtime lives: a
//! connection without handles ends when the peer has it. [`Connection::close`] and [`Endpoint::close`] end at
//! once. So a program ends in one of two ways: it drops its connections and waits for [`Endpoint::wait_idle`],
//! or it waits until what matters was [delivered](SendStream::delivered) and calls [`Endpoint::close`].
//!
//! Both sides prove a static key; [`Connection::peer`] says which one the peer proved.
//!
//! Calls that may be cancelled say so: who drops the future has lost nothing, and may make them again, as in
//! `tokio::select!`. Those that send or receive a whole object give it up instead.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dfcp::{Endpoint, EndpointConfig, StaticKey};
//! use tokio::io::AsyncWriteExt;
//!
//! let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key()?))?;
//! let connection = endpoint.connect("example.org:4433", None).await?;
//! println!("the peer is {}", connection.peer());
//! let (mut send, _recv) = connection.open_bi().await?;
//! send.write_all(b"hello").await?;
//! send.finish()?;
//! send.delivered().await?;
//! # Ok(()) }
//! ```
//!
//! The other side, which gives back what it gets. What streams tell as [`std::io::Error`] becomes the
//! [`Error`] again that it was made of, where `?` or [`From`] is asked for that.
//!
//! ```no_run
//! # use dfcp::{Connection, Endpoint, EndpointConfig, Error, StaticKey};
//! async fn serve(connection: Connection) -> Result<(), Error> {
//!     loop {
//!         let (mut send, mut recv) = connection.accept_bi().await?; // an error at its end
//!         tokio::spawn(async move {
//!             tokio::io::copy(&mut recv, &mut send).await?;
//!             send.finish()
//!         });
//!     }
//! }
//! # async fn example(key: StaticKey) -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = Endpoint::bind(EndpointConfig::server(key, "[::]:4433".parse()?))?;
//! while let Some(incoming) = endpoint.accept().await {
//!     tokio::spawn(serve(incoming.accept()));
//! }
//! # Ok(()) }
//! ```
//!
//! Live data are worth nothing when they are late. A connection with a [`Reliability`] gives up what
//! is too old or was sent often enough; the reader is told where bytes are missing, and how many.
//!
//! ```no_run
//! # use dfcp::{Connection, EndpointConfig, Error, Piece, Reliability, TransportConfig};
//! # use std::time::Duration;
//! # fn sender() -> std::io::Result<EndpointConfig> {
//! let deadline = Reliability::Deadline(Duration::from_millis(200));
//! let transport = TransportConfig::default().reliability(deadline);
//! let config = EndpointConfig::client(dfcp::generate_key()?).transport(transport);
//! # Ok(config) }
//! # async fn reader(connection: Connection) -> Result<(), Error> {
//! let (_send, mut recv) = connection.accept_bi().await?;
//! let mut buffer = [0; 16_384];
//! loop {
//!     match recv.read_piece(&mut buffer).await? {
//!         Piece::Data(n) => println!("{n} bytes"),
//!         Piece::Gap(bytes) => println!("{bytes} bytes came too late"),
//!         Piece::End => break,
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! Who knows quinn finds much the same under the same names, and this different:
//!
//! * a [`SendStream`] that is dropped before [`finish`](SendStream::finish) is reset, so that half of a message
//!   is never taken for all of it;
//! * a connection without handles still delivers what was finished, and [`Endpoint::wait_idle`] waits for that;
//! * [`SendStream::delivered`] waits for the peer, as does [`AsyncWriteExt::shutdown`](tokio::io::AsyncWriteExt::shutdown),
//!   which finishes first;
//! * [`Connection::open_bi`] gives a stream both of whose halves count: who only sends takes
//!   [`open_uni`](Connection::open_uni), as a [`RecvStream`] that is dropped tells the peer to stop;
//! * identities are keys, not names: [`Endpoint::connect`] without the peer's key takes whoever answers.

#![forbid(unsafe_code)]

mod alarm;
mod cadence;
mod claim;
mod connection;
mod driver;
mod endpoint;
mod error;
mod handover;
mod inbox;
mod incoming;
mod line;
mod object;
mod place;
pub mod published;
pub mod qlog;
mod reactor;
mod shared;
mod socket;
mod solver;
mod stream;
mod sync;
mod timers;
mod wait_list;
mod waiting;

pub use connection::Connection;
pub use dfcp_proto::feedback;
pub use dfcp_proto::observe;
pub use dfcp_proto::profile::{ChameleonParameters, CtcpParameters, ProfileName};
pub use dfcp_proto::scheduler::FlowControl;
pub use dfcp_proto::{
    Admission, Application, CloseCode, ConnectionError, ConnectionStats, Datagram, DatagramError,
    EndpointStats, Profile, PublicKey, Rate, Reliability, SchemeId, StaticKey, TransportConfig,
    VarInt, VarIntTooLarge,
};
pub use endpoint::{Endpoint, EndpointConfig};
pub use error::Error;
pub use incoming::Incoming;
pub use object::{IncomingObject, ObjectPart, ObjectSummary, Progress};
pub use place::WriteAt;
pub use qlog::qlog_to;
pub use socket::SocketBuffers;
pub use stream::{Chunk, Piece, RecvStream, SendStream};

/// Silence after which endpoints ping their peers unless told otherwise: who waits for data need not
/// fear the idle timeout, and NAT bindings of half a minute last. Not oftener, as RFC 8085 §3.5 has
/// it.
pub const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(15);

/// A new static key from the operating system's randomness.
pub fn generate_key() -> std::io::Result<StaticKey> {
    let mut rng = dfcp_proto::SecretRng::new(&os_seed()?, "static key");
    Ok(StaticKey::generate(&mut rng))
}

fn os_seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| std::io::Error::other(e.to_string()))?;
    Ok(seed)
}
