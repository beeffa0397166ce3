//! The task that hands packets from a socket to a core and its connections, wakes connections whose
//! time has come, and sends what is the core's own.
//!
//! A connection for which alone something came is driven here and now, as if there were no other; of
//! several each is driven by its own task (`line`), on another core if there is one. While the socket is
//! busy, packets wait for each other up to the connections' patience ([`Cadence`]): the core is told when
//! each arrived, so nothing that it measures changes.

use crate::alarm::Alarm;
use crate::cadence::Cadence;
use crate::line::Line;
use crate::shared::{Shared, Waiting};
use crate::socket::{Sent, Socket, Train, Watch};
use crate::sync::yield_now;
use dfcp_proto::Instant;
use dfcp_proto::host::{Core, Transmit};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Packet batches received before sending gets its turn.
const RECEIVE_BATCHES: usize = 4;
/// Sends before receiving, or another task, gets its turn.
const SEND_BATCHES: usize = 16;
/// Bytes that all connections together send before the socket is read: a quarter of its buffer. What is
/// sent may come back as fast (over loopback it does), and who reads may wait for a core meanwhile.
const MAX_UNREAD: usize = 1 << 20;

/// Bytes of a batch that takes long enough to be made for the time to be read again: half of what one
/// system call takes, some tens of microseconds.
const LARGE_BATCH: usize = 32_000;

/// Runs until the endpoint is closed and all its connections are over, or the socket fails.
pub(crate) async fn run<W: Waiting>(shared: Arc<Shared<W>>, mut socket: Socket) {
    let mut end = End::of(&shared);
    let result = drive(&shared, &mut socket).await;
    end.reason = result
        .err()
        .map_or(io::ErrorKind::NotConnected, |e| e.kind());
}

/// Tells everyone who waits that nothing more will happen, also when its task panics or is dropped
/// with its runtime.
pub(crate) struct End<'a, W: Waiting> {
    shared: &'a Shared<W>,
    reason: io::ErrorKind,
}

impl<'a, W: Waiting> End<'a, W> {
    pub(crate) fn of(shared: &'a Shared<W>) -> Self {
        let reason = io::ErrorKind::Other;
        Self { shared, reason }
    }

    /// The task is over, its endpoint is not.
    pub(crate) fn in_order(self) {
        std::mem::forget(self);
    }
}

impl<W: Waiting> Drop for End<'_, W> {
    fn drop(&mut self) {
        self.shared.end(self.reason);
    }
}

async fn drive<W: Waiting>(shared: &Arc<Shared<W>>, socket: &mut Socket) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    let mut alarm = Alarm::new()?;
    let mut arrivals = Arrivals::new(shared, socket);
    loop {
        let next = shared.lock().next_socket.take();
        if let Some(next) = next {
            *socket = next;
            arrivals = Arrivals::new(shared, socket);
            shared.on_room();
        }
        let mut awake = Awake::default();
        let more_to_receive = arrivals.receive(shared, socket, &mut awake)?;
        for line in shared.timers.take_due(shared.now()) {
            awake.add(&line);
        }
        let own = outgoing.send(shared, |now, segments, outgoing| {
            let core = &mut shared.lock().core;
            core.handle_timeout(now);
            outgoing.next = core.poll_transmit(now, segments, &mut outgoing.buffer);
        });
        awake.drive();
        let (deadline, over) = {
            let state = shared.lock();
            (state.core.poll_timeout(), state.is_over())
        };
        if shared.is_broken() {
            return Err(io::Error::other("a task panicked"));
        }
        if over {
            return Ok(());
        }
        if more_to_receive || matches!(own, Progress::More | Progress::Ahead) {
            // Other tasks share this thread: connections, and the application's.
            yield_now().await;
            continue;
        }
        let now = shared.now();
        arrivals.cadence.count(now, shared.take_sent());
        let is_eager = arrivals.cadence.is_eager();
        arrivals.cadence.set_patience(shared.patience(is_eager));
        let look = arrivals.cadence.next_look(now);
        let is_blocked = own == Progress::Blocked || shared.is_blocked();
        socket.watch(match (is_blocked, look) {
            (true, _) => Watch::ArrivalsAndRoom,
            (false, None) => Watch::Arrivals,
            (false, Some(_)) => Watch::Nothing,
        })?;
        let deadline = deadline.filter(|_| own != Progress::Blocked);
        let each = [deadline, look, shared.timers.await_next()];
        let until = each.into_iter().flatten().min();
        tokio::select! {
            ready = poll_fn(|cx| socket.poll_ready(cx)) => {
                ready?;
                shared.on_room();
            }
            () = shared.bell.wake.notified() => {}
            rung = alarm.wait(now, until) => rung?,
        }
    }
}

/// Connections to which something happened, each once as a rule.
struct Awake<W: Waiting>(Vec<Arc<Line<W>>>);

impl<W: Waiting> Default for Awake<W> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Connections that are looked through for one that is there already.
const RECENT: usize = 8;

impl<W: Waiting> Awake<W> {
    fn add(&mut self, line: &Arc<Line<W>>) {
        let mut recent = self.0.iter().rev().take(RECENT);
        if !recent.any(|known| Arc::ptr_eq(known, line)) {
            self.0.push(line.clone());
        }
    }

    fn drive(self) {
        match &self.0[..] {
            [only] => only.drive(),
            several => several.iter().for_each(|line| line.alert()),
        }
    }
}

/// What arrives at the socket.
struct Arrivals {
    cadence: Cadence,
    /// When there was last nothing left to take: all that comes after that arrived later.
    taken: Instant,
}

/// Connections and which packets of a train are theirs.
type Runs<W> = Vec<(Arc<Line<W>>, Range<usize>)>;

impl Arrivals {
    fn new<W: Waiting>(shared: &Shared<W>, socket: &Socket) -> Self {
        Self {
            cadence: Cadence::new(socket.buffers.receive),
            taken: shared.now(),
        }
    }

    /// Hands what arrived to the core and to connections; true if more may be waiting.
    fn receive<W: Waiting>(
        &mut self,
        shared: &Arc<Shared<W>>,
        socket: &mut Socket,
        awake: &mut Awake<W>,
    ) -> io::Result<bool> {
        for _ in 0..RECEIVE_BATCHES {
            let now = shared.now();
            let mut bytes = 0;
            let (taken, cadence) = (self.taken, &mut self.cadence);
            let received = socket.receive(|mut train| {
                bytes += train.bytes.len();
                let at = (shared.now() - train.age).max(taken);
                for (line, packets) in route(shared, at, &mut train) {
                    cadence.arrived(packets.len(), line.is_impatient());
                    line.deliver(at, &mut train, packets);
                    awake.add(&line);
                }
            })?;
            shared.on_received(received.datagrams, bytes);
            self.cadence.count(now, received.datagrams);
            let read = if received.is_last { usize::MAX } else { bytes };
            shared.on_read(read);
            if received.is_last {
                self.taken = now;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Gives the core what is its own of a train, and says whose the other packets are.
fn route<W: Waiting>(shared: &Arc<Shared<W>>, at: Instant, train: &mut Train<'_>) -> Runs<W> {
    let mut runs: Runs<W> = Vec::new();
    let mut state = shared.lock();
    let (remote, ecn) = (train.remote, train.ecn);
    for (i, packet) in train.packets().enumerate() {
        let Some(handle) = state.core.handle_datagram(at, remote, ecn, packet) else {
            continue;
        };
        match runs.last_mut() {
            Some((line, run)) if line.id == handle && run.end == i => run.end += 1,
            _ => runs.extend(state.line(handle).map(|line| (line, i..i + 1))),
        }
    }
    let unwanted = shared.welcome(&mut state);
    drop(state);
    unwanted.iter().for_each(Line::release);
    runs
}

/// Packets that the core gave and the socket has not taken.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) buffer: Vec<u8>,
    pub(crate) next: Option<Transmit>,
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More may leave at once.
    More,
    /// More may leave when the socket was read.
    Ahead,
    /// There is nothing more.
    Done,
    /// The socket has no room.
    Blocked,
}

impl Outgoing {
    /// Sends what may go now; `fill` gets the next packets from the core, if there are any.
    pub(crate) fn send<W: Waiting>(
        &mut self,
        shared: &Shared<W>,
        mut fill: impl FnMut(Instant, usize, &mut Self),
    ) -> Progress {
        let outlet = shared.outlet();
        if self.buffer.capacity() == 0 {
            self.buffer = shared.take_buffer();
        }
        // One time for all: what the pacer earns meanwhile is no group yet, but would leave as one.
        let mut now = shared.now();
        for _ in 0..SEND_BATCHES {
            if shared.unread.load(Ordering::Relaxed) > MAX_UNREAD {
                return Progress::Ahead;
            }
            if self.next.is_none() {
                self.buffer.clear();
                fill(now, outlet.max_segments(), self);
            }
            let Some(next) = &self.next else {
                shared.leave_buffer(std::mem::take(&mut self.buffer));
                return Progress::Done;
            };
            let sent = outlet.try_send(next, &self.buffer);
            if sent == Sent::Blocked {
                return Progress::Blocked;
            }
            let bytes = self.buffer.len();
            shared.on_sent(next, bytes, sent);
            self.next = None;
            shared.unread.fetch_add(bytes, Ordering::Relaxed);
            if bytes >= LARGE_BATCH {
                now = shared.now();
            }
        }
        Progress::More
    }
}
