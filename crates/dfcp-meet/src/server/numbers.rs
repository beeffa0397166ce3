//! Numbers: which session has which, and why those that have none any more do not.

use std::collections::BTreeMap;

use dfcp_proto::{Duration, Instant, SecretRng};

use super::Asker;
use super::limits::Prefix;
use crate::LIFETIME;
use crate::code::MAX_NUMBER;
use crate::wire::{Gone, Id};

/// A sender refreshes every ten seconds: after three that did not come it is gone.
const SILENCE: Duration = Duration::from_secs(35);
/// A sender ends its code by itself; the server does a little later.
const GRACE: Duration = Duration::from_secs(5);
/// How long it is remembered why a number leads nowhere; until then nobody else gets it.
const MEMORY: Duration = LIFETIME;
/// Codes that one address prefix has open.
const MAX_PER_PREFIX: usize = 32;
/// Numbers have two digits while there are few.
const FEWEST: u32 = 100;
/// Draws of a number before it is given up; at a quarter full none fails this often.
const MAX_DRAWS: usize = 64;
/// Between two looks for what is over.
const SWEEP: Duration = Duration::from_secs(1);

/// A request to open a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub session: Id,
    pub owner: Id,
    /// The number that it says it has, or 0.
    pub number: u32,
    pub asker: Asker,
}

#[derive(Debug)]
struct Entry {
    session: Id,
    owner: Id,
    sender: Asker,
    /// That of its first address: whose place it takes.
    prefix: Prefix,
    opened: Instant,
    refreshed: Instant,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Numbers {
    max: usize,
    entries: BTreeMap<u32, Entry>,
    by_session: BTreeMap<Id, u32>,
    by_prefix: BTreeMap<Prefix, usize>,
    gone: BTreeMap<u32, (Gone, Instant)>,
    swept: Instant,
}

impl Numbers {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            entries: BTreeMap::new(),
            by_session: BTreeMap::new(),
            by_prefix: BTreeMap::new(),
            gone: BTreeMap::new(),
            swept: Instant::ZERO,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_open(&self, session: &Id) -> bool {
        self.by_session.contains_key(session)
    }

    /// Where a session's sender is.
    pub fn sender(&self, session: &Id) -> Option<Asker> {
        let number = self.by_session.get(session)?;
        self.entries.get(number).map(|entry| entry.sender)
    }

    /// The session of a number.
    pub fn find(&self, number: u32) -> Result<Id, Gone> {
        match (self.entries.get(&number), self.gone.get(&number)) {
            (Some(entry), _) => Ok(entry.session),
            (None, Some((why, _))) => Err(*why),
            (None, None) => Err(Gone::Unknown),
        }
    }

    /// Opens or refreshes a session: its number, or nothing if there is no place.
    pub fn open(&mut self, now: Instant, asked: Opening, rng: &mut SecretRng) -> Option<u32> {
        if let Some(number) = self.by_session.get(&asked.session) {
            let entry = self.entries.get_mut(number)?;
            if entry.owner != asked.owner {
                return None;
            }
            // Its address translator may have chosen another port meanwhile.
            (entry.refreshed, entry.sender) = (now, asked.asker);
            return Some(*number);
        }
        let prefix = Prefix::of(asked.asker.address.ip());
        let has = self.by_prefix.get(&prefix).copied().unwrap_or(0);
        if self.entries.len() >= self.max || has >= MAX_PER_PREFIX {
            return None;
        }
        let number = match asked.number {
            0 => self.draw(rng)?,
            // The server was started anew: the code has been told already.
            number => (number <= MAX_NUMBER && self.is_free(number)).then_some(number)?,
        };
        self.by_session.insert(asked.session, number);
        self.by_prefix.insert(prefix, has + 1);
        self.entries.insert(
            number,
            Entry {
                session: asked.session,
                owner: asked.owner,
                sender: asked.asker,
                prefix,
                opened: now,
                refreshed: now,
            },
        );
        Some(number)
    }

    fn is_free(&self, number: u32) -> bool {
        !self.entries.contains_key(&number) && !self.gone.contains_key(&number)
    }

    /// A random number among the shortest ones of which at least three quarters are free.
    fn draw(&self, rng: &mut SecretRng) -> Option<u32> {
        let taken = (self.entries.len() + self.gone.len()) as u64;
        let mut range = FEWEST;
        while u64::from(range) <= taken * 4 && range < MAX_NUMBER {
            range *= 10;
        }
        (0..MAX_DRAWS)
            .map(|_| 1 + rng.below(u64::from(range) - 1) as u32)
            .find(|number| self.is_free(*number))
    }

    /// The sender says that a session is over.
    pub fn close(&mut self, now: Instant, session: &Id, owner: &Id, why: Gone) {
        if let Some(number) = self.by_session.get(session).copied()
            && self.entries.get(&number).map(|entry| &entry.owner) == Some(owner)
        {
            self.remove(now, number, why);
        }
    }

    fn remove(&mut self, now: Instant, number: u32, why: Gone) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.by_session.remove(&entry.session);
        if let Some(has) = self.by_prefix.get_mut(&entry.prefix) {
            *has -= 1;
            if *has == 0 {
                self.by_prefix.remove(&entry.prefix);
            }
        }
        if self.gone.len() < self.max {
            self.gone.insert(number, (why, now + MEMORY));
        }
    }

    /// Forgets what is over.
    pub fn turn(&mut self, now: Instant) {
        if now.saturating_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let is_over = |entry: &Entry| {
            now.saturating_since(entry.refreshed) >= SILENCE
                || now.saturating_since(entry.opened) >= LIFETIME + GRACE
        };
        let over = self.entries.iter().filter(|(_, entry)| is_over(entry));
        let over: Vec<u32> = over.map(|(number, _)| *number).collect();
        for number in over {
            self.remove(now, number, Gone::Expired);
        }
        self.gone.retain(|_, (_, until)| now < *until);
    }
}
