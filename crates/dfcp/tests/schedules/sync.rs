//! The names of the library's `sync`, by shuttle.

pub(crate) use shuttle::future::yield_now;
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

use shuttle::future::{JoinHandle, block_on, spawn};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Time goes on whenever somebody asks for it.
#[derive(Debug)]
pub(crate) struct Clock(std::sync::atomic::AtomicU64);

impl Clock {
    pub(crate) fn now() -> Self {
        Self(std::sync::atomic::AtomicU64::new(0))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_micros(10 * self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct Permit {
    given: bool,
    waiter: Option<Waker>,
}

/// Of one waiter at a time, as the library has it.
#[derive(Debug, Default)]
pub(crate) struct Notify(Mutex<Permit>);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn permit(&self) -> MutexGuard<'_, Permit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_one(&self) {
        let mut permit = self.permit();
        permit.given = true;
        let waiter = permit.waiter.take();
        drop(permit);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    pub(crate) async fn notified(&self) {
        poll_fn(|context| {
            let mut permit = self.permit();
            if std::mem::take(&mut permit.given) {
                return Poll::Ready(());
            }
            permit.waiter = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Starts tasks, and knows which there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runtime(Arc<std::sync::Mutex<Vec<JoinHandle<()>>>>);

impl Runtime {
    pub(crate) fn current() -> Self {
        Self::default()
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = spawn(task);
        self.0.lock().expect("nobody panics with it").push(task);
    }

    /// Waits until all tasks are over, also those that they start.
    pub(crate) fn join(&self) {
        loop {
            let next = self.0.lock().expect("nobody panics with it").pop();
            let Some(task) = next else { break };
            block_on(task).expect("no task panics");
        }
    }
}

type Results<T> = Mutex<(VecDeque<T>, Option<Waker>)>;

/// Work on other threads.
#[derive(Debug)]
pub(crate) struct JoinSet<T> {
    running: usize,
    done: Arc<Results<T>>,
    threads: Vec<shuttle::thread::JoinHandle<()>>,
}

/// Tests want to know when all is over.
impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            let _result = thread.join();
        }
    }
}

impl<T: Send + 'static> JoinSet<T> {
    pub(crate) fn new() -> Self {
        let done = Arc::new(Mutex::new((VecDeque::new(), None)));
        Self {
            running: 0,
            done,
            threads: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.running
    }

    pub(crate) fn spawn_blocking(&mut self, work: impl FnOnce() -> T + Send + 'static) {
        self.running += 1;
        let done = self.done.clone();
        self.threads.push(shuttle::thread::spawn(move || {
            let result = work();
            let mut done = done.lock().expect("nobody panics with it");
            done.0.push_back(result);
            let waiter = done.1.take();
            drop(done);
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }));
    }

    pub(crate) async fn join_next(&mut self) -> Option<Result<T, Infallible>> {
        if self.running == 0 {
            return None;
        }
        let result = poll_fn(|context| {
            let mut done = self.done.lock().expect("nobody panics with it");
            match done.0.pop_front() {
                Some(result) => Poll::Ready(result),
                None => {
                    done.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        self.running -= 1;
        Some(Ok(result))
    }
}
