//! Senders whose objects are not what they say of them.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dfcp_transfer::message::{self, FromSender};
use dfcp_transfer::{
    DONE, Entry, Meter, OnConflict, Outcome, People, ProblemKind, Received, Store, Wishes, offer,
};
use tokio::io::AsyncWriteExt;

use common::{connected, hear_out};

/// A sender that offers these, says `first`, sends `content` as an object and says `last`.
async fn receive(
    to: &Path,
    entries: &[Entry],
    (first, content, last): (FromSender, &[u8], Option<FromSender>),
) -> Received {
    let store = Arc::new(Store::open(to, OnConflict::Error).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, replies) = near.open_bi().await.unwrap();
        for part in offer::split(entries, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        message::write(&mut control, &first).await.unwrap();
        let mut object = near.open_object().await.unwrap();
        object.write_all(content).await.unwrap();
        object.finish().unwrap();
        if let Some(last) = &last {
            message::write(&mut control, last).await.unwrap();
        }
        hear_out(replies).await;
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
