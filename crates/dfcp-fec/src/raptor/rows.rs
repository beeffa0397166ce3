//! The rows of a block's linear system: one for each received symbol, then one for each check node.

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

/// A received symbol's row in one word: where its neighbours start, how many there are, which symbol
/// it was in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
struct Row(u64);

const DEGREE_BITS: u32 = 17;
const SYMBOL_BITS: u32 = 18;

impl Row {
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
    fn symbol(self) -> usize {
        self.0 as usize & ((1 << SYMBOL_BITS) - 1)
    }
}

/// LT rows by ascending degree; numbers above theirs are check nodes'.
#[derive(Debug, Default)]
pub(super) struct Rows {
    ids: Vec<u16>,
    /// In order of arrival: as drawn.
    drawn: Vec<Row>,
    sorted: Vec<Row>,
    counts: Vec<u32>,
}

impl Rows {
    /// Draws the rows of all packets. `limit` is the most symbols that a block takes.
    pub(super) fn expand(
        &mut self,
        code: &RaptorCode,
        draws: &mut Draws,
        packets: &[Packet],
        limit: u32,
    ) {
        self.ids.clear();
        self.drawn.clear();
        let (table, form) = (&code.0.degrees, &code.0.form);
        let most = (MOST_EXPANDED * f64::from(limit) * (1.0 + table.mean())) as usize;
        let mut symbol = 0;
        'all: for packet in packets {
            let expected = f64::from(packet.symbols) * (1.0 + table.mean());
            draws.restart(packet.state, expected as usize);
            let base = self.ids.len();
            let mut at = 0;
            for _ in 0..packet.symbols {
                draws.reserve(at + 1, form);
                let degree = draws.degree(at, table);
                let end = at + 1 + degree as usize;
                if base + end > most {
                    break 'all;
                }
                self.drawn.push(Row::new(base + at + 1, degree, symbol));
                symbol += 1;
                at = end;
            }
            // The outputs that drew degrees stay as gaps: copying around them would cost more.
            draws.reserve(at, form);
            self.ids.extend_from_slice(&draws.numbers()[..at]);
        }
        // A packet cut off by the limit has rows without neighbours.
        while self
            .drawn
            .last()
            .is_some_and(|row| row.start() + row.degree() as usize > self.ids.len())
        {
            self.drawn.pop();
        }
        self.sort(table.max());
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
        self.sorted.resize(self.drawn.len(), Row::default());
        for row in &self.drawn {
            let at = &mut self.counts[row.degree() as usize];
            self.sorted[*at as usize] = *row;
            *at += 1;
        }
    }

    /// LT rows.
    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The first LT row whose degree is above `degree`.
    pub(super) fn first_above(&self, degree: u32) -> usize {
        self.sorted.partition_point(|row| row.degree() <= degree)
    }

    /// Intermediate symbols that LT row `row` sums up, as drawn.
    #[inline(always)]
    pub(super) fn neighbours(&self, row: usize) -> &[u16] {
        let row = self.sorted[row];
        &self.ids[row.start()..][..row.degree() as usize]
    }

    /// Which received symbol LT row `row` is.
    #[inline(always)]
    pub(super) fn symbol(&self, row: usize) -> usize {
        self.sorted[row].symbol()
    }

    pub(super) fn memory(&self) -> usize {
        self.ids.capacity() * size_of::<u16>()
            + (self.drawn.capacity() + self.sorted.capacity()) * size_of::<Row>()
            + self.counts.capacity() * size_of::<u32>()
    }
}

/// All rows of a block: LT rows, then check nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct System<'a> {
    pub(super) code: &'a RaptorCode,
    pub(super) rows: &'a Rows,
    /// Received symbols one behind the other, if they have one byte each; otherwise empty: they
    /// do not matter for what can be solved.
    pub(super) bytes: &'a [u8],
}

impl System<'_> {
    /// Intermediate symbols of a row; some may be there twice.
    #[inline(always)]
    pub(super) fn neighbours(&self, row: usize) -> &[u16] {
        match row.checked_sub(self.rows.len()) {
            None => self.rows.neighbours(row),
            Some(check) => self.code.0.precode.nodes(check),
        }
    }

    /// Which received symbol a row's right side is; none, that is zero, for check nodes.
    pub(super) fn symbol(&self, row: usize) -> Option<usize> {
        (row < self.rows.len()).then(|| self.rows.symbol(row))
    }

    /// The right side, if it is one byte.
    #[inline(always)]
    pub(super) fn byte(&self, row: usize) -> u8 {
        if row < self.rows.len() && !self.bytes.is_empty() {
            self.bytes[self.rows.symbol(row)]
        } else {
            0
        }
    }

    /// LT rows and check nodes.
    pub(super) fn len(&self) -> usize {
        self.rows.len() + self.code.0.precode.checks()
    }
}
