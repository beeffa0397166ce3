//! Threads that take the next point until there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};

use dfcp_command::{Failure, Kind, panic};

use super::{PointResult, Study};

/// A point and what came of it.
pub type Done = (usize, Result<PointResult, Failure>);

/// Starts running points. The threads end when all are done, or soon after the receiver is
/// dropped; nobody waits for them, so that an interrupt need not wait for a long point.
pub fn start<S: Study>(study: Arc<S>, todo: Vec<usize>, jobs: usize) -> Receiver<Done> {
    let jobs = jobs.min(todo.len());
    // Results wait for the disk, not in memory.
    let (sender, receiver) = mpsc::sync_channel(2 * jobs + 1);
    let todo = Arc::new((AtomicUsize::new(0), todo));
    for _ in 0..jobs {
        let (study, todo, sender) = (study.clone(), todo.clone(), sender.clone());
        std::thread::spawn(move || {
            let (next, points) = &*todo;
            while let Some(&point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                // A point that panics is a failed point, not the end of a night's work.
                let result = panic::caught(|| study.run(point));
                let result = result.unwrap_or_else(|message| Err(panicked(&message)));
                if sender.send((point, result)).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

fn panicked(message: &str) -> Failure {
    Failure::new(Kind::Failure, format!("the simulator panicked: {message}"))
}
