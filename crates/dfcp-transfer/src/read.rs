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
use crate::sparse::ZEROS;
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
    let file = source.open()?;
    let start = bytes.len();
    bytes.resize(start + source.entry.size as usize, 0);
    match file.read_exact_at(&mut bytes[start..], 0) {
        // A size or time that is another one now shows what was changed meanwhile.
        Ok(()) => source.check(&file),
        Err(error) => Err(reason(error)),
    }
}

/// Reads all of a file: its hash, and the values of its groups.
pub fn sum(source: &Source) -> Result<Sum, String> {
    let file = source.open()?;
    let mut sum = Sum::new(Shape::new(source.entry.size));
    let everything = [(0, source.entry.size)];
    let work = |chunk: Chunk<'_>| {
        sum.update(chunk.bytes());
        Ok(())
    };
    read_parts(source, &file, &everything, work)?;
    source.check(&file)?;
    Ok(sum)
}

/// Bytes of a file.
enum Chunk<'a> {
    /// Data.
    Data(Vec<u8>),
    /// In a hole.
    Zeros(&'a [u8]),
}

impl Chunk<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Data(bytes) => bytes,
            Self::Zeros(bytes) => bytes,
        }
    }
}

/// Reads parts of a file, holes without asking the disk; no chunk is of both, nor of two groups.
fn read_parts(
    source: &Source,
    file: &File,
    parts: &[(u64, u64)],
    mut work: impl FnMut(Chunk<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let whole = std::iter::once(0..source.entry.size);
    let whole: Vec<_> = whole.filter(|_| source.data.is_none()).collect();
    let data = source.data.as_deref().unwrap_or(&whole);
    let from = parts.first().map_or(0, |(start, _)| *start);
    let first = data.partition_point(|range| range.end <= from);
    let mut ahead = data[first..].iter().peekable();
    for &(start, length) in parts {
        let (mut at, end) = (start, start + length);
        while at < end {
            while ahead.peek().is_some_and(|range| range.end <= at) {
                ahead.next();
            }
            let border = (at / BUFFER + 1) * BUFFER;
            let most = border.min(end);
            match ahead.peek() {
                Some(range) if range.start <= at => {
                    let to = range.end.min(most);
                    work(Chunk::Data(read_at(file, at, to - at)?))?;
                    at = to;
                }
                next => {
                    let to = next.map_or(most, |range| range.start.min(most));
                    work(Chunk::Zeros(&ZEROS[..(to - at) as usize]))?;
                    at = to;
                }
            }
        }
    }
    Ok(())
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

/// Whether holes are sent as the zeros that they read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// The receiver takes them as such.
    Told,
    /// They are bytes like others.
    Sent,
}

fn give_on(give: &mpsc::Sender<Bytes>, chunk: Chunk<'_>, holes: Holes) -> Result<(), String> {
    match chunk {
        Chunk::Data(bytes) => send(give, bytes),
        Chunk::Zeros(_) if holes == Holes::Told => Ok(()),
        Chunk::Zeros(bytes) => send(give, bytes.to_vec()),
    }
}

impl Reading<Summary> {
    /// Reads all of the file, and gives what a receiver misses that has `have`.
    pub fn whole(source: Source, have: BTreeMap<u64, Value>, holes: Holes) -> Self {
        Self::start(move |give| {
            let file = source.open()?;
            let shape = Shape::new(source.entry.size);
            let (mut sum, mut differ) = (Sum::new(shape), Vec::new());
            for i in 0..shape.count() {
                let range = shape.range(i);
                let known = have.get(&(i as u64));
                let group = [(range.start, range.end - range.start)];
                read_parts(&source, &file, &group, |chunk| {
                    sum.update(chunk.bytes());
                    match known {
                        None => give_on(give, chunk, holes),
                        Some(_) => Ok(()),
                    }
                })?;
                if known.is_some_and(|known| sum.values()[i] != *known) {
                    differ.push(i as u64);
                }
            }
            source.check(&file)?;
            Ok(Summary {
                hash: sum.root().into(),
                differ,
            })
        })
    }
}

impl Reading<()> {
    /// Reads parts of the file.
    pub fn parts(source: Source, parts: Vec<(u64, u64)>, holes: Holes) -> Self {
        Self::start(move |give| {
            let file = source.open()?;
            read_parts(&source, &file, &parts, |chunk| give_on(give, chunk, holes))?;
            source.check(&file)
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
    file.read_exact_at(&mut chunk, at).map_err(reason)?;
    Ok(chunk)
}

fn reason(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => crate::source::CHANGED.into(),
        _ => error.to_string(),
    }
}
