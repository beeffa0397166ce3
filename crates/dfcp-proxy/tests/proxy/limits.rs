//! What a key may carry.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dfcp::Rate;
use dfcp_proxy::{Limits, Quota};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Plan, World, bytes, connect_request, echo, origin, within};

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
