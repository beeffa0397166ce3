//! Who has how many of a server's connections: a few peers cannot keep all others out, neither one
//! key from many addresses nor many keys from one network. Everything here costs a look-up.

use crate::crypto::PublicKey;
use crate::host::{ConnectionHandle, network};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Seats {
    most: usize,
    most_of_one: usize,
    taken: HashMap<ConnectionHandle, (PublicKey, u64)>,
    keys: HashMap<PublicKey, usize>,
    networks: HashMap<u64, usize>,
}

impl Seats {
    /// `most` in all, and `most_of_one` for a key and for a network.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self {
            most,
            most_of_one,
            ..Self::default()
        }
    }

    /// Whether somebody at `remote` finds a place, whoever he is.
    pub fn has_room_for(&self, remote: SocketAddr) -> bool {
        let own = self.networks.get(&network(remote));
        self.taken.len() < self.most && own.is_none_or(|&own| own < self.most_of_one)
    }

    /// Whether this key has fewer than it may.
    pub fn admits(&self, key: &PublicKey) -> bool {
        self.keys.get(key).is_none_or(|&own| own < self.most_of_one)
    }

    /// A place is taken; it is counted for where its connection came from, wherever that goes.
    pub fn take(&mut self, handle: ConnectionHandle, key: PublicKey, remote: SocketAddr) {
        let network = network(remote);
        self.taken.insert(handle, (key, network));
        *self.keys.entry(key).or_default() += 1;
        *self.networks.entry(network).or_default() += 1;
    }

    /// It is free again, if it was taken.
    pub fn leave(&mut self, handle: ConnectionHandle) {
        if let Some((key, network)) = self.taken.remove(&handle) {
            decrease(&mut self.keys, key);
            decrease(&mut self.networks, network);
        }
    }
}

fn decrease<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
