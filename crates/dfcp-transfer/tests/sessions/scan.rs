//! What of a tree is listed, and what of it is not, with a reason.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use dfcp_transfer::{Keep, Link, Links, Privileges, Scan, Sources};

fn make(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

fn paths(sources: &Sources) -> Vec<&str> {
    let each = sources.list.iter().map(|source| source.entry.path.as_str());
    each.collect()
}

#[test]
fn what_a_filter_does_not_agree_to_is_neither_listed_nor_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("t");
    for name in ["keep/a", "keep/skip", "skip/a", "b", "c"] {
        make(&tree.join(name));
    }
    let filter = |path: &str, directory: bool| {
        let named = path.ends_with("keep") || path.ends_with("/skip") && !path.contains("keep");
        assert_eq!(directory, path == "t" || named, "{path}");
        assert!(!path.starts_with("t/skip/"), "it is not looked into");
        !path.ends_with("skip") && path != "t/c"
    };
    let how = Scan {
        filter: Some(&filter),
        ..Scan::default()
    };
    let sources = Sources::scan_with(std::slice::from_ref(&tree), how).unwrap();
    assert_eq!(paths(&sources), ["t", "t/b", "t/keep", "t/keep/a"]);
    assert_eq!(sources.left_out, [], "it was wished so");
    let nothing = Scan {
        filter: Some(&|_, _| false),
        ..Scan::default()
    };
    let sources = Sources::scan_with(&[tree], nothing).unwrap();
    assert_eq!(sources.list.len(), 0);
}

#[test]
fn links_are_left_out_kept_or_followed() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("t");
    make(&tree.join("d/a"));
    make(&folder.path().join("outside"));
    symlink("d", tree.join("inner")).unwrap();
    symlink("../outside", tree.join("outer")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    symlink("..", tree.join("d/up")).unwrap();
    fs::hard_link(tree.join("d/a"), tree.join("z")).unwrap();
    let scan = |links| {
        let how = Scan {
            links,
            ..Scan::default()
        };
        let sources = Sources::scan_with(std::slice::from_ref(&tree), how).unwrap();
        let mut left_out: Vec<_> = sources
            .left_out
            .iter()
            .map(|left| {
                left.path
                    .strip_prefix(tree.to_str().unwrap())
                    .unwrap()
                    .to_owned()
            })
            .collect();
        left_out.sort();
        (sources, left_out)
    };
    let (sources, left_out) = scan(Links::LeaveOut);
    assert_eq!(paths(&sources), ["t", "t/d", "t/d/a", "t/z"]);
    assert_eq!(left_out, ["/d/up", "/dangling", "/inner", "/outer"]);
    // The second name of a file is that: no bytes of it go.
    assert_eq!(sources.list[3].entry.link, Some(Link::Hard(2)));
    assert_eq!(sources.bytes(), 1);

    let (sources, left_out) = scan(Links::Keep);
    let all = [
        "t",
        "t/d",
        "t/d/a",
        "t/d/up",
        "t/dangling",
        "t/inner",
        "t/z",
    ];
    let mut listed = paths(&sources);
    listed.sort_unstable();
    assert_eq!(listed, all);
    assert_eq!(left_out, ["/outer"], "it leads out");

    let (sources, left_out) = scan(Links::Follow);
    let mut listed = paths(&sources);
    listed.sort_unstable();
    let all = [
        "t",
        "t/d",
        "t/d/a",
        "t/inner",
        "t/inner/a",
        "t/outer",
        "t/z",
    ];
    assert_eq!(listed, all);
    // A way back has no end.
    assert_eq!(left_out, ["/d/up", "/dangling", "/inner/up"]);
}

#[test]
fn privileges_that_do_not_arrive_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    make(&path);
    let said = |mode, privileges, modes| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let how = Scan {
            privileges,
            keep: Keep {
                modes,
                ..Keep::default()
            },
            ..Scan::default()
        };
        let sources = Sources::scan_with(std::slice::from_ref(&path), how).unwrap();
        assert_eq!(sources.list.len(), 1, "it is sent all the same");
        sources.left_out.len()
    };
    for mode in [0o4755, 0o2755, 0o6755] {
        assert_eq!(said(mode, Privileges::LeftOut, false), 1);
        assert_eq!(said(mode, Privileges::Dropped, false), 0);
        assert_eq!(said(mode, Privileges::LeftOut, true), 0);
    }
    assert_eq!(said(0o1755, Privileges::LeftOut, false), 0);
}

#[test]
fn what_is_named_is_called_so_whatever_it_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    make(&folder.path().join("real/a"));
    symlink("real", folder.path().join("alias")).unwrap();
    symlink("real/a", folder.path().join("short")).unwrap();
    let listed = |name: &str| {
        let sources = Sources::scan(&[folder.path().join(name)]).unwrap();
        paths(&sources)
            .into_iter()
            .map(ToOwned::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(listed("alias"), ["alias", "alias/a"]);
    assert_eq!(listed("short"), ["short"]);
    // The directory itself is meant.
    assert_eq!(listed("alias/."), ["real", "real/a"]);
    assert_eq!(listed("real/../real/."), ["real", "real/a"]);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file's time is one of the wall clock"
)]
fn a_pipe_is_a_stream_that_has_no_size_yet() {
    let before = SystemTime::now();
    let sources = Sources::pipe("name").unwrap();
    assert_eq!(paths(&sources), ["name"]);
    let entry = &sources.list[0].entry;
    assert!(entry.stream && entry.is_file() && entry.size == 0);
    let of = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    match fs::metadata("/dev/stdin") {
        Ok(file) if file.is_file() => assert_eq!(entry.mtime, file.mtime()),
        _ => assert!((of(before)..=of(SystemTime::now())).contains(&entry.mtime)),
    }
    for bad in ["", "a/../b", "/a", ".."] {
        assert!(Sources::pipe(bad).is_err(), "{bad:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_may_not_be_read_is_left_out_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    for name in ["a", "b", "c"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("file"), name).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let closed = tree.join("b");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // Of this thread; the superuser reads everything.
    let before = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
    let sources = Sources::scan(std::slice::from_ref(&tree));
    nix::unistd::setfsuid(before);
    let sources = sources.unwrap();
    let paths: Vec<_> = sources.entries().into_iter().map(|it| it.path).collect();
    assert_eq!(
        paths,
        ["tree", "tree/a", "tree/a/file", "tree/c", "tree/c/file"]
    );
    let [left] = &sources.left_out[..] else {
        panic!("{:?}", sources.left_out);
    };
    assert_eq!(left.path, closed.display().to_string());
    assert!(left.why.starts_with("Permission denied"), "{}", left.why);
}
