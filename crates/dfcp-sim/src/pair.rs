//! Two sealed endpoints joined by two links, for tests of the protocol.

use crate::joined::Joined;
pub use crate::joined::{Side, pattern};
use crate::link::LinkConfig;
use crate::random::Seed;
use dfcp_proto::{
    ChannelId, Duration, Endpoint, Event, PublicKey, SecretRng, ServerConfig, StaticKey,
    TransportConfig,
};
use std::sync::Arc;

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

/// See the module's text.
pub type Pair = Joined<Endpoint, TransportConfig>;

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
            authorize: Arc::new(|_: &PublicKey| true.into()),
            max_connections: 64,
            max_per_peer: 64,
            memory: 128 << 20,
        };
        let endpoint = |side: Side, server: Option<ServerConfig>| {
            let mut secret = [side as u8; 32];
            secret[..8].copy_from_slice(&seed.to_le_bytes());
            Endpoint::new(key(seed, side.name()), server, secret)
        };
        let endpoints = [
            endpoint(Side::Client, None),
            endpoint(Side::Server, Some(server)),
        ];
        let links = [config.forward, config.backward];
        Self::join(endpoints, links, transports, None, Seed(seed))
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
            .connect(self.now, remote, peer, self.configs[0].clone())
            .expect("the client's own key makes a first message");
        client.connection = Some(handle);
        self.flush();
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
            connection.recycle(now, bytes);
            freed = true;
        }
        if freed {
            pair.flush();
        }
    }
}
