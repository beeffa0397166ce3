//! What a client or a server carries, counted for whoever watches it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dfcp::Connection;
use tokio::sync::Notify;

use crate::account::Way;
use crate::status::Status;

/// Counters; a clone is the same ones.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Inner>);

#[derive(Default)]
struct Inner {
    attempts: [AtomicU64; Status::ALL.len()],
    open: [AtomicU64; 2],
    carried: [[AtomicU64; 2]; 2],
    datagrams: [AtomicU64; 2],
    /// Bytes that were read at one end of a TCP connection and are not taken by the other yet.
    held: AtomicU64,
    /// Told when the last TCP connection has ended.
    idle: Notify,
    connections: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Connection>,
}

/// What is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Attempts to connect or to associate, by how they ended.
    pub attempts: Vec<(Status, u64)>,
    /// TCP connections that are carried now.
    pub open_connections: u64,
    /// Associations of UDP that are open now.
    pub open_associations: u64,
    /// Bytes of TCP sent to the other side, and received from it.
    pub tcp_bytes: [u64; 2],
    /// The same of UDP.
    pub udp_bytes: [u64; 2],
    /// Datagrams of UDP sent to the other side, and received from it.
    pub datagrams: [u64; 2],
}

impl Traffic {
    /// What was counted until now.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let both = |counters: &[AtomicU64; 2]| [read(&counters[0]), read(&counters[1])];
        let inner = &*self.0;
        let attempts = Status::ALL.into_iter().zip(inner.attempts.iter().map(read));
        let [open_connections, open_associations] = both(&inner.open);
        let [tcp, udp] = &inner.carried;
        Counts {
            attempts: attempts.collect(),
            open_connections,
            open_associations,
            tcp_bytes: both(tcp),
            udp_bytes: both(udp),
            datagrams: both(&inner.datagrams),
        }
    }

    /// The connections of dfcp that are there now, each with its number.
    pub fn connections(&self) -> Vec<(u64, Connection)> {
        let table = self.table();
        let open = table.open.iter();
        open.map(|(number, connection)| (*number, connection.clone()))
            .collect()
    }

    pub(crate) fn attempt(&self, status: Status) {
        self.0.attempts[usize::from(status.byte())].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn carried(&self, kind: Kind, way: Way, bytes: usize) {
        let add = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        add(&self.0.carried[kind as usize][way as usize], bytes as u64);
        if kind == Kind::Udp {
            add(&self.0.datagrams[way as usize], 1);
        }
    }

    /// Bytes that [are held](Self::hold).
    pub(crate) fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// So many bytes wait between the ends of a connection, until this is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Held<'_> {
        self.0.held.fetch_add(bytes as u64, Ordering::Relaxed);
        Held {
            traffic: self,
            bytes: bytes as u64,
        }
    }

    /// Something more is open, until this is dropped.
    pub(crate) fn open(&self, kind: Kind) -> Open {
        self.0.open[kind as usize].fetch_add(1, Ordering::Relaxed);
        let traffic = self.clone();
        Open { traffic, kind }
    }

    /// A connection of dfcp is there, until this is dropped.
    pub(crate) fn connected(&self, connection: &Connection) -> Connected {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, connection.clone());
        drop(table);
        let traffic = self.clone();
        Connected { traffic, number }
    }

    /// Waits until no TCP connection is carried.
    pub async fn idle(&self) {
        loop {
            let news = self.0.idle.notified();
            if self.0.open[Kind::Tcp as usize].load(Ordering::Relaxed) == 0 {
                return;
            }
            news.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        let table = self.0.connections.lock();
        table.unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Traffic::open`].
pub(crate) struct Open {
    traffic: Traffic,
    kind: Kind,
}

impl Drop for Open {
    fn drop(&mut self) {
        let inner = &*self.traffic.0;
        if inner.open[self.kind as usize].fetch_sub(1, Ordering::Relaxed) == 1 {
            inner.idle.notify_waiters();
        }
    }
}

/// See [`Traffic::hold`].
pub(crate) struct Held<'a> {
    traffic: &'a Traffic,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.traffic.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// See [`Traffic::connected`].
pub(crate) struct Connected {
    traffic: Traffic,
    number: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.traffic.table().open.remove(&self.number);
    }
}
