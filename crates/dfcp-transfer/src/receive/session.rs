//! What the receiver does with a session that it has agreed to.

mod announced;
mod held;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dfcp::{CloseCode, Connection, IncomingObject, ObjectSummary, SendStream};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::files::{Examined, Files, PartEnd, Unpacked, lost, read_end};
use super::silence::Work;
use super::{CLOSING, Known, let_hear};
use crate::ledger::{Announced, Ledger, Received, violation};
use crate::memory::Share;
use crate::message::{FromReceiver, FromSender, Outcome, Problem, ProblemKind, Reader, Wishes};
use crate::meter::Meter;
use crate::partial::Partial;
use crate::space::Claim;
use crate::store::Ask;
use crate::tenants::Tenant;
use crate::turns::Alive;
use crate::{DONE, Error, FAILED, TAKEN_OVER};
use announced::Announcement;
use held::Held;

/// Objects that are written at a time, and files that are looked at.
pub(crate) const MAX_ACTIVE: usize = 8;
/// How often the sender hears how much has arrived, at most: as often as a progress bar is drawn.
const TELLING: Duration = Duration::from_millis(200);
/// Lists of holes that have not been dealt with: 1 MiB. More wait until a disk that is slower than the network
/// has made these.
const MAX_HOLES: usize = 64;
/// Numbers and hashes in a message: an eighth of what fits, or so.
const LISTED: usize = 512;

/// What a task ended with.
pub(super) enum Event {
    Packed(Unpacked),
    /// The end of a pack's object has come.
    Ended,
    Part(u64, PartEnd),
    Holes(u64, PartEnd),
    Examined(u64, Examined),
    Finished(u64, Outcome),
}

/// A file that something is known of, until its outcome is.
enum State {
    /// It is being looked at, or its hash was asked for, or the sender was told what is there: what
    /// comes of it was sent without knowing.
    Held(Held),
    /// It comes in parts.
    Incoming(Incoming),
    /// It is being put in its place.
    Finishing,
}

impl State {
    /// Whether it comes, and more may be said of it.
    fn is_begun(&self) -> bool {
        matches!(self, Self::Incoming(incoming) if incoming.word.is_none() && incoming.end.is_none())
    }
}

#[derive(Default)]
struct Incoming {
    /// Opened by whoever comes first.
    partial: Arc<OnceCell<Arc<Partial>>>,
    /// Objects with parts of it that were announced, and lists of holes, that have not ended.
    objects: usize,
    /// Bytes of these.
    bytes: u64,
    /// Bytes that were said to be in holes.
    holes: u64,
    word: Option<Announced>,
    /// What came, of a stream.
    summary: Option<ObjectSummary>,
    /// What became of it while objects may still come.
    end: Option<Result<Outcome, Problem>>,
}

pub(super) struct Session<'a> {
    connection: &'a Connection,
    ledger: Ledger<SendStream>,
    meter: &'a Meter,
    files: Files,
    /// Files that are examined or have parts open.
    looking: Arc<Semaphore>,
    states: BTreeMap<u64, State>,
    announced: VecDeque<Announcement>,
    come: VecDeque<IncomingObject>,
    tasks: JoinSet<Event>,
    /// Held, and to be examined.
    unexamined: BTreeMap<u64, Ask>,
    /// What values of groups may take of memory.
    values: Share,
    /// Lists of holes that have not been dealt with.
    holes: usize,
    /// Taken from packs that are here: what a later one has of them comes for nothing.
    packed: BTreeSet<u64>,
    /// Files without an outcome.
    left: usize,
    told: u64,
    /// What is read of large files ends with it.
    alive: Option<Alive>,
}

impl<'a> Session<'a> {
    pub fn new(
        connection: &'a Connection,
        ledger: Ledger<SendStream>,
        meter: &'a Meter,
        (tenant, wishes, claim): (Arc<Tenant>, Wishes, Arc<Claim>),
        alive: Alive,
    ) -> Self {
        let files = Files {
            store: ledger.store.clone(),
            entries: ledger.entries.clone(),
            progress: meter.progress().clone(),
            tenant,
            wishes,
            gate: Arc::new(Semaphore::new(MAX_ACTIVE)),
            writing: Arc::new(ledger.store.writers.begin()),
            claim,
            session: alive.going(),
            work: Work::default(),
        };
        meter.diary().offered(ledger.entries.clone());
        Self {
            connection,
            values: files.store.values.share(),
            left: ledger.files().count(),
            ledger,
            meter,
            files,
            looking: Arc::new(Semaphore::new(MAX_ACTIVE)),
            states: BTreeMap::new(),
            announced: VecDeque::new(),
            come: VecDeque::new(),
            tasks: JoinSet::new(),
            unexamined: BTreeMap::new(),
            holes: 0,
            packed: BTreeSet::new(),
            told: 0,
            alive: Some(alive),
        }
    }

    /// What this side does at files of the session.
    pub fn work(&self) -> Work {
        self.files.work.clone()
    }

    pub async fn run(&mut self, reader: &mut Reader, known: Known) -> Result<(), Error> {
        let absent = self.ledger.absent_directories();
        self.tell_known(known).await?;
        let accept = FromReceiver::Accept {
            asked_ms: self.meter.diary().asked().as_millis() as u64,
            holes: self.files.store.keep.holes,
            changed: true,
        };
        self.ledger.say(&accept).await?;
        let mut telling = tokio::time::interval(TELLING);
        telling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let tenant = self.files.tenant.clone();
        let mut control_open = true;
        while self.left > 0 {
            self.examine_next().await?;
            tokio::select! {
                message = reader.next(), if control_open && self.holes < MAX_HOLES => match message? {
                    Some(message) => self.on_message(message).await?,
                    None => control_open = false,
                },
                object = self.connection.accept_object() => {
                    self.come.push_back(object?);
                    self.pair();
                }
                Some(done) = self.tasks.join_next() => self.on_done(done).await?,
                _ = telling.tick() => self.tell_progress().await?,
                () = tenant.evicted.notified() => return Err(Error::TakenOver),
            }
        }
        self.tell_progress().await?;
        self.ledger.finish_others(absent, self.meter).await?;
        self.ledger.tell_left_out().await?;
        let steady_bps = self.meter.steady_bps();
        let summary = FromReceiver::Summary { steady_bps };
        self.say_last(&summary).await;
        Ok(())
    }

    /// Says the last word. Everything is in its place: what happens to the connection now changes nothing.
    async fn say_last(&mut self, summary: &FromReceiver) {
        self.meter.end();
        if self.ledger.say(summary).await.is_ok() {
            let quiet = self.ledger.store.quiet;
            let_hear(self.connection, &mut self.ledger.control, quiet).await;
        }
    }

    /// Says what is there of the offer, and no more.
    pub async fn run_dry(&mut self, known: Known) -> Result<(), Error> {
        // Held files are those that are sent, or a part of them.
        let known = known.into_iter().chain(self.ledger.others_there());
        self.tell_known(known.collect()).await?;
        let summary = FromReceiver::Summary { steady_bps: None };
        self.ledger
            .say(&FromReceiver::Accept {
                asked_ms: 0,
                holes: false,
                changed: false,
            })
            .await?;
        self.say_last(&summary).await;
        Ok(())
    }

    async fn tell_progress(&mut self) -> Result<(), Error> {
        let bytes = self.meter.progress().bytes();
        if bytes == self.told {
            return Ok(());
        }
        self.told = bytes;
        self.ledger.say(&FromReceiver::Progress { bytes }).await
    }

    /// Whether something is known of a file, so that what comes of it may be for nothing.
    fn is_known(&self, index: u64) -> bool {
        self.ledger.outcomes.contains_key(&index)
            || self.states.contains_key(&index)
            || self.unexamined.contains_key(&index)
            || self.packed.contains(&index)
    }

    async fn on_message(&mut self, message: FromSender) -> Result<(), Error> {
        self.meter.diary().said(&message);
        match message {
            FromSender::Pack { files, .. } => self.announce_pack(files),
            FromSender::Part { index, extents } => self.announce_part(index, extents),
            FromSender::Holes { index, extents } => self.on_holes(index, extents),
            FromSender::Stream { index } => self.announce_stream(index),
            FromSender::Resume { index } => self.on_resume(index),
            FromSender::Groups { index, values } => self.on_groups(index, values),
            FromSender::Hash { index, blake3 } => self.on_hash(index, blake3),
            FromSender::Sent {
                index,
                size,
                blake3,
                ..
            } => {
                let word = Announced::Sent { size, hash: blake3 };
                self.on_word(index, word).await
            }
            FromSender::Failed { index, message } => {
                self.on_word(index, Announced::failed(&message)).await
            }
            FromSender::Offer { .. } => Err(violation("a second offer")),
            FromSender::Content { .. } => Err(violation("content out of turn")),
        }
    }

    /// Whether there is such a file.
    fn check(&self, index: u64) -> Result<(), Error> {
        let entry = usize::try_from(index).ok();
        let entry = entry.and_then(|i| self.ledger.entries.get(i));
        match entry {
            Some(entry) if entry.is_file() => Ok(()),
            _ => Err(violation("a file that was not offered")),
        }
    }

    async fn on_word(&mut self, index: u64, word: Announced) -> Result<(), Error> {
        self.check(index)?;
        if self.ledger.outcomes.contains_key(&index) {
            return Ok(()); // nobody waits for it any more
        }
        match (self.states.get_mut(&index), word) {
            (Some(State::Incoming(incoming)), word) => {
                if incoming.word.replace(word).is_some() {
                    return Err(violation("two last words about a file"));
                }
                self.advance(index).await
            }
            // What was said before the sender knew that something is there.
            (None, Announced::Sent { .. }) if self.unexamined.contains_key(&index) => Ok(()),
            // What is in its place soon is not told as lost.
            (None, Announced::Failed(_)) if self.packed.contains(&index) => Ok(()),
            // It cannot be read, whatever is there of it.
            (None | Some(State::Held(_)), Announced::Failed(message)) => {
                let problem = Problem::new(ProblemKind::Source, message);
                self.settle(index, Outcome::Error(problem)).await
            }
            (Some(State::Held(_) | State::Finishing), _) => Ok(()),
            (None, Announced::Sent { .. }) => Err(violation("a file that is not on its way")),
        }
    }

    async fn on_done(&mut self, done: Result<Event, JoinError>) -> Result<(), Error> {
        match done.map_err(|error| Error::Task(error.to_string()))? {
            Event::Packed(unpacked) => {
                if let Some(rest) = unpacked.rest {
                    self.tasks.spawn(async move {
                        read_end(rest).await;
                        Event::Ended
                    });
                }
                let (mut done, mut others) = (Vec::new(), Vec::new());
                for (index, outcome) in unpacked.outcomes {
                    // Each file of a pack counts once, whatever is said of it.
                    if !self.packed.remove(&index) {
                        continue;
                    }
                    match outcome == Outcome::Done && !self.is_known(index) {
                        true => done.push(index),
                        false => others.push((index, outcome)),
                    }
                }
                self.left -= done.len();
                for index in &done {
                    self.meter.diary().settled(*index, &Outcome::Done);
                }
                // All of it is noted, also where the sender cannot be told any more.
                let mut told = self.ledger.settle_done(done.into_iter()).await;
                for (index, outcome) in others {
                    told = told.and(self.settle(index, outcome).await);
                }
                told?;
            }
            Event::Holes(index, end) => {
                self.holes -= 1;
                self.on_part(index, end).await?;
            }
            Event::Part(index, end) => self.on_part(index, end).await?,
            Event::Ended => {}
            Event::Examined(index, examined) => self.on_examined(index, examined).await?,
            Event::Finished(index, outcome) => self.settle(index, outcome).await?,
        }
        Ok(())
    }

    /// An object of a file, or a list of its holes, has been dealt with.
    async fn on_part(&mut self, index: u64, end: PartEnd) -> Result<(), Error> {
        if let Some(State::Incoming(incoming)) = self.states.get_mut(&index) {
            incoming.objects -= 1;
            match end {
                // The sender gave it up, and says why.
                PartEnd::Whole | PartEnd::Reset => {}
                PartEnd::Summed(summary) => incoming.summary = Some(summary),
                PartEnd::Settled(end) => {
                    incoming.end.get_or_insert(end);
                }
            }
            self.advance(index).await?;
        }
        Ok(())
    }

    /// Goes on with a file once nothing of it is on its way any more.
    async fn advance(&mut self, index: u64) -> Result<(), Error> {
        let Some(State::Incoming(incoming)) = self.states.get_mut(&index) else {
            return Ok(());
        };
        if incoming.objects > 0 || (incoming.word.is_none() && incoming.end.is_none()) {
            return Ok(());
        }
        let Some(State::Incoming(incoming)) = self.states.insert(index, State::Finishing) else {
            return Ok(());
        };
        let partial = incoming.partial.get().cloned();
        let end = incoming.end.unwrap_or(Ok(Outcome::Done));
        let (files, word) = (self.files.clone(), (incoming.word, incoming.summary));
        self.tasks.spawn(async move {
            let outcome = files.finish(index, partial, end, word).await;
            Event::Finished(index, outcome)
        });
        Ok(())
    }

    async fn settle(&mut self, index: u64, outcome: Outcome) -> Result<(), Error> {
        self.states.remove(&index);
        self.unexamined.remove(&index);
        if self.ledger.outcomes.contains_key(&index) {
            return Ok(());
        }
        self.left -= 1;
        self.meter.diary().settled(index, &outcome);
        self.ledger.settle(index, outcome).await
    }

    /// Closes the connection and collects what is left.
    pub async fn end(mut self, failure: Option<Error>) -> Received {
        match &failure {
            None => {
                let _ = tokio::time::timeout(CLOSING, self.connection.closed()).await;
                self.connection.close(DONE, "");
            }
            Some(failure @ Error::TakenOver) => {
                self.connection.close(TAKEN_OVER, &failure.to_string());
            }
            // It may come again.
            Some(failure @ Error::Silent) => {
                self.connection
                    .close(CloseCode::LIMIT, &failure.to_string());
            }
            Some(failure) => self.connection.close(FAILED, &failure.to_string()),
        }
        self.come.clear();
        self.alive = None;
        self.files.writing.end();
        // Without a connection every task ends.
        while let Some(done) = self.tasks.join_next().await {
            match done {
                Ok(Event::Packed(unpacked)) => {
                    let known = |outcome: &Outcome| !matches!(outcome, Outcome::Error(_));
                    let outcomes = unpacked.outcomes.into_iter().filter(|(_, o)| known(o));
                    self.ledger.outcomes.extend(outcomes);
                }
                Ok(Event::Finished(index, outcome)) => {
                    self.ledger.outcomes.insert(index, outcome);
                }
                _ => {}
            }
        }
        for (index, state) in std::mem::take(&mut self.states) {
            let (State::Incoming(_) | State::Held(_)) = &state else {
                continue;
            };
            if let Some(partial) = state.partial() {
                let problem = lost(&self.files.entry(index).path, "the connection ended");
                let problem = crate::ledger::keep(&self.ledger.store, &partial, problem);
                let outcomes = &mut self.ledger.outcomes;
                outcomes.entry(index).or_insert(Outcome::Error(problem));
            }
        }
        self.ledger.close(failure)
    }
}

impl State {
    fn partial(&self) -> Option<Arc<Partial>> {
        match self {
            Self::Held(held) => held.partial.clone(),
            Self::Incoming(incoming) => incoming.partial.get().cloned(),
            Self::Finishing => None,
        }
    }
}
