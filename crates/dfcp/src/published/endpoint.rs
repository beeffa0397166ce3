//! Endpoints: a socket, connections in both directions.

use super::stream::Stream;
use super::waiting::ConnectionState;
use super::{Carrier, Config, EndpointStats, Traffic};
use crate::error::Error;
use crate::shared::Shared;
use crate::socket::{Layer, Socket, SocketBuffers};
use dfcp_proto::Duration;
use dfcp_proto::published::Listen;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// DFCP port to listen at unless there is a reason for another.
pub const PORT: u16 = 4433;

/// What all connections may hold: four times the receive budget that a connection has by default, so that
/// one alone has all of it (its floor and half of a half).
const MEMORY: u64 = 768 << 20;

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    bind: SocketAddr,
    config: Config,
    listen: Option<u16>,
    max_connections: usize,
    memory: u64,
    keep_alive: Option<Duration>,
    own_network: bool,
}

impl EndpointConfig {
    /// An endpoint that only connects. `bind` is the socket's address; over IP its port is of no
    /// meaning.
    pub fn client(bind: SocketAddr, config: Config) -> Self {
        Self {
            bind,
            config,
            listen: None,
            max_connections: 64,
            memory: MEMORY,
            keep_alive: Some(crate::KEEP_ALIVE),
            own_network: false,
        }
    }

    /// An endpoint that also accepts, at DFCP port `port`.
    pub fn server(bind: SocketAddr, port: u16, config: Config) -> Self {
        Self {
            listen: Some(port),
            ..Self::client(bind, config)
        }
    }

    /// Accepted connections at once. Each may hold [`Config::receive_budget`] bytes, and all together
    /// [`EndpointConfig::memory`].
    pub fn max_connections(mut self, max: usize) -> Self {
        self.max_connections = max;
        self
    }

    /// Bytes that the connections of an endpoint that accepts may hold together of what they receive
    /// (768 MiB): half is divided among [`EndpointConfig::max_connections`], 1 MiB each at least, and each
    /// gets at most half of what is left of the other half, for as long as it lasts.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// After how much silence a peer is asked whether it is there, unless [`Config::keep_alive`]
    /// says it: [`KEEP_ALIVE`](crate::KEEP_ALIVE) by default. With `None` a connection that is idle
    /// for the idle timeout ends.
    pub fn keep_alive(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive = interval;
        self
    }

    /// Says that the network is one's own. Without this word an endpoint keeps to this machine: it
    /// neither listens at nor connects to other addresses than those of loopback, for everything is
    /// in clear, anyone can forge it, and other traffic is pushed aside.
    pub fn own_network(mut self, yes: bool) -> Self {
        self.own_network = yes;
        self
    }
}

/// Refuses an address beyond this machine, unless the network is one's own.
fn fence(address: SocketAddr, own_network: bool) -> Result<(), Error> {
    match own_network || address.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(Error::NotOwnNetwork(address.ip())),
    }
}

/// A socket with its connections. Dropping it lets existing connections end in order; new ones
/// are no longer accepted.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared<ConnectionState>>,
    config: Arc<Config>,
    own_network: bool,
    local: SocketAddr,
    buffers: SocketBuffers,
}

impl Endpoint {
    /// Binds the socket and starts the driver task; call within a tokio runtime.
    ///
    /// # Errors
    /// Those of the socket. [`Carrier::Ip`] needs the privilege CAP_NET_RAW, and an address of
    /// this machine to bind to: checksums cover it. There may be several endpoints for an address,
    /// of which each gets every packet to it; only one of them can listen at a port.
    /// [`Error::NotOwnNetwork`] for one that would listen beyond this machine, see
    /// [`EndpointConfig::own_network`].
    pub fn bind(config: EndpointConfig) -> Result<Self, Error> {
        let layer = match config.config.carrier {
            Carrier::Udp => Layer::Udp,
            Carrier::Ip => Layer::Ip,
        };
        if config.listen.is_some() {
            fence(config.bind, config.own_network)?;
        }
        if layer == Layer::Ip && config.bind.ip().is_unspecified() {
            let reason = "over IP an endpoint needs one address of this machine";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, reason).into());
        }
        tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let mut socket = Socket::bind(layer, config.bind)?;
        if let (Layer::Ip, Some(port)) = (layer, config.listen) {
            socket.claim(port)?;
        }
        let (local, buffers) = (socket.local_addr()?, socket.buffers);
        let mut settings = config.config;
        settings.keep_alive = settings.keep_alive.or(config.keep_alive);
        let transport = Arc::new(settings);
        let listen = config.listen.map(|port| Listen {
            port,
            config: transport.clone(),
            max_connections: config.max_connections,
            memory: config.memory,
        });
        let seed = crate::os_seed()?;
        let seed = seed.first_chunk().map_or(0, |&s| u64::from_le_bytes(s));
        let mut core = dfcp_proto::published::Endpoint::new(listen, seed);
        if layer == Layer::Ip {
            core = core.over_ip(local.ip());
        }
        let shared = Shared::start(core, socket);
        Ok(Self {
            shared,
            config: transport,
            own_network: config.own_network,
            local,
            buffers,
        })
    }

    /// The socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Socket buffers, asked for and got.
    pub fn socket_buffers(&self) -> SocketBuffers {
        self.buffers
    }

    /// Packets sent and received so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic()
    }

    /// Packets dropped and connections refused.
    pub fn stats(&self) -> EndpointStats {
        let mut stats = self.shared.lock().core.stats();
        for line in self.shared.lines() {
            line.look(|connection, _| stats.add(&connection.counts()));
        }
        stats
    }

    /// Connects to DFCP port `port` at `remote`, whose own port is UDP's; over IP it is of no
    /// meaning. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// [`Error::Published`] if the peer does not answer or refuses; [`Error::NotOwnNetwork`] for an
    /// address beyond this machine, see [`EndpointConfig::own_network`].
    pub async fn connect(&self, mut remote: SocketAddr, port: u16) -> Result<Stream, Error> {
        fence(remote, self.own_network)?;
        if self.config.carrier == Carrier::Ip {
            remote.set_port(0);
        }
        let handle = self
            .shared
            .connect(|now, core| Ok(core.connect(now, remote, port, self.config.clone())?))?;
        let stream = Stream::new(handle);
        stream.handshake().await?;
        Ok(stream)
    }

    /// The next connection that a peer opened; `None` if the socket failed. May be cancelled.
    pub async fn accept(&self) -> Option<Stream> {
        self.shared.accept().await.map(Stream::new)
    }

    /// Waits until every connection is over, or the driver ended. Connections that only answer
    /// late segments (TIME_WAIT) are.
    pub async fn wait_idle(&self) {
        self.shared.wait_idle().await;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.act(|_, state| state.close());
    }
}
