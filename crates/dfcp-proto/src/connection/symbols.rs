//! Symbols in, and the blocks that are rebuilt from them, here or by a driver's other threads.

use super::{CloseCode, Connection, Control, Event};
use crate::block::{ChannelId, Part, Received, RecvChannel, SolveJob, SymbolIn};
use crate::config::Payload;
use crate::observe::Observation;
use crate::time::Instant;
use crate::wire::{SymbolHeader, virtual_symbol_len};

impl Connection {
    /// A symbol, or the part of one that the frame before said it is.
    pub(super) fn on_symbol_frame(
        &mut self,
        now: Instant,
        part: Option<(usize, usize)>,
        header: SymbolHeader,
        data: &[u8],
    ) -> Result<(), CloseCode> {
        let (mut len, mut data) = match self.config.payload {
            Payload::Real => (data.len(), data),
            Payload::Virtual => {
                let len = virtual_symbol_len(data).ok_or(CloseCode::PROTOCOL)?;
                (len, &[][..])
            }
        };
        let whole;
        if let Some((symbol_len, at)) = part {
            let id = self.known(header.channel)?;
            self.touch(id);
            let name = (header.channel, header.offset, header.esi);
            let part = Part {
                symbol_len,
                at,
                len,
                data,
            };
            let Some(symbol) = self.inc.parts.push(name, part)? else {
                return Ok(());
            };
            whole = symbol;
            (len, data) = (symbol_len, &whole);
        }
        let symbol = SymbolIn {
            scheme: header.scheme,
            offset: header.offset,
            block_len: header.block.bytes(len).ok_or(CloseCode::PROTOCOL)?,
            esi: header.esi,
            len,
            data,
        };
        self.on_symbol(now, ChannelId(header.channel), &symbol)
    }

    fn on_symbol(
        &mut self,
        now: Instant,
        id: ChannelId,
        symbol: &SymbolIn<'_>,
    ) -> Result<(), CloseCode> {
        let id = self.known(id.0)?;
        if !id.can_receive(self.role) {
            return Err(CloseCode::PROTOCOL);
        }
        self.stats.symbols_received += 1;
        self.touch(id);
        let Some(recv) = self.channels.receiver(id) else {
            self.stats.redundant_symbols += 1;
            self.tell_symbols(now, symbol, true);
            return Ok(());
        };
        let before = recv.readiness();
        let used = self.inc.credit.used;
        let received = recv.on_symbol(symbol, &mut self.inc.credit)?;
        if received != Received::Redundant {
            recv.on_arrival(now, symbol.len as u64, self.out.path.rtt.smoothed());
        }
        if self.inc.credit.used > used {
            // A block began.
            if recv.new_limit_meanwhile(&mut self.inc.credit).is_some() {
                self.out.control.push_back(Control::MaxStreamData(id));
            }
            self.review_first_window(now);
        }
        if id.is_message(symbol.block_len) {
            self.out.path.on_message_received(now);
        }
        self.tell_symbols(now, symbol, received == Received::Redundant);
        match received {
            Received::Redundant => self.stats.redundant_symbols += 1,
            Received::Progress => {}
            Received::Solvable => {
                self.inc.solvable.insert(id);
                self.inc.policy.on_block(now);
            }
            Received::Complete => {
                self.inc.policy.on_block(now);
                self.on_block_complete(now, id, symbol.block_len);
            }
        }
        let recv = self.channels.peek_receiver(id);
        if let Some(window) = self.inc.policy.receive_window()
            && recv.is_some_and(|recv| recv.occupancy() > window.into())
        {
            self.stats.beyond_window += 1;
        }
        if recv.is_some_and(|recv| recv.readiness() > before) {
            self.events.push_back(Event::Readable(id));
        }
        Ok(())
    }

    fn tell_symbols(&mut self, now: Instant, symbol: &SymbolIn<'_>, redundant: bool) {
        let bytes = symbol.len as u64;
        self.observer
            .tell(now, || Observation::Symbols { bytes, redundant });
    }

    fn on_block_complete(&mut self, now: Instant, id: ChannelId, bytes: u64) {
        self.observer.tell(now, || Observation::Blocks { bytes });
        self.on_block_settled(now, id);
    }

    pub(super) fn on_block_settled(&mut self, now: Instant, id: ChannelId) {
        let Some(recv) = self.channels.peek_receiver(id) else {
            return;
        };
        if recv.is_complete() {
            self.inc.policy.on_urgent(now);
        }
        if recv.is_excessive() {
            self.violation(now, CloseCode::LIMIT);
        }
    }

    /// Work that the driver should do, here or on another thread, and hand back with
    /// [`Connection::finish_solve`].
    pub fn take_solve_job(&mut self) -> Option<SolveJob> {
        while let Some(&id) = self.inc.solvable.first() {
            let recv = self.channels.receiver(id);
            if let Some(job) = recv.and_then(RecvChannel::take_job) {
                self.solving += 1;
                return Some(job);
            }
            self.inc.solvable.remove(&id);
        }
        None
    }

    /// Takes a finished job back.
    pub fn finish_solve(&mut self, now: Instant, job: SolveJob) {
        self.solving = self.solving.saturating_sub(1);
        let (id, bytes) = (job.channel, job.bytes());
        let Some(recv) = self.channels.receiver(id) else {
            return;
        };
        let before = recv.readiness();
        let affordable = self.inc.solves.spend(now, job.wasted());
        match recv.on_solved(job, &mut self.inc.credit) {
            Ok(true) => {
                self.stats.blocks_solved += 1;
                if recv.readiness() > before {
                    self.events.push_back(Event::Readable(id));
                }
                self.on_block_complete(now, id, bytes);
            }
            Ok(false) if affordable => {}
            _ => self.violation(now, CloseCode::UNSOLVABLE),
        }
    }
}
