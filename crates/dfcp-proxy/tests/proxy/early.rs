//! What leaves, and is told, before the server has connected.

use std::io::ErrorKind;

use crate::common::{Plan, World, connect_request, echo, loopback, nobody, rules, within};
use dfcp_proxy::{FastOpen, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn forwards_carry_first_bytes_before_any_answer() {
    for (host, works) in [(echo().await, true), (nobody().await, false)] {
        let world = World::new().await;
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let at = listener.local_addr().unwrap();
        let client = world.client.clone();
        tokio::spawn(async move { client.forward(listener, host.into()).await });
        let mut tcp = TcpStream::connect(at).await.unwrap();
        tcp.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        let read = within(tcp.read_exact(&mut heard)).await;
        if works {
            read.unwrap();
            assert_eq!(&heard, b"hello");
        } else {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
            world.events.find(&format!("not connected to {host}")).await;
        }
    }
}

#[tokio::test]
async fn with_fast_open_programs_need_not_wait_and_learn_of_failures_by_a_reset() {
    let world = World::with(Plan {
        fast_open: FastOpen::Always,
        ..Plan::default()
    })
    .await;
    let mut tcp = world.connect(echo().await).await;
    tcp.write_all(b"z").await.unwrap();
    within(tcp.read_exact(&mut [0])).await.unwrap();
    let nobody = nobody().await;
    let mut tcp = world.connect(nobody).await;
    let error = within(tcp.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // Whoever runs the client learns the reason, and of no connection.
    let failed = format!("not connected to {nobody}: {nobody}: ");
    world.events.find(&failed).await;
    assert!(!world.events.has(&format!("connected to {nobody}")));
}

#[tokio::test]
async fn hosts_that_were_reached_are_counted_on_until_something_fails() {
    let plan = Plan {
        fast_open: FastOpen::Known,
        ..Plan::default()
    };
    let world = World::with(plan).await;
    // Nobody is known yet: a failure has its reason.
    let nobody = nobody().await;
    assert_eq!(world.socks(&connect_request(nobody)).await.1, 5);
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let host = listener.local_addr().unwrap();
    drop(world.connect(host).await);
    drop(listener);
    // What was reached is told to be reached again, before anybody knows better.
    let mut tcp = world.connect(host).await;
    let error = within(tcp.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // After that everybody waits for the truth.
    assert_eq!(world.socks(&connect_request(host)).await.1, 5);
    // A failure is one, whatever was asked for.
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let host = listener.local_addr().unwrap();
    drop(world.connect(host).await);
    let other = self::nobody().await;
    let get = format!("GET http://{other}/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = world.answer_to(get.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 502 "));
    // It is told as that, and not as a mistake of the program, too.
    world
        .events
        .find(&format!("not connected to {other}"))
        .await;
    assert_eq!(
        world.events.count("a program at a local port was refused"),
        0
    );
    drop(listener);
    assert_eq!(world.socks(&connect_request(host)).await.1, 5);
}

#[tokio::test]
async fn hosts_that_this_side_reached_are_not_counted_on_at_the_server() {
    let world = World::with(Plan {
        fast_open: FastOpen::Known,
        listen: Some(rules(&["127.0.0.1/32"])),
        ..Plan::default()
    })
    .await;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let host = listener.local_addr().unwrap();
    let (client, bind) = (world.client.clone(), Target::from(loopback()));
    tokio::spawn(async move { client.reverse(bind, host.into()).await });
    let listening = world.events.find("the server listens at").await;
    let at = listening.split(' ').nth(4).unwrap();
    let _tcp = TcpStream::connect(at).await.unwrap();
    within(listener.accept()).await.unwrap();
    world.events.find(&format!("connected to {host}")).await;
    drop(listener);
    assert_eq!(world.socks(&connect_request(host)).await.1, 5);
}
