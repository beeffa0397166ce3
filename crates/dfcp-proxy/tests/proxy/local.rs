//! What a program at the local port is answered.

use std::net::SocketAddr;

use crate::common::{Plan, World, connect_request, connect_to_name, echo, nobody, rules, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn failures_have_the_numbers_of_socks_and_http() {
    let world = World::with(Plan {
        rules: rules(&["127.0.0.1/32"]),
        ..Plan::default()
    });
    let (world, closed) = (world.await, nobody().await);
    let forbidden: SocketAddr = "127.0.0.2:80".parse().unwrap();
    let metadata: SocketAddr = "169.254.169.254:80".parse().unwrap();
    for (request, reply) in [
        (connect_request(closed), 5),
        (connect_request(forbidden), 2),
        (connect_request(metadata), 2),
        // Resolved at the server, whose rules look at the address.
        (connect_to_name("localhost", closed.port()), 5),
        (connect_to_name("127.0.0.2", 80), 2),
        (connect_to_name("name.invalid", 80), 4),
    ] {
        assert_eq!(world.socks(&request).await.1, reply, "{request:?}");
    }
    for (host, status) in [
        (closed.to_string(), "502"),
        (forbidden.to_string(), "403"),
        ("name.invalid:80".to_owned(), "502"),
    ] {
        let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = world.answer_to(request.as_bytes()).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    world
        .events
        .find("the server's rules do not allow 127.0.0.2:80")
        .await;
    let failed = world.of_client("not connected to name.invalid:80");
    world.there.find(&failed).await;
}

#[tokio::test]
async fn what_follows_the_request_of_http_is_carried() {
    let (world, host) = (World::new().await, echo().await);
    let mut tcp = TcpStream::connect(world.local).await.unwrap();
    let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nearly");
    tcp.write_all(request.as_bytes()).await.unwrap();
    tcp.write_all(b" and late").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = String::new();
    within(tcp.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "early and late");
}

#[tokio::test]
async fn whoever_asks_wrongly_is_answered_and_nobody_else_notices() {
    let (world, host) = (World::new().await, echo().await);
    let mut bystander = world.connect(host).await;
    let SocketAddr::V4(v4) = host else {
        unreachable!()
    };
    let request = |command: u8, kind: u8| {
        let mut request = vec![5, command, 0, kind];
        request.extend(v4.ip().octets());
        request.extend(v4.port().to_be_bytes());
        request
    };
    // BIND, no command, no kind of address, no name.
    for (request, reply) in [
        (request(2, 1), 7),
        (request(9, 1), 7),
        (request(1, 2), 8),
        (connect_to_name("", 80), 1),
        (connect_to_name("a b", 80), 1),
    ] {
        assert_eq!(world.socks(&request).await.1, reply, "{request:?}");
    }
    // Its end is there with the rest of it.
    let header = format!("X: {}\r\n\r\n", "x".repeat(16 << 10));
    let long_head = [b"CONNECT a.example:443 HTTP/1.1\r\n", header.as_bytes()].concat();
    for (said, answer) in [
        (&[5, 1, 2][..], &[5, 0xff][..]), // wants a password
        (&[5, 0], &[5, 0xff]),            // offers nothing
        (&[0x16, 3, 1, 0, 200], &[]),     // TLS
        (b"GET http://a.example/ HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 400 "),
        (b"CONNECT a.example HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"CONNECT a.example:+443 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (&[b'A'; 20_000], b"HTTP/1.1 431 "),
        (&long_head, b"HTTP/1.1 431 "),
        // Lines may end with LF alone.
        (
            b"GET http://name.invalid/ HTTP/1.1\nHost: a\n\n",
            b"HTTP/1.1 502 ",
        ),
    ] {
        let answered = world.answer_to(said).await;
        assert!(answered.starts_with(answer), "{said:?}: {answered:?}");
        assert!(!answer.is_empty() || answered.is_empty(), "{answered:?}");
    }
    // Who leaves in the middle of a request.
    for part in 0..10 {
        let mut tcp = world.greeted().await;
        tcp.write_all(&connect_request(host)[..part]).await.unwrap();
    }
    bystander.write_all(b"still here").await.unwrap();
    let mut heard = [0; 10];
    within(bystander.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"still here");
}

#[tokio::test]
async fn a_program_that_says_nothing_is_left() {
    let world = World::new().await;
    let mut silent = TcpStream::connect(world.local).await.unwrap();
    let mut slow = world.greeted().await;
    slow.write_all(&[5, 1]).await.unwrap();
    assert_eq!(within(silent.read(&mut [0])).await.unwrap(), 0);
    assert_eq!(within(slow.read(&mut [0])).await.unwrap(), 0);
    world.events.find("did not say what it wants").await;
}
