//! The receiver's side of a session.
//!
//! One task reads the control stream and hands each incoming object to a task of its own, which
//! ends with what became of the file. A failed file does not end the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp::{Connection, IncomingObject, ObjectSummary, Progress, SendStream};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::ledger::{
    Announced, Ledger, Received, announced, blocking, compare, finish, keep, violation,
};
use crate::message::{
    self, Entry, FromReceiver, FromSender, Outcome, Problem, ProblemKind, Reader, Rejection,
};
use crate::meter::Meter;
use crate::offer::{Holding, Offer};
use crate::space::Claim;
use crate::store::{Begin, Store};
use crate::{DONE, Error, FAILED, MAX_PENDING};

/// Files that are written at a time.
const MAX_ACTIVE: usize = 8;
/// How long the sender may take from the handshake to its offer, and for each further part of that:
/// 64 kB in ten seconds are 52 kbit/s. Who has nothing to send gives his place to others.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// How long the sender may take to close when all is said.
const CLOSING: std::time::Duration = std::time::Duration::from_secs(5);

/// How much a sender offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Files, without directories.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Receives into `store` what the peer offers; `None` if it left without a word, or said none in ten
/// seconds. `meter` sees the
/// bytes arrive. Returns when the connection is closed.
///
/// `consent` is asked when the offer is known and within the store's limits, and nothing is
/// written before it agrees. It may take its time. What it says against the offer is told to the
/// sender.
pub async fn receive(
    connection: &Connection,
    store: Arc<Store>,
    meter: &Meter,
    consent: impl AsyncFnOnce(Offered) -> Result<(), Rejection>,
) -> Option<Received> {
    let opened = tokio::time::timeout(PATIENCE, connection.accept_bi()).await;
    let Ok(opened) = opened else {
        connection.close(FAILED, "nothing is offered");
        return None;
    };
    let (mut control, stream) = opened.ok()?;
    let mut reader = Reader::new(stream);
    let agree = async {
        let (entries, held) = read_offer(&mut reader, &store).await?;
        let entries = Arc::new(entries);
        let offered = Offered {
            files: entries.iter().filter(|entry| !entry.directory).count() as u64,
            bytes: entries.iter().map(|entry| entry.size).sum(),
        };
        tokio::select! {
            agreed = consent(offered) => agreed?,
            error = connection.closed() => return Err(Error::from(dfcp::Error::from(error))),
        }
        let claim = claim(&store, &entries, meter).await?;
        Ok::<_, Error>((entries, offered, (claim, held)))
    };
    let (entries, offered, _held) = match agree.await {
        Ok(agreed) => agreed,
        Err(failure) => {
            reject(connection, &mut control, &failure).await;
            return Some(Received {
                failure: Some(failure),
                ..Received::default()
            });
        }
    };
    meter.expect(offered.bytes);
    let mut session = Session {
        connection,
        ledger: Ledger::new(store, entries, control),
        meter,
        gate: Arc::new(Semaphore::new(MAX_ACTIVE)),
        under_way: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    let result = session.run(&mut reader).await;
    Some(session.end(result.err()).await)
}

/// Reads an offer and checks it.
pub(crate) async fn read_offer<R: AsyncRead + Unpin>(
    reader: &mut Reader<R>,
    store: &Store,
) -> Result<(Vec<Entry>, Holding), Error> {
    let mut offer = Offer::new(store.limits, &store.offers);
    loop {
        let part = tokio::time::timeout(PATIENCE, reader.next()).await;
        match part
            .map_err(|_| Error::protocol("the sender takes too long to say what it offers"))??
        {
            Some(FromSender::Offer {
                version,
                entries,
                more,
            }) => {
                offer.add(version, entries)?;
                if !more {
                    return Ok(offer.finish()?);
                }
            }
            _ => return Err(Error::protocol("the sender offers no files")),
        }
    }
}

/// Claims room on the disk for what is offered.
pub(crate) async fn claim(
    store: &Arc<Store>,
    entries: &Arc<Vec<Entry>>,
    meter: &Meter,
) -> Result<Arc<Claim>, Error> {
    let (store, entries) = (store.clone(), entries.clone());
    let progress = meter.progress().clone();
    // It may look at as many names as are offered.
    let claimed = tokio::task::spawn_blocking(move || store.claim(&entries, &progress)).await;
    Ok(claimed.map_err(|error| Error::Task(error.to_string()))??)
}

/// What the sender is told about what ends a session.
pub(crate) fn rejection(failure: &Error) -> FromReceiver {
    FromReceiver::Reject(match failure {
        Error::Refused(rejection) => rejection.clone(),
        other => Rejection::offer(other.to_string()),
    })
}

async fn reject(connection: &Connection, control: &mut SendStream, failure: &Error) {
    let said = async {
        message::write(control, &rejection(failure)).await?;
        control.finish()?;
        control.delivered().await?;
        Ok::<_, Error>(())
    };
    // Whether or not it is heard, the connection ends.
    let _ = tokio::time::timeout(CLOSING, said).await;
    connection.close(FAILED, &failure.to_string());
}

/// What is known of a file that is on its way.
enum UnderWay {
    /// Neither its object nor a word.
    Silent,
    /// Said before the object came.
    Announced(Announced),
    /// The object came; the task that receives it waits for the word.
    Arriving(oneshot::Sender<Announced>),
    /// Both.
    Settled,
}

struct Session<'a> {
    connection: &'a Connection,
    ledger: Ledger<SendStream>,
    meter: &'a Meter,
    gate: Arc<Semaphore>,
    /// Files that the sender may speak of and send: as many as it may have on their way.
    under_way: BTreeMap<u64, UnderWay>,
    tasks: JoinSet<(u64, Outcome)>,
}

impl Session<'_> {
    async fn run(&mut self, reader: &mut Reader) -> Result<(), Error> {
        self.ledger.say(&FromReceiver::Accept).await?;
        let absent = self.ledger.absent_directories();
        // The n-th object is the n-th file.
        let mut expected = self.ledger.places(false);
        let mut left = self.ledger.places(false).count();
        let mut files = self
            .ledger
            .places(false)
            .map(|i| (i as u64, UnderWay::Silent));
        self.under_way = files.by_ref().take(MAX_PENDING).collect();
        let mut control_open = true;
        while left > 0 {
            tokio::select! {
                message = reader.next(), if control_open => match message? {
                    Some(message) => self.on_message(message)?,
                    None => control_open = false,
                },
                object = self.connection.accept_object() => {
                    let object = object?;
                    let place = expected.next();
                    self.on_object(object, place.ok_or_else(|| violation("more objects than files"))?)?;
                }
                Some(done) = self.tasks.join_next() => {
                    left -= 1;
                    self.on_done(done).await?;
                    self.under_way.extend(files.next());
                }
            }
        }
        self.ledger.finish_directories(absent).await?;
        let steady_bps = self.meter.steady_bps();
        // Everything is in its place: what happens to the connection now changes nothing. The
        // sender closes it as soon as it has read this.
        let summary = FromReceiver::Summary { steady_bps };
        if self.ledger.say(&summary).await.is_ok() {
            let _ = self.ledger.control.shutdown().await;
        }
        Ok(())
    }

    fn on_message(&mut self, message: FromSender) -> Result<(), Error> {
        let (index, announced) = announced(message)?;
        if self.ledger.outcomes.contains_key(&index) {
            return Ok(()); // nobody waits for it any more
        }
        // Only of these: what is said of others would have to be kept until they come.
        let file = self.under_way.get_mut(&index);
        let file = file.ok_or_else(|| violation("a file that is not on its way"))?;
        *file = match std::mem::replace(file, UnderWay::Settled) {
            UnderWay::Silent => UnderWay::Announced(announced),
            UnderWay::Arriving(task) => {
                // The task has ended if it does not want to know.
                let _ = task.send(announced);
                UnderWay::Settled
            }
            _ => return Err(violation("two last words about a file")),
        };
        Ok(())
    }

    fn on_object(&mut self, object: IncomingObject, place: usize) -> Result<(), Error> {
        let index = place as u64;
        let (tell, told) = oneshot::channel();
        let file = self.under_way.get_mut(&index);
        let file = file.ok_or_else(|| violation("too many files at a time"))?;
        *file = match std::mem::replace(file, UnderWay::Settled) {
            UnderWay::Announced(announced) => {
                let _ = tell.send(announced);
                UnderWay::Settled
            }
            _ => UnderWay::Arriving(tell),
        };
        let file = Incoming {
            entry: self.ledger.entries[place].clone(),
            store: self.ledger.store.clone(),
            progress: self.meter.progress().clone(),
        };
        let gate = self.gate.clone();
        self.tasks.spawn(async move {
            let outcome = file.receive(object, gate, told).await;
            (index, outcome.unwrap_or_else(Outcome::Error))
        });
        Ok(())
    }

    async fn on_done(
        &mut self,
        done: Result<(u64, Outcome), tokio::task::JoinError>,
    ) -> Result<(), Error> {
        let (index, outcome) = done.map_err(|error| Error::Task(error.to_string()))?;
        self.under_way.remove(&index);
        self.ledger.settle(index, outcome).await
    }

    /// Closes the connection and collects what is left.
    async fn end(mut self, failure: Option<Error>) -> Received {
        match &failure {
            None => {
                let _ = tokio::time::timeout(CLOSING, self.connection.closed()).await;
                self.connection.close(DONE, "");
            }
            Some(failure) => self.connection.close(FAILED, &failure.to_string()),
        }
        self.under_way.clear();
        // Without a connection every task ends, and says what it keeps.
        while let Some(done) = self.tasks.join_next().await {
            if let Ok((index, outcome)) = done {
                self.ledger.outcomes.insert(index, outcome);
            }
        }
        self.ledger.close(failure)
    }
}

/// A file that is coming.
struct Incoming {
    entry: Entry,
    store: Arc<Store>,
    progress: Progress,
}

impl Incoming {
    async fn receive(
        self,
        mut object: IncomingObject,
        gate: Arc<Semaphore>,
        told: oneshot::Receiver<Announced>,
    ) -> Result<Outcome, Problem> {
        let permit = gate.acquire_owned().await;
        let (store, entry) = (self.store.clone(), self.entry.clone());
        let partial = match blocking(move || store.begin(&entry)).await? {
            Begin::Settled(outcome) => return Ok(outcome),
            Begin::Receive(partial) => partial,
        };
        let file = partial.file.try_clone();
        let received = match file {
            Ok(file) => {
                object
                    .recv_object(file, self.entry.size, &self.progress)
                    .await
            }
            Err(error) => Err(error.into()),
        };
        // Before waiting for the sender's word: other objects may have to make room for it.
        drop(permit);
        if let Err(problem) = self.verify(received, told).await {
            return Err(keep(&self.store, &partial, problem));
        }
        finish(self.store, partial, self.entry).await
    }

    /// Compares what arrived with what the sender says it sent.
    async fn verify(
        &self,
        received: Result<ObjectSummary, dfcp::Error>,
        told: oneshot::Receiver<Announced>,
    ) -> Result<(), Problem> {
        let path = &self.entry.path;
        let lost = |why: &str| Problem::new(ProblemKind::Connection, format!("{path}: {why}"));
        let announced = match &received {
            Ok(_) | Err(dfcp::Error::Reset(_)) => told.await.ok(),
            Err(dfcp::Error::Io(error)) => {
                let message = format!("receiver: {path}: {error}");
                return Err(Problem::new(ProblemKind::Target, message));
            }
            Err(error @ dfcp::Error::TooLong(_)) => {
                let message = format!("{path}: {error}");
                return Err(Problem::new(ProblemKind::Integrity, message));
            }
            Err(error) => return Err(lost(&error.to_string())),
        };
        match (received, announced) {
            (_, None) => Err(lost("the connection ended")),
            (_, Some(Announced::Failed(message))) => {
                Err(Problem::new(ProblemKind::Source, message))
            }
            (Err(error), _) => Err(lost(&error.to_string())),
            (Ok(summary), Some(announced)) => compare(&self.entry, summary, &announced),
        }
    }
}
