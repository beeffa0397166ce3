//! Names that are taken at the receiver: by other files, links and directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dfcp_transfer::{Links, OnConflict, Outcome, ProblemKind, Scan, Sources, Store, Wishes};
use tempfile::TempDir;

use crate::common::transfer;

/// Of files that go with others in a pack, and alone.
const SIZES: [usize; 2] = [100, 500_000];

/// Directories `from` and `to` of a sender and a receiver.
struct Bench {
    folder: TempDir,
    wishes: Wishes,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for side in ["from", "to"] {
            fs::create_dir(folder.path().join(side)).unwrap();
        }
        Self {
            folder,
            wishes: Wishes::default(),
        }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.folder.path().join("from").join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.folder.path().join("to").join(name)
    }

    fn store(&self, on_conflict: OnConflict) -> Store {
        Store::open(&self.folder.path().join("to"), on_conflict).unwrap()
    }

    /// Sends what is in `from`; what became of each, by its path.
    async fn send(&self, store: Store) -> BTreeMap<String, Outcome> {
        let how = Scan {
            links: Links::Keep,
            ..Scan::default()
        };
        let mut paths: Vec<_> = fs::read_dir(self.folder.path().join("from"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        let mut sources = Sources::scan_with(&paths, how).unwrap();
        sources.wishes = self.wishes;
        let sources = Arc::new(sources);
        let ended = transfer(&sources, store).await;
        let path = |i: u64| ended.received.entries[i as usize].path.clone();
        let outcomes = ended.outcomes().iter();
        outcomes
            .map(|(i, outcome)| (path(*i), outcome.clone()))
            .collect()
    }

    async fn send_one(&self, on_conflict: OnConflict) -> Outcome {
        let mut outcomes = self.send(self.store(on_conflict)).await;
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.pop_first().unwrap().1
    }
}

/// Writes a file that was changed then.
fn write(path: &Path, content: &[u8], changed: SystemTime) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(changed).unwrap();
}

/// Some time that every file system can keep, and a while before and after it.
fn at(nanos: i64) -> SystemTime {
    let base = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let part = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 { base - part } else { base + part }
}

fn is(outcome: &Outcome, kind: ProblemKind) -> bool {
    matches!(outcome, Outcome::Error(problem) if problem.kind == kind)
}

#[tokio::test]
async fn newer_replaces_what_was_changed_before_and_nothing_else() {
    for size in SIZES {
        for (old, new_size, outcome) in [
            (at(-1_000_000_000), size, Outcome::Done),
            (at(-1000), size, Outcome::Done),
            (at(0), size + 1, Outcome::Skipped),
            (at(1000), size, Outcome::Skipped),
            (at(1_000_000_000), size + 1, Outcome::Skipped),
        ] {
            let bench = Bench::new();
            write(&bench.here("x"), &vec![1; new_size], at(0));
            write(&bench.there("x"), &vec![2; size], old);
            assert_eq!(bench.send_one(OnConflict::Newer).await, outcome, "{old:?}");
            let first = if outcome == Outcome::Done { 1 } else { 2 };
            assert_eq!(fs::read(bench.there("x")).unwrap()[0], first);
        }
    }
}

/// What the receiver looks for to learn whether case is told is put there, as if it were its own file under a name
/// in capitals.
#[tokio::test]
async fn of_files_that_differ_in_case_one_comes_where_they_are_taken_for_the_same() {
    for size in SIZES {
        let bench = Bench::new();
        for name in ["tree/README", "tree/Readme", "tree/other"] {
            write(&bench.here(name), &vec![1; size], at(0));
        }
        if fs::read_dir(bench.here("tree")).unwrap().count() < 3 {
            eprintln!("skipped: this file system does not tell case itself");
            return;
        }
        let capitals = format!("CASE-{}.DFCP-PARTIAL", std::process::id());
        fs::write(bench.there(&capitals), "").unwrap();
        let outcomes = bench.send(bench.store(OnConflict::Overwrite)).await;
        assert_eq!(outcomes["tree/README"], Outcome::Done);
        assert_eq!(outcomes["tree/other"], Outcome::Done);
        let Outcome::Error(problem) = &outcomes["tree/Readme"] else {
            panic!("{outcomes:?}")
        };
        assert_eq!(problem.kind, ProblemKind::Target);
        assert!(
            problem.message.contains("rename one of them"),
            "{problem:?}"
        );
        let there = fs::read_dir(bench.there("tree")).unwrap().count();
        assert_eq!(there, 2, "nothing of it is left");
        // It is found wanting where it was there before, too: nobody knows which of both it is.
        let outcomes = bench.send(bench.store(OnConflict::Overwrite)).await;
        assert_eq!(outcomes["tree/README"], Outcome::There);
        assert!(is(&outcomes["tree/Readme"], ProblemKind::Target));
    }
}

#[tokio::test]
async fn links_are_newer_and_older_as_files_are() {
    let set = |path: &Path, changed: SystemTime| {
        let since = changed.duration_since(UNIX_EPOCH).unwrap();
        let time = rustix::fs::Timespec {
            tv_sec: since.as_secs() as i64,
            tv_nsec: since.subsec_nanos().into(),
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    };
    // Of what is named itself the link would be followed.
    let linked = || {
        let bench = Bench::new();
        fs::create_dir(bench.here("d")).unwrap();
        fs::create_dir(bench.there("d")).unwrap();
        symlink("new", bench.here("d/x")).unwrap();
        bench
    };
    for (there, outcome, leads_to) in [
        (at(-1_000_000_000), Outcome::Done, "new"),
        (at(0), Outcome::Skipped, "old"),
        (at(1_000_000_000), Outcome::Skipped, "old"),
    ] {
        let bench = linked();
        symlink("old", bench.there("d/x")).unwrap();
        set(&bench.here("d/x"), at(0));
        set(&bench.there("d/x"), there);
        assert_eq!(
            bench.send_one(OnConflict::Newer).await,
            outcome,
            "{there:?}"
        );
        assert_eq!(
            fs::read_link(bench.there("d/x")).unwrap(),
            Path::new(leads_to)
        );
    }
    // A directory is no link of another content.
    let bench = linked();
    fs::create_dir(bench.there("d/x")).unwrap();
    let Outcome::Error(problem) = bench.send_one(OnConflict::Overwrite).await else {
        panic!("it stays")
    };
    assert!(
        problem.message.contains("a directory on the other"),
        "{problem:?}"
    );
}

#[tokio::test]
async fn skipped_files_are_left_as_they_are_whatever_they_are() {
    for size in SIZES {
        let bench = Bench::new();
        write(&bench.here("t/new"), &vec![1; size], at(0));
        write(&bench.here("t/longer"), &vec![1; size], at(0));
        write(&bench.there("t/longer"), &vec![2; size / 2], at(-1000));
        write(&bench.here("t/other"), &vec![1; size], at(0));
        write(&bench.there("t/other"), &vec![2; size], at(-1000));
        write(&bench.here("t/kind"), &vec![1; size], at(0));
        fs::create_dir(bench.there("t/kind")).unwrap();
        let outcomes = bench.send(bench.store(OnConflict::Skip)).await;
        for (path, outcome) in &outcomes {
            let expected = match &**path {
                "t/new" => Outcome::Done,
                _ => Outcome::Skipped,
            };
            assert_eq!(*outcome, expected, "{path}");
        }
        assert_eq!(outcomes.len(), 4);
        assert_eq!(
            fs::read(bench.there("t/longer")).unwrap(),
            vec![2; size / 2]
        );
        assert_eq!(fs::read(bench.there("t/other")).unwrap(), vec![2; size]);
        assert!(bench.there("t/kind").is_dir());
    }
}

#[tokio::test]
async fn both_names_of_a_file_are_skipped_where_both_are_taken() {
    let bench = Bench::new();
    write(&bench.here("a"), b"new", at(0));
    fs::hard_link(bench.here("a"), bench.here("b")).unwrap();
    for name in ["a", "b"] {
        write(&bench.there(name), b"older", at(-1000));
    }
    let outcomes = bench.send(bench.store(OnConflict::Skip)).await;
    let skipped = ["a", "b"].map(|name| (name.to_owned(), Outcome::Skipped));
    assert_eq!(outcomes, skipped.into());
    assert_eq!(fs::read(bench.there("b")).unwrap(), b"older");
}

/// Under its own name there is another file, which the link would be of.
#[tokio::test]
async fn a_second_name_is_not_given_to_what_has_the_first_one_already() {
    let bench = Bench::new();
    write(&bench.here("a"), b"new", at(0));
    fs::hard_link(bench.here("a"), bench.here("b")).unwrap();
    write(&bench.there("a"), b"older", at(-1000));
    for on_conflict in [OnConflict::Rename, OnConflict::Error] {
        let outcomes = bench.send(bench.store(on_conflict)).await;
        assert_eq!(
            outcomes["a"] == Outcome::Done,
            on_conflict == OnConflict::Rename
        );
        assert!(is(&outcomes["b"], ProblemKind::Target), "{outcomes:?}");
        assert!(!bench.there("b").exists());
        assert_eq!(fs::read(bench.there("a")).unwrap(), b"older");
    }
    assert_eq!(fs::read(bench.there("a.1")).unwrap(), b"new");
}

#[tokio::test]
async fn a_file_that_is_to_be_renamed_finds_a_free_name() {
    for size in SIZES {
        let bench = Bench::new();
        write(&bench.here("t/x"), &vec![1; size], at(0));
        write(&bench.there("t/x"), &vec![2; size], at(-1000));
        write(&bench.there("t/x.1"), b"3", at(0));
        assert_eq!(bench.send_one(OnConflict::Rename).await, Outcome::Done);
        assert_eq!(fs::read(bench.there("t/x")).unwrap(), vec![2; size]);
        assert_eq!(fs::read(bench.there("t/x.1")).unwrap(), b"3");
        assert_eq!(fs::read(bench.there("t/x.2")).unwrap(), vec![1; size]);
        // A directory has a name, too.
        fs::remove_file(bench.there("t/x")).unwrap();
        fs::create_dir(bench.there("t/x")).unwrap();
        assert_eq!(bench.send_one(OnConflict::Rename).await, Outcome::Done);
        assert_eq!(fs::read(bench.there("t/x.3")).unwrap(), vec![1; size]);
        // What is the same needs no second name.
        fs::remove_dir(bench.there("t/x")).unwrap();
        write(&bench.there("t/x"), &vec![1; size], at(-1000));
        assert_eq!(bench.send_one(OnConflict::Rename).await, Outcome::There);
        assert!(!bench.there("t/x.4").exists());
    }
}

#[tokio::test]
async fn what_has_the_same_content_is_there_and_gets_the_time_that_was_offered() {
    for size in SIZES {
        for on_conflict in [OnConflict::Error, OnConflict::Overwrite] {
            let bench = Bench::new();
            write(&bench.here("x"), &vec![1; size], at(0));
            write(&bench.there("x"), &vec![1; size], at(-1000));
            assert_eq!(bench.send_one(on_conflict).await, Outcome::There);
            let changed = fs::metadata(bench.there("x")).unwrap().modified().unwrap();
            assert_eq!(changed, at(0));
        }
        let bench = Bench::new();
        write(&bench.here("x"), &vec![1; size], at(0));
        write(&bench.there("x"), &vec![2; size], at(-1000));
        let outcome = bench.send_one(OnConflict::Error).await;
        assert!(is(&outcome, ProblemKind::Conflict), "{outcome:?}");
        assert!(!bench.there("x.dfcp-partial").exists());
        assert_eq!(fs::read(bench.there("x")).unwrap(), vec![2; size]);
        assert_eq!(
            fs::metadata(bench.there("x")).unwrap().mtime_nsec(),
            999_999_000
        );
    }
}

#[tokio::test]
async fn size_and_time_tell_unless_the_content_is_to_be_compared() {
    for size in SIZES {
        let mut bench = Bench::new();
        write(&bench.here("x"), &vec![1; size], at(5));
        write(&bench.there("x"), &vec![2; size], at(5));
        for on_conflict in [OnConflict::Error, OnConflict::Overwrite] {
            assert_eq!(bench.send_one(on_conflict).await, Outcome::There);
        }
        assert_eq!(fs::read(bench.there("x")).unwrap(), vec![2; size]);
        bench.wishes.checksum = true;
        let outcome = bench.send_one(OnConflict::Error).await;
        assert!(is(&outcome, ProblemKind::Conflict), "{outcome:?}");
        assert_eq!(bench.send_one(OnConflict::Overwrite).await, Outcome::Done);
        assert_eq!(fs::read(bench.there("x")).unwrap(), vec![1; size]);
        assert_eq!(bench.send_one(OnConflict::Overwrite).await, Outcome::There);
    }
}

#[tokio::test]
async fn a_file_and_a_directory_of_one_name_are_a_conflict_unless_one_may_go() {
    for size in SIZES {
        let bench = Bench::new();
        write(&bench.here("t/x"), &vec![1; size], at(0));
        write(&bench.there("t/x/keep/a"), b"a", at(0));
        write(&bench.there("t/x/b"), b"b", at(0));
        let outcome = bench.send_one(OnConflict::Overwrite).await;
        assert!(is(&outcome, ProblemKind::Conflict), "{outcome:?}");
        // All of it or nothing.
        let store = bench.store(OnConflict::Overwrite);
        let store = store.swapping(|path, directory| {
            assert_eq!(directory, path.ends_with("/x") || path.ends_with("keep"));
            path != "t/x/keep/a"
        });
        let outcomes = bench.send(store.clone()).await;
        let Outcome::Error(problem) = &outcomes["t/x"] else {
            panic!("{outcomes:?}");
        };
        assert!(problem.message.contains("t/x/keep/a stays"), "{problem:?}");
        assert!(store.swapped().is_empty() && bench.there("t/x/b").exists());
        let store = bench.store(OnConflict::Overwrite).swapping(|_, _| true);
        assert_eq!(bench.send(store.clone()).await["t/x"], Outcome::Done);
        assert_eq!(fs::read(bench.there("t/x")).unwrap(), vec![1; size]);
        let mut swapped = store.swapped();
        swapped.sort();
        assert_eq!(swapped, ["t/x", "t/x/b", "t/x/keep", "t/x/keep/a"]);
        assert!(store.swapped().is_empty(), "each is told once");
    }
}

#[tokio::test]
async fn a_file_in_the_way_of_a_directory_is_a_conflict_unless_it_may_go() {
    for link in [false, true] {
        let bench = Bench::new();
        write(&bench.here("t/x/deep/a"), b"a", at(0));
        fs::create_dir(bench.there("t")).unwrap();
        match link {
            true => symlink("nowhere", bench.there("t/x")).unwrap(),
            false => write(&bench.there("t/x"), b"old", at(0)),
        }
        let stays = || bench.there("t/x").symlink_metadata().unwrap().is_dir();
        let outcomes = bench.send(bench.store(OnConflict::Overwrite)).await;
        assert!(
            is(&outcomes["t/x/deep/a"], ProblemKind::Conflict),
            "{outcomes:?}"
        );
        let store = bench.store(OnConflict::Overwrite);
        let store = store.swapping(|path, directory| {
            assert_eq!((path, directory), ("t/x", false));
            false
        });
        let outcomes = bench.send(store.clone()).await;
        assert!(
            matches!(&outcomes["t/x/deep/a"], Outcome::Error(_)),
            "{outcomes:?}"
        );
        assert!(!stays() && store.swapped().is_empty());
        let store = bench.store(OnConflict::Overwrite).swapping(|_, _| true);
        let outcomes = bench.send(store.clone()).await;
        assert_eq!(outcomes["t/x/deep/a"], Outcome::Done);
        assert_eq!(store.swapped(), ["t/x"]);
        assert_eq!(fs::read(bench.there("t/x/deep/a")).unwrap(), b"a");
    }
}

#[tokio::test]
async fn links_that_are_there_stay_and_others_are_conflicts_of_their_own() {
    let bench = Bench::new();
    write(&bench.here("t/file"), b"content", at(0));
    fs::hard_link(bench.here("t/file"), bench.here("t/hard")).unwrap();
    symlink("file", bench.here("t/soft")).unwrap();
    let links = ["t/hard", "t/soft"];
    let first = bench.send(bench.store(OnConflict::Error)).await;
    assert!(
        first.values().all(|outcome| *outcome == Outcome::Done),
        "{first:?}"
    );
    let [one, two] = ["t/file", "t/hard"].map(|name| fs::metadata(bench.there(name)).unwrap());
    assert_eq!(one.ino(), two.ino());
    assert_eq!(
        fs::read_link(bench.there("t/soft")).unwrap(),
        Path::new("file")
    );
    let again = bench.send(bench.store(OnConflict::Error)).await;
    for link in links {
        assert_eq!(again[link], Outcome::There, "{again:?}");
    }
    // Others of their names.
    let put_others = || {
        for link in links {
            fs::remove_file(bench.there(link)).unwrap();
        }
        write(&bench.there("t/hard"), b"another", at(0));
        symlink("elsewhere", bench.there("t/soft")).unwrap();
    };
    put_others();
    let failed = bench.send(bench.store(OnConflict::Error)).await;
    let skipped = bench.send(bench.store(OnConflict::Skip)).await;
    for link in links {
        assert!(is(&failed[link], ProblemKind::Conflict), "{failed:?}");
    }
    assert_eq!(skipped["t/soft"], Outcome::Skipped, "{skipped:?}");
    assert_eq!(fs::read(bench.there("t/hard")).unwrap(), b"another");
    let soft = fs::read_link(bench.there("t/soft")).unwrap();
    assert_eq!(soft, Path::new("elsewhere"));
    let replaced = bench.send(bench.store(OnConflict::Overwrite)).await;
    for link in links {
        assert_eq!(replaced[link], Outcome::Done, "{replaced:?}");
    }
    let [one, two] = ["t/file", "t/hard"].map(|name| fs::metadata(bench.there(name)).unwrap());
    assert_eq!(one.ino(), two.ino());
    assert_eq!(
        fs::read_link(bench.there("t/soft")).unwrap(),
        Path::new("file")
    );
    // A directory does not make way for a link.
    for link in links {
        fs::remove_file(bench.there(link)).unwrap();
        fs::create_dir(bench.there(link)).unwrap();
    }
    let failed = bench.send(bench.store(OnConflict::Overwrite)).await;
    for link in links {
        assert!(is(&failed[link], ProblemKind::Conflict), "{failed:?}");
        assert!(bench.there(link).is_dir());
    }
}

#[tokio::test]
async fn a_directory_that_was_there_stays_as_it_was() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    write(&bench.here("t/old/x"), b"x", at(0));
    write(&bench.here("t/new/x"), b"x", at(0));
    fs::create_dir_all(bench.there("t/old")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for path in [bench.here("t/old"), bench.here("t/new")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::set_permissions(bench.there("t/old"), fs::Permissions::from_mode(0o750)).unwrap();
    bench.send(bench.store(OnConflict::Error)).await;
    assert_eq!(mode(&bench.there("t/old")), 0o750);
    assert_eq!(mode(&bench.there("t/new")), 0o700);
    let changed = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let new = bench.here("t/new");
    assert_eq!(changed(&bench.there("t/new")), changed(&new));
}
