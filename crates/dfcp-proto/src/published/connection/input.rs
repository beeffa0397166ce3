//! Packets in.

use super::super::data::{Ack, AckKind, DataHeader};
use super::super::header::{HANDSHAKE, Header, Kind};
use super::super::negotiation::Refusal;
use super::*;

/// A packet of a connection.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Incoming<'a> {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub payload: &'a [u8],
    /// ECN codepoint of its IP header.
    pub ecn: u8,
    /// Bytes of both.
    pub size: usize,
}

impl Connection {
    /// Takes a packet that is this connection's, as its endpoint said; for hosts to which it is
    /// [lent](super::super::Endpoint::lend).
    pub fn handle_datagram(&mut self, now: Instant, remote: SocketAddr, ecn: u8, packet: &[u8]) {
        debug_assert_eq!(
            remote, self.birth.remote,
            "connections are found by address"
        );
        let mut counts = self.counts;
        match Header::parse(packet, &self.birth.pseudo.turned()) {
            Ok((header, payload)) => {
                let incoming = Incoming {
                    header,
                    payload,
                    ecn,
                    size: packet.len(),
                };
                self.handle_packet(now, incoming, &mut counts);
            }
            Err(_) => counts.malformed += 1,
        }
        self.counts = counts;
    }

    /// What it counted while it was lent.
    pub fn counts(&self) -> EndpointStats {
        self.counts
    }

    /// Takes a packet.
    pub(in super::super) fn handle_packet(
        &mut self,
        now: Instant,
        packet: Incoming<'_>,
        stats: &mut EndpointStats,
    ) {
        let Header {
            state, block, kind, ..
        } = packet.header;
        if let Some(unproven) = &mut self.unproven {
            unproven.on_received(packet.size);
        }
        let own = state == self.birth.initial;
        let peers = self.peer == Some(state);
        match kind {
            Kind::Rst if own || peers => {
                self.tell_received(now, &packet);
                return self.on_reset(now, packet.payload);
            }
            // Whoever lost its connection answers this with the right state (as RFC 5961 §3).
            Kind::Rst => {
                stats.forged += 1;
                return self.challenge(now);
            }
            Kind::SynAck if self.state() == State::SynSent => {
                return self.on_synack(now, packet, stats);
            }
            _ if self.state() == State::SynSent => return self.deny(now, state),
            // A peer that begins anew: its answer to the challenge ends this connection.
            Kind::Syn if !peers => return self.challenge(now),
            Kind::SynAck | Kind::Fin | Kind::FinAck if !peers => {
                stats.forged += 1;
                return;
            }
            Kind::Ack if !own => {
                stats.forged += 1;
                return;
            }
            _ => {}
        }
        if self.state() == State::SynRecv && !matches!(kind, Kind::Syn | Kind::Ack) {
            return self.call_for_ack(now);
        }
        self.last_heard = self.last_heard.max(now);
        self.tell_received(now, &packet);
        match kind {
            Kind::Syn => self.step(now, Input::Segment(Segment::Syn), None),
            Kind::SynAck => self.step(now, Input::Segment(Segment::SynAck), None),
            Kind::Ack if block == HANDSHAKE => {
                self.step(now, Input::Segment(Segment::Ack), None);
            }
            Kind::Ack if block == self.blocks_sent() => {
                self.step(now, Input::Segment(Segment::AckOfFin), None);
            }
            Kind::Fin => self.on_fin(now, Segment::Fin, block),
            Kind::FinAck => self.on_fin(now, Segment::FinAck, block),
            Kind::Data { .. } => self.on_data(now, packet, stats),
            Kind::BlockAck { .. } | Kind::Echo => self.on_answer(now, &packet.header),
            Kind::Ack | Kind::Rst => {}
        }
    }

    fn on_reset(&mut self, now: Instant, reason: &[u8]) {
        if let (State::SynSent, [reason]) = (self.state(), reason) {
            let refused = Error::Parameters(Refusal::describe(*reason).into());
            self.end(now, Some(refused));
        }
        self.step(now, Input::Segment(Segment::Rst), None);
    }

    /// Proves that this connection lives and asks the peer whether its own does.
    fn challenge(&mut self, now: Instant) {
        let silent = matches!(self.state(), State::SynSent | State::Closed);
        if !silent && self.may_answer(now) {
            self.signal(Segment::Ack, None);
        }
    }

    /// Data and FIN before the ACK: SYNACK calls for it again.
    fn call_for_ack(&mut self, now: Instant) {
        if self.may_answer(now) {
            self.step(now, Input::Data, None);
        }
    }

    /// A packet of some other connection reached one that is not open yet.
    fn deny(&mut self, now: Instant, state: raptor::State) {
        if self.may_answer(now) {
            self.step(now, Input::Data, Some(state));
        }
    }

    fn may_answer(&mut self, now: Instant) -> bool {
        let may = self.next_answer <= now;
        if may {
            self.next_answer = now + ANSWER_INTERVAL;
        }
        may
    }

    fn on_synack(&mut self, now: Instant, packet: Incoming<'_>, stats: &mut EndpointStats) {
        let parsed = Offer::parse(packet.payload, self.birth.initial);
        let Ok((settled, Some(answered))) = parsed else {
            stats.bad_parameters += 1;
            return;
        };
        if answered != self.birth.initial {
            // The answer to an earlier SYN: refused, so that its connection ends.
            return self.deny(now, packet.header.state);
        }
        self.peer = Some(packet.header.state);
        if !self.birth.offer.allows(&settled) {
            stats.bad_parameters += 1;
            return self.refuse(now, "the peer's answer is none to the offer");
        }
        self.birth.offer = settled;
        self.tell_received(now, &packet);
        self.step(now, Input::Segment(Segment::SynAck), None);
    }

    /// FIN counts once all data before it are there, as its sender takes the answer for that.
    fn on_fin(&mut self, now: Instant, segment: Segment, blocks: u32) {
        if self.machine.peer_finished() {
            return self.step(now, Input::Segment(segment), None);
        }
        if self.peer_blocks.is_none() {
            let expected = match self.role {
                Role::Server => self.birth.offer.message,
                Role::Client => None,
            };
            if expected.is_some_and(|message| message.blocks != blocks) {
                return self.fail(now, Error::Message);
            }
            self.peer_blocks = Some(blocks);
            if let Some(halves) = &mut self.halves {
                halves.receiver.finish_at(blocks);
            }
        }
        self.early_fin = Some(segment);
        self.after_data(now);
    }

    fn on_data(&mut self, now: Instant, packet: Incoming<'_>, stats: &mut EndpointStats) {
        let Kind::Data { echo, short } = packet.header.kind else {
            return;
        };
        let header = DataHeader {
            block: packet.header.block,
            state: packet.header.state,
            echo,
            short,
        };
        if let Some(halves) = &mut self.halves {
            let receiver = &mut halves.receiver;
            let before = receiver.stats();
            receiver.on_data(now, packet.ecn, &header, packet.payload);
            let after = receiver.stats();
            self.observer.tell(now, || {
                let redundant = after.redundant() > before.redundant();
                let bytes = after.symbol_bytes - before.symbol_bytes;
                Observation::Symbols { bytes, redundant }
            });
            stats.malformed += after.malformed - before.malformed;
            stats.beyond_window += after.beyond_window - before.beyond_window;
            if receiver.is_unsolvable() {
                return self.fail(now, Error::Unsolvable);
            }
        }
        self.after_data(now);
    }

    fn on_answer(&mut self, now: Instant, header: &Header) {
        let kind = match header.kind {
            Kind::BlockAck { more: false } => AckKind::Block,
            Kind::BlockAck { more: true } => AckKind::More,
            _ => AckKind::Echo,
        };
        let ack = Ack {
            kind,
            block: header.block,
            state: header.state,
            report: header.report,
        };
        if let Some(halves) = &mut self.halves {
            halves.sender.on_ack(now, &ack);
        }
        self.tell_path(now);
        self.after_data(now);
    }

    /// What follows from progress in either direction.
    pub(super) fn after_data(&mut self, now: Instant) {
        self.tell_blocks(now);
        let Some(halves) = &mut self.halves else {
            return;
        };
        if self.blocked && halves.sender.room() > 0 {
            self.blocked = false;
            self.events.push_back(Event::Writable);
        }
        if !self.readable_told && halves.receiver.is_readable() {
            self.readable_told = true;
            self.events.push_back(Event::Readable);
        }
        let complete = self.peer_blocks.is_some() && halves.receiver.is_complete();
        if complete && !self.finished_told {
            self.finished_told = true;
            self.events.push_back(Event::PeerFinished);
        }
        if complete && let Some(segment) = self.early_fin.take() {
            self.step(now, Input::Segment(segment), None);
        }
        self.close_if_done(now);
    }

    /// Blocks sent, as FIN says.
    pub(super) fn blocks_sent(&self) -> u32 {
        self.halves.as_ref().map_or(0, |h| h.sender.blocks())
    }
}
