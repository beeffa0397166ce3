use super::*;
use std::fs;
use std::sync::Barrier;

fn entry(path: &str, size: u64, mode: u32) -> Entry {
    Entry {
        path: path.to_owned(),
        size,
        mode,
        ..Entry::default()
    }
}

fn tenant() -> Arc<Tenant> {
    Tenant::new([1; 32])
}

/// Receives a file with these bytes.
fn receive(store: &Store, entry: &Entry, bytes: &[u8]) -> Result<Outcome, Problem> {
    let Begin::Receive(partial) = store.begin(entry, &tenant(), How::Small)? else {
        panic!("it is to be received")
    };
    std::os::unix::fs::FileExt::write_all_at(&partial.file, bytes, 0).unwrap();
    store.finish(&partial, entry)
}

#[test]
fn modes_are_within_the_umask_and_give_no_privileges() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), OnConflict::Error).unwrap();
    store.umask = 0o027;
    receive(&store, &entry("a", 1, 0o6777), b"x").unwrap();
    let mode = fs::metadata(dir.path().join("a")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o750);
}

#[test]
fn what_is_linked_to_the_name_of_a_partial_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::hard_link(&victim, dir.path().join("a.dfcp-partial")).unwrap();
    assert!(receive(&store, &entry("a", 1, 0o644), b"x").is_err());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn a_partial_file_of_another_user_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    let partial = dir.path().join("a.dfcp-partial");
    fs::write(&partial, "theirs").unwrap();
    // Only the superuser can give files away; for others there is nothing to try.
    if std::os::unix::fs::chown(&partial, Some(65_534), None).is_ok() {
        assert!(receive(&store, &entry("a", 1, 0o644), b"x").is_err());
        assert_eq!(fs::read(&partial).unwrap(), b"theirs");
    }
}

#[test]
fn a_name_that_is_taken_meanwhile_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    for (round, on_conflict) in [OnConflict::Error, OnConflict::Skip, OnConflict::Rename]
        .into_iter()
        .enumerate()
    {
        let store = Store::open(dir.path(), on_conflict).unwrap();
        let entry = entry(&format!("d/{round}"), 1, 0o644);
        let Begin::Receive(partial) = store.begin(&entry, &tenant(), How::Small).unwrap() else {
            panic!("it is free")
        };
        let place = dir.path().join(&entry.path);
        fs::write(&place, "other").unwrap();
        let outcome = store.finish(&partial, &entry);
        assert_eq!(fs::read(&place).unwrap(), b"other", "{on_conflict:?}");
        match on_conflict {
            OnConflict::Error => assert!(outcome.is_err()),
            OnConflict::Skip => assert_eq!(outcome.unwrap(), Outcome::Skipped),
            _ => assert!(dir.path().join("d/2.1").exists()),
        }
    }
}

#[test]
fn two_transfers_that_want_the_same_free_name_both_keep_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let stores = [(); 2].map(|()| Store::open(dir.path(), OnConflict::Rename).unwrap());
    let barrier = Barrier::new(2);
    for round in 0..100 {
        let taken = format!("{round}");
        fs::write(dir.path().join(&taken), "").unwrap();
        // Both end up wanting `ROUND.1`.
        let entries = [
            entry(&taken, 1, 0o644),
            entry(&format!("{round}.1"), 1, 0o644),
        ];
        std::thread::scope(|scope| {
            for ((store, entry), bytes) in stores.iter().zip(&entries).zip([b"x", b"y"]) {
                let barrier = &barrier;
                scope.spawn(move || {
                    let Begin::Receive(partial) =
                        store.begin(entry, &tenant(), How::Small).unwrap()
                    else {
                        panic!("it is to be received")
                    };
                    std::os::unix::fs::FileExt::write_all_at(&partial.file, bytes, 0).unwrap();
                    barrier.wait();
                    store.finish(&partial, entry).unwrap();
                });
            }
        });
        let files = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(files, 3 * (round + 1), "round {round}");
    }
}
