//! A path as a UDP relay on loopback: what a client sends to [`Relay::client_addr`] reaches the
//! server over the forward route of the network's only flow, and the server's answers reach the
//! client over the route back.
//!
//! Datagrams keep their size and their ECN codepoint, and go out one by one: a batch would undo
//! the spacing that the links gave them.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use dfcp_proto::Duration;
use dfcp_sim::engine::{Direction, ExternalPacket, Simulation};
use dfcp_sim::{Ecn, FlowId};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::clock::Clock;
use super::emulator::{Emulator, EmulatorConfig, PathStats};
use super::port::{Arrived, Port, PortStats};

/// Bytes of an IPv4 and a UDP header: what the relay adds to count IP packets.
pub const UDP_HEADERS: u32 = 28;

/// A running relay; it ends when dropped.
pub struct Relay {
    emulator: Emulator,
    client_addr: SocketAddr,
}

impl Relay {
    /// Starts a relay to `server` over the network's first flow, whose hosts are outside. It serves
    /// one client: whoever sent to it last.
    ///
    /// # Errors
    /// When there can be no sockets or thread.
    pub fn start(network: Simulation, server: SocketAddr) -> io::Result<Self> {
        let near = UdpPort::bind(server.is_ipv6(), Peer::Last(None))?;
        let far = UdpPort::bind(server.is_ipv6(), Peer::Only(server))?;
        let client_addr = near.socket.local_addr()?;
        let config = EmulatorConfig {
            network,
            clock: Clock::start(),
            ports: vec![Box::new(near), Box::new(far)],
            ends: vec![[0, 1]],
            spin: Duration::ZERO,
        };
        Ok(Self {
            emulator: Emulator::start(config)?,
            client_addr,
        })
    }

    /// Where the client sends to.
    pub fn client_addr(&self) -> SocketAddr {
        self.client_addr
    }

    /// Ends the relay and shows the network as it stood; datagrams still on it are gone. Bytes are
    /// those of IPv4 packets: 28 more than each datagram carries.
    ///
    /// # Errors
    /// When a socket had failed, which cut the path.
    pub fn stop<T>(self, look: impl FnOnce(&Simulation) -> T) -> io::Result<(PathStats, T)> {
        self.emulator.stop(look)
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
    stats: PortStats,
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
            stats: PortStats::default(),
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
    fn receive(&mut self, clock: &Clock, arrived: &mut dyn FnMut(Arrived<'_>)) -> io::Result<()> {
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
            let at = clock.now();
            for (meta, buffer) in metas.iter().zip(&self.buffers).take(received) {
                let direction = match &mut self.peer {
                    Peer::Only(peer) if *peer != meta.addr => {
                        self.stats.strange += 1;
                        continue;
                    }
                    Peer::Only(_) => Direction::Backward,
                    Peer::Last(peer) => {
                        *peer = Some(meta.addr);
                        Direction::Forward
                    }
                };
                // The stride is zero when the datagram is empty, and so not worth carrying.
                for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    self.stats.received += 1;
                    arrived(Arrived {
                        at,
                        flow: FlowId(0),
                        direction,
                        size: datagram.len() as u32 + UDP_HEADERS,
                        ecn: meta.ecn.map_or(Ecn::NotEct, |ecn| (ecn as u8).into()),
                        tag: 0,
                        bytes: datagram,
                    });
                }
            }
            if received < BATCH_SIZE {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, packets: &mut [ExternalPacket]) {
        let (Peer::Only(destination) | Peer::Last(Some(destination))) = self.peer else {
            return;
        };
        for packet in packets {
            let transmit = Transmit {
                destination,
                ecn: EcnCodepoint::from_bits(packet.ecn as u8),
                contents: &packet.bytes,
                segment_size: None,
                src_ip: None,
            };
            let socket = UdpSockRef::from(&self.socket);
            // As on a real interface: what does not fit the buffer is gone.
            match self.state.try_send(socket, &transmit) {
                Ok(()) => self.stats.sent += 1,
                Err(_) => self.stats.refused += 1,
            }
        }
    }

    fn stats(&self) -> PortStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use dfcp_proto::Rate;
    use dfcp_sim::engine::{FlowConfig, LinkId, Network, Traffic};
    use dfcp_sim::{Limit, LinkConfig, LinkStats};

    use super::*;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        enlarge_buffers(&socket).unwrap();
        socket
    }

    fn path(mbit: u64, loss: f64) -> Simulation {
        let config = LinkConfig {
            rate: Rate::from_bps(mbit * 1_000_000).into(),
            delay: Duration::from_millis(5),
            queue: Limit::Packets(10_000).into(),
            framing: 0,
            loss: loss.into(),
            ..LinkConfig::default()
        };
        let mut network = Network::new(1);
        let forward = vec![network.add_link("forward", config.clone())];
        let backward = vec![network.add_link("backward", config)];
        network.add_flow(FlowConfig {
            name: "flow".into(),
            class: 0,
            forward,
            backward,
            start: dfcp_proto::Instant::ZERO,
            stop: None,
            size: None,
            traffic: Traffic::External,
        });
        network.build().unwrap()
    }

    /// What the two links counted.
    fn links(relay: Relay) -> [LinkStats; 2] {
        let look = |network: &Simulation| [0, 1].map(|id| network.link(LinkId(id)).stats().clone());
        relay.stop(look).unwrap().1
    }

    #[test]
    fn datagrams_cross_both_ways_unchanged() {
        let (client, server) = (socket(), socket());
        let relay = Relay::start(path(100, 0.0), server.local_addr().unwrap()).unwrap();
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
        let [forward, backward] = links(relay);
        assert_eq!(forward.bytes_in, 1 + 1200 + 1472 + 3 * 28);
        assert_eq!(backward.delivered, 3);
    }

    #[test]
    fn ecn_codepoints_cross() {
        let (client, server) = (socket(), socket());
        let relay = Relay::start(path(100, 0.0), server.local_addr().unwrap()).unwrap();
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
        let relay = Relay::start(path(1000, 0.2), server.local_addr().unwrap()).unwrap();
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
        let [forward, backward] = links(relay);
        assert_eq!((forward.delivered, forward.packets_in), (reached, n));
        assert_eq!(forward.drops.loss + reached, n);
        assert_eq!(backward.delivered, answered as u64);
        // Five standard deviations of the binomial distribution around 20 %.
        assert!((310..490).contains(&forward.drops.loss), "{forward:?}");
        let back = backward.drops.loss as f64 - 0.2 * reached as f64;
        assert!(back.abs() < 5.0 * (reached as f64 * 0.16).sqrt());
    }
}
