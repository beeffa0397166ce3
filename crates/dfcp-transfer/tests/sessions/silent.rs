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
