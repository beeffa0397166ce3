//! One connection behind a lock of its own, driven by a task of its own: connections do not wait for
//! each other, and take as many cores as the runtime has.
//!
//! The endpoint's driver gives the core what arrived (`deliver`), or leaves it in the inbox while somebody
//! else has the connection in hand. A turn (`Line::turn`) tells who waits what is new, and sends what may
//! leave; it is the task's, or the driver's own while that has nothing else to do. Of locks that are held
//! together the first to be taken is that of the turn, then the connection's, then the endpoint's.

use crate::cadence::LEAST_PATIENCE;
use crate::driver::{Outgoing, Progress};
use crate::error::Error;
use crate::inbox::Inbox;
use crate::shared::{ConnectionOf, JobOf, Locked, Shared, Waiting};
use crate::socket::Train;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Notify, yield_now};
use crate::wait_list::WaitList;
use dfcp_proto::host::{Core, CoreConnection, Solve};
use dfcp_proto::{ConnectionHandle, Duration, Instant};
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::Poll;

/// Blocks that take at least this long to rebuild go to another thread: being told and telling take
/// some 20 µs, and packets that wait meanwhile are counted late.
const WORTH_A_THREAD: Duration = Duration::from_micros(200);
/// The soonest that a line is woken by time.
const SHORTEST: Duration = Duration::from_micros(20);

/// Everything behind a connection's lock.
#[derive(Debug)]
pub(crate) struct LineState<W: Waiting> {
    /// The core's; none once the endpoint has it back.
    connection: Option<Box<ConnectionOf<W>>>,
    waiting: W,
    /// [`Handle`]s, or one for whoever accepts it; released when the last one goes.
    handles: usize,
    /// As the endpoint was told.
    is_idle: bool,
    patience: Option<Duration>,
    /// The latest time that the core was told.
    latest: Instant,
    /// How often everything that may leave had left, and who waits for the next time.
    rests: u64,
    resting: WaitList,
}

impl<W: Waiting> LineState<W> {
    /// Nobody waits for this connection's packets: they left, or never will.
    fn on_rest(&mut self) {
        self.rests += 1;
        self.resting.wake();
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Line<W: Waiting> {
    shared: Arc<Shared<W>>,
    pub(crate) id: ConnectionHandle,
    state: Mutex<LineState<W>>,
    inbox: Mutex<Inbox>,
    /// Held by whoever sends.
    outgoing: Mutex<Outgoing>,
    /// Whether its packets can wait for less than those of others.
    is_impatient: AtomicBool,
    /// Tells the task that there is something to do.
    wake: Notify,
}

impl<W: Waiting> Drop for Line<W> {
    fn drop(&mut self) {
        // What came too late waits no longer.
        let inbox = self.inbox.get_mut().unwrap_or_else(PoisonError::into_inner);
        let late = inbox.held();
        self.shared.waiting.fetch_sub(late, Ordering::Relaxed);
    }
}

/// What the task does next.
enum Next {
    /// More of the same, after other tasks.
    GoOn,
    /// Waits to be woken.
    Wait,
    /// The connection is over, or the endpoint.
    End,
}

impl<W: Waiting> Line<W> {
    /// A connection that the core lent, with one handle, and its task.
    pub(crate) fn begin(
        shared: &Arc<Shared<W>>,
        id: ConnectionHandle,
        connection: Box<ConnectionOf<W>>,
    ) -> Arc<Self> {
        let state = LineState {
            connection: Some(connection),
            waiting: W::default(),
            handles: 1,
            is_idle: false,
            patience: None,
            latest: Instant::ZERO,
            rests: 0,
            resting: WaitList::default(),
        };
        shared.on_busy();
        let line = Arc::new(Self {
            shared: shared.clone(),
            id,
            state: Mutex::new(state),
            inbox: Mutex::default(),
            outgoing: Mutex::default(),
            is_impatient: AtomicBool::new(false),
            wake: Notify::new(),
        });
        shared.runtime.spawn(run(line.clone()));
        line.wake.notify_one();
        line
    }

    fn lock(&self) -> Locked<'_, LineState<W>> {
        Locked::of(&self.state, &self.shared.bell)
    }

    /// Packets of a train are the connection's; a turn follows. The core takes them at once unless
    /// somebody has it in hand.
    pub(crate) fn deliver(&self, at: Instant, train: &mut Train<'_>, which: Range<usize>) {
        let (remote, ecn) = (train.remote, train.ecn);
        let packets = train.packets().skip(which.start).take(which.len());
        let mut inbox = self.inbox();
        // Not before what waits.
        let is_first = inbox.packets.is_empty();
        if is_first && let Some(mut state) = Locked::try_of(&self.state, &self.shared.bell) {
            drop(inbox);
            state.latest = state.latest.max(at);
            if let Some(connection) = &mut state.connection {
                packets.for_each(|packet| connection.handle_datagram(at, remote, ecn, packet));
            }
            return;
        }
        for packet in packets {
            let cost = Inbox::cost(packet);
            let waiting = self.shared.waiting.fetch_add(cost, Ordering::Relaxed);
            if !inbox.has_room(waiting) {
                self.shared.waiting.fetch_sub(cost, Ordering::Relaxed);
                break;
            }
            inbox.push(at, remote, ecn, packet);
        }
    }

    /// Whether its packets can wait for less than those of others.
    pub(crate) fn is_impatient(&self) -> bool {
        self.is_impatient.load(Ordering::Relaxed)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to do.
    pub(crate) fn alert(&self) {
        self.wake.notify_one();
    }

    /// Looks at the connection, if it is still there.
    pub(crate) fn look<T>(&self, f: impl FnOnce(&mut ConnectionOf<W>, &mut W) -> T) -> Option<T> {
        let mut state = self.lock();
        let LineState {
            connection,
            waiting,
            ..
        } = &mut *state;
        Some(f(connection.as_mut()?, waiting))
    }

    /// Changes the connection, if it is still there, and has the news told and the task follow up.
    fn change<T>(
        self: &Arc<Self>,
        f: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W) -> T,
    ) -> Option<T> {
        let mut state = self.lock();
        let now = self.shared.now();
        let LineState {
            connection,
            waiting,
            ..
        } = &mut *state;
        let result = f(now, connection.as_mut()?, waiting);
        self.collect(now, &mut state);
        drop(state);
        self.wake.notify_one();
        Some(result)
    }

    pub(crate) fn act(self: &Arc<Self>, f: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W)) {
        self.change(f);
    }

    /// Changes the connection in a way that is news to nobody and makes a report due at most: unless it
    /// does, nobody is woken for it.
    fn adjust(&self, f: impl FnOnce(Instant, &mut ConnectionOf<W>)) {
        let mut state = self.lock();
        let Some(connection) = &mut state.connection else {
            return;
        };
        let before = connection.poll_timeout();
        f(self.shared.now(), connection);
        let after = connection.poll_timeout();
        drop(state);
        let is_sooner = after.is_some_and(|after| before.is_none_or(|before| after < before));
        if is_sooner {
            self.wake.notify_one();
        }
    }

    fn attempt<T>(
        self: &Arc<Self>,
        f: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Asked with the state in hand: whoever registers in `f` is woken by the end.
        let done = self.change(|now, connection, waiting| match self.shared.has_ended() {
            true => Err(Error::EndpointClosed),
            false => f(now, connection, waiting),
        });
        done.unwrap_or(Err(Error::EndpointClosed))
    }

    /// A handle went, or the place of one.
    pub(crate) fn release(self: &Arc<Self>) {
        let mut state = self.lock();
        state.handles = state.handles.saturating_sub(1);
        if state.handles > 0 {
            return;
        }
        drop(state);
        self.act(|now, connection, waiting| waiting.release(now, connection));
    }

    /// The endpoint ended: everyone must look again.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.waiting.wake();
        state.on_rest();
        drop(state);
        self.wake.notify_one();
    }

    /// Waits until what may leave now has left, or never will.
    pub(crate) async fn flush(&self) {
        let before = self.lock().rests;
        self.wake.notify_one();
        poll_fn(|context| {
            let mut state = self.lock();
            let is_over = state.connection.is_none() || self.shared.has_ended();
            if is_over || state.rests != before {
                return Poll::Ready(());
            }
            state.resting.register(context);
            Poll::Pending
        })
        .await;
    }

    /// Moves news out of the core to those who wait for it. True if it did something to the core, which may
    /// have packets then.
    fn collect(self: &Arc<Self>, now: Instant, state: &mut LineState<W>) -> bool {
        let LineState {
            connection,
            waiting,
            handles,
            is_idle,
            ..
        } = state;
        let Some(connection) = connection.as_mut() else {
            return false;
        };
        let (is_held, mut changed) = (*handles > 0, false);
        loop {
            let solved = self.solve(now, connection);
            let news = waiting.collect(connection, is_held);
            if news.milestone {
                self.shared.learn(self.id, connection);
            }
            if news.unwanted {
                waiting.release(now, connection);
            }
            if !solved && !news.unwanted {
                break;
            }
            changed = true;
        }
        let was_idle = mem::replace(is_idle, waiting.is_idle(is_held));
        match (was_idle, *is_idle) {
            (false, true) => self.shared.on_idle(),
            (true, false) => self.shared.on_busy(),
            _ => {}
        }
        changed
    }

    /// Has blocks rebuilt, here or on another thread. True if one was.
    fn solve(self: &Arc<Self>, now: Instant, connection: &mut ConnectionOf<W>) -> bool {
        let mut solved = false;
        while let Some(mut job) = connection.take_solve_job() {
            if job.estimated_time() < WORTH_A_THREAD {
                job.run();
                connection.finish_solve(now, job);
                solved = true;
            } else {
                self.shared.jobs().push(self.id, (self.clone(), job));
            }
        }
        solved
    }

    /// A block was rebuilt.
    pub(crate) fn finish_solve(self: &Arc<Self>, job: JobOf<W>) {
        self.act(|now, connection, _| connection.finish_solve(now, job));
    }

    /// Gives the core what waits in the inbox, and tells the news.
    fn take_in(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut arrived = mem::take(&mut *self.inbox());
        let taken = arrived.held();
        self.shared.waiting.fetch_sub(taken, Ordering::Relaxed);
        for packet in mem::take(&mut arrived.packets) {
            state.latest = state.latest.max(packet.at);
            if let Some(connection) = &mut state.connection {
                let bytes = &mut arrived.bytes[packet.bytes];
                connection.handle_datagram(packet.at, packet.remote, packet.ecn, bytes);
            }
        }
        self.collect(self.shared.now(), &mut state);
    }

    /// Lets due timers expire, and appends packets that may leave to `outgoing`. If there are none, what
    /// is next.
    fn fill(
        self: &Arc<Self>,
        now: Instant,
        segments: usize,
        outgoing: &mut Outgoing,
    ) -> Option<Next> {
        let mut state = self.lock();
        // What arrived since may be told to the core already.
        let now = now.max(state.latest);
        state.latest = now;
        loop {
            let Some(connection) = &mut state.connection else {
                return Some(Next::End);
            };
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.handle_timeout(now);
            }
            outgoing.next = connection.poll_transmit(now, segments, &mut outgoing.buffer);
            if outgoing.next.is_some() {
                return None;
            }
            if !self.collect(now, &mut state) {
                return Some(self.rest(now, &mut state));
            }
        }
    }

    /// All that may leave has left: tells the endpoint when to wake the task, and how long packets may
    /// wait.
    fn rest(self: &Arc<Self>, now: Instant, state: &mut LineState<W>) -> Next {
        state.on_rest();
        let LineState {
            connection: Some(connection),
            waiting,
            handles,
            patience,
            ..
        } = state
        else {
            return Next::End;
        };
        if self.shared.has_ended() || (*handles == 0 && waiting.is_over(connection)) {
            return Next::End;
        }
        let new = connection.coalescing_delay();
        // Round trips change all the time; who waits an eighth longer or less waits as long.
        let old = patience.unwrap_or_default();
        if patience.is_none() || new.abs_diff(old) > old / 8 {
            self.shared
                .set_patience(self.id, patience.replace(new), new);
            let is_impatient = new < LEAST_PATIENCE;
            self.is_impatient.store(is_impatient, Ordering::Relaxed);
        }
        // A deadline that passed though nothing could be done must not make a busy loop.
        let due = connection.poll_timeout();
        let due = due.map(|at| at.max(now + SHORTEST));
        if self.shared.timers.set(self.id, due, self) {
            self.shared.bell.wake.notify_one();
        }
        Next::Wait
    }

    /// Gives the core what arrived, and sends what may leave.
    fn turn(self: &Arc<Self>, outgoing: &mut Outgoing) -> Next {
        self.take_in();
        let mut next = Next::GoOn;
        let sent = outgoing.send(&self.shared, |now, segments, outgoing| {
            if let Some(after) = self.fill(now, segments, outgoing) {
                next = after;
            }
        });
        match sent {
            Progress::More | Progress::Done => return next,
            Progress::Blocked => self.shared.wait_for_room(self.clone()),
            Progress::Ahead => self.shared.wait_for_reader(self.clone()),
        }
        match self.shared.has_ended() {
            true => Next::End,
            false => Next::Wait,
        }
    }

    /// A turn in the driver's task, unless somebody else has one; then, and if one is not enough, the
    /// line's own follows.
    pub(crate) fn drive(self: &Arc<Self>) {
        let next = match self.outgoing.try_lock() {
            Ok(mut outgoing) => self.turn(&mut outgoing),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => Next::GoOn,
        };
        match next {
            Next::Wait => {}
            Next::GoOn | Next::End => self.alert(),
        }
    }

    /// A turn in the line's own task.
    fn own_turn(self: &Arc<Self>) -> Next {
        let outgoing = self.outgoing.lock();
        self.turn(&mut outgoing.unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the connection back to the core.
    fn retire(self: &Arc<Self>) {
        let mut state = self.lock();
        let (connection, patience) = (state.connection.take(), state.patience.take());
        let was_idle = mem::replace(&mut state.is_idle, true);
        state.on_rest();
        drop(state);
        if let Some(connection) = connection {
            let forget = |_, core: &mut W::Core, id| core.forget(id);
            self.shared.give_back(self.id, connection, forget);
        }
        self.shared.retire(self, patience);
        if !was_idle {
            self.shared.on_idle();
        }
    }

    /// Takes the connection away from everyone.
    fn dismiss(&self) -> Option<Box<ConnectionOf<W>>> {
        let taken = self.lock().connection.take();
        self.wake.notify_one();
        taken
    }
}

/// Drives a connection until it is over and nobody holds it.
async fn run<W: Waiting>(line: Arc<Line<W>>) {
    let end = crate::driver::End::of(&line.shared);
    loop {
        match line.own_turn() {
            Next::GoOn => {
                // The socket may fill up meanwhile: who reads from it gets its turn too.
                line.shared.bell.wake.notify_one();
                yield_now().await;
            }
            Next::Wait => line.wake.notified().await,
            Next::End => break,
        }
    }
    line.retire();
    end.in_order();
}

/// A look at a connection, which does not hold it.
pub(crate) struct View<W: Waiting>(Arc<Line<W>>);

impl<W: Waiting> View<W> {
    /// Runs `poll` on the connection under the lock; `poll` registers itself with whatever it
    /// waits for.
    pub(crate) fn poll<T>(
        &self,
        poll: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W) -> Poll<Result<T, Error>>,
    ) -> Poll<Result<T, Error>> {
        let polled = self.attempt(|now, connection, ours| match poll(now, connection, ours) {
            Poll::Ready(result) => result.map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        });
        polled?.map(Ok)
    }

    /// Runs `poll` on what the driver knows of the connection, also when that is over and forgotten.
    pub(crate) fn poll_known<T>(
        &self,
        poll: impl FnOnce(&mut W) -> Poll<Result<T, Error>>,
    ) -> Poll<Result<T, Error>> {
        let mut state = self.0.lock();
        let is_over = state.connection.is_none() || self.0.shared.has_ended();
        match poll(&mut state.waiting) {
            Poll::Pending if is_over => Poll::Ready(Err(Error::EndpointClosed)),
            polled => polled,
        }
    }

    /// Changes the connection without waiting for anything; an error where it, or its endpoint, is no more.
    pub(crate) fn attempt<T>(
        &self,
        f: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.0.attempt(f)
    }

    /// Looks at the connection, if it is still there.
    pub(crate) fn look<T>(&self, f: impl FnOnce(&mut ConnectionOf<W>, &mut W) -> T) -> Option<T> {
        self.0.look(f)
    }

    /// Changes the connection, if it is still there.
    pub(crate) fn act(&self, f: impl FnOnce(Instant, &mut ConnectionOf<W>, &mut W)) {
        self.0.act(f);
    }

    /// Changes the connection, if it is still there, in a way that is news to nobody and makes a report due
    /// at most.
    pub(crate) fn adjust(&self, f: impl FnOnce(Instant, &mut ConnectionOf<W>)) {
        self.0.adjust(f);
    }

    /// Looks at the core of its endpoint.
    pub(crate) fn core<T>(&self, f: impl FnOnce(&W::Core) -> T) -> T {
        f(&self.0.shared.lock().core)
    }

    /// Takes the connection away from everyone and back to the core, for `f` to do with.
    pub(crate) fn dismiss(&self, f: impl FnOnce(Instant, &mut W::Core, ConnectionHandle)) {
        if let Some(connection) = self.0.dismiss() {
            self.0.shared.give_back(self.0.id, connection, f);
        }
    }
}

impl<W: Waiting> Clone for View<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Waiting> fmt::Debug for View<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("View").field(&self.0.id).finish()
    }
}

/// A hold on a connection; it is released when the last one goes.
#[derive(Debug)]
pub(crate) struct Handle<W: Waiting>(View<W>);

impl<W: Waiting> Handle<W> {
    /// The hold that was counted when the connection began.
    pub(crate) fn first(line: Arc<Line<W>>) -> Self {
        Self(View(line))
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
        self.0.0.lock().handles += 1;
        Self(self.0.clone())
    }
}

impl<W: Waiting> Drop for Handle<W> {
    fn drop(&mut self) {
        self.0.0.release();
    }
}
