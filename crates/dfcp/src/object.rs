//! Objects: whole files, sent from and received into place.
//!
//! Reading, writing and hashing happen on threads of their own, a few buffers ahead of or behind
//! the network: a slow disk holds the peer back, a fast one costs no waiting.

use crate::connection::{Channel, Connection};
use crate::error::Error;
use crate::stream::SendStream;
use dfcp_proto::{BlockSizes, ChannelKind, VarInt};
use std::collections::BTreeMap;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tokio::sync::mpsc;

/// Read from a file at a time, where blocks are smaller than [`MIN_BLOCK_READ`].
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
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Useful bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts bytes that were moved by other means.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
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
    /// Sends the rest of `file`, `size` bytes, as one object, and returns when the peer has all
    /// of it; [`Error::Incomplete`] if parts were given up ([`crate::Reliability`]). `on_read` gets the summary as soon as the file is read, which is earlier: a peer
    /// that is told then need not wait for it.
    pub async fn send_object(
        &self,
        file: File,
        size: u64,
        progress: &Progress,
        on_read: impl FnOnce(ObjectSummary),
    ) -> Result<ObjectSummary, Error> {
        let id = self.open(ChannelKind::Object).await?;
        let mut channel = SendStream::new(self.channel(id));
        let (full, mut chunks) = mpsc::channel::<io::Result<Vec<u8>>>(READ_AHEAD);
        let (empty, spare) = std::sync::mpsc::channel::<Vec<u8>>();
        let sizes = channel.block_sizes()?;
        let reader = tokio::task::spawn_blocking(move || {
            let source = Source { file, size, sizes };
            read_file(source, &full, &spare)
        });
        let mut sent = 0;
        while let Some(chunk) = chunks.recv().await {
            let mut chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    channel.reset(UNREADABLE);
                    return Err(changed_or_io(error));
                }
            };
            let len = chunk.len();
            let mut done = poll_fn(|context| channel.poll_send_block(context, &mut chunk)).await?;
            progress.add(done as u64);
            while done < len {
                let n = poll_fn(|context| channel.poll_send(context, &chunk[done..])).await?;
                done += n;
                progress.add(n as u64);
            }
            sent += len as u64;
            // The reader may have ended already.
            let _ = empty.send(chunk);
        }
        let hash = reader.await.map_err(io::Error::other)?;
        let summary = ObjectSummary { size: sent, hash };
        channel.end()?;
        on_read(summary);
        match channel.finish().await? {
            0 => Ok(summary),
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

/// What an object is read from.
struct Source {
    file: File,
    size: u64,
    sizes: BlockSizes,
}

/// Reads `size` bytes in order, hashing them; the receiver's going away ends it.
fn read_file(
    mut source: Source,
    full: &mpsc::Sender<io::Result<Vec<u8>>>,
    spare: &std::sync::mpsc::Receiver<Vec<u8>>,
) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut left = source.size;
    while left > 0 {
        let mut buffer = spare.try_recv().unwrap_or_default();
        let block = source.sizes.at(source.size - left);
        let most = if block < MIN_BLOCK_READ {
            READ_SIZE
        } else {
            block
        };
        buffer.resize(most.min(usize::try_from(left).unwrap_or(most)), 0);
        let result = source.file.read_exact(&mut buffer).map(|()| {
            hasher.update(&buffer);
            left -= buffer.len() as u64;
            buffer
        });
        let failed = result.is_err();
        let result = result.map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(e.kind(), format!("it ends {left} bytes early"))
            }
            _ => e,
        });
        if full.blocking_send(result).is_err() || failed {
            break;
        }
    }
    *hasher.finalize().as_bytes()
}

/// A part of an object, as it becomes known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectPart {
    /// A complete block: its offset and bytes.
    Block(u64, Vec<u8>),
    /// Bytes that the sender gave up.
    Gap(Range<u64>),
}

/// An object that the peer sends.
#[derive(Debug)]
pub struct IncomingObject {
    channel: Channel,
    done: bool,
}

impl IncomingObject {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            done: false,
        }
    }

    /// Its number among the objects of this connection, from 0, in the order of opening.
    pub fn index(&self) -> u64 {
        self.channel.id.index()
    }

    /// The next complete block or gap, in any order. `None` at the end.
    pub async fn next_part(&mut self) -> Result<Option<ObjectPart>, Error> {
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
                if let Some(error) = &ours.error {
                    return Poll::Ready(Err(error.clone().into()));
                }
                ours.channels
                    .entry(id)
                    .or_default()
                    .waiting
                    .register(context);
                Poll::Pending
            })
        })
        .await?;
        if part.is_none() {
            self.done = true;
            self.channel
                .handle
                .look(|connection, _| connection.end_recv(id));
        }
        Ok(part)
    }

    fn recycle(&self, buffer: Vec<u8>) {
        let id = self.channel.id;
        self.channel
            .handle
            .look(|connection, _| connection.recycle(id, buffer));
    }

    /// Writes the object into `file`, each block where it belongs, and hashes it. On an error
    /// what arrived is in the file; [`Error::Incomplete`] says that the peer gave up parts of it.
    /// Nothing is written beyond the first `most` bytes: a peer that sends more of it is told to
    /// stop, and [`Error::TooLong`] says so here.
    pub async fn recv_object(
        &mut self,
        file: File,
        most: u64,
        progress: &Progress,
    ) -> Result<ObjectSummary, Error> {
        let (full, blocks) = mpsc::channel::<(u64, Vec<u8>)>(WRITE_BEHIND);
        let (empty, mut spare) = mpsc::unbounded_channel::<Vec<u8>>();
        let writer = tokio::task::spawn_blocking(move || write_file(&file, blocks, &empty));
        let (mut received, mut missing) = (Ok(()), 0);
        loop {
            match self.next_part().await {
                Ok(Some(ObjectPart::Gap(gap))) => missing += gap.end - gap.start,
                Ok(Some(ObjectPart::Block(offset, bytes))) => {
                    let end = offset.checked_add(bytes.len() as u64);
                    if end.is_none_or(|end| end > most) {
                        self.stop(UNWANTED);
                        received = Err(Error::TooLong(most));
                        break;
                    }
                    progress.add(bytes.len() as u64);
                    if full.send((offset, bytes)).await.is_err() {
                        break; // the writer failed and says so below
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    received = Err(error);
                    break;
                }
            }
            while let Ok(buffer) = spare.try_recv() {
                self.recycle(buffer);
            }
        }
        drop(full);
        let summary = writer.await.map_err(io::Error::other)??;
        match missing {
            0 => received.map(|()| summary),
            _ => received.and(Err(Error::Incomplete(missing))),
        }
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

/// Writes blocks in place and hashes from the front as far as there is no gap.
fn write_file(
    file: &File,
    mut blocks: mpsc::Receiver<(u64, Vec<u8>)>,
    empty: &mpsc::UnboundedSender<Vec<u8>>,
) -> io::Result<ObjectSummary> {
    let mut hasher = blake3::Hasher::new();
    let mut hashed = 0;
    // Written but not hashed: start → end.
    let mut ahead: BTreeMap<u64, u64> = BTreeMap::new();
    let mut again = Vec::new();
    while let Some((offset, bytes)) = blocks.blocking_recv() {
        file.write_all_at(&bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if offset == hashed {
            hasher.update(&bytes);
            hashed = end;
        } else {
            ahead.insert(offset, end);
        }
        while let Some(end) = ahead.remove(&hashed) {
            again.resize((end - hashed) as usize, 0);
            file.read_exact_at(&mut again, hashed)?;
            hasher.update(&again);
            hashed = end;
        }
        // Nobody may be left to reuse it.
        let _ = empty.send(bytes);
    }
    Ok(ObjectSummary {
        size: hashed,
        hash: *hasher.finalize().as_bytes(),
    })
}
