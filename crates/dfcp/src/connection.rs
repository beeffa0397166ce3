//! Connections: streams, objects, statistics, the end.

use crate::error::Error;
use crate::object::IncomingObject;
use crate::stream::{RecvStream, SendStream};
use crate::waiting::{Changes, ConnectionState};
use bytes::Bytes;
use dfcp_proto::{
    Application, ChannelId, ChannelKind, CloseCode, ConnectionError, ConnectionStats, Datagram,
    PublicKey, VarInt,
};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::pin;
use std::task::Poll;
use tokio::sync::Notify;

/// A connection; clones share it.
///
/// It ends by [`Connection::close`], at once: what has not arrived yet may be lost then, unless
/// [`SendStream::delivered`] has waited for it. Or it ends when the last clone and the last of its streams are
/// gone. Then the peer still gets all that was [finished](SendStream::finish), and the datagrams that wait, and
/// nothing that it sends is read any more; after that the connection closes with [`CloseCode::NO_ERROR`]. That
/// takes the endpoint's tasks: who ends the process, or the runtime, waits for
/// [`Endpoint::wait_idle`](crate::Endpoint::wait_idle) before. A peer that takes nothing for an
/// [idle timeout](crate::TransportConfig::idle_timeout) ends the wait.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) handle: Handle,
    peer: PublicKey,
}

/// A hold on a connection.
pub(crate) type Handle = crate::line::Handle<ConnectionState>;
type View = crate::line::View<ConnectionState>;

/// A look at a channel, which does not hold its connection: what the driver knows of the channel goes
/// with the last one.
#[derive(Debug)]
pub(crate) struct ChannelWatch {
    pub(crate) view: View,
    pub(crate) id: ChannelId,
}

impl ChannelWatch {
    fn new(view: View, id: ChannelId) -> Self {
        view.look(|_, ours| ours.hold(id));
        Self { view, id }
    }
}

impl Drop for ChannelWatch {
    fn drop(&mut self) {
        self.view.look(|_, ours| ours.let_go(self.id));
    }
}

/// A stream's or an object's hold on its channel, and on its connection.
#[derive(Debug)]
pub(crate) struct Channel {
    watch: ChannelWatch,
    pub(crate) handle: Handle,
}

impl Deref for Channel {
    type Target = ChannelWatch;
    fn deref(&self) -> &ChannelWatch {
        &self.watch
    }
}

impl Channel {
    fn new(handle: Handle, id: ChannelId) -> Self {
        let watch = ChannelWatch::new(handle.view(), id);
        Self { watch, handle }
    }

    /// Another look at it, for who must not hold the connection.
    pub(crate) fn watch(&self) -> ChannelWatch {
        ChannelWatch::new(self.view.clone(), self.id)
    }

    /// Wants no more of what the peer sends.
    pub(crate) fn stop(&self, code: VarInt) {
        self.handle.act(|now, connection, _| {
            connection.stop_channel(now, self.id, code);
            connection.end_recv(self.id);
        });
    }
}

impl Clone for Channel {
    fn clone(&self) -> Self {
        Self::new(self.handle.clone(), self.id)
    }
}

impl Connection {
    /// A connection whose peer has proved its key.
    pub(crate) fn accepted(handle: Handle) -> Option<Self> {
        let peer = handle.look(|connection, _| connection.peer())??;
        Some(Self { handle, peer })
    }

    /// Waits for the end of the handshake; dropping the future closes the attempt.
    pub(crate) async fn established(handle: Handle) -> Result<Self, Error> {
        let proved = poll_changed(
            &handle,
            |changes| &changes.phase,
            |connection, _| connection.peer().filter(|_| connection.is_established()),
        );
        let peer = proved.await?;
        Ok(Self { handle, peer })
    }

    /// Waits until the peer is known to have the same keys: a server knows it, a client a round trip after the
    /// handshake. Until then it may go on with another answer of the server than its first. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn confirmed(&self) -> Result<(), Error> {
        let confirmed = poll_changed(
            &self.handle,
            |changes| &changes.phase,
            |connection, _| connection.is_confirmed().then_some(()),
        );
        confirmed.await
    }

    /// The peer's key, which it proved.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// What the client is there for, at a server to which it said so.
    pub fn application(&self) -> Option<Application> {
        let application = self.handle.look(|connection, _| connection.application());
        application.flatten()
    }

    /// The peer's address now; `None` once the endpoint has forgotten the connection.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.handle
            .look(|connection, _| connection.remote_address())
    }

    /// How many clients that were welcome have been turned away so far since this connection's endpoint
    /// had all the connections that it may ([`EndpointConfig::max_connections`](crate::EndpointConfig::max_connections)),
    /// for who keeps one that is of no use.
    pub fn turned_away(&self) -> u64 {
        self.handle.core(|core| core.stats().crowded)
    }

    /// Counters and estimates.
    pub fn stats(&self) -> ConnectionStats {
        let stats = self.handle.look(|connection, _| connection.stats());
        stats.unwrap_or_default()
    }

    /// Opens a stream for both directions; waits while the peer allows no further one. The peer learns
    /// of it with the first bytes, or the end. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), Error> {
        let id = self.open(ChannelKind::Stream).await?;
        Ok(self.stream(id))
    }

    /// The next stream for both directions that the peer opened. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), Error> {
        let id = self.next_opened(ChannelKind::Stream).await?;
        Ok(self.stream(id))
    }

    /// Opens a stream to the peer; waits while the peer allows no further one. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn open_uni(&self) -> Result<SendStream, Error> {
        let id = self.open(ChannelKind::Uni).await?;
        Ok(SendStream::new(self.channel(id)))
    }

    /// The next stream from the peer alone. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn accept_uni(&self) -> Result<RecvStream, Error> {
        let id = self.next_opened(ChannelKind::Uni).await?;
        Ok(RecvStream::new(self.channel(id)))
    }

    /// Sends a message that arrives whole or not at all: nothing repeats it, and it overtakes streams
    /// and objects, which keep half of the path if there are more datagrams than that. While the path is
    /// slower than the application, the oldest that wait are dropped
    /// ([`TransportConfig::datagram_buffer`](crate::TransportConfig::datagram_buffer),
    /// [`ConnectionStats::datagrams_dropped`]).
    ///
    /// # Errors
    /// [`Error::Datagram`] above [`Connection::max_datagram_size`]; [`Error::Connection`].
    pub fn send_datagram(&self, datagram: Bytes) -> Result<(), Error> {
        self.handle.attempt(|_, connection, ours| {
            ours.alive()?;
            Ok(connection.send_datagram(Vec::from(datagram))?)
        })
    }

    /// Sends several messages as [`Connection::send_datagram`] does, at less cost than one by one. Short ones
    /// share packets, unless they are to be [apart](Datagram::apart). The iterator is asked for them in turn;
    /// it must not use this connection.
    ///
    /// # Errors
    /// That of the first message that is not taken; those after it are not asked for.
    pub fn send_datagrams(
        &self,
        datagrams: impl IntoIterator<Item = Datagram>,
    ) -> Result<(), Error> {
        self.handle.attempt(|_, connection, ours| {
            ours.alive()?;
            let mut datagrams = datagrams.into_iter();
            Ok(datagrams.try_for_each(|next| connection.send_datagram(next))?)
        })
    }

    /// Waits until few messages wait to be sent, no more than leave within some milliseconds, and says
    /// for how many bytes there is room until then, each message counted with 64 more. Who has a queue
    /// of messages and sends so many decides what is dropped, and in which order they go. May be
    /// cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn datagram_room(&self) -> Result<u64, Error> {
        poll_fn(|context| {
            self.handle.poll(|_, connection, ours| {
                ours.alive()?;
                match connection.datagram_room() {
                    0 => {
                        ours.datagram_writers.register(context);
                        Poll::Pending
                    }
                    room => Poll::Ready(Ok(room)),
                }
            })
        })
        .await
    }

    /// All messages that came and were not read yet, the oldest first; waits for one. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`], once all that came are read.
    pub async fn read_datagrams(&self) -> Result<Vec<Bytes>, Error> {
        let next = poll_changed(
            &self.handle,
            |changes| &changes.datagrams,
            |connection, _| {
                let came: Vec<Bytes> = std::iter::from_fn(|| connection.take_datagram())
                    .map(Bytes::from)
                    .collect();
                (!came.is_empty()).then_some(came)
            },
        );
        next.await
    }

    /// The oldest message that came and was not read yet. Who reads too late misses the oldest ones.
    /// May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`], once all that came are read.
    pub async fn read_datagram(&self) -> Result<Bytes, Error> {
        let next = poll_changed(
            &self.handle,
            |changes| &changes.datagrams,
            |connection, _| connection.take_datagram(),
        );
        next.await.map(Bytes::from)
    }

    /// Longest message that [`Connection::send_datagram`] takes now, bytes; it follows the path's MTU,
    /// and is at least 1171 (unless the buffer for them is smaller). 0 once the endpoint ended.
    pub fn max_datagram_size(&self) -> usize {
        let size = self
            .handle
            .look(|connection, _| connection.max_datagram_size());
        size.unwrap_or_default()
    }

    /// Fills `out` with key material that only the two ends can have: the same for the same `label` and
    /// `context`, unlike any other (as RFC 8446 §7.5). For binding what another protocol proves to this
    /// connection. A client's is final once the connection [is confirmed](Self::confirmed).
    ///
    /// # Errors
    /// [`Error::EndpointClosed`] once the endpoint ended.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), Error> {
        let exported = self
            .handle
            .look(|connection, _| connection.export_keying_material(out, label, context));
        Ok(exported.ok_or(Error::EndpointClosed)??)
    }

    /// The next object that the peer sends. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn accept_object(&self) -> Result<IncomingObject, Error> {
        let id = self.next_opened(ChannelKind::Object).await?;
        Ok(IncomingObject::new(self.channel(id)))
    }

    fn stream(&self, id: ChannelId) -> (SendStream, RecvStream) {
        (
            SendStream::new(self.channel(id)),
            RecvStream::new(self.channel(id)),
        )
    }

    /// A hold on a channel.
    pub(crate) fn channel(&self, id: ChannelId) -> Channel {
        Channel::new(self.handle.clone(), id)
    }

    pub(crate) async fn open(&self, kind: ChannelKind) -> Result<ChannelId, Error> {
        poll_changed(
            &self.handle,
            |changes| &changes.room,
            |connection, _| connection.open(kind),
        )
        .await
    }

    async fn next_opened(&self, kind: ChannelKind) -> Result<ChannelId, Error> {
        poll_changed(
            &self.handle,
            |changes| &changes.opened[kind as usize],
            |_, ours| ours.opened[kind as usize].pop_front(),
        )
        .await
    }

    /// Waits for the connection's end and says why it came.
    pub async fn closed(&self) -> ConnectionError {
        let result: Result<(), Error> =
            poll_changed(&self.handle, |changes| &changes.phase, |_, _| None).await;
        match result {
            Err(Error::Connection(error)) => error,
            _ => ConnectionError::LocallyClosed,
        }
    }

    /// Why the connection ended; `None` while it lasts. A stream may end early, or be refused by the peer,
    /// while its connection goes on, so that [`closed`](Self::closed) would wait.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        let reason = self.handle.look(|_, ours| ours.alive().err());
        reason.unwrap_or(Some(ConnectionError::LocallyClosed))
    }

    /// Ends the connection at once; the peer learns `code` and `reason` (at most 512 bytes of it). What
    /// is not known to have arrived may be lost. Everyone who holds the connection, or a stream of it,
    /// learns [`ConnectionError::LocallyClosed`].
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.handle
            .act(|now, connection, _| connection.close(now, code, reason));
    }
}

/// Waits for something that comes with one of the connection's changes, or with its end.
async fn poll_changed<T>(
    handle: &Handle,
    change: impl FnOnce(&Changes) -> &Notify,
    mut f: impl FnMut(&mut dfcp_proto::Connection, &mut ConnectionState) -> Option<T>,
) -> Result<T, Error> {
    let changes = handle.look(|_, ours| ours.changes.clone());
    let changes = changes.ok_or(Error::EndpointClosed)?;
    let change = change(&changes);
    loop {
        // What happens from here on is not missed.
        let mut changed = pin!(change.notified());
        changed.as_mut().enable();
        let polled = handle.poll(|_, connection, ours| {
            if let Some(value) = f(connection, ours) {
                return Poll::Ready(Ok(value));
            }
            ours.alive()?;
            Poll::Pending
        });
        match polled {
            Poll::Ready(result) => return result,
            Poll::Pending => changed.await,
        }
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
        let (near, far) = (near.expect("connects"), far.expect("accepts").accept());
        for _ in 0..100 {
            let (mut out, back) = near.open_bi().await.expect("opens");
            out.write_all(b"news").await.expect("fits");
            out.shutdown().await.expect("arrives");
            let (answer, mut inside) = far.accept_bi().await.expect("comes");
            let mut text = String::new();
            inside.read_to_string(&mut text).await.expect("is complete");
            drop((out, back, answer, inside));
        }
        for side in [&near, &far] {
            let remembered = side.handle.look(|_, ours| ours.channels.len());
            assert_eq!(remembered, Some(0));
        }
    }

    #[tokio::test]
    async fn a_panic_with_the_state_in_hand_ends_the_endpoint() {
        let bind = "127.0.0.1:0".parse().expect("an address");
        let key = generate_key().expect("a key");
        let server = Endpoint::bind(EndpointConfig::server(key, bind)).expect("binds");
        let shared = server.shared().clone();
        let panics = move || {
            let _state = shared.lock();
            panic!("as it should");
        };
        assert!(std::thread::spawn(panics).join().is_err());
        let patience = std::time::Duration::from_secs(60);
        let accepted = tokio::time::timeout(patience, server.accept()).await;
        assert!(accepted.expect("must not hang").is_none());
    }
}
