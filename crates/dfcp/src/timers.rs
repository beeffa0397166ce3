//! When connections want to be looked at: the driver has one timer of the system for all of them.

use crate::sync::{Mutex, MutexGuard};
use dfcp_proto::{ConnectionHandle, Instant};
use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

/// What is to be woken, by time and by connection.
#[derive(Debug)]
struct Queue<T> {
    by_time: BTreeMap<(Instant, ConnectionHandle), T>,
    times: HashMap<ConnectionHandle, Instant>,
    /// What the driver sleeps for, if it does.
    awaited: Option<Instant>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Timers<T>(Mutex<Queue<T>>);

/// Later than any time.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self(Mutex::new(Queue {
            by_time: BTreeMap::new(),
            times: HashMap::new(),
            awaited: None,
        }))
    }
}

impl<T: Clone> Timers<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes `who` at `at`, and not at the time before; never without one. True if the driver sleeps for
    /// longer.
    #[must_use]
    pub(crate) fn set(&self, id: ConnectionHandle, at: Option<Instant>, who: &T) -> bool {
        let mut queue = self.lock();
        let before = queue.times.get(&id).copied();
        if before == at {
            return false;
        }
        let mut replaced = None;
        if let Some(before) = before {
            replaced = queue.by_time.remove(&(before, id));
            queue.times.remove(&id);
        }
        let Some(at) = at else { return false };
        let who = replaced.unwrap_or_else(|| who.clone());
        queue.by_time.insert((at, id), who);
        queue.times.insert(id, at);
        queue.awaited.is_some_and(|awaited| at < awaited)
    }

    /// Those whose time has come. The driver is awake.
    pub(crate) fn take_due(&self, now: Instant) -> Vec<T> {
        let (mut queue, mut due) = (self.lock(), Vec::new());
        queue.awaited = None;
        while let Some(first) = queue.by_time.first_entry() {
            let (at, id) = *first.key();
            if at > now {
                break;
            }
            due.push(first.remove());
            queue.times.remove(&id);
        }
        due
    }

    /// When the next one's time comes. The driver sleeps until then.
    pub(crate) fn await_next(&self) -> Option<Instant> {
        let mut queue = self.lock();
        let next = queue.by_time.first_key_value().map(|(&(at, _), _)| at);
        queue.awaited = Some(next.unwrap_or(NEVER));
        next
    }

    /// Nobody is to be woken any more.
    pub(crate) fn clear(&self) {
        let mut queue = self.lock();
        let dropped = std::mem::take(&mut queue.by_time);
        queue.times.clear();
        drop(queue);
        drop(dropped);
    }
}
