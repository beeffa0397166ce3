//! What a key may carry.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dfcp::Rate;
use dfcp_proxy::{Limits, Quota, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Plan, World, bytes, connect_request, echo, loopback, origin, rules, within};

async fn world(limits: Limits) -> World {
    let plan = Plan {
        limits,
        ..Plan::default()
    };
    World::with(plan).await
}

/// What it sends and how long it took until it was back.
async fn round_trip(world: &World, host: SocketAddr, len: usize) -> Duration {
    let (start, sent) = (Instant::now(), bytes(1, len));
    let mut tcp = world.connect(host).await;
    let (mut read, mut write) = tcp.split();
    let talk = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut heard = Vec::new();
    let (_, read) = within(async { tokio::join!(talk, read.read_to_end(&mut heard)) }).await;
    read.unwrap();
    assert!(heard == sent, "{} of {} bytes", heard.len(), sent.len());
    start.elapsed()
}

#[tokio::test]
async fn a_key_is_slowed_to_its_rate_over_all_its_connections() {
    const EACH: usize = 1_000_000;
    let rate = Some(Rate::from_bps(8_000_000));
    let world = world(Limits {
        rate,
        ..Limits::default()
    });
    let (world, host) = (world.await, echo().await);
    let start = Instant::now();
    tokio::join!(
        round_trip(&world, host, EACH),
        round_trip(&world, host, EACH)
    );
    // 2 MB each way at 1 MB/s. A connection may be a second ahead that has sent little since it last paused,
    // which on a busy machine is each of them at any time, and the last piece of 64 KiB leaves without waiting.
    let least = (2 * EACH - 65_536) as f64 / 1e6 - 1.0;
    let took = start.elapsed().as_secs_f64();
    assert!(took > least, "{took} s, {least} at least");
    world.there.find("is slowed to its 8000000 bit/s").await;
}

#[tokio::test]
async fn a_key_that_has_carried_what_it_may_is_cut_off_and_refused() {
    let quota = Some(Quota {
        bytes: 300_000,
        period: Duration::from_secs(3600),
    });
    let world = world(Limits {
        quota,
        ..Limits::default()
    });
    let (world, host) = (world.await, echo().await);
    round_trip(&world, host, 100_000).await;
    // A connection that goes on beyond it is broken, which looks like no end.
    let endless = origin(|mut tcp| async move {
        let page = bytes(2, 50_000);
        while tcp.write_all(&page).await.is_ok() {}
    });
    let mut tcp = world.connect(endless.await).await;
    let mut heard = Vec::new();
    let end = within(tcp.read_to_end(&mut heard)).await;
    assert!(end.is_err() && heard.len() < 300_000, "{end:?}");
    assert_eq!(world.socks(&connect_request(host)).await.1, 1);
    let words = "has carried the 300000 bytes that it may in 3600 s";
    world.events.find(words).await;
    world
        .there
        .find(&format!("is refused: this key {words}"))
        .await;
}

/// Whoever reaches the port of a listener opens streams of the client's.
#[tokio::test]
async fn strangers_at_a_listener_leave_streams_to_the_client() {
    const STREAMS: u64 = 8;
    let plan = Plan {
        listen: Some(rules(&["127.0.0.1/32"])),
        limits: Limits {
            streams: STREAMS,
            ..Limits::default()
        },
        ..Plan::default()
    };
    let (world, host) = (World::with(plan).await, echo().await);
    let (client, bind) = (world.client.clone(), Target::from(loopback()));
    tokio::spawn(async move { client.reverse(bind, host.into()).await });
    let listening = world.events.find("the server listens at").await;
    let at = listening.split(' ').nth(4).unwrap();
    // They stay for as long as they are let.
    let mut strangers = Vec::new();
    for _ in 0..2 * STREAMS {
        // Who is refused at once may see that before the connection is there.
        strangers.extend(TcpStream::connect(at).await);
    }
    world.there.find("and may have no more").await;
    // The listener has one, they have half of all.
    let mut own = Vec::new();
    for _ in 0..STREAMS / 2 - 1 {
        own.push(world.connect(host).await);
    }
    assert_eq!(world.socks(&connect_request(host)).await.1, 1);
    let carried = async |tcp: &mut TcpStream| {
        tcp.write_all(b"in").await.is_ok() && tcp.read_exact(&mut [0; 2]).await.is_ok()
    };
    let mut served = 0;
    for mut stranger in strangers {
        served += u64::from(within(carried(&mut stranger)).await);
    }
    assert_eq!(served, STREAMS / 2);
}
