//! Senders that say more than there is to do, or faster than a disk does it.

use std::sync::Arc;
use std::time::Duration;

use dfcp::{Connection, RecvStream, SendStream, TransportConfig};
use dfcp_transfer::message::{self, FromSender};
use dfcp_transfer::{
    DONE, Entry, Error, Keep, Limits, Meter, OnConflict, Outcome, People, Received, Store, Wishes,
    offer,
};
use tokio::io::AsyncWriteExt;

use crate::common::{connected_with, hear_out};

/// Ranges that a message names at most (docs/spec/files.md).
const LISTED: u64 = 1024;
/// And how long each is, but for the last of a file.
const BLOCK: u64 = 512;

/// A session with a sender of these files that says what it likes.
async fn session(
    files: &[Entry],
    play: impl AsyncFnOnce(&Connection, &mut SendStream, RecvStream) -> Result<(), Error>,
) -> Received {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        bytes: u64::MAX,
        ..Limits::default()
    };
    let keep = Keep {
        holes: true,
        ..Keep::default()
    };
    let store = Store::open(folder.path(), OnConflict::Error).unwrap();
    let store = Arc::new(store.with_limits(limits).keeping(keep));
    // What is under way at both ends and between them.
    let transport = TransportConfig::default();
    let transport = transport.receive_budget(1 << 20).send_buffer(1 << 20);
    let (_endpoints, near, far) = connected_with(&transport).await;
    let meter = Meter::start();
    let send = async {
        let (mut control, replies) = near.open_bi().await?;
        for part in offer::split(files, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await?;
        }
        play(&near, &mut control, replies).await?;
        near.close(DONE, "");
        Ok::<_, Error>(())
    };
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    let (sent, received) = tokio::join!(send, receive);
    let received = received.unwrap();
    assert!(sent.is_ok() || received.failure.is_some(), "{sent:?}");
    received
}

fn file(size: u64) -> Entry {
    Entry {
        path: "x".into(),
        size,
        mode: 0o644,
        ..Entry::default()
    }
}

/// The words that a file is all there.
fn sent(index: u64, content: &[u8]) -> FromSender {
    FromSender::Sent {
        index,
        size: content.len() as u64,
        blake3: blake3::hash(content).into(),
        grown: false,
    }
}

#[tokio::test]
async fn more_parts_than_a_message_names_end_the_session() {
    for (count, is_welcome) in [(LISTED, true), (LISTED + 1, false)] {
        let size = LISTED * BLOCK;
        let (files, content) = ([file(size)], vec![7; size as usize]);
        let received = session(&files, async |near, control, replies| {
            // The last one is of no bytes: these are not to be had for nothing either.
            let part = |i: u64| (i * BLOCK, (size - i * BLOCK).min(BLOCK));
            let extents = (0..count).map(part).collect();
            let part = FromSender::Part { index: 0, extents };
            message::write(control, &part).await?;
            let mut object = near.open_object().await?;
            object.write_all(&content).await?;
            object.finish()?;
            message::write(control, &sent(0, &content)).await?;
            hear_out(replies).await;
            Ok(())
        });
        let received = received.await;
        assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        let is_done = received.outcomes.get(&0) == Some(&Outcome::Done);
        assert_eq!(is_done, is_welcome, "{received:?}");
    }
}

/// Each costs the receiver a call of its system.
#[tokio::test]
async fn parts_and_holes_of_a_few_bytes_each_end_the_session() {
    // A block, what is left of the file behind it, and bytes one by one.
    let whole = [(0, BLOCK), (BLOCK, 100)];
    let bytes = [(0, BLOCK), (BLOCK, 1), (BLOCK + 1, 99)];
    for (extents, is_welcome) in [(&whole[..], true), (&bytes[..], false)] {
        for are_holes in [false, true] {
            let content = vec![0; BLOCK as usize + 100];
            let files = [file(content.len() as u64)];
            let received = session(&files, async |near, control, replies| {
                let (index, extents) = (0, extents.to_vec());
                let said = match are_holes {
                    false => FromSender::Part { index, extents },
                    true => FromSender::Holes { index, extents },
                };
                message::write(control, &said).await?;
                if !are_holes {
                    let mut object = near.open_object().await?;
                    object.write_all(&content).await?;
                    object.finish()?;
                }
                message::write(control, &sent(0, &content)).await?;
                hear_out(replies).await;
                Ok(())
            });
            let received = received.await;
            assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        }
    }
}

/// What a list names takes as much memory as the list itself.
#[tokio::test]
async fn lists_of_holes_wait_at_the_sender_while_the_disk_does_other_things() {
    // With offsets of 13 digits 7 MB in all, several times what is under way.
    const LISTS: u64 = 400;
    // A block of the transport, and some of the next.
    const HALF: u64 = 200_000;
    let size = 8 << 40;
    let sparse = Entry {
        data: Some(16 * HALF),
        ..file(size)
    };
    let files = [sparse];
    let received = session(&files, async |near, control, replies| {
        // Objects that never end keep the receiver busy.
        let mut objects = Vec::new();
        for i in 0..8 {
            let extents = vec![(i * 2 * HALF, 2 * HALF)];
            message::write(control, &FromSender::Part { index: 0, extents }).await?;
            let mut object = near.open_object().await?;
            object.write_all(&[7; HALF as usize]).await?;
            objects.push(object);
        }
        let flood = async {
            for i in 0..LISTS {
                let place = |k| (size - (1 + i * LISTED + k) * BLOCK, BLOCK);
                let extents = (0..LISTED).map(place).collect();
                message::write(control, &FromSender::Holes { index: 0, extents }).await?;
            }
            Ok::<_, Error>(())
        };
        let taken = tokio::time::timeout(Duration::from_secs(5), flood).await;
        if let Ok(ended) = taken {
            panic!("the receiver took all lists, {ended:?}");
        }
        drop((objects, replies));
        Ok(())
    });
    let received = received.await;
    assert!(received.outcomes[&0] != Outcome::Done, "{received:?}");
}

#[tokio::test]
async fn no_more_files_are_begun_than_a_sender_reads() {
    // Each of them is open at the receiver, with its journal.
    for (count, is_welcome) in [(16, true), (17, false)] {
        let one = |i: u64| Entry {
            path: i.to_string(),
            data: Some(0),
            ..file(1000)
        };
        let files: Vec<_> = (0..count).map(one).collect();
        let received = session(&files, async |_, control, replies| {
            for index in 0..count {
                let extents = vec![(0, 1000)];
                message::write(control, &FromSender::Holes { index, extents }).await?;
            }
            for index in 0..count {
                message::write(control, &sent(index, &[0; 1000])).await?;
            }
            hear_out(replies).await;
            Ok(())
        });
        let received = received.await;
        assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        let is_done = |outcome: &Outcome| *outcome == Outcome::Done;
        let done = received
            .outcomes
            .values()
            .filter(|outcome| is_done(outcome));
        assert_eq!(done.count() as u64 == count, is_welcome);
    }
}

#[tokio::test]
async fn the_largest_packs_are_welcome_and_larger_ones_end_the_session() {
    for (count, size, is_welcome) in [
        (4, 256 << 10, true),
        (4, (256 << 10) + 1, false),
        (256, 1, true),
        (257, 1, false),
    ] {
        let one = |i: u64| Entry {
            path: i.to_string(),
            ..file(size)
        };
        let files: Vec<_> = (0..count).map(one).collect();
        let received = session(&files, async |near, control, replies| {
            let hash = blake3::hash(&vec![7; size as usize]).into();
            let files = (0..count).map(|i| (i, hash)).collect();
            message::write(
                control,
                &FromSender::Pack {
                    files,
                    grown: Vec::new(),
                },
            )
            .await?;
            let mut object = near.open_object().await?;
            object.write_all(&vec![7; (count * size) as usize]).await?;
            object.finish()?;
            hear_out(replies).await;
            Ok(())
        });
        let received = received.await;
        assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        let is_done = |outcome: &Outcome| *outcome == Outcome::Done;
        assert_eq!(received.outcomes.values().any(is_done), is_welcome);
    }
}

#[tokio::test]
async fn a_file_comes_twice_at_most() {
    const SIZE: u64 = 1000;
    for (times, is_welcome) in [(2, true), (3, false)] {
        let files = [file(SIZE)];
        let received = session(&files, async |near, control, replies| {
            for _ in 0..times {
                let extents = vec![(0, SIZE)];
                message::write(control, &FromSender::Part { index: 0, extents }).await?;
                let mut object = near.open_object().await?;
                object.write_all(&[7; SIZE as usize]).await?;
                object.finish()?;
            }
            message::write(control, &sent(0, &[7; SIZE as usize])).await?;
            hear_out(replies).await;
            Ok(())
        });
        let received = received.await;
        assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        let is_done = received.outcomes.get(&0) == Some(&Outcome::Done);
        assert_eq!(is_done, is_welcome, "{received:?}");
    }
}

#[tokio::test]
async fn holes_are_said_twice_at_most() {
    const SIZE: u64 = 100_000;
    for (times, is_welcome) in [(2, true), (3, false)] {
        let files = [file(SIZE)];
        let received = session(&files, async |_, control, replies| {
            for _ in 0..times {
                let extents = vec![(0, SIZE)];
                message::write(control, &FromSender::Holes { index: 0, extents }).await?;
            }
            message::write(control, &sent(0, &[0; SIZE as usize])).await?;
            hear_out(replies).await;
            Ok(())
        });
        let received = received.await;
        assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        let is_done = received.outcomes.get(&0) == Some(&Outcome::Done);
        assert_eq!(is_done, is_welcome, "{received:?}");
    }
}

#[tokio::test]
async fn no_more_objects_are_announced_than_may_be_on_their_way() {
    const FILES: u64 = 8;
    for (count, is_welcome) in [(128_u64, true), (129, false)] {
        let one = |i: u64| Entry {
            path: i.to_string(),
            ..file(count.div_ceil(FILES))
        };
        let files: Vec<_> = (0..FILES).map(one).collect();
        let of_file = |index: u64| files[index as usize].size;
        let received = session(&files, async |near, control, replies| {
            for i in 0..count {
                let (index, extents) = (i % FILES, vec![(i / FILES, 1)]);
                message::write(control, &FromSender::Part { index, extents }).await?;
            }
            // An object that comes before its word would be paired with an earlier one.
            if is_welcome {
                for _ in 0..count {
                    let mut object = near.open_object().await?;
                    object.write_all(&[7]).await?;
                    object.finish()?;
                }
                for index in 0..FILES {
                    let content = vec![7; of_file(index) as usize];
                    message::write(control, &sent(index, &content)).await?;
                }
            }
            hear_out(replies).await;
            Ok(())
        });
        let received = received.await;
        assert_eq!(received.failure.is_none(), is_welcome, "{received:?}");
        let is_done = |outcome: &Outcome| *outcome == Outcome::Done;
        let done = received.outcomes.values().filter(|o| is_done(o)).count();
        assert_eq!(done as u64 == FILES, is_welcome);
    }
}

/// What is said of a file has to fit what was offered of it.
#[tokio::test]
async fn words_of_another_kind_of_file_end_the_session() {
    let directory = Entry {
        path: "directory".into(),
        directory: true,
        ..file(0)
    };
    let stream = Entry {
        path: "stream".into(),
        stream: true,
        ..file(0)
    };
    let files = [file(1000), stream, directory];
    let hash = blake3::hash(b"x").into();
    let part = |index, extents: &[(u64, u64)]| FromSender::Part {
        index,
        extents: extents.to_vec(),
    };
    let holes = |index, extents: &[(u64, u64)]| FromSender::Holes {
        index,
        extents: extents.to_vec(),
    };
    let pack = |index| FromSender::Pack {
        files: vec![(index, hash)],
        grown: Vec::new(),
    };
    let message = String::new();
    let mut all = vec![
        vec![part(1, &[])],
        vec![holes(1, &[])],
        vec![pack(1)],
        vec![
            FromSender::Stream { index: 0 },
            FromSender::Stream { index: 0 },
        ],
        vec![
            FromSender::Stream { index: 1 },
            FromSender::Stream { index: 1 },
        ],
        // Beyond the end, at once, in all, or by more than there are numbers.
        vec![part(0, &[(999, 2)])],
        vec![part(0, &[(0, 600), (0, 600)])],
        vec![part(0, &[(u64::MAX, 1)])],
        vec![part(0, &[(1, u64::MAX)])],
        vec![holes(0, &[(1000, 1)])],
        vec![FromSender::Content { index: 0 }],
    ];
    for index in [2, 3, u64::MAX] {
        all.extend([
            vec![part(index, &[])],
            vec![holes(index, &[])],
            vec![pack(index)],
            vec![FromSender::Stream { index }],
            vec![FromSender::Resume { index }],
            vec![FromSender::Hash {
                index,
                blake3: hash,
            }],
            vec![FromSender::Groups {
                index,
                values: Vec::new(),
            }],
            vec![FromSender::Failed {
                index,
                message: message.clone(),
            }],
            vec![sent(index, b"x")],
        ]);
    }
    for words in all {
        let received = session(&files, async |_, control, replies| {
            for word in &words {
                message::write(control, word).await?;
            }
            hear_out(replies).await;
            Ok(())
        });
        let failure = received.await.failure;
        assert!(
            matches!(failure, Some(Error::Protocol(_))),
            "{words:?}: {failure:?}"
        );
    }
}
