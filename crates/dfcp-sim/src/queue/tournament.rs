//! The least of a set of changing keys, by a tree of winners (Knuth, The Art of Computer
//! Programming, vol. 3, §5.4.1).
//!
//! A change replays the matches on one path to the root, and stops where its outcome is the same:
//! O(log n) at most, and a comparison or two for a key that is far from winning.

use std::hint::select_unpredictable;

/// Keys by player, and who has the least; the lower player wins a tie.
#[derive(Clone, Debug)]
pub(super) struct Tournament<K> {
    /// Match `m`, from one, is between the entries `2m` and `2m + 1`, and its winner is entry `m`.
    /// The players themselves, a power of two of them, are the second half.
    entries: Vec<(K, u32)>,
    absent: K,
}

impl<K: Ord + Copy> Tournament<K> {
    /// Without players; `absent` is the key of whoever has none, no less than any other.
    pub(super) fn new(absent: K) -> Self {
        Self {
            entries: Vec::new(),
            absent,
        }
    }

    /// The player with the least key, and the key, unless all are absent.
    pub(super) fn winner(&self) -> Option<(usize, K)> {
        let (key, player) = *self.entries.get(1)?;
        (key != self.absent).then_some((player as usize, key))
    }

    pub(super) fn key(&self, player: usize) -> K {
        let entry = self.entries.get(self.entries.len() / 2 + player);
        entry.map_or(self.absent, |&(key, _)| key)
    }

    /// Gives a player a new key.
    pub(super) fn set(&mut self, player: usize, key: K) {
        if player >= self.entries.len() / 2 {
            self.grow(player);
        }
        let mut node = self.entries.len() / 2 + player;
        self.entries[node].0 = key;
        let mut best = self.entries[node];
        while node > 1 {
            best = play(best, self.entries[node ^ 1]);
            node /= 2;
            if self.entries[node] == best {
                return;
            }
            self.entries[node] = best;
        }
    }

    #[cold]
    fn grow(&mut self, player: usize) {
        let players = (player + 1).next_power_of_two().max(2);
        let keys = self.entries.split_off(self.entries.len() / 2);
        let keys = keys.into_iter().map(|(key, _)| key);
        let keys = keys.chain(std::iter::repeat(self.absent));
        self.entries = vec![(self.absent, 0); players];
        self.entries.extend(keys.zip(0..players as u32));
        for node in (1..players).rev() {
            self.entries[node] = play(self.entries[2 * node], self.entries[2 * node + 1]);
        }
    }
}

/// The lesser entry, without a branch: who wins is anybody's guess, the processor's too.
fn play<K: Ord + Copy>(a: (K, u32), b: (K, u32)) -> (K, u32) {
    let b_wins = (b.0 < a.0) | ((b.0 == a.0) & (b.1 < a.1));
    let key = select_unpredictable(b_wins, b.0, a.0);
    let player = select_unpredictable(b_wins, b.1, a.1);
    (key, player)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn finds_the_least_as_keys_change() {
        for seed in 0..50 {
            let mut random = Seed(seed).stream("tournament");
            let mut tournament = Tournament::new(u64::MAX);
            let mut keys = vec![u64::MAX; 1 + random.below(70) as usize];
            assert_eq!(tournament.winner(), None);
            for _ in 0..500 {
                let player = random.below(keys.len() as u64) as usize;
                let key = if random.chance(0.3) {
                    u64::MAX
                } else {
                    random.below(20)
                };
                keys[player] = key;
                tournament.set(player, key);
                let least = (0..keys.len()).min_by_key(|&p| keys[p]);
                let expected = least.map(|p| (p, keys[p])).filter(|w| w.1 != u64::MAX);
                assert_eq!(tournament.winner(), expected, "seed {seed}");
                assert_eq!(tournament.key(player), key);
            }
        }
    }
}
