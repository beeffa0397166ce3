//! The server's end: a UDP socket of each family, as the program at the other end would have.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Association, LONGEST, Packet, send_now};
use crate::dial::{forbidden, is_here, resolve};
use crate::event::{Event, Report};
use crate::rules::Rules;
use crate::status::Refusal;
use crate::target::{Host, Target};

/// How long an association without datagrams lasts: what a translator of addresses gives one
/// (RFC 4787 §4.3 recommends five minutes and more).
const IDLE: Duration = Duration::from_secs(300);
/// How long the address of a name counts; the system's resolver does not say how long it lasts, and
/// those of services that move have about a minute.
const NAME_LASTS: Duration = Duration::from_secs(60);
/// Hosts and names that an association remembers; beyond that it begins anew.
const REMEMBERED: usize = 4096;
/// Names of an association that are asked for at once, and datagrams that wait for each: what a program
/// says first to a few hosts. More are dropped.
const ASKED: usize = 8;
const WAITING_FOR_NAME: usize = 4;

/// What came of a question for a name.
type Found = (Target, Result<SocketAddr, Refusal>);

enum Name {
    Asked(Vec<Bytes>),
    Known(SocketAddr, Instant),
}

/// Where an association leaves from.
struct Exit<'a> {
    rules: &'a Rules,
    report: &'a Report,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    /// Whether the rules allow these.
    judged: HashMap<SocketAddr, bool>,
    /// What was sent to; only these may answer (RFC 4787 §5, address-dependent filtering).
    spoken_to: HashSet<IpAddr>,
    names: HashMap<Target, Name>,
    lookups: JoinSet<Found>,
    /// A refusal was reported: one for each association.
    told: bool,
}

/// Carries an association to its end.
pub(crate) async fn serve(mut association: Association, rules: &Rules, report: &Report) {
    let mut exit = Exit {
        rules,
        report,
        v4: None,
        v6: None,
        judged: HashMap::new(),
        spoken_to: HashSet::new(),
        names: HashMap::new(),
        lookups: JoinSet::new(),
        told: false,
    };
    let (mut buffer4, mut buffer6) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            packet = association.next() => match packet {
                Ok(packet) => exit.send(packet),
                Err(_) => return,
            },
            came = receive(exit.v4.as_ref(), &mut buffer4) => match came {
                Ok((len, from)) => exit.answer(&association, from, &buffer4[..len]),
                Err(_) => return,
            },
            came = receive(exit.v6.as_ref(), &mut buffer6) => match came {
                Ok((len, from)) => exit.answer(&association, from, &buffer6[..len]),
                Err(_) => return,
            },
            Some(Ok(found)) = exit.lookups.join_next() => exit.learn(found),
            () = sleep(IDLE) => return,
        }
    }
}

/// The next datagram, in `buffer`.
async fn receive(
    socket: Option<&UdpSocket>,
    buffer: &mut Vec<u8>,
) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => {
            if buffer.is_empty() {
                // Zeroed by the system: pages that no datagram reaches take no memory.
                *buffer = vec![0; LONGEST];
            }
            socket.recv_from(buffer).await
        }
        None => pending().await,
    }
}

impl Exit<'_> {
    /// Sends a datagram to whom it is for, as far as the rules allow.
    fn send(&mut self, packet: Packet) {
        let Packet { host, payload } = packet;
        if let Host::Ip(ip) = host.host {
            return self.send_to(SocketAddr::new(ip, host.port), &payload);
        }
        match self.names.get_mut(&host) {
            Some(Name::Asked(waiting)) => {
                if waiting.len() < WAITING_FOR_NAME {
                    waiting.push(payload);
                }
            }
            Some(Name::Known(address, since)) if since.elapsed() < NAME_LASTS => {
                let address = *address;
                self.send_to(address, &payload);
            }
            _ if self.lookups.len() >= ASKED => {}
            _ => {
                if self.names.len() >= REMEMBERED {
                    self.names.clear();
                }
                self.names.insert(host.clone(), Name::Asked(vec![payload]));
                let rules = self.rules.clone();
                self.lookups.spawn(async move {
                    let found = find(&host, &rules).await;
                    (host, found)
                });
            }
        }
    }

    /// The address of a name is known, or that it has none.
    fn learn(&mut self, (host, found): Found) {
        let Some(Name::Asked(waiting)) = self.names.remove(&host) else {
            return;
        };
        match found {
            Ok(address) => {
                self.names
                    .insert(host, Name::Known(address, Instant::now()));
                for payload in waiting {
                    self.send_to(address, &payload);
                }
            }
            Err(refusal) => self.refuse(host, refusal),
        }
    }

    fn send_to(&mut self, address: SocketAddr, payload: &[u8]) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if !self.may_reach(address) {
            let host = Target::from(address);
            let refusal = forbidden(&host);
            return self.refuse(host, refusal);
        }
        let socket = match address.ip() {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        };
        if socket.is_none() {
            match bind(address.ip()) {
                Ok(bound) => *socket = Some(bound),
                Err(error) => {
                    let host = Target::from(address);
                    let refusal = Refusal::of(&error, &host);
                    return self.refuse(host, refusal);
                }
            }
        }
        self.spoken_to.insert(address.ip());
        if let Some(socket) = socket {
            send_now(socket, payload, address);
        }
    }

    /// Whether the rules allow `address`, which is not asked for each datagram.
    fn may_reach(&mut self, address: SocketAddr) -> bool {
        if self.judged.len() >= REMEMBERED {
            self.judged.clear();
            self.spoken_to.clear();
        }
        let rules = self.rules;
        *self.judged.entry(address).or_insert_with(|| {
            let elsewhere = || is_here(address).is_ok_and(|here| !here);
            rules.allow(address) && (rules.allow_here(address) || elsewhere())
        })
    }

    /// Hands an answer to the program, if it asked.
    fn answer(&self, association: &Association, from: SocketAddr, payload: &[u8]) {
        if self.spoken_to.contains(&from.ip().to_canonical()) {
            association.send(&Target::from(from), payload);
        }
    }

    fn refuse(&mut self, target: Target, refusal: Refusal) {
        if !std::mem::replace(&mut self.told, true) {
            let why = refusal.message;
            (self.report)(Event::Failed { target, why });
        }
    }
}

/// The first address of a name that the rules allow.
async fn find(host: &Target, rules: &Rules) -> Result<SocketAddr, Refusal> {
    let addresses = resolve(host).await?;
    let allowed = addresses.into_iter().find(|address| rules.allow(*address));
    allowed.ok_or_else(|| forbidden(host))
}

/// A socket that can send to `ip`.
fn bind(ip: IpAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
