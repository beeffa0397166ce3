//! Peeling (belief propagation over the erasure channel): a row with one unknown symbol gives that
//! symbol, which is then taken out of all rows it is in.
//!
//! A row's state is one word: the XOR of the numbers of its unknown symbols, the XOR of its right
//! side and its known symbols if symbols are one byte, and how many of its symbols are unknown. One
//! XOR and one subtraction take a symbol out, and with one left, its number stands there plainly.
//!
//! Rows of large degree give nothing before most symbols are known. They join in stages, once those
//! of smaller degree are exhausted: what is known by then costs a look-up, not an update, and a
//! symbol found is taken out of rows that have joined alone. Check nodes, the largest of all, come
//! last and have no values: few of them give a symbol, whose value is summed up then. The order does
//! not matter for what is solved in the end.

use super::MAX_LDPC_DEGREE;
use super::graph::{
    COUNT_SHIFT, GOES_ON, LONG, Later, MISSING, MORE, More, STAGES, System, UNKNOWN,
};
use super::rows::Run;

/// The stage in which check nodes join.
const CHECKS: usize = STAGES;

/// Bits of a key: number above, value of one byte below, eight bits free.
const NUMBER_SHIFT: u32 = 16;
const VALUE_SHIFT: u32 = 8;

/// Rows worked off together: the processor waits for their memory once, not one after the other.
const BATCH: usize = 64;

/// Rows of a symbol beyond its place that are read at once.
const CHUNK: usize = 8;

/// State of a row: a key (number and value XORed) and a degree.
pub(super) trait Word: Copy + Default + std::fmt::Debug {
    /// Largest degree of LT rows, and of check nodes.
    const MAX_DEGREES: [usize; 2];
    fn new(key: u32, degree: u32) -> Self;
    /// A row that nothing was taken out of, or a missing one, whose degree never gets near one.
    fn whole(number: u16, side: u16, degree: u32) -> Self;
    fn key(self) -> u32;
    fn degree(self) -> u32;
    /// Whether an LT row is missing.
    fn is_missing(self) -> bool;
    /// Puts one symbol in. The degree must be below the largest.
    fn with(self, key: u32) -> Self;
    /// Takes one symbol out. The degree must not be zero.
    fn without(self, key: u32) -> Self;
}

impl Word for u32 {
    // Bit 7 is for missing LT rows.
    const MAX_DEGREES: [usize; 2] = [127, 255];

    #[inline(always)]
    fn new(key: u32, degree: u32) -> Self {
        key | degree
    }
    #[inline(always)]
    fn whole(number: u16, side: u16, degree: u32) -> Self {
        u32::from(number) << NUMBER_SHIFT | u32::from(side) | degree
    }
    #[inline(always)]
    fn key(self) -> u32 {
        self & !0xff
    }
    #[inline(always)]
    fn degree(self) -> u32 {
        self & 0xff
    }
    fn is_missing(self) -> bool {
        self & u32::from(MISSING) != 0
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

/// Of a missing row; all degrees are below.
const MISSING_WIDE: u64 = 1 << 31;

impl Word for u64 {
    const MAX_DEGREES: [usize; 2] = [(1 << 31) - 1; 2];

    #[inline(always)]
    fn new(key: u32, degree: u32) -> Self {
        u64::from(key) << 32 | u64::from(degree)
    }
    #[inline(always)]
    fn whole(number: u16, side: u16, degree: u32) -> Self {
        let missing = if side == MISSING { MISSING_WIDE } else { 0 };
        Self::new(key(number, (side >> VALUE_SHIFT) as u8), degree) | missing
    }
    #[inline(always)]
    fn key(self) -> u32 {
        (self >> 32) as u32
    }
    #[inline(always)]
    fn degree(self) -> u32 {
        self as u32
    }
    fn is_missing(self) -> bool {
        self & MISSING_WIDE != 0
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

/// Symbols that 16 bits name.
const ALL: usize = 1 << 16;

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

/// A row to take a symbol out of, below, and the symbol's key, above.
type Edge = u64;

#[inline(always)]
fn edge(key: u32, row: u32) -> Edge {
    u64::from(key) << 32 | u64::from(row)
}

/// A symbol and the row that gave it: all other symbols of the row were known before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) symbol: u16,
    pub(super) row: u32,
}

/// Keys of symbols that are known now, and the rows that gave them.
struct Ready {
    keys: [u32; BATCH],
    rows: [u32; BATCH],
    count: usize,
    /// Edges to what a place has no room for; of no meaning outside [`Peel::take`].
    long: [Edge; BATCH],
}

impl Ready {
    fn new() -> Self {
        Self {
            keys: [0; BATCH],
            rows: [0; BATCH],
            count: 0,
            long: [0; BATCH],
        }
    }
}

/// See the module's text. After [`start`](Self::start) a row's degree says how many of its symbols are
/// unknown, but for missing rows.
#[derive(Debug, Default)]
pub(super) struct Peel<W> {
    rows: Vec<W>,
    /// By symbol: its value, or [`UNKNOWN`] and what its place holds. As many as 16 bits name: no
    /// bound has to be checked then.
    cells: Vec<u16>,
    /// LT rows.
    lt: usize,
    /// Rows that have or had one unknown symbol, each once. `front` are done, those up to `back` wait.
    queue: Vec<u32>,
    front: usize,
    back: usize,
    /// Unknown symbols.
    unknown: usize,
    /// Which symbol was found from which row, in order, if `records` says so.
    found: Vec<Found>,
    records: bool,
    /// What is taken out of rows at once. The last chunk may be full or not.
    edges: Vec<Edge>,
}

impl<W: Word> Peel<W> {
    /// Peels as far as it goes. `records` asks for what was [`found`](Self::found) up to then.
    pub(super) fn start(&mut self, system: &System<'_>, records: bool) {
        let graph = system.graph;
        self.cells.clear();
        self.cells.extend_from_slice(&graph.cells);
        self.unknown = self.cells.len();
        self.cells.resize(ALL, 0);
        self.lt = graph.rows.len();
        // Every row is written when it joins.
        self.rows.resize(system.len(), W::default());
        // One more: the place behind the last is written to, though not kept.
        self.queue.resize(system.len() + 1, 0);
        (self.front, self.back) = (0, 0);
        self.found.clear();
        self.records = records;
        for run in graph.rows.runs(0, graph.ends[0]) {
            self.join_first(system, &run);
        }
        self.run::<0>(system);
        self.join_stage::<1>(system);
        self.join_stage::<2>(system);
        self.join_stage::<3>(system);
        if self.unknown > 0 {
            self.join_checks(system);
            self.run::<CHECKS>(system);
        }
    }

    /// Rows of the first stage join: nothing is known.
    fn join_first(&mut self, system: &System<'_>, run: &Run<'_>) {
        let (sides, degree) = (&system.block.sides[..], run.degree as u32);
        let rows = &mut self.rows[run.rows.clone()];
        for ((row, &number), &symbol) in rows.iter_mut().zip(run.numbers).zip(run.symbols) {
            *row = W::whole(number, sides[symbol as usize], degree);
        }
        if degree == 1 {
            for row in run.rows.clone() {
                self.push_if(row as u32, self.rows[row].degree() == 1);
            }
        }
    }

    /// Rows of a later stage join, and peeling goes on.
    fn join_stage<const STAGE: usize>(&mut self, system: &System<'_>) {
        let ends = &system.graph.ends;
        for run in system.graph.rows.runs(ends[STAGE - 1], ends[STAGE]) {
            self.join(system, &run);
        }
        self.run::<STAGE>(system);
    }

    /// Rows join: what is known is taken out of them first.
    fn join(&mut self, system: &System<'_>, run: &Run<'_>) {
        let sides = &system.block.sides[..];
        let cells: &[u16; ALL] = self.cells[..].try_into().expect("as many as 16 bits name");
        let (rows, queue) = (&mut self.rows[run.rows.clone()], &mut self.queue[..]);
        let mut back = self.back;
        let lists = run.ids.chunks_exact(run.degree);
        let symbols = run.symbols.iter().zip(run.rows.clone());
        for ((row, (&symbol, at)), list) in rows.iter_mut().zip(symbols).zip(lists) {
            let side = sides[symbol as usize];
            if side == MISSING {
                *row = W::whole(0, MISSING, run.degree as u32);
                continue;
            }
            let (mut values, mut numbers, mut degree) = (0, 0, 0);
            for &v in list {
                let cell = cells[usize::from(v)];
                values ^= cell;
                // All ones if the symbol is unknown.
                numbers ^= v & (cell >> 15).wrapping_neg();
                degree += u32::from(cell >> 15);
            }
            *row = W::new(
                key(numbers, values as u8 ^ (side >> VALUE_SHIFT) as u8),
                degree,
            );
            queue[back] = at as u32;
            back += usize::from(degree == 1);
        }
        self.back = back;
    }

    /// All check nodes join, as far as their symbols are unknown: few are.
    fn join_checks(&mut self, system: &System<'_>) {
        self.rows[self.lt..].fill(W::default());
        for (chunk, cells) in self.cells.chunks(BATCH).enumerate() {
            if cells.iter().fold(0, |any, cell| any | cell) < UNKNOWN {
                continue;
            }
            for (v, _) in (chunk * BATCH..)
                .zip(cells)
                .filter(|&(_, &cell)| cell >= UNKNOWN)
            {
                for &check in checks_of(v, system, &mut [0]) {
                    let row = &mut self.rows[self.lt + usize::from(check)];
                    *row = row.with(key(v as u16, 0));
                }
            }
        }
        for row in self.lt..system.len() {
            self.push_if(row as u32, self.rows[row].degree() == 1);
        }
    }

    /// Every row gets into the queue once: when its degree becomes one.
    #[inline(always)]
    fn push_if(&mut self, row: u32, condition: bool) {
        self.queue[self.back] = row;
        self.back += usize::from(condition);
    }

    /// Works the queue off.
    #[inline(never)]
    fn run<const STAGE: usize>(&mut self, system: &System<'_>) {
        let mut ready = Ready::new();
        while self.front < self.back {
            self.ready(&mut ready);
            let edges = self.take::<STAGE>(system, &mut ready);
            self.update(edges);
        }
    }

    /// What the next rows of the queue give.
    #[inline(always)]
    fn ready(&mut self, ready: &mut Ready) {
        ready.count = 0;
        let end = self.back.min(self.front + BATCH);
        for &row in &self.queue[self.front..end] {
            let state = self.rows[row as usize];
            let at = ready.count % BATCH;
            ready.rows[at] = row;
            ready.keys[at] = state.key();
            // Zero if another row gave the same symbol meanwhile.
            ready.count += usize::from(state.degree() == 1);
        }
        self.front = end;
    }

    /// Symbols are known: makes edges to the rows they are in, and says how many.
    #[inline(always)]
    fn take<const STAGE: usize>(&mut self, system: &System<'_>, ready: &mut Ready) -> usize {
        let graph = system.graph;
        let (places, later) = (&graph.places[..], &graph.later[..]);
        let cells = &mut self.cells[..];
        let cells: &mut [u16; ALL] = cells.try_into().expect("as many as 16 bits name");
        let keys = &ready.keys[..ready.count];
        // Short enough a loop that everything is fetched at once.
        let touch = |sum, &key: &u32| sum ^ places[usize::from(number(key))][0];
        std::hint::black_box(keys.iter().fold(0, touch));
        if STAGE > 0 {
            for &key in keys {
                prefetch(&graph.list[later[usize::from(number(key))].start as usize]);
            }
        }
        let mut edges = Edges {
            edges: &mut self.edges,
            len: 0,
        };
        edges.reserve(0);
        let (long, mut longs) = (&mut ready.long, 0);
        let (mut unknown, records) = (self.unknown, self.records);
        for (&key, &row) in keys.iter().zip(&ready.rows) {
            let symbol = number(key);
            let v = usize::from(symbol);
            let cell = cells[v];
            // Zero if another row of the batch gave the symbol too: all that follows counts nothing
            // then, and the value stays, from which others' may differ where symbols are assumed.
            let fresh = usize::from(cell >> 15);
            // Of all check nodes few give a symbol; it is only now that their other ones are summed.
            let sums = STAGE == CHECKS && fresh == 1 && system.one_byte && row as usize >= self.lt;
            let key = if sums {
                let nodes = system.neighbours(row as usize).iter();
                let sum = nodes.fold(0, |sum, &v| sum ^ cells[usize::from(v)]);
                self::key(symbol, sum as u8)
            } else {
                key
            };
            let value = (key >> VALUE_SHIFT) as u16 & 0xff;
            cells[v] = if fresh == 1 { value } else { cell };
            unknown -= fresh;
            if records && fresh == 1 {
                note(&mut self.found, Found { symbol, row });
            }
            let [.., last] = places[v];
            edges.push(key, &places[v], usize::from(cell >> COUNT_SHIFT & 7));
            long[longs % BATCH] = edge(key, last.into());
            longs += usize::from(cell & LONG != 0);
            if STAGE > 0 {
                let Later { start, ends } = later[v];
                let count = match ends.get(STAGE - 1) {
                    Some(&end) => usize::from(end),
                    None => (graph.first[v + 1] - start) as usize,
                };
                let rows = &graph.list[start as usize..];
                edges.push_list::<STAGE>(key, graph.ends[0] as u64, rows, fresh * count);
            }
            if STAGE == CHECKS && fresh == 1 {
                edges.push_checks(key, self.lt, checks_of(v, system, &mut [0]));
            }
        }
        for &long in &long[..longs] {
            edges.push_long(long, &graph.more);
        }
        self.unknown = unknown;
        edges.len
    }

    /// Takes symbols out of rows.
    #[inline(always)]
    fn update(&mut self, edges: usize) {
        let (rows, queue) = (&mut self.rows[..], &mut self.queue[..]);
        let mut back = self.back;
        for &edge in &self.edges[..edges] {
            let row = edge as u32;
            let state = rows[row as usize].without((edge >> 32) as u32);
            rows[row as usize] = state;
            queue[back] = row;
            back += usize::from(state.degree() == 1);
        }
        self.back = back;
    }

    /// Takes a symbol as known with value zero and goes on peeling.
    pub(super) fn assume(&mut self, system: &System<'_>, symbol: u16) {
        let mut ready = Ready::new();
        ready.count = 1;
        ready.keys[0] = key(symbol, 0);
        self.records = false;
        let edges = self.take::<CHECKS>(system, &mut ready);
        self.update(edges);
        self.records = true;
        self.run::<CHECKS>(system);
    }

    pub(super) fn is_unknown(&self, symbol: u16) -> bool {
        self.cells[usize::from(symbol)] >= UNKNOWN
    }

    /// Unknown symbols among the first `count`.
    pub(super) fn unknown(&self, count: usize) -> usize {
        let cells = self.cells[..count].iter();
        cells.filter(|&&cell| cell >= UNKNOWN).count()
    }

    /// Unknown symbols of a row, a symbol twice in it counted twice; none if it is missing.
    pub(super) fn degree(&self, row: usize) -> u32 {
        let state = self.rows[row];
        if row < self.lt && state.is_missing() {
            0
        } else {
            state.degree()
        }
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

    /// What was found since it is recorded, in order.
    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    pub(super) fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<W>()
            + self.cells.capacity() * size_of::<u16>()
            + self.edges.capacity() * size_of::<Edge>()
            + self.queue.capacity() * size_of::<u32>()
            + self.found.capacity() * size_of::<Found>()
    }
}

/// Out of line, for the loop is quicker if it has few calls to prepare for.
#[inline(never)]
fn note(list: &mut Vec<Found>, found: Found) {
    list.push(found);
}

/// The edges of a batch.
struct Edges<'a> {
    /// Longer than `len` by at least [`ROOM`].
    edges: &'a mut Vec<Edge>,
    len: usize,
}

/// What a batch adds at most, long lists apart.
const ROOM: usize = BATCH * (2 * CHUNK + MAX_LDPC_DEGREE as usize);

impl Edges<'_> {
    /// Makes room for `count` edges besides [`ROOM`].
    #[inline(always)]
    fn reserve(&mut self, count: usize) {
        #[cold]
        fn grow(edges: &mut Vec<Edge>, len: usize) {
            edges.resize(2 * len, 0);
        }
        if self.edges.len() < self.len + count + ROOM {
            grow(self.edges, self.len + count + ROOM);
        }
    }

    /// Adds edges to the first `count` of some rows; all are written, which is a branch less to guess.
    #[inline(always)]
    fn push<const N: usize>(&mut self, key: u32, rows: &[u16; N], count: usize) {
        let to = &mut self.edges[self.len..self.len + N];
        to.iter_mut()
            .zip(rows)
            .for_each(|(to, &row)| *to = edge(key, row.into()));
        self.len += count;
    }

    /// Adds edges to the first `count` rows of a list, which has some more; its numbers are rows less
    /// `base`.
    #[inline(always)]
    fn push_list<const STAGE: usize>(&mut self, key: u32, base: u64, rows: &[u16], count: usize) {
        let first = edge(key, 0) + base;
        // As many as most symbols have.
        let chunk = if STAGE == 1 { CHUNK / 2 } else { CHUNK };
        if count <= chunk {
            let to = &mut self.edges[self.len..self.len + chunk];
            let pairs = to.iter_mut().zip(&rows[..chunk]);
            pairs.for_each(|(to, &row)| *to = first + u64::from(row));
        } else {
            self.reserve(count);
            let to = &mut self.edges[self.len..self.len + count];
            let pairs = to.iter_mut().zip(&rows[..count]);
            pairs.for_each(|(to, &row)| *to = first + u64::from(row));
        }
        self.len += count;
    }

    /// Adds edges to the rows of the first stage that a symbol's place has no room for; `long` is an
    /// edge to where they are.
    #[inline(always)]
    fn push_long(&mut self, long: Edge, more: &[More]) {
        let mut at = long as u32 as usize;
        loop {
            self.reserve(MORE);
            let [.., last] = more[at];
            self.push((long >> 32) as u32, &more[at], usize::from(last & !GOES_ON));
            if last & GOES_ON == 0 {
                return;
            }
            at += 1;
        }
    }

    /// Adds edges to check nodes, whose rows begin with `first`.
    fn push_checks(&mut self, key: u32, first: usize, checks: &[u16]) {
        for &check in checks {
            self.edges[self.len] = edge(key, (first + usize::from(check)) as u32);
            self.len += 1;
        }
    }
}

/// Check nodes that a symbol is in; `own` is room for the one that it may be itself.
fn checks_of<'a>(v: usize, system: &System<'a>, own: &'a mut [u16; 1]) -> &'a [u16] {
    match v.checked_sub(system.code.k()) {
        None => system.code.0.precode.checks_of(v),
        Some(check) => {
            *own = [check as u16];
            own
        }
    }
}
