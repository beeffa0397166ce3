//! One file that goes into a pipe at the receiver.

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

use dfcp_transfer::message::{self, FromSender};
use dfcp_transfer::{
    DONE, Entry, Error, Limits, Meter, Outcome, People, ProblemKind, Received, RejectionKind, Sent,
    Sources, Wishes, offer,
};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::common::{connected, hear_out};

async fn into_pipe(
    paths: &[PathBuf],
    out: impl AsyncWrite + Unpin,
    change: impl FnOnce(),
) -> (Result<Sent, Error>, Received) {
    let sources = Arc::new(Sources::scan(paths).unwrap());
    change();
    let (_endpoints, near, far) = connected().await;
    let [sending, receiving] = [Meter::start(), Meter::start()];
    let send = async {
        let sent = dfcp_transfer::send(&near, &sources, &sending).await;
        near.close(DONE, "");
        sent
    };
    let limits = Limits::default();
    let receive = dfcp_transfer::receive_into(&far, out, limits, &receiving, async |_| Ok(()));
    let (sent, received) = tokio::join!(send, receive);
    (sent, received.unwrap())
}

fn is(outcome: Option<&Outcome>, kind: ProblemKind) -> bool {
    matches!(outcome, Some(Outcome::Error(problem)) if problem.kind == kind)
}

#[tokio::test]
async fn a_file_of_any_size_comes_out_as_it_went_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for size in [0, 1, 100_000, 3_000_001] {
        let content: Vec<u8> = (0..size).map(|i: u32| (i >> 7) as u8 ^ i as u8).collect();
        fs::write(&path, &content).unwrap();
        let mut out = Cursor::new(Vec::new());
        let (sent, received) = into_pipe(std::slice::from_ref(&path), &mut out, || ()).await;
        assert!(received.failure.is_none(), "{received:?}");
        assert_eq!(sent.unwrap().outcomes, received.outcomes);
        assert_eq!(received.outcomes[&0], Outcome::Done);
        assert!(out.into_inner() == content, "{size}");
    }
}

#[tokio::test]
async fn a_file_that_is_another_one_by_now_comes_out_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for (size, to) in [(1000, 0), (1000, 2_000_000), (3_000_000, 5)] {
        fs::write(&path, vec![1; size]).unwrap();
        let replace = || {
            let other = folder.path().join("new");
            fs::write(&other, vec![2; to]).unwrap();
            fs::rename(other, &path).unwrap();
        };
        let mut out = Cursor::new(Vec::new());
        let (sent, received) = into_pipe(std::slice::from_ref(&path), &mut out, replace).await;
        assert_eq!(received.outcomes[&0], Outcome::Done, "{size} to {to}");
        assert_eq!(sent.unwrap().outcomes, received.outcomes);
        assert!(out.into_inner() == vec![2; to], "{size} to {to}");
    }
}

#[tokio::test]
async fn what_keeps_a_file_from_arriving_is_told_to_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for size in [1000, 3_000_000] {
        fs::write(&path, vec![1; size]).unwrap();
        let remove = || fs::remove_file(&path).unwrap();
        let mut out = Cursor::new(Vec::new());
        let (sent, received) = into_pipe(std::slice::from_ref(&path), &mut out, remove).await;
        let outcome = received.outcomes.get(&0);
        assert!(is(outcome, ProblemKind::Source), "{received:?}");
        assert_eq!(sent.unwrap().outcomes, received.outcomes);

        fs::write(&path, vec![1; size]).unwrap();
        // Nobody reads it any more.
        let (out, _) = tokio::io::duplex(10);
        let (sent, received) = into_pipe(std::slice::from_ref(&path), out, || ()).await;
        let outcome = received.outcomes.get(&0);
        assert!(is(outcome, ProblemKind::Target), "{received:?}");
        assert_eq!(sent.unwrap().outcomes, received.outcomes);
    }
}

#[tokio::test]
async fn a_pipe_takes_one_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "tree"].map(|name| folder.path().join(name));
    fs::write(&paths[0], "a").unwrap();
    fs::write(&paths[1], "b").unwrap();
    fs::create_dir(&paths[2]).unwrap();
    for offered in [&paths[..2], &paths[2..]] {
        let mut out = Cursor::new(Vec::new());
        let (sent, received) = into_pipe(offered, &mut out, || ()).await;
        let Err(Error::Rejected(rejection)) = sent else {
            panic!("{sent:?}");
        };
        assert_eq!(rejection.kind, RejectionKind::Limit);
        assert!(matches!(received.failure, Some(Error::Refused(_))));
        assert!(received.outcomes.is_empty() && out.into_inner().is_empty());
    }
}

/// A sender that offers a file, says these words and sends `content`; what came out, and what became of it.
async fn said(
    entry: Entry,
    limits: Limits,
    (before, content, after): (FromSender, &[u8], FromSender),
) -> (Vec<u8>, Received) {
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, replies) = near.open_bi().await.unwrap();
        for part in offer::split(&[entry], Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        message::write(&mut control, &before).await.unwrap();
        let mut object = near.open_object().await.unwrap();
        // What is too much, or not of the protocol, may be refused before it was taken.
        let rest = async {
            if object.write_all(content).await.is_ok() {
                let _ = object.finish();
            }
            let _ = message::write(&mut control, &after).await;
        };
        tokio::join!(rest, hear_out(replies));
        near.close(DONE, "");
    };
    let mut out = Cursor::new(Vec::new());
    let receive = dfcp_transfer::receive_into(&far, &mut out, limits, &meter, async |_| Ok(()));
    let ((), received) = tokio::join!(send, receive);
    (out.into_inner(), received.unwrap())
}

fn entry(size: u64, stream: bool) -> Entry {
    Entry {
        path: "x".into(),
        size,
        stream,
        ..Entry::default()
    }
}

fn sent(index: u64, content: &[u8]) -> FromSender {
    FromSender::Sent {
        index,
        size: content.len() as u64,
        blake3: blake3::hash(content).into(),
        grown: false,
    }
}

fn part(length: u64) -> FromSender {
    FromSender::Part {
        index: 0,
        extents: vec![(0, length)],
    }
}

fn pack(index: u64, content: &[u8]) -> FromSender {
    FromSender::Pack {
        files: vec![(index, blake3::hash(content).into())],
        grown: Vec::new(),
    }
}

const WORDS: &[u8] = b"all that is said";
const STREAM: FromSender = FromSender::Stream { index: 0 };

#[tokio::test]
async fn only_what_is_verified_is_done() {
    let size = WORDS.len() as u64;
    let failed = || FromSender::Failed {
        index: 0,
        message: "the disk is broken".into(),
    };
    let (file, stream) = (entry(size, false), entry(0, true));
    for (entry, (before, after), outcome) in [
        (&file, (part(size), sent(0, WORDS)), None),
        (&file, (pack(0, WORDS), sent(0, WORDS)), None),
        (&file, (STREAM, sent(0, WORDS)), None),
        (&stream, (STREAM, sent(0, WORDS)), None),
        (
            &file,
            (part(size), sent(0, b"other")),
            Some(ProblemKind::Integrity),
        ),
        (
            &file,
            (part(size), sent(0, &WORDS[1..])),
            Some(ProblemKind::Integrity),
        ),
        (
            &file,
            (pack(0, b"other"), sent(0, WORDS)),
            Some(ProblemKind::Integrity),
        ),
        (
            &stream,
            (STREAM, sent(0, b"all that is sai_")),
            Some(ProblemKind::Integrity),
        ),
        (&file, (part(size), failed()), Some(ProblemKind::Source)),
        (&file, (failed(), failed()), Some(ProblemKind::Source)),
        (&stream, (STREAM, failed()), Some(ProblemKind::Source)),
    ] {
        let (limits, words) = (Limits::default(), (before.clone(), WORDS, after));
        let (out, received) = said(entry.clone(), limits, words).await;
        assert!(received.failure.is_none(), "{before:?}: {received:?}");
        match outcome {
            None => {
                assert_eq!(received.outcomes[&0], Outcome::Done, "{before:?}");
                assert_eq!(out, WORDS);
            }
            Some(kind) => assert!(is(received.outcomes.get(&0), kind), "{received:?}"),
        }
    }
    // Other bytes than were offered, though they are those that were said to be sent.
    for (offered, at_most) in [(size - 1, size - 1), (size + 1, size)] {
        let words = (part(offered), WORDS, sent(0, WORDS));
        let (out, received) = said(entry(offered, false), Limits::default(), words).await;
        assert!(
            is(received.outcomes.get(&0), ProblemKind::Integrity),
            "{received:?}"
        );
        assert!(out.len() as u64 <= at_most);
    }
}

#[tokio::test]
async fn a_stream_brings_no_more_than_is_allowed() {
    let size = WORDS.len() as u64;
    // What a pipe gives, and a file that was smaller when it was offered.
    for (entry, bytes, is_done) in [
        (entry(0, true), size, true),
        (entry(0, true), size - 1, false),
        (entry(1, false), size - 1, false),
    ] {
        let limits = Limits {
            bytes,
            ..Limits::default()
        };
        let words = (STREAM, WORDS, sent(0, WORDS));
        let (out, received) = said(entry, limits, words).await;
        assert!(out.len() as u64 <= bytes);
        assert_eq!(
            received.outcomes.get(&0) == Some(&Outcome::Done),
            is_done,
            "{received:?}"
        );
    }
}

#[tokio::test]
async fn words_that_are_not_of_the_file_end_the_session() {
    let size = WORDS.len() as u64;
    let both = FromSender::Pack {
        files: vec![(0, blake3::hash(WORDS).into()); 2],
        grown: Vec::new(),
    };
    let (file, stream) = (entry(size, false), entry(0, true));
    for (entry, before, after) in [
        (&file, part(size - 1), sent(0, WORDS)),
        (&file, pack(1, WORDS), sent(0, WORDS)),
        (&file, both, sent(0, WORDS)),
        (&file, sent(0, WORDS), sent(0, WORDS)),
        (&file, part(size), sent(1, WORDS)),
        (&stream, part(size), sent(0, WORDS)),
        (&stream, STREAM, part(size)),
    ] {
        let words = (before.clone(), WORDS, after);
        let (_, received) = said(entry.clone(), Limits::default(), words).await;
        let failure = received.failure;
        assert!(
            matches!(failure, Some(Error::Protocol(_))),
            "{before:?}: {failure:?}"
        );
    }
}
