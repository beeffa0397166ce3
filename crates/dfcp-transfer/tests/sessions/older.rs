//! Files that are there in another version: what has not changed of them does not come again.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dfcp::{Connection, Endpoint, RecvStream, SendStream};
use dfcp_transfer::message::{self, FromReceiver, FromSender, Hash, Reader};
use dfcp_transfer::{
    DONE, Entry, Keep, Meter, OnConflict, Outcome, People, ProblemKind, Received, Scan, Sources,
    Store, Wishes, offer,
};

use crate::common::{connected, transfer};

/// What is compared: a group of files up to 256 MiB.
const GROUP: u64 = 64 << 10;
const SIZE: usize = 5_000_000;

fn random(seed: u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// Written in the same tick of the clock both versions would have the same time.
fn make_old(path: &Path) {
    let file = fs::File::options().append(true).open(path).unwrap();
    let before = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(before).unwrap();
}

/// A file `x` at the sender, and another one of that name at the receiver.
struct Versions {
    folder: tempfile::TempDir,
    wishes: Wishes,
    keep: Keep,
    on_conflict: OnConflict,
}

/// What became of the file, bytes that came, and bytes that were kept.
type Ended = (Outcome, u64, u64);

impl Versions {
    fn new(new: &[u8], old: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("to")).unwrap();
        fs::write(folder.path().join("x"), new).unwrap();
        fs::write(folder.path().join("to/x"), old).unwrap();
        make_old(&folder.path().join("to/x"));
        Self {
            folder,
            wishes: Wishes::default(),
            keep: Keep::default(),
            on_conflict: OnConflict::Overwrite,
        }
    }

    fn here(&self) -> PathBuf {
        self.folder.path().join("x")
    }

    fn there(&self) -> PathBuf {
        self.folder.path().join("to/x")
    }

    fn store(&self) -> Store {
        let store = Store::open(&self.folder.path().join("to"), self.on_conflict).unwrap();
        store.keeping(self.keep)
    }

    async fn transfer(&self) -> Ended {
        let how = Scan {
            keep: self.keep,
            ..Scan::default()
        };
        let mut sources = Sources::scan_with(&[self.here()], how).unwrap();
        sources.wishes = self.wishes;
        let sources = Arc::new(sources);
        let ended = transfer(&sources, self.store()).await;
        let (sending, receiving) = (&ended.sending, &ended.receiving);
        let names = fs::read_dir(self.folder.path().join("to")).unwrap().count();
        assert_eq!(names, 1, "nothing is left");
        let kept = receiving.diary().kept();
        assert_eq!(sending.diary().kept(), kept);
        assert!(!sending.diary().is_comparing() && !receiving.diary().is_comparing());
        let moved = receiving.progress().bytes();
        assert!(moved <= sending.total(), "{moved} of {}", sending.total());
        (ended.outcomes()[&0].clone(), moved, kept)
    }

    /// The file comes, and is what it is at the sender; bytes that came.
    async fn replaced(&self) -> u64 {
        let (outcome, moved, kept) = self.transfer().await;
        assert_eq!(outcome, Outcome::Done);
        let [here, there] = [self.here(), self.there()].map(|path| fs::read(path).unwrap());
        assert!(here == there);
        assert_eq!(moved + kept, here.len() as u64);
        moved
    }
}

#[tokio::test]
async fn of_a_byte_that_changed_its_group_comes() {
    let old = random(1, SIZE);
    let mut new = old.clone();
    new[SIZE / 2] ^= 1;
    let versions = Versions::new(&new, &old);
    assert_eq!(versions.replaced().await, GROUP);
    // Many that are far apart, and the first and the last one.
    let mut new = old.clone();
    for i in [0, 1_000_000, 1_000_001, 3_000_000, SIZE - 1] {
        new[i] ^= 1;
    }
    let moved = Versions::new(&new, &old).replaced().await;
    assert_eq!(moved, 3 * GROUP + SIZE as u64 % GROUP);
}

#[tokio::test]
async fn a_file_that_grew_or_shrank_brings_what_is_new() {
    let old = random(1, SIZE);
    let new = [&old[..], &random(2, 300_000)].concat();
    let moved = Versions::new(&new, &old).replaced().await;
    assert_eq!(moved, 300_000 + SIZE as u64 % GROUP);
    // Of a shorter one the last group comes, unless it is a whole one: see `Shape::shared`.
    for size in [SIZE - 1, 8 * GROUP as usize, 5 * GROUP as usize + 1] {
        let moved = Versions::new(&old[..size], &old).replaced().await;
        assert_eq!(moved, size as u64 % GROUP);
    }
    // Groups have fixed places: what is moved by a byte is found nowhere.
    let new = [&b"x"[..], &old].concat();
    assert_eq!(Versions::new(&new, &old).replaced().await, new.len() as u64);
    // What is shorter than a group is no help.
    assert_eq!(
        Versions::new(&old, &old[..1000]).replaced().await,
        SIZE as u64
    );
}

#[tokio::test]
async fn what_is_the_same_is_not_written_and_what_is_wanted_whole_comes_whole() {
    let old = random(1, SIZE);
    let versions = Versions::new(&old, &old);
    let file = fs::metadata(versions.there()).unwrap().ino();
    assert_eq!(versions.transfer().await, (Outcome::There, 0, 0));
    assert_eq!(fs::metadata(versions.there()).unwrap().ino(), file);
    for [whole, anew] in [[true, false], [false, true]] {
        let mut versions = Versions::new(&[&old[..], b"x"].concat(), &old);
        (versions.wishes.whole, versions.wishes.anew) = (whole, anew);
        assert_eq!(versions.replaced().await, SIZE as u64 + 1);
    }
}

/// Who may not replace a file learns whether it is the one that is offered, and no more.
#[tokio::test]
async fn a_file_that_may_not_be_replaced_is_not_compared_group_by_group() {
    let old = random(1, SIZE);
    let new = [&b"x"[..], &old[1..]].concat();
    for (on_conflict, by_groups) in [
        (OnConflict::Error, false),
        (OnConflict::Rename, false),
        (OnConflict::Overwrite, true),
        (OnConflict::Newer, true),
    ] {
        let mut versions = Versions::new(&new, &old);
        versions.on_conflict = on_conflict;
        let (_session, _receiving, mut words) = offered(&versions).await;
        assert_eq!(asked(&mut words).await, by_groups, "{on_conflict:?}");
    }
}

#[tokio::test]
async fn holes_of_an_older_version_stay_holes() {
    const MB: u64 = 1 << 20;
    let versions = {
        let mut versions = Versions::new(b"", b"");
        versions.keep.holes = true;
        versions
    };
    for (path, byte) in [(versions.here(), 1), (versions.there(), 2)] {
        let file = fs::File::create(path).unwrap();
        file.set_len(64 * MB).unwrap();
        file.write_all_at(&random(3, MB as usize), 8 * MB).unwrap();
        file.write_all_at(&[byte; 1000], 32 * MB).unwrap();
    }
    make_old(&versions.there());
    let blocks = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    if blocks(&versions.here()) > 2 * MB {
        eprintln!("skipped: this file system has no holes");
        return;
    }
    let (outcome, moved, _) = versions.transfer().await;
    assert_eq!(outcome, Outcome::Done);
    assert!(moved <= 2 * GROUP, "{moved}");
    let [here, there] = [versions.here(), versions.there()];
    assert!(fs::read(&here).unwrap() == fs::read(&there).unwrap());
    assert!(blocks(&there) <= 2 * MB, "{}", blocks(&there));
}

/// A receiver to which `x` was offered by somebody who says no more than the test does.
async fn offered(
    versions: &Versions,
) -> (
    ([Endpoint; 2], Connection, SendStream),
    tokio::task::JoinHandle<Option<Received>>,
    Reader<RecvStream>,
) {
    let (endpoints, near, far) = connected().await;
    let store = Arc::new(versions.store());
    let receiving = tokio::spawn(async move {
        let meter = Meter::start();
        dfcp_transfer::receive(&far, store, &meter, async |_| Ok(())).await
    });
    let (mut control, words) = near.open_bi().await.unwrap();
    let entry = Entry {
        path: "x".into(),
        size: fs::metadata(versions.here()).unwrap().len(),
        mode: 0o644,
        mtime: 2_000_000_000,
        ..Entry::default()
    };
    let offer = offer::split(&[entry], versions.wishes, &People::default());
    for part in offer {
        message::write(&mut control, &part).await.unwrap();
    }
    ((endpoints, near, control), receiving, Reader::new(words))
}

/// Reads up to what the receiver wants to know.
async fn asked(words: &mut Reader<RecvStream>) -> bool {
    loop {
        match words.next().await.unwrap().unwrap() {
            FromReceiver::Check { index: 0, groups } => return groups,
            FromReceiver::Hold { .. } | FromReceiver::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_sender_that_lies_about_groups_brings_no_wrong_file() {
    let old = random(1, 5 * GROUP as usize);
    let versions = Versions::new(&old, &old);
    // The groups are those that are there, the hash is that of another file.
    let ((_ends, near, mut control), receiving, mut words) = offered(&versions).await;
    assert!(asked(&mut words).await);
    let mut said = vec![FromSender::Groups {
        index: 0,
        values: vec![Hash([7; 32]); 5],
    }];
    said.push(FromSender::Hash {
        index: 0,
        blake3: Hash([8; 32]),
    });
    for message in said {
        message::write(&mut control, &message).await.unwrap();
    }
    // None of these groups is there, so nothing of the file is.
    loop {
        match words.next().await.unwrap().unwrap() {
            FromReceiver::Have { groups, .. } => break assert_eq!(groups, []),
            FromReceiver::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let rest = [
        FromSender::Resume { index: 0 },
        FromSender::Sent {
            index: 0,
            size: old.len() as u64,
            blake3: Hash([8; 32]),
            grown: false,
        },
    ];
    for message in rest {
        message::write(&mut control, &message).await.unwrap();
    }
    let outcome = loop {
        match words.next().await.unwrap().unwrap() {
            FromReceiver::File { outcome, .. } => break outcome,
            FromReceiver::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(
        matches!(&outcome, Outcome::Error(problem) if problem.kind == ProblemKind::Integrity),
        "{outcome:?}"
    );
    near.close(DONE, "");
    receiving.await.unwrap();
    assert!(fs::read(versions.there()).unwrap() == old);
}

#[tokio::test]
async fn more_groups_than_a_file_has_end_the_session() {
    let old = random(1, 5 * GROUP as usize);
    let versions = Versions::new(&old, &old);
    let ((_ends, _near, mut control), receiving, mut words) = offered(&versions).await;
    assert!(asked(&mut words).await);
    for _ in 0..6 {
        let values = vec![Hash([7; 32])];
        let groups = FromSender::Groups { index: 0, values };
        message::write(&mut control, &groups).await.unwrap();
    }
    let failure = receiving.await.unwrap().unwrap().failure.unwrap();
    assert!(failure.to_string().contains("groups"), "{failure}");
    assert!(fs::read(versions.there()).unwrap() == old);
}

/// An older dfcp knows of no groups, and says the hash alone.
#[tokio::test]
async fn a_sender_that_knows_no_groups_is_told_that_nothing_is_there() {
    let old = random(1, SIZE);
    let versions = Versions::new(&[&old[1..], b"x"].concat(), &old);
    let ((_ends, near, mut control), receiving, mut words) = offered(&versions).await;
    assert!(asked(&mut words).await);
    let blake3 = blake3::hash(&fs::read(versions.here()).unwrap()).into();
    let hash = FromSender::Hash { index: 0, blake3 };
    message::write(&mut control, &hash).await.unwrap();
    loop {
        match words.next().await.unwrap().unwrap() {
            FromReceiver::Have { groups, .. } => break assert_eq!(groups, []),
            FromReceiver::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    near.close(DONE, "");
    receiving.await.unwrap();
}

/// Values of groups are kept until both sides' are known. What senders have kept who never say theirs is
/// bounded by all of them together, and whoever comes then has the file compared as a whole.
#[tokio::test]
async fn sessions_share_the_memory_for_values_of_groups() {
    let mut versions = Versions::new(b"", b"");
    versions.keep.holes = true;
    // As many groups as a file can have, of which nothing takes room on the disk.
    let large = |i: usize| Entry {
        path: format!("{i}"),
        size: 1 << 30,
        data: Some(0),
        mode: 0o644,
        mtime: 2_000_000_000,
        ..Entry::default()
    };
    let entries: Vec<Entry> = (0..128).map(large).collect();
    for entry in &entries {
        let file = fs::File::create(versions.folder.path().join("to").join(&entry.path)).unwrap();
        // One group of a file of that size.
        file.set_len((1 << 30) / 4096).unwrap();
    }
    let store = Arc::new(versions.store());
    let begin = async || {
        let (endpoints, near, far) = connected().await;
        let store = store.clone();
        let receiving = tokio::spawn(async move {
            let meter = Meter::start();
            dfcp_transfer::receive(&far, store, &meter, async |_| Ok(())).await
        });
        let (mut control, words) = near.open_bi().await.unwrap();
        for part in offer::split(&entries, versions.wishes, &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        ((endpoints, near, control), receiving, Reader::new(words))
    };
    let next = async |words: &mut Reader<RecvStream>| loop {
        match words.next().await.unwrap().unwrap() {
            FromReceiver::Check { groups, .. } => return groups,
            FromReceiver::Hold { .. } | FromReceiver::Accept { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    // Each has half of what the others leave.
    let mut silent = Vec::new();
    for files in (0..8).map(|i| 128 >> i) {
        let mut session = begin().await;
        for file in 0..files {
            assert!(next(&mut session.2).await, "{file} of {files}");
        }
        silent.push(session);
    }
    let mut late = begin().await;
    assert!(!next(&mut late.2).await);
    // Those that end leave theirs.
    for ((_ends, near, _), receiving, _) in silent {
        near.close(DONE, "");
        receiving.await.unwrap();
    }
    assert!(next(&mut begin().await.2).await);
}
