//! Peeling (belief propagation over the erasure channel): a row with one unknown symbol gives that
//! symbol, which is then taken out of all rows it is in.
//!
//! A row's state is one word: the XOR of the numbers of its unknown symbols, the XOR of its right
//! side and its known symbols if symbols are one byte, and how many of its symbols are unknown. One
//! XOR and one subtraction take a symbol out, and with one left, its number stands there plainly.
//!
//! Rows of large degree give nothing before most symbols are known. They join in stages, once those
//! of smaller degree are exhausted: what is known by then costs a look-up, not an update. The order
//! does not matter for what is solved in the end.

use super::rows::System;

/// Degrees up to which rows join in each stage; the last stage has the check nodes too.
const STAGES: [u32; 3] = [9, 30, u32::MAX];

/// End of a list.
const NONE: u32 = u32::MAX;

/// Bits of a key: number above, value of one byte below, eight bits free.
const NUMBER_SHIFT: u32 = 16;
const VALUE_SHIFT: u32 = 8;

/// In a cell: the symbol is unknown.
const UNKNOWN: u32 = 1;

/// State of a row: a key (number and value XORed) and a degree.
pub(super) trait Word: Copy + Default + std::fmt::Debug {
    /// Largest degree.
    const MAX_DEGREE: usize;
    fn new(key: u32, degree: u32) -> Self;
    fn key(self) -> u32;
    fn degree(self) -> u32;
    /// Takes one symbol out. The degree must not be zero.
    fn without(self, key: u32) -> Self;
}

impl Word for u32 {
    const MAX_DEGREE: usize = 255;

    #[inline(always)]
    fn new(key: u32, degree: u32) -> Self {
        key | degree
    }
    #[inline(always)]
    fn key(self) -> u32 {
        self & !0xff
    }
    #[inline(always)]
    fn degree(self) -> u32 {
        self & 0xff
    }
    #[inline(always)]
    fn without(self, key: u32) -> Self {
        (self ^ key) - 1
    }
}

impl Word for u64 {
    const MAX_DEGREE: usize = u32::MAX as usize;

    #[inline(always)]
    fn new(key: u32, degree: u32) -> Self {
        u64::from(key) << 32 | u64::from(degree)
    }
    #[inline(always)]
    fn key(self) -> u32 {
        (self >> 32) as u32
    }
    #[inline(always)]
    fn degree(self) -> u32 {
        self as u32
    }
    #[inline(always)]
    fn without(self, key: u32) -> Self {
        (self ^ u64::from(key) << 32) - 1
    }
}

/// Number that a key holds.
#[inline(always)]
fn number(key: u32) -> u16 {
    (key >> NUMBER_SHIFT) as u16
}

/// See the module's text. After [`start`](Self::start) a row is in exactly as many lists as its
/// state's degree says.
#[derive(Debug, Default)]
pub(super) struct Peel<W> {
    rows: Vec<W>,
    /// By symbol: its number and [`UNKNOWN`], or its value.
    cells: Vec<u32>,
    /// Rows of the first stage by symbol, in one array.
    starts: Vec<u32>,
    lists: Vec<u32>,
    /// Rows of later stages by symbol, in linked lists.
    heads: Vec<u32>,
    links: Vec<Link>,
    /// Rows that have or had one unknown symbol, each once. `front` are done, those up to `back` wait.
    queue: Vec<u32>,
    front: usize,
    back: usize,
    /// Unknown symbols of a row that joins.
    unknown: Vec<u16>,
    /// Which symbol was found from which row, in order.
    found: Vec<Found>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    row: u32,
    next: u32,
}

/// A symbol and the row that gave it: all other symbols of the row were known before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) symbol: u16,
    pub(super) row: u32,
}

impl<W: Word> Peel<W> {
    /// Peels as far as it goes.
    pub(super) fn start(&mut self, system: &System<'_>) {
        let n = system.code.n();
        self.cells.clear();
        self.cells
            .extend((0..n as u32).map(|v| v << NUMBER_SHIFT | UNKNOWN));
        self.rows.clear();
        self.rows.resize(system.len(), W::default());
        self.heads.clear();
        self.heads.resize(n, NONE);
        self.links.clear();
        self.queue.clear();
        // One more: the place behind the last is written to, though not kept.
        self.queue.resize(system.len() + 1, 0);
        (self.front, self.back) = (0, 0);
        self.found.clear();
        self.first_stage(system);
        self.run();
        for stages in STAGES.windows(2) {
            let first = system.rows.first_above(stages[0]);
            for row in first..system.rows.first_above(stages[1]) {
                self.join(system, row);
            }
            self.run();
        }
        if self.found.len() < n {
            for row in system.rows.len()..system.len() {
                self.join(system, row);
            }
            self.run();
        }
    }

    /// Nothing is known: states from the neighbours alone, lists by counting sort.
    fn first_stage(&mut self, system: &System<'_>) {
        let n = system.code.n();
        let end = system.rows.first_above(STAGES[0]);
        self.starts.clear();
        self.starts.resize(n + 1, 0);
        for row in 0..end {
            let neighbours = system.rows.neighbours(row);
            let mut numbers = 0;
            for &v in neighbours {
                numbers ^= v;
                self.starts[usize::from(v)] += 1;
            }
            let key =
                u32::from(numbers) << NUMBER_SHIFT | u32::from(system.byte(row)) << VALUE_SHIFT;
            self.rows[row] = W::new(key, neighbours.len() as u32);
            self.push_if(row as u32, neighbours.len() == 1);
        }
        // Ends first; filling from the back turns them into starts.
        let mut sum = 0;
        for count in &mut self.starts {
            sum += *count;
            *count = sum;
        }
        self.lists.resize(sum as usize, 0);
        for row in 0..end {
            for &v in system.rows.neighbours(row) {
                let at = &mut self.starts[usize::from(v)];
                *at -= 1;
                self.lists[*at as usize] = row as u32;
            }
        }
    }

    /// A row of a later stage joins: what is known is taken out of it first.
    fn join(&mut self, system: &System<'_>, row: usize) {
        let neighbours = system.neighbours(row);
        if self.unknown.len() < neighbours.len() + 1 {
            self.unknown.resize(neighbours.len() + 1, 0);
        }
        let (mut sum, mut degree) = (u32::from(system.byte(row)) << VALUE_SHIFT, 0);
        for &v in neighbours {
            let cell = self.cells[usize::from(v)];
            sum ^= cell;
            self.unknown[degree] = v;
            degree += (cell & UNKNOWN) as usize;
        }
        self.rows[row] = W::new(sum & !0xff, degree as u32);
        self.push_if(row as u32, degree == 1);
        for &v in &self.unknown[..degree] {
            let head = &mut self.heads[usize::from(v)];
            self.links.push(Link {
                row: row as u32,
                next: *head,
            });
            *head = self.links.len() as u32 - 1;
        }
    }

    /// Every row gets into the queue once: when its degree becomes one.
    #[inline(always)]
    fn push_if(&mut self, row: u32, condition: bool) {
        self.queue[self.back] = row;
        self.back += usize::from(condition);
    }

    /// Works the queue off.
    fn run(&mut self) {
        while self.front < self.back {
            let row = self.queue[self.front];
            self.front += 1;
            let state = self.rows[row as usize];
            // Zero if another row gave the same symbol meanwhile.
            if state.degree() != 1 {
                continue;
            }
            let symbol = number(state.key());
            self.found.push(Found { symbol, row });
            self.take_out(symbol, state.key());
        }
    }

    /// `symbol` is known: key and value leave all rows.
    #[inline(always)]
    fn take_out(&mut self, symbol: u16, key: u32) {
        let v = usize::from(symbol);
        self.cells[v] = key & 0xff00;
        for at in self.starts[v]..self.starts[v + 1] {
            self.update(self.lists[at as usize], key);
        }
        let mut at = self.heads[v];
        while at != NONE {
            let link = self.links[at as usize];
            self.update(link.row, key);
            at = link.next;
        }
    }

    #[inline(always)]
    fn update(&mut self, row: u32, key: u32) {
        let state = self.rows[row as usize].without(key);
        self.rows[row as usize] = state;
        self.push_if(row, state.degree() == 1);
    }

    /// Takes a symbol as known with value zero and goes on peeling.
    pub(super) fn assume(&mut self, symbol: u16) {
        self.take_out(symbol, u32::from(symbol) << NUMBER_SHIFT);
        self.run();
    }

    pub(super) fn is_unknown(&self, symbol: u16) -> bool {
        self.cells[usize::from(symbol)] & UNKNOWN != 0
    }

    /// Unknown symbols among the first `count`.
    pub(super) fn unknown(&self, count: usize) -> usize {
        let unknown = self.cells[..count]
            .iter()
            .map(|cell| (cell & UNKNOWN) as usize);
        unknown.sum()
    }

    /// Unknown symbols of a row, a symbol twice in it counted twice.
    pub(super) fn degree(&self, row: usize) -> u32 {
        self.rows[row].degree()
    }

    /// XOR of the numbers of a row's unknown symbols.
    pub(super) fn numbers(&self, row: usize) -> u16 {
        number(self.rows[row].key())
    }

    /// Values of the first symbols, if they are one byte.
    pub(super) fn copy_values(&self, out: &mut [u8]) {
        for (out, cell) in out.iter_mut().zip(&self.cells) {
            *out = (cell >> VALUE_SHIFT) as u8;
        }
    }

    /// What was found, in order.
    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    pub(super) fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<W>()
            + (self.cells.capacity()
                + self.starts.capacity()
                + self.lists.capacity()
                + self.heads.capacity()
                + self.queue.capacity())
                * size_of::<u32>()
            + self.links.capacity() * size_of::<Link>()
            + self.unknown.capacity() * size_of::<u16>()
            + self.found.capacity() * size_of::<Found>()
    }
}
