//! How a program and its host end a connection, and break it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Plan, World, bytes, origin, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
