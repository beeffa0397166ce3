//! Owners of sessions whose packets come from ever new addresses, or say what keeps a receiver busy.

use std::net::UdpSocket;

use dfcp_proto::SchemeId;
use dfcp_proto::crypto::Opener;
use dfcp_proto::wire::{
    BlockLen, Frame, FrameIter, Packet, SEALED_HEADER_LEN, SymbolHeader, VarInt, emit_reset,
};

use super::strangers::{Peer, receive, socket};
use super::{Siege, raw};

/// Addresses that one session comes from.
const ADDRESSES: u8 = 250;

/// A session whose every packet comes from another address, which answers nothing.
pub fn storms(siege: &Siege<'_>) -> u64 {
    let sockets: Vec<_> = (1..=ADDRESSES).map(|h| socket(siege, 10, h)).collect();
    let mut count = 0;
    for mut peer in Peer::each(siege, 100, 11) {
        for _ in siege.rounds(10) {
            for socket in &sockets {
                peer.socket = socket.try_clone().unwrap();
                peer.send_all(&[Frame::Ping, Frame::PathChallenge([count as u8; 8])]);
                count += 1;
            }
            siege.pace(count);
        }
    }
    count
}

/// A session that goes to each address in earnest: it answers the challenges there, and goes on.
pub fn moves(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for mut peer in Peer::each(siege, 100, 12) {
        let mut opener = Opener::new(peer.session.receive.clone());
        for host in 1..=ADDRESSES {
            peer.socket = socket(siege, 13, host);
            peer.send(&Frame::Ping);
            count += 1;
            for data in challenges(&peer.socket, &mut opener) {
                peer.send(&Frame::PathResponse(data));
                count += 1;
            }
            siege.pace(count);
        }
    }
    count
}

/// What the receiver wants back from this address.
fn challenges(socket: &UdpSocket, opener: &mut Opener) -> Vec<[u8; 8]> {
    let mut found = Vec::new();
    while found.is_empty() {
        let Some(mut packet) = receive(socket) else {
            break;
        };
        let Ok(Packet::Sealed(header)) = Packet::parse(&packet) else {
            continue;
        };
        let number = u64::from(header.packet_number);
        let Ok(plain) = opener.open(number, &mut packet, SEALED_HEADER_LEN) else {
            continue;
        };
        found.extend(FrameIter::new(plain).filter_map(|frame| match frame {
            Ok(Frame::PathChallenge(data)) => Some(data),
            _ => None,
        }));
    }
    found
}

/// Resets of connections that there are and are not, with tokens that nobody gave.
pub fn resets(siege: &Siege<'_>) -> u64 {
    let mut count = 0;
    for peer in Peer::each(siege, 2000, 14) {
        for i in 0..200u8 {
            for cid in [raw::CID, peer.session.params.cid] {
                let _ = peer.socket.send(&emit_reset(cid, [i; 16]));
                count += 1;
            }
        }
        siege.pace(count);
    }
    count
}

/// Channels that begin and end at once, each in a way of its own, and words about those that there are not.
pub fn channels(siege: &Siege<'_>) -> u64 {
    let (mut count, code) = (0, VarInt::from_u32(1));
    for mut peer in Peer::each(siege, 200, 15) {
        for i in 0..500u64 {
            let channel = 4 * i + 2 * (i % 2);
            let header = SymbolHeader {
                scheme: SchemeId::Dense,
                channel,
                offset: 0,
                block: BlockLen::Bytes(300),
                esi: 0,
            };
            let charged = 300;
            let ends = [
                Frame::Fin { channel, size: 300 },
                Frame::Reset {
                    channel,
                    code,
                    charged,
                },
                Frame::Stop { channel, code },
                Frame::Skip {
                    channel,
                    offset: 0,
                    len: 300,
                    charged,
                },
                Frame::MaxStreamData {
                    channel,
                    limit: u64::MAX >> 2,
                },
            ];
            let end = ends[(i % 5) as usize];
            let data = &[7; 100];
            peer.send_all(&[end, Frame::Symbol { header, data }]);
            let many: Vec<_> = (0..40)
                .map(|k| Frame::Stop {
                    channel: channel + 4 * k,
                    code,
                })
                .collect();
            peer.send_all(&many);
            count += 2;
        }
        receive(&peer.socket);
        siege.pace(count);
    }
    count
}
