//! Why a host does not answer, as far as its kernel, routers on the way and TCP say.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::net::any_port;

/// How long a refusal may take: a round trip to the other side of the world, and a lost packet.
const PATIENCE: Duration = Duration::from_secs(1);
/// Hosts limit how often they refuse (Linux: six times, then once a second, `icmp_ratelimit`), and
/// our handshake may have used that up.
const TRIES: usize = 3;
/// Where most machines that can be reached at all answer, if only with a refusal.
const TCP_PORTS: [u16; 2] = [22, 443];

/// What keeps a host from answering; of several addresses the last of these that one of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// This machine or a router knows no way to it, or may not use it.
    NoRoute,
    /// The host says that nobody listens at the port.
    Refused,
    /// It is silent.
    Silent,
    /// It answers over TCP and is silent over UDP.
    UdpOnly,
}

impl Obstacle {
    /// In words, with what to do.
    pub fn explain(self, host: &str, port: u16) -> String {
        match self {
            Self::NoRoute => format!(
                "no route to {host}: this machine has no network to it, or a firewall here or on \
                 the way rejects it; see `ip route get`, and whether the address is right"
            ),
            Self::Refused => format!(
                "{host} is there, but no receiver listens at UDP port {port}: start `dfcp recv` there, \
                 or name its port as HOST:PORT; where one runs a firewall there rejects what comes"
            ),
            Self::UdpOnly => format!(
                "{host} answers over TCP, not at UDP port {port}: UDP is blocked on the way or no \
                 receiver runs there; open UDP port {port} in its firewall, or use `dfcp cp`, which \
                 can go through ssh"
            ),
            Self::Silent => format!(
                "{host} does not answer, over TCP neither: no receiver runs there, the host is down, \
                 or UDP is blocked; open UDP port {port} in its firewall"
            ),
        }
    }
}

/// Whether this machine itself can send nothing to any of `addresses`: nobody needs to wait for an answer.
pub fn is_without_route(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|to| {
        // The kernel looks for a route here; nothing leaves.
        let connected = std::net::UdpSocket::bind(any_port(to.ip())).and_then(|s| s.connect(to));
        connected.is_err_and(|error| is_no_route(&error))
    })
}

fn is_no_route(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::PermissionDenied
    )
}

/// Finds out why nobody at `addresses` answers; takes three seconds at most.
async fn obstacle(addresses: Vec<SocketAddr>) -> Obstacle {
    let each: JoinSet<_> = addresses.into_iter().map(obstacle_at).collect();
    let found = each.join_all().await;
    found.into_iter().max().unwrap_or(Obstacle::NoRoute)
}

async fn obstacle_at(address: SocketAddr) -> Obstacle {
    let (udp, tcp) = tokio::join!(udp(address), tcp(address));
    match (udp, tcp) {
        (Some(obstacle), _) => obstacle,
        (None, true) => Obstacle::UdpOnly,
        (None, false) => Obstacle::Silent,
    }
}

/// Silence after which it is worth to look why.
const DOUBT: Duration = Duration::from_secs(1);

/// Looks for the obstacle while others still wait for an answer; ends when dropped.
#[derive(Debug)]
pub struct Doubt {
    search: JoinHandle<Obstacle>,
    found: Option<Obstacle>,
}

impl Doubt {
    /// Begins after a second of silence.
    pub fn start(addresses: Vec<SocketAddr>) -> Self {
        let search = tokio::spawn(async move {
            tokio::time::sleep(DOUBT).await;
            obstacle(addresses).await
        });
        Self {
            search,
            found: None,
        }
    }

    /// What was found. May be cancelled.
    pub async fn found(&mut self) -> Obstacle {
        if self.found.is_none() {
            self.found = Some((&mut self.search).await.unwrap_or(Obstacle::Silent));
        }
        self.found.unwrap_or(Obstacle::Silent)
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// Where nobody needs to wait any longer: the host itself says that nobody listens, or nothing leads to it.
    pub async fn answer<T>(&mut self, answer: impl Future<Output = T>) -> Result<T, Obstacle> {
        let clear = async {
            match self.found().await {
                clear @ (Obstacle::Refused | Obstacle::NoRoute) => clear,
                Obstacle::Silent | Obstacle::UdpOnly => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = answer => Ok(answer),
            obstacle = clear => Err(obstacle),
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.search.abort();
    }
}

/// What ICMP says to a datagram that means nothing, if it says anything.
async fn udp(to: SocketAddr) -> Option<Obstacle> {
    let socket = UdpSocket::bind(any_port(to.ip())).await.ok()?;
    let ask = async || {
        socket.connect(to).await?;
        socket.send(&[0]).await?;
        // What the host says comes as an error; nobody answers such a datagram.
        socket.recv(&mut [0; 16]).await
    };
    for _ in 0..TRIES {
        let Ok(said) = tokio::time::timeout(PATIENCE, ask()).await else {
            continue;
        };
        return match said.err()? {
            error if error.kind() == io::ErrorKind::ConnectionRefused => Some(Obstacle::Refused),
            error if is_no_route(&error) => Some(Obstacle::NoRoute),
            _ => None,
        };
    }
    None
}

/// Whether the host answers a TCP SYN, if only with a refusal.
async fn tcp(to: SocketAddr) -> bool {
    let answers = async |port| {
        let to = SocketAddr::new(to.ip(), port);
        match tokio::time::timeout(PATIENCE, TcpStream::connect(to)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
            Err(_) => false,
        }
    };
    let (first, second) = tokio::join!(answers(TCP_PORTS[0]), answers(TCP_PORTS[1]));
    first || second
}
