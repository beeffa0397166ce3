//! Streams: bytes in order, with back-pressure.

use crate::connection::{Channel, ChannelWatch};
use crate::error::Error;
use bytes::Bytes;
use dfcp_proto::{BlockSizes, ChannelError, Instant, Read, VarInt};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Code that the peer sees when a stream was dropped before its end.
const DROPPED: VarInt = VarInt::from_u32(0);

/// The sending half. Writing waits while the connection holds as much unsent or unacknowledged
/// data as it may. Dropping it before [`finish`](SendStream::finish) resets the stream.
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
            ours.alive()?;
            if let Some(code) = ours.channels.get(&id).and_then(|c| c.stopped) {
                return Poll::Ready(Err(Error::Reset(code)));
            }
            match write(now, connection) {
                Ok(0) if len > 0 => ours.wait(id, context),
                other => Poll::Ready(other.map_err(Error::from)),
            }
        })
    }

    /// Writes all of `bytes`, waiting while the connection holds as much as it may. What is a full
    /// block ([`SendStream::block_size`]) that nobody else holds is coded where it is; everything else
    /// is copied once, into blocks. Cancelled, it may have written a part.
    ///
    /// # Errors
    /// [`Error::Reset`] if the peer wants no more, [`Error::Closed`] after
    /// [`finish`](SendStream::finish), [`Error::Connection`].
    pub async fn write_chunk(&mut self, bytes: Bytes) -> Result<(), Error> {
        let shared = match bytes.try_into_mut() {
            Ok(owned) => return self.write_buffer(&mut Vec::from(owned)).await,
            Err(shared) => shared,
        };
        let mut rest = &shared[..];
        while !rest.is_empty() {
            let n = poll_fn(|context| self.poll_send(context, rest)).await?;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// [`SendStream::write_chunk`] for who uses the buffer again. A full block is taken as it is, and a used
    /// buffer left in its place; what is left in `buffer` has no meaning.
    ///
    /// # Errors
    /// As for [`SendStream::write_chunk`].
    pub async fn write_buffer(&mut self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        self.write_each(buffer, |_| {}).await
    }

    /// [`SendStream::write_buffer`] that tells how many bytes were written each time.
    pub(crate) async fn write_each(
        &mut self,
        buffer: &mut Vec<u8>,
        mut written: impl FnMut(u64),
    ) -> Result<(), Error> {
        let len = buffer.len();
        let mut done = poll_fn(|context| self.poll_send_block(context, buffer)).await?;
        written(done as u64);
        while done < len {
            let n = poll_fn(|context| self.poll_send(context, &buffer[done..])).await?;
            done += n;
            written(n as u64);
        }
        Ok(())
    }

    /// Bytes of a full block at the stream's beginning; further on, and after the path's MTU changed,
    /// they may differ a little.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub fn block_size(&self) -> Result<usize, Error> {
        Ok(self.block_sizes()?.at(0))
    }

    /// Its number among the streams of its kind (for both directions, for one, objects) which the side that
    /// opened it has opened, from 0. Of an object it is what the peer knows it by
    /// ([`IncomingObject::index`](crate::IncomingObject::index)).
    pub fn index(&self) -> u64 {
        self.channel.id.index()
    }

    /// What is written here goes before all streams and objects of a lower priority (0 unless set); those
    /// of one priority take turns.
    ///
    /// # Errors
    /// [`Error::Closed`] once nothing more is sent; [`Error::EndpointClosed`].
    pub fn set_priority(&self, priority: i32) -> Result<(), Error> {
        let id = self.channel.id;
        let handle = &self.channel.handle;
        let set = handle.look(|connection, _| connection.set_priority(id, priority));
        Ok(set.ok_or(Error::EndpointClosed)??)
    }

    /// Says that nothing follows, without waiting; dropping the stream loses nothing then, nor does
    /// dropping the [connection](crate::Connection). Once more it does nothing.
    ///
    /// # Errors
    /// [`Error::Closed`] if the peer stopped the stream, [`Error::Connection`].
    pub fn finish(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let id = self.channel.id;
        self.channel.handle.attempt(|_, connection, ours| {
            ours.alive()?;
            Ok(connection.finish_channel(id)?)
        })
    }

    /// Waits until all that was written, to the [end](SendStream::finish), is accounted for: the peer
    /// has it, but for what was given up ([`crate::Reliability`]). Returns the bytes given up: 0 on a
    /// reliable connection. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Reset`] if the peer wants no more of it, [`Error::Closed`] after
    /// [`reset`](SendStream::reset), [`Error::Connection`].
    pub async fn delivered(&self) -> Result<u64, Error> {
        poll_fn(|context| self.channel.poll_delivered(context)).await
    }

    /// Waits until the peer wants no more of the stream, and gives its code; `None` if everything was
    /// [delivered](SendStream::delivered) before, or given up here. The future does not borrow the
    /// stream: one may write meanwhile. Nor does it hold the connection, which ends with its last
    /// handle.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection ends before.
    pub fn stopped(&self) -> impl Future<Output = Result<Option<VarInt>, Error>> + Send + 'static {
        let channel = self.channel.watch();
        async move {
            match poll_fn(|context| channel.poll_delivered(context)).await {
                Ok(_) | Err(Error::Closed) => Ok(None),
                Err(Error::Reset(code)) => Ok(Some(code)),
                Err(error) => Err(error),
            }
        }
    }

    /// Gives the stream up; the peer learns `code`, and loses what it has not read yet.
    pub fn reset(&mut self, code: VarInt) {
        self.finished = true;
        let id = self.channel.id;
        self.channel.handle.act(|_, connection, ours| {
            connection.reset_channel(id, code);
            ours.on_reset(id);
        });
    }
}

impl ChannelWatch {
    /// When everything is accounted for: the bytes given up.
    fn poll_delivered(&self, context: &Context<'_>) -> Poll<Result<u64, Error>> {
        self.view.poll_known(|ours| {
            let channel = ours.channels.entry(self.id).or_default();
            if let Some(abandoned) = channel.acknowledged {
                return Poll::Ready(Ok(abandoned));
            }
            if let Some(code) = channel.stopped {
                return Poll::Ready(Err(Error::Reset(code)));
            }
            if channel.reset {
                return Poll::Ready(Err(Error::Closed));
            }
            ours.alive()?;
            ours.wait(self.id, context)
        })
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

    /// [`SendStream::finish`], then waits as [`SendStream::delivered`] does, but does not tell what was
    /// given up.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish()?;
        let delivered = self.channel.poll_delivered(context);
        delivered.map_ok(|_| ()).map_err(io::Error::from)
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.finished {
            self.reset(DROPPED);
        }
    }
}

/// What came next in a stream, into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes, at the front of the buffer.
    Data(usize),
    /// The sender gave the next bytes up, so many.
    Gap(u64),
    /// Nothing more.
    End,
}

/// What came next in a stream, by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes; never none.
    Data(Bytes),
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
        let mut taken = 0;
        let read = self.poll_with(context, |now, connection| {
            let read = connection.read(now, id, out)?;
            if let Read::Data(n) = read {
                taken = n;
            }
            Ok(read)
        });
        read.map_ok(|read| match read {
            Read::Gap(bytes) => Piece::Gap(bytes),
            Read::End => Piece::End,
            _ => Piece::Data(taken),
        })
    }

    fn poll_chunk(&mut self, context: &Context<'_>, most: usize) -> Poll<Result<Chunk, Error>> {
        if self.ended {
            return Poll::Ready(Ok(Chunk::End));
        }
        let (id, most) = (self.channel.id, most.max(1));
        let mut data = Bytes::new();
        let read = self.poll_with(context, |now, connection| {
            let (read, chunk) = connection.read_chunk(now, id, most)?;
            if let Some((buffer, part)) = chunk {
                data = Bytes::from(buffer).slice(part);
            }
            Ok(read)
        });
        read.map_ok(|read| match read {
            Read::Gap(bytes) => Chunk::Gap(bytes),
            Read::End => Chunk::End,
            _ => Chunk::Data(data),
        })
    }

    /// Waits until `read` is not blocked.
    fn poll_with(
        &mut self,
        context: &Context<'_>,
        read: impl FnOnce(Instant, &mut dfcp_proto::Connection) -> Result<Read, ChannelError>,
    ) -> Poll<Result<Read, Error>> {
        let id = self.channel.id;
        let result = self.channel.handle.poll(|now, connection, ours| {
            match read(now, connection)? {
                Read::Blocked => {}
                read => return Poll::Ready(Ok(read)),
            }
            ours.alive()?;
            ours.wait(id, context)
        });
        // Only at its end is a channel over: a reset one says so again to who reads again, and is freed
        // with the handle.
        self.ended |= matches!(result, Poll::Ready(Ok(Read::End)));
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

    /// Reads some bytes; 0 at the end. May be cancelled.
    ///
    /// # Errors
    /// Where the peer gave bytes up, [`Error::Gap`] says how many, once; the next call reads what comes
    /// after them. [`Error::Reset`] if the peer gave the stream up, [`Error::Connection`].
    pub async fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|context| self.poll_bytes(context, out)).await
    }

    /// Reads what comes next, where gaps are expected. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Reset`] if the peer gave the stream up, [`Error::Connection`].
    pub async fn read_piece(&mut self, out: &mut [u8]) -> Result<Piece, Error> {
        poll_fn(|context| self.poll_receive(context, out)).await
    }

    /// Reads what comes next, at most `most` bytes. Whole blocks are handed over without being copied;
    /// the beginning of a block that is not complete yet is a copy. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Reset`] if the peer gave the stream up, [`Error::Connection`].
    pub async fn read_chunk(&mut self, most: usize) -> Result<Chunk, Error> {
        poll_fn(|context| self.poll_chunk(context, most)).await
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
