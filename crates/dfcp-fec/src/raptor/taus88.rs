//! The generator taus88 (L'Ecuyer 1996; `random32` of Linux), whose state travels in packets.

/// Three words of generator state: S1 > 1, S2 > 7, S3 > 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    s1: u32,
    s2: u32,
    s3: u32,
}

impl State {
    /// A state from the network; `None` if the generator would get stuck in it.
    pub fn new(s1: u32, s2: u32, s3: u32) -> Option<Self> {
        (s1 > 1 && s2 > 7 && s3 > 15).then_some(Self { s1, s2, s3 })
    }

    /// The words S1, S2, S3.
    pub fn words(self) -> [u32; 3] {
        [self.s1, self.s2, self.s3]
    }

    /// The state at which packet `index` of block `block` starts, on a connection that agreed on
    /// `self`. Only the sender needs it: packets carry theirs.
    pub fn of_packet(self, _block: u32, _index: u32) -> Self {
        unimplemented!()
    }
}
