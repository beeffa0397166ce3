//! What happens to files while a session runs, for whoever shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;

use crate::message::{Entry, FromSender, Hash, Outcome};

/// The outcome of a file became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its place in the offer.
    pub index: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Its BLAKE3 hash, if it was sent.
    pub hash: Option<Hash>,
    /// Its bytes, if they are not as many as were offered.
    pub size: Option<u64>,
}

/// A file that did not stay as it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstable {
    /// It grew while it was sent. What was offered of it came, and nothing of what was added since.
    Grown,
    /// It changed, or another one took its place, before it was sent: it came as it was then.
    Changed,
}

/// See the module's text. It costs little unless somebody listens.
#[derive(Debug, Default)]
pub struct Diary(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: Arc<Vec<Entry>>,
    /// Without an outcome, in the order in which they were begun; of a pack its last file.
    begun: Vec<u64>,
    asked: Duration,
    agreed: watch::Sender<bool>,
    /// In their places, verified in this session.
    done: BTreeSet<u64>,
    /// Of files that have no outcome yet.
    hashes: BTreeMap<u64, Hash>,
    /// Bytes of files that were sent with another number of them than was offered: what a pipe gave, and files
    /// that changed.
    sizes: BTreeMap<u64, u64>,
    unstable: BTreeMap<u64, Unstable>,
    /// Files that both sides read, to see what is there of them.
    comparing: BTreeSet<u64>,
    /// Of files of which something was there, bytes that were announced all the same.
    resumed: BTreeMap<u64, u64>,
    /// Of files that came in part, bytes that were there.
    kept: u64,
    listener: Option<UnboundedSender<Settled>>,
}

impl Diary {
    /// Outcomes from now on, as they become known.
    pub fn listen(&self) -> UnboundedReceiver<Settled> {
        let (tell, told) = mpsc::unbounded_channel();
        self.state().listener = Some(tell);
        told
    }

    /// What was offered; empty before it is known and agreed to.
    pub fn entries(&self) -> Arc<Vec<Entry>> {
        self.state().entries.clone()
    }

    /// Where the file that was begun last goes.
    pub fn begun(&self) -> Option<String> {
        let state = self.state();
        let entry = state.entry(*state.begun.last()?)?;
        Some(entry.path.clone())
    }

    /// Places in the offer of what is known to be in its place and verified, also where the session
    /// ended early.
    pub fn done(&self) -> BTreeSet<u64> {
        self.state().done.clone()
    }

    /// How long a person was asked whether files are welcome, by what the receiver says.
    pub fn asked(&self) -> Duration {
        self.state().asked
    }

    /// Returns when the receiver has agreed to what a sender offers.
    pub async fn agreed(&self) {
        let mut agreed = self.state().agreed.subscribe();
        // The diary outlives this.
        let _ = agreed.wait_for(|agreed| *agreed).await;
    }

    /// Bytes of files that came which the receiver had: of a part, or of another version.
    pub fn kept(&self) -> u64 {
        self.state().kept
    }

    /// Bytes of the file at this place of the offer, if they are not as many as were offered.
    pub fn size(&self, index: u64) -> Option<u64> {
        self.state().sizes.get(&index).copied()
    }

    /// Files that did not stay as they were offered, by place, as far as the sender has said so.
    pub fn unstable(&self) -> BTreeMap<u64, Unstable> {
        self.state().unstable.clone()
    }

    /// Whether files are being read to see what is there of them.
    pub fn is_comparing(&self) -> bool {
        !self.state().comparing.is_empty()
    }

    /// Both sides begin to read this file.
    pub(crate) fn compares(&self, index: u64) {
        self.state().comparing.insert(index);
    }

    /// It is known what is there of this file.
    pub(crate) fn compared(&self, index: u64) {
        self.state().comparing.remove(&index);
    }

    /// The receiver agrees.
    pub(crate) fn agrees(&self) {
        self.state().agreed.send_replace(true);
    }

    /// A person was asked for so long.
    pub(crate) fn asks(&self, time: Duration) {
        self.state().asked = time;
    }

    /// The session is about these.
    pub(crate) fn offered(&self, entries: Arc<Vec<Entry>>) {
        self.state().entries = entries;
    }

    /// The sender says this of its files.
    pub(crate) fn said(&self, message: &FromSender) {
        let mut state = self.state();
        let listening = state.listener.is_some();
        match message {
            FromSender::Resume { index } => {
                state.resumed.insert(*index, 0);
            }
            FromSender::Part { index, extents } | FromSender::Holes { index, extents } => {
                if let Some(announced) = state.resumed.get_mut(index) {
                    let bytes = extents.iter().map(|(_, length)| *length);
                    *announced = bytes.fold(*announced, u64::saturating_add);
                }
            }
            FromSender::Pack { grown, .. } => {
                for index in grown {
                    state.note(*index, Unstable::Grown);
                }
            }
            FromSender::Stream { index }
                if state.entry(*index).is_some_and(|entry| !entry.stream) =>
            {
                state.note(*index, Unstable::Changed);
            }
            FromSender::Sent {
                index, size, grown, ..
            } => {
                if state.entry(*index).is_some_and(|entry| entry.size != *size) {
                    state.sizes.insert(*index, *size);
                }
                if *grown {
                    state.note(*index, Unstable::Grown);
                }
            }
            _ => {}
        }
        match message {
            FromSender::Pack { files, .. } => {
                if let Some((last, _)) = files.last()
                    && !state.begun.contains(last)
                {
                    state.begun.push(*last);
                }
                if listening {
                    state.hashes.extend(files.iter().copied());
                }
            }
            FromSender::Part { index, .. } | FromSender::Stream { index }
                if !state.begun.contains(index) =>
            {
                state.begun.push(*index);
            }
            FromSender::Sent { index, blake3, .. } if listening => {
                state.hashes.insert(*index, *blake3);
            }
            _ => {}
        }
    }

    /// A file has this outcome.
    pub(crate) fn settled(&self, index: u64, outcome: &Outcome) {
        let mut state = self.state();
        let hash = state.hashes.remove(&index);
        let size = state.sizes.get(&index).copied();
        state.begun.retain(|begun| *begun != index);
        state.comparing.remove(&index);
        if let Some(announced) = state.resumed.remove(&index)
            && *outcome == Outcome::Done
            && let Some(size) = state.entry(index).map(|entry| entry.size)
        {
            state.kept += size.saturating_sub(announced);
        }
        if *outcome == Outcome::Done {
            state.done.insert(index);
        }
        if let Some(listener) = &state.listener {
            let outcome = outcome.clone();
            // Who does not listen any more does not want to know.
            let _ = listener.send(Settled {
                index,
                outcome,
                hash,
                size,
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The file at this place of the offer, if there is one.
    fn entry(&self, index: u64) -> Option<&Entry> {
        let index = usize::try_from(index).ok()?;
        self.entries.get(index)
    }

    fn note(&mut self, index: u64, what: Unstable) {
        if self.entry(index).is_some() {
            self.unstable.entry(index).or_insert(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_with_the_hash_that_was_sent() {
        let (diary, hash) = (Diary::default(), Hash([7; 32]));
        let mut told = diary.listen();
        let entry = |path: &str| Entry {
            path: path.to_owned(),
            ..Entry::default()
        };
        diary.offered(Arc::new(vec![entry("a"), entry("b")]));
        assert_eq!(diary.begun(), None);
        diary.said(&FromSender::Pack {
            files: vec![(1, hash)],
            grown: Vec::new(),
        });
        assert_eq!(diary.begun().as_deref(), Some("b"));
        diary.settled(0, &Outcome::There);
        diary.settled(1, &Outcome::Done);
        assert_eq!(diary.begun(), None, "nothing is under way any more");
        let mut next = || told.try_recv().ok().map(|file| (file.index, file.hash));
        assert_eq!(next(), Some((0, None)));
        assert_eq!(next(), Some((1, Some(hash))));
        assert_eq!(next(), None);
        assert_eq!(diary.done(), BTreeSet::from([1]));
    }

    #[test]
    fn numbers_beyond_the_offer_name_nothing() {
        let diary = Diary::default();
        diary.said(&FromSender::Stream { index: u64::MAX });
        assert_eq!(diary.begun(), None);
    }

    /// Packs of files that are in their places already cost a sender nothing but their announcements.
    #[test]
    fn what_is_announced_again_and_again_is_remembered_once() {
        let diary = Diary::default();
        for _ in 0..1000 {
            diary.said(&FromSender::Pack {
                files: vec![(0, Hash([7; 32]))],
                grown: Vec::new(),
            });
            assert_eq!(diary.state().begun, [0]);
        }
        diary.settled(0, &Outcome::Done);
        assert_eq!(diary.begun(), None);
    }

    #[test]
    fn a_file_in_many_parts_is_under_way_once_and_what_was_there_of_it_is_kept() {
        let diary = Diary::default();
        let entry = |path: &str| Entry {
            path: path.to_owned(),
            size: 100,
            ..Entry::default()
        };
        diary.offered(Arc::new(vec![entry("a"), entry("b")]));
        let part = |index, length| FromSender::Part {
            index,
            extents: vec![(0, length)],
        };
        diary.said(&FromSender::Resume { index: 0 });
        diary.said(&part(0, 10));
        diary.said(&part(1, 60));
        diary.said(&part(0, 20));
        assert_eq!(diary.begun().as_deref(), Some("b"), "the last that began");
        diary.settled(1, &Outcome::Done);
        assert_eq!(diary.begun().as_deref(), Some("a"));
        assert_eq!(diary.kept(), 0, "the whole of it was sent");
        diary.settled(0, &Outcome::Done);
        assert_eq!((diary.begun(), diary.kept()), (None, 70));
    }

    #[test]
    fn files_are_compared_until_it_is_known_what_is_there_of_them() {
        let diary = Diary::default();
        for end in [
            |diary: &Diary| diary.compared(3),
            |diary: &Diary| {
                diary.settled(3, &Outcome::There);
            },
        ] {
            assert!(!diary.is_comparing());
            diary.compares(3);
            diary.compares(4);
            end(&diary);
            assert!(diary.is_comparing(), "the other one still is");
            diary.compared(4);
        }
        assert!(!diary.is_comparing());
    }

    #[test]
    fn holes_are_sent_in_words_and_of_what_fails_nothing_is_kept() {
        let entry = Entry {
            size: 100,
            ..Entry::default()
        };
        for (outcome, kept) in [(Outcome::Done, 25), (Outcome::Skipped, 0)] {
            let diary = Diary::default();
            let mut told = diary.listen();
            diary.offered(Arc::new(vec![entry.clone()]));
            diary.said(&FromSender::Resume { index: 0 });
            diary.said(&FromSender::Part {
                index: 0,
                extents: vec![(0, 5), (10, 10)],
            });
            diary.said(&FromSender::Holes {
                index: 0,
                extents: vec![(20, 60)],
            });
            diary.said(&FromSender::Sent {
                index: 0,
                size: 100,
                blake3: Hash([7; 32]),
                grown: false,
            });
            diary.settled(0, &outcome);
            assert_eq!(diary.kept(), kept);
            assert_eq!(diary.done().contains(&0), outcome == Outcome::Done);
            let settled = told.try_recv().unwrap();
            assert_eq!(
                (settled.hash, settled.outcome),
                (Some(Hash([7; 32])), outcome)
            );
        }
    }

    #[test]
    fn what_comes_of_a_stream_is_under_way() {
        let diary = Diary::default();
        let entry = Entry {
            path: "a".to_owned(),
            ..Entry::default()
        };
        diary.offered(Arc::new(vec![entry]));
        for _ in 0..2 {
            diary.said(&FromSender::Stream { index: 0 });
            assert_eq!(diary.begun().as_deref(), Some("a"));
        }
        assert_eq!(diary.entries().len(), 1);
        diary.asks(Duration::from_secs(7));
        assert_eq!(diary.asked(), Duration::from_secs(7));
        diary.settled(0, &Outcome::Done);
        assert_eq!(diary.begun(), None);
    }
}
