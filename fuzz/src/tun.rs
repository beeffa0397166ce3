//! The code of IP links, and what is looked at in packets.

use dfcp_tun::code::{Decoder, Encoder, Path, max_piece};
use dfcp_tun::packet;
use std::time::Duration;

/// Takes bytes off the front of the input; zeros when it is used up.
fn byte(input: &mut &[u8]) -> u8 {
    let (first, rest) = input
        .split_first()
        .map_or((0, &[][..]), |(&b, rest)| (b, rest));
    *input = rest;
    first
}

/// Packets over a path that loses and doubles what the input says, and datagrams of any bytes
/// among them. As long as nothing was forged, what comes out is what went in.
pub fn link(mut data: &[u8]) {
    let input = &mut data;
    let forges = byte(input) & 1 == 1;
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    let (mut now, mut number, mut path) = (Duration::ZERO, 0_u32, Path::default());
    (path.burstiness, path.delay) = (1.0, Duration::from_millis(50));
    let mut deliver = |bytes: &[u8]| {
        if !forges {
            assert!(bytes[4..].iter().all(|&b| b == bytes[0]), "{bytes:?}");
        }
        let mut copy = bytes.to_vec();
        if let Some(header) = packet::parse(bytes) {
            header.clamp_mss(&mut copy, 1280);
            assert_eq!(copy.len(), bytes.len());
        }
        packet::mark(&mut copy);
    };
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
            decoder.handle(datagram, &mut deliver);
            continue;
        }
        let most = 40 + usize::from(byte(input)) * 6;
        let len = (4 + usize::from(byte(input)) * 12).min(2 * max_piece(most));
        let mut bytes = vec![number as u8; len.max(4)];
        bytes[1..4].copy_from_slice(&[0; 3]);
        number = number.wrapping_add(1);
        path.settled += 1;
        path.lost += u64::from(op & 4 != 0);
        path.loss = f64::from(op >> 3) / 64.0;
        encoder.set_path(&path);
        let mut datagrams = Vec::new();
        encoder.push(now, &bytes, most, &mut |datagram| datagrams.push(datagram));
        datagrams.extend(std::iter::from_fn(|| encoder.repair(now)).take(8));
        for datagram in datagrams {
            let fate = byte(input);
            let times = [0, 1, 1, 2][usize::from(fate & 3)];
            (0..times).for_each(|_| decoder.handle(&datagram, &mut deliver));
        }
    }
}
