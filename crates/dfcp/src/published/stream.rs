//! A connection as a stream of bytes, with back-pressure both ways.

use super::waiting::ConnectionState;
use super::{State as Phase, Stats};
use crate::error::Error;
use crate::line::{Handle, View};
use dfcp_proto::Rate;
use dfcp_proto::published::{Connection, Read};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection. Writing waits while it holds as much unacknowledged data as it may; not reading
/// holds the peer back. Calls may be cancelled and made again.
///
/// `flush` pads what fills no block; `shutdown` says that nothing follows and waits until the
/// peer has acknowledged everything. A stream that is dropped before its `shutdown`, or before
/// the end of what the peer sends, resets the connection.
#[derive(Debug)]
pub struct Stream {
    handle: Handle<ConnectionState>,
}

impl Stream {
    pub(super) fn new(handle: Handle<ConnectionState>) -> Self {
        Self { handle }
    }

    /// Waits until `done` holds of the connection's state.
    async fn reaches(&self, done: impl Fn(Phase) -> bool) -> Result<(), Error> {
        poll_fn(|context| {
            self.handle
                .poll(|_, connection, ours| poll_phase(context, connection, ours, &done))
        })
        .await
    }

    pub(super) async fn handshake(&self) -> Result<(), Error> {
        self.reaches(|phase| !matches!(phase, Phase::SynSent | Phase::SynRecv))
            .await
    }

    /// Waits until both sides have closed.
    ///
    /// # Errors
    /// Why the connection ended early.
    pub async fn closed(&self) -> Result<(), Error> {
        self.reaches(|phase| matches!(phase, Phase::TimeWait | Phase::Closed))
            .await
    }

    /// Ends the connection at once. What is not known to have arrived may be lost.
    pub fn abort(self) {
        self.monitor().abort();
    }

    /// The peer's address.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.handle.look(|connection, _| connection.remote())
    }

    /// Looks at the connection from elsewhere.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.handle.view())
    }
}

fn poll_phase(
    context: &Context<'_>,
    connection: &Connection,
    ours: &mut ConnectionState,
    done: impl Fn(Phase) -> bool,
) -> Poll<Result<(), Error>> {
    if let Some(Some(error)) = &ours.end {
        return Poll::Ready(Err(error.clone().into()));
    }
    if ours.end.is_some() || done(connection.state()) {
        return Poll::Ready(Ok(()));
    }
    ours.waiting.register(context);
    Poll::Pending
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = self.handle.poll(|now, connection, ours| {
            match connection.read(now, out.initialize_unfilled())? {
                Read::Data(n) => Poll::Ready(Ok(n)),
                Read::Finished => Poll::Ready(Ok(0)),
                Read::Blocked => {
                    ours.readers.register(context);
                    Poll::Pending
                }
            }
        });
        read.map(|read| {
            out.advance(read?);
            Ok(())
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written =
            self.handle
                .poll(|now, connection, ours| match connection.write(now, data)? {
                    0 if !data.is_empty() => {
                        ours.writers.register(context);
                        Poll::Pending
                    }
                    n => Poll::Ready(Ok(n)),
                });
        written.map_err(io::Error::from)
    }

    /// Pads what fills no block; does not wait until it arrived.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.handle.poll(|now, connection, _| {
            connection.flush(now);
            Poll::Ready(Ok(()))
        });
        flushed.map_err(io::Error::from)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = self.handle.poll(|now, connection, ours| {
            if !std::mem::replace(&mut ours.finished, true) {
                connection.finish(now);
            }
            poll_phase(context, connection, ours, |phase| {
                matches!(phase, Phase::FinWait2 | Phase::TimeWait | Phase::Closed)
            })
        });
        shut.map_err(io::Error::from)
    }
}

/// Looks at a connection without holding it.
#[derive(Clone, Debug)]
pub struct Monitor(View<ConnectionState>);

impl Monitor {
    /// Its counters; nothing once it is over and its stream was dropped.
    pub fn stats(&self) -> Option<Stats> {
        self.0.look(|connection, _| connection.stats())
    }

    /// Its state; nothing as above.
    pub fn state(&self) -> Option<Phase> {
        self.0.look(|connection, _| connection.state())
    }

    /// A network controller allows this rate (DFCP-J §7.6): `rate::Ordered` sends at it from now on,
    /// others do as before.
    pub fn order_rate(&self, rate: Rate) {
        self.0
            .act(|now, connection, _| connection.order_rate(now, rate));
    }

    /// Ends the connection at once, if it is not over.
    pub fn abort(&self) {
        self.0.act(|now, connection, _| connection.abort(now));
    }
}
