//! A sender that brings nothing keeps its place for as long as nobody else wants it. Pings keep its connection
//! alive, and the receiver cannot know whether it waits for a slow program, or for nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::listing::SLOWEST;

/// How long a sender may bring nothing before it gives way to others: longer than outages that connections
/// survive, and than a disk takes to find a file. Who hashes a large one for longer loses the connection to
/// somebody who waits, and goes on with what is there when it comes again (`--retry`).
pub const QUIET: Duration = Duration::from_secs(300);
/// Times that a session is looked at meanwhile.
const LOOKS: u32 = 60;

/// The sessions of a receiver that may have to give way to others.
#[derive(Clone, Debug, Default)]
pub struct Crowd(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    begun: u64,
    /// How far each is behind.
    behind: BTreeMap<u64, Duration>,
    /// Of those who found no place, so many have had one made for them.
    served: u64,
}

/// Of a session now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Bytes of files that came in all.
    pub bytes: u64,
    /// Bytes of messages that came in all.
    pub messages: u64,
    /// Whether this side works at what came, so that the sender may have to wait.
    pub is_ours: bool,
    /// How many found no place so far.
    pub turned_away: u64,
}

impl Seen {
    /// All that came.
    fn came(&self) -> u64 {
        self.bytes + self.messages
    }
}

/// A session among others, until this is dropped.
struct Member<'a>(&'a Crowd, u64);

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self) -> Member<'_> {
        let mut all = self.lock();
        all.begun += 1;
        Member(self, all.begun)
    }

    /// Waits until a session is to give way: it is further behind than `quiet` and than all others, and
    /// somebody found no place since it was last looked at. What comes pays for the time that it takes on the
    /// slowest path that is meant to do, so that a byte now and then keeps no place either.
    pub async fn give_way(&self, quiet: Duration, mut look: impl FnMut() -> Seen) {
        let member = self.join();
        let (mut last, mut at) = (look(), Instant::now());
        let mut paid = last.came();
        let mut behind = Duration::ZERO;
        loop {
            sleep(quiet / LOOKS).await;
            let (seen, now) = (look(), Instant::now());
            let brought = (seen.came() - paid) / SLOWEST;
            if !seen.is_ours && !last.is_ours {
                behind += now - at;
            }
            behind = behind.saturating_sub(Duration::from_secs(brought));
            // Less than a second's worth counts next time.
            paid += brought * SLOWEST;
            let turned_away = match member.turn(behind, quiet, (last.turned_away, seen.turned_away))
            {
                Turn::Now => return,
                // Of two that are to go the other one may be looked at later.
                Turn::Next => last.turned_away,
                Turn::None => seen.turned_away,
            };
            last = Seen {
                turned_away,
                ..seen
            };
            at = now;
        }
    }
}

/// Whether a session is to go.
enum Turn {
    Now,
    /// After others.
    Next,
    None,
}

impl Member<'_> {
    fn turn(&self, behind: Duration, quiet: Duration, (before, wanted): (u64, u64)) -> Turn {
        let mut all = self.0.lock();
        all.behind.insert(self.1, behind);
        let served = all.served.max(before);
        if behind < quiet || served >= wanted {
            return Turn::None;
        }
        if all.behind.values().any(|&other| other > behind) {
            return Turn::Next;
        }
        all.served = served + 1;
        Turn::Now
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.0.lock().behind.remove(&self.1);
    }
}

/// Work of this side, of which a session may have several at a time.
#[derive(Clone, Debug, Default)]
pub struct Work(Arc<AtomicUsize>);

/// One that is under way.
#[derive(Debug)]
pub struct Working(Work);

impl Work {
    pub fn begin(&self) -> Working {
        self.0.fetch_add(1, Ordering::Relaxed);
        Working(self.clone())
    }

    pub fn is_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::timeout;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(86_400);

    /// After how long a session gives way, within a day, whose bytes and whose receiver's work are functions of
    /// the time, and while somebody finds no place all the time.
    async fn gives_way(
        bytes: impl Fn(Duration) -> u64,
        is_ours: impl Fn(Duration) -> bool,
    ) -> Option<Duration> {
        let start = Instant::now();
        let look = || {
            let passed = start.elapsed();
            Seen {
                bytes: bytes(passed),
                is_ours: is_ours(passed),
                turned_away: passed.as_secs(),
                ..Seen::default()
            }
        };
        let crowd = Crowd::default();
        let gone = timeout(DAY, crowd.give_way(QUIET, look)).await;
        gone.ok().map(|()| start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_brings_nothing_gives_way_to_who_finds_no_place() {
        let took = gives_way(|_| 0, |_| false).await.unwrap();
        assert!(took >= 5 * MINUTE && took < 6 * MINUTE, "{took:?}");
        // One byte in a minute is nothing.
        let took = gives_way(|passed| passed.as_secs() / 60, |_| false).await;
        assert!(took.unwrap() < 6 * MINUTE, "{took:?}");
        // And after hours in which much came it is no different.
        let hour = 60 * MINUTE;
        let took = gives_way(|passed| passed.min(hour).as_secs() * 1_000_000, |_| false).await;
        let took = took.unwrap();
        assert!(
            took >= hour + 5 * MINUTE && took < hour + 6 * MINUTE,
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_or_hears_nothing_for_minutes_stays() {
        assert_eq!(
            gives_way(|passed| passed.as_secs() * SLOWEST, |_| false).await,
            None
        );
        // Four minutes of each nine nothing passes, and then 100 kbit/s do.
        let flows = |passed: Duration| {
            let (rounds, rest) = (passed.as_secs() / 540, passed.as_secs() % 540);
            (rounds * 300 + rest.saturating_sub(240)) * 12_500
        };
        assert_eq!(gives_way(flows, |_| false).await, None);
        // This side looks at what it has for hours, and is heard then.
        let ours = |passed: Duration| passed < 5 * 60 * MINUTE;
        let took = gives_way(|_| 0, ours).await.unwrap();
        assert!(took >= 305 * MINUTE && took < 306 * MINUTE, "{took:?}");
    }

    /// A sender that is asked about many files that are there says hashes for hours.
    #[tokio::test(start_paused = true)]
    async fn who_brings_messages_alone_stays_as_well() {
        let start = Instant::now();
        for messages in [SLOWEST, SLOWEST / 2] {
            let look = || Seen {
                messages: start.elapsed().as_secs() * messages,
                turned_away: start.elapsed().as_secs(),
                ..Seen::default()
            };
            let gone = timeout(DAY, Crowd::default().give_way(QUIET, look)).await;
            assert_eq!(gone.is_ok(), messages < SLOWEST);
        }
    }

    #[test]
    fn work_is_under_way_until_all_of_it_is_done() {
        let work = Work::default();
        assert!(!work.is_under_way());
        let (first, second) = (work.begin(), work.begin());
        drop(first);
        assert!(work.is_under_way());
        drop(second);
        assert!(!work.is_under_way());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_nobody_wants_is_kept() {
        for turned_away in [0, 7] {
            let crowd = Crowd::default();
            let look = || Seen {
                turned_away,
                ..Seen::default()
            };
            let gone = timeout(DAY, crowd.give_way(QUIET, look)).await;
            assert!(gone.is_err(), "who was turned away before has gone");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_goes_for_each_who_finds_no_place_and_the_quietest_first() {
        let crowd = Crowd::default();
        let (start, wanted) = (Instant::now(), Cell::new(0));
        let session = async |index: u64| {
            // The one that goes first is looked at last.
            sleep(MINUTE * index as u32 + Duration::from_secs(4 - index)).await;
            let look = || Seen {
                turned_away: wanted.get(),
                ..Seen::default()
            };
            let gone = timeout(DAY, crowd.give_way(QUIET, look)).await;
            gone.is_ok().then(|| start.elapsed().as_secs() / 60)
        };
        let clients = async {
            for (minute, count) in [(3, 5), (100, 1), (200, 2)] {
                tokio::time::sleep_until(start + MINUTE * minute).await;
                wanted.set(wanted.get() + count);
            }
        };
        let ended = tokio::join!(session(0), session(1), session(2), session(3), clients);
        assert_eq!(
            (ended.0, ended.1, ended.2, ended.3),
            (Some(100), Some(200), Some(200), None)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_brings_as_much_as_the_slowest_unevenly_stays() {
        // Sessions are looked at every five seconds: nine tenths of a second's worth, then the rest of ten.
        let bytes = |passed: Duration| {
            let (rounds, rest) = (passed.as_secs() / 10, passed.as_secs() % 10);
            let some = if rest < 5 { 0 } else { SLOWEST * 9 / 10 };
            rounds * 10 * SLOWEST + some
        };
        assert_eq!(gives_way(bytes, |_| false).await, None);
    }
}
