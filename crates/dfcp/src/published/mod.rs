//! DFCP as published (DFCP-J §4, DFCP-TR §2) on tokio: in clear, without congestion control, for
//! networks that are one's own.
//!
//! An [`Endpoint`] owns a UDP socket or, with the privilege for it, a raw IP socket; it
//! [connects](Endpoint::connect) and [accepts](Endpoint::accept). A connection is one [`Stream`]
//! of bytes, both ways. What the protocol does is set by [`Config`].
//!
//! Data leave in whole blocks (63,536 bytes by default). Flush what fills no block and must
//! arrive nevertheless; it is padded, at the cost of a block.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dfcp::published::{Config, Endpoint, EndpointConfig, PORT};
//! use tokio::io::AsyncWriteExt;
//!
//! let bind = "127.0.0.1:0".parse()?;
//! let endpoint = Endpoint::bind(EndpointConfig::client(bind, Config::default()))?;
//! let mut stream = endpoint.connect("127.0.0.1:4433".parse()?, PORT).await?;
//! stream.write_all(b"hello").await?;
//! stream.shutdown().await?;
//! # Ok(()) }
//! ```

mod endpoint;
mod orders;
mod stream;
mod waiting;

pub use crate::shared::Traffic;
pub use dfcp_proto::order::{OrderKey, Standing};
pub use dfcp_proto::profile::rc_udp;
pub use dfcp_proto::published::{
    Acknowledge, BlockSize, Carrier, Code, Codec, Config, Degrees, EndpointStats, Error,
    GeneratorState, LdpcDegrees, Moment, RaptorParameters, RcUdpCode, Redundancy, Sending, State,
    Stats,
};
pub use dfcp_proto::rate;
pub use endpoint::{Endpoint, EndpointConfig, PORT};
pub use orders::{OrderConfig, Orders};
pub use stream::{Monitor, Stream};
