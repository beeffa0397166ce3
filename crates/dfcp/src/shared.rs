//! State that handles and driver share, behind one lock: the core, and who waits for what.

use crate::driver::Core;
use crate::socket::{Batch, Class};
use dfcp_proto::{
    ChannelId, Connection, ConnectionError, ConnectionHandle, Endpoint, Event, Instant, VarInt,
};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// Wakers of tasks that wait for one thing.
#[derive(Debug, Default)]
pub(crate) struct WaitList(Vec<Waker>);

impl WaitList {
    pub(crate) fn register(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|w| w.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    pub(crate) fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// What became of a channel, beyond what the core still knows.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    /// All that was written is accounted for; so many bytes were given up.
    pub(crate) acknowledged: Option<u64>,
    /// The peer stopped our sending with this code.
    pub(crate) stopped: Option<VarInt>,
    /// The peer reset its sending with this code.
    pub(crate) reset: Option<VarInt>,
    pub(crate) waiting: WaitList,
    /// Streams and objects that use it; the last one takes this state with it.
    holders: usize,
}

/// The driver's side of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    pub(crate) error: Option<ConnectionError>,
    pub(crate) channels: HashMap<ChannelId, ChannelState>,
    pub(crate) opened: [VecDeque<ChannelId>; 2],
    /// Waits for the handshake, the end, a new channel or room to open one.
    pub(crate) waiting: WaitList,
    pub(crate) writers: WaitList,
    /// Live handles; the connection closes when the last one goes.
    pub(crate) handles: usize,
    /// The endpoint's `accept` has yet to give it out.
    pub(crate) awaits_accept: bool,
}

impl ConnectionState {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { .. } => self.waiting.wake(),
            Event::Opened(id) => {
                self.channels.entry(id).or_default();
                self.opened[id.kind() as usize].push_back(id);
                self.waiting.wake();
            }
            Event::Readable(id) => self.on_channel(id, |_| {}),
            Event::Writable => self.writers.wake(),
            Event::Acknowledged(id) => self.on_acknowledged(id, 0),
            Event::PartlyAcknowledged { channel, abandoned } => {
                self.on_acknowledged(channel, abandoned);
            }
            Event::Reset { channel, code } => {
                self.on_channel(channel, |channel| channel.reset = Some(code));
            }
            Event::Stopped { channel, code } => {
                self.on_channel(channel, |channel| channel.stopped = Some(code));
                self.writers.wake();
            }
            Event::Closed(error) => {
                self.error = Some(error);
                self.waiting.wake();
                self.writers.wake();
                self.channels.values_mut().for_each(|c| c.waiting.wake());
            }
            _ => {}
        }
    }

    fn on_acknowledged(&mut self, id: ChannelId, abandoned: u64) {
        self.on_channel(id, |channel| channel.acknowledged = Some(abandoned));
        self.waiting.wake();
    }

    /// Something became of a channel; nobody is told if nobody holds it any more.
    fn on_channel(&mut self, id: ChannelId, change: impl FnOnce(&mut ChannelState)) {
        if let Some(channel) = self.channels.get_mut(&id) {
            change(channel);
            channel.waiting.wake();
        }
    }
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) core: Endpoint,
    pub(crate) connections: HashMap<ConnectionHandle, ConnectionState>,
    pub(crate) accepted: VecDeque<ConnectionHandle>,
    pub(crate) accepting: WaitList,
    /// Set when the endpoint's handle is gone or closed.
    pub(crate) closing: bool,
    /// The driver ended, with an error of the socket or in order.
    pub(crate) ended: Option<std::io::ErrorKind>,
    pub(crate) idle: WaitList,
}

impl State {
    /// The core's connection and ours.
    pub(crate) fn get(
        &mut self,
        handle: ConnectionHandle,
    ) -> Option<(&mut Connection, &mut ConnectionState)> {
        Some((
            self.core.connection(handle)?,
            self.connections.get_mut(&handle)?,
        ))
    }

    /// A stream or object uses a channel from now on.
    pub(crate) fn hold(&mut self, handle: ConnectionHandle, id: ChannelId) {
        if let Some((_, state)) = self.get(handle) {
            state.channels.entry(id).or_default().holders += 1;
        }
    }

    /// And no longer.
    pub(crate) fn let_go(&mut self, handle: ConnectionHandle, id: ChannelId) {
        if let Some((_, state)) = self.get(handle)
            && let Some(channel) = state.channels.get_mut(&id)
        {
            channel.holders = channel.holders.saturating_sub(1);
            if channel.holders == 0 {
                state.channels.remove(&id);
            }
        }
    }

    /// Nobody will accept any more: connections that nobody holds end.
    fn refuse_accepted(&mut self, now: Instant) {
        for handle in std::mem::take(&mut self.accepted) {
            if let Some((connection, state)) = self.get(handle) {
                state.awaits_accept = false;
                connection.close(now, dfcp_proto::CloseCode::NO_ERROR, "");
            }
        }
    }

    /// A handle of the connection went; the last one closes it.
    pub(crate) fn release(&mut self, now: Instant, handle: ConnectionHandle) {
        if let Some((connection, state)) = self.get(handle) {
            state.handles = state.handles.saturating_sub(1);
            if state.handles == 0 {
                connection.close(now, dfcp_proto::CloseCode::NO_ERROR, "");
            }
        }
    }
}

impl Core for State {
    fn patience(&self) -> Duration {
        self.core.coalescing_delay()
    }

    fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: u8, packet: &mut [u8]) {
        let Some(handle) = self.core.handle_datagram(now, remote, ecn, packet) else {
            return;
        };
        let Some(connection) = self.core.connection(handle) else {
            return;
        };
        // Dense blocks solve in microseconds: not worth another thread.
        while let Some(mut job) = connection.take_solve_job() {
            job.run();
            connection.finish_solve(now, job);
        }
    }

    fn collect(&mut self, now: Instant) {
        while let Some(handle) = self.core.accept() {
            let state = self.connections.entry(handle).or_default();
            state.awaits_accept = true;
            self.accepted.push_back(handle);
            self.accepting.wake();
        }
        if self.closing {
            self.refuse_accepted(now);
        }
        while let Some((handle, connection)) = self.core.poll_news() {
            // A refused client is the core's own.
            let Some(state) = self.connections.get_mut(&handle) else {
                continue;
            };
            while let Some(event) = connection.poll_event() {
                state.on_event(event);
            }
            if connection.is_closed() && state.handles == 0 && !state.awaits_accept {
                self.core.forget(handle);
                self.connections.remove(&handle);
            }
        }
        if self.connections.is_empty() {
            self.idle.wake();
        }
    }

    fn transmit(&mut self, now: Instant, max_segments: usize, out: &mut Vec<u8>) -> Option<Batch> {
        self.core.handle_timeout(now);
        let next = self.core.poll_transmit(now, max_segments, out)?;
        Some(Batch {
            destination: next.destination,
            ecn: next.ecn,
            segment_size: next.segment_size,
            class: Class::Default,
        })
    }

    fn deadline(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    fn is_over(&self) -> bool {
        self.closing && self.connections.is_empty()
    }

    fn end(&mut self, reason: std::io::ErrorKind) {
        self.ended = Some(reason);
        self.accepting.wake();
        self.idle.wake();
        for connection in self.connections.values_mut() {
            connection.waiting.wake();
            connection.writers.wake();
            connection
                .channels
                .values_mut()
                .for_each(|c| c.waiting.wake());
        }
    }
}

/// Shared by an endpoint, its connections and its driver.
#[derive(Debug)]
pub(crate) struct Shared<C = State> {
    state: Mutex<C>,
    /// Tells the driver that there is something to do.
    pub(crate) wake: Notify,
    epoch: std::time::Instant,
}

impl<C> Shared<C> {
    pub(crate) fn with(state: C) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(state),
            wake: Notify::new(),
            epoch: std::time::Instant::now(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, C> {
        // A panic while holding the lock is a bug; going on with the state is the lesser evil.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The core's clock, shared by everyone.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.epoch.elapsed().as_nanos() as u64 + 1_000_000_000)
    }
}

impl Shared {
    pub(crate) fn new(core: Endpoint) -> Arc<Self> {
        Self::with(State {
            core,
            connections: HashMap::new(),
            accepted: VecDeque::new(),
            accepting: WaitList::default(),
            closing: false,
            ended: None,
            idle: WaitList::default(),
        })
    }

    /// Runs `poll` on a connection under the lock until it is ready; `poll` registers itself with
    /// whatever it waits for.
    pub(crate) fn poll_connection<T>(
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
