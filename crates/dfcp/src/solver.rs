//! The task that has blocks rebuilt on threads of their own: one takes milliseconds, and packets
//! arrive meanwhile.

use crate::driver::End;
use crate::shared::{Shared, Waiting};
use dfcp_proto::host::{CoreConnection, Solve};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Most blocks that are rebuilt at a time.
const MAX_PARALLEL: usize = 4;

/// Runs until the driver ends. A job that panics ends the endpoint: its block would never be
/// complete, and nobody would learn it.
pub(crate) async fn run<W: Waiting>(shared: Arc<Shared<W>>) {
    let _end = End::of(&shared);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let width = cores.min(MAX_PARALLEL);
    let added = shared.lock().jobs.added.clone();
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
            () = added.notified() => {}
            Some(done) = running.join_next() => match done {
                Ok((handle, job)) => shared.act(|now, state| {
                    if let Some((connection, _)) = state.get(handle) {
                        connection.finish_solve(now, job);
                    }
                }),
                Err(_) => return,
            },
        }
    }
}
