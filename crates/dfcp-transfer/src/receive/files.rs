//! What is done with one file, or one object, of a session.

use std::sync::Arc;

use dfcp::{IncomingObject, ObjectSummary, Progress, RecvStream};
use tokio::sync::{OnceCell, Semaphore};

use super::session::MAX_ACTIVE;
use super::silence::{Work, Working};
use crate::ledger::{self, Announced, keep};
use crate::message::{Entry, Hash, Outcome, Problem, ProblemKind, Wishes};
use crate::partial::{Extents, Partial};
use crate::space::{Claim, Streamed};
use crate::store::{Ask, Begin, Folder, How, Older, Store};
use crate::tenants::Tenant;
use crate::tree::{MIN_GROUP, Value};
use crate::turns::Going;
use crate::writers::{Writing, holding};

/// Bytes of a pack that are put on the disk together: what a kill costs of a large file, too.
const BATCH: usize = MIN_GROUP as usize;

/// What all files of a session share.
#[derive(Clone)]
pub(super) struct Files {
    pub store: Arc<Store>,
    pub entries: Arc<Vec<Entry>>,
    pub progress: Progress,
    pub tenant: Arc<Tenant>,
    pub wishes: Wishes,
    pub gate: Arc<Semaphore>,
    /// Its part of what all sessions write.
    pub writing: Arc<Writing>,
    /// What it has of the disk.
    pub claim: Arc<Claim>,
    /// Ends with the session: nobody wants any more what takes long to find out.
    pub session: Going,
    /// What this side does at them.
    pub work: Work,
}

/// What is there of a file.
pub(super) enum Examined {
    /// A file of its size, with this hash.
    Same(blake3::Hash),
    /// A file that some of its groups may be in.
    Older(Older),
    /// Some of its groups.
    Partial(Arc<Partial>),
    /// Nothing that is of use.
    Nothing,
    /// It will not be received.
    Settled(Outcome),
}

/// An object with parts of a file.
pub(super) struct Part {
    pub index: u64,
    pub extents: Vec<(u64, u64)>,
    pub partial: Arc<OnceCell<Arc<Partial>>>,
}

/// How it ended.
pub(super) enum PartEnd {
    /// All of it is written.
    Whole,
    /// All of a stream is written.
    Summed(ObjectSummary),
    /// The sender wants to send no more of it.
    Reset,
    /// The file's outcome is known.
    Settled(Result<Outcome, Problem>),
}

/// What became of the files of a pack.
pub(super) struct Unpacked {
    pub outcomes: Vec<(u64, Outcome)>,
    /// The object, if all of it was there but its end.
    pub rest: Option<RecvStream>,
}

impl From<Vec<(u64, Outcome)>> for Unpacked {
    fn from(outcomes: Vec<(u64, Outcome)>) -> Self {
        let rest = None;
        Self { outcomes, rest }
    }
}

/// Waits until the sender says that nothing follows; told to stop, it would have to answer.
pub(super) async fn read_end(mut rest: RecvStream) {
    // Of who sends more the rest is not wanted: dropped, the stream says so.
    let _ = rest.read_chunk(1).await;
}

/// The connection ended before a file did.
pub(super) fn lost(path: &str, why: &str) -> Problem {
    Problem::new(ProblemKind::Connection, format!("{path}: {why}"))
}

/// Runs what may wait for a disk, as work of this side.
async fn blocking<T: Send + 'static>(
    working: Working,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let and_end = move || {
        let done = work();
        drop(working);
        done
    };
    ledger::blocking(and_end).await
}

impl Files {
    /// The file at this place of the offer, which was checked.
    pub fn entry(&self, index: u64) -> &Entry {
        &self.entries[index as usize]
    }

    /// Looks at what is there of a file, and reads it, while the sender is asked about its own.
    pub async fn examine(&self, index: u64, asked: Ask) -> Examined {
        let (files, entry) = (self.clone(), self.entry(index).clone());
        let work = move || {
            let there = match asked {
                Ask::Nothing => None,
                Ask::Hash => files
                    .store
                    .hash_there(&entry, &files.session)
                    .map(Examined::Same),
                Ask::Groups => files
                    .store
                    .older(&entry, &files.session)
                    .map(Examined::Older),
            };
            Ok(there.unwrap_or_else(|| files.open_parts(&entry, How::Resume(&files.session))))
        };
        let examined = blocking(self.work.begin(), work).await;
        examined.unwrap_or_else(|problem| Examined::Settled(Outcome::Error(problem)))
    }

    /// The file that is there is another one, which has these groups.
    pub async fn differs(
        &self,
        index: u64,
        older: Option<(Older, Vec<(usize, Value)>)>,
    ) -> Examined {
        let (files, entry) = (self.clone(), self.entry(index).clone());
        let work = move || {
            if let Some(outcome) = files.store.conflict_with(&entry) {
                return Ok(Examined::Settled(outcome?));
            }
            let how = match &older {
                Some((older, groups)) => How::Over(older, groups),
                None => How::Resume(&files.session),
            };
            Ok(files.open_parts(&entry, how))
        };
        let examined = blocking(self.work.begin(), work).await;
        examined.unwrap_or_else(|problem| Examined::Settled(Outcome::Error(problem)))
    }

    fn open_parts(&self, entry: &Entry, how: How<'_>) -> Examined {
        let is_over = self.session.is_over();
        if entry.size <= crate::MAX_SMALL || self.wishes.anew || is_over {
            return Examined::Nothing;
        }
        match self.store.begin(entry, &self.tenant, how) {
            Err(problem) => Examined::Settled(Outcome::Error(problem)),
            Ok(Begin::Settled(outcome)) => Examined::Settled(outcome),
            Ok(Begin::Receive(partial)) if partial.have().is_empty() => Examined::Nothing,
            Ok(Begin::Receive(partial)) => Examined::Partial(Arc::new(partial)),
        }
    }

    /// The file that is there is the one that is offered.
    pub async fn confirm(&self, index: u64) -> Outcome {
        let (store, entry) = (self.store.clone(), self.entry(index).clone());
        let done = blocking(self.work.begin(), move || Ok(store.confirm(&entry))).await;
        done.unwrap_or_else(Outcome::Error)
    }

    /// Receives small files that come one after the other; those that are not wanted are left out. With
    /// their last byte they are done: that no more follows may be known a round trip later, when the
    /// packet that says so was lost, and the sender is not to wait for that.
    pub async fn unpack(self, object: IncomingObject, list: Vec<(u64, Hash, bool)>) -> Unpacked {
        // What of these is wanted does not come any more.
        let all_lost = |list: &[(u64, Hash, bool)], why: &str| {
            let wanted = list.iter().filter(|(_, _, wanted)| *wanted);
            let lost = wanted.map(|(i, ..)| (*i, Outcome::Error(lost(&self.entry(*i).path, why))));
            lost.collect::<Vec<_>>()
        };
        let Ok(_permit) = self.gate.clone().acquire_owned().await else {
            return all_lost(&list, "the receiver ends").into();
        };
        let mut stream = match object.in_order() {
            Ok(stream) => stream,
            Err(error) => return all_lost(&list, &error.to_string()).into(),
        };
        let (mut bytes, mut outcomes) = (Vec::new(), Vec::new());
        // Files of the pack whose bytes are complete, from `done` to `next`, and their length.
        let (mut done, mut next, mut ready) = (0, 0, 0_usize);
        let failure = loop {
            while next < list.len() && ready + self.entry(list[next].0).size as usize <= bytes.len()
            {
                ready += self.entry(list[next].0).size as usize;
                next += 1;
            }
            if next > done && (ready >= BATCH || next == list.len()) {
                let batch: Vec<u8> = bytes.drain(..ready).collect();
                let (files, part) = (self.clone(), list[done..next].to_vec());
                let put = self.write(move || files.put_all(&batch, &part));
                match put.await {
                    Ok(put) => outcomes.extend(put),
                    Err(problem) => break problem.message,
                }
                (done, ready) = (next, 0);
            }
            if done == list.len() {
                // What came beyond what was announced changes nothing.
                let rest = bytes.is_empty().then_some(stream);
                return Unpacked { outcomes, rest };
            }
            match stream.read_chunk(BATCH).await {
                Ok(dfcp::Chunk::Data(chunk)) => {
                    self.progress.add(chunk.len() as u64);
                    bytes.extend_from_slice(&chunk);
                }
                Ok(_) => break "the sender sent less of it than it announced".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        // Those behind what was put.
        outcomes.extend(all_lost(&list[done..], &failure));
        Unpacked::from(outcomes)
    }

    /// Receives files that have no bytes.
    pub async fn put_empty(self, list: Vec<(u64, Hash, bool)>) -> Vec<(u64, Outcome)> {
        let wanted: Vec<u64> = list
            .iter()
            .filter(|each| each.2)
            .map(|each| each.0)
            .collect();
        let Ok(_permit) = self.gate.clone().acquire_owned().await else {
            return Vec::new();
        };
        let files = self.clone();
        match self.write(move || files.put_all(&[], &list)).await {
            Ok(put) => put,
            Err(problem) => {
                let failed = |index| (index, Outcome::Error(problem.clone()));
                wanted.into_iter().map(failed).collect()
            }
        }
    }

    /// Writes small files when it is this session's turn.
    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        // Who waits here does not wait for the sender.
        let working = self.work.begin();
        let place = self
            .writing
            .place()
            .await
            .ok_or_else(|| Problem::new(ProblemKind::Connection, "the session is over"))?;
        blocking(working, move || Ok(holding(place, write))).await
    }

    fn put_all(&self, bytes: &[u8], list: &[(u64, Hash, bool)]) -> Vec<(u64, Outcome)> {
        let (mut at, mut outcomes) = (0, Vec::with_capacity(list.len()));
        let mut folder = Folder::default();
        for &(index, hash, wanted) in list {
            let entry = self.entry(index);
            let content = &bytes[at..at + entry.size as usize];
            at += entry.size as usize;
            if !wanted {
                continue;
            }
            let outcome = match blake3::hash(content).as_bytes() == &hash.0 {
                true => self.store.put(entry, content, &self.tenant, &mut folder),
                false => Err(corrupt(entry)),
            };
            outcomes.push((index, outcome.unwrap_or_else(Outcome::Error)));
        }
        outcomes
    }

    /// The file that parts are put in, opened by whoever comes first.
    async fn open_part(&self, part: &Part) -> Result<Arc<Partial>, Result<Outcome, Problem>> {
        let open = part.partial.get_or_try_init(|| async {
            let (files, entry) = (self.clone(), self.entry(part.index).clone());
            let begin = move || files.store.begin(&entry, &files.tenant, How::Anew);
            match blocking(self.work.begin(), begin).await {
                Ok(Begin::Receive(partial)) => Ok(Arc::new(partial)),
                Ok(Begin::Settled(outcome)) => Err(Ok(outcome)),
                Err(problem) => Err(Err(problem)),
            }
        });
        let partial = open.await?.clone();
        for &(offset, length) in &part.extents {
            partial.forget(&(offset..offset + length));
        }
        Ok(partial)
    }

    /// Makes holes of parts of a file.
    pub async fn take_holes(self, part: Part) -> PartEnd {
        let places = self.session.places_for_each(MAX_ACTIVE);
        let Ok(_permit) = self.gate.clone().acquire_many_owned(places).await else {
            return PartEnd::Reset;
        };
        let partial = match self.open_part(&part).await {
            Ok(partial) => partial,
            Err(end) => return PartEnd::Settled(end),
        };
        let (path, session) = (self.entry(part.index).path.clone(), self.session);
        let work = move || {
            let reading = session.read();
            for &(offset, length) in &part.extents {
                let made = partial.hole(&(offset..offset + length), || reading.go_on());
                made.map_err(|error| crate::store::target(&path, error))?;
            }
            Ok(())
        };
        match blocking(self.work.begin(), work).await {
            Ok(()) => PartEnd::Whole,
            Err(problem) => PartEnd::Settled(Err(problem)),
        }
    }

    /// Receives parts of a file in their places.
    pub async fn take_part(self, mut object: IncomingObject, part: Part) -> PartEnd {
        let entry = self.entry(part.index).clone();
        let Ok(_permit) = self.gate.clone().acquire_owned().await else {
            return PartEnd::Reset;
        };
        let partial = match self.open_part(&part).await {
            Ok(partial) => partial,
            Err(end) => return PartEnd::Settled(end),
        };
        let total = part.extents.iter().map(|(_, length)| length).sum();
        let target = Extents::new(partial, &part.extents, self.session);
        let end = |kind, message| PartEnd::Settled(Err(Problem::new(kind, message)));
        match object.recv_blocks(target, total, &self.progress).await {
            Ok(_) => PartEnd::Whole,
            Err(dfcp::Error::Reset(_)) => PartEnd::Reset,
            Err(dfcp::Error::Io(error)) => {
                PartEnd::Settled(Err(crate::store::target(&entry.path, error)))
            }
            Err(error @ dfcp::Error::TooLong(_)) => {
                end(ProblemKind::Integrity, format!("{}: {error}", entry.path))
            }
            Err(error) => PartEnd::Settled(Err(lost(&entry.path, &error.to_string()))),
        }
    }

    /// Receives a file whose size is not known.
    pub async fn take_stream(
        self,
        mut object: IncomingObject,
        index: u64,
        slot: Arc<OnceCell<Arc<Partial>>>,
    ) -> PartEnd {
        let entry = self.entry(index).clone();
        let Ok(_permit) = self.gate.clone().acquire_owned().await else {
            return PartEnd::Reset;
        };
        let (files, offered) = (self.clone(), entry.clone());
        let begun = blocking(self.work.begin(), move || {
            files.store.begin(&offered, &files.tenant, How::Small)
        });
        let partial = match begun.await {
            Ok(Begin::Receive(partial)) => Arc::new(partial),
            Ok(Begin::Settled(outcome)) => return PartEnd::Settled(Ok(outcome)),
            Err(problem) => return PartEnd::Settled(Err(problem)),
        };
        let end = |kind, why: String| {
            PartEnd::Settled(Err(Problem::new(kind, format!("{}: {why}", entry.path))))
        };
        let file = match partial.file.try_clone() {
            Ok(file) => file,
            Err(error) => return end(ProblemKind::Target, error.to_string()),
        };
        let _ = slot.set(partial);
        let most = self.store.most_streamed(&self.claim);
        let target = Streamed {
            file,
            store: self.store.clone(),
            claim: self.claim.clone(),
        };
        match object.recv_object(target, most, &self.progress).await {
            Ok(summary) => PartEnd::Summed(summary),
            Err(dfcp::Error::Reset(_)) => PartEnd::Reset,
            Err(dfcp::Error::Io(error)) => end(ProblemKind::Target, format!("receiver: {error}")),
            Err(dfcp::Error::TooLong(most)) => end(
                ProblemKind::Target,
                format!("the receiver takes no more than {most} bytes"),
            ),
            Err(error) => end(ProblemKind::Connection, error.to_string()),
        }
    }

    /// Puts a file in its place, if all of it came and is what the sender says; `end` is what is known
    /// against it.
    pub async fn finish(
        self,
        index: u64,
        partial: Option<Arc<Partial>>,
        end: Result<Outcome, Problem>,
        (word, summary): (Option<Announced>, Option<ObjectSummary>),
    ) -> Outcome {
        let entry = self.entry(index).clone();
        let store = self.store.clone();
        let work = move || {
            let Some(partial) = partial else {
                return match (end?, word) {
                    (_, Some(Announced::Failed(message))) => {
                        Err(Problem::new(ProblemKind::Source, message))
                    }
                    (Outcome::Done, _) => Err(corrupt(&entry)),
                    (outcome, _) => Ok(outcome),
                };
            };
            let checked = end.and_then(|_| match (summary, word) {
                (Some(summary), Some(Announced::Sent { size, hash })) => {
                    let same = summary.size == size && summary.hash == hash.0;
                    same.then_some(()).ok_or_else(|| corrupt(&entry))
                }
                (_, word) if entry.stream => Err(match word {
                    Some(Announced::Failed(message)) => Problem::new(ProblemKind::Source, message),
                    _ => lost(&entry.path, "the sender gave it up"),
                }),
                (_, word) => check(&entry, &partial, word),
            });
            if let Err(problem) = checked {
                if problem.kind == ProblemKind::Integrity {
                    // What is noted may be what is wrong: the next transfer begins anew.
                    store.discard_journal(&partial);
                }
                return Err(keep(&store, &partial, problem));
            }
            let finished = store.finish(&partial, &entry);
            finished.map_err(|problem| crate::ledger::kept(problem, &partial.name))
        };
        blocking(self.work.begin(), work)
            .await
            .unwrap_or_else(Outcome::Error)
    }
}

fn check(entry: &Entry, partial: &Partial, word: Option<Announced>) -> Result<(), Problem> {
    match word {
        Some(Announced::Failed(message)) => Err(Problem::new(ProblemKind::Source, message)),
        Some(Announced::Sent { size, hash }) => match partial.root() {
            Some(root) if size == entry.size && root.as_bytes() == &hash.0 => Ok(()),
            _ => Err(corrupt(entry)),
        },
        None => Err(lost(&entry.path, "the connection ended")),
    }
}

fn corrupt(entry: &Entry) -> Problem {
    Problem::new(
        ProblemKind::Integrity,
        format!("{}: what arrived is not what was sent", entry.path),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::OnConflict;
    use crate::turns::crowd::{assert_one_is_free, crowded, with_two_threads};

    /// A session of this sender with these files.
    fn files(store: &Arc<Store>, entry: Entry, tenant: Arc<Tenant>, session: Going) -> Files {
        let progress = Progress::default();
        Files {
            store: store.clone(),
            entries: Arc::new(vec![entry]),
            claim: store.claim(&[], &[], &progress).unwrap(),
            progress,
            tenant,
            wishes: Wishes::default(),
            gate: Arc::new(Semaphore::new(MAX_ACTIVE)),
            writing: Arc::new(store.writers.begin()),
            session,
            work: Work::default(),
        }
    }

    /// What a broken-off session left is used, unless the sender wants to send all of it, or nobody wants it.
    #[tokio::test]
    async fn what_is_there_of_a_file_that_differs_is_used_as_its_sender_wants() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), OnConflict::Overwrite).unwrap());
        let tenant = Tenant::new([1; 32]);
        let entry = Entry {
            path: "x".into(),
            size: 5 * MIN_GROUP,
            ..Entry::default()
        };
        let begun = store.begin(&entry, &tenant, How::Anew);
        let Ok(Begin::Receive(partial)) = begun else {
            panic!("it is free")
        };
        partial
            .write(&vec![7; MIN_GROUP as usize], 0, || true)
            .unwrap();
        drop(partial);
        let alive = store.sessions.begin();
        for (anew, is_over, used) in [
            (false, false, true),
            (true, false, false),
            (false, true, false),
            (false, false, true),
        ] {
            let session = match is_over {
                true => store.sessions.begin().going(),
                false => alive.going(),
            };
            let mut files = files(&store, entry.clone(), tenant.clone(), session);
            files.wishes.anew = anew;
            match files.differs(0, None).await {
                Examined::Partial(partial) => {
                    assert!(used);
                    assert_eq!(partial.have().len(), 1);
                }
                Examined::Nothing => assert!(!used, "{anew} {is_over}"),
                _ => panic!("it is to come"),
            }
        }
    }

    /// However many sessions there are.
    #[test]
    fn small_files_are_written_when_there_is_a_place_for_one_more_who_does() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), OnConflict::Overwrite).unwrap());
        let entry = Entry {
            path: "x".into(),
            ..Entry::default()
        };
        let alive = store.sessions.begin();
        let files = files(&store, entry, Tenant::new([1; 32]), alive.going());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let mut held = Vec::new();
            while let Some(place) = store.writers.free_place() {
                held.push(place);
            }
            let list = vec![(0, Hash(blake3::hash(b"").into()), true)];
            let put = tokio::spawn(files.put_empty(list));
            tokio::task::yield_now().await;
            // What was begun before by the only thread is done with this.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(!dir.path().join("x").exists());
            held.pop();
            assert_eq!(put.await.unwrap(), [(0, Outcome::Done)]);
            assert!(dir.path().join("x").exists());
        });
    }

    /// Their zeros are hashed in turns, and what comes of other sessions is written meanwhile.
    #[test]
    fn holes_of_a_session_among_many_wait_on_one_thread() {
        with_two_threads(async {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(Store::open(dir.path(), OnConflict::Overwrite).unwrap());
            let entry = Entry {
                path: "x".into(),
                size: 8 * MIN_GROUP,
                ..Entry::default()
            };
            let tenant = Tenant::new([1; 32]);
            let Ok(Begin::Receive(partial)) = store.begin(&entry, &tenant, How::Anew) else {
                panic!("it is free")
            };
            let partial = Arc::new(OnceCell::new_with(Some(Arc::new(partial))));
            let (alive, _crowd) = (store.sessions.begin(), crowded(&store.sessions));
            let files = files(&store, entry, tenant, alive.going());
            let mut tasks = tokio::task::JoinSet::new();
            for i in 0..4 {
                let part = Part {
                    index: 0,
                    extents: vec![(i * 2 * MIN_GROUP, 2 * MIN_GROUP)],
                    partial: partial.clone(),
                };
                tasks.spawn(files.clone().take_holes(part));
            }
            assert_one_is_free(&store.sessions).await;
        });
    }
}
