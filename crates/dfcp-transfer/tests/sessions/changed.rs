//! Files that change at the sender after they were listed.

use std::fs;
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
        for to in [0, size / 2, size + 1] {
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
        let why = changed(size, |path| fs::remove_file(path).unwrap()).await;
        assert!(why.contains("removed"), "{size}: {why}");
        let why = changed(size, |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        });
        assert!(!why.await.is_empty(), "{size}: a directory");
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
