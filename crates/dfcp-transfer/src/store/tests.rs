use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Barrier;

use crate::message::Change;
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

/// What is announced of an older version is what was copied of it, whatever becomes of that file.
#[test]
fn an_older_version_that_changes_while_it_is_copied_gives_what_it_still_has() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Overwrite).unwrap();
    let path = dir.path().join("a");
    let (group, size) = (64 << 10, 250_000);
    let before: Vec<u8> = (0..size).map(|i: u64| (i >> 8) as u8).collect();
    fs::write(&path, &before).unwrap();
    let entry = entry("a", size, 0o644);
    let session = Arc::new(());
    let older = store.older(&entry, &Arc::downgrade(&session)).unwrap();
    let shape = crate::tree::Shape::new(size);
    let original = fs::File::open(&path).unwrap();
    let values = (0..shape.count()).map(|i| shape.value(&original, i).unwrap());
    let values: Vec<_> = values.map(crate::message::Hash).collect();
    let mut groups = older.has(&values);
    assert_eq!(groups.len(), 4);
    // What the sender does not have is not taken, nor what has changed or is gone by now.
    groups.remove(0);
    let there = fs::File::options().write(true).open(&path).unwrap();
    there.write_all_at(b"other", group).unwrap();
    there.set_len(3 * group).unwrap();
    let begun = store.begin(&entry, &tenant(), How::Over(&older, &groups));
    let Ok(Begin::Receive(partial)) = begun else {
        panic!("{begun:?}")
    };
    let have: Vec<u64> = partial.have().into_iter().map(|(i, _)| i).collect();
    assert_eq!(have, [2]);
    let mut copied = vec![0; group as usize];
    partial.file.read_exact_at(&mut copied, 2 * group).unwrap();
    assert!(copied == before[2 * group as usize..3 * group as usize]);
    drop(partial);
    // Nobody reads on for a session that has ended.
    drop(session);
    let Begin::Receive(partial) = store
        .begin(&entry, &Tenant::new([2; 32]), How::Over(&older, &groups))
        .unwrap()
    else {
        panic!("it is free")
    };
    assert_eq!(partial.have(), []);
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
            store.for_session(wishes, &People::default())
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
        let survey = store.survey(std::slice::from_ref(&stream), Wishes::default());
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
    let alive = Arc::new(());
    let session = Arc::downgrade(&alive);
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
fn only_what_is_offered_and_kept_is_a_difference() {
    use cap_std::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "x").unwrap();
    let there = cap_std::fs::Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority());
    let there = there.unwrap().metadata("a").unwrap();
    let offered = |owner| Entry {
        meta: Some(Box::new(crate::message::Meta {
            owner,
            ..Default::default()
        })),
        mtime: 1,
        ..entry("a", 1, 0o600)
    };
    use crate::meta::Owners::{Ignored, Numbers, Receiver};
    let (me, other) = ((there.uid(), there.gid()), (there.uid() + 7, there.gid()));
    for (owners, modes, owner, refused, changes) in [
        // Neither mode nor time are kept of what is there, and an owner only where that was asked for.
        (Receiver, false, None, false, &[][..]),
        (Receiver, false, Some(me), true, &[]),
        (Ignored, false, Some(other), false, &[]),
        (Numbers, false, None, false, &[]),
        (Numbers, false, Some(me), false, &[]),
        (Numbers, false, Some(other), false, &[Change::Owner]),
        (
            Numbers,
            true,
            Some(me),
            false,
            &[Change::Mode, Change::Time],
        ),
    ] {
        let store = Store::open(dir.path(), OnConflict::Error).unwrap();
        let store = store.keeping(Keep {
            owners,
            modes,
            ..Keep::default()
        });
        let open = || panic!("nothing is said of its attributes");
        let found = store.differences(&there, &offered(owner), open);
        assert_eq!((found.refused, &found.changes[..]), (refused, changes));
        assert_eq!(found.are_none(), !refused && changes.is_empty());
    }
}

/// Only of who may replace a file it is compared group by group, and only where that can save something.
#[test]
fn an_older_version_is_looked_at_where_it_can_be_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let (group, large) = (crate::tree::MIN_GROUP, crate::MAX_SMALL + 1);
    for (name, size) in [("group", group), ("less", group - 1), ("large", large)] {
        let file = fs::File::create(dir.path().join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    fs::create_dir(dir.path().join("directory")).unwrap();
    let asked = |on_conflict, offered: Entry, wishes: Wishes| {
        let store = Store::open(dir.path(), on_conflict).unwrap();
        let survey = store.survey(&[offered], wishes).into_iter().next();
        survey.map(|(_, survey)| survey)
    };
    let nobody = Wishes::default();
    let whole = Wishes {
        whole: true,
        ..nobody
    };
    let anew = Wishes {
        anew: true,
        ..nobody
    };
    let ask = |ask| Some(Survey::Examine(ask));
    use OnConflict::{Overwrite, Rename};
    for (on_conflict, name, size, wishes, expected) in [
        (Overwrite, "group", large, nobody, ask(Ask::Groups)),
        (Overwrite, "less", large, nobody, ask(Ask::Nothing)),
        (Overwrite, "group", large - 1, nobody, ask(Ask::Nothing)),
        (Overwrite, "group", group, nobody, ask(Ask::Hash)),
        (Overwrite, "large", large, nobody, ask(Ask::Groups)),
        (Overwrite, "large", large, whole, ask(Ask::Hash)),
        (Overwrite, "large", large, anew, ask(Ask::Hash)),
        (Rename, "large", large, nobody, ask(Ask::Hash)),
        (Rename, "group", large, nobody, ask(Ask::Nothing)),
        (Rename, "directory", large, nobody, ask(Ask::Nothing)),
        (Overwrite, "free", large, nobody, None),
    ] {
        let offered = entry(name, size, 0o644);
        let is = asked(on_conflict, offered, wishes);
        assert_eq!(is, expected, "{on_conflict:?} {name} {size}");
    }
}

/// A journal says that there is a part; who wants all of it anew is not told, and a stream has none.
#[test]
fn a_part_that_is_there_is_looked_at_unless_nobody_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/a.dfcp-journal"), "").unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    let offered = entry("d/a", 1 << 20, 0o644);
    let stream = Entry {
        stream: true,
        ..offered.clone()
    };
    let anew = Wishes {
        anew: true,
        ..Wishes::default()
    };
    let nobody = Wishes::default();
    let known = |offered: &Entry, wishes| store.survey(std::slice::from_ref(offered), wishes);
    assert_eq!(
        known(&offered, nobody),
        [(0, Survey::Examine(Ask::Nothing))]
    );
    assert_eq!(known(&offered, anew), []);
    assert_eq!(known(&stream, nobody), []);
    let absent = Store::open_to_look(&dir.path().join("none/x"), OnConflict::Error).unwrap();
    assert_eq!(absent.survey(&[offered], nobody), []);
    assert!(!dir.path().join("none").exists());
}

/// Times are compared to the nanosecond.
#[test]
fn what_was_changed_at_the_same_time_or_later_is_not_older() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let store = Store::open(dir.path(), OnConflict::Newer).unwrap();
    fs::write(&path, "other").unwrap();
    let (seconds, nanos) = (1_000_000_000, 500);
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, nanos);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(time).unwrap();
    for (mtime, mtime_nanos, stays) in [
        (seconds, nanos - 1, true),
        (seconds, nanos, true),
        (seconds, nanos + 1, false),
        (seconds - 1, nanos + 1, true),
        (seconds + 1, 0, false),
    ] {
        let offered = Entry {
            mtime,
            mtime_nanos,
            ..entry("a", 7, 0o644)
        };
        let known = store.survey(&[offered], Wishes::default());
        let expected = match stays {
            true => Survey::Settled(Outcome::Skipped),
            false => Survey::Examine(Ask::Nothing),
        };
        assert_eq!(known, [(0, expected)], "{mtime} {mtime_nanos}");
    }
}

/// A part that is for one sender is of no use to another, and one without a journal to nobody.
#[test]
fn what_is_there_of_a_file_is_used_as_its_sender_wants() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Error).unwrap();
    let size = 5 * crate::tree::MIN_GROUP;
    let offered = entry("a", size, 0o644);
    let session = Arc::new(());
    let alive = Arc::downgrade(&session);
    let begin = |how: How<'_>| match store.begin(&offered, &tenant(), how).unwrap() {
        Begin::Receive(partial) => partial,
        Begin::Settled(outcome) => panic!("{outcome:?}"),
    };
    let write = |partial: &Partial| {
        let bytes = vec![7; crate::tree::MIN_GROUP as usize];
        partial.write(&bytes, 0).unwrap();
    };
    let partial = begin(How::Anew);
    assert_eq!(partial.file.metadata().unwrap().len(), 0);
    write(&partial);
    drop(partial);
    let resumed = begin(How::Resume(&alive));
    assert_eq!(resumed.have().len(), 1);
    assert_eq!(resumed.file.metadata().unwrap().len(), size);
    drop(resumed);
    // Begun anew, what was there is gone, and so is what was noted of it.
    drop(begin(How::Anew));
    let resumed = begin(How::Resume(&alive));
    assert_eq!(resumed.have(), []);
    assert_eq!(resumed.file.metadata().unwrap().len(), 0);
    write(&resumed);
    drop(resumed);
    fs::remove_file(dir.path().join("a.dfcp-journal")).unwrap();
    assert_eq!(begin(How::Resume(&alive)).have(), []);
    // What cannot be a journal does not keep a file from coming.
    fs::remove_file(dir.path().join("a.dfcp-journal")).unwrap();
    fs::create_dir(dir.path().join("a.dfcp-journal")).unwrap();
    let partial = begin(How::Resume(&alive));
    write(&partial);
    assert_eq!(partial.have().len(), 1);
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
        partial.write(b"x", 0).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(store.finish(&partial, &offered).unwrap(), Outcome::Done);
        let left = fs::read_dir(dir.path()).unwrap();
        let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, [name]);
        fs::remove_file(dir.path().join(name)).unwrap();
    }
}

/// Files of one name in several directories are not taken for each other.
#[test]
fn what_is_there_is_looked_for_in_the_directory_that_was_offered() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("b/x"), "old").unwrap();
    fs::write(dir.path().join("z"), "old").unwrap();
    let store = Store::open(dir.path(), OnConflict::Skip).unwrap();
    let offered =
        ["a/x", "a/z", "b/x", "b/z", "c/x", "none/x", "z", "x"].map(|path| entry(path, 7, 0o644));
    let known = store.survey(&offered, Wishes::default());
    let skipped = || Survey::Settled(Outcome::Skipped);
    assert_eq!(known, [(2, skipped()), (6, skipped())]);
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
