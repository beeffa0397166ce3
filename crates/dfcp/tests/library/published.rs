//! DFCP as published over real sockets on loopback.

use crate::{bytes, within};
use dfcp::Rate;
use dfcp::published::rate::FixedRate;
use dfcp::published::{
    Carrier, Config, Endpoint, EndpointConfig, Error, PORT, Redundancy, Sending, State, Stream,
};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Paced, so that other tests get their share of the machine.
fn config() -> Config {
    Config {
        rate: Arc::new(|| Box::new(FixedRate::new(Rate::from_bps(300_000_000)))),
        redundancy: Redundancy {
            epsilon: 0.1,
            sending: Sending::Expected,
        },
        ..Config::default()
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

struct Pair {
    client: Endpoint,
    server: Endpoint,
    near: Stream,
    far: Stream,
}

/// A client and a server that have connected.
async fn pair(client: &str, server: &str, config: Config) -> Pair {
    let server = EndpointConfig::server(address(server), PORT, config.clone());
    let server = Endpoint::bind(server).expect("binds");
    let client = EndpointConfig::client(address(client), config);
    let client = Endpoint::bind(client).expect("binds");
    let (near, far) = tokio::join!(client.connect(server.local_addr(), PORT), server.accept());
    Pair {
        client,
        server,
        near: near.expect("connects"),
        far: far.expect("accepts"),
    }
}

async fn local_pair() -> Pair {
    pair("127.0.0.1:0", "127.0.0.1:0", config()).await
}

/// Sends `data` there and back.
async fn echo(pair: Pair, data: &[u8]) {
    let (mut far_read, mut far_write) = tokio::io::split(pair.far);
    let answer = async {
        tokio::io::copy(&mut far_read, &mut far_write)
            .await
            .expect("echoes");
        far_write.shutdown().await.expect("ends");
    };
    let (mut read, mut write) = tokio::io::split(pair.near);
    let ask = async {
        write.write_all(data).await.expect("writes");
        write.shutdown().await.expect("is acknowledged");
    };
    let mut back = Vec::new();
    let (read, (), ()) = tokio::join!(read.read_to_end(&mut back), ask, answer);
    read.expect("reads to the end");
    assert!(back == data, "bytes differ");
}

#[tokio::test]
async fn a_stream_carries_both_directions_on_both_families() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        // No whole number of blocks.
        within(async { echo(pair(bind, bind, config()).await, &bytes(1_000_001)).await }).await;
    }
}

/// Needs the privilege for raw sockets; without it, what a user sees is tested instead.
#[tokio::test]
async fn a_stream_runs_over_ip() {
    within(async {
        let mut config = config();
        config.carrier = Carrier::Ip;
        let bind = address("127.0.0.71:0");
        let privileged = Endpoint::bind(EndpointConfig::client(bind, config.clone())).map(drop);
        match privileged {
            Ok(()) => {
                // Its socket closes with its driver, and would get what the others send.
                tokio::task::yield_now().await;
                echo(
                    pair("127.0.0.71:0", "127.0.0.72:0", config).await,
                    &bytes(500_000),
                )
                .await;
            }
            Err(error) => {
                eprintln!("SKIPPED, no raw sockets here: {error}");
                assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn over_ip_an_address_is_needed() {
    let mut config = config();
    config.carrier = Carrier::Ip;
    let bind = Endpoint::bind(EndpointConfig::client(address("0.0.0.0:0"), config));
    assert!(bind.is_err_and(|error| error.to_string().contains("address")));
}

#[tokio::test]
async fn beyond_this_machine_it_wants_the_word_that_the_network_is_ones_own() {
    let refused = |result| matches!(result, Err(dfcp::Error::NotOwnNetwork(_)));
    for beyond in ["0.0.0.0:0", "[::]:0"] {
        let server = EndpointConfig::server(address(beyond), PORT, config());
        assert!(
            refused(Endpoint::bind(server.clone()).map(drop)),
            "{beyond}"
        );
        Endpoint::bind(server.own_network(true)).expect("binds");
    }
    // Nothing leaves; with the word something does, and nobody is there.
    let remote = address("192.0.2.1:9");
    let client = EndpointConfig::client(address("0.0.0.0:0"), config());
    let endpoint = Endpoint::bind(client.clone()).expect("binds");
    let connected = within(endpoint.connect(remote, PORT)).await;
    assert!(refused(connected.map(drop)));
    assert_eq!(endpoint.traffic().packets_sent, 0);
    let mapped = address("[::ffff:192.0.2.1]:9");
    let connected = within(endpoint.connect(mapped, PORT)).await;
    assert!(refused(connected.map(drop)));
}

#[tokio::test]
async fn what_is_flushed_arrives_though_it_fills_no_block() {
    within(async {
        let mut pair = local_pair().await;
        for question in [&b"one"[..], b"two"] {
            pair.near.write_all(question).await.expect("writes");
            pair.near.flush().await.expect("flushes");
            let mut heard = vec![0; 3];
            pair.far.read_exact(&mut heard).await.expect("reads");
            assert_eq!(heard, question);
        }
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_the_writer_back() {
    within(async {
        let mut config = config();
        config.receive_budget = 2 << 20;
        config.send_buffer = 2 << 20;
        let mut pair = pair("127.0.0.1:0", "127.0.0.1:0", config).await;
        let chunk = bytes(1 << 16);
        let mut written = 0;
        let short = Duration::from_millis(500);
        while let Ok(n) = tokio::time::timeout(short, pair.near.write(&chunk)).await {
            written += n.expect("writes");
            assert!(written < 16 << 20, "no back-pressure");
        }
        let reader = async {
            let mut all = Vec::new();
            pair.far.read_to_end(&mut all).await.expect("reads");
            all.len()
        };
        let writer = async {
            pair.near.write_all(&chunk).await.expect("goes on");
            pair.near.shutdown().await.expect("is acknowledged");
        };
        let (read, ()) = tokio::join!(reader, writer);
        assert_eq!(read, written + chunk.len());
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_read_or_write_loses_nothing() {
    within(async {
        let Pair {
            mut near,
            mut far,
            client: _client,
            server: _server,
        } = local_pair().await;
        let data = bytes(1_000_000);
        let expected = data.clone();
        let writer = tokio::spawn(async move {
            let mut rest = &data[..];
            while !rest.is_empty() {
                tokio::select! {
                    biased;
                    n = near.write(rest) => rest = &rest[n.expect("writes")..],
                    () = tokio::task::yield_now() => {}
                }
            }
            while tokio::time::timeout(Duration::from_millis(1), near.shutdown())
                .await
                .is_err()
            {}
        });
        let (mut got, mut buffer) = (Vec::new(), vec![0; 10_000]);
        loop {
            tokio::select! {
                biased;
                n = far.read(&mut buffer) => match n.expect("reads") {
                    0 => break,
                    n => got.extend_from_slice(&buffer[..n]),
                },
                () = tokio::task::yield_now() => {}
            }
        }
        assert!(got == expected, "bytes differ");
        writer.await.expect("writer");
    })
    .await;
}

#[tokio::test]
async fn both_sides_close_and_an_endpoint_is_idle_then() {
    within(async {
        let mut pair = local_pair().await;
        pair.near.write_all(b"last words").await.expect("writes");
        pair.near.shutdown().await.expect("is acknowledged");
        let mut heard = Vec::new();
        pair.far.read_to_end(&mut heard).await.expect("reads");
        assert_eq!(heard, b"last words");
        // Half-closed: the other direction still works.
        pair.far.write_all(b"goodbye").await.expect("writes");
        pair.far.shutdown().await.expect("is acknowledged");
        heard.clear();
        pair.near.read_to_end(&mut heard).await.expect("reads");
        assert_eq!(heard, b"goodbye");
        pair.near.closed().await.expect("in order");
        pair.far.closed().await.expect("in order");
        let monitor = pair.near.monitor();
        assert_eq!(monitor.state(), Some(State::TimeWait));
        assert!(monitor.stats().is_some_and(|stats| stats.blocks_acked == 1));
        drop((pair.near, pair.far));
        pair.server.wait_idle().await;
        pair.client.wait_idle().await;
    })
    .await;
}

fn published(error: std::io::Error) -> Option<Error> {
    match error.downcast::<dfcp::Error>() {
        Ok(dfcp::Error::Published(error)) => Some(error),
        _ => None,
    }
}

#[tokio::test]
async fn a_dropped_or_aborted_stream_resets_the_connection() {
    for abort in [true, false] {
        within(async {
            let mut pair = local_pair().await;
            match abort {
                true => pair.near.abort(),
                false => drop(pair.near),
            }
            let error = pair.far.read(&mut [0; 10]).await.expect_err("is reset");
            assert_eq!(published(error), Some(Error::Reset));
            drop(pair.far);
            pair.client.wait_idle().await;
            pair.server.wait_idle().await;
        })
        .await;
    }
}

#[tokio::test]
async fn data_that_nobody_will_read_reset_the_connection() {
    within(async {
        let mut pair = local_pair().await;
        pair.near.shutdown().await.expect("is acknowledged");
        drop(pair.near);
        // The other side goes on, as it may; it must learn that nobody listens.
        let chunk = bytes(1 << 16);
        let error = loop {
            if let Err(error) = pair.far.write_all(&chunk).await {
                break error;
            }
        };
        assert_eq!(published(error), Some(Error::Reset));
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_dies_is_given_up() {
    within(async {
        let mut config = config();
        config.idle_timeout = Duration::from_secs(2);
        let client = EndpointConfig::client(address("127.0.0.1:0"), config.clone());
        let client = Endpoint::bind(client).expect("binds");
        // Dies without a word: its runtime is gone with its socket.
        let peer = {
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    let server = EndpointConfig::server(address("127.0.0.1:0"), PORT, config);
                    let server = Endpoint::bind(server).expect("binds");
                    tell.send(server.local_addr()).expect("is waited for");
                    let stream = server.accept().await;
                    std::mem::forget((stream, server));
                });
            });
            told.recv().expect("the other thread")
        };
        let mut stream = client.connect(peer, PORT).await.expect("connects");
        let error = stream.read(&mut [0; 10]).await.expect_err("is given up");
        assert_eq!(published(error), Some(Error::TimedOut));
    })
    .await;
}

#[tokio::test]
async fn garbage_and_replays_on_the_port_disturb_nobody() {
    within(async {
        let mut pair = local_pair().await;
        let noise = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let server = pair.server.local_addr();
        for i in 0..500usize {
            let mut datagram = bytes(i * 3 + 1);
            datagram
                .iter_mut()
                .for_each(|b| *b = b.wrapping_add(i as u8));
            // Some look like headers.
            if i % 2 == 0 && datagram.len() > 24 {
                datagram[20] = 0x60;
                datagram[21] = (i / 2) as u8;
            }
            let _ = noise.send_to(&datagram[..datagram.len().min(1400)], server);
        }
        pair.near.write_all(b"still here").await.expect("writes");
        pair.near.shutdown().await.expect("is acknowledged");
        let mut heard = Vec::new();
        pair.far.read_to_end(&mut heard).await.expect("reads");
        assert_eq!(heard, b"still here");
        let stats = pair.server.stats();
        assert!(stats.malformed + stats.bad_checksum > 0, "{stats:?}");
    })
    .await;
}

#[tokio::test]
async fn nobody_listens_at_that_port() {
    within(async {
        let pair = local_pair().await;
        let error = pair
            .client
            .connect(pair.server.local_addr(), PORT + 1)
            .await
            .expect_err("nobody is there");
        assert!(
            matches!(error, dfcp::Error::Published(Error::Reset)),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_is_given_up_while_it_opens_leaves_nothing() {
    within(async {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let client = EndpointConfig::client(address("127.0.0.1:0"), config());
        let client = Endpoint::bind(client).expect("binds");
        let connect = client.connect(silent.local_addr().expect("bound"), PORT);
        let short = Duration::from_millis(50);
        assert!(tokio::time::timeout(short, connect).await.is_err());
        client.wait_idle().await;
    })
    .await;
}

#[tokio::test]
async fn many_connections_share_one_server() {
    within(async {
        let server = EndpointConfig::server(address("127.0.0.1:0"), PORT, config());
        let server = Endpoint::bind(server).expect("binds");
        let to = server.local_addr();
        let clients: Vec<_> = (0..8u8)
            .map(|i| {
                tokio::spawn(async move {
                    let client = EndpointConfig::client(address("127.0.0.1:0"), config());
                    let client = Endpoint::bind(client).expect("binds");
                    let mut stream = client.connect(to, PORT).await.expect("connects");
                    stream.write_all(&[i; 100_000]).await.expect("writes");
                    stream.shutdown().await.expect("is acknowledged");
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).await.expect("reads");
                    assert_eq!(back, [i; 10]);
                })
            })
            .collect();
        for _ in 0..clients.len() {
            let mut stream = server.accept().await.expect("accepts");
            tokio::spawn(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.expect("reads");
                assert_eq!(all.len(), 100_000);
                stream.write_all(&all[..10]).await.expect("writes");
                stream.shutdown().await.expect("is acknowledged");
            });
        }
        for client in clients {
            client.await.expect("client");
        }
    })
    .await;
}

/// Who waits for data need not fear the idle timeout, unless it is told to.
#[tokio::test]
async fn idle_connections_live_unless_keep_alive_is_off() {
    within(async {
        let idle = Duration::from_secs(2);
        for keep in [true, false] {
            let config = Config {
                idle_timeout: idle,
                ..config()
            };
            let quiet = |config: EndpointConfig| match keep {
                true => config,
                false => config.keep_alive(None),
            };
            let server = EndpointConfig::server(address("127.0.0.1:0"), PORT, config.clone());
            let server = Endpoint::bind(quiet(server)).expect("binds");
            let client = EndpointConfig::client(address("127.0.0.1:0"), config);
            let client = Endpoint::bind(quiet(client)).expect("binds");
            let connect = client.connect(server.local_addr(), PORT);
            let (near, far) = tokio::join!(connect, server.accept());
            let (near, _far) = (near.expect("connects"), far.expect("accepts"));
            match tokio::time::timeout(2 * idle, near.closed()).await {
                Err(_) => assert!(keep, "nothing kept it"),
                // The first side to give up resets the other.
                Ok(why) => assert!(!keep && why.is_err(), "{why:?}"),
            }
        }
    })
    .await;
}

/// Two servers and two clients on one address, of which each socket gets everything. Needs the
/// privilege for raw sockets.
#[tokio::test]
async fn over_ip_endpoints_share_an_address() {
    within(async {
        let mut config = config();
        config.carrier = Carrier::Ip;
        let shared = address("127.0.0.1:0");
        let serve = |port| Endpoint::bind(EndpointConfig::server(shared, port, config.clone()));
        let call = || Endpoint::bind(EndpointConfig::client(shared, config.clone()));
        let first = match serve(7001) {
            Ok(server) => server,
            Err(error) => {
                assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
                return eprintln!("SKIPPED, no raw sockets here: {error}");
            }
        };
        if cfg!(target_os = "linux") {
            let taken = serve(7001).expect_err("somebody listens there");
            let dfcp::Error::Io(error) = taken else {
                panic!("{taken}")
            };
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
        let servers = [first, serve(7002).expect("binds")];
        let clients = [(); 2].map(|()| call().expect("binds"));
        let connect = async |at: usize| {
            let connect = clients[at].connect(shared, 7001 + at as u16);
            let (near, far) = tokio::join!(connect, servers[at].accept());
            (near.expect("connects"), far.expect("accepts"))
        };
        let mut pairs = [connect(0).await, connect(1).await];
        // Both at once, so that each would be reset by the other's packets.
        let data = bytes(300_000);
        let [(near, far), (other_near, other_far)] = &mut pairs;
        let pass = async |from: &mut Stream, to: &mut Stream| {
            let mut got = vec![0; data.len()];
            let write = async {
                from.write_all(&data).await.expect("writes");
                from.flush().await.expect("flushes");
            };
            let (read, ()) = tokio::join!(to.read_exact(&mut got), write);
            read.expect("reads");
            assert!(got == data, "bytes differ");
        };
        tokio::join!(pass(near, far), pass(other_far, other_near));
        for endpoint in servers.iter().chain(&clients) {
            let stats = endpoint.stats();
            assert!(stats.resets_sent == 0 && stats.unknown > 0, "{stats:?}");
        }
    })
    .await;
}
