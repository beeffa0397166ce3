//! The task that moves packets between a socket and a core, and watches the clock.

use crate::shared::Shared;
use crate::socket::{Batch, Sent, Socket};
use dfcp_proto::Instant;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Packet batches received before sending gets its turn.
const RECEIVE_BATCHES: usize = 4;
/// Sends before receiving gets its turn.
const SEND_BATCHES: usize = 16;

/// What the driver needs of the state behind the lock: a core, and who waits for it.
pub(crate) trait Core: Send {
    /// A packet arrived.
    fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: u8, packet: &mut [u8]);

    /// Moves news out of the core to those who wait for it.
    fn collect(&mut self, now: Instant);

    /// Lets due timers expire, then appends packets that may leave now to `out`.
    fn transmit(&mut self, now: Instant, max_segments: usize, out: &mut Vec<u8>) -> Option<Batch>;

    /// The socket took a batch of `bytes`, or the system refuses it.
    fn on_sent(&mut self, _batch: &Batch, _bytes: usize, _sent: Sent) {}

    /// When to look again though nothing happens.
    fn deadline(&self) -> Option<Instant>;

    /// Whether the endpoint was closed and all its connections are over.
    fn is_over(&self) -> bool;

    /// The driver ends; whoever waits must learn it.
    fn end(&mut self, reason: io::ErrorKind);
}

/// Runs until the endpoint is closed and all its connections are over, or the socket fails.
pub(crate) async fn run<C: Core>(shared: std::sync::Arc<Shared<C>>, mut socket: Socket) {
    let result = drive(&shared, &mut socket).await;
    let reason = result
        .err()
        .map_or(io::ErrorKind::NotConnected, |e| e.kind());
    shared.lock().end(reason);
}

async fn drive<C: Core>(shared: &Shared<C>, socket: &mut Socket) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    loop {
        let more_to_receive = receive(shared, socket)?;
        let (more_to_send, deadline, over) = transmit(shared, socket, &mut outgoing);
        if over {
            return Ok(());
        }
        if more_to_receive || more_to_send {
            // Other tasks (the application's) share this thread.
            tokio::task::yield_now().await;
            continue;
        }
        let now = shared.now();
        let wait = deadline.map_or(Duration::from_secs(3600), |d| d.saturating_since(now));
        tokio::select! {
            ready = poll_fn(|cx| socket.poll_readable(cx)) => ready?,
            ready = socket.writable(), if outgoing.blocked.is_some() => ready?,
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Hands what arrived to the core; true if more may be waiting.
fn receive<C: Core>(shared: &Shared<C>, socket: &mut Socket) -> io::Result<bool> {
    for _ in 0..RECEIVE_BATCHES {
        let mut state = None;
        let now = shared.now();
        let count = socket.receive(|remote, ecn, packet| {
            let state = state.get_or_insert_with(|| shared.lock());
            state.receive(now, remote, ecn, packet);
        })?;
        if let Some(mut state) = state {
            state.collect(now);
        }
        if count == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Packets that the core gave and the socket has not taken.
#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    blocked: Option<Batch>,
}

/// Sends what may go now. Returns whether more may go at once, when to look again, and whether
/// everything is over.
fn transmit<C: Core>(
    shared: &Shared<C>,
    socket: &Socket,
    outgoing: &mut Outgoing,
) -> (bool, Option<Instant>, bool) {
    let segments = socket.max_segments();
    let mut full = true;
    for _ in 0..SEND_BATCHES {
        if outgoing.blocked.is_none() {
            outgoing.buffer.clear();
            let now = shared.now();
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
        shared.lock().on_sent(next, outgoing.buffer.len(), sent);
        outgoing.blocked = None;
    }
    let mut state = shared.lock();
    state.collect(shared.now());
    let deadline = match outgoing.blocked {
        Some(_) => None,
        None => state.deadline(),
    };
    (full, deadline, state.is_over())
}
