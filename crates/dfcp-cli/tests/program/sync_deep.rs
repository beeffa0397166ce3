//! `dfcp sync --delete` where something is deeper than paths reach.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use crate::common::machines::{Machines, PROGRAM};
use crate::common::run;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

/// Longer than any path may be (`PATH_MAX`).
const DEEP: usize = 3000;

#[test]
fn what_is_too_deep_to_be_removed_is_named_shortly_with_what_to_do() {
    let machines = Machines::new("");
    machines.write(&machines.here("tree/file"), 10);
    fs::create_dir_all(machines.there("copy/deep")).unwrap();
    // No path leads there: one directory after the other.
    let mut at = OwnedFd::from(fs::File::open(machines.there("copy/deep")).unwrap());
    for _ in 0..DEEP {
        mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
        at = openat(&at, "d", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
    let mut sync = Command::new(PROGRAM);
    sync.current_dir(machines.dir.path())
        .env_remove("SSH_CONNECTION")
        .args([
            "sync",
            "--json",
            "--delete",
            "-e",
            "./shell",
            "--remote-path",
            PROGRAM,
        ])
        .args(["tree", "there:copy"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (code, report, _) = run(&mut sync);
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!(code, 7, "{message}");
    assert!(
        message.contains("copy/deep: ") && message.contains("rm -r"),
        "{message}"
    );
    assert!(message.len() < 300, "{message}");
    assert!(machines.there("copy/file").exists());
    // Nor is it gone with the test by itself.
    let removed = Command::new("rm")
        .arg("-rf")
        .arg(machines.there("copy/deep"))
        .status();
    assert!(removed.unwrap().success());
}
