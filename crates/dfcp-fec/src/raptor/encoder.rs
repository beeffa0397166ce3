//! A block on the sending side.

use super::draws::Draws;
use super::taus88::State;
use super::workspace::Workspace;
use super::{MAX_INTERMEDIATE, RaptorCode, Tables};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows as KernelRows, Start, fetch};

/// Blocks above this, in bytes, are fetched ahead: a core's own caches do not hold them.
pub(super) const LARGE: usize = 2 << 20;

/// The same for what is needed at once: only the way to memory is long enough.
const HUGE: usize = 16 << 20;

/// Symbols of one byte that are sorted by degree together: few enough for the first-level cache.
const TOGETHER: usize = 1 << SYMBOL_BITS;

/// Bits of a symbol's place in its group; the bits above say where its neighbours were drawn, counted
/// from the first output of the group.
const SYMBOL_BITS: u32 = 9;

/// A block on the sending side.
#[derive(Debug)]
pub struct Encoder {
    code: RaptorCode,
    /// Intermediate symbols: source, then check nodes.
    symbols: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(code: RaptorCode, mut source: Vec<u8>) -> Result<Self, FecError> {
        let size = code.symbol_size();
        let expected = code.k() * size;
        if source.len() != expected {
            return Err(FecError::SourceLength {
                expected,
                actual: source.len(),
            });
        }
        // Symbols of one byte get as many as 16 bits name: no index is out of bounds.
        source.resize(code.n().max(if size == 1 { 65_536 } else { 0 }) * size, 0);
        let (messages, checks) = source[..code.n() * size].split_at_mut(expected);
        if size == 1 {
            let messages = messages.iter().copied();
            code.0.precode.add_bytes(messages, checks);
        } else {
            let large = messages.len() > LARGE;
            for (check, out) in checks.chunks_exact_mut(size).enumerate() {
                if large && check + 1 < code.0.precode.checks() {
                    fetch_all(messages, size, code.0.precode.messages(check + 1));
                }
                sum_into(out, Start::Zero, messages, code.0.precode.messages(check));
            }
        }
        Ok(Self {
            code,
            symbols: source,
        })
    }

    /// Fills `out` with the symbols that follow `state`; whole symbols only.
    pub fn write_symbols(&self, state: State, out: &mut [u8]) {
        self.code
            .0
            .pool
            .with(|workspace| self.write(workspace, state, out));
    }

    fn write(&self, workspace: &mut Workspace, state: State, out: &mut [u8]) {
        let size = self.code.symbol_size();
        let Tables { degrees, form, .. } = &*self.code.0;
        let draws = &mut workspace.draws;
        let expected = (out.len() / size) as f64 * (1.0 + degrees.mean());
        draws.restart(state, expected as usize);
        if size == 1 && draws.has_degrees(form) {
            return self.write_bytes(draws, &mut workspace.classes, out);
        }
        let mut at = 0;
        for symbol in out.chunks_exact_mut(size) {
            draws.reserve(at + 1, form);
            let end = at + 1 + draws.degree(at, degrees) as usize;
            draws.reserve(end, form);
            let numbers = &draws.numbers()[at + 1..end];
            if self.symbols.len() > HUGE {
                fetch_all(&self.symbols, size, numbers);
            }
            sum_into(symbol, Start::Zero, &self.symbols, numbers);
            at = end;
        }
    }

    /// Symbols of one byte, sorted by degree before they are summed: a processor foresees loops of
    /// one length.
    fn write_bytes(&self, draws: &mut Draws, classes: &mut Vec<u32>, out: &mut [u8]) {
        let Some(symbols) = self.symbols.first_chunk::<{ MAX_INTERMEDIATE as usize }>() else {
            return;
        };
        let Tables { degrees, form, .. } = &*self.code.0;
        let degrees = degrees.degrees();
        if classes.len() < degrees.len() * TOGETHER {
            classes.resize(degrees.len() * TOGETHER, 0);
        }
        let mut first = 0;
        for out in out.chunks_mut(TOGETHER) {
            let mut ends = [0u32; 256];
            for (class, &degree) in degrees.iter().enumerate() {
                ends[degree as usize] = (class * TOGETHER) as u32;
            }
            let (mut at, mut symbol) = (first, 0);
            while symbol < out.len() {
                draws.reserve(at + 1, form);
                let drawn = draws.degrees();
                while symbol < out.len() && at < drawn.len() {
                    let end = &mut ends[usize::from(drawn[at])];
                    classes[*end as usize] = ((at - first) << SYMBOL_BITS | symbol) as u32;
                    *end += 1;
                    at += 1 + usize::from(drawn[at]);
                    symbol += 1;
                }
            }
            draws.reserve(at, form);
            let numbers = &draws.numbers()[first..at];
            for (class, &degree) in degrees.iter().enumerate() {
                let class = &classes[class * TOGETHER..ends[degree as usize] as usize];
                sum_class(symbols, numbers, class, degree as usize, out);
            }
            first = at;
        }
    }

    /// The source block.
    pub fn source(&self) -> &[u8] {
        &self.symbols[..self.code.k() * self.code.symbol_size()]
    }

    /// Gives the allocation back: the source block, with room for the check nodes behind it.
    pub fn into_buffer(mut self) -> Vec<u8> {
        self.symbols
            .truncate(self.code.k() * self.code.symbol_size());
        self.symbols
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.symbols.capacity()
    }
}

/// Symbols of one degree: sums of the bytes that numbers name.
#[inline(always)]
fn sum_class(
    symbols: &[u8; 65_536],
    numbers: &[u16],
    class: &[u32],
    degree: usize,
    out: &mut [u8],
) {
    match degree {
        1 => sum_exactly::<1>(symbols, numbers, class, out),
        2 => sum_exactly::<2>(symbols, numbers, class, out),
        3 => sum_exactly::<3>(symbols, numbers, class, out),
        4 => sum_exactly::<4>(symbols, numbers, class, out),
        5 => sum_exactly::<5>(symbols, numbers, class, out),
        8 => sum_exactly::<8>(symbols, numbers, class, out),
        9 => sum_exactly::<9>(symbols, numbers, class, out),
        19 => sum_exactly::<19>(symbols, numbers, class, out),
        65 => sum_exactly::<65>(symbols, numbers, class, out),
        _ => {
            for &entry in class {
                let (at, symbol) = place(entry);
                out[symbol] = gather(symbols, &numbers[at + 1..][..degree]);
            }
        }
    }
}

/// The same without a loop in the loop.
#[inline(always)]
fn sum_exactly<const D: usize>(
    symbols: &[u8; 65_536],
    numbers: &[u16],
    class: &[u32],
    out: &mut [u8],
) {
    for &entry in class {
        let (at, symbol) = place(entry);
        let numbers: Option<&[u16; D]> = numbers[at + 1..].first_chunk();
        out[symbol] = numbers.map_or(0, |numbers| gather(symbols, numbers));
    }
}

/// Which output of its group drew the degree of a symbol, and its place in the group.
#[inline(always)]
fn place(entry: u32) -> (usize, usize) {
    ((entry >> SYMBOL_BITS) as usize, entry as usize % TOGETHER)
}

#[inline(always)]
fn gather(symbols: &[u8; 65_536], numbers: &[u16]) -> u8 {
    let byte = |&number: &u16| symbols[usize::from(number)];
    numbers.iter().map(byte).fold(0, |sum, byte| sum ^ byte)
}

/// Fetches symbols that will be summed.
#[inline(always)]
pub(super) fn fetch_all(symbols: &[u8], size: usize, ids: &[u16]) {
    for &id in ids {
        fetch(&symbols[usize::from(id) * size..][..size]);
    }
}

/// `out ← start ⊕ Σ symbols[ids]`; symbols are as long as `out`.
pub(super) fn sum_into(out: &mut [u8], start: Start<'_>, symbols: &[u8], ids: &[u16]) {
    if let [byte] = out {
        let start = match start {
            Start::Zero => 0,
            Start::Out => *byte,
            Start::Bytes(start) => start[0],
        };
        let add = |sum, &id: &u16| sum ^ symbols[usize::from(id)];
        *byte = ids.iter().fold(start, add);
    } else {
        let rows = KernelRows::new(symbols, out.len(), ids);
        Kernel::best().sum(out, start, rows);
    }
}
