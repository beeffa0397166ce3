//! What is kept of files beside their bytes, and what is not without the receiver's leave: names of any
//! bytes, holes, owners, extended attributes.

use crate::common;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use dfcp_transfer::{
    Error, Keep, LeftOut, Limits, Links, OnConflict, Outcome, Owners, Received, Scan, Sent,
    Sources, Store,
};

/// Sends `from` with what is kept of it there, to a receiver that keeps and allows what it does; with
/// the bytes that went over the network.
async fn transfer(from: &Path, sent: Keep, store: Store) -> (Result<Sent, Error>, Received, u64) {
    let how = Scan {
        links: Links::Keep,
        keep: sent,
        ..Scan::default()
    };
    let sources = Arc::new(Sources::scan_with(&[from.to_owned()], how).unwrap());
    assert_eq!(sources.left_out, []);
    let ended = common::transfer(&sources, store).await;
    (ended.sent, ended.received, ended.bytes_sent)
}

fn store(to: &Path) -> Store {
    let limits = Limits {
        any_names: true,
        ..Limits::default()
    };
    Store::open(to, OnConflict::Overwrite)
        .unwrap()
        .with_limits(limits)
}

fn whys(left_out: &[LeftOut]) -> String {
    left_out
        .iter()
        .map(|left| left.why.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

#[tokio::test]
async fn names_of_any_bytes_cross_where_the_receiver_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let long = "x".repeat(255);
    let names: [&[u8]; 6] = [
        b"caf\xe9",
        b"a\nb",
        b"a\\b",
        b"\\ff",
        b"\xff",
        long.as_bytes(),
    ];
    for (i, name) in names.iter().enumerate() {
        // Large ones have partial files.
        fs::write(
            tree.join(OsStr::from_bytes(name)),
            vec![i as u8; 200_000 * i],
        )
        .unwrap();
    }
    std::os::unix::fs::symlink(OsStr::from_bytes(b"caf\xe9"), tree.join("link")).unwrap();
    let to = folder.path().join("to");
    let (sent, ..) = transfer(&tree, Keep::default(), store(&to)).await;
    assert!(
        sent.unwrap()
            .outcomes
            .values()
            .all(|outcome| *outcome == Outcome::Done)
    );
    for (i, name) in names.iter().enumerate() {
        let arrived = fs::read(to.join("tree").join(OsStr::from_bytes(name))).unwrap();
        assert!(
            arrived == vec![i as u8; 200_000 * i],
            "{:?}",
            OsStr::from_bytes(name)
        );
    }
    assert_eq!(
        fs::read_link(to.join("tree/link"))
            .unwrap()
            .as_os_str()
            .as_bytes(),
        b"caf\xe9"
    );
    assert_eq!(
        fs::read_dir(to.join("tree")).unwrap().count(),
        names.len() + 1
    );
}

#[tokio::test]
async fn names_that_a_receiver_does_not_take_are_left_out_and_the_rest_comes() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join(".git/hooks")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    for name in [
        &b"plain"[..],
        b"caf\xe9",
        b"a\nb",
        b".git/config",
        b".git/hooks/x",
    ] {
        fs::write(tree.join(OsStr::from_bytes(name)), vec![1; 100_000]).unwrap();
    }
    std::os::unix::fs::symlink("plain", tree.join(".link")).unwrap();
    let to = folder.path().join("to");
    // What is there already under such a name stays as it is.
    fs::create_dir_all(to.join("tree/.git")).unwrap();
    fs::set_permissions(to.join("tree/.git"), fs::Permissions::from_mode(0o700)).unwrap();
    let store = Store::open(&to, OnConflict::Error).unwrap();
    let (sent, received, _) = transfer(&tree, Keep::default(), store).await;
    let sent = sent.unwrap();
    assert_eq!(received.failure.map(|failure| failure.to_string()), None);
    assert_eq!(sent.left_out, received.left_out);
    let whys = whys(&sent.left_out);
    for part in ["--hidden", "--any-names", "so of 1 more"] {
        assert!(whys.contains(part), "{whys}");
    }
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let expected = [".git", "empty", "plain"].map(Into::into);
    assert_eq!(names(&to.join("tree")), expected.into());
    assert_eq!(names(&to.join("tree/.git")), [].into());
    let git = fs::metadata(to.join("tree/.git")).unwrap();
    assert_eq!(git.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn holes_stay_holes_and_are_not_sent() {
    const SIZE: u64 = 3 << 30;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    for at in [0, 1 << 30, (2 << 30) + 12_345, SIZE - 5] {
        file.write_all_at(&[7; 5], at).unwrap();
    }
    if file.metadata().unwrap().blocks() * 512 > 1 << 20 {
        eprintln!("skipped: this file system has no holes");
        return;
    }
    let holes = Keep {
        holes: true,
        ..Keep::default()
    };
    let to = folder.path().join("to");
    let limits = Limits {
        bytes: SIZE,
        ..Limits::default()
    };
    let there = || {
        Store::open(&to, OnConflict::Overwrite)
            .unwrap()
            .keeping(holes)
    };
    let (sent, _, bytes) = transfer(&path, holes, there().with_limits(limits)).await;
    assert_eq!(sent.unwrap().outcomes[&0], Outcome::Done);
    assert!(bytes < 4 << 20, "{bytes} bytes were sent");
    let arrived = File::open(to.join("disk")).unwrap();
    assert!(arrived.metadata().unwrap().blocks() * 512 < 4 << 20);
    for at in [0, 1 << 30, (2 << 30) + 12_345, SIZE - 5] {
        let mut data = [0; 5];
        arrived.read_exact_at(&mut data, at).unwrap();
        assert_eq!(data, [7; 5]);
    }
    // What it would be as a whole counts.
    let limits = Limits {
        bytes: SIZE - 1,
        ..Limits::default()
    };
    let (sent, ..) = transfer(&path, holes, there().with_limits(limits)).await;
    assert!(matches!(sent, Err(Error::Rejected(_))), "{sent:?}");
}

#[tokio::test]
async fn holes_are_zeros_to_a_receiver_that_does_not_take_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let file = File::create(&path).unwrap();
    file.set_len(5 << 20).unwrap();
    file.write_all_at(&[7; 5], 2 << 20).unwrap();
    let holes = Keep {
        holes: true,
        ..Keep::default()
    };
    let to = folder.path().join("to");
    let (sent, _, bytes) = transfer(&path, holes, store(&to)).await;
    assert_eq!(sent.unwrap().outcomes[&0], Outcome::Done);
    assert!(bytes > 5 << 20);
    assert!(fs::read(&path).unwrap() == fs::read(to.join("disk")).unwrap());
}

#[tokio::test]
async fn attributes_come_only_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "content").unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty())
    };
    if set("user.note", b"\xff\0\\ a").is_err() {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    let attributes = Keep {
        attributes: true,
        ..Keep::default()
    };
    let value = |path: &Path| {
        let mut value = [0; 100];
        let length = rustix::fs::getxattr(path, "user.note", &mut value[..]).ok()?;
        Some(value[..length].to_vec())
    };
    let to = folder.path().join("to");
    let (sent, received, _) = transfer(&path, attributes, store(&to)).await;
    let sent = sent.unwrap();
    assert_eq!(sent.outcomes[&0], Outcome::Done);
    assert!(whys(&sent.left_out).contains("-X"), "{sent:?}");
    assert_eq!(sent.left_out, received.left_out);
    assert_eq!(value(&to.join("file")), None);
    // A file that is there gets them, too.
    let (sent, ..) = transfer(&path, attributes, store(&to).keeping(attributes)).await;
    let sent = sent.unwrap();
    assert_eq!(
        (&sent.outcomes[&0], &sent.left_out[..]),
        (&Outcome::There, &[][..])
    );
    assert_eq!(value(&to.join("file")).unwrap(), b"\xff\0\\ a");
}

#[tokio::test]
async fn attributes_that_the_source_has_not_go_where_it_says_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    let to = folder.path().join("to");
    let set = |path: &Path, name: &str| {
        rustix::fs::setxattr(path, name, b"x", rustix::fs::XattrFlags::empty())
    };
    let has = |name: &str, attribute: &str| {
        rustix::fs::getxattr(to.join("tree").join(name), attribute, &mut [0; 10][..]).is_ok()
    };
    if set(&tree.join("file"), "user.kept").is_err() {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    let attributes = Keep {
        attributes: true,
        ..Keep::default()
    };
    let keeping = || store(&to).keeping(attributes);
    transfer(&tree, attributes, keeping()).await.0.unwrap();
    let again = || {
        for name in ["file", "dir"] {
            set(&to.join("tree").join(name), "user.old").unwrap();
        }
    };
    again();
    // Who does not send any says nothing of those that are there.
    transfer(&tree, Keep::default(), keeping()).await.0.unwrap();
    assert!(has("file", "user.old") && has("dir", "user.old"));
    // Nor are they touched where the receiver was not told to keep any.
    transfer(&tree, attributes, store(&to)).await.0.unwrap();
    assert!(has("file", "user.old") && has("dir", "user.old"));
    for content in ["content", "another content"] {
        fs::write(tree.join("file"), content).unwrap();
        let sent = transfer(&tree, attributes, keeping()).await.0.unwrap();
        assert_eq!(sent.left_out, []);
        assert!(has("file", "user.kept"));
        assert!(!has("file", "user.old") && !has("dir", "user.old"));
        again();
    }
}

#[tokio::test]
async fn lists_of_who_may_that_the_source_has_not_go_too() {
    // Read and write for the owner and user 54321, as Linux writes it.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, id) in [
        (1_u16, u32::MAX),
        (2, 54_321),
        (4, u32::MAX),
        (16, u32::MAX),
        (32, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(6_u16.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    const ACCESS: &str = "system.posix_acl_access";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "content").unwrap();
    let acls = Keep {
        acls: true,
        ..Keep::default()
    };
    let to = folder.path().join("to");
    transfer(&path, acls, store(&to).keeping(acls))
        .await
        .0
        .unwrap();
    let there = to.join("file");
    if rustix::fs::setxattr(&there, ACCESS, &acl, rustix::fs::XattrFlags::empty()).is_err() {
        eprintln!("skipped: this file system has no access control lists");
        return;
    }
    let sent = transfer(&path, acls, store(&to).keeping(acls))
        .await
        .0
        .unwrap();
    assert_eq!(
        (&sent.outcomes[&0], sent.left_out),
        (&Outcome::There, vec![])
    );
    assert!(rustix::fs::getxattr(&there, ACCESS, &mut [0; 100][..]).is_err());
}

#[tokio::test]
async fn privileges_stay_with_the_same_owner_and_are_else_missed_aloud() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // One in a pack, one in parts, and a directory.
    for (name, size) in [("small", 10), ("large", 1_000_000)] {
        fs::write(tree.join(name), vec![7; size]).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o6755)).unwrap();
    }
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o2755)).unwrap();
    let keep = |owners| Keep {
        owners,
        modes: true,
        ..Keep::default()
    };
    let to = folder.path().join("to");
    let modes = || {
        let mode = |name| fs::metadata(to.join("tree").join(name)).unwrap().mode() & 0o7777;
        ["small", "large", ""].map(mode)
    };
    let ignoring = || store(&to).keeping(keep(Owners::Ignored));
    let (sent, ..) = transfer(&tree, keep(Owners::Names), ignoring()).await;
    assert_eq!(sent.unwrap().left_out, []);
    assert_eq!(modes(), [0o6755, 0o6755, 0o2755]);
    // Lost there, they come back though nothing else has changed.
    let there = to.join("tree/small");
    fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
    transfer(&tree, keep(Owners::Names), ignoring())
        .await
        .0
        .unwrap();
    assert_eq!(modes(), [0o6755, 0o6755, 0o2755]);
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only the superuser has files of others");
        return;
    }
    for name in ["small", "large", ""] {
        let path = tree.join(name);
        let mode = fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::lchown(&path, Some(54_321), Some(54_322)).unwrap();
        fs::set_permissions(&path, mode).unwrap();
    }
    // Whether it is new or there already.
    fs::remove_dir_all(&to).unwrap();
    for _ in 0..2 {
        let (sent, ..) = transfer(&tree, keep(Owners::Names), ignoring()).await;
        assert!(whys(&sent.unwrap().left_out).contains("set-user-ID"));
        assert_eq!(modes(), [0o755, 0o755, 0o755]);
    }
    // With the owner, the superuser takes them over.
    let taking = store(&to).keeping(keep(Owners::Numbers));
    let (sent, ..) = transfer(&tree, keep(Owners::Numbers), taking).await;
    assert_eq!(sent.unwrap().left_out, []);
    assert_eq!(modes(), [0o6755, 0o6755, 0o2755]);
}

#[tokio::test]
async fn owners_come_only_where_they_are_asked_for() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only the superuser gives files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    for name in ["", "file", "link"] {
        std::os::unix::fs::lchown(tree.join(name), Some(54_321), Some(54_322)).unwrap();
    }
    let keep = |owners| Keep {
        owners,
        modes: true,
        ..Keep::default()
    };
    let to = folder.path().join("to");
    let owner = |name: &str| {
        let metadata = fs::symlink_metadata(to.join("tree").join(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    let (sent, ..) = transfer(&tree, keep(Owners::Numbers), store(&to)).await;
    assert!(whys(&sent.unwrap().left_out).contains("--owner"));
    assert_ne!(owner("file"), (54_321, 54_322));
    for owners in [Owners::Numbers, Owners::Names] {
        fs::remove_dir_all(&to).unwrap();
        let (sent, ..) = transfer(&tree, keep(owners), store(&to).keeping(keep(owners))).await;
        assert_eq!(sent.unwrap().left_out, []);
        for name in ["", "file", "link"] {
            assert_eq!(owner(name), (54_321, 54_322), "{name}");
        }
        let mode = fs::metadata(to.join("tree/file")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o666, "whatever the umask says");
    }
}

/// Whether a file comes, or is there already.
#[tokio::test]
async fn an_owner_that_is_not_taken_is_told_of_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "content").unwrap();
    let owners = Keep {
        owners: Owners::Numbers,
        ..Keep::default()
    };
    for outcome in [Outcome::Done, Outcome::There] {
        let (sent, ..) = transfer(&path, owners, store(&folder.path().join("to"))).await;
        let sent = sent.unwrap();
        assert_eq!(sent.outcomes[&0], outcome);
        assert!(whys(&sent.left_out).contains("--owner"), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_link_has_no_attributes_of_what_it_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
    let attributes = Keep {
        attributes: true,
        acls: true,
        ..Keep::default()
    };
    let to = folder.path().join("to");
    // Nothing of it is left out, either.
    let (sent, ..) = transfer(&tree, attributes, store(&to).keeping(attributes)).await;
    assert_eq!(sent.unwrap().outcomes[&1], Outcome::Done);
    let link = fs::read_link(to.join("tree/link")).unwrap();
    assert_eq!(link, Path::new("nowhere"));
}

/// Without it everybody could remove everybody's files.
#[tokio::test]
async fn a_directory_that_only_owners_may_remove_from_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    for path in [&tree, &tree.join("file")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let to = folder.path().join("to");
    let modes = |name: &str| fs::metadata(to.join(name)).unwrap().mode() & 0o7777;
    let keep = Keep {
        modes: true,
        ..Keep::default()
    };
    let (sent, ..) = transfer(&tree, keep, store(&to).keeping(keep)).await;
    sent.unwrap();
    assert_eq!(modes("tree"), 0o1777);
    assert_eq!(modes("tree/file"), 0o777, "of a file it says nothing");
    fs::remove_dir_all(&to).unwrap();
    let (sent, ..) = transfer(&tree, Keep::default(), store(&to)).await;
    sent.unwrap();
    assert_eq!(modes("tree") & 0o7000, 0, "unless modes are kept");
}

/// By a list, the group's bits of a mode are its mask: the most that anybody named in it may do. Without the
/// list they would let the group do that.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_its_access_control_list_a_file_lets_its_group_do_no_more() {
    const LIST: &str = "system.posix_acl_access";
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // rw-, somebody rwx, group r--, mask rwx, others nothing.
    let mut list = vec![2, 0, 0, 0];
    for (tag, bits, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 7, 4242),
        (4, 4, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(bits.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    for (name, size) in [("small", 10), ("large", 3_000_000)] {
        let path = tree.join(name);
        fs::write(&path, vec![1; size]).unwrap();
        match rustix::fs::setxattr(&path, LIST, &list, rustix::fs::XattrFlags::empty()) {
            Err(rustix::io::Errno::NOTSUP) => return eprintln!("skipped: no lists here"),
            set => set.unwrap(),
        }
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&tree.join("small")), 0o670);
    let keep = |modes, acls| Keep {
        modes,
        acls,
        ..Keep::default()
    };
    // With its list it is offered with the mode that it has.
    for (acls, mode) in [(true, 0o670), (false, 0o640)] {
        let how = Scan {
            keep: keep(true, acls),
            ..Scan::default()
        };
        let offered = Sources::scan_with(std::slice::from_ref(&tree), how).unwrap();
        let last = offered.entries().pop().unwrap();
        assert_eq!((&*last.path, last.mode & 0o777), ("tree/small", mode));
    }
    for (name, sender, receiver, wanted, told) in [
        (
            "copied",
            keep(false, false),
            keep(false, false),
            0o640,
            false,
        ),
        (
            "archived",
            keep(true, false),
            keep(true, false),
            0o640,
            false,
        ),
        ("refused", keep(true, true), keep(true, false), 0o640, true),
        ("kept", keep(true, true), keep(true, true), 0o670, false),
    ] {
        let to = folder.path().join(name);
        let (sent, ..) = transfer(&tree, sender, store(&to).keeping(receiver)).await;
        let sent = sent.unwrap();
        assert_eq!(whys(&sent.left_out).contains("-A"), told, "{name}");
        for file in ["small", "large"] {
            let file = to.join("tree").join(file);
            assert_eq!(mode(&file), wanted, "{name}: {}", file.display());
            let mut found = [0; 100];
            let found = rustix::fs::getxattr(&file, LIST, &mut found).unwrap_or(0);
            assert_eq!(found > 0, wanted == 0o670, "{name}");
        }
    }
    // What is there with its list is not touched again.
    let touched = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let kept = folder.path().join("kept");
    let before = touched(&kept.join("tree/small"));
    let again = store(&kept).keeping(keep(true, true));
    transfer(&tree, keep(true, true), again).await.0.unwrap();
    assert_eq!(touched(&kept.join("tree/small")), before);
}
