//! What it takes to refuse and to answer handshakes, on one core and without a socket.
//!
//! `cargo bench -p dfcp-proto --bench handshake`

#[path = "../../../fuzz/src/raw.rs"]
#[allow(dead_code)]
mod raw;

use dfcp_proto::{Duration, Endpoint, Instant};
use std::net::SocketAddr;

/// Runs `f` for about two seconds; times in a second.
fn rate(mut f: impl FnMut(u32)) -> f64 {
    let (start, mut n) = (std::time::Instant::now(), 0);
    while start.elapsed() < std::time::Duration::from_secs(2) {
        (0..100).for_each(|i| f(n + i));
        n += 100;
    }
    f64::from(n) / start.elapsed().as_secs_f64()
}

fn spoofed(i: u32) -> SocketAddr {
    let [a, b, c, d] = i.to_be_bytes();
    SocketAddr::from(([a, b, c, d], 4000))
}

/// Takes a datagram and makes the answers.
fn serve(server: &mut Endpoint, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
    let mut out = Vec::new();
    server.handle_datagram(now, from, 0, datagram);
    while server.poll_transmit(now, 1, &mut out).is_some() {
        out.clear();
    }
}

fn main() {
    let now = Instant::from_nanos(1_000_000_000);
    let mut server = raw::server();
    // Each in a second of its own, so that no cookie is in force.
    let answered = rate(|i| {
        let now = now + Duration::from_secs(2 * u64::from(i));
        serve(&mut server, now, spoofed(i), &mut raw::syn().emit(1200));
    });
    let mut server = raw::server();
    let mut plain = raw::syn().emit(1200);
    (0..200).for_each(|i| serve(&mut server, now, spoofed(i), &mut plain));
    let refused = rate(|i| serve(&mut server, now, spoofed(i), &mut plain));
    let mut syn = raw::syn();
    syn.cookie = [7; 16];
    let mut wrong = syn.emit(1200);
    let mistaken = rate(|i| serve(&mut server, now, spoofed(i), &mut wrong));
    let mut server = raw::server();
    let synack = raw::ask(&mut server, now, raw::address(1));
    let mut ack = raw::answer(&synack, &raw::params()).0;
    // The cookie lies behind type, version, two IDs, slot and size.
    ack[27] ^= 1;
    let forged = rate(|i| serve(&mut server, now, spoofed(i), &mut ack.clone()));
    println!("handshakes a core-second");
    println!("| SYN answered, no cookie in force | {answered:.0} |");
    println!("| SYN refused with a cookie | {refused:.0} |");
    println!("| SYN with a wrong cookie refused | {mistaken:.0} |");
    println!("| ACK with a wrong cookie refused | {forged:.0} |");
}
