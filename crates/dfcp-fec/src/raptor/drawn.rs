//! Encoding symbols of one byte: the symbols of a packet as drawn, kept for other blocks.
//!
//! Packets of one number have the same symbols in many blocks in a row, and drawing these costs a
//! third of what their sums do. They are kept by degree, for a processor foresees loops of one length.

use std::collections::HashMap;

use super::draws::{Draws, Form};
use super::taus88::State;
use super::{MAX_INTERMEDIATE, Tables};

/// Symbols of a packet that are kept together: their places have 16 bits.
pub(super) const MOST: usize = 1 << 16;

/// Numbers kept at most, ÷ those of n symbols on average: the packets of two blocks without a state in
/// common, and as many again.
const KEPT: f64 = 4.0;

/// Symbols of one degree.
#[derive(Clone, Copy, Debug)]
struct Run {
    degree: usize,
    symbols: usize,
}

/// The symbols of a packet.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    symbols: usize,
    runs: Vec<Run>,
    /// Where symbols are in the packet.
    places: Vec<u16>,
    /// What they sum up, symbol after symbol.
    ids: Vec<u16>,
}

impl Drawn {
    fn new(draws: &mut Draws, form: &Form, symbols: usize) -> Self {
        let mut starts = Vec::with_capacity(symbols);
        let (mut at, mut counts) = (0, [0usize; 256]);
        while starts.len() < symbols {
            draws.reserve(at + 1, form);
            let degrees = draws.degrees();
            while starts.len() < symbols && at < degrees.len() {
                starts.push((at, degrees[at]));
                counts[usize::from(degrees[at])] += 1;
                at += 1 + usize::from(degrees[at]);
            }
        }
        draws.reserve(at, form);
        let mut drawn = Self {
            symbols,
            runs: Vec::new(),
            places: Vec::with_capacity(symbols),
            ids: Vec::with_capacity(at - symbols),
        };
        let mut next = [0; 256];
        let mut end = 0;
        for (degree, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            drawn.runs.push(Run {
                degree,
                symbols: count,
            });
            (next[degree], end) = (end, end + count);
        }
        let mut sorted = vec![(0, 0); symbols];
        for (place, &(at, degree)) in starts.iter().enumerate() {
            let to = &mut next[usize::from(degree)];
            sorted[*to] = (at, place as u16);
            *to += 1;
        }
        let mut sorted = &sorted[..];
        for run in &drawn.runs {
            for &(at, place) in sorted.split_off(..run.symbols).unwrap_or_default() {
                drawn.places.push(place);
                let ids = &draws.numbers()[at + 1..][..run.degree];
                drawn.ids.extend_from_slice(ids);
            }
        }
        drawn
    }

    /// Writes the packet of one block.
    pub(super) fn sum(&self, symbols: &[u8; MAX_INTERMEDIATE as usize], out: &mut [u8]) {
        let (mut places, mut ids) = (&self.places[..], &self.ids[..]);
        for run in &self.runs {
            let places = places.split_off(..run.symbols).unwrap_or_default();
            let ids = ids
                .split_off(..run.symbols * run.degree)
                .unwrap_or_default();
            match run.degree {
                1 => sum_exactly::<1>(symbols, ids, places, out),
                2 => sum_exactly::<2>(symbols, ids, places, out),
                3 => sum_exactly::<3>(symbols, ids, places, out),
                4 => sum_exactly::<4>(symbols, ids, places, out),
                5 => sum_exactly::<5>(symbols, ids, places, out),
                8 => sum_exactly::<8>(symbols, ids, places, out),
                9 => sum_exactly::<9>(symbols, ids, places, out),
                19 => sum_exactly::<19>(symbols, ids, places, out),
                65 => sum_exactly::<65>(symbols, ids, places, out),
                degree => {
                    for (&place, ids) in places.iter().zip(ids.chunks_exact(degree)) {
                        out[usize::from(place)] = gather(symbols, ids);
                    }
                }
            }
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.runs.capacity() * size_of::<Run>()
            + (self.places.capacity() + self.ids.capacity()) * size_of::<u16>()
    }
}

/// A loop without a loop in it.
#[inline(always)]
fn sum_exactly<const D: usize>(
    symbols: &[u8; MAX_INTERMEDIATE as usize],
    ids: &[u16],
    places: &[u16],
    out: &mut [u8],
) {
    for (&place, ids) in places.iter().zip(ids.as_chunks::<D>().0) {
        out[usize::from(place)] = gather(symbols, ids);
    }
}

#[inline(always)]
fn gather(symbols: &[u8; MAX_INTERMEDIATE as usize], ids: &[u16]) -> u8 {
    let byte = |&id: &u16| symbols[usize::from(id)];
    ids.iter().map(byte).fold(0, |sum, byte| sum ^ byte)
}

/// Packets drawn lately.
#[derive(Debug, Default)]
pub(super) struct Kept {
    packets: HashMap<State, Drawn>,
    /// Numbers of all of them.
    ids: usize,
}

impl Kept {
    /// The symbols of a packet, at most [`MOST`]. `draws` starts from its state, and writes degrees
    /// down.
    pub(super) fn packet(
        &mut self,
        tables: &Tables,
        draws: &mut Draws,
        (state, symbols): (State, usize),
    ) -> &Drawn {
        let state = state.plain();
        let most = KEPT * f64::from(tables.parameters.n) * tables.degrees.mean();
        let known = self.packets.get(&state);
        let known = known.is_some_and(|drawn| drawn.symbols == symbols);
        if !known && self.ids > most as usize {
            self.packets.clear();
            self.ids = 0;
        }
        let drawn = self.packets.entry(state).or_default();
        if !known {
            self.ids -= drawn.ids.len();
            *drawn = Drawn::new(draws, &tables.form, symbols);
            self.ids += drawn.ids.len();
        }
        drawn
    }

    pub(super) fn memory(&self) -> usize {
        self.packets.values().map(Drawn::memory).sum()
    }
}
