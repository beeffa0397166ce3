//! Where files cannot go: full, read-only and missing places, and links that lead out of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Bench, bytes, eventually, finish, run};

#[test]
fn a_target_that_cannot_be_written() {
    let bench = Bench::new();
    // Permissions do not bind root; a file where a directory is needed binds everyone.
    fs::create_dir(bench.path("received")).unwrap();
    fs::write(bench.path("received/tree"), "in the way").unwrap();
    let receiver = bench.receiver(&["--once"]);
    bench.write("tree/x", 1000);
    let mut sender = bench.sender();
    let (code, report, _) = run(sender
        .arg(bench.path("tree"))
        .arg(receiver.address.to_string()));
    assert_eq!(
        (code, &report["error"]["kind"]),
        (7, &"local_io".into()),
        "{report}"
    );
    let (code, report) = receiver.end();
    assert_eq!(
        (code, &report["error"]["kind"]),
        (7, &"local_io".into()),
        "{report}"
    );
    assert_eq!(bench.received(), ["tree"]);
    bench.assert_received("tree", b"in the way");
}

#[test]
fn links_do_not_lead_outside() {
    let bench = Bench::new();
    let outside = bench.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "mine").unwrap();
    let received = bench.path("received");
    fs::create_dir(&received).unwrap();
    symlink(&outside, received.join("tree")).unwrap();
    symlink(outside.join("file"), received.join("y.dfcp-partial")).unwrap();
    symlink(outside.join("file"), received.join("z")).unwrap();
    let receiver = bench.receiver(&["--once", "--on-conflict", "overwrite"]);
    bench.write("tree/x", 1000);
    let sent = [
        bench.path("tree"),
        bench.write("y", 1000),
        bench.write("z", 1000),
    ];
    let (code, report, _) = run(bench.sender().args(sent).arg(receiver.address.to_string()));
    assert_eq!((code, receiver.end().0), (3, 3), "{report}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"mine");
    bench.assert_received("z", &bytes("z", 1000));
}

/// A file system in memory over a directory, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where this user may mount none.
    fn at(target: &Path, options: &str) -> Option<Self> {
        fs::create_dir(target).unwrap();
        let mounted = Self::mount(target, options);
        if !mounted {
            eprintln!("skipped: no file system can be mounted here");
        }
        mounted.then(|| Self(target.to_owned()))
    }

    fn mount(target: &Path, options: &str) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let done = mount.arg(target).output();
        done.is_ok_and(|out| out.status.success())
    }

    fn protect(&self) {
        assert!(Self::mount(&self.0, "remount,ro"));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        let done = unmounted.is_ok_and(|status| status.success());
        assert!(done || std::thread::panicking(), "{:?} is busy", self.0);
    }
}

#[test]
fn a_full_disk_is_reported_on_both_sides() {
    let bench = Bench::new();
    let target = bench.path("received");
    let Some(mounted) = Mounted::at(&target, "size=30m") else {
        return;
    };
    let receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    sender
        .args(["--fixed-rate", "20M"])
        .arg(bench.write("x", 20_000_000))
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = target.join("x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    // There was room when the offer came; now somebody else takes it.
    let _ = fs::write(target.join("other"), vec![0; 40_000_000]);
    let (code, report, _) = finish(sender);
    let (receiver_code, received) = receiver.end();
    let left = bench.received();
    drop(mounted);
    assert_eq!((code, receiver_code), (7, 7));
    for report in [report, received] {
        let message = report["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("space") && message.contains("x.dfcp-partial"),
            "{message}"
        );
    }
    assert_eq!(left, ["other", "x.dfcp-journal", "x.dfcp-partial"]);
}

/// `df` shows that there is room, so who is told to make some looks in vain.
#[test]
fn a_disk_without_inodes_is_not_told_to_make_room_for_bytes() {
    let bench = Bench::new();
    let Some(_mounted) = Mounted::at(&bench.path("received"), "size=30m,nr_inodes=40") else {
        return;
    };
    let tree = bench.path("tree");
    fs::create_dir(&tree).unwrap();
    for i in 0..60 {
        fs::write(tree.join(i.to_string()), "x").unwrap();
    }
    let receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    let (code, report, _) = run(sender.arg(&tree).arg(receiver.address.to_string()));
    let (receiver_code, received) = receiver.end();
    assert_eq!((code, receiver_code), (7, 7), "{report} {received}");
    for report in [report, received] {
        let message = report["error"]["message"].as_str().unwrap();
        assert!(message.contains("no inodes left"), "{message}");
    }
}

#[test]
fn a_target_that_may_only_be_read_is_reported_on_both_sides() {
    let bench = Bench::new();
    let Some(mounted) = Mounted::at(&bench.path("received"), "size=30m") else {
        return;
    };
    let receiver = bench.receiver(&["--once"]);
    mounted.protect();
    // Who comes too late for that says so before anybody sends.
    let (start_code, refused, _) = run(&mut bench.recv(&["--once", "--allow", &bench.sender_key]));
    let mut sender = bench.sender();
    let (code, report, _) = run(sender
        .arg(bench.write("x", 1000))
        .arg(receiver.address.to_string()));
    let (receiver_code, received) = receiver.end();
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(start_code == 7 && message.contains("ead-only"), "{refused}");
    assert_eq!((code, receiver_code), (7, 7), "{report}");
    for report in [report, received] {
        let message = report["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("x") && message.contains("ead-only"),
            "{message}"
        );
    }
}

#[test]
fn a_target_that_is_gone_is_reported_on_both_sides() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    fs::remove_dir_all(bench.path("received")).unwrap();
    let mut sender = bench.sender();
    let (code, report, _) = run(sender
        .arg(bench.write("x", 1000))
        .arg(receiver.address.to_string()));
    assert_eq!((code, receiver.end().0), (7, 7), "{report}");
    assert_eq!(report["error"]["kind"], "local_io", "{report}");
    assert!(!bench.path("received").exists());
}

#[test]
fn places_that_cannot_be_had_come_with_advice() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let taken = receiver.address.to_string();
    for (args, words) in [
        (["--listen", &taken], "name another port"),
        (["--listen", "192.0.2.1:0"], "no such address"),
        // Nobody makes directories there, not even the superuser.
        (["-o", "/sys/dfcp"], "name another directory"),
    ] {
        let mut command = bench.program();
        command.args(["recv", "--json", "--allow-any", "--listen", "127.0.0.1:0"]);
        let (code, report, _) = match args[0] {
            "-o" => run(command.args(args)),
            _ => run(bench
                .program()
                .args(["recv", "--json", "--allow-any"])
                .args(args)),
        };
        let message = report["error"]["message"].as_str().unwrap();
        assert!(code == 7 && message.contains(words), "{args:?}: {report}");
    }
}
