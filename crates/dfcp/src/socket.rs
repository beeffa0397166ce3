//! A UDP socket with large buffers, segmentation offload and batched receives.

use dfcp_proto::Transmit;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tokio::io::Interest;

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

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Socket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    pub(crate) buffers: SocketBuffers,
    receive: Vec<u8>,
}

impl Socket {
    /// Binds to `address` (within a tokio runtime).
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(address);
        let socket =
            socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
        if address.is_ipv6() && address.ip().is_unspecified() {
            // One socket for both families, where the system can.
            let _ = socket.set_only_v6(false);
        }
        socket.bind(&address.into())?;
        let std_socket: std::net::UdpSocket = socket.into();
        let state = UdpSocketState::new(UdpSockRef::from(&std_socket))?;
        // quinn-udp asks for receive timestamps without room for them: the kernel then drops the
        // ECN codepoint of merged datagrams, which we need more.
        #[cfg(target_os = "linux")]
        nix::sys::socket::setsockopt(
            &std_socket,
            nix::sys::socket::sockopt::ReceiveTimestampns,
            &false,
        )?;
        let reference = || UdpSockRef::from(&std_socket);
        // Best effort: what was really given is read back and reported.
        let _ = state.set_recv_buffer_size(reference(), REQUESTED_BUFFER);
        let _ = state.set_send_buffer_size(reference(), REQUESTED_BUFFER);
        let buffers = SocketBuffers {
            requested: REQUESTED_BUFFER,
            receive: state.recv_buffer_size(reference())?,
            send: state.send_buffer_size(reference())?,
        };
        let io = tokio::net::UdpSocket::from_std(std_socket)?;
        let receive = vec![0; BATCH_SIZE * BUFFER_LEN];
        Ok(Self {
            io,
            state,
            buffers,
            receive,
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Most datagrams that one send call takes.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends; `Ok(false)` if the socket's buffer is full. Errors of the network are losses, and
    /// losses are what the protocol is for.
    pub(crate) fn try_send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<bool> {
        let message = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: EcnCodepoint::from_bits(transmit.ecn),
            contents,
            segment_size: transmit.segment_size,
            src_ip: None,
        };
        let sent = self.io.try_io(Interest::WRITABLE, || {
            self.state.try_send(UdpSockRef::from(&self.io), &message)
        });
        match sent {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            _ => Ok(true),
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.io.writable().await
    }

    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_recv_ready(context)
    }

    /// Receives what is there, in one batch. Returns how many datagrams there were; 0 means none
    /// is waiting.
    pub(crate) fn receive(
        &mut self,
        mut each: impl FnMut(SocketAddr, u8, &mut [u8]),
    ) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let Self {
            io, state, receive, ..
        } = self;
        let mut slices = receive.chunks_mut(BUFFER_LEN).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| slices.next().expect("one chunk for each slot"));
        let received = io.try_io(Interest::READABLE, || {
            state.recv(UdpSockRef::from(&*io), &mut slices, &mut metas)
        });
        let count = match received {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            // Reports of ICMP errors for packets sent earlier; nothing to receive here.
            Err(e) if is_transient(&e) => return Ok(0),
            Err(e) => return Err(e),
        };
        let mut datagrams = 0;
        for (meta, slot) in metas
            .iter()
            .zip(self.receive.chunks_mut(BUFFER_LEN))
            .take(count)
        {
            let ecn = meta.ecn.map_or(0, |e| e as u8);
            for datagram in slot[..meta.len].chunks_mut(meta.stride.max(1)) {
                datagrams += 1;
                each(meta.addr, ecn, datagram);
            }
        }
        Ok(datagrams.max(1))
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::Interrupted
    )
}
