//! Memory that the sessions of a receiver share: how much of it each has taken, so that all of them together
//! are bounded, and whoever comes next has some, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all sessions have taken.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicU64>);

/// A session's part of it.
#[derive(Clone, Debug)]
pub struct Share {
    all: Memory,
    own: Arc<AtomicU64>,
}

/// Bytes that are taken until this is dropped.
#[derive(Debug)]
pub struct Holding {
    share: Share,
    bytes: u64,
}

impl Memory {
    /// The part of a session that has taken nothing yet.
    pub fn share(&self) -> Share {
        Share {
            all: self.clone(),
            own: Arc::default(),
        }
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Whether the session has taken nothing.
    pub fn is_empty(&self) -> bool {
        self.own.load(Ordering::Relaxed) == 0
    }

    /// Nothing, which may [grow](Holding::grow).
    pub fn nothing(&self) -> Holding {
        let share = self.clone();
        Holding { share, bytes: 0 }
    }

    /// Takes `bytes`, unless the session had more in all then than the others leave free of `most`.
    pub fn take(&self, bytes: u64, most: u64) -> Option<Holding> {
        let mut holding = self.nothing();
        holding.grow(bytes, most).then_some(holding)
    }
}

impl Holding {
    /// Takes `bytes` more, unless the session had more in all then than it leaves free of `most`: the
    /// first has a half, the next a half of what is left, and so on. False if nothing was taken.
    #[must_use]
    pub fn grow(&mut self, bytes: u64, most: u64) -> bool {
        let add = |sum: &AtomicU64| {
            sum.fetch_add(bytes, Ordering::Relaxed)
                .saturating_add(bytes)
        };
        let (own, all) = (add(&self.share.own), add(&self.share.all.0));
        let fits = own <= most.saturating_sub(all);
        self.bytes += bytes;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.share.own.fetch_sub(bytes, Ordering::Relaxed);
        self.share.all.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_take_less_the_more_there_are_and_never_more_than_there_is() {
        let (memory, most) = (Memory::default(), 1024);
        let fill = |share: &Share| -> Vec<Holding> {
            std::iter::from_fn(|| share.take(1, most)).collect()
        };
        let shares: Vec<Share> = (0..4).map(|_| memory.share()).collect();
        let mut taken: Vec<Vec<Holding>> = shares.iter().map(fill).collect();
        let counts: Vec<usize> = taken.iter().map(Vec::len).collect();
        assert_eq!(counts, [512, 256, 128, 64]);
        assert_eq!(memory.taken(), 960);
        // What is given back others may have.
        taken.remove(0);
        assert!(shares[0].is_empty() && !shares[1].is_empty());
        assert_eq!(fill(&shares[3]).len(), (1024 - 448 - 64) / 2);
        drop(taken);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let memory = Memory::default();
        let share = memory.share();
        let mut holding = share.nothing();
        assert!(holding.grow(100, 200));
        assert!(!holding.grow(1, 200) && !holding.grow(u64::MAX / 2, 200));
        assert!(share.take(1, 200).is_none());
        assert_eq!(memory.taken(), 100);
    }
}
