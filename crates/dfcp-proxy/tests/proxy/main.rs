//! Programs, a client, a server and hosts on loopback: what a program notices of the proxy.

mod common;
mod fuzz_replay;
mod hostile;
mod http;
mod limits;
mod silence;
mod socks4;
mod udp;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use common::{
    Plan, World, bytes, connect_request, connect_to_name, echo, loopback, nobody, origin, rules,
    within,
};
use dfcp::CloseCode;
use dfcp_proxy::{Broken, FastOpen, Limits, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[tokio::test]
async fn ends_travel_each_way_by_themselves() {
    let world = World::new().await;
    // The host answers only when it has heard the end.
    let mut tcp = world.connect(echo_at_the_end().await).await;
    let sent = bytes(1, 1_000_000);
    let (mut read, mut write) = tcp.split();
    let talk = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let (_, read) = within(async { tokio::join!(talk, read.read_to_end(&mut heard)) }).await;
    read.unwrap();
    assert!(heard == sent, "{} of {} bytes", heard.len(), sent.len());

    // The host ends first, and still hears what follows.
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let host = origin(move |mut tcp| {
        let tell = tell.lock().unwrap().take();
        async move {
            tcp.write_all(b"bye").await.unwrap();
            tcp.shutdown().await.unwrap();
            let mut heard = Vec::new();
            tcp.read_to_end(&mut heard).await.unwrap();
            let _ = tell.unwrap().send(heard);
        }
    });
    let mut tcp = world.connect(host.await).await;
    let mut heard = Vec::new();
    within(tcp.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"bye");
    tcp.write_all(b"but wait").await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(within(told).await.unwrap(), b"but wait");
}

async fn echo_at_the_end() -> SocketAddr {
    let serve = |mut tcp: TcpStream| async move {
        let mut heard = Vec::new();
        tcp.read_to_end(&mut heard).await.unwrap();
        tcp.write_all(&heard).await.unwrap();
    };
    origin(serve).await
}

#[tokio::test]
async fn resets_arrive_as_resets() {
    let world = World::new().await;
    let rude = origin(|mut tcp| async move {
        let _ = tcp.read(&mut [0]).await;
        tcp.set_zero_linger().unwrap();
    });
    let mut tcp = world.connect(rude.await).await;
    tcp.write_all(b"x").await.unwrap();
    let error = within(tcp.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let host = origin(move |mut tcp| {
        let tell = tell.clone();
        async move {
            let error = tcp.read(&mut [0]).await.map_err(|error| error.kind());
            tell.send(error).unwrap();
        }
    });
    let tcp = world.connect(host.await).await;
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    let heard = within(told.recv()).await.unwrap();
    assert_eq!(heard, Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn what_was_said_before_a_reset_arrives_before_it() {
    // As much as the first window of TCP takes: what was not handed over is lost with a reset.
    const SAID: usize = 50_000;
    // Most of it is not there yet when the connection is reset.
    let world = World::with(Plan {
        delay: Duration::from_millis(50),
        ..Plan::default()
    });
    let world = world.await;
    let rude = origin(|mut tcp| async move {
        tcp.write_all(&bytes(1, SAID)).await.unwrap();
        tcp.set_zero_linger().unwrap();
    });
    let mut tcp = world.connect(rude.await).await;
    let mut heard = Vec::new();
    let error = within(tcp.read_to_end(&mut heard)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(heard == bytes(1, SAID), "{} bytes", heard.len());

    // So does a program.
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let host = origin(move |mut tcp| {
        let tell = tell.clone();
        async move {
            let mut heard = Vec::new();
            let end = tcp.read_to_end(&mut heard).await;
            tell.send((heard, end.map_err(|error| error.kind())))
                .unwrap();
        }
    });
    let mut tcp = world.connect(host.await).await;
    let said = bytes(2, SAID);
    tcp.write_all(&said).await.unwrap();
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    let (heard, end) = within(told.recv()).await.unwrap();
    assert_eq!(end.unwrap_err(), ErrorKind::ConnectionReset);
    assert!(
        heard == bytes(2, SAID)[..heard.len()],
        "{} bytes",
        heard.len()
    );
}

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
    world.there.find("not connected to name.invalid:80").await;
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
async fn standard_input_and_output_are_carried_to_the_end() {
    let (world, host) = (World::new().await, echo().await);
    let sent = bytes(3, 300_000);
    let mut heard = Vec::new();
    within(world.client.carry(&host.into(), &sent[..], &mut heard))
        .await
        .unwrap();
    assert!(heard == sent);
    let (mut nothing, host) = (Vec::new(), nobody().await);
    let refusal = within(world.client.carry(&host.into(), &b"x"[..], &mut nothing)).await;
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("refused"), "{refusal}");
}

#[tokio::test]
async fn standard_input_is_carried_on_after_the_host_has_ended_its_direction() {
    let world = World::new().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let host = origin(move |mut tcp| {
        let tell = tell.clone();
        async move {
            tcp.write_all(b"bye").await.unwrap();
            tcp.shutdown().await.unwrap();
            let mut heard = Vec::new();
            let _ = tcp.read_to_end(&mut heard).await;
            let _ = tell.send(heard);
        }
    });
    let host = host.await.into();
    let sent = bytes(4, 5_000_000);
    // The input begins once the host's end was heard.
    let ((mut type_in, input), (output, mut screen)) = (duplex(1000), duplex(1000));
    let typing = async {
        let mut heard = String::new();
        screen.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "bye");
        type_in.write_all(&sent).await.unwrap();
        drop(type_in);
    };
    let carry = world.client.carry(&host, input, output);
    let (carried, ()) = within(async { tokio::join!(carry, typing) }).await;
    carried.unwrap();
    // The client leaves as soon as its input is delivered, as the command does.
    world.client_endpoint.close(CloseCode::NO_ERROR, "").await;
    let heard = within(told.recv()).await.unwrap();
    assert!(heard == sent, "{} of {} bytes", heard.len(), sent.len());
}

#[tokio::test]
async fn input_that_the_host_does_not_take_is_a_failure() {
    let world = World::new().await;
    let rude = origin(|mut tcp| async move {
        tcp.write_all(b"bye").await.unwrap();
        tcp.shutdown().await.unwrap();
        let _ = tcp.read(&mut [0]).await;
        tcp.set_zero_linger().unwrap();
    });
    let rude = rude.await.into();
    let ((mut typed, input), (output, mut screen)) = (duplex(1000), duplex(1000));
    let typing = async {
        screen.read_to_end(&mut Vec::new()).await.unwrap();
        while typed.write_all(b"x").await.is_ok() {}
        // No end.
        std::future::pending::<()>().await
    };
    let carry = world.client.carry(&rude, input, output);
    let broken = tokio::select! {
        carried = within(carry) => carried.unwrap_err(),
        () = typing => unreachable!(),
    };
    assert!(matches!(broken, Broken::There(_)), "{broken}");
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
