//! What the handles and tasks of one endpoint share: a core of either wire behind a short lock, its
//! connections, each behind a lock of its own (`line`), and what these tell the endpoint.

use crate::cadence::LEAST_PATIENCE;
use crate::error::Error;
use crate::line::{Handle, Line};
use crate::socket::{Outlet, Sent, Socket};
use crate::solver::Turns;
use crate::sync::{AtomicBool, AtomicUsize, Clock, Mutex, MutexGuard, Notify, Runtime};
use crate::timers::Timers;
use crate::wait_list::WaitList;
use dfcp_proto::host::{Core, CoreConnection, Transmit};
use dfcp_proto::{ConnectionHandle, Duration, Instant};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::Poll;
use std::time::{SystemTime, UNIX_EPOCH};

/// What became of a connection's news.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Something came that nobody will take, for nobody holds the connection: it is to be released
    /// once more.
    pub(crate) unwanted: bool,
    /// Its handshake is done, or it is closed: the endpoint is to learn it.
    pub(crate) milestone: bool,
}

/// The driver's side of a connection: what the core told of it, and who waits for what. All that
/// drivers of the two wires differ in.
pub(crate) trait Waiting: Default + fmt::Debug + Send + 'static {
    type Core: Core<Connection: fmt::Debug + Send> + fmt::Debug + Send;

    /// Takes the connection's news in.
    fn collect(&mut self, connection: &mut ConnectionOf<Self>, is_held: bool) -> News;

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
pub(crate) type JobOf<W> = <ConnectionOf<W> as CoreConnection>::SolveJob;
type Lines<W> = Vec<Arc<Line<W>>>;
/// Blocks to be rebuilt, with their connections.
type Jobs<W> = Turns<(Arc<Line<W>>, JobOf<W>)>;

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

/// Wakes the driver.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    pub(crate) wake: Notify,
    /// Somebody panicked with a state in hand, and left it half changed.
    broken: AtomicBool,
}

/// A state in hand. Whoever panics with it wakes the driver, which ends and tells everyone: after a
/// panic a state is good for nothing else.
pub(crate) struct Locked<'a, T> {
    state: MutexGuard<'a, T>,
    bell: &'a Bell,
}

impl<'a, T> Locked<'a, T> {
    pub(crate) fn of(state: &'a Mutex<T>, bell: &'a Bell) -> Self {
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        Self { state, bell }
    }

    /// Unless somebody else has it in hand.
    pub(crate) fn try_of(state: &'a Mutex<T>, bell: &'a Bell) -> Option<Self> {
        let state = match state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Self { state, bell })
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.bell.broken.store(true, Ordering::Release);
            self.bell.wake.notify_one();
        }
    }
}

/// Everything behind the endpoint's lock. Connections are looked at without it: see `line`.
#[derive(Debug)]
pub(crate) struct State<W: Waiting> {
    pub(crate) core: W::Core,
    lines: HashMap<ConnectionHandle, Arc<Line<W>>>,
    accepted: VecDeque<Arc<Line<W>>>,
    accepting: WaitList,
    /// Set when the endpoint's handle is gone or closed.
    closing: bool,
    /// The driver ended, with an error of the socket or in order.
    ended: Option<io::ErrorKind>,
    /// What the driver is to go on with instead of its socket.
    pub(crate) next_socket: Option<Socket>,
}

impl<W: Waiting> State<W> {
    /// The connection, if it is lent.
    pub(crate) fn line(&self, handle: ConnectionHandle) -> Option<Arc<Line<W>>> {
        self.lines.get(&handle).cloned()
    }

    /// Nobody will accept any more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        self.accepting.wake();
    }

    /// Whether the endpoint was closed and all its connections are over, or somebody ended it.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some() || (self.closing && self.lines.is_empty())
    }
}

/// What connections tell their endpoint; held for an instant.
#[derive(Debug)]
struct Reports<W: Waiting> {
    /// How long packets of each connection may wait.
    patience: BTreeSet<(Duration, ConnectionHandle)>,
    /// Those that wait for room in the socket.
    blocked: HashMap<ConnectionHandle, Arc<Line<W>>>,
    /// Those that wait for it to be read.
    ahead: HashMap<ConnectionHandle, Arc<Line<W>>>,
    traffic: Traffic,
    /// Sent since the driver asked.
    sent: usize,
    /// Connections on which something happens.
    busy: usize,
    idle: WaitList,
    buffers: Vec<Vec<u8>>,
}

/// Buffers for packets that are kept while nobody sends.
const SPARE_BUFFERS: usize = 16;

/// Shared by an endpoint, its connections and its tasks.
#[derive(Debug)]
pub(crate) struct Shared<W: Waiting> {
    state: Mutex<State<W>>,
    reports: Mutex<Reports<W>>,
    jobs: Mutex<Jobs<W>>,
    pub(crate) timers: Timers<Arc<Line<W>>>,
    outlet: Mutex<Arc<Outlet>>,
    /// Bytes of packets that wait for connections' tasks.
    pub(crate) waiting: AtomicUsize,
    /// Bytes sent that the socket's reader has not caught up with.
    pub(crate) unread: AtomicUsize,
    pub(crate) bell: Bell,
    ended: AtomicBool,
    pub(crate) runtime: Runtime,
    epoch: Clock,
    /// What the core's clock showed at the epoch, nanoseconds.
    started: u64,
}

/// What the core's clock shows when an endpoint starts, nanoseconds: a minute, and what the wall clock shows since its
/// last full one. Rate controllers look at moments that the clocks of hosts have in common (docs/spec/auto.md).
#[expect(
    clippy::disallowed_methods,
    reason = "the start is what hosts have in common; from there on the clock is monotonic"
)]
fn time_of_day() -> u64 {
    const MINUTE: u128 = 60_000_000_000;
    let since_full = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() % MINUTE);
    (MINUTE + since_full) as u64
}

impl<W: Waiting> Shared<W> {
    /// Starts the tasks of an endpoint; call within a tokio runtime.
    pub(crate) fn start(core: W::Core, socket: Socket) -> Arc<Self> {
        let state = State {
            core,
            lines: HashMap::new(),
            accepted: VecDeque::new(),
            accepting: WaitList::default(),
            closing: false,
            ended: None,
            next_socket: None,
        };
        let reports = Reports {
            patience: BTreeSet::new(),
            blocked: HashMap::new(),
            ahead: HashMap::new(),
            traffic: Traffic::default(),
            sent: 0,
            busy: 0,
            idle: WaitList::default(),
            buffers: Vec::new(),
        };
        let shared = Arc::new(Self {
            state: Mutex::new(state),
            reports: Mutex::new(reports),
            jobs: Mutex::default(),
            timers: Timers::default(),
            outlet: Mutex::new(socket.outlet()),
            waiting: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            bell: Bell::default(),
            ended: AtomicBool::new(false),
            runtime: Runtime::current(),
            epoch: Clock::now(),
            started: time_of_day(),
        });
        shared
            .runtime
            .spawn(crate::driver::run(shared.clone(), socket));
        shared.runtime.spawn(crate::solver::run(shared.clone()));
        shared
    }

    pub(crate) fn lock(&self) -> Locked<'_, State<W>> {
        Locked::of(&self.state, &self.bell)
    }

    fn reports(&self) -> MutexGuard<'_, Reports<W>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks to be rebuilt on other threads.
    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs<W>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody panicked with a state in hand.
    pub(crate) fn is_broken(&self) -> bool {
        self.bell.broken.load(Ordering::Acquire)
    }

    /// Whether the driver ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The core's clock, shared by everyone.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.epoch.elapsed().as_nanos() as u64 + self.started)
    }

    /// Changes the endpoint's state, and has the driver follow up.
    pub(crate) fn act<T>(self: &Arc<Self>, f: impl FnOnce(Instant, &mut State<W>) -> T) -> T {
        let mut state = self.lock();
        let result = f(self.now(), &mut state);
        let unwanted = self.welcome(&mut state);
        drop(state);
        unwanted.iter().for_each(Line::release);
        self.bell.wake.notify_one();
        result
    }

    /// Takes connections that peers opened over from the core. Those that nobody will accept are given
    /// back, to be released without the endpoint's lock.
    #[must_use]
    pub(crate) fn welcome(self: &Arc<Self>, state: &mut State<W>) -> Lines<W> {
        while let Some(id) = state.core.accept() {
            if let Some(connection) = state.core.lend(id) {
                let line = Line::begin(self, id, connection);
                state.lines.insert(id, line.clone());
                state.accepted.push_back(line);
                state.accepting.wake();
            }
        }
        // Of refused clients: the core's own.
        while state.core.poll_news().is_some() {}
        match state.closing {
            true => mem::take(&mut state.accepted).into(),
            false => Vec::new(),
        }
    }

    /// Begins a connection.
    pub(crate) fn connect(
        self: &Arc<Self>,
        connect: impl FnOnce(Instant, &mut W::Core) -> Result<ConnectionHandle, Error>,
    ) -> Result<Handle<W>, Error> {
        let line = self.act(|now, state| {
            if state.ended.is_some() {
                return Err(Error::EndpointClosed);
            }
            let id = connect(now, &mut state.core)?;
            let connection = state.core.lend(id).ok_or(Error::EndpointClosed)?;
            let line = Line::begin(self, id, connection);
            state.lines.insert(id, line.clone());
            Ok(line)
        })?;
        Ok(Handle::first(line))
    }

    /// The next connection that a peer opened; `None` once the endpoint is closed or the driver
    /// ended.
    pub(crate) async fn accept(&self) -> Option<Handle<W>> {
        poll_fn(|context| {
            let mut state = self.lock();
            if let Some(line) = state.accepted.pop_front() {
                return Poll::Ready(Some(Handle::first(line)));
            }
            if state.closing || state.ended.is_some() {
                return Poll::Ready(None);
            }
            state.accepting.register(context);
            Poll::Pending
        })
        .await
    }

    /// All connections, in the order in which they began.
    pub(crate) fn lines(&self) -> Lines<W> {
        let mut lines: Lines<W> = self.lock().lines.values().cloned().collect();
        lines.sort_unstable_by_key(|line| line.id);
        lines
    }

    /// Waits until what may leave now has left, or the driver ended.
    pub(crate) async fn flush(&self) {
        for line in self.lines() {
            line.flush().await;
        }
    }

    /// Waits until nothing happens any more on any connection, or the driver ended.
    pub(crate) async fn wait_idle(&self) {
        self.bell.wake.notify_one();
        poll_fn(|context| {
            let mut reports = self.reports();
            if reports.busy == 0 || self.has_ended() {
                return Poll::Ready(());
            }
            reports.idle.register(context);
            Poll::Pending
        })
        .await;
    }

    /// The driver ends; whoever waits must learn it.
    pub(crate) fn end(&self, reason: io::ErrorKind) {
        let mut state = self.lock();
        state.ended.get_or_insert(reason);
        self.ended.store(true, Ordering::Release);
        state.accepting.wake();
        let lines = mem::take(&mut state.lines);
        let accepted = mem::take(&mut state.accepted);
        drop(state);
        drop(accepted);
        lines.values().for_each(|line| line.end());
        let mut reports = self.reports();
        reports.idle.wake();
        let (blocked, ahead) = (
            mem::take(&mut reports.blocked),
            mem::take(&mut reports.ahead),
        );
        drop(reports);
        drop((blocked, ahead));
        self.timers.clear();
        let waiting = self.jobs().end();
        drop(waiting);
        self.bell.wake.notify_one();
    }
}

/// What connections tell, and ask.
impl<W: Waiting> Shared<W> {
    /// A connection's handshake is done, or it is closed.
    pub(crate) fn learn(&self, id: ConnectionHandle, connection: &ConnectionOf<W>) {
        self.lock().core.learn(id, connection);
    }

    /// A connection goes back to the core, for `f` to do with.
    pub(crate) fn give_back(
        &self,
        id: ConnectionHandle,
        connection: Box<ConnectionOf<W>>,
        f: impl FnOnce(Instant, &mut W::Core, ConnectionHandle),
    ) {
        let mut state = self.lock();
        state.core.take_back(id, connection);
        f(self.now(), &mut state.core, id);
        drop(state);
        self.bell.wake.notify_one();
    }

    /// The task of a connection ends.
    pub(crate) fn retire(&self, line: &Arc<Line<W>>, patience: Option<Duration>) {
        let id = line.id;
        let mut reports = self.reports();
        if let Some(patience) = patience {
            reports.patience.remove(&(patience, id));
        }
        // It may have begun to wait after everyone was told of the end: it would hold the endpoint, and
        // its socket, for ever.
        let waiting = (reports.blocked.remove(&id), reports.ahead.remove(&id));
        drop(reports);
        drop(waiting);
        let _later = self.timers.set(id, None, line);
        self.jobs().forget(id);
        self.lock().lines.remove(&id);
        self.bell.wake.notify_one();
    }

    /// Something happens on one more connection.
    pub(crate) fn on_busy(&self) {
        self.reports().busy += 1;
    }

    /// And on one less.
    pub(crate) fn on_idle(&self) {
        let mut reports = self.reports();
        reports.busy -= 1;
        if reports.busy == 0 {
            reports.idle.wake();
        }
    }

    /// How long packets of a connection may wait is another now.
    pub(crate) fn set_patience(&self, id: ConnectionHandle, old: Option<Duration>, new: Duration) {
        let mut reports = self.reports();
        if let Some(old) = old {
            reports.patience.remove(&(old, id));
        }
        reports.patience.insert((new, id));
    }

    /// Longest time that packets may wait for each other while there are many. Impatient connections count as those
    /// of the shortest paths unless the socket `is_eager`.
    pub(crate) fn patience(&self, is_eager: bool) -> Duration {
        let floor = match is_eager {
            true => Duration::ZERO,
            false => LEAST_PATIENCE,
        };
        let reports = self.reports();
        let least = reports.patience.first();
        least.map_or(Duration::ZERO, |&(patience, _)| patience.max(floor))
    }

    /// Where packets leave.
    pub(crate) fn outlet(&self) -> Arc<Outlet> {
        let outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        outlet.clone()
    }

    /// From now on they leave elsewhere.
    pub(crate) fn set_outlet(&self, outlet: Arc<Outlet>) {
        *self.outlet.lock().unwrap_or_else(PoisonError::into_inner) = outlet;
    }

    /// A connection's packets found no room in the socket: it is woken when there is.
    pub(crate) fn wait_for_room(&self, line: Arc<Line<W>>) {
        self.reports().blocked.insert(line.id, line);
        self.bell.wake.notify_one();
    }

    /// A connection sends faster than the socket is read: it is woken when it was.
    pub(crate) fn wait_for_reader(&self, line: Arc<Line<W>>) {
        self.reports().ahead.insert(line.id, line);
        self.bell.wake.notify_one();
    }

    /// So many bytes were read, or all that there are; who waited for that goes on.
    pub(crate) fn on_read(&self, bytes: usize) {
        let less = |unread: usize| Some(unread.saturating_sub(bytes));
        let _before = self
            .unread
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let ahead = mem::take(&mut self.reports().ahead);
        ahead.values().for_each(|line| line.alert());
    }

    /// Whether some wait for room.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.reports().blocked.is_empty()
    }

    /// There may be room.
    pub(crate) fn on_room(&self) {
        let blocked = mem::take(&mut self.reports().blocked);
        blocked.values().for_each(|line| line.alert());
    }

    /// The socket took packets of `bytes` in all, or the system refuses them.
    pub(crate) fn on_sent(&self, batch: &Transmit, bytes: usize, sent: Sent) {
        let packets = batch
            .segment_size
            .map_or(1, |size| bytes.div_ceil(size.max(1)));
        let mut reports = self.reports();
        reports.sent += packets;
        match sent {
            Sent::TooLarge => reports.traffic.too_large += 1,
            _ => {
                reports.traffic.packets_sent += packets as u64;
                reports.traffic.bytes_sent += bytes as u64;
            }
        }
    }

    /// Packets came, so many bytes in all.
    pub(crate) fn on_received(&self, packets: usize, bytes: usize) {
        let mut reports = self.reports();
        reports.traffic.packets_received += packets as u64;
        reports.traffic.bytes_received += bytes as u64;
    }

    /// Packets sent since this was asked last.
    pub(crate) fn take_sent(&self) -> usize {
        mem::take(&mut self.reports().sent)
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.reports().traffic
    }

    /// A buffer for packets.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.reports().buffers.pop().unwrap_or_default()
    }

    /// One that is not needed now.
    pub(crate) fn leave_buffer(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut reports = self.reports();
        if reports.buffers.len() < SPARE_BUFFERS {
            reports.buffers.push(buffer);
        }
    }
}
