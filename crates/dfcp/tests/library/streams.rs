//! Streams.

use crate::{bytes, client, pair, pair_of, server_at, within};
use bytes::Bytes;
use dfcp::{
    Chunk, Connection, Endpoint, EndpointConfig, Error, Profile, TransportConfig, generate_key,
};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_writer_learns_that_it_is_stopped_while_it_writes_nothing() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let stopped = send.stopped();
        let (_send, mut recv) = far.accept_bi().await.expect("comes");
        recv.stop(77.into());
        let code = stopped.await.expect("is told");
        assert_eq!(code, Some(77.into()));
        let error = send.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

        // One that is read to its end is delivered, not stopped. Saying the end waits for nobody.
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        send.finish().expect("is said");
        assert!(send.write_all(b"more").await.is_err());
        assert_eq!(send.stopped().await.expect("is told"), None);
        assert_eq!(send.delivered().await.expect("is told"), 0);
    })
    .await;
}

#[tokio::test]
async fn whole_blocks_come_and_go_in_their_own_buffers() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        let block = send.block_size().expect("is open");
        let data = bytes(3 * block + 1000);
        let ours = data.clone();
        let writer = tokio::spawn(async move {
            let whole = Bytes::from(ours);
            send.write_chunk(Bytes::from(whole[..block].to_vec()))
                .await?;
            send.write_chunk(whole.slice(block..2 * block)).await?; // not alone
            send.write_chunk(whole.slice(2 * block..)).await?;
            send.finish()?;
            send.delivered().await
        });
        let (_send, mut recv) = far.accept_bi().await.expect("comes");
        let mut got = Vec::new();
        loop {
            match recv.read_chunk(100_000).await.expect("reads") {
                Chunk::Data(bytes) => {
                    assert!((1..=100_000).contains(&bytes.len()));
                    got.extend_from_slice(&bytes);
                }
                Chunk::Gap(bytes) => panic!("{bytes} bytes are missing"),
                Chunk::End => break,
            }
        }
        assert!(got == data, "bytes differ");
        writer.await.expect("writer").expect("arrives");
    })
    .await;
}

#[tokio::test]
async fn streams_of_both_kinds_come_to_who_waits_for_them() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        for side in [(&near, &far), (&far, &near)] {
            let mut one_way = side.0.open_uni().await.expect("opens");
            one_way.write_all(b"one way").await.expect("fits");
            one_way.finish().expect("ends");
            let (mut both_ways, mut back) = side.0.open_bi().await.expect("opens");
            both_ways.write_all(b"both ways").await.expect("fits");
            both_ways.finish().expect("ends");
            let mut text = String::new();
            let (mut answer, mut inside) = side.1.accept_bi().await.expect("comes");
            inside.read_to_string(&mut text).await.expect("is whole");
            answer.write_all(b", and back").await.expect("fits");
            answer.finish().expect("ends");
            let mut inside = side.1.accept_uni().await.expect("comes");
            inside.read_to_string(&mut text).await.expect("is whole");
            back.read_to_string(&mut text).await.expect("is whole");
            assert_eq!(text, "both waysone way, and back");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_urgent_overtakes_what_was_written_before() {
    within(async {
        // Slow enough that the first stream cannot have left before the second is written.
        let slow = Profile::auto().with_fixed_rate(dfcp::Rate::from_bps(20_000_000));
        let transport = TransportConfig::default().profile(slow);
        let (client, server) = (client(), server_at("127.0.0.1:0"));
        let connect = client.connect_with(transport, server.local_addr(), None);
        let (near, far) = tokio::join!(connect, server.accept());
        let (near, far) = (near.expect("connects"), far.expect("comes").accept());
        let mut bulk = near.open_uni().await.expect("opens");
        bulk.set_priority(-1).expect("is open");
        bulk.write_all(&bytes(1_000_000)).await.expect("fits");
        bulk.finish().expect("ends");
        let mut urgent = near.open_uni().await.expect("opens");
        urgent.write_all(&bytes(200_000)).await.expect("fits");
        urgent.finish().expect("ends");
        let (mut first, mut second) = (
            far.accept_uni().await.expect("comes"),
            far.accept_uni().await.expect("comes"),
        );
        let order = std::sync::Mutex::new(Vec::new());
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (one, two) = tokio::join!(
            async {
                first.read_to_end(&mut one).await.expect("is whole");
                order.lock().expect("whole").push(one.len());
            },
            async {
                second.read_to_end(&mut two).await.expect("is whole");
                order.lock().expect("whole").push(two.len());
            },
        );
        ((), ()) = (one, two);
        assert_eq!(*order.lock().expect("whole"), [200_000, 1_000_000]);
    })
    .await;
}

/// More of them than a connection may have open at once.
#[tokio::test]
async fn streams_that_were_reset_are_forgotten_and_say_so_again() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        for _ in 0..600 {
            let mut out = near.open_uni().await.expect("opens");
            out.write_all(b"x").await.expect("takes it");
            let mut inside = far.accept_uni().await.expect("comes");
            out.reset(dfcp::VarInt::from_u32(7));
            let mut bytes = [0; 9];
            let error = loop {
                match inside.read(&mut bytes).await {
                    Ok(read) => assert!(read > 0, "no end"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Reset(_)), "{error:?}");
            let again = inside.read(&mut bytes).await;
            assert!(matches!(again, Err(Error::Reset(_))), "{again:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_a_stream_that_was_given_up_waits_no_longer() {
    within(async {
        let (_client, near, _server, _far) = pair().await;
        // Reset by whoever holds it, while others wait and before.
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let mut before = Box::pin(send.stopped());
        let pending = tokio::time::timeout(Duration::from_millis(10), &mut before).await;
        assert!(pending.is_err(), "nothing has happened yet");
        send.reset(7.into());
        assert_eq!(before.await.expect("is told"), None);
        assert_eq!(send.stopped().await.expect("is told"), None);
        let delivered = send.delivered().await;
        assert!(matches!(delivered, Err(Error::Closed)), "{delivered:?}");
        // Dropped.
        let mut send = near.open_uni().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let stopped = send.stopped();
        drop(send);
        assert_eq!(stopped.await.expect("is told"), None);
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_stop_does_not_hold_the_connection() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let (mut send, recv) = near.open_bi().await.expect("opens");
        send.write_all(b"news").await.expect("fits");
        let stopped = send.stopped();
        drop((send, recv));
        let (mut send, recv) = near.open_bi().await.expect("opens");
        send.finish().expect("ends");
        let unknown = send.stopped();
        drop((send, recv, near));
        far.closed().await;
        assert_eq!(stopped.await.expect("is told"), None);
        // Whichever came first: the acknowledgement of the end, or that of the connection.
        let unknown = unknown.await;
        assert!(matches!(unknown, Ok(None) | Err(_)), "{unknown:?}");
    })
    .await;
}

/// A server that allows one stream at a time, and a client's connection to it.
async fn one_at_a_time() -> ([Endpoint; 2], Connection, Connection) {
    let bind = "127.0.0.1:0".parse().expect("an address");
    let config = EndpointConfig::server(generate_key().expect("a key"), bind);
    let server = config.transport(TransportConfig::default().max_channels(1));
    let (client, server) = (client(), Endpoint::bind(server).expect("binds"));
    let (near, far) = pair_of(&client, &server).await;
    ([client, server], near, far)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_stream_that_is_read_to_its_end_makes_room_for_who_waits_to_open_one() {
    within(async {
        let (_endpoints, near, far) = one_at_a_time().await;
        let (mut send, mut recv) = near.open_bi().await.expect("opens");
        send.write_all(b"question").await.expect("fits");
        send.finish().expect("ends");
        let (mut back, mut asked) = far.accept_bi().await.expect("comes");
        let mut text = String::new();
        asked.read_to_string(&mut text).await.expect("is complete");
        send.delivered().await.expect("is told");
        // All that could be told of sending was told; what is left is for the reader to do.
        let mut opening = pin!(near.open_bi());
        let first = Arc::new(Woken::default());
        let waker = Waker::from(first.clone());
        let opened = opening.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(opened.is_pending(), "there is room for one");
        back.write_all(b"answer").await.expect("fits");
        back.finish().expect("ends");
        recv.read_to_string(&mut text).await.expect("is complete");
        while first.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        opening.await.expect("opens");
    })
    .await;
}

#[tokio::test]
async fn who_waits_to_open_a_stream_is_woken_for_nothing_else() {
    within(async {
        let (_endpoints, near, far) = one_at_a_time().await;
        let (mut send, _recv) = near.open_bi().await.expect("opens");
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut openers: Vec<_> = (0..100).map(|_| Box::pin(near.open_bi())).collect();
        for opener in &mut openers {
            let opened = opener.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(opened.is_pending());
        }
        for i in 0..20 {
            far.send_datagram(Bytes::from(vec![i])).expect("fits");
            assert_eq!(near.read_datagram().await.expect("comes"), vec![i]);
            let mut other_way = far.open_uni().await.expect("opens");
            other_way.write_all(b"news").await.expect("fits");
            other_way.finish().expect("ends");
            let mut incoming = near.accept_uni().await.expect("comes");
            let mut text = String::new();
            incoming.read_to_string(&mut text).await.expect("whole");
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        // There is room for one, and so one of them is told; it need not be there any more.
        send.reset(0.into());
        drop(_recv);
        while woken.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        drop(openers.remove(0));
        openers.remove(0).await.expect("opens");
    })
    .await;
}
