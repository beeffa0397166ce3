//! Two endpoints and two links in simulated time: seconds of protocol in milliseconds.
//!
//! The host loop here is the same as a socket driver's: it owns time and datagrams and drives the
//! core through its public interface only.

use crate::link::{Datagram, Link, LinkConfig};
use crate::random::Seed;
use dfcp_proto::{
    ChannelId, Connection, ConnectionHandle, Duration, Endpoint, Event, Instant, PublicKey,
    SecretRng, ServerConfig, StaticKey, TransportConfig,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Connects.
    Client = 0,
    /// Accepts.
    Server = 1,
}

impl Side {
    /// Both, client first.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What a pair is made of.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// The link from the client to the server.
    pub forward: LinkConfig,
    /// The link back.
    pub backward: LinkConfig,
    /// Settings of the client's transport.
    pub client: TransportConfig,
    /// Settings of the server's transport.
    pub server: TransportConfig,
    /// Everything random hangs on it.
    pub seed: u64,
}

impl PairConfig {
    /// The same link both ways, default transports.
    pub fn symmetric(link: LinkConfig, seed: u64) -> Self {
        let (client, server) = (TransportConfig::default(), TransportConfig::default());
        Self {
            forward: link.clone(),
            backward: link,
            client,
            server,
            seed,
        }
    }
}

/// A host: an endpoint, its address, its connection and what the connection said.
#[derive(Debug)]
pub struct Host {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its address.
    pub address: SocketAddr,
    /// Its connection to the other host, once there is one.
    pub connection: Option<ConnectionHandle>,
    /// Events not looked at yet.
    pub events: VecDeque<Event>,
    /// IP bytes sent.
    pub ip_bytes: u64,
    /// Digest of all datagrams sent and when: their last bytes, as a tag covers the rest.
    pub digest: u64,
    /// Largest datagram that the link carries; larger ones vanish.
    pub path_mtu: usize,
    /// When each datagram was sent, and its UDP payload bytes; kept on request.
    pub sent: Option<Vec<(Instant, usize)>>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Pair {
    /// Client and server.
    pub hosts: [Host; 2],
    /// From the client, from the server.
    pub links: [Link<Datagram>; 2],
    /// Simulated time.
    pub now: Instant,
    config: [Arc<TransportConfig>; 2],
    /// Steps since time last moved.
    idle_steps: u32,
}

/// More steps than this without time moving mean a timer that never gets done.
const MAX_IDLE_STEPS: u32 = 100_000;

const IP_UDP_HEADER: u64 = 28;

fn key(seed: u64, name: &str) -> StaticKey {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    StaticKey::generate(&mut SecretRng::new(&bytes, name))
}

impl Pair {
    /// Two hosts that have not spoken yet.
    pub fn new(config: PairConfig) -> Self {
        let seed = config.seed;
        let transports = [Arc::new(config.client), Arc::new(config.server)];
        let server = ServerConfig {
            transport: transports[1].clone(),
            authorize: Arc::new(|_: &PublicKey| true),
            max_connections: 64,
        };
        let host = |side: Side, server: Option<ServerConfig>| {
            let mut secret = [side as u8; 32];
            secret[..8].copy_from_slice(&seed.to_le_bytes());
            let name = if side == Side::Client {
                "client"
            } else {
                "server"
            };
            Host {
                endpoint: Endpoint::new(key(seed, name), server, secret),
                address: SocketAddr::from(([10, 0, 0, 1 + side as u8], 4433)),
                connection: None,
                events: VecDeque::new(),
                ip_bytes: 0,
                digest: 0,
                path_mtu: usize::MAX,
                sent: None,
            }
        };
        let link =
            |config: LinkConfig, name: &str| Link::new(config, Seed(seed).stream(name).next_u64());
        Self {
            hosts: [host(Side::Client, None), host(Side::Server, Some(server))],
            links: [
                link(config.forward, "forward"),
                link(config.backward, "backward"),
            ],
            // Not zero, so that nothing leans on time beginning there.
            now: Instant::from_nanos(1_000_000_000),
            config: transports,
            idle_steps: 0,
        }
    }

    /// Begins the client's connection.
    pub fn connect(&mut self) {
        let peer = self.hosts[1].endpoint.public_key();
        self.connect_to(Some(peer));
    }

    /// Begins the client's connection, expecting `peer`.
    pub fn connect_to(&mut self, peer: Option<PublicKey>) {
        let remote = self.hosts[1].address;
        let client = &mut self.hosts[0];
        let handle = client
            .endpoint
            .connect(self.now, remote, peer, self.config[0].clone())
            .expect("the client's own key makes a first message");
        client.connection = Some(handle);
        self.flush();
    }

    /// A host's connection.
    ///
    /// # Panics
    /// If it has none (any more).
    pub fn connection(&mut self, side: Side) -> &mut Connection {
        self.try_connection(side)
            .expect("the host has a connection")
    }

    /// A host's connection, if there is one.
    pub fn try_connection(&mut self, side: Side) -> Option<&mut Connection> {
        let host = &mut self.hosts[side as usize];
        host.connection
            .and_then(|handle| host.endpoint.connection(handle))
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Instant> {
        let timers = self.hosts.iter().filter_map(|h| h.endpoint.poll_timeout());
        timers
            .chain(self.links.iter().filter_map(|link| link.poll_at()))
            .min()
    }

    /// Moves time to the next event and lets everything happen that is due; false if nothing is.
    ///
    /// # Panics
    /// If a host asks to be woken without end while time stands still.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else {
            return false;
        };
        self.idle_steps = if next > self.now {
            0
        } else {
            self.idle_steps + 1
        };
        self.now = self.now.max(next);
        let timers = || {
            self.hosts
                .iter()
                .map(|h| h.endpoint.poll_timeout())
                .collect::<Vec<_>>()
        };
        assert!(
            self.idle_steps < MAX_IDLE_STEPS,
            "time stands still: {:?}",
            timers()
        );
        for from in Side::BOTH {
            while let Some(mut packet) = self.links[from as usize].poll(self.now) {
                let remote = self.hosts[from as usize].address;
                let host = &mut self.hosts[from.other() as usize];
                host.endpoint
                    .handle_datagram(self.now, remote, packet.ecn as u8, &mut packet.data);
                self.serve(from.other());
            }
        }
        for host in &mut self.hosts {
            host.endpoint.handle_timeout(self.now);
        }
        self.flush();
        true
    }

    /// Lets both hosts act on what they have and send what they may.
    pub fn flush(&mut self) {
        for side in Side::BOTH {
            self.serve(side);
            let host = &mut self.hosts[side as usize];
            let mut buffer = Vec::new();
            while let Some(transmit) = host.endpoint.poll_transmit(self.now, 16, &mut buffer) {
                for datagram in buffer.chunks(transmit.segment_size.unwrap_or(transmit.size)) {
                    let tail = datagram.last_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                    let mixed = host.digest.rotate_left(5) ^ tail ^ self.now.as_nanos();
                    host.digest = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let size = datagram.len() + transmit.elided;
                    host.ip_bytes += size as u64 + IP_UDP_HEADER;
                    if let Some(sent) = &mut host.sent {
                        sent.push((self.now, size));
                    }
                    if size <= host.path_mtu {
                        let mut packet = Datagram::new(datagram.to_vec());
                        packet.elided = transmit.elided as u32;
                        packet.ecn = transmit.ecn.into();
                        self.links[side as usize].send(self.now, packet);
                    }
                }
                buffer.clear();
            }
        }
    }

    /// Solve jobs, accepted connections and events of one host.
    fn serve(&mut self, side: Side) {
        let now = self.now;
        let host = &mut self.hosts[side as usize];
        if let Some(handle) = host.endpoint.accept() {
            host.connection = Some(handle);
        }
        let Some(handle) = host.connection else {
            return;
        };
        let Some(connection) = host.endpoint.connection(handle) else {
            return;
        };
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            connection.finish_solve(now, job);
        }
        while let Some(event) = connection.poll_event() {
            host.events.push_back(event);
        }
    }

    /// Steps until `done` says so; false if `limit` of simulated time passed first or nothing is
    /// left to happen.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if self.next_event().is_none_or(|next| next > end) {
                self.now = end;
                return false;
            }
            self.step();
        }
    }

    /// Connects and runs until both sides are established.
    pub fn establish(&mut self, limit: Duration) -> bool {
        self.connect();
        self.run_until(limit, |pair| {
            Side::BOTH.into_iter().all(|side| {
                pair.try_connection(side)
                    .is_some_and(|connection| connection.is_established())
            })
        })
    }
}

/// The byte at `offset` of every test payload: tells a misplaced block at once.
pub fn pattern(offset: u64) -> u8 {
    let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ (offset >> 8) as u8
}

/// One object from the client to the server: writes as room allows, checks every byte.
#[derive(Debug)]
pub struct ObjectTransfer {
    channel: ChannelId,
    size: u64,
    written: u64,
    /// Bytes that arrived and were right.
    pub delivered: u64,
    wrong: u64,
    finished: bool,
}

impl ObjectTransfer {
    /// Opens the channel on an established pair.
    pub fn start(pair: &mut Pair, size: u64) -> Self {
        let channel = pair
            .connection(Side::Client)
            .open(dfcp_proto::ChannelKind::Object)
            .expect("a fresh connection has channels");
        Self {
            channel,
            size,
            written: 0,
            delivered: 0,
            wrong: 0,
            finished: false,
        }
    }

    /// Moves data on both sides; true once the client knows that all arrived.
    ///
    /// # Panics
    /// If a byte is wrong.
    pub fn poll(&mut self, pair: &mut Pair) -> bool {
        self.write(pair);
        self.read(pair);
        assert_eq!(self.wrong, 0, "wrong bytes arrived");
        let acknowledged = Event::Acknowledged(self.channel);
        pair.hosts[0].events.contains(&acknowledged) && self.delivered == self.size
    }

    fn write(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let Some(connection) = pair.try_connection(Side::Client) else {
            return;
        };
        while self.written < self.size {
            let end = (self.written + 65_536).min(self.size);
            let data: Vec<u8> = (self.written..end).map(pattern).collect();
            match connection.write(now, self.channel, &data) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.written += n as u64,
            }
        }
        if self.written == self.size && !self.finished {
            self.finished = connection.finish_channel(self.channel).is_ok();
        }
        pair.flush();
    }

    fn read(&mut self, pair: &mut Pair) {
        let now = pair.now;
        let Some(connection) = pair.try_connection(Side::Server) else {
            return;
        };
        let mut freed = false;
        while let Ok(Some((offset, bytes))) = connection.take_block(now, self.channel) {
            let wrong = bytes
                .iter()
                .zip(offset..)
                .filter(|&(&b, o)| b != pattern(o))
                .count();
            self.wrong += wrong as u64;
            self.delivered += bytes.len() as u64;
            connection.recycle(self.channel, bytes);
            freed = true;
        }
        if freed {
            pair.flush();
        }
    }
}
