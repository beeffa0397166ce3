//! Attackers that speak the wire by hand.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use dfcp_proto::crypto::{Sealer, SessionKeys};
use dfcp_proto::wire::{
    AckHead, BlockLen, CID_LEN, ConnectionId, Frame, Packet, SEALED_HEADER_LEN, SymbolHeader, Syn,
    emit_sealed_header,
};
use dfcp_proto::{Instant, SchemeId};

use super::Siege;
use super::raw;

/// How long an attacker waits for an answer, which also spaces what it sends.
const PATIENCE: Duration = Duration::from_millis(20);
/// Symbols that never make up a RaptorQ block of ten, from `dfcp-sim/tests/protocol/hostile.rs`.
const DEFICIENT: [u32; 60] = [
    10, 11, 12, 13, 14, 15, 16, 17, 18, 476, 601, 858, 1131, 1411, 1772, 2209, 2225, 2616, 2658,
    3001, 3067, 3720, 3922, 4050, 4198, 5078, 5218, 5476, 6134, 6784, 6948, 7401, 7504, 7516, 7578,
    7624, 8017, 8229, 8398, 8443, 8658, 8871, 9027, 9078, 9143, 9407, 9442, 9972, 10201, 10697,
    10803, 10810, 10940, 11451, 11695, 12380, 12482, 12577, 12647, 12711,
];
/// The first object of a client.
const OBJECT: u64 = 2;

/// A socket at 127.0.`net`.`host`: every such address is another network to the receiver.
pub(super) fn socket(siege: &Siege<'_>, net: u8, host: u8) -> UdpSocket {
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, net, host), 0));
    let socket = UdpSocket::bind(from).expect("any address of 127.0.0.0/8 is this host's");
    socket.connect(siege.receiver).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(super) fn receive(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = [0; 2048];
    let n = socket.recv(&mut buffer).ok()?;
    Some(buffer[..n].to_vec())
}

/// The answer to a SYN; a RETRY is obeyed.
fn ask(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut syn = raw::syn();
    for _ in 0..3 {
        socket.send(&syn.emit(1400)).ok()?;
        let answer = receive(socket)?;
        match Packet::parse(&answer) {
            Ok(Packet::Retry(retry)) => {
                syn = Syn {
                    cookie: retry.cookie,
                    ..syn
                };
            }
            Ok(Packet::SynAck(_)) => return Some(answer),
            _ => return None,
        }
    }
    None
}

/// A session whose owner sends what it likes.
pub(super) struct Peer {
    pub socket: UdpSocket,
    pub session: SessionKeys,
    sealer: Sealer,
    next: u64,
}

impl Peer {
    pub fn connect(siege: &Siege<'_>, net: u8, host: u8) -> Option<Self> {
        let socket = socket(siege, net, host);
        let (ack, session) = raw::answer(&ask(&socket)?, &raw::params());
        socket.send(&ack).ok()?;
        let sealer = Sealer::new(session.send.clone(), Instant::ZERO);
        receive(&socket)?;
        Some(Self {
            socket,
            session,
            sealer,
            next: 0,
        })
    }

    /// One in each round, from eight addresses in turn. Who finds no place tries again, so that no attack is over
    /// before it began.
    pub fn each(siege: &Siege<'_>, rounds: usize, net: u8) -> impl Iterator<Item = Self> {
        let connect = move |round| Self::connect(siege, net, (round % 8) as u8 + 1);
        siege.rounds(u32::MAX).filter_map(connect).take(rounds)
    }

    pub fn send(&mut self, frame: &Frame<'_>) {
        self.send_all(std::slice::from_ref(frame));
    }

    /// One packet.
    pub fn send_all(&mut self, frames: &[Frame<'_>]) {
        let mut packet = Vec::new();
        emit_sealed_header(&mut packet, self.session.params.cid, self.next);
        frames.iter().for_each(|frame| frame.emit(&mut packet));
        self.sealer
            .seal(self.next, &mut packet, 0, SEALED_HEADER_LEN);
        self.next += 1;
        let _ = self.socket.send(&packet);
    }

    fn symbol(&mut self, scheme: SchemeId, (offset, k): (u64, u64), esi: u32, data: &[u8]) {
        let header = SymbolHeader {
            scheme,
            channel: OBJECT,
            offset,
            block: BlockLen::Bytes(k * data.len() as u64),
            esi,
        };
        self.send(&Frame::Symbol { header, data });
    }
}

/// SYNs from 200 addresses, which listen to no answer.
pub fn syns(siege: &Siege<'_>) -> u64 {
    let sockets: Vec<_> = (1..=200).map(|host| socket(siege, 2, host)).collect();
    let syn = raw::syn().emit(1400);
    let mut count = 0;
    for _ in siege.rounds(500) {
        for socket in &sockets {
            count += u64::from(socket.send(&syn).is_ok());
        }
        receive(&sockets[0]);
        siege.pace(count);
    }
    count
}

/// Handshakes up to the server's answer, by who is where he says.
pub fn half_handshakes(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for round in siege.rounds(5000) {
        ask(&socket(siege, 3, (round % 250) as u8 + 1));
        count += 1;
        siege.pace(count);
    }
    count
}

/// Handshakes to their end, and ACKs with good cookies and bad contents.
pub fn full_handshakes(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for round in siege.rounds(5000) {
        let host = (round % 250) as u8 + 1;
        if let Some(synack) = ask(&socket(siege, 4, host)) {
            let (mut ack, _) = raw::answer(&synack, &raw::params());
            *ack.last_mut().unwrap() ^= 1;
            let _ = socket(siege, 4, host).send(&ack);
        }
        Peer::connect(siege, 4, host);
        count += 1;
        siege.pace(6 * count); // packets of each
    }
    count
}

/// Packets that no connection can open.
pub fn junk(siege: &Siege<'_>) -> u64 {
    let socket = socket(siege, 5, 1);
    let mut count = 0;
    for round in siege.rounds(2000) {
        for cid in 0..100u32 {
            let name = round.wrapping_mul(7919).wrapping_add(cid);
            let mut cid = [0; CID_LEN];
            cid[CID_LEN - 4..].copy_from_slice(&name.to_be_bytes());
            let mut packet = Vec::new();
            emit_sealed_header(&mut packet, ConnectionId(cid), count);
            packet.resize(200, cid[CID_LEN - 1]);
            count += u64::from(socket.send(&packet).is_ok());
        }
        receive(&socket);
        siege.pace(count);
    }
    count
}

pub fn rank_deficient_blocks(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for mut peer in Peer::each(siege, 300, 6) {
        for block in 0..20 {
            for esi in DEFICIENT {
                peer.symbol(SchemeId::RaptorQ, (block * 3000, 10), esi, &[0; 300]);
                count += 1;
            }
            receive(&peer.socket);
            siege.pace(count);
        }
    }
    count
}

/// Opens blocks and never completes one.
pub fn half_blocks(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for mut peer in Peer::each(siege, 300, 7) {
        let granted = peer.session.params.max_data;
        for block in 0..(granted / 128_256).min(64) {
            for esi in 0..127 {
                peer.symbol(SchemeId::Dense, (block * 128_000, 128), esi, &[7; 1000]);
                count += 1;
            }
            receive(&peer.socket);
            siege.pace(count);
        }
    }
    count
}

/// Acknowledgements of what was never sent, reports of blocks and rates that cannot be.
pub fn forged_feedback(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for (round, mut peer) in (0..).zip(Peer::each(siege, 2000, 8)) {
        let mut blocks = Vec::new();
        Frame::emit_blocks(&mut blocks, 3, 0, [(0, u32::MAX)].into_iter(), 100);
        let mut ack = Vec::new();
        let largest = 1u64 << (round % 60);
        let head = AckHead {
            largest,
            received_at_us: u64::MAX >> 2,
            delay_us: u64::MAX >> 2,
            ce: u64::MAX >> 2,
        };
        Frame::emit_ack(&mut ack, head, [(0, largest)].into_iter(), 100);
        for bytes in [blocks, ack] {
            for frame in dfcp_proto::wire::FrameIter::new(&bytes) {
                peer.send(&frame.unwrap());
                count += 1;
            }
        }
        peer.send(&Frame::FeedbackRate(1));
        peer.send(&Frame::PathChallenge([7; 8]));
        receive(&peer.socket);
        siege.pace(count);
    }
    count
}
