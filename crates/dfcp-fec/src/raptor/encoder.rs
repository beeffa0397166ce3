//! A block on the sending side.

use super::taus88::State;
use super::workspace::Workspace;
use super::{RaptorCode, Tables, drawn};
use crate::error::FecError;
use crate::gf256::{Kernel, Rows as KernelRows, Start, fetch};

/// Blocks above this, in bytes, are fetched ahead: a core's own caches do not hold them.
pub(super) const LARGE: usize = 2 << 20;

/// The same for what is needed at once: only the way to memory is long enough.
const HUGE: usize = 16 << 20;

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
        if size == 1
            && out.len() <= drawn::MOST
            && draws.has_degrees(form)
            && let Some(symbols) = self.symbols.first_chunk()
        {
            let packet = (state, out.len());
            let drawn = workspace.drawn.packet(&self.code.0, draws, packet);
            return drawn.sum(symbols, out);
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
