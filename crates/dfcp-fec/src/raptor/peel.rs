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
const STAGES: [u32; 4] = [5, 9, 30, u32::MAX];

/// End of a list.
const NONE: u32 = u32::MAX;

/// Bits of a key: number above, value of one byte below, eight bits free.
const NUMBER_SHIFT: u32 = 16;
const VALUE_SHIFT: u32 = 8;

/// In a cell: the symbol is unknown.
const UNKNOWN: u16 = 0x100;

/// Rows worked off together: the processor waits for their memory once, not one after the other.
const BATCH: usize = 32;

/// Rows whose symbols' places are fetched ahead of the row at hand.
const AHEAD: usize = 24;

/// Rows of a symbol that are kept in its own place; most have no more.
const SLOTS: usize = 7;

/// The rows that a symbol is in, as far as 16 bits name them and there is room; then how many these
/// are, and whether there are others.
type Place = [u16; SLOTS + 1];

/// In the last word of a [`Place`]: other rows are in a linked list.
const LINKED: u16 = 0x8000;

/// State of a row: a key (number and value XORed) and a degree.
pub(super) trait Word: Copy + Default + std::fmt::Debug {
    /// Largest degree.
    const MAX_DEGREE: usize;
    fn new(key: u32, degree: u32) -> Self;
    fn key(self) -> u32;
    fn degree(self) -> u32;
    /// Puts one symbol in. The degree must be below the largest.
    fn with(self, key: u32) -> Self;
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
    fn with(self, key: u32) -> Self {
        (self ^ key) + 1
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
    fn with(self, key: u32) -> Self {
        (self ^ u64::from(key) << 32) + 1
    }
    #[inline(always)]
    fn without(self, key: u32) -> Self {
        (self ^ u64::from(key) << 32) - 1
    }
}

/// Fetches what will be read or written soon.
#[inline(always)]
#[allow(unsafe_code)]
fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, and every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Puts `row` into the list of `v`.
#[cold]
fn link(heads: &mut [u32], links: &mut Vec<Link>, v: u16, row: u32) {
    let head = &mut heads[usize::from(v)];
    links.push(Link { row, next: *head });
    *head = links.len() as u32 - 1;
}

/// A key of a number and a value.
#[inline(always)]
fn key(number: u16, value: u8) -> u32 {
    u32::from(number) << NUMBER_SHIFT | u32::from(value) << VALUE_SHIFT
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
    /// By symbol: [`UNKNOWN`], or its value.
    cells: Vec<u16>,
    /// Rows by symbol: no address depends on another symbol's number of rows, so that a symbol costs
    /// one wait for memory.
    places: Vec<Place>,
    /// The other rows by symbol, in linked lists.
    heads: Vec<u32>,
    links: Vec<Link>,
    /// Rows that have or had one unknown symbol, each once. `front` are done, those up to `back` wait.
    queue: Vec<u32>,
    front: usize,
    back: usize,
    /// Unknown symbols of a row that joins.
    unknown: Vec<u16>,
    /// Sums of known symbols by check node.
    values: Vec<u8>,
    /// Which symbol was found from which row, in order.
    found: Vec<Found>,
    /// Rows to take symbols out of, and the symbols' keys.
    edges: Vec<Edge>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    row: u32,
    key: u32,
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
        self.cells.resize(n, UNKNOWN);
        self.places.clear();
        self.places.resize(n, Place::default());
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
        let mut first = system.rows.first_above(STAGES[0]);
        self.join_first(system, first);
        self.run();
        for &degree in &STAGES[1..] {
            let end = system.rows.first_above(degree);
            for row in first..end {
                self.join(system, row);
            }
            self.run();
            first = end;
        }
        if self.found.len() < n {
            self.join_checks(system);
            self.run();
        }
    }

    /// Rows of the first stage join: nothing is known.
    fn join_first(&mut self, system: &System<'_>, end: usize) {
        let places = &mut self.places[..];
        // Rows that 16 bits name; the others do not fit a place.
        for row in 0..end.min(1 << 16) {
            if row + AHEAD < end {
                for &v in system.rows.neighbours(row + AHEAD) {
                    prefetch(&places[usize::from(v)]);
                }
            }
            let neighbours = system.rows.neighbours(row);
            let mut numbers = 0;
            for &v in neighbours {
                numbers ^= v;
                let place = &mut places[usize::from(v)];
                let count = place[SLOTS];
                if usize::from(count) < SLOTS {
                    place[usize::from(count)] = row as u16;
                    place[SLOTS] = count + 1;
                } else {
                    // The count stays for now: the mark comes when all are in.
                    link(&mut self.heads, &mut self.links, v, row as u32);
                }
            }
            let key = key(numbers, system.byte(row));
            self.rows[row] = W::new(key, neighbours.len() as u32);
            self.queue[self.back] = row as u32;
            self.back += usize::from(neighbours.len() == 1);
        }
        for (place, &head) in self.places.iter_mut().zip(&self.heads) {
            place[SLOTS] |= if head == NONE { 0 } else { LINKED };
        }
        for row in 1 << 16..end {
            self.join(system, row);
        }
    }

    /// A row of a later stage joins: what is known is taken out of it first.
    fn join(&mut self, system: &System<'_>, row: usize) {
        let neighbours = system.rows.neighbours(row);
        if self.unknown.len() < neighbours.len() + 1 {
            self.unknown.resize(neighbours.len() + 1, 0);
        }
        let (mut values, mut numbers, mut degree) = (u16::from(system.byte(row)), 0, 0);
        for &v in neighbours {
            let cell = self.cells[usize::from(v)];
            values ^= cell;
            // All ones if the symbol is unknown.
            numbers ^= v & (cell >> 8).wrapping_neg();
            self.unknown[degree] = v;
            degree += usize::from(cell >> 8);
        }
        self.rows[row] = W::new(key(numbers, values as u8), degree as u32);
        self.push_if(row as u32, degree == 1);
        for at in 0..degree {
            self.insert(self.unknown[at], row as u32);
        }
    }

    /// All check nodes join. They are most of the edges, and few of these are left: known symbols
    /// are summed by check node, unknown ones put in by symbol.
    fn join_checks(&mut self, system: &System<'_>) {
        let (precode, first) = (&system.code.0.precode, system.rows.len());
        let k = system.code.k();
        self.values.clear();
        self.values.resize(precode.checks(), 0);
        if !system.bytes.is_empty() {
            let (messages, checks) = self.cells.split_at(k);
            let own = self.values.iter_mut().zip(checks);
            own.for_each(|(value, cell)| *value = *cell as u8);
            precode.add_bytes(messages.iter().map(|&cell| cell as u8), &mut self.values);
        }
        for (row, &sum) in self.rows[first..].iter_mut().zip(&self.values) {
            *row = W::new(key(0, sum), 0);
        }
        for v in 0..self.cells.len() as u32 {
            if self.cells[v as usize] != UNKNOWN {
                continue;
            }
            let own = (v as usize).checked_sub(k).map(|check| check as u16);
            let checks = match &own {
                Some(check) => std::slice::from_ref(check),
                None => precode.checks_of(v as usize),
            };
            for &check in checks {
                let row = first + usize::from(check);
                self.rows[row] = self.rows[row].with(key(v as u16, 0));
                self.insert(v as u16, row as u32);
            }
        }
        for row in first..system.len() {
            self.push_if(row as u32, self.rows[row].degree() == 1);
        }
    }

    /// `row` has the unknown symbol `v`.
    #[inline(always)]
    fn insert(&mut self, v: u16, row: u32) {
        let place = &mut self.places[usize::from(v)];
        let count = place[SLOTS];
        match u16::try_from(row) {
            Ok(row) if usize::from(count & !LINKED) < SLOTS => {
                place[usize::from(count & !LINKED)] = row;
                place[SLOTS] = count + 1;
            }
            _ => {
                place[SLOTS] = count | LINKED;
                link(&mut self.heads, &mut self.links, v, row);
            }
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
            let mut ready = [Edge::default(); BATCH];
            let mut count = 0;
            let end = self.back.min(self.front + BATCH);
            for &row in &self.queue[self.front..end] {
                let state = self.rows[row as usize];
                ready[count] = Edge {
                    row,
                    key: state.key(),
                };
                // Zero if another row gave the same symbol meanwhile.
                count += usize::from(state.degree() == 1);
            }
            self.front = end;
            // Short enough a loop that all places are fetched at once.
            let touch = |sum, edge: &Edge| sum ^ self.places[usize::from(number(edge.key))][SLOTS];
            std::hint::black_box(ready[..count].iter().fold(0, touch));
            let mut edges = 0;
            for Edge { row, key } in ready.into_iter().take(count) {
                let symbol = number(key);
                // Two rows of a batch may give the same symbol.
                if self.is_unknown(symbol) {
                    self.found.push(Found { symbol, row });
                    edges = self.know(key, edges);
                }
            }
            self.update(edges);
        }
    }

    /// The symbol of `key` is known: adds the rows it is in to the first `edges`.
    #[inline(always)]
    fn know(&mut self, key: u32, edges: usize) -> usize {
        let v = usize::from(number(key));
        self.cells[v] = (key >> VALUE_SHIFT) as u16 & 0xff;
        let place = &self.places[v];
        if self.edges.len() < edges + SLOTS {
            self.edges
                .resize(2 * edges + BATCH * SLOTS, Edge::default());
        }
        // All slots, full or not: a branch less to guess. What follows overwrites the others.
        let to = &mut self.edges[edges..edges + SLOTS];
        for (edge, &row) in to.iter_mut().zip(place) {
            *edge = Edge {
                row: row.into(),
                key,
            };
        }
        let count = usize::from(place[SLOTS] & !LINKED);
        if place[SLOTS] & LINKED == 0 {
            edges + count
        } else {
            self.follow(key, edges + count)
        }
    }

    /// Adds the rows in the list of the symbol of `key`.
    fn follow(&mut self, key: u32, mut edges: usize) -> usize {
        let mut link = self.heads[usize::from(number(key))];
        while link != NONE {
            let Link { row, next } = self.links[link as usize];
            if self.edges.len() == edges {
                self.edges.resize(2 * edges + SLOTS, Edge::default());
            }
            self.edges[edges] = Edge { row, key };
            edges += 1;
            link = next;
        }
        edges
    }

    /// Takes symbols out of rows.
    fn update(&mut self, edges: usize) {
        let (rows, queue) = (&mut self.rows[..], &mut self.queue[..]);
        let mut back = self.back;
        for &Edge { row, key } in &self.edges[..edges] {
            let state = rows[row as usize].without(key);
            rows[row as usize] = state;
            queue[back] = row;
            back += usize::from(state.degree() == 1);
        }
        self.back = back;
    }

    /// Takes a symbol as known with value zero and goes on peeling.
    pub(super) fn assume(&mut self, symbol: u16) {
        let edges = self.know(key(symbol, 0), 0);
        self.update(edges);
        self.run();
    }

    pub(super) fn is_unknown(&self, symbol: u16) -> bool {
        self.cells[usize::from(symbol)] == UNKNOWN
    }

    /// Unknown symbols among the first `count`.
    pub(super) fn unknown(&self, count: usize) -> usize {
        let cells = self.cells[..count].iter();
        cells.filter(|&&cell| cell == UNKNOWN).count()
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
            *out = *cell as u8;
        }
    }

    /// What was found, in order.
    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    pub(super) fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<W>()
            + self.cells.capacity() * size_of::<u16>()
            + self.edges.capacity() * size_of::<Edge>()
            + self.places.capacity() * size_of::<Place>()
            + (self.heads.capacity() + self.queue.capacity()) * size_of::<u32>()
            + self.values.capacity()
            + self.links.capacity() * size_of::<Link>()
            + self.unknown.capacity() * size_of::<u16>()
            + self.found.capacity() * size_of::<Found>()
    }
}
