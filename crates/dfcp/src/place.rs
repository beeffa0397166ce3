//! Where the parts of an object go that arrive in any order.

use crate::object::{Lent, ObjectSummary};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use tokio::sync::mpsc;

/// Takes bytes at their places, in any order, and gives back those that it took. Called on a thread
/// where it may block.
pub trait WriteAt: Send + 'static {
    /// Writes all of `bytes` at `offset`, which may lie beyond all that was written before.
    ///
    /// # Errors
    /// Whatever ends the transfer.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reads what was written at `offset`, to be hashed.
    ///
    /// # Errors
    /// Whatever ends the transfer.
    fn read_exact_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<()>;
}

/// Open for reading too.
impl WriteAt for File {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn read_exact_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, out, offset)
    }
}

/// What becomes of blocks, on threads where it may block.
pub(crate) trait Writer: Send + 'static {
    /// What is known once all are written.
    type Summary: Send;

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    fn end(self) -> Self::Summary;
}

/// Writes blocks in place and hashes from the front as far as there is no gap.
pub(crate) struct Hashing<T> {
    target: T,
    hasher: blake3::Hasher,
    hashed: u64,
    /// Written but not hashed: start → end.
    ahead: BTreeMap<u64, u64>,
    again: Vec<u8>,
}

impl<T> Hashing<T> {
    pub(crate) fn new(target: T) -> Self {
        Self {
            target,
            hasher: blake3::Hasher::new(),
            hashed: 0,
            ahead: BTreeMap::new(),
            again: Vec::new(),
        }
    }
}

impl<T: WriteAt> Writer for Hashing<T> {
    type Summary = ObjectSummary;

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.target.write_all_at(bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if offset == self.hashed {
            self.hasher.update(bytes);
            self.hashed = end;
        } else {
            self.ahead.insert(offset, end);
        }
        while let Some(end) = self.ahead.remove(&self.hashed) {
            self.again.resize((end - self.hashed) as usize, 0);
            self.target.read_exact_at(&mut self.again, self.hashed)?;
            self.hasher.update(&self.again);
            self.hashed = end;
        }
        Ok(())
    }

    fn end(self) -> ObjectSummary {
        ObjectSummary {
            size: self.hashed,
            hash: *self.hasher.finalize().as_bytes(),
        }
    }
}

/// Writes blocks in place, and counts their bytes.
pub(crate) struct Placing<T> {
    target: T,
    written: u64,
}

impl<T> Placing<T> {
    pub(crate) fn new(target: T) -> Self {
        Self { target, written: 0 }
    }
}

impl<T: WriteAt> Writer for Placing<T> {
    type Summary = u64;

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.target.write_all_at(bytes, offset)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn end(self) -> u64 {
        self.written
    }
}

/// Writes blocks as they come, to the last one. A thread is taken while there are some, and never waits for
/// one: there are a few hundred threads for all, and peers that say nothing for long could have them all.
pub(crate) async fn write_all<W: Writer>(
    mut writer: W,
    mut blocks: mpsc::Receiver<Lent>,
) -> io::Result<W::Summary> {
    while let Some(first) = blocks.recv().await {
        let work = move || {
            let mut next = Some(first);
            while let Some((offset, bytes, loan)) = next {
                writer.write(offset, &bytes)?;
                loan.give_back(bytes);
                next = blocks.try_recv().ok();
            }
            Ok::<_, io::Error>((writer, blocks))
        };
        let done = tokio::task::spawn_blocking(work).await;
        (writer, blocks) = done.map_err(io::Error::other)??;
    }
    Ok(writer.end())
}
