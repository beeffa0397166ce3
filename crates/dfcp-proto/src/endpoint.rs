//! Many connections behind one address: routes datagrams, answers handshakes without state,
//! accepts.

mod handshake;
mod load;
mod seats;

use crate::block::MemoryBudget;
use crate::config::TransportConfig;
use crate::connection::{ConnectParams, Connection};
use crate::crypto::{
    HandshakeError, PublicKey, ResetSecret, Responder, Secret, SecretRng, StaticKey, reset_token,
};
use crate::host::{ConnectionHandle, Priority, Transmit};
use crate::table::{Member, Table};
use crate::time::{Duration, Instant};
use crate::wire::{
    ConnectionId, Packet, RESET_LEN, Retry, SEALED_HEADER_LEN, Sealed, SynAck, TAG_LEN, emit_reset,
};
use handshake::{Answer, Used};
use load::Load;
use seats::Seats;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Whether a client's key is welcome.
pub type Authorize = Arc<dyn Fn(&PublicKey) -> Admission + Send + Sync>;

/// What becomes of a client that has proved its key. It hears which it is, and nobody else does. Of several
/// the greatest counts: who is welcome somewhere is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admission {
    /// The key is not known.
    Unknown,
    /// The key was welcome for a time that is over.
    Expired,
    /// It is let in.
    Welcome,
}

impl From<bool> for Admission {
    /// Who is not welcome is unknown.
    fn from(is_welcome: bool) -> Self {
        match is_welcome {
            true => Self::Welcome,
            false => Self::Unknown,
        }
    }
}

/// How an endpoint takes connections.
#[derive(Clone)]
pub struct ServerConfig {
    /// Settings of accepted connections.
    pub transport: Arc<TransportConfig>,
    /// Asked for each new client after it proved its key.
    pub authorize: Authorize,
    /// Connections at once; further clients are not answered.
    pub max_connections: usize,
    /// Of these, for one key, and for one network: an IPv4 address or an IPv6 /64. An IPv6 /48 has twice as many.
    pub max_per_peer: usize,
    /// Bytes that all connections together may make the endpoint hold of what they receive, at
    /// least 1 MiB for each of `max_connections`. Half of it is divided among these, the other half
    /// lent to those that use it, up to the transport's receive budget.
    pub memory: u64,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("max_connections", &self.max_connections)
            .finish()
    }
}

/// Counters of what concerns no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Datagrams that are no packets of this protocol.
    pub malformed: u64,
    /// Packets for connections that are not known here.
    pub unknown: u64,
    /// Handshake packets refused: too small, bad cookie, bad cryptography, table full.
    pub refused: u64,
    /// Welcome clients that were turned away since all places were taken, not only those of their own.
    pub crowded: u64,
    /// SYNs answered.
    pub syns: u64,
    /// SYNs that were to come again with a cookie.
    pub retries: u64,
    /// SYNs and ACKs that took public-key arithmetic.
    pub computed: u64,
}

/// Answers waiting to be sent; more are dropped, as a flood deserves no memory.
const MAX_REPLIES: usize = 256;
/// Resets sent per second at most.
const RESETS_PER_SECOND: u32 = 100;
/// An answer must be smaller than its question: a sealed packet has a header and a tag at least.
const _: () = assert!(RESET_LEN < SEALED_HEADER_LEN + TAG_LEN);

impl Member for Connection {
    fn next_timeout(&self) -> Option<Instant> {
        self.poll_timeout().map(|(at, _)| at)
    }

    fn patience(&self) -> Duration {
        self.coalescing_delay()
    }
}

/// See the module's text.
pub struct Endpoint {
    key: StaticKey,
    server: Option<ServerConfig>,
    responder: Responder,
    /// What it answered last.
    answer: Option<Answer>,
    resets: ResetSecret,
    rng: SecretRng,
    /// What the clock that strangers are shown begins with: how long this runs is not theirs to know.
    clock_origin: u32,
    connections: Table<ConnectionHandle, Connection>,
    by_cid: HashMap<ConnectionId, ConnectionHandle>,
    /// By the peer's connection ID, which resets name.
    by_remote_cid: BTreeSet<(ConnectionId, ConnectionHandle)>,
    /// Connections that the host drives by itself, and what is known of their peers.
    lent: HashMap<ConnectionHandle, (ConnectionId, SocketAddr)>,
    /// Of a server.
    used: Used<ConnectionId>,
    /// Clients that are to hear nothing, not even that they are unknown.
    ignored: Used<ConnectionId>,
    /// Clients that have gone on with a connection, by key and the ID that each chose.
    settled: Used<(PublicKey, ConnectionId)>,
    accepted: VecDeque<ConnectionHandle>,
    /// Places of accepted clients.
    seats: Seats,
    /// Refused clients, which take none: nobody else will forget them.
    unwelcome: BTreeSet<ConnectionHandle>,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    next_handle: u64,
    memory: Arc<MemoryBudget>,
    /// Resets sent in a second.
    resets_sent: (Instant, u32),
    load: Load,
    stats: EndpointStats,
}

impl Endpoint {
    /// An endpoint with identity `key`; every other secret comes from `seed`, which must be
    /// fresh and unpredictable. Without `server` it only connects.
    pub fn new(key: StaticKey, server: Option<ServerConfig>, seed: [u8; 32]) -> Self {
        let mut rng = SecretRng::new(&Secret::from(seed), "endpoint");
        let responder = Responder::new(key.clone(), rng.fork("slots"));
        let resets = ResetSecret::new(&key, &[]);
        // Who only connects decides himself how many there are.
        let seats = server.as_ref().map_or_else(Seats::default, |s| {
            Seats::new(s.max_connections, s.max_per_peer)
        });
        let shared = |s: &ServerConfig| MemoryBudget::new(s.memory, s.max_connections);
        let memory = server
            .as_ref()
            .map_or(MemoryBudget::new(u64::MAX, 1), shared);
        Self {
            key,
            server,
            responder,
            answer: None,
            resets,
            clock_origin: u32::from_be_bytes(rng.fork("clock").array()),
            rng,
            connections: Table::default(),
            by_cid: HashMap::new(),
            by_remote_cid: BTreeSet::new(),
            lent: HashMap::new(),
            used: Used::default(),
            ignored: Used::default(),
            settled: Used::default(),
            accepted: VecDeque::new(),
            seats,
            unwelcome: BTreeSet::new(),
            replies: VecDeque::new(),
            next_handle: 0,
            memory,
            resets_sent: (Instant::ZERO, 0),
            load: Load::default(),
            stats: EndpointStats::default(),
        }
    }

    /// Says where this endpoint runs: bytes that are the same after a restart, and others for any
    /// endpoint that has the same key at the same time. Nobody can then ask one of them for resets
    /// that the peers of another believe. To be called before there is any connection.
    #[must_use]
    pub fn at(mut self, place: &[u8]) -> Self {
        self.resets = ResetSecret::new(&self.key, place);
        self
    }

    /// This endpoint's public key.
    pub fn public_key(&self) -> PublicKey {
        self.key.public()
    }

    /// Counters.
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// Begins a connection; with `peer` set, to that key only.
    pub fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        peer: Option<PublicKey>,
        config: Arc<TransportConfig>,
    ) -> Result<ConnectionHandle, HandshakeError> {
        let local_cid = self.free_cid();
        let rng = self.rng.fork("connection");
        let client = ConnectParams {
            key: &self.key,
            expected: peer,
            local_cid,
            reset_key: self.resets.key(local_cid, remote),
            memory: self.memory.clone(),
        };
        let connection = Connection::connect(now, remote, config, client, rng)?;
        Ok(self.insert(local_cid, connection))
    }

    fn free_cid(&mut self) -> ConnectionId {
        loop {
            let cid = ConnectionId(self.rng.array());
            if !self.by_cid.contains_key(&cid) {
                return cid;
            }
        }
    }

    fn insert(&mut self, cid: ConnectionId, connection: Connection) -> ConnectionHandle {
        let handle = ConnectionHandle(self.next_handle);
        self.next_handle += 1;
        self.by_cid.insert(cid, handle);
        self.by_remote_cid.insert((connection.remote_cid(), handle));
        self.connections.insert(handle, connection);
        handle
    }

    /// A client that completed its handshake.
    pub fn accept(&mut self) -> Option<ConnectionHandle> {
        self.accepted.pop_front()
    }

    /// What the peers of all connections call them, those that are [lent](Endpoint::lend) among them.
    pub fn connection_ids(&self) -> Vec<ConnectionId> {
        let mut ids: Vec<_> = self.by_cid.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The connection, unless it was forgotten.
    pub fn connection(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.connections.get_mut(handle)
    }

    /// The connection, to look at.
    pub fn peek(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.connections.get(handle)
    }

    /// All connections, in the order in which they began.
    pub fn handles(&self) -> Vec<ConnectionHandle> {
        self.connections.handles()
    }

    /// A connection that something happened to since it was last given here: it may have events, or
    /// be closed.
    pub fn poll_news(&mut self) -> Option<(ConnectionHandle, &mut Connection)> {
        self.connections.next_news()
    }

    /// Drops a connection that is closed and whose events were read.
    pub fn forget(&mut self, handle: ConnectionHandle) {
        self.seats.leave(handle);
        if let Some(connection) = self.connections.remove(handle) {
            self.by_cid.remove(&connection.local_cid());
            self.by_remote_cid
                .remove(&(connection.remote_cid(), handle));
        }
    }

    /// Lends a connection to a host that drives each by itself, for instance on several cores: from now
    /// on this endpoint does nothing for it but to say whose datagrams are, until it has it back
    /// ([`Endpoint::take_back`]).
    pub fn lend(&mut self, handle: ConnectionHandle) -> Option<Box<Connection>> {
        let connection = self.connections.remove(handle)?;
        let peer = (connection.remote_cid(), connection.remote_address());
        self.lent.insert(handle, peer);
        Some(connection)
    }

    /// Learns the peer of a lent connection: once after its handshake and once it is confirmed, better also
    /// when the peer moved.
    pub fn learn(&mut self, handle: ConnectionHandle, connection: &Connection) {
        note_settled(&mut self.settled, connection);
        let Some(known) = self.lent.get_mut(&handle) else {
            return;
        };
        let peer = (connection.remote_cid(), connection.remote_address());
        let (before, _) = std::mem::replace(known, peer);
        if before != peer.0 {
            self.by_remote_cid.remove(&(before, handle));
            self.by_remote_cid.insert((peer.0, handle));
        }
    }

    /// Has a connection that was lent back.
    pub fn take_back(&mut self, handle: ConnectionHandle, connection: Box<Connection>) {
        self.learn(handle, &connection);
        if self.lent.remove(&handle).is_some() {
            self.connections.insert(handle, connection);
        }
    }

    /// Forgets an accepted connection without a word, now or to what its peer sends later.
    pub fn ignore(&mut self, now: Instant, handle: ConnectionHandle) {
        let cid = self.connections.get(handle).map(Connection::local_cid);
        if let Some(cid) = cid {
            self.ignored.insert(now, cid);
            self.forget(handle);
        }
    }

    /// Takes a datagram; it is decrypted in place. Says whose it is: a connection that is
    /// [lent](Endpoint::lend) has yet to take it ([`Connection::handle_datagram`]).
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ecn: u8,
        datagram: &mut [u8],
    ) -> Option<ConnectionHandle> {
        let len = datagram.len();
        let packet = match Packet::parse(datagram) {
            Ok(packet) => packet,
            Err(_) => {
                self.stats.malformed += 1;
                return None;
            }
        };
        let handle = match packet {
            Packet::Sealed(Sealed { cid, .. }) => match self.by_cid.get(&cid) {
                Some(handle) => *handle,
                None => {
                    self.answer_unknown(now, remote, cid, datagram);
                    return None;
                }
            },
            Packet::Syn(syn) => {
                self.handle_syn(now, remote, &syn, len);
                return None;
            }
            Packet::Ack(ack) => return self.handle_ack(now, remote, &ack),
            Packet::SynAck(SynAck { client_cid, .. })
            | Packet::Version { client_cid, .. }
            | Packet::Retry(Retry { client_cid, .. }) => *self.by_cid.get(&client_cid)?,
            Packet::Reset { cid, .. } => self.named_by_reset(cid, remote)?,
        };
        if let Some(connection) = self.connections.get_mut(handle) {
            let before = connection.remote_cid();
            let was_settled = connection.settled_at().is_some();
            connection.handle_datagram(now, remote, ecn, datagram);
            // A client knows the server's connection ID from its SYNACK on.
            let after = connection.remote_cid();
            if before != after {
                self.by_remote_cid.remove(&(before, handle));
                self.by_remote_cid.insert((after, handle));
            }
            if !was_settled {
                note_settled(&mut self.settled, connection);
            }
        }
        Some(handle)
    }

    /// The connection whose peer at `remote` has that connection ID.
    fn named_by_reset(&self, cid: ConnectionId, remote: SocketAddr) -> Option<ConnectionHandle> {
        self.named(cid, remote).next()
    }

    /// All whose peers at `remote` have that connection ID.
    fn named(
        &self,
        cid: ConnectionId,
        remote: SocketAddr,
    ) -> impl Iterator<Item = ConnectionHandle> {
        let handles = ConnectionHandle(0)..=ConnectionHandle(u64::MAX);
        let named = (cid, *handles.start())..=(cid, *handles.end());
        let named = self.by_remote_cid.range(named).map(|&(_, handle)| handle);
        let lent = |handle| self.lent.get(&handle).map(|&(_, address)| address);
        let own = |handle| Some(self.connections.get(handle)?.remote_address());
        named.filter(move |&h| lent(h).or_else(|| own(h)) == Some(remote))
    }

    /// Nobody here knows the connection of a sealed packet: its sender is told, if it is not too often.
    fn answer_unknown(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        cid: ConnectionId,
        datagram: &[u8],
    ) {
        self.stats.unknown += 1;
        if self.ignored.contains(&cid) {
            return;
        }
        if now.saturating_since(self.resets_sent.0) > Duration::from_secs(1) {
            self.resets_sent = (now, 0);
        }
        if let Some(tag) = datagram.last_chunk()
            && self.resets_sent.1 < RESETS_PER_SECOND
        {
            self.resets_sent.1 += 1;
            let token = reset_token(&self.resets.key(cid, remote), tag);
            self.reply(remote, emit_reset(cid, token));
        }
    }

    fn reply(&mut self, remote: SocketAddr, datagram: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((remote, datagram));
        }
    }

    /// Writes the next datagrams to `out`; connections take turns.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((destination, datagram)) = self.replies.pop_front() {
            out.extend_from_slice(&datagram);
            let size = datagram.len();
            return Some(Transmit {
                destination,
                ecn: 0,
                size,
                segment_size: None,
                elided: 0,
                priority: Priority::Data,
            });
        }
        while let Some(handle) = self.connections.next_ready() {
            let connection = self.connections.get_mut(handle)?;
            let transmit = connection.poll_transmit(now, max_segments, out);
            if transmit.is_some() {
                return transmit;
            }
            self.connections.rest(handle);
            self.retire(handle);
        }
        None
    }

    /// Forgets a refused client that heard so: nobody else will.
    fn retire(&mut self, handle: ConnectionHandle) {
        let is_closed = || self.peek(handle).is_none_or(Connection::is_closed);
        if self.unwelcome.contains(&handle) && is_closed() {
            self.unwelcome.remove(&handle);
            self.forget(handle);
        }
    }

    /// When to call [`Endpoint::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let forget = self.responder.next_forget().map(Self::start_of);
        let next = self.connections.next_timeout();
        next.into_iter().chain(forget).min()
    }

    /// Longest time that packets may wait for each other while there are many: the least of all
    /// connections' ([`Connection::coalescing_delay`]).
    pub fn coalescing_delay(&self) -> Duration {
        self.connections.patience().unwrap_or_default()
    }

    /// Acts on every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.responder.forget_before(Self::slot(now));
        for handle in self.connections.due(now) {
            if let Some(connection) = self.connections.get_mut(handle) {
                connection.handle_timeout(now);
            }
            self.retire(handle);
        }
    }
}

/// A client that goes on with one of our connections goes on with no other: what is left of its handshake is
/// nobody's from then on, wherever it is carried from.
fn note_settled(settled: &mut Used<(PublicKey, ConnectionId)>, connection: &Connection) {
    if let (Some(at), Some(peer)) = (connection.settled_at(), connection.peer()) {
        settled.insert(at, (peer, connection.remote_cid()));
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("key", &self.key.public())
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
