//! Who has how many of a server's connections: a few peers cannot keep all others out, neither one
//! key from many addresses nor many keys from one network. Everything here costs a look-up.

use crate::crypto::PublicKey;
use crate::host::{ConnectionHandle, NETWORKS_OF_SITE, network, site};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Seats {
    most: usize,
    most_of_one: usize,
    taken: HashMap<ConnectionHandle, (PublicKey, SocketAddr)>,
    keys: HashMap<PublicKey, usize>,
    networks: HashMap<u64, usize>,
    sites: HashMap<u64, usize>,
}

impl Seats {
    /// `most` in all, and `most_of_one` for a key and for a network; twice that for a site.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self {
            most,
            most_of_one,
            ..Self::default()
        }
    }

    /// Whether all places are taken.
    pub fn is_full(&self) -> bool {
        self.taken.len() >= self.most
    }

    /// Whether somebody at `remote` finds a place, whoever he is.
    pub fn has_room_for(&self, remote: SocketAddr) -> bool {
        !self.is_full() && self.has_share_for(remote)
    }

    /// Whether where somebody is has fewer places than it may.
    pub fn has_share_for(&self, remote: SocketAddr) -> bool {
        let own = self.networks.get(&network(remote)).copied();
        let of_site = site(remote).and_then(|site| self.sites.get(&site)).copied();
        own.unwrap_or(0) < self.most_of_one
            && of_site.unwrap_or(0) < self.most_of_one.saturating_mul(NETWORKS_OF_SITE)
    }

    /// Whether this key has fewer than it may.
    pub fn admits(&self, key: &PublicKey) -> bool {
        self.keys.get(key).is_none_or(|&own| own < self.most_of_one)
    }

    /// Whose place it is.
    pub fn key(&self, handle: ConnectionHandle) -> Option<&PublicKey> {
        self.taken.get(&handle).map(|(key, _)| key)
    }

    /// A place is taken; it is counted for where its connection came from, wherever that goes.
    pub fn take(&mut self, handle: ConnectionHandle, key: PublicKey, remote: SocketAddr) {
        self.taken.insert(handle, (key, remote));
        *self.keys.entry(key).or_default() += 1;
        *self.networks.entry(network(remote)).or_default() += 1;
        if let Some(site) = site(remote) {
            *self.sites.entry(site).or_default() += 1;
        }
    }

    /// It is free again, if it was taken.
    pub fn leave(&mut self, handle: ConnectionHandle) {
        if let Some((key, remote)) = self.taken.remove(&handle) {
            decrease(&mut self.keys, key);
            decrease(&mut self.networks, network(remote));
            site(remote)
                .into_iter()
                .for_each(|site| decrease(&mut self.sites, site));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a limit, as users say it.
    #[test]
    fn as_many_as_there_are_numbers_may_come() {
        let mut seats = Seats::new(usize::MAX, usize::MAX);
        for (i, ip) in ["192.0.2.1", "2001:db8:1::1"].into_iter().enumerate() {
            let remote = SocketAddr::new(ip.parse().expect("an address"), 1);
            assert!(seats.has_room_for(remote));
            seats.take(ConnectionHandle(i as u64), PublicKey([7; 32]), remote);
            assert!(seats.has_room_for(remote) && seats.admits(&PublicKey([7; 32])));
        }
    }

    #[test]
    fn who_gives_up_one_of_several_places_still_has_the_others() {
        let mut seats = Seats::new(64, 3);
        let (key, remote) = (PublicKey([7; 32]), SocketAddr::from(([192, 0, 2, 1], 1)));
        let mut numbers = (0..).map(ConnectionHandle);
        let mut take = |seats: &mut Seats| {
            let handle = numbers.next().expect("endless");
            seats.take(handle, key, remote);
            handle
        };
        let first = take(&mut seats);
        take(&mut seats);
        take(&mut seats);
        assert!(!seats.admits(&key) && !seats.has_room_for(remote));
        seats.leave(first);
        assert!(seats.admits(&key) && seats.has_room_for(remote));
        take(&mut seats);
        assert!(!seats.admits(&key) && !seats.has_room_for(remote));
    }

    #[test]
    fn who_has_many_networks_of_a_site_leaves_others_a_place() {
        let mut seats = Seats::new(64, 16);
        let address = |text: &str| SocketAddr::new(text.parse().expect("an address"), 1);
        let mut taken = Vec::new();
        for network in 0..16 {
            for host in 0..16 {
                let remote = address(&format!("2001:db8:1:{network:x}::{host:x}"));
                if seats.has_room_for(remote) {
                    let handle = ConnectionHandle(taken.len() as u64);
                    let key = PublicKey([taken.len() as u8; 32]);
                    seats.take(handle, key, remote);
                    taken.push(handle);
                }
            }
        }
        assert_eq!(taken.len(), 32, "two networks of one site");
        assert!(seats.has_room_for(address("2001:db8:2::1")));
        assert!(seats.has_room_for(address("192.0.2.1")));
        seats.leave(taken[0]);
        assert!(seats.has_room_for(address("2001:db8:1:ff::1")));
        taken.iter().for_each(|handle| seats.leave(*handle));
        assert!(seats.networks.is_empty() && seats.sites.is_empty());
    }
}
