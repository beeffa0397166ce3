//! Values kept per segment of the window, indexed by segment number.

/// A ring of a power of two slots; segment `seq` lives in slot `seq mod len`.
///
/// Invariant: the owner keeps at most `len` consecutive segments in use, by calling
/// [`Ring::reserve`] before it uses one more.
#[derive(Clone, Debug)]
pub(super) struct Ring<T> {
    slots: Vec<T>,
}

impl<T: Copy + Default> Ring<T> {
    /// A ring for a first, small window.
    pub fn new() -> Self {
        Self {
            slots: vec![T::default(); 64],
        }
    }

    /// Makes room for segment `next` where `first..next` are in use.
    #[inline]
    pub fn reserve(&mut self, first: u32, next: u32) {
        if (next - first) as usize == self.slots.len() {
            self.grow(first, next);
        }
    }

    #[cold]
    fn grow(&mut self, first: u32, next: u32) {
        let mut grown = Self {
            slots: vec![T::default(); self.slots.len() * 2],
        };
        for seq in first..next {
            *grown.at(seq) = self.get(seq);
        }
        *self = grown;
    }

    /// The value of segment `seq`.
    #[inline]
    pub fn get(&self, seq: u32) -> T {
        self.slots[seq as usize & (self.slots.len() - 1)]
    }

    /// The value of segment `seq`, to change.
    #[inline]
    pub fn at(&mut self, seq: u32) -> &mut T {
        let mask = self.slots.len() - 1;
        &mut self.slots[seq as usize & mask]
    }
}
