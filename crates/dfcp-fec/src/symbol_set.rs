//! Which source symbols of a block are present.

/// A set of symbol numbers `0..len` that also knows its size and its gap-free prefix.
#[derive(Clone, Debug)]
pub(crate) struct SymbolSet {
    words: Vec<u64>,
    len: usize,
    count: usize,
    prefix: usize,
}

impl SymbolSet {
    /// The empty subset of `0..len`.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
            count: 0,
            prefix: 0,
        }
    }

    pub(crate) fn contains(&self, symbol: usize) -> bool {
        self.words
            .get(symbol / 64)
            .is_some_and(|word| word >> (symbol % 64) & 1 == 1)
    }

    /// Adds `symbol`; false if it was there or lies outside the set's range.
    pub(crate) fn insert(&mut self, symbol: usize) -> bool {
        if symbol >= self.len || self.contains(symbol) {
            return false;
        }
        self.words[symbol / 64] |= 1 << (symbol % 64);
        self.count += 1;
        while self.contains(self.prefix) {
            self.prefix += 1;
        }
        true
    }

    /// Takes `symbol` out again if it is there.
    pub(crate) fn remove(&mut self, symbol: usize) {
        if self.contains(symbol) {
            self.words[symbol / 64] &= !(1 << (symbol % 64));
            self.count -= 1;
            self.prefix = self.prefix.min(symbol);
        }
    }

    /// The last symbol that neither this set nor `other`, of the same range, contains.
    pub(crate) fn last_in_neither(&self, other: &Self) -> Option<usize> {
        let words = self.words.iter().zip(&other.words).enumerate();
        let mut last = None;
        for (at, (a, b)) in words {
            let in_range = (self.len - at * 64).min(64);
            let free = !(a | b) & (u64::MAX >> (64 - in_range));
            if free != 0 {
                last = Some(at * 64 + free.ilog2() as usize);
            }
        }
        last
    }

    pub(crate) fn fill(&mut self) {
        for symbol in 0..self.len {
            self.words[symbol / 64] |= 1 << (symbol % 64);
        }
        self.count = self.len;
        self.prefix = self.len;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn missing(&self) -> usize {
        self.len - self.count
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Symbols present without a gap from symbol 0.
    pub(crate) fn prefix(&self) -> usize {
        self.prefix
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len).filter(|&symbol| self.contains(symbol))
    }

    pub(crate) fn iter_missing(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len).filter(|&symbol| !self.contains(symbol))
    }

    pub(crate) fn memory(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_neither_of_two() {
        let (mut a, mut b) = (SymbolSet::new(66), SymbolSet::new(66));
        assert_eq!(a.last_in_neither(&b), Some(65));
        a.insert(65);
        b.insert(64);
        assert_eq!(a.last_in_neither(&b), Some(63));
        b.remove(64);
        assert_eq!(a.last_in_neither(&b), Some(64));
        a.fill();
        assert_eq!(a.last_in_neither(&b), None);
        a.remove(3);
        assert_eq!((a.prefix(), a.missing(), b.count()), (3, 1, 0));
    }

    #[test]
    fn prefix_follows_the_gaps() {
        let mut set = SymbolSet::new(130);
        assert!(set.insert(1) && !set.insert(1) && !set.insert(130));
        assert_eq!((set.count(), set.prefix(), set.missing()), (1, 0, 129));
        assert!(set.insert(0));
        assert_eq!(set.prefix(), 2);
        for symbol in (2..130).rev() {
            assert_eq!(set.prefix(), 2);
            set.insert(symbol);
        }
        assert!(set.is_full());
        assert_eq!(set.prefix(), 130);
        assert_eq!(set.iter().count(), 130);
        assert_eq!(set.iter_missing().next(), None);
    }
}
