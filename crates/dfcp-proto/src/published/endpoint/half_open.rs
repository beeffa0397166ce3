//! Connections that wait for the ACK of their SYNACK, and which of them gives way to a newer one.
//!
//! The wire of the papers has no cookie: a SYN, which anybody can write in anybody's name, makes a
//! connection. So there are few at a time, and when there are too many one is dropped at random
//! (Ricciulli, Lincoln and Kakkar, "TCP SYN Flooding Defense", 1999), of the network that has most. A
//! flood from one network then displaces nobody else. One that names many networks displaces an honest
//! client with chance 1 ÷ [`MAX_HALF_OPEN`] a SYN, in place of certainly after so many.

use crate::crypto::SecretRng;
use crate::host::{ConnectionHandle, network};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most of them: an honest client on a path of 100 ms is displaced in 62 of 100 attempts by a flood of
/// 10,000 SYNs a second in everybody's name (1 − e^(−1000 ÷ 1024)). Each takes about a kilobyte.
pub(super) const MAX_HALF_OPEN: usize = 1024;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    network_of: BTreeMap<ConnectionHandle, u64>,
    by_network: BTreeMap<u64, Vec<ConnectionHandle>>,
}

impl HalfOpen {
    pub fn is_full(&self) -> bool {
        self.network_of.len() >= MAX_HALF_OPEN
    }

    pub fn contains(&self, handle: ConnectionHandle) -> bool {
        self.network_of.contains_key(&handle)
    }

    pub fn insert(&mut self, handle: ConnectionHandle, remote: SocketAddr) {
        let network = network(remote);
        self.network_of.insert(handle, network);
        self.by_network.entry(network).or_default().push(handle);
    }

    pub fn remove(&mut self, handle: ConnectionHandle) {
        let Some(network) = self.network_of.remove(&handle) else {
            return;
        };
        if let Some(members) = self.by_network.get_mut(&network) {
            members.retain(|&member| member != handle);
            if members.is_empty() {
                self.by_network.remove(&network);
            }
        }
    }

    /// Takes one out to make room: a random one of those networks that have most.
    pub fn displace(&mut self, rng: &mut SecretRng) -> Option<ConnectionHandle> {
        let most = self.by_network.values().map(Vec::len).max()?;
        let crowded = || self.by_network.values().filter(|m| m.len() == most);
        let chosen = rng.below((crowded().count() * most) as u64) as usize;
        let members = crowded().nth(chosen / most)?;
        let handle = *members.get(chosen % most)?;
        self.remove(handle);
        Some(handle)
    }
}
