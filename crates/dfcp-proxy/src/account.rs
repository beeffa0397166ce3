//! What each key has in use, over all its connections, and what it may have.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dfcp::{PublicKey, Rate};
use tokio::time::{Instant, sleep_until};

use crate::dial::Questions;
use crate::event::{Event, Recurring, Report};
use crate::relay::{CHUNK, SMALLEST_PIECE};
use crate::server::LimitsOf;
use crate::status::{Refusal, Status};

/// What a key may have, over all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams at once, each of which is a connection, a listener or an association. Connections that come to
    /// listeners have half of them at most: whoever reaches the port opens those, and the key's own go on.
    pub streams: u64,
    /// Of these, associations of UDP: each takes a socket of the server for minutes.
    pub associations: u64,
    /// Rate of what is carried each way. Beyond 100 ms of it and one piece, connections wait and
    /// datagrams are dropped; connections that have sent little may be a second ahead.
    pub rate: Option<Rate>,
    /// Bytes carried, both ways together. Beyond it connections are broken and refused.
    pub quota: Option<Quota>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: crate::MAX_STREAMS,
            associations: crate::MAX_ASSOCIATIONS,
            rate: None,
            quota: None,
        }
    }
}

/// So many bytes in each period. The first begins with the first byte, the next with the first after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes.
    pub bytes: u64,
    /// How long it is until they may be had again.
    pub period: Duration,
}

/// What a key that sent nothing for a while may send at once, in time at its rate: what a policer of
/// 100 ms lets through, more than a round trip of most paths, and too short to be noticed by others.
const BURST: Duration = Duration::from_millis(100);
/// The same of connections that have sent little lately, so that keystrokes and pages do not wait behind
/// what large ones have asked for: eight of these with a piece each at 4 Mbit/s.
const SMALL_BURST: Duration = Duration::from_secs(1);

/// Which way bytes go, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over the stream to the other side.
    Out,
    /// From it.
    In,
}

/// Which connections go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// One that has sent little lately.
    First,
    /// Any other.
    Last,
}

/// The accounts of all keys that came. They are few: keys that the endpoint lets in.
pub(crate) struct Accounts {
    keys: Mutex<BTreeMap<PublicKey, Arc<Account>>>,
    report: Report,
}

/// The account of a key.
pub(crate) struct Account {
    key: PublicKey,
    report: Report,
    /// Bytes out and in, of all time.
    carried: [AtomicU64; 2],
    /// Its questions for names.
    pub questions: Questions,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    streams: u64,
    /// How many of them each [`Use`] has.
    uses: [u64; 3],
    buckets: [Bucket; 2],
    spent: u64,
    /// When the quota's period began; none has if nothing was carried.
    since: Option<Instant>,
    /// That the quota is used up was told.
    told: bool,
    slowed: Recurring,
}

impl Accounts {
    pub fn new(report: Report) -> Self {
        let keys = Mutex::default();
        Self { keys, report }
    }

    /// The account of `key`, which may have so much from now on.
    pub fn of(&self, key: PublicKey, limits: Limits) -> Arc<Account> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let account = keys
            .entry(key)
            .or_insert_with(|| Arc::new(Account::new(key, limits, self.report.clone())));
        account.state().limits = limits;
        account.clone()
    }

    /// What each key has carried: bytes sent to its clients, and received from them.
    pub fn carried(&self) -> Vec<(PublicKey, [u64; 2])> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |account: &Account| {
            account
                .carried
                .each_ref()
                .map(|n| n.load(Ordering::Relaxed))
        };
        keys.iter()
            .map(|(key, account)| (*key, read(account)))
            .collect()
    }

    /// Asks `limits` anew what each key may have.
    pub fn ask_anew(&self, limits: &LimitsOf) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, account) in &*keys {
            let limits = limits(key);
            account.state().limits = limits;
        }
    }
}

impl Account {
    fn new(key: PublicKey, limits: Limits, report: Report) -> Self {
        let state = Mutex::new(State {
            limits,
            streams: 0,
            uses: [0; 3],
            buckets: [Bucket::default(); 2],
            spent: 0,
            since: None,
            told: false,
            slowed: Recurring::default(),
        });
        let carried = Default::default();
        Self {
            key,
            report,
            questions: Questions::default(),
            carried,
            state,
        }
    }

    /// Whose it is.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// A stream for `what`, until it is dropped.
    ///
    /// # Errors
    /// That the key may have none now.
    pub fn place(self: &Arc<Self>, what: Use) -> Result<Place, Refusal> {
        let mut state = self.state();
        let full = |count: u64, what: &str| {
            let message = format!("this key has {count} {what} already, and may have no more");
            Err(Refusal::new(Status::Limit, message))
        };
        if state.streams >= state.limits.streams {
            return full(state.streams, "streams");
        }
        let few = match what {
            Use::Own => None,
            Use::Association => Some((state.limits.associations, "associations")),
            Use::Came => Some((state.limits.streams / 2, "connections from its listeners")),
        };
        let count = *state.count(what);
        if let Some((most, name)) = few
            && count >= most
        {
            return full(count, name);
        }
        self.spend(&mut state, Instant::now(), 0)?;
        state.streams += 1;
        *state.count(what) += 1;
        drop(state);
        let account = self.clone();
        Ok(Place { account, what })
    }

    /// Counts bytes of a connection, and waits as long as the key's rate wants.
    ///
    /// # Errors
    /// That the key has used up what it may carry.
    pub async fn pay(&self, way: Way, bytes: usize, turn: Turn) -> Result<(), Refusal> {
        let now = Instant::now();
        let until = {
            let mut state = self.state();
            self.spend(&mut state, now, bytes)?;
            state.limits.rate.map(|rate| {
                let burst = match turn {
                    Turn::First => SMALL_BURST,
                    Turn::Last => BURST,
                };
                let due = state.buckets[way as usize].reserve(now, rate, bytes);
                let until = due.checked_sub(burst).map_or(now, |until| until.max(now));
                if until > now {
                    self.slowed(&mut state, now);
                }
                until
            })
        };
        match until {
            Some(until) if until > now => sleep_until(until).await,
            _ => {}
        }
        self.count(way, bytes);
        Ok(())
    }

    /// Whether a datagram may pass.
    pub fn pass(&self, way: Way, bytes: usize) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(rate) = state.limits.rate {
            if state.buckets[way as usize].is_full(now) {
                self.slowed(&mut state, now);
                return false;
            }
            state.buckets[way as usize].reserve(now, rate, bytes);
        }
        let passes = self.spend(&mut state, now, bytes).is_ok();
        if passes {
            self.count(way, bytes);
        }
        passes
    }

    /// Bytes of a connection that are read at once: a slow key's are small, so that its connections take
    /// turns.
    pub fn piece(&self) -> usize {
        match self.state().limits.rate {
            Some(rate) => {
                let burst = u128::from(rate.as_bps()) * BURST.as_millis() / 8000;
                usize::try_from(burst).map_or(CHUNK, |burst| burst.clamp(SMALLEST_PIECE, CHUNK))
            }
            None => CHUNK,
        }
    }

    fn count(&self, way: Way, bytes: usize) {
        self.carried[way as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn spend(&self, state: &mut State, now: Instant, bytes: usize) -> Result<(), Refusal> {
        let spent = state.spend(now, bytes as u64);
        if let Err(refusal) = &spent
            && !std::mem::replace(&mut state.told, true)
        {
            let (peer, why) = (self.key, refusal.message.clone());
            (self.report)(Event::Exhausted { peer, why });
        }
        spent
    }

    fn slowed(&self, state: &mut State, now: Instant) {
        if let Some(rate) = state.limits.rate
            && state.slowed.is_news(now)
        {
            let peer = self.key;
            (self.report)(Event::Slowed { peer, rate });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many streams are for this.
    fn count(&mut self, what: Use) -> &mut u64 {
        &mut self.uses[what as usize]
    }

    /// Counts `bytes` against the quota. What goes beyond it is refused, and counted no more.
    fn spend(&mut self, now: Instant, bytes: u64) -> Result<(), Refusal> {
        let Some(quota) = self.limits.quota else {
            return Ok(());
        };
        let over = self.since.map(|since| since + quota.period);
        if over.is_some_and(|over| over <= now) {
            (self.since, self.spent, self.told) = (None, 0, false);
        }
        if self.spent >= quota.bytes {
            let left = over.map_or(quota.period, |over| over.duration_since(now));
            let message = format!(
                "this key has carried the {} bytes that it may in {} s; the next begin in {} s",
                quota.bytes,
                quota.period.as_secs(),
                left.as_secs() + 1
            );
            return Err(Refusal::new(Status::Limit, message));
        }
        if bytes > 0 {
            self.since.get_or_insert(now);
            self.spent += bytes;
        }
        Ok(())
    }
}

/// A token bucket, kept as the time at which all that passed would have left at the rate (the virtual
/// scheduling algorithm of ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// Takes room for `bytes`; when they would go without any burst.
    fn reserve(&mut self, now: Instant, rate: Rate, bytes: usize) -> Instant {
        let due = self.due(now);
        let takes = bytes as f64 * 8.0 / rate.as_bps() as f64;
        // A rate of a bit a second is one, too: no sum of times overflows.
        let takes = Duration::from_secs_f64(takes.min(LONGEST_WAIT.as_secs_f64()));
        self.0 = Some((due + takes).min(now + LONGEST_WAIT));
        due
    }

    fn is_full(&self, now: Instant) -> bool {
        self.due(now) > now + BURST
    }

    fn due(&self, now: Instant) -> Instant {
        self.0.map_or(now, |due| due.max(now))
    }
}

/// No connection waits longer for its turn: by then its program has given up.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A connection or a listener that the key asked for.
    Own,
    /// An association.
    Association,
    /// A connection that came to a listener.
    Came,
}

/// One of the streams that a key may have.
pub(crate) struct Place {
    account: Arc<Account>,
    what: Use,
}

impl Place {
    /// Who pays for what is carried.
    pub fn account(&self) -> &Account {
        &self.account
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.account.state();
        state.streams -= 1;
        *state.count(self.what) -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_its_rate_through_and_a_burst() {
        let (start, rate) = (Instant::now(), Rate::from_bps(8_000_000));
        let mut bucket = Bucket::default();
        let (mut now, mut passed) = (start, 0);
        while now < start + Duration::from_secs(10) {
            now = now.max(bucket.reserve(now, rate, 5_000) - BURST);
            passed += 5_000;
        }
        // 10 s at 1 MB/s, and 100 ms at once.
        assert!((10_000_000..=10_120_000).contains(&passed), "{passed}");
        assert!(bucket.is_full(now));
        assert!(!bucket.is_full(now + Duration::from_secs(1)));
        // What was saved up is not more after a long silence.
        let later = now + Duration::from_secs(1000);
        let mut at_once = 0;
        while bucket.reserve(later, rate, 5_000) <= later + BURST {
            at_once += 5_000;
        }
        assert!((100_000..=110_000).contains(&at_once), "{at_once}");
        // The slowest rate there is.
        let mut slow = Bucket::default();
        for _ in 0..10 {
            slow.reserve(now, Rate::from_bps(1), usize::MAX);
        }
    }

    /// When the last of so many pieces has been paid for in each of two connections of a key with 1 MB/s.
    async fn two_pay(pieces: usize, turn: Turn) -> (Duration, usize) {
        let key = dfcp::generate_key().expect("random bytes").public();
        let limits = Limits {
            rate: Some(Rate::from_bps(8_000_000)),
            ..Limits::default()
        };
        let account = Account::new(key, limits, Arc::new(|_| {}));
        let (start, piece) = (Instant::now(), account.piece());
        let connection = || async {
            for _ in 0..pieces {
                account.pay(Way::In, piece, turn).await.expect("no quota");
            }
        };
        // What goes the other way has a rate of its own.
        let other = account.pay(Way::Out, 10_000_000, Turn::First);
        let (_, _, paid) = tokio::join!(connection(), connection(), other);
        paid.expect("no quota");
        (start.elapsed(), 2 * pieces * piece)
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_key_share_its_rate_and_small_ones_may_be_a_second_ahead() {
        for (turn, burst) in [(Turn::Last, BURST), (Turn::First, SMALL_BURST)] {
            let (took, bytes) = two_pay(50, turn).await;
            // At 1 MB/s; the last piece leaves without waiting, and the timer has milliseconds.
            let last = Duration::from_micros((bytes - CHUNK) as u64) - burst;
            let late = took.checked_sub(last);
            let late = late.unwrap_or_else(|| panic!("{took:?} instead of {last:?}, {turn:?}"));
            assert!(
                late < Duration::from_millis(5),
                "{late:?} too late, {turn:?}"
            );
        }
    }

    #[test]
    fn a_quota_comes_back_after_its_period() {
        let key = dfcp::generate_key().expect("random bytes").public();
        let period = Duration::from_secs(3600);
        let limits = Limits {
            quota: Some(Quota {
                bytes: 1000,
                period,
            }),
            ..Limits::default()
        };
        let account = Account::new(key, limits, Arc::new(|_| {}));
        let (mut state, start) = (account.state(), Instant::now());
        assert!(state.spend(start, 0).is_ok());
        // The period begins with what is carried first.
        let first = start + Duration::from_secs(100);
        assert!(state.spend(first, 600).is_ok() && state.spend(first, 600).is_ok());
        let refusal = state.spend(first + period / 2, 1).expect_err("is used up");
        assert_eq!(refusal.status, Status::Limit);
        assert!(refusal.message.contains("in 1801 s"), "{refusal}");
        assert!(state.spend(first + period, 600).is_ok());
    }
}
