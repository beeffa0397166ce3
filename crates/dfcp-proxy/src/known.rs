//! Which programs are told that they are connected before the server is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::target::Target;

/// When programs are told that they are connected: what they say rides with the request then, a round
/// trip earlier, and of a connection that fails they learn only that it broke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastOpen {
    /// When the server has said so.
    Never,
    /// At once, to a host and port that it has just been connected to: a browser's further connections.
    /// After any failure all wait again.
    #[default]
    Known,
    /// At once.
    Always,
}

/// How long a host that was connected to is taken to answer as it did: idle connections of browsers and web
/// servers last as long (the defaults of nginx and Apache are 75 and 5 s).
const FRESH: Duration = Duration::from_secs(60);
/// Hosts that are remembered: a browser with many pages open has some hundred.
const MOST: usize = 1024;

/// Hosts that have just been connected to.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<Target, Instant>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<Target, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection to `target` may be counted on.
    pub fn has(&self, target: &Target) -> bool {
        let last = self.lock().get(target).copied();
        last.is_some_and(|last| last.elapsed() < FRESH)
    }

    /// There is one.
    pub fn connected(&self, target: &Target) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.retain(|_, last| last.elapsed() < FRESH);
            if known.len() >= MOST {
                known.clear();
            }
        }
        known.insert(target.clone(), Instant::now());
    }

    /// One was refused: what refused it may refuse others, too.
    pub fn failed(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_until_something_fails_and_never_too_many() {
        let known = Known::default();
        let target = |n: usize| format!("host{n}:80").parse::<Target>().unwrap();
        assert!(!known.has(&target(0)));
        for n in 0..3 * MOST {
            known.connected(&target(n));
            assert!(known.has(&target(n)) && known.lock().len() <= MOST, "{n}");
        }
        known.failed();
        assert!(!known.has(&target(3 * MOST - 1)));
    }
}
