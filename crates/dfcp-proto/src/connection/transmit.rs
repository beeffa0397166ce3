//! One packet out.

use super::{Connection, Control, Split, State};
use crate::block::{ChannelId, SymbolOut};
use crate::config::Payload;
use crate::host::{MAX_BATCH, Priority, Transmit};
use crate::observe::{Observation, PacketInfo, PacketKind};
use crate::packet::{NewPacket, SymbolRef};
use crate::rate::Codepoint;
use crate::time::Instant;
use crate::wire::{
    BlockLen, Frame, ROUND_TRIP_LEN, SEALED_HEADER_LEN, SymbolHeader, TAG_LEN, emit_sealed_header,
    emit_virtual_symbol, part_overhead, symbol_overhead, virtual_symbol_size,
};

/// Size of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// Bytes in the buffer.
    written: usize,
    /// Bytes that it stands for beyond these.
    elided: usize,
}

impl Size {
    /// Bytes for the network.
    fn total(self) -> usize {
        self.written + self.elided
    }
}

/// Datagrams of one size, but for the last, which may be shorter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    datagrams: usize,
    /// Of the first.
    size: Size,
    total: usize,
    /// The last was shorter.
    ended: bool,
}

impl Batch {
    fn push(&mut self, size: Size) {
        if self.datagrams == 0 {
            self.size = size;
        }
        self.datagrams += 1;
        self.total += size.total();
        self.ended = size.written < self.size.written;
    }

    fn has_room_for(&self, next: Size) -> bool {
        let alike = next.written <= self.size.written && next.elided == self.size.elided;
        self.datagrams == 0 || (alike && self.total + next.total() <= MAX_BATCH)
    }
}

impl From<usize> for Batch {
    /// One datagram as it is.
    fn from(written: usize) -> Self {
        let mut batch = Self::default();
        batch.push(Size { written, elided: 0 });
        batch
    }
}

/// What is remembered of a packet.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub symbol: Option<SymbolRef>,
    pub control: Vec<Control>,
    pub ack_eliciting: bool,
    /// Bytes that the packet stands for beyond those in the buffer.
    pub elided: usize,
}

impl Connection {
    /// Writes the next datagrams to `out` (appended), at most `max_segments` and all of one size
    /// but the last.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let start = out.len();
        self.end_if_left(now);
        self.out.path.on_time(now);
        let batch = match self.state {
            State::Connecting(_) => {
                let syn = self.transmit_syn(now)?;
                out.extend_from_slice(&syn);
                self.tell_sent(now, PacketKind::Syn, syn.len());
                Batch::from(syn.len())
            }
            State::Closing { .. } | State::Draining { .. } => self.transmit_close(now, out)?,
            State::Closed => return None,
            State::Established => self.transmit_established(now, max_segments.max(1), out)?,
        };
        self.stats.packets_sent += batch.datagrams as u64;
        self.stats.bytes_sent += batch.total as u64;
        let ecn = match self.state {
            State::Established => self.out.path.rate().ecn() as u8,
            _ => 0,
        };
        Some(Transmit {
            destination: self.remote,
            ecn,
            size: out.len() - start,
            segment_size: (batch.datagrams > 1).then_some(batch.size.written),
            elided: batch.size.elided,
            priority: Priority::Data,
        })
    }

    /// A packet of the handshake leaves.
    fn tell_sent(&mut self, now: Instant, kind: PacketKind, len: usize) {
        self.observer.tell(now, || {
            Observation::Sent(PacketInfo {
                kind,
                number: None,
                size: len as u64,
                ecn: 0,
            })
        });
    }

    /// `None` if there was nothing to send.
    fn transmit_established(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Batch> {
        if let Some(ack) = self.confirm.as_mut().and_then(|c| c.transmit(now)) {
            out.extend_from_slice(ack);
            let len = ack.len();
            self.tell_sent(now, PacketKind::HandshakeAck, len);
            return Some(Batch::from(len));
        }
        if self.confirm.is_some()
            && let Some(syn) = self.transmit_syn(now)
        {
            out.extend_from_slice(&syn);
            self.tell_sent(now, PacketKind::Syn, syn.len());
            return Some(Batch::from(syn.len()));
        }
        if let Some(batch) = self.transmit_challenge(now, out) {
            return Some(batch);
        }
        if self.is_fenced() {
            return None;
        }
        self.probe_mtu(now);
        self.give_up(now);
        let report_due = self.inc.policy.due().is_some_and(|due| due <= now);
        if report_due || !self.out.control.is_empty() {
            return Some(self.transmit_control(now, out));
        }
        let datagrams_first = self.is_turn_of_datagrams();
        if datagrams_first && let Some(batch) = self.transmit_datagrams(now, out) {
            return Some(batch);
        }
        let batch = self.transmit_symbols(now, max_segments, out);
        if batch.datagrams > 0 {
            self.out.datagrams.on_symbols_sent(batch.total);
            return Some(batch);
        }
        if !datagrams_first && let Some(batch) = self.transmit_datagrams(now, out) {
            return Some(batch);
        }
        // A probe without data.
        (std::mem::take(&mut self.out.probes_due) > 0).then(|| {
            self.out.control.push_back(Control::Ping);
            self.transmit_control(now, out)
        })
    }

    /// As many symbols as may leave now; perhaps none.
    fn transmit_symbols(&mut self, now: Instant, max_segments: usize, out: &mut Vec<u8>) -> Batch {
        let mut batch = Batch::default();
        while batch.datagrams < max_segments
            && !batch.ended
            && let Some((id, symbol)) = self.next_symbol(now)
            && let size = self.datagram_size(id, &symbol)
            && batch.has_room_for(size)
            && self
                .transmit_symbol(now, id, (&symbol, size), out)
                .is_some()
        {
            batch.push(size);
            self.out.probes_due = self.out.probes_due.saturating_sub(1);
        }
        batch
    }

    fn datagram_size(&self, id: ChannelId, symbol: &SymbolOut) -> Size {
        let (mut head, mut len) = (self.symbol_head(id, symbol), symbol.symbol_len);
        let part = match &self.out.split {
            Some(split) => Some((split.sent, split.next())),
            None => self.part_len(id, symbol).map(|part| (0, part)),
        };
        if let Some((at, part)) = part {
            head += part_overhead(len, at);
            len = part;
        }
        let carried = match self.config.payload {
            Payload::Real => len,
            Payload::Virtual => virtual_symbol_size(len),
        };
        Size {
            written: head + carried + TAG_LEN,
            elided: len - carried,
        }
    }

    /// Bytes of a datagram before its symbol.
    fn symbol_head(&self, id: ChannelId, symbol: &SymbolOut) -> usize {
        let rate = self.out.path.rate();
        let head = usize::from(rate.departure().immediate_ack)
            + rate.round_trip().map_or(0, |_| ROUND_TRIP_LEN);
        let k = symbol.block_len.div_ceil(symbol.symbol_len as u64) as u32;
        SEALED_HEADER_LEN + head + symbol_overhead(id.0, symbol.offset, k, symbol.block_len)
    }

    /// Bytes of each part of a symbol that no datagram holds any more; `None` if one does.
    fn part_len(&self, id: ChannelId, symbol: &SymbolOut) -> Option<usize> {
        let room = self
            .mtu
            .saturating_sub(self.symbol_head(id, symbol) + TAG_LEN);
        let len = symbol.symbol_len;
        let parts = len.div_ceil(room.saturating_sub(part_overhead(len, len)).max(1));
        (len > room).then(|| len.div_ceil(parts))
    }

    /// Seals one symbol into `out`, as a datagram of this size, or the next part of one that a datagram
    /// cannot hold; `None` if the code failed, which ends the batch.
    fn transmit_symbol(
        &mut self,
        now: Instant,
        id: ChannelId,
        (symbol, size): (&SymbolOut, Size),
        out: &mut Vec<u8>,
    ) -> Option<()> {
        if self.out.split.is_none()
            && let Some(part) = self.part_len(id, symbol)
        {
            self.begin_split(now, id, symbol, part)?;
        }
        let start = out.len();
        let pn = self.begin_packet(now, out);
        self.emit_symbol_head(id, symbol, out);
        let is_whole = if self.out.split.is_some() {
            self.emit_part(out)
        } else {
            if self.config.payload == Payload::Virtual {
                emit_virtual_symbol(out, symbol.symbol_len);
            }
            if self.write_symbol(now, id, symbol, out).is_none() {
                out.truncate(start);
                return None;
            }
            true
        };
        self.out.data_number = self.out.data_number.wrapping_add(1);
        self.out.queue.on_served(id);
        if symbol.charge > 0 {
            // The block that it begins may want more.
            self.activate(id);
        }
        // With its last part a symbol arrives or is lost; reports tell if an earlier one was.
        let carried = SymbolRef {
            channel: id.0,
            offset: symbol.offset,
        };
        let contents = Contents {
            symbol: is_whole.then_some(carried),
            control: Vec::new(),
            ack_eliciting: true,
            elided: size.elided,
        };
        self.finish_packet(now, pn, start, out, contents);
        self.out.path.on_data_sent(now, size.total() as u64);
        if self.out.probes_due == 0 {
            self.out.vain_probes = 0;
        }
        Some(())
    }

    /// Everything before the symbol.
    fn emit_symbol_head(&self, id: ChannelId, symbol: &SymbolOut, out: &mut Vec<u8>) {
        if self.out.path.rate().departure().immediate_ack {
            Frame::ImmediateAck.emit(out);
        }
        if let Some(rtt) = self.out.path.rate().round_trip() {
            let number = self.out.data_number;
            let rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
            Frame::RoundTrip { number, rtt_us }.emit(out);
        }
        if let Some(split) = &self.out.split {
            let (symbol_len, at) = (symbol.symbol_len as u64, split.sent as u64);
            Frame::Part { symbol_len, at }.emit(out);
        }
        let header = SymbolHeader {
            scheme: symbol.scheme,
            channel: id.0,
            offset: symbol.offset,
            block: BlockLen::new(symbol.block_len, symbol.symbol_len),
            esi: symbol.esi,
        };
        header.emit(out);
    }

    /// Lets the code append the symbol, and counts it; `None` if the code failed.
    fn write_symbol(
        &mut self,
        now: Instant,
        id: ChannelId,
        symbol: &SymbolOut,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let policy = self.out.redundancy.policy();
        let send = self.channels.sender(id)?;
        send.write_symbol(now, symbol, out, policy).ok()?;
        let source = symbol.block_len.div_ceil(symbol.symbol_len as u64);
        if u64::from(symbol.esi) < source {
            self.stats.source_symbols_sent += 1;
        } else {
            self.stats.repair_symbols_sent += 1;
        }
        if symbol.charge > 0 {
            self.out.charged += symbol.charge;
            self.out.unsent = self.out.unsent.saturating_sub(symbol.block_len);
            self.notify_writable(id);
            if id.is_message(symbol.block_len) {
                self.out.path.on_message_sent(now);
            }
        }
        Some(())
    }

    /// Writes a symbol down that leaves in parts of `part` bytes.
    fn begin_split(
        &mut self,
        now: Instant,
        channel: ChannelId,
        symbol: &SymbolOut,
        part: usize,
    ) -> Option<()> {
        let mut bytes = Vec::new();
        self.write_symbol(now, channel, symbol, &mut bytes)?;
        self.out.split = Some(Split {
            channel,
            symbol: *symbol,
            bytes,
            sent: 0,
            part,
        });
        Some(())
    }

    /// Appends the next part; true if it is the last.
    fn emit_part(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(split) = &mut self.out.split else {
            return true;
        };
        let len = split.next();
        match self.config.payload {
            Payload::Real => out.extend_from_slice(&split.bytes[split.sent..][..len]),
            Payload::Virtual => emit_virtual_symbol(out, len),
        }
        split.sent += len;
        let is_last = split.sent >= split.symbol.symbol_len;
        if is_last {
            self.out.split = None;
        }
        is_last
    }

    /// Tries a larger datagram, one probe at a time; not where the peer may not be.
    fn probe_mtu(&mut self, now: Instant) {
        if self.is_validated()
            && let Some(size) = self.out.mtu_search.probe(now, self.mtu)
        {
            self.out.control.push_back(Control::MtuProbe(size));
        }
    }

    /// Writes the header of the next packet and returns its number.
    pub(super) fn begin_packet(&mut self, now: Instant, out: &mut Vec<u8>) -> u64 {
        if self.out.sent.next_number() >= self.out.next_skip {
            self.out.sent.skip_number(now);
            self.out.next_skip = self.out.sent.next_number() + 256 + self.rng.below(4096);
        }
        let pn = self.out.sent.next_number();
        emit_sealed_header(out, self.remote_cid, pn);
        pn
    }

    /// Seals and records the packet that begins at `start`.
    pub(super) fn finish_packet(
        &mut self,
        now: Instant,
        pn: u64,
        start: usize,
        out: &mut Vec<u8>,
        contents: Contents,
    ) {
        if let Some(sealer) = &mut self.sealer {
            sealer.renew(now, pn, self.out.sent.largest_acked());
            sealer.seal(pn, out, start, SEALED_HEADER_LEN);
            if self.confirm.is_none() {
                self.out.recent.push(&out[start..]);
            }
        }
        let size = (out.len() - start + contents.elided) as u16;
        let ecn = match self.state {
            State::Established => self.out.path.rate().ecn() as u8,
            _ => 0,
        };
        self.observer.tell(now, || {
            let (kind, number) = (PacketKind::Sealed, Some(pn));
            Observation::Sent(PacketInfo {
                kind,
                number,
                size: size.into(),
                ecn,
            })
        });
        // What asks for no acknowledgement is never known to have arrived: counted, it would pass for lost.
        if contents.ack_eliciting {
            self.out.path.count_sent(size.into());
        }
        if let Some(moved) = &mut self.out.moved {
            moved.on_sent(u64::from(size));
        }
        if contents.ack_eliciting {
            self.out.last_eliciting = pn;
            self.out.last_sent = now;
            if !self.out.sent.any_in_flight() {
                self.out.waiting_since = now;
            }
        }
        self.out.sent.push(NewPacket {
            time: now,
            size,
            sent_total: self.out.path.sent_total(),
            ect: self.out.path.rate().ecn() != Codepoint::NotCapable,
            place: self.out.path.place(),
            symbol: contents.symbol,
            control: contents.control,
            ack_eliciting: contents.ack_eliciting,
        });
    }
}
