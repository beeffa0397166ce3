//! What the sessions of a receiver have brought, counted for who watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::Report;

/// Counters of all sessions of a receiver; a clone is the same counters.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    open: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    files: AtomicU64,
    files_failed: AtomicU64,
    bytes: AtomicU64,
    refused_keys: AtomicU64,
    refused_offers: AtomicU64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that there are.
    pub open: u64,
    /// Sessions that brought all they offered.
    pub done: u64,
    /// Sessions that did not.
    pub failed: u64,
    /// Files that are in place.
    pub files: u64,
    /// Files and directories that failed.
    pub files_failed: u64,
    /// Bytes of the files in place.
    pub bytes: u64,
    /// Senders that were turned away for their keys.
    pub refused_keys: u64,
    /// Offers that were turned away: more than is taken, names that are not, no room.
    pub refused_offers: u64,
}

/// What somebody was turned away for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// His key.
    Key,
    /// What he offered.
    Offer,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Tally {
    /// A session begins; it lasts until what this returns is dropped.
    #[must_use]
    pub fn enter(&self) -> Inside {
        add(&self.0.open, 1);
        Inside(self.clone())
    }

    /// A session has ended.
    pub fn add(&self, report: &Report) {
        let how = match report.error {
            None => &self.0.done,
            Some(_) => &self.0.failed,
        };
        add(how, 1);
        add(&self.0.files, report.files);
        add(&self.0.files_failed, report.files_failed);
        add(&self.0.bytes, report.useful_bytes);
    }

    /// Somebody was turned away.
    pub fn refuse(&self, why: Refused) {
        let counter = match why {
            Refused::Key => &self.0.refused_keys,
            Refused::Offer => &self.0.refused_offers,
        };
        add(counter, 1);
    }

    /// What was counted until now.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            open: read(&self.0.open),
            done: read(&self.0.done),
            failed: read(&self.0.failed),
            files: read(&self.0.files),
            files_failed: read(&self.0.files_failed),
            bytes: read(&self.0.bytes),
            refused_keys: read(&self.0.refused_keys),
            refused_offers: read(&self.0.refused_offers),
        }
    }
}

/// A session that there is.
#[derive(Debug)]
pub struct Inside(Tally);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
