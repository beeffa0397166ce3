//! State that handles and driver share, behind one lock: the core, and who waits for what.

use crate::driver::Core;
use crate::shared::{Shared, WaitList};
use crate::socket::{Batch, Class, Sent};
use dfcp_proto::Instant;
use dfcp_proto::published::{
    Connection, ConnectionHandle, Endpoint, Error, Event, Priority, Read, SolveJob, State as Phase,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// Packets of a socket, DFCP's header included, those of IP and UDP not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Packets sent.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets received, of whatever kind.
    pub packets_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// System calls refused because packets are larger than the interface takes: the MTU of
    /// [`Config`](super::Config) is too large.
    pub too_large: u64,
}

/// The driver's side of one connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// By a stream, or for [`Endpoint::accept`](super::Endpoint::accept).
    pub(super) held: bool,
    /// Nothing more will be written.
    pub(super) finished: bool,
    /// Why it is over; nothing if it ended in order.
    pub(super) end: Option<Option<Error>>,
    phase: Phase,
    /// Waits for a change of phase or the end.
    pub(super) waiting: WaitList,
    pub(super) readers: WaitList,
    pub(super) writers: WaitList,
}

impl ConnectionState {
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            held: true,
            finished: false,
            end: None,
            phase,
            waiting: WaitList::default(),
            readers: WaitList::default(),
            writers: WaitList::default(),
        }
    }

    /// Over, but for answers to late segments. Unless somebody holds it, what ended stays until
    /// its last packet is sent.
    fn is_idle(&self) -> bool {
        (self.end.is_some() && self.held) || self.phase == Phase::TimeWait
    }

    fn wake(&mut self) {
        self.waiting.wake();
        self.readers.wake();
        self.writers.wake();
    }

    /// Takes the news in; true if bytes came that nobody reads any more: the peer must not go on
    /// for ever.
    fn collect(&mut self, connection: &mut Connection) -> bool {
        let mut unread = false;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Readable if !self.held => unread = true,
                Event::Readable | Event::PeerFinished => self.readers.wake(),
                Event::Writable => self.writers.wake(),
                Event::Closed(why) => {
                    self.end = Some(why);
                    self.wake();
                }
                _ => self.waiting.wake(),
            }
        }
        let phase = connection.state();
        if phase != std::mem::replace(&mut self.phase, phase) {
            self.waiting.wake();
        }
        unread
    }
}

/// Blocks to be rebuilt, no more than the connections have room for.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) queue: VecDeque<(ConnectionHandle, SolveJob)>,
    /// Tells the solver of new ones, or of the end.
    pub(super) waiting: Arc<Notify>,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Endpoint,
    pub(super) connections: BTreeMap<ConnectionHandle, ConnectionState>,
    pub(super) accepted: VecDeque<ConnectionHandle>,
    pub(super) accepting: WaitList,
    /// Set when the endpoint's handle is gone.
    pub(super) closing: bool,
    /// The driver ended, with an error of the socket or in order.
    pub(super) ended: Option<io::ErrorKind>,
    pub(super) idle: WaitList,
    pub(super) traffic: Traffic,
    pub(super) jobs: Jobs,
    /// Largest packet.
    mtu: usize,
}

/// Bytes that one system call takes: those of the largest datagram.
const MAX_BATCH: usize = 65_000;

impl State {
    pub(super) fn new(core: Endpoint, mtu: u16) -> Self {
        Self {
            core,
            mtu: usize::from(mtu).max(1),
            connections: BTreeMap::new(),
            accepted: VecDeque::new(),
            accepting: WaitList::default(),
            closing: false,
            ended: None,
            idle: WaitList::default(),
            traffic: Traffic::default(),
            jobs: Jobs::default(),
        }
    }

    /// The core's connection and ours.
    pub(super) fn get(
        &mut self,
        handle: ConnectionHandle,
    ) -> Option<(&mut Connection, &mut ConnectionState)> {
        Some((
            self.core.connection(handle)?,
            self.connections.get_mut(&handle)?,
        ))
    }

    /// Nobody holds the connection any more. What was written and finished still arrives;
    /// otherwise the peer must not believe that it has everything, or that it is heard.
    pub(super) fn release(&mut self, now: Instant, handle: ConnectionHandle) {
        let Some((connection, ours)) = self.get(handle) else {
            return;
        };
        ours.held = false;
        let unread = matches!(connection.read(now, &mut [0]), Ok(Read::Data(_)));
        if ours.end.is_none() && (unread || !ours.finished) {
            connection.abort(now);
        }
    }

    /// Nobody will accept any more.
    pub(super) fn close(&mut self, now: Instant) {
        self.closing = true;
        self.accepting.wake();
        for handle in std::mem::take(&mut self.accepted) {
            self.release(now, handle);
        }
    }

    fn forget_ended(&mut self) {
        let core = &mut self.core;
        self.connections.retain(|&handle, ours| {
            let stays = ours.held || (ours.end.is_none() && core.connection(handle).is_some());
            if !stays {
                core.forget(handle);
            }
            stays
        });
    }

    /// Whether every connection is over, but for answers to late segments.
    pub(super) fn is_idle(&self) -> bool {
        self.connections.values().all(ConnectionState::is_idle)
    }
}

impl Core for State {
    /// Its timers are the reports' own: they say nothing of when packets arrived.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: u8, packet: &mut [u8]) {
        self.traffic.packets_received += 1;
        self.traffic.bytes_received += packet.len() as u64;
        self.core.handle_packet(now, remote, ecn, packet);
    }

    fn collect(&mut self, now: Instant) {
        while let Some(handle) = self.core.accept() {
            let ours = ConnectionState::new(Phase::Established);
            self.connections.insert(handle, ours);
            self.accepted.push_back(handle);
            match self.closing {
                true => self.close(now),
                false => self.accepting.wake(),
            }
        }
        let mut unread = Vec::new();
        while let Some((handle, connection)) = self.core.poll_news() {
            let Some(ours) = self.connections.get_mut(&handle) else {
                continue;
            };
            if ours.collect(connection) {
                unread.push(handle);
            }
            while let Some(job) = connection.take_solve_job() {
                self.jobs.queue.push_back((handle, job));
                self.jobs.waiting.notify_one();
            }
        }
        for handle in unread {
            if let Some(connection) = self.core.connection(handle) {
                connection.abort(now);
            }
        }
        if self.is_idle() {
            self.idle.wake();
        }
    }

    fn transmit(&mut self, now: Instant, max_segments: usize, out: &mut Vec<u8>) -> Option<Batch> {
        self.core.handle_timeout(now);
        let max_segments = max_segments.min((MAX_BATCH / self.mtu).max(1));
        let Some(next) = self.core.poll_transmit(now, max_segments, out) else {
            // Also the last words of connections that ended have left.
            self.collect(now);
            self.forget_ended();
            return None;
        };
        Some(Batch {
            destination: next.destination,
            ecn: next.ecn,
            segment_size: next.segment_size,
            class: match next.priority {
                Priority::Data => Class::Default,
                Priority::Control => Class::Control,
            },
        })
    }

    fn on_sent(&mut self, batch: &Batch, bytes: usize, sent: Sent) {
        let size = batch.segment_size.unwrap_or(bytes).max(1);
        match sent {
            Sent::TooLarge => self.traffic.too_large += 1,
            _ => {
                self.traffic.packets_sent += bytes.div_ceil(size) as u64;
                self.traffic.bytes_sent += bytes as u64;
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    fn is_over(&self) -> bool {
        self.closing && self.connections.is_empty()
    }

    fn end(&mut self, reason: io::ErrorKind) {
        self.ended = Some(reason);
        self.accepting.wake();
        self.idle.wake();
        self.jobs.waiting.notify_one();
        self.connections
            .values_mut()
            .for_each(ConnectionState::wake);
    }
}

impl Shared<State> {
    /// Runs `poll` on a connection under the lock; `poll` registers itself with whatever it waits
    /// for.
    pub(super) fn poll_connection<T>(
        &self,
        handle: ConnectionHandle,
        poll: impl FnOnce(
            Instant,
            &mut Connection,
            &mut ConnectionState,
        ) -> Poll<Result<T, crate::Error>>,
    ) -> Poll<Result<T, crate::Error>> {
        let now = self.now();
        let mut state = self.lock();
        if state.ended.is_some() {
            return Poll::Ready(Err(crate::Error::EndpointClosed));
        }
        let Some((connection, ours)) = state.get(handle) else {
            return Poll::Ready(Err(crate::Error::EndpointClosed));
        };
        let result = poll(now, connection, ours);
        state.collect(now);
        drop(state);
        self.wake.notify_one();
        result
    }
}
