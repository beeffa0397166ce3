//! What is to be sent next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{Accepted, Asked, Reply, Versions};
use crate::read::Holes;
use crate::source::{Expected, Sources};
use crate::tree::Value;
use crate::{MAX_PACK, MAX_PACK_FILES, MAX_SMALL};

/// Objects that are sent before the receiver has said what it has: what they bring may be for
/// nothing. These are 4 MiB of small files, more than a first round trip carries on most paths.
const MAX_BLIND: usize = 4;

/// Packs of which the receiver has not said what became of all files. It holds an object until it has
/// written the files, which takes it longer than a path to bring them where they are tiny, and nothing
/// else keeps a sender of these back. Half of the objects that a connection may have open
/// ([`dfcp::TransportConfig::max_channels`]); of full packs 128 MiB, more than a round trip of any path
/// carries that a receiver's disk keeps up with.
const MAX_UNSETTLED: usize = 128;

/// What to do next.
#[derive(Debug)]
pub enum Work {
    /// Send these small files together.
    Pack(Vec<u64>),
    /// Send this file, but for what the receiver has of it.
    File(u64, Option<BTreeMap<u64, Value>>, Holes),
    /// Send this file in the version that there is by now.
    Changed(u64),
    /// Tell that this file is another version by now, of which the receiver takes none.
    GiveUp(u64),
    /// Send this pipe.
    Stream(u64),
    /// Tell the hash of this file, or more.
    Hash(u64, Asked),
}

/// See the module's text.
#[derive(Debug)]
pub struct Board {
    sources: Arc<Sources>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the receiver has agreed, and to what.
    accepted: Option<Accepted>,
    blind: usize,
    /// The next of the list.
    cursor: usize,
    /// Files that nothing is to be sent of, for now or for good.
    stopped: BTreeSet<u64>,
    /// Small files that were held and are wanted.
    small: VecDeque<u64>,
    /// Large ones, with what is there.
    large: VecDeque<(u64, BTreeMap<u64, Value>)>,
    hashes: VecDeque<(u64, Asked)>,
    /// Files that are other versions by now, each of which comes alone.
    changed: VecDeque<u64>,
    /// Large files that are being sent.
    running: BTreeMap<u64, AbortHandle>,
    unsettled: Unsettled,
}

/// Packs of which not all is known.
#[derive(Debug, Default)]
struct Unsettled {
    /// The pack that a file is in.
    packs: BTreeMap<u64, usize>,
    /// How many files of a pack nothing is known of.
    left: BTreeMap<usize, usize>,
    /// The next pack.
    next: usize,
    /// Files whose outcome is known, a bit each.
    settled: Vec<u64>,
}

impl Unsettled {
    /// These files are sent in a pack.
    fn sent(&mut self, files: &[u64]) {
        let open: Vec<_> = files.iter().filter(|i| !self.is_settled(**i)).collect();
        if open.is_empty() {
            return;
        }
        self.left.insert(self.next, open.len());
        for index in open {
            self.packs.insert(*index, self.next);
        }
        self.next += 1;
    }

    /// What is in a pack of this file is known, for good or to be of no use.
    fn heard(&mut self, index: u64) {
        let Some(pack) = self.packs.remove(&index) else {
            return;
        };
        if let Some(left) = self.left.get_mut(&pack) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(&pack);
            }
        }
    }

    fn settle(&mut self, index: u64) {
        self.heard(index);
        let word = index as usize / 64;
        if self.settled.len() <= word {
            self.settled.resize(word + 1, 0);
        }
        self.settled[word] |= 1 << (index % 64);
    }

    fn is_settled(&self, index: u64) -> bool {
        let word = self.settled.get(index as usize / 64);
        word.is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn is_full(&self) -> bool {
        self.left.len() >= MAX_UNSETTLED
    }
}

impl Board {
    /// Everything is to be sent.
    pub fn new(sources: &Arc<Sources>) -> Self {
        Self {
            sources: sources.clone(),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Takes in what the receiver says.
    pub fn on_reply(&self, reply: Reply) {
        let mut state = self.state();
        match reply {
            Reply::Accepted(accepted) => state.accepted = Some(accepted),
            Reply::There(index, _) | Reply::Settled(index, _) => {
                state.unsettled.settle(index);
                state.stop(index);
            }
            Reply::Hold(index) => {
                state.unsettled.heard(index);
                state.stop(index);
            }
            Reply::Check(index, asked) => state.hashes.push_back((index, asked)),
            Reply::Have(index, groups, _) => {
                let size = self.sources.list[index as usize].entry.size;
                match size <= MAX_SMALL {
                    true => state.small.push_back(index),
                    false => {
                        let groups = groups.into_iter().map(|(i, hash)| (i, hash.0));
                        state.large.push_back((index, groups.collect()));
                    }
                }
            }
            Reply::Progress(_) => return,
        }
        drop(state);
        self.changed.notify_one();
    }

    /// A file turned out to be another version than was offered.
    pub fn changed(&self, index: u64) {
        self.state().changed.push_back(index);
        self.changed.notify_one();
    }

    /// A large file is being sent by this task.
    pub fn runs(&self, index: u64, task: AbortHandle) {
        self.state().running.insert(index, task);
    }

    /// What to do next; waits while there is nothing.
    pub async fn next(&self) -> Work {
        loop {
            if let Some(work) = self.state().take(&self.sources) {
                return work;
            }
            self.changed.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn holes(&self) -> Holes {
        self.accepted.map_or(Holes::Sent, |accepted| accepted.holes)
    }

    fn stop(&mut self, index: u64) {
        if let Some(task) = self.running.remove(&index) {
            task.abort();
        }
        self.changed.retain(|changed| *changed != index);
        // Behind the cursor nobody asks any more.
        if index as usize >= self.cursor {
            self.stopped.insert(index);
        }
    }

    fn take(&mut self, sources: &Sources) -> Option<Work> {
        if let Some((index, asked)) = self.hashes.pop_front() {
            return Some(Work::Hash(index, asked));
        }
        if let Some(accepted) = self.accepted
            && let Some(index) = self.changed.pop_front()
        {
            return Some(match accepted.versions {
                Versions::Any => Work::Changed(index),
                Versions::Offered => Work::GiveUp(index),
            });
        }
        if let Some((index, have)) = self.large.pop_front() {
            return Some(Work::File(index, Some(have), self.holes()));
        }
        if !self.small.is_empty() && !self.unsettled.is_full() {
            let mut pack = Filling::default();
            while let Some(&index) = self.small.front()
                && pack.add(index, sources)
            {
                self.small.pop_front();
            }
            self.unsettled.sent(&pack.files);
            return Some(Work::Pack(pack.files));
        }
        let most_blind = match sources.expected {
            Expected::Nothing => MAX_BLIND,
            Expected::Something => 0,
        };
        if self.accepted.is_none() && self.blind >= most_blind {
            return None;
        }
        let work = self.take_from_list(sources)?;
        self.blind += 1;
        Some(work)
    }

    fn take_from_list(&mut self, sources: &Sources) -> Option<Work> {
        let mut pack = Filling::default();
        while let Some(source) = sources.list.get(self.cursor) {
            let index = self.cursor as u64;
            if !source.entry.is_file() || self.stopped.remove(&index) {
                self.cursor += 1;
                continue;
            }
            if source.entry.stream && pack.files.is_empty() {
                self.cursor += 1;
                return Some(Work::Stream(index));
            }
            if source.entry.size > MAX_SMALL || source.entry.stream {
                // Whether holes are to be sent only the receiver knows.
                let known = self.accepted.is_some() || source.data.is_none();
                if pack.files.is_empty() && known {
                    self.cursor += 1;
                    return Some(Work::File(index, None, self.holes()));
                }
                break;
            }
            if self.unsettled.is_full() || !pack.add(index, sources) {
                break;
            }
            self.cursor += 1;
        }
        if pack.files.is_empty() {
            return None;
        }
        self.unsettled.sent(&pack.files);
        Some(Work::Pack(pack.files))
    }
}

#[derive(Default)]
struct Filling {
    files: Vec<u64>,
    bytes: u64,
}

impl Filling {
    /// Adds a file if there is room.
    fn add(&mut self, index: u64, sources: &Sources) -> bool {
        let size = sources.list[index as usize].entry.size;
        if self.files.len() == MAX_PACK_FILES || self.bytes + size > MAX_PACK {
            return false;
        }
        self.files.push(index);
        self.bytes += size;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Outcome;
    use std::time::Duration;

    fn accepted(holes: Holes) -> Reply {
        Reply::Accepted(Accepted {
            holes,
            versions: Versions::Any,
            asked: Duration::ZERO,
        })
    }

    #[test]
    fn no_more_packs_leave_than_a_receiver_deals_with() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let mut sources = Sources::scan(&[folder.path().join("file")]).unwrap();
        let each = sources.list.pop().unwrap();
        let files = (MAX_UNSETTLED + 20) * MAX_PACK_FILES;
        sources.list = vec![each; files];
        let sources = Arc::new(sources);
        let board = Board::new(&sources);
        let take = || match board.state().take(&sources) {
            Some(Work::Pack(files)) => files,
            Some(other) => panic!("{other:?}"),
            None => Vec::new(),
        };
        board.on_reply(accepted(Holes::Sent));
        let packs: Vec<_> = (0..MAX_UNSETTLED).map(|_| take()).collect();
        assert!(packs.iter().all(|pack| pack.len() == MAX_PACK_FILES));
        let settle = |index| board.on_reply(Reply::Settled(index, Outcome::Done));
        packs[7][1..].iter().copied().for_each(settle);
        assert!(take().is_empty());
        // Held, it comes to nothing where it is, and what is settled does not count again.
        board.on_reply(Reply::Hold(packs[7][0]));
        assert_eq!(take().len(), MAX_PACK_FILES);
        assert!(take().is_empty());
        settle(packs[7][0]);
        assert!(take().is_empty());
        packs[8].iter().copied().for_each(settle);
        board.on_reply(Reply::Have(packs[7][0], Vec::new(), 0));
        assert_eq!(take(), [packs[7][0]]);
        assert_eq!(take().len(), MAX_PACK_FILES);
    }

    #[test]
    fn nothing_leaves_before_the_receiver_has_said_what_it_has_if_it_may_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let mut sources = Sources::scan(&[file]).unwrap();
        for (expected, waits) in [(Expected::Nothing, false), (Expected::Something, true)] {
            sources.expected = expected;
            let sources = Arc::new(sources.clone());
            let board = Board::new(&sources);
            assert_eq!(board.state().take(&sources).is_none(), waits);
            board.on_reply(accepted(Holes::Sent));
            assert_eq!(board.state().take(&sources).is_some(), waits);
        }
    }

    /// A pack counts until something is known of each of its files, whatever was known before it left.
    #[test]
    fn what_is_known_already_does_not_count_as_on_its_way() {
        let mut unsettled = Unsettled::default();
        for index in [1, 63, 64, 130] {
            unsettled.settle(index);
            assert!(unsettled.is_settled(index) && !unsettled.is_settled(index + 1));
        }
        unsettled.sent(&[1, 63, 64, 130]);
        assert!(unsettled.left.is_empty());
        unsettled.sent(&[1, 2, 3]);
        unsettled.heard(2);
        unsettled.heard(2);
        assert_eq!(unsettled.left.len(), 1, "of one nothing is known");
        unsettled.settle(3);
        assert!(unsettled.left.is_empty() && unsettled.packs.is_empty());
    }

    #[test]
    fn a_stream_comes_in_its_turn_and_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, "content").unwrap();
        }
        let mut sources = Sources::scan(&files).unwrap();
        sources.list[2].entry.stream = true;
        let sources = Arc::new(sources);
        let board = Board::new(&sources);
        let take = || board.state().take(&sources);
        assert!(matches!(take(), Some(Work::Pack(files)) if files == [0, 1]));
        assert!(matches!(take(), Some(Work::Stream(2))));
        assert!(matches!(take(), Some(Work::Pack(files)) if files == [3]));
        assert!(take().is_none());
    }

    /// docs/spec/files.md: those up to 256 KiB come in packs, and are never gone on with.
    #[test]
    fn the_largest_small_file_comes_in_a_pack() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        files
            .iter()
            .for_each(|file| std::fs::write(file, "").unwrap());
        let mut sources = Sources::scan(&files).unwrap();
        sources.list[0].entry.size = MAX_SMALL;
        sources.list[1].entry.size = MAX_SMALL + 1;
        let sources = Arc::new(sources);
        let board = Board::new(&sources);
        let take = || board.state().take(&sources);
        let is_small = |work| matches!(work, Some(Work::Pack(files)) if files == [0]);
        assert!(is_small(take()));
        assert!(matches!(take(), Some(Work::File(1, ..))));
        for index in [0, 1] {
            board.on_reply(Reply::Have(index, Vec::new(), 0));
        }
        assert!(matches!(take(), Some(Work::File(1, Some(_), _))));
        assert!(is_small(take()));
    }

    /// docs/spec/files.md: what leaves before the receiver has agreed may be for nothing, so it is little.
    #[test]
    fn few_objects_leave_before_the_receiver_has_agreed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let mut sources = Sources::scan(&[file]).unwrap();
        let each = sources.list.pop().unwrap();
        // Four of them are a pack.
        sources.list = vec![each; 4 * (MAX_BLIND + 2)];
        for source in &mut sources.list {
            source.entry.size = MAX_SMALL;
        }
        let sources = Arc::new(sources);
        let board = Board::new(&sources);
        let take = || match board.state().take(&sources) {
            Some(Work::Pack(files)) => files.len(),
            Some(other) => panic!("{other:?}"),
            None => 0,
        };
        let blind: Vec<_> = (0..MAX_BLIND + 1).map(|_| take()).collect();
        assert_eq!(blind, [4, 4, 4, 4, 0]);
        board.on_reply(accepted(Holes::Sent));
        assert_eq!([take(), take(), take()], [4, 4, 0]);
    }

    /// Whether another version than was offered may come the receiver says when it agrees.
    #[test]
    fn a_file_that_changed_comes_once_the_receiver_takes_it_and_nothing_of_it_may_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, "content").unwrap();
        }
        let sources = Arc::new(Sources::scan(&files).unwrap());
        for versions in [Versions::Any, Versions::Offered] {
            let board = Board::new(&sources);
            let take = || board.state().take(&sources);
            assert!(matches!(take(), Some(Work::Pack(files)) if files == [0, 1]));
            board.changed(0);
            board.changed(1);
            assert!(take().is_none());
            board.on_reply(Reply::Hold(1));
            board.on_reply(Reply::Accepted(Accepted {
                holes: Holes::Sent,
                versions,
                asked: Duration::ZERO,
            }));
            match versions {
                Versions::Any => assert!(matches!(take(), Some(Work::Changed(0)))),
                Versions::Offered => assert!(matches!(take(), Some(Work::GiveUp(0)))),
            }
            assert!(take().is_none());
        }
    }

    /// Whether holes come as zeros the receiver decides, and says so when it agrees.
    #[test]
    fn a_file_with_holes_waits_for_the_receiver_to_agree() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, "").unwrap();
        }
        for (taken, holes) in [
            (Holes::Told, true),
            (Holes::Sent, true),
            (Holes::Sent, false),
        ] {
            let mut sources = Sources::scan(&files).unwrap();
            sources.list[1].entry.size = MAX_SMALL + 1;
            sources.list[1].data = holes.then(|| Arc::from([0..1, 2..3]));
            let sources = Arc::new(sources);
            let board = Board::new(&sources);
            let take = || board.state().take(&sources);
            assert!(matches!(take(), Some(Work::Pack(files)) if files == [0]));
            if holes {
                assert!(take().is_none());
                board.on_reply(accepted(taken));
            }
            assert!(matches!(take(), Some(Work::File(1, None, how)) if how == taken));
        }
    }

    #[tokio::test]
    async fn of_what_is_there_or_settled_nothing_more_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, "content").unwrap();
        }
        let mut sources = Sources::scan(&files).unwrap();
        sources.list[0].entry.size = MAX_SMALL + 1;
        let sources = Arc::new(sources);
        let board = Board::new(&sources);
        let take = || board.state().take(&sources);
        assert!(matches!(take(), Some(Work::File(0, ..))));
        let sending = tokio::spawn(std::future::pending::<()>());
        board.runs(0, sending.abort_handle());
        board.on_reply(Reply::There(1, 7));
        board.on_reply(Reply::Settled(2, Outcome::Skipped));
        assert!(matches!(take(), Some(Work::Pack(files)) if files == [3]));
        assert!(take().is_none());
        // What is being sent of a file ends when its outcome is known.
        board.on_reply(Reply::Settled(0, Outcome::Skipped));
        assert!(sending.await.unwrap_err().is_cancelled());
        // What is asked is answered before more is sent.
        board.on_reply(Reply::Have(3, Vec::new(), 0));
        board.on_reply(Reply::Check(0, Asked::Groups));
        assert!(matches!(take(), Some(Work::Hash(0, Asked::Groups))));
        assert!(matches!(take(), Some(Work::Pack(files)) if files == [3]));
    }
}
