//! Two published endpoints joined by two links, as [`pair`](crate::pair) for the sealed wire.
//!
//! A host sends no faster than its network card: the published sender takes whatever the host
//! lets it.

use crate::joined::{Joined, Side, pattern};
use crate::link::{Datagram, LinkConfig};
use crate::random::Seed;
use dfcp_proto::published::{Config, Endpoint, Event, Listen, Read, State};
use dfcp_proto::{Duration, Rate};
use std::sync::Arc;

/// The server's DFCP port.
pub const PORT: u16 = 7;

/// What a pair is made of.
#[derive(Clone, Debug)]
pub struct PublishedPairConfig {
    /// The links from the client and from the server.
    pub links: [LinkConfig; 2],
    /// Settings of client and server.
    pub configs: [Config; 2],
    /// Rate of either network card.
    pub nic: Rate,
    /// Connections that the server takes.
    pub max_connections: usize,
    /// Everything random hangs on it.
    pub seed: u64,
}

impl PublishedPairConfig {
    /// The same link and settings both ways, 1 Gbit/s cards.
    pub fn symmetric(link: LinkConfig, config: Config, seed: u64) -> Self {
        Self {
            links: [link.clone(), link],
            configs: [config.clone(), config],
            nic: Rate::from_bps(1_000_000_000),
            max_connections: 64,
            seed,
        }
    }
}

/// See the module's text.
pub type PublishedPair = Joined<Endpoint, Config>;

impl PublishedPair {
    /// Two hosts that have not spoken yet.
    pub fn new(config: PublishedPairConfig) -> Self {
        let seed = Seed(config.seed);
        let configs = config.configs.map(Arc::new);
        let listen = Listen {
            port: PORT,
            config: configs[1].clone(),
            max_connections: config.max_connections,
            memory: u64::MAX,
        };
        let endpoint =
            |side: Side, listen| Endpoint::new(listen, seed.stream(side.name()).next_u64());
        let endpoints = [
            endpoint(Side::Client, None),
            endpoint(Side::Server, Some(listen)),
        ];
        Self::join(endpoints, config.links, configs, Some(config.nic), seed)
    }

    /// Begins the client's connection.
    pub fn connect(&mut self) {
        let remote = self.hosts[1].address;
        let client = &mut self.hosts[0];
        let handle = client
            .endpoint
            .connect(self.now, remote, PORT, self.configs[0].clone())
            .expect("settings within limits");
        client.connection = Some(handle);
        self.flush();
    }

    /// States of both connections; `Closed` where there is none.
    pub fn states(&mut self) -> [State; 2] {
        Side::BOTH.map(|side| {
            self.try_connection(side)
                .map_or(State::Closed, |c| c.state())
        })
    }

    /// A packet from the other host arrives.
    pub fn deliver(&mut self, to: Side, packet: &Datagram) {
        self.arrive(to, &mut packet.clone());
    }

    /// Connects and runs until both sides are established.
    pub fn establish(&mut self, limit: Duration) -> bool {
        self.connect();
        self.run_until(limit, |pair| pair.states() == [State::Established; 2])
    }

    /// Whether a host's connection said so.
    pub fn saw(&self, side: Side, event: &Event) -> bool {
        self.hosts[side as usize].events.contains(event)
    }
}

/// Bytes from one side to the other: writes as room allows, checks every byte read, finishes.
#[derive(Debug)]
pub struct PublishedTransfer {
    from: Side,
    size: u64,
    written: u64,
    /// Bytes that arrived and were right.
    pub delivered: u64,
    /// Whether the reader saw the end.
    pub finished: bool,
}

impl PublishedTransfer {
    /// Begins to send `size` bytes.
    pub fn new(from: Side, size: u64) -> Self {
        Self {
            from,
            size,
            written: 0,
            delivered: 0,
            finished: false,
        }
    }

    /// Moves data on both sides; true once everything was read and the end seen.
    ///
    /// # Panics
    /// If a byte is wrong.
    pub fn poll(&mut self, pair: &mut PublishedPair) -> bool {
        self.write(pair);
        self.read(pair);
        self.finished && self.delivered == self.size
    }

    fn write(&mut self, pair: &mut PublishedPair) {
        let now = pair.now;
        let Some(connection) = pair.try_connection(self.from) else {
            return;
        };
        if self.written > self.size || connection.state() == State::SynSent {
            return;
        }
        while self.written < self.size {
            let end = (self.written + 65_536).min(self.size);
            let data: Vec<u8> = (self.written..end).map(pattern).collect();
            match connection.write(now, &data) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.written += n as u64,
            }
        }
        if self.written == self.size {
            self.written += 1;
            connection.finish(now);
        }
        pair.flush();
    }

    fn read(&mut self, pair: &mut PublishedPair) {
        let now = pair.now;
        let Some(connection) = pair.try_connection(self.from.other()) else {
            return;
        };
        let mut buffer = vec![0; 65_536];
        let mut freed = false;
        loop {
            match connection.read(now, &mut buffer) {
                Ok(Read::Data(n)) => {
                    let wrong = (self.delivered..)
                        .zip(&buffer[..n])
                        .find(|&(at, &b)| b != pattern(at));
                    assert_eq!(wrong, None, "a wrong byte arrived");
                    self.delivered += n as u64;
                    freed = true;
                }
                Ok(Read::Finished) => {
                    self.finished = true;
                    break;
                }
                _ => break,
            }
        }
        if freed {
            pair.flush();
        }
    }
}
