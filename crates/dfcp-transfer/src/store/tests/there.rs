//! What is there already, and of what use it is.

use super::*;

#[test]
fn a_file_is_nothing_to_receive_into() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, b"x").unwrap();
    let error = Store::open(&path, OnConflict::Error).err().unwrap();
    let said = error.to_string();
    assert!(said.contains("a file, not a directory"), "{said}");
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
    let session = store.sessions.begin();
    let older = store.older(&entry, &session.going()).unwrap();
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
        let survey = store.survey(&[offered], wishes, || true).into_iter().next();
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
    let known =
        |offered: &Entry, wishes| store.survey(std::slice::from_ref(offered), wishes, || true);
    assert_eq!(
        known(&offered, nobody),
        [(0, Survey::Examine(Ask::Nothing))]
    );
    assert_eq!(known(&offered, anew), []);
    assert_eq!(known(&stream, nobody), []);
    let absent = Store::open_to_look(&dir.path().join("none/x"), OnConflict::Error).unwrap();
    assert_eq!(absent.survey(&[offered], nobody, || true), []);
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
        let known = store.survey(&[offered], Wishes::default(), || true);
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
    let session = store.sessions.begin();
    let alive = session.going();
    let begin = |how: How<'_>| match store.begin(&offered, &tenant(), how).unwrap() {
        Begin::Receive(partial) => partial,
        Begin::Settled(outcome) => panic!("{outcome:?}"),
    };
    let write = |partial: &Partial| {
        let bytes = vec![7; crate::tree::MIN_GROUP as usize];
        partial.write(&bytes, 0, || true).unwrap();
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
    let known = store.survey(&offered, Wishes::default(), || true);
    let skipped = || Survey::Settled(Outcome::Skipped);
    assert_eq!(known, [(2, skipped()), (6, skipped())]);
}

/// A list of a hundred thousand names takes a third of a second, in which others are to have their turns.
#[test]
fn many_names_are_looked_up_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), OnConflict::Skip).unwrap();
    let names = 5000;
    let offered: Vec<_> = (0..names)
        .map(|i| {
            let name = i.to_string();
            fs::write(dir.path().join(&name), "").unwrap();
            entry(&name, 7, 0o644)
        })
        .collect();
    let known = |go_on: &dyn Fn() -> bool| store.survey(&offered, Wishes::default(), go_on).len();
    assert_eq!(known(&|| true), names);
    assert!(known(&|| false) < names / 4);
    // A few wait for nobody.
    let few = store.survey(&offered[..100], Wishes::default(), || false);
    assert_eq!(few.len(), 100);
}
