//! The section `[recv]`: a receiver of files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dfcp::{Admission, CloseCode, Connection, PublicKey};
use dfcp_command::Failure;
use dfcp_transfer::Store;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Whole;
use crate::allowed::Allowed;
use crate::command::Output;
use crate::command::recv::{Ending, MAX_SESSIONS, Place, Taking, session, turn_away};
use crate::door::Door;
use crate::log::Log;
use crate::report::Report;
use crate::tally::{Refused, Tally};

/// A receiver; clones share it.
#[derive(Clone)]
pub struct Files(Arc<Inner>);

struct Inner {
    taking: Mutex<Taking>,
    store: Mutex<Arc<Store>>,
    door: Door,
    output: Output,
    /// Sessions that there are, by number.
    open: watch::Sender<BTreeMap<u64, Connection>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What may change while it runs.
pub struct Terms {
    taking: Taking,
    allowed: Allowed,
}

impl Files {
    /// Opens the directory. It may be that nobody can come.
    ///
    /// # Errors
    /// When the directory cannot be used, or a list of keys.
    pub fn open(taking: &Taking, whole: &Whole, log: Log) -> Result<Self, Failure> {
        let output = Output::of_service(log, whole.quiet, whole.timeout);
        let allowed = taking.allowed(&Allowed::default())?;
        for mistake in allowed.mistakes() {
            log.warn(mistake);
        }
        if taking.allow_any {
            log.warn("anyone who reaches this address may send files (allow-any)");
        }
        Ok(Self(Arc::new(Inner {
            store: Mutex::new(taking.target.open(&output)?),
            taking: Mutex::new(taking.clone()),
            door: Door::without_questions(allowed, &output),
            output,
            open: watch::Sender::default(),
        })))
    }

    /// Whether `key` may send.
    pub fn admission(&self, key: &PublicKey) -> Admission {
        self.0.door.allowed().admission(key)
    }

    /// Why `key` may not send.
    pub fn why_not(&self, key: &PublicKey) -> String {
        self.0.door.allowed().why_not(key)
    }

    /// Why nobody may, if that is so.
    pub fn nobody(&self) -> Option<String> {
        self.0.door.allowed().nobody()
    }

    /// Takes what a sender brings.
    pub fn take(&self, connection: Connection) {
        if self.0.open.borrow().len() >= MAX_SESSIONS {
            return turn_away(&connection);
        }
        let mut number = 0;
        self.0.open.send_modify(|open| {
            number = open.last_key_value().map_or(0, |(last, _)| last + 1);
            open.insert(number, connection.clone());
        });
        let inner = self.0.clone();
        tokio::spawn(async move {
            let _leave = Leave(&inner.open, number);
            let place = Place::Directory(locked(&inner.store).clone());
            let (door, output) = (inner.door.clone(), inner.output.clone());
            let place = (place, door, Ending::default());
            session(connection, place, output, Report::new("recv")).await;
        });
    }

    /// The terms of other settings, which count once they are [applied](Self::apply).
    ///
    /// # Errors
    /// When a list of keys cannot be used that could not be before either.
    pub fn read(&self, taking: &Taking) -> Result<Terms, Failure> {
        let allowed = taking.allowed(&self.0.door.allowed())?;
        let taking = taking.clone();
        Ok(Terms { taking, allowed })
    }

    /// Takes by these terms from now on; sessions that are there go on, but those of keys that may send
    /// no more. What somebody should know of it, and whether something waits for another start.
    pub fn apply(&self, terms: Terms) -> (Vec<String>, bool) {
        let Terms { taking, allowed } = terms;
        let news = allowed.news(|why| format!("nobody may send: {why}"));
        self.0.door.open_to(allowed);
        for connection in self.0.open.borrow().values() {
            // As it would hear if it came now.
            let code = match self.admission(&connection.peer()) {
                Admission::Welcome => continue,
                Admission::Expired => CloseCode::EXPIRED,
                Admission::Unknown => CloseCode::REFUSED,
            };
            connection.close(code, "the key is not allowed any more");
        }
        let limits = taking.target.limits();
        let mut store = locked(&self.0.store);
        *store = Arc::new(Store::clone(&store).with_limits(limits));
        let mut before = locked(&self.0.taking);
        let is_fixed = taking.target.differs_beyond_limits(&before.target);
        before.allow = taking.allow;
        before.allow_any = taking.allow_any;
        (news, is_fixed)
    }

    /// Waits until the sessions that there are have ended, `limit` at most.
    pub async fn drain(&self, limit: Duration) {
        let mut open = self.0.open.subscribe();
        let _ = timeout(limit, open.wait_for(BTreeMap::is_empty)).await;
    }

    /// What sessions have brought.
    pub fn tally(&self) -> &Tally {
        self.0.output.tally()
    }

    /// A sender's key was refused.
    pub fn refused(&self) {
        self.tally().refuse(Refused::Key);
    }

    /// Why nothing can be received just now, as far as the directory says.
    pub fn ailing(&self) -> Option<String> {
        let taking = locked(&self.0.taking);
        let directory = taking.target.directory();
        let usable = nix::unistd::access(directory, nix::unistd::AccessFlags::W_OK);
        let error = usable.err()?;
        Some(format!("{}: {}", directory.display(), error.desc()))
    }
}

/// A session that ends when this is dropped.
struct Leave<'a>(&'a watch::Sender<BTreeMap<u64, Connection>>, u64);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| drop(open.remove(&self.1)));
    }
}
