//! Who waits for something to happen.

use std::collections::HashSet;
use std::task::{Context, Waker};

/// Wakers of tasks that wait for one thing, each once, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct WaitList {
    wakers: Vec<Waker>,
    /// What each of them wakes, once there are more than [`FEW`].
    known: HashSet<(usize, usize)>,
    /// Wakers that were compared with another one.
    #[cfg(test)]
    compared: usize,
}

/// Wakers that are looked through for one that is there already: of as many it takes no longer than a hash.
const FEW: usize = 8;

impl WaitList {
    pub(crate) fn register(&mut self, context: &Context<'_>) {
        let waker = context.waker();
        let is_new = match self.wakers.len() {
            0..FEW => !self.has(waker),
            FEW => {
                self.known.extend(self.wakers.iter().map(woken_by));
                self.known.insert(woken_by(waker))
            }
            _ => self.known.insert(woken_by(waker)),
        };
        if is_new {
            self.wakers.push(waker.clone());
        }
    }

    fn has(&mut self, waker: &Waker) -> bool {
        let same = self.wakers.iter().position(|known| known.will_wake(waker));
        #[cfg(test)]
        {
            self.compared += same.map_or(self.wakers.len(), |at| at + 1);
        }
        same.is_some()
    }

    pub(crate) fn wake(&mut self) {
        self.known.clear();
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// What [`Waker::will_wake`] compares.
fn woken_by(waker: &Waker) -> (usize, usize) {
    (
        waker.data().addr(),
        std::ptr::from_ref(waker.vtable()).addr(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    /// Writes down who is woken.
    struct Sleeper(u32, Arc<Mutex<Vec<u32>>>);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("no panic").push(self.0);
        }
    }

    fn sleepers(count: u32, woken: &Arc<Mutex<Vec<u32>>>) -> Vec<Waker> {
        let sleeper = |i| Waker::from(Arc::new(Sleeper(i, woken.clone())));
        (0..count).map(sleeper).collect()
    }

    #[test]
    fn whoever_waits_is_woken_once_in_the_order_in_which_they_came() {
        for count in [1, 2, 7, 8, 9, 10, 100] {
            let woken = Arc::default();
            let wakers = sleepers(count, &woken);
            let mut list = WaitList::default();
            for _ in 0..3 {
                for waker in wakers.iter().chain(wakers.iter().rev()) {
                    list.register(&Context::from_waker(waker));
                    list.register(&Context::from_waker(&waker.clone()));
                }
                list.wake();
                assert_eq!(
                    std::mem::take(&mut *woken.lock().expect("no panic")),
                    Vec::from_iter(0..count)
                );
            }
            list.wake();
            assert!(woken.lock().expect("no panic").is_empty());
        }
    }

    /// What each costs does not grow with how many there are: of those that came before few are looked at.
    #[test]
    fn thousands_who_wait_do_not_wait_for_each_other() {
        let (count, woken) = (32_000, Arc::default());
        let wakers = sleepers(count, &woken);
        let mut list = WaitList::default();
        for waker in wakers.iter().chain(&wakers) {
            list.register(&Context::from_waker(waker));
        }
        let least = FEW * FEW;
        assert!(list.compared <= least, "{} were compared", list.compared);
        list.wake();
        assert_eq!(woken.lock().expect("no panic").len(), count as usize);
    }
}
