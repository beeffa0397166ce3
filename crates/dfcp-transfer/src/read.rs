//! How a sender reads its files: small ones whole, large ones group by group on a thread of their own,
//! a few buffers ahead of the network.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::message::Hash;
use crate::source::{Source, Sources};
use crate::tree::{MIN_GROUP, Shape, Sum, Value};

/// Bytes that are read at a time; a group has a whole number of them.
const BUFFER: u64 = MIN_GROUP;
/// Buffers between the file's thread and the network.
const AHEAD: usize = 4;

/// Small files, read.
#[derive(Debug, Default)]
pub struct Pack {
    /// Those that were read, with their hashes, in the order of their bytes.
    pub files: Vec<(u64, Hash)>,
    /// All their bytes.
    pub bytes: Vec<u8>,
    /// Those that could not be read as they were offered, and why.
    pub failed: Vec<(u64, String)>,
}

impl Pack {
    /// Reads the files at these places.
    pub fn read(sources: &Sources, places: &[u64]) -> Self {
        let mut pack = Self::default();
        for &index in places {
            let source = &sources.list[index as usize];
            let before = pack.bytes.len();
            match read_whole(source, &mut pack.bytes) {
                Ok(()) => {
                    let hash = blake3::hash(&pack.bytes[before..]);
                    pack.files.push((index, hash.into()));
                }
                Err(reason) => {
                    pack.bytes.truncate(before);
                    pack.failed.push((index, reason));
                }
            }
        }
        pack
    }
}

fn read_whole(source: &Source, bytes: &mut Vec<u8>) -> Result<(), String> {
    let (file, watched) = source.open()?;
    let before = bytes.len();
    let size = source.entry.size;
    // One byte more would show that it has grown.
    let read = file.take(size + 1).read_to_end(bytes);
    read.map_err(|error| error.to_string())?;
    match (bytes.len() - before) as u64 == size {
        true => watched.check(),
        false => Err(crate::source::CHANGED.into()),
    }
}

/// The hash of a file.
pub fn hash(source: &Source) -> Result<Hash, String> {
    let (file, watched) = source.open()?;
    let mut hasher = blake3::Hasher::new();
    let read = hasher.update_reader(file.take(source.entry.size));
    read.map_err(|error| error.to_string())?;
    watched.check()?;
    Ok(hasher.finalize().into())
}

/// A large file that is being read to be sent.
#[derive(Debug)]
pub struct Reading<T> {
    /// Bytes of the parts that are missing at the receiver, in order.
    pub chunks: mpsc::Receiver<Bytes>,
    /// Ends with what is known of the file then, or why it is not what was offered.
    pub end: JoinHandle<Result<T, String>>,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Of the whole.
    pub hash: Hash,
    /// Groups that the receiver has, but with other content.
    pub differ: Vec<u64>,
}

/// The parts of a file that a receiver misses which has `have`: offsets and lengths.
pub fn missing(shape: Shape, have: &BTreeMap<u64, Value>) -> Vec<(u64, u64)> {
    let lacking = (0..shape.count()).filter(|i| !have.contains_key(&(*i as u64)));
    join(lacking.map(|i| shape.range(i)))
}

/// Ranges that follow each other, joined.
pub fn join(ranges: impl Iterator<Item = std::ops::Range<u64>>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for range in ranges {
        let length = range.end - range.start;
        match joined.last_mut() {
            Some((start, before)) if *start + *before == range.start => *before += length,
            _ => joined.push((range.start, length)),
        }
    }
    joined
}

impl Reading<Summary> {
    /// Reads all of the file, and gives what a receiver misses that has `have`.
    pub fn whole(source: Source, have: BTreeMap<u64, Value>) -> Self {
        Self::start(move |give| {
            let (file, watched) = source.open()?;
            let shape = Shape::new(source.entry.size);
            let (mut sum, mut at, mut differ) = (Sum::new(shape), 0, Vec::new());
            for i in 0..shape.count() {
                let end = shape.range(i).end;
                let known = have.get(&(i as u64));
                while at < end {
                    let chunk = read_at(&file, at, BUFFER.min(end - at))?;
                    sum.update(&chunk);
                    at += chunk.len() as u64;
                    if known.is_none() {
                        send(give, chunk)?;
                    }
                }
                if known.is_some_and(|known| sum.values()[i] != *known) {
                    differ.push(i as u64);
                }
            }
            watched.check()?;
            Ok(Summary {
                hash: sum.root().into(),
                differ,
            })
        })
    }
}

impl Reading<()> {
    /// Reads parts of the file.
    pub fn parts(source: Source, parts: Vec<(u64, u64)>) -> Self {
        Self::start(move |give| {
            let (file, watched) = source.open()?;
            for (start, length) in parts {
                let mut at = start;
                while at < start + length {
                    let chunk = read_at(&file, at, BUFFER.min(start + length - at))?;
                    at += chunk.len() as u64;
                    send(give, chunk)?;
                }
            }
            watched.check()
        })
    }
}

impl Reading<(u64, Hash)> {
    /// Reads a pipe to its end, as it gives.
    pub fn pipe(mut pipe: impl Read + Send + 'static) -> Self {
        Self::start(move |give| {
            let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
            let mut buffer = vec![0; BUFFER as usize];
            loop {
                let n = match pipe.read(&mut buffer) {
                    Ok(0) => return Ok((size, hasher.finalize().into())),
                    Ok(n) => n,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error.to_string()),
                };
                hasher.update(&buffer[..n]);
                size += n as u64;
                send(give, buffer[..n].to_vec())?;
            }
        })
    }
}

impl<T: Send + 'static> Reading<T> {
    fn start(
        work: impl FnOnce(&mpsc::Sender<Bytes>) -> Result<T, String> + Send + 'static,
    ) -> Self {
        let (give, chunks) = mpsc::channel(AHEAD);
        let end = tokio::task::spawn_blocking(move || work(&give));
        Self { chunks, end }
    }
}

fn send(give: &mpsc::Sender<Bytes>, chunk: Vec<u8>) -> Result<(), String> {
    let sent = give.blocking_send(chunk.into());
    sent.map_err(|_| "nobody wants it any more".to_owned())
}

fn read_at(file: &File, at: u64, length: u64) -> Result<Vec<u8>, String> {
    let mut chunk = vec![0; length as usize];
    match file.read_exact_at(&mut chunk, at) {
        Ok(()) => Ok(chunk),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(crate::source::CHANGED.into())
        }
        Err(error) => Err(error.to_string()),
    }
}
