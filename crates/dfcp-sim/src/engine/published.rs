//! Flows of DFCP as published: settings, and what the applications of both ends do.

use super::agent::{BlockProgress, Pace, Progress};
use super::host::{CHUNK, Cpu, Host, Plan, Wire};
use super::network::FlowConfig;
use crate::packet::FlowId;
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

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Published {
    config: Arc<Config>,
    /// Bytes that the flow has; known to the receiver so that it can tell when it has them.
    size: Option<u64>,
    payload: Payload,
    /// Of a controller; a connection hears of it once it is there.
    ordered: Option<Rate>,
    /// The send buffer was full, and nothing has been said of room since.
    full: bool,
    /// Bytes read in order.
    read: u64,
    /// Blocks begun or received, and when.
    blocks: BlockProgress,
    wrong_bytes: u64,
    finished: Option<Instant>,
    chunk: Vec<u8>,
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
) -> (Host<Published>, Host<Published>) {
    let mut random = seed.stream(&format!("{}.published", flow.name));
    // Addresses are for the core's eyes only: routes lead to the agents. They are those of captures.
    let address = |host: u32| {
        let [_, a, b, c] = id.0.wrapping_mul(2).wrapping_add(host).to_be_bytes();
        SocketAddr::from(([10, a, b, c], 0))
    };
    let (client, server) = (address(1), address(2));
    let listen = Listen {
        port: PORT,
        config: Arc::new(config.server.clone()),
        max_connections: 1,
        memory: u64::MAX,
    };
    let plan = Plan {
        start: flow.start,
        stop: flow.stop,
        size: flow.size,
        pace: config.pace,
    };
    let mut host = |listen, local: SocketAddr, remote, plan: Option<Plan>| {
        let wire = Published {
            config: Arc::new(config.client.clone()),
            size: flow.size,
            payload: config.client.payload,
            ordered: None,
            full: false,
            read: 0,
            blocks: BlockProgress::default(),
            wrong_bytes: 0,
            finished: None,
            chunk: Vec::new(),
        };
        let endpoint = Endpoint::new(listen, random.next_u64()).over_ip(local.ip());
        Host::new(endpoint, wire, remote, plan, Cpu::default())
    };
    (
        host(None, client, server, Some(plan)),
        host(Some(listen), server, client, None),
    )
}

impl Published {
    /// Takes in-order bytes and checks them.
    fn read(&mut self, now: Instant, connection: &mut Connection) {
        match self.payload {
            Payload::Virtual => {
                while let Ok(Read::Data(n @ 1..)) = connection.read_virtual(now) {
                    self.read += n as u64;
                }
            }
            Payload::Real => {
                self.chunk.resize(CHUNK as usize, 0);
                while let Ok(Read::Data(n @ 1..)) = connection.read(now, &mut self.chunk) {
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
            self.finished = Some(now);
        }
    }
}

impl Wire for Published {
    type Core = Endpoint;
    const SEGMENTS: usize = 1;
    const HEADERS: u32 = IP_HEADER;

    fn connect(
        &mut self,
        core: &mut Endpoint,
        now: Instant,
        remote: SocketAddr,
    ) -> Option<ConnectionHandle> {
        core.connect(now, remote, PORT, self.config.clone()).ok()
    }

    fn serve(&mut self, now: Instant, connection: &mut Connection, sends: bool) -> bool {
        let (mut readable, mut writable) = (false, false);
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Connected => {
                    writable = true;
                    if let Some(rate) = self.ordered {
                        connection.order_rate(now, rate);
                    }
                }
                Event::Writable => writable = true,
                Event::Readable => readable = true,
                // Nothing goes the other way.
                Event::PeerFinished => {
                    readable = true;
                    connection.finish(now);
                }
                _ => {}
            }
        }
        if !sends {
            self.blocks.note(connection.stats().blocks_received, now);
        }
        if readable {
            self.read(now, connection);
        }
        self.full &= !writable;
        writable
    }

    fn write(&mut self, now: Instant, connection: &mut Connection, at: u64, left: u64) -> u64 {
        if self.full {
            return 0;
        }
        let taken = match self.payload {
            Payload::Virtual => connection.write_virtual(now, left),
            Payload::Real => {
                self.chunk.clear();
                self.chunk.extend((at..at + left.min(CHUNK)).map(pattern));
                connection.write(now, &self.chunk).map(|n| n as u64)
            }
        };
        let taken = taken.unwrap_or(0);
        self.full = taken == 0;
        taken
    }

    fn finish(&mut self, now: Instant, connection: &mut Connection) -> bool {
        connection.finish(now);
        true
    }

    fn order_rate(&mut self, now: Instant, connection: &mut Connection, rate: Rate) {
        self.ordered = Some(rate);
        connection.order_rate(now, rate);
    }

    fn on_sent(&mut self, now: Instant, packet: &[u8]) {
        if let Some(block) = data_block(packet) {
            self.blocks.note(u64::from(block) + 1, now);
        }
    }

    fn progress(&self, connection: Option<&Connection>) -> Progress {
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
}
