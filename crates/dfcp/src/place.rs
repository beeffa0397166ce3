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

/// Writes blocks in place and hashes from the front as far as there is no gap.
pub(crate) fn write_blocks(
    mut target: impl WriteAt,
    mut blocks: mpsc::Receiver<Lent>,
) -> io::Result<ObjectSummary> {
    let mut hasher = blake3::Hasher::new();
    let mut hashed = 0;
    // Written but not hashed: start → end.
    let mut ahead: BTreeMap<u64, u64> = BTreeMap::new();
    let mut again = Vec::new();
    while let Some((offset, bytes, loan)) = blocks.blocking_recv() {
        target.write_all_at(&bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if offset == hashed {
            hasher.update(&bytes);
            hashed = end;
        } else {
            ahead.insert(offset, end);
        }
        while let Some(end) = ahead.remove(&hashed) {
            again.resize((end - hashed) as usize, 0);
            target.read_exact_at(&mut again, hashed)?;
            hasher.update(&again);
            hashed = end;
        }
        loan.give_back(bytes);
    }
    Ok(ObjectSummary {
        size: hashed,
        hash: *hasher.finalize().as_bytes(),
    })
}

/// Writes blocks in place; the bytes that were.
pub(crate) fn place_blocks(
    mut target: impl WriteAt,
    mut blocks: mpsc::Receiver<Lent>,
) -> io::Result<u64> {
    let mut written = 0;
    while let Some((offset, bytes, loan)) = blocks.blocking_recv() {
        target.write_all_at(&bytes, offset)?;
        written += bytes.len() as u64;
        loan.give_back(bytes);
    }
    Ok(written)
}
