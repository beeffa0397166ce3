//! Where datagrams of programs go, and how the answers come back.
//!
//! A *relay* is a port of this machine that stands for one host: a program's socket sends there what is for
//! the host, by the kernel's own means, and gets there from what the host answers. So answers wait in the
//! program's socket, for `poll` and `epoll` as for any call, and its address tells whose they are.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dfcp_proxy::{Packet, Target, UdpPort};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::address::canonical;
use crate::names::Names;

/// Relays that there are at once, each a port and an open file. One more takes the place of the one that was
/// used longest ago, whose answers then come from another port: programs with more hosts speak with each
/// seldom.
const RELAYS: usize = 1024;

/// Datagrams that wait for an association, as in a socket's buffer; more are dropped.
const WAITING: usize = 256;

/// Longest datagram that UDP can have.
const LONGEST: usize = 65_536;

/// Whom datagrams are from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Speaker {
    /// The program's socket. What it sends to addresses is one association, so that all hosts see it at the
    /// same port.
    from: SocketAddr,
    /// What it sends to a name is one for each: answers come with addresses, and do not say whose name is
    /// meant.
    name: Option<SocketAddr>,
}

type Came = (Packet, Speaker);

struct Relay {
    socket: Arc<UdpSocket>,
    way: Way,
    used: Instant,
    reads: JoinHandle<()>,
}

#[derive(Default)]
struct Table {
    relays: HashMap<SocketAddr, Relay>,
    /// Which host the relay at an address stands for.
    hosts: HashMap<SocketAddr, SocketAddr>,
}

impl Table {
    fn make_room(&mut self) {
        if self.relays.len() < RELAYS {
            return;
        }
        let oldest = self.relays.iter().min_by_key(|(_, relay)| relay.used);
        if let Some(host) = oldest.map(|(host, _)| *host) {
            self.remove(host);
        }
    }

    fn remove(&mut self, host: SocketAddr) {
        if let Some(relay) = self.relays.remove(&host) {
            relay.reads.abort();
            self.hosts.retain(|_, of| *of != host);
        }
    }
}

/// See the module's text.
pub(crate) struct Relays {
    names: Arc<Names>,
    runtime: Handle,
    table: Mutex<Table>,
    came: mpsc::Sender<Came>,
    waiting: tokio::sync::Mutex<mpsc::Receiver<Came>>,
}

/// What becomes of datagrams to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// They are questions for names, which are answered here.
    Questions,
    /// They are carried to it.
    Carried(Target),
}

impl Relays {
    /// Without any. Call within a tokio runtime.
    pub fn new(names: Arc<Names>) -> Self {
        let (came, waiting) = mpsc::channel(WAITING);
        Self {
            names,
            runtime: Handle::current(),
            table: Mutex::default(),
            came,
            waiting: tokio::sync::Mutex::new(waiting),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_empty(&self) -> bool {
        self.table().hosts.is_empty()
    }

    /// The address of the relay that stands for `host`; there is one from then on.
    ///
    /// # Errors
    /// When this machine has no ports left.
    pub fn toward(self: &Arc<Self>, host: SocketAddr, way: Way) -> io::Result<SocketAddr> {
        let host = canonical(host);
        let mut table = self.table();
        if table
            .relays
            .get(&host)
            .is_some_and(|relay| relay.way != way)
        {
            // The address stands for another name now.
            table.remove(host);
        }
        drop(table);
        self.relay(host, way)?.local_addr()
    }

    fn relay(self: &Arc<Self>, host: SocketAddr, way: Way) -> io::Result<Arc<UdpSocket>> {
        let mut table = self.table();
        if let Some(relay) = table.relays.get_mut(&host) {
            relay.used = Instant::now();
            return Ok(relay.socket.clone());
        }
        let _in_runtime = self.runtime.enter();
        let socket = Arc::new(bind(host)?);
        table.make_room();
        table.hosts.insert(socket.local_addr()?, host);
        let reads = match way.clone() {
            Way::Questions => self.runtime.spawn(self.names.clone().serve(socket.clone())),
            Way::Carried(target) => {
                let (relays, socket) = (self.clone(), socket.clone());
                self.runtime.spawn(relays.read(socket, host, target))
            }
        };
        let relay = Relay {
            socket: socket.clone(),
            way,
            used: Instant::now(),
            reads,
        };
        table.relays.insert(host, relay);
        Ok(socket)
    }

    /// Which host the relay at an address stands for.
    pub fn host_of(&self, at: SocketAddr) -> Option<SocketAddr> {
        self.table().hosts.get(&canonical(at)).copied()
    }

    /// Takes what programs send to a relay. Does not end.
    async fn read(self: Arc<Self>, socket: Arc<UdpSocket>, host: SocketAddr, target: Target) {
        let name = target.address().is_none().then_some(host);
        let mut buffer = vec![0; LONGEST];
        loop {
            // An error is what somebody said of an earlier answer.
            let Ok((len, from)) = socket.recv_from(&mut buffer).await else {
                tokio::task::yield_now().await;
                continue;
            };
            if let Some(relay) = self.table().relays.get_mut(&host) {
                relay.used = Instant::now();
            }
            let payload = Bytes::copy_from_slice(&buffer[..len]);
            let host = target.clone();
            let _ = self
                .came
                .try_send((Packet { host, payload }, Speaker { from, name }));
        }
    }
}

/// A port of the kind of addresses that `host` has, so that sockets for these alone reach it, too.
fn bind(host: SocketAddr) -> io::Result<UdpSocket> {
    let v6 = || std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0));
    let v4 = || std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let socket = match host.is_ipv6() {
        true => v6().or_else(|_| v4()),
        false => v4(),
    }?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// The port of all relays.
pub(crate) struct Port(pub Arc<Relays>);

impl UdpPort for Port {
    type Source = Speaker;

    async fn receive(&self) -> io::Result<Came> {
        let came = self.0.waiting.lock().await.recv().await;
        came.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn answer(&self, packet: &Packet, to: &Speaker) {
        let Some(host) = to.name.or(packet.host.address()) else {
            return;
        };
        let way = Way::Carried(packet.host.clone());
        let relay = match to.name {
            // Whose relay is gone has not been spoken to for long.
            Some(host) => self.0.table().relays.get(&host).map(|r| r.socket.clone()),
            None => self.0.relay(canonical(host), way).ok(),
        };
        if let Some(relay) = relay {
            // Or loses it where there is no room.
            let _ = socket2::SockRef::from(&*relay).send_to(&packet.payload, &to.from.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Routes;

    /// Addresses that stand for names stand for others when there are no more.
    #[tokio::test]
    async fn what_is_sent_to_an_address_goes_to_the_name_that_it_stands_for_now() {
        let names = Names::new(Arc::new(Routes::new(Vec::new(), Vec::new())));
        let relays = Arc::new(Relays::new(Arc::new(names)));
        let (host, port) = ("198.18.0.7:443".parse().unwrap(), Port(relays.clone()));
        let program = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for name in [
            "first.example:443",
            "first.example:443",
            "second.example:443",
        ] {
            let target: Target = name.parse().unwrap();
            let at = relays.toward(host, Way::Carried(target.clone())).unwrap();
            assert_eq!(relays.host_of(at), Some(host));
            program.send_to(b"x", at).unwrap();
            let (packet, _) = port.receive().await.unwrap();
            assert_eq!(packet.host, target);
        }
        assert_eq!(relays.table().relays.len(), 1);
        assert_eq!(relays.table().hosts.len(), 1);
    }
}
