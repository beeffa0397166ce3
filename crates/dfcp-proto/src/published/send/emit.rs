//! Packets of a block: from written bytes to symbols.

use super::super::config::{Acknowledge, Codec, Sending};
use super::super::data::{DATA_HEADER, DataHeader, Packet, VIRTUAL_BYTES, with_redundancy};
use super::Sender;
use super::block::{Next, Phase, Source};
use crate::config::Payload;
use crate::time::Instant;

impl Sender {
    /// Takes the next block into the window.
    pub(super) fn open(&mut self, now: Instant) -> Option<u32> {
        let next = match self.ahead.take() {
            Some(next) => next,
            None => Next::new(self.input.next()?),
        };
        let useful = next.cut.useful;
        let goal = match self.settled.redundancy.sending {
            Sending::Fixed { extra } => {
                let symbols = self.settled.code.symbols_of(useful);
                self.settled.packets(with_redundancy(symbols, extra))
            }
            _ => {
                let needed = f64::from(self.settled.packets_needed(useful));
                let caution = self.caution(self.blocks.next());
                self.path.per_arrival().plan(needed, caution)
            }
        };
        self.current = Some(self.blocks.open(now, next, goal.max(1)));
        self.current
    }

    /// Cuts and pre-codes the block that the window keeps waiting, one at most.
    pub(super) fn code_ahead(&mut self) {
        if self.ahead.is_some() || self.current.is_some() || self.may_open() {
            return;
        }
        let Some(mut next) = self.input.next().map(Next::new) else {
            return;
        };
        if self.settled.encoding == Codec::On
            && let Some(Source::Bytes(bytes)) = next.source.as_deref_mut()
        {
            let bytes = std::mem::take(bytes);
            next.source = self.encode(bytes);
        }
        self.ahead = Some(next);
    }

    /// The input cuts blocks that the code takes.
    fn encode(&self, bytes: Vec<u8>) -> Option<Box<Source>> {
        let mut encoder = self.settled.coder.as_ref()?.encoder(bytes).ok()?;
        encoder.prepare();
        Some(Box::new(Source::Encoder(encoder)))
    }

    /// Appends the next packet's payload of a block.
    pub(super) fn emit(&mut self, now: Instant, id: u32, out: &mut Vec<u8>) -> Packet {
        let wants_echo = self.path.wants_echo();
        let fixed = matches!(self.settled.redundancy.sending, Sending::Fixed { .. });
        let block = self.blocks.get_mut(id).expect("picked from those kept");
        let probe = block.sent >= block.goal;
        // What is sent is fixed: a probe repeats it.
        let index = if probe && fixed {
            block.sent - 1
        } else {
            block.sent
        };
        let header = DataHeader {
            block: id,
            state: self.settled.state(id, index, block.useful),
            echo: probe || wants_echo || index + 1 == block.goal,
            short: block.short,
        };
        block.last = now;
        block.sent = index + 1;
        self.stats.packets += 1;
        self.stats.extra_packets += u64::from(block.phase != Phase::Pass);
        let finished = !probe && block.sent >= block.goal;
        let symbols = self.settled.symbols_in(index, block.useful);
        let bytes = usize::from(symbols) * usize::from(self.settled.code.symbol_size());
        let (size, elided) = match self.settled.payload {
            Payload::Virtual => {
                out.extend_from_slice(&symbols.to_be_bytes());
                out.extend_from_slice(&block.useful.to_be_bytes());
                (VIRTUAL_BYTES, bytes.saturating_sub(VIRTUAL_BYTES))
            }
            Payload::Real => {
                self.write_symbols(&header, bytes, out);
                (bytes, 0)
            }
        };
        if finished {
            self.finish_pass(id);
        }
        let total = (DATA_HEADER + size + elided) as u64;
        self.path.on_sent(now, &header, index, total);
        Packet {
            header,
            size,
            elided,
        }
    }

    /// A block has been sent as many packets as were planned.
    fn finish_pass(&mut self, id: u32) {
        if self.settled.acknowledge == Acknowledge::Off {
            self.set_phase(id, Phase::Acked);
            self.release();
        } else {
            self.set_phase(id, Phase::Waiting);
        }
        self.code_ahead();
    }

    /// Appends `bytes` of symbols; the block is pre-coded with its first packet at the latest.
    fn write_symbols(&mut self, header: &DataHeader, bytes: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + bytes, 0);
        let off = self.settled.encoding == Codec::Off;
        let Some(block) = self.blocks.get_mut(header.block) else {
            return;
        };
        let coder = self.settled.coder.as_ref();
        if let Some(Source::Bytes(source)) = block.source.as_deref_mut()
            && (!off || self.first.is_none())
        {
            let source = std::mem::take(source);
            // The input cuts blocks that the code takes.
            let encoder = coder.and_then(|code| code.encoder(source).ok());
            if off {
                self.first = encoder;
            } else {
                block.source = encoder.map(|e| Box::new(Source::Encoder(e)));
            }
        }
        if off {
            block.source = None;
        }
        let encoder = match (off, block.source.as_deref_mut()) {
            (true, _) => self.first.as_mut(),
            (false, Some(Source::Encoder(encoder))) => Some(encoder),
            _ => None,
        };
        if let Some(encoder) = encoder {
            encoder.write_symbols(header.state, &mut out[start..]);
        }
    }
}
