//! Whether the service of a file works, for containers and scripts that have no other client of HTTP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use dfcp_command::{Failure, Kind};

use super::Whole;
use crate::command::proxy::place::Place;

/// How long a health check may take; what asks usually gives up after 30 s.
const HEALTH_LIMIT: Duration = Duration::from_secs(5);
/// Longest answer that is read: a line.
const MAX_ANSWER: u64 = 4096;

/// Asks.
///
/// # Errors
/// What the service says is wrong, or that nobody answers.
pub fn ask(whole: &Whole) -> Result<(), Failure> {
    let Some(Place(at)) = whole.metrics else {
        let why = "the file has no `metrics`, where the service would say whether it works";
        return Err(Failure::usage(why));
    };
    let at = match at {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, at.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, at.port()).into(),
        at => at,
    };
    let answer = get(at).map_err(|error| {
        Failure::new(
            Kind::Unreachable,
            format!("nobody answers at {at}, where the service would: {error}"),
        )
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.starts_with("HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(Failure::new(Kind::Failure, body.trim())),
    }
}

fn get(at: SocketAddr) -> std::io::Result<String> {
    let mut tcp = TcpStream::connect_timeout(&at, HEALTH_LIMIT)?;
    tcp.set_read_timeout(Some(HEALTH_LIMIT))?;
    tcp.set_write_timeout(Some(HEALTH_LIMIT))?;
    tcp.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    tcp.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
