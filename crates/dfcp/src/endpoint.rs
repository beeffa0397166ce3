//! Endpoints: a socket, an identity, connections in both directions.

use crate::connection::Connection;
use crate::error::Error;
use crate::shared::{ConnectionState, Shared};
use crate::socket::{Layer, Socket, SocketBuffers};
use dfcp_proto::{CloseCode, Duration, PublicKey, ServerConfig, StaticKey, TransportConfig};
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

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
    shared: Arc<Shared>,
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
        let handle = {
            let now = self.shared.now();
            let mut state = self.shared.lock();
            if state.ended.is_some() {
                return Err(Error::EndpointClosed);
            }
            let handle = state
                .core
                .connect(now, remote, peer, self.transport.clone())
                .map_err(|e| Error::Io(std::io::Error::other(e)))?;
            state.connections.insert(
                handle,
                ConnectionState {
                    handles: 1,
                    ..Default::default()
                },
            );
            handle
        };
        self.shared.wake.notify_one();
        // Owns the handle from here: dropping this future closes the attempt.
        let nobody_yet = PublicKey([0; 32]);
        let attempt = Connection::new(self.shared.clone(), handle, nobody_yet);
        attempt.established().await
    }

    /// The next client that proved its key; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            while let Some(handle) = state.accepted.pop_front() {
                let Some((connection, ours)) = state.get(handle) else {
                    continue;
                };
                // It proved its key before it came here.
                let Some(peer) = connection.peer() else {
                    continue;
                };
                ours.handles += 1;
                ours.awaits_accept = false;
                return Poll::Ready(Some(Connection::new(self.shared.clone(), handle, peer)));
            }
            if state.closing || state.ended.is_some() {
                return Poll::Ready(None);
            }
            state.accepting.register(context);
            Poll::Pending
        })
        .await
    }

    /// Closes all connections, telling the peers `reason`, and waits as [`Endpoint::wait_idle`]
    /// does.
    pub async fn close(&self, code: CloseCode, reason: &str) {
        {
            let now = self.shared.now();
            let mut state = self.shared.lock();
            state.closing = true;
            for handle in state.core.handles() {
                if let Some(connection) = state.core.connection(handle) {
                    connection.close(now, code, reason);
                }
            }
            state.accepting.wake();
        }
        self.wait_idle().await;
    }

    /// Waits until no connection is left, or the driver ended. Connections stay as long as a
    /// [`Connection`] or a stream of theirs is held: drop those first.
    pub async fn wait_idle(&self) {
        self.shared.wake.notify_one();
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.connections.is_empty() || state.ended.is_some() {
                return Poll::Ready(());
            }
            state.idle.register(context);
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
    }
}
