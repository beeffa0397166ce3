//! One packet out.

use super::{CloseCode, Connection, Control, Split, State};
use crate::block::{ChannelId, RecvChannel, SendChannel, SymbolOut};
use crate::config::{MIN_DATAGRAM, Payload};
use crate::host::{MAX_BATCH, Priority, Transmit};
use crate::packet::{NewPacket, SymbolRef};
use crate::rate::{Codepoint, PathReport};
use crate::time::{Duration, Instant};
use crate::wire::{
    BlockLen, Frame, ROUND_TRIP_LEN, SEALED_HEADER_LEN, SackReport, SymbolHeader, TAG_LEN,
    emit_sealed_header, emit_virtual_symbol, part_overhead, symbol_overhead, virtual_symbol_size,
};
use std::collections::BTreeSet;

/// Largest share of a report packet that ACK ranges may take.
const ACK_ROOM: usize = 600;
/// Bytes of the shortest range.
const LEAST_RANGE: usize = 2;
/// Bytes of a SACK frame with at least one pair.
const MIN_SACK_ROOM: usize = 60;
/// Bytes of data below which flow control is worth an update: a quarter of the budget.
const CREDIT_STEP: u64 = 4;

/// Packets in a row that ask for no feedback: without any, the record of them would only grow.
const MAX_SILENT: u64 = 64;
/// The longest control frame: four eight-byte numbers and a type.
const MAX_CONTROL: usize = 33;

/// Walks a set once around, from a starting point; the set may shrink on the way.
struct Turn {
    start: ChannelId,
    at: ChannelId,
    wrapped: bool,
}

impl Turn {
    fn new(start: ChannelId) -> Self {
        Self {
            start,
            at: start,
            wrapped: false,
        }
    }

    fn next(&mut self, set: &BTreeSet<ChannelId>) -> Option<ChannelId> {
        let mut next = set.range(self.at..).next().copied();
        if next.is_none() && !self.wrapped {
            self.wrapped = true;
            next = set.first().copied();
        }
        let id = next.filter(|&id| !self.wrapped || id < self.start)?;
        self.at = ChannelId(id.0 + 1);
        Some(id)
    }
}

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
struct Batch {
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
struct Contents {
    symbol: Option<SymbolRef>,
    control: Vec<Control>,
    ack_eliciting: bool,
    /// Bytes that the packet stands for beyond those in the buffer.
    elided: usize,
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
        let batch = match self.state {
            State::Connecting(_) => {
                let syn = self.transmit_syn(now)?;
                out.extend_from_slice(&syn);
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

    /// `None` if there was nothing to send.
    fn transmit_established(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Batch> {
        if let Some(ack) = self.confirm.as_mut().and_then(|c| c.transmit(now)) {
            out.extend_from_slice(ack);
            return Some(Batch::from(ack.len()));
        }
        self.probe_mtu(now);
        self.give_up(now);
        let report_due = self.inc.policy.due().is_some_and(|due| due <= now);
        if report_due || !self.out.control.is_empty() {
            return Some(self.transmit_control(now, out));
        }
        let mut batch = Batch::default();
        while batch.datagrams < max_segments
            && !batch.ended
            && let Some((id, symbol)) = self.next_symbol(now)
            && batch.has_room_for(self.datagram_size(id, &symbol))
            && let Some(size) = self.transmit_symbol(now, id, &symbol, out)
        {
            batch.push(size);
        }
        if batch.datagrams == 0 {
            if self.out.probes_due > 0 {
                self.out.probes_due = 0;
                self.out.control.push_back(Control::Ping);
                return Some(self.transmit_control(now, out));
            }
            return None;
        }
        Some(batch)
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
        let head =
            usize::from(rate.departure().echo) + rate.round_trip().map_or(0, |_| ROUND_TRIP_LEN);
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

    /// The symbol that window, pacer and scheduler let go now; probes pass the first two.
    fn next_symbol(&mut self, now: Instant) -> Option<(ChannelId, SymbolOut)> {
        if self.out.probes_due == 0 {
            let waits = !self.out.active.is_empty() && !self.out.blocked;
            if !waits && self.out.split.is_none() {
                self.out.path.on_idle();
                return None;
            }
            if !self.has_window_room() || !self.out.path.may_depart(now) {
                return None;
            }
        }
        if let Some(split) = &self.out.split {
            return Some((split.channel, split.symbol));
        }
        let picked = self.pick();
        if picked.is_none() {
            self.out.blocked = true;
            self.out.path.on_idle();
            if self.out.probes_due > 0 {
                let sends = self
                    .channels
                    .iter()
                    .filter_map(|(id, c)| Some((*id, c.send.as_ref()?)));
                return sends
                    .into_iter()
                    .find_map(|(id, send)| Some((id, send.probe()?)));
            }
        }
        picked
    }

    /// Serves channels in turn: blocks that lack symbols first, new blocks after.
    fn pick(&mut self) -> Option<(ChannelId, SymbolOut)> {
        let loss = self.out.loss.estimate();
        let cut = self.cut();
        let credit = self.out.max_data.saturating_sub(self.out.charged);
        let scheduler = &*self.out.scheduler;
        let limit = scheduler.max_open_blocks();
        let senders = || self.channels.values().filter_map(|c| c.send.as_ref());
        let full =
            limit < usize::MAX && senders().map(SendChannel::open_blocks).sum::<usize>() >= limit;
        for repair in [true, false] {
            let mut turn = Turn::new(self.out.cursor);
            while let Some(id) = turn.next(&self.out.active) {
                let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) else {
                    self.out.active.remove(&id);
                    continue;
                };
                let symbol = if repair {
                    send.next_repair(scheduler, loss)
                } else {
                    if full {
                        continue;
                    }
                    // An error means a geometry that the code refuses: none is cut by us.
                    send.next_new(&cut, credit).ok().flatten()
                };
                if let Some(symbol) = symbol {
                    return Some((id, symbol));
                }
                if !send.is_active() {
                    self.out.active.remove(&id);
                }
            }
        }
        None
    }

    /// Seals one symbol into `out`, or the next part of one that a datagram cannot hold; `None` if the
    /// code failed, which ends the batch.
    fn transmit_symbol(
        &mut self,
        now: Instant,
        id: ChannelId,
        symbol: &SymbolOut,
        out: &mut Vec<u8>,
    ) -> Option<Size> {
        if self.out.split.is_none()
            && let Some(part) = self.part_len(id, symbol)
        {
            self.begin_split(id, symbol, part)?;
        }
        let size = self.datagram_size(id, symbol);
        let start = out.len();
        let pn = self.begin_packet(now, out);
        self.emit_symbol_head(id, symbol, out);
        let is_whole = if self.out.split.is_some() {
            self.emit_part(out)
        } else {
            if self.config.payload == Payload::Virtual {
                emit_virtual_symbol(out, symbol.symbol_len);
            }
            if self.write_symbol(id, symbol, out).is_none() {
                out.truncate(start);
                return None;
            }
            true
        };
        self.out.data_number = self.out.data_number.wrapping_add(1);
        self.out.cursor = ChannelId(id.0 + 1);
        self.out.probes_due = self.out.probes_due.saturating_sub(1);
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
        Some(size)
    }

    /// Everything before the symbol.
    fn emit_symbol_head(&self, id: ChannelId, symbol: &SymbolOut, out: &mut Vec<u8>) {
        if self.out.path.rate().departure().echo {
            Frame::Ping.emit(out);
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
    fn write_symbol(&mut self, id: ChannelId, symbol: &SymbolOut, out: &mut Vec<u8>) -> Option<()> {
        let loss = self.out.loss.estimate();
        let send = self.channels.get_mut(&id).and_then(|c| c.send.as_mut())?;
        let scheduler = &*self.out.scheduler;
        send.write_symbol(symbol, out, scheduler, loss).ok()?;
        let source = symbol.block_len.div_ceil(symbol.symbol_len as u64);
        if u64::from(symbol.esi) < source {
            self.stats.source_symbols_sent += 1;
        } else {
            self.stats.repair_symbols_sent += 1;
        }
        if symbol.charge > 0 {
            self.out.charged += symbol.charge;
            self.notify_writable();
        }
        Some(())
    }

    /// Writes a symbol down that leaves in parts of `part` bytes.
    fn begin_split(&mut self, channel: ChannelId, symbol: &SymbolOut, part: usize) -> Option<()> {
        let mut bytes = Vec::new();
        self.write_symbol(channel, symbol, &mut bytes)?;
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

    /// Feedback and control frames in a packet of their own.
    fn transmit_control(&mut self, now: Instant, out: &mut Vec<u8>) -> Batch {
        let start = out.len();
        let room = |out: &Vec<u8>, mtu: usize| mtu.saturating_sub(out.len() - start + TAG_LEN);
        let pn = self.begin_packet(now, out);
        self.emit_feedback(now, out, start);
        let report = out.len() - start + TAG_LEN;
        self.inc.policy.on_sent(now, report as u64);
        let mut sent = Vec::new();
        let mut pad_to = 0;
        while let Some(control) = self.out.control.pop_front() {
            if room(out, self.mtu) < MAX_CONTROL {
                self.out.control.push_front(control);
                break;
            }
            let alone = matches!(control, Control::MtuProbe(_));
            if let Control::MtuProbe(size) = control {
                pad_to = usize::from(size);
            }
            self.emit_control(control, out);
            sent.push(control);
            if alone {
                break;
            }
        }
        if pad_to > 0 {
            out.resize((start + pad_to - TAG_LEN).max(out.len()), 0);
        }
        let silent = self
            .out
            .sent
            .next_number()
            .saturating_sub(self.out.last_eliciting);
        if sent.is_empty() && silent >= MAX_SILENT && room(out, self.mtu) > 0 {
            self.emit_control(Control::Ping, out);
            sent.push(Control::Ping);
        }
        let contents = Contents {
            ack_eliciting: !sent.is_empty(),
            control: sent,
            ..Contents::default()
        };
        self.finish_packet(now, pn, start, out, contents);
        Batch::from(out.len() - start)
    }

    fn emit_control(&self, control: Control, out: &mut Vec<u8>) {
        let channel = |id: ChannelId| self.channels.get(&id);
        match control {
            Control::Ping | Control::MtuProbe(_) => Frame::Ping.emit(out),
            Control::FeedbackRate => {
                Frame::FeedbackRate(self.out.reverse.limit().unwrap_or(0)).emit(out);
            }
            Control::MaxStreamData(id) => {
                let recv = channel(id).and_then(|c| c.recv.as_ref());
                let limit = recv.map_or(0, RecvChannel::limit);
                Frame::MaxStreamData {
                    channel: id.0,
                    limit,
                }
                .emit(out);
            }
            Control::Fin(id) => match channel(id).and_then(|c| c.send.as_ref()) {
                Some(send) if !send.is_abandoned() => Frame::Fin {
                    channel: id.0,
                    size: send.size(),
                }
                .emit(out),
                _ => Frame::Ping.emit(out),
            },
            Control::Reset(id, code) => {
                let charged = channel(id)
                    .and_then(|c| c.send.as_ref())
                    .map_or(0, SendChannel::charged);
                Frame::Reset {
                    channel: id.0,
                    code,
                    charged,
                }
                .emit(out);
            }
            Control::Stop(id, code) => Frame::Stop {
                channel: id.0,
                code,
            }
            .emit(out),
            Control::Skip(id, skip) => Frame::Skip {
                channel: id.0,
                offset: skip.offset,
                len: skip.len,
                charged: skip.charged,
            }
            .emit(out),
        }
    }

    /// Everything the peer should know about what arrived, as far as it fits into a datagram that every
    /// path carries: no report is lost because a path became narrower.
    fn emit_feedback(&mut self, now: Instant, out: &mut Vec<u8>, start: usize) {
        let Some(largest) = self.inc.received.largest() else {
            return;
        };
        let path = self.inc.policy.report(now);
        let mut touched = std::mem::take(&mut self.inc.touched);
        // Before the ACK: what this says of the path is part of what that teaches.
        if let Some(path) = path {
            for &id in touched.keys() {
                self.emit_sack(id, path, out, start);
            }
        }
        let micros = |d: Duration| d.as_micros() as u64;
        let head = [
            largest,
            micros(self.inc.largest_at.saturating_since(self.epoch)),
            micros(now.saturating_since(self.inc.largest_at)),
            self.inc.ce,
        ];
        let news = self.inc.received.news(ACK_ROOM / LEAST_RANGE);
        let said = Frame::emit_ack(out, head, news.iter().copied(), ACK_ROOM);
        self.inc.received.on_reported(&news[..said]);
        let credit = &mut self.inc.credit;
        credit.granted = credit.granted.max(credit.grantable());
        Frame::MaxData(credit.granted).emit(out);
        touched.retain(|&id, left| {
            let room = (MIN_DATAGRAM - TAG_LEN).saturating_sub(out.len() - start);
            if room < 40 {
                return true; // next report
            }
            let (done_below, entries) = self.channel_report(id);
            *left -= 1;
            // A SACK said it all.
            let said = path.is_some() && entries.iter().all(|&(_, needed)| needed == 0);
            if said && self.receiver(id).is_some() {
                return *left > 0;
            }
            Frame::emit_blocks(out, id.0, done_below, entries.into_iter(), room);
            *left > 0
        });
        self.inc.touched.append(&mut touched);
    }

    /// What there is room for on a channel, with what the policy says of the path.
    fn emit_sack(&mut self, id: ChannelId, path: PathReport, out: &mut Vec<u8>, start: usize) {
        let room = (MIN_DATAGRAM - TAG_LEN).saturating_sub(out.len() - start + ACK_ROOM);
        let window = u64::from(self.config.receive_packets);
        let recv = self.channels.get_mut(&id).and_then(|c| c.recv.as_mut());
        let Some(recv) = recv.filter(|_| room >= MIN_SACK_ROOM) else {
            return;
        };
        let avail_win = window.saturating_sub(recv.occupancy()) as u8;
        let (offset, parts) = recv.sack();
        let report = SackReport::new(path, id.0, avail_win, offset);
        Frame::emit_sack(out, &report, parts.into_iter(), room);
    }

    /// Reports soon that the application took something from a channel.
    pub(super) fn offer_room(&mut self, now: Instant, id: ChannelId) {
        if self.inc.reports_room {
            self.inc.touched.entry(id).or_insert(1);
            self.inc.policy.on_room(now);
        }
    }

    fn receiver(&self, id: ChannelId) -> Option<&RecvChannel> {
        self.channels.get(&id).and_then(|c| c.recv.as_ref())
    }

    /// Asks for a report soon when the application freed a good part of the budget.
    pub(super) fn offer_credit(&mut self, now: Instant) {
        let credit = &self.inc.credit;
        if credit.grantable() >= credit.granted + credit.budget / CREDIT_STEP {
            self.inc.policy.on_urgent(now);
        }
    }

    /// Tries a larger datagram, one probe at a time.
    fn probe_mtu(&mut self, now: Instant) {
        if let Some(size) = self.out.mtu_search.probe(now, self.mtu) {
            self.out.control.push_back(Control::MtuProbe(size));
        }
    }

    /// Says that this side closed, or has heard that the peer did.
    fn transmit_close(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Batch> {
        let ends = now + self.close_time();
        let (code, reason) = match &mut self.state {
            State::Closing {
                code,
                reason,
                until,
                due,
                ..
            } => {
                *due = due.checked_sub(1)?;
                until.get_or_insert(ends);
                (*code, reason.clone())
            }
            State::Draining { due, .. } => {
                std::mem::take(due).then_some(())?;
                (CloseCode::NO_ERROR, String::new())
            }
            _ => return None,
        };
        let start = out.len();
        let pn = self.begin_packet(now, out);
        Frame::Close {
            code: code.0,
            reason: reason.as_bytes(),
        }
        .emit(out);
        self.finish_packet(now, pn, start, out, Contents::default());
        Some(Batch::from(out.len() - start))
    }

    /// Writes the header of the next packet and returns its number.
    fn begin_packet(&mut self, now: Instant, out: &mut Vec<u8>) -> u64 {
        if self.out.sent.next_number() >= self.out.next_skip {
            self.out.sent.skip_number(now);
            self.out.next_skip = self.out.sent.next_number() + 256 + self.rng.below(4096);
        }
        let pn = self.out.sent.next_number();
        emit_sealed_header(out, self.remote_cid, pn);
        pn
    }

    /// Seals and records the packet that begins at `start`.
    fn finish_packet(
        &mut self,
        now: Instant,
        pn: u64,
        start: usize,
        out: &mut Vec<u8>,
        contents: Contents,
    ) {
        if let Some(sealer) = &mut self.sealer {
            sealer.seal(pn, out, start, SEALED_HEADER_LEN);
        }
        let size = (out.len() - start + contents.elided) as u16;
        self.out.path.count_sent(size.into());
        if let Some(moved) = &mut self.out.moved {
            moved.sent += u64::from(size);
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
            symbol: contents.symbol,
            control: contents.control,
            ack_eliciting: contents.ack_eliciting,
        });
    }
}
