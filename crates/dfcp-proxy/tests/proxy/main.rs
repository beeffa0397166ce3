//! Programs, a client, a server and hosts on loopback: what a program notices of the proxy.

mod common;
mod early;
mod ends;
mod fuzz_replay;
mod hostile;
mod http;
mod limits;
mod local;
mod silence;
mod socks4;
mod stdio;
mod udp;

use std::io::ErrorKind;

use common::{Plan, World, bytes, connect_request, echo, loopback, origin, rules, within};
use dfcp_proxy::{Limits, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[tokio::test]
async fn two_hundred_connections_at_once_carry_their_own_bytes() {
    let (world, host) = (World::new().await, echo().await);
    let mut talks = JoinSet::new();
    for salt in 0..200 {
        let mut tcp = world.connect(host).await;
        talks.spawn(async move {
            let sent = bytes(salt, 20_000 + 1000 * salt as usize);
            let (mut read, mut write) = tcp.split();
            let talk = async {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let mut heard = Vec::new();
            let (_, read) = tokio::join!(talk, read.read_to_end(&mut heard));
            read.unwrap();
            assert!(
                heard == sent,
                "{salt}: {} of {} bytes",
                heard.len(),
                sent.len()
            );
        });
    }
    within(talks.join_all()).await;
}

#[tokio::test]
async fn connections_that_nobody_reads_hold_up_no_other() {
    let world = World::new().await;
    let endless = origin(|mut tcp| async move {
        let noise = vec![7; 65_536];
        while tcp.write_all(&noise).await.is_ok() {}
    });
    let endless = endless.await;
    let mut ignored = Vec::new();
    for _ in 0..100 {
        ignored.push(world.connect(endless).await);
    }
    // They get all that they can before somebody else comes.
    let mut talks = 0;
    while talks < 5 {
        let page = bytes(9, 4_000_000);
        let mut tcp = world.connect(echo().await).await;
        let (mut read, mut write) = tcp.split();
        let talk = async {
            write.write_all(&page).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        within(async { tokio::join!(talk, read.read_to_end(&mut heard)) })
            .await
            .1
            .unwrap();
        assert!(heard == page);
        talks += 1;
    }
    // What nobody reads was not carried to wait in the kernel, which would take 4 MB of each: Linux gives who
    // reads nothing 128 kB of room (tcp_rmem), and as much waits to be sent, with a piece more at each end.
    if cfg!(target_os = "linux") {
        let [_, received] = world.client.traffic().counts().tcp_bytes;
        let most = 5 * 4_000_000 + 100 * (1 << 20);
        assert!(received < most, "{received} bytes");
    }
}

#[tokio::test]
async fn a_server_that_restarts_breaks_what_was_open_and_takes_what_comes() {
    let (mut world, host) = (World::new().await, echo().await);
    let mut open = world.connect(host).await;
    open.write_all(b"x").await.unwrap();
    within(open.read_exact(&mut [0])).await.unwrap();
    world.restart_server().await;
    let error = within(open.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    world.events.find("is lost").await;
    let mut tcp = world.connect(host).await;
    tcp.write_all(b"y").await.unwrap();
    within(tcp.read_exact(&mut [0])).await.unwrap();
}

#[tokio::test]
async fn what_comes_to_the_server_is_carried_back_where_it_may_listen() {
    let world = World::with(Plan {
        listen: Some(rules(&["127.0.0.1/32"])),
        ..Plan::default()
    });
    let (mut world, host) = (world.await, echo().await);
    let (client, bind) = (world.client.clone(), Target::from(loopback()));
    tokio::spawn(async move { client.reverse(bind, host.into()).await });
    let listening = world.events.find("the server listens at").await;
    let at = listening.split(' ').nth(4).unwrap();
    let mut tcp = TcpStream::connect(at).await.unwrap();
    tcp.write_all(b"inward").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut heard = String::new();
    within(tcp.read_to_string(&mut heard)).await.unwrap();
    assert_eq!(heard, "inward");

    // After a restart the server, which allows no listening any more, is asked again.
    world.restart_server().await;
    world
        .events
        .find("does not listen at 127.0.0.1:0: the server's rules")
        .await;
}

#[tokio::test]
async fn a_port_of_the_server_that_becomes_free_is_had_after_all() {
    let world = World::with(Plan {
        listen: Some(rules(&["127.0.0.1/32"])),
        ..Plan::default()
    });
    let (world, host) = (world.await, echo().await);
    let taken = TcpListener::bind(loopback()).await.unwrap();
    let at = taken.local_addr().unwrap();
    let client = world.client.clone();
    tokio::spawn(async move { client.reverse(at.into(), host.into()).await });
    world.events.find("does not listen at").await;
    drop(taken);
    let listens = format!("the server listens at {at}");
    world.events.find(&listens).await;
}

#[tokio::test]
async fn a_key_has_so_many_streams_and_no_more_until_one_ends() {
    let world = World::with(Plan {
        limits: Limits {
            streams: 3,
            ..Limits::default()
        },
        ..Plan::default()
    })
    .await;
    let host = echo().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(world.connect(host).await);
    }
    let request = format!("CONNECT {host} HTTP/1.1\r\n\r\n");
    let answer = world.answer_to(request.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{answer:?}");
    open.clear();
    let freed = async {
        while world.socks(&connect_request(host)).await.1 != 0 {
            tokio::task::yield_now().await;
        }
    };
    within(freed).await;
}

#[tokio::test]
async fn a_stranger_learns_that_his_key_is_not_known() {
    let world = World::with(Plan {
        stranger: true,
        ..Plan::default()
    })
    .await;
    assert!(world.turned_away().await.is_final());
    let (_, reply) = world.socks(&connect_request(loopback())).await;
    assert_ne!(reply, 0);
}
