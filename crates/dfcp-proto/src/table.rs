//! The connections of an endpoint, of whatever wire: found by handle, ordered by time, queued for
//! sending and for news. What happens to one connection costs nothing for the others.
//!
//! Invariant: a connection that anything happened to is `touched` until it was polled for packets
//! and gave none; its entries among the timers and the delays are true unless it is touched.

use crate::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the table asks of a connection.
pub(crate) trait Member {
    /// When it wants to be looked at though nothing happens.
    fn next_timeout(&self) -> Option<Instant>;

    /// How long its packets may wait for each other on a busy socket.
    fn patience(&self) -> Duration;
}

#[derive(Debug)]
struct Slot<C> {
    connection: Box<C>,
    /// Its entries among the timers and the delays.
    timer: Option<Instant>,
    patience: Option<Duration>,
    /// Whether it is among those that may have packets, and among those that may have news.
    touched: bool,
    heard: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Table<H, C> {
    slots: BTreeMap<H, Slot<C>>,
    timers: BTreeSet<(Instant, H)>,
    delays: BTreeSet<(Duration, H)>,
    ready: VecDeque<H>,
    /// Those that may have news.
    news: BTreeSet<H>,
}

impl<H, C> Default for Table<H, C> {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
            timers: BTreeSet::new(),
            delays: BTreeSet::new(),
            ready: VecDeque::new(),
            news: BTreeSet::new(),
        }
    }
}

/// Replaces an entry of an index.
fn reindex<H: Copy + Ord, T: Copy + Ord>(
    index: &mut BTreeSet<(T, H)>,
    handle: H,
    entry: &mut Option<T>,
    new: Option<T>,
) {
    let before = std::mem::replace(entry, new);
    if before != new {
        if let Some(old) = before {
            index.remove(&(old, handle));
        }
        index.extend(new.map(|new| (new, handle)));
    }
}

impl<H: Copy + Ord, C: Member> Table<H, C> {
    /// Adds a connection, touched.
    pub fn insert(&mut self, handle: H, connection: impl Into<Box<C>>) {
        let slot = Slot {
            connection: connection.into(),
            timer: None,
            patience: None,
            touched: false,
            heard: false,
        };
        self.slots.insert(handle, slot);
        self.touch(handle);
    }

    pub fn remove(&mut self, handle: H) -> Option<Box<C>> {
        let mut slot = self.slots.remove(&handle)?;
        reindex(&mut self.timers, handle, &mut slot.timer, None);
        reindex(&mut self.delays, handle, &mut slot.patience, None);
        self.news.remove(&handle);
        Some(slot.connection)
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn contains(&self, handle: H) -> bool {
        self.slots.contains_key(&handle)
    }

    /// The connection, to look at.
    pub fn get(&self, handle: H) -> Option<&C> {
        self.slots.get(&handle).map(|slot| &*slot.connection)
    }

    /// The connection, to work with: touched.
    pub fn get_mut(&mut self, handle: H) -> Option<&mut C> {
        let slot = self.slots.get_mut(&handle)?;
        if !std::mem::replace(&mut slot.touched, true) {
            self.ready.push_back(handle);
        }
        if !std::mem::replace(&mut slot.heard, true) {
            self.news.insert(handle);
        }
        Some(&mut slot.connection)
    }

    /// Something happened to the connection, or may have.
    pub fn touch(&mut self, handle: H) {
        self.get_mut(handle);
    }

    /// All handles, in order.
    pub fn handles(&self) -> Vec<H> {
        self.slots.keys().copied().collect()
    }

    /// The next connection that may have packets; it goes to the queue's end.
    pub fn next_ready(&mut self) -> Option<H> {
        while let Some(handle) = self.ready.pop_front() {
            if self.contains(handle) {
                self.ready.push_back(handle);
                return Some(handle);
            }
        }
        None
    }

    /// The connection that [`next_ready`](Self::next_ready) gave last has nothing to send.
    pub fn rest(&mut self, handle: H) {
        if self.ready.back() == Some(&handle) {
            self.ready.pop_back();
        }
        let Some(slot) = self.slots.get_mut(&handle) else {
            return;
        };
        slot.touched = false;
        let timer = slot.connection.next_timeout();
        reindex(&mut self.timers, handle, &mut slot.timer, timer);
        let patience = slot.connection.patience();
        reindex(&mut self.delays, handle, &mut slot.patience, Some(patience));
    }

    /// The next connection that something happened to since it was last given here. What is done to
    /// it now is no news.
    pub fn next_news(&mut self) -> Option<(H, &mut C)> {
        let handle = self.news.pop_first()?;
        let slot = self.slots.get_mut(&handle)?;
        slot.heard = false;
        Some((handle, &mut slot.connection))
    }

    /// Connections that are touched.
    fn touched(&self) -> impl Iterator<Item = (H, &C)> {
        let each = self.ready.iter();
        each.filter_map(|&handle| Some((handle, self.get(handle)?)))
    }

    /// When the first timer expires.
    pub fn next_timeout(&self) -> Option<Instant> {
        let touched = |handle| self.slots.get(handle).is_some_and(|slot| slot.touched);
        let waiting = self.timers.iter().find(|(_, handle)| !touched(handle));
        let touched = self.touched().filter_map(|(_, c)| c.next_timeout()).min();
        waiting.map(|&(at, _)| at).into_iter().chain(touched).min()
    }

    /// The least that packets may wait for each other.
    pub fn patience(&self) -> Option<Duration> {
        let rested = self.delays.first().map(|&(delay, _)| delay);
        let touched = self.touched().map(|(_, connection)| connection.patience());
        touched.chain(rested).min()
    }

    /// Connections whose time has come, in order.
    pub fn due(&self, now: Instant) -> Vec<H> {
        let touched = self.touched().map(|(handle, _)| handle);
        let waiting = self.timers.iter().take_while(|(at, _)| *at <= now);
        let is_due = |handle: &H| {
            let at = self.get(*handle).and_then(Member::next_timeout);
            at.is_some_and(|at| at <= now)
        };
        let each = touched.chain(waiting.map(|&(_, handle)| handle));
        let mut due: Vec<H> = each.filter(is_due).collect();
        due.sort_unstable();
        due.dedup();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has packets to send, or a time at which it will have one.
    #[derive(Debug, Default)]
    struct Sender {
        packets: u32,
        at: Option<u64>,
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    impl Member for Sender {
        fn next_timeout(&self) -> Option<Instant> {
            self.at.map(at)
        }

        fn patience(&self) -> Duration {
            Duration::from_millis(u64::from(self.packets))
        }
    }

    fn drain(table: &mut Table<u32, Sender>) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some(handle) = table.next_ready() {
            let sender = table.get_mut(handle).expect("is there");
            if sender.packets == 0 {
                table.rest(handle);
                continue;
            }
            sender.packets -= 1;
            sent.push(handle);
        }
        sent
    }

    #[test]
    fn those_with_packets_take_turns_and_the_others_are_not_asked() {
        let mut table = Table::default();
        for handle in 0..100 {
            table.insert(handle, Sender::default());
        }
        assert!(drain(&mut table).is_empty());
        assert_eq!(table.ready.len(), 0, "nobody is asked again");
        for handle in [70, 3] {
            table.get_mut(handle).expect("is there").packets = 2;
        }
        assert_eq!(drain(&mut table), [70, 3, 70, 3]);
    }

    #[test]
    fn timers_and_delays_follow_what_happens_to_a_connection() {
        let mut table = Table::default();
        for handle in 0..3 {
            let at = Some(100 - 10 * u64::from(handle));
            table.insert(handle, Sender { packets: 0, at });
        }
        assert_eq!(table.next_timeout(), Some(at(80)), "touched");
        drain(&mut table);
        assert_eq!(table.next_timeout(), Some(at(80)), "at rest");
        assert!(table.due(at(79)).is_empty());
        assert_eq!(table.due(at(90)), [1, 2]);
        table.get_mut(2).expect("is there").at = Some(200);
        assert_eq!(table.next_timeout(), Some(at(90)));
        assert_eq!(table.due(at(90)), [1]);
        assert_eq!(table.patience(), Some(Duration::ZERO));
        table.remove(1);
        assert_eq!(table.next_timeout(), Some(at(100)));
        assert!(table.due(at(99)).is_empty());
    }

    #[test]
    fn news_come_once_from_each_that_something_happened_to() {
        let mut table = Table::default();
        (0..3).for_each(|handle| table.insert(handle, Sender::default()));
        let news = |table: &mut Table<u32, Sender>| {
            std::iter::from_fn(|| Some(table.next_news()?.0)).collect::<Vec<_>>()
        };
        assert_eq!(news(&mut table), [0, 1, 2]);
        table.touch(1);
        table.touch(1);
        table.touch(0);
        table.remove(0);
        assert_eq!(news(&mut table), [1]);
        assert!(news(&mut table).is_empty());
    }
}
