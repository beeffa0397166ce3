//! Which session writes which partial file. A new session of the same sender takes over at once
//! from one whose sender was killed or moved, and which would wait a minute to notice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::tree::Value;

/// How long a session may take to let go of its files: what it still writes.
const LETTING_GO: Duration = Duration::from_secs(5);

/// Sessions that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A session that writes.
#[derive(Debug)]
pub struct Tenant {
    /// The sender's key.
    pub owner: Value,
    /// How many began before it.
    number: u64,
    /// Told when another session of the same sender wants what this one has.
    pub evicted: Notify,
    /// Whether it was told.
    over: AtomicBool,
}

impl Tenant {
    /// A session of this sender that begins now.
    pub fn new(owner: Value) -> Arc<Self> {
        Arc::new(Self {
            owner,
            number: BEGUN.fetch_add(1, Ordering::Relaxed),
            evicted: Notify::new(),
            over: AtomicBool::new(false),
        })
    }

    /// Ends it: it takes no more files, whatever of it is still being read.
    fn evict(&self) {
        self.over.store(true, Ordering::Release);
        self.evicted.notify_one();
    }
}

/// The files that sessions of this process write.
#[derive(Clone, Debug, Default)]
pub struct Tenants(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: Mutex<Files>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Files {
    held: BTreeMap<String, Arc<Tenant>>,
    /// Sessions that wait for one of them. To notify is a system call, for each small file, whether somebody
    /// waits or not.
    waiting: usize,
}

/// A file that a session has, until this is dropped.
#[derive(Debug)]
pub struct Hold {
    all: Tenants,
    name: String,
}

impl Tenants {
    /// Takes the file `name` for `tenant`, from an earlier session of the same sender if need be, which
    /// ends by that. `None` if somebody else has it, or a later session: then `tenant` ends.
    pub fn take(&self, name: &str, tenant: &Arc<Tenant>) -> Option<Hold> {
        let mut files = self.files();
        if tenant.over.load(Ordering::Acquire) {
            return None;
        }
        if let Some(other) = files.held.get(name) {
            if other.owner != tenant.owner || Arc::ptr_eq(other, tenant) {
                return None;
            }
            if other.number > tenant.number {
                // What the sender of this one said before it was killed comes late.
                tenant.evict();
                return None;
            }
            other.evict();
            crate::writers::give_way();
            let is_taken = |files: &mut Files| files.held.contains_key(name);
            files.waiting += 1;
            let waited = self.0.freed.wait_timeout_while(files, LETTING_GO, is_taken);
            files = waited.unwrap_or_else(PoisonError::into_inner).0;
            files.waiting -= 1;
            if files.held.contains_key(name) {
                return None;
            }
        }
        files.held.insert(name.to_owned(), tenant.clone());
        Some(Hold {
            all: self.clone(),
            name: name.to_owned(),
        })
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut files = self.all.files();
        files.held.remove(&self.name);
        if files.waiting > 0 {
            self.all.0.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gives_way_to_a_later_one_of_the_same_sender_only() {
        let tenants = Tenants::default();
        let [first, second] = [(); 2].map(|()| Tenant::new([1; 32]));
        let other = Tenant::new([2; 32]);
        let hold = tenants.take("x", &first).unwrap();
        assert!(tenants.take("x", &other).is_none());
        assert!(tenants.take("x", &first).is_none());
        assert!(tenants.take("y", &other).is_some());
        // Nor was it told to end.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let told = std::pin::pin!(first.evicted.notified()).poll(&mut context);
        assert!(told.is_pending());
        let taken = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| tenants.take("x", &second));
            // As a session does that is told to end.
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.unwrap().block_on(first.evicted.notified());
            drop(hold);
            waiting.join().unwrap()
        });
        assert!(taken.is_some());
        assert_eq!(tenants.files().waiting, 0, "nobody needs to be notified");
        // What is still read of the first one takes nothing more.
        assert!(tenants.take("z", &first).is_none());
        assert!(tenants.take("z", &second).is_some());
    }

    #[test]
    fn what_was_said_before_a_session_takes_nothing_from_it() {
        let tenants = Tenants::default();
        let [first, second] = [(); 2].map(|()| Tenant::new([1; 32]));
        let _hold = tenants.take("x", &second).unwrap();
        assert!(tenants.take("x", &first).is_none());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(first.evicted.notified());
        let told = std::pin::pin!(second.evicted.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(told.poll(&mut context).is_pending());
    }
}
