//! A host that runs a core of either wire through its public interface, as a socket driver does, with
//! the application of one end of a flow.

use super::agent::{Agent, Arrival, Buffers, Outgoing, Pace, Progress};
use super::packet::Body;
use crate::packet::Ecn;
use dfcp_proto::host::{Core, CoreConnection, Solve};
use dfcp_proto::{ConnectionHandle, Instant, Rate};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::SocketAddr;

/// Bytes written or read at a time, where they are real.
pub(super) const CHUNK: u64 = 65_536;

pub(super) type ConnectionOf<W> = <<W as Wire>::Core as Core>::Connection;
type JobOf<W> = <ConnectionOf<W> as CoreConnection>::SolveJob;

/// One end of a flow on one of the wires: what its application does with the connection.
pub(super) trait Wire: Debug + Send {
    type Core: Core + Debug + Send;
    /// Packets asked of the core at a time.
    const SEGMENTS: usize;
    /// Bytes of the headers below the core's packets.
    const HEADERS: u32;

    /// Opens the flow's connection.
    fn connect(
        &mut self,
        core: &mut Self::Core,
        now: Instant,
        remote: SocketAddr,
    ) -> Option<ConnectionHandle>;

    /// Takes events and what arrived; true if there may be room to write.
    fn serve(&mut self, now: Instant, connection: &mut ConnectionOf<Self>, sends: bool) -> bool;

    /// Writes at most `left` bytes from byte `at` on; says how many.
    fn write(
        &mut self,
        now: Instant,
        connection: &mut ConnectionOf<Self>,
        at: u64,
        left: u64,
    ) -> u64;

    /// All was written; false if that cannot be said yet.
    fn finish(&mut self, now: Instant, connection: &mut ConnectionOf<Self>) -> bool;

    /// A network controller allows this rate.
    fn order_rate(&mut self, now: Instant, connection: &mut ConnectionOf<Self>, rate: Rate);

    /// A packet leaves the core.
    fn on_sent(&mut self, _now: Instant, _packet: &[u8]) {}

    /// Bytes to be multiplied and added for a block.
    fn solving(_job: &JobOf<Self>) -> u64 {
        0
    }

    /// When its reader wants more.
    fn next_read(&self) -> Option<Instant> {
        None
    }

    /// How far the flow is.
    fn progress(&self, connection: Option<&ConnectionOf<Self>>) -> Progress;
}

/// When the sending end sends, and how far it is.
#[derive(Debug)]
pub(super) struct Plan {
    pub start: Instant,
    pub stop: Option<Instant>,
    /// Bytes; without end if there is no number.
    pub size: Option<u64>,
    pub pace: Pace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Waiting,
    Connecting,
    Writing,
    Finished,
    Stopped,
}

#[derive(Debug)]
struct Source {
    plan: Plan,
    written: u64,
    state: Sending,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Host<W: Wire> {
    endpoint: W::Core,
    wire: W,
    remote: SocketAddr,
    handle: Option<ConnectionHandle>,
    source: Option<Source>,
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
    /// When the core wants to be woken, as it said when it had no more to send: until then a sender
    /// that its link holds back has no need of its timers.
    timeout: Option<Instant>,
    now: Instant,
}

impl<W: Wire> Host<W> {
    /// A host that talks to `remote`; with a plan, it sends.
    pub fn new(
        endpoint: W::Core,
        wire: W,
        remote: SocketAddr,
        plan: Option<Plan>,
        cpu: Cpu,
    ) -> Self {
        Self {
            endpoint,
            wire,
            remote,
            handle: None,
            source: plan.map(|plan| Source {
                plan,
                written: 0,
                state: Sending::Waiting,
            }),
            ordered: None,
            cpu,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            batch: Vec::new(),
            dirty: true,
            timeout: None,
            now: Instant::ZERO,
        }
    }

    /// Hands a datagram to the core and does what follows.
    fn take_in(&mut self, ecn: Ecn, mut datagram: Vec<u8>, buffers: &mut Buffers) {
        self.endpoint
            .handle_datagram(self.now, self.remote, ecn as u8, &mut datagram);
        buffers.give(datagram);
        self.serve();
    }

    /// Solve jobs, accepted connections, and what the application does of it all.
    fn serve(&mut self) {
        self.dirty = true;
        let now = self.now;
        if let Some(handle) = self.endpoint.accept() {
            self.handle = Some(handle);
        }
        let Some(connection) = self.handle.and_then(|h| self.endpoint.connection(h)) else {
            return;
        };
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            self.cpu.charge(now, W::solving(&job));
            connection.finish_solve(now, job);
        }
        let sends = self.source.is_some();
        if self.wire.serve(now, connection, sends)
            && let Some(source) = &mut self.source
            && source.state == Sending::Connecting
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
            let size = source.plan.size;
            let left = size.map_or(u64::MAX, |size| size - source.written);
            if left == 0 {
                if self.wire.finish(self.now, connection) {
                    source.state = Sending::Finished;
                }
                return;
            }
            let at = source.written;
            match self.wire.write(self.now, connection, at, left) {
                0 => return,
                n => source.written += n,
            }
        }
    }

    /// Begins and ends on time.
    fn follow_plan(&mut self) {
        let now = self.now;
        let Some(source) = &mut self.source else {
            return;
        };
        if source.state == Sending::Waiting && source.plan.start <= now {
            source.state = Sending::Connecting;
            // Without a connection the flow just stays silent.
            self.handle = self.wire.connect(&mut self.endpoint, now, self.remote);
            self.dirty = true;
            if let Some(rate) = self.ordered {
                self.order_rate(now, rate);
            }
            return;
        }
        if source.plan.stop.is_some_and(|stop| stop <= now) {
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
        let coded = self.cpu.is_charged().then(|| self.progress().repairs);
        let transmit = self
            .endpoint
            .poll_transmit(self.now, W::SEGMENTS, &mut self.batch);
        let Some(transmit) = transmit else {
            self.dirty = false;
            self.timeout = self.endpoint.poll_timeout();
            return;
        };
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        for datagram in self.batch.chunks(segment) {
            self.wire.on_sent(self.now, datagram);
            let mut bytes = buffers.take();
            bytes.extend_from_slice(datagram);
            self.outbox.push_back(Outgoing {
                size: (datagram.len() + transmit.elided) as u32 + W::HEADERS,
                ecn: Ecn::from(transmit.ecn),
                priority: transmit.priority,
                route: 0,
                body: Body::Datagram(bytes),
            });
        }
        if let Some(before) = coded {
            let made = self.progress().repairs - before;
            let symbol = (segment + transmit.elided) as u64;
            let block = u64::from(self.cpu.block_symbols);
            self.cpu.charge(self.now, made * block * symbol);
        }
    }
}

impl<W: Wire> Agent for Host<W> {
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
        let is_due = self.timeout.is_some_and(|at| at <= now);
        if is_due {
            self.endpoint.handle_timeout(now);
        }
        self.serve();
        if is_due {
            self.timeout = self.endpoint.poll_timeout();
        }
    }

    fn poll_transmit(&mut self, now: Instant, buffers: &mut Buffers) -> Option<Outgoing> {
        self.now = now;
        loop {
            if self.is_silent() {
                return None;
            }
            if self.cpu.is_busy(now) {
                self.timeout = self.endpoint.poll_timeout();
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
        let plan = self.source.as_ref().map(|source| &source.plan);
        match self.source.as_ref().map(|source| source.state) {
            Some(Sending::Waiting) => return plan.map(|plan| plan.start),
            Some(Sending::Stopped) => return None,
            _ => {}
        }
        let stop = plan.and_then(|plan| plan.stop);
        let next = self.timeout.into_iter().chain(stop);
        let next = next.chain(self.wire.next_read()).min();
        match self.cpu.busy_until(self.now) {
            Some(free) => Some(next.map_or(free, |next| next.max(free))),
            None => next,
        }
    }

    fn progress(&self) -> Progress {
        let connection = self.handle.and_then(|h| self.endpoint.peek(h));
        self.wire.progress(connection)
    }

    fn pace(&self) -> Pace {
        let source = self.source.as_ref();
        source.map_or(Pace::Own, |source| source.plan.pace)
    }

    fn order_rate(&mut self, now: Instant, rate: Rate) {
        self.ordered = Some(rate);
        self.dirty = true;
        if let Some(connection) = self.handle.and_then(|h| self.endpoint.connection(h)) {
            self.wire.order_rate(now, connection, rate);
        }
    }
}

/// A processor that codes at a limited rate, one thing after another.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// Bytes multiplied and added; without a number it costs nothing.
    pub rate: Option<Rate>,
    /// Source symbols of a full block: what a repair symbol is a combination of.
    pub block_symbols: u32,
    free_at: Instant,
}

impl Cpu {
    pub fn new(rate: Option<Rate>, block_symbols: u32) -> Self {
        Self {
            rate,
            block_symbols,
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
