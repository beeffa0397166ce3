//! Objects: whole files, or whatever else has an end, sent from and received into place.
//!
//! Reading, writing and hashing of files happen on other threads, a few buffers ahead of or behind the
//! network: a slow disk holds the peer back, a fast one costs no waiting. None of these threads waits for a
//! peer.

use crate::connection::{Channel, Connection, Handle};
use crate::error::Error;
use crate::place::{Hashing, Placing, WriteAt, Writer, write_all};
use crate::stream::{Chunk, RecvStream, SendStream};
use dfcp_proto::{BlockSizes, ChannelKind, VarInt};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Read from a source at a time, where blocks are smaller than [`MIN_BLOCK_READ`].
const READ_SIZE: usize = 256 << 10;
/// Blocks of at least this size are read one by one, into the buffers that they are coded from.
const MIN_BLOCK_READ: usize = 64 << 10;
/// Buffers between the file's thread and the network.
const READ_AHEAD: usize = 4;
const WRITE_BEHIND: usize = 16;

/// Code of an object whose source failed or changed while it was read.
const UNREADABLE: VarInt = VarInt::from_u32(1);
/// Code of an object that its receiver wants no more of.
const UNWANTED: VarInt = VarInt::from_u32(0);

/// Bytes moved so far, for whoever shows progress.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Moved>);

#[derive(Default)]
struct Moved {
    bytes: AtomicU64,
    told: Option<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

impl Progress {
    /// One that calls `tell` whenever bytes were moved, for who wants to know when: at most once a block,
    /// on whichever thread it was. It must not wait.
    pub fn told(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Moved {
            bytes: AtomicU64::new(0),
            told: Some(Box::new(tell)),
        }))
    }

    /// Useful bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that were moved by other means.
    pub fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(tell) = &self.0.told {
            tell();
        }
    }
}

/// A whole object: its size and BLAKE3 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSummary {
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of the whole.
    pub hash: [u8; 32],
}

impl Connection {
    /// Sends the next `size` bytes of `source` as one object, and returns when the peer has all of it.
    /// A file, or a [`Cursor`](std::io::Cursor) of bytes in memory, is read and hashed on other threads, which
    /// are taken only while the network has room for more. Dropping the future gives the object up.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] if the source ends early and [`Error::Io`] if it cannot be read: the
    /// peer learns code 1 then; [`Error::Incomplete`] if parts were given up
    /// ([`crate::Reliability`]); [`Error::Reset`] if the peer wants no more of it;
    /// [`Error::Connection`].
    pub async fn send_object(
        &self,
        source: impl Read + Send + 'static,
        size: u64,
        progress: &Progress,
    ) -> Result<ObjectSummary, Error> {
        let object = self.open_object().await?;
        object.send_object(source, size, progress).await
    }

    /// Sends everything that `source` gives, to its end, as one object, and returns when the peer has
    /// all of it. It is read and hashed in the calling task.
    ///
    /// # Errors
    /// As for [`Connection::send_object`], except that a source has no size that it could fall short of.
    pub async fn send_object_from(
        &self,
        mut source: impl AsyncRead + Unpin,
        progress: &Progress,
    ) -> Result<ObjectSummary, Error> {
        let mut channel = self.open_object().await?;
        let sizes = channel.block_sizes()?;
        let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
        let mut buffer = Vec::new();
        loop {
            let most = read_size(&sizes, size);
            buffer.clear();
            buffer.reserve(most);
            let mut part = (&mut source).take(most as u64);
            match part.read_to_end(&mut buffer).await {
                Ok(0) => break,
                Ok(n) => size += n as u64,
                Err(error) => {
                    channel.reset(UNREADABLE);
                    return Err(Error::Io(error));
                }
            }
            hasher.update(&buffer);
            channel.send_buffer(&mut buffer, progress).await?;
        }
        channel.finish()?;
        channel.delivered_whole().await?;
        let hash = *hasher.finalize().as_bytes();
        Ok(ObjectSummary { size, hash })
    }

    /// Opens an object; waits while the peer allows no further one. The caller writes it, and
    /// [`SendStream::finish`] ends it, or has it [sent](SendStream::send_object). The peer sees objects in the
    /// order in which they were opened, and by the same [number](SendStream::index). May be cancelled.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub async fn open_object(&self) -> Result<SendStream, Error> {
        let id = self.open(ChannelKind::Object).await?;
        Ok(SendStream::new(self.channel(id)))
    }
}

impl SendStream {
    /// Sends the next `size` bytes of `source` as all of this [object](Connection::open_object), as
    /// [`Connection::send_object`] does: for who tells the peer which one it is, by its
    /// [number](SendStream::index), or gives it a [priority](SendStream::set_priority). Dropping the future
    /// gives the object up.
    ///
    /// # Errors
    /// As for [`Connection::send_object`].
    pub async fn send_object(
        mut self,
        source: impl Read + Send + 'static,
        size: u64,
        progress: &Progress,
    ) -> Result<ObjectSummary, Error> {
        let (full, mut chunks) = mpsc::channel::<Vec<u8>>(READ_AHEAD);
        let (empty, spare) = std::sync::mpsc::channel::<Vec<u8>>();
        let sizes = self.block_sizes()?;
        let read = async {
            let read = read_all(Reading::new(source, size, sizes), full, spare).await;
            read.map_err(changed_or_io)
        };
        let sending = async {
            while let Some(mut chunk) = chunks.recv().await {
                self.send_buffer(&mut chunk, progress).await?;
                // The reader may have ended already.
                let _ = empty.send(chunk);
            }
            Ok(())
        };
        let hash = match tokio::try_join!(read, sending) {
            Ok((hash, ())) => hash,
            Err(error) => {
                if matches!(error, Error::SourceChanged(_) | Error::Io(_)) {
                    self.reset(UNREADABLE);
                }
                return Err(error);
            }
        };
        self.finish()?;
        self.delivered_whole().await?;
        Ok(ObjectSummary { size, hash })
    }

    /// [`SendStream::write_buffer`] whose bytes `progress` counts.
    async fn send_buffer(
        &mut self,
        buffer: &mut Vec<u8>,
        progress: &Progress,
    ) -> Result<(), Error> {
        self.write_each(buffer, |bytes| progress.add(bytes)).await
    }

    /// [`SendStream::delivered`] for what is worth nothing in parts.
    async fn delivered_whole(&self) -> Result<(), Error> {
        match self.delivered().await? {
            0 => Ok(()),
            abandoned => Err(Error::Incomplete(abandoned)),
        }
    }
}

fn changed_or_io(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::SourceChanged(error.to_string()),
        _ => Error::Io(error),
    }
}

/// How much to read at `offset` of an object.
fn read_size(sizes: &BlockSizes, offset: u64) -> usize {
    match sizes.at(offset) {
        ..MIN_BLOCK_READ => READ_SIZE,
        block => block,
    }
}

/// A source that is read in order and hashed, a block at a time.
struct Reading<R> {
    source: R,
    sizes: BlockSizes,
    hasher: blake3::Hasher,
    size: u64,
    left: u64,
}

impl<R: Read> Reading<R> {
    fn new(source: R, size: u64, sizes: BlockSizes) -> Self {
        Self {
            source,
            sizes,
            hasher: blake3::Hasher::new(),
            size,
            left: size,
        }
    }

    /// The next block, in a buffer that was used before.
    fn next(&mut self, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let most = read_size(&self.sizes, self.size - self.left);
        buffer.resize(most.min(usize::try_from(self.left).unwrap_or(most)), 0);
        let read = self.source.read_exact(&mut buffer);
        read.map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(e.kind(), format!("it ends {} bytes early", self.left))
            }
            _ => e,
        })?;
        self.hasher.update(&buffer);
        self.left -= buffer.len() as u64;
        Ok(buffer)
    }
}

/// Reads a source as its blocks are taken, to its end, and says its hash; who takes no more ends it. A thread is
/// taken once there is room for several, and never waits for it: there are a few hundred threads for all, and
/// peers that take nothing for long could have them all.
async fn read_all<R: Read + Send + 'static>(
    mut reading: Reading<R>,
    mut full: mpsc::Sender<Vec<u8>>,
    mut spare: std::sync::mpsc::Receiver<Vec<u8>>,
) -> io::Result<[u8; 32]> {
    while reading.left > 0 && full.reserve_many(READ_AHEAD / 2).await.is_ok() {
        let work = move || {
            while reading.left > 0
                && let Ok(place) = full.try_reserve()
            {
                place.send(reading.next(spare.try_recv().unwrap_or_default())?);
            }
            Ok::<_, io::Error>((reading, full, spare))
        };
        let done = tokio::task::spawn_blocking(work).await;
        (reading, full, spare) = done.map_err(io::Error::other)??;
    }
    Ok(*reading.hasher.finalize().as_bytes())
}

/// A part of an object, as it becomes known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectPart {
    /// A complete block: its offset and bytes.
    Block(u64, Vec<u8>),
    /// Bytes that the sender gave up.
    Gap(Range<u64>),
}

/// An object that the peer sends. Dropping it before its end tells the peer to stop.
#[derive(Debug)]
pub struct IncomingObject {
    channel: Channel,
    done: bool,
    /// Parts of it were taken.
    taken: bool,
}

impl IncomingObject {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            done: false,
            taken: false,
        }
    }

    /// Its number among the objects that the peer opened, from 0, in the order of opening: what
    /// [`SendStream::index`] says there.
    pub fn index(&self) -> u64 {
        self.channel.id.index()
    }

    /// The next complete block or gap, in any order. `None` at the end. A block is the caller's: the
    /// peer may send as much more. May be cancelled.
    ///
    /// # Errors
    /// [`Error::Reset`] if the peer gave it up, [`Error::Connection`].
    pub async fn next_part(&mut self) -> Result<Option<ObjectPart>, Error> {
        let part = self.next_lent().await?;
        if let Some(ObjectPart::Block(_, bytes)) = &part {
            drop(self.loan(bytes));
        }
        Ok(part)
    }

    /// [`IncomingObject::next_part`], of which a block counts as held until its [`Loan`] ends.
    async fn next_lent(&mut self) -> Result<Option<ObjectPart>, Error> {
        if self.done {
            return Ok(None);
        }
        let id = self.channel.id;
        let part = poll_fn(|context| {
            self.channel.handle.poll(|now, connection, ours| {
                match connection.take_block(now, id) {
                    Ok(Some((offset, bytes))) => {
                        return Poll::Ready(Ok(Some(ObjectPart::Block(offset, bytes))));
                    }
                    Ok(None) if connection.is_drained(id) => return Poll::Ready(Ok(None)),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
                if let Some(gap) = connection.take_gap(id) {
                    return Poll::Ready(Ok(Some(ObjectPart::Gap(gap))));
                }
                ours.alive()?;
                ours.wait(id, context)
            })
        })
        .await?;
        self.taken |= part.is_some();
        if part.is_none() {
            self.done = true;
            self.channel
                .handle
                .look(|connection, _| connection.end_recv(id));
        }
        Ok(part)
    }

    /// Reads it in order, as a stream.
    ///
    /// # Errors
    /// [`Error::Closed`] if parts of it were taken before, by
    /// [`next_part`](IncomingObject::next_part): there is no order any more. The peer is told to stop
    /// then.
    pub fn in_order(mut self) -> Result<RecvStream, Error> {
        if self.taken {
            return Err(Error::Closed);
        }
        self.done = true;
        Ok(RecvStream::new(self.channel.clone()))
    }

    fn loan(&self, block: &[u8]) -> Loan {
        let (handle, len) = (self.channel.handle.clone(), block.len() as u64);
        Loan { handle, len }
    }

    /// Writes the object into `target`, each block where it belongs, and hashes it, on other threads,
    /// which are taken only while there are blocks to write. Nothing is written beyond the first `most`
    /// bytes: a peer that sends more of it is told to stop.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Incomplete`] if the peer gave up parts of it, [`Error::Reset`] if
    /// all; [`Error::Io`] if the target fails; [`Error::Connection`]. What arrived is in the target
    /// then. [`Error::Closed`] if parts of it were taken before, by [`next_part`](IncomingObject::next_part)
    /// or by a call whose future was dropped, or it was [stopped](IncomingObject::stop): dropping the future
    /// gives the object up.
    pub async fn recv_object(
        &mut self,
        target: impl WriteAt,
        most: u64,
        progress: &Progress,
    ) -> Result<ObjectSummary, Error> {
        self.recv_with(most, progress, Hashing::new(target)).await
    }

    /// [`IncomingObject::recv_object`] without hashing: for who checks in another way what came, or whose
    /// target is not one range of bytes. Returns the bytes that were written.
    ///
    /// # Errors
    /// As for [`IncomingObject::recv_object`].
    pub async fn recv_blocks(
        &mut self,
        target: impl WriteAt,
        most: u64,
        progress: &Progress,
    ) -> Result<u64, Error> {
        self.recv_with(most, progress, Placing::new(target)).await
    }

    async fn recv_with<W: Writer>(
        &mut self,
        most: u64,
        progress: &Progress,
        writer: W,
    ) -> Result<W::Summary, Error> {
        if self.taken || self.done {
            // What was taken is in no target of this call, which could not be told from a whole one.
            self.stop(UNWANTED);
            return Err(Error::Closed);
        }
        let (full, blocks) = mpsc::channel::<Lent>(WRITE_BEHIND);
        let receive = self.hand_blocks(most, progress, full);
        let (received, written) = tokio::join!(receive, write_all(writer, blocks));
        let (received, missing) = received;
        let summary = written?;
        match missing {
            0 => received.map(|()| summary),
            _ => received.and(Err(Error::Incomplete(missing))),
        }
    }

    /// Hands blocks over as they come; how that ended, and how many bytes the peer gave up.
    async fn hand_blocks(
        &mut self,
        most: u64,
        progress: &Progress,
        full: mpsc::Sender<Lent>,
    ) -> (Result<(), Error>, u64) {
        let (mut received, mut missing) = (Ok(()), 0);
        loop {
            match self.next_lent().await {
                Ok(Some(ObjectPart::Gap(gap))) => missing += gap.end - gap.start,
                Ok(Some(ObjectPart::Block(offset, bytes))) => {
                    let loan = self.loan(&bytes);
                    let end = offset.checked_add(bytes.len() as u64);
                    if end.is_none_or(|end| end > most) {
                        self.stop(UNWANTED);
                        received = Err(Error::TooLong(most));
                        break;
                    }
                    progress.add(bytes.len() as u64);
                    if full.send((offset, bytes, loan)).await.is_err() {
                        break; // the writer failed and says so
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    received = Err(error);
                    break;
                }
            }
        }
        (received, missing)
    }

    /// Writes the object into `target` in order, and hashes it, in the calling task: for pipes,
    /// sockets, memory (`&mut Vec<u8>`) and whatever else has no places. What arrives ahead waits
    /// within the receive budget. Flushes the target at the end, and does not shut it down.
    ///
    /// # Errors
    /// As for [`IncomingObject::recv_object`], except that the first bytes that were given up end it
    /// ([`Error::Gap`]); [`Error::Closed`] if parts of it were taken before.
    pub async fn recv_object_into(
        self,
        mut target: impl AsyncWrite + Unpin,
        most: u64,
        progress: &Progress,
    ) -> Result<ObjectSummary, Error> {
        let mut stream = self.in_order()?;
        let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
        loop {
            let bytes = match stream.read_chunk(usize::MAX).await? {
                Chunk::Data(bytes) => bytes,
                Chunk::Gap(bytes) => return Err(Error::Gap(bytes)),
                Chunk::End => break,
            };
            size += bytes.len() as u64;
            if size > most {
                stream.stop(UNWANTED);
                return Err(Error::TooLong(most));
            }
            hasher.update(&bytes);
            target.write_all(&bytes).await.map_err(Error::Io)?;
            progress.add(bytes.len() as u64);
        }
        target.flush().await.map_err(Error::Io)?;
        let hash = *hasher.finalize().as_bytes();
        Ok(ObjectSummary { size, hash })
    }

    /// Wants no more of it; the peer learns `code`.
    pub fn stop(&mut self, code: VarInt) {
        self.done = true;
        self.channel.stop(code);
    }
}

impl Drop for IncomingObject {
    fn drop(&mut self) {
        if !self.done {
            self.stop(UNWANTED);
        }
    }
}

/// The room that a block takes of what the peer may make us hold; free when this is dropped, written
/// or not.
pub(crate) struct Loan {
    handle: Handle,
    len: u64,
}

impl Loan {
    /// Ends it, and has the buffer used again.
    pub(crate) fn give_back(mut self, block: Vec<u8>) {
        self.len = 0;
        self.handle
            .adjust(|now, connection| connection.recycle(now, block));
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.len > 0 {
            self.handle
                .adjust(|now, connection| connection.release(now, self.len));
        }
    }
}

/// A block that waits to be written: its offset and bytes.
pub(crate) type Lent = (u64, Vec<u8>, Loan);
