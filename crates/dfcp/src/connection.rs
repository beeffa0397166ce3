//! Connections: streams, objects, statistics, the end.

use crate::driver::Core;
use crate::error::Error;
use crate::object::IncomingObject;
use crate::shared::{ConnectionState, Shared};
use crate::stream::{RecvStream, SendStream};
use dfcp_proto::{
    ChannelId, ChannelKind, CloseCode, ConnectionError, ConnectionHandle, ConnectionStats,
    PublicKey,
};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A connection; clones share it. It closes when the last clone and the last of its streams are
/// gone, or by [`Connection::close`].
#[derive(Debug)]
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: ConnectionHandle,
}

impl Clone for Connection {
    fn clone(&self) -> Self {
        if let Some((_, state)) = self.shared.lock().get(self.handle) {
            state.handles += 1;
        }
        Self {
            shared: self.shared.clone(),
            handle: self.handle,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.lock().release(now, self.handle);
        self.shared.wake.notify_one();
    }
}

impl Connection {
    /// Takes over one count of the connection's handles.
    pub(crate) fn new(shared: Arc<Shared>, handle: ConnectionHandle) -> Self {
        Self { shared, handle }
    }

    pub(crate) async fn handshake(&self) -> Result<(), Error> {
        poll_fn(|context| {
            self.shared
                .poll_connection(self.handle, |_, connection, ours| {
                    if let Some(error) = &ours.error {
                        return Poll::Ready(Err(error.clone().into()));
                    }
                    if connection.is_established() {
                        return Poll::Ready(Ok(()));
                    }
                    ours.waiting.register(context);
                    Poll::Pending
                })
        })
        .await
    }

    /// The peer's key, which it proved.
    pub fn peer(&self) -> PublicKey {
        let mut state = self.shared.lock();
        let peer = state
            .get(self.handle)
            .and_then(|(connection, _)| connection.peer());
        // Handles exist only after the handshake.
        peer.unwrap_or(PublicKey([0; 32]))
    }

    /// The peer's address now.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.shared
            .lock()
            .get(self.handle)
            .map(|(connection, _)| connection.remote_address())
    }

    /// Counters and estimates.
    pub fn stats(&self) -> ConnectionStats {
        let mut state = self.shared.lock();
        state
            .get(self.handle)
            .map(|(connection, _)| connection.stats())
            .unwrap_or_default()
    }

    /// Opens a stream; waits while the peer allows no further one.
    pub async fn open_stream(&self) -> Result<(SendStream, RecvStream), Error> {
        let id = self.open(ChannelKind::Stream).await?;
        Ok(self.stream(id))
    }

    /// The next stream that the peer opened.
    pub async fn accept_stream(&self) -> Result<(SendStream, RecvStream), Error> {
        let id = self.next_opened(ChannelKind::Stream).await?;
        Ok(self.stream(id))
    }

    /// The next object that the peer sends.
    pub async fn accept_object(&self) -> Result<IncomingObject, Error> {
        let id = self.next_opened(ChannelKind::Object).await?;
        Ok(IncomingObject::new(self.clone(), id))
    }

    fn stream(&self, id: ChannelId) -> (SendStream, RecvStream) {
        (
            SendStream::new(self.clone(), id),
            RecvStream::new(self.clone(), id),
        )
    }

    pub(crate) async fn open(&self, kind: ChannelKind) -> Result<ChannelId, Error> {
        poll_fn(|context| {
            self.poll(context, |connection, ours| {
                let id = connection.open(kind)?;
                ours.channels.entry(id).or_default();
                Some(id)
            })
        })
        .await
    }

    async fn next_opened(&self, kind: ChannelKind) -> Result<ChannelId, Error> {
        poll_fn(|context| self.poll(context, |_, ours| ours.opened[kind as usize].pop_front()))
            .await
    }

    /// Polls something that changes with the connection's events.
    fn poll<T>(
        &self,
        context: &Context<'_>,
        f: impl FnOnce(&mut dfcp_proto::Connection, &mut ConnectionState) -> Option<T>,
    ) -> Poll<Result<T, Error>> {
        self.shared
            .poll_connection(self.handle, |_, connection, ours| {
                if let Some(value) = f(connection, ours) {
                    return Poll::Ready(Ok(value));
                }
                if let Some(error) = &ours.error {
                    return Poll::Ready(Err(error.clone().into()));
                }
                ours.waiting.register(context);
                Poll::Pending
            })
    }

    /// Wants no more of what the peer sends on a channel.
    pub(crate) fn stop_channel(&self, id: ChannelId, code: u64) {
        let now = self.shared.now();
        if let Some((connection, _)) = self.shared.lock().get(self.handle) {
            connection.stop_channel(now, id, code);
            connection.end_recv(id);
        }
        self.shared.wake.notify_one();
    }

    /// Waits for the connection's end and says why it came.
    pub async fn closed(&self) -> ConnectionError {
        let result: Result<(), Error> = poll_fn(|context| self.poll(context, |_, _| None)).await;
        match result {
            Err(Error::Connection(error)) => error,
            _ => ConnectionError::LocallyClosed,
        }
    }

    /// Ends the connection at once; the peer learns `code` and `reason`. What is not known to
    /// have arrived may be lost.
    pub fn close(&self, code: CloseCode, reason: &str) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        if let Some((connection, _)) = state.get(self.handle) {
            connection.close(now, code, reason);
        }
        state.collect(now);
        drop(state);
        self.shared.wake.notify_one();
    }
}
