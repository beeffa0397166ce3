//! From a target to a TCP connection, as far as rules allow.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::rules::Rules;
use crate::status::{Refusal, Status};
use crate::target::{Host, Target};

/// How long resolving and connecting may take together: a SYN is repeated after 1, 3 and 7 s (RFC 6298
/// §2), and the last of these has as long as the one before to be answered.
const LIMIT: Duration = Duration::from_secs(11);
/// After which the next address is tried beside those that have not answered (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Connects to `target`.
///
/// # Errors
/// Why there is no connection.
pub(crate) async fn dial(target: &Target, rules: &Rules) -> Result<TcpStream, Refusal> {
    let attempt = async {
        let addresses = resolve(target).await?;
        let allowed: Vec<_> = addresses.into_iter().filter(|a| rules.allow(*a)).collect();
        match allowed.is_empty() {
            true => Err(forbidden(target)),
            false => connect(target, take_turns(allowed), rules).await,
        }
    };
    let late = || Refusal::new(Status::TimedOut, format_args!("{target} does not answer"));
    let stream = timeout(LIMIT, attempt).await.map_err(|_| late())??;
    prepare(&stream);
    Ok(stream)
}

pub(crate) fn forbidden(target: &Target) -> Refusal {
    let why = format!("the server's rules do not allow {target}");
    Refusal::new(Status::Forbidden, why)
}

/// What every carried connection wants: small messages go at once, and a host that is gone is noticed.
pub(crate) fn prepare(stream: &TcpStream) {
    // Without either the connection works all the same.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(stream).set_keepalive(true);
}

/// The addresses of `target`.
pub(crate) async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
    let name = match &target.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Host::Name(name) => name.as_str(),
    };
    let found = tokio::net::lookup_host((name, target.port)).await;
    let unknown = |why: String| {
        let message = format!("the server knows no address of {name}{why}");
        Refusal::new(Status::HostUnreachable, message)
    };
    let addresses: Vec<_> = found.map_err(|e| unknown(format!(": {e}")))?.collect();
    match addresses.is_empty() {
        true => Err(unknown(String::new())),
        false => Ok(addresses),
    }
}

/// The resolver's order, but families in turn (RFC 8305 §4): where one of them does not work, little
/// time is lost.
fn take_turns(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|a| a.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut turns = VecDeque::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            break;
        }
        turns.extend(pair.into_iter().flatten());
    }
    turns.truncate(MAX_ADDRESSES);
    turns
}

/// The first address that answers (Happy Eyeballs, RFC 8305 §5).
async fn connect(
    target: &Target,
    mut waiting: VecDeque<SocketAddr>,
    rules: &Rules,
) -> Result<TcpStream, Refusal> {
    let mut attempts = JoinSet::new();
    let mut worst = None;
    loop {
        if let Some(address) = waiting.pop_front() {
            let (target, here_too) = (target.clone(), rules.allow_here(address));
            attempts.spawn(async move {
                let failed = |error| Refusal::of(&error, &target);
                if !here_too && is_here(address).map_err(failed)? {
                    return Err(forbidden(&target));
                }
                TcpStream::connect(address).await.map_err(failed)
            });
        }
        let ended = tokio::select! {
            ended = attempts.join_next() => ended,
            () = sleep(ATTEMPT_DELAY), if !waiting.is_empty() => continue,
        };
        match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(refusal))) => worst = Some(telling(worst, refusal)),
            // A panic is the program's to report.
            Some(Err(_)) => {}
            None if waiting.is_empty() => {
                let silent = || Refusal::new(Status::Failed, format_args!("{target} failed"));
                return Err(worst.unwrap_or_else(silent));
            }
            None => {}
        }
    }
}

/// Whether this machine has `address`: then it is also what the system would connect from. A UDP socket
/// learns that from the routes, and nobody notices.
///
/// # Errors
/// When there is no route to it.
pub fn is_here(address: SocketAddr) -> io::Result<bool> {
    let ip = address.ip().to_canonical();
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((ip, address.port()))?;
    Ok(socket.local_addr()?.ip() == ip)
}

/// Of two failures the one that says more about the host: it refused, rather than nobody knows a way.
fn telling(before: Option<Refusal>, now: Refusal) -> Refusal {
    let rank = |refusal: &Refusal| match refusal.status {
        Status::Refused => 3,
        Status::TimedOut => 2,
        Status::HostUnreachable => 1,
        _ => 0,
    };
    match before {
        Some(before) if rank(&before) >= rank(&now) => before,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_beginning_with_the_resolvers_first() {
        let read = |text: &str| text.parse().unwrap();
        let (a, b, c) = (read("[::1]:1"), read("[::2]:1"), read("1.1.1.1:1"));
        assert_eq!(take_turns(vec![a, b, c]), [a, c, b]);
        assert_eq!(take_turns(vec![c, a, b]), [c, a, b]);
        assert_eq!(take_turns(vec![a; 20]).len(), MAX_ADDRESSES);
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_here("127.0.0.1:9".parse().unwrap()).unwrap());
        assert!(is_here("[::ffff:127.0.0.1]:9".parse().unwrap()).unwrap());
        // What this machine calls itself towards others, where it has a route to any.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let elsewhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
        if socket.connect(elsewhere).is_ok() {
            assert!(!is_here(elsewhere).unwrap());
            assert!(is_here(socket.local_addr().unwrap()).unwrap());
        }
    }
}
