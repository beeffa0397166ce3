//! Dry runs: what would change, of which nothing does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dfcp_transfer::{Change, Keep, Links, OnConflict, Outcome, Owners, Scan, Sources, Store};
use tempfile::TempDir;

use crate::common::transfer;

/// All that needs no superuser.
const KEEP: Keep = Keep {
    owners: Owners::Numbers,
    attributes: true,
    acls: true,
    holes: false,
    modes: true,
};

/// A tree with a file, a directory and links, and a receiver's directory that need not be there.
struct Bench {
    folder: TempDir,
    tree: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("dir")).unwrap();
        fs::write(tree.join("file"), "content").unwrap();
        fs::write(tree.join("other"), "content").unwrap();
        fs::hard_link(tree.join("file"), tree.join("hard")).unwrap();
        symlink("file", tree.join("soft")).unwrap();
        Self { folder, tree }
    }

    fn there(&self, name: &str) -> PathBuf {
        self.folder.path().join("to/tree").join(name)
    }

    fn sources(&self) -> Sources {
        let how = Scan {
            links: Links::Keep,
            keep: KEEP,
            ..Scan::default()
        };
        Sources::scan_with(std::slice::from_ref(&self.tree), how).unwrap()
    }

    /// Brings all of it.
    async fn send(&self) {
        let store = Store::open(&self.folder.path().join("to"), OnConflict::Overwrite).unwrap();
        let ended = transfer(&Arc::new(self.sources()), store.keeping(KEEP)).await;
        let done = |outcome: &Outcome| *outcome == Outcome::Done;
        assert!(ended.outcomes().values().all(done));
    }

    /// What is there, and what of it would change.
    async fn look(&self, to: &Path) -> BTreeMap<String, Vec<Change>> {
        let mut sources = self.sources();
        sources.wishes.dry_run = true;
        let store = Store::open_to_look(to, OnConflict::Overwrite).unwrap();
        let ended = transfer(&Arc::new(sources), store.keeping(KEEP)).await;
        let there = |outcome: &Outcome| *outcome == Outcome::There;
        assert!(ended.outcomes().values().all(there));
        let changes = &ended.sent.as_ref().unwrap().changes;
        assert_eq!(changes, &ended.received.changes);
        let entry = |i: &u64| {
            let path = &ended.received.entries[*i as usize].path;
            let changes = changes.get(i).cloned().unwrap_or_default();
            (path.clone(), changes)
        };
        ended.outcomes().keys().map(entry).collect()
    }
}

fn unchanged(names: &[&str]) -> BTreeMap<String, Vec<Change>> {
    names.iter().map(|name| ((*name).into(), vec![])).collect()
}

const ALL: [&str; 6] = [
    "tree",
    "tree/dir",
    "tree/file",
    "tree/hard",
    "tree/other",
    "tree/soft",
];

#[tokio::test]
async fn of_a_directory_that_is_not_there_nothing_is_and_it_is_not_made() {
    let bench = Bench::new();
    // Beside the tree itself, which is not what is asked about.
    let to = bench.folder.path().join("to");
    assert_eq!(bench.look(&to).await, BTreeMap::new());
    assert_eq!(bench.look(&to.join("deeper")).await, BTreeMap::new());
    assert!(!to.exists());
    assert_eq!(bench.look(bench.folder.path()).await, unchanged(&ALL));
}

#[tokio::test]
async fn what_is_missing_or_another_one_is_not_there() {
    let bench = Bench::new();
    bench.send().await;
    let to = bench.folder.path().join("to");
    assert_eq!(bench.look(&to).await, unchanged(&ALL));
    for (name, how_many) in [
        ("soft", 5),
        ("hard", 5),
        ("dir", 5),
        ("other", 5),
        ("file", 4),
    ] {
        let path = bench.there(name);
        let kept = bench.folder.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        let there = bench.look(&to).await;
        // Without the file its second name leads to nothing that is there.
        assert_eq!(there.len(), how_many, "{name}: {there:?}");
        assert!(!there.contains_key(&format!("tree/{name}")));
        fs::rename(&kept, &path).unwrap();
    }
    // Something else of that name.
    for name in ["soft", "hard"] {
        fs::remove_file(bench.there(name)).unwrap();
    }
    symlink("other", bench.there("soft")).unwrap();
    fs::write(bench.there("hard"), "content").unwrap();
    let there = bench.look(&to).await;
    let there: Vec<_> = there.keys().map(String::as_str).collect();
    assert_eq!(there, ["tree", "tree/dir", "tree/file", "tree/other"]);
    assert_eq!(
        fs::read_link(bench.there("soft")).unwrap(),
        Path::new("other")
    );
}

#[tokio::test]
async fn what_would_change_beside_content_is_told_by_its_kind() {
    let bench = Bench::new();
    bench.send().await;
    let to = bench.folder.path().join("to");
    for name in ["other", "dir"] {
        let mode = fs::Permissions::from_mode(0o701);
        fs::set_permissions(bench.there(name), mode).unwrap();
    }
    let mut expected = unchanged(&ALL);
    for name in ["tree/other", "tree/dir"] {
        expected.insert(name.into(), vec![Change::Mode]);
    }
    assert_eq!(bench.look(&to).await, expected);
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(bench.there("other"), "user.x", b"x", flags).is_err() {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    expected.insert("tree/other".into(), vec![Change::Mode, Change::Xattrs]);
    assert_eq!(bench.look(&to).await, expected);
    let mode = fs::metadata(bench.there("other")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o701, "nothing was changed");
}
