//! The code of IP links, and what the kernel is given of what comes out of it.

#[path = "live.rs"]
mod live;

use dfcp_tun::code::{Decoder, Encoder, Path, max_piece};
use dfcp_tun::packet::{self, Refused};
use dfcp_tun::{Net, Table};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Symbols that a decoder remembers, and its equations; the window of an encoder; what 200 packets of 3 kB
/// take here, each with its datagrams.
const MAY_HOLD: usize = 512 * 1536 + 128 * 2048 + 256 * 1536 + 200 * 3100 + (64 << 10);
/// Longest packet that the device takes without being lowered.
const MTU: usize = 1280;
/// Bytes of the header of IPv4 and of IPv6; where TCP's options begin.
const V4: usize = 20;
const V6: usize = 40;
const TCP: usize = 20;

/// Takes a byte off the front of the input; zeros when it is used up.
fn byte(input: &mut &[u8]) -> u8 {
    let (first, rest) = input
        .split_first()
        .map_or((0, &[][..]), |(&b, rest)| (b, rest));
    *input = rest;
    first
}

/// What a sender sends.
struct Sent {
    bytes: Vec<u8>,
    /// Whether the receiver takes it.
    is_allowed: bool,
    delivered: bool,
}

/// The `number`th packet, of `len` bytes at most; of eight kinds in turn. No two have the same bytes, and
/// sums of some are none.
fn make(number: u32, len: usize) -> Sent {
    let mut state = u64::from(number) + 1;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect();
    let kind = number % 8;
    let head = if kind < 5 { V4 } else { V6 };
    if kind == 7 || len < head {
        bytes[0] = 0xf0; // of no version of IP
        bytes[1..4].copy_from_slice(&number.to_be_bytes()[1..]);
        return Sent::new(bytes, false);
    }
    match kind {
        0..5 => {
            let source = [[10, 9, 0, 5], [10, 9, 0, 200], [192, 0, 2, 1]];
            bytes[0] = 0x45;
            bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            bytes[4..6].copy_from_slice(&(number as u16).to_be_bytes());
            bytes[6..8].fill(0);
            bytes[9] = if kind == 3 { 6 } else { 17 };
            bytes[12..16].copy_from_slice(&source[kind as usize % 3]);
            if kind == 3 {
                syn(&mut bytes[V4..]);
            }
            if kind == 4 {
                bytes[3] ^= 1; // shorter or longer than it says
            }
        }
        _ => {
            let source: Ipv6Addr = ["fd09::7", "fd0a::7"][kind as usize % 2]
                .parse()
                .expect("good");
            bytes[0] = 0x60;
            bytes[2..4].copy_from_slice(&(number as u16).to_be_bytes());
            bytes[4..6].copy_from_slice(&((len - V6) as u16).to_be_bytes());
            bytes[6] = 17;
            bytes[8..24].copy_from_slice(&source.octets());
        }
    }
    Sent::new(bytes, matches!(kind, 0 | 3 | 6))
}

/// Makes a segment a SYN with an MSS that is too large, if it is long enough.
fn syn(segment: &mut [u8]) {
    if segment.len() >= TCP + 4 {
        (segment[12], segment[13]) = (6 << 4, 2);
        segment[TCP..TCP + 4].copy_from_slice(&[2, 4, 0x23, 0]);
    } else if segment.len() > 13 {
        segment[13] = 0;
    }
}

impl Sent {
    fn new(bytes: Vec<u8>, is_allowed: bool) -> Self {
        Self {
            bytes,
            is_allowed,
            delivered: false,
        }
    }
}

/// Where a packet is from that is as long as it says, read here once more.
fn source(packet: &[u8]) -> Option<IpAddr> {
    let number = |at: usize| usize::from(packet[at]) << 8 | usize::from(packet[at + 1]);
    match packet.first()? >> 4 {
        4 if packet.len() >= V4 && number(2) == packet.len() => {
            Some(Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]).into())
        }
        6 if packet.len() >= V6 && number(4) + V6 == packet.len() => {
            let octets: [u8; 16] = packet[8..24].try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// Gives the kernel a packet of a peer who has 10.9.0.0/24 but for the upper half, and fd09::/16. What
/// the kernel gets is from there and as it came, but for the MSS of a SYN and its checksum. Says whether
/// it gets it.
fn give(table: &Table<usize>, came: &[u8]) -> bool {
    let has = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [10, 9, 0] && ip.octets()[3] < 128,
        IpAddr::V6(ip) => ip.octets()[..2] == [0xfd, 0x09],
    };
    let admitted = packet::admit(came, || MTU, |ip| table.owner(ip) == Some(0));
    let Ok(given) = admitted else {
        let is_good = source(came).is_some_and(has);
        let has_head = came.first().is_some_and(|first| first & 15 >= 5);
        assert!(
            !is_good || !has_head && admitted == Err(Refused::Malformed),
            "refused: {came:?}"
        );
        return false;
    };
    assert!(source(&given).is_some_and(has), "from elsewhere: {given:?}");
    assert_eq!(given.len(), came.len());
    let changed: Vec<usize> = (0..came.len()).filter(|&i| came[i] != given[i]).collect();
    let head = if given[0] >> 4 == 4 {
        usize::from(given[0] & 15) * 4
    } else {
        V6
    };
    let is_sum = |at: usize| (head + 16..head + 18).contains(&at);
    let mss = changed.iter().filter(|at| !is_sum(**at));
    assert!(mss.clone().count() <= 2, "{changed:?}");
    assert!(mss.clone().all(|&at| at >= head + TCP + 2), "{changed:?}");
    let mut copy = given.into_owned();
    packet::mark(&mut copy);
    true
}

/// Packets over a path that loses, doubles and delays what the input says, and datagrams of any bytes of a hostile
/// peer among them. As long as nothing was forged, what comes out is what went in, once, and all of which
/// no datagram was lost; whatever comes, the kernel gets nothing from addresses that the peer does not
/// have, and what is held is bounded.
pub fn link(mut data: &[u8]) {
    let input = &mut data;
    let forges = byte(input) & 1 == 1;
    let watch = live::Watch::allow(MAY_HOLD);
    let nets = [
        ("10.9.0.0/24", 0),
        ("10.9.0.128/25", 1),
        ("fd09::/16", 0),
        ("fd0a::/16", 1),
    ];
    let nets = nets.map(|(net, owner)| (net.parse::<Net>().expect("a network"), owner));
    let table = Table::new(nets).expect("none twice");
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let (mut now, mut path) = (Duration::ZERO, Path::default());
    (path.burstiness, path.delay) = (1.0, Duration::from_millis(50));
    let mut sent: Vec<Sent> = Vec::new();
    let mut held = Vec::new();
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        let op = byte(input);
        now += Duration::from_micros(u64::from(op) * 20);
        if forges && op & 3 == 0 {
            let len = usize::from(byte(input)).min(input.len());
            let (datagram, rest) = input.split_at(len);
            *input = rest;
            decoder.handle(datagram, &mut |bytes| {
                give(&table, bytes);
            });
            continue;
        }
        let most = 40 + usize::from(byte(input)) * 6;
        let len = (4 + usize::from(byte(input)) * 12).min(2 * max_piece(most));
        let this = sent.len();
        sent.push(make(this as u32, len.max(4)));
        path.settled += 1;
        path.lost += u64::from(op & 4 != 0);
        path.loss = f64::from(op >> 3) / 64.0;
        encoder.set_path(&path);
        let mut datagrams = Vec::new();
        let bytes = &sent[this].bytes;
        encoder.push(now, bytes, most, &mut |datagram| datagrams.push(datagram));
        let pieces = datagrams.len();
        datagrams.extend(std::iter::from_fn(|| encoder.repair(now)).take(8));
        let (mut arrived, late) = (0, std::mem::take(&mut held));
        let mut arrive = Vec::new();
        for (i, datagram) in datagrams.into_iter().enumerate() {
            let fate = byte(input);
            let times = [0, 1, 1, 2][usize::from(fate & 3)];
            if fate & 4 != 0 && times > 0 {
                held.push(datagram); // the next packet overtakes it
                continue;
            }
            arrived += usize::from(i < pieces && times > 0);
            arrive.push((datagram, times));
        }
        arrive.extend(late.into_iter().map(|datagram| (datagram, 1)));
        for (datagram, times) in &arrive {
            for _ in 0..*times {
                decoder.handle(datagram, &mut |bytes| {
                    let is_given = give(&table, bytes);
                    if forges {
                        return;
                    }
                    let found = sent.iter_mut().find(|sent| sent.bytes == bytes);
                    let found = found.expect("what comes out went in");
                    assert!(!std::mem::replace(&mut found.delivered, true), "twice");
                    assert_eq!(is_given, found.is_allowed, "{bytes:?}");
                });
            }
        }
        let is_there = forges || arrived < pieces || sent[this].delivered;
        assert!(is_there, "what arrived does not come out");
        watch.check();
    }
}
