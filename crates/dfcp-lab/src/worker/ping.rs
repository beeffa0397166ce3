//! Round trips by ICMP echo (RFC 792, RFC 4443), without privileges (icmp(7)).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::job::PingJob;
use crate::path::clock::monotonic_ns;

/// Round trips that were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pings {
    /// Times of those that were answered, nanoseconds.
    pub round_trips_ns: Vec<u64>,
    /// How many were asked.
    pub asked: u64,
}

/// Asks one after the other.
pub(super) fn ping(job: &PingJob) -> io::Result<Pings> {
    let (domain, protocol, kind, headers) = match job.to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 28),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 48),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.connect(&SocketAddr::new(job.to, 0).into())?;
    socket.set_read_timeout(Some(Duration::from_nanos(job.patience_ns.max(1_000_000))))?;
    let mut pings = Pings {
        round_trips_ns: Vec::new(),
        asked: u64::from(job.count),
    };
    let mut packet = vec![0; 8 + (job.packet as usize).saturating_sub(headers)];
    packet[0] = kind;
    for number in 0..job.count {
        packet[6..8].copy_from_slice(&number.to_be_bytes());
        let sent = monotonic_ns();
        socket.send(&packet)?;
        if let Some(got) = answer(&socket, number)? {
            pings.round_trips_ns.push(got.saturating_sub(sent));
        }
    }
    Ok(pings)
}

/// When the answer came; `None` if it did not.
fn answer(socket: &Socket, number: u16) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut &*socket, &mut buffer) {
            // Answers that come too late are those to earlier questions.
            Ok(len) if len >= 8 && buffer[6..8] == number.to_be_bytes() => {
                return Ok(Some(monotonic_ns()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
