//! What is to be sent next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Reply;
use crate::read::Holes;
use crate::source::Sources;
use crate::tree::Value;
use crate::{MAX_PACK, MAX_PACK_FILES, MAX_SMALL};

/// Objects that are sent before the receiver has said what it has: what they bring may be for
/// nothing. These are 4 MiB of small files, more than a first round trip carries on most paths.
const MAX_BLIND: usize = 4;

/// What to do next.
#[derive(Debug)]
pub enum Work {
    /// Send these small files together.
    Pack(Vec<u64>),
    /// Send this file, but for what the receiver has of it.
    File(u64, Option<BTreeMap<u64, Value>>, Holes),
    /// Send this pipe.
    Stream(u64),
    /// Tell the hash of this file.
    Hash(u64),
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
    /// Whether the receiver has agreed, and how it takes holes.
    accepted: Option<Holes>,
    blind: usize,
    /// The next of the list.
    cursor: usize,
    /// Files that nothing is to be sent of, for now or for good.
    stopped: BTreeSet<u64>,
    /// Small files that were held and are wanted.
    small: VecDeque<u64>,
    /// Large ones, with what is there.
    large: VecDeque<(u64, BTreeMap<u64, Value>)>,
    hashes: VecDeque<u64>,
    /// Large files that are being sent.
    running: BTreeMap<u64, AbortHandle>,
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
            Reply::Accepted { holes, .. } => state.accepted = Some(holes),
            Reply::There(index, _) | Reply::Settled(index, _) => state.stop(index),
            Reply::Hold(index) => state.stop(index),
            Reply::Check(index) => state.hashes.push_back(index),
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
        self.accepted.unwrap_or(Holes::Sent)
    }

    fn stop(&mut self, index: u64) {
        if let Some(task) = self.running.remove(&index) {
            task.abort();
        }
        // Behind the cursor nobody asks any more.
        if index as usize >= self.cursor {
            self.stopped.insert(index);
        }
    }

    fn take(&mut self, sources: &Sources) -> Option<Work> {
        if let Some(index) = self.hashes.pop_front() {
            return Some(Work::Hash(index));
        }
        if let Some((index, have)) = self.large.pop_front() {
            return Some(Work::File(index, Some(have), self.holes()));
        }
        if !self.small.is_empty() {
            let mut pack = Filling::default();
            while let Some(&index) = self.small.front()
                && pack.add(index, sources)
            {
                self.small.pop_front();
            }
            return Some(Work::Pack(pack.files));
        }
        if self.accepted.is_none() && self.blind >= MAX_BLIND {
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
            if !pack.add(index, sources) {
                break;
            }
            self.cursor += 1;
        }
        (!pack.files.is_empty()).then_some(Work::Pack(pack.files))
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
