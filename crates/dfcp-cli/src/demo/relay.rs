//! The demo's path as a UDP relay on loopback: what a client sends to [`Relay::client_addr`]
//! reaches the server over the forward link, and the server's answers reach the client over the
//! backward link.
//!
//! Datagrams keep their size and their ECN codepoint, and go out one by one: a batch would undo
//! the spacing that the link gave them.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use dfcp_sim::{Datagram, Ecn};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::emulator::{Emulator, PathStats, Port};
use super::path::{PathConfig, UDP_FRAMING};

/// A running relay; it ends when dropped.
pub struct Relay {
    emulator: Emulator,
    client_addr: SocketAddr,
}

impl Relay {
    /// Starts a relay to `server`. It serves one client: whoever sent to it last.
    ///
    /// # Errors
    /// When the configuration is out of range, or there can be no sockets or thread.
    pub fn start(config: &PathConfig, server: SocketAddr) -> anyhow::Result<Self> {
        let near = UdpPort::bind(server.is_ipv6(), Peer::Last(None)).context("relay, client")?;
        let far = UdpPort::bind(server.is_ipv6(), Peer::Only(server)).context("relay, server")?;
        let client_addr = near.socket.local_addr()?;
        Ok(Self {
            emulator: Emulator::start(config, UDP_FRAMING, near, far)?,
            client_addr,
        })
    }

    /// Where the client sends to.
    pub fn client_addr(&self) -> SocketAddr {
        self.client_addr
    }

    /// Ends the relay; datagrams still on the path are gone. Bytes are those of IPv4 packets: 28
    /// more than each datagram carries.
    ///
    /// # Errors
    /// When a socket had failed, which cut the path.
    pub fn stop(self) -> io::Result<PathStats> {
        self.emulator.stop()
    }
}

/// Socket buffers that hold what a burst brings before the thread gets to run.
const SOCKET_BUFFER: usize = 8 << 20;

/// Most bytes that one receive yields: the kernel merges datagrams up to an IP packet's size.
const RECEIVE_BUFFER: usize = 1 << 16;

/// Most batches that are received before what is due is sent.
const RECEIVE_BATCHES: usize = 4;

struct UdpPort {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: Peer,
    buffers: Vec<[u8; RECEIVE_BUFFER]>,
}

/// Whom a port talks to.
enum Peer {
    Only(SocketAddr),
    Last(Option<SocketAddr>),
}

impl UdpPort {
    fn bind(ipv6: bool, peer: Peer) -> io::Result<Self> {
        let loopback = match ipv6 {
            true => SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
            false => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        };
        let socket = UdpSocket::bind(loopback)?;
        enlarge_buffers(&socket)?;
        Ok(Self {
            state: offload_state(&socket)?,
            socket,
            peer,
            buffers: vec![[0; RECEIVE_BUFFER]; BATCH_SIZE],
        })
    }
}

/// Switches on what `quinn_udp` uses: receive offload, ECN.
fn offload_state(socket: &UdpSocket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    // quinn-udp 0.6 asks for receive timestamps without room for them: the kernel then leaves out
    // the ECN codepoint of merged datagrams.
    #[cfg(target_os = "linux")]
    nix::sys::socket::setsockopt(
        socket,
        nix::sys::socket::sockopt::ReceiveTimestampns,
        &false,
    )?;
    Ok(state)
}

fn enlarge_buffers(socket: &UdpSocket) -> io::Result<()> {
    // The administrator's limit does not bind a privileged process.
    #[cfg(target_os = "linux")]
    {
        use nix::sys::socket::{setsockopt, sockopt};
        let _ = setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BUFFER);
        let _ = setsockopt(socket, sockopt::SndBufForce, &SOCKET_BUFFER);
    }
    let socket = socket2::SockRef::from(socket);
    if socket.recv_buffer_size()? < SOCKET_BUFFER {
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
    }
    Ok(())
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for UdpPort {
    fn receive(&mut self, arrived: &mut dyn FnMut(Datagram)) -> io::Result<()> {
        for _ in 0..RECEIVE_BATCHES {
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut buffers = self.buffers.iter_mut().map(|b| IoSliceMut::new(b));
            let mut slices: [_; BATCH_SIZE] =
                std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            let socket = UdpSockRef::from(&self.socket);
            let received = match self.state.recv(socket, &mut slices, &mut metas) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            for (meta, buffer) in metas.iter().zip(&self.buffers).take(received) {
                match &mut self.peer {
                    Peer::Only(peer) if *peer != meta.addr => continue,
                    Peer::Only(_) => {}
                    Peer::Last(peer) => *peer = Some(meta.addr),
                }
                // The stride is zero when the datagram is empty, and so not worth carrying.
                for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    arrived(Datagram {
                        ecn: meta.ecn.map_or(Ecn::NotEct, |ecn| (ecn as u8).into()),
                        ..Datagram::new(datagram.to_vec())
                    });
                }
            }
            if received < BATCH_SIZE {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, packet: &Datagram) {
        let (Peer::Only(destination) | Peer::Last(Some(destination))) = self.peer else {
            return;
        };
        let transmit = Transmit {
            destination,
            ecn: EcnCodepoint::from_bits(packet.ecn as u8),
            contents: &packet.data,
            segment_size: None,
            src_ip: None,
        };
        // As on a real interface: what does not fit the buffer is gone.
        let _ = self
            .state
            .try_send(UdpSockRef::from(&self.socket), &transmit);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use dfcp_proto::Rate;

    use super::*;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        enlarge_buffers(&socket).unwrap();
        socket
    }

    fn path(mbit: u64, loss: f64) -> PathConfig {
        let rate = Rate::from_bps(mbit * 1_000_000);
        PathConfig {
            queue_packets: 10_000,
            ..PathConfig::new(rate, Duration::from_millis(10), loss, 1)
        }
    }

    #[test]
    fn datagrams_cross_both_ways_unchanged() {
        let (client, server) = (socket(), socket());
        let relay = Relay::start(&path(100, 0.0), server.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 2000];
        for size in [1, 1200, 1472] {
            let start = Instant::now();
            let sent = vec![size as u8; size];
            client.send_to(&sent, relay.client_addr()).unwrap();
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..len], sent);
            server.send_to(&sent, from).unwrap();
            let (len, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..len], sent);
            assert_eq!(from, relay.client_addr());
            assert!(start.elapsed() >= Duration::from_millis(10));
        }
        let stats = relay.stop().unwrap();
        assert_eq!(stats.forward.bytes_in, 1 + 1200 + 1472 + 3 * 28);
        assert_eq!(stats.backward.delivered, 3);
    }

    #[test]
    fn ecn_codepoints_cross() {
        let (client, server) = (socket(), socket());
        let relay = Relay::start(&path(100, 0.0), server.local_addr().unwrap()).unwrap();
        let state = offload_state(&client).unwrap();
        let transmit = Transmit {
            destination: relay.client_addr(),
            ecn: Some(EcnCodepoint::Ect0),
            contents: &[1; 3000],
            segment_size: Some(1000), // one batch in, datagrams out
            src_ip: None,
        };
        state
            .try_send(UdpSockRef::from(&client), &transmit)
            .unwrap();
        let state = offload_state(&server).unwrap();
        server.set_nonblocking(false).unwrap();
        let mut datagrams = 0;
        while datagrams < 3 {
            let mut buffer = [0; 1 << 16];
            let mut meta = [RecvMeta::default()];
            let mut slices = [IoSliceMut::new(&mut buffer)];
            state
                .recv(UdpSockRef::from(&server), &mut slices, &mut meta)
                .unwrap();
            assert_eq!(meta[0].stride, 1000);
            assert_eq!(meta[0].ecn, Some(EcnCodepoint::Ect0));
            datagrams += meta[0].len / meta[0].stride;
        }
    }

    #[test]
    fn the_stated_share_is_lost_both_ways() {
        let (client, server) = (socket(), socket());
        let relay = Relay::start(&path(1000, 0.2), server.local_addr().unwrap()).unwrap();
        let n = 2000;
        for _ in 0..n {
            client.send_to(&[0; 100], relay.client_addr()).unwrap();
        }
        // The server answers each datagram; what is lost on the way there has no answer.
        let mut buffer = [0; 200];
        let short = Some(Duration::from_millis(500));
        server.set_read_timeout(short).unwrap();
        client.set_read_timeout(short).unwrap();
        let mut reached = 0;
        while let Ok((len, from)) = server.recv_from(&mut buffer) {
            reached += 1;
            server.send_to(&buffer[..len], from).unwrap();
        }
        let answered = std::iter::from_fn(|| client.recv_from(&mut buffer).ok()).count();
        let stats = relay.stop().unwrap();
        assert_eq!(
            (stats.forward.delivered, stats.forward.packets_in),
            (reached, n)
        );
        assert_eq!(stats.forward.drops.loss + reached, n);
        assert_eq!(stats.backward.delivered, answered as u64);
        // Five standard deviations of the binomial distribution around 20 %.
        assert!((310..490).contains(&stats.forward.drops.loss), "{stats:?}");
        let back = stats.backward.drops.loss as f64 - 0.2 * reached as f64;
        assert!(back.abs() < 5.0 * (reached as f64 * 0.16).sqrt());
    }

    /// Prints how exact this machine's relay is: `cargo test --release -p dfcp-cli precision --
    /// --ignored --nocapture --test-threads 1`.
    #[test]
    #[ignore = "a measurement, for a quiet machine"]
    #[expect(clippy::disallowed_methods)] // packets are sent at a rate
    fn precision() {
        for mbit in [100, 500, 1000, 2000] {
            let (client, server) = (socket(), socket());
            let relay = Relay::start(&path(mbit, 0.0), server.local_addr().unwrap()).unwrap();
            let time = Duration::from_secs(3);
            let (start, size) = (Instant::now(), 1472);
            let packets = mbit * 1_000_000 * time.as_secs() / 12_000;
            let received = std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    let mut buffer = [0; 2000];
                    server
                        .set_read_timeout(Some(Duration::from_millis(300)))
                        .unwrap();
                    std::iter::from_fn(|| server.recv_from(&mut buffer).ok()).count()
                });
                for packet in 0..packets {
                    let due = time.mul_f64(packet as f64 / packets as f64);
                    if let Some(early) = due.checked_sub(start.elapsed()) {
                        std::thread::sleep(early + Duration::from_millis(1));
                    }
                    client.send_to(&vec![0; size], relay.client_addr()).unwrap();
                }
                receiver.join().unwrap()
            });
            let stats = relay.stop().unwrap();
            let late = |share| stats.lateness.quantile(share);
            println!(
                "{mbit} Mbit/s: {packets} sent, {} taken in, {received} received; \
                 late p50 {:?} p90 {:?} p99 {:?} p99.9 {:?} max {:?}",
                stats.forward.packets_in,
                late(0.5),
                late(0.9),
                late(0.99),
                late(0.999),
                stats.lateness.max()
            );
        }
    }
}
