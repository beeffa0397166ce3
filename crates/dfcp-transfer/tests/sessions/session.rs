//! Sessions between two endpoints on loopback, by the library's interface alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dfcp::{Connection, Progress};
use dfcp_transfer::message::{self, FromReceiver, FromSender, Reader};
use dfcp_transfer::{
    DONE, Entry, Error, Limits, Links, Meter, Offered, OnConflict, Outcome, People, ProblemKind,
    Received, Rejection, RejectionKind, Scan, Sent, Sources, Store, Wishes, offer,
};
use tokio::io::AsyncWriteExt;

use crate::common;
use crate::common::connected;

/// Sends `paths` into the directory `to`.
async fn transfer(
    paths: &[PathBuf],
    to: &Path,
    on_conflict: OnConflict,
) -> (Result<Sent, Error>, Received, u64) {
    let sources = Arc::new(Sources::scan(paths).unwrap());
    let ended = common::transfer(&sources, Store::open(to, on_conflict).unwrap()).await;
    let bytes = ended.receiving.progress().bytes();
    (ended.sent, ended.received, bytes)
}

#[tokio::test]
async fn a_tree_arrives_and_both_ends_know() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for (name, size) in [("a", 0), ("deep/b", 1000), ("deep/er/c", 400_000)] {
        fs::write(tree.join(name), vec![size as u8; size]).unwrap();
    }
    let to = folder.path().join("received");
    let (sent, received, bytes) =
        transfer(std::slice::from_ref(&tree), &to, OnConflict::Error).await;
    let sent = sent.unwrap();
    assert!(received.failure.is_none(), "{received:?}");
    assert_eq!(sent.outcomes, received.outcomes);
    assert_eq!(bytes, 401_000);
    let done = |outcome: &Outcome| *outcome == Outcome::Done;
    assert!(sent.outcomes.len() == 3 && sent.outcomes.values().all(done));
    for entry in received.entries.iter().filter(|entry| !entry.directory) {
        let [original, copy] = [folder.path(), &to].map(|root| root.join(&entry.path));
        assert!(fs::read(original).unwrap() == fs::read(copy).unwrap());
    }
}

#[tokio::test]
async fn no_more_arrives_than_is_said_to_come() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(&tree).unwrap();
    for i in 0..200 {
        fs::write(tree.join(i.to_string()), vec![i; 3000]).unwrap();
    }
    let to = folder.path().join("received");
    let paths = [tree.clone()];
    let (sent, received, _) = transfer(&paths, &to, OnConflict::Overwrite).await;
    assert_eq!(sent.unwrap().outcomes, received.outcomes);
    // One pack brings what is missing and what is there: the sender does not wait to hear of that.
    fs::remove_file(to.join("tree/7")).unwrap();
    let sources = Arc::new(Sources::scan(&paths).unwrap());
    let store = Store::open(&to, OnConflict::Overwrite).unwrap();
    let ended = common::transfer(&sources, store).await;
    let there = |outcome: &&Outcome| **outcome == Outcome::There;
    let outcomes = ended.outcomes();
    assert_eq!(outcomes.len(), 200);
    assert_eq!(outcomes.values().filter(there).count(), 199);
    for meter in [ended.sending, ended.receiving] {
        let (bytes, total) = (meter.progress().bytes(), meter.total());
        assert!(3000 <= bytes && bytes <= total, "{bytes} of {total}");
    }
}

/// What a receiver does with a peer that says `words` and no more, and how long it waits for that.
async fn wait_for(words: &[u8]) -> (Option<Received>, Duration, bool) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(&folder.path().join("to"), OnConflict::Error).unwrap());
    let (_endpoints, near, far) = connected().await;
    let mut control = None;
    if !words.is_empty() {
        let (mut send, recv) = near.open_bi().await.unwrap();
        send.write_all(words).await.unwrap();
        control = Some((send, recv));
    }
    let meter = Meter::start();
    // From here on this clock runs ahead to the next thing that is waited for; packets have their own.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let received = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(())).await;
    let waited = begun.elapsed();
    tokio::time::resume();
    near.closed().await;
    drop(control);
    (
        received,
        waited,
        folder
            .path()
            .join("to")
            .read_dir()
            .unwrap()
            .next()
            .is_none(),
    )
}

#[tokio::test]
async fn who_offers_nothing_gives_his_place_up_after_ten_seconds() {
    let ten = Duration::from_secs(10);
    let (received, waited, is_empty) = wait_for(&[]).await;
    assert!(received.is_none() && is_empty);
    assert!(
        (ten..ten + Duration::from_secs(1)).contains(&waited),
        "{waited:?}"
    );
    // Nor does half a message keep it, which says that more than it follows; the peer is told so.
    let (received, waited, is_empty) = wait_for(b"\0\0\x01\0{\"type\": \"off").await;
    assert!(received.is_none_or(|r| r.failure.is_some()) && is_empty);
    assert!((ten..3 * ten).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_file_that_is_taken_is_a_problem_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("received");
    fs::create_dir(&to).unwrap();
    let paths = ["taken", "free"].map(|name| folder.path().join(name));
    for path in &paths {
        fs::write(path, "new").unwrap();
    }
    fs::write(to.join("taken"), "as it was").unwrap();
    let (sent, received, _) = transfer(&paths, &to, OnConflict::Error).await;
    let outcomes = sent.unwrap().outcomes;
    assert!(
        matches!(&outcomes[&0], Outcome::Error(problem) if problem.kind == ProblemKind::Conflict),
        "{outcomes:?}"
    );
    assert_eq!(
        (&outcomes[&1], &received.outcomes),
        (&Outcome::Done, &outcomes)
    );
    assert_eq!(fs::read(to.join("taken")).unwrap(), b"as it was");
    let skipped = transfer(&paths, &to, OnConflict::Skip).await.0.unwrap();
    let skipped: Vec<_> = skipped.outcomes.into_values().collect();
    assert_eq!(skipped, [Outcome::Skipped, Outcome::Skipped]);
}

/// Sends the tree `from`, links as links; what became of its entries, by path.
async fn send_links(from: &Path, to: &Path) -> Vec<(String, Outcome)> {
    let how = Scan {
        links: Links::Keep,
        ..Scan::default()
    };
    let sources = Sources::scan_with(&[from.to_owned()], how);
    let sources = Arc::new(sources.unwrap());
    let store = Store::open(to, OnConflict::Overwrite).unwrap();
    let sent = common::transfer(&sources, store).await.sent;
    let name = |(i, outcome)| (sources.list[i as usize].entry.path.clone(), outcome);
    sent.unwrap().outcomes.into_iter().map(name).collect()
}

#[tokio::test]
async fn no_link_leads_out_by_one_that_was_received_before() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("received");
    let [first, second] = ["1", "2"].map(|name| folder.path().join(name).join("t"));
    fs::create_dir_all(&first).unwrap();
    std::os::unix::fs::symlink(".", first.join("x")).unwrap();
    fs::create_dir_all(second.join("x/x/x")).unwrap();
    std::os::unix::fs::symlink("../../../etc", second.join("x/x/x/l")).unwrap();
    let sent = send_links(&first, &to).await;
    assert!(sent.contains(&("t/x".into(), Outcome::Done)), "{sent:?}");
    let sent = send_links(&second, &to).await;
    let link = sent.iter().find(|(path, _)| path == "t/x/x/x/l");
    assert!(matches!(link, Some((_, Outcome::Error(_)))), "{sent:?}");
    let names: Vec<_> = fs::read_dir(to.join("t")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[tokio::test]
async fn only_files_and_links_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("received");
    fs::create_dir(&to).unwrap();
    let path = folder.path().join("pipe");
    fs::write(&path, "x").unwrap();
    nix::unistd::mkfifo(&to.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (sent, ..) = transfer(&[path], &to, OnConflict::Overwrite).await;
    let outcomes = sent.unwrap().outcomes;
    assert!(
        matches!(&outcomes[&0], Outcome::Error(problem) if problem.kind == ProblemKind::Conflict)
    );
    assert!(!fs::metadata(to.join("pipe")).unwrap().is_file());
}

#[tokio::test]
async fn nothing_is_taken_that_was_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["wanted", ".bashrc"].map(|name| folder.path().join(name));
    for path in &paths {
        fs::write(path, "x").unwrap();
    }
    let sources = Arc::new(Sources::scan(&paths).unwrap());
    let to = folder.path().join("received");
    let store = Store::open(&to, OnConflict::Overwrite).unwrap();
    let store = store
        .wanting(|entry| entry.path == "wanted")
        .with_limits(Limits {
            hidden: true,
            any_names: false,
            ..Limits::default()
        });
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let (sent, received) = tokio::join!(
        dfcp_transfer::send(&near, &sources, &meter),
        dfcp_transfer::receive(&far, Arc::new(store), &meter, async |_| Ok(()))
    );
    assert!(matches!(sent, Err(Error::Rejected(_))), "{sent:?}");
    let failure = received.unwrap().failure.unwrap().to_string();
    assert!(failure.contains(".bashrc"), "{failure}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}

/// Sends `paths` to a receiver with these limits that answers the question like this.
async fn refused(
    folder: &Path,
    paths: &[PathBuf],
    limits: Limits,
    consent: impl AsyncFnOnce(Offered) -> Result<(), Rejection>,
) -> [Rejection; 2] {
    let sources = Arc::new(Sources::scan(paths).unwrap());
    let store = Store::open(&folder.join("received"), OnConflict::Error).unwrap();
    let store = Arc::new(store.with_limits(limits));
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let sending = Meter::start();
    let (sent, received) = tokio::join!(
        dfcp_transfer::send(&near, &sources, &sending),
        dfcp_transfer::receive(&far, store, &meter, consent),
    );
    let names = fs::read_dir(folder.join("received")).unwrap();
    assert_eq!(names.count(), 0, "nothing was made");
    match (sent, received.unwrap().failure) {
        (Err(Error::Rejected(near)), Some(Error::Refused(far))) => [near, far],
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nothing_is_written_before_the_receiver_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::write(tree.join("deep/x"), vec![1; 300_000]).unwrap();
    let to = folder.path().join("received");
    let no = async |offered| {
        assert_eq!(
            offered,
            Offered {
                files: 1,
                bytes: 300_000
            }
        );
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
        Err(Rejection::new(RejectionKind::Key, "no"))
    };
    let rejections = refused(folder.path(), &[tree], Limits::default(), no).await;
    for rejection in rejections {
        assert_eq!(
            (rejection.kind, &*rejection.message),
            (RejectionKind::Key, "no")
        );
    }
}

#[tokio::test]
async fn an_offer_beyond_the_limits_makes_nothing_and_asks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::write(tree.join("deep/.x"), vec![1; 1000]).unwrap();
    let paths = [tree];
    let default = Limits {
        hidden: true,
        any_names: false,
        ..Limits::default()
    };
    for (limits, option) in [
        (
            Limits {
                bytes: 999,
                ..default
            },
            "--max-bytes",
        ),
        (
            Limits {
                files: 2,
                ..default
            },
            "--max-files",
        ),
        (Limits::default(), "--hidden"),
    ] {
        let nobody = async |_| panic!("there is nothing to ask");
        for rejection in refused(folder.path(), &paths, limits, nobody).await {
            assert_eq!(rejection.kind, RejectionKind::Limit);
            assert!(rejection.message.contains(option), "{rejection}");
        }
    }
}

#[tokio::test]
async fn an_offer_that_the_disk_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let huge = folder.path().join("huge");
    // A file of holes: as large as no disk is, within what the limits and file systems allow.
    fs::File::create(&huge).unwrap().set_len(8 << 40).unwrap();
    let limits = Limits {
        bytes: u64::MAX,
        ..Limits::default()
    };
    let yes = async |_| Ok(());
    for rejection in refused(folder.path(), &[huge], limits, yes).await {
        assert_eq!(rejection.kind, RejectionKind::Space);
        assert!(rejection.message.contains("no space left"), "{rejection}");
    }
}

/// A sender that says what it likes and sends `content` as its first object.
async fn object_of(
    connection: &Connection,
    entries: &[Entry],
    content: &[u8],
) -> Result<(), Error> {
    let (mut control, replies) = connection.open_bi().await?;
    for part in offer::split(entries, Wishes::default(), &People::default()) {
        message::write(&mut control, &part).await?;
    }
    let whole = FromSender::Part {
        index: 0,
        extents: vec![(0, entries[0].size)],
    };
    message::write(&mut control, &whole).await?;
    control.flush().await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("content");
    fs::write(&path, content)?;
    let (file, size) = (fs::File::open(path)?, content.len() as u64);
    let progress = Progress::default();
    // The receiver wants no more of it; all may have arrived before it says so.
    let _ = connection.send_object(file, size, &progress).await;
    let empty = FromSender::Pack {
        files: vec![(1, blake3::hash(b"").into())],
        grown: Vec::new(),
    };
    message::write(&mut control, &empty).await?;
    let nothing = fs::File::open("/dev/null")?;
    connection.send_object(nothing, 0, &progress).await?;
    control.finish()?;
    control.delivered().await?;
    let mut replies = Reader::new(replies);
    while !matches!(replies.next().await?, Some(FromReceiver::Summary { .. })) {}
    connection.close(DONE, "");
    Ok(())
}

#[tokio::test]
async fn an_object_never_passes_the_size_that_was_offered() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |path: &str, size| Entry {
        path: path.into(),
        size,
        ..Entry::default()
    };
    let entries = [entry("x", 1000), entry("after", 0)];
    let store = Arc::new(Store::open(folder.path(), OnConflict::Error).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let content = vec![1; 3_000_000];
    let send = async {
        let sent = object_of(&near, &entries, &content).await;
        sent.unwrap();
    };
    let receive = async {
        let received = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(())).await;
        received.unwrap()
    };
    let ((), received) = tokio::join!(send, receive);
    let partial = fs::metadata(folder.path().join("x.dfcp-partial"));
    assert!(partial.map_or(0, |file| file.len()) <= 1000);
    assert!(!folder.path().join("x").exists());
    assert!(
        matches!(&received.outcomes[&0], Outcome::Error(p) if p.kind == ProblemKind::Integrity),
        "{received:?}"
    );
    // The next file is none the worse for it.
    assert_eq!(received.outcomes[&1], Outcome::Done);
}

/// The word that nothing follows comes a round trip late where its packet was lost.
#[tokio::test]
async fn a_pack_is_done_with_its_last_byte_though_its_object_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"all that was announced";
    let entries = [Entry {
        path: "x".into(),
        size: content.len() as u64,
        ..Entry::default()
    }];
    let store = Arc::new(Store::open(folder.path(), OnConflict::Error).unwrap());
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, replies) = near.open_bi().await.unwrap();
        for part in offer::split(&entries, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        let pack = FromSender::Pack {
            files: vec![(0, blake3::hash(content).into())],
            grown: Vec::new(),
        };
        message::write(&mut control, &pack).await.unwrap();
        // Blocks of an object leave before its end where they are full.
        let mut object = near.open_object().await.unwrap();
        let mut bytes = content.to_vec();
        bytes.resize(500_000, 0);
        let more = object.write_all(&bytes);
        let mut replies = Reader::new(replies);
        let summary = async {
            while !matches!(
                replies.next().await.unwrap(),
                Some(FromReceiver::Summary { .. })
            ) {}
        };
        // What is too much may be refused before it was taken.
        let _ = tokio::join!(summary, more);
        near.close(DONE, "");
        drop(control);
    };
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    let both = async { tokio::join!(send, receive) };
    let ((), received) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("the receiver waits for nothing more");
    assert_eq!(received.unwrap().outcomes[&0], Outcome::Done);
    assert_eq!(fs::read(folder.path().join("x")).unwrap(), content);
}

#[tokio::test]
async fn words_that_no_sender_says_end_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let entries: Vec<Entry> = (0..1000)
        .map(|i| Entry {
            path: format!("{i}"),
            size: 1,
            ..Entry::default()
        })
        .collect();
    let sent = |index| FromSender::Sent {
        index,
        size: 1,
        blake3: blake3::hash(b"x").into(),
        grown: false,
    };
    let part = |index, length| FromSender::Part {
        index,
        extents: vec![(0, length)],
    };
    let pack = |files: std::ops::Range<u64>| FromSender::Pack {
        files: files.map(|i| (i, blake3::hash(b"x").into())).collect(),
        grown: Vec::new(),
    };
    for words in [
        // Nothing of it was announced; twice about one file.
        vec![sent(500)],
        vec![part(3, 1), sent(3), sent(3)],
        // All of it more often than all of it can have changed.
        vec![part(3, 1), part(3, 1), part(3, 1)],
        // Not offered, or not as large.
        vec![part(1000, 1)],
        vec![part(3, 2)],
        vec![pack(990..1001)],
        // More than may be on their way.
        (0..300).map(|i| part(i, 1)).collect(),
        vec![pack(0..300)],
    ] {
        let store = Arc::new(Store::open(folder.path(), OnConflict::Error).unwrap());
        let (_endpoints, near, far) = connected().await;
        let meter = Meter::start();
        let say = async {
            let (mut control, _replies) = near.open_bi().await.unwrap();
            for message in offer::split(&entries, Wishes::default(), &People::default())
                .iter()
                .chain(&words)
            {
                message::write(&mut control, message).await.unwrap();
            }
            near.closed().await;
        };
        let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
        let ((), received) = tokio::join!(say, receive);
        let failure = received.unwrap().failure;
        assert!(matches!(failure, Some(Error::Protocol(_))), "{failure:?}");
    }
}

#[tokio::test]
async fn directories_are_made_as_files_need_them() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("a/empty")).unwrap();
    let to = folder.path().join("received");
    let store = Arc::new(Store::open(&to, OnConflict::Error).unwrap());
    let directory = |path: &str| Entry {
        path: path.into(),
        directory: true,
        mode: 0o700,
        ..Entry::default()
    };
    let file = Entry {
        path: "tree/x".into(),
        size: 5,
        ..Entry::default()
    };
    let (_endpoints, near, far) = connected().await;
    let meter = Meter::start();
    let send = async {
        let (mut control, replies) = near.open_bi().await.unwrap();
        let entries = [directory("tree"), directory("tree/a"), file];
        for part in offer::split(&entries, Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        let mut replies = Reader::new(replies);
        let accept: Option<FromReceiver> = replies.next().await.unwrap();
        let accepted = FromReceiver::Accept {
            asked_ms: 0,
            holes: false,
            changed: true,
        };
        assert_eq!(accept, Some(accepted));
        near.close(DONE, "");
    };
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    let ((), received) = tokio::join!(send, receive);
    assert!(received.unwrap().failure.is_some());
    // No file came, so the list alone has made nothing.
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    let whole = transfer(&[tree], &to, OnConflict::Error).await.0;
    whole.unwrap();
    assert!(to.join("tree/a/empty").is_dir());
}

#[tokio::test]
async fn a_target_that_vanished_fails_every_file_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for i in 0..6000 {
        fs::write(tree.join(format!("{i}")), vec![1; 5000]).unwrap();
    }
    let to = folder.path().join("received");
    let store = Store::open(&to, OnConflict::Error).unwrap();
    fs::remove_dir(&to).unwrap();
    let sources = Arc::new(Sources::scan(&[tree]).unwrap());
    let ended = common::transfer(&sources, store).await;
    let sent = ended.sent.unwrap();
    let failed = |outcome: &Outcome| {
        matches!(outcome, Outcome::Error(problem)
            if problem.kind == ProblemKind::Target && problem.message.contains("was removed while"))
    };
    assert_eq!(sent.outcomes.len(), 6001);
    assert!(sent.outcomes.values().all(failed));
    assert_eq!(ended.received.outcomes, sent.outcomes);
}

/// It is no part of how long a transfer took.
#[tokio::test]
async fn both_ends_know_how_long_a_person_was_asked() {
    const ASKED: Duration = Duration::from_millis(30);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "content").unwrap();
    let sources = Arc::new(Sources::scan(&[path]).unwrap());
    let store = Store::open(&folder.path().join("to"), OnConflict::Error).unwrap();
    let (_endpoints, near, far) = connected().await;
    let [sending, receiving] = [Meter::start(), Meter::start()];
    let consent = async |_| {
        tokio::time::sleep(ASKED).await;
        Ok(())
    };
    let send = async {
        let sent = dfcp_transfer::send(&near, &sources, &sending).await;
        near.close(DONE, "");
        sent.unwrap()
    };
    let receive = dfcp_transfer::receive(&far, Arc::new(store), &receiving, consent);
    tokio::join!(send, receive);
    for meter in [sending, receiving] {
        assert!(meter.diary().asked() >= ASKED);
    }
}
