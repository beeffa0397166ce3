//! The library as its users see it: endpoints, clients at the door, streams, objects.

use bytes::Bytes;
use dfcp::observe::{Instant, Observation, Observe, Role};
use dfcp::{
    Chunk, CloseCode, Connection, ConnectionError, Endpoint, EndpointConfig, Error, Profile,
    Progress, PublicKey, SchemeId, TransportConfig, generate_key,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Nothing here takes long; a hang is a failure, not a wait.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    let future = tokio::time::timeout(PATIENCE, future);
    future.await.expect("must not hang")
}

fn server_at(bind: &str) -> Endpoint {
    let bind: SocketAddr = bind.parse().expect("an address");
    let config = EndpointConfig::server(generate_key().expect("a key"), bind);
    Endpoint::bind(config).expect("binds")
}

fn client() -> Endpoint {
    Endpoint::bind(EndpointConfig::client(generate_key().expect("a key"))).expect("binds")
}

async fn pair_of(client: &Endpoint, server: &Endpoint) -> (Connection, Connection) {
    let port = server.local_addr().port();
    let connect = client.connect(("127.0.0.1", port), server.public_key());
    let (near, far) = tokio::join!(connect, server.accept());
    (near.expect("connects"), far.expect("comes").accept())
}

async fn pair() -> (Endpoint, Connection, Endpoint, Connection) {
    let (client, server) = (client(), server_at("127.0.0.1:0"));
    let (near, far) = pair_of(&client, &server).await;
    (client, near, server, far)
}

fn bytes(n: usize) -> Vec<u8> {
    let byte = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..n as u64).map(byte).collect()
}

#[tokio::test]
async fn closing_an_endpoint_waits_for_no_handle() {
    within(async {
        let (client, near, server, far) = pair().await;
        let (mut send, mut recv) = near.open_bi().await.expect("opens");
        send.write_all(b"hello").await.expect("fits");
        let accepted = far.accept_bi().await.expect("comes");
        client.close(CloseCode::application(7), "enough").await;
        server.close(CloseCode::NO_ERROR, "").await;
        // All these are still held, and say what became of them.
        let closed = |result: Result<usize, Error>| {
            matches!(
                result,
                Err(Error::Connection(ConnectionError::LocallyClosed))
            )
        };
        assert!(closed(recv.read(&mut [0; 9]).await));
        let opened = near.open_bi().await.map(|_| 0);
        assert!(closed(opened));
        let expected = ConnectionError::PeerClosed {
            code: CloseCode::application(7),
            reason: "enough".into(),
        };
        assert_eq!(far.closed().await, expected);
        assert!(client.connect("127.0.0.1:9", None).await.is_err());
        assert!(server.accept().await.is_none());
        drop(accepted);
    })
    .await;
}

#[tokio::test]
async fn names_and_both_families_are_reached_from_one_endpoint() {
    within(async {
        // At [::] a server takes both families as well.
        let server = server_at("[::]:0");
        let (client, port) = (client(), server.local_addr().port());
        for name in ["localhost", "127.0.0.1", "[::1]"] {
            let remote = format!("{name}:{port}");
            let connect = client.connect(remote, server.public_key());
            let (near, far) = tokio::join!(connect, server.accept());
            let (near, far) = (near.expect(name), far.expect("comes").accept());
            let shown = near.remote_address().expect("is there");
            assert!(shown.ip().is_loopback(), "{name} is {shown}");
            // Not as an address of IPv6 that only stands for it.
            let family = far.remote_address().expect("is there").is_ipv4();
            assert_eq!(family, shown.is_ipv4());
            let (mut send, _recv) = near.open_bi().await.expect("opens");
            send.write_all(&bytes(50_000)).await.expect("fits");
            send.shutdown().await.expect("arrives");
        }
        let nowhere = client.connect("nowhere.invalid:1", None).await;
        assert!(matches!(nowhere, Err(Error::Io(_))), "{nowhere:?}");
        let narrow = EndpointConfig::client(generate_key().expect("a key"));
        let narrow = narrow.bind("127.0.0.1:0".parse().expect("an address"));
        let narrow = Endpoint::bind(narrow).expect("binds");
        let unreachable = narrow.connect("[::1]:9", None).await;
        assert!(matches!(unreachable, Err(Error::Io(_))), "{unreachable:?}");
    })
    .await;
}

#[tokio::test]
async fn the_first_address_that_answers_counts() {
    within(async {
        let server = server_at("127.0.0.1:0");
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        let addresses = [silent.local_addr().expect("bound"), server.local_addr()];
        let client = client();
        let near = client.connect(&addresses[..], server.public_key()).await;
        let near = near.expect("the second answers");
        assert_eq!(near.remote_address(), Some(server.local_addr()));
    })
    .await;
}

#[tokio::test]
async fn connections_of_one_endpoint_have_settings_of_their_own() {
    within(async {
        let (server, client) = (server_at("127.0.0.1:0"), client());
        let raptorq = Profile::auto().with_scheme(SchemeId::RaptorQ, 1000);
        let transport = TransportConfig::default().profile(raptorq);
        let address = server.local_addr();
        let connect = client.connect_with(transport, address, server.public_key());
        let (own, first) = tokio::join!(connect, server.accept());
        let (own, _first) = (own.expect("connects"), first.expect("comes").accept());
        let (common, _second) = pair_of(&client, &server).await;
        let mut sizes = Vec::new();
        for connection in [&own, &common] {
            let (mut send, _) = connection.open_bi().await.expect("opens");
            send.finish().expect("ends");
            sizes.push(send.block_size().expect("is open"));
        }
        assert!(sizes[0] > 2 * sizes[1], "blocks of {sizes:?} bytes");
    })
    .await;
}

#[tokio::test]
async fn clients_at_the_door_are_looked_at_and_refused_or_ignored() {
    within(async {
        let server = server_at("127.0.0.1:0");
        let (address, key) = (server.local_addr(), server.public_key());
        let quick = TransportConfig::default().idle_timeout(Duration::from_secs(1));
        let quick = quick.keep_alive(Some(Duration::from_millis(100)));
        let client = client();
        let mut outcomes = Vec::new();
        for turn in 0..3 {
            let connect = client.connect_with(quick.clone(), address, key);
            let (near, far) = tokio::join!(connect, server.accept());
            let (near, far) = (near.expect("connects"), far.expect("comes"));
            assert_eq!(far.peer(), client.public_key());
            let port = far.remote_address().expect("is there").port();
            assert_eq!(port, client.local_addr().port());
            assert!(far.is_validated());
            match turn {
                0 => far.refuse(),
                1 => drop(far),
                _ => far.ignore(),
            }
            outcomes.push(near.closed().await);
        }
        use ConnectionError::{Refused, TimedOut};
        assert_eq!(outcomes, [Refused, Refused, TimedOut]);
        server.wait_idle().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_goes_on_over_another_socket() {
    within(async {
        let (client, near, _server, far) = pair().await;
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"before").await.expect("fits");
        let (_send, mut recv) = far.accept_bi().await.expect("comes");
        let mut text = [0; 6];
        recv.read_exact(&mut text).await.expect("arrives");
        let before = far.remote_address().expect("is there");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        client.rebind(socket).expect("takes the socket");
        send.write_all(b"after!").await.expect("fits");
        send.shutdown().await.expect("arrives");
        recv.read_exact(&mut text).await.expect("arrives");
        assert_eq!(&text, b"after!");
        let after = far.remote_address().expect("is there");
        assert_ne!(before.port(), after.port());
        assert_eq!(after.port(), client.local_addr().port());
    })
    .await;
}

#[tokio::test]
async fn a_writer_learns_that_it_is_stopped_while_it_writes_nothing() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let stopped = send.stopped();
        let (_send, mut recv) = far.accept_bi().await.expect("comes");
        recv.stop(77.into());
        let code = stopped.await.expect("is told");
        assert_eq!(code, Some(77.into()));
        let error = send.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

        // One that is read to its end is delivered, not stopped. Saying the end waits for nobody.
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        send.finish().expect("is said");
        assert!(send.write_all(b"more").await.is_err());
        assert_eq!(send.stopped().await.expect("is told"), None);
        assert_eq!(send.delivered().await.expect("is told"), 0);
    })
    .await;
}

#[tokio::test]
async fn whole_blocks_come_and_go_in_their_own_buffers() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        let block = send.block_size().expect("is open");
        let data = bytes(3 * block + 1000);
        let ours = data.clone();
        let writer = tokio::spawn(async move {
            let whole = Bytes::from(ours);
            send.write_chunk(Bytes::from(whole[..block].to_vec()))
                .await?;
            send.write_chunk(whole.slice(block..2 * block)).await?; // not alone
            send.write_chunk(whole.slice(2 * block..)).await?;
            send.finish()?;
            send.delivered().await
        });
        let (_send, mut recv) = far.accept_bi().await.expect("comes");
        let mut got = Vec::new();
        loop {
            match recv.read_chunk(100_000).await.expect("reads") {
                Chunk::Data(bytes) => {
                    assert!((1..=100_000).contains(&bytes.len()));
                    got.extend_from_slice(&bytes);
                }
                Chunk::Gap(bytes) => panic!("{bytes} bytes are missing"),
                Chunk::End => break,
            }
        }
        assert!(got == data, "bytes differ");
        writer.await.expect("writer").expect("arrives");
    })
    .await;
}

#[tokio::test]
async fn objects_come_from_any_reader_and_go_into_any_writer() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let data = bytes(3_000_003);
        let hash = *blake3::hash(&data).as_bytes();
        let (source, progress) = (data.clone(), Progress::default());
        let send = async {
            // From memory, on a thread; then from what is only read asynchronously.
            let cursor = std::io::Cursor::new(source.clone());
            let sent = near.send_object(cursor, source.len() as u64, &progress, |_| {});
            let first = sent.await.expect("sends");
            let second = near.send_object_from(&source[..], &progress).await;
            (first, second.expect("sends"))
        };
        let receive = async {
            let (mut memory, counted) = (Vec::new(), Progress::default());
            let object = far.accept_object().await.expect("comes");
            let first = object.recv_object_into(&mut memory, u64::MAX, &counted);
            let first = first.await.expect("receives");
            assert!(memory == data, "bytes differ");
            let object = far.accept_object().await.expect("comes");
            let mut read = Vec::new();
            let second = object
                .in_order()
                .expect("is whole")
                .read_to_end(&mut read)
                .await;
            assert_eq!(second.expect("reads"), data.len());
            assert!(read == data, "bytes differ");
            first
        };
        let ((first, second), received) = tokio::join!(send, receive);
        for summary in [first, second, received] {
            assert_eq!((summary.size, summary.hash), (data.len() as u64, hash));
        }
        assert_eq!(progress.bytes(), 2 * data.len() as u64);
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_longer_than_it_may_be_ends_for_both() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let data = bytes(500_000);
        let progress = Progress::default();
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let object = far.accept_object().await.expect("comes");
            let target = tokio::io::sink();
            object
                .recv_object_into(target, 1000, &Progress::default())
                .await
        };
        let (sent, received) = tokio::join!(send, receive);
        assert!(matches!(sent, Err(Error::Reset(_))), "{sent:?}");
        assert!(
            matches!(received, Err(Error::TooLong(1000))),
            "{received:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_wrong_key_is_said_at_once_though_other_addresses_are_silent() {
    within(async {
        let server = server_at("127.0.0.1:0");
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        let addresses = [server.local_addr(), silent.local_addr().expect("bound")];
        let other: PublicKey = generate_key().expect("a key").public();
        let error = client().connect(&addresses[..], other).await.err();
        assert!(
            matches!(
                error,
                Some(Error::Connection(ConnectionError::WrongKey { .. }))
            ),
            "{error:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn streams_of_both_kinds_come_to_who_waits_for_them() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        for side in [(&near, &far), (&far, &near)] {
            let mut one_way = side.0.open_uni().await.expect("opens");
            one_way.write_all(b"one way").await.expect("fits");
            one_way.finish().expect("ends");
            let (mut both_ways, mut back) = side.0.open_bi().await.expect("opens");
            both_ways.write_all(b"both ways").await.expect("fits");
            both_ways.finish().expect("ends");
            let mut text = String::new();
            let (mut answer, mut inside) = side.1.accept_bi().await.expect("comes");
            inside.read_to_string(&mut text).await.expect("is whole");
            answer.write_all(b", and back").await.expect("fits");
            answer.finish().expect("ends");
            let mut inside = side.1.accept_uni().await.expect("comes");
            inside.read_to_string(&mut text).await.expect("is whole");
            back.read_to_string(&mut text).await.expect("is whole");
            assert_eq!(text, "both waysone way, and back");
        }
    })
    .await;
}

#[tokio::test]
async fn datagrams_come_whole_and_the_oldest_make_room() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let most = near.max_datagram_size();
        for size in [0, 1, 100, most] {
            let sent = Bytes::from(bytes(size));
            near.send_datagram(sent.clone()).expect("fits");
            // Loopback loses none that are read in time.
            assert_eq!(far.read_datagram().await.expect("comes"), sent);
        }
        let long = near.send_datagram(Bytes::from(bytes(most + 1)));
        assert!(matches!(long, Err(Error::Datagram(_))), "{long:?}");

        // Nobody reads, and what waits is bounded: of 1000 the last come.
        let small = TransportConfig::default().datagram_buffer(100 * (500 + 64));
        let server = EndpointConfig::server(
            generate_key().expect("a key"),
            "127.0.0.1:0".parse().expect("an address"),
        );
        let server = Endpoint::bind(server.transport(small)).expect("binds");
        let (client, count) = (client(), 1000_u32);
        let (near, far) = pair_of(&client, &server).await;
        for i in 0..count {
            let mut datagram = i.to_be_bytes().to_vec();
            datagram.resize(500, 0);
            near.send_datagram(Bytes::from(datagram)).expect("fits");
        }
        let mut flush = near.open_uni().await.expect("opens");
        flush.write_all(b"after them").await.expect("fits");
        flush.shutdown().await.expect("arrives");
        // The stream takes turns with them, so it may arrive before the last of them has left.
        let left = || near.stats().datagrams_sent + near.stats().datagrams_dropped;
        while left() < u64::from(count)
            || far.stats().datagrams_received < near.stats().datagrams_sent
        {
            tokio::task::yield_now().await;
        }
        let dropped = far.stats().datagrams_dropped;
        assert!(dropped >= 900 - near.stats().datagrams_dropped, "{dropped}");
        let mut numbers = Vec::new();
        near.close(CloseCode::NO_ERROR, "");
        while let Ok(datagram) = far.read_datagram().await {
            numbers.push(u32::from_be_bytes(datagram[..4].try_into().expect("four")));
        }
        assert!(numbers.len() <= 100 && numbers.is_sorted(), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&(count - 1)));
        assert!(near.send_datagram(Bytes::new()).is_err());
    })
    .await;
}

#[tokio::test]
async fn both_ends_export_the_same_key_material_and_no_others() {
    within(async {
        let (client, near, server, far) = pair().await;
        let (other, _far) = pair_of(&client, &server).await;
        let export = |connection: &Connection, label: &[u8], context: &[u8]| {
            let mut out = [0; 48];
            let exported = connection.export_keying_material(&mut out, label, context);
            exported.expect("is established");
            out
        };
        let ours = export(&near, b"label", b"context");
        assert_eq!(ours, export(&far, b"label", b"context"));
        for unlike in [
            export(&near, b"label", b"contexT"),
            export(&near, b"labelc", b"ontext"),
            export(&other, b"label", b"context"),
        ] {
            assert_ne!(ours, unlike);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_urgent_overtakes_what_was_written_before() {
    within(async {
        // Slow enough that the first stream cannot have left before the second is written.
        let slow = Profile::auto().with_fixed_rate(dfcp::Rate::from_bps(20_000_000));
        let transport = TransportConfig::default().profile(slow);
        let (client, server) = (client(), server_at("127.0.0.1:0"));
        let connect = client.connect_with(transport, server.local_addr(), None);
        let (near, far) = tokio::join!(connect, server.accept());
        let (near, far) = (near.expect("connects"), far.expect("comes").accept());
        let mut bulk = near.open_uni().await.expect("opens");
        bulk.set_priority(-1).expect("is open");
        bulk.write_all(&bytes(1_000_000)).await.expect("fits");
        bulk.finish().expect("ends");
        let mut urgent = near.open_uni().await.expect("opens");
        urgent.write_all(&bytes(200_000)).await.expect("fits");
        urgent.finish().expect("ends");
        let (mut first, mut second) = (
            far.accept_uni().await.expect("comes"),
            far.accept_uni().await.expect("comes"),
        );
        let order = std::sync::Mutex::new(Vec::new());
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (one, two) = tokio::join!(
            async {
                first.read_to_end(&mut one).await.expect("is whole");
                order.lock().expect("whole").push(one.len());
            },
            async {
                second.read_to_end(&mut two).await.expect("is whole");
                order.lock().expect("whole").push(two.len());
            },
        );
        ((), ()) = (one, two);
        assert_eq!(*order.lock().expect("whole"), [200_000, 1_000_000]);
    })
    .await;
}

/// More of them than a connection may have open at once.
#[tokio::test]
async fn streams_that_were_reset_are_forgotten_and_say_so_again() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        for _ in 0..600 {
            let mut out = near.open_uni().await.expect("opens");
            out.write_all(b"x").await.expect("takes it");
            let mut inside = far.accept_uni().await.expect("comes");
            out.reset(dfcp::VarInt::from_u32(7));
            let mut bytes = [0; 9];
            let error = loop {
                match inside.read(&mut bytes).await {
                    Ok(read) => assert!(read > 0, "no end"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Reset(_)), "{error:?}");
            let again = inside.read(&mut bytes).await;
            assert!(matches!(again, Err(Error::Reset(_))), "{again:?}");
        }
    })
    .await;
}

#[test]
fn one_address_is_reached_without_tokios_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    runtime.expect("starts").block_on(async {
        let (client, server) = (client(), server_at("127.0.0.1:0"));
        let near = client
            .connect(server.local_addr(), server.public_key())
            .await;
        assert!(near.is_ok(), "{near:?}");
    });
}

#[tokio::test]
async fn who_waits_for_a_stream_that_was_given_up_waits_no_longer() {
    within(async {
        let (_client, near, _server, _far) = pair().await;
        // Reset by whoever holds it, while others wait and before.
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let mut before = Box::pin(send.stopped());
        let pending = tokio::time::timeout(Duration::from_millis(10), &mut before).await;
        assert!(pending.is_err(), "nothing has happened yet");
        send.reset(7.into());
        assert_eq!(before.await.expect("is told"), None);
        assert_eq!(send.stopped().await.expect("is told"), None);
        let delivered = send.delivered().await;
        assert!(matches!(delivered, Err(Error::Closed)), "{delivered:?}");
        // Dropped.
        let mut send = near.open_uni().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let stopped = send.stopped();
        drop(send);
        assert_eq!(stopped.await.expect("is told"), None);
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_stop_does_not_hold_the_connection() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let (mut send, recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let stopped = send.stopped();
        drop((send, recv));
        let (mut send, recv) = near.open_bi().await.expect("opens");
        send.finish().expect("ends");
        let unknown = send.stopped();
        drop((send, recv, near));
        far.closed().await;
        assert_eq!(stopped.await.expect("is told"), None);
        // Whichever came first: the acknowledgement of the end, or that of the connection.
        let unknown = unknown.await;
        assert!(matches!(unknown, Ok(None) | Err(_)), "{unknown:?}");
    })
    .await;
}

#[tokio::test]
async fn an_object_of_which_parts_were_taken_has_no_order() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let data = bytes(1_000_000);
        let progress = Progress::default();
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let mut object = far.accept_object().await.expect("comes");
            object.next_part().await.expect("comes").expect("not over");
            object.in_order().err()
        };
        let (sent, refused) = tokio::join!(send, receive);
        assert!(matches!(refused, Some(Error::Closed)), "{refused:?}");
        assert!(matches!(sent, Err(Error::Reset(_))), "{sent:?}");
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_ended_takes_no_other_socket() {
    within(async {
        let client = client();
        client.close(CloseCode::NO_ERROR, "").await;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        let before = client.local_addr();
        let refused = client.rebind(socket).expect_err("it is closed");
        assert_eq!(refused.kind(), std::io::ErrorKind::NotConnected);
        assert_eq!(client.local_addr(), before);
    })
    .await;
}

/// Counts packets sent, with nothing but what the library names.
#[derive(Debug)]
struct Meter(Arc<AtomicU64>);

impl Observe for Meter {
    fn observe(&mut self, _: Instant, event: &Observation<'_>) {
        if let Observation::Sent(_) = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn an_observer_of_ones_own_sees_one_end() {
    within(async {
        let sent = Arc::new(AtomicU64::new(0));
        let meter = sent.clone();
        let transport = TransportConfig::default().observer(move |vantage| {
            let is_client = vantage.role == Role::Client;
            is_client.then(|| Box::new(Meter(meter.clone())) as Box<dyn Observe>)
        });
        let (client, server) = (client(), server_at("127.0.0.1:0"));
        let connect = client.connect_with(transport, server.local_addr(), None);
        let (near, far) = tokio::join!(connect, server.accept());
        let (near, _far) = (near.expect("connects"), far.expect("comes").accept());
        let mut out = near.open_uni().await.expect("opens");
        out.write_all(&bytes(500_000)).await.expect("fits");
        out.shutdown().await.expect("arrives");
        let (seen, counted) = (sent.load(Ordering::Relaxed), near.stats().packets_sent);
        assert!(seen >= 350 && seen <= counted, "{seen} of {counted}");
    })
    .await;
}

/// Holds a connection up, in the middle of whatever it does.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<Phase>, Condvar)>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Closed to the next packet that is sent.
    Closed,
    /// It came.
    Holding,
    Left,
}

impl Gate {
    fn set(&self, phase: Phase) {
        *self.0.0.lock().expect("no test failed with it") = phase;
        self.0.1.notify_all();
    }

    /// Waits for a phase; false if it does not come.
    fn reaches(&self, phase: Phase) -> bool {
        let now = self.0.0.lock().expect("no test failed with it");
        let waited = self
            .0
            .1
            .wait_timeout_while(now, PATIENCE, |now| *now != phase);
        !waited.expect("no test failed with it").1.timed_out()
    }
}

impl Observe for Gate {
    fn observe(&mut self, _: Instant, event: &Observation<'_>) {
        let closed = *self.0.0.lock().expect("no test failed with it") == Phase::Closed;
        if closed && matches!(event, Observation::Sent(_)) {
            self.set(Phase::Holding);
            if !self.reaches(Phase::Open) {
                self.set(Phase::Left);
            }
        }
    }
}

/// One that is held up with its state in hand, and one that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_do_not_wait_for_each_other() {
    let (client, server, gate) = (client(), server_at("127.0.0.1:0"), Gate::default());
    let observer = gate.clone();
    let observed = TransportConfig::default().observer(move |_| Some(Box::new(observer.clone())));
    let address = server.local_addr();
    let connect = client.connect_with(observed, address, server.public_key());
    let (held, held_far) = tokio::join!(connect, server.accept());
    let (held, held_far) = (held.expect("connects"), held_far.expect("comes").accept());
    let (near, far) = pair_of(&client, &server).await;

    let mut out = held.open_uni().await.expect("opens");
    gate.set(Phase::Closed);
    out.write_all(b"held up").await.expect("fits");
    let arrived = gate.clone();
    let holds = tokio::task::spawn_blocking(move || arrived.reaches(Phase::Holding));
    assert!(holds.await.expect("waits"), "nothing was sent");

    // Both ways, new ones and old ones, as if nothing were.
    let (third, third_far) = pair_of(&client, &server).await;
    for (near, far) in [(&near, &far), (&third_far, &third)] {
        let data = bytes(3_000_000);
        let progress = Progress::default();
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let object = far.accept_object().await.expect("comes");
            let mut got = Vec::new();
            let received = object.recv_object_into(&mut got, u64::MAX, &progress);
            received.await.expect("receives");
            got
        };
        let (sent, got) = within(async { tokio::join!(send, receive) }).await;
        sent.expect("sends");
        assert!(got == data, "bytes differ");
    }
    let phase = *gate.0.0.lock().expect("no test failed with it");
    assert_eq!(phase, Phase::Holding, "they waited for it");
    gate.set(Phase::Open);
    within(async {
        out.finish().expect("ends");
        let mut inside = held_far.accept_uni().await.expect("comes");
        let mut text = String::new();
        inside.read_to_string(&mut text).await.expect("is whole");
        assert_eq!(text, "held up");
    })
    .await;
}
