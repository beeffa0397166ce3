//! What is scanned, what is left out, and what changes meanwhile.

use super::*;
use std::os::unix::fs::symlink;

#[test]
fn trees_are_listed_in_order_without_links() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("b/c")).unwrap();
    fs::write(tree.join("b/x"), "12345").unwrap();
    fs::write(tree.join("a"), "").unwrap();
    fs::write(tree.join("back\\slash"), "").unwrap();
    symlink("/etc/passwd", tree.join("link")).unwrap();
    nix::unistd::mkfifo(&tree.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let sources = Sources::scan(&[tree.join("."), tree.join("b/x")]).unwrap();
    let paths: Vec<_> = sources.list.iter().map(|s| s.entry.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "tree",
            "tree/a",
            "tree/b",
            "tree/b/c",
            "tree/b/x",
            r"tree/back\5cslash",
            "x"
        ]
    );
    assert_eq!((sources.bytes(), sources.left_out.len()), (10, 2));
    assert!(Sources::scan(&[tree.join("pipe")]).is_err());
    assert!(Sources::scan(&[tree.join("a"), tree.join("b/../a")]).is_err());
    let none = ["none", "nor"].map(|name| tree.join(name));
    let error = Sources::scan(&none).unwrap_err().to_string();
    assert!(
        error.contains("/none: ") && error.contains("/nor"),
        "{error}"
    );
    assert!(Sources::scan(&none[..1]).is_err());
    // One that is missing does not keep the others.
    let sources = Sources::scan(&[tree.join("none"), tree.join("a")]).unwrap();
    assert_eq!((sources.list.len(), sources.left_out.len()), (1, 1));
}

#[test]
fn what_is_too_deep_is_left_out_and_the_rest_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("t");
    fs::create_dir_all(tree.join("d/".repeat(300))).unwrap();
    fs::write(tree.join("x"), "12345").unwrap();
    let sources = Sources::scan(&[tree]).unwrap();
    assert_eq!((sources.list.len(), sources.left_out.len()), (101, 1));
    assert!(sources.left_out[0].why.contains("100 directories"));
    assert_eq!(sources.bytes(), 5);
}

/// Directories full of links to each other: as many ways through them as orders of them.
#[test]
fn links_that_lead_around_are_told_of_soon() {
    let dir = tempfile::tempdir().unwrap();
    for (i, j) in (0..12).flat_map(|i| (0..12).map(move |j| (i, j))) {
        let here = dir.path().join(i.to_string());
        fs::create_dir_all(&here).unwrap();
        symlink(format!("../{j}"), here.join(j.to_string())).unwrap();
    }
    let how = Scan {
        links: Links::Follow,
        ..Scan::default()
    };
    let scan = |paths: &[PathBuf]| Sources::scan_with(paths, how);
    let error = scan(&[dir.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("lead around among 13"), "{error}");
    // What many links lead to is sent as often.
    let (one, tags) = (dir.path().join("one"), dir.path().join("tags"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&tags).unwrap();
    fs::write(one.join("file"), "").unwrap();
    for i in 0..300 {
        symlink("../one", tags.join(i.to_string())).unwrap();
    }
    assert_eq!(scan(&[tags]).unwrap().list.len(), 601);
}

/// Links that are followed make a tree of any size out of a few directories.
#[test]
fn a_scan_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..90 {
        let here = dir.path().join(i.to_string());
        fs::create_dir(&here).unwrap();
        for name in ["a", "b"] {
            symlink(format!("../{}", i + 1), here.join(name)).unwrap();
        }
    }
    let how = Scan {
        links: Links::Follow,
        ..Scan::default()
    };
    let scanned = Sources::scan_at_most(&[dir.path().join("0")], how, 1000);
    let error = scanned.unwrap_err().to_string();
    assert!(error.contains("in parts"), "{error}");
    let few = Sources::scan_at_most(&[dir.path().join("80")], how, 3000).unwrap();
    assert_eq!(few.list.len(), (1 << 10) - 1);
}

/// Whoever may write to one of the directories that are sent makes files of any size, all of them holes.
#[test]
fn files_of_more_bytes_than_there_are_numbers_end_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    fs::write(&path, "").unwrap();
    let mut sources = Sources::scan(&[path]).unwrap();
    sources.list[0].entry.size = i64::MAX as u64;
    sources.list = vec![sources.list[0].clone(); 3];
    assert_eq!(sources.bytes(), u64::MAX);
    assert_eq!(sources.data_bytes(), u64::MAX);
}

#[test]
fn changes_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    fs::write(&path, "12345").unwrap();
    let sources = Sources::scan(std::slice::from_ref(&path)).unwrap();
    let file = sources.list[0].open().unwrap();
    sources.list[0].check(&file).unwrap();
    fs::write(&path, "1234").unwrap();
    sources.list[0].check(&file).unwrap_err();
    sources.list[0].open().unwrap_err();
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_hides_its_size_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let sources = Sources::scan(&[PathBuf::from("/proc/version"), empty]).unwrap();
    let why = sources.list[0].open().unwrap_err().to_string();
    assert!(why.contains("size is 0"), "{why}");
    sources.list[1].open().unwrap();
    // Nor one that cannot be read.
    let sources = Sources::scan(&[PathBuf::from("/proc/self/mem")]).unwrap();
    let why = sources.list[0].open().unwrap_err().to_string();
    assert!(why.contains("Input/output error"), "{why}");
}

/// Somebody may write as many bytes as there were; the time tells.
#[test]
fn a_change_that_keeps_the_size_is_noticed_by_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    fs::write(&path, "12345").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let time = |seconds, nanos| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(seconds, nanos);
        file.set_modified(time).unwrap();
    };
    time(1_000_000_000, 500);
    let source = Sources::scan(std::slice::from_ref(&path))
        .unwrap()
        .list
        .remove(0);
    assert_eq!(
        (source.entry.mtime, source.entry.mtime_nanos),
        (1_000_000_000, 500)
    );
    source.open().unwrap();
    for (seconds, nanos) in [(1_000_000_000, 501), (1_000_000_001, 500)] {
        time(seconds, nanos);
        assert_eq!(source.open().unwrap_err(), Unread::Changed);
    }
    time(1_000_000_000, 500);
    source.open().unwrap();
    fs::remove_file(&path).unwrap();
    let why = source.open().unwrap_err().to_string();
    assert!(why.contains("removed"), "{why}");
    fs::create_dir(&path).unwrap();
    let why = source.open().unwrap_err().to_string();
    assert!(why.contains("no file any more"), "{why}");
}

#[test]
fn no_more_is_listed_than_an_offer_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("t");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "").unwrap();
    symlink("a", tree.join("b")).unwrap();
    fs::write(tree.join("c"), "").unwrap();
    let scan = |most| Sources::scan_at_most(std::slice::from_ref(&tree), Scan::default(), most);
    // What is left out is told of, and counts.
    let all = scan(4).unwrap();
    assert_eq!((all.list.len(), all.left_out.len()), (3, 1));
    let error = scan(3).unwrap_err().to_string();
    assert!(
        error.contains("in parts") && error.contains("t/c"),
        "{error}"
    );
}

/// Where numbers are sent, the receiver finds out by the names whose they are there.
#[test]
fn names_of_owners_are_sent_with_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let number = fs::metadata(&file).unwrap().uid();
    let people = |owners| {
        let how = Scan {
            keep: Keep {
                owners,
                ..Keep::default()
            },
            ..Scan::default()
        };
        let paths = std::slice::from_ref(&file);
        Sources::scan_with(paths, how).unwrap().people()
    };
    let user = nix::unistd::User::from_uid(number.into()).unwrap();
    let known: Vec<_> = user.map(|user| (number, user.name)).into_iter().collect();
    assert_eq!(people(Owners::Names).users, known);
    assert_eq!(people(Owners::Receiver).users, []);
}

/// Nobody writes to it, and copying it again would not help.
#[test]
fn a_file_that_is_shorter_than_it_says_tells_what_sends_it() {
    let path = PathBuf::from("/sys/kernel/uevent_seqnum");
    let Ok(sources) = Sources::scan(std::slice::from_ref(&path)) else {
        eprintln!("skipped: there is no {path:?}");
        return;
    };
    let pack = crate::read::Pack::read(&sources, &[0]);
    let (_, why) = &pack.failed[0];
    assert!(
        why.contains("before the size") && why.contains("dfcp send -"),
        "{why}"
    );
}
