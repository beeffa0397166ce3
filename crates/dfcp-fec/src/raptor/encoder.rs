//! A block on the sending side.

use super::draws::Draws;
use super::taus88::State;
use super::workspace::Workspace;
use super::{MAX_INTERMEDIATE, RaptorCode, Tables};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows as KernelRows};

/// Most rows that one pass of the kernel sums.
pub(super) const ONES: [u8; 256] = [1; 256];

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
        for (check, out) in checks.chunks_exact_mut(size).enumerate() {
            sum_into(out, messages, code.0.precode.messages(check));
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
        let Workspace {
            draws, ids, spans, ..
        } = workspace;
        let expected = (out.len() / size) as f64 * (1.0 + degrees.mean());
        draws.restart(state, expected as usize);
        if size == 1 && form.is_packed() {
            return self.write_bytes(draws, spans, out);
        }
        let mut at = 0;
        for symbol in out.chunks_exact_mut(size) {
            let degree = form.degree(draws.upto(at + 1, form)[at], degrees) as usize;
            let end = at + 1 + degree;
            let words = &draws.upto(end, form)[at + 1..end];
            at = end;
            ids.clear();
            ids.extend(words.iter().map(|&word| form.number(word)));
            sum_into(symbol, &self.symbols, ids);
        }
    }

    /// Symbols of one byte, sorted by degree before they are summed: a processor foresees loops of
    /// one length.
    fn write_bytes(&self, draws: &mut Draws, spans: &mut Vec<u64>, out: &mut [u8]) {
        let form = &self.code.0.form;
        let mut at = 0;
        let mut counts = [0u32; 257];
        spans.resize(2 * out.len(), 0);
        let (drawn, sorted) = spans.split_at_mut(out.len());
        for (symbol, span) in drawn.iter_mut().enumerate() {
            let degree = draws.upto(at + 1, form)[at] & 0xff;
            counts[degree as usize + 1] += 1;
            *span = (at as u64 + 1) << 32 | (symbol as u64) << 8 | u64::from(degree);
            at += 1 + degree as usize;
        }
        let words = draws.upto(at, form);
        let mut sum = 0;
        for count in &mut counts {
            sum += *count;
            *count = sum;
        }
        let ends = counts;
        for &span in drawn.iter() {
            let next = &mut counts[(span & 0xff) as usize];
            sorted[*next as usize] = span;
            *next += 1;
        }
        let Some(symbols) = self.symbols.first_chunk::<{ MAX_INTERMEDIATE as usize }>() else {
            return;
        };
        for degree in 1..=255 {
            let class = &sorted[ends[degree] as usize..ends[degree + 1] as usize];
            for &span in class {
                let words = &words[(span >> 32) as usize..][..degree];
                out[(span as u32 >> 8) as usize] = gather(symbols, words);
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

/// Sum of the bytes that packed words name.
#[inline(always)]
fn gather(symbols: &[u8; 65_536], words: &[u32]) -> u8 {
    words
        .iter()
        .fold(0, |sum, &word| sum ^ symbols[(word >> 16) as usize])
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
