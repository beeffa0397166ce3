//! What is known of the sockets of programs, by the kernel's numbers of them (`SO_COOKIE`), which copies of a
//! socket share and no other one gets.

use std::collections::{HashMap, VecDeque};

/// Sockets that are remembered beyond the end of what was carried for them: a program may ask late how it
/// ended. Some hundred bytes each.
const KEPT: usize = 4096;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// By the call with this number.
    Connecting(u64),
    Open,
    /// With the number of the error.
    Failed(i32),
    /// It is of UDP, and has sent something that is carried.
    Datagrams,
}

/// A socket that a program connected.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The address that the program connected to; of one that is not connected nothing.
    pub given: Vec<u8>,
    pub state: State,
    /// Calls that wait for how it ends.
    pub waiting: Vec<u64>,
}

impl Entry {
    pub fn new(given: Vec<u8>, state: State, waiting: Vec<u64>) -> Self {
        Self {
            given,
            state,
            waiting,
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: HashMap<u64, Entry>,
    /// Those that are over, the oldest first.
    over: VecDeque<u64>,
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&mut self, cookie: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&cookie)
    }

    pub fn put(&mut self, cookie: u64, entry: Entry) {
        self.entries.insert(cookie, entry);
        self.over.retain(|over| *over != cookie);
    }

    pub fn forget(&mut self, cookie: u64) {
        self.entries.remove(&cookie);
        self.over.retain(|over| *over != cookie);
    }

    /// Nothing more happens to a socket, as far as is known here.
    pub fn is_over(&mut self, cookie: u64) {
        if !self.entries.contains_key(&cookie) || self.over.contains(&cookie) {
            return;
        }
        self.over.push_back(cookie);
        if self.over.len() > KEPT
            && let Some(oldest) = self.over.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_sockets_that_are_over_are_remembered() {
        let mut table = Table::default();
        let entry = || Entry::new(Vec::new(), State::Open, Vec::new());
        let many = 2 * KEPT as u64;
        for cookie in 0..many {
            table.put(cookie, entry());
            table.is_over(cookie);
            table.is_over(cookie);
        }
        table.put(many, entry());
        assert!(table.get(0).is_none() && table.get(many - 1).is_some());
        // One that is used again is as any other.
        let again = many - KEPT as u64;
        table.put(again, entry());
        for cookie in 0..2 * many {
            table.put(cookie + many + 1, entry());
            table.is_over(cookie + many + 1);
        }
        assert!(table.get(again).is_some() && table.get(many).is_some());
        table.forget(many);
        assert!(table.get(many).is_none());
        assert_eq!(table.entries.len(), KEPT + 1);
    }
}
