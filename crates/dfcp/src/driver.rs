//! The task that hands packets from a socket to a core and its connections, and sends what is the
//! core's own; connections send by themselves (`line`).
//!
//! While the socket is busy, packets wait for each other up to the connections' patience
//! ([`Cadence`]): the core is told when each arrived, so nothing that it measures changes.

use crate::alarm::Alarm;
use crate::cadence::Cadence;
use crate::line::Line;
use crate::shared::{Shared, Waiting};
use crate::socket::{Sent, Socket, Watch};
use dfcp_proto::Instant;
use dfcp_proto::host::{Core, Transmit};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

/// Packet batches received before sending gets its turn.
const RECEIVE_BATCHES: usize = 4;
/// Sends before receiving, or another task, gets its turn.
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
    pub(crate) reason: io::ErrorKind,
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
    let mut arrivals = Arrivals {
        cadence: Cadence::new(socket.buffers.receive),
        taken: shared.now(),
    };
    loop {
        let next = shared.lock().next_socket.take();
        if let Some(next) = next {
            arrivals.cadence = Cadence::new(next.buffers.receive);
            *socket = next;
            shared.on_room();
        }
        let more_to_receive = arrivals.receive(shared, socket)?;
        let sent = outgoing.send(shared, |now, segments, outgoing| {
            let core = &mut shared.lock().core;
            core.handle_timeout(now);
            outgoing.next = core.poll_transmit(now, segments, &mut outgoing.buffer);
        });
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
        if more_to_receive || sent.more {
            // Other tasks share this thread: connections, and the application's.
            tokio::task::yield_now().await;
            continue;
        }
        let now = shared.now();
        arrivals.cadence.count(now, shared.take_sent());
        arrivals.cadence.set_patience(shared.patience());
        let look = arrivals.cadence.next_look(now);
        let is_blocked = sent.is_blocked || shared.is_blocked();
        socket.watch(match (is_blocked, look) {
            (true, _) => Watch::ArrivalsAndRoom,
            (false, None) => Watch::Arrivals,
            (false, Some(_)) => Watch::Nothing,
        })?;
        let deadline = deadline.filter(|_| !sent.is_blocked);
        let until = [deadline, look].into_iter().flatten().min();
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

/// What arrives at the socket.
struct Arrivals {
    cadence: Cadence,
    /// When there was last nothing left to take: all that comes after that arrived later.
    taken: Instant,
}

impl Arrivals {
    /// Hands what arrived to the core and to connections; true if more may be waiting.
    fn receive<W: Waiting>(
        &mut self,
        shared: &Arc<Shared<W>>,
        socket: &mut Socket,
    ) -> io::Result<bool> {
        for _ in 0..RECEIVE_BATCHES {
            let now = shared.now();
            let mut batch = None;
            // Connections that got something, each once as a rule.
            let mut woken: Vec<Arc<Line<W>>> = Vec::new();
            let mut bytes = 0;
            let received = socket.receive(|remote, ecn, age, packet| {
                let (now, state) = batch.get_or_insert_with(|| (shared.now(), shared.lock()));
                let at = (*now - age).max(self.taken);
                bytes += packet.len();
                let Some(line) = state.route(at, remote, ecn, packet) else {
                    return;
                };
                line.deliver(at, remote, ecn, packet);
                if !woken
                    .iter()
                    .rev()
                    .take(4)
                    .any(|known| Arc::ptr_eq(known, line))
                {
                    woken.push(line.clone());
                }
            })?;
            if let Some((_, mut state)) = batch {
                let unwanted = shared.welcome(&mut state);
                drop(state);
                unwanted.iter().for_each(Line::release);
                woken.iter().for_each(|line| line.alert());
                shared.on_received(received.datagrams, bytes);
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
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) buffer: Vec<u8>,
    pub(crate) next: Option<Transmit>,
}

/// What came of sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// More may leave at once.
    pub(crate) more: bool,
    /// The socket has no room.
    pub(crate) is_blocked: bool,
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
            if self.next.is_none() {
                self.buffer.clear();
                fill(now, outlet.max_segments(), self);
            }
            let Some(next) = &self.next else {
                shared.leave_buffer(std::mem::take(&mut self.buffer));
                return Progress {
                    more: false,
                    is_blocked: false,
                };
            };
            let sent = outlet.try_send(next, &self.buffer);
            if sent == Sent::Blocked {
                return Progress {
                    more: false,
                    is_blocked: true,
                };
            }
            let bytes = self.buffer.len();
            shared.on_sent(next, bytes, sent);
            self.next = None;
            if bytes >= LARGE_BATCH {
                now = shared.now();
            }
        }
        Progress {
            more: true,
            is_blocked: false,
        }
    }
}
