//! What a receiver reads of files that are there, to compare them, and hashes of holes, costs a sender a few words
//! and this side as long as the files are. While there are other sessions it takes half of the processors, all
//! sessions together, each as much of that as another: who has much compared holds up nobody's files.
//!
//! Lists of files are read where the packets of all sessions are, and cost four times what as many bytes of files
//! do: of that thread they take half of the time.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processors for that.
static PROCESSORS: LazyLock<u32> = LazyLock::new(|| {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(all / 2).unwrap_or(u32::MAX).max(1)
});
/// Rests are at least as long: far longer than what a timer is late by.
const REST: Duration = Duration::from_millis(10);
/// And are looked up from as often: a session that ended has its threads end.
const LOOK: Duration = Duration::from_millis(100);

/// The sessions of a receiver.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: AtomicUsize,
    /// Those that have something read.
    reading: AtomicUsize,
}

/// A session, until this is dropped.
#[derive(Debug)]
pub struct Alive(Arc<()>, Arc<Session>);

#[derive(Debug)]
struct Session {
    among: Sessions,
    /// Threads that read for it.
    threads: AtomicUsize,
}

impl Sessions {
    /// Another one begins.
    pub fn begin(&self) -> Alive {
        self.0.all.fetch_add(1, Relaxed);
        let session = Session {
            among: self.clone(),
            threads: AtomicUsize::new(0),
        };
        Alive(Arc::default(), Arc::new(session))
    }
}

impl Alive {
    /// For what works for it.
    pub fn going(&self) -> Going {
        Going(Arc::downgrade(&self.0), self.1.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.1.among.0.all.fetch_sub(1, Relaxed);
    }
}

/// A session that somebody works for, which may end meanwhile.
#[derive(Clone, Debug)]
pub struct Going(Weak<()>, Arc<Session>);

impl Going {
    /// Whether nobody wants any more what takes long to find out.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// From now on this thread reads for it.
    pub fn read(&self) -> Reading<'_> {
        Reading {
            going: self,
            counted: Counted::new(&self.1),
            worked: Cell::new(worked()),
            owed: Cell::default(),
        }
    }

    /// Its list is going to be read.
    pub fn list(&self) -> Listing<'_> {
        Listing {
            session: &self.1,
            counted: None,
            owed: Duration::ZERO,
        }
    }
}

/// What reads for a session, until this is dropped.
#[derive(Debug)]
struct Counted<'a>(&'a Session);

impl<'a> Counted<'a> {
    fn new(session: &'a Session) -> Self {
        if session.threads.fetch_add(1, Relaxed) == 0 {
            session.among.0.reading.fetch_add(1, Relaxed);
        }
        Self(session)
    }

    /// How long it has to rest where it was busy so long, so that all that read take so many processors.
    fn rest_after(&self, busy: Duration, processors: u32) -> Duration {
        let counts = &self.0.among.0;
        if self.0.is_alone() {
            return Duration::ZERO;
        }
        let threads = self.0.threads.load(Relaxed) * counts.reading.load(Relaxed);
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        busy.saturating_mul(threads.saturating_sub(processors)) / processors
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.0.threads.fetch_sub(1, Relaxed) == 1 {
            self.0.among.0.reading.fetch_sub(1, Relaxed);
        }
    }
}

impl Session {
    /// Whether there is no other one.
    fn is_alone(&self) -> bool {
        self.among.0.all.load(Relaxed) < 2
    }
}

/// A thread that reads for a session.
#[derive(Debug)]
pub struct Reading<'a> {
    going: &'a Going,
    counted: Counted<'a>,
    /// Processor time of this thread when it was looked at last.
    worked: Cell<Duration>,
    /// Rest that it has not had.
    owed: Cell<Duration>,
}

impl Reading<'_> {
    /// Rests as long as others are to have their turns. Whether the session goes on.
    #[expect(clippy::disallowed_methods)] // a rest is time
    pub fn go_on(&self) -> bool {
        let now = worked();
        let busy = now.saturating_sub(self.worked.replace(now));
        let mut owed = self.owed.get() + self.counted.rest_after(busy, *PROCESSORS);
        if owed >= REST {
            while !owed.is_zero() && !self.going.is_over() {
                std::thread::sleep(owed.min(LOOK));
                owed = owed.saturating_sub(LOOK);
            }
        }
        self.owed.set(owed);
        !self.going.is_over()
    }
}

/// The reading of a session's list, by a thread that all sessions share.
#[derive(Debug)]
pub struct Listing<'a> {
    session: &'a Session,
    /// Not while it waits for its sender.
    counted: Option<Counted<'a>>,
    /// Rest that it has not had.
    owed: Duration,
}

impl Listing<'_> {
    /// Does a part of it.
    pub fn work<T>(&mut self, part: impl FnOnce() -> T) -> T {
        let session = self.session;
        let counted = self.counted.get_or_insert_with(|| Counted::new(session));
        let before = worked();
        let done = part();
        let busy = worked().saturating_sub(before);
        if !session.is_alone() {
            self.owed += busy.max(counted.rest_after(busy, *PROCESSORS));
        }
        done
    }

    /// Leaves the thread to others as long as they are to have their turns.
    pub async fn rest(&mut self) {
        if self.owed >= REST {
            tokio::time::sleep(std::mem::take(&mut self.owed)).await;
        }
        self.counted = None;
    }
}

/// Processor time of this thread so far.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Duration = Duration::from_millis(6);

    #[test]
    fn who_is_alone_never_rests() {
        let sessions = Sessions::default();
        let (alive, ended) = (sessions.begin(), sessions.begin());
        drop(ended);
        let going = alive.going();
        let readings: Vec<_> = (0..8).map(|_| going.read()).collect();
        assert_eq!(readings[0].counted.rest_after(BUSY, 1), Duration::ZERO);
    }

    #[test]
    fn those_who_read_take_as_many_processors_as_they_may_and_each_session_as_much() {
        let sessions = Sessions::default();
        let [one, other, idle] = [(); 3].map(|()| sessions.begin());
        let (one, other) = (one.going(), other.going());
        for (threads, rests) in [(1, [0, 0]), (2, [1, 0]), (4, [3, 1])] {
            let readings: Vec<_> = (0..threads).map(|_| one.read()).collect();
            let rests = rests.map(|rest| rest * BUSY);
            assert_eq!(
                [1, 2].map(|n| readings[0].counted.rest_after(BUSY, n)),
                rests
            );
        }
        // A session of four threads and one of a single thread: half of a processor each.
        let four: Vec<_> = (0..4).map(|_| one.read()).collect();
        let single = other.read();
        assert_eq!(four[0].counted.rest_after(BUSY, 1), 7 * BUSY);
        assert_eq!(single.counted.rest_after(BUSY, 1), BUSY);
        // Who has read what there was leaves the others his part.
        drop(four);
        assert_eq!(single.counted.rest_after(BUSY, 1), Duration::ZERO);
        drop(idle);
    }

    #[test]
    fn nothing_is_read_for_a_session_that_is_over() {
        let sessions = Sessions::default();
        let (alive, _other) = (sessions.begin(), sessions.begin());
        let going = alive.going();
        let (reading, _second) = (going.read(), going.read());
        assert!(reading.go_on() && !going.is_over());
        drop(alive);
        // However much it owes.
        reading.owed.set(Duration::from_secs(3600));
        assert!(!reading.go_on() && going.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_leaves_others_half_of_the_thread_and_counts_while_it_is_worked_at() {
        let sessions = Sessions::default();
        let [alive, other] = [(); 2].map(|()| sessions.begin());
        let (going, start) = (alive.going(), tokio::time::Instant::now());
        let mut list = going.list();
        let before = worked();
        while start.elapsed().is_zero() {
            list.work(|| std::hint::black_box([0; 1000].map(|i: u64| i + 1)));
            list.rest().await;
        }
        // A timer has whole milliseconds.
        let most = worked() - before + Duration::from_millis(1);
        assert!((REST..=most).contains(&start.elapsed()));
        // Who waits for his sender takes nobody's turn.
        let reader = other.going();
        let reading = [reader.read(), reader.read()];
        let rest = || reading[0].counted.rest_after(BUSY, 1);
        assert_eq!(rest(), BUSY);
        list.work(|| ());
        assert_eq!(rest(), 3 * BUSY);
        list.rest().await;
        assert_eq!(rest(), BUSY);
        // Of one that is alone nothing is owed.
        drop(other);
        list.owed = Duration::ZERO;
        list.work(|| std::hint::black_box([0; 1000].map(|i: u64| i + 1)));
        assert_eq!(list.owed, Duration::ZERO);
    }
}
