//! A host that runs the protocol core through its public interface, as a socket driver does.

use super::agent::{Agent, Arrival, Buffers, Outgoing, Pace, Progress};
use super::clock::HostClock;
use super::network::FlowConfig;
use super::packet::Body;
use super::reader::{Reader, ReadingRates, take_block, take_bytes};
use super::udp::IP_UDP_HEADER;
use crate::packet::{Ecn, FlowId, Priority};
use crate::pair::pattern;
use crate::random::Seed;
use dfcp_proto::{
    ChannelId, ChannelKind, Connection, ConnectionHandle, Endpoint, Event, Instant, Payload,
    PublicKey, Rate, SecretRng, ServerConfig, StaticKey, TransportConfig,
};
use std::collections::VecDeque;
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

/// Bytes written at a time, where they are real.
const CHUNK: u64 = 65_536;
/// Datagrams asked of the core at a time, as of a socket that can segment.
const SEGMENTS: usize = 16;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct DfcpHost {
    endpoint: Endpoint,
    remote: SocketAddr,
    handle: Option<ConnectionHandle>,
    channel: Option<ChannelId>,
    source: Option<Source>,
    payload: DfcpPayload,
    block_symbols: u32,
    pace: Pace,
    delivery: Delivery,
    reader: Reader,
    /// Of a controller, before there is a connection to follow it.
    ordered: Option<Rate>,
    cpu: Cpu,
    /// Datagrams that came while the processor was busy.
    inbox: VecDeque<(Ecn, Vec<u8>)>,
    /// Datagrams that the core gave, not yet asked for.
    outbox: VecDeque<Outgoing>,
    batch: Vec<u8>,
    /// Something happened that may let the core send.
    dirty: bool,
    now: Instant,
    progress: Progress,
}

/// What the sending end has to do.
#[derive(Debug)]
struct Source {
    peer: PublicKey,
    config: Arc<TransportConfig>,
    start: Instant,
    stop: Option<Instant>,
    size: Option<u64>,
    written: u64,
    state: Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Waiting,
    Connecting,
    Writing,
    Finished,
    Stopped,
}

/// The two ends of a flow.
pub(super) fn pair(
    config: &DfcpConfig,
    flow: &FlowConfig,
    id: FlowId,
    seed: Seed,
) -> (DfcpHost, DfcpHost) {
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
        authorize: Arc::new(|_: &PublicKey| true),
        max_connections: 1,
    };
    // Addresses are for the core's eyes only: routes lead to the agents.
    let address = |host: u32| {
        let [a, b, c] = [id.0 >> 15, id.0 >> 7, id.0 << 1].map(|n| n as u8);
        SocketAddr::from(([10, a, b, c | host as u8], 4433))
    };
    // The plan is in true time, the hosts live by their clocks.
    let clock = config.sender_clock.readings();
    let source = Source {
        peer: server_key.public(),
        config: client,
        start: clock.at(flow.start),
        stop: flow.stop.map(|stop| clock.at(stop)),
        size: flow.size,
        written: 0,
        state: Sending::Waiting,
    };
    let host = |endpoint, remote, source: Option<Source>| DfcpHost {
        endpoint,
        remote,
        handle: None,
        channel: None,
        ordered: None,
        pace: source.as_ref().map_or(Pace::Own, |_| config.pace),
        source,
        delivery: config.delivery,
        reader: Reader::default(),
        payload: config.payload,
        block_symbols: config.block_symbols,
        cpu: Cpu::new(config.coding_rate),
        inbox: VecDeque::new(),
        outbox: VecDeque::new(),
        batch: Vec::new(),
        dirty: true,
        now: Instant::ZERO,
        progress: Progress::default(),
    };
    let (client_seed, server_seed) = (secret(), secret());
    let (client, server) = (
        host(
            Endpoint::new(client_key, None, client_seed),
            address(1),
            Some(source),
        ),
        host(
            Endpoint::new(server_key, Some(server), server_seed),
            address(0),
            None,
        ),
    );
    let clock = config.clock.readings();
    let steps = config
        .reading
        .iter()
        .map(|&(at, rate)| (clock.at(at), rate));
    let reader = Reader::new(&steps.collect());
    (client, DfcpHost { reader, ..server })
}

impl DfcpHost {
    fn connection(&mut self) -> Option<&mut Connection> {
        self.endpoint.connection(self.handle?)
    }

    /// Hands a datagram to the core and does what follows.
    fn take_in(&mut self, ecn: Ecn, mut datagram: Vec<u8>, buffers: &mut Buffers) {
        let now = self.now;
        self.endpoint
            .handle_datagram(now, self.remote, ecn as u8, &mut datagram);
        buffers.give(datagram);
        self.serve();
    }

    /// Solve jobs, accepted connections, events, complete blocks.
    fn serve(&mut self) {
        self.dirty = true;
        let now = self.now;
        if let Some(handle) = self.endpoint.accept() {
            self.handle = Some(handle);
        }
        let Some(handle) = self.handle else { return };
        let Some(connection) = self.endpoint.connection(handle) else {
            return;
        };
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            let bytes = job.symbol_operations() * job.symbol_size() as u64;
            self.cpu.charge(now, bytes);
            connection.finish_solve(now, job);
        }
        let mut established = false;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Connected { .. } => established = true,
                Event::Opened(channel) => self.channel = Some(channel),
                _ => {}
            }
        }
        if self.source.is_none() {
            self.read();
        } else if established {
            self.begin_writing();
        }
    }

    fn begin_writing(&mut self) {
        let kind = match self.delivery {
            Delivery::AnyOrder => ChannelKind::Object,
            Delivery::InOrder => ChannelKind::Stream,
        };
        let channel = self
            .connection()
            .and_then(|connection| connection.open(kind));
        self.channel = channel;
        if let Some(source) = &mut self.source
            && source.state == Sending::Connecting
        {
            source.state = Sending::Writing;
        }
    }

    /// Keeps the core's send buffer full.
    fn write(&mut self) {
        let now = self.now;
        let (Some(source), Some(handle), Some(channel)) =
            (&mut self.source, self.handle, self.channel)
        else {
            return;
        };
        let Some(connection) = self.endpoint.connection(handle) else {
            return;
        };
        if source.state != Sending::Writing {
            return;
        }
        loop {
            let left = source.size.map_or(u64::MAX, |size| size - source.written);
            if left == 0 {
                if connection.finish_channel(channel).is_ok() {
                    source.state = Sending::Finished;
                }
                return;
            }
            let taken = match self.payload {
                DfcpPayload::Virtual => connection.write_virtual(now, channel, left),
                DfcpPayload::Real => {
                    let end = source.written + left.min(CHUNK);
                    let data: Vec<u8> = (source.written..end).map(pattern).collect();
                    connection.write(now, channel, &data).map(|n| n as u64)
                }
            };
            match taken {
                Ok(0) | Err(_) => return,
                Ok(n) => source.written += n,
            }
        }
    }

    /// Takes what arrived, as far as the application is fast enough, and checks its bytes.
    fn read(&mut self) {
        let (Some(handle), Some(channel)) = (self.handle, self.channel) else {
            return;
        };
        let Some(connection) = self.endpoint.connection(handle) else {
            return;
        };
        loop {
            let most = self.reader.available(self.now).min(CHUNK);
            if most == 0 {
                break;
            }
            let taken = match channel.kind() {
                ChannelKind::Object => take_block(connection, self.now, channel, self.payload),
                ChannelKind::Stream => {
                    let position = self.progress.delivered + self.progress.missing;
                    let part = (position, most as usize);
                    take_bytes(connection, self.now, channel, self.payload, part)
                }
            };
            let Some(taken) = taken else { break };
            self.reader.took(taken.len);
            self.progress.delivered += taken.len;
            self.progress.wrong_bytes += taken.wrong;
            self.progress.missing += taken.missing;
            if taken.ended {
                self.progress.finished.get_or_insert(self.now);
                break;
            }
        }
        let settled = self.progress.delivered + self.progress.missing;
        let complete = connection.final_size(channel) == Some(settled);
        if complete && self.progress.finished.is_none() {
            self.progress.finished = Some(self.now);
        }
    }

    /// Begins and ends on time.
    fn follow_plan(&mut self) {
        let now = self.now;
        let Some(source) = &mut self.source else {
            return;
        };
        if source.state == Sending::Waiting && source.start <= now {
            source.state = Sending::Connecting;
            // A key of our own making fits; without a connection the flow just stays silent.
            self.handle = self
                .endpoint
                .connect(now, self.remote, Some(source.peer), source.config.clone())
                .ok();
            self.dirty = true;
            if let Some(rate) = self.ordered {
                self.order_rate(now, rate);
            }
            return;
        }
        if source.stop.is_some_and(|stop| stop <= now) {
            source.state = Sending::Stopped;
        }
    }

    fn is_silent(&self) -> bool {
        let source = self.source.as_ref();
        source.is_some_and(|s| matches!(s.state, Sending::Waiting | Sending::Stopped))
    }

    /// Asks the core for datagrams until it has none.
    fn fill_outbox(&mut self, buffers: &mut Buffers) {
        self.write();
        self.batch.clear();
        let coded = self.cpu.is_charged().then(|| self.repair_symbols());
        let Some(transmit) = self
            .endpoint
            .poll_transmit(self.now, SEGMENTS, &mut self.batch)
        else {
            self.dirty = false;
            return;
        };
        let ecn = Ecn::from(transmit.ecn);
        for datagram in self
            .batch
            .chunks(transmit.segment_size.unwrap_or(transmit.size))
        {
            let mut bytes = buffers.take();
            bytes.extend_from_slice(datagram);
            self.outbox.push_back(Outgoing {
                size: (datagram.len() + transmit.elided) as u32 + IP_UDP_HEADER,
                ecn,
                priority: Priority::Data,
                route: 0,
                body: Body::Datagram(bytes),
            });
        }
        if let Some(before) = coded {
            let made = self.repair_symbols() - before;
            let symbol = (transmit.segment_size.unwrap_or(transmit.size) + transmit.elided) as u64;
            self.cpu
                .charge(self.now, made * u64::from(self.block_symbols) * symbol);
        }
    }

    fn repair_symbols(&self) -> u64 {
        self.progress().repairs
    }
}

impl Agent for DfcpHost {
    fn receive(&mut self, now: Instant, packet: Arrival, buffers: &mut Buffers) {
        self.now = now;
        let Body::Datagram(datagram) = packet.body else {
            return;
        };
        if self.is_silent() {
            buffers.give(datagram);
        } else if self.cpu.is_busy(now) || !self.inbox.is_empty() {
            self.inbox.push_back((packet.ecn, datagram));
        } else {
            self.take_in(packet.ecn, datagram, buffers);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.now = now;
        self.follow_plan();
        if self.cpu.is_busy(now) || self.is_silent() {
            return;
        }
        self.endpoint.handle_timeout(now);
        self.serve();
    }

    fn poll_transmit(&mut self, now: Instant, buffers: &mut Buffers) -> Option<Outgoing> {
        self.now = now;
        loop {
            if self.is_silent() || self.cpu.is_busy(now) {
                return None;
            }
            if let Some(outgoing) = self.outbox.pop_front() {
                return Some(outgoing);
            }
            if let Some((ecn, datagram)) = self.inbox.pop_front() {
                self.take_in(ecn, datagram, buffers);
            } else if self.dirty {
                self.fill_outbox(buffers);
            } else {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if let Some(source) = &self.source {
            match source.state {
                Sending::Waiting => return Some(source.start),
                Sending::Stopped => return None,
                _ => {}
            }
        }
        let stop = self.source.as_ref().and_then(|s| s.stop);
        let core = self.endpoint.poll_timeout();
        // Before there is anything to read from, it is not asked.
        let reader = self.channel.and_then(|_| self.reader.next());
        let next = core.into_iter().chain(stop).chain(reader).min();
        match self.cpu.busy_until(self.now) {
            Some(free) => Some(next.map_or(free, |next| next.max(free))),
            None => next,
        }
    }

    fn progress(&self) -> Progress {
        let connection = self.handle.and_then(|handle| self.endpoint.peek(handle));
        let stats = connection.map(Connection::stats).unwrap_or_default();
        Progress {
            repairs: stats.repair_symbols_sent,
            spurious_losses: connection.map(|_| stats.spurious_losses),
            srtt: Some(stats.rtt).filter(|rtt| !rtt.is_zero()),
            receiver_drops: stats.beyond_window,
            ..self.progress
        }
    }

    fn pace(&self) -> Pace {
        self.pace
    }

    fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.ordered = Some(rate);
        self.dirty = true;
        if let Some(connection) = self.connection() {
            connection.order_rate(now, rate);
        }
    }
}

/// A processor that codes at a limited rate, one thing after another.
#[derive(Debug)]
struct Cpu {
    rate: Option<Rate>,
    free_at: Instant,
}

impl Cpu {
    fn new(rate: Option<Rate>) -> Self {
        Self {
            rate,
            free_at: Instant::ZERO,
        }
    }

    fn is_charged(&self) -> bool {
        self.rate.is_some()
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.free_at > now
    }

    fn busy_until(&self, now: Instant) -> Option<Instant> {
        self.is_busy(now).then_some(self.free_at)
    }

    /// Takes time for multiplying and adding `bytes`.
    fn charge(&mut self, now: Instant, bytes: u64) {
        if let Some(rate) = self.rate {
            self.free_at = self.free_at.max(now) + rate.time_for(bytes);
        }
    }
}
