//! A UDP or raw IP socket with large buffers and batched receives, over UDP with segmentation
//! offload too.
//!
//! The runtime's reactor watches it only for what is waited for: each event is a wake-up, whether or
//! not anyone wants it.

use crate::claim::PortClaim;
use crate::handover::{Arrival, Leaving};
use dfcp_proto::wire::ConnectionId;
use dfcp_proto::{Priority, Transmit};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Buffer sizes of the socket, bytes: asked for and got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// What was asked for, each way.
    pub requested: usize,
    /// What the system gives for receiving.
    pub receive: usize,
    /// What the system gives for sending.
    pub send: usize,
}

impl SocketBuffers {
    /// A sentence for people if the system gave less than was asked for.
    pub fn shortfall(&self) -> Option<String> {
        let got = self.receive.min(self.send);
        (got < self.requested).then(|| {
            format!(
                "socket buffers are {} KiB instead of {} KiB; raise net.core.rmem_max and \
                 net.core.wmem_max for fast paths",
                got / 1024,
                self.requested / 1024
            )
        })
    }
}

/// Holds a hundred milliseconds at 400 Mbit/s, or a descheduled process' arrears at 10 Gbit/s.
const REQUESTED_BUFFER: usize = 4 << 20;
/// Largest UDP payload; with GRO one buffer may hold many datagrams up to this.
const BUFFER_LEN: usize = 65_536;

/// Buffers for one call when packets come merged: what it fills should stay in the cache until it
/// is read. And at least, however few come: each one asks the call to write down where it is.
const MERGED_BATCH: usize = 4;
const LEAST_BATCH: usize = 4;

/// Protocol number of raw IP packets: one of two for experiments (RFC 3692, §2.1).
const EXPERIMENTAL: i32 = 253;
/// Class selector 6, network control (RFC 4594, §3.1), where the traffic class has it.
#[cfg(target_os = "linux")]
const CONTROL_CLASS: u8 = 48 << 2;

/// What a socket's packets travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Udp,
    /// IP packets; the socket's own addresses and those of its peers have no ports.
    Ip,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It left, or the network refuses it: that is a loss, and losses are what the protocol is
    /// for.
    Gone,
    /// It is larger than the interface takes.
    TooLarge,
    /// Not yet: the socket's buffer is full.
    Blocked,
}

/// What to wake up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Nothing,
    /// Packets.
    Arrivals,
    /// Packets, or room for more of ours.
    ArrivalsAndRoom,
}

/// Packets that arrived together: from one address, all of one size but the last.
#[derive(Debug)]
pub(crate) struct Train<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) ecn: u8,
    /// Time since they arrived.
    pub(crate) age: Duration,
    pub(crate) bytes: &'a mut [u8],
    size: usize,
}

impl Train<'_> {
    pub(crate) fn packets(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_mut(self.size.max(1))
    }
}

/// What one call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) datagrams: usize,
    /// Nothing more was waiting.
    pub(crate) is_last: bool,
}

/// The side of a socket where packets leave.
#[derive(Debug)]
pub(crate) struct Outlet {
    layer: Layer,
    /// Reaches addresses of IPv4 by those of IPv6 that stand for them.
    is_ipv6: bool,
    io: Arc<std::net::UdpSocket>,
    state: UdpSocketState,
    /// Of an endpoint that comes to a port that is handed over, and of one that hands its own over.
    arrival: Arc<Arrival>,
    leaving: OnceLock<Leaving>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Socket {
    outlet: Arc<Outlet>,
    watched: Watch,
    reactor: Option<AsyncFd<Arc<std::net::UdpSocket>>>,
    pub(crate) buffers: SocketBuffers,
    /// The DFCP port listened at, over IP.
    claim: Option<PortClaim>,
    /// Whether the port was another endpoint's, which hands it over.
    pub(crate) took_over: bool,
    receive: Vec<u8>,
    /// What the system says of each.
    metas: Box<[RecvMeta; BATCH_SIZE]>,
    /// The last packets came merged: a few buffers are plenty, and stay in the cache.
    merged: bool,
    /// Buffers filled since nothing more was waiting, and in the time before that.
    filled: usize,
    usual: usize,
}

impl Socket {
    /// Binds to `address` (within a tokio runtime); over IP its port is of no meaning.
    pub(crate) fn bind(layer: Layer, mut address: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(address);
        let socket = match layer {
            Layer::Udp => {
                socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?
            }
            Layer::Ip => {
                address.set_port(0);
                socket2::Socket::new(domain, socket2::Type::RAW, Some(EXPERIMENTAL.into()))
                    .map_err(explain_raw)?
            }
        };
        if address.is_ipv6() && address.ip().is_unspecified() {
            // One socket for both families, where the system can.
            let _ = socket.set_only_v6(false);
        }
        let arriving = match layer {
            Layer::Udp => crate::handover::bind(&socket, address)?,
            Layer::Ip => {
                socket.bind(&address.into())?;
                None
            }
        };
        let mut socket = Self::over(layer, socket.into())?;
        if arriving.is_some() {
            socket.took_over = true;
            let outlet = &socket.outlet;
            *outlet
                .arrival
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = arriving;
            crate::handover::watch(&outlet.io, address, &outlet.arrival)?;
        }
        Ok(socket)
    }

    /// Over a socket that is bound already.
    pub(crate) fn over(layer: Layer, std_socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&std_socket))?;
        let is_ipv6 = std_socket.local_addr()?.is_ipv6();
        make_room_for_timestamps(&std_socket, is_ipv6)?;
        let reference = || UdpSockRef::from(&std_socket);
        // Best effort: what was really given is read back and reported.
        let _ = state.set_recv_buffer_size(reference(), REQUESTED_BUFFER);
        let _ = state.set_send_buffer_size(reference(), REQUESTED_BUFFER);
        let buffers = SocketBuffers {
            requested: REQUESTED_BUFFER,
            receive: state.recv_buffer_size(reference())?,
            send: state.send_buffer_size(reference())?,
        };
        let outlet = Outlet {
            layer,
            is_ipv6,
            io: Arc::new(std_socket),
            state,
            arrival: Arc::default(),
            leaving: OnceLock::new(),
        };
        Ok(Self {
            outlet: Arc::new(outlet),
            watched: Watch::Nothing,
            reactor: None,
            buffers,
            claim: None,
            took_over: false,
            receive: vec![0; BATCH_SIZE * BUFFER_LEN],
            metas: Box::new([RecvMeta::default(); BATCH_SIZE]),
            merged: false,
            filled: 0,
            usual: BATCH_SIZE,
        })
    }

    /// Takes DFCP port `port` for listening, as long as the socket is there; for sockets over IP.
    pub(crate) fn claim(&mut self, port: u16) -> io::Result<()> {
        self.claim = Some(PortClaim::new(self.local_addr()?.ip(), port)?);
        Ok(())
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.outlet.io.local_addr()
    }

    /// Where packets leave; for many tasks at a time.
    pub(crate) fn outlet(&self) -> Arc<Outlet> {
        self.outlet.clone()
    }

    /// What [`Socket::poll_ready`] is to wake up for; call within a tokio runtime. Room that is there
    /// already counts: many tasks send, and one may have found none before it came.
    pub(crate) fn watch(&mut self, watch: Watch) -> io::Result<()> {
        if watch == self.watched && watch != Watch::ArrivalsAndRoom {
            return Ok(());
        }
        self.reactor = None; // one registration at a time
        let register = |interest| crate::reactor::register(self.outlet.io.clone(), interest);
        self.reactor = match watch {
            Watch::Nothing => None,
            Watch::Arrivals => Some(register(Interest::READABLE)?),
            Watch::ArrivalsAndRoom => Some(register(Interest::READABLE | Interest::WRITABLE)?),
        };
        self.watched = watch;
        Ok(())
    }

    /// Ready when what is watched for may be there.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(reactor) = &self.reactor else {
            return Poll::Pending;
        };
        if self.watched == Watch::ArrivalsAndRoom
            && let Poll::Ready(room) = reactor.poll_write_ready(context)
        {
            return Poll::Ready(room.map(|_| ()));
        }
        let arrivals = ready!(reactor.poll_read_ready(context));
        Poll::Ready(arrivals.map(|_| ()))
    }

    /// Receives what is there, in one batch.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Train<'_>)) -> io::Result<Received> {
        const NOTHING: Received = Received {
            datagrams: 0,
            is_last: true,
        };
        let most = self.batch();
        let Self {
            outlet,
            reactor,
            receive,
            metas,
            ..
        } = self;
        let Outlet {
            layer, io, state, ..
        } = &**outlet;
        let mut slices = receive.chunks_mut(BUFFER_LEN).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| slices.next().expect("one chunk for each slot"));
        let mut receive = || state.recv(UdpSockRef::from(io), &mut slices[..most], &mut metas[..]);
        let received = match reactor {
            Some(reactor) => reactor.try_io(Interest::READABLE, |_| receive()),
            None => receive(),
        };
        let count = match received {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.usual = mem::take(&mut self.filled);
                return Ok(NOTHING);
            }
            // Reports of ICMP errors for packets sent earlier; nothing to receive here.
            Err(e) if is_transient(&e) => return Ok(NOTHING),
            Err(e) => return Err(e),
        };
        let clock = wall_clock();
        let mut datagrams = 0;
        for (meta, slot) in metas
            .iter()
            .zip(self.receive.chunks_mut(BUFFER_LEN))
            .take(count)
        {
            let age = meta.timestamp.map(|arrived| clock.saturating_sub(arrived));
            let mut bytes = &mut slot[..meta.len];
            if *layer == Layer::Ip {
                let header = ip_header(meta.addr, bytes);
                bytes = bytes.get_mut(header..).unwrap_or_default();
            }
            let size = meta.stride;
            // Packets may be empty.
            datagrams += bytes.len().div_ceil(size.max(1)).max(1);
            each(Train {
                remote: canonical(meta.addr),
                ecn: meta.ecn.map_or(0, |e| e as u8),
                age: age.unwrap_or_default(),
                bytes,
                size,
            });
        }
        // A few by themselves say nothing of the next.
        if datagrams > count || count == most {
            self.merged = datagrams > count;
        }
        self.filled += count;
        // A reactor's readiness is kept until there is nothing.
        let is_last = count < most && self.reactor.is_none();
        if is_last {
            self.usual = mem::take(&mut self.filled);
        }
        Ok(Received { datagrams, is_last })
    }

    /// How many buffers the next call is given: for twice as many as came last time, then for the most.
    fn batch(&self) -> usize {
        let most = match self.merged {
            true => MERGED_BATCH,
            false => BATCH_SIZE,
        };
        match self.filled {
            0 => (2 * self.usual).clamp(LEAST_BATCH, most),
            _ => most,
        }
    }
}

impl Outlet {
    /// Most datagrams that one send call takes.
    pub(crate) fn max_segments(&self) -> usize {
        match self.layer {
            Layer::Udp => self.state.max_gso_segments(),
            Layer::Ip => 1,
        }
    }

    /// Lets another endpoint have the port, and all packets but those of `own` connections.
    pub(crate) fn hand_over(&self, own: &[ConnectionId]) -> io::Result<()> {
        let leaving = crate::handover::hand_over(&self.io, own, &self.arrival)?;
        // There is one at a time.
        let _ = self.leaving.set(leaving);
        Ok(())
    }

    /// Sends without waiting.
    pub(crate) fn try_send(&self, batch: &Transmit, contents: &[u8]) -> Sent {
        let send = || match batch.priority {
            Priority::Data => self.send_default(batch, contents),
            Priority::Control => self.send_control(batch, contents),
        };
        match send() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Sent::Blocked,
            Err(e) if quinn_udp::is_msg_size_err(&e) => Sent::TooLarge,
            _ => Sent::Gone,
        }
    }

    /// What the system calls `destination` on this socket.
    fn reached_by(&self, destination: SocketAddr) -> SocketAddr {
        match destination {
            SocketAddr::V4(v4) if self.is_ipv6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            other => other,
        }
    }

    fn send_default(&self, batch: &Transmit, contents: &[u8]) -> io::Result<()> {
        let message = quinn_udp::Transmit {
            destination: self.reached_by(batch.destination),
            ecn: EcnCodepoint::from_bits(batch.ecn),
            contents,
            segment_size: batch.segment_size,
            src_ip: None,
        };
        self.state.try_send(UdpSockRef::from(&self.io), &message)
    }

    /// Control packets are few: each is sent by itself, with a traffic class that `quinn_udp`
    /// cannot set. If the buffer fills up amid a batch, all of it is sent again.
    #[cfg(target_os = "linux")]
    fn send_control(&self, batch: &Transmit, contents: &[u8]) -> io::Result<()> {
        use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
        use std::os::fd::AsRawFd;
        let destination = SockaddrStorage::from(self.reached_by(batch.destination));
        let class = CONTROL_CLASS | batch.ecn;
        let wide = i32::from(class);
        let control = match batch.destination.ip().to_canonical().is_ipv4() {
            true => ControlMessage::Ipv4Tos(&class),
            false => ControlMessage::Ipv6TClass(&wide),
        };
        for packet in contents.chunks(batch.segment_size.unwrap_or(usize::MAX).max(1)) {
            let slices = [io::IoSlice::new(packet)];
            let (socket, flags) = (self.io.as_raw_fd(), MsgFlags::empty());
            sendmsg(socket, &slices, &[control], flags, Some(&destination))?;
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn send_control(&self, batch: &Transmit, contents: &[u8]) -> io::Result<()> {
        self.send_default(batch, contents)
    }
}

/// The address as people write it: of IPv4 where one of IPv6 only stands for it.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ std::net::IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        std::net::IpAddr::V6(_) => address,
    }
}

/// The clock that the kernel's timestamps are of: nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "only ages are taken of it, each within bounds of the steady clock"
)]
fn wall_clock() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// `quinn_udp` asks the kernel when each packet arrived, but has no room for that beside all else
/// that it asks: which of our addresses a packet came to is of no interest here.
#[cfg(target_os = "linux")]
fn make_room_for_timestamps(socket: &std::net::UdpSocket, is_ipv6: bool) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    if !is_ipv6 {
        return Ok(setsockopt(socket, sockopt::Ipv4PacketInfo, &false)?);
    }
    // A raw socket of IPv6 has no options of IPv4, one for both families has.
    match setsockopt(socket, sockopt::Ipv4PacketInfo, &false) {
        Ok(()) | Err(nix::errno::Errno::ENOPROTOOPT) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &false)?)
}

#[cfg(not(target_os = "linux"))]
fn make_room_for_timestamps(_: &std::net::UdpSocket, _: bool) -> io::Result<()> {
    Ok(())
}

/// Bytes of the IP header that a raw socket delivers: IPv4's, never IPv6's.
fn ip_header(remote: SocketAddr, packet: &[u8]) -> usize {
    match (remote, packet.first()) {
        (SocketAddr::V4(_), Some(first)) => usize::from(first & 15) * 4,
        _ => 0,
    }
}

fn explain_raw(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let reason = "raw IP sockets need the privilege CAP_NET_RAW; UDP needs none";
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// Whether an error is of a packet that was sent earlier, or of a network or memory that is not there just
/// now. The first are what ICMP told, which anyone can forge, to a socket that its owner connected: none of
/// them may end an endpoint.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    let by_kind = matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
            | PermissionDenied
            | TimedOut
            | OutOfMemory
            | Interrupted
    );
    by_kind || error.raw_os_error().is_some_and(is_of_the_network)
}

/// Those without a name in [`io::ErrorKind`].
#[cfg(target_os = "linux")]
fn is_of_the_network(number: i32) -> bool {
    use nix::libc;
    let numbers = [
        libc::EMSGSIZE,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::ENOBUFS,
    ];
    numbers.contains(&number)
}

#[cfg(not(target_os = "linux"))]
fn is_of_the_network(_: i32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use nix::libc;

    /// What Linux makes of ICMP (net/ipv4/icmp.c, net/ipv6/icmp.c), and of a network that goes.
    #[test]
    fn what_strangers_or_a_network_can_cause_ends_no_endpoint() {
        for number in [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENOPROTOOPT,
            libc::ECONNREFUSED,
            libc::EMSGSIZE,
            libc::EOPNOTSUPP,
            libc::EHOSTDOWN,
            libc::ENONET,
            libc::EPROTO,
            libc::EACCES,
            libc::EPERM,
            libc::ENETDOWN,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::ETIMEDOUT,
            libc::EINTR,
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert!(is_transient(&error), "{error}");
        }
        for number in [libc::EBADF, libc::ENOTSOCK, libc::EFAULT, libc::EINVAL] {
            let error = io::Error::from_raw_os_error(number);
            assert!(!is_transient(&error), "{error}");
        }
    }
}
