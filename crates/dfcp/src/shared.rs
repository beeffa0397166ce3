//! State that handles and driver share, behind one lock: a core of either wire, and who waits for
//! what.

use crate::error::Error;
use crate::socket::{Sent, Socket};
use crate::solver::Turns;
use dfcp_proto::host::{Core, CoreConnection, Solve, Transmit};
use dfcp_proto::{ConnectionHandle, Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
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

/// The driver's side of a connection: what the core told of it, and who waits for what. All that
/// drivers of the two wires differ in.
pub(crate) trait Waiting: Default + fmt::Debug + Send + 'static {
    type Core: Core + fmt::Debug + Send;

    /// Takes the connection's news in. True if it must be released once more: something came that
    /// nobody will take, for nobody holds it.
    fn collect(&mut self, connection: &mut ConnectionOf<Self>, is_held: bool) -> bool;

    /// Nobody holds the connection any more.
    fn release(&mut self, now: Instant, connection: &mut ConnectionOf<Self>);

    /// Whether it can be forgotten once nobody holds it.
    fn is_over(&self, connection: &ConnectionOf<Self>) -> bool;

    /// Whether the endpoint counts as idle though it is there.
    fn is_idle(&self, is_held: bool) -> bool;

    /// The driver ended, or the connection: everyone must look again.
    fn wake(&mut self);
}

/// The core's connection that a [`Waiting`] belongs to.
pub(crate) type ConnectionOf<W> = <<W as Waiting>::Core as Core>::Connection;
type JobOf<W> = <ConnectionOf<W> as CoreConnection>::SolveJob;

#[derive(Debug)]
struct Entry<W> {
    waiting: W,
    /// [`Handle`]s, or one for whoever accepts it; released when the last one goes.
    handles: usize,
}

/// Blocks that take at least this long to rebuild go to another thread: being told and telling take
/// some 20 µs, and packets that wait meanwhile are counted late.
const WORTH_A_THREAD: Duration = Duration::from_micros(200);

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
    /// [`Config`](crate::published::Config) is too large.
    pub too_large: u64,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct State<W: Waiting> {
    pub(crate) core: W::Core,
    connections: BTreeMap<ConnectionHandle, Entry<W>>,
    /// Over, and nobody holds them: forgotten when their last packets have left.
    leaving: BTreeSet<ConnectionHandle>,
    accepted: VecDeque<ConnectionHandle>,
    accepting: WaitList,
    /// Set when the endpoint's handle is gone or closed.
    closing: bool,
    /// The driver ended, with an error of the socket or in order.
    pub(crate) ended: Option<io::ErrorKind>,
    idle: WaitList,
    /// How often everything that may leave had left, and who waits for the next time.
    flushes: u64,
    flushing: WaitList,
    pub(crate) jobs: Turns<JobOf<W>>,
    /// What the driver is to go on with instead of its socket.
    pub(crate) next_socket: Option<Socket>,
    pub(crate) traffic: Traffic,
}

impl<W: Waiting> State<W> {
    /// The core's connection and ours.
    pub(crate) fn get(
        &mut self,
        handle: ConnectionHandle,
    ) -> Option<(&mut ConnectionOf<W>, &mut W)> {
        let connection = self.core.connection(handle)?;
        Some((connection, &mut self.connections.get_mut(&handle)?.waiting))
    }

    fn hold(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.connections.get_mut(&handle) {
            entry.handles += 1;
        }
    }

    /// A handle of the connection went.
    fn release(&mut self, now: Instant, handle: ConnectionHandle) {
        let Some(entry) = self.connections.get_mut(&handle) else {
            return;
        };
        entry.handles = entry.handles.saturating_sub(1);
        if let Some(connection) = self.core.connection(handle).filter(|_| entry.handles == 0) {
            entry.waiting.release(now, connection);
        }
    }

    /// Forgets what is known here of a connection that the core has forgotten.
    pub(crate) fn drop_silently(&mut self, handle: ConnectionHandle) {
        self.connections.remove(&handle);
        self.leaving.remove(&handle);
        self.jobs.forget(handle);
    }

    /// Nobody will accept any more.
    pub(crate) fn close(&mut self, now: Instant) {
        self.closing = true;
        self.accepting.wake();
        for handle in std::mem::take(&mut self.accepted) {
            self.release(now, handle);
        }
    }

    pub(crate) fn receive(&mut self, at: Instant, remote: SocketAddr, ecn: u8, packet: &mut [u8]) {
        self.traffic.packets_received += 1;
        self.traffic.bytes_received += packet.len() as u64;
        self.core.handle_datagram(at, remote, ecn, packet);
    }

    /// Moves news out of the core to those who wait for it.
    pub(crate) fn collect(&mut self, now: Instant) {
        while let Some(handle) = self.core.accept() {
            let (waiting, handles) = (W::default(), 1);
            self.connections.insert(handle, Entry { waiting, handles });
            self.accepted.push_back(handle);
            self.accepting.wake();
        }
        if self.closing && !self.accepted.is_empty() {
            self.close(now);
        }
        while let Some((handle, connection)) = self.core.poll_news() {
            // A refused client is the core's own.
            let Some(entry) = self.connections.get_mut(&handle) else {
                continue;
            };
            let mut solved = false;
            while let Some(mut job) = connection.take_solve_job() {
                if job.estimated_time() < WORTH_A_THREAD {
                    job.run();
                    connection.finish_solve(now, job);
                    solved = true;
                } else {
                    self.jobs.push(handle, job);
                }
            }
            let is_held = entry.handles > 0;
            let unwanted = entry.waiting.collect(connection, is_held);
            if !is_held && entry.waiting.is_over(connection) {
                self.leaving.insert(handle);
            }
            // What was done to it above is no news: asked for again, it may have packets.
            if solved || unwanted {
                let connection = self.core.connection(handle);
                if let Some(connection) = connection.filter(|_| unwanted) {
                    entry.waiting.release(now, connection);
                }
            }
        }
        if self.is_idle() {
            self.idle.wake();
        }
    }

    /// Lets due timers expire, then appends packets that may leave now to `out`.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.core.handle_timeout(now);
        let next = self.core.poll_transmit(now, max_segments, out);
        if next.is_none() {
            // Also the last words of connections that ended have left.
            self.flushes += 1;
            self.flushing.wake();
            self.collect(now);
            for handle in std::mem::take(&mut self.leaving) {
                self.core.forget(handle);
                self.drop_silently(handle);
            }
        }
        next
    }

    /// The socket took packets of `bytes` in all, or the system refuses them.
    pub(crate) fn on_sent(&mut self, batch: &Transmit, bytes: usize, sent: Sent) {
        let size = batch.segment_size.unwrap_or(bytes).max(1);
        match sent {
            Sent::TooLarge => self.traffic.too_large += 1,
            _ => {
                self.traffic.packets_sent += bytes.div_ceil(size) as u64;
                self.traffic.bytes_sent += bytes as u64;
            }
        }
    }

    /// Whether nothing happens any more on any connection.
    fn is_idle(&self) -> bool {
        let mut each = self.connections.values();
        each.all(|entry| entry.waiting.is_idle(entry.handles > 0))
    }

    /// Whether the endpoint was closed and all its connections are over, or somebody ended it.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some() || (self.closing && self.connections.is_empty())
    }

    /// The driver ends; whoever waits must learn it.
    pub(crate) fn end(&mut self, reason: io::ErrorKind) {
        self.ended.get_or_insert(reason);
        self.accepting.wake();
        self.idle.wake();
        self.flushing.wake();
        self.jobs.waiting.notify_one();
        for entry in self.connections.values_mut() {
            entry.waiting.wake();
        }
    }
}

/// Shared by an endpoint, its connections and its driver.
#[derive(Debug)]
pub(crate) struct Shared<W: Waiting> {
    state: Mutex<State<W>>,
    /// Tells the driver that there is something to do.
    pub(crate) wake: Notify,
    epoch: std::time::Instant,
}

/// The state in hand. Whoever panics with it wakes the driver, which ends and tells everyone.
pub(crate) struct Locked<'a, W: Waiting> {
    state: MutexGuard<'a, State<W>>,
    wake: &'a Notify,
}

impl<W: Waiting> Deref for Locked<'_, W> {
    type Target = State<W>;
    fn deref(&self) -> &State<W> {
        &self.state
    }
}

impl<W: Waiting> DerefMut for Locked<'_, W> {
    fn deref_mut(&mut self) -> &mut State<W> {
        &mut self.state
    }
}

impl<W: Waiting> Drop for Locked<'_, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.wake.notify_one();
        }
    }
}

impl<W: Waiting> Shared<W> {
    pub(crate) fn new(core: W::Core) -> Arc<Self> {
        let state = State {
            core,
            connections: BTreeMap::new(),
            leaving: BTreeSet::new(),
            accepted: VecDeque::new(),
            accepting: WaitList::default(),
            closing: false,
            ended: None,
            idle: WaitList::default(),
            flushes: 0,
            flushing: WaitList::default(),
            jobs: Turns::default(),
            next_socket: None,
            traffic: Traffic::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            wake: Notify::new(),
            epoch: std::time::Instant::now(),
        })
    }

    pub(crate) fn lock(&self) -> Locked<'_, W> {
        // After a panic the state is good for one thing: to tell everyone that it is over.
        let state = self.state.lock();
        Locked {
            state: state.unwrap_or_else(PoisonError::into_inner),
            wake: &self.wake,
        }
    }

    /// Whether somebody panicked with the state in hand, and left it half changed.
    pub(crate) fn is_broken(&self) -> bool {
        self.state.is_poisoned()
    }

    /// The core's clock, shared by everyone.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.epoch.elapsed().as_nanos() as u64 + 1_000_000_000)
    }

    /// Changes the state, and has the news told and the driver follow up.
    pub(crate) fn act<T>(&self, f: impl FnOnce(Instant, &mut State<W>) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let result = f(now, &mut state);
        state.collect(now);
        drop(state);
        self.wake.notify_one();
        result
    }

    /// Begins a connection.
    pub(crate) fn connect(
        self: &Arc<Self>,
        connect: impl FnOnce(Instant, &mut W::Core) -> Result<ConnectionHandle, Error>,
    ) -> Result<Handle<W>, Error> {
        let id = self.act(|now, state| {
            if state.ended.is_some() {
                return Err(Error::EndpointClosed);
            }
            let id = connect(now, &mut state.core)?;
            let (waiting, handles) = (W::default(), 1);
            state.connections.insert(id, Entry { waiting, handles });
            Ok(id)
        })?;
        Ok(Handle::first(self, id))
    }

    /// The next connection that a peer opened; `None` once the endpoint is closed or the driver
    /// ended.
    pub(crate) async fn accept(self: &Arc<Self>) -> Option<Handle<W>> {
        poll_fn(|context| {
            let mut state = self.lock();
            if let Some(id) = state.accepted.pop_front() {
                return Poll::Ready(Some(Handle::first(self, id)));
            }
            if state.closing || state.ended.is_some() {
                return Poll::Ready(None);
            }
            state.accepting.register(context);
            Poll::Pending
        })
        .await
    }

    /// Waits until what may leave now has left, or the driver ended.
    pub(crate) async fn flush(&self) {
        let before = self.lock().flushes;
        self.wake.notify_one();
        poll_fn(|context| {
            let mut state = self.lock();
            if state.flushes != before || state.ended.is_some() {
                return Poll::Ready(());
            }
            state.flushing.register(context);
            Poll::Pending
        })
        .await;
    }

    /// Waits until nothing happens any more on any connection, or the driver ended.
    pub(crate) async fn wait_idle(&self) {
        self.wake.notify_one();
        poll_fn(|context| {
            let mut state = self.lock();
            if state.is_idle() || state.ended.is_some() {
                return Poll::Ready(());
            }
            state.idle.register(context);
            Poll::Pending
        })
        .await;
    }
}

/// A look at a connection, which does not hold it.
#[derive(Debug)]
pub(crate) struct View<W: Waiting> {
    pub(crate) shared: Arc<Shared<W>>,
    pub(crate) id: ConnectionHandle,
}

impl<W: Waiting> View<W> {
    /// Runs `poll` on the connection under the lock; `poll` registers itself with whatever it
    /// waits for.
    pub(crate) fn poll<T>(
        &self,
        poll: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W) -> Poll<Result<T, Error>>,
    ) -> Poll<Result<T, Error>> {
        self.shared.act(|now, state| {
            if state.ended.is_some() {
                return Poll::Ready(Err(Error::EndpointClosed));
            }
            let Some((connection, ours)) = state.get(self.id) else {
                return Poll::Ready(Err(Error::EndpointClosed));
            };
            poll(now, connection, ours)
        })
    }

    /// Looks at the connection, if it is still there.
    pub(crate) fn look<T>(&self, f: impl FnOnce(&mut ConnectionOf<W>, &mut W) -> T) -> Option<T> {
        let mut state = self.shared.lock();
        let (connection, ours) = state.get(self.id)?;
        Some(f(connection, ours))
    }

    /// Changes the connection, if it is still there.
    pub(crate) fn act(&self, f: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W)) {
        self.shared.act(|now, state| {
            if let Some((connection, ours)) = state.get(self.id) {
                f(now, connection, ours);
            }
        });
    }
}

impl<W: Waiting> Clone for View<W> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            id: self.id,
        }
    }
}

/// A hold on a connection; it is released when the last one goes.
#[derive(Debug)]
pub(crate) struct Handle<W: Waiting>(View<W>);

impl<W: Waiting> Handle<W> {
    /// The hold that was counted when the connection began.
    fn first(shared: &Arc<Shared<W>>, id: ConnectionHandle) -> Self {
        let shared = shared.clone();
        Self(View { shared, id })
    }

    pub(crate) fn view(&self) -> View<W> {
        self.0.clone()
    }
}

impl<W: Waiting> Deref for Handle<W> {
    type Target = View<W>;
    fn deref(&self) -> &View<W> {
        &self.0
    }
}

impl<W: Waiting> Clone for Handle<W> {
    fn clone(&self) -> Self {
        self.shared.lock().hold(self.id);
        Self(self.0.clone())
    }
}

impl<W: Waiting> Drop for Handle<W> {
    fn drop(&mut self) {
        self.shared.act(|now, state| state.release(now, self.id));
    }
}
