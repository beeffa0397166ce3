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
    while !shared.has_ended() {
        while running.len() < width {
            let Some((line, mut job)) = shared.jobs().pop() else {
                break;
            };
            running.spawn_blocking(move || {
                job.run();
                (line, job)
            });
        }
        tokio::select! {
            () = waiting.notified() => {}
            Some(done) = running.join_next() => match done {
                Ok((line, job)) => line.finish_solve(job),
                Err(_) => return,
            },
        }
    }
}
