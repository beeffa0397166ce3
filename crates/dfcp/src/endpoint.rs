//! Endpoints: a socket, an identity, connections in both directions.

use crate::connection::Connection;
use crate::error::Error;
use crate::shared::Shared;
use crate::socket::{Layer, Socket, SocketBuffers};
use crate::waiting::ConnectionState;
use dfcp_proto::{CloseCode, Duration, PublicKey, ServerConfig, StaticKey, TransportConfig};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// How an endpoint is set up.
#[derive(Clone)]
pub struct EndpointConfig {
    bind: SocketAddr,
    key: StaticKey,
    transport: TransportConfig,
    server: bool,
    authorize: Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>,
    max_connections: usize,
    keep_alive: Option<Duration>,
}

impl EndpointConfig {
    /// An endpoint that only connects, from any free port.
    pub fn client(key: StaticKey) -> Self {
        Self {
            bind: SocketAddr::from(([0, 0, 0, 0], 0)),
            key,
            transport: TransportConfig::default(),
            server: false,
            authorize: Arc::new(|_| true),
            max_connections: 1024,
            keep_alive: Some(crate::KEEP_ALIVE),
        }
    }

    /// An endpoint that also accepts, at `bind`.
    pub fn server(key: StaticKey, bind: SocketAddr) -> Self {
        Self {
            bind,
            server: true,
            ..Self::client(key)
        }
    }

    /// The local address.
    pub fn bind(mut self, bind: SocketAddr) -> Self {
        self.bind = bind;
        self
    }

    /// Settings of all connections.
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.transport = transport;
        self
    }

    /// How often an idle peer is pinged, unless [`TransportConfig::keep_alive`] says it:
    /// [`KEEP_ALIVE`](crate::KEEP_ALIVE) by default. With `None` a connection that is idle for the
    /// idle timeout ends.
    pub fn keep_alive(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive = interval;
        self
    }

    /// Which clients are welcome; all, unless set. Asked with the key that the client proved.
    pub fn authorize(mut self, f: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Self {
        self.authorize = Arc::new(f);
        self
    }

    /// Accepted connections at once.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.max_connections = max;
        self
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("bind", &self.bind)
            .field("key", &self.key.public())
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// A socket with its connections. Dropping it lets existing connections end in order; new ones
/// are no longer accepted.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) shared: Arc<Shared<ConnectionState>>,
    transport: Arc<TransportConfig>,
    local: SocketAddr,
    buffers: SocketBuffers,
    key: PublicKey,
}

/// A connection that a client opened.
pub type Incoming = Connection;

impl Endpoint {
    /// Binds the socket and starts the driver task; call within a tokio runtime.
    pub fn bind(config: EndpointConfig) -> Result<Self, Error> {
        let socket = Socket::bind(Layer::Udp, config.bind)?;
        let transport = Arc::new(config.transport.or_keep_alive(config.keep_alive));
        let server = config.server.then(|| ServerConfig {
            transport: transport.clone(),
            authorize: config.authorize.clone(),
            max_connections: config.max_connections,
        });
        let core = dfcp_proto::Endpoint::new(config.key, server, crate::os_seed()?);
        let key = core.public_key();
        let (local, buffers) = (socket.local_addr()?, socket.buffers);
        let shared = Shared::new(core);
        tokio::spawn(crate::driver::run(shared.clone(), socket));
        tokio::spawn(crate::solver::run(shared.clone()));
        Ok(Self {
            shared,
            transport,
            local,
            buffers,
            key,
        })
    }

    /// The socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// This endpoint's identity.
    pub fn public_key(&self) -> PublicKey {
        self.key
    }

    /// Socket buffers, asked for and got.
    pub fn socket_buffers(&self) -> SocketBuffers {
        self.buffers
    }

    /// Connects to `remote`; with `peer`, only to that key. Without it the caller must decide
    /// about [`Connection::peer`] before it sends anything.
    pub async fn connect(
        &self,
        remote: SocketAddr,
        peer: Option<PublicKey>,
    ) -> Result<Connection, Error> {
        let handle = self.shared.connect(|now, core| {
            core.connect(now, remote, peer, self.transport.clone())
                .map_err(|e| Error::Io(std::io::Error::other(e)))
        })?;
        Connection::established(handle).await
    }

    /// The next client that proved its key; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        loop {
            let accepted = Connection::accepted(self.shared.accept().await?);
            if accepted.is_some() {
                return accepted;
            }
        }
    }

    /// Closes all connections, telling the peers `reason`, and waits as [`Endpoint::wait_idle`]
    /// does.
    pub async fn close(&self, code: CloseCode, reason: &str) {
        self.shared.act(|now, state| {
            for handle in state.core.handles() {
                if let Some(connection) = state.core.connection(handle) {
                    connection.close(now, code, reason);
                }
            }
            state.close(now);
        });
        self.wait_idle().await;
    }

    /// Waits until no connection is left, or the driver ended. Connections stay as long as a
    /// [`Connection`] or a stream of theirs is held: drop those first.
    pub async fn wait_idle(&self) {
        self.shared.wait_idle().await;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.act(|now, state| state.close(now));
    }
}
