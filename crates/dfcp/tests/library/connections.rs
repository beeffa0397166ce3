//! What connections have beside streams and objects.

use crate::{bytes, client, pair, pair_of, within};
use bytes::Bytes;
use dfcp::{
    CloseCode, Connection, ConnectionError, Endpoint, EndpointConfig, Error, TransportConfig,
    generate_key,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn datagrams_come_whole_and_the_oldest_make_room() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let most = near.max_datagram_size();
        for size in [0, 1, 100, most] {
            let sent = Bytes::from(bytes(size));
            near.send_datagram(sent.clone()).expect("fits");
            // Loopback loses none that are read in time.
            assert_eq!(far.read_datagram().await.expect("comes"), sent);
        }
        let long = near.send_datagram(Bytes::from(bytes(most + 1)));
        assert!(matches!(long, Err(Error::Datagram(_))), "{long:?}");

        // Nobody reads, and what waits is bounded: of 1000 the last come.
        let small = TransportConfig::default().datagram_buffer(100 * (500 + 64));
        let server = EndpointConfig::server(
            generate_key().expect("a key"),
            "127.0.0.1:0".parse().expect("an address"),
        );
        let server = Endpoint::bind(server.transport(small)).expect("binds");
        let (client, count) = (client(), 1000_u32);
        let (near, far) = pair_of(&client, &server).await;
        for i in 0..count {
            let mut datagram = i.to_be_bytes().to_vec();
            datagram.resize(500, 0);
            near.send_datagram(Bytes::from(datagram)).expect("fits");
        }
        let mut flush = near.open_uni().await.expect("opens");
        flush.write_all(b"after them").await.expect("fits");
        flush.shutdown().await.expect("arrives");
        // The stream takes turns with them, so it may arrive before the last of them has left.
        let left = || near.stats().datagrams_sent + near.stats().datagrams_dropped;
        while left() < u64::from(count)
            || far.stats().datagrams_received < near.stats().datagrams_sent
        {
            tokio::task::yield_now().await;
        }
        let dropped = far.stats().datagrams_dropped;
        assert!(dropped >= 900 - near.stats().datagrams_dropped, "{dropped}");
        let mut numbers = Vec::new();
        near.close(CloseCode::NO_ERROR, "");
        while let Ok(datagram) = far.read_datagram().await {
            numbers.push(u32::from_be_bytes(datagram[..4].try_into().expect("four")));
        }
        assert!(numbers.len() <= 100 && numbers.is_sorted(), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&(count - 1)));
        assert!(near.send_datagram(Bytes::new()).is_err());
    })
    .await;
}

/// As a server does that answers and returns: neither the stream nor the connection is held any longer.
#[tokio::test]
async fn what_was_finished_arrives_though_nobody_holds_the_connection() {
    within(async {
        let (client, near, _server, far) = pair().await;
        // More than leaves at once.
        let data = bytes(1_000_000);
        let mut send = near.open_uni().await.expect("opens");
        send.write_all(&data).await.expect("fits");
        send.finish().expect("ends");
        near.send_datagram(Bytes::from_static(b"and this"))
            .expect("fits");
        drop((send, near));
        let mut came = Vec::new();
        let mut recv = far.accept_uni().await.expect("comes");
        assert_eq!(far.close_reason(), None);
        recv.read_to_end(&mut came).await.expect("is whole");
        assert!(came == data, "bytes differ");
        assert_eq!(far.read_datagram().await.expect("comes"), "and this");
        let end = far.closed().await;
        let in_order = matches!(&end, ConnectionError::PeerClosed { code, .. } if *code == CloseCode::NO_ERROR);
        assert!(in_order, "{end:?}");
        client.wait_idle().await;
    })
    .await;
}

/// Its peer reads what was finished as slowly as it likes, and learns meanwhile that nobody hears it.
#[tokio::test]
async fn what_is_said_to_a_connection_that_nobody_holds_is_stopped() {
    within(async {
        let key = generate_key().expect("a key");
        let slow = TransportConfig::default().receive_budget(1 << 18);
        let server = EndpointConfig::server(key, "127.0.0.1:0".parse().expect("an address"));
        let server = Endpoint::bind(server.transport(slow)).expect("binds");
        let client = client();
        let (near, far) = pair_of(&client, &server).await;
        // More than the peer takes before somebody reads it.
        let data = bytes(1_000_000);
        let mut send = near.open_uni().await.expect("opens");
        send.write_all(&data).await.expect("fits");
        send.finish().expect("ends");
        drop((send, near));
        let mut late = far.open_uni().await.expect("opens");
        late.write_all(b"does anybody hear this?")
            .await
            .expect("fits");
        let why = late.stopped().await;
        assert!(matches!(why, Ok(Some(_))), "{why:?}");
        let mut came = Vec::new();
        let mut recv = far.accept_uni().await.expect("comes");
        recv.read_to_end(&mut came).await.expect("is whole");
        assert!(came == data, "bytes differ");
    })
    .await;
}

#[tokio::test]
async fn both_ends_export_the_same_key_material_and_no_others() {
    within(async {
        let (client, near, server, far) = pair().await;
        let (other, _far) = pair_of(&client, &server).await;
        let export = |connection: &Connection, label: &[u8], context: &[u8]| {
            let mut out = [0; 48];
            let exported = connection.export_keying_material(&mut out, label, context);
            exported.expect("is established");
            out
        };
        let ours = export(&near, b"label", b"context");
        assert_eq!(ours, export(&far, b"label", b"context"));
        for unlike in [
            export(&near, b"label", b"contexT"),
            export(&near, b"labelc", b"ontext"),
            export(&other, b"label", b"context"),
        ] {
            assert_ne!(ours, unlike);
        }
    })
    .await;
}
