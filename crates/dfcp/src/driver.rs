//! The task that moves packets between a socket and a core, and watches the clock.
//!
//! While the socket is busy, packets wait for each other up to the core's patience ([`Cadence`]):
//! the core is told when each arrived, so nothing that it measures changes.

use crate::alarm::Alarm;
use crate::cadence::Cadence;
use crate::shared::{Shared, Waiting};
use crate::socket::{Sent, Socket, Watch};
use dfcp_proto::Instant;
use dfcp_proto::host::{Core, Transmit};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

/// Packet batches received before sending gets its turn.
const RECEIVE_BATCHES: usize = 4;
/// Sends before receiving gets its turn.
const SEND_BATCHES: usize = 16;

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
}

impl<W: Waiting> Drop for End<'_, W> {
    fn drop(&mut self) {
        self.shared.lock().end(self.reason);
        self.shared.wake.notify_one();
    }
}

async fn drive<W: Waiting>(shared: &Shared<W>, socket: &mut Socket) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    let mut alarm = Alarm::new()?;
    let mut arrivals = Arrivals {
        cadence: Cadence::new(socket.buffers.receive),
        taken: shared.now(),
    };
    loop {
        if let Some(next) = shared.lock().next_socket.take() {
            arrivals.cadence = Cadence::new(next.buffers.receive);
            *socket = next;
        }
        let more_to_receive = arrivals.receive(shared, socket)?;
        let (more_to_send, deadline, over) =
            transmit(shared, socket, &mut outgoing, &mut arrivals.cadence);
        if shared.is_broken() {
            return Err(io::Error::other("a task panicked"));
        }
        if over {
            return Ok(());
        }
        if more_to_receive || more_to_send {
            // Other tasks (the application's) share this thread.
            tokio::task::yield_now().await;
            continue;
        }
        let now = shared.now();
        let look = arrivals.cadence.next_look(now);
        socket.watch(match (&outgoing.blocked, look) {
            (Some(_), _) => Watch::ArrivalsAndRoom,
            (None, None) => Watch::Arrivals,
            (None, Some(_)) => Watch::Nothing,
        })?;
        let until = [deadline, look].into_iter().flatten().min();
        tokio::select! {
            ready = poll_fn(|cx| socket.poll_ready(cx)) => ready?,
            () = shared.wake.notified() => {}
            rung = alarm.wait(now, until) => rung?,
        }
    }
}

/// What arrives at the socket.
struct Arrivals {
    cadence: Cadence,
    /// When there was last nothing left to take: all that comes after that arrived later.
    taken: Instant,
}

impl Arrivals {
    /// Hands what arrived to the core; true if more may be waiting.
    fn receive<W: Waiting>(&mut self, shared: &Shared<W>, socket: &mut Socket) -> io::Result<bool> {
        for _ in 0..RECEIVE_BATCHES {
            let now = shared.now();
            let mut batch = None;
            let received = socket.receive(|remote, ecn, age, packet| {
                let (now, state) = batch.get_or_insert_with(|| (shared.now(), shared.lock()));
                let at = (*now - age).max(self.taken);
                state.receive(at, remote, ecn, packet);
            })?;
            if let Some((now, mut state)) = batch {
                state.collect(now);
            }
            self.cadence.count(now, received.datagrams);
            if received.is_last {
                self.taken = now;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Packets that the core gave and the socket has not taken.
#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    blocked: Option<Transmit>,
}

/// Sends what may go now. Returns whether more may go at once, when to look again, and whether
/// everything is over.
fn transmit<W: Waiting>(
    shared: &Shared<W>,
    socket: &mut Socket,
    outgoing: &mut Outgoing,
    cadence: &mut Cadence,
) -> (bool, Option<Instant>, bool) {
    let segments = socket.max_segments();
    let mut full = true;
    // One time for all: what the pacer earns meanwhile is no group yet, but would leave as one.
    let mut now = shared.now();
    for _ in 0..SEND_BATCHES {
        if outgoing.blocked.is_none() {
            outgoing.buffer.clear();
            outgoing.blocked = shared.lock().transmit(now, segments, &mut outgoing.buffer);
        }
        let Some(next) = &outgoing.blocked else {
            full = false;
            break;
        };
        let sent = socket.try_send(next, &outgoing.buffer);
        if sent == Sent::Blocked {
            full = false;
            break;
        }
        let bytes = outgoing.buffer.len();
        cadence.count(
            now,
            next.segment_size
                .map_or(1, |size| bytes.div_ceil(size.max(1))),
        );
        shared.lock().on_sent(next, bytes, sent);
        outgoing.blocked = None;
        if bytes >= LARGE_BATCH {
            now = shared.now();
        }
    }
    let mut state = shared.lock();
    state.collect(shared.now());
    cadence.set_patience(state.core.coalescing_delay());
    let deadline = match outgoing.blocked {
        Some(_) => None,
        None => state.core.poll_timeout(),
    };
    (full, deadline, state.is_over())
}
