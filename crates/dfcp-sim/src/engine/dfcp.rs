//! Flows of the sealed wire: settings, and what the applications of both ends do.

use super::agent::{Pace, Progress};
use super::clock::HostClock;
use super::host::{CHUNK, Cpu, Host, Plan, Wire};
use super::network::FlowConfig;
use super::reader::{Reader, ReadingRates, take_block, take_bytes};
use super::udp::IP_UDP_HEADER;
use crate::packet::FlowId;
use crate::pair::pattern;
use crate::random::Seed;
use dfcp_proto::{
    ChannelId, ChannelKind, Connection, ConnectionHandle, Endpoint, Event, Instant, Payload,
    PublicKey, Rate, SecretRng, ServerConfig, SolveJob, StaticKey, TransportConfig,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// A `dfcp` flow: settings of both ends.
#[derive(Clone, Debug, Default)]
pub struct DfcpConfig {
    /// Settings of the sender.
    pub client: TransportConfig,
    /// Settings of the receiver.
    pub server: TransportConfig,
    /// Source symbols of a full block: what a repair symbol is a combination of.
    pub block_symbols: u32,
    /// Sizes only, or bytes that are coded and checked.
    pub payload: DfcpPayload,
    /// How fast a host codes: source bytes multiplied and added per second. What it takes is
    /// charged as time, during which the host does nothing else. `None` costs nothing.
    pub coding_rate: Option<Rate>,
    /// What holds the sender back.
    pub pace: Pace,
    /// In which order the application gets its bytes.
    pub delivery: Delivery,
    /// How fast it reads them.
    pub reading: ReadingRates,
    /// The sender's clock.
    pub sender_clock: HostClock,
    /// The receiver's clock.
    pub clock: HostClock,
}

/// How a flow's bytes are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Blocks as they complete: an object.
    #[default]
    AnyOrder,
    /// In order: a stream.
    InOrder,
}

/// What the flow's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DfcpPayload {
    /// Sizes without bytes; the code's structure decides what can be decoded.
    #[default]
    Virtual,
    /// Real bytes, each one checked on arrival.
    Real,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Sealed {
    /// Whom the sending end connects to.
    peer: PublicKey,
    config: Arc<TransportConfig>,
    payload: DfcpPayload,
    delivery: Delivery,
    channel: Option<ChannelId>,
    reader: Reader,
    progress: Progress,
}

/// The two ends of a flow.
pub(super) fn pair(
    config: &DfcpConfig,
    flow: &FlowConfig,
    id: FlowId,
    seed: Seed,
) -> (Host<Sealed>, Host<Sealed>) {
    let mut random = seed.stream(&format!("{}.keys", flow.name));
    let mut secret = || -> [u8; 32] {
        let mut bytes = [0; 32];
        for part in bytes.chunks_exact_mut(8) {
            part.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        bytes
    };
    let mut key = |name| StaticKey::generate(&mut SecretRng::new(&secret(), name));
    let (client_key, server_key) = (key("client"), key("server"));
    let payload = match config.payload {
        DfcpPayload::Virtual => Payload::Virtual,
        DfcpPayload::Real => Payload::Real,
    };
    let client = Arc::new(config.client.clone().payload(payload));
    let server = ServerConfig {
        transport: Arc::new(config.server.clone().payload(payload)),
        authorize: Arc::new(|_: &PublicKey| true.into()),
        max_connections: 1,
        max_per_peer: 1,
        memory: u64::MAX,
    };
    // Addresses are for the core's eyes only: routes lead to the agents.
    let address = |host: u32| {
        let [a, b, c] = [id.0 >> 15, id.0 >> 7, id.0 << 1].map(|n| n as u8);
        SocketAddr::from(([10, a, b, c | host as u8], 4433))
    };
    // The plan is in true time, the hosts live by their clocks.
    let clock = config.sender_clock.readings();
    let plan = Plan {
        start: clock.at(flow.start),
        stop: flow.stop.map(|stop| clock.at(stop)),
        size: flow.size,
        pace: config.pace,
    };
    let clock = config.clock.readings();
    let steps = config
        .reading
        .iter()
        .map(|&(at, rate)| (clock.at(at), rate));
    let reader = Reader::new(&steps.collect());
    let wire = |reader| Sealed {
        peer: server_key.public(),
        config: client.clone(),
        payload: config.payload,
        delivery: config.delivery,
        channel: None,
        reader,
        progress: Progress::default(),
    };
    let cpu = || Cpu::new(config.coding_rate, config.block_symbols);
    let (client_seed, server_seed) = (secret(), secret());
    let (sending, receiving) = (wire(Reader::default()), wire(reader));
    let client = Endpoint::new(client_key, None, client_seed);
    let server = Endpoint::new(server_key, Some(server), server_seed);
    (
        Host::new(client, sending, address(1), Some(plan), cpu()),
        Host::new(server, receiving, address(0), None, cpu()),
    )
}

impl Sealed {
    /// Takes what arrived, as far as the application is fast enough, and checks its bytes.
    fn read(&mut self, now: Instant, connection: &mut Connection) {
        let Some(channel) = self.channel else {
            return;
        };
        loop {
            let most = self.reader.available(now).min(CHUNK);
            if most == 0 {
                break;
            }
            let taken = match channel.kind() {
                ChannelKind::Object => take_block(connection, now, channel, self.payload),
                ChannelKind::Stream | ChannelKind::Uni => {
                    let position = self.progress.delivered + self.progress.missing;
                    let part = (position, most as usize);
                    take_bytes(connection, now, channel, self.payload, part)
                }
            };
            let Some(taken) = taken else { break };
            self.reader.took(taken.len);
            self.progress.delivered += taken.len;
            self.progress.wrong_bytes += taken.wrong;
            self.progress.missing += taken.missing;
            if taken.ended {
                self.progress.finished.get_or_insert(now);
                break;
            }
        }
        let settled = self.progress.delivered + self.progress.missing;
        let complete = connection.final_size(channel) == Some(settled);
        if complete && self.progress.finished.is_none() {
            self.progress.finished = Some(now);
        }
    }
}

impl Wire for Sealed {
    type Core = Endpoint;
    /// As of a socket that can segment.
    const SEGMENTS: usize = 16;
    const HEADERS: u32 = IP_UDP_HEADER;

    fn connect(
        &mut self,
        core: &mut Endpoint,
        now: Instant,
        remote: SocketAddr,
    ) -> Option<ConnectionHandle> {
        // A key of our own making fits.
        core.connect(now, remote, Some(self.peer), self.config.clone())
            .ok()
    }

    fn serve(&mut self, now: Instant, connection: &mut Connection, sends: bool) -> bool {
        let mut established = false;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Connected { .. } => established = true,
                Event::Opened(channel) => self.channel = Some(channel),
                _ => {}
            }
        }
        if !sends {
            self.read(now, connection);
        } else if established {
            self.channel = connection.open(match self.delivery {
                Delivery::AnyOrder => ChannelKind::Object,
                Delivery::InOrder => ChannelKind::Stream,
            });
        }
        established
    }

    fn write(&mut self, now: Instant, connection: &mut Connection, at: u64, left: u64) -> u64 {
        let Some(channel) = self.channel else {
            return 0;
        };
        let taken = match self.payload {
            DfcpPayload::Virtual => connection.write_virtual(now, channel, left),
            DfcpPayload::Real => {
                let data: Vec<u8> = (at..at + left.min(CHUNK)).map(pattern).collect();
                connection.write(now, channel, &data).map(|n| n as u64)
            }
        };
        taken.unwrap_or(0)
    }

    fn finish(&mut self, _now: Instant, connection: &mut Connection) -> bool {
        let finish = |channel| connection.finish_channel(channel).is_ok();
        self.channel.is_some_and(finish)
    }

    fn order_rate(&mut self, now: Instant, connection: &mut Connection, rate: Rate) {
        connection.order_rate(now, rate);
    }

    fn solving(job: &SolveJob) -> u64 {
        job.symbol_operations() * job.symbol_size() as u64
    }

    fn next_read(&self) -> Option<Instant> {
        // Before there is anything to read from, it is not asked.
        self.channel.and_then(|_| self.reader.next())
    }

    fn progress(&self, connection: Option<&Connection>) -> Progress {
        let stats = connection.map(Connection::stats).unwrap_or_default();
        Progress {
            repairs: stats.repair_symbols_sent,
            spurious_losses: connection.map(|_| stats.spurious_losses),
            srtt: Some(stats.rtt).filter(|rtt| !rtt.is_zero()),
            receiver_drops: stats.beyond_window,
            ..self.progress
        }
    }
}
