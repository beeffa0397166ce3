//! Two published endpoints and two links in simulated time, as [`pair`](crate::pair) for the sealed
//! core.
//!
//! A host sends no faster than its network card: the published sender takes whatever the host
//! lets it.

use crate::link::{Datagram, Link, LinkConfig};
use crate::pair::{Side, pattern};
use crate::random::Seed;
use dfcp_proto::published::{
    Config, Connection, ConnectionHandle, Endpoint, Event, Listen, Read, State,
};
use dfcp_proto::{Duration, Instant, Rate};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// The server's DFCP port.
pub const PORT: u16 = 7;
const IP_UDP_HEADER: u64 = 28;

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

/// One of the two hosts.
#[derive(Debug)]
pub struct PublishedHost {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its address.
    pub address: SocketAddr,
    /// Its connection to the other host, once there is one.
    pub connection: Option<ConnectionHandle>,
    /// Events not looked at yet.
    pub events: VecDeque<Event>,
    /// IP packets sent.
    pub packets: u64,
    /// Their bytes.
    pub ip_bytes: u64,
    /// Digest of all packets sent and when.
    pub digest: u64,
    /// The card is busy until then.
    nic_free: Instant,
    /// There may be more to send once it is free.
    waiting: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct PublishedPair {
    /// Client and server.
    pub hosts: [PublishedHost; 2],
    /// From the client, from the server.
    pub links: [Link<Datagram>; 2],
    /// Simulated time.
    pub now: Instant,
    configs: [Arc<Config>; 2],
    nic: Rate,
    idle_steps: u32,
}

/// More steps than this without time moving mean a timer that never gets done.
const MAX_IDLE_STEPS: u32 = 100_000;

impl PublishedPair {
    /// Two hosts that have not spoken yet.
    pub fn new(config: PublishedPairConfig) -> Self {
        let seed = Seed(config.seed);
        let configs = config.configs.map(Arc::new);
        let host = |side: Side, listen: Option<Listen>| {
            let name = ["client", "server"][side as usize];
            PublishedHost {
                endpoint: Endpoint::new(listen, seed.stream(name).next_u64()),
                address: SocketAddr::from(([10, 0, 0, 1 + side as u8], 4433)),
                connection: None,
                events: VecDeque::new(),
                packets: 0,
                ip_bytes: 0,
                digest: 0,
                nic_free: Instant::ZERO,
                waiting: false,
            }
        };
        let listen = Listen {
            port: PORT,
            config: configs[1].clone(),
            max_connections: config.max_connections,
        };
        let [forward, backward] = config.links;
        let link = |config, name: &str| Link::new(config, seed.stream(name).next_u64());
        Self {
            hosts: [host(Side::Client, None), host(Side::Server, Some(listen))],
            links: [link(forward, "forward"), link(backward, "backward")],
            // Not zero, so that nothing leans on time beginning there.
            now: Instant::from_nanos(1_000_000_000),
            configs,
            nic: config.nic,
            idle_steps: 0,
        }
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

    /// States of both connections; `Closed` where there is none.
    pub fn states(&mut self) -> [State; 2] {
        Side::BOTH.map(|side| {
            self.try_connection(side)
                .map_or(State::Closed, |c| c.state())
        })
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Instant> {
        let timers = self.hosts.iter().filter_map(|h| h.endpoint.poll_timeout());
        let cards = self.hosts.iter().filter(|h| h.waiting).map(|h| h.nic_free);
        let links = self.links.iter().filter_map(|link| link.poll_at());
        timers.chain(cards).chain(links).min()
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
        assert!(self.idle_steps < MAX_IDLE_STEPS, "time stands still");
        for from in Side::BOTH {
            while let Some(packet) = self.links[from as usize].poll(self.now) {
                self.deliver(from.other(), &packet);
            }
        }
        for host in &mut self.hosts {
            host.endpoint.handle_timeout(self.now);
        }
        self.flush();
        true
    }

    /// A packet from the other host arrives.
    pub fn deliver(&mut self, to: Side, packet: &Datagram) {
        let remote = self.hosts[to.other() as usize].address;
        let host = &mut self.hosts[to as usize];
        host.endpoint
            .handle_packet(self.now, remote, packet.ecn as u8, &packet.data);
        self.serve(to);
    }

    /// Lets both hosts act on what they have and send what they may.
    pub fn flush(&mut self) {
        for side in Side::BOTH {
            self.serve(side);
            let host = &mut self.hosts[side as usize];
            host.waiting = false;
            let mut buffer = Vec::new();
            loop {
                if host.nic_free > self.now {
                    host.waiting = true;
                    break;
                }
                buffer.clear();
                let transmit = host.endpoint.poll_transmit(self.now, 16, &mut buffer);
                let Some(transmit) = transmit else { break };
                let before = host.ip_bytes;
                for bytes in buffer.chunks(transmit.segment_size.unwrap_or(transmit.size)) {
                    let mixed = bytes.iter().fold(host.digest, |d, &b| {
                        (d.rotate_left(5) ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    });
                    host.digest = mixed ^ self.now.as_nanos();
                    host.packets += 1;
                    host.ip_bytes += (bytes.len() + transmit.elided) as u64 + IP_UDP_HEADER;
                    let mut packet = Datagram::new(bytes.to_vec());
                    packet.elided = transmit.elided as u32;
                    packet.ecn = transmit.ecn.into();
                    self.links[side as usize].send(self.now, packet);
                }
                host.nic_free = self.now + self.nic.time_for(host.ip_bytes - before);
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
