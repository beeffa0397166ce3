//! One packet in.

use super::{Channel, CloseCode, Connection, ConnectionError, Control, Event, Moved, State};
use crate::block::{ChannelId, Received, RecvChannel, SendChannel, Skip, SolveJob, SymbolIn};
use crate::config::Payload;
use crate::feedback::Arrival;
use crate::packet::{SentPacket, SymbolRef, decode_packet_number};
use crate::rate::{AckPoint, Feedback};
use crate::scheduler::Room;
use crate::time::{Duration, Instant};
use crate::wire::{
    AckRanges, BlockReport, Frame, FrameIter, SEALED_HEADER_LEN, SackReport, Sealed,
    virtual_symbol_len,
};
use std::net::SocketAddr;

/// Congestion Experienced (RFC 3168).
const ECN_CE: u8 = 0b11;
/// Reports that name a channel after its last symbol.
pub(super) const TOUCHED_REPORTS: u8 = 4;

impl Connection {
    /// Takes a protected packet from `remote`, opening it in place.
    pub(crate) fn handle_sealed(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ecn: u8,
        header: Sealed,
        datagram: &mut [u8],
    ) {
        let size = datagram.len() as u64;
        let pn = decode_packet_number(self.inc.received.largest(), header.packet_number);
        let Some(opener) = &mut self.opener else {
            return;
        };
        let Ok(plaintext) = opener.open(pn, datagram, SEALED_HEADER_LEN) else {
            self.stats.forged += 1;
            return;
        };
        let newest = self.inc.received.largest().is_none_or(|l| pn > l);
        if !self.inc.received.insert(pn) {
            self.stats.duplicates += 1;
            return;
        }
        self.stats.packets_received += 1;
        self.stats.bytes_received += size;
        self.inc.last_heard = now;
        match &mut self.state {
            State::Established => {}
            State::Closing { due, .. } => {
                *due = (*due).max(1);
                return;
            }
            _ => return,
        }
        self.on_confirmed(now);
        if newest {
            self.inc.largest_at = now;
            // Only the newest packet may move the peer: a delayed one would move it back.
            if std::mem::replace(&mut self.remote, remote) != remote {
                let first = self.out.sent.next_number();
                self.out.moved = Some(Moved {
                    first,
                    received: 0,
                    sent: 0,
                });
            }
        }
        if ecn == ECN_CE {
            self.inc.ce += 1;
            self.stats.ce_received += 1;
        }
        let plaintext: &[u8] = plaintext;
        let (mut eliciting, mut elided) = (false, 0);
        let (mut ping, mut symbol) = (false, false);
        let mut head = None;
        self.inc.path = None;
        for frame in FrameIter::new(plaintext) {
            let Ok(frame) = frame else {
                return self.violation(now, CloseCode::PROTOCOL);
            };
            eliciting |= frame.is_ack_eliciting();
            ping |= matches!(frame, Frame::Ping);
            symbol |= matches!(frame, Frame::Symbol { .. });
            elided += self.elided(&frame);
            if let Frame::RoundTrip { number, rtt_us } = frame {
                head = Some((number, Duration::from_micros(rtt_us.into())));
            }
            if let Err(code) = self.on_frame(now, pn, frame) {
                return self.violation(now, code);
            }
            if !self.is_established() {
                return; // nothing follows a CLOSE
            }
        }
        self.stats.bytes_received += elided;
        if let Some(moved) = self.out.moved.as_mut().filter(|_| remote == self.remote) {
            moved.received += size + elided;
        }
        let mut arrival = Arrival::new(pn, size + elided);
        arrival.marked = ecn == ECN_CE;
        arrival.data_number = head.map(|(number, _)| number);
        arrival.rtt = head.map_or(self.out.rtt.smoothed(), |(_, rtt)| rtt);
        if ping && symbol {
            self.inc.policy.on_echo(now, &arrival);
        } else if eliciting {
            self.inc.policy.on_packet(now, &arrival);
        }
    }

    /// Bytes that `frame` stands for beyond those that it has.
    fn elided(&self, frame: &Frame<'_>) -> u64 {
        match (self.config.payload, frame) {
            (Payload::Virtual, Frame::Symbol { data, .. }) => {
                let len = virtual_symbol_len(data).unwrap_or_default();
                len.saturating_sub(data.len()) as u64
            }
            _ => 0,
        }
    }

    fn violation(&mut self, now: Instant, code: CloseCode) {
        self.close_with(
            now,
            code,
            "protocol violation",
            ConnectionError::Violation(code),
        );
    }

    fn on_frame(&mut self, now: Instant, pn: u64, frame: Frame<'_>) -> Result<(), CloseCode> {
        match frame {
            Frame::Ping | Frame::RoundTrip { .. } => {}
            Frame::Ack {
                largest,
                received_at_us,
                delay_us,
                ce,
                ranges,
            } => {
                self.on_ack(now, [largest, received_at_us, delay_us, ce], &ranges)?;
            }
            Frame::Blocks(report) => self.on_report(now, pn, &report),
            Frame::Sack(report) => self.on_sack(now, pn, &report),
            Frame::Symbol {
                scheme,
                channel,
                offset,
                block_len,
                esi,
                data,
            } => {
                let (len, data) = match self.config.payload {
                    Payload::Real => (data.len(), data),
                    Payload::Virtual => {
                        let len = virtual_symbol_len(data).ok_or(CloseCode::PROTOCOL)?;
                        (len, &[][..])
                    }
                };
                let symbol = SymbolIn {
                    scheme,
                    offset,
                    block_len,
                    esi,
                    len,
                    data,
                };
                self.on_symbol(now, ChannelId(channel), &symbol)?;
            }
            Frame::MaxData(limit) => {
                if limit > self.out.max_data {
                    self.out.max_data = limit;
                    self.out.blocked = false;
                }
            }
            Frame::MaxStreamData { channel, limit } => {
                let id = self.known(channel)?;
                if let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) {
                    send.raise_limit(limit);
                    self.activate(id);
                }
            }
            Frame::Fin { channel, size } => self.on_fin(now, channel, size)?,
            Frame::Reset {
                channel,
                code,
                charged,
            } => {
                let id = self.known(channel)?;
                let Some(recv) = self.channels.get_mut(&id).and_then(|c| c.recv.as_mut()) else {
                    return Ok(());
                };
                // After a STOP of ours it says what credit is left to free.
                let news = recv.ended().is_none();
                recv.end(code, Some(charged), &mut self.inc.credit);
                if news {
                    self.events.push_back(Event::Reset { channel: id, code });
                }
                self.inc.policy.on_urgent(now);
                self.drop_discarded(id);
            }
            Frame::Stop { channel, code } => {
                let id = self.known(channel)?;
                if self.abandon_send(id, code) {
                    self.events.push_back(Event::Stopped { channel: id, code });
                }
            }
            Frame::Skip {
                channel,
                offset,
                len,
                charged,
            } => {
                let id = self.known(channel)?;
                let skip = Skip {
                    offset,
                    len,
                    charged,
                };
                self.on_skip(now, id, &skip)?;
            }
            Frame::Close { code, reason } => self.on_close(now, CloseCode(code), reason),
        }
        Ok(())
    }

    fn on_close(&mut self, now: Instant, code: CloseCode, reason: &[u8]) {
        let error = match code {
            CloseCode::REFUSED => ConnectionError::Refused,
            code => ConnectionError::PeerClosed {
                code,
                reason: String::from_utf8_lossy(reason).into_owned(),
            },
        };
        self.state = State::Draining {
            until: now + self.close_time(),
        };
        self.events.push_back(Event::Closed(error));
    }

    /// The channel a frame names; opens it, and those below it, if the peer may.
    fn known(&mut self, channel: u64) -> Result<ChannelId, CloseCode> {
        let id = ChannelId(channel);
        if id.opener() == self.role {
            let opened = id.index() < self.next_local[id.kind() as usize];
            return if opened {
                Ok(id)
            } else {
                Err(CloseCode::PROTOCOL)
            };
        }
        let next = self.next_remote[id.kind() as usize];
        if id.index() < next {
            return Ok(id);
        }
        let open = self
            .channels
            .keys()
            .filter(|c| c.opener() != self.role)
            .count() as u64;
        // The peer may learn of an ended channel later than we do: twice the limit is excess.
        if id.index() - next >= (2 * self.config.max_channels).saturating_sub(open) {
            return Err(CloseCode::LIMIT);
        }
        let stream_limit = self.peer_params.as_ref().map_or(0, |p| p.max_stream_data);
        for index in next..=id.index() {
            let id = ChannelId::new(id.opener(), id.kind(), index);
            let send = id
                .can_send(self.role)
                .then(|| self.new_sender(id, stream_limit));
            let config = &self.config;
            let recv = Some(RecvChannel::new(id, config.stream_window, config.payload));
            self.channels.insert(id, Channel { send, recv });
            self.events.push_back(Event::Opened(id));
        }
        self.next_remote[id.kind() as usize] = id.index() + 1;
        Ok(id)
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
        self.inc.touched.insert(id, TOUCHED_REPORTS);
        let Some(recv) = self.channels.get_mut(&id).and_then(|c| c.recv.as_mut()) else {
            self.stats.redundant_symbols += 1;
            return Ok(());
        };
        let was_readable = recv.is_readable();
        match recv.on_symbol(symbol, &mut self.inc.credit)? {
            Received::Redundant => self.stats.redundant_symbols += 1,
            Received::Progress => {}
            Received::Solvable => self.inc.policy.on_block(now),
            Received::Complete => {
                self.inc.policy.on_block(now);
                self.on_block_settled(now, id);
            }
        }
        let recv = self.channels.get(&id).and_then(|c| c.recv.as_ref());
        let window = u64::from(self.config.receive_packets);
        if self.inc.reports_room && recv.is_some_and(|recv| recv.occupancy() > window) {
            self.stats.beyond_window += 1;
        }
        if !was_readable && recv.is_some_and(RecvChannel::is_readable) {
            self.events.push_back(Event::Readable(id));
        }
        Ok(())
    }

    pub(super) fn on_block_settled(&mut self, now: Instant, id: ChannelId) {
        let Some(recv) = self.channels.get(&id).and_then(|c| c.recv.as_ref()) else {
            return;
        };
        if recv.is_complete() {
            self.inc.policy.on_urgent(now);
        }
        if recv.is_excessive() {
            self.violation(now, CloseCode::LIMIT);
        }
    }

    fn on_fin(&mut self, now: Instant, channel: u64, size: u64) -> Result<(), CloseCode> {
        let id = self.known(channel)?;
        self.inc.touched.insert(id, TOUCHED_REPORTS);
        let Some(recv) = self.channels.get_mut(&id).and_then(|c| c.recv.as_mut()) else {
            return Ok(());
        };
        if recv.final_size() == Some(size) {
            return Ok(());
        }
        recv.on_fin(size)?;
        if recv.ended().is_some() {
            self.drop_discarded(id);
            return Ok(());
        }
        if recv.is_complete() {
            self.inc.policy.on_urgent(now);
        }
        self.events.push_back(Event::Readable(id));
        Ok(())
    }

    /// Work that the driver should do, here or on another thread, and hand back with
    /// [`Connection::finish_solve`].
    pub fn take_solve_job(&mut self) -> Option<SolveJob> {
        let touched = self.inc.touched.keys().copied();
        for id in touched {
            let recv = self.channels.get_mut(&id).and_then(|c| c.recv.as_mut());
            if let Some(job) = recv.and_then(RecvChannel::take_job) {
                return Some(job);
            }
        }
        None
    }

    /// Takes a finished job back.
    pub fn finish_solve(&mut self, now: Instant, job: SolveJob) {
        let id = job.channel;
        let Some(recv) = self.channels.get_mut(&id).and_then(|c| c.recv.as_mut()) else {
            return;
        };
        let was_readable = recv.is_readable();
        if recv.on_solved(job) {
            self.stats.blocks_solved += 1;
            if !was_readable && recv.is_readable() {
                self.events.push_back(Event::Readable(id));
            }
            self.on_block_settled(now, id);
        }
    }

    fn on_ack(
        &mut self,
        now: Instant,
        [largest, received_at_us, delay_us, ce]: [u64; 4],
        ranges: &AckRanges<'_>,
    ) -> Result<(), CloseCode> {
        let outcome = self
            .out
            .sent
            .on_ack(now, largest, ranges)
            .ok_or(CloseCode::PROTOCOL)?;
        self.out.moved = self.out.moved.filter(|moved| largest < moved.first);
        let loss = self.out.loss.estimate();
        let scheduler = &*self.out.scheduler;
        for (_, packet) in &outcome.acked {
            self.out.delivered_total += u64::from(packet.size);
            if let Some(symbol) = packet.symbol {
                let id = ChannelId(symbol.channel);
                let send = self.channels.get_mut(&id).and_then(|c| c.send.as_mut());
                if let Some(send) = send {
                    let written_off = packet.was_written_off();
                    send.on_settled(symbol.offset, true, written_off, scheduler, loss);
                }
            }
        }
        for _ in 0..outcome.spurious {
            self.out.loss.undo_loss();
            self.stats.spurious_losses += 1;
        }
        let mut newest = None;
        if outcome.largest_advanced
            && let Some((_, packet)) = outcome.acked.iter().find(|(pn, _)| *pn == largest)
        {
            let delay = Duration::from_micros(delay_us);
            self.out
                .rtt
                .update(now.saturating_since(packet.time), delay);
            let mut point = AckPoint::new(
                Duration::from_micros(received_at_us),
                packet.time,
                packet.sent_total,
                self.out.delivered_total,
            );
            point.size = u64::from(packet.size);
            newest = Some(point);
        }
        let acked = outcome.acked.len() as u64;
        for (_, packet) in outcome.acked {
            packet
                .control
                .into_iter()
                .for_each(|c| self.on_control_acked(c));
        }
        let ce_new = ce.saturating_sub(self.inc.peer_ce);
        self.inc.peer_ce = self.inc.peer_ce.max(ce);
        self.detect_losses(now, newest, acked, ce_new);
        if acked > 0 {
            self.out.pto_count = 0;
        }
        Ok(())
    }

    fn on_control_acked(&mut self, control: Control) {
        match control {
            Control::Fin(id) => {
                if let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) {
                    send.fin_acked = true;
                }
                self.check_acknowledged(id);
            }
            Control::Reset(id, _) => {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.send = None;
                    self.forget_if_over(id);
                }
            }
            Control::Skip(id, _) => {
                if let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) {
                    send.on_skip_acked();
                }
                self.check_acknowledged(id);
            }
            Control::MtuProbe(size) => {
                self.mtu = self.mtu.max(usize::from(size));
                self.out.mtu_search.on_acked(self.mtu);
            }
            _ => {}
        }
    }

    /// Finds lost packets, puts back what they carried, and tells the rate controller everything
    /// that this moment taught.
    pub(super) fn detect_losses(
        &mut self,
        now: Instant,
        newest: Option<AckPoint>,
        acked: u64,
        ce_new: u64,
    ) {
        let rtt = self.loss_rtt();
        let lost = self.out.sent.detect_lost(now, rtt);
        let lost_count = lost.len() as u64;
        self.stats.packets_lost += lost_count;
        // After a blackout the lost packets tell of the blackout, not of the path's loss rate.
        if self.out.pto_count < 2 {
            self.out.loss.update(acked, lost_count);
        }
        lost.into_iter()
            .for_each(|(_, packet)| self.on_lost(now, packet));
        for symbol in self.out.sent.write_off(now, rtt) {
            self.write_off(symbol, false);
        }
        let mut feedback = Feedback::new(now, &self.out.rtt);
        feedback.newest = newest;
        feedback.acked_packets = acked;
        feedback.lost_packets = lost_count;
        feedback.ce_packets = ce_new;
        feedback.bytes_in_flight = self.out.sent.bytes_in_flight();
        feedback.idle_total = self.out.idle_total;
        feedback.path = self.inc.path.take();
        self.out.rate.on_feedback(&feedback);
        self.follow_rate(now);
    }

    pub(super) fn on_lost(&mut self, now: Instant, packet: SentPacket<Control>) {
        if let Some(symbol) = packet.symbol {
            self.write_off(symbol, packet.was_written_off());
        }
        for control in packet.control {
            match control {
                // Still without a round-trip time: ask again.
                Control::Ping if !self.out.rtt.is_measured() => {
                    self.out.control.push_back(Control::Ping);
                }
                Control::Ping => {}
                Control::MtuProbe(_) => {
                    self.out.mtu_search.on_lost(now, self.mtu);
                }
                other => self.out.control.push_back(other),
            }
        }
    }

    /// A block counts no more on a symbol, `again` if it did not before.
    fn write_off(&mut self, symbol: SymbolRef, again: bool) {
        let id = ChannelId(symbol.channel);
        let loss = self.out.loss.estimate();
        if let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) {
            send.on_settled(symbol.offset, false, again, &*self.out.scheduler, loss);
        }
        self.activate(id);
    }

    fn on_report(&mut self, now: Instant, pn: u64, report: &BlockReport<'_>) {
        let id = ChannelId(report.channel);
        let loss = self.out.loss.estimate();
        let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) else {
            return;
        };
        // What a block needs may only be raised by news; being done is for ever.
        let fresh = pn >= self.inc.newest_feedback;
        self.inc.newest_feedback = self.inc.newest_feedback.max(pn);
        let scheduler = &*self.out.scheduler;
        let mut freed = send.on_done_below(report.done_below);
        for (offset, needed) in report.iter().filter(|&(_, needed)| fresh || needed == 0) {
            if send.is_plausible(offset, needed) {
                freed += send.on_report(offset, needed, scheduler, loss);
            } else {
                self.stats.implausible_reports += 1;
            }
        }
        self.on_freed(now, id, freed);
    }

    /// What a SACK says: complete parts, and what there is room for.
    fn on_sack(&mut self, now: Instant, pn: u64, report: &SackReport<'_>) {
        let id = ChannelId(report.channel);
        let fresh = pn >= self.inc.newest_feedback;
        let Some(window) = self.out.window else {
            return; // nobody asked for it
        };
        if fresh {
            self.inc.newest_feedback = pn;
            self.inc.path = Some(report.path);
        }
        let Some(send) = self.channels.get_mut(&id).and_then(|c| c.send.as_mut()) else {
            return;
        };
        let Some(sent_since) = send.begun_since(report.offset) else {
            self.stats.refused_reports += 1; // nothing was sent as far as that
            return;
        };
        let mut freed = send.on_done_below(report.offset);
        for part in report.pairs() {
            freed += send.on_done_within(part);
        }
        if fresh {
            let said = u64::from(report.avail_win);
            self.stats.refused_reports += u64::from(said > window);
            let avail_win = said.min(window);
            send.allow(self.out.scheduler.allowance(&Room {
                avail_win,
                sent_since,
            }));
        }
        self.on_freed(now, id, freed);
    }

    /// Blocks are complete at the peer: room to write more, and perhaps room to send.
    fn on_freed(&mut self, now: Instant, id: ChannelId, freed: u64) {
        let send = self.channels.get_mut(&id).and_then(|c| c.send.as_mut());
        for block in send.map(SendChannel::take_acked).unwrap_or_default() {
            self.out.rate.on_block_acked(now, &block);
        }
        self.out.buffered = self.out.buffered.saturating_sub(freed);
        self.activate(id);
        if freed > 0 {
            self.notify_writable();
            self.check_acknowledged(id);
        }
    }

    /// Puts a channel on the list of those with something to send, if it has.
    pub(super) fn activate(&mut self, id: ChannelId) {
        let active = self
            .channels
            .get(&id)
            .and_then(|c| c.send.as_ref())
            .is_some_and(SendChannel::is_active);
        if active {
            self.out.active.insert(id);
            self.out.blocked = false;
        }
    }

    pub(super) fn check_acknowledged(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        if let Some(send) = channel.send.take_if(|send| send.is_acknowledged()) {
            self.out.active.remove(&id);
            self.events.push_back(match send.given_up() {
                0 => Event::Acknowledged(id),
                abandoned => Event::PartlyAcknowledged {
                    channel: id,
                    abandoned,
                },
            });
            self.forget_if_over(id);
        }
    }

    /// Drops a receiving half that nobody reads once its credit is accounted for.
    fn drop_discarded(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel
                .recv
                .take_if(|recv| recv.discarded && recv.is_settled());
            self.forget_if_over(id);
        }
    }

    /// Drops a channel whose both halves are over.
    pub(super) fn forget_if_over(&mut self, id: ChannelId) {
        let over = self
            .channels
            .get(&id)
            .is_some_and(|c| c.send.is_none() && c.recv.is_none());
        if over {
            self.channels.remove(&id);
        }
    }

    /// What a report says of `id`: of a forgotten channel, that it is complete.
    pub(super) fn channel_report(&self, id: ChannelId) -> (u64, Vec<(u64, u32)>) {
        match self.channels.get(&id).and_then(|c| c.recv.as_ref()) {
            Some(recv) => recv.report(),
            None => (1 << 60, Vec::new()),
        }
    }
}
