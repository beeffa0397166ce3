//! The client's end: programs that speak SOCKS5's UDP ASSOCIATE (RFC 1928 §7), and forwarded ports.

use std::collections::HashMap;
use std::future::pending;
use std::hash::Hash;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Association, Packet, WAITING, receive, send_now};
use crate::client::Client;
use crate::door::STUCK_PAUSE;
use crate::event::Event;
use crate::local::part;
use crate::socks;
use crate::status::Refusal;
use crate::target::Target;

/// Sources of datagrams that a forwarded port serves at once, each with an association of its own. A new
/// one takes the place of the one that sent nothing for longest: resolvers use a port for each question,
/// and each costs the server a socket, of which systems give a process 1024.
const SOURCES: usize = 256;

/// The association of a local port, made when it is needed.
struct Flow {
    client: Client,
    association: Option<Association>,
    /// Whom the last datagram was for.
    host: Option<Target>,
}

impl Flow {
    fn new(client: Client) -> Self {
        let (association, host) = (None, None);
        Self {
            client,
            association,
            host,
        }
    }

    /// With an association to begin with.
    ///
    /// # Errors
    /// Why the server gives none.
    async fn start(client: Client) -> Result<Self, Refusal> {
        let association = Some(client.associate_for_program().await?);
        let host = None;
        Ok(Self {
            client,
            association,
            host,
        })
    }

    /// Sends a datagram, over a new association if there is none.
    async fn send(&mut self, packet: Packet) {
        if self.association.is_none() {
            match self.client.associate().await {
                Ok(association) => self.association = Some(association),
                Err(refusal) => return self.report(packet.host, refusal),
            }
        }
        if let Some(association) = &self.association {
            association.send(&packet.host, &packet.payload);
            self.host = Some(packet.host);
        }
    }

    /// The next datagram that comes back; `None` when the association ended.
    async fn next(&mut self) -> Option<Packet> {
        let Some(association) = &mut self.association else {
            return pending().await;
        };
        match association.next().await {
            Ok(packet) => Some(packet),
            Err(why) => {
                self.association = None;
                if let (Some(refusal), Some(host)) = (why, self.host.take()) {
                    self.report(host, refusal);
                }
                None
            }
        }
    }

    fn report(&self, target: Target, refusal: Refusal) {
        self.client.report(Event::Failed { target, refusal });
    }
}

/// Serves a program that asked for UDP ASSOCIATE, until it ends its TCP connection. What others send to
/// the port is not heard: only the program's host, and of it the first port that speaks.
pub(crate) async fn serve_program(client: Client, mut tcp: TcpStream) {
    let bound = async {
        // An IPv4 address in the shape of an IPv6 one is not what a program expects to be told.
        let local = tcp.local_addr()?.ip().to_canonical();
        let host = tcp.peer_addr()?.ip().to_canonical();
        let socket = UdpSocket::bind((local, 0)).await?;
        let at = socket.local_addr()?;
        std::io::Result::Ok((socket, at, host))
    };
    let opened = match bound.await {
        Ok(bound) => Flow::start(client.clone()).await.map(|flow| (bound, flow)),
        Err(error) => Err(Refusal::of(&error, "no port for UDP")),
    };
    let ((socket, at, host), mut flow) = match opened {
        Ok(opened) => opened,
        Err(refusal) => {
            let answer = socks::answer(Err(&refusal));
            client.report(Event::Unassociated(refusal));
            return part(tcp, &answer).await;
        }
    };
    if tcp.write_all(&socks::associated(at)).await.is_err() {
        return;
    }
    let (mut program, mut ignored) = (None, [0; 64]);
    loop {
        tokio::select! {
            read = tcp.read(&mut ignored) => match read {
                Ok(1..) => {}
                _ => return,
            },
            came = receive(&socket) => {
                let Ok((payload, from)) = came else { return };
                if from.ip() != host || from != *program.get_or_insert(from) {
                    continue;
                }
                if let Some(packet) = socks::datagram(payload) {
                    flow.send(packet).await;
                }
            }
            Some(packet) = flow.next() => if let Some(program) = program {
                send_now(&socket, &socks::encode_datagram(&packet), program);
            },
        }
    }
}

/// Where datagrams of several sources come to.
pub trait UdpPort: Send + Sync + 'static {
    /// Whom datagrams are from; each has an association of its own.
    type Source: Clone + Eq + Hash + Send + Sync + 'static;

    /// The next one with whom it is for, and whom it is from. May be cancelled.
    fn receive(&self) -> impl Future<Output = io::Result<(Packet, Self::Source)>> + Send;

    /// Hands an answer, with whom it is from, to a source, or loses it where there is no room.
    fn answer(&self, packet: &Packet, to: &Self::Source);
}

/// One whose datagrams are all for the same host.
struct Forwarded {
    socket: UdpSocket,
    target: Target,
}

impl UdpPort for Forwarded {
    type Source = SocketAddr;

    async fn receive(&self) -> io::Result<(Packet, SocketAddr)> {
        let (payload, from) = receive(&self.socket).await?;
        let host = self.target.clone();
        Ok((Packet { host, payload }, from))
    }

    fn answer(&self, packet: &Packet, to: &SocketAddr) {
        send_now(&self.socket, &packet.payload, *to);
    }
}

impl Client {
    /// Carries the datagrams that come to `socket` to `target`, and the answers back, each source by
    /// itself. Does not end.
    pub async fn forward_udp(&self, socket: UdpSocket, target: Target) {
        self.serve_datagrams(Forwarded { socket, target }).await;
    }

    /// Carries the datagrams that come to `port` to whom they are for, and the answers back, each source by
    /// itself. Does not end.
    pub async fn serve_datagrams<P: UdpPort>(&self, port: P) {
        let port = Arc::new(port);
        let mut sources: HashMap<P::Source, (Instant, mpsc::Sender<Packet>)> = HashMap::new();
        let mut flows = JoinSet::new();
        loop {
            let (packet, from) = tokio::select! {
                came = port.receive() => match came {
                    Ok(came) => came,
                    // What a host said of an earlier datagram, or the system lacks something just now.
                    Err(_) => {
                        sleep(STUCK_PAUSE).await;
                        continue;
                    }
                },
                Some(ended) = flows.join_next() => {
                    // Unless it is there again already.
                    if let Ok(source) = ended
                        && sources.get(&source).is_some_and(|(_, queue)| queue.is_closed())
                    {
                        sources.remove(&source);
                    }
                    continue;
                }
            };
            if sources.len() >= SOURCES && !sources.contains_key(&from) {
                let oldest = sources.iter().min_by_key(|(_, (last, _))| *last);
                if let Some(source) = oldest.map(|(source, _)| source.clone()) {
                    // Its task ends with its queue.
                    sources.remove(&source);
                }
            }
            let (last, queue) = sources.entry(from.clone()).or_insert_with(|| {
                let (queue, waiting) = mpsc::channel(WAITING);
                let flow = Flow::new(self.clone());
                flows.spawn(carry_source(flow, port.clone(), from, waiting));
                (Instant::now(), queue)
            });
            *last = Instant::now();
            let _ = queue.try_send(packet);
        }
    }
}

/// Carries what one source sends, until its association ends.
async fn carry_source<P: UdpPort>(
    mut flow: Flow,
    port: Arc<P>,
    source: P::Source,
    mut waiting: mpsc::Receiver<Packet>,
) -> P::Source {
    loop {
        tokio::select! {
            packet = waiting.recv() => {
                let Some(packet) = packet else { return source };
                flow.send(packet).await;
                if flow.association.is_none() {
                    return source;
                }
            }
            packet = flow.next() => match packet {
                Some(packet) => port.answer(&packet, &source),
                None => return source,
            },
        }
    }
}
