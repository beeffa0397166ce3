//! A block being collected.

use super::super::code::Decoder;
use crate::time::Instant;
use dfcp_fec::raptor::State;

/// Where a block is on its way.
#[derive(Debug)]
pub(super) enum Phase {
    /// Symbols are collected; the decoder is there from the first packet on, if there is one.
    Collecting(Option<Box<Decoder>>),
    /// Being solved.
    Solving,
    /// There: its k · T bytes, none if it was not decoded.
    Complete(Vec<u8>),
    /// Given up (ACKs off).
    Skipped,
}

/// A block of the window. Small until its first packet comes.
#[derive(Debug)]
pub(super) struct Block {
    pub phase: Phase,
    pub seen: Seen,
    /// When its last ACK left.
    pub acked_at: Option<Instant>,
    pub symbols: u32,
    /// Beyond (1 + ε) k: it did not decode with fewer.
    pub extra: u32,
    /// Bytes of the application.
    pub useful: u32,
    pub short: bool,
}

impl Block {
    pub fn new() -> Self {
        Self {
            phase: Phase::Collecting(None),
            seen: Seen::default(),
            acked_at: None,
            symbols: 0,
            extra: 0,
            useful: 0,
            short: false,
        }
    }

    /// Bytes of memory held now, beside the record itself.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let symbols = match &self.phase {
            Phase::Collecting(Some(decoder)) => decoder.memory(),
            Phase::Complete(bytes) => bytes.capacity(),
            _ => 0,
        };
        symbols + self.seen.memory()
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Complete(_))
    }

    /// Nothing more will come of it.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Complete(_) | Phase::Skipped)
    }
}

/// Packets of a block that have arrived: a network may duplicate them, and twice the same symbols
/// count once. Open addressing on the first word of the state, which is never 0; that two packets
/// of a block share it costs one of them, once in millions of blocks.
#[derive(Debug, Default)]
pub(super) struct Seen {
    places: Vec<u32>,
    count: u32,
}

const MIN_PLACES: usize = 16;

impl Seen {
    /// Whether a packet was there before.
    pub fn contains(&self, state: State) -> bool {
        let key = state.words()[0];
        !self.places.is_empty() && self.places[Self::place(&self.places, key)] == key
    }

    /// Takes a packet; false if it was there before.
    pub fn insert(&mut self, state: State) -> bool {
        if 8 * self.count as usize >= 7 * self.places.len() {
            let places = (2 * self.places.len()).max(MIN_PLACES);
            let old = std::mem::replace(&mut self.places, vec![0; places]);
            for key in old.into_iter().filter(|&key| key != 0) {
                Self::put(&mut self.places, key);
            }
        }
        let new = Self::put(&mut self.places, state.words()[0]);
        self.count += u32::from(new);
        new
    }

    /// Where a packet is, or would be; some places are free.
    fn place(places: &[u32], key: u32) -> usize {
        let mask = places.len() - 1;
        let mut place = (key.wrapping_mul(0x9e37_79b1) >> 7) as usize & mask;
        while places[place] != 0 && places[place] != key {
            place = (place + 1) & mask;
        }
        place
    }

    fn put(places: &mut [u32], key: u32) -> bool {
        let place = Self::place(places, key);
        let new = places[place] == 0;
        places[place] = key;
        new
    }

    pub fn len(&self) -> u32 {
        self.count
    }

    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }

    /// Gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_counts_once() {
        let state = |n: u32| State::new(n * 7919 + 2, 8, 16).expect("valid");
        let mut seen = Seen::default();
        for n in 0..500 {
            assert!(!seen.contains(state(n)));
            assert!(seen.insert(state(n)));
            assert!(!seen.insert(state(n / 2)) && seen.contains(state(n / 2)));
        }
    }
}
