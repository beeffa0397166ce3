//! What observers are told ([`crate::observe`]).

use super::super::header::{HANDSHAKE, Header, Kind};
use super::*;
use crate::config::Payload;
use crate::observe::{PacketInfo, PacketKind};

/// What was told of what only counters say.
#[derive(Debug, Default)]
pub(super) struct Told {
    lost: u64,
    blocks: u64,
    bytes: u64,
}

/// A packet of `size` bytes, header included.
fn describe(header: &Header, size: u64, ecn: u8) -> PacketInfo {
    let (kind, number) = match header.kind {
        Kind::Syn => (PacketKind::Syn, None),
        Kind::SynAck => (PacketKind::SynAck, None),
        Kind::Ack if header.block == HANDSHAKE => (PacketKind::HandshakeAck, None),
        Kind::Data { .. } => (PacketKind::Data, Some(header.block)),
        Kind::BlockAck { more: false } => (PacketKind::BlockAck, Some(header.block)),
        Kind::BlockAck { more: true } | Kind::Echo => (PacketKind::Report, None),
        Kind::Ack | Kind::Fin | Kind::FinAck | Kind::Rst => (PacketKind::Ending, None),
    };
    PacketInfo {
        kind,
        number: number.map(u64::from),
        size,
        ecn,
    }
}

impl Connection {
    /// A packet leaves.
    pub(super) fn tell_sent(&mut self, now: Instant, header: &Header, size: usize, ecn: u8) {
        self.observer.tell(now, || {
            Observation::Sent(describe(header, size as u64, ecn))
        });
    }

    /// A packet came that is the peer's.
    pub(super) fn tell_received(&mut self, now: Instant, packet: &Incoming<'_>) {
        let Incoming { header, ecn, .. } = packet;
        let size = packet.size as u64 + self.elided(packet);
        self.observer
            .tell(now, || Observation::Received(describe(header, size, *ecn)));
    }

    /// Bytes that a packet with virtual payload stands for beyond those that it has.
    fn elided(&self, packet: &Incoming<'_>) -> u64 {
        let offer = &self.birth.offer;
        match (offer.payload, packet.header.kind, packet.payload) {
            (Payload::Virtual, Kind::Data { .. }, &[a, b, ..]) => {
                let symbols = u64::from(u16::from_be_bytes([a, b]));
                let bytes = symbols * u64::from(offer.code.symbol_size());
                bytes.saturating_sub(packet.payload.len() as u64)
            }
            _ => 0,
        }
    }

    /// An answer or silence taught something of the path.
    pub(super) fn tell_path(&mut self, now: Instant) {
        let Some(halves) = self.halves.as_ref().filter(|_| self.observer.listens()) else {
            return;
        };
        let (lost, bytes) = halves.sender.lost();
        let metrics = halves.sender.metrics();
        let packets = lost.saturating_sub(self.told.lost);
        self.told.lost = self.told.lost.max(lost);
        if packets > 0 {
            self.observer.tell(now, || Observation::Lost {
                number: None,
                packets,
                bytes: packets * bytes,
            });
        }
        self.observer.tell(now, || Observation::Metrics(metrics));
    }

    /// Blocks may have become whole.
    pub(super) fn tell_blocks(&mut self, now: Instant) {
        let Some(halves) = self.halves.as_ref().filter(|_| self.observer.listens()) else {
            return;
        };
        let stats = halves.receiver.stats();
        if stats.blocks > self.told.blocks {
            let bytes = stats.bytes - self.told.bytes;
            (self.told.blocks, self.told.bytes) = (stats.blocks, stats.bytes);
            self.observer.tell(now, || Observation::Blocks { bytes });
        }
    }
}
