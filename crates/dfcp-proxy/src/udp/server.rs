//! The server's end: a UDP socket, as the program at the other end would have.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dfcp::PublicKey;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Association, Packet, receive, send_now};
use crate::account::{Account, Way};
use crate::dial::{Questions, forbidden, resolve};
use crate::event::Event;
use crate::here::is_here;
use crate::rules::Rules;
use crate::server::{Inner, Settings};
use crate::status::{Refusal, Status};
use crate::target::{Host, Target};

/// How long an association without datagrams lasts: what a translator of addresses gives one
/// (RFC 4787 §4.3 recommends five minutes and more).
const IDLE: Duration = Duration::from_secs(300);
/// How long the address of a name counts; the system's resolver does not say how long it lasts, and
/// those of services that move have about a minute.
const NAME_LASTS: Duration = Duration::from_secs(60);
/// Addresses that an association remembers; beyond that it begins anew.
const REMEMBERED: usize = 4096;
/// The same of names, which have up to 255 bytes, and of hosts of which a refusal was told: a client that
/// fills both takes 200 kB.
const REMEMBERED_NAMES: usize = 256;
/// Names of an association that are asked for at once, and datagrams that wait for each: what a program
/// says first to a few hosts. More are dropped.
const ASKED: usize = 8;
const WAITING_FOR_NAME: usize = 4;
/// Bytes of all that wait for names: more than as many datagrams have as fit into packets, or one of the longest. Names
/// of dead zones are waited for, by a key with all its associations, for half an hour.
const WAITING_BYTES: usize = 65_536;

/// What came of a question for a name.
type Found = (Target, Result<SocketAddr, Refusal>);

enum Name {
    Asked(Vec<Bytes>),
    Known(SocketAddr, Instant),
}

/// Where an association leaves from.
pub(crate) struct Exit {
    server: Arc<Inner>,
    /// The client's key.
    peer: PublicKey,
    settings: Arc<Settings>,
    /// Of both families, where the system has them.
    socket: UdpSocket,
    has_v6: bool,
    /// Whether the rules allow these.
    judged: HashMap<SocketAddr, bool>,
    /// What was sent to; only these may answer (RFC 4787 §5, address-dependent filtering).
    spoken_to: HashSet<IpAddr>,
    names: HashMap<Target, Name>,
    /// Bytes that wait for names.
    waiting: usize,
    questions: Questions,
    lookups: JoinSet<Found>,
    /// Hosts of which a refusal was reported: one for each.
    told: HashSet<Target>,
}

/// Carries an association to its end.
pub(crate) async fn serve(mut association: Association, mut exit: Exit, account: &Account) {
    loop {
        tokio::select! {
            packet = association.next() => match packet {
                Ok(packet) if account.pass(Way::In, packet.payload.len()) => exit.send(packet),
                Ok(_) => {}
                Err(_) => return,
            },
            came = receive(&exit.socket) => match came {
                Ok((payload, from)) => {
                    if exit.expects(from) && account.pass(Way::Out, payload.len()) {
                        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                        association.send(&from.into(), &payload);
                    }
                }
                Err(_) => return,
            },
            Some(Ok(found)) = exit.lookups.join_next() => exit.learn(found),
            () = sleep(IDLE) => return,
        }
    }
}

impl Exit {
    /// One for a client of a server, which asks for names so.
    ///
    /// # Errors
    /// When there is no socket for it.
    pub fn open(
        server: &Arc<Inner>,
        peer: PublicKey,
        questions: Questions,
    ) -> Result<Self, Refusal> {
        let (socket, has_v6) =
            bind().map_err(|error| Refusal::of(&error, "no socket for datagrams"))?;
        Ok(Self {
            server: server.clone(),
            peer,
            settings: server.settings(),
            socket,
            has_v6,
            judged: HashMap::new(),
            spoken_to: HashSet::new(),
            names: HashMap::new(),
            waiting: 0,
            questions,
            lookups: JoinSet::new(),
            told: HashSet::new(),
        })
    }

    /// Sends a datagram to whom it is for, as far as the rules allow.
    fn send(&mut self, packet: Packet) {
        let Packet { host, payload } = packet;
        if let Host::Ip(ip) = host.host {
            return self.send_to(SocketAddr::new(ip, host.port), &payload);
        }
        let fits = self.waiting + payload.len() <= WAITING_BYTES;
        match self.names.get_mut(&host) {
            Some(Name::Asked(waiting)) => {
                if fits && waiting.len() < WAITING_FOR_NAME {
                    self.waiting += payload.len();
                    waiting.push(payload);
                }
            }
            Some(Name::Known(address, since)) if since.elapsed() < NAME_LASTS => {
                let address = *address;
                self.send_to(address, &payload);
            }
            _ if !fits || self.lookups.len() >= ASKED => {}
            _ => {
                if self.names.len() >= REMEMBERED_NAMES {
                    // Those that were asked for stay: something waits for them.
                    self.names.retain(|_, name| matches!(name, Name::Asked(_)));
                }
                self.waiting += payload.len();
                self.names.insert(host.clone(), Name::Asked(vec![payload]));
                let (settings, questions) = (self.settings.clone(), self.questions.clone());
                self.lookups.spawn(async move {
                    let found = find(&host, &settings.rules, &questions).await;
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
        self.waiting -= waiting.iter().map(Bytes::len).sum::<usize>();
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
        if let Err(refusal) = self.may_reach(address) {
            return self.refuse(address.into(), refusal);
        }
        self.spoken_to.insert(address.ip());
        send_now(&self.socket, payload, self.as_sent(address));
    }

    /// `address` as the socket takes it: one of IPv6 knows IPv4 addresses in the shape of its own.
    fn as_sent(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.has_v6 => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        }
    }

    /// Whether the rules allow `address`, which is not asked for each datagram.
    ///
    /// # Errors
    /// That they do not, or why that is not known.
    fn may_reach(&mut self, address: SocketAddr) -> Result<(), Refusal> {
        let settings = self.server.settings();
        if self.judged.len() >= REMEMBERED || !Arc::ptr_eq(&settings, &self.settings) {
            self.settings = settings;
            self.judged.clear();
            self.spoken_to.clear();
        }
        let allowed = match self.judged.get(&address) {
            Some(allowed) => *allowed,
            None => {
                let found = judge(&self.settings.rules, address);
                let lacked = |refusal: &Refusal| refusal.status == Status::Limit;
                // Without an open file to find out with, the next datagram asks again.
                if !found.as_ref().is_err_and(lacked) {
                    self.judged.insert(address, found == Ok(true));
                }
                found?
            }
        };
        match allowed {
            true => Ok(()),
            false => Err(forbidden(&address.into())),
        }
    }

    /// Whether something was sent to `from`.
    fn expects(&self, from: SocketAddr) -> bool {
        self.spoken_to.contains(&from.ip().to_canonical())
    }

    fn refuse(&mut self, target: Target, refusal: Refusal) {
        if self.told.len() >= REMEMBERED_NAMES {
            self.told.clear();
        }
        if self.told.insert(target.clone()) {
            let failed = Event::Failed { target, refusal };
            self.server.tell(Event::Of(self.peer, Box::new(failed)));
        }
    }
}

/// Whether the rules allow `address`, and the way there leads to another machine if it has to.
fn judge(rules: &Rules, address: SocketAddr) -> Result<bool, Refusal> {
    match rules.allow(address) && !rules.allow_here(address) {
        true => is_here(address)
            .map(|here| !here)
            .map_err(|error| Refusal::of(&error, address)),
        false => Ok(rules.allow(address)),
    }
}

/// The first address of a name that the rules allow.
async fn find(host: &Target, rules: &Rules, questions: &Questions) -> Result<SocketAddr, Refusal> {
    let addresses = resolve(host, questions).await?;
    let allowed = addresses.into_iter().find(|address| rules.allow(*address));
    allowed.ok_or_else(|| forbidden(host))
}

/// A socket of both families, or of IPv4 where there is no IPv6; and which it is.
fn bind() -> io::Result<(UdpSocket, bool)> {
    let open = |domain, any: IpAddr| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::new(any, 0).into())?;
        UdpSocket::from_std(socket.into())
    };
    match open(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()) {
        Ok(socket) => Ok((socket, true)),
        Err(_) => {
            let socket = open(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into())?;
            Ok((socket, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Limits;
    use crate::server::{Server, ServerConfig};

    #[tokio::test]
    async fn what_waits_for_dead_names_is_bounded_however_long_datagrams_are() {
        let server = Server::new(ServerConfig {
            settings: Settings::default(),
            limits: Arc::new(|_| Limits::default()),
            report: Arc::new(|_| {}),
        });
        let peer = PublicKey([1; 32]);
        let mut exit = Exit::open(server.inner(), peer, Questions::of_dead_names()).unwrap();
        let host = |i| Target {
            host: Host::Name(format!("{i}.invalid")),
            port: 53,
        };
        let say = |exit: &mut Exit, bytes: usize| {
            for i in 0..2 * ASKED {
                for _ in 0..2 * WAITING_FOR_NAME {
                    let payload = Bytes::from(vec![7; bytes]);
                    let host = host(i);
                    exit.send(Packet { host, payload });
                }
            }
            let names = exit.names.values();
            let waiting = names.map(|name| match name {
                Name::Asked(waiting) => waiting.iter().map(Bytes::len).sum(),
                Name::Known(..) => 0,
            });
            waiting.sum::<usize>()
        };
        // What a program says first to a few hosts waits as long as they are asked for.
        assert_eq!(say(&mut exit, 1400), ASKED * WAITING_FOR_NAME * 1400);
        let refuse = |exit: &mut Exit| {
            for i in 0..ASKED {
                let refusal = Refusal::new(Status::HostUnreachable, "dead");
                exit.learn((host(i), Err(refusal)));
            }
            exit.lookups = JoinSet::new();
        };
        refuse(&mut exit);
        assert_eq!(say(&mut exit, 30_000), 60_000);
        refuse(&mut exit);
        // Room comes back.
        assert_eq!(say(&mut exit, 65_000), 65_000);
    }
}
