//! What each key has in use, over all its connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dfcp::PublicKey;

use crate::status::{Refusal, Status};

/// What a key may have at once, over all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams, each of which is a connection, a listener or an association.
    pub streams: u64,
    /// Of these, associations of UDP: each takes a socket of the server for minutes.
    pub associations: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: crate::MAX_STREAMS,
            associations: crate::MAX_ASSOCIATIONS,
        }
    }
}

/// See the module's text.
pub(crate) struct Accounts {
    limits: Limits,
    keys: Mutex<BTreeMap<PublicKey, Usage>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    streams: u64,
    associations: u64,
}

impl Accounts {
    pub fn new(limits: Limits) -> Arc<Self> {
        let keys = Mutex::default();
        Arc::new(Self { limits, keys })
    }

    /// A stream of `key`, until it is dropped.
    ///
    /// # Errors
    /// That it has as many as it may have.
    pub fn stream(self: &Arc<Self>, key: PublicKey) -> Result<Place, Refusal> {
        self.place(key, 0)
    }

    /// The same of one that stands for an association.
    pub fn association(self: &Arc<Self>, key: PublicKey) -> Result<Place, Refusal> {
        self.place(key, 1)
    }

    fn place(self: &Arc<Self>, key: PublicKey, associations: u64) -> Result<Place, Refusal> {
        let mut keys = self.keys();
        let now = keys.get(&key).copied().unwrap_or_default();
        let more = Usage {
            streams: now.streams + 1,
            associations: now.associations + associations,
        };
        let full = |count: u64, what: &str| {
            let message = format!("this key has {count} {what} already, and may have no more");
            Err(Refusal::new(Status::Limit, message))
        };
        if more.streams > self.limits.streams {
            return full(now.streams, "streams");
        }
        if more.associations > self.limits.associations {
            return full(now.associations, "associations");
        }
        keys.insert(key, more);
        drop(keys);
        let accounts = self.clone();
        Ok(Place {
            accounts,
            key,
            associations,
        })
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Usage>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the streams that a key may have.
pub(crate) struct Place {
    accounts: Arc<Accounts>,
    key: PublicKey,
    associations: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut keys = self.accounts.keys();
        if let Some(usage) = keys.get_mut(&self.key) {
            usage.streams -= 1;
            usage.associations -= self.associations;
            if *usage == Usage::default() {
                keys.remove(&self.key);
            }
        }
    }
}
