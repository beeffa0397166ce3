//! The least of a set of changing keys, by a tree of winners (Knuth, The Art of Computer
//! Programming, vol. 3, §5.4.1).
//!
//! A change replays the matches on one path to the root, and stops where its outcome is the same:
//! O(log n) at most, and a comparison or two for a key that is far from winning.

/// Keys by player, and who has the least; the lower player wins a tie.
#[derive(Clone, Debug)]
pub(super) struct Tournament<K> {
    /// A power of two of them, or none.
    keys: Vec<K>,
    /// Winner of each match; match `m` is played by the winners of `2m` and `2m + 1`, and the
    /// players themselves stand behind the last matches.
    winners: Vec<u32>,
    absent: K,
}

impl<K: Ord + Copy> Tournament<K> {
    /// Without players; `absent` is the key of whoever has none, no less than any other.
    pub(super) fn new(absent: K) -> Self {
        Self {
            keys: Vec::new(),
            winners: Vec::new(),
            absent,
        }
    }

    /// The player with the least key, unless all are absent.
    pub(super) fn winner(&self) -> Option<usize> {
        let winner = *self.winners.get(1)? as usize;
        (self.keys[winner] != self.absent).then_some(winner)
    }

    pub(super) fn key(&self, player: usize) -> K {
        self.keys.get(player).copied().unwrap_or(self.absent)
    }

    /// Gives a player a new key.
    pub(super) fn set(&mut self, player: usize, key: K) {
        if player >= self.keys.len() {
            self.grow(player);
        }
        self.keys[player] = key;
        let mut node = (self.keys.len() + player) / 2;
        while node > 0 {
            let before = self.winners[node];
            self.play(node);
            // Who did not win and does not win changes nothing above.
            if before == self.winners[node] && before != player as u32 {
                return;
            }
            node /= 2;
        }
    }

    fn play(&mut self, node: usize) {
        let (left, right) = (self.entrant(2 * node), self.entrant(2 * node + 1));
        let right_wins = self.keys[right as usize] < self.keys[left as usize];
        self.winners[node] = if right_wins { right } else { left };
    }

    fn entrant(&self, node: usize) -> u32 {
        match node.checked_sub(self.keys.len()) {
            Some(player) => player as u32,
            None => self.winners[node],
        }
    }

    #[cold]
    fn grow(&mut self, player: usize) {
        let players = (player + 1).next_power_of_two().max(2);
        self.keys.resize(players, self.absent);
        self.winners.resize(players, 0);
        for node in (1..players).rev() {
            self.play(node);
        }
    }
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
                let expected = (0..keys.len())
                    .min_by_key(|&p| keys[p])
                    .filter(|&p| keys[p] != u64::MAX);
                assert_eq!(tournament.winner(), expected, "seed {seed}");
                assert_eq!(tournament.key(player), key);
            }
        }
    }
}
