//! Files that change at the sender after they were listed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use dfcp::Chunk;
use dfcp_transfer::message::{self, FromReceiver, FromSender, Reader};
use dfcp_transfer::{
    DONE, Expected, Meter, OnConflict, Outcome, ProblemKind, Sources, Store, Unstable,
};

use crate::common::{connected, transfer};

/// Lists a directory with a file of `size` bytes between two others, has that changed, and sends them to where
/// there may be an older version of it already. What became of it, and what there is at the receiver then.
async fn changed(
    size: usize,
    older: Option<&[u8]>,
    change: impl FnOnce(&Path),
) -> (Outcome, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let paths = ["a", "b", "c"].map(|name| tree.join(name));
    for path in &paths {
        fs::write(path, vec![7; size]).unwrap();
    }
    let mut sources = Sources::scan(std::slice::from_ref(&tree)).unwrap();
    let to = folder.path().join("to");
    let there = to.join("tree/b");
    if let Some(older) = older {
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        fs::write(&there, older).unwrap();
        let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = fs::File::options().write(true).open(&there).unwrap();
        file.set_modified(long_ago).unwrap();
        sources.expected = Expected::Something;
    }
    let listed = fs::metadata(&paths[1]).unwrap().modified().unwrap();
    let was = size as u64;
    change(&paths[1]);
    let store = Store::open(&to, OnConflict::Overwrite).unwrap();
    let ended = transfer(&Arc::new(sources), store).await;
    // Both sides tell of it.
    let [told, heard] = [&ended.sending, &ended.receiving].map(|meter| meter.diary().unstable());
    assert_eq!(told, heard);
    let outcomes = ended.outcomes();
    for (index, name) in [(1, "a"), (3, "c")] {
        assert_eq!(outcomes[&index], Outcome::Done, "{name}");
        assert_eq!(fs::read(to.join("tree").join(name)).unwrap(), vec![7; size]);
    }
    let outcome = outcomes[&2].clone();
    if outcome == Outcome::Done {
        assert_eq!(told, BTreeMap::from([(2, Unstable::Changed)]));
        let size = fs::metadata(&paths[1]).unwrap().len();
        assert_eq!(ended.sending.diary().size(2).unwrap_or(was), size);
        // So that the next copy looks at it again.
        let came = fs::metadata(&there).unwrap().modified().unwrap();
        assert_eq!(came, listed);
    }
    (outcome, fs::read(&there).ok())
}

/// As editors do.
fn replace(path: &Path, content: &[u8]) {
    let other = path.with_extension("new");
    fs::write(&other, content).unwrap();
    fs::rename(other, path).unwrap();
}

/// Where nothing is there, in a pack and alone; and where something is that both sides look at first.
#[tokio::test]
async fn a_file_that_is_another_one_by_now_arrives_as_it_is() {
    for size in [1000, 600_000] {
        let olders = [None, Some(vec![1; size]), Some(vec![1; 2 * size])];
        for (older, to) in olders
            .iter()
            .flat_map(|older| [0, size / 2, size, size + 1, 3 * size + 1].map(|to| (older, to)))
        {
            let older = older.as_deref();
            let what = format!("{size} to {to}, {:?} there", older.map(<[u8]>::len));
            let content = vec![8; to];
            let ended = changed(size, older, |path| replace(path, &content)).await;
            assert_eq!(ended.0, Outcome::Done, "{what}");
            assert!(ended.1.unwrap() == content, "{what}");
        }
        // The same file, made shorter; and as long as before, but of another time.
        let short = changed(size, None, |path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(10).unwrap();
        });
        assert_eq!(short.await.1.unwrap(), [7; 10]);
        let touched = changed(size, None, |path| {
            let file = fs::File::options().append(true).open(path).unwrap();
            let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            file.set_modified(then).unwrap();
        });
        assert_eq!(touched.await.1.unwrap(), vec![7; size]);
    }
}

/// What a receiver has is compared with what there is by now.
#[tokio::test]
async fn another_version_that_is_there_already_is_not_sent() {
    let size = 600_000;
    let content = vec![8; size];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, vec![7; size]).unwrap();
    let mut sources = Sources::scan(std::slice::from_ref(&path)).unwrap();
    sources.expected = Expected::Something;
    replace(&path, &content);
    let to = folder.path().join("to");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("x"), &content).unwrap();
    let store = Store::open(&to, OnConflict::Overwrite).unwrap();
    let sent = transfer(&Arc::new(sources), store).await.sent.unwrap();
    assert_eq!(sent.outcomes[&0], Outcome::There);
}

#[tokio::test]
async fn what_is_no_file_any_more_or_elsewhere_is_not_sent() {
    for size in [1000, 600_000] {
        let why = async |change: fn(&Path)| match changed(size, None, change).await {
            (Outcome::Error(problem), None) if problem.kind == ProblemKind::Source => {
                problem.message
            }
            other => panic!("{other:?}"),
        };
        let removed = why(|path| fs::remove_file(path).unwrap()).await;
        assert!(removed.contains("removed"), "{size}: {removed}");
        let directory = why(|path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        });
        assert!(!directory.await.is_empty(), "{size}: a directory");
        let link = why(|path| {
            let secret = secret_beside(path.parent().unwrap());
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink(secret.join("b"), path).unwrap();
        });
        let link = link.await;
        assert!(
            link.contains("a symbolic link took its place"),
            "{size}: {link}"
        );
    }
}

/// A directory with a file of a name that the other one has, too.
fn secret_beside(directory: &Path) -> PathBuf {
    let secret = directory.with_extension("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("b"), "secret").unwrap();
    secret
}

/// Who may write where a more powerful user copies from could have anything sent.
#[tokio::test]
async fn nothing_is_sent_of_a_directory_that_took_the_place_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("b"), "content").unwrap();
    let sources = Arc::new(Sources::scan(std::slice::from_ref(&tree)).unwrap());
    let secret = secret_beside(&tree);
    fs::rename(&tree, folder.path().join("old")).unwrap();
    std::os::unix::fs::symlink(secret, &tree).unwrap();
    let to = folder.path().join("to");
    let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
    let outcome = &ended.outcomes()[&1];
    assert!(
        matches!(outcome, Outcome::Error(why) if why.message.contains("another directory")),
        "{outcome:?}"
    );
    assert!(!to.join("tree/b").exists());
}

/// They were names of one file, of which others may still be: a link there would be to another one.
#[tokio::test]
async fn other_names_of_a_file_that_was_replaced_do_not_become_names_of_the_new_one() {
    for size in [1000, 600_000] {
        for is_replaced in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let paths = ["a", "b"].map(|name| folder.path().join(name));
            fs::write(&paths[0], vec![7; size]).unwrap();
            fs::hard_link(&paths[0], &paths[1]).unwrap();
            let sources = Arc::new(Sources::scan(&paths).unwrap());
            let content = vec![8; size / 2];
            match is_replaced {
                true => replace(&paths[0], &content),
                false => fs::write(&paths[0], &content).unwrap(),
            }
            let to = folder.path().join("to");
            let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
            for (index, name) in [(0, "a"), (1, "b")] {
                let outcome = &ended.outcomes()[&index];
                match is_replaced {
                    true => assert!(matches!(outcome, Outcome::Error(_)), "{name}: {outcome:?}"),
                    false => assert!(fs::read(to.join(name)).unwrap() == content, "{name}"),
                }
            }
        }
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
        log.set_modified(listed + Duration::from_secs(5)).unwrap();
        let to = folder.path().join("to");
        let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
        let outcomes = ended.outcomes();
        assert!(outcomes.values().all(|o| *o == Outcome::Done), "{size}");
        for meter in [&ended.sending, &ended.receiving] {
            let told = meter.diary().unstable();
            assert_eq!(told, BTreeMap::from([(1, Unstable::Grown)]), "{size}");
        }
        assert_eq!(fs::read(to.join("b")).unwrap(), vec![7; size]);
        let came = fs::metadata(to.join("b")).unwrap().modified().unwrap();
        assert_eq!(came, listed, "{size}");
        // The rest, later.
        let sources = Arc::new(Sources::scan(&paths).unwrap());
        let store = Store::open(&to, OnConflict::Overwrite).unwrap();
        let ended = transfer(&sources, store).await;
        assert!(ended.receiving.diary().unstable().is_empty(), "{size}");
        let whole = fs::read(&paths[1]).unwrap();
        assert!(fs::read(to.join("b")).unwrap() == whole, "{size}");
    }
}

/// A program that writes into the holes of a file may have written where nothing is read: all of it comes.
#[tokio::test]
async fn a_file_with_holes_that_grows_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "beginning").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(4 << 20).unwrap();
    let sources = Arc::new(Sources::scan(std::slice::from_ref(&path)).unwrap());
    if sources.list[0].entry.data.is_none() {
        eprintln!("skipped: this file system tells of no holes");
        return;
    }
    file.write_all_at(b"in a hole", 1 << 20).unwrap();
    file.set_len(5 << 20).unwrap();
    let to = folder.path().join("to");
    let ended = transfer(&sources, Store::open(&to, OnConflict::Error).unwrap()).await;
    assert_eq!(ended.outcomes()[&0], Outcome::Done);
    assert!(fs::read(to.join("x")).unwrap() == fs::read(&path).unwrap());
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
            changed: false,
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
