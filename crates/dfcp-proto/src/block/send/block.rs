//! One block on its way: which of its symbols were sent, what the receiver still needs, and whether
//! anything more may be sent of it.

use crate::rate::BlockSent;
use crate::scheduler::BlockView;
use crate::time::{Duration, Instant};
use crate::wire::esi_space;
use dfcp_fec::{BlockEncoder, BlockSpec, FecError, SchemeId};

/// A symbol to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolOut {
    /// Block.
    pub offset: u64,
    /// Source bytes of the block.
    pub block_len: u64,
    /// Code of the block.
    pub scheme: SchemeId,
    /// Which symbol.
    pub esi: u32,
    /// Bytes of the symbol.
    pub symbol_len: usize,
    /// Credit to take from the peer's: not zero for a block's first symbol.
    pub charge: u64,
}

/// What is left to know of a block that is gone.
#[derive(Debug)]
pub struct RemovedBlock {
    pub len: u64,
    /// It is known to have arrived, although no report said so.
    pub has_arrived: bool,
    pub sent: BlockSent,
    /// Its buffer, to be used again.
    pub buffer: Vec<u8>,
}

/// See the module's text.
#[derive(Debug)]
pub struct SendBlock {
    encoder: Box<dyn BlockEncoder>,
    /// The encoder's, which lies elsewhere in memory: asked for several times with each packet.
    spec: BlockSpec,
    scheme: SchemeId,
    len: u64,
    needed: u32,
    in_flight: u32,
    next_esi: u32,
    /// Symbols that may be sent in all.
    max_symbols: u32,
    /// Symbols known to have arrived.
    arrived: u32,
    /// When nothing more could come the peer still said that it lacked some.
    falls_short: bool,
    /// When the application wrote its first byte.
    written: Instant,
    /// When its first symbol left.
    began: Instant,
    /// When its latest one did.
    left: Instant,
    /// When a further copy of a short message may leave.
    copy_due: Instant,
    /// Its place among the blocks begun.
    number: u64,
}

impl SendBlock {
    /// A block of `len` source bytes, the first written at `written`, of which no more than
    /// `max_symbols` symbols may be sent.
    pub fn new(
        encoder: Box<dyn BlockEncoder>,
        scheme: SchemeId,
        len: u64,
        (written, max_symbols): (Instant, u32),
    ) -> Self {
        let spec = encoder.spec();
        Self {
            needed: spec.k(),
            encoder,
            spec,
            scheme,
            len,
            in_flight: 0,
            next_esi: 0,
            max_symbols,
            arrived: 0,
            falls_short: false,
            written,
            began: Instant::ZERO,
            left: Instant::ZERO,
            copy_due: Instant::ZERO,
            number: 0,
        }
    }

    /// Source symbols.
    fn k(&self) -> u32 {
        self.spec.k()
    }

    /// Source bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Symbols sent.
    pub fn sent(&self) -> u32 {
        self.next_esi
    }

    /// Its place among the blocks begun.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When its first symbol left.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// When a further copy of a short message may leave, as far as [`Self::copy_after`] said.
    pub fn copy_due(&self) -> Instant {
        self.copy_due
    }

    /// A further copy waits so long from the latest symbol on; returns when it is due.
    pub fn copy_after(&mut self, gap: Duration) -> Instant {
        self.copy_due = self.left + gap;
        self.copy_due
    }

    /// When the application wrote its first byte.
    pub fn written(&self) -> Instant {
        self.written
    }

    /// When it will be `age` old.
    pub fn expires(&self, age: Duration) -> Instant {
        self.written + age
    }

    /// Its first symbol leaves, as that of the `number`th block.
    pub fn begin(&mut self, now: Instant, number: u64) {
        (self.began, self.number) = (now, number);
    }

    /// The next symbol of the block, which is at `offset`.
    pub fn next_symbol(&self, offset: u64, charge: u64) -> SymbolOut {
        SymbolOut {
            offset,
            block_len: self.len,
            scheme: self.scheme,
            esi: self.next_esi % esi_space(self.k()),
            symbol_len: self.spec.symbol_size(),
            charge,
        }
    }

    /// Appends symbol `esi`, nothing with virtual payload, and counts it as in flight.
    pub fn write_symbol(
        &mut self,
        now: Instant,
        esi: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), FecError> {
        self.encoder.append_symbol(esi, out)?;
        self.left = now;
        self.next_esi += 1;
        self.in_flight += 1;
        Ok(())
    }

    /// A symbol left the air: it arrived or was lost; the block counts on it no more, unless it was
    /// written off already.
    pub fn on_settled(&mut self, arrived: bool, was_written_off: bool) {
        if !was_written_off {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if arrived {
            self.arrived += 1;
            // The receiver's own report decides when the block is done, except where any one
            // symbol is the whole block: reports do not reach over a thousand of those.
            let least = u32::from(!self.any_symbol_is_enough());
            self.needed = self.needed.saturating_sub(1).max(least);
        }
    }

    /// Whether the receiver may need as few symbols as `needed`: it cannot have more than were sent.
    pub fn is_plausible(&self, needed: u32) -> bool {
        needed >= self.k().saturating_sub(self.next_esi)
    }

    /// The receiver says how many symbols it needs.
    pub fn on_report(&mut self, needed: u32) {
        self.needed = needed.min(self.k() + 8);
        self.falls_short = self.is_spent();
    }

    /// What a scheduler may know of it; `last` if nothing follows.
    pub fn view(&self, last: bool) -> BlockView {
        let view = BlockView::new(self.k(), self.needed, self.in_flight, last);
        view.of_bytes(self.spec.source_len() as u64)
    }

    /// Whether a further symbol may be sent.
    pub fn may_send(&self) -> bool {
        self.next_esi < self.max_symbols
    }

    /// No further symbol is sent.
    pub fn stop(&mut self) {
        self.max_symbols = self.next_esi;
    }

    /// All that may be sent was sent, and what is in flight cannot complete the block, or need not.
    pub fn is_spent(&self) -> bool {
        let waits = self.needed > 0 && self.in_flight >= self.needed;
        !self.may_send() && !waits
    }

    /// With as many symbols as it needs the block is probably complete: a report will say.
    pub fn is_undecided(&self) -> bool {
        let enough = self.arrived >= self.k();
        self.needed > 0 && enough && !self.falls_short
    }

    /// Whether enough is in flight unless some is lost.
    pub fn is_covered(&self) -> bool {
        self.in_flight >= self.needed
    }

    /// Whether there are source symbols that were not sent.
    pub fn is_in_first_pass(&self) -> bool {
        self.next_esi < self.k()
    }

    /// Whether the block is a single symbol, which comes again if it is lost.
    pub fn any_symbol_is_enough(&self) -> bool {
        let scheme = matches!(
            self.scheme,
            SchemeId::Arq | SchemeId::Dense | SchemeId::Rlnc
        );
        self.k() == 1 && scheme
    }

    /// It is over.
    pub fn remove(self) -> RemovedBlock {
        let k = self.k();
        RemovedBlock {
            len: self.len,
            has_arrived: self.needed == 0,
            sent: BlockSent::new(self.next_esi.into(), k.into()),
            buffer: self.encoder.into_buffer(),
        }
    }
}
