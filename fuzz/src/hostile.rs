//! The owner of a session who aims its server at a victim.

use super::live::Watch;
use super::raw::{RawClient, address, drain};
use super::{Input, check_work};
use dfcp_proto::wire::{AckHead, Frame, PATH_DATA_LEN};
use dfcp_proto::{ChannelKind, Duration};

/// An endpoint with a connection that has 60,000 bytes to send, and got next to nothing.
const SERVER_HOLDS: usize = 1 << 20;

/// Whoever owns a session sends from a victim's address whatever he likes, and hears nothing of what
/// goes there: it is never validated, and gets three times what came at most.
pub fn migration(data: &[u8]) {
    let mut input = Input(data);
    let watch = Watch::allow(SERVER_HOLDS);
    let mut raw = RawClient::connect();
    let id = raw.connection().open(ChannelKind::Object).expect("open");
    let now = raw.now;
    raw.connection().write(now, id, &[7; 60_000]).expect("open");
    let victim = address(9);
    let (mut received, mut sent, mut newest) = (0, 0, 0);
    let mut asked = [0; PATH_DATA_LEN];
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        let op = input.byte();
        raw.address = if op & 3 == 3 {
            victim
        } else {
            address(1 + (op & 3))
        };
        // From here on it counts again if this moves the connection to the victim.
        let connection = raw.server.connection(raw.handle);
        let at = connection.map(|connection| connection.remote_address());
        if at != Some(victim) {
            (received, sent) = (0, 0);
        }
        let mut plaintext = Vec::new();
        match op >> 2 & 7 {
            0 => raw.now += Duration::from_millis(u64::from(input.byte()) * 20),
            1 => Frame::PathResponse(asked).emit(&mut plaintext),
            2 => {
                let mut guess = asked;
                guess[0] ^= input.byte() | 1;
                Frame::PathResponse(guess).emit(&mut plaintext);
            }
            3 | 4 => {
                let largest = newest + u64::from(input.byte() % 8);
                let head = AckHead {
                    largest,
                    ..AckHead::default()
                };
                Frame::emit_ack(&mut plaintext, head, [(0, largest)].into_iter(), 600);
            }
            5 => Frame::PathChallenge([op; PATH_DATA_LEN]).emit(&mut plaintext),
            _ => plaintext.resize(1 + usize::from(input.byte()) * 5, 1),
        }
        if plaintext.is_empty() {
            let now = raw.now;
            raw.server.handle_timeout(now);
        } else {
            let mut packet = raw.seal(&plaintext);
            received += packet.len() as u64;
            raw.deliver(&mut packet);
        }
        watch.check();
        check_work(&raw);
        let Some(connection) = raw.server.connection(raw.handle) else {
            return;
        };
        if connection.remote_address() != victim {
            raw.receive(|pn, frame| {
                newest = newest.max(pn);
                if let Frame::PathChallenge(data) = frame {
                    asked = *data;
                }
            });
            continue;
        }
        assert!(!connection.is_validated(), "the victim answered nothing");
        let now = raw.now;
        let datagrams = drain(&mut raw.server, now);
        let gone: u64 = datagrams.iter().map(|packet| packet.len() as u64).sum();
        // It hears none of it, but may acknowledge what it does not hear: the keys go on meanwhile, and it can
        // compute them.
        raw.open(datagrams, |_, _| {});
        sent += gone;
        assert!(
            sent <= 3 * received,
            "{sent} bytes to the victim for {received}"
        );
    }
}
