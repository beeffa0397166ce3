//! How files become objects: announced on the control stream, opened in the same order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use dfcp::{Connection, SendStream, VarInt};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::Asked;
use super::board::{Board, Work};
use crate::message::{FromSender, Hash};
use crate::read::{self, Holes, Opened, Pack, Reading, join, missing};
use crate::source::{Sources, Still, Unread};
use crate::sparse;
use crate::tree::{Shape, Sum, Value};
use crate::{Error, MAX_PENDING};

/// Large files that are read at a time.
const MAX_ACTIVE: usize = 4;
/// Objects on their way, of which packs wait in memory: 32 MiB.
const MAX_OPEN: usize = 32;
/// Values of groups in a message, an eighth of what fits: 70 bytes each.
const LISTED: usize = 512;
/// Files of which it is known what was read of them: a receiver compares as many at a time. They take up
/// to 128 KiB each.
const MAX_SUMS: usize = MAX_PENDING;
/// Code of an object whose source failed or changed while it was read.
const UNREADABLE: VarInt = VarInt::from_u32(1);

/// What all tasks share.
#[derive(Clone)]
pub struct Objects {
    connection: Connection,
    sources: Arc<Sources>,
    board: Arc<Board>,
    say: UnboundedSender<FromSender>,
    /// Between an announcement and the opening of its object nobody else opens one.
    opening: Arc<Mutex<()>>,
    /// The priority of the next one.
    opened: Arc<AtomicI32>,
    /// Packs are written one after the other: a receiver takes a few objects at a time, and one that it
    /// has not begun must not take the room of those that it has.
    writing: Arc<Mutex<()>>,
    /// Objects on their way.
    pending: Arc<Semaphore>,
    active: Arc<Semaphore>,
    /// Of files whose groups the receiver was told, until it says which of them it has.
    sums: Arc<std::sync::Mutex<BTreeMap<u64, (Opened, Sum)>>>,
}

impl Objects {
    /// Sends over `connection` what `board` says, and tells of it by `say`.
    pub fn new(
        connection: &Connection,
        sources: &Arc<Sources>,
        board: &Arc<Board>,
        say: UnboundedSender<FromSender>,
    ) -> Self {
        Self {
            connection: connection.clone(),
            sources: sources.clone(),
            board: board.clone(),
            say,
            opening: Arc::default(),
            opened: Arc::default(),
            writing: Arc::default(),
            pending: Arc::new(Semaphore::new(MAX_OPEN)),
            active: Arc::new(Semaphore::new(MAX_ACTIVE)),
            sums: Arc::default(),
        }
    }

    /// Sends what is to be sent, until it is dropped.
    pub async fn send_all(self) -> Result<(), Error> {
        let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
        loop {
            tokio::select! {
                Some(done) = tasks.join_next() => match done {
                    Ok(done) => done?,
                    // The receiver wants nothing of it.
                    Err(ended) if ended.is_cancelled() => {}
                    Err(ended) => return Err(Error::Task(ended.to_string())),
                },
                work = self.board.next() => self.start(work, &mut tasks).await?,
            }
        }
    }

    async fn start(&self, work: Work, tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
        match work {
            Work::Pack(places) => {
                let sources = self.sources.clone();
                let pack = in_background(move || Pack::read(&sources, &places)).await?;
                for (index, reason) in &pack.failed {
                    self.failed(*index, reason);
                }
                for index in &pack.changed {
                    self.board.changed(*index);
                }
                if !pack.files.is_empty() {
                    let permit = self.permit(&self.pending).await?;
                    let announcement = FromSender::Pack {
                        files: pack.files,
                        grown: pack.grown,
                    };
                    let object = self.open(announcement).await?;
                    tasks.spawn(send_pack(object, pack.bytes, self.writing.clone(), permit));
                }
            }
            Work::File(index, have, holes) => {
                let active = self.permit(&self.active).await?;
                let sender = self.clone();
                let task = tasks.spawn(async move {
                    let _active = active;
                    sender.send_file(index, have, holes).await
                });
                self.board.runs(index, task);
            }
            Work::Changed(index) => {
                let active = self.permit(&self.active).await?;
                let sender = self.clone();
                let task = tasks.spawn(async move {
                    let _active = active;
                    sender.send_changed(index).await
                });
                self.board.runs(index, task);
            }
            Work::GiveUp(index) => self.failed(index, &Unread::Changed.to_string()),
            Work::Stream(index) => {
                let sender = self.clone();
                let task = tasks.spawn(async move { sender.send_stream(index).await });
                self.board.runs(index, task);
            }
            Work::Hash(index, asked) => {
                let active = self.permit(&self.active).await?;
                let sender = self.clone();
                tasks.spawn(async move {
                    let _active = active;
                    sender.tell_hash(index, asked).await
                });
            }
        }
        Ok(())
    }

    async fn permit(&self, of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
        let permit = of.clone().acquire_owned().await;
        permit.map_err(|_| Error::Task("a task ended early".to_owned()))
    }

    /// Announces an object and opens it.
    async fn open(&self, announcement: FromSender) -> Result<SendStream, Error> {
        let _order = self.opening.lock().await;
        let object = self.connection.open_object().await?;
        // What was begun goes first: less of it is lost if it all ends, and what a receiver has begun
        // is never stuck behind what it has not.
        object.set_priority(self.opened.fetch_sub(1, Ordering::Relaxed))?;
        self.tell(announcement);
        Ok(object)
    }

    /// Nobody listens any more only when the session is over.
    fn tell(&self, message: FromSender) {
        let _ = self.say.send(message);
    }

    fn failed(&self, index: u64, reason: &str) {
        let path = self.sources.list[index as usize].path.display();
        self.tell(FromSender::Failed {
            index,
            message: format!("sender: {path}: {reason}"),
        });
    }

    /// Opens a file as it was offered; `None` if it cannot be, which was told, or is another version, which is
    /// sent in its turn.
    async fn open_file(&self, index: u64) -> Result<Option<Opened>, Error> {
        let source = self.sources.list[index as usize].clone();
        Ok(match in_background(move || Opened::new(source)).await? {
            Ok(opened) => Some(opened),
            Err(Unread::Changed) => {
                self.board.changed(index);
                None
            }
            Err(reason) => {
                self.failed(index, &reason.to_string());
                None
            }
        })
    }

    async fn tell_hash(&self, index: u64, asked: Asked) -> Result<(), Error> {
        let source = self.sources.list[index as usize].clone();
        let read = in_background(move || {
            let (opened, asked) = match Opened::new(source.clone()) {
                // Its groups have other places.
                Err(Unread::Changed) => (Opened::changed(&source)?, Asked::Hash),
                opened => (opened?, asked),
            };
            let sum = read::sum(&opened)?;
            Ok::<_, String>((opened, sum, asked))
        });
        match read.await? {
            Ok((opened, sum, asked)) => {
                let blake3 = sum.root().into();
                if asked == Asked::Groups {
                    for values in sum.values().chunks(LISTED) {
                        let values = values.iter().copied().map(Hash).collect();
                        self.tell(FromSender::Groups { index, values });
                    }
                    let mut sums = self.sums();
                    sums.insert(index, (opened, sum));
                    if sums.len() > MAX_SUMS {
                        // Without it the file is read once more.
                        sums.pop_first();
                    }
                }
                self.tell(FromSender::Hash { index, blake3 });
            }
            Err(reason) => self.failed(index, &reason),
        }
        Ok(())
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Opened, Sum)>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a file that was read before but for those groups that the receiver has, and has right.
    async fn send_rest(
        &self,
        index: u64,
        (opened, sum): (Opened, Sum),
        mut have: BTreeMap<u64, Value>,
        holes: Holes,
    ) -> Result<(), Error> {
        let shape = Shape::new(opened.size());
        have.retain(|i, value| sum.values().get(*i as usize) == Some(value));
        let parts = missing(shape, &have);
        let reading = Reading::parts(opened, parts.clone(), holes);
        let extents = self.tell_holes(index, parts, holes);
        if let Some(still) = self.send_parts(index, extents, reading).await? {
            self.tell(FromSender::Sent {
                index,
                size: shape.size(),
                blake3: sum.root().into(),
                grown: still == Still::There,
            });
        }
        Ok(())
    }

    /// Sends a file but for what the receiver has of it, and tells its hash, or why there is none.
    async fn send_file(
        &self,
        index: u64,
        have: Option<BTreeMap<u64, Value>>,
        holes: Holes,
    ) -> Result<(), Error> {
        let known = self.sums().remove(&index);
        let opened = match &known {
            Some((opened, _)) => opened.clone(),
            None => match self.open_file(index).await? {
                Some(opened) => opened,
                None => return Ok(()),
            },
        };
        if have.is_some() {
            self.tell(FromSender::Resume { index });
        }
        let have = have.unwrap_or_default();
        if let Some(known) = known {
            return self.send_rest(index, known, have, holes).await;
        }
        let shape = Shape::new(opened.size());
        let extents = self.tell_holes(index, missing(shape, &have), holes);
        let reading = Reading::whole(opened.clone(), have, holes);
        let Some(read) = self.send_parts(index, extents, reading).await? else {
            return Ok(());
        };
        let mut still = read.still;
        if !read.differ.is_empty() {
            let differ = join(read.differ.iter().map(|i| shape.range(*i as usize)));
            let reading = Reading::parts(opened, differ.clone(), holes);
            let extents = self.tell_holes(index, differ, holes);
            still = match self.send_parts(index, extents, reading).await? {
                Some(still) => still,
                None => return Ok(()),
            };
        }
        self.tell(FromSender::Sent {
            index,
            size: shape.size(),
            blake3: read.hash,
            grown: still == Still::There,
        });
        Ok(())
    }

    /// Tells which of these parts of a file are holes; the rest is to be sent.
    fn tell_holes(&self, index: u64, parts: Vec<(u64, u64)>, holes: Holes) -> Vec<(u64, u64)> {
        let source = &self.sources.list[index as usize];
        let Some(data) = source.data.as_ref().filter(|_| holes == Holes::Told) else {
            return parts;
        };
        let [parts, holes] = sparse::divide(&parts, data);
        for extents in holes.chunks(sparse::LISTED) {
            let extents = extents.to_vec();
            self.tell(FromSender::Holes { index, extents });
        }
        parts
    }

    /// Sends what standard input gives, to its end.
    async fn send_stream(&self, index: u64) -> Result<(), Error> {
        let reading = Reading::pipe(std::io::stdin());
        if let Some((size, blake3)) = self.send_all_of(index, reading).await? {
            self.tell(FromSender::Sent {
                index,
                size,
                blake3,
                grown: false,
            });
        }
        Ok(())
    }

    /// Sends a file in the version that there is by now, whatever its size.
    async fn send_changed(&self, index: u64) -> Result<(), Error> {
        let source = self.sources.list[index as usize].clone();
        let opened = match in_background(move || Opened::changed(&source)).await? {
            Ok(opened) => opened,
            Err(reason) => {
                self.failed(index, &reason.to_string());
                return Ok(());
            }
        };
        let size = opened.size();
        let reading = Reading::whole(opened, BTreeMap::new(), Holes::Sent);
        if let Some(read) = self.send_all_of(index, reading).await? {
            self.tell(FromSender::Sent {
                index,
                size,
                blake3: read.hash,
                grown: read.still == Still::There,
            });
        }
        Ok(())
    }

    /// Sends all that is read as one object; `None` as for [`Self::send_parts`].
    async fn send_all_of<T>(
        &self,
        index: u64,
        mut reading: Reading<T>,
    ) -> Result<Option<T>, Error> {
        let permit = self.permit(&self.pending).await?;
        let mut object = self.open(FromSender::Stream { index }).await?;
        while let Some(mut chunk) = reading.chunks.recv().await {
            match object.write_buffer(&mut chunk).await {
                Err(dfcp::Error::Reset(_)) => return Ok(None),
                written => written?,
            }
            // The reader may have ended already.
            let _ = reading.used.send(chunk);
        }
        let read = reading.end.await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(read) => {
                object.finish()?;
                hold_until_delivered(object, permit);
                Ok(Some(read))
            }
            Err(reason) => {
                object.reset(UNREADABLE);
                self.failed(index, &reason);
                Ok(None)
            }
        }
    }

    /// Sends parts of a file as objects; `None` if the file could not be read, which was told, or the
    /// receiver wants no more of it, which it tells.
    async fn send_parts<T: Send + 'static>(
        &self,
        index: u64,
        extents: Vec<(u64, u64)>,
        mut reading: Reading<T>,
    ) -> Result<Option<T>, Error> {
        for extents in extents.chunks(sparse::LISTED) {
            let permit = self.permit(&self.pending).await?;
            let mut left: u64 = extents.iter().map(|(_, length)| length).sum();
            let extents = extents.to_vec();
            let mut object = self.open(FromSender::Part { index, extents }).await?;
            while left > 0
                && let Some(mut chunk) = reading.chunks.recv().await
            {
                left = left.saturating_sub(chunk.len() as u64);
                match object.write_buffer(&mut chunk).await {
                    Err(dfcp::Error::Reset(_)) => return Ok(None),
                    written => written?,
                }
                // The reader may have ended already.
                let _ = reading.used.send(chunk);
            }
            if left > 0 {
                // The reader says why.
                object.reset(UNREADABLE);
                break;
            }
            object.finish()?;
            hold_until_delivered(object, permit);
        }
        let read = reading.end.await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(read) => Ok(Some(read)),
            Err(reason) => {
                self.failed(index, &reason);
                Ok(None)
            }
        }
    }
}

/// What is said next need not wait for an object, but no more objects than may be open.
fn hold_until_delivered(object: SendStream, permit: OwnedSemaphorePermit) {
    tokio::spawn(async move {
        let _ = object.delivered().await;
        drop(permit);
    });
}

/// Does what waits for a disk.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Task(error.to_string()))
}

async fn send_pack(
    mut object: SendStream,
    bytes: Vec<u8>,
    writing: Arc<Mutex<()>>,
    _permit: OwnedSemaphorePermit,
) -> Result<(), Error> {
    let sent = async {
        // First come, first served.
        let turn = writing.lock().await;
        object.write_chunk(Bytes::from(bytes)).await?;
        drop(turn);
        object.finish()?;
        object.delivered().await.map(|_| ())
    };
    match sent.await {
        // The receiver wants none of these files.
        Err(dfcp::Error::Reset(_)) => Ok(()),
        sent => Ok(sent?),
    }
}
