//! Whose packet is this: ports, listening, SYN floods, resets.
//!
//! What a packet costs does not depend on how many connections there are: they are found by
//! address and ports, wait for their timers in an ordered set, and queue for sending only while
//! they have something to send. No answer is larger than what it answers; half-open connections
//! are few and small.

mod half_open;
mod table;

use super::config::Config;
use super::connection::{Birth, Connection, Error, Incoming};
use super::header::{Header, HeaderError, Kind, PseudoHeader, seal};
use super::negotiation::{Offer, Refusal};
use super::state::State;
use crate::block::{Lease, MemoryBudget};
use crate::crypto::SecretRng;
use crate::host::{ConnectionHandle, Priority, Transmit};
use crate::time::{Duration, Instant};
use dfcp_fec::raptor;
use half_open::HalfOpen;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use table::{Ports, Table};

/// How an endpoint takes connections.
#[derive(Clone, Debug)]
pub struct Listen {
    /// DFCP port.
    pub port: u16,
    /// Settings of connections taken.
    pub config: Arc<Config>,
    /// Most connections at once. Half-open ones do not count, so that nobody who only writes SYNs takes
    /// a place.
    pub max_connections: usize,
    /// Bytes of memory that all connections together may take for what they receive, at least 1 MiB for
    /// each of `max_connections`. Half of it is divided among these, the other half lent as they come: to
    /// each at most half of what is left, up to [`Config::receive_budget`], until it ends. A connection
    /// whose block is larger than what there is for it is refused.
    pub memory: u64,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Packets dropped: wrong length, offset, flags, generator state or symbols.
    pub malformed: u64,
    /// Packets dropped: wrong checksum.
    pub bad_checksum: u64,
    /// Packets of no connection.
    pub unknown: u64,
    /// SYN refused, a half-open connection dropped for a newer one, or one reset that was the last to
    /// complete its handshake: too many.
    pub syn_refused: u64,
    /// SYN or SYNACK refused: parameters outside limits, or no answer to what was offered.
    pub bad_parameters: u64,
    /// Data of blocks beyond the window.
    pub beyond_window: u64,
    /// Signalling with a generator state that is not the connection's.
    pub forged: u64,
    /// RST sent for packets of no connection.
    pub resets_sent: u64,
}

impl EndpointStats {
    /// Adds what a lent connection counted ([`Connection::counts`]).
    pub fn add(&mut self, other: &Self) {
        self.malformed += other.malformed;
        self.bad_checksum += other.bad_checksum;
        self.unknown += other.unknown;
        self.syn_refused += other.syn_refused;
        self.bad_parameters += other.bad_parameters;
        self.beyond_window += other.beyond_window;
        self.forged += other.forged;
        self.resets_sent += other.resets_sent;
    }
}

/// Most connections that are only kept for TIME_WAIT; the oldest gives way.
const MAX_LINGERING: usize = 1024;
/// Answers for packets of no connection that wait to be sent.
const MAX_REPLIES: usize = 64;
/// RST sent per second at most for packets of no connection.
const RESETS_PER_SECOND: u32 = 100;
/// Ports of connecting sides (RFC 6335 §6).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// All connections of one socket.
#[derive(Debug)]
pub struct Endpoint {
    listen: Option<Listen>,
    local: Option<IpAddr>,
    rng: SecretRng,
    table: Table,
    /// Connections that the host drives by itself.
    lent: BTreeSet<ConnectionHandle>,
    half_open: HalfOpen,
    /// Forgotten by the application, kept for late segments.
    lingering: BTreeSet<ConnectionHandle>,
    accepted: VecDeque<ConnectionHandle>,
    /// Connections that peers have established and the application has not forgotten.
    taken: BTreeSet<ConnectionHandle>,
    memory: Arc<MemoryBudget>,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    resets: (Instant, u32),
    stats: EndpointStats,
}

impl Endpoint {
    /// An endpoint over UDP. `seed` feeds ports and generator states; who knows it can forge
    /// signalling.
    pub fn new(listen: Option<Listen>, seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        // Who only connects chooses himself how many there are.
        let shared = |l: &Listen| MemoryBudget::new(l.memory, l.max_connections);
        let memory = listen.as_ref();
        let memory = memory.map_or(MemoryBudget::new(u64::MAX, 1), shared);
        Self {
            listen,
            memory,
            local: None,
            rng: SecretRng::new(&key, "published endpoint"),
            table: Table::default(),
            lent: BTreeSet::new(),
            half_open: HalfOpen::default(),
            lingering: BTreeSet::new(),
            accepted: VecDeque::new(),
            taken: BTreeSet::new(),
            replies: VecDeque::new(),
            resets: (Instant::ZERO, 0),
            stats: EndpointStats::default(),
        }
    }

    /// The same directly over IP, with this address: the checksum covers addresses. Both sides
    /// must be so. There may be several for an address, each of which gets all packets to it, if
    /// they listen at different ports.
    pub fn over_ip(mut self, local: IpAddr) -> Self {
        self.local = Some(local);
        self
    }

    /// Opens a connection to DFCP port `port` at `remote` (address of the carrier).
    ///
    /// # Errors
    /// [`Error::Parameters`] for settings outside limits, or if no port is free.
    pub fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        port: u16,
        config: Arc<Config>,
    ) -> Result<ConnectionHandle, Error> {
        let describe = |refusal: Refusal| Refusal::describe(refusal as u8).to_owned();
        let initial = self.draw_state();
        let mut lease = Lease::new(self.memory.clone(), config.receive_budget);
        let offer = Offer::new(&config, initial).and_then(|o| o.fit_within(&config, lease.room()));
        let offer = offer.map_err(|r| Error::Parameters(describe(r)))?;
        lease.resize(offer.memory());
        let local_port = self.draw_port(remote, port);
        let local_port = local_port.ok_or_else(|| Error::Parameters("no port is free".into()))?;
        let birth = Birth {
            remote,
            local_port,
            remote_port: port,
            pseudo: self.outgoing(remote),
            config,
            offer,
            initial,
            lease,
        };
        Ok(self.table.insert(Connection::connect(now, birth)))
    }

    fn draw_state(&mut self) -> raptor::State {
        loop {
            let [a, b, c] = [(); 3].map(|()| u32::from_be_bytes(self.rng.array()));
            if let Some(state) = raptor::State::new(a, b, c) {
                return state;
            }
        }
    }

    fn draw_port(&mut self, remote: SocketAddr, remote_port: u16) -> Option<u16> {
        let count = u64::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
        let first = self.rng.below(count);
        let listening = self.listen.as_ref().map(|l| l.port);
        (0..count)
            .map(|i| EPHEMERAL.start() + ((first + i) % count) as u16)
            .filter(|&port| Some(port) != listening)
            .find(|&local_port| {
                let ports = Ports {
                    remote,
                    remote_port,
                    local_port,
                };
                self.table.find(&ports).is_none()
            })
    }

    fn outgoing(&self, remote: SocketAddr) -> PseudoHeader {
        match self.local {
            None => PseudoHeader::Udp,
            Some(source) => PseudoHeader::Ip {
                source,
                destination: remote.ip(),
            },
        }
    }

    fn incoming(&self, remote: SocketAddr) -> PseudoHeader {
        match self.local {
            None => PseudoHeader::Udp,
            Some(destination) => PseudoHeader::Ip {
                source: remote.ip(),
                destination,
            },
        }
    }

    /// A packet arrived: the DFCP header and what follows. `remote` is the carrier's address. Says whose
    /// it is: a connection that is [lent](Endpoint::lend) has yet to take it
    /// ([`Connection::handle_datagram`]).
    pub fn handle_packet(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ecn: u8,
        packet: &[u8],
    ) -> Option<ConnectionHandle> {
        let (header, payload) = match Header::parse(packet, &self.incoming(remote)) {
            Ok(parsed) => parsed,
            Err(HeaderError::Checksum) => {
                self.stats.bad_checksum += 1;
                return None;
            }
            Err(_) => {
                self.stats.malformed += 1;
                return None;
            }
        };
        let ports = Ports {
            remote,
            remote_port: header.source,
            local_port: header.destination,
        };
        let incoming = Incoming {
            header,
            payload,
            ecn,
            size: packet.len(),
        };
        if let Some(handle) = self.table.find(&ports) {
            if let Some(connection) = self.table.connections.get_mut(handle) {
                connection.handle_packet(now, incoming, &mut self.stats);
            }
            self.settle(handle);
            return Some(handle);
        }
        let listening = self.listen.as_ref().map(|l| l.port);
        if header.kind == Kind::Syn && listening == Some(header.destination) {
            self.on_syn(now, remote, &incoming);
            return None;
        }
        self.stats.unknown += 1;
        if header.kind != Kind::Rst && self.owns(header.destination) {
            self.reset(now, remote, &header, None);
        }
        None
    }

    /// Whether nobody else answers for a port. Over IP there is no telling but where this endpoint
    /// listens, unless connecting sides take such ports.
    fn owns(&self, port: u16) -> bool {
        let listening = self.listen.as_ref().is_some_and(|l| l.port == port);
        self.local.is_none() || (listening && !EPHEMERAL.contains(&port))
    }

    fn on_syn(&mut self, now: Instant, remote: SocketAddr, syn: &Incoming<'_>) {
        let Some(listen) = self.listen.clone() else {
            return;
        };
        let header = &syn.header;
        let mut lease = Lease::new(self.memory.clone(), listen.config.receive_budget);
        let offer = Offer::parse(syn.payload, header.state);
        let fitted = offer.and_then(|(o, _)| o.fit_within(&listen.config, lease.room()));
        let offer = match fitted {
            Ok(offer) => offer,
            Err(refusal) => {
                self.stats.bad_parameters += 1;
                return self.reset(now, remote, header, Some(refusal));
            }
        };
        if !self.make_room() {
            return self.reset(now, remote, header, Some(Refusal::Busy));
        }
        // What the SYNACK says will not be taken back, so it counts from now on. A flood of SYNs leaves
        // those who come their floor.
        lease.resize(offer.memory());
        let birth = Birth {
            remote,
            local_port: header.destination,
            remote_port: header.source,
            pseudo: self.outgoing(remote),
            config: listen.config,
            offer,
            initial: self.draw_state(),
            lease,
        };
        let connection = Connection::accept(now, birth, syn);
        let handle = self.table.insert(connection);
        self.half_open.insert(handle, remote);
    }

    /// Whether there are as many connections as may be.
    fn is_full(&self) -> bool {
        let listen = self.listen.as_ref();
        listen.is_none_or(|listen| self.taken.len() >= listen.max_connections)
    }

    /// Makes room for one more half-open connection; another one gives way if need be.
    fn make_room(&mut self) -> bool {
        if self.is_full() {
            self.stats.syn_refused += 1;
            return false;
        }
        if !self.half_open.is_full() {
            return true;
        }
        self.stats.syn_refused += 1;
        let Some(displaced) = self.half_open.displace(&mut self.rng) else {
            return false;
        };
        self.table.remove(displaced);
        true
    }

    /// Queues an RST that answers a packet: it names the packet's state and is no longer than it.
    fn reset(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        header: &Header,
        reason: Option<Refusal>,
    ) {
        if now.saturating_since(self.resets.0) >= Duration::from_secs(1) {
            self.resets = (now, 0);
        }
        if self.resets.1 >= RESETS_PER_SECOND || self.replies.len() >= MAX_REPLIES {
            return;
        }
        self.resets.1 += 1;
        self.stats.resets_sent += 1;
        let reset = Header {
            source: header.destination,
            destination: header.source,
            block: 0,
            kind: Kind::Rst,
            report: None,
            ..*header
        };
        let mut packet = Vec::new();
        reset.emit(&mut packet);
        packet.extend(reason.map(|r| r as u8));
        seal(&mut packet, &self.outgoing(remote));
        self.replies.push_back((remote, packet));
    }

    /// Follows up on what happened to a connection.
    fn settle(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.table.connections.get(handle) else {
            return;
        };
        let (state, over) = (connection.state(), connection.is_over());
        if state == State::Closed {
            self.table.unbind(handle);
        }
        if self.half_open.contains(handle) && state != State::SynRecv {
            self.half_open.remove(handle);
            if state == State::Closed {
                // Nobody knows of it: it only has its last word to say.
                self.linger(handle);
            } else if self.is_full() {
                self.stats.syn_refused += 1;
                return self.forget(handle);
            } else {
                self.taken.insert(handle);
                self.accepted.push_back(handle);
            }
        }
        if over && self.lingering.remove(&handle) {
            return self.table.remove(handle);
        }
        self.table.connections.touch(handle);
    }

    fn linger(&mut self, handle: ConnectionHandle) {
        self.lingering.insert(handle);
        if self.lingering.len() > MAX_LINGERING
            && let Some(oldest) = self.lingering.pop_first()
        {
            self.table.remove(oldest);
        }
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        for handle in self.table.connections.due(now) {
            if let Some(connection) = self.table.connections.get_mut(handle) {
                connection.handle_timeout(now);
            }
            self.settle(handle);
        }
    }

    /// Writes packets to `out` (appended), at most `max_segments` and all of one size but the last.
    /// Connections take turns.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((destination, packet)) = self.replies.pop_front() {
            out.extend_from_slice(&packet);
            return Some(Transmit {
                destination,
                ecn: 0,
                size: packet.len(),
                segment_size: None,
                elided: 0,
                priority: Priority::Control,
            });
        }
        while let Some(handle) = self.table.connections.next_ready() {
            let connection = self.table.connections.get_mut(handle)?;
            let transmit = connection.poll_transmit(now, max_segments, out);
            if transmit.is_some() {
                self.settle(handle);
                return transmit;
            }
            let over = connection.is_over();
            self.table.connections.rest(handle);
            if over {
                self.settle_over(handle);
            }
        }
        None
    }

    /// A connection that said its last word.
    fn settle_over(&mut self, handle: ConnectionHandle) {
        self.table.unbind(handle);
        if self.lingering.remove(&handle) {
            self.table.remove(handle);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.connections.next_timeout()
    }

    /// Longest time that packets may wait for each other: none, for their arrival is measured by
    /// when they are handed in.
    pub fn coalescing_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// The next connection that a peer has established.
    pub fn accept(&mut self) -> Option<ConnectionHandle> {
        self.accepted.pop_front()
    }

    /// A connection, until it is closed and forgotten.
    pub fn connection(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        if self.lingering.contains(&handle) {
            return None;
        }
        self.table.connections.touch(handle);
        self.table.connections.get_mut(handle)
    }

    /// A connection that something happened to since it was last given here: it may have events or
    /// blocks to be rebuilt. To send what it has to say after a call that changes it, ask for it by
    /// [`connection`](Self::connection).
    pub fn poll_news(&mut self) -> Option<(ConnectionHandle, &mut Connection)> {
        self.table.connections.next_news()
    }

    /// A connection, to look at.
    pub fn peek(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.table.connections.get(handle)
    }

    /// Lends a connection to a host that drives each by itself, for instance on several cores: from now
    /// on this endpoint does nothing for it but to say whose packets are, until it has it back
    /// ([`Endpoint::take_back`]).
    pub fn lend(&mut self, handle: ConnectionHandle) -> Option<Box<Connection>> {
        let connection = self.table.connections.remove(handle)?;
        self.lent.insert(handle);
        Some(connection)
    }

    /// Learns whether a lent connection is closed: its ports are free then.
    pub fn learn(&mut self, handle: ConnectionHandle, connection: &Connection) {
        if self.lent.contains(&handle) && connection.state() == State::Closed {
            self.table.free_ports(handle, connection);
        }
    }

    /// Has a connection that was lent back.
    pub fn take_back(&mut self, handle: ConnectionHandle, connection: Box<Connection>) {
        if self.lent.remove(&handle) {
            self.stats.add(&connection.counts());
            self.table.connections.insert(handle, connection);
            self.settle(handle);
        }
    }

    /// Drops a connection: with RST if it is not closed. In TIME_WAIT it goes on answering late
    /// segments.
    pub fn forget(&mut self, handle: ConnectionHandle) {
        let Some(connection) = self.table.connections.get_mut(handle) else {
            return;
        };
        connection.release();
        self.taken.remove(&handle);
        self.half_open.remove(handle);
        self.accepted.retain(|&h| h != handle);
        self.linger(handle);
        self.settle(handle);
    }

    /// Counters.
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }
}
