//! The rows of a linear system: one for each LT symbol, by ascending degree.

use super::RaptorCode;
use super::draws::Draws;
use super::taus88::State;

/// Outputs expanded for a block, ÷ those that as many symbols as it takes need on average. Honest
/// streams stay far below; states picked for large degrees do not get more memory than that.
const MOST_EXPANDED: f64 = 2.0;

/// Symbols of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) state: State,
    pub(super) symbols: u32,
}

/// An LT symbol as drawn, in one word: where its neighbours start, how many there are, which symbol
/// it is, packet after packet.
#[derive(Clone, Copy, Debug, Default)]
struct Drawn(u64);

const DEGREE_BITS: u32 = 17;
const SYMBOL_BITS: u32 = 18;

impl Drawn {
    #[inline(always)]
    fn new(start: usize, degree: u32, symbol: u32) -> Self {
        let upper = (start as u64) << DEGREE_BITS | u64::from(degree);
        Self(upper << SYMBOL_BITS | u64::from(symbol))
    }

    #[inline(always)]
    fn start(self) -> usize {
        (self.0 >> (DEGREE_BITS + SYMBOL_BITS)) as usize
    }

    #[inline(always)]
    fn degree(self) -> u32 {
        (self.0 >> SYMBOL_BITS) as u32 & ((1 << DEGREE_BITS) - 1)
    }

    #[inline(always)]
    fn symbol(self) -> u32 {
        self.0 as u32 & ((1 << SYMBOL_BITS) - 1)
    }
}

/// LT rows by ascending degree, those of one degree in the packets' order.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Neighbours of row 0, of row 1, …
    ids: Vec<u16>,
    /// Where they start, and the end of the last.
    starts: Vec<u32>,
    /// XOR of the neighbours.
    numbers: Vec<u16>,
    /// Which symbol the row is, packet after packet.
    symbols: Vec<u32>,
    /// As drawn, packet after packet: outputs, and symbols among them.
    outputs: Vec<u16>,
    drawn: Vec<Drawn>,
    sorted: Vec<Drawn>,
    counts: Vec<u32>,
}

impl Rows {
    /// Draws the rows of all packets. `limit` is the most symbols that a block takes. False if there
    /// are more outputs than those of an honest stream: the last packets then have no rows.
    pub(super) fn expand(
        &mut self,
        code: &RaptorCode,
        draws: &mut Draws,
        packets: &[Packet],
        limit: u32,
    ) -> bool {
        let (table, form) = (&code.0.degrees, &code.0.form);
        let most = (MOST_EXPANDED * f64::from(limit) * (1.0 + table.mean())) as usize;
        self.outputs.clear();
        self.drawn.clear();
        let (mut symbol, mut whole) = (0, true);
        'all: for packet in packets {
            let expected = f64::from(packet.symbols) * (1.0 + table.mean());
            draws.restart(packet.state, expected as usize);
            let base = self.outputs.len();
            let mut at = 0;
            for _ in 0..packet.symbols {
                draws.reserve(at + 1, form);
                let degree = draws.degree(at, table);
                let end = at + 1 + degree as usize;
                if base + end > most {
                    whole = false;
                    break 'all;
                }
                self.drawn.push(Drawn::new(base + at + 1, degree, symbol));
                symbol += 1;
                at = end;
            }
            // The outputs that drew degrees stay as gaps: copying around them would cost more.
            draws.reserve(at, form);
            self.outputs.extend_from_slice(&draws.numbers()[..at]);
        }
        // A packet cut off by the limit has rows without neighbours.
        let len = self.outputs.len();
        while self
            .drawn
            .pop_if(|row| row.start() + row.degree() as usize > len)
            .is_some()
        {}
        self.sort(table.max());
        self.lay_out();
        whole
    }

    /// Counting sort by degree; symbols of one degree stay in order.
    fn sort(&mut self, max_degree: u32) {
        self.counts.clear();
        self.counts.resize(max_degree as usize + 2, 0);
        for row in &self.drawn {
            self.counts[row.degree() as usize + 1] += 1;
        }
        for degree in 1..self.counts.len() {
            self.counts[degree] += self.counts[degree - 1];
        }
        self.sorted.resize(self.drawn.len(), Drawn::default());
        for row in &self.drawn {
            let at = &mut self.counts[row.degree() as usize];
            self.sorted[*at as usize] = *row;
            *at += 1;
        }
    }

    /// Writes down everything about the rows in their order.
    fn lay_out(&mut self) {
        self.ids.clear();
        self.starts.clear();
        self.numbers.clear();
        self.symbols.clear();
        for row in &self.sorted {
            self.starts.push(self.ids.len() as u32);
            self.symbols.push(row.symbol());
            let neighbours = &self.outputs[row.start()..][..row.degree() as usize];
            let mut numbers = 0;
            for &v in neighbours {
                numbers ^= v;
                self.ids.push(v);
            }
            self.numbers.push(numbers);
        }
        self.starts.push(self.ids.len() as u32);
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.symbols.len()
    }

    #[inline(always)]
    fn degree(&self, row: usize) -> usize {
        (self.starts[row + 1] - self.starts[row]) as usize
    }

    /// The first row whose degree is above `degree`.
    pub(super) fn first_above(&self, degree: usize) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.degree(middle) <= degree {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Rows `from` to `to` in runs of one degree each, which is not zero.
    pub(super) fn runs(&self, from: usize, to: usize) -> impl Iterator<Item = Run<'_>> {
        let mut first = from;
        std::iter::from_fn(move || {
            if first >= to {
                return None;
            }
            let degree = self.degree(first);
            let rows = first..self.first_above(degree).min(to);
            first = rows.end;
            Some(Run {
                degree,
                numbers: &self.numbers[rows.clone()],
                symbols: &self.symbols[rows.clone()],
                ids: &self.ids[self.starts[rows.start] as usize..self.starts[rows.end] as usize],
                rows,
            })
        })
    }

    /// Intermediate symbols that a row sums up, as drawn; some may be there twice.
    #[inline(always)]
    pub(super) fn neighbours(&self, row: usize) -> &[u16] {
        &self.ids[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// Neighbours of all rows, one row after the other.
    pub(super) fn ids(&self) -> &[u16] {
        &self.ids
    }

    /// Which symbol a row is, packet after packet.
    #[inline(always)]
    pub(super) fn symbol(&self, row: usize) -> usize {
        self.symbols[row] as usize
    }

    pub(super) fn memory(&self) -> usize {
        (self.ids.capacity() + self.numbers.capacity() + self.outputs.capacity()) * size_of::<u16>()
            + (self.starts.capacity() + self.symbols.capacity() + self.counts.capacity())
                * size_of::<u32>()
            + (self.drawn.capacity() + self.sorted.capacity()) * size_of::<Drawn>()
    }
}

/// Rows of one degree.
#[derive(Clone, Debug)]
pub(super) struct Run<'a> {
    pub(super) rows: std::ops::Range<usize>,
    pub(super) degree: usize,
    /// By row: XOR of the neighbours, and which symbol it is.
    pub(super) numbers: &'a [u16],
    pub(super) symbols: &'a [u32],
    /// Neighbours of one row after the other.
    pub(super) ids: &'a [u16],
}
