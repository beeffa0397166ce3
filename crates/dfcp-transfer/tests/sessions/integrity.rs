//! Large files, which come in parts: only what is verified gets its name, and what broke off goes on.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dfcp::Progress;
use dfcp_transfer::message::{self, FromReceiver, FromSender, Reader};
use dfcp_transfer::{
    DONE, Entry, Meter, OnConflict, Outcome, People, ProblemKind, Received, Sources, Store, Wishes,
    offer,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::common::{connected, transfer};

const SIZE: u64 = 3_000_000;

/// A file `x` of a sender, and a receiver's directory `to`.
struct Bench {
    folder: TempDir,
    content: Vec<u8>,
    key: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut content = vec![0; SIZE as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        fs::write(folder.path().join("x"), &content).unwrap();
        fs::create_dir(folder.path().join("to")).unwrap();
        let key = Vec::new();
        Self {
            folder,
            content,
            key,
        }
    }

    fn there(&self, name: &str) -> PathBuf {
        self.folder.path().join("to").join(name)
    }

    /// Partial files are for who has them by this, whatever the key of the session.
    fn store(&self) -> Store {
        let store = Store::open(&self.folder.path().join("to"), OnConflict::Error).unwrap();
        store.kept_for(*blake3::hash(&self.key).as_bytes())
    }

    fn sources(&self) -> Arc<Sources> {
        Arc::new(Sources::scan(&[self.folder.path().join("x")]).unwrap())
    }

    /// An honest sender; bytes that came, and that were there.
    async fn send(&self) -> (u64, u64) {
        let ended = transfer(&self.sources(), self.store()).await;
        assert_eq!(ended.outcomes()[&0], Outcome::Done, "{:?}", ended.received);
        assert!(fs::read(self.there("x")).unwrap() == self.content);
        let names = fs::read_dir(self.there("")).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
        let kept = ended.receiving.diary().kept();
        assert_eq!(ended.sending.diary().kept(), kept);
        (ended.receiving.progress().bytes(), kept)
    }

    /// A sender that says that all comes, sends `content` and says `last` of it; without that it is gone.
    async fn lie(&self, content: &[u8], last: Option<FromSender>) -> Received {
        let entry: Entry = self.sources().list[0].entry.clone();
        let (_endpoints, near, far) = connected().await;
        let meter = Meter::start();
        let send = async {
            let (mut control, replies) = near.open_bi().await.unwrap();
            for part in offer::split(&[entry], Wishes::default(), &People::default()) {
                message::write(&mut control, &part).await.unwrap();
            }
            let part = FromSender::Part {
                index: 0,
                extents: vec![(0, SIZE)],
            };
            message::write(&mut control, &part).await.unwrap();
            control.flush().await.unwrap();
            let path = self.folder.path().join("content");
            fs::write(&path, content).unwrap();
            let (file, size) = (fs::File::open(path).unwrap(), content.len() as u64);
            let progress = Progress::default();
            // The receiver may have seen enough before the end.
            let _ = near.send_object(file, size, &progress).await;
            if let Some(last) = &last {
                message::write(&mut control, last).await.unwrap();
                control.finish().unwrap();
                let mut replies = Reader::new(replies);
                let is_last = |reply: &FromReceiver| {
                    matches!(
                        reply,
                        FromReceiver::Summary { .. } | FromReceiver::Reject(_)
                    )
                };
                while let Ok(Some(reply)) = replies.next().await {
                    if is_last(&reply) {
                        break;
                    }
                }
            }
            near.close(DONE, "");
        };
        let receive =
            dfcp_transfer::receive(&far, Arc::new(self.store()), &meter, async |_| Ok(()));
        let ((), received) = tokio::join!(send, receive);
        assert!(!self.there("x").exists());
        received.unwrap()
    }
}

fn is(received: &Received, kind: ProblemKind) -> bool {
    matches!(received.outcomes.get(&0), Some(Outcome::Error(problem)) if problem.kind == kind)
}

#[tokio::test]
async fn a_large_file_that_is_not_what_was_sent_gets_no_name() {
    let bench = Bench::new();
    let sent = |size, content: &[u8]| FromSender::Sent {
        index: 0,
        size,
        blake3: blake3::hash(content).into(),
        grown: false,
    };
    let mut other = bench.content.clone();
    other[2_000_000] ^= 1;
    for (content, last) in [
        (&other[..], sent(SIZE, &bench.content)),
        (&bench.content[..], sent(SIZE, &other)),
        (&bench.content[..], sent(SIZE - 1, &bench.content)),
        (&bench.content[..2_500_000], sent(SIZE, &bench.content)),
    ] {
        let received = bench.lie(content, Some(last)).await;
        assert!(is(&received, ProblemKind::Integrity), "{received:?}");
    }
    // What is wrong of it is not gone on with.
    bench.lie(&other, Some(sent(SIZE, &bench.content))).await;
    assert_eq!(bench.send().await, (SIZE, 0));
}

#[tokio::test]
async fn a_large_file_that_cannot_be_read_to_its_end_is_the_sender_s_problem() {
    let bench = Bench::new();
    let failed = FromSender::Failed {
        index: 0,
        message: "the disk is broken".into(),
    };
    let received = bench.lie(&bench.content[..2_000_000], Some(failed)).await;
    assert!(is(&received, ProblemKind::Source), "{received:?}");
}

#[tokio::test]
async fn what_broke_off_goes_on_where_it_was() {
    let bench = Bench::new();
    let received = bench.lie(&bench.content[..2_000_000], None).await;
    assert!(received.failure.is_some() || !received.outcomes.is_empty());
    assert!(bench.there("x.dfcp-partial").exists());
    let (moved, kept) = bench.send().await;
    // Groups of 64 KiB that were not whole come again.
    assert!(
        (2_000_000 - (128 << 10)..=2_000_000).contains(&kept),
        "{kept}"
    );
    assert_eq!(moved + kept, SIZE);
}

/// The file has changed since then, and has the time that it had.
#[tokio::test]
async fn what_broke_off_goes_on_with_what_is_the_same() {
    let bench = Bench::new();
    let mut before = bench.content.clone();
    before[100_000] ^= 1;
    before[1_000_000] ^= 1;
    bench.lie(&before[..2_000_000], None).await;
    let (moved, kept) = bench.send().await;
    assert_eq!(moved + kept, SIZE);
    // All but the two groups, and what was not whole.
    assert!(
        (2_000_000 - 4 * (64 << 10)..2_000_000 - 2 * (64 << 10)).contains(&kept),
        "{kept}"
    );
}

#[tokio::test]
async fn what_somebody_else_began_is_not_gone_on_with() {
    let mut bench = Bench::new();
    bench.lie(&bench.content[..2_000_000], None).await;
    bench.key = b"another one".to_vec();
    assert_eq!(bench.send().await, (SIZE, 0));
}
