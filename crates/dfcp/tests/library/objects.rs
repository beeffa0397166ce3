//! Objects.

use crate::{bytes, pair, pair_of, within};
use dfcp::{Endpoint, EndpointConfig, Error, Progress, TransportConfig, generate_key};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn objects_come_from_any_reader_and_go_into_any_writer() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let data = bytes(3_000_003);
        let hash = *blake3::hash(&data).as_bytes();
        let (source, progress) = (data.clone(), Progress::default());
        let send = async {
            // From memory, on a thread; then from what is only read asynchronously.
            let cursor = std::io::Cursor::new(source.clone());
            let sent = near.send_object(cursor, source.len() as u64, &progress);
            let first = sent.await.expect("sends");
            let second = near.send_object_from(&source[..], &progress).await;
            (first, second.expect("sends"))
        };
        let receive = async {
            let (mut memory, counted) = (Vec::new(), Progress::default());
            let object = far.accept_object().await.expect("comes");
            let first = object.recv_object_into(&mut memory, u64::MAX, &counted);
            let first = first.await.expect("receives");
            assert!(memory == data, "bytes differ");
            let object = far.accept_object().await.expect("comes");
            let mut read = Vec::new();
            let second = object
                .in_order()
                .expect("is whole")
                .read_to_end(&mut read)
                .await;
            assert_eq!(second.expect("reads"), data.len());
            assert!(read == data, "bytes differ");
            first
        };
        let ((first, second), received) = tokio::join!(send, receive);
        for summary in [first, second, received] {
            assert_eq!((summary.size, summary.hash), (data.len() as u64, hash));
        }
        assert_eq!(progress.bytes(), 2 * data.len() as u64);
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_longer_than_it_may_be_ends_for_both() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let data = bytes(500_000);
        let progress = Progress::default();
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let object = far.accept_object().await.expect("comes");
            let target = tokio::io::sink();
            object
                .recv_object_into(target, 1000, &Progress::default())
                .await
        };
        let (sent, received) = tokio::join!(send, receive);
        assert!(matches!(sent, Err(Error::Reset(_))), "{sent:?}");
        assert!(
            matches!(received, Err(Error::TooLong(1000))),
            "{received:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn an_object_of_which_parts_were_taken_has_no_order() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let data = bytes(1_000_000);
        let progress = Progress::default();
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let mut object = far.accept_object().await.expect("comes");
            object.next_part().await.expect("comes").expect("not over");
            object.in_order().err()
        };
        let (sent, refused) = tokio::join!(send, receive);
        assert!(matches!(refused, Some(Error::Closed)), "{refused:?}");
        assert!(matches!(sent, Err(Error::Reset(_))), "{sent:?}");
    })
    .await;
}

/// Bytes in memory that say when they are read.
struct Begun<T>(T, Option<Arc<AtomicUsize>>);

impl<T: Read> Read for Begun<T> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if let Some(begun) = self.1.take() {
            begun.fetch_add(1, Ordering::Relaxed);
        }
        self.0.read(out)
    }
}

/// Threads for what blocks are few, and anyone can let objects come and take nothing of them.
#[test]
fn objects_that_nobody_takes_keep_nobody_from_sending() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(within(async {
        // Less than any of the objects: none can leave whole before something of it is taken.
        let small = TransportConfig::default()
            .send_buffer(1 << 20)
            .receive_budget(1 << 20);
        let key = || generate_key().expect("a key");
        let bind = "127.0.0.1:0".parse().expect("an address");
        let client = EndpointConfig::client(key()).transport(small.clone());
        let server = EndpointConfig::server(key(), bind).transport(small);
        let client = Endpoint::bind(client).expect("binds");
        let server = Endpoint::bind(server).expect("binds");
        let (near, far) = pair_of(&client, &server).await;
        let (data, begun) = (bytes(4_000_003), Arc::new(AtomicUsize::new(0)));
        let mut senders = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let source = std::io::Cursor::new(data.clone());
            let source = Begun(source, Some(begun.clone()));
            let (near, size) = (near.clone(), data.len() as u64);
            senders.spawn(async move {
                let progress = Progress::default();
                near.send_object(source, size, &progress).await
            });
        }
        while begun.load(Ordering::Relaxed) < 8 {
            tokio::task::yield_now().await;
        }
        let work = tokio::task::spawn_blocking(|| 7);
        assert_eq!(work.await.expect("does not panic"), 7);
        assert!(senders.try_join_next().is_none());
        // And they go on once they are taken.
        let mut receivers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let object = far.accept_object().await.expect("comes");
            receivers.spawn(async move {
                let (mut memory, progress) = (Vec::new(), Progress::default());
                let received = object.recv_object_into(&mut memory, u64::MAX, &progress);
                received.await.map(|summary| (summary, memory))
            });
        }
        for _ in 0..8 {
            let sent = senders.join_next().await.expect("eight");
            let received = receivers.join_next().await.expect("eight");
            let (summary, memory) = received.expect("does not panic").expect("receives");
            assert_eq!(sent.expect("does not panic").expect("sends"), summary);
            assert!(memory == data, "bytes differ");
        }
    }));
}

/// Threads for what blocks are few, and anyone can begin objects and say no more of them.
#[test]
fn objects_that_stand_still_keep_nobody_from_receiving() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(within(async {
        let (_client, near, _server, far) = pair().await;
        let file = || tempfile::tempfile().expect("a file");
        let (mut halves, mut receivers) = (Vec::new(), tokio::task::JoinSet::new());
        for i in 0..4 {
            let mut half = near.open_object().await.expect("opens");
            let mut block = bytes(half.block_size().expect("is open"));
            half.write_buffer(&mut block).await.expect("fits");
            halves.push(half);
            let mut object = far.accept_object().await.expect("comes");
            let (progress, target) = (Progress::default(), file());
            let seen = progress.clone();
            receivers.spawn(async move {
                match i % 2 {
                    0 => object
                        .recv_object(target, u64::MAX, &progress)
                        .await
                        .map(drop),
                    _ => object
                        .recv_blocks(target, u64::MAX, &progress)
                        .await
                        .map(drop),
                }
            });
            while seen.bytes() == 0 {
                tokio::task::yield_now().await;
            }
        }
        let (data, progress) = (bytes(3_000_003), Progress::default());
        let send = near.send_object_from(&data[..], &progress);
        let receive = async {
            let mut object = far.accept_object().await.expect("comes");
            let target = file();
            object
                .recv_object(target, u64::MAX, &Progress::default())
                .await
        };
        let (sent, received) = tokio::join!(send, receive);
        assert_eq!(received.expect("receives"), sent.expect("sends"));
        assert_eq!(receivers.len(), 4);
        halves.iter_mut().for_each(|half| half.reset(7.into()));
        while let Some(ended) = receivers.join_next().await {
            let ended = ended.expect("does not panic");
            assert!(matches!(ended, Err(Error::Reset(_))), "{ended:?}");
        }
    }));
}

/// Who asks for several by name is told the number of each; the most urgent one goes first all the same.
#[tokio::test]
async fn the_peer_knows_an_object_by_the_number_that_its_sender_reads() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let mut named = std::collections::BTreeMap::new();
        let mut senders = tokio::task::JoinSet::new();
        let mut opened = Vec::new();
        for _ in 0..3 {
            opened.push(near.open_object().await.expect("opens"));
        }
        // They are sent in another order than they were opened in.
        for object in opened.into_iter().rev() {
            let data = bytes(100_000 + 1000 * object.index() as usize);
            assert_eq!(named.insert(object.index(), data.clone()), None);
            object.set_priority(object.index() as i32).expect("is open");
            let size = data.len() as u64;
            senders.spawn(async move {
                let source = std::io::Cursor::new(data);
                object.send_object(source, size, &Progress::default()).await
            });
        }
        for _ in 0..3 {
            let object = far.accept_object().await.expect("comes");
            let index = object.index();
            let (mut memory, progress) = (Vec::new(), Progress::default());
            let received = object.recv_object_into(&mut memory, u64::MAX, &progress);
            let received = received.await.expect("receives");
            assert_eq!(received.size, memory.len() as u64);
            assert!(named.remove(&index) == Some(memory), "{index} differs");
        }
        assert!(named.is_empty());
        while let Some(sent) = senders.join_next().await {
            sent.expect("does not panic").expect("sends");
        }
    })
    .await;
}

/// What a call that was dropped has taken is gone; the rest is not to pass for all of it.
#[tokio::test]
async fn who_drops_a_call_that_receives_has_given_the_object_up() {
    within(async {
        let (_client, near, _server, far) = pair().await;
        let file = || tempfile::tempfile().expect("a file");
        for blocks in [false, true] {
            let mut half = near.open_object().await.expect("opens");
            let mut block = bytes(half.block_size().expect("is open"));
            half.write_buffer(&mut block).await.expect("fits");
            let mut object = far.accept_object().await.expect("comes");
            let progress = Progress::default();
            tokio::select! {
                received = object.recv_object(file(), u64::MAX, &progress) => panic!("{received:?}"),
                () = async {
                    while progress.bytes() == 0 {
                        tokio::task::yield_now().await;
                    }
                } => {}
            }
            half.write_all(b"the rest").await.expect("fits");
            let again = match blocks {
                true => object.recv_blocks(file(), u64::MAX, &progress).await.map(drop),
                false => object.recv_object(file(), u64::MAX, &progress).await.map(drop),
            };
            assert!(matches!(again, Err(Error::Closed)), "{again:?}");
            let stopped = half.stopped().await.expect("is there");
            assert_eq!(stopped, Some(0.into()));
        }
    })
    .await;
}
