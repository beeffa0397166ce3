//! Streams: bytes in order, with back-pressure both ways.

use crate::connection::Channel;
use crate::error::Error;
use dfcp_proto::{BlockSizes, ChannelError, Instant, Read, VarInt};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Code that the peer sees when a stream was dropped before its end.
const DROPPED: VarInt = VarInt::from_u32(0);

/// The sending half. Writing waits while the connection holds as much unsent or unacknowledged
/// data as it may. Dropping it unfinished resets the stream.
#[derive(Debug)]
pub struct SendStream {
    channel: Channel,
    finished: bool,
}

impl SendStream {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            finished: false,
        }
    }

    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let (id, len) = (self.channel.id, data.len());
        self.poll_write_with(context, len, |now, connection| {
            connection.write(now, id, data)
        })
    }

    /// How large the channel's blocks are.
    pub(crate) fn block_sizes(&self) -> Result<BlockSizes, Error> {
        let id = self.channel.id;
        let sizes = self.channel.handle.look(|c, _| c.block_sizes(id));
        sizes.ok_or(Error::EndpointClosed)
    }

    /// [`SendStream::poll_send`] for what may be a whole block; that is taken as it is and a used
    /// buffer left in its place.
    pub(crate) fn poll_send_block(
        &mut self,
        context: &mut Context<'_>,
        block: &mut Vec<u8>,
    ) -> Poll<Result<usize, Error>> {
        let (id, len) = (self.channel.id, block.len());
        self.poll_write_with(context, len, |now, connection| {
            connection.write_block(now, id, block)
        })
    }

    /// Writes `len` bytes, or a part of them, as soon as some fit.
    fn poll_write_with(
        &mut self,
        context: &mut Context<'_>,
        len: usize,
        write: impl FnOnce(Instant, &mut dfcp_proto::Connection) -> Result<usize, ChannelError>,
    ) -> Poll<Result<usize, Error>> {
        let id = self.channel.id;
        self.channel.handle.poll(|now, connection, ours| {
            if let Some(error) = &ours.error {
                return Poll::Ready(Err(error.clone().into()));
            }
            if let Some(code) = ours.channels.get(&id).and_then(|c| c.stopped) {
                return Poll::Ready(Err(Error::Reset(code)));
            }
            match write(now, connection) {
                Ok(0) if len > 0 => {
                    ours.writers.register(context);
                    Poll::Pending
                }
                other => Poll::Ready(other.map_err(Error::from)),
            }
        })
    }

    /// Says that nothing follows, without waiting.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let id = self.channel.id;
        let result = self.channel.handle.poll(|_, connection, ours| {
            if let Some(error) = &ours.error {
                return Poll::Ready(Err(error.clone().into()));
            }
            Poll::Ready(connection.finish_channel(id).map_err(Error::from))
        });
        match result {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    /// When everything is accounted for: the bytes given up.
    fn poll_acknowledged(&mut self, context: &Context<'_>) -> Poll<Result<u64, Error>> {
        let id = self.channel.id;
        self.channel.handle.poll(|_, _, ours| {
            let channel = ours.channels.entry(id).or_default();
            if let Some(abandoned) = channel.acknowledged {
                return Poll::Ready(Ok(abandoned));
            }
            if let Some(code) = channel.stopped {
                return Poll::Ready(Err(Error::Reset(code)));
            }
            if let Some(error) = &ours.error {
                return Poll::Ready(Err(error.clone().into()));
            }
            channel.waiting.register(context);
            Poll::Pending
        })
    }

    /// Says that nothing follows and waits until the peer has everything, but for what was given
    /// up ([`crate::Reliability`]). Returns the bytes given up: 0 on a reliable connection.
    pub async fn finish(&mut self) -> Result<u64, Error> {
        self.end()?;
        poll_fn(|context| self.poll_acknowledged(context)).await
    }

    /// Gives the stream up; the peer learns `code`.
    pub fn reset(&mut self, code: VarInt) {
        self.finished = true;
        let id = self.channel.id;
        self.channel
            .handle
            .act(|_, connection, _| connection.reset_channel(id, code));
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, data).map_err(io::Error::from)
    }

    /// Data are on their way as soon as they are written.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the stream as [`SendStream::finish`] does, but does not tell what was given up.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end()?;
        let acknowledged = self.poll_acknowledged(context);
        acknowledged.map_ok(|_| ()).map_err(io::Error::from)
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.finished {
            self.reset(DROPPED);
        }
    }
}

/// What came next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes, at the front of the buffer.
    Data(usize),
    /// The sender gave the next bytes up, so many.
    Gap(u64),
    /// Nothing more.
    End,
}

/// The receiving half. Not reading holds the peer back. Dropping it before the end tells the
/// peer to stop.
#[derive(Debug)]
pub struct RecvStream {
    channel: Channel,
    ended: bool,
}

impl RecvStream {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            ended: false,
        }
    }

    fn poll_receive(
        &mut self,
        context: &Context<'_>,
        out: &mut [u8],
    ) -> Poll<Result<Piece, Error>> {
        if self.ended {
            return Poll::Ready(Ok(Piece::End));
        }
        if out.is_empty() {
            return Poll::Ready(Ok(Piece::Data(0)));
        }
        let id = self.channel.id;
        let result = self.channel.handle.poll(|now, connection, ours| {
            let read = connection.read(now, id, out);
            match read {
                Ok(Read::Data(n)) => return Poll::Ready(Ok(Piece::Data(n))),
                Ok(Read::Gap(bytes)) => return Poll::Ready(Ok(Piece::Gap(bytes))),
                Ok(Read::End) => return Poll::Ready(Ok(Piece::End)),
                Ok(Read::Blocked) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            if let Some(error) = &ours.error {
                return Poll::Ready(Err(error.clone().into()));
            }
            ours.channels
                .entry(id)
                .or_default()
                .waiting
                .register(context);
            Poll::Pending
        });
        self.ended |= matches!(result, Poll::Ready(Ok(Piece::End) | Err(_)));
        result
    }

    /// [`RecvStream::poll_receive`] for readers that expect no gap.
    fn poll_bytes(&mut self, context: &Context<'_>, out: &mut [u8]) -> Poll<Result<usize, Error>> {
        self.poll_receive(context, out).map(|piece| match piece? {
            Piece::Data(n) => Ok(n),
            Piece::Gap(bytes) => Err(Error::Gap(bytes)),
            Piece::End => Ok(0),
        })
    }

    /// Reads some bytes; 0 at the end. Where the peer gave bytes up, [`Error::Gap`] says how many,
    /// once; the next call reads what comes after them.
    pub async fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|context| self.poll_bytes(context, out)).await
    }

    /// Reads what comes next, where gaps are expected.
    pub async fn read_piece(&mut self, out: &mut [u8]) -> Result<Piece, Error> {
        poll_fn(|context| self.poll_receive(context, out)).await
    }

    /// Wants no more; the peer learns `code`.
    pub fn stop(&mut self, code: VarInt) {
        self.ended = true;
        self.channel.stop(code);
    }
}

/// As with [`RecvStream::read`], a gap is an error and nothing is spliced.
impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.poll_bytes(context, out.initialize_unfilled()) {
            Poll::Ready(Ok(n)) => {
                out.advance(n);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if !self.ended {
            self.stop(DROPPED);
        }
    }
}
