//! Senders that were agreed to and bring nothing more.

use std::sync::Arc;
use std::time::Duration;

use dfcp::{CloseCode, ConnectionError, Endpoint, EndpointConfig, generate_key};
use dfcp_transfer::message::{self, FromReceiver, Reader};
use dfcp_transfer::{Entry, Error, Meter, OnConflict, People, Store, Wishes, offer};

/// The place is one of a few, and pings keep the connection.
#[tokio::test]
async fn who_says_no_more_gives_his_place_to_who_finds_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), OnConflict::Error).unwrap();
    let store = Arc::new(store.patient_for(Duration::from_secs(1)));
    let at = "127.0.0.1:0".parse().unwrap();
    let server = EndpointConfig::server(generate_key().unwrap(), at).max_connections(1);
    let server = Endpoint::bind(server).unwrap();
    let client = || Endpoint::bind(EndpointConfig::client(generate_key().unwrap())).unwrap();
    let (silent, other) = (client(), client());
    let connect = silent.connect(server.local_addr(), server.public_key());
    let (near, far) = tokio::join!(connect, server.accept());
    let (near, far) = (near.unwrap(), far.unwrap().accept());
    let session = tokio::spawn(async move {
        let meter = Meter::start();
        dfcp_transfer::receive(&far, store, &meter, async |_| Ok(())).await
    });
    let (mut control, replies) = near.open_bi().await.unwrap();
    let file = Entry {
        path: "x".into(),
        size: 1_000_000,
        ..Entry::default()
    };
    for part in offer::split(&[file], Wishes::default(), &People::default()) {
        message::write(&mut control, &part).await.unwrap();
    }
    let mut replies = Reader::new(replies);
    let agreed = replies.next::<FromReceiver>().await.unwrap();
    assert!(
        matches!(agreed, Some(FromReceiver::Accept { .. })),
        "{agreed:?}"
    );
    let comes_in = async {
        loop {
            let later = other.connect(server.local_addr(), server.public_key());
            let later = later.await.unwrap();
            let why = tokio::select! {
                came = server.accept() => return came.unwrap(),
                why = later.closed() => why,
            };
            let is_full = matches!(&why, ConnectionError::PeerClosed { code, .. } if *code == CloseCode::LIMIT);
            assert!(is_full, "{why:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(60), comes_in).await;
    let came = came.expect("must not wait for ever");
    assert_eq!(came.peer(), other.public_key());
    // What can be tried again is said.
    let why = near.closed().await;
    let is_told =
        matches!(&why, ConnectionError::PeerClosed { code, .. } if *code == CloseCode::LIMIT);
    assert!(is_told, "{why:?}");
    let received = session.await.unwrap().unwrap();
    assert!(
        matches!(received.failure, Some(Error::Silent)),
        "{received:?}"
    );
}

/// A sender's process ends when it has read the last word: its acknowledgement and its CLOSE may all be lost.
#[tokio::test]
async fn who_is_gone_when_all_is_said_is_not_waited_for_to_the_idle_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), OnConflict::Error).unwrap();
    let store = Arc::new(store.patient_for(Duration::from_secs(3)));
    let at = "127.0.0.1:0".parse().unwrap();
    let server = Endpoint::bind(EndpointConfig::server(generate_key().unwrap(), at)).unwrap();
    let (address, key) = (server.local_addr(), server.public_key());
    let (go, leaves) = tokio::sync::oneshot::channel::<()>();
    let (left, is_gone) = tokio::sync::oneshot::channel();
    let sender = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let held = runtime.block_on(async {
            let client = Endpoint::bind(EndpointConfig::client(generate_key().unwrap())).unwrap();
            let near = client.connect(address, key).await.unwrap();
            let (mut control, replies) = near.open_bi().await.unwrap();
            let directory = Entry {
                path: "d".into(),
                directory: true,
                ..Entry::default()
            };
            for part in offer::split(&[directory], Wishes::default(), &People::default()) {
                message::write(&mut control, &part).await.unwrap();
            }
            leaves.await.unwrap();
            (client, near, control, replies)
        });
        // Nothing runs here any more, and nothing says goodbye.
        left.send(()).unwrap();
        std::mem::forget((runtime, held));
    });
    let far = server.accept().await.unwrap().accept();
    let meter = Meter::start();
    let session = dfcp_transfer::receive(&far, store, &meter, async |_| {
        go.send(()).unwrap();
        is_gone.await.unwrap();
        Ok(())
    });
    // The idle timeout is twice as long.
    let received = tokio::time::timeout(Duration::from_secs(30), session).await;
    let received = received.expect("must not wait for the idle timeout");
    assert!(received.unwrap().failure.is_none());
    assert!(folder.path().join("d").is_dir());
    // What it waited is not taken for time that the files took.
    let waited = meter.ended().unwrap().elapsed();
    assert!(waited >= Duration::from_millis(100), "{waited:?}");
    sender.join().unwrap();
}
