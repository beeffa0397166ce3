//! How many small files are written at a time. A session writes several at once, and all sessions together as many
//! as the machine can: the threads that do so share the processors with the one that all packets come to, which
//! had a small part of one beside those of many sessions. What is read takes turns elsewhere, as it takes long.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

thread_local! {
    /// The place of the session that this thread writes for.
    static HELD: Cell<Option<Place>> = const { Cell::new(None) };
}

/// A place, until this is dropped.
pub type Place = OwnedSemaphorePermit;

/// Places of all sessions together for each processor: while one waits for the disk another one hashes.
const FOR_EACH: usize = 2;

/// Those of all sessions of a receiver.
#[derive(Clone, Debug)]
pub struct Writers(Arc<Semaphore>);

impl Writers {
    /// As many as the machine can use; no fewer than the `most` that one session has if it is alone.
    pub fn for_sessions_of(most: usize) -> Self {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(most.max(FOR_EACH * all))
    }

    fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// A place, if there is one.
    #[cfg(test)]
    pub fn free_place(&self) -> Option<Place> {
        self.0.clone().try_acquire_owned().ok()
    }

    /// Another session begins.
    pub fn begin(&self) -> Writing {
        Writing {
            places: self.0.clone(),
            next: Semaphore::new(1),
            over: Semaphore::new(0),
        }
    }
}

/// The part of a session.
#[derive(Debug)]
pub struct Writing {
    places: Arc<Semaphore>,
    /// Had by who waits for a place.
    next: Semaphore,
    /// Closed when it ends.
    over: Semaphore,
}

impl Writing {
    /// Waits for a place; `None` once the session ends. Of each session one waits beside those of others, so that places
    /// go round among the sessions, however much one has to write.
    pub async fn place(&self) -> Option<Place> {
        let _next = self.next.acquire().await.ok()?;
        tokio::select! {
            biased;
            _ = self.over.acquire() => None,
            place = self.places.clone().acquire_owned() => place.ok(),
        }
    }

    /// Nobody waits any more: a later session of the same sender may wait for a file of this one.
    pub fn end(&self) {
        self.next.close();
        self.over.close();
    }
}

/// Writes by a place.
pub fn holding<T>(place: Place, write: impl FnOnce() -> T) -> T {
    HELD.set(Some(place));
    let written = write();
    give_way();
    written
}

/// What this thread does next takes as long as a sender likes: somebody else has the place meanwhile, and from then on.
pub fn give_way() {
    HELD.take();
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::tenants::{Tenant, Tenants};

    fn poll<T>(wait: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        wait.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_session_that_is_alone_has_all_it_can_use() {
        let writing = Writers::for_sessions_of(8).begin();
        let places = [(); 8].map(|()| poll(pin!(writing.place())));
        assert!(places.iter().all(Poll::is_ready));
    }

    #[test]
    fn sessions_share_the_places_in_turns() {
        let writers = Writers::new(2);
        let [many, one] = [(); 2].map(|()| writers.begin());
        let held = [(); 2].map(|()| poll(pin!(many.place())));
        assert!(held.iter().all(Poll::is_ready));
        let (mut first, mut second) = (pin!(many.place()), pin!(many.place()));
        let mut others = pin!(one.place());
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        assert!(poll(others.as_mut()).is_pending());
        let [done, held] = held;
        drop(done);
        let next = poll(first.as_mut());
        assert!(next.is_ready());
        assert!(poll(second.as_mut()).is_pending() && poll(others.as_mut()).is_pending());
        drop(held);
        // It asked before, but another one of its session had its turn.
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(others.as_mut()).is_ready());
    }

    /// A sender whose earlier session does not let go of a file holds up none of the others.
    #[test]
    fn who_waits_for_a_file_of_another_session_leaves_its_place() {
        let (tenants, writers) = (Tenants::default(), Writers::new(1));
        let [first, second] = [(); 2].map(|()| Tenant::new([1; 32]));
        let hold = tenants.take("x", &first).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let place = runtime.block_on(writers.begin().place()).unwrap();
        let taken = std::thread::scope(|scope| {
            let take = || tenants.take("x", &second).map(drop);
            let waiting = scope.spawn(move || holding(place, take));
            assert!(runtime.block_on(writers.begin().place()).is_some());
            drop(hold);
            waiting.join().unwrap()
        });
        assert!(taken.is_some(), "the place was kept until it gave up");
    }

    #[test]
    fn a_session_that_ends_waits_no_more() {
        let writers = Writers::new(1);
        let [busy, over] = [(); 2].map(|()| writers.begin());
        let _held = poll(pin!(busy.place()));
        let (mut first, mut second) = (pin!(over.place()), pin!(over.place()));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        over.end();
        for wait in [first, second] {
            assert!(matches!(poll(wait), Poll::Ready(None)));
        }
    }
}
