use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

use super::*;
use crate::OnConflict;

/// Less than a chunk, so that both sides have to wait for each other.
const PIPE: usize = 10_000;

struct Bench {
    dir: TempDir,
    store: Arc<Store>,
}

impl Bench {
    fn new(on_conflict: OnConflict) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sent")).unwrap();
        let store = Store::open(&dir.path().join("received"), on_conflict).unwrap();
        Self {
            dir,
            store: Arc::new(store),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join("sent").join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn received(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.path().join("received").join(name)).ok()
    }

    /// A whole session.
    async fn transfer(&self, sources: &Sources) -> (Result<Sent, Error>, Received) {
        let (near, far) = duplex(PIPE);
        let (replies, out) = split(near);
        let meter = Meter::start();
        let sending = Meter::start();
        let (sent, received) = tokio::join!(
            send(replies, out, sources, &sending),
            self.receive(far, &meter),
        );
        if sent.is_ok() {
            let [near, far] = [&sending, &meter].map(|meter| meter.diary().done());
            assert_eq!(near, far, "both hear of the same files");
        }
        (sent, received.unwrap())
    }

    async fn receive(&self, stream: DuplexStream, meter: &Meter) -> Option<Received> {
        let (reader, writer) = split(stream);
        receive(reader, writer, self.store.clone(), meter).await
    }

    /// A sender that says what it likes.
    async fn play(
        &self,
        script: impl AsyncFnOnce(&mut WriteHalf<DuplexStream>),
    ) -> (Option<Received>, Vec<FromReceiver>) {
        let (near, far) = duplex(1 << 20);
        let (replies, mut out): (ReadHalf<_>, _) = split(near);
        let meter = Meter::start();
        let replies = async {
            let (mut reader, mut said) = (Reader::new(replies), Vec::new());
            while let Ok(Some(message)) = reader.next().await {
                said.push(message);
            }
            said
        };
        let script = async {
            script(&mut out).await;
            out.shutdown().await.unwrap();
        };
        let ((), received, said) = tokio::join!(script, self.receive(far, &meter), replies);
        (received, said)
    }
}

fn random(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn offer_of(names: &[&str], size: u64) -> FromSender {
    let entry = |name: &&str| Entry {
        path: (*name).into(),
        size,
        ..Entry::default()
    };
    FromSender::Offer {
        version: message::VERSION,
        entries: names.iter().map(entry).collect(),
        more: false,
        wishes: Wishes::default(),
        people: People::default(),
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

#[tokio::test]
async fn files_of_awkward_sizes_arrive() {
    let bench = Bench::new(OnConflict::Error);
    let sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5];
    let paths: Vec<_> = sizes
        .iter()
        .map(|&size| bench.write(&format!("f{size}"), &random(size)))
        .collect();
    let (sent, received) = bench.transfer(&Sources::scan(&paths).unwrap()).await;
    let outcomes = sent.unwrap().outcomes;
    assert!(outcomes.values().all(|outcome| *outcome == Outcome::Done));
    assert_eq!(outcomes.len(), sizes.len());
    assert!(received.failure.is_none() && received.outcomes == outcomes);
    for size in sizes {
        assert!(bench.received(&format!("f{size}")) == Some(random(size)));
    }
}

#[tokio::test]
async fn a_file_that_fails_leaves_the_others_in_step() {
    let bench = Bench::new(OnConflict::Error);
    let paths = ["gone", "shrunk", "taken", "fine"].map(|name| bench.write(name, &random(CHUNK)));
    let sources = Sources::scan(&paths).unwrap();
    fs::remove_file(&paths[0]).unwrap();
    // The same time, so that only reading shows it.
    let time = fs::metadata(&paths[1]).unwrap().modified().unwrap();
    let other = bench.dir.path().join("received/taken");
    fs::write(&other, vec![7; CHUNK]).unwrap();
    let file = File::options().write(true).open(&paths[1]).unwrap();
    file.set_len(100).unwrap();
    file.set_modified(time).unwrap();
    let (sent, received) = bench.transfer(&sources).await;
    assert!(received.failure.is_none(), "{received:?}");
    let kinds: Vec<_> = sent
        .unwrap()
        .outcomes
        .into_values()
        .map(|outcome| match outcome {
            Outcome::Error(problem) => Some(problem.kind),
            _ => None,
        })
        .collect();
    let (source, conflict) = (Some(ProblemKind::Source), Some(ProblemKind::Conflict));
    assert_eq!(kinds, [source, source, conflict, None]);
    assert!(bench.received("fine") == Some(random(CHUNK)));
    assert!(bench.received("gone").is_none() && bench.received("shrunk").is_none());
    assert!(bench.received("taken") == Some(vec![7; CHUNK]));
}

#[tokio::test]
async fn a_file_that_is_not_wanted_is_skipped() {
    let bench = Bench::new(OnConflict::Skip);
    fs::write(bench.dir.path().join("received/old"), "as it was").unwrap();
    let paths = ["old", "new"].map(|name| bench.write(name, &random(CHUNK)));
    let (sent, _) = bench.transfer(&Sources::scan(&paths).unwrap()).await;
    let outcomes: Vec<_> = sent.unwrap().outcomes.into_values().collect();
    assert_eq!(outcomes, [Outcome::Skipped, Outcome::Done]);
    assert_eq!(bench.received("old").unwrap(), b"as it was");
}

#[tokio::test]
async fn a_wrong_hash_puts_nothing_in_place() {
    let bench = Bench::new(OnConflict::Error);
    let (received, _) = bench
        .play(async |out| {
            message::write(out, &offer_of(&["x"], 4)).await.unwrap();
            let content = FromSender::Content { index: 0 };
            message::write(out, &content).await.unwrap();
            out.write_all(b"evil").await.unwrap();
            message::write(out, &sent(0, b"good")).await.unwrap();
        })
        .await;
    let received = received.unwrap();
    assert!(
        matches!(&received.outcomes[&0], Outcome::Error(p) if p.kind == ProblemKind::Integrity),
        "{received:?}"
    );
    assert!(bench.received("x").is_none());
    assert_eq!(bench.received("x.dfcp-partial").unwrap(), b"evil");
}

#[tokio::test]
async fn a_session_that_breaks_off_keeps_what_arrived() {
    let bench = Bench::new(OnConflict::Error);
    let (received, said) = bench
        .play(async |out| {
            message::write(out, &offer_of(&["x", "y"], 100))
                .await
                .unwrap();
            let content = FromSender::Content { index: 0 };
            message::write(out, &content).await.unwrap();
            out.write_all(&[1; 60]).await.unwrap();
        })
        .await;
    let received = received.unwrap();
    assert!(received.failure.is_some());
    assert!(
        matches!(&received.outcomes[&0], Outcome::Error(p) if p.kind == ProblemKind::Connection),
        "{received:?}"
    );
    assert_eq!(bench.received("x.dfcp-partial").unwrap(), [1; 60]);
    assert!(matches!(said.last(), Some(FromReceiver::Reject { .. })));
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_session() {
    let content = |index| FromSender::Content { index };
    let failed = |index| FromSender::Failed {
        index,
        message: "the disk is broken".into(),
    };
    let scripts = [
        vec![offer_of(&["x"], 0), failed(1)],
        vec![offer_of(&["x"], 0), content(0), failed(1)],
        vec![content(0)],
        vec![offer_of(&["../x"], 0)],
        vec![offer_of(&["x"], 0), content(1), sent(0, b"")],
        vec![offer_of(&["x"], 0), sent(0, b"")],
        vec![offer_of(&["x"], 0), content(0), content(0)],
        vec![offer_of(&["x"], 0), content(0), sent(1, b"")],
        vec![offer_of(&["x"], 0), offer_of(&["y"], 0)],
    ];
    for script in scripts {
        let bench = Bench::new(OnConflict::Error);
        let (received, said) = bench
            .play(async |out| {
                for message in &script {
                    message::write(out, message).await.unwrap();
                }
            })
            .await;
        assert!(received.unwrap().failure.is_some(), "{script:?}");
        assert!(matches!(said.last(), Some(FromReceiver::Reject { .. })));
        assert!(!Path::new("../x").exists() && bench.received("x").is_none());
    }
}

#[tokio::test]
async fn without_a_word_there_is_no_session() {
    let bench = Bench::new(OnConflict::Error);
    let (received, _) = bench.play(async |_| {}).await;
    assert!(received.is_none());
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_leaves_the_next_in_step() {
    let bench = Bench::new(OnConflict::Error);
    // More than is read ahead.
    let size = 2 * (AHEAD + 2) * CHUNK + 5;
    let paths = [
        bench.write("large", &random(size)),
        bench.write("small", b"small"),
    ];
    let sources = Sources::scan(&paths).unwrap();
    let (near, far) = duplex(PIPE);
    let (replies, out) = split(near);
    let meter = Meter::start();
    let script = async {
        let (far, _out) = split(far);
        let mut reader = Reader::new(far);
        assert!(matches!(
            reader.next().await.unwrap(),
            Some(FromSender::Offer { .. })
        ));
        let mut content = async |index, size| {
            let said: Option<FromSender> = reader.next().await.unwrap();
            assert_eq!(said, Some(FromSender::Content { index }));
            if index == 0 {
                let file = File::options().write(true).open(&paths[0]).unwrap();
                file.set_len(100).unwrap();
            }
            let mut bytes = vec![0; size];
            let mut at = 0;
            while at < size {
                at += reader.bytes(&mut bytes[at..]).await.unwrap();
            }
            (bytes, reader.next::<FromSender>().await.unwrap().unwrap())
        };
        let (bytes, word) = content(0, size).await;
        assert!(
            matches!(word, FromSender::Failed { index: 0, .. }),
            "{word:?}"
        );
        // What had been read, and zeros.
        assert!(bytes[..100] == random(size)[..100] && bytes[size - CHUNK..] == [0; CHUNK]);
        let (bytes, word) = content(1, 5).await;
        assert_eq!((&bytes[..], word), (&b"small"[..], sent(1, b"small")));
    };
    let (sent, ()) = tokio::join!(send(replies, out, &sources, &meter), script);
    assert!(sent.is_err(), "nobody said what became of them");
    let progress = meter.progress().bytes();
    assert!(progress <= meter.total(), "{progress}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_the_sender_s_problem() {
    let bench = Bench::new(OnConflict::Error);
    let (received, _) = bench
        .play(async |out| {
            message::write(out, &offer_of(&["x", "y"], 4))
                .await
                .unwrap();
            message::write(out, &FromSender::Content { index: 0 })
                .await
                .unwrap();
            out.write_all(b"some").await.unwrap();
            let failed = |index| FromSender::Failed {
                index,
                message: "the disk is broken".into(),
            };
            message::write(out, &failed(0)).await.unwrap();
            message::write(out, &failed(1)).await.unwrap();
        })
        .await;
    let received = received.unwrap();
    assert!(received.failure.is_none(), "{received:?}");
    for index in [0, 1] {
        let Outcome::Error(problem) = &received.outcomes[&index] else {
            panic!("{received:?}");
        };
        assert_eq!(problem.kind, ProblemKind::Source);
        assert!(problem.message.contains("the disk is broken"));
    }
    assert!(bench.received("x").is_none() && bench.received("y").is_none());
}

/// Reasons are kept for each file that is offered, and there may be many.
#[tokio::test]
async fn of_a_reason_no_more_is_kept_than_a_person_reads() {
    let bench = Bench::new(OnConflict::Error);
    let failed = |index| FromSender::Failed {
        index,
        message: "x".repeat(60_000),
    };
    let (received, _) = bench
        .play(async |out| {
            message::write(out, &offer_of(&["x", "y"], 4))
                .await
                .unwrap();
            message::write(out, &failed(0)).await.unwrap();
            let content = FromSender::Content { index: 1 };
            message::write(out, &content).await.unwrap();
            out.write_all(b"some").await.unwrap();
            message::write(out, &failed(1)).await.unwrap();
        })
        .await;
    for outcome in received.unwrap().outcomes.values() {
        let Outcome::Error(problem) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(problem.message.starts_with("xx") && problem.message.len() < 1000);
    }
}

/// Runs two sessions, which never end, in a process with one thread for what blocks, and then whatever else wants
/// one, once `have_begun` says that they stand still.
fn leave_a_thread(sessions: impl Future, have_begun: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let other = async {
        while !have_begun() {
            tokio::task::yield_now().await;
        }
        tokio::task::spawn_blocking(|| 7).await.unwrap()
    };
    let work = async {
        tokio::select! {
            _ = Box::pin(sessions) => unreachable!("they stand still"),
            seven = other => seven,
        }
    };
    let done =
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await });
    // One that waits for ever would keep the runtime from ending.
    runtime.shutdown_background();
    assert_eq!(done, Ok(7), "no thread is left");
}

#[test]
fn senders_that_fall_silent_take_no_thread() {
    let benches = [(); 2].map(|()| Bench::new(OnConflict::Error));
    let [one, other] = benches.each_ref().map(|bench| {
        bench.play(async |out| {
            message::write(out, &offer_of(&["x"], 100)).await.unwrap();
            let content = FromSender::Content { index: 0 };
            message::write(out, &content).await.unwrap();
            out.write_all(&[1; 60]).await.unwrap();
            std::future::pending().await
        })
    });
    let has_part = |bench: &Bench| {
        let part = bench.received("x.dfcp-partial");
        part.is_some_and(|part| part.len() == 60)
    };
    leave_a_thread(async { tokio::join!(one, other) }, || {
        benches.iter().all(has_part)
    });
}

#[test]
fn receivers_that_fall_silent_take_no_thread() {
    let bench = Bench::new(OnConflict::Error);
    // More than is read ahead.
    let path = bench.write("x", &random(2 * (AHEAD + 2) * CHUNK));
    let sources = Sources::scan(&[path]).unwrap();
    let begun = std::cell::Cell::new(0);
    let [one, other] = [(); 2].map(|()| async {
        let (near, far) = duplex(PIPE);
        let (replies, out) = split(near);
        let meter = Meter::start();
        let silent = async {
            let (far, _out) = split(far);
            let mut reader = Reader::new(far);
            while reader.next::<FromSender>().await.unwrap()
                != Some(FromSender::Content { index: 0 })
            {}
            reader.bytes(&mut [0]).await.unwrap();
            begun.set(begun.get() + 1);
            std::future::pending::<()>().await
        };
        tokio::join!(send(replies, out, &sources, &meter), silent)
    });
    leave_a_thread(async { tokio::join!(one, other) }, || begun.get() == 2);
}
