mod there;

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Barrier;

use crate::message::Change;
use crate::offer::Refused;
use crate::partial::Partial;
use crate::tenants::Tenant;

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
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("a"), 0o750);
    // Small ones have theirs from the beginning, where the umask of this process counts as well.
    for (name, offered, expected) in [
        ("b", 0o6777, 0o750),
        ("c", 0o604, 0o600),
        ("d", 0o440, 0o440),
    ] {
        let small = entry(name, 1, offered);
        store
            .put(&small, b"x", &tenant(), &mut Folder::default())
            .unwrap();
        assert_eq!(mode(name), expected, "{name}");
    }
}

/// The umask is of the whole process: to set it, if only for a moment, changes files of others.
#[cfg(target_os = "linux")]
#[test]
fn a_store_that_opens_takes_nothing_from_files_that_others_create() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            for _ in 0..2_000 {
                Store::open(dir.path(), OnConflict::Error).unwrap();
            }
        });
        let mut modes = BTreeSet::new();
        while !opening.is_finished() {
            let file = fs::File::create_new(&path).unwrap();
            fs::remove_file(&path).unwrap();
            modes.insert(file.metadata().unwrap().mode() & 0o7777);
        }
        assert_eq!(modes.len(), 1, "{modes:?}");
    });
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
fn what_is_no_file_stays_and_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let store = Store::open(dir.path(), OnConflict::Overwrite).unwrap();
    let problem = receive(&store, &entry("pipe", 1, 0o644), b"x").unwrap_err();
    assert!(
        problem.message.contains("pipe or a socket"),
        "{}",
        problem.message
    );
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
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

#[test]
fn a_file_that_came_meanwhile_is_no_conflict_if_it_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    for (content, is_same) in [("x", true), ("y", false), ("xx", false)] {
        let Begin::Receive(partial) = store
            .begin(&entry("a", 1, 0o644), &tenant(), How::Small)
            .unwrap()
        else {
            panic!("it is free")
        };
        std::os::unix::fs::FileExt::write_all_at(&partial.file, b"x", 0).unwrap();
        fs::write(dir.path().join("a"), content).unwrap();
        let outcome = store.finish(&partial, &entry("a", 1, 0o644));
        assert_eq!(outcome.is_ok(), is_same, "{content}");
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), content.as_bytes());
        assert_eq!(dir.path().join("a.dfcp-partial").exists(), !is_same);
        fs::remove_file(dir.path().join("a")).unwrap();
    }
}

#[test]
fn senders_decide_about_taken_names_as_far_as_they_are_let() {
    use OnConflict::{Error, Newer, Overwrite, Rename, Skip};
    let dir = tempfile::tempdir().unwrap();
    let everything = [Error, Skip, Rename, Overwrite, Newer];
    for (senders, may) in [
        (Senders::Nothing, &[Error][..]),
        (Senders::Additions, &[Error, Skip, Rename]),
        (Senders::Everything, &everything),
    ] {
        let store = Store::open(dir.path(), Error).unwrap();
        let store = store.with_senders_deciding(senders);
        let session = |on_conflict| {
            let wishes = Wishes {
                on_conflict,
                ..Wishes::default()
            };
            store.for_session(wishes, &People::default(), Refused::default())
        };
        assert_eq!(session(None).unwrap().on_conflict, Error);
        for wish in everything {
            match session(Some(wish)) {
                Ok(session) => assert!(session.on_conflict == wish && may.contains(&wish)),
                Err(no) => assert!(no.kind == RejectionKind::Limit && !may.contains(&wish)),
            }
        }
    }
}

/// Files can come to a name between the look at what is there and the first byte.
#[test]
fn what_is_there_when_a_file_begins_decides_once_more() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "12345").unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    let begins = |on_conflict, name: &str, size| {
        let store = Store::open(dir.path(), on_conflict).unwrap();
        match store.begin(&entry(name, size, 0o644), &tenant(), How::Small) {
            Ok(Begin::Receive(_)) => "it comes",
            Ok(Begin::Settled(Outcome::Skipped)) => "skipped",
            Err(problem) if problem.kind == ProblemKind::Conflict => "conflict",
            other => panic!("{other:?}"),
        }
    };
    for (on_conflict, same, other, directory) in [
        // One of the same size may be the same.
        (OnConflict::Error, "it comes", "conflict", "conflict"),
        (OnConflict::Skip, "skipped", "skipped", "skipped"),
        (OnConflict::Rename, "it comes", "it comes", "it comes"),
        (OnConflict::Overwrite, "it comes", "it comes", "conflict"),
        (OnConflict::Newer, "it comes", "it comes", "conflict"),
    ] {
        assert_eq!(begins(on_conflict, "file", 5), same, "{on_conflict:?}");
        assert_eq!(begins(on_conflict, "file", 6), other, "{on_conflict:?}");
        assert_eq!(
            begins(on_conflict, "directory", 5),
            directory,
            "{on_conflict:?}"
        );
        assert_eq!(begins(on_conflict, "free", 5), "it comes");
    }
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"12345");
}

#[test]
fn whether_the_name_of_a_stream_is_taken_is_known_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "as it was").unwrap();
    let stream = Entry {
        stream: true,
        ..entry("a", 0, 0o644)
    };
    let known = |on_conflict| {
        let store = Store::open(dir.path(), on_conflict).unwrap();
        let survey = store.survey(std::slice::from_ref(&stream), Wishes::default(), || true);
        survey.into_iter().map(|(_, survey)| survey).next()
    };
    let skipped = Survey::Settled(Outcome::Skipped);
    assert_eq!(known(OnConflict::Skip), Some(skipped));
    assert!(matches!(
        known(OnConflict::Error),
        Some(Survey::Settled(Outcome::Error(problem))) if problem.kind == ProblemKind::Conflict
    ));
    for on_conflict in [OnConflict::Overwrite, OnConflict::Rename] {
        assert_eq!(known(on_conflict), None, "{on_conflict:?}");
    }
}

/// A link can take the place of a file after it was looked at.
#[test]
fn what_a_link_leads_to_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("other"), "12345").unwrap();
    std::os::unix::fs::symlink("other", dir.path().join("a")).unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    let alive = store.sessions.begin();
    let session = alive.going();
    let hash = |name: &str| store.hash_there(&entry(name, 5, 0o644), &session);
    assert!(hash("other").is_some() && hash("a").is_none());
    // Nor is what cannot be the file that is offered.
    assert!(
        store
            .hash_there(&entry("other", 6, 0o644), &session)
            .is_none()
    );
}

#[test]
fn an_owner_that_cannot_be_given_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
    for (name, changed) in [("a", denied()), ("b", Ok(())), ("c", denied())] {
        store.note_owner(&entry(name, 1, 0o644), changed);
    }
    let told = store.notes.take();
    assert_eq!((told.len(), &*told[0].path), (1, "a"), "{told:?}");
    assert!(told[0].why.contains("owner") && told[0].why.contains("1 more"));
}

/// The content is there; a copy onto such a file system would otherwise bring nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_mode_that_the_file_system_does_not_keep_is_told_of_and_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    // One whose files have the modes that the kernel gives them.
    let file = fs::File::open("/proc/self/stat").unwrap();
    store.apply(&file, &entry("a", 1, 0o644));
    let told = store.notes.take();
    assert_eq!((told.len(), &*told[0].path), (1, "a"), "{told:?}");
    assert!(told[0].why.starts_with("its mode"), "{told:?}");
}

#[test]
fn a_small_file_that_gets_no_name_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "other").unwrap();
    for on_conflict in [OnConflict::Error, OnConflict::Skip] {
        let store = Store::open(dir.path(), on_conflict).unwrap();
        let small = entry("a", 5, 0o644);
        let put = store.put(&small, b"bytes", &tenant(), &mut Folder::default());
        match on_conflict {
            OnConflict::Skip => assert_eq!(put.unwrap(), Outcome::Skipped),
            _ => assert_eq!(put.unwrap_err().kind, ProblemKind::Conflict),
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"other");
    }
}

/// The receiver of a copy that was broken off lives on for some seconds.
#[test]
fn a_partial_file_that_another_process_has_is_waited_for_by_copies_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.dfcp-partial");
    for is_copy in [false, true] {
        let other = fs::File::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        other.try_lock().unwrap();
        let mut store = Store::open(dir.path(), OnConflict::Error).unwrap();
        if is_copy {
            store = store.kept_for([1; 32]);
        }
        let begin = || store.begin(&entry("a", 1, 0o644), &tenant(), How::Small);
        std::thread::scope(|scope| {
            let mut held = Some(other);
            if is_copy {
                let other = held.take();
                scope.spawn(move || {
                    std::thread::park_timeout(Duration::from_millis(300));
                    drop(other);
                });
            }
            match begin() {
                Ok(Begin::Receive(_)) => assert!(is_copy),
                Err(problem) => assert!(!is_copy && problem.kind == ProblemKind::Target),
                Ok(settled) => panic!("{settled:?}"),
            }
            drop(held);
        });
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_was_put_in_its_place_leaves_no_journal() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(250);
    for name in ["a", &long] {
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let offered = entry(name, 1, 0o644);
        let Begin::Receive(partial) = store.begin(&offered, &tenant(), How::Anew).unwrap() else {
            panic!("it is free")
        };
        partial.write(b"x", 0, || true).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(store.finish(&partial, &offered).unwrap(), Outcome::Done);
        let left = fs::read_dir(dir.path()).unwrap();
        let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, [name]);
        fs::remove_file(dir.path().join(name)).unwrap();
    }
}

/// What is in the way decides what its owner can do about it.
#[test]
fn what_is_in_the_way_of_a_directory_is_called_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, special) in [("file", false), ("link", false), ("pipe", true)] {
        let problem = store.create_dir(&format!("{name}/x")).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Conflict);
        let said = problem.message.contains("a device, a pipe or a socket");
        assert_eq!(said, special, "{}", problem.message);
    }
}
