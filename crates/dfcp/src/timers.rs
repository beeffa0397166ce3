//! When connections want to be looked at: one timer of the system for all of them.

use crate::alarm::Alarm;
use crate::driver::End;
use crate::shared::{Shared, Waiting};
use dfcp_proto::{ConnectionHandle, Instant};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What is to be woken, by time and by connection.
#[derive(Debug)]
struct Queue<T> {
    by_time: BTreeMap<(Instant, ConnectionHandle), T>,
    times: HashMap<ConnectionHandle, Instant>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    queue: Mutex<Queue<T>>,
    /// The first one is another now, and comes earlier.
    sooner: Notify,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        let queue = Queue {
            by_time: BTreeMap::new(),
            times: HashMap::new(),
        };
        Self {
            queue: Mutex::new(queue),
            sooner: Notify::new(),
        }
    }
}

impl<T: Clone> Timers<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes `who` at `at`, and not at the time before; never without one.
    pub(crate) fn set(&self, id: ConnectionHandle, at: Option<Instant>, who: &T) {
        let mut queue = self.lock();
        let before = queue.times.get(&id).copied();
        if before == at {
            return;
        }
        if let Some(before) = before {
            queue.by_time.remove(&(before, id));
            queue.times.remove(&id);
        }
        let Some(at) = at else { return };
        let first = queue.by_time.first_key_value();
        let is_first = first.is_none_or(|(&(first, _), _)| at < first);
        queue.by_time.insert((at, id), who.clone());
        queue.times.insert(id, at);
        drop(queue);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// Those whose time has come; and when that of the next one does.
    fn take_due(&self, now: Instant) -> (Vec<T>, Option<Instant>) {
        let (mut queue, mut due) = (self.lock(), Vec::new());
        while let Some(first) = queue.by_time.first_entry() {
            let (at, id) = *first.key();
            if at > now {
                return (due, Some(at));
            }
            due.push(first.remove());
            queue.times.remove(&id);
        }
        (due, None)
    }

    /// Nobody is to be woken any more.
    pub(crate) fn clear(&self) {
        let mut queue = self.lock();
        let dropped = std::mem::take(&mut queue.by_time);
        queue.times.clear();
        drop(queue);
        drop(dropped);
        self.sooner.notify_one();
    }
}

/// Runs until the endpoint ends.
pub(crate) async fn run<W: Waiting>(shared: Arc<Shared<W>>) {
    let mut end = End::of(&shared);
    end.reason = match keep(&shared).await {
        Ok(()) => io::ErrorKind::NotConnected,
        Err(error) => error.kind(),
    };
}

async fn keep<W: Waiting>(shared: &Shared<W>) -> io::Result<()> {
    let mut alarm = Alarm::new()?;
    while !shared.has_ended() {
        let now = shared.now();
        let (due, next) = shared.timers.take_due(now);
        due.iter().for_each(|line| line.alert());
        tokio::select! {
            rung = alarm.wait(now, next) => rung?,
            () = shared.timers.sooner.notified() => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfcp_proto::Duration;

    #[test]
    fn each_is_woken_once_at_its_last_time() {
        let timers = Timers::default();
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let [one, two, three] = [1, 2, 3].map(ConnectionHandle);
        timers.set(one, Some(at(10)), &"one");
        timers.set(two, Some(at(5)), &"two");
        timers.set(three, Some(at(7)), &"three");
        timers.set(two, Some(at(20)), &"two");
        timers.set(three, None, &"three");
        assert_eq!(timers.take_due(at(4)), (vec![], Some(at(10))));
        assert_eq!(timers.take_due(at(15)), (vec!["one"], Some(at(20))));
        timers.set(one, Some(at(10)), &"one");
        assert_eq!(timers.take_due(at(20)), (vec!["one", "two"], None));
    }
}
