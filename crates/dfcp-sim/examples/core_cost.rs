//! What the protocol core itself costs: one bulk flow over a path that costs next to nothing.
//!
//! `cargo run --release -p dfcp-sim --example core_cost -- [MB] [rate Mbit/s] [rtt ms] [loss %]
//! [idle connections on the same endpoints] [real | virtual]`; without the last, both payloads in turn.

use dfcp_proto::{
    ChannelId, ChannelKind, Connection, ConnectionHandle, Duration, Endpoint, Event, Instant,
    Payload, PublicKey, Rate, SecretRng, ServerConfig, StaticKey, TransportConfig,
};
use dfcp_sim::{Random, Seed};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// A datagram on its way.
struct Flying {
    at: Instant,
    data: Vec<u8>,
}

/// A pipe with a rate, a delay, random loss and an endless queue.
struct Path {
    rate: Rate,
    delay: Duration,
    loss: f64,
    random: Random,
    free: Instant,
    flying: VecDeque<Flying>,
}

impl Path {
    fn send(&mut self, now: Instant, data: Vec<u8>, size: usize) -> Option<Vec<u8>> {
        self.free = self.free.max(now) + self.rate.time_for(size as u64 + 28);
        if self.random.chance(self.loss) {
            return Some(data);
        }
        let at = self.free + self.delay;
        self.flying.push_back(Flying { at, data });
        None
    }
}

struct Host {
    endpoint: Endpoint,
    address: SocketAddr,
    connection: Option<ConnectionHandle>,
    timeout: Option<Instant>,
}

struct World {
    now: Instant,
    hosts: [Host; 2],
    paths: [Path; 2],
    pool: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    block: Vec<u8>,
    payload: Payload,
    channel: Option<ChannelId>,
    size: u64,
    written: u64,
    received: u64,
    done: bool,
    /// When the transfer began.
    started: Instant,
}

const CLIENT: usize = 0;

impl World {
    fn new(size: u64, rate: Rate, rtt: Duration, loss: f64, payload: Payload, idle: usize) -> Self {
        let transport = Arc::new(TransportConfig::default().payload(payload));
        let server = ServerConfig {
            transport: transport.clone(),
            authorize: Arc::new(|_: &PublicKey| true.into()),
            max_connections: 1 + idle,
            max_per_peer: 1 + idle,
            memory: u64::MAX,
        };
        let host = |id: u8, server| {
            let key = StaticKey::generate(&mut SecretRng::new(&[id; 32], "key"));
            Host {
                endpoint: Endpoint::new(key, server, [id; 32]),
                address: SocketAddr::from(([10, 0, 0, id], 1)),
                connection: None,
                timeout: None,
            }
        };
        let path = |name, loss| Path {
            rate,
            delay: rtt / 2,
            loss,
            random: Seed(1).stream(name),
            free: Instant::ZERO,
            flying: VecDeque::new(),
        };
        let mut world = Self {
            now: Instant::ZERO,
            hosts: [host(1, None), host(2, Some(server))],
            paths: [path("forward", loss), path("backward", 0.0)],
            pool: Vec::new(),
            buffer: Vec::new(),
            block: vec![7; 65_536],
            payload,
            channel: None,
            size,
            written: 0,
            received: 0,
            done: false,
            started: Instant::ZERO,
        };
        for _ in 0..idle {
            world.connect(&transport);
            while world.hosts[1].endpoint.accept().is_none() {
                world.step();
            }
        }
        let connection = world.connect(&transport);
        world.hosts[CLIENT].connection = Some(connection);
        world.started = world.now;
        world
    }

    fn connect(&mut self, transport: &Arc<TransportConfig>) -> ConnectionHandle {
        let (to, peer) = (self.hosts[1].address, self.hosts[1].endpoint.public_key());
        let client = &mut self.hosts[CLIENT].endpoint;
        let connection = client.connect(self.now, to, Some(peer), transport.clone());
        self.serve(CLIENT);
        connection.expect("a fresh key works")
    }

    /// What a host does after anything happened to it.
    fn serve(&mut self, side: usize) {
        let now = self.now;
        if self.hosts[CLIENT].connection.is_some() {
            let host = &mut self.hosts[side];
            host.connection = host.connection.or_else(|| host.endpoint.accept());
        }
        let host = &mut self.hosts[side];
        if let Some(connection) = host.connection.and_then(|h| host.endpoint.connection(h)) {
            while let Some(mut job) = connection.take_solve_job() {
                job.run();
                connection.finish_solve(now, job);
            }
            let mut writable = false;
            while let Some(event) = connection.poll_event() {
                match event {
                    Event::Connected { .. } if side == CLIENT => {
                        self.channel = connection.open(ChannelKind::Object);
                        writable = true;
                    }
                    Event::Writable(_) => writable = true,
                    Event::Readable(id) => {
                        while let Ok(Some((_, bytes))) = connection.take_block(now, id) {
                            self.received += bytes.len() as u64;
                            connection.recycle(now, bytes);
                        }
                        while let Ok(Some((_, len))) = connection.take_virtual_block(now, id) {
                            self.received += len;
                        }
                    }
                    Event::Acknowledged(_) => self.done = true,
                    _ => {}
                }
            }
            if let Some(id) = self.channel.filter(|_| writable) {
                while self.written < self.size {
                    let part = (self.size - self.written).min(self.block.len() as u64);
                    match write(
                        connection,
                        now,
                        id,
                        (&self.block[..part as usize], self.payload),
                    ) {
                        0 => break,
                        n => self.written += n,
                    }
                }
                if self.written == self.size {
                    let _ = connection.finish_channel(id);
                }
            }
        }
        while let Some(t) = host.endpoint.poll_transmit(now, 16, &mut self.buffer) {
            for datagram in self.buffer.chunks(t.segment_size.unwrap_or(t.size)) {
                let mut data = self.pool.pop().unwrap_or_default();
                data.clear();
                data.extend_from_slice(datagram);
                let lost = self.paths[side].send(now, data, datagram.len() + t.elided);
                self.pool.extend(lost);
            }
            self.buffer.clear();
        }
        host.timeout = host.endpoint.poll_timeout();
    }

    fn step(&mut self) {
        let arrivals = self.paths.iter().map(|p| p.flying.front().map(|f| f.at));
        let timeouts = self.hosts.iter().map(|h| h.timeout);
        let next = arrivals.chain(timeouts).flatten().min();
        self.now = self.now.max(next.expect("something is left to happen"));
        for side in [0, 1] {
            let due = |f: &&Flying| f.at <= self.now;
            if self.paths[side].flying.front().filter(due).is_some()
                && let Some(mut flying) = self.paths[side].flying.pop_front()
            {
                let from = self.hosts[side].address;
                let endpoint = &mut self.hosts[1 - side].endpoint;
                endpoint.handle_datagram(self.now, from, 0, &mut flying.data);
                self.pool.push(flying.data);
                self.serve(1 - side);
            }
            if self.hosts[side].timeout.is_some_and(|t| t <= self.now) {
                self.hosts[side].endpoint.handle_timeout(self.now);
                self.serve(side);
            }
        }
    }
}

fn write(
    connection: &mut Connection,
    now: Instant,
    id: ChannelId,
    (data, payload): (&[u8], Payload),
) -> u64 {
    let written = match payload {
        Payload::Real => connection.write(now, id, data).map(|n| n as u64),
        Payload::Virtual => connection.write_virtual(now, id, data.len() as u64),
    };
    written.expect("the channel is open")
}

fn main() {
    let args: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let get = |i: usize, default: f64| args.get(i).copied().unwrap_or(default);
    let size = (get(0, 500.0) * 1e6) as u64;
    let rate = Rate::from_bps((get(1, 1000.0) * 1e6) as u64);
    let rtt = Duration::from_secs_f64(get(2, 10.0) / 1e3);
    let named = |name: &str| std::env::args().any(|a| a == name);
    for (payload, other) in [(Payload::Real, "virtual"), (Payload::Virtual, "real")] {
        if named(other) {
            continue;
        }
        let (loss, idle) = (get(3, 0.0) / 100.0, get(4, 0.0) as usize);
        run(World::new(size, rate, rtt, loss, payload, idle));
    }
}

fn run(mut world: World) {
    let started = std::time::Instant::now();
    world.serve(CLIENT);
    while !world.done {
        world.step();
    }
    let wall = started.elapsed();
    let stats = world.hosts[CLIENT].connection;
    let stats = stats.and_then(|h| world.hosts[CLIENT].endpoint.connection(h));
    let stats = stats.expect("still there").stats();
    let symbols = stats.source_symbols_sent + stats.repair_symbols_sent;
    println!(
        "{:?} {} MB in {:.3} simulated s, {symbols} data packets, {:.3} s, {:.2} µs per data packet",
        world.payload,
        world.received / 1_000_000,
        world.now.saturating_since(world.started).as_secs_f64(),
        wall.as_secs_f64(),
        wall.as_secs_f64() * 1e6 / symbols as f64,
    );
}
