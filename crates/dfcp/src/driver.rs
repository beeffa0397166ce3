//! The task that moves datagrams between the socket and the core, and watches the clock.

use crate::shared::Shared;
use crate::socket::Socket;
use dfcp_proto::{Instant, Transmit};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Datagram batches received before sending gets its turn.
const RECEIVE_BATCHES: usize = 4;
/// Sends before receiving gets its turn.
const SEND_BATCHES: usize = 16;

/// Runs until the endpoint is closed and all its connections are over, or the socket fails.
pub(crate) async fn run(shared: Arc<Shared>, mut socket: Socket) {
    let result = drive(&shared, &mut socket).await;
    let mut state = shared.lock();
    state.ended = Some(
        result
            .err()
            .map_or(io::ErrorKind::NotConnected, |e| e.kind()),
    );
    state.accepting.wake();
    state.idle.wake();
    for connection in state.connections.values_mut() {
        connection.waiting.wake();
        connection.writers.wake();
        connection
            .channels
            .values_mut()
            .for_each(|c| c.waiting.wake());
    }
}

async fn drive(shared: &Shared, socket: &mut Socket) -> io::Result<()> {
    let mut outgoing = Outgoing::default();
    loop {
        let more_to_receive = receive(shared, socket)?;
        let (more_to_send, deadline, over) = transmit(shared, socket, &mut outgoing)?;
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
fn receive(shared: &Shared, socket: &mut Socket) -> io::Result<bool> {
    for _ in 0..RECEIVE_BATCHES {
        let mut state = None;
        let now = shared.now();
        let count = socket.receive(|remote, ecn, datagram| {
            let state = state.get_or_insert_with(|| shared.lock());
            let Some(handle) = state.core.handle_datagram(now, remote, ecn, datagram) else {
                return;
            };
            let Some(connection) = state.core.connection(handle) else {
                return;
            };
            // Dense blocks solve in microseconds: not worth another thread.
            while let Some(mut job) = connection.take_solve_job() {
                job.run();
                connection.finish_solve(now, job);
            }
        })?;
        if let Some(mut state) = state {
            state.collect();
        }
        if count == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Datagrams that the core gave and the socket has not taken.
#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    blocked: Option<Transmit>,
}

/// Sends what may go now. Returns whether more may go at once, when to look again, and whether
/// everything is over.
fn transmit(
    shared: &Shared,
    socket: &Socket,
    outgoing: &mut Outgoing,
) -> io::Result<(bool, Option<Instant>, bool)> {
    let segments = socket.max_segments();
    let mut full = true;
    for _ in 0..SEND_BATCHES {
        if outgoing.blocked.is_none() {
            outgoing.buffer.clear();
            let mut state = shared.lock();
            let now = shared.now();
            state.core.handle_timeout(now);
            outgoing.blocked = state
                .core
                .poll_transmit(now, segments, &mut outgoing.buffer);
        }
        let Some(next) = &outgoing.blocked else {
            full = false;
            break;
        };
        if !socket.try_send(next, &outgoing.buffer)? {
            full = false;
            break;
        }
        outgoing.blocked = None;
    }
    let mut state = shared.lock();
    state.collect();
    let over = state.closing && state.connections.is_empty();
    let deadline = if outgoing.blocked.is_some() {
        None
    } else {
        state.core.poll_timeout().map(|(time, _)| time)
    };
    Ok((full, deadline, over))
}
