//! One packet in.

use super::{Channel, CloseCode, Connection, Event, State};
use crate::block::{ChannelId, RecvChannel, Role, SendChannel, Skip};
use crate::config::Payload;
use crate::feedback::Arrival;
use crate::observe::{Observation, PacketInfo, PacketKind};
use crate::packet::{ReportIn, decode_packet_number};
use crate::rate::PathReport;
use crate::time::{Duration, Instant};
use crate::wire::{
    Frame, FrameIter, Packet, SEALED_HEADER_LEN, Sealed, VarInt, virtual_symbol_len,
};
use std::net::SocketAddr;

/// Congestion Experienced (RFC 3168).
const ECN_CE: u8 = 0b11;
/// Reports that name a channel after its last symbol.
const TOUCHED_REPORTS: u8 = 4;

/// What frames of a packet say about one that follows in it.
#[derive(Debug, Default)]
struct Said {
    /// PART: the next symbol is one part of a symbol of this length, from there on.
    part: Option<(usize, usize)>,
    /// SACK: of the path, for the rate controller that hears of the ACK.
    path: Option<PathReport>,
}

/// A protected packet that was opened.
struct Opened<'a> {
    number: u64,
    /// Whether no later one came before.
    newest: bool,
    size: u64,
    remote: SocketAddr,
    ecn: u8,
    frames: &'a [u8],
}

impl Connection {
    /// Takes a datagram that is this connection's, as its endpoint said; for hosts to which it is
    /// [lent](crate::Endpoint::lend). It is opened in place.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ecn: u8,
        datagram: &mut [u8],
    ) {
        let len = datagram.len();
        match Packet::parse(datagram) {
            Ok(Packet::Sealed(header)) => self.handle_sealed(now, remote, ecn, header, datagram),
            Ok(Packet::SynAck(synack)) => self.handle_synack(now, &synack, len),
            Ok(Packet::Version { versions, .. }) => self.handle_version(now, versions),
            Ok(Packet::Retry(retry)) => self.handle_retry(&retry),
            Ok(Packet::Reset { token, .. }) if remote == self.remote => {
                self.handle_reset(now, &token);
            }
            _ => {}
        }
    }

    /// Takes a protected packet from `remote`, opening it in place.
    pub(crate) fn handle_sealed(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        ecn: u8,
        header: Sealed,
        datagram: &mut [u8],
    ) {
        let Some(packet) = self.open_sealed(now, (remote, ecn), header, datagram) else {
            return;
        };
        match &mut self.state {
            State::Established => {}
            State::Closing { due, .. } => {
                *due = (*due).max(1);
                let news = Farewell::of(packet.frames);
                if news.closes {
                    // The peer has closed too, or answers: nobody waits for another CLOSE.
                    self.state = State::Closed;
                }
                if news.closes || news.acknowledges {
                    self.settle(now);
                }
                return;
            }
            State::Draining { due, .. } => {
                // The peer repeats itself: it missed the answer.
                *due = true;
                return;
            }
            _ => return,
        }
        self.on_confirmed(now);
        if packet.newest {
            self.inc.largest_at = now;
            // Only the newest packet may move the peer: a delayed one would move it back. Servers
            // stay where they are (RFC 9000 §9): who could copy their packets would lead us away.
            if self.role == Role::Server && self.remote != remote {
                self.follow(remote);
            }
        }
        if ecn == ECN_CE {
            self.inc.ce += 1;
            self.stats.ce_received += 1;
        }
        self.on_frames(now, &packet);
    }

    /// Opens a packet in place and counts it, unless it is forged or was there before.
    fn open_sealed<'a>(
        &mut self,
        now: Instant,
        (remote, ecn): (SocketAddr, u8),
        header: Sealed,
        datagram: &'a mut [u8],
    ) -> Option<Opened<'a>> {
        let size = datagram.len() as u64;
        let number = decode_packet_number(self.inc.received.largest(), header.packet_number);
        let sealed = self.has_further_answers().then(|| datagram.to_vec());
        let opener = self.opener.as_mut()?;
        let opened = opener.open(number, datagram, SEALED_HEADER_LEN);
        let opened = opened.ok().map(|frames| frames.len());
        let by_further = || self.open_by_further(now, header, &sealed?, datagram);
        let Some(len) = opened.or_else(by_further) else {
            self.stats.forged += 1;
            return None;
        };
        let frames = &datagram[SEALED_HEADER_LEN..][..len];
        let newest = self.inc.received.largest().is_none_or(|l| number > l);
        if !self.inc.received.insert(number) {
            self.stats.duplicates += 1;
            return None;
        }
        self.stats.packets_received += 1;
        self.stats.bytes_received += size;
        if self.observer.listens() {
            let frames = FrameIter::new(frames).flatten();
            let elided: u64 = frames.map(|frame| self.elided(&frame)).sum();
            let packet = PacketInfo {
                kind: PacketKind::Sealed,
                number: Some(number),
                size: size + elided,
                ecn,
            };
            self.observer.tell(now, || Observation::Received(packet));
        }
        self.inc.last_heard = now;
        let late = 3 * self.pto();
        if let Some(opener) = &mut self.opener {
            opener.retire(now, late);
        }
        Some(Opened {
            number,
            newest,
            size,
            remote,
            ecn,
            frames,
        })
    }

    /// Takes what is in a packet of an established connection.
    fn on_frames(&mut self, now: Instant, packet: &Opened<'_>) {
        let &Opened {
            number: pn,
            size,
            remote,
            ecn,
            frames,
            ..
        } = packet;
        let (mut eliciting, mut elided) = (false, 0);
        let (mut immediate, mut symbol) = (false, false);
        let (mut head, mut report) = (None, None);
        let mut said = Said::default();
        for frame in FrameIter::new(frames) {
            let Ok(frame) = frame else {
                return self.violation(now, CloseCode::PROTOCOL);
            };
            eliciting |= frame.is_ack_eliciting();
            immediate |= matches!(frame, Frame::ImmediateAck);
            symbol |= matches!(frame, Frame::Symbol { .. });
            elided += self.elided(&frame);
            if let Frame::RoundTrip { number, rtt_us } = frame {
                head = Some((number, Duration::from_micros(rtt_us.into())));
            }
            if let Frame::Ack { head, .. } = frame {
                let left = head.received_at_us.saturating_add(head.delay_us);
                report = Some(Duration::from_micros(left));
            }
            if let Frame::PathResponse(data) = frame {
                self.on_path_response(now, remote, data);
            } else if let Err(code) = self.on_frame(now, pn, frame, &mut said) {
                return self.violation(now, code);
            }
            if !self.is_established() {
                return; // nothing follows a CLOSE
            }
        }
        if symbol {
            self.inc.last_data = Some(now);
            self.out.reverse.on_data();
        } else if let Some(left) = report {
            let number = pn;
            self.on_report_packet(now, ReportIn { number, size, left });
        }
        // Each answer is remembered until something after it is acknowledged.
        if self.out.sent.is_excessive() {
            return self.violation(now, CloseCode::LIMIT);
        }
        self.stats.bytes_received += elided;
        if let Some(moved) = self.out.moved.as_mut().filter(|_| remote == self.remote) {
            moved.on_received(size + elided);
        }
        let mut arrival = Arrival::new(pn, size + elided);
        arrival.marked = ecn == ECN_CE;
        arrival.data_number = head.map(|(number, _)| number);
        arrival.rtt = head.map_or(self.out.path.rtt.smoothed(), |(_, rtt)| rtt);
        if immediate {
            self.inc.policy.on_immediate(now, &arrival);
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

    fn on_frame(
        &mut self,
        now: Instant,
        pn: u64,
        frame: Frame<'_>,
        said: &mut Said,
    ) -> Result<(), CloseCode> {
        match frame {
            Frame::Ping
            | Frame::ImmediateAck
            | Frame::RoundTrip { .. }
            | Frame::PathResponse(_) => {}
            Frame::PathChallenge(data) => self.on_path_challenge(pn, data),
            Frame::Ack { head, ranges } => self.on_ack(now, head, &ranges, said.path.take())?,
            Frame::Blocks(report) => self.on_report(now, pn, &report),
            Frame::FeedbackRate(rate) => {
                if pn >= self.inc.newest_limit {
                    self.inc.newest_limit = pn;
                    self.inc
                        .policy
                        .on_limit(Some(rate).filter(|&rate| rate > 0));
                }
            }
            Frame::Sack(report) => said.path = self.on_sack(now, pn, &report).or(said.path),
            Frame::Part { symbol_len, at } => {
                let numbers = (usize::try_from(symbol_len), usize::try_from(at));
                let (Ok(symbol_len), Ok(at)) = numbers else {
                    return Err(CloseCode::PROTOCOL);
                };
                said.part = Some((symbol_len, at));
            }
            Frame::Symbol { header, data } => {
                self.on_symbol_frame(now, said.part.take(), header, data)?;
            }
            Frame::Datagram(datagram) => self.on_datagram(datagram),
            Frame::MaxData(limit) => {
                if limit > self.out.max_data {
                    self.out.raise_max_data(limit);
                    self.out.queue.unblock();
                }
            }
            Frame::MaxStreamData { channel, limit } => {
                let id = self.known(channel)?;
                if let Some(send) = self.channels.sender(id) {
                    send.raise_limit(limit);
                    self.activate(id);
                    self.notify_writable(id);
                }
            }
            Frame::FirstWindow(bytes) => self.on_first_window(pn, bytes),
            Frame::Fin { channel, size } => self.on_fin(now, channel, size)?,
            Frame::Reset {
                channel,
                code,
                charged,
            } => {
                let id = self.known(channel)?;
                self.on_reset(now, id, code, charged);
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

    fn on_reset(&mut self, now: Instant, id: ChannelId, code: VarInt, charged: u64) {
        let Some(recv) = self.channels.receiver(id) else {
            return;
        };
        // After a STOP of ours it says what credit is left to free.
        let news = recv.ended().is_none();
        recv.end(code, Some(charged), &mut self.inc.credit);
        if news {
            self.events.push_back(Event::Reset { channel: id, code });
        }
        self.inc.policy.on_urgent(now);
        self.review_first_window(now);
        self.drop_discarded(id);
    }

    /// Has the next reports name a channel. Any that ever was may be named again at no cost, and work on
    /// packets and reports grows with how many wait: of those that are over no more join than this.
    pub(super) fn touch(&mut self, id: ChannelId) {
        let touched = &mut self.inc.touched;
        let has_room = (touched.len() as u64) < 4 * self.config.max_channels;
        if has_room || touched.contains_key(&id) || self.channels.peek_receiver(id).is_some() {
            touched.insert(id, TOUCHED_REPORTS);
        }
    }

    /// The channel a frame names; opens it, and those below it, if the peer may.
    pub(super) fn known(&mut self, channel: u64) -> Result<ChannelId, CloseCode> {
        let id = ChannelId(channel);
        if !id.is_valid() {
            return Err(CloseCode::PROTOCOL);
        }
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
        let open = self.channels.opened_by(id.opener());
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
            let recv = Some(RecvChannel::new(id, config));
            self.channels.insert(id, Channel { send, recv });
            self.events.push_back(Event::Opened(id));
        }
        self.next_remote[id.kind() as usize] = id.index() + 1;
        Ok(id)
    }

    fn on_fin(&mut self, now: Instant, channel: u64, size: u64) -> Result<(), CloseCode> {
        let id = self.known(channel)?;
        self.touch(id);
        let Some(recv) = self.channels.receiver(id) else {
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

    /// Puts a channel on the list of those with something to send, if it has.
    pub(super) fn activate(&mut self, id: ChannelId) {
        let active = self
            .channels
            .peek_sender(id)
            .is_some_and(SendChannel::is_active);
        if active {
            self.out.queue.insert(id);
        }
    }

    pub(super) fn check_acknowledged(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        if let Some(send) = channel.send.take_if(|send| send.is_acknowledged()) {
            self.out.queue.forget(id);
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
        if let Some(channel) = self.channels.get_mut(id) {
            channel
                .recv
                .take_if(|recv| recv.discarded && recv.is_settled());
            self.forget_if_over(id);
        }
    }

    /// What a report says of `id`: of a forgotten channel, that it is complete.
    pub(super) fn channel_report(&self, id: ChannelId) -> (u64, Vec<(u64, u32)>) {
        match self.channels.peek_receiver(id) {
            Some(recv) => recv.report(),
            None => (1 << 60, Vec::new()),
        }
    }
}

/// What still matters of a packet once this side has closed.
#[derive(Default)]
struct Farewell {
    acknowledges: bool,
    closes: bool,
}

impl Farewell {
    fn of(plaintext: &[u8]) -> Self {
        let mut news = Self::default();
        for frame in FrameIter::new(plaintext) {
            news.acknowledges |= matches!(frame, Ok(Frame::Ack { .. }));
            news.closes |= matches!(frame, Ok(Frame::Close { .. }));
        }
        news
    }
}
