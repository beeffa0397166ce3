//! The task that has blocks rebuilt on threads of their own: one takes up to milliseconds, and
//! packets arrive meanwhile.

use crate::driver::End;
use crate::shared::{Shared, Waiting};
use crate::sync::{JoinSet, Notify};
use dfcp_proto::ConnectionHandle;
use dfcp_proto::host::Solve;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Most blocks that are rebuilt at a time.
const MAX_PARALLEL: usize = 4;
/// Bytes that those may take beside what their blocks are charged with, unless one alone takes more: one of
/// RaptorQ's largest of full packets (K = 8192, 1200 bytes, 67 MB), or four of 2 MB.
pub(crate) const MEMORY: usize = 64 << 20;

/// Blocks to be rebuilt, no more than the connections have room for. Connections take turns, so that
/// one with many does not hold up the others.
#[derive(Debug)]
pub(crate) struct Turns<J> {
    queues: BTreeMap<ConnectionHandle, VecDeque<J>>,
    last: ConnectionHandle,
    /// Tells the solver of new ones, or of the end.
    pub(crate) waiting: Arc<Notify>,
}

impl<J> Default for Turns<J> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            last: ConnectionHandle(0),
            waiting: Arc::default(),
        }
    }
}

impl<J> Turns<J> {
    pub(crate) fn push(&mut self, handle: ConnectionHandle, job: J) {
        self.queues.entry(handle).or_default().push_back(job);
        self.waiting.notify_one();
    }

    pub(crate) fn pop(&mut self) -> Option<J> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.queues.range(after).next();
        let (&handle, _) = next.or_else(|| self.queues.first_key_value())?;
        let queue = self.queues.get_mut(&handle)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&handle);
        }
        self.last = handle;
        job
    }

    /// Nothing is rebuilt any more; what was to be is given back.
    pub(crate) fn end(&mut self) -> BTreeMap<ConnectionHandle, VecDeque<J>> {
        self.waiting.notify_one();
        std::mem::take(&mut self.queues)
    }

    /// The connection is over.
    pub(crate) fn forget(&mut self, handle: ConnectionHandle) {
        self.queues.remove(&handle);
    }
}

/// Runs until the driver ends. A job that panics ends the endpoint: its block would never be
/// complete, and nobody would learn it.
pub(crate) async fn run<W: Waiting>(shared: Arc<Shared<W>>) {
    let _end = End::of(&shared);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let width = cores.min(MAX_PARALLEL);
    let waiting = shared.jobs().waiting.clone();
    let mut running = JoinSet::new();
    // What those that run take, and one that waits until there is memory for it.
    let (mut taken, mut large) = (0_usize, None);
    while !shared.has_ended() {
        while running.len() < width {
            let next = large.take().or_else(|| shared.jobs().pop());
            let Some((line, mut job)) = next else {
                break;
            };
            let memory = job.memory();
            if taken > 0 && taken.saturating_add(memory) > MEMORY {
                large = Some((line, job));
                break;
            }
            taken = taken.saturating_add(memory);
            running.spawn_blocking(move || {
                job.run();
                (line, job, memory)
            });
        }
        tokio::select! {
            () = waiting.notified() => {}
            Some(done) = running.join_next() => match done {
                Ok((line, job, memory)) => {
                    taken = taken.saturating_sub(memory);
                    line.finish_solve(job);
                }
                Err(_) => return,
            },
        }
    }
}
