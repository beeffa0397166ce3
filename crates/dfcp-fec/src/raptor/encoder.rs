//! A block on the sending side.

use super::draws::Draws;
use super::taus88::State;
use super::workspace::Workspace;
use super::{MAX_INTERMEDIATE, RaptorCode, Tables};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows as KernelRows};

/// Most rows that one pass of the kernel sums.
pub(super) const ONES: [u8; 256] = [1; 256];

/// Symbols of one byte that are sorted by degree together: few enough for the first-level cache.
const TOGETHER: usize = 512;

/// Where the neighbours of a symbol were drawn, which symbol of its group it is, and its degree.
#[derive(Clone, Copy, Default)]
struct Span {
    at: u32,
    symbol: u16,
    degree: u8,
}

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
            code.0.precode.add_bytes(messages, checks);
        } else {
            for (check, out) in checks.chunks_exact_mut(size).enumerate() {
                sum_into(out, messages, code.0.precode.messages(check));
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
        if size == 1 && form.is_packed() {
            return self.write_bytes(draws, out);
        }
        let mut at = 0;
        for symbol in out.chunks_exact_mut(size) {
            draws.reserve(at + 1, form);
            let end = at + 1 + draws.degree(at, degrees) as usize;
            draws.reserve(end, form);
            sum_into(symbol, &self.symbols, &draws.numbers()[at + 1..end]);
            at = end;
        }
    }

    /// Symbols of one byte, sorted by degree before they are summed: a processor foresees loops of
    /// one length.
    fn write_bytes(&self, draws: &mut Draws, out: &mut [u8]) {
        let Some(symbols) = self.symbols.first_chunk::<{ MAX_INTERMEDIATE as usize }>() else {
            return;
        };
        let Tables { degrees, form, .. } = &*self.code.0;
        let mut at = 0;
        for out in out.chunks_mut(TOGETHER) {
            let mut drawn = [Span::default(); TOGETHER];
            let mut next = [0u16; 256];
            for (symbol, span) in drawn[..out.len()].iter_mut().enumerate() {
                draws.reserve(at + 1, form);
                let degree = draws.degrees()[at];
                next[usize::from(degree)] += 1;
                *span = Span {
                    at: at as u32 + 1,
                    symbol: symbol as u16,
                    degree,
                };
                at += 1 + usize::from(degree);
            }
            draws.reserve(at, form);
            let numbers = draws.numbers();
            let mut sum = 0;
            for &degree in degrees.degrees() {
                let count = &mut next[degree as usize];
                sum += *count;
                *count = sum - *count;
            }
            let mut sorted = [Span::default(); TOGETHER];
            for &span in &drawn[..out.len()] {
                let at = &mut next[usize::from(span.degree)];
                sorted[usize::from(*at)] = span;
                *at += 1;
            }
            let mut from = 0;
            for &degree in degrees.degrees() {
                let end = usize::from(next[degree as usize]);
                sum_class(symbols, numbers, &sorted[from..end], degree as usize, out);
                from = end;
            }
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
    class: &[Span],
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
        _ => {
            for span in class {
                let numbers = &numbers[span.at as usize..][..degree];
                out[usize::from(span.symbol)] = gather(symbols, numbers);
            }
        }
    }
}

/// The same without a loop in the loop.
#[inline(always)]
fn sum_exactly<const D: usize>(
    symbols: &[u8; 65_536],
    numbers: &[u16],
    class: &[Span],
    out: &mut [u8],
) {
    for span in class {
        let numbers: Option<&[u16; D]> = numbers[span.at as usize..].first_chunk();
        out[usize::from(span.symbol)] = numbers.map_or(0, |numbers| gather(symbols, numbers));
    }
}

#[inline(always)]
fn gather(symbols: &[u8; 65_536], numbers: &[u16]) -> u8 {
    let byte = |&number: &u16| symbols[usize::from(number)];
    numbers.iter().map(byte).fold(0, |sum, byte| sum ^ byte)
}

/// `out ← Σ symbols[ids]`; symbols are as long as `out`.
pub(super) fn sum_into(out: &mut [u8], symbols: &[u8], ids: &[u16]) {
    if let [byte] = out {
        *byte = ids
            .iter()
            .fold(0, |sum, &id| sum ^ symbols[usize::from(id)]);
        return;
    }
    let (kernel, size) = (Kernel::best(), out.len());
    let (first, rest) = ids.split_at(ids.len().min(ONES.len()));
    kernel.combine(
        out,
        &ONES[..first.len()],
        KernelRows::new(symbols, size, first),
    );
    for more in rest.chunks(ONES.len() - 1) {
        let mut part = vec![0; size];
        kernel.combine(
            &mut part,
            &ONES[..more.len()],
            KernelRows::new(symbols, size, more),
        );
        for (out, part) in out.iter_mut().zip(&part) {
            *out ^= part;
        }
    }
}
