//! Connections: streams, objects, statistics, the end.

use crate::driver::Core;
use crate::error::Error;
use crate::object::IncomingObject;
use crate::shared::{ConnectionState, Shared};
use crate::stream::{RecvStream, SendStream};
use dfcp_proto::{
    ChannelId, ChannelKind, CloseCode, ConnectionError, ConnectionHandle, ConnectionStats,
    PublicKey, VarInt,
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
    peer: PublicKey,
}

/// A stream's or an object's hold on its channel: what the driver knows of the channel goes with the
/// last one.
#[derive(Debug)]
pub(crate) struct Held {
    shared: Arc<Shared>,
    handle: ConnectionHandle,
    id: ChannelId,
}

impl Held {
    pub(crate) fn new(connection: &Connection, id: ChannelId) -> Self {
        let (shared, handle) = (connection.shared.clone(), connection.handle);
        shared.lock().hold(handle, id);
        Self { shared, handle, id }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.lock().let_go(self.handle, self.id);
    }
}

impl Clone for Connection {
    fn clone(&self) -> Self {
        if let Some((_, state)) = self.shared.lock().get(self.handle) {
            state.handles += 1;
        }
        Self {
            shared: self.shared.clone(),
            handle: self.handle,
            peer: self.peer,
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
    pub(crate) fn new(shared: Arc<Shared>, handle: ConnectionHandle, peer: PublicKey) -> Self {
        Self {
            shared,
            handle,
            peer,
        }
    }

    /// Waits for the end of the handshake of an attempt that [`new`](Self::new) made, whose peer is
    /// known only then. Dropping the future closes the attempt.
    pub(crate) async fn established(mut self) -> Result<Self, Error> {
        self.peer = self.handshake().await?;
        Ok(self)
    }

    async fn handshake(&self) -> Result<PublicKey, Error> {
        poll_fn(|context| {
            self.shared
                .poll_connection(self.handle, |_, connection, ours| {
                    if let Some(error) = &ours.error {
                        return Poll::Ready(Err(error.clone().into()));
                    }
                    if let Some(peer) = connection.peer().filter(|_| connection.is_established()) {
                        return Poll::Ready(Ok(peer));
                    }
                    ours.waiting.register(context);
                    Poll::Pending
                })
        })
        .await
    }

    /// The peer's key, which it proved.
    pub fn peer(&self) -> PublicKey {
        self.peer
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
    pub(crate) fn stop_channel(&self, id: ChannelId, code: VarInt) {
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

#[cfg(test)]
mod tests {
    use crate::{Endpoint, EndpointConfig, generate_key};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn nothing_is_remembered_of_streams_that_are_over() {
        let bind = "127.0.0.1:0".parse().expect("an address");
        let key = || generate_key().expect("a key");
        let server = Endpoint::bind(EndpointConfig::server(key(), bind)).expect("binds");
        let client = Endpoint::bind(EndpointConfig::client(key())).expect("binds");
        let connect = client.connect(server.local_addr(), None);
        let (near, far) = tokio::join!(connect, server.accept());
        let (near, far) = (near.expect("connects"), far.expect("accepts"));
        for _ in 0..100 {
            let (mut out, back) = near.open_stream().await.expect("opens");
            out.write_all(b"news").await.expect("fits");
            out.finish().await.expect("arrives");
            let (answer, mut inside) = far.accept_stream().await.expect("comes");
            let mut text = String::new();
            inside.read_to_string(&mut text).await.expect("is complete");
            drop((out, back, answer, inside));
        }
        for side in [&near, &far] {
            let mut state = side.shared.lock();
            let (_, ours) = state.get(side.handle).expect("lives");
            assert_eq!(ours.channels.len(), 0);
        }
    }
}
