//! Transport for bad networks: coded, encrypted, over UDP, on tokio.
//!
//! An [`Endpoint`] owns a socket; it [connects](Endpoint::connect) and [accepts](Endpoint::accept).
//! A [`Connection`] carries any number of streams ([`SendStream`], [`RecvStream`]: in order, both
//! directions) and objects ([`Connection::send_object`], [`IncomingObject::recv_object`]: whole files,
//! whose parts are written where they belong in the order they complete).
//!
//! Both sides prove a static key; [`Connection::peer`] says which one the peer proved. Dropping a
//! future loses nothing: calls may be cancelled and made again.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dfcp::{Endpoint, EndpointConfig, StaticKey};
//! use tokio::io::AsyncWriteExt;
//!
//! let endpoint = Endpoint::bind(EndpointConfig::client(dfcp::generate_key()?))?;
//! let connection = endpoint.connect("192.0.2.7:4433".parse()?, None).await?;
//! println!("the peer is {}", connection.peer());
//! let (mut send, _recv) = connection.open_stream().await?;
//! send.write_all(b"hello").await?;
//! send.finish().await?;
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod connection;
mod driver;
mod endpoint;
mod error;
mod object;
pub mod published;
mod shared;
mod socket;
mod stream;

pub use connection::Connection;
pub use dfcp_proto::{
    CloseCode, ConnectionError, ConnectionStats, Duration, Profile, PublicKey, Rate, SchemeId,
    StaticKey, TransportConfig,
};
pub use endpoint::{Endpoint, EndpointConfig, Incoming};
pub use error::Error;
pub use object::{IncomingObject, ObjectSummary, Progress};
pub use socket::SocketBuffers;
pub use stream::{RecvStream, SendStream};

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
