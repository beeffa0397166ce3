//! UDP of other programs (docs/spec/proxy.md): an association carries the datagrams of one local port,
//! as datagrams of the connection; those that are too long for one go over a stream of its own, which
//! also says how long the association lasts.

mod client;
mod server;
#[cfg(target_os = "linux")]
mod transparent;

pub use client::UdpPort;
pub(crate) use client::serve_program;
pub(crate) use server::{Exit, serve};
#[cfg(target_os = "linux")]
pub use transparent::InterceptedUdp;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use dfcp::Connection;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::account::Way;
use crate::status::Refusal;
use crate::target::Target;
use crate::traffic::{Kind, Open, Traffic};
use crate::wire::{Tunnel, read_answer};

/// Datagrams that wait for an association to take them; more are dropped, as by a socket that is full
/// (Linux has room for about as many by default).
const WAITING: usize = 256;
/// Those among them that are too long for a datagram of the connection, of 64 KiB each.
const WAITING_LONG: usize = 4;
/// Datagrams of a connection that are kept for associations whose requests have not come yet. What a
/// program sends first is few: a question or a handshake.
const EARLY: usize = 64;
/// Longest datagram that UDP can have, with room for who it is from.
const LONGEST: usize = 65_536;

/// A datagram, and the host that it is for or from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The host.
    pub host: Target,
    /// What is in it.
    pub payload: Bytes,
}

impl Packet {
    /// Reads a host and what is for it; `None` if it is none.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        let (host, len) = Target::decode(&bytes).ok()??;
        bytes.advance(len);
        let payload = bytes;
        Some(Self { host, payload })
    }
}

/// Adds to `out` what [`Packet::decode`] reads.
pub(crate) fn encode(host: &Target, payload: &[u8], out: &mut Vec<u8>) {
    host.encode(out);
    out.extend(payload);
}

/// Where the datagrams of an association go.
type Taker = mpsc::Sender<Bytes>;

/// Sends a datagram, or loses it where the socket has no room. tokio's way would wait, or call a socket
/// that is new not ready.
fn send_now(socket: &UdpSocket, payload: &[u8], to: SocketAddr) {
    let _ = SockRef::from(socket).send_to(payload, &to.into());
}

thread_local! {
    /// Where datagrams are read into: one place, as they are copied to their own size at once. An
    /// association that waits holds none.
    static RECEIVED: RefCell<Vec<u8>> = RefCell::new(vec![0; LONGEST]);
}

/// The next datagram that comes to `socket`, and whom it is from. May be cancelled.
async fn receive(socket: &UdpSocket) -> io::Result<(Bytes, SocketAddr)> {
    loop {
        socket.readable().await?;
        let came = RECEIVED.with_borrow_mut(|buffer| {
            let (len, from) = socket.try_recv_from(buffer)?;
            io::Result::Ok((Bytes::copy_from_slice(&buffer[..len]), from))
        });
        match came {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            came => return came,
        }
    }
}

/// Who takes the datagrams that come on a connection.
pub(crate) struct Routes {
    traffic: Traffic,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<u32, Taker>,
    /// Those whose association is not known, the oldest first.
    early: VecDeque<(u32, Bytes)>,
}

impl Routes {
    /// Without associations; what they carry counts in `traffic`.
    pub fn new(traffic: Traffic) -> Self {
        let table = Mutex::default();
        Self { traffic, table }
    }

    /// Hands out what comes on `connection`, until it ends.
    pub async fn follow(&self, connection: &Connection) {
        while let Ok(datagram) = connection.read_datagram().await {
            self.deliver(datagram);
        }
    }

    fn deliver(&self, mut datagram: Bytes) {
        let Ok(id) = datagram.try_get_u32() else {
            return;
        };
        let mut table = self.table();
        if let Some(taker) = table.open.get(&id) {
            // Who is too slow misses some.
            let _ = taker.try_send(datagram);
            return;
        }
        if table.early.len() == EARLY {
            table.early.pop_front();
        }
        table.early.push_back((id, datagram));
    }

    /// The datagrams of `id` from now on, those that came early first; `None` if somebody takes them.
    fn open(self: &Arc<Self>, id: u32) -> Option<(Route, Taker, mpsc::Receiver<Bytes>)> {
        let (taker, packets) = mpsc::channel(WAITING);
        let mut table = self.table();
        if table.open.contains_key(&id) {
            return None;
        }
        table.open.insert(id, taker.clone());
        table.early.retain(|(early, datagram)| {
            if *early == id {
                let _ = taker.try_send(datagram.clone());
            }
            *early != id
        });
        drop(table);
        let routes = self.clone();
        let open = self.traffic.open(Kind::Udp);
        Some((
            Route {
                routes,
                id,
                _open: open,
            },
            taker,
            packets,
        ))
    }

    /// Whether an association has this number.
    pub fn has(&self, id: u32) -> bool {
        self.table().open.contains_key(&id)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the datagrams of an association, until it is dropped.
struct Route {
    routes: Arc<Routes>,
    id: u32,
    _open: Open,
}

impl Drop for Route {
    fn drop(&mut self) {
        self.routes.table().open.remove(&self.id);
    }
}

/// One end of an association. Dropping it ends the other one.
pub(crate) struct Association {
    connection: Connection,
    route: Route,
    packets: mpsc::Receiver<Bytes>,
    /// What goes over the stream.
    long: mpsc::Sender<Bytes>,
    stream: JoinHandle<Option<Refusal>>,
}

impl Association {
    /// With the stream that stands for it; `None` if its number is in use.
    pub fn new(
        connection: Connection,
        routes: &Arc<Routes>,
        id: u32,
        tunnel: Tunnel,
    ) -> Option<Self> {
        let (route, taker, packets) = routes.open(id)?;
        let (long, waiting) = mpsc::channel(WAITING_LONG);
        let stream = tokio::spawn(carry_long(tunnel, waiting, taker));
        Some(Self {
            connection,
            route,
            packets,
            long,
            stream,
        })
    }

    /// Sends a datagram, or drops it where there is no room: nothing waits, as with UDP.
    pub fn send(&self, host: &Target, payload: &[u8]) {
        let traffic = &self.route.routes.traffic;
        traffic.carried(Kind::Udp, Way::Out, payload.len());
        let mut out = self.route.id.to_be_bytes().to_vec();
        encode(host, payload, &mut out);
        let out = Bytes::from(out);
        if out.len() <= self.connection.max_datagram_size() {
            let _ = self.connection.send_datagram(out);
        } else if out.len() - 4 <= usize::from(u16::MAX) {
            let _ = self.long.try_send(out.slice(4..));
        }
    }

    /// The next datagram; the error is the end, and why, if the other side said. Not to be called after
    /// that. May be cancelled.
    pub async fn next(&mut self) -> Result<Packet, Option<Refusal>> {
        loop {
            let bytes = tokio::select! {
                Some(bytes) = self.packets.recv() => bytes,
                ended = &mut self.stream => return Err(ended.unwrap_or_default()),
            };
            if let Some(packet) = Packet::decode(bytes) {
                let traffic = &self.route.routes.traffic;
                traffic.carried(Kind::Udp, Way::In, packet.payload.len());
                return Ok(packet);
            }
        }
    }
}

/// Reads a datagram with its length before it.
pub(crate) async fn read_long(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let len = recv.read_u16().await?;
    let mut bytes = vec![0; len.into()];
    recv.read_exact(&mut bytes).await?;
    Ok(bytes.into())
}

/// Carries what is too long for a datagram, each with its length before it, both ways, until one side
/// ends. Returns why the other side would not, if so.
async fn carry_long(
    tunnel: Tunnel,
    mut waiting: mpsc::Receiver<Bytes>,
    taker: Taker,
) -> Option<Refusal> {
    let Tunnel {
        mut send,
        mut recv,
        answered,
    } = tunnel;
    let come = async {
        if !answered {
            read_answer(&mut recv).await.map_err(Some)?;
        }
        loop {
            let bytes = read_long(&mut recv).await.map_err(|_| None)?;
            let _ = taker.try_send(bytes);
        }
    };
    let go = async {
        while let Some(bytes) = waiting.recv().await {
            let mut framed = (bytes.len() as u16).to_be_bytes().to_vec();
            framed.extend(&bytes);
            send.write_all(&framed).await?;
        }
        send.finish().map_err(std::io::Error::from)
    };
    let refused: Result<(), Option<Refusal>> = tokio::select! {
        ended = come => ended,
        _ = go => Ok(()),
    };
    refused.err().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(id: u32, what: &'static [u8]) -> Bytes {
        let mut out = id.to_be_bytes().to_vec();
        out.extend(what);
        out.into()
    }

    #[test]
    fn datagrams_that_overtake_the_request_wait_for_it() {
        let routes = Arc::new(Routes::new(Traffic::default()));
        routes.deliver(datagram(7, b"first"));
        routes.deliver(datagram(8, b"another's"));
        routes.deliver(Bytes::from_static(b"sho"));
        let (route, _taker, mut packets) = routes.open(7).expect("nobody has it");
        assert!(routes.open(7).is_none());
        routes.deliver(datagram(7, b"second"));
        assert_eq!(packets.try_recv().expect("early"), &b"first"[..]);
        assert_eq!(packets.try_recv().expect("in time"), &b"second"[..]);
        drop(route);
        // No more than so many wait for nobody.
        for _ in 0..1000 {
            routes.deliver(datagram(7, b"late"));
        }
        assert_eq!(routes.table().early.len(), EARLY);
    }

    #[test]
    fn packets_are_read_as_they_are_written_and_nothing_else_is() {
        for host in ["192.0.2.1:53", "[2001:db8::1]:443", "example.org:1"] {
            let payload = Bytes::from_static(b"\0payload");
            let host = host.parse().expect("a host");
            let packet = Packet { host, payload };
            let mut bytes = Vec::new();
            encode(&packet.host, &packet.payload, &mut bytes);
            for short in 0..bytes.len() - 8 {
                let bytes = Bytes::copy_from_slice(&bytes[..short]);
                assert_eq!(Packet::decode(bytes), None);
            }
            assert_eq!(Packet::decode(bytes.into()), Some(packet));
        }
    }
}
