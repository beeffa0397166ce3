//! How a sender reads its files: small ones whole, large ones group by group on a thread of their own,
//! a few buffers ahead of the network.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::message::Hash;
use crate::source::{Source, Sources, Still, Unread};
use crate::sparse::ZEROS;
use crate::tree::{Shape, Sum, Value};

/// Bytes that are read at a time: what a system call and a word to another thread cost is little beside them.
const BUFFER: u64 = 256 << 10;
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
    /// Those that are another version by now.
    pub changed: Vec<u64>,
    /// Those that have more by now than was offered, and read.
    pub grown: Vec<u64>,
}

impl Pack {
    /// Reads the files at these places.
    pub fn read(sources: &Sources, places: &[u64]) -> Self {
        let mut pack = Self::default();
        for &index in places {
            let source = &sources.list[index as usize];
            let before = pack.bytes.len();
            match read_whole(source, &mut pack.bytes) {
                Ok(still) => {
                    let hash = blake3::hash(&pack.bytes[before..]);
                    pack.files.push((index, hash.into()));
                    if still == Still::There {
                        pack.grown.push(index);
                    }
                }
                Err(reason) => {
                    pack.bytes.truncate(before);
                    match reason {
                        Unread::Changed => pack.changed.push(index),
                        reason => pack.failed.push((index, reason.to_string())),
                    }
                }
            }
        }
        pack
    }
}

fn read_whole(source: &Source, bytes: &mut Vec<u8>) -> Result<Still, Unread> {
    let file = source.open()?;
    let start = bytes.len();
    bytes.resize(start + source.entry.size as usize, 0);
    match file.read_exact_at(&mut bytes[start..], 0) {
        // A size or time that is another one now shows what was changed meanwhile.
        Ok(()) => source.check(&file),
        Err(error) => Err(source.unread(&file, error)),
    }
}

/// A file that is open: whatever takes its name meanwhile, this one is read to its end.
#[derive(Clone, Debug)]
pub struct Opened {
    source: Source,
    file: Arc<File>,
}

impl Opened {
    /// Opens a file as it was offered.
    pub fn new(source: Source) -> Result<Self, Unread> {
        let file = Arc::new(source.open()?);
        Ok(Self { source, file })
    }

    /// Opens another version of a file that was offered.
    pub fn changed(source: &Source) -> Result<Self, Unread> {
        let (source, file) = source.open_changed()?;
        let file = Arc::new(file);
        Ok(Self { source, file })
    }

    /// Bytes of it.
    pub fn size(&self) -> u64 {
        self.source.entry.size
    }

    fn check(&self) -> Result<Still, Unread> {
        self.source.check(&self.file)
    }
}

/// Reads all of a file: its hash, and the values of its groups.
pub fn sum(opened: &Opened) -> Result<Sum, String> {
    let mut sum = Sum::new(Shape::new(opened.size()));
    let everything = [(0, opened.size())];
    let work = |_, chunk: &mut Chunk<'_>| {
        sum.update(chunk.bytes());
        Ok(())
    };
    read_parts(opened, &everything, work)?;
    opened.check()?;
    Ok(sum)
}

/// Bytes of a file.
enum Chunk<'a> {
    /// Data, in a buffer that is read into again.
    Data(&'a mut Vec<u8>),
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

/// Reads parts of a file, holes without asking the disk; no chunk is of both. `work` gets the place of each.
fn read_parts(
    Opened { source, file }: &Opened,
    parts: &[(u64, u64)],
    mut work: impl FnMut(u64, &mut Chunk<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut buffer = Vec::new();
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
                    buffer.resize((to - at) as usize, 0);
                    let read = file.read_exact_at(&mut buffer, at);
                    read.map_err(|error| source.unread(file, error))?;
                    work(at, &mut Chunk::Data(&mut buffer))?;
                    at = to;
                }
                next => {
                    let to = next.map_or(most, |range| range.start.min(most));
                    work(at, &mut Chunk::Zeros(&ZEROS[..(to - at) as usize]))?;
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
    pub chunks: mpsc::Receiver<Vec<u8>>,
    /// Takes used buffers for the next chunks.
    pub used: std::sync::mpsc::Sender<Vec<u8>>,
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
    /// What has become of the file meanwhile.
    pub still: Still,
}

/// The parts of a file that a receiver misses which has `have`: offsets and lengths.
pub fn missing(shape: Shape, have: &BTreeMap<u64, Value>) -> Vec<(u64, u64)> {
    let lacking = (0..shape.count()).filter(|i| !have.contains_key(&(*i as u64)));
    join(lacking.map(|i| shape.range(i)))
}

/// Ranges that follow each other, joined.
pub fn join(ranges: impl Iterator<Item = Range<u64>>) -> Vec<(u64, u64)> {
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

/// Where chunks go, and where their buffers come back from: a new one would have to be cleared, and a large
/// one costs a page fault every 4 KiB.
struct Outlet {
    chunks: mpsc::Sender<Vec<u8>>,
    used: std::sync::mpsc::Receiver<Vec<u8>>,
}

impl Outlet {
    /// A buffer, with whatever was in it.
    fn buffer(&self) -> Vec<u8> {
        self.used.try_recv().unwrap_or_default()
    }

    /// Waits until there is room for it.
    fn send(&self, chunk: Vec<u8>) -> Result<(), String> {
        let sent = self.chunks.blocking_send(chunk);
        sent.map_err(|_| "nobody wants it any more".to_owned())
    }

    /// Sends a copy.
    fn copy(&self, bytes: &[u8]) -> Result<(), String> {
        let mut chunk = self.buffer();
        chunk.clear();
        chunk.extend_from_slice(bytes);
        self.send(chunk)
    }

    /// Sends these ranges of a chunk, which do not overlap.
    fn give_on(
        &self,
        chunk: &mut Chunk<'_>,
        wanted: impl IntoIterator<Item = Range<usize>>,
        holes: Holes,
    ) -> Result<(), String> {
        for range in wanted {
            match &mut *chunk {
                Chunk::Data(buffer) if range.len() == buffer.len() => {
                    self.send(mem::replace(*buffer, self.buffer()))?;
                    break;
                }
                Chunk::Zeros(_) if holes == Holes::Told => {}
                chunk => self.copy(&chunk.bytes()[range])?,
            }
        }
        Ok(())
    }
}

/// Where in the bytes `range` of a file those are whose groups are not in `have`.
fn lacking(
    shape: Shape,
    have: &BTreeMap<u64, Value>,
    range: &Range<u64>,
) -> impl Iterator<Item = Range<usize>> {
    let groups = shape.groups(range);
    let groups = groups.filter(|i| !have.contains_key(&(*i as u64)));
    let parts = join(groups.map(|i| {
        let group = shape.range(i);
        group.start.max(range.start)..group.end.min(range.end)
    }));
    let start = range.start;
    parts.into_iter().map(move |(at, length)| {
        let from = (at - start) as usize;
        from..from + length as usize
    })
}

impl Reading<Summary> {
    /// Reads all of the file that is open, and gives what a receiver misses that has `have`.
    pub fn whole(opened: Opened, have: BTreeMap<u64, Value>, holes: Holes) -> Self {
        Self::start(move |outlet| {
            let shape = Shape::new(opened.size());
            let mut sum = Sum::new(shape);
            let everything = [(0, shape.size())];
            read_parts(&opened, &everything, |at, chunk| {
                sum.update(chunk.bytes());
                let range = at..at + chunk.bytes().len() as u64;
                outlet.give_on(chunk, lacking(shape, &have, &range), holes)
            })?;
            let still = opened.check()?;
            let is = |i: u64| sum.values().get(i as usize);
            let differ = have.iter().filter(|(i, value)| is(**i) != Some(*value));
            Ok(Summary {
                hash: sum.root().into(),
                differ: differ.map(|(i, _)| *i).collect(),
                still,
            })
        })
    }
}

impl Reading<Still> {
    /// Reads parts of the file that is open, and says what has become of it meanwhile.
    pub fn parts(opened: Opened, parts: Vec<(u64, u64)>, holes: Holes) -> Self {
        Self::start(move |outlet| {
            read_parts(&opened, &parts, |_, chunk| {
                let all = 0..chunk.bytes().len();
                outlet.give_on(chunk, [all], holes)
            })?;
            Ok(opened.check()?)
        })
    }
}

impl Reading<(u64, Hash)> {
    /// Reads a pipe to its end, as it gives.
    pub fn pipe(mut pipe: impl Read + Send + 'static) -> Self {
        Self::start(move |outlet| {
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
                outlet.copy(&buffer[..n])?;
            }
        })
    }
}

impl<T: Send + 'static> Reading<T> {
    fn start(work: impl FnOnce(&Outlet) -> Result<T, String> + Send + 'static) -> Self {
        let (give, chunks) = mpsc::channel(AHEAD);
        let (used, again) = std::sync::mpsc::channel();
        let outlet = Outlet {
            chunks: give,
            used: again,
        };
        let end = tokio::task::spawn_blocking(move || work(&outlet));
        Self { chunks, used, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_shrinks_while_it_is_read_is_said_to_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        // More than is read ahead.
        let size = 2 * (AHEAD as u64 + 2) * BUFFER;
        std::fs::write(&path, vec![1; size as usize]).unwrap();
        let source = Sources::scan(std::slice::from_ref(&path))
            .unwrap()
            .list
            .remove(0);
        let opened = Opened::new(source).unwrap();
        let mut reading = Reading::whole(opened.clone(), BTreeMap::new(), Holes::Sent);
        assert!(reading.chunks.recv().await.is_some());
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(100)
            .unwrap();
        while reading.chunks.recv().await.is_some() {}
        let why = reading.end.await.unwrap().unwrap_err();
        assert_eq!(why, Unread::Changed.to_string());
        // Nor is it read again.
        assert_eq!(sum(&opened).unwrap_err(), Unread::Changed.to_string());
    }

    #[tokio::test]
    async fn of_a_file_comes_what_is_missing_and_what_is_there_but_differs_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let content: Vec<u8> = (0..1_000_000_u32).map(|i| (i >> 9) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let source = Sources::scan(&[path]).unwrap().list.remove(0);
        let opened = Opened::new(source).unwrap();
        let whole = sum(&opened).unwrap();
        let (shape, values) = (Shape::new(opened.size()), whole.values());
        // Two groups that are right, one that is not.
        let have = BTreeMap::from([(1, values[1]), (2, values[2]), (5, values[4])]);
        let mut reading = Reading::whole(opened, have.clone(), Holes::Sent);
        let mut came = Vec::new();
        while let Some(chunk) = reading.chunks.recv().await {
            came.extend_from_slice(&chunk);
        }
        let expected: Vec<u8> = missing(shape, &have)
            .into_iter()
            .flat_map(|(at, length)| &content[at as usize..(at + length) as usize])
            .copied()
            .collect();
        assert!(came == expected);
        assert_eq!(came.len() as u64, 1_000_000 - 3 * (64 << 10));
        let summary = reading.end.await.unwrap().unwrap();
        assert_eq!(summary.hash, blake3::hash(&content).into());
        assert_eq!(summary.differ, [5]);
    }

    /// A pipe that is interrupted once, and then ends or breaks.
    struct Pipe {
        bytes: &'static [u8],
        interrupted: bool,
        breaks: bool,
    }

    impl Read for Pipe {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if !std::mem::replace(&mut self.interrupted, true) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match self.bytes.read(&mut out[..3])? {
                0 if self.breaks => Err(io::ErrorKind::BrokenPipe.into()),
                n => Ok(n),
            }
        }
    }

    #[tokio::test]
    async fn a_pipe_is_read_to_its_end() {
        for breaks in [false, true] {
            let bytes = b"all that is said";
            let mut reading = Reading::pipe(Pipe {
                bytes,
                interrupted: false,
                breaks,
            });
            let mut came = Vec::new();
            while let Some(chunk) = reading.chunks.recv().await {
                came.extend_from_slice(&chunk);
            }
            assert_eq!(came, bytes);
            let end = reading.end.await.unwrap();
            match breaks {
                false => assert_eq!(end, Ok((16, blake3::hash(bytes).into()))),
                true => assert!(end.unwrap_err().contains("broken pipe")),
            }
        }
    }

    /// All that comes of `reading`.
    async fn all<T>(reading: &mut Reading<T>) -> Vec<u8> {
        let mut came = Vec::new();
        while let Some(chunk) = reading.chunks.recv().await {
            came.extend_from_slice(&chunk);
            // As the network does; the reader may have ended.
            let _ = reading.used.send(chunk);
        }
        came
    }

    /// Where data begins and ends anywhere, beside borders of groups and of what is read at a time.
    #[tokio::test]
    async fn of_parts_of_a_file_comes_what_is_in_them_and_holes_only_where_they_are_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let size = 4 * BUFFER + 1000;
        let data = [100..300_001, BUFFER * 2..BUFFER * 2 + 5, 800_000..size - 10];
        let is_data = |at: u64| data.iter().any(|range| range.contains(&at));
        let content: Vec<u8> = (0..size)
            .map(|at| {
                if is_data(at) {
                    1 + (at >> 9) as u8 % 250
                } else {
                    0
                }
            })
            .collect();
        std::fs::write(&path, &content).unwrap();
        let mut source = Sources::scan(&[path]).unwrap().list.remove(0);
        source.data = Some(data.clone().into());
        let opened = Opened::new(source).unwrap();
        let bytes = |parts: &[(u64, u64)], holes| {
            let places = parts.iter().flat_map(|&(at, length)| at..at + length);
            let wanted = places.filter(|at| holes == Holes::Sent || is_data(*at));
            wanted.map(|at| content[at as usize]).collect::<Vec<u8>>()
        };
        for parts in [
            vec![(0, size)],
            vec![(0, 100), (100, 1), (300_000, 2)],
            vec![(50, 100), (290_000, 300_000), (size - 11, 11)],
            vec![(700_000, 1), (BUFFER * 4 - 1, 2)],
            vec![(BUFFER, BUFFER), (3 * BUFFER, 1)],
            vec![(400_000, 10)],
        ] {
            for holes in [Holes::Sent, Holes::Told] {
                let mut reading = Reading::parts(opened.clone(), parts.clone(), holes);
                let came = all(&mut reading).await;
                reading.end.await.unwrap().unwrap();
                assert!(came == bytes(&parts, holes), "{parts:?} {holes:?}");
            }
        }
        let (shape, sum) = (Shape::new(size), sum(&opened).unwrap());
        assert_eq!(sum.root(), blake3::hash(&content));
        let have = [0, 1, 7, 12].map(|i| (i as u64, sum.values()[i]));
        let have = BTreeMap::from(have);
        for holes in [Holes::Sent, Holes::Told] {
            let mut reading = Reading::whole(opened.clone(), have.clone(), holes);
            let came = all(&mut reading).await;
            let summary = reading.end.await.unwrap().unwrap();
            assert_eq!(summary.hash, blake3::hash(&content).into());
            assert!(summary.differ.is_empty());
            assert!(came == bytes(&missing(shape, &have), holes), "{holes:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told_in_few_parts() {
        let group = crate::tree::MIN_GROUP;
        let shape = Shape::new(5 * group + 7);
        let lacks = |there: &[u64]| {
            let have = there.iter().map(|i| (*i, [7; 32])).collect();
            missing(shape, &have)
        };
        assert_eq!(lacks(&[]), [(0, 5 * group + 7)]);
        assert_eq!(lacks(&[0, 1, 2, 3, 4, 5]), []);
        assert_eq!(lacks(&[0, 3]), [(group, 2 * group), (4 * group, group + 7)]);
        assert_eq!(lacks(&[5]), [(0, 5 * group)]);
    }

    /// Of a pack those come that can be read as they were offered.
    #[test]
    fn a_file_that_fails_takes_no_bytes_of_a_pack() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
        for (i, file) in (1..).zip(&files) {
            std::fs::write(file, vec![i; 100]).unwrap();
        }
        let mut sources = Sources::scan(&files).unwrap();
        std::fs::remove_file(&files[1]).unwrap();
        // Shorter than was offered, with the time that was.
        sources.list[2].entry.size = 101;
        let pack = Pack::read(&sources, &[0, 1, 2, 3]);
        let hash = |i: u8| Hash::from(blake3::hash(&[i; 100]));
        assert_eq!(pack.files, [(0, hash(1)), (3, hash(4))]);
        assert_eq!(pack.bytes, [[1; 100], [4; 100]].concat());
        let failed: Vec<u64> = pack.failed.iter().map(|(i, _)| *i).collect();
        assert_eq!((failed, pack.changed), (vec![1], vec![2]));
    }
}
