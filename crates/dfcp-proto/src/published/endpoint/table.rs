//! The connections of an endpoint: found by ports, ordered by time, queued for sending.
//!
//! Invariant: a connection that anything happened to is `touched` until it was polled for packets
//! and gave none; its entry among the timers is true unless it is touched.

use super::super::connection::Connection;
use super::ConnectionHandle;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// What a packet says about whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ports {
    /// Address of the carrier.
    pub remote: SocketAddr,
    /// Port of the peer.
    pub remote_port: u16,
    /// Port of this side.
    pub local_port: u16,
}

#[derive(Debug)]
struct Slot {
    connection: Box<Connection>,
    /// Its entry among the timers.
    timer: Option<Instant>,
    /// Whether it is in the queue.
    touched: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: BTreeMap<ConnectionHandle, Slot>,
    ports: BTreeMap<Ports, ConnectionHandle>,
    timers: BTreeSet<(Instant, ConnectionHandle)>,
    ready: VecDeque<ConnectionHandle>,
    next: u32,
}

fn ports_of(connection: &Connection) -> Ports {
    let (local_port, remote_port) = connection.ports();
    Ports {
        remote: connection.remote(),
        remote_port,
        local_port,
    }
}

impl Table {
    /// Adds a connection, touched.
    pub fn insert(&mut self, connection: Connection) -> ConnectionHandle {
        let mut handle = ConnectionHandle(self.next);
        while self.slots.contains_key(&handle) {
            handle.0 = handle.0.wrapping_add(1);
        }
        self.next = handle.0.wrapping_add(1);
        self.ports.insert(ports_of(&connection), handle);
        let slot = Slot {
            connection: Box::new(connection),
            timer: None,
            touched: false,
        };
        self.slots.insert(handle, slot);
        self.touch(handle);
        handle
    }

    pub fn find(&self, ports: &Ports) -> Option<ConnectionHandle> {
        self.ports.get(ports).copied()
    }

    pub fn get(&self, handle: ConnectionHandle) -> Option<&Connection> {
        self.slots.get(&handle).map(|slot| &*slot.connection)
    }

    pub fn get_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(&handle)?;
        Some(&mut slot.connection)
    }

    pub fn remove(&mut self, handle: ConnectionHandle) {
        self.unbind(handle);
        if let Some(slot) = self.slots.remove(&handle)
            && let Some(at) = slot.timer
        {
            self.timers.remove(&(at, handle));
        }
    }

    /// Gives the connection's ports free.
    pub fn unbind(&mut self, handle: ConnectionHandle) {
        let Some(slot) = self.slots.get(&handle) else {
            return;
        };
        let ports = ports_of(&slot.connection);
        if self.ports.get(&ports) == Some(&handle) {
            self.ports.remove(&ports);
        }
    }

    /// Something happened to the connection, or may have.
    pub fn touch(&mut self, handle: ConnectionHandle) {
        let Some(slot) = self.slots.get_mut(&handle) else {
            return;
        };
        if !slot.touched {
            slot.touched = true;
            self.ready.push_back(handle);
        }
    }

    /// The next touched connection; it goes to the queue's end.
    pub fn next_ready(&mut self) -> Option<ConnectionHandle> {
        while let Some(handle) = self.ready.pop_front() {
            if self.slots.contains_key(&handle) {
                self.ready.push_back(handle);
                return Some(handle);
            }
        }
        None
    }

    /// The connection that [`next_ready`](Self::next_ready) gave last has nothing to send.
    pub fn rest(&mut self, handle: ConnectionHandle) {
        if self.ready.back() == Some(&handle) {
            self.ready.pop_back();
        }
        let Some(slot) = self.slots.get_mut(&handle) else {
            return;
        };
        slot.touched = false;
        let timer = slot.connection.poll_timeout();
        let before = std::mem::replace(&mut slot.timer, timer);
        if before != timer {
            if let Some(at) = before {
                self.timers.remove(&(at, handle));
            }
            if let Some(at) = timer {
                self.timers.insert((at, handle));
            }
        }
    }

    /// When the first timer expires.
    pub fn next_timeout(&self) -> Option<Instant> {
        let touched = |handle| self.slots.get(handle).is_some_and(|slot| slot.touched);
        let waiting = self.timers.iter().find(|(_, handle)| !touched(handle));
        let touched = self.ready.iter().filter_map(|handle| self.get(*handle));
        let touched = touched.filter_map(Connection::poll_timeout).min();
        waiting.map(|&(at, _)| at).into_iter().chain(touched).min()
    }

    /// Connections whose time has come; they are touched.
    pub fn take_due(&mut self, now: Instant) -> Vec<ConnectionHandle> {
        let is_due = |c: &Connection| c.poll_timeout().is_some_and(|at| at <= now);
        let mut due: Vec<_> = self.ready.iter().copied().collect();
        let last = (now, ConnectionHandle(u32::MAX));
        due.extend(self.timers.range(..=last).map(|&(_, handle)| handle));
        due.sort_unstable();
        due.dedup();
        due.retain(|&handle| self.get(handle).is_some_and(is_due));
        due.iter().for_each(|&handle| self.touch(handle));
        due
    }
}
