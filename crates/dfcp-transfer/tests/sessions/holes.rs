//! Files with holes, in any number and of any size.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dfcp_transfer::message::{self, FromReceiver, FromSender, Reader};
use dfcp_transfer::{
    DONE, Entry, Keep, Limits, Meter, OnConflict, Outcome, People, Scan, Sources, Store, Wishes,
    offer,
};

use crate::common::{Transfer, connected, transfer};

const HOLES: Keep = Keep {
    owners: dfcp_transfer::Owners::Receiver,
    attributes: false,
    acls: false,
    holes: true,
    modes: false,
};

/// Bytes on the disk.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Makes a file with this content at these offsets, and holes between; false if the file system makes none.
fn make(path: &Path, size: u64, content: &[u8], offsets: impl Iterator<Item = u64>) -> bool {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for at in offsets {
        file.write_all_at(content, at).unwrap();
    }
    let has_holes = taken(path) < size / 2;
    if !has_holes {
        eprintln!("skipped: this file system has no holes");
    }
    has_holes
}

async fn send(paths: &[PathBuf], to: &Path, change: impl FnOnce()) -> Transfer {
    let how = Scan {
        keep: HOLES,
        ..Scan::default()
    };
    let sources = Sources::scan_with(paths, how).unwrap();
    change();
    let store = Store::open(to, OnConflict::Overwrite).unwrap();
    transfer(&Arc::new(sources), store.keeping(HOLES)).await
}

#[tokio::test]
async fn a_file_of_more_holes_than_a_message_lists_arrives() {
    const EACH: u64 = 128 << 10;
    // A message lists 1024 ranges.
    const COUNT: u64 = 1100;
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join("x"), folder.path().join("to"));
    let places = || (0..COUNT).map(|i| i * EACH);
    if !make(&path, COUNT * EACH, &[7; 100], places()) {
        return;
    }
    let ended = send(std::slice::from_ref(&path), &to, || ()).await;
    assert_eq!(ended.outcomes()[&0], Outcome::Done);
    let there = File::open(to.join("x")).unwrap();
    assert_eq!(there.metadata().unwrap().len(), COUNT * EACH);
    assert!(taken(&to.join("x")) < COUNT * EACH / 2);
    for at in places() {
        let mut bytes = [9; 101];
        there.read_exact_at(&mut bytes, at).unwrap();
        assert!(bytes[..100] == [7; 100] && bytes[100] == 0, "{at}");
    }
}

#[tokio::test]
async fn holes_of_a_small_file_stay_holes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join("x"), folder.path().join("to"));
    if !make(&path, 200_000, b"content", [150_000].into_iter()) {
        return;
    }
    let ended = send(std::slice::from_ref(&path), &to, || ()).await;
    assert_eq!(ended.outcomes()[&0], Outcome::Done);
    assert!(fs::read(&path).unwrap() == fs::read(to.join("x")).unwrap());
    assert!(taken(&to.join("x")) < 100_000);
}

/// Neither end shows them as bytes that are yet to come.
#[tokio::test]
async fn holes_do_not_count_among_what_is_to_come() {
    let folder = tempfile::tempdir().unwrap();
    let [path, gone] = ["x", "gone"].map(|name| folder.path().join(name));
    if !make(&path, 50 << 20, &[7; 10_000], [20 << 20].into_iter()) {
        return;
    }
    fs::write(&gone, [1; 1000]).unwrap();
    let remove = || fs::remove_file(&gone).unwrap();
    let paths = [path.clone(), gone.clone()];
    let ended = send(&paths, &folder.path().join("to"), remove).await;
    assert_eq!(ended.outcomes()[&0], Outcome::Done);
    let came = ended.receiving.progress().bytes();
    assert!((10_000..1 << 20).contains(&came), "{came}");
    // What was to come and did not counts still.
    for meter in [ended.sending, ended.receiving] {
        assert_eq!(meter.total(), came + 1000);
    }
}

/// A few words make a file of any size, whose zeros take hours to hash.
#[tokio::test]
async fn nothing_goes_on_with_holes_of_a_sender_that_has_gone() {
    const SIZE: u64 = 8 << 40;
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        bytes: SIZE,
        ..Limits::default()
    };
    let store = Store::open(folder.path(), OnConflict::Error).unwrap();
    let store = Arc::new(store.keeping(HOLES).with_limits(limits));
    let (_endpoints, near, far) = connected().await;
    let entry = Entry {
        path: "x".into(),
        size: SIZE,
        mode: 0o644,
        data: Some(0),
        ..Entry::default()
    };
    let send = async {
        let (mut control, replies) = near.open_bi().await.unwrap();
        for part in offer::split(&[entry], Wishes::default(), &People::default()) {
            message::write(&mut control, &part).await.unwrap();
        }
        let holes = FromSender::Holes {
            index: 0,
            extents: vec![(0, SIZE)],
        };
        message::write(&mut control, &holes).await.unwrap();
        let mut replies = Reader::new(replies);
        let accepted = replies.next().await.unwrap();
        assert!(matches!(accepted, Some(FromReceiver::Accept { .. })));
        let partial = folder.path().join("x.dfcp-partial");
        let begun = async {
            while !fs::metadata(&partial).is_ok_and(|file| file.len() > 0) {
                tokio::task::yield_now().await;
            }
        };
        let begins = tokio::select! {
            () = begun => true,
            told = replies.next::<FromReceiver>() => {
                eprintln!("skipped: this file system has no such files: {told:?}");
                false
            }
        };
        near.close(DONE, "");
        begins
    };
    let meter = Meter::start();
    let receive = dfcp_transfer::receive(&far, store, &meter, async |_| Ok(()));
    let (begins, received) = tokio::join!(send, receive);
    assert_eq!(received.unwrap().failure.is_some(), begins);
}
