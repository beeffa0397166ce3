//! Senders whose objects are not what they say of them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dfcp_transfer::message::{self, FromReceiver, FromSender, Reader};
use dfcp_transfer::{
    DONE, Entry, INTERRUPTED, Limits, Meter, OnConflict, Outcome, People, ProblemKind, Received,
    Store, Wishes, offer,
};
use tokio::io::AsyncWriteExt;

use crate::common::connected;

/// What a sender says, sends as an object, and says then.
type Said<'a> = (FromSender, &'a [u8], Option<FromSender>);

/// A sender that offers these, and says and sends this.
async fn receive(to: &Path, entries: &[Entry], said: Said<'_>) -> Received {
    let store = Store::open(to, OnConflict::Error).unwrap();
    receive_all(store, entries, &[said]).await
}

/// The same of several objects, of which each begins when something is known of the one before.
async fn receive_all(store: Store, entries: &[Entry], script: &[Said<'_>]) -> Received {
    let store = Arc::new(store);
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, replies) = near.open_bi().await.unwrap();
        for part in offer::split(entries, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        let mut replies = Reader::new(replies);
        for (place, (first, content, last)) in script.iter().enumerate() {
            message::write(&mut control, first).await.unwrap();
            let mut object = near.open_object().await.unwrap();
            // The receiver may want no more of it.
            let _ = object.write_all(content).await;
            let _ = object.finish();
            if let Some(last) = last {
                message::write(&mut control, last).await.unwrap();
            }
            let is_last = place + 1 == script.len();
            while let Ok(Some(reply)) = replies.next().await {
                let of_file = matches!(reply, FromReceiver::File { .. });
                let is_over = matches!(reply, FromReceiver::Summary { .. });
                if is_over || (of_file && !is_last) {
                    break;
                }
            }
        }
        near.close(DONE, "");
    };
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    let ((), received) = tokio::join!(send, receive);
    let received = received.unwrap();
    assert!(received.failure.is_none(), "{received:?}");
    received
}

fn is(outcome: &Outcome, kind: ProblemKind) -> bool {
    matches!(outcome, Outcome::Error(problem) if problem.kind == kind)
}

#[tokio::test]
async fn a_stream_gets_its_name_if_it_is_what_the_sender_read() {
    let stream = Entry {
        path: "x".into(),
        mode: 0o644,
        stream: true,
        ..Entry::default()
    };
    let content = vec![7; 300_000];
    let sent = |size: usize, of: &[u8]| FromSender::Sent {
        index: 0,
        size: size as u64,
        blake3: blake3::hash(of).into(),
        grown: false,
    };
    let broken = FromSender::Failed {
        index: 0,
        message: "the pipe is broken".into(),
    };
    for (last, problem) in [
        (sent(300_000, &content), None),
        (sent(300_000, b"other"), Some(ProblemKind::Integrity)),
        (sent(299_999, &content), Some(ProblemKind::Integrity)),
        (broken, Some(ProblemKind::Source)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let first = FromSender::Stream { index: 0 };
        let entries = std::slice::from_ref(&stream);
        let said = (first, &content[..], Some(last));
        let received = receive(folder.path(), entries, said).await;
        let outcome = &received.outcomes[&0];
        match problem {
            None => assert_eq!(*outcome, Outcome::Done),
            Some(kind) => assert!(is(outcome, kind), "{outcome:?}"),
        }
        let there = fs::read(folder.path().join("x")).ok();
        assert!(there == problem.is_none().then(|| content.clone()));
    }
}

#[tokio::test]
async fn streams_and_files_together_bring_no_more_than_a_session_may() {
    const EACH: u64 = 200_000;
    let entry = |path: &str, size| Entry {
        path: path.into(),
        mode: 0o644,
        size,
        stream: size == 0,
        ..Entry::default()
    };
    let content = vec![7; EACH as usize];
    let sent = |index, size| FromSender::Sent {
        index,
        size,
        blake3: blake3::hash(&vec![7; size as usize]).into(),
        grown: false,
    };
    // A stream beside a file, and beside another stream.
    for (entries, limit, comes) in [
        ([entry("file", EACH), entry("y", 0)], 2 * EACH, true),
        ([entry("file", EACH), entry("y", 0)], 2 * EACH - 1, false),
        ([entry("x", 0), entry("y", 0)], 2 * EACH, true),
        ([entry("x", 0), entry("y", 0)], 2 * EACH - 1, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            bytes: limit,
            ..Limits::default()
        };
        let store = Store::open(folder.path(), OnConflict::Error).unwrap();
        let first = match entries[0].stream {
            true => FromSender::Stream { index: 0 },
            false => FromSender::Part {
                index: 0,
                extents: vec![(0, EACH)],
            },
        };
        let second = FromSender::Stream { index: 1 };
        let script = [
            (first, &content[..], Some(sent(0, EACH))),
            (second, &content[..], Some(sent(1, EACH))),
        ];
        let received = receive_all(store.with_limits(limits), &entries, &script).await;
        assert_eq!(received.outcomes[&0], Outcome::Done, "{received:?}");
        let is_done = received.outcomes[&1] == Outcome::Done;
        assert!(is_done == comes && folder.path().join("y").exists() == comes);
        let beyond = is(&received.outcomes[&1], ProblemKind::Target);
        assert_eq!(beyond, !comes, "{received:?}");
    }
}

#[tokio::test]
async fn of_a_pack_that_ends_early_the_files_that_came_are_kept() {
    const SIZE: usize = 200_000;
    let files: Vec<Vec<u8>> = (0..4).map(|i| vec![i; SIZE]).collect();
    let entry = |i| Entry {
        path: format!("{i}"),
        size: SIZE as u64,
        mode: 0o644,
        ..Entry::default()
    };
    let entries: Vec<Entry> = (0..4).map(entry).collect();
    let hashes = files.iter().map(|file| blake3::hash(file).into());
    let pack = FromSender::Pack {
        files: (0..).zip(hashes).collect(),
        grown: Vec::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    let content = files.concat();
    let said = (pack, &content[..2 * SIZE + 100_000], None);
    let received = receive(folder.path(), &entries, said).await;
    assert_eq!(received.outcomes.len(), 4);
    for (i, outcome) in &received.outcomes {
        let there = fs::read(folder.path().join(i.to_string())).ok();
        match *i < 2 {
            true => assert_eq!(*outcome, Outcome::Done),
            false => assert!(is(outcome, ProblemKind::Connection), "{outcome:?}"),
        }
        assert!(there == (*i < 2).then(|| files[*i as usize].clone()), "{i}");
    }
}

/// It would count twice among what is left, which nothing would be then.
#[tokio::test]
async fn a_file_that_is_twice_in_a_pack_is_one_file() {
    let files = ["x", "y"].map(|path| Entry {
        path: path.into(),
        size: 5,
        mode: 0o644,
        ..Entry::default()
    });
    let hash = blake3::hash(b"hello").into();
    for (count, pack) in [(1, &[0, 0][..]), (2, &[1, 0, 1])] {
        let folder = tempfile::tempdir().unwrap();
        let first = FromSender::Pack {
            files: pack.iter().map(|&i| (i, hash)).collect(),
            grown: Vec::new(),
        };
        let content = b"hello".repeat(pack.len());
        let received = receive(folder.path(), &files[..count], (first, &content, None)).await;
        assert_eq!(received.outcomes.len(), count);
        let is_done = |outcome: &Outcome| *outcome == Outcome::Done;
        assert!(received.outcomes.values().all(is_done), "{received:?}");
        for file in &files[..count] {
            assert_eq!(fs::read(folder.path().join(&file.path)).unwrap(), b"hello");
        }
    }
}

/// What is in its place already is not lost with the rest of its pack, which names it again.
#[tokio::test]
async fn a_file_is_not_lost_with_a_pack_that_names_it_again() {
    // As much as is put in its place together.
    let content = vec![7; 1 << 17];
    let files = ["x", "y"].map(|path| Entry {
        path: path.into(),
        size: content.len() as u64,
        mode: 0o644,
        ..Entry::default()
    });
    let hash = blake3::hash(&content).into();
    for (count, pack) in [(1, &[0, 0][..]), (2, &[0, 0, 1]), (2, &[0, 1, 0])] {
        let folder = tempfile::tempdir().unwrap();
        let first = FromSender::Pack {
            files: pack.iter().map(|&i| (i, hash)).collect(),
            grown: Vec::new(),
        };
        let said = (first, &content[..], None);
        let received = receive(folder.path(), &files[..count], said).await;
        assert_eq!(received.outcomes.len(), count, "{pack:?}");
        assert_eq!(received.outcomes[&0], Outcome::Done, "{pack:?}");
        assert!(fs::read(folder.path().join("x")).unwrap() == content);
        let lost = received.outcomes.get(&1);
        assert!(lost.is_none_or(|outcome| is(outcome, ProblemKind::Connection)));
    }
}

/// A sender that goes away once something of the content has come.
async fn broken_off(
    to: &Path,
    entries: &[Entry],
    (first, content): (FromSender, &[u8]),
) -> Received {
    let store = Arc::new(Store::open(to, OnConflict::Error).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, _replies) = near.open_bi().await.unwrap();
        for part in offer::split(entries, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        message::write(&mut control, &first).await.unwrap();
        let mut object = near.open_object().await.unwrap();
        object.write_all(content).await.unwrap();
        while meter.progress().bytes() == 0 {
            tokio::task::yield_now().await;
        }
        near.close(INTERRUPTED, "");
    };
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    tokio::join!(send, receive).1.unwrap()
}

#[tokio::test]
async fn what_is_in_its_place_is_told_whenever_the_connection_ends() {
    const COUNT: u64 = 250;
    const SIZE: usize = 4000;
    let entries: Vec<Entry> = (0..COUNT)
        .map(|i| Entry {
            path: format!("{i}"),
            size: SIZE as u64,
            mode: 0o644,
            ..Entry::default()
        })
        .collect();
    let hash = blake3::hash(&[7; SIZE]).into();
    let pack = FromSender::Pack {
        files: (0..COUNT).map(|i| (i, hash)).collect(),
        grown: Vec::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    let content = vec![7; SIZE * COUNT as usize];
    let received = broken_off(folder.path(), &entries, (pack, &content)).await;
    for i in 0..COUNT {
        let there = folder.path().join(i.to_string()).exists();
        let outcome = received.outcomes.get(&i);
        assert_eq!(there, outcome == Some(&Outcome::Done), "{i}: {outcome:?}");
    }
}

/// Of a pack that came whole the first file is not what it was to be, and the connection is over when that is to be
/// told: the others are in their places all the same.
#[tokio::test]
async fn what_is_in_its_place_is_told_behind_what_failed() {
    const SIZE: usize = 300_000;
    let entry = |i: u64| Entry {
        path: i.to_string(),
        size: SIZE as u64,
        mode: 0o644,
        ..Entry::default()
    };
    let entries: Vec<_> = (0..3).map(entry).collect();
    let hash = blake3::hash(&[7; SIZE]).into();
    let content = vec![7; 3 * SIZE];
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let there = |i: u64| folder.path().join(i.to_string()).exists();
        let store = Arc::new(Store::open(folder.path(), OnConflict::Error).unwrap());
        let (_endpoints, near, far) = connected().await;
        let meter = Meter::start();
        let send = async {
            let (mut control, _replies) = near.open_bi().await.unwrap();
            for part in offer::split(&entries, Wishes::default(), &People::default()) {
                message::write(&mut control, &part).await.unwrap();
            }
            let files = vec![(0, blake3::hash(b"another").into()), (1, hash), (2, hash)];
            message::write(
                &mut control,
                &FromSender::Pack {
                    files,
                    grown: Vec::new(),
                },
            )
            .await
            .unwrap();
            let mut object = near.open_object().await.unwrap();
            object.write_all(&content).await.unwrap();
            object.finish().unwrap();
            while !there(2) {
                tokio::task::yield_now().await;
            }
            far.close(INTERRUPTED, "");
        };
        let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
        let received = tokio::join!(send, receive).1.unwrap();
        for i in 0..3 {
            let outcome = received.outcomes.get(&i);
            let told = outcome == Some(&Outcome::Done);
            assert_eq!(there(i), told, "round {round}, {i}: {outcome:?}");
        }
    }
}

/// Many large files come, and the connection ends as soon as one of them is in its place.
#[tokio::test]
async fn large_files_in_their_places_are_told_whenever_the_connection_ends() {
    const COUNT: u64 = 64;
    let content = vec![7; 300_000];
    let entry = |i: u64| Entry {
        path: i.to_string(),
        size: content.len() as u64,
        mode: 0o644,
        ..Entry::default()
    };
    let entries: Vec<_> = (0..COUNT).map(entry).collect();
    let folder = tempfile::tempdir().unwrap();
    let there = |i: u64| folder.path().join(i.to_string()).exists();
    let store = Arc::new(Store::open(folder.path(), OnConflict::Error).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, _replies) = near.open_bi().await.unwrap();
        for part in offer::split(&entries, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        for index in 0..COUNT {
            let size = content.len() as u64;
            let extents = vec![(0, size)];
            let part = FromSender::Part { index, extents };
            message::write(&mut control, &part).await.unwrap();
            let mut object = near.open_object().await.unwrap();
            object.write_all(&content).await.unwrap();
            object.finish().unwrap();
            let blake3 = blake3::hash(&content).into();
            let sent = FromSender::Sent {
                index,
                size,
                blake3,
                grown: false,
            };
            message::write(&mut control, &sent).await.unwrap();
        }
        while !(0..COUNT).any(there) {
            tokio::task::yield_now().await;
        }
        near.close(INTERRUPTED, "");
    };
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    let received = tokio::join!(send, receive).1.unwrap();
    for i in 0..COUNT {
        let outcome = received.outcomes.get(&i);
        assert_eq!(
            there(i),
            outcome == Some(&Outcome::Done),
            "{i}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn the_part_that_is_left_of_a_file_is_named_whenever_the_connection_ends() {
    const SIZE: u64 = 20_000_000;
    let entry = Entry {
        path: "x".into(),
        size: SIZE,
        mode: 0o644,
        ..Entry::default()
    };
    let part = FromSender::Part {
        index: 0,
        extents: vec![(0, SIZE)],
    };
    let folder = tempfile::tempdir().unwrap();
    let received = broken_off(folder.path(), &[entry], (part, &[7; 1_000_000])).await;
    let Some(Outcome::Error(problem)) = received.outcomes.get(&0) else {
        panic!("{received:?}")
    };
    assert_eq!(problem.kind, ProblemKind::Connection);
    let name = "x.dfcp-partial";
    assert!(problem.message.contains(name) && folder.path().join(name).exists());
}

/// Whoever reads what became of the files would look for it in vain, and send it again.
#[tokio::test]
async fn a_file_that_came_is_not_lost_because_its_sender_says_so() {
    const SIZE: usize = 250_000;
    let entry = |i: u64| Entry {
        path: i.to_string(),
        size: SIZE as u64,
        mode: 0o644,
        ..Entry::default()
    };
    let entries: Vec<_> = (0..4).map(entry).collect();
    let hash = blake3::hash(&[7; SIZE]).into();
    let pack = FromSender::Pack {
        files: (0..4).map(|i| (i, hash)).collect(),
        grown: Vec::new(),
    };
    let gone = FromSender::Failed {
        index: 3,
        message: "gone".into(),
    };
    let folder = tempfile::tempdir().unwrap();
    let said = (pack, &vec![7; 4 * SIZE][..], Some(gone));
    let received = receive(folder.path(), &entries, said).await;
    for i in 0..4 {
        let there = folder.path().join(i.to_string()).exists();
        assert_eq!(
            there,
            received.outcomes[&i] == Outcome::Done,
            "{received:?}"
        );
    }
}
