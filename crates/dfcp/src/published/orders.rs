//! Follows a network controller's orders for a stream (`docs/spec/orders.md`).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant as Wall};

use dfcp_proto::order::{Flow, Follower, FollowerConfig, MESSAGE_LEN};
use dfcp_proto::published::Family;
use dfcp_proto::{Instant, Rate};
use tokio::net::UdpSocket;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{Config, Monitor, OrderKey, Standing};

/// How long the last word to the controller may take.
const FAREWELL: Duration = Duration::from_millis(100);

/// Whose orders are followed, and how far.
#[derive(Clone, Debug)]
pub struct OrderConfig {
    controller: SocketAddr,
    key: OrderKey,
    flow: Flow,
    headers: u16,
    fallback: Rate,
    limit: Rate,
}

impl OrderConfig {
    /// Orders of `controller` for a connection with this configuration, from `source` to
    /// `destination`: addresses and ports as the network sees them.
    pub fn new(
        controller: SocketAddr,
        key: OrderKey,
        config: &Config,
        ends: [SocketAddr; 2],
    ) -> Self {
        let [source, destination] = ends;
        let layout = config.layout(match source {
            SocketAddr::V4(_) => Family::Ipv4,
            SocketAddr::V6(_) => Family::Ipv6,
        });
        Self {
            controller,
            key,
            flow: Flow {
                source: source.ip(),
                destination: destination.ip(),
                protocol: layout.protocol,
                source_port: source.port(),
                destination_port: destination.port(),
                packet: layout.packet,
            },
            headers: layout.headers,
            fallback: Rate::from_bps(10_000_000),
            limit: Rate::MAX,
        }
    }

    /// Most that is sent while no order holds, once one did: 10 Mbit/s unless set, little enough for
    /// any path.
    pub fn fallback(mut self, rate: Rate) -> Self {
        self.fallback = rate;
        self
    }

    /// Most that is ever sent, whatever is ordered; no bound unless set.
    pub fn limit(mut self, rate: Rate) -> Self {
        self.limit = rate;
        self
    }
}

/// A stream that follows orders; it goes on at the last rate when this is dropped.
#[derive(Debug)]
pub struct Orders {
    standing: watch::Receiver<Standing>,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Orders {
    /// Begins to follow; call within a tokio runtime.
    ///
    /// # Errors
    /// When there can be no socket for the controller.
    pub async fn follow(monitor: Monitor, config: OrderConfig) -> io::Result<Self> {
        let any = match config.controller {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(config.controller).await?;
        let seed = crate::os_seed()?;
        let session = seed.first_chunk().map_or(0, |&s| u64::from_le_bytes(s));
        let follower = FollowerConfig {
            key: config.key,
            flow: config.flow,
            headers: config.headers,
            fallback: config.fallback,
            limit: config.limit,
            session,
        };
        let (told, standing) = watch::channel(Standing::Waiting);
        let (end, ended) = oneshot::channel();
        let post = Post {
            socket,
            epoch: Wall::now(),
            follower: Follower::new(follower, Instant::ZERO),
            monitor,
            told,
        };
        let task = tokio::spawn(post.run(ended));
        Ok(Self {
            standing,
            end,
            task,
        })
    }

    /// How it stands with the controller, and every change of that.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Tells the controller that all is sent.
    pub async fn end(self) {
        let _ = self.end.send(());
        let _ = tokio::time::timeout(FAREWELL, self.task).await;
    }
}

struct Post {
    socket: UdpSocket,
    epoch: Wall,
    follower: Follower,
    monitor: Monitor,
    told: watch::Sender<Standing>,
}

impl Post {
    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    /// A controller that is gone makes sends and receptions fail: it is asked again all the same.
    async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        let mut buffer = [0; MESSAGE_LEN + 1];
        loop {
            let now = self.now();
            self.follower.handle_timeout(now);
            while let Some(message) = self.follower.poll_transmit(now) {
                let _ = self.socket.send(&message).await;
            }
            self.obey();
            let due = self.epoch + self.follower.poll_timeout().saturating_since(Instant::ZERO);
            tokio::select! {
                got = self.socket.recv(&mut buffer) => {
                    if let Ok(len) = got {
                        let now = self.now();
                        self.follower.handle(now, &buffer[..len]);
                    }
                }
                () = tokio::time::sleep_until(due.into()) => {}
                ended = &mut ended => {
                    if ended.is_ok() {
                        let _ = self.socket.send(&self.follower.farewell()).await;
                    }
                    return;
                }
            }
        }
    }

    fn obey(&self) {
        let standing = self.follower.standing();
        if *self.told.borrow() == standing {
            return;
        }
        if let Some(rate) = self.follower.rate() {
            self.monitor.order_rate(rate);
        }
        self.told.send_replace(standing);
    }
}
