//! What a receiver reads of files that are there, to compare them, and hashes of holes, costs a sender a few words
//! and this side as long as the files are. While there are other sessions it takes a quarter of the processors, all
//! sessions together, each as much of that as another: who has much compared holds up nobody's files.
//!
//! A session pays for processor time before it has it, and only one pays at a time, in the order in which they come:
//! so neither many threads nor many sessions that come and go get more, and what waits for a disk costs nothing.
//!
//! Lists of files are read where the packets of all sessions are, and cost four times what as many bytes of files
//! do: of that thread they take half of the time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time that is paid for at once. What is waited for it is far longer than what a timer is late by.
const SLICE: Duration = Duration::from_millis(10);
/// One processor in so many reads. Who attacks may cost others half of their goodput: half of that is for what he has
/// read, as far as they need all processors, and half for what his sessions and packets cost beside.
const SHARE: u32 = 4;
/// How long paying for a slice takes.
static PRICE: LazyLock<Duration> = LazyLock::new(|| {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    SLICE * SHARE / u32::try_from(all).unwrap_or(u32::MAX)
});
/// How often who waits looks whether its session has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Threads that wait for their turns, of all sessions together: a quarter of those that a runtime has for what blocks.
/// What comes is written by the same ones.
const THREADS: usize = 128;

/// The sessions of a receiver.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    all: AtomicUsize,
    /// Whose lists are being read.
    lists: AtomicU32,
    till: Mutex<Till>,
}

/// Where sessions pay.
#[derive(Debug, Default)]
struct Till {
    /// Whether somebody has the turn.
    taken: bool,
    waiting: VecDeque<Sender<Turn>>,
}

/// The turn to pay; the next one's when this is dropped.
#[derive(Debug)]
struct Turn(Sessions);

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut till = lock(&self.0.0.till);
            let next = till.waiting.pop_front();
            till.taken = next.is_some();
            next
        };
        if let Some(next) = next {
            // Of one that has gone it is dropped again.
            let _ = next.send(Turn(self.0.clone()));
        }
    }
}

/// A session, until this is dropped.
#[derive(Debug)]
pub struct Alive(Arc<()>, Arc<Session>);

#[derive(Debug)]
struct Session {
    among: Sessions,
    account: Mutex<Account>,
    /// Whether something was paid.
    paid: Condvar,
}

#[derive(Debug)]
struct Account {
    /// Processor time that it has had, and has not paid for.
    owed: Duration,
    /// Whether one of its threads is about to pay: the others wait for that.
    pays: bool,
}

impl Sessions {
    /// Another one begins. It owes a slice: who comes and goes has nothing for nothing.
    pub fn begin(&self) -> Alive {
        self.0.all.fetch_add(1, Relaxed);
        let session = Session {
            among: self.clone(),
            account: Mutex::new(Account {
                owed: SLICE,
                pays: false,
            }),
            paid: Condvar::new(),
        };
        Alive(Arc::default(), Arc::new(session))
    }

    /// Brings the turn to pay, behind those who asked before.
    fn turn(&self) -> Receiver<Turn> {
        let (give, given) = channel();
        let mut till = lock(&self.0.till);
        match till.taken {
            true => till.waiting.push_back(give),
            false => {
                till.taken = true;
                let _ = give.send(Turn(self.clone()));
            }
        }
        given
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

    /// How many of its `places` for what waits for turns each thread takes, so that many sessions leave threads to
    /// others.
    pub fn places_for_each(&self, places: usize) -> u32 {
        let all = self.1.among.0.all.load(Relaxed);
        let each = (all * places).div_ceil(THREADS).clamp(1, places);
        each as u32
    }

    /// From now on this thread reads for it.
    pub fn read(&self) -> Reading<'_> {
        Reading {
            going: self,
            worked: Cell::new(worked()),
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

    /// Whether others wait for what it pays.
    fn has_to_pay(&self) -> bool {
        !self.is_over() && !self.1.is_alone()
    }

    /// Pays what it owes, or waits until another thread has.
    fn pay(&self) {
        let session = &self.1;
        let mut account = lock(&session.account);
        while account.owed >= SLICE && self.has_to_pay() {
            if account.pays {
                let woken = session.paid.wait_timeout(account, LOOK);
                account = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            account.pays = true;
            drop(account);
            let paid = self.pay_slice();
            account = lock(&session.account);
            account.pays = false;
            account.owed -= paid;
            session.paid.notify_all();
        }
    }

    /// Pays for a slice; gives what was paid for.
    #[expect(clippy::disallowed_methods)] // time is what is paid
    fn pay_slice(&self) -> Duration {
        let given = self.1.among.turn();
        while self.has_to_pay() {
            match given.recv_timeout(LOOK) {
                Ok(_turn) => {
                    std::thread::sleep(*PRICE);
                    return SLICE;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Duration::ZERO
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
    /// Processor time of this thread when it was looked at last.
    worked: Cell<Duration>,
}

impl Reading<'_> {
    /// Waits until it is this session's turn. Whether the session goes on.
    pub fn go_on(&self) -> bool {
        self.count();
        self.going.pay();
        !self.going.is_over()
    }

    /// What was done since the last time is owed.
    fn count(&self) {
        let now = worked();
        let busy = now.saturating_sub(self.worked.replace(now));
        if !self.going.1.is_alone() {
            lock(&self.going.1.account).owed += busy;
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.count();
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

/// A list that is being read, until this is dropped.
#[derive(Debug)]
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.lists.fetch_sub(1, Relaxed);
    }
}

impl Listing<'_> {
    /// Does a part of it.
    pub fn work<T>(&mut self, part: impl FnOnce() -> T) -> T {
        let session = self.session;
        let shared = &*session.among.0;
        self.counted.get_or_insert_with(|| {
            shared.lists.fetch_add(1, Relaxed);
            Counted(shared)
        });
        let before = worked();
        let done = part();
        let busy = worked().saturating_sub(before);
        if !session.is_alone() {
            // Of twice as many parts of the thread's time as there are lists each has one.
            let parts = shared.lists.load(Relaxed).saturating_mul(2);
            self.owed += busy.saturating_mul(parts - 1);
        }
        done
    }

    /// Leaves the thread to others as long as they are to have their turns.
    pub async fn rest(&mut self) {
        if self.owed >= SLICE {
            tokio::time::sleep(std::mem::take(&mut self.owed)).await;
        }
        self.counted = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processor time of this thread so far.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// What tests of those who read for sessions use.
#[cfg(test)]
pub mod crowd {
    use super::{Duration, Sessions, THREADS, lock};

    /// Nothing here takes long; a hang is a failure, not a wait.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// So many sessions that each waits for turns on one thread, and none gets one, until this is dropped.
    pub fn crowded(sessions: &Sessions) -> impl Sized {
        let others: Vec<_> = (0..THREADS).map(|_| sessions.begin()).collect();
        (others, sessions.turn())
    }

    /// Runs this with two threads for what blocks.
    pub fn with_two_threads(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(2).build();
        runtime.unwrap().block_on(test);
    }

    /// Asserts that something waits for a turn and leaves one of the two to others.
    pub async fn assert_one_is_free(sessions: &Sessions) {
        let free = async {
            while lock(&sessions.0.till).waiting.is_empty() {
                tokio::task::yield_now().await;
            }
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        };
        let free = tokio::time::timeout(PATIENCE, free).await;
        free.expect("nothing waits, or no thread is free");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use super::*;

    /// A session that owes so many slices.
    fn owing(sessions: &Sessions, slices: u32) -> Alive {
        let alive = sessions.begin();
        lock(&alive.1.account).owed = slices * SLICE;
        alive
    }

    fn owes(alive: &Alive) -> Duration {
        lock(&alive.1.account).owed
    }

    #[test]
    fn who_is_alone_never_pays() {
        let sessions = Sessions::default();
        let (alive, ended) = (owing(&sessions, 1000), sessions.begin());
        drop(ended);
        let _taken = sessions.turn();
        assert!(alive.going().read().go_on());
        assert_eq!(owes(&alive), 1000 * SLICE);
    }

    #[test]
    fn a_session_pays_before_it_has_anything_read() {
        let sessions = Sessions::default();
        let [alive, _other] = [(); 2].map(|()| sessions.begin());
        let start = std::time::Instant::now();
        assert!(alive.going().read().go_on());
        assert!(start.elapsed() >= *PRICE && owes(&alive) < SLICE);
    }

    #[test]
    fn what_was_read_is_owed_before_more_is() {
        let sessions = Sessions::default();
        let [alive, _other] = [(); 2].map(|()| owing(&sessions, 0));
        let going = alive.going();
        let reading = going.read();
        let from = worked();
        while worked() - from < SLICE / 2 {}
        assert!(reading.go_on());
        assert!(owes(&alive) >= SLICE / 2);
    }

    /// Of a small file nothing is asked once it is read.
    #[test]
    fn what_was_read_last_is_owed_though_nobody_asks_for_more() {
        let sessions = Sessions::default();
        let [alive, _other] = [(); 2].map(|()| owing(&sessions, 0));
        let going = alive.going();
        let reading = going.read();
        assert!(reading.go_on());
        let (from, before) = (worked(), owes(&alive));
        while worked() - from < SLICE / 2 {}
        drop(reading);
        assert!(owes(&alive) - before >= SLICE / 2);
    }

    /// However many threads read for one of them.
    #[test]
    fn sessions_pay_one_at_a_time_and_in_turns() {
        let sessions = Sessions::default();
        let held = sessions.turn().recv().unwrap();
        let [many, one] = [(); 2].map(|()| owing(&sessions, 1));
        let waiting = || lock(&sessions.0.till).waiting.len();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let going = many.going();
                scope.spawn(move || going.read().go_on());
            }
            while waiting() < 1 || !lock(&many.1.account).pays {
                std::thread::yield_now();
            }
            let next = one.1.among.turn();
            // Of eight threads one asked for the turn.
            assert_eq!(waiting(), 2);
            assert!(matches!(next.try_recv(), Err(TryRecvError::Empty)));
            drop(held);
            drop(next.recv().unwrap());
        });
        assert!(owes(&many) < SLICE && !lock(&sessions.0.till).taken);
    }

    #[test]
    fn a_turn_of_one_that_has_gone_is_the_next_ones() {
        let sessions = Sessions::default();
        let held = sessions.turn().recv().unwrap();
        let [gone, late, next] = [(); 3].map(|()| sessions.turn());
        drop(gone);
        drop(held);
        // It was given the turn, and does not take it.
        drop(late);
        drop(next.recv().unwrap());
        assert!(!lock(&sessions.0.till).taken);
    }

    /// Who waits for turns has his thread do so: none would be left to write what comes.
    #[test]
    fn many_sessions_leave_threads_to_others() {
        let sessions = Sessions::default();
        let (mut all, mut threads) = (Vec::new(), 0);
        for _ in 0..64 {
            let alive = sessions.begin();
            // As many as it may have then, and none ends.
            threads += 8 / alive.going().places_for_each(8);
            all.push(alive);
        }
        assert!(threads <= 2 * THREADS as u32, "{threads}");
        assert_eq!(Sessions::default().begin().going().places_for_each(8), 1);
        all.extend((0..1000).map(|_| sessions.begin()));
        assert_eq!(all[0].going().places_for_each(8), 8);
    }

    #[test]
    fn nothing_is_read_for_a_session_that_is_over() {
        let sessions = Sessions::default();
        let (alive, _other) = (sessions.begin(), sessions.begin());
        let going = alive.going();
        let reading = going.read();
        assert!(reading.go_on() && !going.is_over());
        drop(alive);
        // However much it owes.
        lock(&going.1.account).owed = Duration::from_secs(3600);
        assert!(!reading.go_on() && going.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn all_lists_together_leave_others_half_of_the_thread() {
        let sessions = Sessions::default();
        let [alive, other] = [(); 2].map(|()| sessions.begin());
        let (one, two) = (alive.going(), other.going());
        let (mut list, mut second) = (one.list(), two.list());
        let start = tokio::time::Instant::now();
        let before = worked();
        while start.elapsed().is_zero() {
            list.work(|| std::hint::black_box([0; 1000].map(|i: u64| i + 1)));
            list.rest().await;
        }
        // A timer has whole milliseconds.
        let most = worked() - before + Duration::from_millis(1);
        assert!((SLICE..=most).contains(&start.elapsed()));
        // Of two each has a quarter; who waits for his sender has none.
        let part = || {
            let (from, mut sum) = (worked(), 0_u64);
            while worked() - from < Duration::from_millis(2) {
                sum += std::hint::black_box(1);
            }
            sum
        };
        second.work(part);
        list.work(part);
        assert!(list.owed >= 3 * Duration::from_millis(2), "{:?}", list.owed);
        second.rest().await;
        list.rest().await;
        assert!(second.owed < SLICE);
        let before = second.owed;
        second.work(part);
        let (owed, half) = (second.owed - before, Duration::from_millis(2));
        // Alone it has half, and a part is a little longer than it looks.
        assert!((half..3 * half).contains(&owed), "{owed:?}");
        // Of one that is alone nothing is owed.
        drop(other);
        list.owed = Duration::ZERO;
        list.work(part);
        assert_eq!(list.owed, Duration::ZERO);
    }
}
