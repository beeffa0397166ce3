//! Endpoints: a socket, an identity, connections in both directions.

use crate::connection::Connection;
use crate::error::Error;
use crate::incoming::Incoming;
use crate::shared::Shared;
use crate::socket::{Layer, Socket, SocketBuffers, canonical};
use crate::waiting::ConnectionState;
use dfcp_proto::{
    Admission, CloseCode, ConnectionError, EndpointStats, PublicKey, ServerConfig, StaticKey,
    TransportConfig,
};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::ToSocketAddrs;
use tokio::task::JoinSet;

/// Head start of an address of a name over the next one (RFC 8305 §5, Connection Attempt Delay).
const HEAD_START: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried: two of each family.
const MAX_ADDRESSES: usize = 4;

/// How an endpoint is set up.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Any free port of both families, unless set.
    bind: Option<SocketAddr>,
    key: StaticKey,
    transport: TransportConfig,
    server: bool,
    authorize: Arc<dyn Fn(&PublicKey) -> Admission + Send + Sync>,
    max_connections: usize,
    max_per_peer: Option<usize>,
    memory: Option<u64>,
    keep_alive: Option<Duration>,
    reset_salt: Option<Vec<u8>>,
}

impl EndpointConfig {
    /// An endpoint that only connects, from any free port, to addresses of IPv4 and IPv6.
    pub fn client(key: StaticKey) -> Self {
        Self {
            bind: None,
            key,
            transport: TransportConfig::default(),
            server: false,
            authorize: Arc::new(|_| Admission::Welcome),
            max_connections: 64,
            max_per_peer: None,
            memory: None,
            keep_alive: Some(crate::KEEP_ALIVE),
            reset_salt: None,
        }
    }

    /// An endpoint that also accepts, at `bind`: 64 connections at once, and 16 of them from one key or
    /// network, unless [`max_connections`](Self::max_connections) and [`max_per_peer`](Self::max_per_peer)
    /// say otherwise. At `[::]` it does so for both families, where the system can (Linux, macOS and
    /// Windows can).
    pub fn server(key: StaticKey, bind: SocketAddr) -> Self {
        Self {
            bind: Some(bind),
            server: true,
            ..Self::client(key)
        }
    }

    /// The local address. One of IPv4, or a particular one of IPv6, reaches its own family only.
    pub fn bind(mut self, bind: SocketAddr) -> Self {
        self.bind = Some(bind);
        self
    }

    /// Settings of all connections that have none of their own ([`Endpoint::connect_with`]).
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

    /// Which clients are welcome; all, unless set. Asked with the key that the client proved, in the
    /// task that serves the socket: it must not block. [`Incoming`] is for decisions that take time. With an
    /// [`Admission`] in place of a `bool` a client learns that its key was welcome once.
    pub fn authorize<A: Into<Admission>>(
        mut self,
        f: impl Fn(&PublicKey) -> A + Send + Sync + 'static,
    ) -> Self {
        self.authorize = Arc::new(move |key| f(key).into());
        self
    }

    /// Accepted connections at once: 64 unless set.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.max_connections = max;
        self
    }

    /// Of the accepted connections, for one key, and for one network (an IPv4 address, an IPv6 /64): a
    /// quarter unless set, and eight where that is less. An IPv6 /48 has twice as many.
    pub fn max_per_peer(mut self, max: usize) -> Self {
        self.max_per_peer = Some(max);
        self
    }

    /// Bytes that all connections of a server together may make it hold of what they receive: four
    /// times [`TransportConfig::receive_budget`] unless set, and at least 1 MiB for each accepted
    /// connection. Half of it is divided among these, the other half lent to those that use it.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Bytes that tell this endpoint from others that have its key and listen at a port of the same
    /// number, and that are the same after a restart; they need not be secret. What names the
    /// machine (`/etc/machine-id`), unless set. With the same bytes, one of them can be made to end
    /// connections of the other by whoever sees these.
    pub fn reset_salt(mut self, salt: impl Into<Vec<u8>>) -> Self {
        self.reset_salt = Some(salt.into());
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

/// A socket with its connections; clones share it. When the last one is dropped, no connection is accepted
/// any more, and the socket stays for those that there are until they are over. It is served by tasks of the
/// runtime in which it was made: where that ends, everything ends at once, and peers learn of it by silence.
/// Before that, [`close`](Endpoint::close) ends all connections, and [`wait_idle`](Endpoint::wait_idle)
/// waits until they have ended by themselves.
#[derive(Clone, Debug)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared<ConnectionState>>,
    transport: Arc<TransportConfig>,
    keep_alive: Option<Duration>,
    bound: Mutex<Bound>,
    key: PublicKey,
}

/// What is known of the socket.
#[derive(Clone, Copy, Debug)]
struct Bound {
    local: SocketAddr,
    buffers: SocketBuffers,
    took_over: bool,
}

impl Bound {
    fn of(socket: &Socket) -> io::Result<Self> {
        Ok(Self {
            local: socket.local_addr()?,
            buffers: socket.buffers,
            took_over: socket.took_over,
        })
    }

    /// Whether the socket can send to `remote`.
    fn reaches(&self, remote: &SocketAddr) -> bool {
        match self.local {
            SocketAddr::V6(local) => local.ip().is_unspecified() || remote.is_ipv6(),
            SocketAddr::V4(_) => remote.is_ipv4(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.act(|_, state| state.close());
    }
}

impl Endpoint {
    /// Binds the socket and starts the driver task; call within a tokio runtime.
    ///
    /// # Errors
    /// Those of the socket, and of the system's randomness; that there is no runtime.
    pub fn bind(config: EndpointConfig) -> Result<Self, Error> {
        let socket = match config.bind {
            Some(address) => Socket::bind(Layer::Udp, address)?,
            // A system may have no IPv6 at all.
            None => Socket::bind(Layer::Udp, (Ipv6Addr::UNSPECIFIED, 0).into())
                .or_else(|_| Socket::bind(Layer::Udp, (Ipv4Addr::UNSPECIFIED, 0).into()))?,
        };
        Self::with(config, socket)
    }

    /// The same over a socket that is bound already, such as one that has found its way through
    /// address translators; the address in `config` does not count.
    ///
    /// # Errors
    /// As for [`Endpoint::bind`].
    pub fn over(config: EndpointConfig, socket: std::net::UdpSocket) -> Result<Self, Error> {
        Self::with(config, Socket::over(Layer::Udp, socket)?)
    }

    fn with(config: EndpointConfig, socket: Socket) -> Result<Self, Error> {
        tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let transport = Arc::new(config.transport.or_keep_alive(config.keep_alive));
        let server = config.server.then(|| ServerConfig {
            transport: transport.clone(),
            authorize: config.authorize.clone(),
            max_connections: config.max_connections,
            max_per_peer: config
                .max_per_peer
                .unwrap_or((config.max_connections / 4).max(8)),
            memory: config
                .memory
                .unwrap_or(transport.max_receive().saturating_mul(4)),
        });
        let bound = Bound::of(&socket)?;
        let mut place = bound.local.port().to_be_bytes().to_vec();
        place.extend(config.reset_salt.unwrap_or_else(machine));
        let core = dfcp_proto::Endpoint::new(config.key, server, crate::os_seed()?).at(&place);
        let key = core.public_key();
        let bound = Mutex::new(bound);
        let shared = Shared::start(core, socket);
        let inner = Inner {
            shared,
            transport,
            keep_alive: config.keep_alive,
            bound,
            key,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    fn bound(&self) -> Bound {
        let bound = self.inner.bound.lock();
        *bound.unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.bound().local
    }

    /// This endpoint's identity.
    pub fn public_key(&self) -> PublicKey {
        self.inner.key
    }

    /// Socket buffers, asked for and got.
    pub fn socket_buffers(&self) -> SocketBuffers {
        self.bound().buffers
    }

    /// Counters of what concerns no connection.
    pub fn stats(&self) -> EndpointStats {
        self.inner.shared.lock().core.stats()
    }

    /// Connects to `remote`, an address or a name with a port (`"example.org:4433"`); with `peer`,
    /// only to that key. Without it the caller must decide about [`Connection::peer`] before it
    /// sends anything. Of a name's addresses those that the socket can reach are tried in the
    /// resolver's order, a quarter of a second apart (RFC 8305); the first that answers counts.
    /// Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// [`Error::Io`] if the name has no address or the system cannot say; [`Error::Connection`] if
    /// nobody answers ([`ConnectionError::Unreachable`]), a peer proves another key
    /// ([`ConnectionError::WrongKey`]) or speaks another protocol; [`Error::EndpointClosed`].
    pub async fn connect(
        &self,
        remote: impl ToSocketAddrs,
        peer: impl Into<Option<PublicKey>>,
    ) -> Result<Connection, Error> {
        let transport = self.inner.transport.clone();
        self.connect_to(transport, remote, peer.into()).await
    }

    /// [`Endpoint::connect`] with settings for this connection: its profile, deadlines, limits. What a
    /// side sends follows its own settings, so that those of the peer need not be alike.
    ///
    /// # Errors
    /// As for [`Endpoint::connect`].
    pub async fn connect_with(
        &self,
        transport: TransportConfig,
        remote: impl ToSocketAddrs,
        peer: impl Into<Option<PublicKey>>,
    ) -> Result<Connection, Error> {
        let transport = transport.or_keep_alive(self.inner.keep_alive);
        self.connect_to(Arc::new(transport), remote, peer.into())
            .await
    }

    async fn connect_to(
        &self,
        transport: Arc<TransportConfig>,
        remote: impl ToSocketAddrs,
        peer: Option<PublicKey>,
    ) -> Result<Connection, Error> {
        let mut attempts = JoinSet::new();
        for (turn, remote) in (0..).zip(self.resolve(remote).await?) {
            let (shared, transport) = (self.inner.shared.clone(), transport.clone());
            attempts.spawn(async move {
                if turn > 0 {
                    tokio::time::sleep(HEAD_START * turn).await;
                }
                let handle = shared.connect(|now, core| {
                    core.connect(now, remote, peer, transport)
                        .map_err(|e| Error::Io(io::Error::other(e)))
                })?;
                Connection::established(handle).await
            });
        }
        let mut last = Error::Connection(ConnectionError::Unreachable);
        while let Some(attempt) = attempts.join_next().await {
            match attempt.map_err(io::Error::other)? {
                Ok(connection) => return Ok(connection),
                // Somebody is there: the silence of the other addresses would say less, and later.
                Err(error @ Error::Connection(ConnectionError::WrongKey { .. })) => {
                    return Err(error);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The addresses to try, in order.
    async fn resolve(&self, remote: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
        let bound = self.bound();
        let mut addresses = Vec::new();
        let found = tokio::net::lookup_host(remote).await;
        let found = found.map_err(|error| match error.kind() {
            // Tokio says no more than that it is invalid.
            kind @ io::ErrorKind::InvalidInput => io::Error::new(
                kind,
                "that is no address or name with a port, such as example.org:4433",
            ),
            _ => error,
        });
        for address in found?.map(canonical) {
            if bound.reaches(&address) && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.truncate(MAX_ADDRESSES);
        match addresses.is_empty() {
            true => Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "the peer has no address that this socket reaches",
            )),
            false => Ok(addresses),
        }
    }

    /// The next client that proved its key; `None` once the endpoint is closed. May be cancelled.
    pub async fn accept(&self) -> Option<Incoming> {
        loop {
            let accepted = Connection::accepted(self.inner.shared.accept().await?);
            if let Some(connection) = accepted {
                return Some(Incoming::new(connection));
            }
        }
    }

    /// Goes on over another socket: connections of this side's own live on, and show themselves to
    /// their servers from the new address at once. Clients do not follow a server that moves.
    ///
    /// # Errors
    /// Those of the socket, and [`io::ErrorKind::NotConnected`] if the endpoint has ended; the old
    /// socket is kept then.
    pub fn rebind(&self, socket: std::net::UdpSocket) -> io::Result<()> {
        let socket = Socket::over(Layer::Udp, socket)?;
        let bound = Bound::of(&socket)?;
        self.inner.shared.act(|_, state| {
            if state.is_over() {
                let reason = "the endpoint is closed";
                return Err(io::Error::new(io::ErrorKind::NotConnected, reason));
            }
            *self
                .inner
                .bound
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = bound;
            self.inner.shared.set_outlet(socket.outlet());
            state.next_socket = Some(socket);
            Ok(())
        })?;
        for line in self.inner.shared.lines() {
            line.act(|_, connection, _| connection.ping());
        }
        Ok(())
    }

    /// Lets another endpoint of this user bind the same port while this one goes on with the connections that
    /// it has (Linux): the other one gets all packets but theirs, so that a program that ends can let what it
    /// carries end while its successor begins. To be called by who accepts no more. What a
    /// [socket of one's own](Endpoint::over) was not bound for cannot be handed over.
    ///
    /// # Errors
    /// Those of the system: also where more than about a thousand connections are open, another endpoint
    /// hands the port over already, or the system knows no such thing.
    pub fn hand_over_port(&self) -> io::Result<()> {
        let own = self.inner.shared.lock().core.connection_ids();
        self.inner.shared.outlet().hand_over(&own)
    }

    /// Whether the port was another endpoint's, which [handed it over](Self::hand_over_port) and may not have
    /// ended yet.
    pub fn took_over(&self) -> bool {
        self.bound().took_over
    }

    /// Closes all connections, telling the peers `code` and `reason`, accepts no more, and returns
    /// when the peers know it or did not answer for three probe timeouts, about as many round trips, and
    /// 30 seconds at most.
    /// Whoever still holds a connection or a stream learns
    /// [`ConnectionError::LocallyClosed`] from it.
    pub async fn close(&self, code: CloseCode, reason: &str) {
        for line in self.inner.shared.lines() {
            line.act(|now, connection, _| connection.close(now, code, reason));
        }
        self.inner.shared.act(|_, state| state.close());
        self.wait_idle().await;
    }

    /// Waits until the packets that may leave now have left, among them the word that a connection
    /// was [closed](Connection::close): twice, so that one loss does not keep it from the peer. Who
    /// ends the process after that and not after [`close`](Self::close) leaves a peer that hears
    /// neither to its idle timeout.
    pub async fn flush(&self) {
        self.inner.shared.flush().await;
    }

    /// Waits until every connection is over, whether or not somebody still holds it, or the driver
    /// ended. Connections of which no handle is left end once the peer has what was finished, so that
    /// this is how a program ends that has nothing more to say; one that is held lasts until somebody
    /// closes it.
    pub async fn wait_idle(&self) {
        self.inner.shared.wait_idle().await;
    }
}

/// What tells this machine from others, where the system has such a thing.
fn machine() -> Vec<u8> {
    std::fs::read("/etc/machine-id").unwrap_or_default()
}

#[cfg(test)]
impl Endpoint {
    pub(crate) fn shared(&self) -> &Arc<Shared<ConnectionState>> {
        &self.inner.shared
    }
}
