//! Endpoints: who is reached, who is let in, and how they end.

use crate::{bytes, client, pair, pair_of, server_at, within};
use dfcp::{
    Application, CloseCode, ConnectionError, Endpoint, EndpointConfig, Error, Profile, PublicKey,
    SchemeId, TransportConfig, generate_key,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

/// First bytes of packets (`docs/spec/wire.md`).
const ACK: u8 = 0x03;
const SEALED: u8 = 0x40;

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
        assert_eq!(far.close_reason(), Some(expected.clone()));
        assert_eq!(near.close_reason(), Some(ConnectionError::LocallyClosed));
        let said = "closed by the peer (application code 7): enough";
        assert_eq!(expected.to_string(), said);
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
        let portless = client.connect("localhost", None).await;
        let said = portless.expect_err("has no port").to_string();
        assert!(said.contains("port"), "{said}");
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

#[test]
fn without_a_runtime_there_is_no_endpoint() {
    let bound = Endpoint::bind(EndpointConfig::client(generate_key().expect("a key")));
    assert!(matches!(bound, Err(Error::Io(_))), "{bound:?}");
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

#[tokio::test]
async fn a_server_learns_what_a_client_is_there_for_and_may_not_offer_it() {
    within(async {
        let server = server_at("127.0.0.1:0");
        let (own, another) = (Application::own(7), Application::FILES);
        let asks = |application: Option<Application>| {
            let transport = TransportConfig::default();
            let transport = match application {
                Some(application) => transport.application(application),
                None => transport,
            };
            let config = EndpointConfig::client(generate_key().expect("a key"));
            Endpoint::bind(config.transport(transport)).expect("binds")
        };
        for said in [None, Some(own), Some(Application::PROXY)] {
            let client = asks(said);
            let connect = client.connect(server.local_addr(), server.public_key());
            let (near, incoming) = tokio::join!(connect, server.accept());
            let incoming = incoming.expect("comes");
            assert_eq!(incoming.application(), said);
            assert_eq!(incoming.accept().application(), said);
            // A server is there for nothing.
            assert_eq!(near.expect("connects").application(), None);
        }
        let client = asks(Some(another));
        let connect = client.connect(server.local_addr(), server.public_key());
        let (near, incoming) = tokio::join!(connect, server.accept());
        incoming
            .expect("comes")
            .not_offered("it has something else");
        let expected = ConnectionError::NotOffered {
            reason: "it has something else".into(),
        };
        assert_eq!(near.expect("connects").closed().await, expected);
    })
    .await;
}

/// A port that nobody has.
#[cfg(target_os = "linux")]
fn free_port() -> String {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
    socket.local_addr().expect("is bound").to_string()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn of_those_that_begin_at_a_port_at_once_one_has_it() {
    const AT_ONCE: usize = 4;
    let key = generate_key().expect("a key");
    for round in 0..50 {
        let at = free_port();
        let begin = std::sync::Barrier::new(AT_ONCE);
        let runtime = tokio::runtime::Handle::current();
        let serve = || {
            let _inside = runtime.enter();
            let config = EndpointConfig::server(key.clone(), at.parse().expect("an address"));
            begin.wait();
            Endpoint::bind(config).ok()
        };
        let bound: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(serve)).collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            ended.flatten().collect()
        });
        assert!(bound.len() <= 1, "round {round}: {} have {at}", bound.len());
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_port_is_handed_over_and_what_was_open_goes_on() {
    within(async {
        let at = free_port();
        let key = generate_key().expect("a key");
        let serve = || {
            let config = EndpointConfig::server(key.clone(), at.parse().expect("an address"));
            Endpoint::bind(config)
        };
        let first = serve().expect("binds");
        let (near_client, late_client) = (client(), client());
        let (near, far) = pair_of(&near_client, &first).await;
        let (mut send, mut recv) = near.open_bi().await.expect("opens");
        send.write_all(b"a").await.expect("fits");
        let (mut back, mut heard) = far.accept_bi().await.expect("comes");
        let mut byte = [0];
        heard.read_exact(&mut byte).await.expect("comes");
        // Nobody gets a port by mistake.
        assert!(serve().is_err());
        first.hand_over_port().expect("Linux can");
        let second = serve().expect("binds");
        // One comes, and no third one beside it.
        assert!(serve().is_err());
        let (late, late_far) = pair_of(&late_client, &second).await;
        // Both carry a lot, each its own.
        let sent = bytes(2_000_000);
        for (connection, far) in [(&near, &far), (&late, &late_far)] {
            let (mut send, _recv) = connection.open_bi().await.expect("opens");
            let talk = async {
                send.write_all(&sent).await.expect("fits");
                send.shutdown().await.expect("arrives");
            };
            let listen = async {
                let (_send, mut recv) = far.accept_bi().await.expect("comes");
                let mut heard = Vec::new();
                recv.read_to_end(&mut heard).await.expect("comes");
                assert!(heard == sent);
            };
            tokio::join!(talk, listen);
        }
        back.write_all(b"b").await.expect("fits");
        recv.read_exact(&mut byte).await.expect("comes");
        assert_eq!(&byte, b"b");
        // It can be handed over by one at a time.
        assert!(second.hand_over_port().is_err());
        near.close(CloseCode::NO_ERROR, "");
        first.close(CloseCode::NO_ERROR, "").await;
        drop((near, far, send, recv, back, heard, first));
        // Then the port is the second one's alone, and can be handed on.
        while second.hand_over_port().is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let third = serve().expect("binds");
        pair_of(&near_client, &third).await;
        late.open_bi().await.expect("goes on");
    })
    .await;
}

/// Somebody sees a client's SYN, has it answered at an address of his own, hands the client that answer, and keeps
/// what the client makes of it for later.
#[tokio::test]
async fn what_was_held_back_of_a_handshake_is_no_connection_once_its_client_has_another() {
    within(async {
        let (server, client) = (server_at("127.0.0.1:0"), client());
        let socket = async || UdpSocket::bind("127.0.0.1:0").await.expect("binds");
        let (gate, own, carrier) = (socket().await, socket().await, socket().await);
        own.connect(server.local_addr()).await.expect("is there");
        let carried = carrier.connect(server.local_addr());
        carried.await.expect("is there");
        let gate_at = gate.local_addr().expect("is bound");
        let connecting = client.connect(gate_at, server.public_key());
        let carry = async {
            let mut packet = [0; 2048];
            let (len, from) = gate.recv_from(&mut packet).await.expect("a SYN");
            carrier.send(&packet[..len]).await.expect("sends");
            let len = carrier.recv(&mut packet).await.expect("an answer");
            let handed = gate.send_to(&packet[..len], from);
            handed.await.expect("sends");
            from
        };
        let (near, from) = tokio::join!(connecting, carry);
        let near = near.expect("connects");
        let (mut send, mut recv) = near.open_bi().await.expect("opens");
        send.write_all(b"pay").await.expect("fits");
        send.finish().expect("is open");
        let mut held: Vec<Vec<u8>> = Vec::new();
        let kinds = |held: &[Vec<u8>]| held.iter().map(|p| p[0]).collect::<BTreeSet<_>>();
        while !kinds(&held).is_superset(&BTreeSet::from([ACK, SEALED])) {
            let mut packet = [0; 2048];
            let (len, _) = gate.recv_from(&mut packet).await.expect("a packet");
            held.push(packet[..len].to_vec());
        }
        held.retain(|packet| packet[0] >= ACK);
        // From now on the network does its work.
        let network = async {
            let (mut up, mut down) = ([0; 2048], [0; 2048]);
            loop {
                tokio::select! {
                    Ok((len, _)) = gate.recv_from(&mut up) => own.send(&up[..len]).await,
                    Ok(len) = own.recv(&mut down) => gate.send_to(&down[..len], from).await,
                }
                .expect("sends");
            }
        };
        let talk = async {
            let far = server.accept().await.expect("comes").accept();
            assert_eq!(far.peer(), client.public_key());
            let (mut answer, mut question) = far.accept_bi().await.expect("comes");
            let mut heard = Vec::new();
            question.read_to_end(&mut heard).await.expect("comes");
            answer.write_all(&heard).await.expect("fits");
            answer.finish().expect("is open");
            answer.delivered().await.expect("arrives");
            let mut back = Vec::new();
            recv.read_to_end(&mut back).await.expect("comes");
            assert_eq!(back, b"pay");
            far
        };
        let _far = tokio::select! {
            far = talk => far,
            () = network => unreachable!("it goes on"),
        };
        for packet in &held {
            carrier.send(packet).await.expect("sends");
        }
        let other = crate::client();
        let (_other_near, next) = pair_of(&other, &server).await;
        assert_eq!(next.peer(), other.public_key(), "the first client again");
    })
    .await;
}
