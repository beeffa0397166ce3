//! Packets out: signalling, then answers to data, then data.

use super::super::data::AckKind;
use super::super::header::{HANDSHAKE, HEADER_LEN, Header, Kind, seal};
use super::*;
use crate::host::{MAX_BATCH, Priority, Transmit};

/// A packet that is to go alone.
#[derive(Debug)]
pub(super) struct Stash {
    bytes: Vec<u8>,
    elided: usize,
}

/// A batch being filled: packets of one size, the last may be shorter.
struct Batch {
    start: usize,
    size: usize,
    segment: usize,
    elided: usize,
    count: usize,
}

impl Connection {
    /// Writes the next packets.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let fit = MAX_BATCH / usize::from(self.birth.config.mtu).max(1);
        let max_segments = max_segments.clamp(1, fit.max(1));
        let start = out.len();
        while let Some(signal) = self.signals.pop_front() {
            if self.write_signal(now, signal, out) {
                return Some(self.transmit(out.len() - start, Priority::Control));
            }
        }
        if self.state() == State::Closed {
            return None;
        }
        if self.write_answer(now, out) {
            let size = out.len() - start;
            let mut count = 1;
            while count < max_segments && self.write_answer(now, out) {
                count += 1;
            }
            let mut transmit = self.transmit(out.len() - start, Priority::Control);
            transmit.segment_size = (count > 1).then_some(size);
            return Some(transmit);
        }
        let transmit = self.poll_data(now, max_segments, out);
        // With ACKs off the last packet sent is what FIN waited for.
        self.close_if_done(now);
        transmit
    }

    fn transmit(&self, size: usize, priority: Priority) -> Transmit {
        Transmit {
            destination: self.birth.remote,
            ecn: 0,
            size,
            segment_size: None,
            elided: 0,
            priority,
        }
    }

    fn header(&self, kind: Kind, block: u32, state: raptor::State) -> Header {
        Header {
            source: self.birth.local_port,
            destination: self.birth.remote_port,
            block,
            state,
            kind,
            report: None,
        }
    }

    /// Appends a packet that stands alone; false, and nothing, where it may not go to an unproven address.
    fn write_signal(&mut self, now: Instant, signal: Signal, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let (kind, block) = match signal.segment {
            Segment::Syn => (Kind::Syn, 0),
            Segment::SynAck => (Kind::SynAck, 0),
            Segment::Ack => (Kind::Ack, HANDSHAKE),
            Segment::AckOfFin => (Kind::Ack, self.peer_blocks.unwrap_or(0)),
            Segment::Fin => (Kind::Fin, self.blocks_sent()),
            Segment::FinAck => (Kind::FinAck, self.blocks_sent()),
            Segment::Rst => (Kind::Rst, 0),
        };
        let header = self.header(kind, block, signal.state);
        header.emit(out);
        match signal.segment {
            Segment::Syn => self.birth.offer.emit(None, out),
            Segment::SynAck => self.birth.offer.emit(self.peer, out),
            _ => {}
        }
        let size = out.len() - start;
        if self.unproven.as_mut().is_some_and(|u| !u.admit(size)) {
            out.truncate(start);
            return false;
        }
        seal(&mut out[start..], &self.birth.pseudo);
        self.tell_sent(now, &header, size, 0);
        true
    }

    /// Appends the answer to a data packet, if one is due.
    fn write_answer(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let Some(ack) = self.halves.as_mut().and_then(|h| h.receiver.poll_ack()) else {
            return false;
        };
        let kind = match ack.kind {
            AckKind::Block => Kind::BlockAck { more: false },
            AckKind::More => Kind::BlockAck { more: true },
            AckKind::Echo => Kind::Echo,
        };
        let start = out.len();
        let header = Header {
            // All of one size, so that they share a transmit.
            report: Some(ack.report.unwrap_or_default()),
            ..self.header(kind, ack.block, ack.state)
        };
        header.emit(out);
        seal(&mut out[start..], &self.birth.pseudo);
        self.tell_sent(now, &header, out.len() - start, 0);
        true
    }

    fn poll_data(&mut self, now: Instant, max: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let mut batch = Batch {
            start: out.len(),
            size: 0,
            segment: 0,
            elided: 0,
            count: 0,
        };
        while batch.count < max {
            let start = out.len();
            let Some(elided) = self.next_data(now, out) else {
                break;
            };
            let size = out.len() - start;
            if batch.count == 0 {
                (batch.segment, batch.elided) = (size, elided);
            } else if size > batch.segment || elided != batch.elided {
                self.stash = Some(Stash {
                    bytes: out.split_off(start),
                    elided,
                });
                break;
            }
            batch.count += 1;
            batch.size = out.len() - batch.start;
            if size < batch.segment {
                break;
            }
        }
        (batch.count > 0).then(|| Transmit {
            segment_size: (batch.count > 1).then_some(batch.segment),
            elided: batch.elided,
            ecn: self.data_ecn(),
            ..self.transmit(batch.size, Priority::Data)
        })
    }

    /// ECN codepoint of data: capable only where the rate follows marks (RFC 3168 §5).
    fn data_ecn(&self) -> u8 {
        let halves = self.halves.as_ref();
        halves.map_or(0, |h| h.sender.ecn() as u8)
    }

    /// Appends a data packet; says how many bytes it stands for beyond those written.
    fn next_data(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        if let Some(stash) = self.stash.take() {
            out.extend_from_slice(&stash.bytes);
            return Some(stash.elided);
        }
        if !self.may_send() {
            return None;
        }
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        let sender = &mut self.halves.as_mut()?.sender;
        let Some(packet) = sender.poll_packet(now, out) else {
            out.truncate(start);
            return None;
        };
        let data = packet.header;
        let kind = Kind::Data {
            echo: data.echo,
            short: data.short,
        };
        let header = self.header(kind, data.block, data.state);
        out[start..start + HEADER_LEN].copy_from_slice(&header.words());
        seal(&mut out[start..], &self.birth.pseudo);
        let size = out.len() - start + packet.elided;
        self.tell_sent(now, &header, size, self.data_ecn());
        Some(packet.elided)
    }
}
