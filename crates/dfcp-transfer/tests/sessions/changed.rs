//! Files that change at the sender after they were listed.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use dfcp::Chunk;
use dfcp_transfer::message::{self, FromReceiver, FromSender, Reader};
use dfcp_transfer::{DONE, Meter, OnConflict, Outcome, ProblemKind, Sources, Store};

use crate::common::{connected, transfer};

/// Lists a file of `size` bytes between two others, has it changed, and sends all three; what is said of it.
async fn changed(size: usize, change: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
    for path in &paths {
        fs::write(path, vec![7; size]).unwrap();
    }
    let sources = Arc::new(Sources::scan(&paths).unwrap());
    change(&paths[1]);
    let to = folder.path().join("to");
    let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
    let outcomes = ended.outcomes();
    assert!(!to.join("b").exists());
    for (index, name) in [(0, "a"), (2, "c")] {
        assert_eq!(outcomes[&index], Outcome::Done, "{name}");
        assert_eq!(fs::read(to.join(name)).unwrap(), vec![7; size]);
    }
    match &outcomes[&1] {
        Outcome::Error(problem) if problem.kind == ProblemKind::Source => problem.message.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_that_is_another_one_by_now_fails_and_the_others_arrive() {
    // In a pack, and alone.
    for size in [1000, 600_000] {
        let resize = |to: usize| {
            move |path: &Path| {
                let file = fs::File::options().write(true).open(path).unwrap();
                file.set_len(to as u64).unwrap();
            }
        };
        for to in [0, size / 2] {
            let why = changed(size, resize(to)).await;
            assert!(why.contains("changed"), "{size} to {to}: {why}");
        }
        // As long as before, but of another time.
        let why = changed(size, |path| {
            let file = fs::File::options().append(true).open(path).unwrap();
            let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
            file.set_modified(then).unwrap();
        });
        let why = why.await;
        assert!(why.contains("changed"), "{size}: {why}");
        // Longer, but in the place of the one that was listed.
        let why = changed(size, |path| {
            let other = path.with_extension("new");
            fs::write(&other, vec![8; size + 1]).unwrap();
            fs::rename(other, path).unwrap();
        });
        let why = why.await;
        assert!(why.contains("changed"), "{size}, another file: {why}");
        let why = changed(size, |path| fs::remove_file(path).unwrap()).await;
        assert!(why.contains("removed"), "{size}: {why}");
        let why = changed(size, |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        });
        assert!(!why.await.is_empty(), "{size}: a directory");
    }
}

/// As logs do: what was there when it was listed arrives, with the time that it had, so that the next copy
/// brings the rest.
#[tokio::test]
async fn of_a_file_that_grows_comes_what_was_offered() {
    // An empty one and one in a pack, and one alone.
    for size in [0, 1000, 600_000] {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        for path in &paths {
            fs::write(path, vec![7; size]).unwrap();
        }
        let listed = fs::metadata(&paths[1]).unwrap().modified().unwrap();
        let sources = Arc::new(Sources::scan(&paths).unwrap());
        let mut log = fs::File::options().append(true).open(&paths[1]).unwrap();
        log.write_all(b"a line more").unwrap();
        log.set_modified(listed + std::time::Duration::from_secs(5))
            .unwrap();
        let to = folder.path().join("to");
        let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
        let sent = ended.sent.unwrap();
        assert!(
            sent.outcomes.values().all(|o| *o == Outcome::Done),
            "{size}"
        );
        assert!(sent.grown.iter().eq([&1]), "{size}: {:?}", sent.grown);
        assert_eq!(fs::read(to.join("b")).unwrap(), vec![7; size]);
        let came = fs::metadata(to.join("b")).unwrap().modified().unwrap();
        assert_eq!(came, listed, "{size}");
        // The rest, later.
        let sources = Arc::new(Sources::scan(&paths).unwrap());
        let store = Store::open(&to, OnConflict::Overwrite).unwrap();
        let ended = transfer(&sources, store).await.sent.unwrap();
        assert!(ended.grown.is_empty(), "{size}");
        let whole = fs::read(&paths[1]).unwrap();
        assert!(fs::read(to.join("b")).unwrap() == whole, "{size}");
    }
}

/// A program that writes into the holes of a file may have written where nothing is read.
#[tokio::test]
async fn a_file_with_holes_that_grows_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "beginning").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(4 << 20).unwrap();
    let sources = Arc::new(Sources::scan(&[path]).unwrap());
    if sources.list[0].entry.data.is_none() {
        eprintln!("skipped: this file system tells of no holes");
        return;
    }
    file.set_len(5 << 20).unwrap();
    let to = folder.path().join("to");
    let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
    match &ended.outcomes()[&0] {
        Outcome::Error(problem) => assert!(problem.message.contains("changed")),
        other => panic!("{other:?}"),
    }
}

/// It is broken off, and not brought to an end as if that were all of it.
#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    // More than the 32 MiB each that sender and receiver hold of what nobody reads yet.
    fs::write(&path, vec![7; 80 << 20]).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let sources = Arc::new(Sources::scan(&[path]).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let receive = async {
        let (mut control, words) = far.accept_bi().await.unwrap();
        let accept = FromReceiver::Accept {
            asked_ms: 0,
            holes: false,
        };
        message::write(&mut control, &accept).await.unwrap();
        let object = far.accept_object().await.unwrap();
        file.set_len(1000).unwrap();
        let mut stream = object.in_order().unwrap();
        let ended = loop {
            match stream.read_chunk(1 << 20).await {
                Ok(Chunk::Data(_)) => {}
                ended => break ended,
            }
        };
        assert!(matches!(ended, Err(dfcp::Error::Reset(_))), "{ended:?}");
        let mut words = Reader::new(words);
        let why = loop {
            match words.next().await.unwrap().unwrap() {
                FromSender::Failed { index: 0, message } => break message,
                FromSender::Sent { .. } => panic!("it was not"),
                _ => {}
            }
        };
        assert!(why.contains("changed"), "{why}");
        far.close(DONE, "");
    };
    let (sent, ()) = tokio::join!(dfcp_transfer::send(&near, &sources, &meter), receive);
    assert!(sent.is_err(), "nobody said what became of it");
}
