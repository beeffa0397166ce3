//! Datagrams of programs, through a client and a server, to hosts on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Plan, World, bytes, loopback, rules, within};
use dfcp_proxy::{Limits, Quota, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Within which what must not arrive would, on loopback; what does arrive is waited for longer.
const SILENCE: Duration = Duration::from_millis(200);

/// A host that says back what it hears, and tells whom it hears.
async fn echo() -> SocketAddr {
    let socket = UdpSocket::bind(loopback()).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..len], from).await;
        }
    });
    address
}

fn host(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(address) = address else {
        panic!("IPv4")
    };
    let mut out = vec![1];
    out.extend(address.ip().octets());
    out.extend(address.port().to_be_bytes());
    out
}

/// A program that may send datagrams.
struct Program {
    /// Its association lasts as long.
    tcp: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Program {
    async fn new(world: &World) -> Self {
        let asked = Self::ask_for_one(world).await;
        asked.unwrap_or_else(|reply| panic!("refused: {reply}"))
    }

    /// The error is the reply.
    async fn ask_for_one(world: &World) -> Result<Self, u8> {
        let mut tcp = world.greeted().await;
        tcp.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        let mut reply = [0; 10];
        within(tcp.read_exact(&mut reply)).await.unwrap();
        if reply[1] != 0 {
            return Err(reply[1]);
        }
        assert_eq!(reply[..4], [5, 0, 0, 1]);
        let ip: [u8; 4] = reply[4..8].try_into().unwrap();
        let relay = SocketAddr::from((ip, u16::from_be_bytes([reply[8], reply[9]])));
        let socket = UdpSocket::bind(loopback()).await.unwrap();
        Ok(Self { tcp, socket, relay })
    }

    async fn send(&self, to: &[u8], payload: &[u8]) {
        let datagram = [&[0, 0, 0], to, payload].concat();
        self.socket.send_to(&datagram, self.relay).await.unwrap();
    }

    /// The next datagram, with whom it is from, if there is one before long.
    async fn hear(&self, patience: Duration) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65536];
        let (len, from) = timeout(patience, self.socket.recv_from(&mut buffer))
            .await
            .ok()?
            .unwrap();
        assert_eq!(from, self.relay);
        assert_eq!(buffer[..3], [0, 0, 0]);
        Some(buffer[3..len].to_vec())
    }

    /// Asks until there is an answer: datagrams may be lost.
    async fn ask(&self, to: &[u8], payload: &[u8]) -> Vec<u8> {
        let asking = async {
            loop {
                self.send(to, payload).await;
                if let Some(answer) = self.hear(SILENCE).await {
                    return answer;
                }
            }
        };
        within(asking).await
    }
}

#[tokio::test]
async fn datagrams_of_every_size_come_back_as_they_were() {
    let world = World::new().await;
    let (program, echo) = (Program::new(&world).await, echo().await);
    // Within a packet, at its edge, and as long as UDP can have them with SOCKS5's header.
    for len in [0, 1, 512, 1200, 1400, 1452, 9000, 65_497] {
        let payload = bytes(len as u64, len);
        let answer = program.ask(&host(echo), &payload).await;
        assert!(answer == [host(echo), payload].concat(), "{len} bytes");
    }
}

#[tokio::test]
async fn names_are_resolved_by_the_server() {
    let world = World::new().await;
    let (program, echo) = (Program::new(&world).await, echo().await);
    let mut name = vec![3, 9];
    name.extend(b"localhost");
    name.extend(echo.port().to_be_bytes());
    assert_eq!(
        program.ask(&name, b"hello").await,
        [host(echo), b"hello".to_vec()].concat()
    );

    let mut nobody = vec![3, 12];
    nobody.extend(b"host.invalid\0\x35");
    program.send(&nobody, b"hello").await;
    world.there.find("no address of host.invalid").await;
}

#[tokio::test]
async fn what_rules_forbid_is_not_reached() {
    let world = World::with(Plan {
        rules: rules(&["internet"]),
        ..Plan::default()
    })
    .await;
    let host_socket = UdpSocket::bind(loopback()).await.unwrap();
    let program = Program::new(&world).await;
    program
        .send(&host(host_socket.local_addr().unwrap()), b"hello")
        .await;
    let refused = |host: &str| format!("the server's rules do not allow {host}");
    let at = host_socket.local_addr().unwrap();
    world.there.find(&refused(&at.to_string())).await;
    // Each host is told of, and once.
    let other: SocketAddr = "127.0.0.9:53".parse().unwrap();
    for _ in 0..3 {
        program.send(&host(other), b"hello").await;
    }
    world.there.find(&refused("127.0.0.9:53")).await;
    let heard = timeout(SILENCE, host_socket.recv_from(&mut [0; 16])).await;
    assert!(heard.is_err(), "{heard:?}");
}

#[tokio::test]
async fn only_hosts_that_were_spoken_to_are_heard() {
    let world = World::new().await;
    let program = Program::new(&world).await;
    let friend = UdpSocket::bind(loopback()).await.unwrap();
    let stranger = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    program
        .send(&host(friend.local_addr().unwrap()), b"hello")
        .await;
    let mut buffer = [0; 16];
    let (_, server) = within(friend.recv_from(&mut buffer)).await.unwrap();
    stranger.send_to(b"surprise", server).await.unwrap();
    friend.send_to(b"hello too", server).await.unwrap();
    let heard = program.hear(Duration::from_secs(60)).await.unwrap();
    assert!(heard.ends_with(b"hello too"), "{heard:?}");
    assert_eq!(program.hear(SILENCE).await, None);
}

#[tokio::test]
async fn what_is_no_datagram_of_the_program_is_not_carried() {
    let world = World::new().await;
    let (program, echo) = (Program::new(&world).await, echo().await);
    program.ask(&host(echo), b"first").await;
    while program.hear(SILENCE).await.is_some() {}
    let whole = [&[0, 0, 0][..], &host(echo), b"x"].concat();
    // Fragments, cut off, of another kind; and whole, but of somebody else on the same machine.
    let fragment = [&[0, 0, 1][..], &host(echo), b"x"].concat();
    for bad in [
        &fragment[..],
        &whole[..7],
        &[0, 0, 0, 2, 9, 9],
        &[],
        &[0; 3],
    ] {
        program.socket.send_to(bad, program.relay).await.unwrap();
    }
    let other = UdpSocket::bind(loopback()).await.unwrap();
    other.send_to(&whole, program.relay).await.unwrap();
    assert_eq!(program.hear(SILENCE).await, None);
    let heard = timeout(SILENCE, other.recv_from(&mut [0; 16])).await;
    assert!(heard.is_err(), "{heard:?}");
    assert!(program.ask(&host(echo), b"last").await.ends_with(b"last"));
}

#[tokio::test]
async fn a_program_is_told_that_it_may_not_send_and_may_once_another_has_ended() {
    let limits = Limits::default();
    for (limits, words) in [
        (
            Limits {
                streams: 1,
                ..limits
            },
            "this key has 1 streams already",
        ),
        (
            Limits {
                associations: 1,
                ..limits
            },
            "this key has 1 associations already",
        ),
    ] {
        let world = World::with(Plan {
            limits,
            ..Plan::default()
        })
        .await;
        let (first, echo) = (Program::new(&world).await, echo().await);
        first.ask(&host(echo), b"one").await;
        // General failure (RFC 1928 §6).
        assert_eq!(Program::ask_for_one(&world).await.err(), Some(1));
        world.events.find(words).await;
        world.there.find(words).await;
        drop(first.tcp);
        let second = async {
            loop {
                if let Ok(program) = Program::ask_for_one(&world).await {
                    return program;
                }
            }
        };
        let second = within(second).await;
        assert!(second.ask(&host(echo), b"two").await.ends_with(b"two"));
    }
}

#[tokio::test]
async fn datagrams_of_strangers_cost_a_key_nothing() {
    let quota = Some(Quota {
        bytes: 50_000,
        period: Duration::from_secs(3600),
    });
    let limits = Limits {
        quota,
        ..Limits::default()
    };
    let world = World::with(Plan {
        limits,
        ..Plan::default()
    })
    .await;
    let program = Program::new(&world).await;
    let friend = UdpSocket::bind(loopback()).await.unwrap();
    let stranger = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let at = host(friend.local_addr().unwrap());
    program.send(&at, b"hello").await;
    let mut buffer = vec![0; 2000];
    let (_, server) = within(friend.recv_from(&mut buffer)).await.unwrap();
    for _ in 0..100 {
        stranger.send_to(&[0; 1000], server).await.unwrap();
    }
    friend.send_to(b"hello too", server).await.unwrap();
    assert!(program.hear(Duration::from_secs(60)).await.is_some());
    // Those of the program do: the host hears no more of them in the end.
    let exhausted = async {
        loop {
            program.send(&at, &[0; 1000]).await;
            if let Err(_silence) = timeout(SILENCE, friend.recv_from(&mut buffer)).await {
                break;
            }
        }
    };
    within(exhausted).await;
    world.there.find("is refused: this key has carried").await;
}

#[tokio::test]
async fn an_association_goes_on_after_the_server_was_restarted() {
    let mut world = World::new().await;
    let (program, echo) = (Program::new(&world).await, echo().await);
    program.ask(&host(echo), b"before").await;
    while program.hear(SILENCE).await.is_some() {}
    world.restart_server().await;
    assert!(program.ask(&host(echo), b"after").await.ends_with(b"after"));
}

#[tokio::test]
async fn a_forwarded_port_answers_each_source_by_itself() {
    let world = World::new().await;
    let port = UdpSocket::bind(loopback()).await.unwrap();
    let at = port.local_addr().unwrap();
    let (client, target) = (world.client.clone(), Target::from(echo().await));
    tokio::spawn(async move { client.forward_udp(port, target).await });
    let mut programs = Vec::new();
    for n in 0..20 {
        let program = UdpSocket::bind(loopback()).await.unwrap();
        program.connect(at).await.unwrap();
        let asking = async {
            let mut buffer = vec![0; 4096];
            loop {
                program.send(&bytes(n, 2000)).await.unwrap();
                if let Ok(heard) = timeout(SILENCE, program.recv(&mut buffer)).await {
                    buffer.truncate(heard.unwrap());
                    return buffer;
                }
            }
        };
        assert!(within(asking).await == bytes(n, 2000), "source {n}");
        programs.push(program);
    }
}
