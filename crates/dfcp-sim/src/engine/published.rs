//! A host that runs DFCP as published through its public interface.

use super::agent::{Agent, Arrival, BlockProgress, Buffers, Outgoing, Pace, Progress};
use super::network::FlowConfig;
use super::packet::Body;
use crate::packet::{Ecn, FlowId};
use crate::pair::pattern;
use crate::random::Seed;
use dfcp_proto::published::header::{HEADER_LEN, Header, Kind};
use dfcp_proto::published::{Config, Connection, ConnectionHandle, Endpoint, Event, Listen, Read};
use dfcp_proto::{Instant, Payload, Rate};
use std::net::SocketAddr;
use std::sync::Arc;

/// A flow of DFCP as published: settings of both ends.
#[derive(Clone, Debug, Default)]
pub struct PublishedConfig {
    /// Settings of the sender.
    pub client: Config,
    /// Settings of the receiver.
    pub server: Config,
    /// What holds the sender back.
    pub pace: Pace,
}

/// DFCP travels in IPv4 packets without options.
pub(super) const IP_HEADER: u32 = 20;
/// DFCP port of the receiver.
const PORT: u16 = 4433;
/// Bytes written or read at a time, where they are real.
const CHUNK: usize = 65_536;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct PublishedHost {
    endpoint: Endpoint,
    remote: SocketAddr,
    handle: Option<ConnectionHandle>,
    source: Option<Source>,
    payload: Payload,
    /// Bytes that the flow has; known to the receiver so that it can tell when it has them.
    size: Option<u64>,
    pace: Pace,
    /// Of a controller; a connection hears of it once it is there.
    ordered: Option<Rate>,
    /// Of the endpoint, as it last was.
    timeout: Option<Instant>,
    now: Instant,
    /// Bytes read in order.
    read: u64,
    /// Blocks begun or received, and when.
    blocks: BlockProgress,
    wrong_bytes: u64,
    finished: Option<Instant>,
    chunk: Vec<u8>,
}

/// What the sending end has to do.
#[derive(Debug)]
struct Source {
    config: Arc<Config>,
    start: Instant,
    stop: Option<Instant>,
    written: u64,
    state: Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Waiting,
    Connecting,
    /// There may be room to write.
    Writing,
    /// The send buffer was full.
    Full,
    Finished,
    Stopped,
}

/// The block that a packet has data of.
fn data_block(packet: &[u8]) -> Option<u32> {
    let (kind, block) = Header::peek(packet)?;
    matches!(kind, Kind::Data { .. }).then_some(block)
}

impl BlockProgress {
    /// There are `count` blocks now; those that are new came to be at `now`.
    fn note(&mut self, count: u64, now: Instant) {
        let new = count.saturating_sub(self.count);
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.at += now.saturating_since(Instant::ZERO).saturating_mul(new);
        self.count = self.count.max(count);
    }
}

/// Bytes of the IP packets that carry data.
pub(super) fn packet_size(config: &Config) -> u32 {
    let headers = IP_HEADER + HEADER_LEN as u32;
    let symbol = u32::from(config.code.symbol_size()).max(1);
    let symbols = u32::from(config.mtu).saturating_sub(headers) / symbol;
    headers + symbols * symbol
}

/// The two ends of a flow.
pub(super) fn pair(
    config: &PublishedConfig,
    flow: &FlowConfig,
    id: FlowId,
    seed: Seed,
) -> (PublishedHost, PublishedHost) {
    let mut random = seed.stream(&format!("{}.published", flow.name));
    // Addresses are for the core's eyes only: routes lead to the agents. They are those of captures.
    let address = |host: u32| {
        let [_, a, b, c] = id.0.wrapping_mul(2).wrapping_add(host).to_be_bytes();
        SocketAddr::from(([10, a, b, c], 0))
    };
    let (client, server) = (address(1), address(2));
    let source = Source {
        config: Arc::new(config.client.clone()),
        start: flow.start,
        stop: flow.stop,
        written: 0,
        state: Sending::Waiting,
    };
    let listen = Listen {
        port: PORT,
        config: Arc::new(config.server.clone()),
        max_connections: 1,
    };
    let mut host = |listen, local: SocketAddr, remote, source: Option<Source>| PublishedHost {
        endpoint: Endpoint::new(listen, random.next_u64()).over_ip(local.ip()),
        remote,
        handle: None,
        payload: config.client.payload,
        size: flow.size,
        pace: source.as_ref().map_or(Pace::Own, |_| config.pace),
        source,
        ordered: None,
        timeout: None,
        now: Instant::ZERO,
        read: 0,
        blocks: BlockProgress::default(),
        wrong_bytes: 0,
        finished: None,
        chunk: Vec::new(),
    };
    (
        host(None, client, server, Some(source)),
        host(Some(listen), server, client, None),
    )
}

impl PublishedHost {
    /// Begins and ends on time.
    fn follow_plan(&mut self) {
        let now = self.now;
        let Some(source) = &mut self.source else {
            return;
        };
        if source.state == Sending::Waiting && source.start <= now {
            source.state = Sending::Connecting;
            // Without a connection the flow just stays silent.
            self.handle = self
                .endpoint
                .connect(now, self.remote, PORT, source.config.clone())
                .ok();
        }
        if source.stop.is_some_and(|stop| stop <= now) {
            source.state = Sending::Stopped;
        }
    }

    fn is_silent(&self) -> bool {
        let source = self.source.as_ref();
        source.is_some_and(|s| matches!(s.state, Sending::Waiting | Sending::Stopped))
    }

    /// Accepted connections and events.
    fn serve(&mut self) {
        if self.handle.is_none() {
            self.handle = self.endpoint.accept();
        }
        let Some(connection) = self.handle.and_then(|h| self.endpoint.connection(h)) else {
            return;
        };
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            connection.finish_solve(self.now, job);
        }
        let (mut readable, mut writable) = (false, false);
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Connected => {
                    writable = true;
                    if let Some(rate) = self.ordered {
                        connection.order_rate(self.now, rate);
                    }
                }
                Event::Writable => writable = true,
                Event::Readable => readable = true,
                // Nothing goes the other way.
                Event::PeerFinished => {
                    readable = true;
                    connection.finish(self.now);
                }
                _ => {}
            }
        }
        if self.source.is_none() {
            let received = connection.stats().blocks_received;
            self.blocks.note(received, self.now);
        }
        if readable {
            self.read();
        }
        if writable
            && let Some(source) = &mut self.source
            && matches!(source.state, Sending::Connecting | Sending::Full)
        {
            source.state = Sending::Writing;
        }
    }

    /// Keeps the core's send buffer full.
    fn write(&mut self) {
        let Some(source) = &mut self.source else {
            return;
        };
        let Some(connection) = self.handle.and_then(|h| self.endpoint.connection(h)) else {
            return;
        };
        while source.state == Sending::Writing {
            let left = self.size.map_or(u64::MAX, |size| size - source.written);
            if left == 0 {
                connection.finish(self.now);
                source.state = Sending::Finished;
                return;
            }
            let taken = match self.payload {
                Payload::Virtual => connection.write_virtual(self.now, left),
                Payload::Real => {
                    let end = source.written + left.min(CHUNK as u64);
                    self.chunk.clear();
                    self.chunk.extend((source.written..end).map(pattern));
                    connection.write(self.now, &self.chunk).map(|n| n as u64)
                }
            };
            match taken {
                Ok(0) | Err(_) => source.state = Sending::Full,
                Ok(n) => source.written += n,
            }
        }
    }

    /// Takes in-order bytes and checks them.
    fn read(&mut self) {
        let Some(connection) = self.handle.and_then(|h| self.endpoint.connection(h)) else {
            return;
        };
        match self.payload {
            Payload::Virtual => {
                while let Ok(Read::Data(n @ 1..)) = connection.read_virtual(self.now) {
                    self.read += n as u64;
                }
            }
            Payload::Real => {
                self.chunk.resize(CHUNK, 0);
                while let Ok(Read::Data(n @ 1..)) = connection.read(self.now, &mut self.chunk) {
                    let wrong = self.chunk[..n]
                        .iter()
                        .zip(self.read..)
                        .filter(|&(&byte, offset)| byte != pattern(offset));
                    self.wrong_bytes += wrong.count() as u64;
                    self.read += n as u64;
                }
            }
        }
        if self.finished.is_none() && self.size == Some(self.read) {
            self.finished = Some(self.now);
        }
    }
}

impl Agent for PublishedHost {
    fn receive(&mut self, now: Instant, packet: Arrival, buffers: &mut Buffers) {
        self.now = now;
        let Body::Datagram(bytes) = packet.body else {
            return;
        };
        if !self.is_silent() {
            self.endpoint
                .handle_packet(now, self.remote, packet.ecn as u8, &bytes);
            self.serve();
        }
        buffers.give(bytes);
    }

    fn timeout(&mut self, now: Instant) {
        self.now = now;
        self.follow_plan();
        if !self.is_silent() && self.timeout.is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
            self.serve();
            self.timeout = self.endpoint.poll_timeout();
        }
    }

    fn poll_transmit(&mut self, now: Instant, buffers: &mut Buffers) -> Option<Outgoing> {
        self.now = now;
        if self.is_silent() {
            return None;
        }
        self.write();
        let mut bytes = buffers.take();
        let Some(transmit) = self.endpoint.poll_transmit(now, 1, &mut bytes) else {
            buffers.give(bytes);
            self.timeout = self.endpoint.poll_timeout();
            return None;
        };
        if self.source.is_some()
            && let Some(block) = data_block(&bytes)
        {
            self.blocks.note(u64::from(block) + 1, now);
        }
        Some(Outgoing {
            size: (bytes.len() + transmit.elided) as u32 + IP_HEADER,
            ecn: Ecn::from(transmit.ecn),
            priority: transmit.priority,
            route: 0,
            body: Body::Datagram(bytes),
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let plan = self.source.as_ref().and_then(|source| match source.state {
            Sending::Waiting => Some(source.start),
            _ => source.stop,
        });
        if self.is_silent() {
            return plan.filter(|&at| at > self.now || self.handle.is_none());
        }
        self.timeout.into_iter().chain(plan).min()
    }

    fn progress(&self) -> Progress {
        let connection = self.handle.and_then(|handle| self.endpoint.peek(handle));
        let stats = connection.map(Connection::stats).unwrap_or_default();
        Progress {
            delivered: stats.bytes_received,
            finished: self.finished,
            repairs: stats.extra_packets,
            srtt: stats.srtt,
            wrong_bytes: self.wrong_bytes,
            blocks: Some(BlockProgress {
                packets: stats.data_packets,
                needed_packets: stats.needed_packets,
                ..self.blocks
            }),
            ..Progress::default()
        }
    }

    fn pace(&self) -> Pace {
        self.pace
    }

    fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.ordered = Some(rate);
        if let Some(connection) = self.handle.and_then(|h| self.endpoint.connection(h)) {
            connection.order_rate(now, rate);
        }
    }
}
