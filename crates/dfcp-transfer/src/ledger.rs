//! The receiver's account of a session: what was offered, what became of it, what the sender is
//! told. The same whether files come as objects or one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use dfcp::ObjectSummary;
use tokio::io::AsyncWrite;

use crate::Error;
use crate::message::{
    self, Change, Entry, FromReceiver, Hash, Link, Outcome, Problem, ProblemKind,
};
use crate::meter::Meter;
use crate::partial::Partial;
use crate::source::LeftOut;
use crate::store::{Store, Survey};

/// What a session brought.
#[derive(Debug, Default)]
pub struct Received {
    /// What was offered.
    pub entries: Arc<Vec<Entry>>,
    /// By place in the offer; directories only when they failed.
    pub outcomes: BTreeMap<u64, Outcome>,
    /// In a dry run: what would change of what is there, beside content.
    pub changes: BTreeMap<u64, Vec<Change>>,
    /// What of files was not kept.
    pub left_out: Vec<LeftOut>,
    /// What ended the session early.
    pub failure: Option<Error>,
}

/// See the module's text. `W` leads to the sender.
#[derive(Debug)]
pub struct Ledger<W> {
    /// Where files go.
    pub store: Arc<Store>,
    /// What was offered.
    pub entries: Arc<Vec<Entry>>,
    /// What became of it so far.
    pub outcomes: BTreeMap<u64, Outcome>,
    changes: BTreeMap<u64, Vec<Change>>,
    left_out: Vec<LeftOut>,
    /// Leads to the sender.
    pub control: W,
}

impl<W: AsyncWrite + Unpin> Ledger<W> {
    /// Nothing has happened yet.
    pub fn new(store: Arc<Store>, entries: Arc<Vec<Entry>>, control: W) -> Self {
        Self {
            store,
            entries,
            outcomes: BTreeMap::new(),
            changes: BTreeMap::new(),
            left_out: Vec::new(),
            control,
        }
    }

    /// Tells the sender something.
    pub async fn say(&mut self, message: &FromReceiver) -> Result<(), Error> {
        message::write(&mut self.control, message).await
    }

    /// Notes what became of a file and tells the sender.
    pub async fn settle(&mut self, index: u64, outcome: Outcome) -> Result<(), Error> {
        self.outcomes.insert(index, outcome.clone());
        self.say(&FromReceiver::File {
            index,
            outcome,
            changes: Vec::new(),
        })
        .await
    }

    /// Notes what else would change of something that is there, and tells the sender.
    pub async fn settle_changing(&mut self, index: u64, changes: Vec<Change>) -> Result<(), Error> {
        self.outcomes.insert(index, Outcome::There);
        self.changes.insert(index, changes.clone());
        self.say(&FromReceiver::File {
            index,
            outcome: Outcome::There,
            changes,
        })
        .await
    }

    /// Notes files that are in their places and tells the sender of all of them at once.
    pub async fn settle_done(&mut self, files: impl Iterator<Item = u64>) -> Result<(), Error> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for index in files {
            self.outcomes.insert(index, Outcome::Done);
            match ranges.last_mut() {
                Some((first, n)) if *first + *n == index => *n += 1,
                _ => ranges.push((index, 1)),
            }
        }
        match ranges.is_empty() {
            true => Ok(()),
            false => self.say(&FromReceiver::Done { ranges }).await,
        }
    }

    /// Tells the sender what of files was not kept.
    pub async fn tell_left_out(&mut self) -> Result<(), Error> {
        for left_out in self.store.notes.take() {
            self.say(&FromReceiver::LeftOut(left_out.clone())).await?;
            self.left_out.push(left_out);
        }
        Ok(())
    }

    /// Places in the offer of files.
    pub fn files(&self) -> impl Iterator<Item = usize> + use<W> {
        let entries = self.entries.clone();
        (0..entries.len()).filter(move |&i| entries[i].is_file())
    }

    /// Directories and links of the offer that are there.
    pub fn others_there(&self) -> Vec<(u64, Survey)> {
        let is_there = |entry: &Entry| match entry.directory {
            true => self.store.has_dir(&entry.path),
            false => entry.link.is_some() && self.store.has_link(entry, &self.entries),
        };
        let there = (0..)
            .zip(&*self.entries)
            .filter(|(_, entry)| is_there(entry));
        let changes = |entry: &Entry| match entry.directory {
            true => self.store.changes_of_dir(entry),
            false => Vec::new(),
        };
        there
            .map(|(index, entry)| (index, Survey::There(changes(entry))))
            .collect()
    }

    /// Makes what is no file: links, now that the files are there that they may lead to, and those of
    /// the `absent` directories that no file needed; then settles the directories. The meter's diary
    /// hears of each, also where the sender cannot be told any more.
    pub async fn finish_others(&mut self, absent: Vec<usize>, meter: &Meter) -> Result<(), Error> {
        let made = async {
            self.make_links().await?;
            self.finish_directories(absent).await
        };
        let made = made.await;
        for (index, outcome) in &self.outcomes {
            let entry = usize::try_from(*index).ok();
            let entry = entry.and_then(|index| self.entries.get(index));
            if entry.is_some_and(|entry| !entry.is_file()) {
                meter.diary().settled(*index, outcome);
            }
        }
        made
    }

    /// Makes the links, now that the files are there that they may lead to: nothing is written any more
    /// that could go through one.
    async fn make_links(&mut self) -> Result<(), Error> {
        let entries = self.entries.clone();
        let links = (0..)
            .zip(&*entries)
            .filter(|(_, entry)| entry.link.is_some());
        let refused = self.store.refused.clone();
        for (index, entry) in links {
            if refused.contains(&index) {
                self.settle(index, Outcome::Skipped).await?;
                continue;
            }
            let outcomes = &self.outcomes;
            let is_placed = |i| matches!(outcomes.get(&i), Some(Outcome::Done | Outcome::There));
            let made = match entry.link {
                // It may be copied instead, which takes as long as the file is large.
                Some(Link::Hard(to)) => {
                    let (store, entries) = (self.store.clone(), entries.clone());
                    let placed = is_placed(to);
                    let make =
                        move || store.make_link(&entries[index as usize], &entries, |_| placed);
                    let made = tokio::task::spawn_blocking(make).await;
                    made.map_err(|error| Error::Task(error.to_string()))?
                }
                _ => self.store.make_link(entry, &entries, is_placed),
            };
            self.settle(index, made.unwrap_or_else(Outcome::Error))
                .await?;
        }
        Ok(())
    }

    /// Directories that were offered and are not there. Files make those that they need.
    pub fn absent_directories(&self) -> Vec<usize> {
        let comes = |i: usize| !self.store.refused.contains(&(i as u64));
        let is_absent = |&i: &usize| comes(i) && !self.store.has_dir(&self.entries[i].path);
        let directories = (0..self.entries.len()).filter(|&i| self.entries[i].directory);
        directories.filter(is_absent).collect()
    }

    /// Makes those of the `absent` directories that no file needed. Now that nothing is put into
    /// them any more, they get their modes and times, and those that were there what is to be kept.
    async fn finish_directories(&mut self, absent: Vec<usize>) -> Result<(), Error> {
        for &i in &absent {
            if let Err(problem) = self.store.create_dir(&self.entries[i].path) {
                self.settle(i as u64, Outcome::Error(problem)).await?;
            }
        }
        // What is in a directory comes before it.
        for i in (0..self.entries.len()).rev() {
            let entry = &self.entries[i];
            let place = i as u64;
            if !entry.directory
                || self.store.refused.contains(&place)
                || self.outcomes.contains_key(&place)
            {
                continue;
            }
            let finished = match absent.binary_search(&i) {
                Ok(_) => self.store.finish_dir(entry),
                Err(_) => self.store.align_dir(entry),
            };
            if let Err(problem) = finished {
                self.settle(i as u64, Outcome::Error(problem)).await?;
            }
        }
        self.store.settle_directories();
        Ok(())
    }

    /// The end of the session.
    pub fn close(self, failure: Option<Error>) -> Received {
        Received {
            entries: self.entries,
            outcomes: self.outcomes,
            changes: self.changes,
            left_out: self.left_out,
            failure,
        }
    }
}

/// Characters kept of why a file could not be read: what every failed file of an offer leaves here
/// is little.
const MAX_REASON: usize = 200;

/// What the sender said about a file.
#[derive(Debug)]
pub enum Announced {
    /// It was read to its end.
    Sent {
        /// Bytes.
        size: u64,
        /// BLAKE3.
        hash: Hash,
    },
    /// It could not be read; why.
    Failed(String),
}

impl Announced {
    /// It could not be read.
    pub fn failed(message: &str) -> Self {
        Self::Failed(reason(message))
    }
}

/// As much of a reason as is kept.
pub fn reason(message: &str) -> String {
    message.chars().take(MAX_REASON).collect()
}

/// The sender did what it must not.
pub fn violation(what: &str) -> Error {
    Error::Protocol(format!("the sender breaks the protocol: {what}"))
}

/// Compares what arrived with what the sender says it sent.
pub fn compare(
    entry: &Entry,
    arrived: ObjectSummary,
    announced: &Announced,
) -> Result<(), Problem> {
    match announced {
        Announced::Failed(message) => Err(Problem::new(ProblemKind::Source, message)),
        Announced::Sent { size, hash } => {
            match hash.0 == arrived.hash && arrived.size == *size && *size == entry.size {
                true => Ok(()),
                false => Err(Problem::new(
                    ProblemKind::Integrity,
                    format!("{}: what arrived is not what was sent", entry.path),
                )),
            }
        }
    }
}

/// Keeps the partial file of a failed transfer, unless it is empty.
pub fn keep(store: &Store, partial: &Partial, problem: Problem) -> Problem {
    if partial.file.metadata().is_ok_and(|file| file.len() == 0) {
        store.discard(partial);
        return problem;
    }
    kept(problem, &partial.name)
}

/// Says which partial file is left.
pub fn kept(problem: Problem, name: &str) -> Problem {
    Problem::new(problem.kind, format!("{}; kept {name}", problem.message))
}

/// Puts a verified file in its place.
pub async fn finish(
    store: Arc<Store>,
    partial: Arc<Partial>,
    entry: Entry,
) -> Result<Outcome, Problem> {
    blocking(move || {
        store
            .finish(&partial, &entry)
            .map_err(|problem| kept(problem, &partial.name))
    })
    .await
}

/// Runs what may wait for a disk.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Problem::new(ProblemKind::Target, error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OnConflict;
    use crate::message::Reader;

    #[test]
    fn only_what_was_sent_and_offered_has_arrived() {
        let entry = Entry {
            size: 5,
            ..Entry::default()
        };
        let verdict = |size, hash, said, word| {
            let arrived = ObjectSummary {
                size,
                hash: [hash; 32],
            };
            let word = Announced::Sent {
                size: said,
                hash: Hash([word; 32]),
            };
            compare(&entry, arrived, &word).map_err(|problem| problem.kind)
        };
        assert_eq!(verdict(5, 7, 5, 7), Ok(()));
        let wrong = Err(ProblemKind::Integrity);
        assert_eq!(verdict(5, 7, 5, 8), wrong);
        assert_eq!(verdict(4, 7, 5, 7), wrong);
        assert_eq!(verdict(5, 7, 4, 7), wrong);
        // Both agree, about another file than was offered.
        assert_eq!(verdict(4, 7, 4, 7), wrong);
        let arrived = ObjectSummary {
            size: 5,
            hash: [7; 32],
        };
        let failed = compare(&entry, arrived, &Announced::failed("gone")).unwrap_err();
        assert_eq!(
            (failed.kind, &*failed.message),
            (ProblemKind::Source, "gone")
        );
    }

    #[tokio::test]
    async fn files_that_are_done_are_told_together() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), OnConflict::Error).unwrap());
        let entries = Arc::new(vec![Entry::default(); 10]);
        let mut ledger = Ledger::new(store, entries, Vec::new());
        ledger.settle_done([].into_iter()).await.unwrap();
        assert!(ledger.control.is_empty(), "there is nothing to say");
        let done = [1, 2, 3, 5, 7, 6, 9];
        ledger.settle_done(done.into_iter()).await.unwrap();
        let mut said = Reader::new(&ledger.control[..]);
        let ranges = vec![(1, 3), (5, 1), (7, 1), (6, 1), (9, 1)];
        let expected = FromReceiver::Done { ranges };
        assert_eq!(said.next::<FromReceiver>().await.unwrap(), Some(expected));
        let known: Vec<u64> = ledger.outcomes.keys().copied().collect();
        assert_eq!(known, [1, 2, 3, 5, 6, 7, 9]);
    }
}
