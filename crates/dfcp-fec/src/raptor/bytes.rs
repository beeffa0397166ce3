//! The data pass of decoding: with the structure known, the bytes of symbols.

use super::encoder::{LARGE, fetch_all, sum_into};
use super::graph::System;
use super::inactivate::{Inactivation, Step, solve_square};
use super::peel::Found;
use crate::gf256::{Kernel, Start, fetch};

/// How many symbols ahead: a dozen rows as a rule, enough to hide the way to memory.
const AHEAD: usize = 2;

/// Most inactive symbols of whose sums one table has all.
const MAX_BITS: usize = 6;

/// Bytes of a cache line.
const LINE: usize = 64;

#[inline(always)]
fn add_line(sum: &mut [u8; LINE], other: &[u8; LINE]) {
    sum.iter_mut()
        .zip(other)
        .for_each(|(sum, other)| *sum ^= other);
}

/// Symbols being computed.
pub(super) struct Bytes<'a> {
    pub(super) system: &'a System<'a>,
    pub(super) size: usize,
    pub(super) received: &'a [u8],
    pub(super) symbols: &'a mut [u8],
    /// Other symbols of the row at hand.
    pub(super) ids: &'a mut Vec<u16>,
}

impl Bytes<'_> {
    fn symbol_mut(&mut self, symbol: u16) -> &mut [u8] {
        &mut self.symbols[usize::from(symbol) * self.size..][..self.size]
    }

    /// Symbols become zero.
    pub(super) fn clear(&mut self, symbols: &[u16]) {
        for &symbol in symbols {
            self.symbol_mut(symbol).fill(0);
        }
    }

    /// Fetches what a row's symbol will be computed from, and where it will be written to.
    #[inline(always)]
    fn fetch(&self, row: u32) {
        fetch_all(
            self.symbols,
            self.size,
            self.system.neighbours(row as usize),
        );
        if let Start::Bytes(side) = side(self.system, self.received, self.size, row) {
            fetch(side);
        }
    }

    /// Each symbol in turn: the right side of its row and the row's other symbols, summed.
    pub(super) fn evaluate(&mut self, found: &[Found]) {
        let large = self.symbols.len() > LARGE;
        if self.size == LINE && !large {
            return self.evaluate_lines(found);
        }
        for (at, &Found { symbol, row }) in found.iter().enumerate() {
            if large && let Some(next) = found.get(at + AHEAD) {
                self.fetch(next.row);
            }
            let neighbours = self.system.neighbours(row as usize);
            let own = neighbours.iter().position(|&v| v == symbol);
            let (before, after) = neighbours.split_at(own.unwrap_or(neighbours.len()));
            self.ids.clear();
            self.ids.extend_from_slice(before);
            self.ids
                .extend_from_slice(after.get(1..).unwrap_or_default());
            let start = side(self.system, self.received, self.size, row);
            sum_within(self.symbols, self.size, symbol, start, self.ids);
        }
    }

    /// The same for symbols of a cache line: a sum stays in registers, and costs less than a call.
    fn evaluate_lines(&mut self, found: &[Found]) {
        let lines = self.symbols.as_chunks_mut::<LINE>().0;
        for &Found { symbol, row } in found {
            let mut sum = match side(self.system, self.received, LINE, row) {
                Start::Bytes(bytes) => *bytes.first_chunk().expect("a symbol is a line"),
                _ => [0; LINE],
            };
            for &v in self.system.neighbours(row as usize) {
                add_line(&mut sum, &lines[usize::from(v)]);
            }
            // It is there once: what its place held before goes again.
            add_line(&mut sum, &lines[usize::from(symbol)]);
            lines[usize::from(symbol)] = sum;
        }
    }

    /// Elimination on the rows left over, with inactive symbols as unknowns.
    pub(super) fn solve_inactive(&mut self, inactivation: &mut Inactivation) {
        let size = self.size;
        let (rows, bits) = inactivation.system(self.system);
        let mut sides = vec![0; rows.len() * size];
        for (&row, out) in rows.iter().zip(sides.chunks_exact_mut(size)) {
            // Inactive symbols are zero as yet: they add nothing.
            let neighbours = self.system.neighbours(row as usize);
            let start = side(self.system, self.received, size, row);
            sum_into(out, start, self.symbols, neighbours);
        }
        let count = rows.len();
        solve_square(bits, count, |step| match step {
            Step::Swap(a, b) => {
                let (upper, lower) = sides.split_at_mut(b * size);
                upper[a * size..][..size].swap_with_slice(&mut lower[..size]);
            }
            Step::Add { to, from } => {
                sum_within(&mut sides, size, to as u16, Start::Out, &[from as u16]);
            }
        });
        for (&symbol, side) in inactivation.inactive().iter().zip(sides.chunks_exact(size)) {
            self.symbol_mut(symbol).copy_from_slice(side);
        }
    }

    /// Adds the inactive symbols to the source symbols of `found`, which were computed as if those
    /// were zero. Check nodes may stay as they are.
    pub(super) fn correct(&mut self, inactivation: &Inactivation, found: &[Found]) {
        let inactive = inactivation.inactive().len();
        let cost = |bits: usize| inactive.div_ceil(bits) * ((1 << bits) + found.len());
        let bits = (1..=MAX_BITS).min_by_key(|&bits| cost(bits)).unwrap_or(1);
        let degree = |found: &Found| self.system.neighbours(found.row as usize).len();
        let again: usize = found.iter().map(degree).sum();
        // The tables' rows have numbers of 16 bits.
        if self.size > 1 && cost(bits) < again && inactive << bits < 1 << 16 {
            self.add_inactive(inactivation, bits);
        } else {
            self.evaluate(found);
        }
    }

    /// The same by tables of all sums of `bits` inactive symbols each ("four Russians").
    fn add_inactive(&mut self, inactivation: &Inactivation, bits: usize) {
        let inactive = inactivation.inactive();
        let table = self.sums_of(inactive, bits);
        // They are sums of themselves like the others: zero before, their value after.
        self.clear(inactive);
        let symbols = self.symbols.chunks_exact_mut(self.size);
        for (symbol, out) in symbols.take(self.system.code.k()).enumerate() {
            let sum = inactivation.sum(symbol as u16);
            self.ids.clear();
            for first in (0..inactive.len()).step_by(bits) {
                let entry = field(sum, first, bits);
                if entry != 0 {
                    let group = first / bits;
                    self.ids.push((group << bits | entry) as u16);
                }
            }
            if !self.ids.is_empty() {
                sum_into(out, Start::Out, &table, self.ids);
            }
        }
    }

    /// All sums of the first `bits` symbols, of the next ones, …
    fn sums_of(&self, symbols: &[u16], bits: usize) -> Vec<u8> {
        let size = self.size;
        let rows = symbols.len().div_ceil(bits) << bits;
        let mut table = vec![0; rows * size];
        for (at, &symbol) in symbols.iter().enumerate() {
            let (first, count) = ((at / bits) << bits, 1 << (at % bits));
            let (without, with) = table[first * size..].split_at_mut(count * size);
            let pairs = without.chunks_exact(size).zip(with.chunks_exact_mut(size));
            for (without, with) in pairs {
                sum_into(with, Start::Bytes(without), self.symbols, &[symbol]);
            }
        }
        table
    }
}

/// What the sum of a row starts from: its right side.
fn side<'a>(system: &System<'_>, received: &'a [u8], size: usize, row: u32) -> Start<'a> {
    match system.symbol(row as usize) {
        Some(at) => Start::Bytes(&received[at * size..][..size]),
        None => Start::Zero,
    }
}

/// `count` bits of a row from bit `first` on; bits behind the last are zero.
fn field(row: &[u64], first: usize, count: usize) -> usize {
    let (word, shift) = (first / 64, first % 64);
    let above = row
        .get(word + 1)
        .map_or(0, |&next| next << 1 << (63 - shift));
    (row[word] >> shift | above) as usize & ((1 << count) - 1)
}

/// `symbols[target] ← start ⊕ Σ symbols[ids]`; the target is not among them.
fn sum_within(symbols: &mut [u8], size: usize, target: u16, start: Start<'_>, ids: &[u16]) {
    if size == 1 {
        let mut sum = [symbols[usize::from(target)]];
        sum_into(&mut sum, start, symbols, ids);
        symbols[usize::from(target)] = sum[0];
    } else {
        Kernel::best().sum_within(symbols, size, target, start, ids);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Packet;
    use super::super::{Degrees, LdpcDegrees, RaptorCode, RaptorParameters, State};
    use super::super::{peel::Peel, workspace::Workspace};
    use super::*;

    /// A block of which `percent` more symbols than source symbols arrive.
    struct Block {
        code: RaptorCode,
        source: Vec<u8>,
        received: Vec<u8>,
        workspace: Workspace,
    }

    impl Block {
        fn new(k: u32, symbol_size: u16, percent: u32, seed: u32) -> Self {
            let code = RaptorCode::new(RaptorParameters {
                k,
                n: k + 10 + k / 32,
                symbol_size,
                ldpc_degrees: LdpcDegrees::Constant(4),
                degrees: Degrees::Shokrollahi,
                precode: State::from_seed(seed),
            });
            let code = code.unwrap();
            let len = code.k() * code.symbol_size();
            let source: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            let symbols = k + 2 + k * percent / 100;
            let mut received = vec![0; symbols as usize * code.symbol_size()];
            let state = State::from_seed(seed);
            let encoder = code.encoder(source.clone()).unwrap();
            encoder.write_symbols(state, &mut received);
            let packets = [Packet { state, symbols }];
            let mut workspace = Workspace::default();
            assert!(workspace.cover(&code, &packets, symbols));
            let Workspace { graphs, block, .. } = &mut workspace;
            block.arrange(&graphs[0], &packets, &[]);
            block.number(&graphs[0], &packets);
            Self {
                code,
                source,
                received,
                workspace,
            }
        }

        /// Whether it decodes with inactive symbols; if so, corrected in every way it is the source.
        fn check(&self) -> bool {
            let (code, size) = (&self.code, self.code.symbol_size());
            let system = System {
                code,
                graph: &self.workspace.graphs[0],
                block: &self.workspace.block,
                one_byte: false,
            };
            let (mut peel, mut inactivation) = (Peel::<u64>::default(), Inactivation::default());
            peel.start(&system, true);
            if peel.unknown(code.k()) == 0 || !inactivation.solve(&system, &mut peel, 1000) {
                return false;
            }
            for bits in 0..=MAX_BITS {
                let mut symbols = vec![0xa5; code.n() * size];
                let mut bytes = Bytes {
                    system: &system,
                    size,
                    received: &self.received,
                    symbols: &mut symbols,
                    ids: &mut Vec::new(),
                };
                bytes.clear(inactivation.inactive());
                bytes.evaluate(peel.found());
                bytes.solve_inactive(&mut inactivation);
                if bits == 0 {
                    bytes.evaluate(&peel.found()[inactivation.peeled()..]);
                } else {
                    bytes.add_inactive(&inactivation, bits);
                }
                assert!(symbols[..self.source.len()] == self.source, "{bits} bits");
            }
            true
        }
    }

    #[test]
    fn corrected_symbols_are_those_computed_again() {
        let (mut seed, mut checked) = (1, 0);
        for k in [20, 70, 300, 1000, 2500] {
            for size in [2, 64, 100, 192] {
                for percent in [0, 1, 2, 5, 10] {
                    seed += 1;
                    println!("k {k} size {size} percent {percent} seed {seed}");
                    checked += u32::from(Block::new(k, size, percent, seed).check());
                }
            }
        }
        assert!(checked > 50, "{checked} of 100 blocks had inactive symbols");
    }

    #[test]
    fn fields_cross_words() {
        let row = [0xF000_0000_0000_0001, 0b101];
        assert_eq!(field(&row, 0, 6), 1);
        assert_eq!(field(&row, 60, 6), 0b01_1111);
        assert_eq!(field(&row, 62, 6), 0b01_0111);
        assert_eq!(field(&row, 64, 3), 0b101);
        assert_eq!(field(&row, 66, 6), 1);
    }
}
