//! The task that has blocks rebuilt on threads of their own: one takes milliseconds, and packets
//! arrive meanwhile.

use super::shared::State;
use crate::driver::Core;
use crate::shared::Shared;
use dfcp_proto::published::{ConnectionHandle, SolveJob};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Most blocks that are rebuilt at a time.
const MAX_PARALLEL: usize = 4;

/// Runs until the driver ends.
pub(super) async fn run(shared: Arc<Shared<State>>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let width = cores.min(MAX_PARALLEL);
    let waiting = shared.lock().jobs.waiting.clone();
    let mut running = JoinSet::new();
    while shared.lock().ended.is_none() {
        while running.len() < width {
            let Some((handle, mut job)) = shared.lock().jobs.queue.pop_front() else {
                break;
            };
            running.spawn_blocking(move || {
                job.run();
                (handle, job)
            });
        }
        tokio::select! {
            () = waiting.notified() => {}
            Some(Ok((handle, job))) = running.join_next() => finish(&shared, handle, job),
        }
    }
}

fn finish(shared: &Shared<State>, handle: ConnectionHandle, job: SolveJob) {
    let now = shared.now();
    let mut state = shared.lock();
    if let Some((connection, _)) = state.get(handle) {
        connection.finish_solve(now, job);
    }
    state.collect(now);
    drop(state);
    shared.wake.notify_one();
}
