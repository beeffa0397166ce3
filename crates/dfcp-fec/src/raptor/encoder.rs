//! A block on the sending side.

use super::RaptorCode;
use super::taus88::{State, scale};
use super::workspace::Workspace;
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
        source.resize(code.n() * size, 0);
        let (messages, checks) = source.split_at_mut(expected);
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
        let (n, size) = (self.code.parameters().n, self.code.symbol_size());
        let table = &self.code.0.degrees;
        let Workspace { draws, ids, .. } = workspace;
        let expected = (out.len() / size) as f64 * (1.0 + table.mean());
        draws.restart(state, expected as usize);
        let mut at = 0;
        for symbol in out.chunks_exact_mut(size) {
            let degree = table.draw(draws.upto(at + 1)[at]) as usize;
            let end = at + 1 + degree;
            let outputs = &draws.upto(end)[at + 1..end];
            at = end;
            if let [byte] = symbol {
                *byte = outputs.iter().fold(0, |sum, &output| {
                    sum ^ self.symbols[scale(output, n) as usize]
                });
                continue;
            }
            ids.clear();
            ids.extend(outputs.iter().map(|&output| scale(output, n) as u16));
            sum_into(symbol, &self.symbols, ids);
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
