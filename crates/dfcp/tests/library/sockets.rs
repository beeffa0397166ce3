//! The library over real sockets on loopback.

use crate::{bytes, within};
use dfcp::{
    CloseCode, Connection, ConnectionError, Endpoint, EndpointConfig, Error, Piece, Profile,
    Progress, Reliability, SchemeId, TransportConfig, generate_key,
};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn config(bind: &str) -> EndpointConfig {
    let bind: SocketAddr = bind.parse().expect("an address");
    EndpointConfig::server(generate_key().expect("a key"), bind)
}

async fn pair_with(
    bind: &str,
    transport: TransportConfig,
) -> (Endpoint, Connection, Endpoint, Connection) {
    let server = Endpoint::bind(config(bind).transport(transport.clone())).expect("binds");
    let client = Endpoint::bind(
        EndpointConfig::client(generate_key().expect("a key"))
            .bind(SocketAddr::new(server.local_addr().ip(), 0))
            .transport(transport),
    )
    .expect("binds");
    let connect = client.connect(server.local_addr(), Some(server.public_key()));
    let (connected, accepted) = tokio::join!(connect, server.accept());
    (
        client,
        connected.expect("connects"),
        server,
        accepted.expect("accepts").accept(),
    )
}

async fn pair() -> (Endpoint, Connection, Endpoint, Connection) {
    pair_with("127.0.0.1:0", TransportConfig::default()).await
}

#[tokio::test]
async fn streams_carry_both_directions_at_once_on_both_families() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        within(async {
            let (_client, a, _server, b) = pair_with(bind, TransportConfig::default()).await;
            let data = bytes(3_000_000);
            let (mut send, mut recv) = a.open_bi().await.expect("opens");
            let ours = data.clone();
            let writer = tokio::spawn(async move {
                send.write_all(&ours).await.expect("writes");
                send.shutdown().await.expect("is acknowledged");
            });
            let (mut echo_send, mut echo_recv) = b.accept_bi().await.expect("accepts");
            let echo = tokio::spawn(async move {
                tokio::io::copy(&mut echo_recv, &mut echo_send)
                    .await
                    .expect("echoes");
                echo_send.shutdown().await.expect("ends");
            });
            let mut back = Vec::new();
            recv.read_to_end(&mut back).await.expect("reads to the end");
            assert!(back == data, "{bind}: bytes differ");
            writer.await.expect("writer");
            echo.await.expect("echo");
        })
        .await;
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_the_writer_back() {
    within(async {
        let transport = TransportConfig::default()
            .receive_budget(2 << 20)
            .send_buffer(2 << 20);
        let (_client, a, _server, b) = pair_with("127.0.0.1:0", transport).await;
        let (mut send, _recv) = a.open_bi().await.expect("opens");
        let chunk = bytes(1 << 16);
        let mut written = 0usize;
        // Nothing is read: the writer must come to a stop.
        while let Ok(n) = tokio::time::timeout(Duration::from_millis(500), send.write(&chunk)).await
        {
            written += n.expect("writes");
            assert!(written < 16 << 20, "no back-pressure");
        }
        let (_echo, mut recv) = b.accept_bi().await.expect("accepts");
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            recv.read_to_end(&mut all).await.expect("reads");
            all.len()
        });
        send.write_all(&chunk)
            .await
            .expect("goes on once somebody reads");
        send.shutdown().await.expect("is acknowledged");
        assert_eq!(reader.await.expect("reader"), written + chunk.len());
    })
    .await;
}

#[tokio::test]
async fn readers_see_what_was_given_up() {
    within(async {
        // Too old as soon as it is written: all of it is given up, whatever the machine does.
        let stale = Reliability::Deadline(Duration::ZERO);
        let transport = TransportConfig::default().reliability(stale);
        let (_client, a, _server, b) = pair_with("127.0.0.1:0", transport).await;
        let writer = tokio::spawn(async move {
            let mut given_up = Vec::new();
            for _ in 0..2 {
                let (mut send, _) = a.open_bi().await.expect("opens");
                send.write_all(&bytes(50_000)).await.expect("writes");
                send.finish().expect("ends");
                given_up.push(send.delivered().await.expect("is accounted for"));
            }
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&bytes(70_000)).expect("writes");
            std::io::Seek::rewind(&mut file).expect("rewinds");
            let sent = a.send_object(file, 70_000, &Progress::default()).await;
            (given_up, sent)
        });
        let mut buffer = [0; 1000];
        let (_send, mut recv) = b.accept_bi().await.expect("accepts");
        let mut missing = 0;
        loop {
            match recv.read_piece(&mut buffer).await.expect("reads") {
                Piece::Gap(bytes) => missing += bytes,
                Piece::End => break,
                Piece::Data(n) => panic!("{n} bytes of the past"),
            }
        }
        assert_eq!(missing, 50_000);
        // A reader that does not expect gaps gets an error, never spliced bytes.
        let (_send, mut recv) = b.accept_bi().await.expect("accepts");
        let error = recv.read_to_end(&mut Vec::new()).await.expect_err("a gap");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        while recv.read(&mut buffer).await.is_err() {}
        let mut object = b.accept_object().await.expect("accepts");
        let into = tempfile::tempfile().expect("a file");
        let received = object
            .recv_object(into, u64::MAX, &Progress::default())
            .await;
        assert!(
            matches!(received, Err(Error::Incomplete(70_000))),
            "{received:?}"
        );
        let (given_up, sent) = writer.await.expect("writer");
        assert_eq!(given_up, [50_000, 50_000]);
        assert!(matches!(sent, Err(Error::Incomplete(70_000))), "{sent:?}");
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_read_or_write_loses_nothing() {
    within(async {
        let (_client, a, _server, b) = pair().await;
        let data = bytes(2_000_000);
        let (mut send, _) = a.open_bi().await.expect("opens");
        let expected = data.clone();
        let writer = tokio::spawn(async move {
            let mut rest = &data[..];
            while !rest.is_empty() {
                // Dropped whenever it is not ready at once.
                tokio::select! {
                    biased;
                    n = send.write(rest) => rest = &rest[n.expect("writes")..],
                    () = tokio::task::yield_now() => {}
                }
            }
            send.shutdown().await.expect("is acknowledged");
        });
        let (_, mut recv) = b.accept_bi().await.expect("accepts");
        let mut got = Vec::new();
        let mut buffer = vec![0; 10_000];
        loop {
            tokio::select! {
                biased;
                n = recv.read(&mut buffer) => match n.expect("reads") {
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

async fn send_file(data: &[u8]) -> Vec<u8> {
    let (_client, a, _server, b) = pair().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    File::create(&from)
        .and_then(|mut f| f.write_all(data))
        .expect("writes the source");
    let receive = async {
        let mut object = b.accept_object().await.expect("accepts");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&to);
        object
            .recv_object(file.expect("creates"), u64::MAX, &Progress::default())
            .await
    };
    let progress = Progress::default();
    let file = File::open(&from).expect("opens");
    let send = a.send_object(file, data.len() as u64, &progress);
    let (sent, received) = tokio::join!(send, receive);
    let (sent, received) = (sent.expect("sends"), received.expect("receives"));
    assert_eq!(sent, received);
    assert_eq!(sent.hash, *blake3::hash(data).as_bytes());
    assert_eq!(progress.bytes(), data.len() as u64);
    std::fs::read(&to).expect("reads the target")
}

#[tokio::test]
async fn objects_of_awkward_sizes_arrive_whole() {
    let block = 128 * 1440; // of a stream that begins, in datagrams of 1472 bytes
    for size in [0, 1, block, block + 1, 5_000_003] {
        let data = bytes(size);
        assert!(within(send_file(&data)).await == data, "size {size}");
    }
}

#[tokio::test]
async fn a_shrunk_source_is_said_to_have_changed() {
    within(async {
        let (_client, a, _server, b) = pair().await;
        let mut source = tempfile::tempfile().expect("a file");
        source.write_all(b"only eleven").expect("writes");
        std::io::Seek::rewind(&mut source).expect("rewinds");
        let error = a.send_object(source, 4000, &Progress::default()).await;
        assert!(matches!(error, Err(Error::SourceChanged(_))), "{error:?}");
        // The receiver learns that the object will never be whole.
        if let Ok(Ok(mut object)) =
            tokio::time::timeout(Duration::from_secs(5), b.accept_object()).await
        {
            assert!(
                matches!(object.next_part().await, Err(Error::Reset(code)) if code == 1.into())
            );
        }
    })
    .await;
}

#[tokio::test]
async fn the_wrong_key_is_refused_before_anything_is_sent() {
    within(async {
        let server = Endpoint::bind(config("127.0.0.1:0")).expect("binds");
        let client =
            Endpoint::bind(EndpointConfig::client(generate_key().expect("key"))).expect("binds");
        let other = generate_key().expect("key").public();
        let error = client.connect(server.local_addr(), Some(other)).await.err();
        assert!(
            matches!(&error, Some(Error::Connection(ConnectionError::WrongKey { found }))
                if *found == server.public_key()),
            "{error:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn an_unwelcome_client_is_told_so() {
    within(async {
        let server = Endpoint::bind(config("127.0.0.1:0").authorize(|_| false)).expect("binds");
        let client =
            Endpoint::bind(EndpointConfig::client(generate_key().expect("key"))).expect("binds");
        let connection = client
            .connect(server.local_addr(), Some(server.public_key()))
            .await
            .expect("the handshake itself works");
        assert_eq!(connection.closed().await, ConnectionError::Refused);
    })
    .await;
}

#[tokio::test]
async fn a_silent_host_is_unreachable_after_the_handshake_timeout() {
    within(async {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        let client = Endpoint::bind(
            EndpointConfig::client(generate_key().expect("key"))
                .transport(TransportConfig::default().handshake_timeout(Duration::from_secs(1))),
        )
        .expect("binds");
        let error = client
            .connect(silent.local_addr().expect("bound"), None)
            .await
            .err();
        assert!(
            matches!(error, Some(Error::Connection(ConnectionError::Unreachable))),
            "{error:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn closing_tells_the_peer_why_and_dropping_closes() {
    within(async {
        let (client, a, server, b) = pair().await;
        a.close(CloseCode::from(300), "enough");
        let error = b.closed().await;
        assert_eq!(
            error,
            ConnectionError::PeerClosed {
                code: CloseCode::from(300),
                reason: "enough".into()
            }
        );
        drop((a, b));
        client.wait_idle().await;
        server.wait_idle().await;

        let (_client, a, _server, b) = pair().await;
        drop(a);
        assert!(matches!(
            b.closed().await,
            ConnectionError::PeerClosed { .. }
        ));
    })
    .await;
}

#[tokio::test]
async fn garbage_on_the_port_disturbs_nobody() {
    within(async {
        let (_client, a, server, b) = pair().await;
        let noise = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        for i in 0..500usize {
            let datagram: Vec<u8> = bytes(i * 3 + 1)
                .iter()
                .map(|b| b.wrapping_add(i as u8))
                .collect();
            let _ = noise.send_to(&datagram[..datagram.len().min(1400)], server.local_addr());
        }
        let (mut send, _) = a.open_bi().await.expect("opens");
        send.write_all(b"still here").await.expect("writes");
        send.shutdown().await.expect("is acknowledged");
        let (_, mut recv) = b.accept_bi().await.expect("accepts");
        let mut got = Vec::new();
        recv.read_to_end(&mut got).await.expect("reads");
        assert_eq!(got, b"still here");
    })
    .await;
}

#[tokio::test]
async fn many_connections_share_one_server() {
    within(async {
        let config = config("127.0.0.1:0").max_per_peer(20);
        let server = Endpoint::bind(config).expect("binds");
        let (address, key) = (server.local_addr(), server.public_key());
        let clients = (0..20u8).map(|i| {
            tokio::spawn(async move {
                let endpoint = Endpoint::bind(EndpointConfig::client(generate_key().expect("key")))
                    .expect("binds");
                let connection = endpoint
                    .connect(address, Some(key))
                    .await
                    .expect("connects");
                let (mut send, mut recv) = connection.open_bi().await.expect("opens");
                send.write_all(&[i; 50_000]).await.expect("writes");
                send.shutdown().await.expect("is acknowledged");
                let mut back = Vec::new();
                recv.read_to_end(&mut back).await.expect("reads");
                assert!(back == [i; 50_000]);
            })
        });
        let clients: Vec<_> = clients.collect();
        for _ in 0..clients.len() {
            let connection = server.accept().await.expect("accepts").accept();
            tokio::spawn(async move {
                let (mut send, mut recv) = connection.accept_bi().await.expect("accepts");
                let mut all = Vec::new();
                recv.read_to_end(&mut all).await.expect("reads");
                send.write_all(&all).await.expect("writes");
                send.shutdown().await.expect("is acknowledged");
            });
        }
        for client in clients {
            client.await.expect("client");
        }
    })
    .await;
}

/// Who waits on a connection with nothing to say need not fear the idle timeout, unless it is told to.
#[tokio::test]
async fn idle_connections_live_unless_keep_alive_is_off() {
    within(async {
        let idle = Duration::from_secs(2);
        let transport = TransportConfig::default().idle_timeout(idle);
        for keep in [true, false] {
            let quiet = |config: EndpointConfig| match keep {
                true => config,
                false => config.keep_alive(None),
            };
            let server = config("127.0.0.1:0").transport(transport.clone());
            let server = Endpoint::bind(quiet(server)).expect("binds");
            let client = EndpointConfig::client(generate_key().expect("a key"));
            let client = client.transport(transport.clone());
            let client = Endpoint::bind(quiet(client)).expect("binds");
            let connect = client.connect(server.local_addr(), None);
            let (near, far) = tokio::join!(connect, server.accept());
            let (near, far) = (near.expect("connects"), far.expect("accepts").accept());
            let ended = tokio::time::timeout(2 * idle, near.closed()).await;
            match ended {
                Err(_) => assert!(keep, "nothing kept it"),
                Ok(why) => assert!(!keep && why == ConnectionError::TimedOut, "{why:?}"),
            }
            drop(far);
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_nobody_accepted_holds_nothing_up() {
    within(async {
        for by_drop in [false, true] {
            let server = Endpoint::bind(config("127.0.0.1:0")).expect("binds");
            let client = Endpoint::bind(EndpointConfig::client(generate_key().expect("a key")))
                .expect("binds");
            let connect = client.connect(server.local_addr(), Some(server.public_key()));
            let connection = connect.await.expect("the server answers by itself");
            // What it sends arrives, so the server knows of it.
            let (mut stream, _) = connection.open_bi().await.expect("opens");
            stream.write_all(b"hello").await.expect("fits");
            stream.shutdown().await.expect("arrives");
            if by_drop {
                drop(server);
            } else {
                server.close(CloseCode::NO_ERROR, "enough").await;
            }
            let end = connection.closed().await;
            assert!(matches!(end, ConnectionError::PeerClosed { .. }), "{end:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn blocks_that_are_solved_on_other_threads_arrive_whole() {
    // Every block of this code is solved, and takes several 100 µs.
    let profile = Profile::auto().with_scheme(SchemeId::Raptor, 1000);
    let transport = TransportConfig::default().profile(profile);
    within(async {
        let (_client, near, _server, far) = pair_with("127.0.0.1:0", transport).await;
        let sent = bytes(6_000_000);
        let (mut out, _) = near.open_bi().await.expect("opens");
        let write = async {
            out.write_all(&sent).await.expect("fits");
            out.shutdown().await.expect("arrives");
        };
        let read = async {
            let (_, mut inside) = far.accept_bi().await.expect("comes");
            let mut got = Vec::new();
            inside.read_to_end(&mut got).await.expect("is complete");
            got
        };
        let ((), got) = tokio::join!(write, read);
        assert!(got == sent);
    })
    .await;
}
