//! Packets that the receiver was asked to answer: when they left.
//!
//! A hash table of one place a packet: what is overwritten or never answered costs a sample, no
//! more. Places are added while packets in flight overwrite each other, up to a bound.

use crate::time::{Duration, Instant};
use dfcp_fec::raptor::State;

const MIN_PLACES: usize = 64;
const MAX_PLACES: usize = 1 << 16;

/// A packet to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echoed {
    /// Generator state in it.
    pub state: State,
    /// Index within its block.
    pub index: u32,
    /// Block.
    pub block: u32,
    /// When it left.
    pub sent_at: Instant,
    /// Data packets sent up to and with it.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// Those awaited.
#[derive(Debug)]
pub(super) struct Echoes {
    places: Vec<Option<Echoed>>,
}

impl Echoes {
    pub fn new() -> Self {
        Self {
            places: vec![None; MIN_PLACES],
        }
    }

    fn place(&self, state: State) -> usize {
        // Blocks in a row differ in the lowest bits of all three words alone.
        let [s1, s2, s3] = state.words();
        let words = s1 ^ s2.rotate_left(16) ^ s3.rotate_left(8);
        (words.wrapping_mul(0x9e37_79b1) >> 16) as usize & (self.places.len() - 1)
    }

    /// Remembers a packet. Answers may come within `patience`.
    pub fn insert(&mut self, echoed: Echoed, patience: Duration) {
        let in_flight = |e: &Echoed| echoed.sent_at.saturating_since(e.sent_at) < patience;
        let place = self.place(echoed.state);
        if self.places[place].as_ref().is_some_and(in_flight) && self.places.len() < MAX_PLACES {
            let more = vec![None; 2 * self.places.len()];
            for old in std::mem::replace(&mut self.places, more)
                .into_iter()
                .flatten()
                .filter(in_flight)
            {
                let place = self.place(old.state);
                self.places[place] = Some(old);
            }
        }
        let place = self.place(echoed.state);
        self.places[place] = Some(echoed);
    }

    /// The packet that was answered, once.
    pub fn take(&mut self, state: State) -> Option<Echoed> {
        let place = self.place(state);
        if self.places[place]?.state != state {
            return None;
        }
        self.places[place].take()
    }
}
