//! One end of a link, or of several: the device, and who is behind the packets that come out of it.

use std::collections::BTreeMap;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dfcp::{CloseCode, Connection, PublicKey};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::device::{Device, MAX_PACKET};
use crate::event::{Event, Report};
use crate::nets::Table;
use crate::packet::{self, Header, Refused};
use crate::queue::Queue;
use crate::stats::Stats;

/// Every link of IPv6 has packets of so many bytes (RFC 8200 §5); where a datagram holds less, they go in
/// two.
pub const MIN_MTU: usize = 1280;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long packets may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtu {
    /// What one datagram of every connection holds, at least [`MIN_MTU`].
    OfPath,
    /// So many bytes; those that a datagram does not hold go in two.
    Fixed(usize),
}

/// Somebody at the other end of a link.
pub(crate) struct Peer {
    pub key: PublicKey,
    pub queue: Mutex<Queue>,
    /// The queue has packets.
    pub ready: Notify,
    /// There was a packet for it, and no connection.
    pub missed: Notify,
    pub stats: Mutex<Stats>,
    /// The connection that carries its packets, and which one that is.
    connection: Mutex<(u64, Option<Connection>)>,
}

impl Peer {
    pub fn new(key: PublicKey) -> Self {
        Self {
            key,
            queue: Mutex::default(),
            ready: Notify::new(),
            missed: Notify::new(),
            stats: Mutex::default(),
            connection: Mutex::default(),
        }
    }

    /// A connection carries the peer's packets from now on, instead of the one before.
    pub fn connect(&self, connection: &Connection) -> u64 {
        let mut current = locked(&self.connection);
        current.0 += 1;
        if let Some(old) = current.1.replace(connection.clone()) {
            old.close(CloseCode::NO_ERROR, "a newer connection has this key");
        }
        current.0
    }

    /// It does no longer.
    pub fn disconnect(&self, which: u64) {
        let mut current = locked(&self.connection);
        if current.0 == which {
            current.1 = None;
            locked(&self.queue).clear();
        }
    }

    /// Ends its connection, if there is one.
    pub fn part(&self, why: &str) {
        if let Some(connection) = &locked(&self.connection).1 {
            connection.close(CloseCode::NO_ERROR, why);
        }
    }

    pub fn is_connected(&self) -> bool {
        locked(&self.connection).1.is_some()
    }

    /// Its counters.
    pub fn stats(&self) -> Stats {
        let mut stats = *locked(&self.stats);
        stats.queue = locked(&self.queue).counts();
        stats
    }
}

/// See the module's text.
pub(crate) struct Site {
    pub device: Device,
    pub peers: Vec<Peer>,
    /// Whose an address is: the peer's number.
    pub table: Table<usize>,
    /// How long repairs are of use, if that is set.
    pub delay: Option<Duration>,
    pub report: Report,
    begin: Instant,
    hash: RandomState,
    mtu: Mutex<DeviceMtu>,
}

struct DeviceMtu {
    is_fixed: bool,
    now: usize,
    /// What a datagram of each connection holds.
    pieces: BTreeMap<(usize, u64), usize>,
}

impl Site {
    pub fn new(
        device: Device,
        peers: Vec<Peer>,
        table: Table<usize>,
        (mtu, now): (Mtu, usize),
        report: Report,
    ) -> Self {
        Self {
            device,
            peers,
            table,
            delay: None,
            report,
            begin: Instant::now(),
            hash: RandomState::new(),
            mtu: Mutex::new(DeviceMtu {
                is_fixed: mtu != Mtu::OfPath,
                now,
                pieces: BTreeMap::new(),
            }),
        }
    }

    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    pub fn time(&self, at: Duration) -> Instant {
        self.begin + at
    }

    /// A connection's datagrams hold so much now, or no more of it are to be expected; the device follows.
    pub fn set_piece(&self, connection: (usize, u64), piece: Option<usize>) {
        let mut mtu = locked(&self.mtu);
        match piece {
            Some(piece) => mtu.pieces.insert(connection, piece),
            None => mtu.pieces.remove(&connection),
        };
        let Some(&least) = mtu.pieces.values().min() else {
            return;
        };
        let wanted = least.max(MIN_MTU);
        // Without it packets that are too long go in two.
        if !mtu.is_fixed && wanted != mtu.now && self.device.set_mtu(wanted).is_ok() {
            mtu.now = wanted;
            (self.report)(Event::Mtu(wanted));
        }
    }

    /// Tells each `every` what connections carry. Does not end.
    pub async fn tell(&self, every: Option<Duration>) {
        let Some(every) = every else {
            return pending().await;
        };
        loop {
            sleep(every).await;
            for peer in &self.peers {
                let connection = locked(&peer.connection).1.clone();
                if let Some(connection) = connection {
                    let path = Box::new(connection.stats());
                    (self.report)(Event::Carrying(peer.key, peer.stats(), path));
                }
            }
        }
    }

    /// Longest packet of the device.
    fn mtu(&self) -> usize {
        locked(&self.mtu).now
    }

    /// Puts what the kernel sends into the queues of those it is for. Ends with the device.
    pub async fn forward(&self) -> io::Error {
        let mut buffer = vec![0; MAX_PACKET];
        let mut touched = Vec::new();
        loop {
            let read = self.device.read(&mut buffer, |packet| {
                if let Some(peer) = self.accept(packet)
                    && !touched.contains(&peer)
                {
                    touched.push(peer);
                }
            });
            if let Err(error) = read.await {
                return error;
            }
            touched
                .drain(..)
                .for_each(|peer| self.peers[peer].ready.notify_one());
            // Connections share this thread.
            tokio::task::yield_now().await;
        }
    }

    /// Queues a packet of the kernel; says for whom.
    fn accept(&self, packet: &mut [u8]) -> Option<usize> {
        let header = packet::parse(packet)?;
        let number = self.table.owner(header.destination)?;
        let peer = &self.peers[number];
        if !peer.is_connected() {
            locked(&peer.stats).unconnected += 1;
            peer.missed.notify_one();
            return None;
        }
        header.clamp_mss(packet, self.mtu());
        let mut stats = locked(&peer.stats);
        stats.packets_out += 1;
        stats.bytes_out += packet.len() as u64;
        drop(stats);
        let flow = self.flow(&header, packet);
        locked(&peer.queue).push(self.now(), flow, packet.to_vec());
        Some(number)
    }

    fn flow(&self, header: &Header, packet: &[u8]) -> u64 {
        let ports = header.ports(packet);
        self.hash
            .hash_one((header.source, header.destination, header.protocol(), ports))
    }

    /// Gives the kernel a packet of a peer, if the peer may send it.
    pub fn deliver(&self, number: usize, packet: &[u8]) {
        let may_be_from = |source| self.table.owner(source) == Some(number);
        let admitted = packet::admit(packet, || self.mtu(), may_be_from);
        let written = admitted.map(|packet| self.device.write(&packet));
        let mut stats = locked(&self.peers[number].stats);
        match written {
            Ok(Ok(())) => {
                stats.packets_in += 1;
                stats.bytes_in += packet.len() as u64;
            }
            Ok(Err(_)) | Err(Refused::Malformed) => stats.malformed += 1,
            Err(Refused::Forbidden) => stats.forbidden += 1,
        }
    }
}
