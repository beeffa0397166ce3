//! Transfers that fail: with the right exit code, a sentence and JSON, and no wrong file.
//!
//! Where each row of README's table of exit codes is provoked, if not here: 0 in `transfer`; 1 in `hostile`
//! (a broken protocol) and `closed` (an offer beyond what is taken); 2 here and in `cp`; 3 in `transfer`
//! (left out, conflicts) and `cp`; 4 here (wrong key), in `closed` (unknown and refused ones, a receiver
//! that nobody may send to) and `codes` (wrong, used, expired); 5 here, in `probe` (refused, no route), `cp`
//! (UDP blocked) and `nat` (no path between two sides of a code); 6 in `hostile`; 7 here, in `closed` (a
//! disk too small for the offer) and `screen` (standard output); 8 in `sync_guard`; 129, 130, 143 here and
//! in `cp_again`.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Bench, bytes, eventually, finish, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LARGE: usize = 200_000_000;

#[test]
fn a_wrong_key_sends_nothing() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let mut sender = bench.anonymous_sender();
    let (code, report, _) = run(sender
        .args(["--peer-key", &bench.sender_key])
        .arg(bench.write("x", 1000))
        .arg(receiver.address.to_string()));
    assert_eq!(
        (code, &report["error"]["kind"]),
        (4, &"authentication".into())
    );
    assert!(
        report["error"]["message"]
            .as_str()
            .unwrap()
            .contains(&bench.receiver_key)
    );
    assert_eq!(bench.received(), [""; 0]);
}

#[test]
fn hosts_are_unknown_then_known_then_changed() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let file = bench.write("x", 1000);
    let send = || {
        run(bench
            .anonymous_sender()
            .arg(&file)
            .arg(receiver.address.to_string()))
    };
    let (code, report, _) = send();
    assert_eq!(code, 4, "nobody can be asked: {report}");
    let known = |key: &str| {
        let line = format!("{} {key}\n", receiver.address);
        fs::write(bench.path("known_hosts"), line).unwrap();
    };
    known(&bench.sender_key);
    let (code, report, _) = send();
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 4 && message.contains("changed"), "{report}");
    assert_eq!(bench.received(), [""; 0]);
    known(&bench.receiver_key);
    assert_eq!(send().0, 0);
    bench.assert_received("x", &bytes("x", 1000));
}

#[test]
fn a_silent_host_is_given_up() {
    let bench = Bench::new();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let (code, report, _) = run(bench
        .sender()
        .arg(bench.write("x", 1))
        .arg(silent.local_addr().unwrap().to_string()));
    assert_eq!((code, &report["error"]["kind"]), (5, &"unreachable".into()));
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_host_that_nobody_knows_is_unreachable() {
    let bench = Bench::new();
    // No name ends like this (RFC 6761 §6.4).
    let mut sender = bench.sender();
    let (code, report, _) = run(sender.arg(bench.write("x", 1)).arg("nobody.invalid"));
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!((code, &report["error"]["kind"]), (5, &"unreachable".into()));
    assert!(message.contains("nobody.invalid"), "{message}");
}

#[test]
fn usage_and_local_mistakes() {
    let bench = Bench::new();
    let code = |command: &mut Command| command.output().unwrap().status.code();
    assert_eq!(code(bench.program().arg("send")), Some(2));
    // Without a host it would be sent by a code, if it were there.
    assert_eq!(code(bench.program().args(["send", "x"])), Some(7));
    assert_eq!(code(bench.program().args(["send", "x", "::1"])), Some(2));
    // Who reads JSON gets an object whatever is wrong.
    for wrong in [
        &["send", "--json"][..],
        &["send", "--json", "x", "::1"],
        &["send", "--json", "--no-such-option", "x", "h"],
        &["recv", "--json", "--listen", "nowhere"],
    ] {
        let (code, report, said) = run(bench.program().args(wrong));
        assert_eq!((code, &report["exit_code"]), (2, &2.into()), "{report}");
        assert_eq!(report["error"]["kind"], "usage", "{report}");
        assert_eq!(report["role"], wrong[0]);
        assert!(!said.is_empty());
    }
    // All that is said is in it, and who was asked.
    for (wrong, role, words) in [
        (&["cp", "--json"][..], "cp", "SRC"),
        (&["cp", "--json", "-P", "22", "x", "h:"], "cp", "ssh -p"),
        (&["send", "--json", "", "h"], "send", "an empty name"),
        (&["send", "--json", "-", "x", "h"], "send", "sent alone"),
        (&["sync", "--json", "x"], "sync", "SRC"),
        (
            &["sync", "--json", "--filter", "P kept", "x", "h:"],
            "sync",
            "P kept",
        ),
        (&["serve", "--json", "x"], "serve", "--json"),
        (&["no-such-command", "--json"], "dfcp", "no-such-command"),
    ] {
        let (code, report, _) = run(bench.program().args(wrong));
        assert_eq!((code, &report["role"]), (2, &role.into()), "{report}");
        let message = report["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(words) && !message.contains("Usage"),
            "{message}"
        );
    }
    // Who knows scp and rsync is told what their options are here.
    for (option, advice) in [
        ("-P", "ssh -p"),
        ("-avz", "said in any case"),
        ("-p", "-a"),
        ("-H", "hard links"),
        ("--partial", "kept in any case"),
        ("--update", "--on-conflict newer"),
        ("--delete", "dfcp sync --delete"),
        ("-3", "two copies"),
        ("--inplace", "only what differs"),
    ] {
        let output = bench.program().args(["cp", option, "x", "h:"]).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(
            said.contains(advice) && said.contains("SRC... DST"),
            "{said}"
        );
    }
    // Of all at once, and of none that there is.
    let line = ["sync", "--delete", "-avz", "--partial=x", "x", "h:"];
    let output = bench.program().args(line).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    let tips = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let tips: Vec<_> = tips.filter_map(|tip| tip.split(':').next()).collect();
    assert_eq!(tips, ["-v", "-z", "--partial"], "{said}");
    let heard = ["recv", "7", "otter", "lamp"];
    let output = bench.program().args(heard).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("one word, as 7-otter-lamp"), "{said}");
    let (code, report, _) = run(bench.sender().arg(bench.path("none")).arg("127.0.0.1"));
    assert_eq!((code, &report["error"]["kind"]), (7, &"local_io".into()));
    let key = bench.path("sender.key");
    fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (code, report, _) = run(bench.sender().arg(bench.write("x", 1)).arg("127.0.0.1"));
    assert_eq!(
        (code, &report["error"]["kind"]),
        (4, &"authentication".into())
    );
}

#[test]
fn what_is_no_text_or_no_directory_is_a_mistake_that_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let no_text = std::ffi::OsStr::from_bytes(b"host:\xff");
    let mut copy = bench.program();
    let (code, report, _) = run(copy.args(["cp", "--json"]).arg(no_text).arg("there"));
    assert_eq!((code, &report["role"]), (2, &"cp".into()), "{report}");
    let file = bench.write("x", 1);
    let mut receive = bench.program();
    receive.args(["recv", "--json", "--allow-any", "-o"]);
    let mut log = bench.sender();
    log.arg(&file).args(["127.0.0.1", "--qlog"]);
    for command in [&mut receive, &mut log] {
        let (code, report, _) = run(command.arg(&file));
        let message = report["error"]["message"].as_str().unwrap();
        assert_eq!(code, 7, "{report}");
        assert!(message.contains("not a directory"), "{report}");
    }
}

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

/// Nobody gives names of hosts within `invalid` (RFC 6761).
#[test]
fn a_name_that_is_neither_a_file_nor_a_host_is_said_to_be_neither() {
    let bench = Bench::new();
    let mut sender = bench.sender();
    let (code, report, _) = run(sender.arg(bench.write("x", 1)).arg("y.invalid"));
    let message = report["error"]["message"].as_str().unwrap();
    assert_eq!(code, 5, "{report}");
    assert!(
        message.contains("y.invalid") && message.contains("file"),
        "{message}"
    );
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
fn a_source_that_shrinks_is_noticed() {
    let bench = Bench::new();
    let receiver = bench.receiver(&["--once"]);
    let file = bench.write("x", LARGE);
    let mut sender = bench.sender();
    sender
        .args(["--fixed-rate", "200M"])
        .arg(&file)
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let (code, report, _) = finish(sender);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (7, &"local_io".into()),
        "{report}"
    );
    let (code, report) = receiver.end();
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 7 && message.contains("changed"), "{report}");
    assert_eq!(bench.received(), ["x.dfcp-journal", "x.dfcp-partial"]);
}

#[test]
fn a_killed_receiver_is_noticed() {
    let bench = Bench::new();
    let mut receiver = bench.receiver(&["--once"]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M", "--timeout", "3s"]);
    sender
        .arg(bench.write("x", LARGE))
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    receiver.kill();
    let (code, report, _) = finish(sender);
    assert_eq!(
        (code, &report["error"]["kind"]),
        (5, &"unreachable".into()),
        "{report}"
    );
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains("goes on where it was"), "{message}");
    assert!(partial.exists());
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

#[test]
fn a_killed_or_interrupted_sender_is_noticed() {
    common::hear_hang_ups();
    for (signal, sender_code, receiver_code) in [
        (Signal::SIGKILL, None, 5),
        (Signal::SIGINT, Some(130), 1),
        (Signal::SIGTERM, Some(143), 1),
        (Signal::SIGHUP, Some(129), 1),
    ] {
        let bench = Bench::new();
        let receiver = bench.receiver(&["--once", "--timeout", "2s"]);
        let mut sender = bench.sender();
        sender.args(["--fixed-rate", "100M"]);
        sender
            .arg(bench.write("x", LARGE))
            .arg(receiver.address.to_string());
        let mut sender = sender.spawn().unwrap();
        let partial = bench.path("received/x.dfcp-partial");
        eventually("some bytes arrive", || {
            fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
        });
        kill(Pid::from_raw(sender.id() as i32), signal).unwrap();
        assert_eq!(common::wait(&mut sender).code(), sender_code);
        let (code, report) = receiver.end();
        assert_eq!(code, receiver_code, "{report}");
        assert!(report.to_string().contains("x.dfcp-partial"), "{report}");
        assert_eq!(bench.received(), ["x.dfcp-journal", "x.dfcp-partial"]);
    }
}

#[test]
fn an_interrupted_receiver_says_so() {
    let bench = Bench::new();
    let receiver = bench.receiver(&[]);
    let mut sender = bench.sender();
    sender.args(["--fixed-rate", "100M"]);
    sender
        .arg(bench.write("x", LARGE))
        .arg(receiver.address.to_string());
    let sender = sender.spawn().unwrap();
    let partial = bench.path("received/x.dfcp-partial");
    eventually("some bytes arrive", || {
        fs::metadata(&partial).is_ok_and(|m| m.len() > 0)
    });
    receiver.signal(Signal::SIGINT);
    let (code, report, _) = finish(sender);
    let message = report["error"]["message"].as_str().unwrap();
    assert!(code == 1 && message.contains("interrupted"), "{report}");
    // The receiver itself says the same, and not that a connection was closed.
    let (code, report) = receiver.end();
    assert_eq!(code, 130);
    assert_eq!(
        (&report["exit_code"], &report["error"]["message"]),
        (&130.into(), &"interrupted".into()),
        "{report}"
    );
    assert!(partial.exists());
}

#[test]
fn a_standard_error_that_cannot_be_written_ends_nothing() {
    let code = |stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dfcp"));
        command.args(["send", "no-such-file", "127.0.0.1:9"]);
        command.stdin(Stdio::null()).stderr(stderr);
        command.status().unwrap().code()
    };
    let full = std::fs::File::options().write(true).open("/dev/full");
    assert_eq!(code(full.unwrap().into()), code(Stdio::null()));
    assert_eq!(code(Stdio::null()), Some(7));
}

#[test]
fn a_negative_number_is_a_wrong_value_of_its_option() {
    for (arguments, option) in [
        (&["send", "-b", "-1", "x", "h"][..], "--bwlimit"),
        (&["sync", "--max-delete", "-1", "a", "h:b"], "--max-delete"),
        (&["proxy", "serve", "--rate", "-1"], "--rate"),
    ] {
        let out = Bench::new().program().args(arguments).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{said}");
        let words = format!("invalid value '-1' for '{option}");
        assert!(said.contains(&words), "{said}");
    }
    // These are no numbers.
    let mut sender = Bench::new().program();
    let out = sender.args(["send", "-b", "1M", "-4", "-q", "no-such-file", "h"]);
    assert_eq!(out.output().unwrap().status.code(), Some(7));
}

/// Who may not raise the limit is told to; the superuser may.
#[test]
fn a_small_limit_of_the_stack_is_raised_or_told() {
    let bench = Bench::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -s 64 && exec \"$0\" key show --key \"$1\""]);
    shell.arg(env!("CARGO_BIN_EXE_dfcp"));
    let out = shell.arg(bench.path("sender.key")).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    match out.status.code() {
        Some(0) => {}
        code => {
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("ulimit -s"), "{said}");
        }
    }
}

/// Ten minutes of it would else be sixty lines.
#[test]
fn trying_again_is_told_once_while_its_reason_stays() {
    let bench = Bench::new();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr();
    let mut sender = bench.sender();
    // Each attempt takes a second, and two pass before the next.
    sender.args(["--retry", "5s"]).arg(bench.write("x", 1000));
    let (code, report, said) = run(sender.arg(nobody.unwrap().to_string()));
    assert_eq!(code, 5, "{said}");
    assert!(report["attempts"].as_u64().unwrap() > 2, "{report}");
    assert_eq!(said.matches("trying again").count(), 1, "{said}");
}
