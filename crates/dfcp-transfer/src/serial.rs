//! A session over one stream of bytes each way: files follow the offer one after the other, each
//! as its content between two messages. For transports without objects.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use dfcp::{ObjectSummary, Progress};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::Error;
use crate::ledger::{Announced, Ledger, Received, blocking, compare};
use crate::ledger::{finish, keep, reason, violation};
use crate::message::{
    self, Entry, FromReceiver, FromSender, Hash, Outcome, People, Problem, ProblemKind, Reader,
    Wishes,
};
use crate::meter::Meter;
use crate::offer::{self, Refused};
use crate::receive::{prepare, read_offer, rejection};
use crate::send::{Reply, Sent, read_replies};
use crate::source::{Source, Sources, Still};
use crate::sparse::ZEROS;
use crate::store::{Begin, How, Store};
use crate::tenants::Tenant;
use crate::turns::Going;

/// Bytes that are read, written and hashed at a time.
const CHUNK: usize = 256 << 10;
/// Chunks between the file and the network.
const AHEAD: usize = 8;
/// How long the last words may take to arrive.
const CLOSING: Duration = Duration::from_secs(5);

/// Sends the files over `stream` and waits for the receiver's word on all of them, which comes as
/// `replies`; `meter` counts the bytes that are written.
///
/// # Errors
/// What ends the session as a whole; a file that fails is among the outcomes.
pub async fn send<R, W>(
    replies: R,
    mut stream: W,
    sources: &Sources,
    meter: &Meter,
) -> Result<Sent, Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    meter.expect(sources.bytes());
    meter.diary().offered(Arc::new(sources.entries()));
    let work = async {
        send_all(&mut stream, sources, meter).await?;
        Ok::<_, Error>(stream.shutdown().await?)
    };
    let on_reply = |reply| match reply {
        Reply::There(index, _) => meter.diary().settled(index, &Outcome::There),
        Reply::Settled(index, outcome) => meter.diary().settled(index, &outcome),
        _ => {}
    };
    tokio::select! {
        biased;
        sent = read_replies(Reader::new(replies), sources, on_reply) => sent,
        failure = async {
            match work.await {
                Err(failure) => failure,
                Ok(()) => std::future::pending().await,
            }
        } => Err(failure),
    }
}

async fn send_all<W: AsyncWrite + Unpin>(
    stream: &mut W,
    sources: &Sources,
    meter: &Meter,
) -> Result<(), Error> {
    for part in offer::split(&sources.entries(), sources.wishes, &sources.people()) {
        message::write(stream, &part).await?;
    }
    for (index, source) in (0..).zip(&sources.list) {
        if !source.entry.is_file() {
            continue;
        }
        let sent = send_one(stream, index, source, meter.progress()).await?;
        let last = sent.unwrap_or_else(|reason| FromSender::Failed {
            index,
            message: format!("sender: {}: {reason}", source.path.display()),
        });
        meter.diary().said(&last);
        message::write(stream, &last).await?;
    }
    Ok(())
}

/// Sends a file's content; what is to be said after it, or why it is not the file.
async fn send_one<W: AsyncWrite + Unpin>(
    stream: &mut W,
    index: u64,
    source: &Source,
    progress: &Progress,
) -> Result<Result<FromSender, String>, Error> {
    let file = match source.open() {
        Ok(opened) => opened,
        Err(reason) => return Ok(Err(reason.into())),
    };
    message::write(stream, &FromSender::Content { index }).await?;
    let reading = Reading::new(file.try_clone()?, source.entry.size);
    let (give, mut chunks) = mpsc::channel::<Vec<u8>>(AHEAD);
    let sending = async move {
        let mut left = source.entry.size;
        while let Some(chunk) = chunks.recv().await {
            stream.write_all(&chunk).await?;
            progress.add(chunk.len() as u64);
            left -= chunk.len() as u64;
        }
        // The receiver counts on as many bytes as were offered.
        while left > 0 {
            let zeros = &ZEROS[..ZEROS.len().min(usize::try_from(left).unwrap_or(CHUNK))];
            stream.write_all(zeros).await?;
            left -= zeros.len() as u64;
        }
        Ok::<_, Error>(())
    };
    let (read, sending) = tokio::join!(read_ahead(reading, give), sending);
    sending?;
    let sent = read.and_then(|summary| {
        let still = source.check(&file)?;
        Ok(FromSender::Sent {
            index,
            size: summary.size,
            blake3: Hash(summary.hash),
            grown: still == Still::There,
        })
    });
    Ok(sent)
}

/// A file that is read in order and hashed.
struct Reading {
    file: File,
    hasher: blake3::Hasher,
    size: u64,
    left: u64,
}

impl Reading {
    fn new(file: File, size: u64) -> Self {
        let hasher = blake3::Hasher::new();
        Self {
            file,
            hasher,
            size,
            left: size,
        }
    }

    fn next(&mut self) -> Result<Vec<u8>, String> {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(self.left).unwrap_or(CHUNK))];
        let read = self.file.read(&mut chunk);
        let n = read.map_err(|error| error.to_string())?;
        if n == 0 {
            return Err("it became shorter while it was being sent".into());
        }
        chunk.truncate(n);
        self.hasher.update(&chunk);
        self.left -= n as u64;
        Ok(chunk)
    }
}

/// Reads a file to its end, a few chunks ahead. It takes a thread once there is room for several, and none
/// waits for a peer: there are a few hundred for all.
async fn read_ahead(
    mut reading: Reading,
    mut give: mpsc::Sender<Vec<u8>>,
) -> Result<ObjectSummary, String> {
    while reading.left > 0 {
        if give.reserve_many(AHEAD / 2).await.is_err() {
            return Err("nobody wants it any more".into());
        }
        let work = move || {
            while reading.left > 0
                && let Ok(place) = give.try_reserve()
            {
                place.send(reading.next()?);
            }
            Ok::<_, String>((reading, give))
        };
        (reading, give) = on_a_thread(work).await?;
    }
    Ok(ObjectSummary {
        size: reading.size,
        hash: *reading.hasher.finalize().as_bytes(),
    })
}

async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// Receives into `store` what comes over `stream`, and answers over `control`; `None` if the peer left
/// without a word. `meter` sees the bytes arrive.
pub async fn receive<R, W>(
    stream: R,
    mut control: W,
    store: Arc<Store>,
    meter: &Meter,
) -> Option<Received>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut reader = Reader::new(stream);
    let alive = store.sessions.begin();
    let going = alive.going();
    let offer = read_offer(&mut reader, store.limits, &store.offers, &going);
    let (listed, wishes) = match offer.await {
        Ok(offer) => offer,
        Err(_) if !reader.has_started() => return None,
        Err(failure) => {
            farewell(&mut control, Some(&failure)).await;
            return Some(Received {
                failure: Some(failure),
                ..Received::default()
            });
        }
    };
    let (entries, _held) = (Arc::new(listed.entries), listed.holding);
    meter.expect(entries.iter().map(|entry| entry.size).sum());
    meter.diary().offered(entries.clone());
    let mut ledger = Ledger::new(store, entries, control);
    let told = (wishes, listed.people, listed.refused, going);
    let failure = receive_all(&mut reader, &mut ledger, meter, told)
        .await
        .err();
    farewell(&mut ledger.control, failure.as_ref()).await;
    Some(ledger.close(failure))
}

/// Says the last words. Whether or not they are heard, the session is over.
async fn farewell<W: AsyncWrite + Unpin>(control: &mut W, failure: Option<&Error>) {
    let said = async {
        if let Some(failure) = failure {
            message::write(control, &rejection(failure)).await?;
        }
        Ok::<_, Error>(control.shutdown().await?)
    };
    let _ = tokio::time::timeout(CLOSING, said).await;
}

async fn receive_all<R, W>(
    reader: &mut Reader<R>,
    ledger: &mut Ledger<W>,
    meter: &Meter,
    (wishes, people, refused, session): (Wishes, People, Refused, Going),
) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    // Everything comes, whatever is there: nobody could say so in time.
    refused.reject()?;
    let store = ledger.store.for_session(wishes, &people, refused)?;
    let mut store = (*store).clone();
    // Holes come as zeros here.
    store.keep.holes = false;
    ledger.store = Arc::new(store);
    let (_, _claim) = prepare(&ledger.store, &ledger.entries, wishes, (meter, session)).await?;
    let accept = FromReceiver::Accept {
        asked_ms: 0,
        holes: false,
        changed: false,
    };
    ledger.say(&accept).await?;
    let absent = ledger.absent_directories();
    for place in ledger.files() {
        let index = place as u64;
        let file = Incoming {
            index,
            entry: ledger.entries[place].clone(),
            store: ledger.store.clone(),
            progress: meter.progress().clone(),
        };
        let (outcome, failure) = file.receive(reader).await;
        meter.diary().settled(index, &outcome);
        let settled = ledger.settle(index, outcome).await;
        failure.map_or(settled, Err)?;
    }
    ledger.finish_others(absent, meter).await?;
    ledger.tell_left_out().await?;
    let steady_bps = meter.steady_bps();
    // Everything is in its place: what happens to the connection now changes nothing.
    let _ = ledger.say(&FromReceiver::Summary { steady_bps }).await;
    Ok(())
}

/// A file whose turn it is.
struct Incoming {
    index: u64,
    entry: Entry,
    store: Arc<Store>,
    progress: Progress,
}

/// What was written, or why it could not be; and the sender's word on it.
type Arrived = (Result<ObjectSummary, String>, Announced);

impl Incoming {
    /// What became of the file, and what ended the session meanwhile.
    async fn receive<R: AsyncRead + Unpin>(
        self,
        reader: &mut Reader<R>,
    ) -> (Outcome, Option<Error>) {
        match reader.next().await {
            Ok(Some(FromSender::Content { index })) if index == self.index => {}
            Ok(Some(FromSender::Failed { index, message })) if index == self.index => {
                let problem = Problem::new(ProblemKind::Source, reason(&message));
                return (Outcome::Error(problem), None);
            }
            Ok(Some(_)) => return self.lost(violation("files out of turn")),
            Ok(None) => return self.lost(ended()),
            Err(failure) => return self.lost(failure),
        }
        let (store, entry) = (self.store.clone(), self.entry.clone());
        // Nothing proves who sends: no session gives way to another.
        let tenant = Tenant::new([0; 32]);
        let begun = blocking(move || store.begin(&entry, &tenant, How::Small)).await;
        let target = match &begun {
            Ok(Begin::Receive(partial)) => Some(partial.file.try_clone()),
            _ => None,
        };
        let arrived = self.take(reader, target).await;
        let outcome = match begun {
            Err(problem) => Outcome::Error(problem),
            Ok(Begin::Settled(outcome)) => outcome,
            Ok(Begin::Receive(partial)) => match self.verify(&arrived) {
                Err(problem) => Outcome::Error(keep(&self.store, &partial, problem)),
                Ok(()) => finish(self.store, Arc::new(partial), self.entry)
                    .await
                    .unwrap_or_else(Outcome::Error),
            },
        };
        (outcome, arrived.err())
    }

    fn lost(&self, failure: Error) -> (Outcome, Option<Error>) {
        let problem = self.problem(ProblemKind::Connection, &failure);
        (Outcome::Error(problem), Some(failure))
    }

    fn problem(&self, kind: ProblemKind, reason: impl std::fmt::Display) -> Problem {
        Problem::new(kind, format!("{}: {reason}", self.entry.path))
    }

    /// Reads the content and what is said after it. A file that is not wanted, or cannot be
    /// written, is read all the same: others follow it.
    async fn take<R: AsyncRead + Unpin>(
        &self,
        reader: &mut Reader<R>,
        target: Option<std::io::Result<File>>,
    ) -> Result<Arrived, Error> {
        let (give, chunks) = mpsc::channel(AHEAD);
        let (content, written) = tokio::join!(
            self.read_content(reader, give),
            write_behind(target, chunks)
        );
        content?;
        let word = match reader.next().await?.ok_or_else(ended)? {
            FromSender::Sent {
                index,
                size,
                blake3,
                ..
            } if index == self.index => Announced::Sent { size, hash: blake3 },
            FromSender::Failed { index, message } if index == self.index => {
                Announced::failed(&message)
            }
            _ => return Err(violation("files out of turn")),
        };
        Ok((written, word))
    }

    async fn read_content<R: AsyncRead + Unpin>(
        &self,
        reader: &mut Reader<R>,
        chunks: mpsc::Sender<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut left = self.entry.size;
        while left > 0 {
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            let n = reader.bytes(&mut chunk).await?;
            if n == 0 {
                return Err(ended());
            }
            chunk.truncate(n);
            left -= n as u64;
            self.progress.add(n as u64);
            // A disk that failed takes no more.
            let _ = chunks.send(chunk).await;
        }
        Ok(())
    }

    fn verify(&self, arrived: &Result<Arrived, Error>) -> Result<(), Problem> {
        match arrived {
            Err(failure) => Err(self.problem(ProblemKind::Connection, failure)),
            Ok((_, Announced::Failed(message))) => Err(Problem::new(ProblemKind::Source, message)),
            Ok((Err(error), _)) => {
                let message = format!("receiver: {}: {error}", self.entry.path);
                Err(Problem::new(ProblemKind::Target, message))
            }
            Ok((Ok(summary), word)) => compare(&self.entry, *summary, word),
        }
    }
}

fn ended() -> Error {
    Error::protocol("the sender ended the session early")
}

/// Writes and hashes what comes, some chunks behind. It takes a thread while there is something to write.
async fn write_behind(
    target: Option<std::io::Result<File>>,
    mut chunks: mpsc::Receiver<Vec<u8>>,
) -> Result<ObjectSummary, String> {
    let mut target = target.transpose().map_err(|error| error.to_string())?;
    let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
    while let Some(first) = chunks.recv().await {
        let work = move || {
            let mut next = Some(first);
            while let Some(chunk) = next {
                if let Some(file) = &mut target {
                    file.write_all(&chunk).map_err(|error| error.to_string())?;
                    hasher.update(&chunk);
                }
                size += chunk.len() as u64;
                next = chunks.try_recv().ok();
            }
            Ok((target, hasher, size, chunks))
        };
        (target, hasher, size, chunks) = on_a_thread(work).await?;
    }
    let hash = *hasher.finalize().as_bytes();
    Ok(ObjectSummary { size, hash })
}

#[cfg(test)]
mod tests;
